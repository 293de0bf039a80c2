//! The commands where a daemon answers: it reads, in an order of its own, or it misbehaves.

mod common;
#[path = "common/memory.rs"]
mod memory;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use seekless_kernel::fdpass::{self, Address};
use seekless_wire::{FRAME_BYTES_MAX, FileSet, FileSetReady, Frame, PassReason};

/// Files of the tree, and their size. Some are longer than a range of `cat-set`.
const FILES: usize = 40;
const SMALL: usize = 20_000;
const LONG: usize = 7 << 20;

/// Longest wait for anything.
const NEVER: Duration = Duration::from_secs(60);

fn content(n: usize) -> Vec<u8> {
    let size = if n.is_multiple_of(8) { LONG } else { SMALL };
    (0..size).map(|i| (i * 31 + n * 7) as u8).collect()
}

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(dir.path().join("t")).unwrap();
        for n in 0..FILES {
            fs::write(dir.path().join(format!("t/f{n:03}")), content(n)).unwrap();
        }
        Tree(dir)
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("d.sock")
    }

    /// Runs `cat-set` on the tree; the summary, and what went wrong with its members.
    fn cat(&self) -> (serde_json::Value, Vec<String>) {
        let out = self.run(&["cat-set", "t", "--json", "sum.json"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let mut wrong = Vec::new();
        let mut seen = Vec::new();
        for entry in tar::Archive::new(&out.stdout[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let n: usize = name.rsplit('f').next().unwrap().parse().unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            if bytes != content(n) {
                wrong.push(name);
            }
            seen.push(n);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..FILES).collect::<Vec<_>>());
        (self.summary(), wrong)
    }

    fn summary(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.0.path().join("sum.json")).unwrap()).unwrap()
    }

    /// Runs a command while none of the files is in memory.
    fn run(&self, args: &[&str]) -> Output {
        let name = |n: usize| self.0.path().join(format!("t/f{n:03}"));
        assert!(memory::forget((0..FILES).map(name)), "files stay in memory here");
        let mut command = Command::new(common::program());
        command.args(args).current_dir(self.0.path()).env("SEEKLESS_SOCKET", self.socket());
        command.stdin(Stdio::null()).output().unwrap()
    }
}

/// How the daemon of a test behaves.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// It tells of what was added last first.
    Backwards,
    /// It goes away after so many ranges.
    Dies(usize),
    /// It says that the files are on no disk with heads.
    NotADisk,
    /// It has no set to give.
    Full,
    /// It sends what it should not.
    Garbled,
}

/// What it was told.
#[derive(Debug, Default)]
struct Counts {
    added: usize,
    taken: usize,
    untaken_max: usize,
}

/// A daemon that reads nothing and tells of ranges as its manner is, for one connection.
fn daemon(socket: &Path, manner: Manner) -> JoinHandle<Counts> {
    let name = CString::new(socket.as_os_str().as_bytes()).unwrap();
    let listener = fdpass::listen(Address::Path(&name), 1).unwrap();
    thread::spawn(move || serve(&listener, manner))
}

fn wait(socket: impl AsFd, time: Duration) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: time.as_nanos() as _ };
    let _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout));
}

fn serve(listener: &OwnedFd, manner: Manner) -> Counts {
    let until = Instant::now() + NEVER;
    let socket = loop {
        match fdpass::accept(listener.as_fd()) {
            Ok(socket) => break socket,
            Err(_) => wait(listener, Duration::from_millis(20)),
        }
        assert!(Instant::now() < until, "nobody connects");
    };
    let send = |frame: Frame<'_>| {
        let frame = frame.encode().unwrap();
        while let Err(Errno::AGAIN) = fdpass::send(socket.as_fd(), frame.as_bytes(), None) {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let mut counts = Counts::default();
    let mut ranges: Vec<u32> = Vec::new();
    let mut packet = [0; FRAME_BYTES_MAX];
    loop {
        assert!(Instant::now() < until, "it never ends");
        match fdpass::receive(socket.as_fd(), &mut packet) {
            Ok(received) if received.length == 0 => return counts,
            Ok(received) => match Frame::decode(&packet[..received.length]).unwrap() {
                Frame::FileSetAsk { window_bytes } => {
                    let reason = if manner == Manner::Full { PassReason::Full } else { PassReason::None };
                    send(Frame::FileSet(FileSet { reason, ranges: 12, window_bytes }));
                }
                Frame::FileSetAdd(add) => {
                    assert!(received.descriptor.is_some());
                    counts.added += 1;
                    counts.untaken_max = counts.untaken_max.max(counts.added - counts.taken);
                    match manner {
                        Manner::Dies(after) if counts.added > after => return counts,
                        Manner::Garbled => send(Frame::Ring),
                        _ => ranges.push(add.range),
                    }
                }
                Frame::FileSetTook { .. } => counts.taken += 1,
                other => panic!("{}", other.name()),
            },
            // Nothing more is said: tell of a range.
            Err(Errno::AGAIN) => match ranges.pop() {
                Some(range) => {
                    let reason =
                        if manner == Manner::NotADisk { PassReason::NotADisk } else { PassReason::None };
                    send(Frame::FileSetReady(FileSetReady { range, reason }));
                }
                None => wait(&socket, Duration::from_millis(20)),
            },
            Err(_) => return counts,
        }
    }
}

fn number(summary: &serde_json::Value, pointer: &str) -> u64 {
    summary.pointer(pointer).and_then(serde_json::Value::as_u64).unwrap()
}

#[test]
fn whatever_the_order_of_the_daemon_files_are_whole() {
    let tree = Tree::new();
    let daemon = daemon(&tree.socket(), Manner::Backwards);
    let (summary, wrong) = tree.cat();
    assert_eq!(wrong, Vec::<String>::new());
    let counts = daemon.join().unwrap();
    let by_daemon = number(&summary, "/ahead/by_daemon");
    assert_eq!((by_daemon, number(&summary, "/ahead/by_itself")), (counts.added as u64, 0));
    assert!(counts.added > FILES, "long files come in ranges");
    assert!(counts.untaken_max <= 12, "{counts:?}");
    assert!(counts.added - counts.taken <= 12, "{counts:?}");
}

#[test]
fn a_daemon_that_goes_away_is_done_without() {
    for after in [0, 1, 7, 30] {
        let tree = Tree::new();
        let daemon = daemon(&tree.socket(), Manner::Dies(after));
        let (summary, wrong) = tree.cat();
        assert_eq!(wrong, Vec::<String>::new(), "after {after}");
        daemon.join().unwrap();
        assert!(number(&summary, "/ahead/by_daemon") <= after as u64);
        assert!(number(&summary, "/ahead/by_itself") > 0);
    }
}

#[test]
fn a_daemon_that_cannot_or_will_not_is_done_without() {
    for manner in [Manner::NotADisk, Manner::Full, Manner::Garbled] {
        let tree = Tree::new();
        let daemon = daemon(&tree.socket(), manner);
        let (summary, wrong) = tree.cat();
        assert_eq!(wrong, Vec::<String>::new());
        daemon.join().unwrap();
        assert_eq!(number(&summary, "/ahead/by_daemon"), 0);
        assert!(number(&summary, "/ahead/by_itself") > 0);
    }
}

#[test]
fn without_a_daemon_or_where_none_is_wanted_this_process_reads() {
    let tree = Tree::new();
    let (summary, wrong) = tree.cat();
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(number(&summary, "/ahead/by_daemon"), 0);
    // A file where the socket should be.
    File::create(tree.socket()).unwrap();
    let (summary, _) = tree.cat();
    assert_eq!(number(&summary, "/ahead/by_daemon"), 0);
    fs::remove_file(tree.socket()).unwrap();
    let name = CString::new(tree.socket().as_os_str().as_bytes()).unwrap();
    let listener = fdpass::listen(Address::Path(&name), 1).unwrap();
    let out = tree.run(&["cat-set", "t", "--no-daemon", "--json", "sum.json"]);
    assert!(out.status.success());
    assert_eq!(number(&tree.summary(), "/ahead/by_daemon"), 0);
    assert_eq!(fdpass::accept(listener.as_fd()).err(), Some(Errno::AGAIN), "nobody has connected");
}

#[test]
fn paths_of_a_pipe_come_as_the_daemon_has_them() {
    let tree = Tree::new();
    let daemon = daemon(&tree.socket(), Manner::Backwards);
    let out = tree.run(&["order", "--dirs", "t", "--ahead", "64MiB", "--json", "sum.json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut paths: Vec<&str> = std::str::from_utf8(&out.stdout).unwrap().lines().collect();
    paths.sort_unstable();
    assert_eq!(paths, (0..FILES).map(|n| format!("t/f{n:03}")).collect::<Vec<_>>());
    daemon.join().unwrap();
    let summary = tree.summary();
    assert_eq!(number(&summary, "/ahead/by_daemon"), FILES as u64);
    assert_eq!(number(&summary, "/ahead/left"), 0);
}
