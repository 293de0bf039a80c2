//! A folder that is listed, and its files opened.
//!
//! Everything here is done for a program that has opened none of these files. So a path counts only if it
//! leads to the file that the program has read. An entry counts only if it is the regular file that was
//! listed, on the same file system, with the owner, group and permissions of that file: users who can read
//! one can read both. Symlinks are not followed, and only regular files are opened, because opening a device
//! or a FIFO has side effects.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags, openat, statx};
use seekless_kernel::prefetch::Source;
use seekless_policy::FileId;
use seekless_policy::successors::{ENTRIES_MAX, Entry};

use crate::addresses::Edition;

/// The owner and permissions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permissions {
    uid: u32,
    gid: u32,
    mode: u16,
}

impl Permissions {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Option<Permissions> {
        look(fd, "", AtFlags::EMPTY_PATH).map(|stat| Permissions::from(&stat))
    }

    fn from(stat: &Statx) -> Permissions {
        Permissions { uid: stat.stx_uid, gid: stat.stx_gid, mode: stat.stx_mode & 0o7777 }
    }
}

fn look(at: impl AsFd, path: impl rustix::path::Arg, flags: AtFlags) -> Option<Statx> {
    statx(at, path, flags | AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS).ok()
}

fn id(stat: &Statx) -> FileId {
    let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    FileId { dev, ino: stat.stx_ino }
}

fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// The folder of an open file, from its path: the path, the file's name, and the file that is at that path.
pub(crate) fn folder_of(fd: BorrowedFd<'_>) -> Option<(PathBuf, OsString, FileId)> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    let (parent, name) = (path.parent()?, path.file_name()?);
    let stat = look(CWD, parent, AtFlags::empty())?;
    (path.is_absolute() && kind(&stat) == FileType::Directory)
        .then(|| (parent.to_path_buf(), name.to_os_string(), id(&stat)))
}

fn open_folder(path: &Path, folder: FileId) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let dir = openat(CWD, path, flags, Mode::empty()).ok()?;
    (id(&look(&dir, "", AtFlags::EMPTY_PATH)?) == folder).then_some(dir)
}

/// A folder that was listed.
pub(crate) struct Folder {
    path: PathBuf,
    names: Vec<CString>,
    permissions: Permissions,
}

impl Folder {
    /// Lists the entries that may be files; `None` if this is no longer the folder of that file, or has too
    /// many entries.
    pub(crate) fn list(
        path: PathBuf,
        folder: FileId,
        name: &OsStr,
        file: FileId,
        permissions: Permissions,
    ) -> Option<(Folder, Vec<Entry>)> {
        let dir = open_folder(&path, folder)?;
        if id(&look(&dir, name, AtFlags::empty())?) != file {
            return None;
        }
        let (mut names, mut inos) = (Vec::new(), Vec::new());
        for entry in Dir::read_from(&dir).ok()? {
            let entry = entry.ok()?;
            if matches!(entry.file_type(), FileType::RegularFile | FileType::Unknown) {
                if names.len() == ENTRIES_MAX {
                    return None;
                }
                names.push(entry.file_name().to_owned());
                inos.push(entry.ino());
            }
        }
        let mut by_name: Vec<usize> = (0..names.len()).collect();
        by_name.sort_unstable_by_key(|&i| &names[i]);
        let mut entries: Vec<Entry> = inos.into_iter().map(|ino| Entry { ino, by_name: 0 }).collect();
        by_name.into_iter().enumerate().for_each(|(at, i)| entries[i].by_name = at as u32);
        Some((Folder { path, names, permissions }, entries))
    }

    /// Opens the folder, if it is still the same.
    pub(crate) fn open(&self, folder: FileId) -> Option<OwnedFd> {
        open_folder(&self.path, folder)
    }

    /// Opens the file of an entry, if it is unchanged and has the permissions of the file that was read.
    pub(crate) fn open_file(&self, dir: &OwnedFd, entry: usize, file: FileId) -> Option<(Source, Edition)> {
        let name = self.names.get(entry)?;
        let path =
            openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let stat = look(&path, "", AtFlags::EMPTY_PATH)?;
        let like = kind(&stat) == FileType::RegularFile && Permissions::from(&stat) == self.permissions;
        if !like || id(&stat) != file || stat.stx_size == 0 {
            return None;
        }
        let source = Source::reopen(path.as_fd()).ok()??;
        let changed = (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
        Some((source, Edition { size: stat.stx_size, changed }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn listed(dir: &Path, shown: &str) -> Option<(Folder, Vec<Entry>, FileId)> {
        let file = fs::File::open(dir.join(shown)).unwrap();
        let (path, name, folder) = folder_of(file.as_fd())?;
        let meta = file.metadata().unwrap();
        let of = FileId { dev: meta.dev(), ino: meta.ino() };
        let (listed, entries) = Folder::list(path, folder, &name, of, Permissions::of(file.as_fd())?)?;
        Some((listed, entries, folder))
    }

    #[test]
    fn only_regular_files_like_the_one_that_was_read_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a", "b", "private", "empty", "gone", "replaced"] {
            fs::write(at(name), if name == "empty" { "" } else { "bytes" }).unwrap();
        }
        fs::set_permissions(at("private"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("a", at("link")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (folder, entries, id) = listed(dir.path(), "a").unwrap();
        assert_eq!(entries.len(), 6, "no link, folder or FIFO");
        fs::remove_file(at("gone")).unwrap();
        fs::write(at("new"), "bytes").unwrap();
        fs::rename(at("new"), at("replaced")).unwrap();
        let opened = folder.open(id).unwrap();
        let mut usable = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            let file = FileId { dev: id.dev, ino: entry.ino };
            if let Some((_, edition)) = folder.open_file(&opened, i, file) {
                assert_eq!(edition.size, 5);
                usable.push(folder.names[i].to_str().unwrap());
            }
        }
        usable.sort_unstable();
        assert_eq!(usable, ["a", "b"]);
    }

    #[test]
    fn names_give_an_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["c", "a", "b"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        let (folder, entries, _) = listed(dir.path(), "b").unwrap();
        for (name, entry) in folder.names.iter().zip(&entries) {
            assert_eq!(entry.by_name, u32::from(name.as_bytes()[0] - b'a'));
        }
    }

    #[test]
    fn a_folder_in_another_place_is_not_listed() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::create_dir(&old).unwrap();
        fs::write(old.join("a"), "x").unwrap();
        let (folder, _, id) = listed(&old, "a").unwrap();
        fs::rename(&old, &new).unwrap();
        assert!(folder.open(id).is_none());
        fs::create_dir(&old).unwrap();
        assert!(folder.open(id).is_none(), "another folder of that name");
        // A path that leads to another file of the same name, as in another mount namespace.
        let file = fs::File::open(new.join("a")).unwrap();
        fs::write(old.join("a"), "y").unwrap();
        let meta = fs::metadata(&old).unwrap();
        let other = FileId { dev: meta.dev(), ino: meta.ino() };
        let of = FileId { dev: meta.dev(), ino: file.metadata().unwrap().ino() };
        let permissions = Permissions::of(file.as_fd()).unwrap();
        assert!(Folder::list(old, other, OsStr::new("a"), of, permissions).is_none());
    }
}
