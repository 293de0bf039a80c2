//! A folder that is a mount of its own, and `seekless watch` over it. Nothing stays after the test, whatever
//! happens.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use rustix::process::{Pid, Signal, kill_process};
use seekless_daemon::{StatusReport, WatchReport};
use seekless_frontend::control;
use seekless_kernel::fanotify::{Group, Scope};
use seekless_kernel::residency::cachestat;

/// Timeout of every wait: not a measure of speed, only the difference between slow and never.
pub const NEVER: Duration = Duration::from_secs(60);

/// The commands of this crate, built with its tests.
pub fn program() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    deps.parent().unwrap().parent().unwrap().join("examples/seekless-daemon")
}

/// A folder mounted on itself.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// `None`, with a message, if this is not possible here.
    pub fn new() -> Option<Place> {
        let beside = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let dir = tempfile::tempdir_in(beside).unwrap();
        if let Err(error) = rustix::mount::mount_bind(dir.path(), dir.path()) {
            seekless_testing::skip::skipped(format!("a bind mount needs root ({error})"));
            return None;
        }
        let place = Place { dir };
        // A temporary mark of the test's own: does this file system raise such events?
        match Group::new().and_then(|group| group.watch(place.path(), Scope::Mount)) {
            Ok(()) => Some(place),
            Err(why) => {
                println!("skipped: no pre-content events here ({why:?})");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A file of this many bytes, not in memory, and its content.
    pub fn cold(&self, name: &str, bytes: usize) -> (PathBuf, Vec<u8>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let seed = name.bytes().fold(bytes as u64, |a, b| a.wrapping_mul(31).wrapping_add(u64::from(b)));
        let content: Vec<u8> = (0..bytes as u64 / 8 + 1)
            .flat_map(|i| (i.wrapping_add(seed)).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
            .take(bytes)
            .collect();
        let mut file = File::create(&path).unwrap();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        drop(file);
        evict(&path);
        (path, content)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Evicts a file.
pub fn evict(path: &Path) {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let len = file.metadata().unwrap().len();
    assert_eq!(cachestat(file.as_fd(), 0, len).unwrap().cached, 0, "pages of {} stay", path.display());
}

/// `seekless watch`, running.
pub struct Watching {
    pub supervisor: Child,
    pub socket: PathBuf,
    stderr: BufReader<ChildStderr>,
    state: tempfile::TempDir,
}

impl Watching {
    pub fn start(dirs: &[&Path], options: &[&str]) -> Watching {
        let state = tempfile::tempdir().unwrap();
        let socket = state.path().join("d.sock");
        // Read-ahead depends on timing; only its own test wants it.
        let ahead = if options.contains(&"--ahead") { &[][..] } else { &["--ahead", "off"] };
        // And the counters depend on the prefetch size.
        let size = if options.contains(&"--prefetch") { &[][..] } else { &["--prefetch", "2MiB"] };
        let mut supervisor = Command::new(program())
            .arg("watch")
            .args(dirs)
            .args(["--include-ssd", "--json"])
            .arg(state.path().join("end.json"))
            .arg("--socket")
            .arg(&socket)
            .args(options)
            .args(ahead)
            .args(size)
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(supervisor.stderr.take().unwrap());
        let mut watching = Watching { supervisor, socket, stderr, state };
        for _ in dirs {
            let line = watching.line();
            assert!(line.contains("watching"), "{line}");
        }
        watching.until("the socket", |_| true);
        watching
    }

    /// The next line on its standard error.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    pub fn status(&self) -> Option<StatusReport> {
        control::status(&self.socket).ok().map(|(_, report)| report)
    }

    pub fn watch(&self) -> WatchReport {
        self.until("a status", |s| s.watch.is_some()).watch.unwrap()
    }

    /// Waits until the status is as wanted.
    pub fn until(&self, what: &str, wish: impl Fn(&StatusReport) -> bool) -> StatusReport {
        let until = Instant::now() + NEVER;
        loop {
            let status = self.status();
            if let Some(status) = status.as_ref().filter(|s| wish(s)) {
                return status.clone();
            }
            assert!(Instant::now() < until, "never came: {what}; {status:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn worker(&self) -> i32 {
        self.until("a status", |_| true).pid as i32
    }

    /// Interrupts it. Returns the exit status and the last statistics.
    pub fn end(mut self) -> (i32, StatusReport) {
        signal(self.supervisor.id() as i32, Signal::INT);
        let status = wait(&mut self.supervisor);
        let text = fs::read_to_string(self.state.path().join("end.json")).unwrap();
        (status, serde_json::from_str(&text).unwrap())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // Its worker goes with it.
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
    }
}

pub fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Whether a process with this id exists and is alive.
pub fn alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next())
        .is_some_and(|state| !"ZX".contains(state))
}

/// Waits for a child's end. Returns its exit code.
pub fn wait(child: &mut Child) -> i32 {
    let until = Instant::now() + NEVER;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        assert!(Instant::now() < until, "process {} does not end", child.id());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The output of a program, if it can be started.
pub fn output_of(command: &mut Command) -> Option<Vec<u8>> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut bytes = Vec::new();
    child.stdout.take()?.read_to_end(&mut bytes).ok()?;
    child.wait().ok()?.success().then_some(bytes)
}
