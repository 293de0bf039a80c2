//! Which bytes can be sent without waiting for a disk.
//!
//! `cachestat` tells in 0.6 us whether pages are in memory, but it also counts pages that are still being
//! read, and sending those would wait. So one byte in every 128 KiB, and the last, is read with `RWF_NOWAIT`
//! as well: on a page that is still being read, this returns at once and starts nothing. Reads of a piece
//! complete in file order, so pages between two that are ready are nearly always ready too. The calls that
//! send are timed, and slow ones are counted.

use std::cell::RefCell;
use std::io::IoSliceMut;
use std::os::fd::AsFd;

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags};
use seekless_base::wants::ready_prefix;
use seekless_kernel::residency::{nowait_page_resident, resident_prefix};

use super::tree::Opened;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// This many bytes from the offset on; at least one.
    Bytes(u64),
    /// Not even the first byte.
    No,
    /// The kernel tells only owners of the file; a read has to be tried.
    Unknown,
}

/// How many of `len` bytes from `offset` on can be sent at once.
pub(crate) fn ready(file: &Opened, offset: u64, len: u64) -> Ready {
    match resident_prefix(file.as_fd(), offset, len) {
        Ok(0) => Ready::No,
        Ok(prefix) => match ready_prefix(offset, prefix, |at| nowait_page_resident(file.as_fd(), at)) {
            0 => Ready::No,
            bytes => Ready::Bytes(bytes),
        },
        Err(_) => Ready::Unknown,
    }
}

/// Longest copy, if sendfile cannot be used: several TLS records, and small enough to stay in a core's cache
/// until they are encrypted.
pub(crate) const COPY_MAX: usize = 64 << 10;

/// Most buffers an event loop keeps for the next copies.
const SPARE_MAX: usize = 64;

thread_local! {
    /// Buffers of [`COPY_MAX`] bytes: neither allocated nor zeroed for every copy.
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that returns to its loop's spare buffers.
struct Copy {
    buffer: Box<[u8]>,
    len: usize,
}

impl AsRef<[u8]> for Copy {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // A thread that ends has no spare buffers any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(buffer);
            }
        });
    }
}

/// Reads what is in memory at `offset`, at most `most` bytes and [`COPY_MAX`], without waiting; `None` if
/// that is nothing.
///
/// # Errors
/// A read error of the disk, or the end of the file where data should be.
pub(crate) fn read_ready(file: &Opened, offset: u64, most: usize) -> std::io::Result<Option<Bytes>> {
    let buffer = SPARE.with(|spare| spare.borrow_mut().pop());
    let buffer = buffer.unwrap_or_else(|| vec![0; COPY_MAX].into_boxed_slice());
    let mut copy = Copy { buffer, len: 0 };
    let most = most.min(COPY_MAX);
    loop {
        let mut parts = [IoSliceMut::new(&mut copy.buffer[..most])];
        match rustix::io::preadv2(file.as_fd(), &mut parts, offset, ReadWriteFlags::NOWAIT) {
            Ok(0) if most > 0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                copy.len = n;
                return Ok(Some(Bytes::from_owner(copy)));
            }
            Err(Errno::INTR) => {}
            // EOPNOTSUPP: this file system does not support RWF_NOWAIT.
            Err(Errno::AGAIN | Errno::OPNOTSUPP) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Entry, Tree};
    use super::*;
    use std::path::Path;

    #[test]
    fn what_was_just_written_is_ready_and_what_was_dropped_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let content: Vec<u8> = (0..600_000u32).map(|i| i as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let Ok(Entry::File(file)) = Tree::open(&[dir.path().into()]).unwrap().get(Path::new("f"), true)
        else {
            panic!("no file")
        };
        match ready(&file, 5, 599_995) {
            Ready::Bytes(599_995) => {}
            other => return println!("skipped: the kernel does not tell here ({other:?})"),
        }
        assert_eq!(ready(&file, 599_999, 1), Ready::Bytes(1));
        let read = read_ready(&file, 100_000, 1000).unwrap();
        assert!(read.is_none_or(|r| r == content[100_000..101_000]));
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if ready(&file, 0, 600_000) != Ready::No {
            println!("skipped: nothing is dropped here");
        }
    }
}
