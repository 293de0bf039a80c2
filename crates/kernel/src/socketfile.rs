//! Socket files that have the right permission bits from the first moment.
//!
//! If a socket is bound and then gets its bits through its path, it may have been replaced meanwhile, if
//! others may write to one of the folders above: then the bits go to a file of their choice. So the bits are
//! set before: the kernel makes the file with the bits of the unbound socket (`fchmod`), minus the process's
//! umask. All threads share the umask, so the file is made by a thread with a umask of its own (`CLONE_FS`).

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// A non-blocking `SOCK_SEQPACKET` socket that listens at `path`, with these permission bits; at most
/// `backlog` connections wait. The caller must remove a dead path first.
///
/// # Errors
/// `EADDRINUSE`: the path exists; those of `bind` and `listen`.
pub fn listen(path: &CStr, backlog: i32, bits: u32) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(bits))?;
    let own_umask = thread::scope(|scope| {
        let bind = || {
            // SAFETY: takes no pointer; only this thread gets a copy of what it shared with the others.
            let own_umask = unsafe { libc::unshare(libc::CLONE_FS) } == 0;
            if own_umask {
                rustix::process::umask(Mode::empty());
            }
            rustix::net::bind(&socket, &address).map(|()| own_umask)
        };
        let thread = thread::Builder::new().name("bind".into()).spawn_scoped(scope, bind);
        let thread = thread.map_err(|_| Errno::AGAIN)?;
        thread.join().unwrap_or(Err(Errno::AGAIN))
    })?;
    if !own_umask {
        // Some containers forbid every unshare. The umask removes bits and adds none.
        let set = set_bits(Path::new(OsStr::from_bytes(path.to_bytes())), bits);
        set.map_err(|e| e.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))?;
    }
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Gives the socket file of a listener that was taken over these permission bits. Follows no symlink, and
/// changes only a socket of this process's user.
///
/// # Errors
/// There is no such file; `PermissionDenied`: something else exists there.
pub fn set_bits(path: &Path, bits: u32) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let about = rustix::fs::fstat(&file)?;
    let ours = about.st_uid == rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(about.st_mode) != FileType::Socket || !ours {
        let why = format!("{} is no socket of ours: something was put in its place", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    if about.st_mode & 0o7777 == bits {
        return Ok(());
    }
    // The descriptor names the file itself, whatever is at its path by now.
    rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), Mode::from_raw_mode(bits))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn bits(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_socket_file_has_its_bits_from_the_first_moment_on() {
        let folder = tempfile::tempdir().unwrap();
        for wanted in [0o600, 0o666, 0o660, 0o777] {
            let path = folder.path().join(format!("{wanted:o}"));
            let name = CString::new(path.to_str().unwrap()).unwrap();
            let socket = listen(&name, 1, wanted).unwrap();
            assert_eq!(bits(&path), wanted, "whatever the umask");
            assert!(crate::fdpass::listens(std::os::fd::AsFd::as_fd(&socket)));
            assert_eq!(listen(&name, 1, wanted).unwrap_err(), Errno::ADDRINUSE);
        }
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let before = rustix::process::umask(Mode::from_raw_mode(0o022));
        rustix::process::umask(before);
        assert_eq!(bits(&file), 0o666 & !before.as_raw_mode(), "the process's umask is as it was");
    }

    #[test]
    fn a_link_in_the_place_of_a_socket_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [secret, swapped, socket] = ["secret", "swapped", "socket"].map(|name| folder.path().join(name));
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&secret, &swapped).unwrap();
        for path in [&swapped, &secret] {
            assert_eq!(set_bits(path, 0o666).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(bits(&secret), 0o600);
        let name = CString::new(socket.to_str().unwrap()).unwrap();
        let _listener = listen(&name, 1, 0o600).unwrap();
        set_bits(&socket, 0o666).unwrap();
        assert_eq!(bits(&socket), 0o666);
    }
}
