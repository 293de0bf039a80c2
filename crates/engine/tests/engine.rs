//! An engine in this process: requests, answers, cancellations, shutdown; on files of the file system under
//! the temporary folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use seekless_base::Bytes;
use seekless_engine::{
    Completion, DecisionLog, DiskReport, Engine, ForwardedCall, InProcess, Refused, Settings, Submitted,
};
use seekless_kernel::prefetch::Source;
use seekless_kernel::residency::resident_prefix;
use seekless_policy::decisions::{Entry, FIRST_LINE, Line};
use seekless_policy::sizing::controller::Params;
use seekless_policy::{AheadConfig, DiskEngine, Mode, Sizing, Taken};

/// Timeout of every wait. It measures no speed, only the difference between slow and never.
const NEVER: Duration = Duration::from_secs(30);

const M: u64 = 1 << 20;

fn engine(change: impl FnOnce(&mut Settings)) -> Engine {
    let mut settings = Settings { include_ssd: true, ..Settings::default() };
    settings.policy.prefetch = Bytes::mib(2);
    change(&mut settings);
    Engine::start(settings)
}

/// A file with a name. A file without one is closed when it is no longer read.
struct Named {
    file: File,
    _path: tempfile::TempPath,
}

impl std::ops::Deref for Named {
    type Target = File;
    fn deref(&self) -> &File {
        &self.file
    }
}

/// A file of this many MiB, not in memory if the file system allows that (tmpfs does not).
fn cold_file(mib: u64) -> Named {
    // Beside the test's build output, because temporary folders are often in memory.
    let (mut file, path) = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap().into_parts();
    for i in 0..mib {
        file.write_all(&vec![i as u8; M as usize]).unwrap();
    }
    file.sync_all().unwrap();
    fadvise(file.as_fd(), 0, None, Advice::DontNeed).unwrap();
    Named { file, _path: path }
}

fn ask(engine: &Engine, file: &File, offset: u64, len: u64) -> Result<String, Refused> {
    let (told, answer) = mpsc::channel();
    let on_answer = move |a: Completion<'_>| {
        let text = match a {
            Completion::Resident(found) => format!("resident {}", found.prefix(0) >= 1),
            Completion::Pass(reason) => format!("pass {}", reason.name()),
            Completion::Closing => "closing".into(),
        };
        let _ = told.send(text);
    };
    let call = ForwardedCall::of(file.as_fd(), offset, len)?;
    match engine.submit(call, &mut InProcess::new(file.as_fd(), Box::new(on_answer)))? {
        Submitted::Resident { want, bytes } => Ok(format!("resident {}", bytes >= want.len())),
        Submitted::Blocked(_) => Ok(answer.recv_timeout(NEVER).expect("answered exactly once")),
    }
}

/// Reports a read that hit.
fn hit(engine: &Engine, file: &File, offset: u64, len: u64) {
    let call = ForwardedCall::of(file.as_fd(), offset, len).unwrap();
    engine.hit(&call, Taken::All, Source::own(file.try_clone().unwrap().into()));
}

#[test]
fn what_is_asked_for_is_in_memory_afterwards() {
    let engine = engine(|_| {});
    let file = cold_file(4);
    assert_eq!(ask(&engine, &file, 0, 512 << 10), Ok("resident true".into()));
    assert_eq!(resident_prefix(file.as_fd(), 0, 512 << 10).unwrap(), 512 << 10);
    // A second request is answered at once, by the submitting thread.
    assert_eq!(ask(&engine, &file, 0, 512 << 10), Ok("resident true".into()));
    let disks = engine.statistics();
    assert!(disks.iter().map(|d| d.requests).sum::<u64>() <= 1, "{disks:?}");
}

#[test]
fn what_disks_have_counted_outlives_the_engine() {
    let engine = engine(|_| {});
    let file = cold_file(1);
    let asked = ask(&engine, &file, 0, 1);
    assert_eq!(asked, Ok("resident true".into()));
    let before = engine.statistics().len();
    engine.close();
    assert_eq!(engine.statistics().len(), before);
}

/// The thread checks every few seconds.
#[test]
fn a_table_of_bitrates_that_has_changed_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (table, film) = (dir.path().join("table"), dir.path().join("film"));
    std::fs::write(&film, "x").unwrap();
    std::fs::write(&table, "400kb/s film\n").unwrap();
    let engine = engine(|s| s.bitrates = Some(table.clone()));
    for (text, files) in [("400kb/s film\n", 1), ("#\n", 0), ("800kb/s film\n", 1)] {
        std::fs::write(&table, text).unwrap();
        let until = Instant::now() + NEVER;
        while engine.bitrates().map(|report| report.files) != Some(files) {
            assert!(Instant::now() < until, "{text}: {:?}", engine.bitrates());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn refusals_name_their_reason() {
    let file = cold_file(1);
    let off = engine(|s| s.policy.mode = Mode::Off);
    assert_eq!(ask(&off, &file, 0, 1), Err(Refused::Mode));
    let on = engine(|_| {});
    assert_eq!(ask(&on, &file, M, 1), Err(Refused::BadRequest), "beyond the end");
    let folder = File::open(env!("CARGO_TARGET_TMPDIR")).unwrap();
    assert_eq!(ask(&on, &folder, 0, 1), Err(Refused::BadRequest));
}

#[test]
fn reported_reads_are_followed() {
    let engine = engine(|s| s.policy.ahead = Some(AheadConfig::default()));
    let file = cold_file(8);
    if resident_prefix(file.as_fd(), 0, 8 * M).unwrap() == 8 * M {
        println!("skipped: {} lies on a file system in memory", env!("CARGO_TARGET_TMPDIR"));
        return;
    }
    assert_eq!(ask(&engine, &file, 0, 256 << 10), Ok("resident true".into()));
    let until = Instant::now() + NEVER;
    let mut at = 256 << 10;
    while engine.statistics().iter().map(|d| d.ahead).sum::<u64>() == 0 {
        assert!(Instant::now() < until, "nothing was read ahead: {:?}", engine.statistics());
        hit(&engine, &file, at, 256 << 10);
        at = (at + (256 << 10)).min(4 * M);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An answer is no read: a server whose client has no room yet sends the announced bytes seconds later.
#[test]
fn what_is_brought_in_stays_until_it_is_reported_as_read() {
    let engine = engine(|s| s.policy.ahead = Some(AheadConfig::default()));
    // The kernel may page out what it considers cold, of any file at any time (DAMON). The engine would do so
    // each time.
    let mut given_back = Vec::new();
    for _ in 0..3 {
        let file = cold_file(8);
        if resident_prefix(file.as_fd(), 0, M).unwrap() == M {
            println!("skipped: {} lies on a file system in memory", env!("CARGO_TARGET_TMPDIR"));
            return;
        }
        match stays(&engine, &file) {
            Ok(()) => return,
            Err(at) => given_back.push(at),
        }
    }
    panic!("given back before it was read, three times, at {given_back:?}");
}

/// A user may send any number of reports, and they may be lost.
#[test]
fn a_flood_of_reports_keeps_no_call_waiting() {
    let engine = engine(|s| {
        s.policy.ahead = Some(AheadConfig::default());
        s.policy.queue_max = 64;
    });
    let (told, file) = (cold_file(1), cold_file(64));
    assert_eq!(ask(&engine, &told, 0, 4096), Ok("resident true".into()));
    let id = ForwardedCall::of(told.as_fd(), 0, 4096).unwrap().file;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    engine.read(id, 0, 4096);
                }
            });
        }
        let asked = || {
            std::thread::sleep(Duration::from_millis(300));
            (0..4).map(|i| ask(&engine, &file, i * 16 * M, 4096)).collect::<Vec<_>>()
        };
        let answers = std::panic::catch_unwind(AssertUnwindSafe(asked));
        ended.store(true, Ordering::Relaxed);
        assert_eq!(answers.unwrap(), vec![Ok("resident true".into()); 4]);
    });
}

/// Bytes cut off from a file say nothing about memory, and are not read again and again.
#[test]
fn what_lies_beyond_the_end_of_a_file_cut_short_is_no_eviction() {
    let engine = engine(|s| s.policy.ahead = Some(AheadConfig::default()));
    let file = cold_file(8);
    if resident_prefix(file.as_fd(), 0, M).unwrap() == M {
        println!("skipped: {} lies on a file system in memory", env!("CARGO_TARGET_TMPDIR"));
        return;
    }
    assert_eq!(ask(&engine, &file, 0, M / 2), Ok("resident true".into()));
    for at in [0, M / 4] {
        hit(&engine, &file, at, M / 4);
    }
    file.set_len(M / 2).unwrap();
    // Reads in flight complete, as far as the file goes.
    std::thread::sleep(Duration::from_millis(500));
    let reads = |disks: &[DiskReport]| disks.iter().map(|d| d.reads).sum::<u64>();
    let before = reads(&engine.statistics());
    // Memory is probed every two seconds.
    std::thread::sleep(Duration::from_secs(5));
    let disks = engine.statistics();
    assert!(disks.iter().all(|d| d.bytes_unread_now > M && d.bytes_evicted_unused == 0), "{disks:?}");
    assert_eq!(reads(&disks), before);
}

/// Brings in the first half of a file, a MiB at a time, and reports each only after a while. Returns where a
/// byte left memory before.
fn stays(engine: &Engine, file: &File) -> Result<(), u64> {
    for at in [0, M, 2 * M, 3 * M] {
        assert_eq!(ask(engine, file, at, M), Ok("resident true".into()));
        for _ in 0..30 {
            if resident_prefix(file.as_fd(), at, M).unwrap() < M {
                return Err(at);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        hit(engine, file, at, M);
    }
    Ok(())
}

#[test]
fn a_clone_keeps_it_going_and_the_end_does_not_hang() {
    let engine = engine(|_| {});
    let file = cold_file(2);
    let again = engine.clone();
    drop(engine);
    assert_eq!(ask(&again, &file, 0, 1), Ok("resident true".into()));
    drop(again);
}

#[test]
fn a_log_of_the_engine_replays() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("decisions");
    let engine = engine(|s| {
        s.policy.ahead = Some(AheadConfig::default());
        s.policy.sizing = Sizing::Auto(Params::default());
        s.policy.read_max = Bytes::mib(32);
        s.decisions = Some(Arc::new(DecisionLog::create(&path, 1 << 20).unwrap()));
    });
    let files = [cold_file(6), cold_file(6)];
    for at in 0..10u64 {
        for file in &files {
            assert_eq!(ask(&engine, file, at * (512 << 10), 512 << 10), Ok("resident true".into()));
        }
    }
    drop(engine);
    // The readers end, and with the last of them the log.
    let until = Instant::now() + NEVER;
    let text = loop {
        let text = std::fs::read_to_string(&path).unwrap();
        if text.lines().last().is_some_and(|l| l.starts_with("# end, 0 lines")) {
            break text;
        }
        assert!(Instant::now() < until, "{text}");
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut engines = BTreeMap::new();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(FIRST_LINE));
    let mut actions = 0;
    for line in lines.filter(|l| !l.starts_with('#')) {
        let line: Line = line.parse().unwrap();
        match line.entry {
            Entry::Disk { config, .. } => drop(engines.insert(line.disk, DiskEngine::new(*config))),
            Entry::Event(event) => engines.get_mut(&line.disk).unwrap().handle(line.at, event),
            Entry::Action(action) => {
                actions += 1;
                assert_eq!(engines.get_mut(&line.disk).unwrap().poll_action(), Some(action));
            }
        }
    }
    if actions == 0 {
        println!("skipped: everything was in memory, nothing was decided");
    }
}

#[test]
fn a_read_is_charged_to_its_file_and_to_the_program_that_asked() {
    let engine = engine(|_| {});
    let (mut path, file) = (String::new(), cold_file(4));
    let until = Instant::now() + NEVER;
    // The program of a process is looked up beside its first read.
    for round in 0.. {
        fadvise(file.as_fd(), 0, None, Advice::DontNeed).unwrap();
        let (told, answer) = mpsc::channel();
        let on_answer = move |_: Completion<'_>| {
            let _ = told.send(());
        };
        let call = ForwardedCall::of(file.as_fd(), 0, 1 << 20).unwrap();
        let call = ForwardedCall { pid: std::process::id(), ..call };
        match engine.submit(call, &mut InProcess::new(file.as_fd(), Box::new(on_answer))).unwrap() {
            Submitted::Blocked(_) => answer.recv_timeout(NEVER).unwrap(),
            Submitted::Resident { .. } if round == 0 => {
                return println!("skipped: files stay in memory here");
            }
            Submitted::Resident { .. } => {}
        }
        // The end of the piece may come after the answer.
        std::thread::sleep(Duration::from_millis(20));
        let disks = engine.statistics();
        let disk = disks.iter().find(|d| d.reads > 0).unwrap();
        let known = disk.programs.iter().find(|p| !p.program.name.is_empty());
        if let (Some(program), Some(of)) = (known, disk.files.first()) {
            assert_eq!(program.program.user, Some(rustix::process::getuid().as_raw()));
            assert!(program.cost.reads > 0 && program.cost.disk_ms > 0.0, "{program:?}");
            assert!(of.cost.reads >= program.cost.reads && of.cost.bytes >= M, "{of:?}");
            path.clone_from(&of.path);
            break;
        }
        assert!(Instant::now() < until, "{disk:?}");
    }
    assert_eq!(path, file._path.to_str().unwrap());
    // All of the disk's time has been charged.
    let settled = || {
        let disks = engine.statistics();
        let disk = disks.iter().find(|d| d.reads > 0)?;
        let of_files: f64 = disk.files.iter().map(|f| f.cost.disk_ms).sum();
        let of_programs: f64 = disk.programs.iter().map(|p| p.cost.disk_ms).sum();
        let near = |sum: f64| (sum - disk.disk_ms).abs() <= 0.05 * disk.disk_ms + 1.0;
        (disk.in_flight_now == 0 && near(of_files) && near(of_programs)).then_some(())
    };
    while settled().is_none() {
        assert!(Instant::now() < until, "{:?}", engine.statistics());
        std::thread::sleep(Duration::from_millis(10));
    }
}
