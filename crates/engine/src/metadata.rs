//! Keeps the metadata of trees in memory: their folders and the inodes of their files.
//!
//! The first read of a small file after a while costs a disk more than its data: the inode of the folder, the
//! folder, and the inode of the file take a seek each. Metadata is small, but a page cache that streams of
//! data pass through evicts it. The kernel keeps metadata that is used. So these threads use it: they list
//! every folder and stat every inode, in rounds.
//!
//! - A round visits first all folders, then all files. The entries of a folder are visited in the order of
//!   their inodes, which is about the order on the disk. At the bound, files are left out before folders,
//!   because a folder serves many files. If there is no room for a folder, it is not listed, and neither is
//!   anything below it.
//! - Several threads work, so that a disk with a long queue gives them a part of its time too. They sleep
//!   often enough to take at most [`SHARE`] of an idle disk.
//! - The pause between rounds adapts so that nothing is evicted within it: it is halved after a round that
//!   read from the disk, and doubled after one that did not. If most entries were evicted, memory is too
//!   small for their number, and it is halved. That is the case when the round read more than half of the
//!   bytes per entry of a round with nothing in memory, as estimated from the largest round.
//!
//! Symlinks below a tree are not followed, and no other file system is entered. Folders that cannot be listed
//! are skipped.

use std::ffi::{CStr, CString, OsStr};
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
use rustix::fs::{
    AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, StatxFlags, makedev, open, statat, statx,
};
use serde::{Deserialize, Serialize};

use crate::machine::page_cache;
use crate::settings::Settings;
use crate::sleep::Sleep;
use crate::{lock, sleep_unless};

/// Maximum share of a disk's time, and of a processor's, for all threads together.
const SHARE: f64 = 0.25;

/// Concurrent stat threads.
const THREADS: usize = 4;

/// Maximum cost of one stat or listing to the disk: two seeks. If it takes longer, it waited in line.
const COST_MAX: Duration = Duration::from_millis(20);

/// Divisor of the memory: folders and inodes may take this fraction of it.
const MEMORY_SHARE: u64 = 8;

/// Memory of a file or folder: ext4's inode in memory (1.1 KiB), its name, its part of an inode block.
const ENTRY_BYTES: u64 = 1536;

/// Maximum number of entries if the size of the memory is not known.
const ENTRIES_DEFAULT: u64 = 1 << 18;

/// Bytes of an inode on the disk: ext4's. The minimum that a round reads for each inode that is not in
/// memory, for use before a round has shown it.
const INODE_BYTES: f64 = 256.0;

/// Maximum number of folders that wait in a round; others are left out.
const WAITING_MAX: u64 = 1 << 20;

/// Maximum number of names of a folder that are taken, sorted and visited at a time.
const NAMES_MAX: usize = 1 << 16;

/// Minimum and maximum pause between rounds.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(320));

const SLEEP_MIN: Duration = Duration::from_millis(5);

/// The state of the keeper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetadataReport {
    /// The trees.
    pub trees: Vec<String>,
    /// Folders visited in the last round.
    pub folders: u64,
    /// Files visited in the last round.
    pub files: u64,
    /// Files and folders left out of it for lack of memory.
    pub left: u64,
    /// Number of completed rounds.
    pub rounds: u64,
    /// Maximum bytes that a round read from disks.
    pub bytes_most: u64,
    /// Bytes that the last round read from disks.
    pub bytes_last: u64,
    /// Pause until the next round, in seconds.
    pub pause_s: f64,
}

/// Handle of the threads; they end soon after this is dropped.
pub(crate) struct Keeper {
    report: Arc<Mutex<MetadataReport>>,
    stop: Arc<AtomicBool>,
}

impl Keeper {
    /// Starts the threads for the trees of these settings, if there are any. With `sleep`, a tree is left out
    /// of a round unless its disk is awake.
    pub(crate) fn of(settings: &Settings, sleep: Option<Arc<Sleep>>) -> Option<Keeper> {
        if settings.metadata.is_empty() {
            return None;
        }
        let keeper = Keeper::start(&settings.metadata, sleep);
        if let Err(why) = &keeper {
            tracing::warn!("metadata is not kept: cannot start threads: {why}");
        }
        keeper.ok()
    }

    fn start(trees: &[PathBuf], sleep: Option<Arc<Sleep>>) -> io::Result<Keeper> {
        let report = MetadataReport {
            trees: trees.iter().map(|tree| tree.display().to_string()).collect(),
            ..MetadataReport::default()
        };
        let keeper = Keeper { report: Arc::new(Mutex::new(report)), stop: Arc::default() };
        let threads = ThreadPoolBuilder::new().num_threads(THREADS).thread_name(|i| format!("metadata-{i}"));
        let threads = threads.build().map_err(io::Error::other)?;
        let (report, stop, trees) = (keeper.report.clone(), keeper.stop.clone(), trees.to_vec());
        let run = move || keep(&threads, &trees, sleep.as_deref(), &report, &stop);
        thread::Builder::new().name("metadata".into()).spawn(run)?;
        Ok(keeper)
    }

    pub(crate) fn report(&self) -> MetadataReport {
        lock(&self.report).clone()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Not joined: a disk that hangs must not keep the program from ending.
        self.stop.store(true, Ordering::Release);
    }
}

fn keep(
    threads: &ThreadPool,
    trees: &[PathBuf],
    sleep: Option<&Sleep>,
    report: &Mutex<MetadataReport>,
    stop: &AtomicBool,
) {
    let mut pace = Pace::new();
    // Known beforehand, so that no call touches a disk that sleeps.
    let devices: Vec<Option<u64>> = trees.iter().map(|tree| device(tree)).collect();
    while !stop.load(Ordering::Acquire) {
        let awake = |at: usize| sleep.is_none_or(|s| devices[at].is_none_or(|dev| s.is_awake_under(dev)));
        let trees: Vec<&PathBuf> = (0..trees.len()).filter(|&at| awake(at)).map(|at| &trees[at]).collect();
        if trees.is_empty() {
            sleep_unless(stop, PAUSE.0);
            continue;
        }
        pace.kept_max = pace.kept_max.min(entries_max());
        let before = bytes_read(threads);
        let round = Round::of(pace.kept_max, stop);
        for files_too in [false, true] {
            trees.iter().for_each(|tree| round.sweep(threads, tree, files_too));
        }
        let bytes = bytes_read(threads).saturating_sub(before);
        {
            let mut report = lock(report);
            (report.folders, report.files, report.left) = round.seen();
            pace.adapt(report.folders + report.files, bytes);
            report.rounds += 1;
            report.bytes_most = report.bytes_most.max(bytes);
            report.bytes_last = bytes;
            report.pause_s = pace.pause.as_secs_f64();
        }
        sleep_unless(stop, pace.pause);
    }
}

/// The pace of the rounds, and how many entries they visit.
struct Pace {
    pause: Duration,
    /// Maximum number of files and folders in a round.
    kept_max: u64,
    /// The largest round so far: its entries, and the maximum of bytes read per entry in such a round. A
    /// smaller round has more folders among its entries, which cost more. `None` before the first round.
    most: Option<(u64, f64)>,
}

impl Pace {
    fn new() -> Pace {
        Pace { pause: PAUSE.0, kept_max: u64::MAX, most: None }
    }

    /// Adapt after each round: `seen` entries were visited and `bytes` read. The bytes of the first round
    /// were not evicted, so they do not count.
    fn adapt(&mut self, seen: u64, bytes: u64) {
        let each = bytes as f64 / seen.max(1) as f64;
        if let Some((_, each_most)) = self.most {
            let pause = if bytes > 0 { self.pause / 2 } else { self.pause * 2 };
            self.pause = pause.clamp(PAUSE.0, PAUSE.1);
            self.kept_max = match each > each_most / 2.0 {
                true => self.kept_max.min(seen) / 2,
                // Try a tenth more, in case there is more memory now.
                false => self.kept_max.saturating_add(self.kept_max / 10 + 1),
            };
        }
        let (seen_most, each_most) = self.most.unwrap_or((0, INODE_BYTES));
        if seen >= seen_most {
            self.most = Some((seen, each_most.max(each)));
        }
    }
}

/// Number of files and folders that fit into memory.
fn entries_max() -> u64 {
    page_cache().map_or(ENTRIES_DEFAULT, |memory| memory.0 / MEMORY_SHARE / ENTRY_BYTES)
}

/// Bytes that these threads have read from disks; 0 if the kernel does not account for it.
fn bytes_read(threads: &ThreadPool) -> u64 {
    let of_this = |_: rayon::BroadcastContext<'_>| -> Option<u64> {
        let text = fs::read_to_string("/proc/thread-self/io").ok()?;
        text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
    };
    threads.broadcast(of_this).into_iter().flatten().sum()
}

/// The current round.
struct Round<'a> {
    stop: &'a AtomicBool,
    /// Number of folders and files that may still be visited.
    room: AtomicU64,
    folders: AtomicU64,
    files: AtomicU64,
    /// Number left out.
    left: AtomicU64,
    /// Number of folders listed for their files.
    listed: AtomicU64,
    /// Number of folders found and not listed yet.
    waiting: AtomicU64,
    /// Sleep still owed, in nanoseconds.
    owed: AtomicU64,
}

impl<'a> Round<'a> {
    fn of(room: u64, stop: &'a AtomicBool) -> Round<'a> {
        let room = AtomicU64::new(room);
        let [folders, files, left, listed, waiting, owed] = std::array::from_fn(|_| AtomicU64::default());
        Round { stop, room, folders, files, left, listed, waiting, owed }
    }

    /// Number of folders, of files, and left out.
    fn seen(&self) -> (u64, u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.folders), of(&self.files), of(&self.left))
    }

    /// Visits all folders of a tree, and the files in them if `files_too`.
    fn sweep(&self, threads: &ThreadPool, tree: &Path, files_too: bool) {
        // Symlinks are followed to a tree, but not within it.
        let Ok(tree) = fs::canonicalize(tree) else { return };
        let Some(dev) = device(&tree) else { return };
        threads.scope_fifo(|scope| self.enter(scope, tree, dev, files_too));
    }

    /// Visits a folder or its files, and queues the folders in it behind those that wait.
    fn enter<'s>(&'s self, scope: &ScopeFifo<'s>, path: PathBuf, dev: u64, files_too: bool) {
        if self.stop.load(Ordering::Acquire) || self.is_full(files_too) {
            return;
        }
        let mut began = Instant::now();
        if device(&path) != Some(dev) {
            return;
        }
        let Some(dir) = open_folder(&path) else { return };
        // Visit the files of as many folders as were listed before.
        let fits = match files_too {
            true => self.listed.fetch_add(1, Ordering::Relaxed) < self.folders.load(Ordering::Relaxed),
            false => self.count(&self.folders),
        };
        if !fits {
            return;
        }
        let mut entries = Dir::read_from(&dir).into_iter().flatten().flatten().peekable();
        while entries.peek().is_some() && !self.stop.load(Ordering::Acquire) {
            let (folders, files) = self.sorted(&dir, entries.by_ref().take(NAMES_MAX), files_too);
            self.rest(began);
            for name in folders {
                self.enter_later(scope, path.join(OsStr::from_bytes(name.as_bytes())), dev, files_too);
            }
            for name in files.iter().filter(|_| self.count(&self.files)) {
                if self.stop.load(Ordering::Acquire) {
                    return;
                }
                self.look(&dir, name);
            }
            began = Instant::now();
        }
    }

    /// The names of the folders among these entries and, if `files_too`, of everything else, each in the
    /// order of inodes.
    fn sorted(
        &self,
        dir: &OwnedFd,
        entries: impl Iterator<Item = DirEntry>,
        files_too: bool,
    ) -> (Vec<CString>, Vec<CString>) {
        let (mut folders, mut files) = (Vec::new(), Vec::new());
        for entry in entries.take_while(|_| !self.stop.load(Ordering::Acquire)) {
            let name = entry.file_name();
            let kind = match entry.file_type() {
                // Some file systems do not report the type (XFS made without `ftype`).
                FileType::Unknown => self.look(dir, name),
                kind => kind,
            };
            match kind {
                FileType::Directory if name == c"." || name == c".." => {}
                FileType::Directory => folders.push((entry.ino(), name.to_owned())),
                _ if files_too => files.push((entry.ino(), name.to_owned())),
                _ => {}
            }
        }
        let names = |mut found: Vec<(u64, CString)>| {
            found.sort_unstable();
            found.into_iter().map(|(_, name)| name).collect()
        };
        (names(folders), names(files))
    }

    /// Stats an entry of a folder.
    fn look(&self, dir: &OwnedFd, name: &CStr) -> FileType {
        let began = Instant::now();
        let about = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        self.rest(began);
        about.map_or(FileType::Unknown, |about| FileType::from_raw_mode(about.st_mode))
    }

    /// Queues a visit behind the folders that wait.
    fn enter_later<'s>(&'s self, scope: &ScopeFifo<'s>, path: PathBuf, dev: u64, files_too: bool) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.left.fetch_add(u64::from(!files_too), Ordering::Relaxed);
            return;
        }
        scope.spawn_fifo(move |scope| {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.enter(scope, path, dev, files_too);
        });
    }

    /// Whether a folder need not even be opened, because there is no room.
    fn is_full(&self, files_too: bool) -> bool {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        match files_too {
            true => of(&self.listed) >= of(&self.folders),
            false => of(&self.room) == 0 && !self.count(&self.folders),
        }
    }

    /// Counts a folder or file. Returns whether there is room for it.
    fn count(&self, of: &AtomicU64) -> bool {
        let relaxed = Ordering::Relaxed;
        let fits = self.room.fetch_update(relaxed, relaxed, |room| room.checked_sub(1)).is_ok();
        let count = if fits { of } else { &self.left };
        count.fetch_add(1, Ordering::Relaxed);
        fits
    }

    /// Sleeps for the time owed after work that started at `began`.
    fn rest(&self, began: Instant) {
        let took = began.elapsed();
        let owed = took.min(COST_MAX).mul_f64(THREADS as f64 / SHARE).saturating_sub(took).as_nanos() as u64;
        if self.owed.fetch_add(owed, Ordering::Relaxed) + owed >= SLEEP_MIN.as_nanos() as u64 {
            sleep_unless(self.stop, Duration::from_nanos(self.owed.swap(0, Ordering::Relaxed)));
        }
    }
}

fn open_folder(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Without updating the access time, which would cause a write. Only the owner and root may do so.
    open(path, flags | OFlags::NOATIME, Mode::empty()).or_else(|_| open(path, flags, Mode::empty())).ok()
}

/// The device of the file system that a folder lies on. A file system mounted there is not asked, because it
/// may hang, and no automount is triggered.
fn device(path: &Path) -> Option<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let about = statx(CWD, path, flags, StatxFlags::empty()).ok()?;
    Some(makedev(about.stx_dev_major, about.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A mount that is ended on drop.
    struct Mounted(PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        }
    }

    /// Three folders below a root, four files each, and a symlink that forms a cycle.
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

    /// Folders, files and entries left out, in a round with this much room.
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
    fn a_tree_may_be_named_by_a_link() {
        let (tree, dir) = (tree(), tempfile::tempdir().unwrap());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(tree.path(), &link).unwrap();
        assert_eq!(seen(&[link], 100, false), (4, 13, 0));
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

    /// Like a mount whose server does not answer.
    #[test]
    fn a_file_system_below_that_hangs_is_not_waited_for() {
        use std::os::fd::AsRawFd;

        let tree = tree();
        let at = tree.path().join("c");
        let fuse = match fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            Ok(fuse) => fuse,
            Err(why) => return seekless_testing::skip::skipped(format!("/dev/fuse: {why}")),
        };
        // No process reads its requests.
        let with = format!("fd={},rootmode=40000,user_id=0,group_id=0", fuse.as_raw_fd());
        let with = CString::new(with).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        if let Err(why) = rustix::mount::mount("hangs", &at, "fuse", flags, &*with) {
            return seekless_testing::skip::skipped(format!("a mount needs root: {why}"));
        }
        let _mounted = Mounted(at);
        let (tell, told) = std::sync::mpsc::channel();
        let trees = [tree.path().to_path_buf()];
        let looking = thread::spawn(move || tell.send(seen(&trees, 100, false)));
        let seen = told.recv_timeout(Duration::from_secs(20));
        // Without its server, a call that waits for it fails.
        drop(fuse);
        looking.join().unwrap().unwrap();
        assert_eq!(seen, Ok((3, 8, 0)));
    }

    #[test]
    fn folders_are_found_where_the_kernel_does_not_tell_what_a_name_is() {
        let dir = tempfile::tempdir().unwrap();
        let (image, at) = (dir.path().join("image"), dir.path().join("at"));
        fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
        fs::create_dir(&at).unwrap();
        let done = |command: &mut Command| command.output().is_ok_and(|done| done.status.success());
        if !done(Command::new("mkfs.ext4").args(["-q", "-O", "^filetype"]).arg(&image))
            || !done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at))
        {
            return seekless_testing::skip::skipped("no file system can be made and mounted here");
        }
        let _mounted = Mounted(at.clone());
        fs::remove_dir(at.join("lost+found")).unwrap();
        fs::create_dir_all(at.join("a/b")).unwrap();
        fs::write(at.join("a/b/f"), "x").unwrap();
        assert_eq!(seen(&[at], 100, false), (3, 1, 0));
    }

    #[test]
    fn folders_come_first_where_memory_is_short() {
        let tree = tree();
        let trees = [tree.path().to_path_buf()];
        assert_eq!(seen(&trees, 4, false), (4, 0, 13));
        // Its root is listed for the folders in it, and those are not listed.
        assert_eq!(seen(&trees, 1, false), (1, 0, 2));
    }

    #[test]
    fn a_folder_of_many_is_taken_in_parts() {
        let tree = tempfile::tempdir().unwrap();
        let many = NAMES_MAX + 10;
        let name = |i: usize| tree.path().join(i.to_string());
        (0..many).for_each(|i| drop(fs::File::create(name(i)).unwrap()));
        assert_eq!(seen(&[tree.path().into()], u64::MAX, false), (1, many as u64, 0));
    }

    /// Runs `count` rounds over a tree of `tree` entries, a sixth of them folders, with memory for `room`.
    /// All entries are evicted or none, because the kernel evicts those used longest ago. Returns the entries
    /// visited in each round.
    fn rounds(pace: &mut Pace, count: usize, tree: u64, room: u64, is_warm: bool) -> Vec<u64> {
        let mut is_cold = !is_warm;
        let round = |_| {
            let seen = tree.min(pace.kept_max);
            let folders = seen.min(tree / 6);
            let cold = folders * 8192 + (seen - folders) * 400;
            let bytes = if is_cold || seen > room { cold } else { 0 };
            is_cold = false;
            pace.adapt(seen, bytes);
            seen
        };
        (0..count).map(round).collect()
    }

    #[test]
    fn the_pause_is_as_long_as_nothing_is_lost() {
        let mut pace = Pace::new();
        rounds(&mut pace, 10, 1000, 2000, false);
        assert_eq!(pace.pause, PAUSE.1);
        pace.adapt(1000, 4096);
        assert_eq!(pace.pause, PAUSE.1 / 2);
        (0..10).for_each(|_| pace.adapt(1000, 4096));
        assert_eq!(pace.pause, PAUSE.0);
        assert_eq!(rounds(&mut pace, 1, 1000, 2000, true), [1000], "a little was lost");
    }

    #[test]
    fn where_memory_is_short_most_rounds_lose_nothing() {
        let mut pace = Pace::new();
        pace.kept_max = 1_000_000;
        let seen = rounds(&mut pace, 100, 800_000, 150_000, false);
        let lost = seen.iter().filter(|&&seen| seen > 150_000).count();
        assert!(lost < 25, "{lost} of 100 rounds read everything: {seen:?}");
        assert!(seen[50..].iter().sum::<u64>() / 50 > 75_000, "{seen:?}");
        // Then there is no memory for a long time, and at last enough.
        let seen = rounds(&mut pace, 100, 800_000, 0, true);
        assert!(seen[50] < 10, "{seen:?}");
        let seen = rounds(&mut pace, 200, 800_000, 1_000_000, true);
        assert_eq!(seen[199], 800_000);
        let seen = rounds(&mut pace, 100, 800_000, 200_000, true);
        let lost = seen.iter().filter(|&&seen| seen > 200_000).count();
        assert!(lost < 25, "{lost} of 100 rounds read everything: {seen:?}");
    }

    /// As after a restart of the daemon.
    #[test]
    fn a_little_is_lost_of_what_was_in_memory_from_the_beginning() {
        let mut pace = Pace::new();
        pace.kept_max = 1_000_000;
        pace.adapt(100_000, 0);
        (0..30).for_each(|_| pace.adapt(100_000, 8192));
        assert!(pace.kept_max >= 1_000_000, "{}", pace.kept_max);
    }

    #[test]
    fn a_keeper_goes_round_and_says_so() {
        let tree = tree();
        let keeper = Keeper::start(&[tree.path().to_path_buf()], None).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while keeper.report().rounds == 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let report = keeper.report();
        assert_eq!((report.rounds, report.folders, report.files, report.left), (1, 4, 13, 0));
        assert_eq!(report.trees, [tree.path().display().to_string()]);
    }
}
