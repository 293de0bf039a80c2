//! Decides what a lower level keeps below a level that keeps what it fetches: only what is requested again.
//!
//! PFC's first action is *bypass*: what the upper level will hold is not held here a second time (\[P\] 3.1,
//! "exclusive caching"). It learns how much to bypass from repeated requests: a block that was bypassed and
//! is requested again was evicted above too early. Its rules expect requests of varying length, as the upper
//! level's prefetcher makes them. A cache over HTTP that fetches slices makes requests of one length. By the
//! rules all of them are "large", so all would bypass this level for ever.
//!
//! This coordinator has the same aim, and uses only the evidence of repeated requests. Every request that
//! arrives is a miss of the upper level. For each *unit* (a file, or 16 MiB of a longer one) it counts
//! repeated requests, with exponential decay. The units with most of them, as many as this level can hold,
//! are *kept*. All others are *passed*: given back when they have been sent. A kept unit has an advantage
//! over one that is not ([`ReturnsParams::stick`]), so that units of equal rank do not evict one another in
//! turn.
//!
//! If the upper cache is large and the lower one small and in LRU order, what was sent up is evicted here
//! before it is requested again. Keeping a fixed part answers requests for that part; keeping everything
//! answers none.
//!
//! If recent blocks predict requests better than frequent ones, keeping everything in order of use answers
//! more. So both are computed all the time, with the requests as they come: what kept units have answered,
//! and what a list of the most recent blocks ([`RECENT_SHARE`] of the memory) would have answered. While the
//! list is better by a twentieth, nothing is given back.
//!
//! The capacity of this level is not known, so it is learnt. If a unit that was kept and sent completely is
//! not in memory any more, too much is kept ([`Returns::lost`]). The share then shrinks by a tenth; without
//! such losses it grows slowly, up to 45 hundredths of the memory. Bytes that were sent and are not kept stay
//! in the remaining room ([`Returns::room`]) beside what is read ahead.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::recent::RecentBlocks;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReturnsParams {
    /// Length of a unit in bytes; shorter files are units of their own. 1 MiB to 1 GiB.
    pub unit: u64,
    /// Bytes requested after which a past request counts half, in multiples of the memory. In a model of 118
    /// equal or Zipf-popular files below two sizes of upper cache, 6 to 60 gave the same within 3 %.
    pub half_life: f64,
    /// How much more often another unit must be requested to displace a kept one. At least 1. 1.3 to 4 gave
    /// the same within 3 % in that model.
    pub stick: f64,
    /// Maximum number of counted units; those with the fewest requests are forgotten. 64 bytes each.
    pub units_max: usize,
}

impl Default for ReturnsParams {
    fn default() -> ReturnsParams {
        ReturnsParams { unit: 16 << 20, half_life: 16.0, stick: 2.0, units_max: 1 << 16 }
    }
}

/// Part of the memory for kept units: initial, maximum and minimum.
const SHARE_FIRST: f64 = 0.3;
const SHARE_MOST: f64 = 0.45;
const SHARE_LEAST: f64 = 0.05;
/// Part of the repeated requests of kept units that may be lost.
const LOST_MAX: f64 = 0.05;
/// The share is adjusted whenever this part of the memory was requested again from kept units.
const LOOK_EVERY: f64 = 0.25;
/// Factors on the share.
const SHRUNK: f64 = 0.9;
const GROWN: f64 = 0.02;

/// Part of the memory that would hold the most recent blocks if nothing were given back; the rest is for
/// read-ahead.
pub const RECENT_SHARE: f64 = 0.6;
/// Unit of that list, bytes.
const RECENT_BLOCK: u64 = 64 << 10;
/// Factor by which it must be better.
const RECENT_BETTER: f64 = 1.05;

/// A unit: a file (by the caller's number) and an index in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId {
    /// The caller's number of the file.
    pub file: u64,
    /// Offset in the file over the length of a unit.
    pub index: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    size: u64,
    /// Number of repeated requests, in the growing unit of [`Returns::worth`].
    score: f64,
    kept: bool,
    /// Bytes sent since it is kept: from `size` on all of it should be in memory.
    sent: u64,
}

/// The state.
#[derive(Clone, Debug)]
pub struct Returns {
    params: ReturnsParams,
    memory: u64,
    share: f64,
    units: BTreeMap<UnitId, Unit>,
    /// Weight of a request now. It grows, which makes earlier ones decay.
    worth: f64,
    /// Bytes until the units are ranked again.
    until_ranked: u64,
    /// Bytes requested again from kept units since the share was last adjusted, and those of them not in
    /// memory.
    again: u64,
    lost: u64,
    /// The most recent blocks, and how many bytes each of the two ways has answered recently.
    recent: RecentBlocks,
    by_recency: f64,
    by_return: f64,
    kept: u64,
}

impl Returns {
    /// For a level with `memory` bytes; at least one unit is kept.
    pub fn new(params: ReturnsParams, memory: u64) -> Returns {
        let params = ReturnsParams {
            unit: params.unit.clamp(1 << 20, 1 << 30),
            half_life: if params.half_life > 0.0 { params.half_life } else { 16.0 },
            stick: params.stick.max(1.0),
            units_max: params.units_max.max(1),
        };
        let memory = memory.max(params.unit);
        let units = BTreeMap::new();
        let until_ranked = memory / 2;
        let blocks = ((memory as f64 * RECENT_SHARE) as u64 / RECENT_BLOCK).clamp(1, 1 << 26);
        let recent = RecentBlocks::new(blocks as usize);
        Returns {
            params,
            memory,
            share: SHARE_FIRST,
            units,
            worth: 1.0,
            until_ranked,
            again: 0,
            lost: 0,
            recent,
            by_recency: 0.0,
            by_return: 0.0,
            kept: 0,
        }
    }

    /// Maximum bytes of kept units.
    pub fn capacity(&self) -> u64 {
        ((self.memory as f64 * self.share) as u64).max(self.params.unit)
    }

    /// Bytes that were sent, are not kept and may stay.
    pub fn room(&self) -> u64 {
        ((self.memory as f64 * RECENT_SHARE) as u64).saturating_sub(self.kept)
    }

    /// Bytes of the kept units.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// The units that `[offset, offset + len)` of a file touches, each with the first requested byte and the
    /// number of bytes.
    pub fn units_of(
        &self,
        file: u64,
        offset: u64,
        len: u64,
    ) -> impl Iterator<Item = (UnitId, u64, u64)> + use<> {
        let (unit, end) = (self.params.unit, offset.saturating_add(len));
        let last = end.saturating_sub(1).max(offset) / unit;
        (offset / unit..=last).map(move |index| {
            let from = offset.max(index * unit);
            (UnitId { file, index }, from, end.min((index + 1).saturating_mul(unit)) - from)
        })
    }

    /// Whether everything stays, because a list of recent blocks would answer more.
    pub fn keeps_all(&self) -> bool {
        self.by_recency > RECENT_BETTER * self.by_return
    }

    /// The upper level requests `len` bytes from `offset` on, within one unit of a file of `file_size`.
    /// Returns whether they stay.
    pub fn requested(&mut self, id: UnitId, offset: u64, len: u64, file_size: u64) -> bool {
        self.look_at_recent(id.file, offset, len);
        let len = len.clamp(1, self.params.unit);
        let start = id.index.saturating_mul(self.params.unit);
        let size = file_size.saturating_sub(start).min(self.params.unit).max(1);
        // A request now weighs twice as much as one a half-life ago.
        self.worth *= libm::exp2(len as f64 / (self.params.half_life * self.memory as f64));
        let unit = self.units.entry(id).or_default();
        unit.size = size;
        unit.score += self.worth * len as f64 / size as f64;
        if unit.kept {
            let again = if unit.sent >= size { len } else { 0 };
            self.again += again;
            self.by_return += again as f64;
            unit.sent = unit.sent.saturating_add(len);
        }
        let kept = unit.kept;
        self.look_at_share();
        self.until_ranked = self.until_ranked.saturating_sub(len);
        if self.until_ranked == 0 || self.units.len() > self.params.units_max {
            self.until_ranked = self.memory / 2;
            self.rank();
            // Old evidence decays at the rate at which the memory is replaced.
            (self.by_recency, self.by_return) = (self.by_recency * 0.9, self.by_return * 0.9);
            return self.keeps_all() || self.units.get(&id).is_some_and(|u| u.kept);
        }
        kept || self.keeps_all()
    }

    fn look_at_recent(&mut self, file: u64, offset: u64, len: u64) {
        let end = offset.saturating_add(len.min(self.params.unit));
        for block in offset / RECENT_BLOCK..=end.saturating_sub(1).max(offset) / RECENT_BLOCK {
            let start = offset.max(block * RECENT_BLOCK);
            let part = end.min((block + 1).saturating_mul(RECENT_BLOCK)).saturating_sub(start);
            // Files are far apart in one range of numbers; a collision is a small error.
            let name = file.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(block);
            if self.recent.insert(name, true) {
                self.by_recency += part as f64;
            }
        }
    }

    /// Requested bytes of a unit were not in memory. That is a loss only if the unit is kept and was sent
    /// completely.
    pub fn lost(&mut self, id: UnitId, len: u64) {
        let len = len.min(self.params.unit);
        if let Some(unit) = self.units.get_mut(&id)
            && unit.kept
            && unit.sent >= unit.size.saturating_add(len)
        {
            self.lost += len;
        }
    }

    fn look_at_share(&mut self) {
        if (self.again as f64) < LOOK_EVERY * self.memory as f64 {
            return;
        }
        let too_much = self.lost as f64 > LOST_MAX * self.again as f64;
        self.share = match too_much {
            true => self.share * SHRUNK,
            false => self.share + GROWN,
        };
        self.share = self.share.clamp(SHARE_LEAST, SHARE_MOST);
        (self.again, self.lost) = (0, 0);
    }

    /// Chooses again what is kept: the units with most requests, as many as fit.
    fn rank(&mut self) {
        let stick = self.params.stick;
        let mut order: Vec<(f64, UnitId)> = self
            .units
            .iter()
            .map(|(&id, unit)| (unit.score * if unit.kept { stick } else { 1.0 }, id))
            .collect();
        order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut room = self.capacity();
        let mut full = false;
        for &(_, id) in &order {
            let Some(unit) = self.units.get_mut(&id) else { continue };
            full |= unit.size > room;
            let keep = !full;
            room -= if keep { unit.size } else { 0 };
            if keep && !unit.kept {
                unit.sent = 0;
            }
            unit.kept = keep;
        }
        self.kept = self.capacity() - room;
        // Three quarters stay, so that the search is paid for once in many units.
        for &(_, id) in order.iter().skip(self.params.units_max / 4 * 3 + 1) {
            self.units.remove(&id);
        }
        // Long before the weights overflow.
        if self.worth > 1e100 {
            let worth = core::mem::replace(&mut self.worth, 1.0);
            self.units.values_mut().for_each(|unit| unit.score /= worth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;

    fn id(file: u64) -> UnitId {
        UnitId { file, index: 0 }
    }

    /// Reads a file of 10 MiB in slices; whether it was kept throughout.
    fn read(returns: &mut Returns, file: u64) -> bool {
        (0..10).filter(|i| returns.requested(id(file), i * M, M, 10 * M)).count() == 10
    }

    #[test]
    fn what_returns_is_kept_and_the_rest_is_passed() {
        let mut returns = Returns::new(ReturnsParams::default(), 100 * M);
        assert!(!read(&mut returns, 0), "nothing is known of a first request");
        for round in 1..50 {
            read(&mut returns, 0);
            read(&mut returns, 1);
            read(&mut returns, 1000 + round);
        }
        assert!(read(&mut returns, 0) && read(&mut returns, 1));
        assert!(!read(&mut returns, 9999));
        assert!(returns.kept() <= returns.capacity());
    }

    #[test]
    fn units_of_equal_standing_do_not_take_turns() {
        let mut returns = Returns::new(ReturnsParams::default(), 100 * M);
        let kept = |r: &Returns| {
            (0..40).filter(|&f| r.units.get(&id(f)).is_some_and(|u| u.kept)).collect::<Vec<_>>()
        };
        let round = |r: &mut Returns| {
            (0..40).for_each(|f| {
                read(r, f);
            })
        };
        round(&mut returns);
        let first = kept(&returns);
        for _ in 0..10 {
            round(&mut returns);
        }
        let later = kept(&returns);
        assert!(!first.is_empty() && first.iter().all(|f| later.contains(f)), "{first:?} {later:?}");
    }

    /// Each file is read three times in a row and never again: the last ones are all that answers anything.
    #[test]
    fn where_the_most_recent_is_what_returns_everything_stays() {
        let mut returns = Returns::new(ReturnsParams::default(), 100 * M);
        for file in 0..200 {
            (0..3).for_each(|_| {
                read(&mut returns, file);
            });
        }
        assert!(returns.keeps_all() && read(&mut returns, 5000));
    }

    #[test]
    fn old_requests_fade() {
        let mut returns = Returns::new(ReturnsParams::default(), 100 * M);
        (0..20).for_each(|_| {
            read(&mut returns, 0);
        });
        assert!(read(&mut returns, 0));
        // Forty half-lives of others.
        for i in 0..6400 {
            read(&mut returns, 1 + i % 8);
        }
        assert!(!read(&mut returns, 0));
    }

    #[test]
    fn losses_shrink_the_share_and_their_absence_lets_it_grow() {
        let mut returns = Returns::new(ReturnsParams::default(), 100 * M);
        let mut go = |lose: bool| {
            for i in 0..600 {
                let unit = id(i % 3);
                if returns.requested(unit, i / 3 % 10 * M, M, 10 * M) && lose {
                    returns.lost(unit, M);
                }
            }
            returns.capacity()
        };
        assert!(go(false) > 35 * M);
        assert!((44 * M..=45 * M).contains(&go(false)), "no more than that");
        assert!(go(true) < 35 * M);
        (0..50).for_each(|_| {
            go(true);
        });
        assert_eq!(go(true), 16 * M, "one unit at least");
    }

    #[test]
    fn everything_is_bounded() {
        let params = ReturnsParams { units_max: 100, ..ReturnsParams::default() };
        let mut returns = Returns::new(params, 0);
        for i in 0..10_000u64 {
            let len = if i % 100 == 0 { u64::MAX } else { 1 };
            returns.requested(UnitId { file: i % 977, index: i % 5 }, u64::MAX - i, len, u64::MAX);
            returns.lost(id(i), u64::MAX);
            assert!(returns.units.len() <= 101 && returns.kept() <= returns.capacity());
        }
        assert!(returns.units.values().all(|u| u.score.is_finite()));
        assert_eq!(Returns::new(params, 0).units_of(7, 0, 0).count(), 1);
        let units: Vec<_> = returns
            .units_of(7, 15 * M, 18 * M)
            .map(|(u, from, part)| (u.index, from / M, part / M))
            .collect();
        assert_eq!(units, [(0, 15, 1), (1, 16, 16), (2, 32, 1)]);
    }
}
