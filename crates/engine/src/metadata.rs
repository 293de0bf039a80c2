//! Keeps the metadata of trees in memory: their folders and the inodes of their files.
//!
//! A small file that nobody has read for a while costs a disk more than its data: the folder's inode, the
//! folder, the file's inode, each a seek. They are small, but a page cache that streams of data pass through
//! evicts them all the same. The kernel keeps what is used. So they are used: every folder is listed and
//! every inode looked at, round after round.
//!
//! - A round goes first through all folders, then through all files; what is found in a folder is taken in
//!   the order of the inodes, which is about that of the disk. Where the bound is reached it is files that
//!   are left out: a folder serves many.
//! - A few threads look, so that a disk with many readers in line gives them a part of its time too. They
//!   sleep so much that they take no more than [`SHARE`] of a disk that stands idle.
//! - The pause after a round is as long as nothing is lost in it: it is halved when the round had to read,
//!   and doubled when it had not. When most of it was lost memory is too short for so many: half as many are
//!   kept.
//!
//! No link is followed and no other file system entered. What cannot be listed is left alone.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rayon::{ScopeFifo, ThreadPool, ThreadPoolBuilder};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, open, statat};
use serde::{Deserialize, Serialize};

use crate::lock;
use crate::machine::page_cache;
use crate::settings::Settings;

/// Most of a disk's time, and of a processor's, that the threads take together.
const SHARE: f64 = 0.25;

/// Threads; so many looks wait for a disk at once.
const THREADS: usize = 4;

/// A look costs a disk so much time at most: two seeks. If it takes longer, it stood in line.
const COST_MAX: Duration = Duration::from_millis(20);

/// Part of the memory that folders and inodes may take.
const MEMORY_SHARE: u64 = 8;

/// Memory of a file or folder: ext4's inode in memory (1.1 KiB), its name, its part of a block of inodes.
const ENTRY_BYTES: u64 = 1536;

/// Most entries where the memory is not known.
const ENTRIES_DEFAULT: u64 = 1 << 18;

/// Most folders that wait in a round; others are left out.
const WAITING_MAX: u64 = 1 << 20;

/// Files of a folder that are looked at together.
const TURN: usize = 64;

/// Shortest and longest pause after a round.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(320));

/// How often a sleeping thread looks whether it is to end. Less is not slept: it is added up.
const LOOK: Duration = Duration::from_millis(100);
const SLEEP_MIN: Duration = Duration::from_millis(5);

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetadataReport {
    /// The trees.
    pub trees: Vec<String>,
    /// Folders looked at in the last round.
    pub folders: u64,
    /// Files looked at in the last round.
    pub files: u64,
    /// Files and folders left out of it for want of memory.
    pub left: u64,
    /// Rounds that have ended.
    pub rounds: u64,
    /// Most bytes that a round read from disks.
    pub bytes_most: u64,
    /// Bytes that the last round read from disks.
    pub bytes_last: u64,
    /// Seconds between the last round and the next.
    pub pause_s: f64,
}

/// The threads; they end soon after this is dropped.
pub(crate) struct Keeper {
    report: Arc<Mutex<MetadataReport>>,
    stop: Arc<AtomicBool>,
}

impl Keeper {
    /// Keeps the trees of these settings, if there are any.
    pub(crate) fn of(settings: &Settings) -> Option<Keeper> {
        if settings.metadata.is_empty() {
            return None;
        }
        let keeper = Keeper::start(&settings.metadata);
        if let Err(why) = &keeper {
            tracing::warn!("metadata is not kept: no threads can be had: {why}");
        }
        keeper.ok()
    }

    fn start(trees: &[PathBuf]) -> io::Result<Keeper> {
        let report = MetadataReport {
            trees: trees.iter().map(|tree| tree.display().to_string()).collect(),
            ..MetadataReport::default()
        };
        let keeper = Keeper { report: Arc::new(Mutex::new(report)), stop: Arc::default() };
        let threads = ThreadPoolBuilder::new().num_threads(THREADS).thread_name(|i| format!("metadata-{i}"));
        let threads = threads.build().map_err(io::Error::other)?;
        let (report, stop, trees) = (keeper.report.clone(), keeper.stop.clone(), trees.to_vec());
        let run = move || keep(&threads, &trees, &report, &stop);
        thread::Builder::new().name("metadata".into()).spawn(run)?;
        Ok(keeper)
    }

    pub(crate) fn report(&self) -> MetadataReport {
        lock(&self.report).clone()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Not waited for: a disk that hangs must not keep the program from ending.
        self.stop.store(true, Ordering::Release);
    }
}

fn keep(threads: &ThreadPool, trees: &[PathBuf], report: &Mutex<MetadataReport>, stop: &AtomicBool) {
    let (mut pause, mut kept_max) = (PAUSE.0, u64::MAX);
    while !stop.load(Ordering::Acquire) {
        kept_max = kept_max.min(entries_max());
        let before = bytes_read(threads);
        let round = Round::of(kept_max, stop);
        for files_too in [false, true] {
            trees.iter().for_each(|tree| round.sweep(threads, tree, files_too));
        }
        let bytes = bytes_read(threads).saturating_sub(before);
        {
            let mut report = lock(report);
            if report.rounds > 0 {
                let lost_most = bytes > report.bytes_most / 2;
                (pause, kept_max) = next(pause, kept_max, bytes > 0, lost_most);
            }
            report.rounds += 1;
            report.bytes_most = report.bytes_most.max(bytes);
            (report.folders, report.files, report.left) = round.seen();
            report.bytes_last = bytes;
            report.pause_s = pause.as_secs_f64();
        }
        sleep(pause, stop);
    }
}

/// The pause after a round, and how many are kept in the next.
fn next(pause: Duration, kept_max: u64, lost_some: bool, lost_most: bool) -> (Duration, u64) {
    let next = if lost_some { pause / 2 } else { pause * 2 };
    // A tenth more, in case that memory has become less short.
    let kept_max = if lost_most { kept_max / 2 } else { kept_max.saturating_add(kept_max / 10) };
    (next.clamp(PAUSE.0, PAUSE.1), kept_max)
}

/// Files and folders that there is memory for.
fn entries_max() -> u64 {
    page_cache().map_or(ENTRIES_DEFAULT, |memory| memory.0 / MEMORY_SHARE / ENTRY_BYTES)
}

/// Bytes that these threads have had read from disks; 0 where the kernel keeps no account.
fn bytes_read(threads: &ThreadPool) -> u64 {
    let of_this = |_: rayon::BroadcastContext<'_>| -> Option<u64> {
        let text = fs::read_to_string("/proc/thread-self/io").ok()?;
        text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
    };
    threads.broadcast(of_this).into_iter().flatten().sum()
}

fn sleep(time: Duration, stop: &AtomicBool) {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Acquire) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(LOOK));
    }
}

/// A round under way.
struct Round<'a> {
    stop: &'a AtomicBool,
    /// Folders and files that may be looked at still.
    room: AtomicU64,
    folders: AtomicU64,
    files: AtomicU64,
    /// Left out.
    left: AtomicU64,
    /// Folders found and not listed yet.
    waiting: AtomicU64,
    /// Sleep that is owed, nanoseconds.
    owed: AtomicU64,
}

impl<'a> Round<'a> {
    fn of(room: u64, stop: &'a AtomicBool) -> Round<'a> {
        let zero = AtomicU64::default;
        let room = AtomicU64::new(room);
        Round { stop, room, folders: zero(), files: zero(), left: zero(), waiting: zero(), owed: zero() }
    }

    /// Folders, files, left out.
    fn seen(&self) -> (u64, u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.folders), of(&self.files), of(&self.left))
    }

    /// Goes through all folders of a tree, and through the files of each or not.
    fn sweep(&self, threads: &ThreadPool, tree: &Path, files_too: bool) {
        let Some(dev) = open_folder(tree).and_then(|dir| device(&dir)) else { return };
        threads.scope_fifo(|scope| self.enter(scope, tree.to_path_buf(), dev, files_too));
    }

    /// Looks at a folder or its files, and at the folders in it after those that wait.
    fn enter<'s>(&'s self, scope: &ScopeFifo<'s>, path: PathBuf, dev: u64, files_too: bool) {
        if self.stop.load(Ordering::Acquire) {
            return;
        }
        let began = Instant::now();
        let Some(dir) = open_folder(&path).filter(|dir| device(dir) == Some(dev)) else { return };
        let (folders, files) = list(&dir);
        if !files_too {
            self.count(&self.folders);
        }
        self.rest(began);
        for name in folders {
            if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                self.left.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let path = path.join(OsStr::from_bytes(name.as_bytes()));
            scope.spawn_fifo(move |scope| {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                self.enter(scope, path, dev, files_too);
            });
        }
        if !files_too {
            return;
        }
        for some in files.chunks(TURN) {
            let began = Instant::now();
            for name in some {
                if !self.stop.load(Ordering::Acquire) && self.count(&self.files) {
                    let _ = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
                }
            }
            self.rest(began);
        }
    }

    /// Counts a folder or file; whether there is room for it.
    fn count(&self, of: &AtomicU64) -> bool {
        let relaxed = Ordering::Relaxed;
        let fits = self.room.fetch_update(relaxed, relaxed, |room| room.checked_sub(1)).is_ok();
        let count = if fits { of } else { &self.left };
        count.fetch_add(1, Ordering::Relaxed);
        fits
    }

    /// Sleeps as long as the share asks for after a look that began then.
    fn rest(&self, began: Instant) {
        let took = began.elapsed();
        let owed = took.min(COST_MAX).mul_f64(THREADS as f64 / SHARE).saturating_sub(took).as_nanos() as u64;
        if self.owed.fetch_add(owed, Ordering::Relaxed) + owed >= SLEEP_MIN.as_nanos() as u64 {
            sleep(Duration::from_nanos(self.owed.swap(0, Ordering::Relaxed)), self.stop);
        }
    }
}

fn open_folder(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Without a new time of access, which would have to be written; only the owner and root may.
    open(path, flags | OFlags::NOATIME, Mode::empty()).or_else(|_| open(path, flags, Mode::empty())).ok()
}

fn device(dir: &OwnedFd) -> Option<u64> {
    Some(rustix::fs::fstat(dir).ok()?.st_dev)
}

/// The names of the folders and of everything else in a folder, each in the order of inodes.
fn list(dir: &OwnedFd) -> (Vec<CString>, Vec<CString>) {
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for entry in Dir::read_from(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        match entry.file_type() {
            FileType::Directory if name == c"." || name == c".." => {}
            FileType::Directory => folders.push((entry.ino(), name.to_owned())),
            _ => files.push((entry.ino(), name.to_owned())),
        }
    }
    let names = |mut found: Vec<(u64, CString)>| {
        found.sort_unstable();
        found.into_iter().map(|(_, name)| name).collect()
    };
    (names(folders), names(files))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three folders below a root, four files each, and a link around.
    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for folder in ["a", "a/b", "c"] {
            let folder = tree.path().join(folder);
            fs::create_dir(&folder).unwrap();
            (0..4).for_each(|i| fs::write(folder.join(format!("f{i}")), "x").unwrap());
        }
        std::os::unix::fs::symlink(tree.path(), tree.path().join("c/around")).unwrap();
        tree
    }

    /// Folders, files and left out of a round with so much room.
    fn seen(trees: &[PathBuf], room: u64, stopped: bool) -> (u64, u64, u64) {
        let threads = ThreadPoolBuilder::new().num_threads(THREADS).build().unwrap();
        let stop = AtomicBool::new(stopped);
        let round = Round::of(room, &stop);
        for files_too in [false, true] {
            trees.iter().for_each(|tree| round.sweep(&threads, tree, files_too));
        }
        round.seen()
    }

    #[test]
    fn every_folder_and_file_is_looked_at_once_and_no_link_followed() {
        let tree = tree();
        let trees = [tree.path().to_path_buf(), "/not/there".into()];
        assert_eq!(seen(&trees, 100, false), (4, 13, 0));
        assert_eq!(seen(&trees, 100, true), (0, 0, 0), "it was to end before it began");
    }

    #[test]
    fn another_file_system_is_not_entered() {
        let tree = tree();
        let threads = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let stop = AtomicBool::new(false);
        let round = Round::of(100, &stop);
        threads.scope_fifo(|scope| round.enter(scope, tree.path().to_path_buf(), u64::MAX, false));
        assert_eq!(round.seen(), (0, 0, 0));
    }

    #[test]
    fn folders_come_first_where_memory_is_short() {
        let tree = tree();
        let trees = [tree.path().to_path_buf()];
        assert_eq!(seen(&trees, 4, false), (4, 0, 13));
        assert_eq!(seen(&trees, 3, false), (3, 0, 14));
    }

    #[test]
    fn pause_and_number_follow_what_is_lost() {
        let s = Duration::from_secs;
        assert_eq!(next(s(20), 100, true, false), (s(10), 110), "some was lost");
        assert_eq!(next(s(20), 100, false, false), (s(40), 110), "nothing was lost");
        assert_eq!(next(s(20), 100, true, true), (s(10), 50), "most was lost");
        assert_eq!(next(PAUSE.0, 100, true, false).0, PAUSE.0);
        assert_eq!(next(PAUSE.1, 100, false, false).0, PAUSE.1);
    }

    #[test]
    fn a_keeper_goes_round_and_says_so() {
        let tree = tree();
        let keeper = Keeper::start(&[tree.path().to_path_buf()]).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while keeper.report().rounds == 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let report = keeper.report();
        assert_eq!((report.rounds, report.folders, report.files, report.left), (1, 4, 13, 0));
        assert_eq!(report.trees, [tree.path().display().to_string()]);
    }
}
