//! The key with which a daemon proves its identity at the abstract twin of its socket.
//!
//! Any process may take an abstract name, and root of a container that shares the machine's network shows the
//! same credentials as root. But it does not see the folder of the socket. There the daemon puts a key that
//! every user may read. A shim reads the key while it still sees the folder, and requires the listener at the
//! twin to prove that it knows the key before it passes a descriptor. A local user that knows the key too
//! does not have root's credentials.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::FileType;
use sha2::{Digest, Sha256};

use crate::fdpass::SOCKET_PATH_BYTES_MAX;

/// Name of its file in the folder of the socket.
pub const FILE_NAME: &str = "twin.key";

/// Maximum length of its path, with the terminating zero.
const PATH_BYTES: usize = SOCKET_PATH_BYTES_MAX + FILE_NAME.len() + 1;

/// Secret to processes that do not see the folder.
pub type Key = [u8; 32];

/// Path of the key for a socket.
#[derive(Clone, Debug)]
pub struct KeyPath([u8; PATH_BYTES]);

impl KeyPath {
    /// For the socket at this path.
    pub fn of(socket: &CStr) -> Option<KeyPath> {
        let socket = socket.to_bytes();
        let folder = socket.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        let mut path = [0; PATH_BYTES];
        path.get_mut(..folder)?.copy_from_slice(socket.get(..folder)?);
        // One byte stays zero.
        path.get_mut(folder..PATH_BYTES - 1)?
            .get_mut(..FILE_NAME.len())?
            .copy_from_slice(FILE_NAME.as_bytes());
        Some(KeyPath(path))
    }

    /// As a C string.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

/// Reads a key from its open file, if the file belongs to root or to `own_uid`.
pub fn read(file: BorrowedFd<'_>, own_uid: u32) -> Option<Key> {
    let about = rustix::fs::fstat(file).ok()?;
    let theirs = about.st_uid != 0 && about.st_uid != own_uid;
    if theirs || FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut key = [0; 32];
    (rustix::io::pread(file, &mut key, 0) == Ok(32)).then_some(key)
}

/// Proof of knowing the key, for a nonce that the other side has chosen.
pub fn proof(key: &Key, nonce: u64) -> [u8; 16] {
    let digest = Sha256::new().chain_update(key).chain_update(nonce.to_le_bytes()).finalize();
    let mut proof = [0; 16];
    proof.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    proof
}

/// The daemon's side: the key beside a socket, made if this user has none there. Other users may read it if
/// they may connect.
///
/// # Errors
/// The folder cannot be written to.
pub fn ensure(path: &KeyPath, others: bool) -> std::io::Result<Key> {
    use rustix::fs::{Mode, OFlags};
    use std::os::fd::AsFd;
    let own_uid = rustix::process::geteuid().as_raw();
    let open = |flags, mode| {
        rustix::fs::open(path.as_c_str(), flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK, mode)
    };
    let is_ours = |file: &std::os::fd::OwnedFd| rustix::fs::fstat(file).is_ok_and(|a| a.st_uid == own_uid);
    if let Ok(file) = open(OFlags::RDONLY, Mode::empty())
        && is_ours(&file)
        && let Some(key) = read(file.as_fd(), own_uid)
    {
        return Ok(key);
    }
    match rustix::fs::unlink(path.as_c_str()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let mut key = Key::default();
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut key)?;
    let file = open(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)?;
    let mode =
        if others { Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH } else { Mode::RUSR | Mode::WUSR };
    rustix::fs::fchmod(&file, mode)?;
    std::io::Write::write_all(&mut std::fs::File::from(file), &key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::fd::AsFd;

    #[test]
    fn a_key_is_made_once_and_proves_itself() {
        let folder = tempfile::tempdir().unwrap();
        let socket =
            CString::new(folder.path().join("d.sock").into_os_string().into_encoded_bytes()).unwrap();
        let path = KeyPath::of(&socket).unwrap();
        assert_eq!(path.as_c_str().to_bytes(), folder.path().join("twin.key").as_os_str().as_encoded_bytes());
        let key = ensure(&path, true).unwrap();
        assert_eq!(ensure(&path, true).unwrap(), key, "for the next daemon too");
        let file = std::fs::File::open(folder.path().join("twin.key")).unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(read(file.as_fd(), own), Some(key));
        assert_eq!(read(file.as_fd(), own + 1), Some(key).filter(|_| own == 0), "of another user");
        assert_ne!(proof(&key, 1), proof(&key, 2));
        assert_ne!(proof(&key, 1), proof(&[0; 32], 1));
        std::fs::remove_file(folder.path().join("twin.key")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("twin.key")).unwrap();
        assert_ne!(ensure(&path, false).unwrap(), [0; 32], "no link is followed");
        assert!(KeyPath::of(c"d.sock").is_some_and(|path| path.as_c_str() == c"twin.key"));
    }
}
