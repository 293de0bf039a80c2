//! Whatever happens to `seekless watch`, its readers get their bytes.

mod watching;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use watching::{NEVER, Place, Watching, alive, evict, signal};

const M: usize = 1 << 20;

/// Readers, each of a file of its own, from cold to its end.
struct Readers(Vec<JoinHandle<bool>>);

impl Readers {
    fn start(files: &[(PathBuf, Vec<u8>)]) -> Readers {
        let read = |(path, content): &(PathBuf, Vec<u8>)| {
            let (path, content) = (path.clone(), content.clone());
            thread::spawn(move || std::fs::read(path).is_ok_and(|got| got == content))
        };
        Readers(files.iter().map(read).collect())
    }

    /// Waits until at least one of them sleeps in the kernel without an answer.
    fn are_held(&self) {
        thread::sleep(Duration::from_millis(200));
        assert!(self.0.iter().any(|r| !r.is_finished()), "nobody was held");
    }

    /// All of them end, with the right bytes.
    fn end_well(self) {
        let until = Instant::now() + NEVER;
        for reader in self.0 {
            while !reader.is_finished() {
                assert!(Instant::now() < until, "a reader waits for ever");
                thread::sleep(Duration::from_millis(1));
            }
            assert!(reader.join().unwrap(), "a read failed, or brought other bytes");
        }
    }
}

fn files(place: &Place) -> Vec<(PathBuf, Vec<u8>)> {
    (0..8).map(|i| place.cold(&format!("f{i}"), 3 * M + i)).collect()
}

fn evict_all(files: &[(PathBuf, Vec<u8>)]) {
    files.iter().for_each(|(path, _)| evict(path));
}

#[test]
fn a_killed_worker_lets_everybody_go_and_is_replaced() {
    let Some(place) = Place::new() else { return };
    let files = files(&place);
    let watching = Watching::start(&[place.path()], &[]);
    let worker = watching.worker();
    // Stopped first, so that there is a blocked read to release.
    signal(worker, Signal::STOP);
    let readers = Readers::start(&files);
    readers.are_held();
    signal(worker, Signal::KILL);
    readers.end_well();

    let report = watching.until("another worker", |s| s.pid as i32 != worker && s.watch.is_some());
    assert_eq!(report.watch.unwrap().restarts, 1);
    evict_all(&files);
    Readers::start(&files).end_well();
    assert!(watching.watch().held > 0, "the new one serves nobody");
    assert_eq!(watching.end().0, 0);
}

#[test]
fn a_stopped_worker_is_killed_by_its_supervisor() {
    let Some(place) = Place::new() else { return };
    let files = files(&place);
    let mut watching = Watching::start(&[place.path()], &[]);
    let worker = watching.worker();
    signal(worker, Signal::STOP);
    let readers = Readers::start(&files);
    readers.are_held();
    readers.end_well();
    assert!(watching.line().contains("was silent"));
    assert!(!alive(worker));
    watching.until("another worker", |s| s.pid as i32 != worker);
}

#[test]
fn a_killed_supervisor_takes_its_worker_along() {
    let Some(place) = Place::new() else { return };
    let files = files(&place);
    let watching = Watching::start(&[place.path()], &[]);
    let worker = watching.worker();
    signal(worker, Signal::STOP);
    let readers = Readers::start(&files);
    readers.are_held();
    signal(watching.supervisor.id() as i32, Signal::KILL);
    readers.end_well();
    let until = Instant::now() + NEVER;
    while alive(worker) {
        assert!(Instant::now() < until, "the worker lives on");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Readers that go on until they are stopped.
fn under_load(files: &[(PathBuf, Vec<u8>)], what: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for (path, content) in files {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    assert!(std::fs::read(path).unwrap() == *content);
                    // A program that maps or reads the file at this moment keeps a page, which does not
                    // matter.
                    let file = std::fs::File::open(path).unwrap();
                    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                }
            });
        }
        // Also if the test fails in between.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let _stop = Stop(&stop);
        what();
    });
}

#[test]
fn kills_and_ends_under_load_fail_nobody() {
    let Some(place) = Place::new() else { return };
    let files = files(&place);
    under_load(&files, || {
        let watching = Watching::start(&[place.path()], &["--threads", "4"]);
        for _ in 0..3 {
            let worker = watching.worker();
            watching.until("some reads", |s| s.watch.as_ref().is_some_and(|w| w.held > 10));
            signal(worker, Signal::KILL);
            watching.until("another worker", |s| s.pid as i32 != worker);
        }
        let (status, report) = watching.end();
        assert_eq!(status, 0);
        assert_eq!(report.watch.unwrap().restarts, 3);
        // Once more from the beginning.
        let watching = Watching::start(&[place.path()], &[]);
        watching.until("some reads", |s| s.watch.as_ref().is_some_and(|w| w.held > 10));
        drop(watching);
    });
}

#[test]
fn a_worker_that_cannot_live_is_given_up() {
    let Some(place) = Place::new() else { return };
    let (path, content) = place.cold("f", M);
    let mut watching = Watching::start(&[place.path()], &[]);
    // Its folder goes, so no further worker can start.
    let worker = watching.worker();
    rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    let moved = place.path().with_extension("moved");
    std::fs::rename(place.path(), &moved).unwrap();
    signal(worker, Signal::KILL);
    let mut lines = String::new();
    for _ in 0..3 {
        lines += &watching.line();
    }
    assert!(lines.contains("cannot watch"), "{lines}");
    assert!(lines.contains("the next one starts in 200 ms"), "{lines}");
    assert!(std::fs::read(moved.join(path.file_name().unwrap())).unwrap() == content);
    // Interrupted in its pause, it ends at once.
    assert_eq!(end(&mut watching), 0);
    std::fs::rename(&moved, place.path()).unwrap();
}

fn end(watching: &mut Watching) -> i32 {
    signal(watching.supervisor.id() as i32, Signal::TERM);
    watching::wait(&mut watching.supervisor)
}

/// The software disk, if it has been built: it can hang and fail.
fn vdisk_program() -> Option<PathBuf> {
    let program = watching::program().with_file_name("vdisk");
    if program.exists() {
        return Some(program);
    }
    seekless_testing::skip::skipped(format!("{} is not built", program.display()));
    None
}

struct Disk<'a> {
    program: &'a Path,
    state: tempfile::TempDir,
    name: String,
}

impl Disk<'_> {
    fn tell(&self, words: &[&str]) -> bool {
        let done = std::process::Command::new(self.program)
            .args(["vdisk", words[0], "--name", &self.name])
            .args(&words[1..])
            .env("SEEKLESS_STATE", self.state.path())
            .output()
            .unwrap();
        if !done.status.success() {
            println!("vdisk {words:?}: {}", String::from_utf8_lossy(&done.stderr));
        }
        done.status.success()
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        self.tell(&["down"]);
    }
}

#[test]
fn a_disk_that_fails_or_hangs_fails_or_delays_its_own_readers_only() {
    let Some(place) = Place::new() else { return };
    let Some(program) = vdisk_program() else { return };
    let mount = tempfile::tempdir().unwrap();
    let at = mount.path().to_str().unwrap();
    let state = tempfile::tempdir().unwrap();
    let disk = Disk { program: &program, state, name: format!("watch-{}", std::process::id()) };
    if !disk.tell(&[
        "up",
        "--drive",
        "wd-red-1tb",
        "--size",
        "256MiB",
        "--fs",
        "ext4",
        "--mount",
        at,
        "--speedup",
        "8",
    ]) {
        seekless_testing::skip::skipped("no software disk here");
        return;
    }
    assert!(disk.tell(&["populate", "--with", "files=4,file-size=8MiB,into=v"]));
    let file = |n: usize| mount.path().join(format!("v/{n:06}.bin"));
    let whole = std::fs::read(file(1)).unwrap();
    let other = std::fs::read(file(2)).unwrap();
    let address = {
        let file = std::fs::File::open(file(1)).unwrap();
        let map = seekless_kernel::extents::extents(&file, 0).unwrap();
        map.address_of(4 << 20).unwrap()
    };
    evict(&file(1));
    evict(&file(2));
    let options = ["--answer-within", "1"];
    let watching = Watching::start(&[mount.path(), place.path()], &options);

    // An unreadable place: the reader gets the error itself; before it and elsewhere all is well.
    assert!(disk.tell(&["fault", "--eio", &format!("{address}+4KiB")]));
    let mut got = vec![0; 8 * M];
    let handle = std::fs::File::open(file(1)).unwrap();
    use std::os::unix::fs::FileExt;
    handle.read_exact_at(&mut got[..M], 0).unwrap();
    assert!(got[..M] == whole[..M]);
    let error = handle.read_exact_at(&mut got[..M], 4 << 20).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
    assert!(disk.tell(&["fault", "--clear"]));

    // A disk that hangs: its reader is released in time and waits for the disk alone; readers of another disk
    // are served meanwhile.
    evict(&file(2));
    assert!(disk.tell(&["fault", "--hang", "4s"]));
    let slow = (file(2), other);
    let readers = Readers::start(std::slice::from_ref(&slow));
    readers.are_held();
    let (path, content) = place.cold("elsewhere", M);
    assert!(std::fs::read(path).unwrap() == content);
    readers.end_well();
    let report = watching.until("the time to be up", |s| {
        let passed =
            |d: &seekless_daemon::DiskReport| d.passed.iter().any(|(why, n)| why == "too_late" && *n > 0);
        s.watch.as_ref().is_some_and(|w| w.overdue > 0) || s.disks.iter().any(passed)
    });
    assert_eq!(report.watch.unwrap().restarts, 0, "a hanging disk is no reason to end the worker");
    drop(watching);
}
