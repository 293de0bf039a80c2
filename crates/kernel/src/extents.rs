//! Where the bytes of a file lie on the device, and which lie nowhere: the `FIEMAP` ioctl.
//!
//! The result determines the order of reads, and which ranges are not read ahead because they are holes or
//! were never written. So stale or missing extents only cost a seek, or a read without read-ahead. The
//! addresses are those of the file system's own device (a partition, a logical volume);
//! [`crate::topology::Backing`] has its start on the disk. See Documentation/filesystems/fiemap.rst.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::syscall::done;

/// Number of extents requested in one call: one page of results. For a more fragmented file, the call is
/// repeated from the offset wanted.
const EXTENTS_PER_CALL: usize = 72;

/// `_IOWR('f', 11, struct fiemap)`, `struct fiemap` being 32 bytes without its array.
const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;

const FIEMAP_EXTENT_LAST: u32 = 0x1;
const FIEMAP_EXTENT_UNKNOWN: u32 = 0x2;
const FIEMAP_EXTENT_DELALLOC: u32 = 0x4;
const FIEMAP_EXTENT_DATA_INLINE: u32 = 0x200;
const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` with a buffer for results.
#[repr(C)]
struct RawMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_PER_CALL],
}

/// A range of bytes that is contiguous in the file and on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
    /// Address on the file system's device, bytes.
    pub address: u64,
}

/// Part of a file's map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentMap {
    /// By rising offset. Holes and data without an address yet are left out.
    extents: Vec<Extent>,
    /// Start and end of ranges that no disk delivers, by rising offset: holes, and space that was never
    /// written.
    holes: Vec<(u64, u64)>,
    /// The map covers offsets from here ...
    from: u64,
    /// ... up to here.
    upto: u64,
}

impl ExtentMap {
    /// A map of these extents, covering offsets in `[from, upto)`.
    pub fn new(mut extents: Vec<Extent>, from: u64, upto: u64) -> ExtentMap {
        extents.sort_by_key(|e| e.offset);
        ExtentMap { extents, holes: Vec::new(), from, upto }
    }

    /// Start and end of ranges that no disk delivers, by rising offset; `u64::MAX` means to the end of the
    /// file.
    pub fn holes(&self) -> &[(u64, u64)] {
        &self.holes
    }

    /// The first covered offset, and the first one behind that is not covered.
    pub fn covered(&self) -> (u64, u64) {
        (self.from, self.upto)
    }

    /// Whether the map covers `offset`.
    pub fn covers(&self, offset: u64) -> bool {
        (self.from..self.upto).contains(&offset)
    }

    /// The first extent of the map; `None` if no byte has an address (holes, inline data, not written yet).
    pub fn first(&self) -> Option<Extent> {
        self.extents.first().copied()
    }

    /// Address of the file's byte at `offset` on the file system's device, in bytes. `None` in a hole.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let after = self.extents.partition_point(|e| e.offset <= offset);
        let extent = self.extents[..after].last()?;
        let within = offset - extent.offset;
        (within < extent.len).then(|| extent.address.saturating_add(within))
    }
}

/// Asks the file system for up to 72 extents from `offset` on.
///
/// # Errors
/// `EOPNOTSUPP` if the file system does not support it (network, FUSE, tmpfs); others as in ioctl_fiemap(2).
pub fn extents(file: impl AsFd, offset: u64) -> io::Result<ExtentMap> {
    let mut map = RawMap {
        start: offset,
        length: u64::MAX - offset,
        flags: 0,
        mapped: 0,
        count: EXTENTS_PER_CALL as u32,
        reserved: 0,
        extents: [RawExtent::default(); EXTENTS_PER_CALL],
    };
    // SAFETY: the descriptor is open for the whole call; `map` is a `struct fiemap` followed by `count`
    // extents, all plain integers, which is what the ioctl may write to.
    done(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FS_IOC_FIEMAP as _, &raw mut map) })?;
    let found = &map.extents[..(map.mapped as usize).min(EXTENTS_PER_CALL)];
    let whole = found.last().is_none_or(|e| e.flags & FIEMAP_EXTENT_LAST != 0);
    let upto = if whole { u64::MAX } else { found.last().map_or(0, |e| e.logical.saturating_add(e.length)) };
    let without_address = FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_DATA_INLINE;
    let known = found.iter().filter(|e| e.flags & without_address == 0);
    let extents = known.map(|e| Extent { offset: e.logical, len: e.length, address: e.physical }).collect();
    Ok(ExtentMap { holes: holes(found, offset, upto), ..ExtentMap::new(extents, offset, upto) })
}

/// The parts of `[from, upto)` that no disk delivers. Data without an address yet is not a hole.
fn holes(extents: &[RawExtent], from: u64, upto: u64) -> Vec<(u64, u64)> {
    let without_data = |e: &&RawExtent| {
        let not_yet = FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC;
        e.flags & FIEMAP_EXTENT_UNWRITTEN != 0 && e.flags & not_yet == 0
    };
    let data = extents.iter().filter(|e| !without_data(e));
    let data = data.map(|e| (e.logical, e.logical.saturating_add(e.length)));
    let (mut holes, mut cursor) = (Vec::new(), from);
    for (start, end) in data.chain([(upto, upto)]) {
        if cursor < start {
            holes.push((cursor, start));
        }
        cursor = cursor.max(end);
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_raw_layout_is_the_kernels() {
        assert_eq!(size_of::<RawExtent>(), 56);
        assert_eq!(size_of::<RawMap>(), 32 + 56 * EXTENTS_PER_CALL);
    }

    #[test]
    fn addresses_are_found_within_extents_only() {
        let part = |offset, len, address| Extent { offset, len, address };
        let map = ExtentMap::new(vec![part(8_192, 4_096, 500_000), part(0, 4_096, 900_000)], 0, 100_000);
        assert_eq!(map.address_of(0), Some(900_000));
        assert_eq!(map.address_of(4_095), Some(904_095));
        assert_eq!(map.address_of(4_096), None, "a hole");
        assert_eq!(map.address_of(8_193), Some(500_001));
        assert_eq!(map.address_of(12_288), None);
        assert!(map.covers(99_999) && !map.covers(100_000));
        assert_eq!(map.first(), Some(part(0, 4_096, 900_000)), "by offset, not by address");
        assert_eq!(ExtentMap::new(Vec::new(), 0, 10).first(), None);
    }

    #[test]
    fn what_was_never_written_is_a_hole_and_what_has_no_address_yet_is_none() {
        let raw = |logical, length, flags| RawExtent { logical, length, flags, ..RawExtent::default() };
        let found = [
            raw(0, 10, 0),
            raw(10, 10, FIEMAP_EXTENT_UNWRITTEN),
            raw(30, 10, FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_UNWRITTEN),
            raw(40, 10, FIEMAP_EXTENT_DATA_INLINE),
            raw(60, 10, FIEMAP_EXTENT_UNWRITTEN | FIEMAP_EXTENT_LAST),
        ];
        assert_eq!(holes(&found, 5, u64::MAX), [(10, 30), (50, u64::MAX)]);
        assert_eq!(holes(&found[..1], 5, 10), []);
        assert_eq!(holes(&[], 5, u64::MAX), [(5, u64::MAX)], "a file that is one hole");
    }

    #[test]
    fn a_real_file_has_holes_where_it_was_never_written() {
        let file = tempfile_with(&[7u8; 1 << 20]);
        let (allocated, end) = (4 << 20, 12 << 20);
        if rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), allocated, 1 << 20).is_err() {
            println!("skipped: no fallocate here");
            return;
        }
        rustix::fs::ftruncate(&file, end).unwrap();
        rustix::fs::fsync(&file).unwrap();
        match extents(&file, 0) {
            Ok(map) => assert_eq!(map.holes(), [(1 << 20, u64::MAX)], "{map:?}"),
            Err(e) => println!("skipped: no FIEMAP here ({e})"),
        }
    }

    #[test]
    fn a_real_file_has_addresses_where_the_file_system_tells() {
        let file = tempfile_with(&[7u8; 100_000]);
        rustix::fs::fsync(&file).unwrap();
        match extents(&file, 0) {
            Ok(map) => assert!(map.covers(99_999) && map.address_of(0).is_some(), "{map:?}"),
            Err(e) => println!("skipped: no FIEMAP here ({e})"),
        }
    }

    fn tempfile_with(bytes: &[u8]) -> std::fs::File {
        use std::io::Write;
        let dir = std::env::temp_dir();
        let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
        let fd = rustix::fs::open(&dir, flags, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        let mut file = std::fs::File::from(fd);
        file.write_all(bytes).unwrap();
        file
    }
}
