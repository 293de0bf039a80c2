//! Loop devices: files as block devices.
//!
//! `LOOP_CONFIGURE` (Linux 5.8) binds a file to a free `/dev/loopN` in one step. Direct I/O avoids caching
//! the pages of the file below a second time. With auto-clear the device releases the file when its last
//! opener (a mount, or this process) goes away, however this process ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

use linux_raw_sys::ioctl::{FIFREEZE, FITHAW};
use linux_raw_sys::loop_device::{
    LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO, LOOP_CLR_FD, LOOP_CONFIGURE, LOOP_CTL_GET_FREE, loop_config,
};

use crate::syscall::done;

/// A bound loop device. Dropping it closes it; then the binding ends unless something else (a mount) has it
/// open.
#[derive(Debug)]
pub struct LoopDevice {
    number: u32,
    file: File,
}

impl LoopDevice {
    /// Binds `backing` to a free loop device with `block_size`-byte logical sectors (512 to 4096).
    ///
    /// # Errors
    /// Those of the system: no `/dev/loop-control` (`NotFound`), no permission for it (`PermissionDenied`),
    /// no direct I/O on the file, or `ResourceBusy` if others took the free device first, 16 times in a row.
    pub fn attach(backing: BorrowedFd<'_>, block_size: u32) -> io::Result<LoopDevice> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        // Between finding a free device and binding it, another process may bind it.
        for _ in 0..16 {
            // SAFETY: this request takes no argument; the descriptor is open for the length of the call.
            let number = done(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) })? as u32;
            let file = OpenOptions::new().read(true).write(true).open(device_path(number))?;
            // SAFETY: the structure has only integers, of which each may be zero.
            let mut config: loop_config = unsafe { std::mem::zeroed() };
            (config.fd, config.block_size) = (backing.as_raw_fd() as u32, block_size);
            config.info.lo_flags = LO_FLAGS_AUTOCLEAR as u32 | LO_FLAGS_DIRECT_IO as u32;
            // SAFETY: `config` is the structure that the request reads, and outlives the call,
            // which keeps no reference to it; both descriptors are open.
            match done(unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CONFIGURE as _, &config) }) {
                Ok(_) => return Ok(LoopDevice { number, file }),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::from(io::ErrorKind::ResourceBusy))
    }

    /// The N of `/dev/loopN`.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> PathBuf {
        device_path(self.number)
    }

    /// Releases the file now, or at the last close if others have the device open.
    ///
    /// # Errors
    /// `ENXIO` if it was released already.
    pub fn detach(self) -> io::Result<()> {
        clear(&self.file)
    }
}

fn clear(file: &File) -> io::Result<()> {
    // SAFETY: this request takes no argument; the descriptor is open for the length of the call.
    done(unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CLR_FD as _, 0) }).map(drop)
}

fn device_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// Detaches loop device `number`, even if another process bound it (now, or at its last close).
///
/// # Errors
/// Those of the system; `ENXIO` if nothing is bound to it.
pub fn detach(number: u32) -> io::Result<()> {
    clear(&OpenOptions::new().read(true).open(device_path(number))?)
}

/// The backing file of a loop device that covers all of a file on a FUSE file system: a software disk.
/// Reading that file reads the disk without the kernel's loop worker in between, which waits for a processor
/// like any other thread.
pub fn fuse_backing(number: u32) -> Option<PathBuf> {
    let offset = std::fs::read_to_string(format!("/sys/block/loop{number}/loop/offset")).ok()?;
    let path = backing_file(number).filter(|_| offset.trim() == "0")?;
    let fs = rustix::fs::statfs(&path).ok()?;
    (fs.f_type as u64 == crate::prefetch::FUSE_SUPER_MAGIC).then_some(path)
}

/// Path of the file bound to loop device `number` as the kernel names it, `None` if nothing is bound. A file
/// unlinked since ends in ` (deleted)`.
pub fn backing_file(number: u32) -> Option<PathBuf> {
    let text = std::fs::read_to_string(format!("/sys/block/loop{number}/loop/backing_file")).ok()?;
    Some(PathBuf::from(text.strip_suffix('\n').unwrap_or(&text)))
}

/// Writes everything that the file system of `file` has in memory to its disk, including the journal, so that
/// no earlier work is written back later. Writers wait meanwhile.
///
/// # Errors
/// The caller is not root, or the file system cannot be frozen.
pub fn settle(file: BorrowedFd<'_>) -> io::Result<()> {
    let request = |code| {
        // SAFETY: both requests ignore their argument; the descriptor is open for the length of the call.
        done(unsafe { libc::ioctl(file.as_raw_fd(), code as _, 0) }).map(drop)
    };
    request(FIFREEZE)?;
    request(FITHAW)
}
