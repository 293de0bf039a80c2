//! A bounded, lossy queue in shared memory, through which many processes report their reads to one daemon.
//!
//! A read that hits must cost next to nothing, so its report is a few stores: no system call, no lock, no
//! waiting. If the ring is full, the report is dropped and counted. The daemon hands out the memory as a
//! descriptor; a process maps it once and closes the descriptor.
//!
//! It is Vyukov's bounded queue: each slot has a sequence number that says whose turn it is. `seq ==
//! position`: free for the producer that claims `position`; `seq == position + 1`: full; after reading, `seq
//! = position + capacity`. Two things differ because the other side is another process, possibly hostile or
//! dying:
//!
//! - a producer may be killed between claiming a slot and filling it. The consumer waits [`STALL_MAX`] for it
//!   and then skips the slot;
//! - nothing read from the memory is trusted: capacity and indices are the consumer's own, and a record is
//!   only a hint that the reader checks like any other input. Indices that no honest producer can leave
//!   behind (a tail more than a round ahead of the head, a slot with an impossible turn) would stop reports
//!   for good. The consumer recognises such a ring ([`Consumer::is_impossible`]), and its owner hands out
//!   another.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::ProtFlags;

use crate::fdpass::SOCKET_PATH_BYTES_MAX;
use crate::mapping::Mapping;

/// Number of records in the ring. A busy disk has two thousand reads a second, and the ring is drained every
/// few milliseconds; this size bridges two seconds without the daemon, for 256 KiB of memory.
pub const CAPACITY: usize = 4096;

/// How long a slot may be claimed without being filled before it is given up. A producer that loses its
/// processor in between and fills the slot later spoils the ring; one whose cgroup has used up its CPU quota
/// waits for up to 100 ms. At half, such a producer and a busy machine together may take longer. At double,
/// reports behind a killed producer arrive half a second late.
pub const STALL_MAX: Duration = Duration::from_millis(250);

/// First word of a ring, with the version of its layout.
const MAGIC: u64 = u64::from_le_bytes(*b"SKLSRNG1");

/// A completed read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `st_dev` of the file.
    pub dev: u64,
    /// `st_ino` of the file.
    pub ino: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes read.
    pub len: u64,
    /// `st_size` of the file.
    pub file_size: u64,
}

/// A cache line: a turn and a record.
#[repr(C, align(64))]
struct Slot {
    seq: AtomicU64,
    fields: [AtomicU64; 5],
}

#[repr(C, align(64))]
struct Line {
    value: AtomicU64,
}

/// The shared memory.
#[repr(C)]
pub struct Ring {
    magic: Line,
    /// The next position that a producer claims.
    tail: Line,
    dropped: Line,
    slots: [Slot; CAPACITY],
}

/// The ring, mapped as long as this lives.
struct Map(Mapping);

impl Map {
    fn new(fd: impl AsFd) -> io::Result<Map> {
        Mapping::of(fd, ProtFlags::READ | ProtFlags::WRITE, 0, size_of::<Ring>()).map(Map)
    }

    fn ring(&self) -> &Ring {
        // SAFETY: mapped for `size_of::<Ring>()` bytes (the file is sealed to that size) and page-aligned as
        // long as `self` lives; every bit pattern is a valid `Ring`, and all access goes through atomics.
        unsafe { &*self.0.at().cast() }
    }
}

/// Prefix of a ring's name; the path of its consumer's socket follows.
const RING_NAME: &[u8] = b"seekless-hits:";

/// The socket of a mapped ring's consumer, from the path of its mapping in `/proc/PID/maps`.
pub fn listens_at(mapping: &[u8]) -> Option<&Path> {
    let name = mapping.strip_prefix(b"/memfd:")?.strip_prefix(RING_NAME)?;
    let socket = name.strip_suffix(b" (deleted)").unwrap_or(name);
    (!socket.is_empty()).then(|| Path::new(OsStr::from_bytes(socket)))
}

/// The daemon's end. When dropped, it marks the ring as not read any more ([`Ring::is_read`]).
pub struct Consumer {
    map: Map,
    head: u64,
    /// When the slot at the head was first seen claimed and not filled.
    stalled: Option<Instant>,
    lost: u64,
    impossible: bool,
}

impl Consumer {
    /// A new ring, and the descriptor for producers. Its size is sealed: no process can shrink it under
    /// another. A process that maps it shows its consumer's socket in `/proc/PID/maps` ([`listens_at`]); no
    /// socket path is too long for that.
    ///
    /// # Errors
    /// There is no memory or descriptor for it.
    pub fn create(socket: &Path) -> io::Result<(Consumer, OwnedFd)> {
        let socket = Some(socket.as_os_str().as_bytes()).filter(|path| path.len() <= SOCKET_PATH_BYTES_MAX);
        let name = [RING_NAME, socket.unwrap_or_default()].concat();
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, size_of::<Ring>() as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = Map::new(&fd)?;
        let ring = map.ring();
        for (position, slot) in ring.slots.iter().enumerate() {
            slot.seq.store(position as u64, Ordering::Relaxed);
        }
        ring.magic.value.store(MAGIC, Ordering::Release);
        Ok((Consumer { map, head: 0, stalled: None, lost: 0, impossible: false }, fd))
    }

    /// The next record, oldest first; `None` if there is none now, or never will be.
    pub fn pop(&mut self, now: Instant) -> Option<Record> {
        // Claimed slots that were never filled are skipped at most `CAPACITY` times a call.
        for _ in 0..CAPACITY {
            let ring = self.map.ring();
            let slot = &ring.slots[self.head as usize % CAPACITY];
            let turn = slot.seq.load(Ordering::Acquire);
            let claimed = ring.tail.value.load(Ordering::Acquire);
            // The slot at the head is free, claimed or full. A producer claims only slots that were made
            // free, and those are the next `CAPACITY`. (A producer that slept through [`STALL_MAX`] and fills
            // its slot a round too late leaves a turn that is over; no producer could ever claim that slot
            // again.)
            let possible = turn.wrapping_sub(self.head) <= 1
                && claimed >= self.head
                && claimed - self.head <= CAPACITY as u64;
            self.impossible |= !possible;
            if self.impossible {
                return None;
            }
            if turn == self.head + 1 {
                let field = |i: usize| slot.fields[i].load(Ordering::Relaxed);
                let record = Record {
                    dev: field(0),
                    ino: field(1),
                    offset: field(2),
                    len: field(3),
                    file_size: field(4),
                };
                self.free(false);
                return Some(record);
            }
            // As far as is known, nothing is claimed; or the slot is claimed and about to be filled.
            if claimed == self.head {
                return None;
            }
            let since = *self.stalled.get_or_insert(now);
            if now.saturating_duration_since(since) < STALL_MAX {
                return None;
            }
            self.free(true);
        }
        None
    }

    /// Whether it contains what no producer writes, so that nothing can be read from it any more.
    pub fn is_impossible(&self) -> bool {
        self.impossible
    }

    /// Number of records that did not fit, plus those whose producer died while writing them.
    pub fn dropped(&self) -> u64 {
        self.map.ring().dropped.value.load(Ordering::Relaxed).saturating_add(self.lost)
    }

    fn free(&mut self, lost: bool) {
        let slot = &self.map.ring().slots[self.head as usize % CAPACITY];
        slot.seq.store(self.head + CAPACITY as u64, Ordering::Release);
        self.head += 1;
        self.stalled = None;
        self.lost += u64::from(lost);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.map.ring().magic.value.store(0, Ordering::Release);
    }
}

/// A process that reports.
pub struct Producer {
    map: Map,
}

impl Producer {
    /// Maps a ring received from the daemon; the descriptor may be closed afterwards.
    ///
    /// # Errors
    /// `InvalidData`: it is not a ring, or its consumer has ended. Others: it cannot be mapped.
    pub fn open(fd: impl AsFd) -> io::Result<Producer> {
        let fd = fd.as_fd();
        // It must be sealed against shrinking, because a write to a shrunken one would kill the host.
        let seals = rustix::fs::fcntl_get_seals(fd)?;
        let size = rustix::fs::fstat(fd)?.st_size;
        if !seals.contains(SealFlags::SHRINK) || size != size_of::<Ring>() as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let producer = Producer { map: Map::new(fd)? };
        match producer.map.ring().magic.value.load(Ordering::Acquire) {
            MAGIC => Ok(producer),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The ring, mapped until the process ends: for a library that cannot know when the last thread has
    /// finished with it.
    pub fn forever(self) -> &'static Ring {
        let at = self.map.0.at();
        std::mem::forget(self);
        // SAFETY: as in `Map::ring`; the mapping is never unmapped now.
        unsafe { &*at.cast() }
    }

    /// See [`Ring::push`].
    pub fn push(&self, record: &Record) -> bool {
        self.map.ring().push(record)
    }
}

impl Ring {
    /// Whether its consumer exists, unless the consumer was killed and could not say so.
    pub fn is_read(&self) -> bool {
        self.magic.value.load(Ordering::Acquire) == MAGIC
    }

    /// Adds a record; `false` (and counted) if there is no room. Never waits, and makes no system call.
    pub fn push(&self, record: &Record) -> bool {
        let ring = self;
        // Another producer may claim the same position: try the next one, a bounded number of times.
        for _ in 0..16 {
            let position = ring.tail.value.load(Ordering::Relaxed);
            let Some(slot) = ring.slots.get(position as usize % CAPACITY) else { break };
            if slot.seq.load(Ordering::Acquire) != position {
                // Not yet read since the last round, or claimed by a producer since.
                if ring.tail.value.load(Ordering::Relaxed) == position {
                    break;
                }
                continue;
            }
            let claim = ring.tail.value.compare_exchange_weak(
                position,
                position.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if claim.is_ok() {
                let values = [record.dev, record.ino, record.offset, record.len, record.file_size];
                for (field, value) in slot.fields.iter().zip(values) {
                    field.store(value, Ordering::Relaxed);
                }
                slot.seq.store(position.wrapping_add(1), Ordering::Release);
                return true;
            }
        }
        ring.dropped.value.fetch_add(1, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn record(n: u64) -> Record {
        Record { dev: n, ino: n + 1, offset: n + 2, len: n + 3, file_size: n + 4 }
    }

    #[test]
    fn records_come_out_in_order_and_whole() {
        let (mut consumer, fd) = Consumer::create(Path::new("/run/x.sock")).unwrap();
        let producer = Producer::open(&fd).unwrap();
        assert_eq!(consumer.pop(Instant::now()), None);
        for round in 0..5 * CAPACITY as u64 / 1000 {
            for i in 0..1000 {
                assert!(producer.push(&record(round * 1000 + i)));
            }
            for i in 0..1000 {
                assert_eq!(consumer.pop(Instant::now()), Some(record(round * 1000 + i)));
            }
            assert_eq!(consumer.pop(Instant::now()), None);
        }
        assert_eq!(consumer.dropped(), 0);
    }

    #[test]
    fn a_full_ring_drops_and_counts() {
        let (mut consumer, fd) = Consumer::create(Path::new("/run/x.sock")).unwrap();
        let producer = Producer::open(&fd).unwrap();
        let pushed = (0..CAPACITY as u64 + 100).filter(|&i| producer.push(&record(i))).count();
        assert_eq!((pushed, consumer.dropped()), (CAPACITY, 100));
        assert_eq!(consumer.pop(Instant::now()), Some(record(0)));
        assert!(producer.push(&record(7)));
    }

    #[test]
    fn many_producers_lose_nothing_uncounted() {
        let (mut consumer, fd) = Consumer::create(Path::new("/run/x.sock")).unwrap();
        const EACH: u64 = 20_000;
        let mut next = [0u64; 4];
        let mut popped = 0u64;
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4u64)
                .map(|who| {
                    let producer = Producer::open(&fd).unwrap();
                    scope.spawn(move || {
                        for n in 0..EACH {
                            producer.push(&Record { dev: who, ino: n, offset: n ^ who, ..Record::default() });
                        }
                    })
                })
                .collect();
            // A producer that loses its processor between its claim and its record is waited for.
            let now = Instant::now();
            let mut check = |r: Record| {
                assert_eq!(r.offset, r.ino ^ r.dev, "a torn record");
                assert!(r.ino >= next[r.dev as usize], "one producer's records out of order");
                next[r.dev as usize] = r.ino + 1;
                popped += 1;
            };
            while !workers.iter().all(|w| w.is_finished()) {
                match consumer.pop(now) {
                    Some(r) => check(r),
                    None => std::thread::yield_now(),
                }
            }
            while let Some(r) = consumer.pop(now) {
                check(r);
            }
        });
        assert_eq!(popped + consumer.dropped(), 4 * EACH);
    }

    #[test]
    fn a_producer_that_died_while_writing_is_stepped_over() {
        let (mut consumer, fd) = Consumer::create(Path::new("/run/x.sock")).unwrap();
        let producer = Producer::open(&fd).unwrap();
        producer.push(&record(1));
        // Claims a slot and never fills it.
        producer.map.ring().tail.value.fetch_add(1, Ordering::AcqRel);
        producer.push(&record(3));
        let now = Instant::now();
        assert_eq!(consumer.pop(now), Some(record(1)));
        for _ in 0..1000 {
            assert_eq!(consumer.pop(now + STALL_MAX / 2), None, "it may only have lost its processor");
        }
        assert_eq!(consumer.pop(now + STALL_MAX), None, "half of the time");
        assert_eq!(consumer.pop(now + 2 * STALL_MAX), Some(record(3)));
        assert_eq!(consumer.dropped(), 1);
    }

    #[test]
    fn garbage_in_the_memory_cannot_hurt_the_consumer() {
        let (mut consumer, fd) = Consumer::create(Path::new("/run/x.sock")).unwrap();
        let producer = Producer::open(&fd).unwrap();
        let ring = producer.map.ring();
        ring.tail.value.store(u64::MAX, Ordering::Relaxed);
        for slot in &ring.slots {
            slot.seq.store(u64::MAX / 3, Ordering::Relaxed);
        }
        for _ in 0..1000 {
            consumer.pop(Instant::now());
        }
        producer.push(&record(1));
    }

    #[test]
    fn impossible_indices_are_known_for_what_they_are() {
        type Harm = fn(&Ring);
        let harms: [(&str, Harm); 5] = [
            ("a tail beyond a round", |r| r.tail.value.store(u64::MAX, Ordering::Relaxed)),
            ("a tail one slot beyond a round", |r| {
                r.tail.value.store(3 + CAPACITY as u64, Ordering::Relaxed)
            }),
            ("a tail behind the head", |r| r.tail.value.store(0, Ordering::Relaxed)),
            ("a slot whose turn never comes", |r| r.slots[2].seq.store(u64::MAX / 3, Ordering::Relaxed)),
            ("a slot filled a round too late", |r| r.slots[2].seq.store(1, Ordering::Relaxed)),
        ];
        for (what, harm) in harms {
            let (mut consumer, fd) = Consumer::create(Path::new("/run/x.sock")).unwrap();
            let producer = Producer::open(&fd).unwrap();
            for n in 0..2 {
                assert!(producer.push(&record(n)));
                assert_eq!(consumer.pop(Instant::now()), Some(record(n)));
            }
            assert!(consumer.pop(Instant::now()).is_none() && !consumer.is_impossible(), "empty is possible");
            harm(producer.map.ring());
            let popped = [STALL_MAX, 3 * STALL_MAX].map(|late| consumer.pop(Instant::now() + late));
            assert!(popped == [None; 2] && consumer.is_impossible(), "{what}");
            let ring = producer.map.ring();
            assert!(ring.is_read(), "{what}");
            drop(consumer);
            assert!(!ring.is_read() && Producer::open(&fd).is_err(), "{what}: nobody reads it");
        }
    }

    #[test]
    fn a_full_ring_is_possible() {
        let (mut consumer, fd) = Consumer::create(Path::new("/run/x.sock")).unwrap();
        let producer = Producer::open(&fd).unwrap();
        for round in 0..3 {
            while producer.push(&record(round)) {}
            while consumer.pop(Instant::now()).is_some() {}
            assert!(!consumer.is_impossible());
        }
        // All slots claimed and never filled: they are skipped, and the ring works again.
        let ring = producer.map.ring();
        ring.tail.value.fetch_add(CAPACITY as u64, Ordering::AcqRel);
        let mut now = Instant::now();
        for _ in 0..=CAPACITY {
            consumer.pop(now);
            now += STALL_MAX;
        }
        assert!(!consumer.is_impossible());
        assert!(producer.push(&record(9)));
        assert_eq!(consumer.pop(Instant::now()), Some(record(9)));
    }

    #[test]
    fn a_ring_names_its_socket() {
        let socket = Path::new("/run/a folder/x (deleted).sock");
        let (_consumer, fd) = Consumer::create(socket).unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
        assert_eq!(listens_at(link.as_os_str().as_bytes()), Some(socket));
        assert_eq!(listens_at(b"/memfd:seekless-hits: (deleted)"), None);
        assert_eq!(listens_at(b"/memfd:another (deleted)"), None);
        assert_eq!(listens_at(b"/usr/lib/x.so"), None);
    }

    #[test]
    fn other_files_are_no_rings() {
        let plain = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        assert!(Producer::open(&plain).is_err());
        let sealed = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&sealed, size_of::<Ring>() as u64).unwrap();
        rustix::fs::fcntl_add_seals(&sealed, SealFlags::SHRINK).unwrap();
        assert!(Producer::open(&sealed).is_err(), "no magic");
    }
}
