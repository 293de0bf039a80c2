//! The prefetch size from a model of the disk, its clients and memory.
//!
//! The gradient of \[A\] moves one step in an interval: from a size four times too small it needs an hour.
//! This model reaches the right size within a minute. It takes the smallest of three bounds:
//!
//! - *Longest*. The configured maximum (`--size-max`).
//! - *Memory*. Every stream has a piece, and all of them fit into the budget. The budget is where a little
//!   more memory would gain as much if it kept bytes that are read again. So this also bounds pieces where
//!   longer ones gain less than they cost.
//! - *Clients that leave*. A client that leaves has some part of a piece unread. With `left` bytes of waste
//!   for each `used` bytes at a size `s0`, a useful byte costs `(1 / rate + switch / s) * (1 + left / used *
//!   s / s0)`, which is least at `sqrt(depth * s0 * used / left)`.
//!
//! The size changes by at most a fifth at a time. Larger pieces may request more at once than the disk can
//! deliver; smaller ones make twice as many requests for a while (\[A\] 4.2).

use seekless_base::{Bytes, PAGE_BYTES};

use super::Params;

/// Maximum change of the size at a time, as a factor: a quarter of an octave, so that a doubling takes four
/// changes.
const STEP: f64 = 1.189_207_115_002_721;

/// Number of samples in a mean that decides about sizes: ended streams (at the current size), or reads. Older
/// samples fade. At half, sizes follow chance; at double, they lag.
pub const RECENT: u32 = 256;

/// What is known about memory and clients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Situation {
    /// Size for the highest bitrate at which the streams' pieces fill the budget; 0 while there are no
    /// streams.
    pub room: u64,
    /// Mean factor of the streams' sizes by the bitrate rule, more than 0 and at most 1.
    pub part: f64,
    /// Number of streams that have ended so far.
    pub ended: u32,
    /// Mean bytes read by all streams per ended stream; 0 until some have ended.
    pub used: f64,
    /// Mean bytes that ended streams left unread.
    pub left: f64,
    /// What the disk transfers in the time of one switch.
    pub depth: u64,
}

/// The bound that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The configured maximum.
    Longest,
    /// The budget is full.
    Memory,
    /// Longer pieces are wasted on clients that leave.
    Leaving,
}

/// The model of one disk's prefetch size.
#[derive(Clone, Debug)]
pub struct SizeModel {
    least: f64,
    most: f64,
    size: f64,
    wanted: Option<(f64, Bound)>,
    /// The bound by clients that leave, infinite until some have; below, the number of ended streams at which
    /// it is next computed.
    leaving: f64,
    known_after: u32,
}

impl SizeModel {
    /// Starts with the start size.
    pub fn new(params: Params) -> SizeModel {
        let params = params.normalised();
        let least = params.step_size.min(params.start_size).0 as f64;
        SizeModel {
            least,
            most: params.size_max.0 as f64,
            size: params.start_size.0 as f64,
            wanted: None,
            leaving: f64::INFINITY,
            known_after: RECENT,
        }
    }

    /// The current size, in whole pages.
    pub fn size(&self) -> Bytes {
        pages(self.size)
    }

    /// The size that it moves to, and the one to start with next time.
    pub fn target(&self) -> Bytes {
        pages(self.wanted.map_or(self.size, |(size, _)| size))
    }

    /// The bound that decides; `None` before anything is known.
    pub fn bound(&self) -> Option<Bound> {
        self.wanted.map(|(_, bound)| bound)
    }

    /// Updates what is known of memory and clients.
    pub fn situation(&mut self, seen: Situation) {
        if seen.room == 0 || seen.depth == 0 {
            return;
        }
        // The bounds are for a mean stream; the size is for the highest bitrate.
        let part = if seen.part > 0.0 { seen.part.min(1.0) } else { 1.0 };
        let depth = seen.depth as f64;
        if seen.ended >= self.known_after {
            // Unread bytes were left at the old sizes: compute the bound again when as many streams have
            // ended at this one.
            self.known_after = seen.ended.saturating_add(RECENT);
            let size = self.size * part;
            self.leaving = match seen.left < 1.0 {
                true => f64::INFINITY,
                false => libm::sqrt(depth * size * seen.used.max(0.0) / seen.left) / part,
            };
        }
        let bounds =
            [(self.most, Bound::Longest), (seen.room as f64, Bound::Memory), (self.leaving, Bound::Leaving)];
        let least = bounds.into_iter().reduce(|a, b| if b.0 < a.0 { b } else { a });
        let Some((size, bound)) = least else { return };
        let wanted = size.max(self.least);
        let first = self.wanted.is_none();
        self.wanted = Some((wanted, bound));
        self.size = if first { wanted } else { wanted.clamp(self.size / STEP, self.size * STEP) };
    }
}

fn pages(size: f64) -> Bytes {
    Bytes((size as u64 / PAGE_BYTES * PAGE_BYTES).max(PAGE_BYTES))
}

#[cfg(test)]
mod tests;
