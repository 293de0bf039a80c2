//! A file system of one file, `disk`: the bytes of the software disk, for a loop device to stand on.
//!
//! The loop device reads and writes it with direct, asynchronous I/O, so what arrives here is what its block
//! layer dispatched, all of it at once, and nothing is cached below.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use rustix::fs::FallocateFlags;
use seekless_model::drive::Op;

use crate::engine::DriveEngine;
use crate::scratch::scratch;
use crate::store::Store;

/// Name of the one file.
pub const FILE_NAME: &str = "disk";

/// Largest request: 256 pages, the kernel's own limit (`/proc/sys/fs/fuse/max_pages_limit`).
pub const REQUEST_MAX: u32 = 1 << 20;

/// Requests the kernel may have outstanding. Above what a loop device dispatches (128) cut into requests of
/// the largest size; it is what bounds our memory.
pub const BACKGROUND_MAX: u16 = 512;

/// Attributes never change behind the kernel's back.
pub(crate) const FOREVER: Duration = Duration::from_secs(3600);

const FILE: INodeNo = INodeNo(2);

/// The settings every software disk asks of the kernel.
pub(crate) fn configure(config: &mut KernelConfig) {
    // An older kernel without one of them works, slower; nothing to report.
    let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
    let _ = config.set_max_write(REQUEST_MAX);
    let _ = config.set_max_background(BACKGROUND_MAX);
    let _ = config.set_congestion_threshold(BACKGROUND_MAX);
}

/// Attributes of a file or directory of the software disk.
pub(crate) fn attributes(ino: INodeNo, kind: FileType, size: u64, perm: u16) -> FileAttr {
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino,
        size,
        blocks: size.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The file system.
pub struct DiskFile {
    engine: Arc<DriveEngine>,
    store: Arc<Store>,
}

impl DiskFile {
    /// Serves `store` in the time `engine` says.
    pub fn new(engine: Arc<DriveEngine>, store: Arc<Store>) -> DiskFile {
        DiskFile { engine, store }
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        match ino {
            INodeNo::ROOT => Some(attributes(ino, FileType::Directory, 0, 0o700)),
            FILE => Some(attributes(ino, FileType::RegularFile, self.store.size(), 0o600)),
            _ => None,
        }
    }
}

impl Filesystem for DiskFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        configure(config);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(FILE) {
            Some(attr) if parent == INodeNo::ROOT && name == FILE_NAME => {
                reply.entry(&FOREVER, &attr, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&FOREVER, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        for (i, (ino, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(ino, i as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        // Past the page cache, and writes side by side as on a disk.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = u64::from(size).min(self.store.size().saturating_sub(offset));
        let store = Arc::clone(&self.store);
        let finish = move |ok: bool| {
            if !ok {
                return reply.error(Errno::EIO);
            }
            scratch(len as usize, |buffer| match store.read(offset, buffer) {
                Ok(()) => reply.data(buffer),
                Err(_) => reply.error(Errno::EIO),
            });
        };
        self.engine.submit(Op::Read, offset, len, Box::new(finish));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let len = data.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > self.store.size()) {
            return reply.error(Errno::EFBIG);
        }
        // The bytes are taken over now, while the kernel's buffer is valid; no client may rely on the old
        // ones until the write is answered. A write that is to fail leaves the disk as it was.
        let taken = if self.engine.fails(offset, len) { Ok(()) } else { self.store.write(offset, data) };
        let finish = move |ok: bool| match (ok, taken) {
            (true, Ok(())) => reply.written(len as u32),
            (true, Err(e)) => reply.error(Errno::from(e)),
            (false, _) => reply.error(Errno::EIO),
        };
        self.engine.submit(Op::Write, offset, len, Box::new(finish));
    }

    /// The block layer's request to zero a range. It frees what was there and takes as long as writing zeros
    /// would.
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let zeroing = [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE]
            .map(|kind| (kind | FallocateFlags::KEEP_SIZE).bits() as i32);
        if !zeroing.contains(&mode) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if offset.checked_add(length).is_none_or(|end| end > self.store.size()) {
            return reply.error(Errno::EFBIG);
        }
        let done = if self.engine.fails(offset, length) { Ok(()) } else { self.store.zero(offset, length) };
        let finish = move |ok: bool| match (ok, done) {
            (true, Ok(())) => reply.ok(),
            (true, Err(e)) => reply.error(Errno::from(e)),
            (false, _) => reply.error(Errno::EIO),
        };
        self.engine.submit(Op::Write, offset, length, Box::new(finish));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    /// The block layer's flush: ends when the drive's write cache is empty.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let finish = move |ok: bool| if ok { reply.ok() } else { reply.error(Errno::EIO) };
        self.engine.submit(Op::Flush, 0, 0, Box::new(finish));
    }
}
