//! A file system on several disks as one address space with a queue for each disk: btrfs.
//!
//! Files of btrfs lie at logical addresses. Its chunk tree maps these to its devices
//! ([`seekless_kernel::btrfs`]). The layout of most of its data decides about queues and addresses:
//!
//! | profile | queues | address |
//! | --- | --- | --- |
//! | single, dup | one a disk | disks one behind the other, then the place on the disk |
//! | raid1 | one a disk | the same, of the copy to read |
//! | raid10 | one a copy | copies one behind the other, then the place on the first disk |
//! | raid0, raid5, raid6 | one | the place on the first disk |
//!
//! Stripes are 64 KiB, so a piece is read by all disks together. Several pieces at once make each disk seek
//! between them.
//!
//! The copy: of a chunk with two copies, one disk reads the first half and the other the second. btrfs
//! selects the copy by the number of the reading thread, so a piece goes to a thread with a suitable number
//! ([`crate::worker`]). Where that is not so (another `read_policy`, a container with its own process
//! numbers), mirrors are treated as in md RAID: one queue, a piece for each copy.
//!
//! The chunk tree is read again every minute, and when an address is not in it. If that changes the queues,
//! the disks get a new thread ([`crate::devices`]).

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError, bounded};
use seekless_base::{Lba, SECTOR_BYTES};
use seekless_kernel::btrfs::{self, ChunkMap, Profile};
use seekless_kernel::prefetch::Source;
use seekless_kernel::topology::{Backing, Dev, Topology};
use seekless_policy::Config;

use crate::kind::RETRY;
use crate::layout::Layout;
use crate::worker::Mirror;

/// Distance between the addresses of two copies that have a queue each: no device is longer.
const COPY_SECTORS: u64 = 1 << 50;

/// How its devices are divided into queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queues {
    Disks,
    Copies,
    One,
}

/// Maps the addresses of a file system to its disks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Volume {
    chunks: ChunkMap,
    queues: Queues,
    /// First sector of each present device.
    starts: BTreeMap<u64, u64>,
    thread_chooses: bool,
    layout: Layout,
    /// Whether an address was looked up that no chunk has.
    outdated: bool,
}

/// A device: its number, the disk that it lies on, its first sector there, and its length in sectors.
type Member = (u64, Dev, u64, u64);

/// The pending answer of a file system.
type Asked = Receiver<Result<Volume, String>>;

impl Volume {
    /// Asks the file system that a file lies on. That may read from the disk, so a thread of its own does it.
    fn ask(file: impl AsFd + Send + 'static) -> Asked {
        let (tell, told) = bounded(1);
        let work = move || {
            let _ = tell.send(Volume::read(&file));
        };
        // If no thread can be started, the receiver gets a disconnect.
        let _ = thread::Builder::new().name("chunks".into()).spawn(work);
        told
    }

    /// Asks and waits at most `patience`.
    ///
    /// # Errors
    /// Why it is not known, in one clause.
    pub(crate) fn of(file: OwnedFd, patience: Duration) -> Result<Volume, String> {
        Volume::ask(file).recv_timeout(patience).unwrap_or_else(|_| Err("it does not answer".into()))
    }

    fn read(file: impl AsFd) -> Result<Volume, String> {
        let told = btrfs::Volume::read(file).map_err(|e| e.to_string())?;
        let topology = Topology::of_system();
        let member = |device: &btrfs::Device| match topology.backing(device.dev?, None) {
            Backing::Disk { disk, start, .. } => {
                Some((device.id, disk.dev, start, device.bytes / SECTOR_BYTES))
            }
            _ => None,
        };
        let members = told.devices.iter().filter_map(member).collect();
        Volume::new(told.chunks, told.thread_chooses, members)
    }

    fn new(chunks: ChunkMap, thread_chooses: bool, members: Vec<Member>) -> Result<Volume, String> {
        let (profile, copies) = chunks.profile().ok_or("it has no data")?;
        let ends = members.iter().fold(BTreeMap::new(), |mut ends, &(_, disk, start, sectors)| {
            let end = ends.entry(disk).or_insert(0);
            *end = start.saturating_add(sectors).max(*end);
            ends
        });
        let disks = ends.len();
        if disks == 0 {
            return Err("none of its devices is there".into());
        }
        let (queues, in_flight) = match profile {
            Profile::Single | Profile::Dup => (Queues::Disks, 1),
            Profile::Mirror if thread_chooses => (Queues::Disks, 1),
            Profile::StripedMirror if thread_chooses => (Queues::Copies, 1),
            Profile::Mirror | Profile::StripedMirror => (Queues::One, copies.min(disks)),
            Profile::Stripe | Profile::Parity(_) => (Queues::One, 1),
        };
        let mut bases = BTreeMap::new();
        let mut at = 0u64;
        for (&disk, end) in &ends {
            bases.insert(disk, at);
            at = at.saturating_add(*end);
        }
        let parts = match queues {
            Queues::Disks => bases.values().skip(1).map(|&base| Lba(base)).collect(),
            Queues::Copies => (1..copies as u64).map(|copy| Lba(copy * COPY_SECTORS)).collect(),
            Queues::One => Vec::new(),
        };
        let base = |disk: &Dev| if queues == Queues::Disks { bases[disk] } else { 0 };
        let starts = members.iter().map(|(id, disk, start, _)| (*id, base(disk) + start)).collect();
        let name = format!("btrfs {} of {disks}", words(profile, copies));
        let layout = Layout { name, in_flight, parts };
        Ok(Volume { chunks, queues, starts, thread_chooses, layout, outdated: false })
    }

    /// For people: `btrfs raid1 of 3`.
    pub(crate) fn name(&self) -> &str {
        &self.layout.name
    }

    /// Applies it to the settings of a disk's queue.
    pub(crate) fn apply(&self, config: &mut Config) {
        self.layout.apply(config);
    }

    /// The address of a byte in the queue's address space, and the copy to read.
    fn place(&self, logical: u64) -> Option<(Lba, usize)> {
        let chunk = self.chunks.at(logical)?;
        let copies = chunk.copies();
        let (at, len) = chunk.within(logical);
        let place = |copy: usize| {
            let place = chunk.place(logical, copy)?;
            let start = self.starts.get(&place.device)?;
            let copies = if self.queues == Queues::Copies { copy as u64 * COPY_SECTORS } else { 0 };
            Some((Lba((place.offset / SECTOR_BYTES).saturating_add(*start).saturating_add(copies)), copy))
        };
        let there: Vec<(Lba, usize)> = (0..copies).filter_map(place).collect();
        let mine = if self.thread_chooses { at / (len / there.len().max(1) as u64).max(1) } else { 0 };
        there.get(mine as usize).or(there.last()).copied()
    }

    /// The address of a byte in the queue's address space.
    pub(crate) fn lba(&mut self, logical: u64) -> Option<Lba> {
        // A new chunk, or one that a balance has moved.
        self.outdated |= self.chunks.at(logical).is_none();
        self.place(logical).map(|place| place.0)
    }

    /// The copy of a byte to read, if the reading thread selects it.
    pub(crate) fn mirror(&self, logical: u64) -> Option<Mirror> {
        let of = self.chunks.at(logical)?.copies();
        let (_, number) = self.place(logical).filter(|_| self.thread_chooses && of > 1)?;
        Some(Mirror { number, of })
    }

    /// Whether a queue made for this volume also serves the other.
    fn has_queues_of(&self, other: &Volume) -> bool {
        self.layout == other.layout && self.queues == other.queues && self.starts == other.starts
    }
}

/// A volume that is read again periodically.
pub(crate) struct Renewed {
    pub(crate) volume: Volume,
    asked: Option<Asked>,
    due: Instant,
    replaced: Arc<AtomicBool>,
}

impl Renewed {
    /// `replaced` is set once the file system needs other queues than it has.
    pub(crate) fn new(volume: Volume, replaced: Arc<AtomicBool>) -> Renewed {
        Renewed { volume, asked: None, due: Instant::now() + RETRY, replaced }
    }

    /// Asks if it is time, through an open file, and takes the answer. Returns whether files may have moved.
    pub(crate) fn renew(&mut self, now: Instant, file: impl FnOnce() -> Option<Arc<Source>>) -> bool {
        let Some(asked) = &self.asked else {
            if now >= self.due || self.volume.outdated {
                self.asked = file().map(Volume::ask);
                self.due = now + RETRY;
            }
            return false;
        };
        let told = match asked.try_recv() {
            Err(TryRecvError::Empty) => return false,
            Ok(Ok(told)) => Some(told),
            // Keep the old mapping.
            Ok(Err(_)) | Err(TryRecvError::Disconnected) => None,
        };
        self.asked = None;
        let Some(told) = told else { return false };
        if !self.volume.has_queues_of(&told) {
            self.replaced.store(true, Ordering::Relaxed);
            return false;
        }
        let moved = self.volume.chunks != told.chunks;
        self.volume = told;
        moved
    }
}

fn words(profile: Profile, copies: usize) -> String {
    match profile {
        Profile::Single => "single".into(),
        Profile::Dup => "dup".into(),
        Profile::Mirror if copies > 2 => format!("raid1c{copies}"),
        Profile::Mirror => "raid1".into(),
        Profile::Stripe => "raid0".into(),
        Profile::StripedMirror => "raid10".into(),
        Profile::Parity(parity) => format!("raid{}", parity + 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_kernel::btrfs::Chunk;

    const G: u64 = 1 << 30;
    /// Bits of a chunk's type.
    const DATA: u64 = 1;
    const RAID0: u64 = 1 << 3;
    const RAID1: u64 = 1 << 4;
    const RAID10: u64 = 1 << 6;
    const RAID5: u64 = 1 << 7;

    /// A chunk of 1 GiB, as the kernel writes it.
    fn chunk(logical: u64, kind: u64, stripes: &[(u64, u64)]) -> Chunk {
        let mut item = Vec::new();
        [G, 2, 64 << 10, DATA | kind].iter().for_each(|word: &u64| item.extend(word.to_le_bytes()));
        item.extend([0; 12]);
        item.extend((stripes.len() as u16).to_le_bytes());
        item.extend(2u16.to_le_bytes());
        for (device, offset) in stripes {
            item.extend(device.to_le_bytes());
            item.extend(offset.to_le_bytes());
            item.extend([0; 16]);
        }
        Chunk::parse(logical, &item).unwrap()
    }

    /// Devices 1, 2, ... on disks of their own, each a partition of 10 GiB from sector 2048.
    fn members(count: u64) -> Vec<Member> {
        (1..=count).map(|id| (id, disk(id), 2048, 10 * G / SECTOR_BYTES)).collect()
    }

    fn disk(id: u64) -> Dev {
        Dev { major: 8, minor: 16 * id as u32 }
    }

    fn of(chunks: Vec<Chunk>, thread_chooses: bool, members: Vec<Member>) -> Volume {
        Volume::new(ChunkMap::new(chunks).unwrap(), thread_chooses, members).unwrap()
    }

    /// The queue of an address.
    fn queue(volume: &mut Volume, logical: u64) -> usize {
        let lba = volume.lba(logical).unwrap();
        volume.layout.parts.iter().filter(|&&part| part <= lba).count()
    }

    #[test]
    fn a_piece_of_single_goes_to_the_disk_that_has_it() {
        let chunks = vec![chunk(0, 0, &[(2, G)]), chunk(G, 0, &[(3, 0)]), chunk(2 * G, 0, &[(1, 0)])];
        let mut volume = of(chunks, true, members(3));
        assert_eq!(
            (volume.layout.in_flight, volume.layout.parts.len(), volume.name()),
            (1, 2, "btrfs single of 3")
        );
        assert_eq!([0, G, 2 * G].map(|at| queue(&mut volume, at)), [1, 2, 0]);
        assert_eq!(volume.lba(2 * G + 512), Some(Lba(2049)), "where the partition begins on its disk");
        assert_eq!(volume.mirror(0), None);
        let mut config = Config::default();
        volume.apply(&mut config);
        assert_eq!(config.flights_max(), 3);
    }

    #[test]
    fn two_devices_on_one_disk_have_one_queue() {
        let two = vec![(1, disk(1), 2048, 100), (2, disk(1), 4096, G / SECTOR_BYTES), (3, disk(3), 0, G)];
        let mut volume = of(vec![chunk(0, 0, &[(1, 0)]), chunk(G, 0, &[(2, 0)])], true, two);
        assert_eq!(volume.layout.parts, [Lba(4096 + G / SECTOR_BYTES)]);
        assert_eq!((volume.lba(0), volume.lba(G)), (Some(Lba(2048)), Some(Lba(4096))));
    }

    #[test]
    fn mirrors_share_what_they_have() {
        let chunks = vec![
            chunk(0, RAID1, &[(1, 0), (2, 0)]),
            chunk(G, RAID1, &[(2, G), (3, 0)]),
            chunk(2 * G, RAID1, &[(3, G), (1, G)]),
        ];
        let mut volume = of(chunks.clone(), true, members(3));
        assert_eq!((volume.layout.in_flight, volume.layout.parts.len()), (1, 2));
        let halves = [0, G / 2, G, 3 * G / 2, 2 * G, 5 * G / 2];
        assert_eq!(halves.map(|at| queue(&mut volume, at)), [0, 1, 1, 2, 2, 0]);
        let mirrors = halves.map(|at| volume.mirror(at).map(|mirror| (mirror.number, mirror.of)));
        assert_eq!(mirrors, [(0, 2), (1, 2), (0, 2), (1, 2), (0, 2), (1, 2)].map(Some));
        // A missing disk reads nothing.
        let mut degraded = of(chunks.clone(), true, members(2));
        assert_eq!(halves.map(|at| queue(&mut degraded, at)), [0, 1, 1, 1, 0, 0]);
        assert_eq!(degraded.mirror(3 * G / 2), Some(Mirror { number: 0, of: 2 }));
        // If threads cannot select the copy, any copy may be read.
        let mut chosen = of(chunks, false, members(3));
        assert_eq!((chosen.layout.in_flight, chosen.layout.parts.len()), (2, 0));
        assert_eq!((chosen.mirror(G), chosen.lba(0)), (None, Some(Lba(2048))));
    }

    #[test]
    fn stripes_have_one_queue_for_each_copy() {
        let raid0 = of(vec![chunk(0, RAID0, &[(1, 0), (2, 0), (3, 0)])], true, members(3));
        assert_eq!((raid0.layout.in_flight, raid0.layout.parts.len()), (1, 0));
        assert_eq!(raid0.name(), "btrfs raid0 of 3");
        let raid5 = of(vec![chunk(0, RAID5, &[(1, 0), (2, 0), (3, 0)])], true, members(3));
        assert_eq!((raid5.layout.in_flight, raid5.name()), (1, "btrfs raid5 of 3"));
        let copies = vec![chunk(0, RAID10, &[(1, 0), (2, 0), (3, 0), (4, 0)])];
        let mut raid10 = of(copies.clone(), true, members(4));
        assert_eq!((raid10.layout.in_flight, raid10.layout.parts.len()), (1, 1));
        assert_eq!([0, G / 2].map(|at| queue(&mut raid10, at)), [0, 1]);
        assert_eq!([0, G / 2].map(|at| raid10.mirror(at).unwrap().number), [0, 1]);
        assert_eq!(of(copies, false, members(4)).layout.in_flight, 2);
    }

    #[test]
    fn a_map_that_contradicts_is_outdated() {
        let mut volume = of(vec![chunk(0, 0, &[(1, 0)])], true, members(2));
        assert!(volume.lba(G - 1).is_some() && !volume.outdated);
        assert_eq!((volume.lba(G), volume.outdated), (None, true));
        let more = of(vec![chunk(0, 0, &[(1, 0)]), chunk(G, 0, &[(2, 0)])], true, members(2));
        assert!(volume.has_queues_of(&more) && volume.chunks != more.chunks);
        let added = of(vec![chunk(0, 0, &[(1, 0)])], true, members(3));
        assert!(!volume.has_queues_of(&added), "a disk more");
        let converted = of(vec![chunk(0, RAID0, &[(1, 0), (2, 0)])], true, members(2));
        assert!(!volume.has_queues_of(&converted), "another profile");
    }

    #[test]
    fn what_cannot_be_followed_says_why() {
        let none = Volume::new(ChunkMap::default(), true, members(2));
        assert_eq!(none.unwrap_err(), "it has no data");
        let gone = Volume::new(ChunkMap::new(vec![chunk(0, 0, &[(1, 0)])]).unwrap(), true, Vec::new());
        assert_eq!(gone.unwrap_err(), "none of its devices is there");
        let file = tempfile::tempfile().unwrap();
        let why = Volume::of(file.into(), Duration::from_secs(9)).unwrap_err();
        assert!(!why.is_empty());
        // An unknown device makes only its own bytes unknown.
        let mut volume = of(vec![chunk(0, 0, &[(1, 0)]), chunk(G, 0, &[(9, 0)])], true, members(2));
        assert_eq!((volume.lba(G), volume.outdated), (None, false));
    }
}
