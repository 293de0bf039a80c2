//! The spindle's side of sizing and of the account: what it tells the algorithm, what it asks of it, who comes and goes.

use alloc::vec::Vec;

use seekless_units::{Bytes, Nanos};

use super::{Following, Spindle};
use crate::ahead::PieceLen;
use crate::controller::Situation;
use crate::piece::{Delivered, Wanted};
use crate::{Continuation, DropBehind, FileId, Heeds, Stream, StreamId};

/// How often the sizing algorithm hears of what happened. Far below any interval it looks at.
const LOOK_EVERY: Nanos = Nanos::from_millis(250);

/// Observed bitrates of at least this part of the highest count as the highest.
const ALIKE: f64 = 0.5;

/// How often the highest bitrate is looked for: one pass over all streams.
const RANK_EVERY: Nanos = Nanos::from_secs(5);

/// And after the start.
const RANK_FIRST: Nanos = Nanos::from_millis(500);

/// Weight of the newest in the moving average of what a stream reads: a viewer's first segments come at once.
const PACE_WEIGHT: f64 = 0.3;

/// Of the streams, as many in a thousand may be faster than what counts as the highest bitrate. One reader who downloads
/// as fast as his line allows must not make everybody else's pieces small.
const FASTER_PER_MILLE: usize = 50;

/// Bytes prefetched and not used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unused {
    bytes: u64,
    /// Of them since evictions were last answered: if these are gone, the answer was not enough.
    over_budget: u64,
}

impl Following {
    /// What the streams of now requested, in so long.
    fn observe_pace(&mut self, passed: Nanos, requested: u64) {
        let bytes = requested.saturating_sub(self.requested) as f64;
        self.requested = requested;
        // Longer ago there was nobody to look for.
        if passed > RANK_EVERY + RANK_EVERY {
            return;
        }
        let pace = bytes / passed.as_secs_f64() / self.table.len().max(1) as f64;
        let weight = if self.pace > 0.0 { PACE_WEIGHT } else { 1.0 };
        self.pace += weight * (pace - self.pace);
    }

    /// When evictions were last answered, by giving back what was read or by a smaller budget. What was fetched before, and is
    /// found gone only now, has been answered: pieces of 10 MB for the first viewers are read for minutes, and counted
    /// again each time somebody came to the end of one they took the budget from 1,365 MiB to 875 in four minutes in which
    /// nothing was evicted (20 TB drive, 2 GiB, 260 requests/s). `None` while there is something to give back and that has not been done.
    fn answered(&self, now: Nanos) -> Option<Nanos> {
        let given_back = match self.config.drop_behind {
            DropBehind::Pressure => self.pressure.settled(now)?,
            DropBehind::Never | DropBehind::Always => Nanos::ZERO,
        };
        Some(given_back.max(self.shrunk))
    }
}

/// The longest request that is its reader's own affair where the algorithm heeds no more than where readers end: with the kernel's usual
/// read-ahead two windows, so two seeks of its own; read for him a longer one costs one. Viewers who come back in the middle of their
/// films, all at once, are not known to read on, and those who were too late ended early; left alone they had the disk seek for good (WD
/// Red, 4 GiB, 100 requests/s, simulated: 25 MB/s and 580 failed in 200 s, ten minutes later; 54 MB/s and none).
const ITS_OWN: u64 = 256 << 10;

/// What becomes of a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It is its reader's own affair.
    Alone,
    /// Read for him, no further than he asks.
    AsAsked,
    /// Read for him, and ahead.
    Ahead,
}

impl Spindle {
    /// Tells the sizing algorithm what happened, now and then, and at its own time.
    pub(super) fn look_at_size(&mut self) {
        let due = self.size.next_deadline().is_some_and(|at| at <= self.now);
        if !due && self.now < self.next_look {
            return;
        }
        self.next_look = self.now + LOOK_EVERY;
        let highest = self.streams.as_ref().map_or(0.0, |f| f.highest);
        self.size.highest_bitrate(highest);
        let seen = self.account.observation(highest);
        self.size.observe(self.now, seen);
    }

    /// What the algorithm says about the pieces of a stream that begin where it is fetched to.
    pub(super) fn piece_len(&self, following: &Following, stream: &Stream) -> PieceLen {
        let lba = stream.address_of(stream.fetched);
        let bitrate =
            self.bitrate_of(following, stream).map_or(0.0, |rate| self.sized_by(following, stream, rate));
        let full = self.size.full(lba, bitrate).min(Bytes(self.rest(following, stream)));
        PieceLen { full: full.0, first: self.size.first(full).0, bitrate: self.told(following, stream) }
    }

    /// Bytes beyond which no piece is to go: none where as much is fetched as a reader is as likely to go on for as not.
    fn rest(&self, following: &Following, stream: &Stream) -> u64 {
        match self.median_rest(following, stream) {
            Some(rest) if rest <= stream.unread() => 0,
            Some(rest) if self.size.heeds() >= Heeds::Lengths => rest,
            _ => u64::MAX,
        }
    }

    /// How far half of those went on who came as far as this reader, where that is known and the sizing algorithm heeds it.
    fn median_rest(&self, following: &Following, stream: &Stream) -> Option<u64> {
        let heeded = match self.size.heeds() {
            Heeds::Nothing => false,
            // Every other viewer goes on further, and would wait. What those cost who do not, the size allows for.
            Heeds::Ends => !stream.is_sequential(&following.config.streams),
            Heeds::Lengths => true,
        };
        heeded.then(|| following.table.lengths().median_rest(stream.consumed)).flatten()
    }

    /// What becomes of a miss. One that reaches to the end of the file is never left alone: no piece could go beyond it. At the
    /// head of a file its reader counts as sequential from his first read, as in Linux, unless those who came as far went no further:
    /// lengths are known to within a quarter.
    pub(super) fn manner(&self, stream: Option<StreamId>, wanted: Wanted) -> Manner {
        let Some(following) = &self.streams else { return Manner::Ahead };
        let Some(stream) = stream.and_then(|id| following.table.get(id)) else { return Manner::Ahead };
        if wanted.end >= wanted.file_end {
            return Manner::Ahead;
        }
        let from_head = stream.first == 0 && stream.consumed == 0;
        let sequential = from_head || stream.is_sequential(&following.config.streams);
        let rest = self.median_rest(following, stream);
        let len = wanted.end - wanted.start;
        let heeds = self.size.heeds();
        let ends = rest.is_some_and(|rest| rest <= len.saturating_add(len / 4));
        let unknown = match heeds {
            Heeds::Nothing => false,
            // Until it is known how far readers go.
            Heeds::Ends => !sequential && rest.is_none(),
            Heeds::Lengths => !sequential,
        };
        match ends || unknown {
            false => Manner::Ahead,
            true if heeds == Heeds::Ends && len > ITS_OWN => {
                if ends {
                    Manner::AsAsked
                } else {
                    Manner::Ahead
                }
            }
            true => Manner::Alone,
        }
    }

    /// Configured, else from the file's header.
    fn told(&self, following: &Following, stream: &Stream) -> Option<f64> {
        let told = self.config.bitrate.or_else(|| following.bitrates.get(&stream.file).copied());
        told.map(|b| b as f64)
    }

    /// Configured, else from the file's header, else as its reader shows.
    fn bitrate_of(&self, following: &Following, stream: &Stream) -> Option<f64> {
        self.told(following, stream).or_else(|| stream.bitrate(self.now))
    }

    /// The bitrate a stream's size goes by: what its reader shows, if that counts at all, is too uncertain to tell it from the highest
    /// within a factor of two (a viewer's first burst looks three times as fast as he is).
    fn sized_by(&self, following: &Following, stream: &Stream, rate: f64) -> f64 {
        let tells = self.config.scale_by_observed && rate < following.highest * ALIKE;
        match self.told(following, stream).is_some() || tells {
            true => rate,
            false => following.highest,
        }
    }

    /// Looks for the highest bitrate of now.
    pub(super) fn rank_bitrates(&mut self) {
        let Some(following) = &self.streams else { return };
        // The first time soon: a start size may be far off.
        let every = if following.ranked == Nanos::ZERO { RANK_FIRST } else { RANK_EVERY };
        if self.now < following.ranked + every {
            return;
        }
        let (mut rates, mut parts) = (Vec::new(), 0.0);
        for (_, stream) in following.table.iter() {
            // Streams whose bitrate is not known yet get the whole size.
            let Some(rate) = self.bitrate_of(following, stream).filter(|rate| rate.is_finite()) else {
                parts += 1.0;
                continue;
            };
            parts += self.size.part(self.sized_by(following, stream, rate));
            rates.push(rate);
        }
        let skip = rates.len() * FASTER_PER_MILLE / 1000;
        rates.sort_unstable_by(|a, b| b.total_cmp(a));
        let highest = rates.get(skip).copied();
        let streams = following.table.len();
        let part = (parts / streams.max(1) as f64).clamp(0.01, 1.0);
        let requested = self.account.totals().requested;
        let Some(following) = &mut self.streams else { return };
        following.observe_pace(self.now.since(following.ranked), requested);
        following.ranked = self.now;
        following.highest = highest.unwrap_or(following.highest);
        let (ended, used, left) = following.table.persistence().means();
        let room = match streams {
            0 => 0.0,
            _ => following.config.share(&following.table) as f64 / part,
        };
        let pace = following.pace;
        self.size.situation(self.now, Situation { room: room as u64, part, ended, used, left, pace });
    }

    /// Remembers what a file's header says.
    pub(super) fn told_bitrate(&mut self, file: FileId, bytes_per_s: u64) {
        let Some(following) = &mut self.streams else { return };
        // Only while somebody reads it, so there are never more than streams.
        if bytes_per_s > 0 && following.table.of_file(file).next().is_some() {
            following.bitrates.insert(file, bytes_per_s);
        }
    }

    /// The stream an access belongs to, moved on; `None` where streams are not followed. One that made room for it is over.
    pub(super) fn observe(
        &mut self,
        file: FileId,
        offset: u64,
        len: u64,
        file_size: u64,
    ) -> Option<StreamId> {
        let following = self.streams.as_mut()?;
        let (stream, forgotten) = following.table.observe(self.now, file, offset, len, file_size);
        if let Continuation::Began(_) = stream {
            self.account.ledger().opened(file);
        }
        if let Some((id, forgotten)) = forgotten {
            following.forget(id);
            self.closed(Some(forgotten));
        }
        Some(stream.stream())
    }

    /// A stream is over.
    pub(super) fn closed(&mut self, over: Option<Stream>) {
        let (Some(over), Some(following)) = (over, &mut self.streams) else { return };
        self.account.ledger().closed(over.file, over.position);
        if following.table.of_file(over.file).next().is_none() {
            following.bitrates.remove(&over.file);
        }
    }

    /// Somebody looked, and the bytes `[start, end)` are not in memory. Streams that count on them are fetched for again.
    pub(super) fn found_missing(&mut self, file: FileId, start: u64, end: u64) {
        if start >= end || self.is_under_way(file, start, end) {
            return;
        }
        self.evicted(file, start, end);
        self.account.ledger().missing(self.now, file, start, end);
        let Some(following) = &self.streams else { return };
        let hit = following.table.of_file(file).filter(|(_, s)| s.fetched > start && s.position < end);
        let hit: Vec<StreamId> = hit.map(|(id, _)| id).collect();
        for id in hit {
            if let Some(following) = &mut self.streams {
                following.table.lost(id, start);
            }
            self.line_up(id);
        }
    }

    /// The streams that count on the byte at `offset` being in memory.
    pub(super) fn counting_on(&self, file: FileId, offset: u64) -> Vec<StreamId> {
        let Some(following) = &self.streams else { return Vec::new() };
        // What lies before a stream's position had been read: another viewer begins close behind, or this one reads again.
        let counting =
            following.table.of_file(file).filter(|(_, s)| (s.position..s.fetched).contains(&offset));
        counting.map(|(id, _)| id).collect()
    }

    /// These bytes of a file came from the disk.
    pub(super) fn enter(&mut self, file: FileId, delivered: &[Delivered]) {
        for &Delivered { start, end, counted_on } in delivered {
            // What a viewer left who is gone, and another has come to at last, nobody counted on.
            if counted_on {
                self.evicted(file, start, end);
            }
            self.account.ledger().fetched(self.now, file, start, end);
        }
    }

    /// What was prefetched of a range and has neither been used nor given back.
    fn unused_in(&self, file: FileId, start: u64, end: u64) -> Unused {
        let within = |since| self.account.unused_in(file, start, end, since);
        let over_budget = self.streams.as_ref().and_then(|f| f.answered(self.now)).map_or(0, within);
        Unused { bytes: within(Nanos::ZERO), over_budget }
    }

    /// These bytes are not in memory, and their reader has not come: what was fetched of them and not used. What has been read gives
    /// way first, if it may; the budget after that.
    pub(super) fn evicted(&mut self, file: FileId, start: u64, end: u64) {
        let gone = self.unused_in(file, start, end);
        if gone.bytes == 0 {
            return;
        }
        self.stats.bytes_evicted_unused += gone.bytes;
        let fetched = self.account.totals().disk;
        let Some(following) = &mut self.streams else { return };
        // More was fetched for blocked readers than the budget has: that says nothing about the budget.
        let budget = following.config.budget.0;
        if following.table.unread() <= budget.saturating_add(budget / 4) {
            self.stats.bytes_evicted_over_budget += gone.over_budget;
        }
        following.pressure.evicted(self.now, gone.bytes, fetched);
    }

    /// Bytes that should lie in memory, fetched and not read, of the first stream after this one that has any: whoever can
    /// look may report them [`crate::Event::Missing`]. Start over with `None` when there is none.
    pub fn next_unread(&self, after: Option<StreamId>) -> Option<(StreamId, FileId, u64, u64)> {
        let (id, stream) = self.streams.as_ref()?.table.next_unread(after)?;
        let pieces = self.pieces_of(stream.file);
        // What is still to come is no evidence.
        let coming = pieces.iter().filter(|&&(_, from, to)| from < stream.fetched && stream.position < to);
        let end = coming.map(|&(_, from, _)| from).min().unwrap_or(stream.fetched).min(stream.fetched);
        Some((id, stream.file, stream.position, end.max(stream.position)))
    }
}
