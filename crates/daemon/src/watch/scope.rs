//! The files under the given folders.
//!
//! A mark covers a whole mount or file system; a folder is often only a part of it. A folder that *is* its
//! mount needs no test. Otherwise a file's path decides: the path by which its reader opened it (mount
//! scope), or the path in our own mount, found through its handle (file-system scope, where a container
//! reaches the file through a mount that is not visible here). [`super::files`] caches the answer for each
//! file.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use seekless_base::Fault;
use seekless_kernel::fanotify::{Group, Scope};
use seekless_kernel::handle::FileHandle;
use seekless_kernel::topology::MountTable;

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// `st_dev` of the folder.
    dev: u64,
    /// Whether everything that the mark covers is inside.
    whole: bool,
    /// Whether it has no mark, because its device was found lately not to be a disk with heads.
    left_alone: AtomicBool,
}

/// The folders watched.
#[derive(Debug)]
pub(crate) struct Folders {
    folders: Vec<Folder>,
    scope: Scope,
    /// Mounts below a folder, which the mark does not cover.
    pub(crate) below: Vec<PathBuf>,
}

impl Folders {
    /// # Errors
    /// One of them does not exist, or is not a directory.
    pub(crate) fn find(dirs: &[PathBuf], scope: Scope) -> Result<Folders, Fault> {
        let table = MountTable::read()
            .map_err(|e| Fault::missing(format!("cannot read /proc/self/mountinfo: {e}; mount /proc")))?;
        let mut folders: Vec<Folder> = Vec::new();
        let mut below = Vec::new();
        for dir in dirs {
            let wrong = |e: &dyn std::fmt::Display| {
                Fault::missing(format!("cannot watch {}: {e}; name an existing folder", dir.display()))
            };
            let path = fs::canonicalize(dir).map_err(|e| wrong(&e))?;
            let about = fs::metadata(&path).map_err(|e| wrong(&e))?;
            if !about.is_dir() {
                return Err(wrong(&"it is not a folder"));
            }
            let whole = table
                .by_path(&path)
                .is_some_and(|m| m.target == path && (scope == Scope::Mount || m.root == Path::new("/")));
            below.extend(
                table.iter().map(|m| &m.target).filter(|t| t.starts_with(&path) && **t != path).cloned(),
            );
            folders.push(Folder { path, dev: about.dev(), whole, left_alone: AtomicBool::new(false) });
        }
        below.retain(|b| !folders.iter().any(|f| f.path == *b));
        below.sort();
        below.dedup();
        Ok(Folders { folders, scope, below })
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|f| f.path.as_path())
    }

    /// Removes the marks from the folders of a device that is not a disk with heads: each read of another
    /// file there would be announced unnecessarily.
    pub(crate) fn leave_alone(&self, dev: u64, group: &Group) {
        for folder in self.folders.iter().filter(|f| f.dev == dev) {
            if !folder.left_alone.swap(true, Ordering::AcqRel) {
                let _ = group.unwatch(&folder.path, self.scope);
            }
        }
    }

    /// Marks the folders again that had lost their mark, if they are still on the same device.
    pub(crate) fn watch_again(&self, group: &Group) {
        for folder in &self.folders {
            let same = || fs::metadata(&folder.path).is_ok_and(|about| about.dev() == folder.dev);
            if folder.left_alone.load(Ordering::Acquire)
                && same()
                && group.watch(&folder.path, self.scope).is_ok()
            {
                folder.left_alone.store(false, Ordering::Release);
            }
        }
    }

    /// Switches off events for the folders of a file system until [`Folders::resume`]. Returns whether that
    /// was possible.
    pub(crate) fn pause(&self, dev: u64, group: &Group) -> bool {
        let mut folders = self.folders.iter().filter(|f| f.dev == dev);
        let all = folders.all(|folder| group.pause(&folder.path, self.scope).is_ok());
        if !all {
            // One of the folders is gone, and nothing would end the pause of the others.
            self.resume(dev, group);
        }
        all
    }

    /// Switches the events on again.
    pub(crate) fn resume(&self, dev: u64, group: &Group) {
        for folder in self.folders.iter().filter(|f| f.dev == dev) {
            // Fails if the folder is gone.
            let _ = group.resume(&folder.path, self.scope);
        }
    }

    /// `st_dev` of each folder.
    pub(crate) fn devs(&self) -> impl Iterator<Item = u64> {
        self.folders.iter().map(|f| f.dev)
    }

    /// Whether the file, on the file system with this `st_dev`, is inside. `false` if that is not known.
    pub(crate) fn contain(&self, file: BorrowedFd<'_>, dev: u64) -> bool {
        if self.folders.iter().any(|f| f.whole && f.dev == dev) {
            return true;
        }
        match self.scope {
            Scope::Mount => {
                path_of(file).is_some_and(|path| self.folders.iter().any(|f| path.starts_with(&f.path)))
            }
            Scope::FileSystem => {
                let Ok(handle) = FileHandle::of(file) else { return false };
                self.folders.iter().filter(|f| f.dev == dev).any(|folder| {
                    let ours = folder.open_by(&handle, libc_o_path());
                    ours.and_then(|fd| path_of(fd.as_fd())).is_some_and(|path| path.starts_with(&folder.path))
                })
            }
        }
    }

    /// Opens a file for reading by its handle, through whichever folder is on its file system.
    pub(crate) fn open(&self, handle: &FileHandle, dev: u64) -> Option<OwnedFd> {
        self.folders.iter().find(|f| f.dev == dev)?.open_by(handle, 0)
    }
}

impl Folder {
    /// The folder is open for this moment only, so that its mount can be unmounted while it is watched.
    fn open_by(&self, handle: &FileHandle, flags: i32) -> Option<OwnedFd> {
        let folder = File::open(&self.path).ok()?;
        handle.open(folder.as_fd(), flags).ok()
    }
}

/// `O_PATH`: names the file without opening it.
fn libc_o_path() -> i32 {
    rustix::fs::OFlags::PATH.bits() as i32
}

/// The path by which a descriptor was opened. `None` for a removed file.
pub(crate) fn path_of(fd: BorrowedFd<'_>) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}

/// The type of a folder's file system, for messages.
pub(crate) fn fs_type(dir: &Path) -> Option<String> {
    MountTable::of_system().by_path(dir).map(|m| m.fs_type.clone())
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;

    #[test]
    fn a_file_is_told_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        for d in [&inside, &outside] {
            fs::create_dir(d).unwrap();
            fs::write(d.join("f"), "x").unwrap();
        }
        let folders = Folders::find(std::slice::from_ref(&inside), Scope::Mount).unwrap();
        let told = |d: &Path| {
            let file = File::open(d.join("f")).unwrap();
            folders.contain(file.as_fd(), file.metadata().unwrap().dev())
        };
        assert!(told(&inside));
        assert!(!told(&outside));
        // A neighbour with the same prefix is not part of it.
        fs::rename(&outside, dir.path().join("in2")).unwrap();
        assert!(!told(&dir.path().join("in2")));
    }

    /// A folder that is a mount of its own.
    struct Mount {
        dir: tempfile::TempDir,
        group: Group,
    }

    impl Mount {
        /// A watched mount with these files. `None`, with a message, if it is not possible here.
        fn new(files: &[&str]) -> Option<Mount> {
            let beside = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
            let dir = tempfile::tempdir_in(beside).unwrap();
            for file in files.iter().map(|file| dir.path().join(file)) {
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, "x").unwrap();
            }
            if rustix::mount::mount_bind(dir.path(), dir.path()).is_err() {
                seekless_testing::skip::skipped("a bind mount needs root");
                return None;
            }
            let group = Group::new().and_then(|g| g.watch(dir.path(), Scope::Mount).map(|()| g));
            group
                .inspect_err(|why| {
                    unmount(dir.path());
                    seekless_testing::skip::skipped(format!("no pre-content events here ({why:?})"));
                })
                .ok()
                .map(|group| Mount { dir, group })
        }

        /// Whether a read of this file succeeds, and the number of events it raises, which are answered.
        fn read(&self, file: &str) -> (bool, usize) {
            let (tell, told) = std::sync::mpsc::channel();
            let file = self.dir.path().join(file);
            std::thread::spawn(move || tell.send(fs::read(file).unwrap()));
            let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
            let (mut events, mut count) = (Vec::new(), 0);
            loop {
                self.group.read(&mut events, 1).unwrap();
                count += events.drain(..).count();
                match told.try_recv() {
                    Ok(content) => return (content == b"x", count),
                    Err(_) if std::time::Instant::now() > until => return (false, count),
                    Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
                }
            }
        }
    }

    impl Drop for Mount {
        fn drop(&mut self) {
            unmount(self.dir.path());
        }
    }

    fn unmount(path: &Path) {
        let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
    }

    #[test]
    fn a_folder_that_is_left_alone_raises_no_events_until_it_is_watched_again() {
        let Some(mount) = Mount::new(&["f"]) else { return };
        let folders = Folders::find(&[mount.dir.path().into()], Scope::Mount).unwrap();
        folders.leave_alone(folders.devs().next().unwrap(), &mount.group);
        assert_eq!(mount.read("f"), (true, 0), "nobody waits for an answer");
        folders.watch_again(&mount.group);
        let (read, events) = mount.read("f");
        assert!(read && events > 0, "{events} events");
    }

    #[test]
    fn a_pause_that_cannot_begin_for_all_folders_begins_for_none() {
        let Some(mount) = Mount::new(&["a/f", "b/f"]) else { return };
        let [a, b] = ["a", "b"].map(|name| mount.dir.path().join(name));
        let folders = Folders::find(&[a, b.clone()], Scope::Mount).unwrap();
        let dev = folders.devs().next().unwrap();
        assert!(folders.pause(dev, &mount.group));
        assert_eq!(mount.read("a/f"), (true, 0), "a pause");
        folders.resume(dev, &mount.group);
        fs::remove_dir_all(b).unwrap();
        assert!(!folders.pause(dev, &mount.group), "a folder is not there any more");
        let (read, events) = mount.read("a/f");
        assert!(read && events > 0, "{events} events: nobody would end that pause");
    }

    #[test]
    fn a_folder_that_is_none_is_one_clear_line() {
        for wrong in ["/nowhere/at all", "/proc/self/stat"] {
            let fault = Folders::find(&[wrong.into()], Scope::Mount).unwrap_err();
            assert_eq!(fault.exit, Exit::Missing);
            assert!(fault.message.contains(wrong), "{fault}");
        }
    }
}
