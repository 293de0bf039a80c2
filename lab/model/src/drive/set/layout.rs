//! The address map of a set: the member and sector of each sector of the set.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use seekless_base::{Bytes, SECTOR_BYTES};

use super::{SetKind, SetSpec};

/// The place of a sector of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// The member, from 0 on.
    pub member: u32,
    /// Sector of the member.
    pub sector: u64,
    /// Contiguous sectors on it from there on.
    pub together: u64,
}

/// The address map of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLayout {
    spec: SetSpec,
    /// Sectors of a chunk; of a whole member if nothing is striped.
    chunk: u64,
    /// Sectors of a member that are used.
    member: u64,
    /// Sectors of the set.
    sectors: u64,
}

impl SetLayout {
    /// For members of this many sectors each; the last part of a chunk of a member stays unused.
    ///
    /// # Errors
    /// [`SetSpec::check`]'s, or the members are smaller than a chunk.
    pub fn new(spec: SetSpec, member_sectors: u64) -> Result<SetLayout, String> {
        spec.check()?;
        let chunk = if spec.kind.stripes() { spec.chunk.0 / SECTOR_BYTES } else { member_sectors.max(1) };
        let member = member_sectors / chunk * chunk;
        if member == 0 {
            return Err(format!("a chunk of {} is larger than a member", spec.chunk));
        }
        let rows = member / chunk;
        let chunks = match spec.kind {
            // Two copies of each, on as many places as there are members.
            SetKind::Raid10 => rows * u64::from(spec.members) / 2,
            _ => rows * u64::from(spec.data_members()),
        };
        Ok(SetLayout { spec, chunk, member, sectors: chunks * chunk })
    }

    /// Its specification.
    pub fn spec(&self) -> &SetSpec {
        &self.spec
    }

    /// 512-byte sectors of the set.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Sectors of each member that are used.
    pub fn member_sectors(&self) -> u64 {
        self.member
    }

    /// Bytes of the set.
    pub fn capacity(&self) -> Bytes {
        Bytes(self.sectors * SECTOR_BYTES)
    }

    /// The place of a sector of the set: its first copy. Sectors beyond the set count as its last.
    pub fn locate(&self, sector: u64) -> Located {
        let sector = sector.min(self.sectors - 1);
        let (chunk, within) = (sector / self.chunk, sector % self.chunk);
        let (member, row) = match self.spec.kind {
            SetKind::Raid1 => (0, 0),
            SetKind::Raid10 => self.copy_of(chunk, 0),
            SetKind::Linear => (chunk as u32, 0),
            SetKind::Raid0 | SetKind::Raid5 | SetKind::Raid6 => {
                let data = u64::from(self.spec.data_members());
                (self.data_member(chunk / data, (chunk % data) as u32), chunk / data)
            }
        };
        Located { member, sector: row * self.chunk + within, together: self.chunk - within }
    }

    /// Member and row of one of the two near copies of a chunk (RAID 10).
    fn copy_of(&self, chunk: u64, copy: u64) -> (u32, u64) {
        let place = 2 * chunk + copy;
        let n = u64::from(self.spec.members);
        ((place % n) as u32, place / n)
    }

    /// The member that holds data chunk `index` of a stripe.
    pub(super) fn data_member(&self, stripe: u64, index: u32) -> u32 {
        let n = self.spec.members;
        match self.spec.kind {
            SetKind::Raid5 => (self.parity(stripe) + 1 + index) % n,
            SetKind::Raid6 => (self.parity(stripe) + 2 + index) % n,
            _ => index,
        }
    }

    /// The member with a stripe's first parity; the second is on the member after it.
    fn parity(&self, stripe: u64) -> u32 {
        let n = self.spec.members;
        n - 1 - (stripe % u64::from(n)) as u32
    }

    /// The members with a stripe's parity.
    pub(super) fn parities(&self, stripe: u64) -> impl Iterator<Item = u32> + use<> {
        let count = match self.spec.kind {
            SetKind::Raid5 => 1,
            SetKind::Raid6 => 2,
            _ => 0,
        };
        let (first, n) = (if count > 0 { self.parity(stripe) } else { 0 }, self.spec.members);
        (0..count).map(move |i| (first + i) % n)
    }

    /// The members of a stripe in the order in which they are read for a lost one: data, first parity, second
    /// parity.
    pub(super) fn stripe_members(&self, stripe: u64) -> impl Iterator<Item = u32> + use<> {
        let layout = *self;
        (0..self.spec.data_members()).map(move |i| layout.data_member(stripe, i)).chain(self.parities(stripe))
    }

    /// Every copy of what [`SetLayout::locate`] found; only itself without a mirror.
    pub(super) fn copies(&self, sector: u64) -> Vec<(u32, u64)> {
        let at = self.locate(sector);
        match self.spec.kind {
            SetKind::Raid1 => (0..self.spec.members).map(|m| (m, at.sector)).collect(),
            SetKind::Raid10 => {
                let within = at.sector % self.chunk;
                let place = |copy| {
                    let (member, row) = self.copy_of(sector.min(self.sectors - 1) / self.chunk, copy);
                    (member, row * self.chunk + within)
                };
                [place(0), place(1)].into()
            }
            _ => [(at.member, at.sector)].into(),
        }
    }

    /// The other copies of this sector of a member (mirrors).
    pub(super) fn mirrors_of(&self, member: u32, sector: u64) -> Vec<(u32, u64)> {
        match self.spec.kind {
            SetKind::Raid1 => (0..self.spec.members).filter(|&m| m != member).map(|m| (m, sector)).collect(),
            SetKind::Raid10 => {
                let n = u64::from(self.spec.members);
                let place = (sector / self.chunk * n + u64::from(member)) ^ 1;
                let (row, within) = (place / n, sector % self.chunk);
                // With an odd number of places the last one has no partner.
                let partner = ((place % n) as u32, row * self.chunk + within);
                if partner.1 < self.member { [partner].into() } else { Vec::new() }
            }
            _ => Vec::new(),
        }
    }

    /// Sectors of a chunk.
    pub(super) fn chunk(&self) -> u64 {
        self.chunk
    }
}
