//! File handles: naming a file without holding it open.
//!
//! An open descriptor keeps its mount busy and the blocks of a deleted file allocated. A handle (`name_to_handle_at`) is
//! the file system's own name of an inode; it pins nothing, turns stale when the inode is gone, and survives renames.
//! Opened through a mount it also tells where the file lies *in that mount*, whatever mount it was reached by: that is
//! how a file opened inside a container is recognised as lying under a folder of ours.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `MAX_HANDLE_SZ`: no file system's handle is longer.
const HANDLE_BYTES: usize = 128;

/// The kernel's `struct file_handle` with room for the longest one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES],
}

const _: () = assert!(offset_of!(FileHandle, handle) == size_of::<libc::file_handle>());

impl FileHandle {
    /// The name of an open file.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the file system has no handles (overlay, some of FUSE).
    pub fn of(file: BorrowedFd<'_>) -> io::Result<FileHandle> {
        let mut handle = FileHandle { bytes: HANDLE_BYTES as u32, kind: 0, handle: [0; HANDLE_BYTES] };
        let mut mount_id: libc::c_int = 0;
        // SAFETY: the path is an empty terminated string (the descriptor itself is meant), `handle` has the layout of the
        // kernel's structure and the room its first field says, and both it and `mount_id` live across the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                file.as_raw_fd(),
                c"".as_ptr(),
                &raw mut handle,
                &raw mut mount_id,
                libc::AT_EMPTY_PATH,
            )
        };
        if done == 0 { Ok(handle) } else { Err(io::Error::last_os_error()) }
    }

    /// Opens the file through `mount`, any descriptor of a folder on the same file system. `flags` are those of `open`.
    ///
    /// # Errors
    /// `ESTALE` when the file is gone, `EPERM` without `CAP_DAC_READ_SEARCH`, `EBADF` for an `O_PATH` mount descriptor.
    pub fn open(&self, mount: BorrowedFd<'_>, flags: i32) -> io::Result<OwnedFd> {
        let pointer: *const FileHandle = self;
        // SAFETY: the structure is initialised, says its own length and lives across the call, which only reads it.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                pointer,
                flags | libc::O_CLOEXEC | libc::O_NOCTTY,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor the call just gave us, owned by nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
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
        std::fs::remove_file(dir.path().join("b")).unwrap();
        assert!(handle.open(mount.as_fd(), libc::O_RDONLY).is_err());
    }
}
