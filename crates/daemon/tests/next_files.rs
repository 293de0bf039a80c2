//! Files that a real daemon reads before their readers open them: those of a reader of a folder, and no
//! others.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Bench, Client};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Advice;
use seekless_engine::DecisionLog;
use seekless_kernel::fdpass;
use seekless_kernel::residency::cachestat;
use seekless_kernel::ring::{Producer, Record};
use seekless_policy::decisions::{Entry, FIRST_LINE, Line};
use seekless_policy::{AheadConfig, DiskEngine, Mode};
use seekless_wire::{Call, FRAME_BYTES_MAX, Frame};

/// Size of a file: a folder of them is longer than what counts as near on a disk.
const BYTES: usize = 32 << 10;

/// Number of files from which the order is learnt.
const LEARNT: usize = 12;

/// Timeout for a file that should arrive.
const SOON: Duration = Duration::from_secs(5);

/// Files `f000` and on, not in memory; `None`, with a message, if pages cannot be evicted.
fn cold_tree(dir: &Path, count: usize) -> Option<Vec<PathBuf>> {
    let names: Vec<PathBuf> = (0..count).map(|i| dir.join(format!("f{i:03}"))).collect();
    // A reader in disk order is left alone. In this order the next dozen names each lie half a MiB or more
    // before or behind a file, if there are 200: 127 times 63 is 1 (mod 200).
    for i in 0..count {
        let mut file = File::create(&names[i * 127 % count]).unwrap();
        file.write_all(&[0x5a; BYTES]).unwrap();
        file.sync_all().unwrap();
    }
    names.iter().all(|path| cold(path)).then_some(names)
}

fn cold(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    if is_there(&file) {
        println!("skipped: pages cannot be evicted or counted here");
    }
    !is_there(&file)
}

fn is_there(file: &File) -> bool {
    cachestat(file.as_fd(), 0, BYTES as u64).is_ok_and(|stat| stat.cached * 4096 >= BYTES as u64)
}

/// A program that reads whole files with the shim.
struct Program {
    client: Client,
    reports: Producer,
}

impl Program {
    fn start(bench: &Bench) -> Program {
        let client = bench.client();
        let reports = Producer::open(ring(&client)).unwrap();
        Program { client, reports }
    }

    /// Reads a file. Returns whether it was in memory.
    fn read(&self, path: &Path) -> bool {
        let file = File::open(path).unwrap();
        let hit = is_there(&file);
        if !hit {
            self.client.need(&file, Call::Read, 0, 32 << 10);
            self.client.answer();
        }
        let mut buffer = vec![0; BYTES];
        file.read_exact_at(&mut buffer, 0).unwrap();
        assert!(buffer.iter().all(|&byte| byte == 0x5a));
        let about = file.metadata().unwrap();
        let (dev, ino, file_size) = (about.dev(), about.ino(), about.len());
        assert!(self.reports.push(&Record { dev, ino, offset: 0, len: BYTES as u64, file_size }));
        hit
    }
}

fn ring(client: &Client) -> OwnedFd {
    client.send(Frame::RingAsk, None);
    let mut packet = [0u8; FRAME_BYTES_MAX];
    poll(&mut [PollFd::new(&client.0, PollFlags::IN)], None).unwrap();
    fdpass::receive(client.0.as_fd(), &mut packet).unwrap().descriptor.unwrap()
}

fn bench(next_files: bool, log: Option<Arc<DecisionLog>>) -> Bench {
    Bench::start(|settings| {
        settings.engine.policy.mode = Mode::Both;
        settings.engine.policy.ahead = Some(AheadConfig::default());
        settings.engine.next_files = next_files;
        settings.engine.decisions = log;
    })
}

/// On the build folder's file system, because files in memory are never cold.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

/// Waits until the file is in memory. Returns whether that happened.
fn comes(path: &Path, patience: Duration) -> bool {
    let (file, until) = (File::open(path).unwrap(), Instant::now() + patience);
    while !is_there(&file) {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// The first line of a log for which a fresh engine decides otherwise.
fn differs(log: &str) -> Option<String> {
    let mut engines = std::collections::BTreeMap::new();
    assert_eq!(log.lines().next(), Some(FIRST_LINE));
    for text in log.lines().skip(1).filter(|line| !line.starts_with('#')) {
        let line: Line = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        let (disk, at) = (line.disk, line.at);
        match line.entry {
            Entry::Disk { config, .. } => drop(engines.insert(disk, DiskEngine::new((*config).clone()))),
            Entry::Event(event) => engines.get_mut(&disk).unwrap().handle(at, event),
            Entry::Action(_) => {
                let action = engines.get_mut(&disk).unwrap().poll_action().map(Entry::Action);
                let again = action.map(|entry| Line { disk, at, entry }.to_string());
                if again.as_deref() != Some(text) {
                    return Some(format!("`{text}` was decided; a replay gives {again:?}"));
                }
            }
        }
    }
    None
}

#[test]
fn files_of_a_folder_are_there_before_their_reader() {
    let folder = folder();
    let Some(paths) = cold_tree(folder.path(), 200) else { return };
    let log_path = folder.path().join("decisions");
    let log = Arc::new(DecisionLog::create(&log_path, 64 << 20).unwrap());
    let bench = bench(true, Some(log));
    let program = Program::start(&bench);
    for path in &paths[..LEARNT] {
        program.read(path);
    }
    let there = paths[LEARNT..].iter().take_while(|path| comes(path, SOON) && program.read(path)).count();
    assert_eq!(there, paths.len() - LEARNT, "{:?}", bench.status().disks);
    let all = |s: &seekless_daemon::StatusReport| {
        let next_files = s.disks[0].next_files;
        next_files.used >= 180 && next_files.files_now == 0
    };
    let status = bench.until("its reports", all);
    let next_files = status.disks[0].next_files;
    assert_eq!((next_files.folders, next_files.wasted, next_files.surprises > 4), (1, 0, false));
    assert_eq!(next_files.bytes_now, 0);
    assert!(next_files.bytes_used >= 180 * BYTES as u64);
    assert_eq!(status.counters.reports_unknown, 0, "what was foretold counts as shown");
    drop(bench);
    let log = fs::read_to_string(&log_path).unwrap();
    assert!(log.contains(r#""predicted":true"#));
    assert_eq!(differs(&log), None);
}

#[test]
fn what_the_reader_may_not_read_or_is_no_file_stays_where_it_is() {
    let folder = folder();
    let Some(paths) = cold_tree(folder.path(), 200) else { return };
    let (private, public): (Vec<&PathBuf>, Vec<&PathBuf>) = paths.iter().partition(|p| {
        let number: usize = p.file_name().unwrap().to_str().unwrap()[1..].parse().unwrap();
        number >= 20 && number.is_multiple_of(40)
    });
    for path in &private {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let target = elsewhere.join("target");
    fs::write(&target, vec![0x5a; BYTES]).unwrap();
    symlink(&target, folder.path().join("f021")).unwrap_err();
    symlink(&target, folder.path().join("f020x")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path().join("f020y"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    assert!(cold(&target));
    let bench = bench(true, None);
    let program = Program::start(&bench);
    for path in &public[..LEARNT] {
        program.read(path);
    }
    let there = public[LEARNT..].iter().take_while(|path| comes(path, SOON) && program.read(path)).count();
    assert_eq!(there, public.len() - LEARNT, "{:?}", bench.status().disks);
    for path in private.into_iter().chain([&target]) {
        assert!(!is_there(&File::open(path).unwrap()), "{}", path.display());
    }
}

#[test]
fn a_reader_that_stops_leaves_few_files_unread_and_one_at_random_none() {
    let folder = folder();
    let Some(paths) = cold_tree(folder.path(), 200) else { return };
    let bench = bench(true, None);
    let program = Program::start(&bench);
    for i in 0..paths.len() {
        // Every place once, in no order.
        program.read(&paths[(i * i * 31 + i * 17 + 5) % paths.len()]);
    }
    let counted = |s: &seekless_daemon::StatusReport| s.disks.iter().any(|d| d.accesses > 0);
    let status = bench.until("its reports", counted);
    let next_files = status.disks[0].next_files;
    assert!(next_files.asked <= 20, "{next_files:?}");
}

#[test]
fn without_the_option_no_folder_is_listed() {
    let folder = folder();
    let Some(paths) = cold_tree(folder.path(), 40) else { return };
    let bench = bench(false, None);
    let program = Program::start(&bench);
    assert!(paths.iter().all(|path| !program.read(path)));
    let status = bench.status();
    assert_eq!(status.disks[0].next_files, Default::default());
}
