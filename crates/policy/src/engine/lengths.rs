//! How long a piece is: what the sizing algorithm says, cut to what memory bears and to what its stream is
//! likely to read.
//!
//! - The *share*: with many streams a piece is no longer than what the budget bears if every stream has one,
//!   as full as they are seen to be on the mean; nor longer than it is worth where memory is short, because
//!   the same memory would keep bytes that are used again ([`crate::memory`]).
//! - The *wait*: where many are blocked a piece is no longer than what lets each of them have the next in
//!   time ([`LongestWait`]).
//! - *Persistence*: most viewers leave early (\[L\] 4), so a piece is no longer than what its stream has read
//!   so far, and the first is half of the full size (or what the sizing algorithm says). It is slow start
//!   (\[C\] 2) driven by what the client did, not by how often it was prefetched for. Where clients are seen
//!   to stay ([`crate::Persistence`]) it does not bind.
//! - *Runs*: where readers that do not begin at the head of a file stop at about the same length, as peers do
//!   that take a piece of a file each, no piece goes further. For a reader that said it reads at random
//!   nothing is read beyond what it asks for until that is known.
//! - The *bitrate*: streams of lower bitrates get smaller pieces (\[A\] 5).

use alloc::vec::Vec;

use seekless_units::{Bytes, Nanos};

use super::DiskEngine;
use super::follow::next_page;
use crate::config::KERNEL_READ_AHEAD;
use crate::{EndEvidence, LongestWait, PAGE, Stream};
use seekless_sizing::controller::Situation;

/// How often the sizing algorithm hears of what happened, and how soon after the start the highest bitrate is
/// first looked for: far below any interval at which a size is adjusted. A start size may be far off.
const LOOK_EVERY: Nanos = Nanos::from_millis(500);

/// How often the highest bitrate is looked for, which is one pass over all streams.
const RANK_EVERY: Nanos = Nanos::from_secs(5);

/// Pieces that the automatic wait allows to everybody, in what the disk transfers in one switch: the disk
/// then transfers in sixteen parts of seventeen of its time. At half of it the median closed loop of 24 drawn
/// machines is 1.5 % slower, and the longest waits are 0.81 of the best-tuned kernel's instead of 0.94; at
/// double they are longer than that kernel's.
const WAIT_DEPTHS: f64 = 16.0;

/// What the sizing algorithm says about a stream's pieces, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PieceLen {
    pub(super) full: u64,
    first: u64,
    /// It ends where streams of this kind end: that is known, and the stream need not earn it.
    cut: bool,
    /// The stream's bitrate if it was told, bytes a second.
    pub(super) bitrate: Option<f64>,
}

impl DiskEngine {
    /// Tells the sizing algorithm what happened, and the time.
    pub(super) fn look_at_size(&mut self) {
        let due = self.size.next_deadline().is_some_and(|at| at <= self.now);
        if self.rests || (!due && self.now < self.next_look) {
            return;
        }
        self.next_look = self.now + LOOK_EVERY;
        let highest = self.following.highest_bitrate;
        self.size.highest_bitrate(highest);
        let seen = self.clock.observation(self.extents.totals(), highest);
        self.size.observe(self.now, seen);
    }

    /// What the algorithm says about the pieces of a stream that begin where it is fetched to.
    pub(super) fn piece_len(&self, stream: &Stream) -> PieceLen {
        let lba = stream.address_of(stream.fetched);
        let bitrate = self.bitrate_of(stream).map_or(0.0, |rate| self.sized_by(stream, rate));
        let size = self.size.full(lba, bitrate).min(Bytes(self.rest(stream)));
        let size = size.min(Bytes(self.slow_start(stream)));
        let full = size.min(Bytes(self.run_rest(stream)));
        let (first, cut) = (self.size.first(full).0, full < size);
        PieceLen { full: full.0, first, cut, bitrate: self.told(stream) }
    }

    /// Longest piece for a stream: persistence and share, at least a page.
    pub(super) fn piece_max(&self, stream: &Stream, len: PieceLen) -> u64 {
        let PieceLen { full, first, cut, .. } = len;
        let grown = match cut || self.following.table.persistence().stays() {
            true => full,
            false => stream.consumed.max(first),
        };
        let len = full.min(grown).min(self.share()).max(PAGE) / PAGE * PAGE;
        // A tail of less than half a piece goes with it, instead of costing a switch of its own.
        let rest = next_page(stream.file_size).saturating_sub(next_page(stream.fetched));
        let tail = rest.saturating_sub(len);
        let tuned = self.size.end_evidence() == EndEvidence::Ends;
        match tuned && !cut && grown >= full && tail < len / 2 && rest <= self.config.read_max.0 {
            true => len.max(rest),
            false => len,
        }
    }

    /// Bytes that bound a stream's pieces: what memory bears, what it is worth, what others wait for.
    pub(super) fn share(&self) -> u64 {
        let bears = self.memory.share(self.following.table.sharing());
        let worth = self.memory.worth(self.following.mean_rate, self.service.depth());
        bears.min(worth).min(self.wait_allows())
    }

    /// Longest pieces with which a client waits no longer than it may for what others are blocked on. Where
    /// that cannot be had, what the disk transfers in one switch.
    fn wait_allows(&self) -> u64 {
        let others = self.spindle.turns().saturating_sub(1) as f64 / self.spindles() as f64;
        let depth = self.service.depth().0 as f64;
        let waited_for = match self.following.config.longest_wait {
            _ if others == 0.0 => return u64::MAX,
            LongestWait::Off => return u64::MAX,
            LongestWait::Bound(longest) => self.service.transfers_in(longest).0 as f64,
            LongestWait::Auto => {
                let all = self.following.active.saturating_sub(1) as f64 / self.spindles() as f64;
                all.max(others) * ((KERNEL_READ_AHEAD.0 as f64).max(WAIT_DEPTHS * depth) + depth)
            }
        };
        (waited_for / others - depth).max(depth) as u64
    }

    /// Bytes beyond which no piece is to go: none where as much is fetched as a client is as likely to go on
    /// for as not.
    fn rest(&self, stream: &Stream) -> u64 {
        match self.median_rest(stream) {
            Some(rest) if rest <= stream.unread() => 0,
            Some(rest) if self.size.end_evidence() >= EndEvidence::Lengths => rest,
            _ => u64::MAX,
        }
    }

    /// Longest piece for a stream of which nothing says how far it goes: what it has read so far, and at
    /// least what the disk transfers in two switches, beyond which a longer piece gains little. Clients that
    /// begin at the head of a file mostly go on.
    fn slow_start(&self, stream: &Stream) -> u64 {
        match self.starts_slowly(stream) {
            true => stream.run.max(2 * self.service.depth().0.min(1 << 40)),
            false => u64::MAX,
        }
    }

    /// Whether nothing says how far a stream goes.
    pub(super) fn starts_slowly(&self, stream: &Stream) -> bool {
        self.size.end_evidence() == EndEvidence::Ends && self.following.table.is_unknown(stream)
    }

    /// Bytes beyond what is fetched for a stream at which those of its kind stop, if a piece is to end there.
    /// A paper's sizes are left as they are, but for readers that said they read at random.
    fn run_rest(&self, stream: &Stream) -> u64 {
        if !stream.random && self.size.end_evidence() == EndEvidence::Ignored {
            return u64::MAX;
        }
        let rest = match self.following.table.run_rest(stream) {
            None if stream.random => 0,
            None => return u64::MAX,
            Some(rest) => rest,
        };
        rest.saturating_sub(stream.unread())
    }

    /// How far half of those went on that came as far as this stream, where that is known and the sizing
    /// algorithm goes by it. One that reads at random goes on as far as its kind is known to.
    pub(super) fn median_rest(&self, stream: &Stream) -> Option<u64> {
        if stream.random {
            return Some(self.following.table.run_rest(stream).unwrap_or(0));
        }
        let counts = match self.size.end_evidence() {
            EndEvidence::Ignored => false,
            // Every other viewer goes on further, and would wait. What those cost that do not, the size
            // allows for.
            EndEvidence::Ends => !stream.is_sequential(&self.following.config.streams),
            EndEvidence::Lengths => true,
        };
        let known = || self.following.table.lengths().median_rest(stream.consumed);
        counts.then(|| known().or_else(|| self.following.table.run_rest(stream))).flatten()
    }

    /// Configured, else told of the file.
    fn told(&self, stream: &Stream) -> Option<f64> {
        let told = self.config.bitrate.or_else(|| self.files.bitrate(stream.file));
        told.map(|b| b as f64)
    }

    /// Configured, else told of the file, else as its client shows.
    fn bitrate_of(&self, stream: &Stream) -> Option<f64> {
        self.told(stream).or_else(|| stream.bitrate(self.now))
    }

    /// The bitrate a stream's size goes by. What its client shows, if that counts at all, is uncertain by a
    /// factor of two (a viewer's first burst looks three times as fast as it is), so only less than half of
    /// the highest differs from it.
    fn sized_by(&self, stream: &Stream, rate: f64) -> f64 {
        let highest = self.following.highest_bitrate;
        let tells = self.config.scale_by_observed && rate < highest / 2.0;
        match self.told(stream).is_some() || tells {
            true => rate,
            false => highest,
        }
    }

    /// Looks for the highest bitrate of now, and tells the sizing algorithm of memory and clients.
    pub(super) fn rank_bitrates(&mut self) {
        let following = &self.following;
        let every = if following.ranked == Nanos::ZERO { LOOK_EVERY } else { RANK_EVERY };
        if self.now < following.ranked + every {
            return;
        }
        let (mut rates, mut parts) = (Vec::new(), 0.0);
        let (mut active, mut read, mut took) = (0, 0.0, 0.0);
        for (_, stream) in following.table.iter() {
            if stream.goes_on(self.now, following.config.slack) {
                let (bytes, seconds) = stream.read_lately(self.now);
                (active, read, took) = (active + 1, read + bytes, took + seconds);
            }
            // Streams whose bitrate is not known yet get the whole size.
            let Some(rate) = self.bitrate_of(stream).filter(|rate| rate.is_finite()) else {
                parts += 1.0;
                continue;
            };
            parts += self.size.part(self.sized_by(stream, rate));
            rates.push(rate);
        }
        let skip = (rates.len() as f64 * self.config.constants.bitrate_outliers) as usize;
        rates.sort_unstable_by(|a, b| b.total_cmp(a));
        let highest = rates.get(skip).copied();
        let streams = following.table.len();
        let part = (parts / streams.max(1) as f64).clamp(0.01, 1.0);
        let room = if streams == 0 { 0.0 } else { self.share() as f64 / part };
        let following = &mut self.following;
        following.ranked = self.now;
        following.active = active;
        following.mean_rate = if took > 0.0 { read / took } else { following.mean_rate };
        following.highest_bitrate = highest.unwrap_or(following.highest_bitrate);
        let (ended, used, left) = following.table.persistence().means();
        let depth = self.service.depth().0;
        following.table.set_depth(Bytes(depth));
        self.size.situation(Situation { room: room as u64, part, ended, used, left, depth });
    }
}
