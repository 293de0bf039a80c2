//! Loop devices: files as block devices.
//!
//! `LOOP_CONFIGURE` (Linux 5.8) binds a file to a free `/dev/loopN` in one step. Direct I/O avoids caching
//! the pages of the file below a second time. With auto-clear the device releases the file when its last
//! opener (a mount, or this process) goes away, however this process ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

use crate::syscall::done;

/// `linux/loop.h`: asks `/dev/loop-control` for a free device.
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
/// `linux/loop.h`: binds a file with all settings at once.
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
/// `linux/loop.h`: releases the file (at the last close if the device is open elsewhere).
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

// The kernel copies exactly these numbers of bytes.
const _: () = assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304);

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
            let config = LoopConfig {
                fd: backing.as_raw_fd() as u32,
                block_size,
                info: LoopInfo64 {
                    device: 0,
                    inode: 0,
                    rdevice: 0,
                    offset: 0,
                    size_limit: 0,
                    number: 0,
                    encrypt_type: 0,
                    encrypt_key_size: 0,
                    flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
                    file_name: [0; 64],
                    crypt_name: [0; 64],
                    encrypt_key: [0; 32],
                    init: [0; 2],
                },
                reserved: [0; 8],
            };
            // SAFETY: `config` has the layout the request reads (size asserted above) and outlives the call,
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

/// `linux/fs.h`: stops writes to a file system once everything in memory is on the disk and its journal is
/// empty.
const FIFREEZE: libc::c_ulong = 0xC004_5877;
/// `linux/fs.h`: allows writes again.
const FITHAW: libc::c_ulong = 0xC004_5878;

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
