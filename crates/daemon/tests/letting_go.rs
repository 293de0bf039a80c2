//! What a daemon has open, and for how long: deleted files, file systems that are to be unmounted. In a
//! process of its own, because all its descriptors and mappings are checked.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::{Bench, Reply, cached};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use seekless_frontend::control;
use seekless_policy::AheadConfig;
use seekless_wire::{Call, Verdict};

const M: u64 = 1 << 20;

/// One test at a time, because each checks everything that the process has open.
static ALONE: Mutex<()> = Mutex::new(());

/// A folder beside the build's output, because temporary folders are often in memory.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

fn cold(path: &Path, mib: u64) -> File {
    let mut file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    for i in 0..mib {
        file.write_all(&vec![i as u8; M as usize]).unwrap();
    }
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    file
}

/// Files of a folder that this process has open or mapped.
fn held(folder: &Path) -> Vec<PathBuf> {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapped =
        maps.lines().filter_map(|line| line.split_once('/')).map(|(_, path)| format!("/{path}").into());
    let folder = fs::canonicalize(folder).unwrap();
    links.chain(mapped).filter(|path: &PathBuf| path.starts_with(&folder) && *path != folder).collect()
}

fn bench() -> Bench {
    Bench::start(|s| s.engine.policy.ahead = Some(AheadConfig::default()))
}

/// A client misses on the first MiB of a file and reads it, twice, so that data is read ahead and held.
fn read(bench: &Bench, file: &File) {
    for at in [0, M] {
        let client = bench.client();
        client.need(file, Call::Pread, at, M);
        assert_eq!(client.answer().verdict, Verdict::Resident);
        file.read_exact_at(&mut vec![0; M as usize], at).unwrap();
    }
}

fn until_none_is_held(folder: &Path, at_most: Duration) {
    let since = Instant::now();
    while !held(folder).is_empty() {
        assert!(since.elapsed() < at_most, "still open after {at_most:?}: {:?}", held(folder));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Then its blocks are free. It is not read any more, but the engine would keep it open for 35 s.
#[test]
fn deleted_files_are_let_go_of_at_once() {
    let _alone = ALONE.lock();
    let (bench, folder) = (bench(), folder());
    let names: Vec<PathBuf> = (0..4).map(|i| folder.path().join(format!("film-{i}"))).collect();
    for name in &names {
        read(&bench, &cold(name, 24));
    }
    assert!(held(folder.path()).len() >= 4, "they are open while they are read: {:?}", held(folder.path()));
    names[..3].iter().for_each(|name| fs::remove_file(name).unwrap());
    let since = Instant::now();
    let deleted = || held(folder.path()).into_iter().filter(|p| p.to_string_lossy().ends_with(" (deleted)"));
    while deleted().count() > 0 {
        // A second, plus time for a busy machine.
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", deleted().collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!held(folder.path()).is_empty(), "what was not deleted stays open");
    bench.until("a look at the last", |s| s.disks.iter().all(|d| d.reads_failed == 0));
    let file = File::open(&names[3]).unwrap();
    let client = bench.client();
    client.need(&file, Call::Pread, 12 * M, M);
    assert_eq!(client.answer().verdict, Verdict::Resident, "and is served");
}

/// A program's temporary file: it cannot be found by name, and it is read all the same.
#[test]
fn a_file_without_a_name_is_served_and_let_go_of_when_nobody_reads_it() {
    let _alone = ALONE.lock();
    let (bench, folder) = (bench(), folder());
    let name = folder.path().join("temporary");
    let file = cold(&name, 24);
    fs::remove_file(&name).unwrap();
    for _ in 0..2 {
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        read(&bench, &file);
        std::thread::sleep(Duration::from_secs(1));
    }
    drop(file);
    until_none_is_held(folder.path(), Duration::from_secs(5));
}

#[test]
fn a_file_system_is_released_when_it_is_told() {
    let _alone = ALONE.lock();
    let (bench, folder) = (bench(), folder());
    let name = folder.path().join("film");
    let file = cold(&name, 24);
    read(&bench, &file);
    let device = file.metadata().unwrap().dev();
    drop(file);
    control::release(&bench.socket, device + 1).unwrap();
    assert!(!held(folder.path()).is_empty(), "another file system");
    control::release(&bench.socket, device).unwrap();
    assert_eq!(held(folder.path()), Vec::<PathBuf>::new(), "nothing is open when it is answered");
    // Files that are still read are opened again.
    let file = File::open(&name).unwrap();
    let client = bench.client();
    client.need(&file, Call::Pread, 12 * M, M);
    assert_eq!(client.answer().verdict, Verdict::Resident);
    assert!(cached(&file, 12 * M, M) >= M);
}

#[test]
fn another_user_may_not_release() {
    let _alone = ALONE.lock();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to be another user");
        return;
    }
    let bench = bench();
    use std::os::unix::fs::PermissionsExt;
    for path in [bench.socket.parent().unwrap(), &bench.socket] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let socket = bench.socket.clone();
    // A socket has the credentials of the thread that connects.
    let said = std::thread::spawn(move || {
        rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65_533)).unwrap();
        control::release(&socket, 1).map_err(|e| e.to_string())
    });
    let said = said.join().unwrap().unwrap_err();
    assert!(said.contains("another user"), "{said}");
}

/// Holes involve neither the disk nor the budget.
#[test]
fn holes_are_answered_and_neither_read_nor_counted() {
    let _alone = ALONE.lock();
    let (bench, folder) = (bench(), folder());
    let file = cold(&folder.path().join("image"), 1);
    if fallocate(&file, FallocateFlags::empty(), 16 * M, 32 * M).is_err() {
        println!("skipped: no fallocate here");
        return;
    }
    file.set_len(96 * M).unwrap();
    file.write_all_at(&[7; 1 << 20], 64 * M).unwrap();
    file.sync_all().unwrap();
    if seekless_kernel::extents::extents(&file, 0).is_err() {
        println!("skipped: no FIEMAP here");
        return;
    }
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let need = |at: u64, len: u64| {
        let client = bench.client();
        client.need(&file, Call::Pread, at, len);
        client.hear()
    };
    let resident = |heard: &Reply| matches!(heard, Reply::Answer(a) if a.verdict == Verdict::Resident);
    for at in (2..64).chain(65..96) {
        let heard = need(at * M, M);
        assert!(resident(&heard), "{at}: {heard:?}");
    }
    assert_eq!(cached(&file, 2 * M, 62 * M), 0, "a hole is not read ahead");
    let read = || bench.status().disks.iter().map(|d| d.bytes_read).sum::<u64>();
    let before = read();
    assert!(before <= 2 * M, "{before}");
    // Across the end of a hole, only the data is read.
    assert!(resident(&need(63 * M, 2 * M)));
    assert!(cached(&file, 64 * M, M) >= M && cached(&file, 63 * M, M) == 0);
    assert!(read() - before <= M, "{}", read() - before);
    assert!(bench.status().disks.iter().all(|d| d.bytes_evicted_unused == 0));
}
