//! The member commands for a command on the set.
//!
//! A plan is a sequence of phases: the commands of one phase are independent of each other, and the next
//! phase begins when all of them have ended (a write to a part of a stripe first reads the old data and
//! parity). Within a phase the ranges of a member are joined, so that no sector is read twice for one
//! command.

use alloc::vec::Vec;

use super::layout::SetLayout;
use super::{Health, SetKind};
use crate::drive::Op;

/// Sectors `[start, end)` of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) member: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// One phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub(super) op: Op,
    pub(super) extents: Vec<Extent>,
}

/// Too many members are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost;

/// Chooses a mirror to read from, out of at least one: each a member and its sector.
pub(super) type Choose<'a> = &'a mut dyn FnMut(&[(u32, u64)], u64) -> usize;

/// Members that can be read and written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planner<'a> {
    pub(super) layout: &'a SetLayout,
    pub(super) health: &'a [Health],
}

impl Planner<'_> {
    fn can_read(&self, member: u32, end: u64) -> bool {
        self.health[member as usize].reads(end)
    }

    fn can_write(&self, member: u32) -> bool {
        self.health[member as usize].writes()
    }

    /// The reads for sectors `[start, end)` of the set.
    pub(super) fn read(&self, start: u64, end: u64, choose: Choose<'_>) -> Result<Vec<Phase>, Lost> {
        let mut extents = Vec::new();
        let mut at = start;
        while at < end {
            let found = self.layout.locate(at);
            let len = found.together.min(end - at);
            let mut copies = self.layout.copies(at);
            copies.retain(|&(member, sector)| self.can_read(member, sector + len));
            if copies.is_empty() {
                self.rebuild_from(found.member, found.sector, found.sector + len, choose, &mut extents)?;
            } else {
                let picked = if copies.len() == 1 { 0 } else { choose(&copies, len).min(copies.len() - 1) };
                let (member, sector) = copies[picked];
                extents.push(Extent { member, start: sector, end: sector + len });
            }
            at += len;
        }
        Ok(phases([(Op::Read, extents)]))
    }

    /// The reads from which sectors of a member are computed without reading them there.
    fn rebuild_from(
        &self,
        member: u32,
        start: u64,
        end: u64,
        choose: Choose<'_>,
        extents: &mut Vec<Extent>,
    ) -> Result<(), Lost> {
        let layout = self.layout;
        if matches!(layout.spec().kind, SetKind::Raid1 | SetKind::Raid10) {
            let mut mirrors = layout.mirrors_of(member, start);
            mirrors.retain(|&(m, sector)| self.can_read(m, sector + (end - start)));
            if mirrors.is_empty() {
                return Err(Lost);
            }
            let (member, sector) = mirrors[choose(&mirrors, end - start).min(mirrors.len() - 1)];
            extents.push(Extent { member, start: sector, end: sector + (end - start) });
            return Ok(());
        }
        let needed = layout.spec().data_members() as usize;
        let others = layout.stripe_members(start / layout.chunk());
        let there: Vec<u32> = others.filter(|&m| m != member && self.can_read(m, end)).take(needed).collect();
        if there.len() < needed || !layout.spec().kind.is_redundant() {
            return Err(Lost);
        }
        extents.extend(there.into_iter().map(|member| Extent { member, start, end }));
        Ok(())
    }

    /// A flush goes to every writable member.
    pub(super) fn flush(&self) -> Vec<Phase> {
        let members = 0..self.health.len() as u32;
        let extents =
            members.filter(|&m| self.can_write(m)).map(|member| Extent { member, start: 0, end: 1 });
        phases([(Op::Flush, extents.collect())])
    }

    /// The writes for sectors `[start, end)` of the set.
    pub(super) fn write(&self, start: u64, end: u64) -> Result<Vec<Phase>, Lost> {
        if matches!(self.layout.spec().kind, SetKind::Raid5 | SetKind::Raid6) {
            return self.write_with_parity(start, end);
        }
        let mut extents = Vec::new();
        let mut at = start;
        while at < end {
            let len = self.layout.locate(at).together.min(end - at);
            let mut copies = self.layout.copies(at);
            copies.retain(|&(member, _)| self.can_write(member));
            if copies.is_empty() {
                return Err(Lost);
            }
            extents.extend(copies.iter().map(|&(member, s)| Extent { member, start: s, end: s + len }));
            at += len;
        }
        Ok(phases([(Op::Write, extents)]))
    }

    /// Stripe by stripe: a whole stripe is written with its parity; for a part, the old data and parity are
    /// read first, or whatever else gives the parity.
    fn write_with_parity(&self, start: u64, end: u64) -> Result<Vec<Phase>, Lost> {
        let layout = self.layout;
        let (chunk, data) = (layout.chunk(), u64::from(layout.spec().data_members()));
        let (mut before, mut writes) = (Vec::new(), Vec::new());
        for stripe in start / (chunk * data)..=(end - 1) / (chunk * data) {
            let base = stripe * chunk * data;
            let (from, upto) = (start.max(base) - base, end.min(base + chunk * data) - base);
            let row = stripe * chunk;
            // Data members touched, and the part of the row that any of them covers.
            let mut touched = Vec::new();
            let (mut low, mut high) = (chunk, 0);
            for index in from / chunk..=(upto - 1) / chunk {
                let a = from.max(index * chunk) - index * chunk;
                let b = upto.min((index + 1) * chunk) - index * chunk;
                touched.push(Extent {
                    member: layout.data_member(stripe, index as u32),
                    start: row + a,
                    end: row + b,
                });
                (low, high) = (low.min(a), high.max(b));
            }
            let hull = |member| Extent { member, start: row + low, end: row + high };
            let parities: Vec<Extent> = layout.parities(stripe).map(hull).collect();
            let lost = layout.stripe_members(stripe).filter(|&m| !self.can_write(m)).count();
            if lost > parities.len() {
                return Err(Lost);
            }
            let whole = upto - from == chunk * data;
            if !whole && parities.iter().any(|p| self.can_write(p.member)) {
                let old = touched.iter().chain(&parities).filter(|e| self.can_write(e.member));
                let known = touched.iter().all(|e| self.can_read(e.member, e.end))
                    && parities
                        .iter()
                        .filter(|p| self.can_write(p.member))
                        .all(|p| self.can_read(p.member, p.end));
                if known {
                    before.extend(old.copied());
                } else {
                    let there = layout.stripe_members(stripe).filter(|&m| self.can_read(m, row + high));
                    let there: Vec<u32> = there.take(data as usize).collect();
                    if there.len() < data as usize {
                        return Err(Lost);
                    }
                    before.extend(there.into_iter().map(hull));
                }
            }
            writes.extend(touched.iter().chain(&parities).filter(|e| self.can_write(e.member)).copied());
        }
        Ok(phases([(Op::Read, before), (Op::Write, writes)]))
    }

    /// How sectors `[start, end)` of a member are computed and written: one step of a rebuild.
    pub(super) fn rebuild(
        &self,
        member: u32,
        start: u64,
        end: u64,
        choose: Choose<'_>,
    ) -> Result<Vec<Phase>, Lost> {
        let mut reads = Vec::new();
        let mut at = start;
        while at < end {
            let upto = end.min((at / self.layout.chunk() + 1) * self.layout.chunk());
            // A place without data (the last one of an odd RAID 10) needs nothing.
            let holds =
                self.layout.spec().kind != SetKind::Raid10 || !self.layout.mirrors_of(member, at).is_empty();
            if holds {
                self.rebuild_from(member, at, upto, choose, &mut reads)?;
            }
            at = upto;
        }
        Ok(phases([(Op::Read, reads), (Op::Write, [Extent { member, start, end }].into())]))
    }
}

/// Joins each member's ranges; empty phases are left out.
fn phases<const N: usize>(parts: [(Op, Vec<Extent>); N]) -> Vec<Phase> {
    let joined = |mut extents: Vec<Extent>| {
        extents.sort_unstable_by_key(|e| (e.member, e.start));
        let mut all: Vec<Extent> = Vec::with_capacity(extents.len());
        for e in extents {
            match all.last_mut() {
                Some(last) if last.member == e.member && e.start <= last.end => {
                    last.end = last.end.max(e.end)
                }
                _ => all.push(e),
            }
        }
        all
    };
    let parts = parts.into_iter().filter(|(_, extents)| !extents.is_empty());
    parts.map(|(op, extents)| Phase { op, extents: joined(extents) }).collect()
}
