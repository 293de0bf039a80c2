//! The files below a folder. No symlink is followed and no path leads out of it.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, makedev, open, openat,
    openat2, statx,
};
use rustix::io::Errno;

/// Folders open at a time, each inside the one before; each is two descriptors of the 1024 that a process has
/// by default.
const DEPTH_MAX: usize = 128;

/// Longest path, bytes; the kernel opens none longer.
const PATH_BYTES_MAX: usize = 4095;

/// A regular file that was found.
pub(crate) struct Found {
    /// Its path.
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    /// Its file system and its owner.
    dev: u64,
    uid: u32,
}

/// Files, and what could not be read and why.
pub(crate) enum Step {
    File(Found),
    LeftOut(PathBuf, String),
}

/// A walk through a folder.
pub(crate) struct Walk {
    /// Folders being read, outermost first.
    folders: Vec<(PathBuf, OwnedFd, Dir)>,
}

impl Walk {
    /// Through this folder.
    ///
    /// # Errors
    /// It cannot be opened, or is none.
    pub(crate) fn of(folder: &Path) -> Result<Walk, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, folder, flags, Mode::empty())?;
        let entries = Dir::read_from(&fd)?;
        Ok(Walk { folders: vec![(folder.to_path_buf(), fd, entries)] })
    }

    /// The file that an address in a manifest names: one below the manifest's folder, on its file system, of
    /// its owner. `manifest` is the file that was found last.
    pub(crate) fn beside(&self, manifest: &Found, address: &str) -> Option<(PathBuf, u64)> {
        let (folder, fd, _) = self.folders.last()?;
        let relative = below(address)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(fd, &relative, flags, Mode::empty(), resolve).ok()?;
        let what = StatxFlags::TYPE | StatxFlags::UID | StatxFlags::SIZE;
        let about = statx(&file, c"", AtFlags::EMPTY_PATH, what).ok()?;
        let regular = FileType::from_raw_mode(about.stx_mode.into()) == FileType::RegularFile;
        let dev = makedev(about.stx_dev_major, about.stx_dev_minor);
        let theirs = regular && (dev, about.stx_uid) == (manifest.dev, manifest.uid);
        theirs.then(|| (folder.join(relative), about.stx_size))
    }

    /// What stands behind a name in the innermost folder.
    fn step(&mut self, name: &CStr) -> Option<Step> {
        let depth = self.folders.len();
        let (folder, fd, _) = self.folders.last()?;
        let path = folder.join(OsStr::from_bytes(name.to_bytes()));
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Some(Step::LeftOut(path, format!("its path has more than {PATH_BYTES_MAX} bytes")));
        }
        match regular_or_folder(fd, name) {
            Ok(Opened::Folder(..)) if depth >= DEPTH_MAX => {
                Some(Step::LeftOut(path, format!("folders are more than {DEPTH_MAX} deep here")))
            }
            Ok(Opened::Folder(fd, entries)) => {
                self.folders.push((path, fd, entries));
                None
            }
            Ok(Opened::File { file, dev, uid }) => Some(Step::File(Found { path, file, dev, uid })),
            Ok(Opened::Other) => None,
            Err(error) => Some(Step::LeftOut(path, std::io::Error::from(error).to_string())),
        }
    }
}

impl Iterator for Walk {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            let (folder, _, entries) = self.folders.last_mut()?;
            let step = match entries.next() {
                None => {
                    self.folders.pop();
                    None
                }
                Some(Err(error)) => {
                    let step = Step::LeftOut(folder.clone(), std::io::Error::from(error).to_string());
                    self.folders.pop();
                    Some(step)
                }
                Some(Ok(entry)) if matches!(entry.file_name().to_bytes(), b"." | b"..") => None,
                Some(Ok(entry)) => self.step(entry.file_name()),
            };
            if step.is_some() {
                return step;
            }
        }
    }
}

enum Opened {
    Folder(OwnedFd, Dir),
    File { file: File, dev: u64, uid: u32 },
    Other,
}

/// Opens a name for reading if it is a folder or a regular file. What it is, is seen before it is opened: to
/// open a device or a FIFO has consequences.
fn regular_or_folder(folder: &OwnedFd, name: &CStr) -> Result<Opened, Errno> {
    let place = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let about = fstat(&place)?;
    let again = |more| {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
        open(format!("/proc/self/fd/{}", place.as_raw_fd()), flags, Mode::empty())
    };
    Ok(match FileType::from_raw_mode(about.st_mode) {
        FileType::Directory => {
            let fd = again(OFlags::DIRECTORY)?;
            let entries = Dir::read_from(&fd)?;
            Opened::Folder(fd, entries)
        }
        FileType::RegularFile => {
            Opened::File { file: File::from(again(OFlags::empty())?), dev: about.st_dev, uid: about.st_uid }
        }
        _ => Opened::Other,
    })
}

/// A relative path that stays below the manifest's folder, without its query; none for anything else.
fn below(address: &str) -> Option<PathBuf> {
    let path = address.split(['?', '#']).next()?;
    let plain = |c: &Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
    let path = Path::new(path);
    let inside =
        !path.as_os_str().is_empty() && !address.contains("://") && path.components().all(|c| plain(&c));
    inside.then(|| path.components().filter(|c| *c != Component::CurDir).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stays_below_its_folder() {
        for (address, path) in [
            ("a.ts?token=1", Some("a.ts")),
            ("./b/c.ts#x", Some("b/c.ts")),
            ("../secret.ts", None),
            ("b/../../secret.ts", None),
            ("/etc/passwd", None),
            ("http://other/a.ts", None),
            ("", None),
        ] {
            assert_eq!(below(address), path.map(PathBuf::from), "{address}");
        }
    }
}
