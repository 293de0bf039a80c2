//! Where a file has data: `SEEK_DATA` and `SEEK_HOLE`.
//!
//! A hole has no place on the disk. Space that was allocated and never written has a place, but no data.
//! Reading either fills memory with zeros and evicts other files.

use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The file system is not asked about a file shorter than this that has all its blocks, because reading its
/// unwritten space is faster. At half, two more system calls for each file of half this size; at double,
/// twice as much may be read in vain.
const ASKED_FROM: u64 = 1 << 20;

/// A hole shorter than this is read along, because that costs less than two reads. At half, files with many
/// small holes are read in more steps; at double, more zeros take memory.
const READ_ALONG: u64 = 64 << 10;

/// A block of `stat`.
pub(crate) const BLOCK: u64 = 512;

/// A contiguous range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) offset: u64,
    /// At least one.
    pub(crate) len: u64,
}

impl Stretch {
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// Whether a file has fewer blocks of 512 bytes than its length takes without holes.
pub(crate) fn lacks_blocks(bytes: u64, blocks: u64) -> bool {
    blocks.saturating_mul(BLOCK) < bytes
}

/// Whether such a file may have holes, or space that was never written.
pub(crate) fn may_have_holes(bytes: u64, blocks: u64) -> bool {
    bytes >= ASKED_FROM || lacks_blocks(bytes, blocks)
}

/// Maximum bytes that it has on its disk.
pub(crate) fn on_disk(bytes: u64, blocks: u64) -> u64 {
    bytes.min(blocks.saturating_mul(BLOCK))
}

/// The first stretch of data at or after `offset`; `None` if only a hole follows. If the file system does not
/// report holes, everything counts as data.
pub(crate) fn next_data(file: impl AsFd, offset: u64, end: u64) -> Option<Stretch> {
    if offset >= end {
        return None;
    }
    let all = Some(Stretch { offset, len: end - offset });
    let first = match seek(&file, SeekFrom::Data(offset)) {
        Ok(first) => first,
        Err(Errno::NXIO) => return None,
        Err(_) => return all,
    };
    if first >= end {
        return None;
    }
    let upto = seek(&file, SeekFrom::Hole(first)).map_or(end, |hole| hole.min(end));
    // The file is changing; it is checked again when it is read.
    if upto <= first || first < offset { all } else { Some(Stretch { offset: first, len: upto - first }) }
}

/// The first `most` stretches of data between `offset` and `end`. A hole shorter than [`READ_ALONG`] counts
/// as data.
pub(crate) fn data(file: impl AsFd, offset: u64, end: u64, most: usize) -> Vec<Stretch> {
    let (mut all, mut at): (Vec<Stretch>, u64) = (Vec::new(), offset);
    while let Some(next) = next_data(&file, at, end) {
        at = next.end();
        let full = all.len() == most;
        match all.last_mut() {
            Some(last) if next.offset - last.end() < READ_ALONG => last.len = next.end() - last.offset,
            _ if full => break,
            _ => all.push(next),
        }
    }
    all
}

/// The first `bytes` of these stretches.
pub(crate) fn first(stretches: &[Stretch], bytes: u64) -> Vec<Stretch> {
    let mut left = bytes;
    let cut = stretches.iter().map(|stretch| {
        let len = stretch.len.min(left);
        left -= len;
        Stretch { len, ..*stretch }
    });
    cut.filter(|stretch| stretch.len > 0).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn sparse(stretches: &[(u64, u64)], size: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        for (offset, len) in stretches {
            file.write_all_at(&vec![1; *len as usize], *offset).unwrap();
        }
        file
    }

    #[test]
    fn data_is_found_and_holes_are_not() {
        let file = sparse(&[(1 << 20, 65_536), (4 << 20, 65_536)], 1 << 30);
        if next_data(&file, 0, 1 << 30).is_some_and(|first| first.offset == 0) {
            return println!("skipped: no holes here");
        }
        let (a, b) = (Stretch { offset: 1 << 20, len: 65_536 }, Stretch { offset: 4 << 20, len: 65_536 });
        assert_eq!(data(&file, 0, 1 << 30, 9), [a, b]);
        assert_eq!(data(&file, 0, 1 << 30, 1), [a]);
        assert_eq!(data(&file, (1 << 20) + 5, 2 << 20, 9), [Stretch { offset: a.offset + 5, len: 65_531 }]);
        assert_eq!(data(&file, 2 << 20, 3 << 20, 9), []);
        let near = sparse(&[(0, 4096), (32 << 10, 4096)], 1 << 30);
        assert_eq!(data(&near, 0, 1 << 30, 9), [Stretch { offset: 0, len: 36 << 10 }]);
        assert_eq!(first(&[a, b], 70_000), [a, Stretch { len: 70_000 - 65_536, ..b }]);
        assert_eq!(first(&[a, b], 65_536), [a]);
        assert_eq!(next_data(&file, 1 << 30, 1 << 30), None);
        assert_eq!(data(sparse(&[], 1 << 40), 0, 1 << 40, 9), []);
        assert_eq!(data(sparse(&[], 0), 0, 0, 9), []);
    }
}
