//! Length of a piece: the prefetch size of the sizing algorithm, cut to what fits into memory and to what its
//! stream is likely to read.
//!
//! - The *share*: with many streams a piece is at most the length at which one for every stream fits into the
//!   budget, given how full pieces are on average. It is also no longer than it is worth when memory is
//!   short, because the same memory would keep bytes that are used again ([`crate::memory`]).
//! - The *wait*: with many blocked clients, a piece is short enough that each of them gets its next one in
//!   time ([`LongestWait`]).
//! - *Persistence*: most viewers leave early (\[L\] 4), so a piece is no longer than what its stream has read
//!   so far, and the first is half of the full size (or the length that the sizing algorithm gives). It is
//!   slow start (\[C\] 2), driven by what the client read and not by how often it was prefetched for. It does
//!   not apply once clients are seen to stay ([`crate::Persistence`]).
//! - *Runs*: where readers that do not begin at the head of a file stop at about the same length, no piece
//!   goes further. For a reader that announced random reads, a piece is no longer than what it has read
//!   without a jump until that length is known.
//! - The *grid*: where such readers begin at equal distances, as peers do that each take a piece of a
//!   torrent, no piece goes beyond the next such place ([`crate::stream`], `grid.rs`).
//! - The *bitrate*: streams of lower bitrates get smaller pieces (\[A\] 5).

use alloc::vec::Vec;

use seekless_base::{Bytes, Nanos};

use super::DiskEngine;
use super::follow::next_page;
use crate::constants::{Constants, time};
use crate::sizing::controller::Situation;
use crate::{EndEvidence, FileId, LongestWait, PAGE, Sizing, Stream};

/// How often the sizing algorithm is updated, and how soon after the start the highest bitrate is first
/// computed, because a start size may be far off. Far below any interval at which a size is adjusted.
const LOOK_EVERY: Nanos = Nanos::from_millis(500);

/// How often the highest bitrate is computed, in one pass over all streams.
const RANK_EVERY: Nanos = Nanos::from_secs(5);

/// Bytes of the pages from the one with the byte `from` to the one with the byte before `upto`.
fn pages_between(from: u64, upto: u64) -> u64 {
    next_page(upto).saturating_sub(from / PAGE * PAGE)
}

/// The length that the sizing algorithm gives for a stream's pieces, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PieceLen {
    pub(super) full: u64,
    first: u64,
    /// The piece ends where streams of this kind end. That end is known, so slow start does not apply.
    cut: bool,
    /// The stream's bitrate if it was given, bytes a second.
    pub(super) bitrate: Option<f64>,
}

impl DiskEngine {
    /// Updates the sizing algorithm with what happened and the time.
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

    /// The length that the algorithm gives for a piece at the end of what the stream has fetched.
    /// `at` is the byte whose cell the piece may reach the end of: the last one read, or the one that is
    /// missing.
    pub(super) fn piece_len(&self, stream: &Stream, at: u64) -> PieceLen {
        let lba = stream.address_of(stream.fetched);
        let bitrate = self.bitrate_of(stream).map_or(0.0, |rate| self.sized_by(stream, rate));
        // What is known to be read to its end costs nothing that is left unread.
        let whole =
            self.size.end_evidence() == EndEvidence::Ends && self.following.table.ends_with_cell(stream);
        let size = match &self.config.sizing {
            Sizing::Auto(params) if whole => params.size_max,
            _ => self.size.full(lba, bitrate),
        };
        let size = size.min(Bytes(self.rest(stream)));
        let size = size.min(Bytes(self.slow_start(stream)));
        let full = size.min(Bytes(self.run_rest(stream, at)));
        let (first, cut) = (self.size.first(full).0, whole || full < size);
        PieceLen { full: full.0, first, cut, bitrate: self.told(stream) }
    }

    /// Maximum length of a stream's pieces, after persistence and share; at least a page.
    pub(super) fn piece_max(&self, stream: &Stream, len: PieceLen) -> u64 {
        let PieceLen { full, first, cut, .. } = len;
        let grown = match cut || self.following.table.persistence().stays() {
            true => full,
            false => stream.consumed.max(first),
        };
        let len = full.min(grown).min(self.share()).max(PAGE) / PAGE * PAGE;
        // Fetch a tail of less than half a piece along with it, instead of with a switch of its own.
        let rest = next_page(stream.file_size).saturating_sub(next_page(stream.fetched));
        let tail = rest.saturating_sub(len);
        let tuned = self.size.end_evidence() == EndEvidence::Ends;
        match tuned && !cut && grown >= full && tail < len / 2 && rest <= self.config.read_max.0 {
            true => len.max(rest),
            false => len,
        }
    }

    /// Bound on the pieces of all streams: what fits into memory, what it is worth, how long others wait.
    pub(super) fn share(&self) -> u64 {
        let bears = self.memory.share(self.following.table.sharing());
        let worth = self.memory.worth(self.following.mean_rate, self.service.depth());
        bears.min(worth).min(self.wait_allows())
    }

    /// Maximum length of pieces at which clients wait no longer than allowed for those of others; at least
    /// what the disk transfers in one switch.
    fn wait_allows(&self) -> u64 {
        // Clients that the kernel reads for wait for one another as those that a door blocks do.
        let turns = self.queue.turns().max(self.following.by_kernel.len());
        let others = turns.saturating_sub(1) as f64 / self.spindles() as f64;
        let depth = self.service.depth().0 as f64;
        let waited_for = match self.following.config.longest_wait {
            _ if others == 0.0 => return u64::MAX,
            LongestWait::Off => return u64::MAX,
            LongestWait::Bound(longest) => self.service.transfers_in(longest).0 as f64,
            LongestWait::Auto => {
                let all = self.following.active.saturating_sub(1) as f64 / self.spindles() as f64;
                let all = all.max(others);
                let Constants { wait_depths, wait_unnoticed_s, .. } = self.config.constants;
                let unnoticed = self.service.transfers_in(time(wait_unnoticed_s)).0 as f64 / all - depth;
                let piece = wait_depths * depth;
                all * (unnoticed.clamp(piece, 2.0 * piece) + depth)
            }
        };
        (waited_for / others - depth).max(depth) as u64
    }

    /// Bytes a stream is likely to go on for; no piece goes beyond. 0 once the median remainder is fetched.
    fn rest(&self, stream: &Stream) -> u64 {
        match self.median_rest(stream) {
            Some(rest) if rest <= stream.unread() => 0,
            Some(rest) if self.size.end_evidence() >= EndEvidence::Lengths => rest,
            _ => u64::MAX,
        }
    }

    /// Maximum length for a stream of unknown length: what it has read so far, and at least what the disk
    /// transfers in two switches, beyond which a longer piece gains little. Not that much where two reads may
    /// have met by chance. Clients that begin at the head of a file mostly go on.
    fn slow_start(&self, stream: &Stream) -> u64 {
        let tuned = self.size.end_evidence() == EndEvidence::Ends;
        match self.starts_slowly(stream) {
            _ if tuned && self.following.table.may_be_chance(stream) => stream.run,
            true => stream.run.max(2 * self.service.depth().0.min(1 << 40)),
            false => u64::MAX,
        }
    }

    /// Whether nothing is known of how far a stream reads.
    pub(super) fn starts_slowly(&self, stream: &Stream) -> bool {
        self.size.end_evidence() == EndEvidence::Ends && self.following.table.is_unknown(stream)
    }

    /// Bytes from the end of what is fetched to where streams of this kind stop, if a piece is to end there.
    /// The sizes of the papers are not changed, except for readers that announced random reads.
    fn run_rest(&self, stream: &Stream, at: u64) -> u64 {
        if !stream.random && self.size.end_evidence() == EndEvidence::Ignored {
            return u64::MAX;
        }
        self.expected_rest(stream, at).map_or(u64::MAX, |rest| rest.saturating_sub(stream.unread()))
    }

    /// Bytes from a stream's position to where it is expected to stop; `None` if nothing is known. A reader
    /// that announced random reads is then expected to go on until it has read twice as much. The last page
    /// of a cell is read whole.
    fn expected_rest(&self, stream: &Stream, at: u64) -> Option<u64> {
        let table = &self.following.table;
        let doubled = match self.size.end_evidence() {
            EndEvidence::Ends => pages_between(stream.position, stream.doubled(at)),
            EndEvidence::Ignored | EndEvidence::Lengths => 0,
        };
        let known = table.run_rest(stream).or(stream.random.then_some(doubled));
        let Some((end, ends)) = table.cell(stream, at) else { return known };
        let rest = pages_between(stream.position, end);
        match (ends, known) {
            (Some(true), _) | (_, None) => Some(rest),
            (_, Some(known)) => Some(known.min(rest)),
        }
    }

    /// Median of how much further streams read that came as far as this one, if it is known and the sizing
    /// algorithm uses it. A reader at random reads as far as its kind is known to.
    pub(super) fn median_rest(&self, stream: &Stream) -> Option<u64> {
        if stream.random || self.following.table.ends_with_cell(stream) {
            return self.expected_rest(stream, stream.position);
        }
        let counts = match self.size.end_evidence() {
            EndEvidence::Ignored => false,
            // Every second viewer reads further and would have to wait. The size already allows for the cost
            // of those that do not.
            EndEvidence::Ends => !stream.is_sequential(),
            EndEvidence::Lengths => true,
        };
        let known = || self.following.table.lengths().median_rest(stream.consumed);
        counts.then(|| known().or_else(|| self.following.table.run_rest(stream))).flatten()
    }

    /// Configured bitrate, else the one given for the file, bytes a second.
    pub(super) fn told_of(&self, file: FileId) -> Option<u64> {
        self.config.bitrate.or_else(|| self.files.bitrate(file))
    }

    fn told(&self, stream: &Stream) -> Option<f64> {
        self.told_of(stream.file).map(|b| b as f64)
    }

    /// Configured bitrate, else the one given for the file, else the observed one.
    pub(super) fn bitrate_of(&self, stream: &Stream) -> Option<f64> {
        self.told(stream).or_else(|| stream.bitrate(self.now))
    }

    /// The bitrate that scales a stream's size. An observed bitrate, if it counts at all, may be wrong by a
    /// factor of two (a viewer's first burst looks three times as fast as it is), so it counts only below
    /// half of the highest.
    fn sized_by(&self, stream: &Stream, rate: f64) -> f64 {
        let highest = self.following.highest_bitrate;
        let tells = self.config.scale_by_observed && rate < highest / 2.0;
        match self.told(stream).is_some() || tells {
            true => rate,
            false => highest,
        }
    }

    /// Computes the current highest bitrate, and updates the sizing algorithm's view of memory and clients.
    pub(super) fn rank_bitrates(&mut self) {
        let following = &self.following;
        let every = if following.ranked == Nanos::ZERO { LOOK_EVERY } else { RANK_EVERY };
        if self.now < following.ranked + every {
            return;
        }
        let (mut rates, mut parts) = (Vec::new(), 0.0);
        let (mut active, mut read, mut took) = (0, 0.0, 0.0);
        for (_, stream) in following.table.iter() {
            if stream.is_active(self.now, following.config.slack) {
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
