//! Samples of tracepoints, through ring buffers that the kernel writes and this process reads.
//!
//! There is one ring for each processor. The kernel copies a record into the ring of the processor on which
//! the tracepoint was hit, and goes on; if the ring is full, it counts the record as lost. So the code at the
//! tracepoint never waits. The kernel closes every structure here with its last descriptor, however the
//! process ends.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::ProtFlags;

use crate::mapping::Mapping;
use crate::residency::page_bytes;
use crate::syscall::{done, owned};

const TYPE_TRACEPOINT: u32 = 2;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;
const FLAG_DISABLED: u64 = 1;
const FLAG_WATERMARK: u64 = 1 << 14;
const OPEN_CLOEXEC: u64 = 1 << 3;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
/// `_IOW('$', 6, char *)`, with the size of a pointer.
const IOC_SET_FILTER: libc::c_ulong = 0x4000_2406 | ((size_of::<*const u8>() as libc::c_ulong) << 16);

/// Offsets in the page that the kernel shares before the ring: `data_head`, `data_tail`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// Bytes before the raw part of a sample: header, process and thread, time, length.
const RAW_AT: usize = 8 + 8 + 8 + 4;

/// The first published layout of the kernel's `struct perf_event_attr`, which every kernel accepts.
#[derive(Default)]
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
}

impl Attributes {
    /// For a tracepoint, without samples and not enabled.
    fn of(tracepoint: u64) -> Attributes {
        Attributes {
            kind: TYPE_TRACEPOINT,
            size: size_of::<Attributes>() as u32,
            config: tracepoint,
            flags: FLAG_DISABLED,
            ..Attributes::default()
        }
    }

    /// Opens the event for everything that runs on this processor.
    fn open(&self, processor: i32) -> io::Result<OwnedFd> {
        // SAFETY: `self` has the kernel's layout and states its own length; the kernel only reads it and
        // keeps no reference to it, and returns a new descriptor.
        unsafe {
            owned(libc::syscall(
                libc::SYS_perf_event_open,
                ptr::from_ref(self),
                -1,
                processor,
                -1,
                OPEN_CLOEXEC,
            ))
        }
    }
}

/// An event of this tracepoint that records nothing itself.
///
/// # Errors
/// Those of [`Ring::open`].
pub(crate) fn silent(tracepoint: u64) -> io::Result<OwnedFd> {
    Attributes::of(tracepoint).open(processors()?.first().copied().unwrap_or(0))
}

/// As [`silent`], of a probe at the entry of this function of the kernel.
///
/// # Errors
/// As [`silent`]; `ENOENT` if the kernel has no such function, or no probes.
pub(crate) fn silent_probe(function: &CStr) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: probe_kind()?,
        config: 0,
        // The probe's place: a name, of which the kernel keeps a copy.
        config1: function.as_ptr() as u64,
        ..Attributes::of(0)
    };
    attributes.open(processors()?.first().copied().unwrap_or(0))
}

/// The kernel's number for events that are probes.
///
/// # Errors
/// `ENOENT` if the kernel has none.
pub(crate) fn probe_kind() -> io::Result<u32> {
    let text = std::fs::read_to_string("/sys/bus/event_source/devices/kprobe/type")?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// A record of a tracepoint.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The process that hit it, in our process namespace (0: outside).
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its time, in nanoseconds of a clock that all processors share.
    pub time: u64,
    /// The record, in the layout of [`crate::tracepoint::Tracepoint`].
    pub raw: &'a [u8],
}

/// Numbers of the online processors.
///
/// # Errors
/// `/sys` cannot be read.
pub fn processors() -> io::Result<Vec<i32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    Ok(parse_list(text.trim()))
}

/// Parses lists like `0-3,8`.
fn parse_list(text: &str) -> Vec<i32> {
    let ranges = text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<i32>().ok()?..=last.parse::<i32>().ok()?)
    });
    ranges.flatten().collect()
}

/// The records of one processor's tracepoints.
#[derive(Debug)]
pub struct Ring {
    /// The event that owns the ring, and those that write into it too.
    events: Vec<OwnedFd>,
    map: Mapping,
    /// Size of the ring itself in bytes, a power of two.
    bytes: usize,
    /// Buffer to which the next record is copied.
    record: Vec<u8>,
}

impl Ring {
    /// Records these tracepoints on one processor, if they pass their filter (in the syntax of the kernel's
    /// event filters). The descriptor becomes readable when a quarter of the ring is full.
    ///
    /// # Errors
    /// `EPERM` or `EACCES` without `CAP_PERFMON` or under lockdown, or if the ring is larger than this user
    /// may have; `ENODEV`: the processor is offline; `ENOENT`: no such tracepoint.
    pub fn open(processor: i32, tracepoints: &[(u64, &str)], pages: usize) -> io::Result<Ring> {
        let bytes = pages.next_power_of_two() * page_bytes() as usize;
        let mut events: Vec<OwnedFd> = Vec::new();
        for (id, filter) in tracepoints {
            let attributes = Attributes {
                sample_period: 1,
                sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW,
                flags: FLAG_DISABLED | FLAG_WATERMARK,
                wakeup_watermark: (bytes / 4) as u32,
                ..Attributes::of(*id)
            };
            events.push(attributes.open(processor)?);
            let filter = CString::new(*filter).map_err(|_| io::ErrorKind::InvalidInput)?;
            // SAFETY: the request takes a terminated string, which lives across the call and is copied.
            done(unsafe {
                libc::ioctl(events[events.len() - 1].as_raw_fd(), IOC_SET_FILTER as _, filter.as_ptr())
            })?;
        }
        let first = events.first().ok_or(io::ErrorKind::InvalidInput)?.as_fd();
        let whole = bytes + page_bytes() as usize;
        let map = Mapping::of(first, ProtFlags::READ | ProtFlags::WRITE, 0, whole)?;
        let ring = Ring { map, bytes, record: Vec::new(), events };
        for other in &ring.events[1..] {
            // SAFETY: the request takes a descriptor by value.
            done(unsafe { libc::ioctl(other.as_raw_fd(), IOC_SET_OUTPUT as _, ring.events[0].as_raw_fd()) })?;
        }
        for event in &ring.events {
            // SAFETY: the request takes no argument.
            done(unsafe { libc::ioctl(event.as_raw_fd(), IOC_ENABLE as _, 0) })?;
        }
        Ok(ring)
    }

    /// Passes every record in the ring to `take`, oldest first. Returns how many were lost before them.
    pub fn drain(&mut self, mut take: impl FnMut(Sample<'_>)) -> u64 {
        let head = self.position(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.position(DATA_TAIL).load(Ordering::Relaxed);
        let (mut at, mut lost) = (tail, 0);
        while at < head {
            let mut header = [0u8; 8];
            self.copy(at, &mut header);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < header.len() || size as u64 > head - at {
                // Nothing behind an invalid record can be found.
                at = head;
                break;
            }
            let mut record = std::mem::take(&mut self.record);
            record.resize(size, 0);
            self.copy(at, &mut record);
            match kind {
                RECORD_LOST => lost += number(&record, 16).unwrap_or(0),
                RECORD_SAMPLE => {
                    if let Some(sample) = sample(&record) {
                        take(sample);
                    }
                }
                _ => {}
            }
            self.record = record;
            at += size as u64;
        }
        if at != tail {
            // After the copies, because from here on the kernel may overwrite them.
            self.position(DATA_TAIL).store(at, Ordering::Release);
        }
        lost
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page of the mapping is the kernel's control page, which has an aligned u64 at
        // this offset; it is mapped as long as `self` lives, and both sides use it atomically.
        unsafe { &*self.map.at().byte_add(offset).cast::<AtomicU64>() }
    }

    /// Copies bytes out of the ring, which may wrap around its end.
    fn copy(&self, position: u64, into: &mut [u8]) {
        let start = (position % self.bytes as u64) as usize;
        let first = into.len().min(self.bytes - start);
        let (before, after) = into.split_at_mut(first);
        // SAFETY: the ring lies behind the control page and is `self.bytes` long; `start + first` and the
        // length of `after` (a record is shorter than the ring: its length has 16 bits, and lies between head
        // and tail) are within it. The kernel does not write between tail and head.
        unsafe {
            let ring = self.map.at().byte_add(page_bytes() as usize).cast::<u8>();
            ptr::copy_nonoverlapping(ring.add(start), before.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(ring, after.as_mut_ptr(), after.len());
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events[0].as_fd()
    }
}

fn number(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(record.get(at..)?.first_chunk().copied()?))
}

fn short(record: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(record.get(at..)?.first_chunk().copied()?))
}

fn sample(record: &[u8]) -> Option<Sample<'_>> {
    let len = short(record, RAW_AT - 4)? as usize;
    let raw = record.get(RAW_AT..RAW_AT.checked_add(len)?)?;
    Some(Sample { pid: short(record, 8)?, tid: short(record, 12)?, time: number(record, 16)?, raw })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_one_by_one() {
        assert_eq!(parse_list("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(parse_list("7"), [7]);
        assert!(parse_list("").is_empty());
    }

    #[test]
    fn a_sample_cut_short_is_none() {
        let mut record = vec![0u8; RAW_AT];
        record[8..12].copy_from_slice(&3u32.to_ne_bytes());
        record[24..28].copy_from_slice(&4u32.to_ne_bytes());
        assert!(sample(&record).is_none());
        record.extend([1, 2, 3, 4, 0, 0]);
        let sample = sample(&record).unwrap();
        assert_eq!((sample.pid, sample.raw), (3, &[1u8, 2, 3, 4][..]));
    }

    #[test]
    fn a_tracepoint_that_is_not_there_is_refused() {
        let error = Ring::open(0, &[(u64::MAX >> 1, "common_pid > 0")], 1).unwrap_err();
        println!("{error}");
    }
}
