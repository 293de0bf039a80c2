//! File handles: names of files that do not keep them open.
//!
//! An open descriptor keeps its mount busy and the blocks of a deleted file allocated. A handle
//! (`name_to_handle_at`) is the file system's own name of an inode; it pins nothing, becomes stale when the
//! inode is gone, and survives renames. Opened through a mount it also shows the path of the file *in that
//! mount*, whatever mount it was reached by. So a file opened inside a container can be recognised as lying
//! under one of our folders.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::syscall::{done, owned};

/// `MAX_HANDLE_SZ`: maximum length of a handle.
const HANDLE_BYTES: usize = 128;

/// Kinds of handle from which the inode number can be read (linux/exportfs.h): the inode number in 32 bits
/// and a generation, without and with a parent; those of XFS with 64 bits; that of btrfs.
const INO32_GEN: i32 = 1;
const INO32_GEN_PARENT: i32 = 2;
const XFS_INO64_GEN: i32 = 0x81;
const XFS_INO64_GEN_PARENT: i32 = 0x82;
const BTRFS: i32 = 0x4d;

/// `f_type` of ext2, ext3 and ext4 (linux/magic.h).
const EXT_SUPER_MAGIC: u64 = 0xef53;

/// The kernel's `struct file_handle` with room for the longest handle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES],
}

const _: () = assert!(offset_of!(FileHandle, handle) == size_of::<libc::file_handle>());

impl FileHandle {
    /// The handle of an open file.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file system has no handles (overlay, some FUSE file systems).
    pub fn of(file: BorrowedFd<'_>) -> io::Result<FileHandle> {
        let mut handle = FileHandle { bytes: HANDLE_BYTES as u32, kind: 0, handle: [0; HANDLE_BYTES] };
        let mut mount_id: libc::c_int = 0;
        // SAFETY: the path is an empty terminated string (for the descriptor itself), `handle` has the layout
        // of the kernel's structure and the room that its first field states, and both it and `mount_id` live
        // across the call.
        done(unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                file.as_raw_fd(),
                c"".as_ptr(),
                &raw mut handle,
                &raw mut mount_id,
                libc::AT_EMPTY_PATH,
            )
        })?;
        Ok(handle)
    }

    /// A handle of the file that has this inode number now, whatever file had it before. Accepted by ext2,
    /// ext3 and ext4, where generation 0 matches every file. `None` if `mount` lies on another file system,
    /// or for a number that is out of range.
    pub fn of_number(mount: BorrowedFd<'_>, ino: u64) -> Option<FileHandle> {
        let ext = rustix::fs::fstatfs(mount).is_ok_and(|fs| fs.f_type as u64 == EXT_SUPER_MAGIC);
        let number = u32::try_from(ino).ok().filter(|_| ext)?;
        let mut bytes = [0u8; 8];
        bytes[..4].copy_from_slice(&number.to_ne_bytes());
        FileHandle::from_parts(INO32_GEN, &bytes)
    }

    /// A handle as reported by the kernel in an event.
    pub(crate) fn from_parts(kind: i32, bytes: &[u8]) -> Option<FileHandle> {
        let mut handle = FileHandle { bytes: bytes.len() as u32, kind, handle: [0; HANDLE_BYTES] };
        handle.handle.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// The inode number in it; `None` for an unknown kind of handle.
    pub fn inode(&self) -> Option<u64> {
        let bytes = self.handle.get(..self.bytes as usize)?;
        match self.kind {
            INO32_GEN | INO32_GEN_PARENT => Some(u32::from_ne_bytes(*bytes.first_chunk()?).into()),
            XFS_INO64_GEN | XFS_INO64_GEN_PARENT | BTRFS => Some(u64::from_ne_bytes(*bytes.first_chunk()?)),
            _ => None,
        }
    }

    /// Opens the file through `mount`, a descriptor of any folder on the same file system. `flags` are those
    /// of `open`.
    ///
    /// # Errors
    /// `ESTALE` when the file is gone, `EPERM` without `CAP_DAC_READ_SEARCH`, `EBADF` for an `O_PATH` mount
    /// descriptor.
    pub fn open(&self, mount: BorrowedFd<'_>, flags: i32) -> io::Result<OwnedFd> {
        let pointer: *const FileHandle = self;
        // SAFETY: the structure is initialised, states its own length and lives across the call, which only
        // reads it.
        unsafe {
            owned(libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                pointer,
                flags | libc::O_CLOEXEC | libc::O_NOCTTY,
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_handle_finds_its_file_after_a_rename_and_not_after_its_end() {
        let dir = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let file = File::open(&path).unwrap();
        let handle = match FileHandle::of(file.as_fd()) {
            Ok(handle) => handle,
            Err(error) => {
                println!("skipped: no file handles here ({error})");
                return;
            }
        };
        let ino = file.metadata().unwrap().ino();
        assert!(handle.inode().is_none_or(|told| told == ino), "{handle:?}");
        drop(file);
        std::fs::rename(&path, dir.path().join("b")).unwrap();
        let mount = File::open(dir.path()).unwrap();
        let again = match handle.open(mount.as_fd(), libc::O_RDONLY) {
            Ok(fd) => File::from(fd),
            Err(error) => {
                println!("skipped: opening by handle needs root ({error})");
                return;
            }
        };
        assert_eq!(again.metadata().unwrap().ino(), ino);
        drop(again);
        if let Some(named) = FileHandle::of_number(mount.as_fd(), ino) {
            let again = File::from(named.open(mount.as_fd(), libc::O_RDONLY).unwrap());
            assert_eq!(again.metadata().unwrap().ino(), ino);
        }
        std::fs::remove_file(dir.path().join("b")).unwrap();
        assert!(handle.open(mount.as_fd(), libc::O_RDONLY).is_err());
        let number = FileHandle::of_number(mount.as_fd(), ino);
        assert!(number.is_none_or(|gone| gone.open(mount.as_fd(), libc::O_RDONLY).is_err()));
    }

    #[test]
    fn a_number_that_no_handle_can_have_is_refused() {
        let dir = File::open("/").unwrap();
        assert_eq!(FileHandle::of_number(dir.as_fd(), u64::MAX), None);
        assert_eq!(FileHandle::from_parts(1, &[0; HANDLE_BYTES + 1]), None);
        assert_eq!(FileHandle::from_parts(1, &[1, 0]).and_then(|h| h.inode()), None, "cut short");
    }
}
