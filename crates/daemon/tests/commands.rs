//! The commands as processes: exit statuses, signals, and nothing left behind.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

/// Timeout of every wait; not a measure of speed.
const NEVER: Duration = Duration::from_secs(30);

/// The program of `examples/`, which cargo builds beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples/seekless-daemon")
}

/// A library that can be preloaded without effect: the C library of this test.
fn harmless_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().filter_map(|l| l.split_whitespace().nth(5)).find(|p| p.contains("libc.so"));
    PathBuf::from(path.expect("tests are linked dynamically"))
}

/// A folder for the program's state and temporary files.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(args).env("SEEKLESS_STATE", self.0.path().join("state")).env("TMPDIR", self.0.path());
        command.env("SEEKLESS_SHIM", harmless_library());
        for name in ["SEEKLESS_SOCKET", "LD_PRELOAD", "XDG_RUNTIME_DIR"] {
            command.env_remove(name);
        }
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    fn run(&self, command: &[&str]) -> Output {
        self.output(&[&["run", "--"], command].concat())
    }

    /// Folders that `run` has left behind.
    fn left_behind(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.path()).unwrap().flatten();
        entries.map(|e| e.path()).filter(|p| p.to_string_lossy().contains("seekless-run-")).collect()
    }
}

fn until(what: &str, mut wish: impl FnMut() -> bool) {
    let until = Instant::now() + NEVER;
    while !wish() {
        assert!(Instant::now() < until, "never came: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn alive(pid: u32) -> bool {
    test_kill_process(Pid::from_raw(pid as i32).unwrap()).is_ok()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn run_passes_the_status_on_and_leaves_nothing() {
    let place = Place::new();
    for (command, status) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["sh", "-c", "kill -15 $$"], 143),
        (&["/nonexistent/command"], 127),
        (&["/etc/passwd"], 126),
    ] {
        let out = place.run(command);
        assert_eq!(out.status.code(), Some(status), "{command:?}: {}", text(&out.stderr));
    }
    assert_eq!(place.left_behind(), Vec::<PathBuf>::new());
}

#[test]
fn run_sets_the_command_up() {
    let place = Place::new();
    let mut command =
        place.command(&["run", "--", "sh", "-c", "echo $LD_PRELOAD; echo $SEEKLESS_SOCKET; cat"]);
    // A harmless library that is preloaded already.
    let existing = harmless_library();
    let mut child =
        command.env("LD_PRELOAD", &existing).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"passed through\n").unwrap();
    let out = child.wait_with_output().unwrap();
    let out = text(&out.stdout);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], format!("{0}:{0}", existing.display()), "what was there stays in front");
    assert!(lines[1].ends_with("/daemon.sock"), "{out}");
    assert_eq!(lines[2], "passed through");
}

/// The daemon opens the FIFO every few hundredths of a second and once more at its end, and never waits for a
/// reader.
#[test]
fn a_fifo_that_nobody_reads_does_not_hold_a_daemon_up() {
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
    let place = Place::new();
    let fifo = place.0.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let start = |interval: &[&str]| {
        let args = [&["daemon", "--json", fifo.to_str().unwrap()], interval].concat();
        let daemon = place.command(&args).stderr(Stdio::null()).spawn().unwrap();
        until("an answer", || place.output(&["daemon", "status"]).status.success());
        daemon
    };
    let ends = |mut daemon: Child| {
        signal(&daemon, Signal::TERM);
        until("its end", || daemon.try_wait().unwrap().is_some());
        assert_eq!(daemon.wait().unwrap().code(), Some(0));
    };
    let daemon = start(&["--stats-interval", "0.02"]);
    thread::sleep(Duration::from_millis(200));
    ends(daemon);
    ends(start(&[]));
    // A reader gets all of it; a pipe has room for more.
    let daemon = start(&[]);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let mut reader = fs::File::from(rustix::fs::open(&fifo, flags, Mode::empty()).unwrap());
    ends(daemon);
    let mut report = String::new();
    reader.read_to_string(&mut report).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["pid"].is_u64(), "{report}");
}

#[test]
fn run_uses_a_daemon_that_runs_and_leaves_it_running() {
    let place = Place::new();
    let mut daemon = place.command(&["daemon", "--mode", "serialise"]).stderr(Stdio::null()).spawn().unwrap();
    let socket = place.0.path().join("state/daemon.sock");
    until("the socket", || socket.exists());
    until("an answer", || place.output(&["daemon", "status"]).status.success());
    let out = place.run(&["sh", "-c", "echo $SEEKLESS_SOCKET"]);
    assert_eq!(text(&out.stdout).trim(), socket.to_str().unwrap());
    assert!(text(&out.stderr).contains("mode serialise"), "{}", text(&out.stderr));

    let status = place.output(&["daemon", "status", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&report["mode"], &report["pid"]), (&"serialise".into(), &daemon.id().into()));

    signal(&daemon, Signal::TERM);
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
    assert_eq!(place.output(&["daemon", "status"]).status.code(), Some(5), "missing");
}

/// Starts a command under `run` that prints its own and its daemon's folder, and waits for these lines.
fn started(place: &Place, script: &str) -> (Child, BufReader<std::process::ChildStdout>, Vec<String>) {
    let script = format!("echo $$; echo $SEEKLESS_SOCKET; echo $PPID; {script}");
    let mut child =
        place.command(&["run", "--", "sh", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let lines = (0..3)
        .map(|_| {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            line.trim().to_string()
        })
        .collect();
    (child, out, lines)
}

#[test]
fn signals_reach_the_command_once() {
    let place = Place::new();
    let (mut child, mut out, _) = started(
        &place,
        "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.05; done",
    );
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    signal(&child, Signal::USR1);
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "usr1\n");
    signal(&child, Signal::TERM);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "term\n");
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(place.left_behind(), Vec::<PathBuf>::new());
}

#[test]
fn the_daemon_ends_with_a_run_that_is_killed() {
    let place = Place::new();
    let (mut child, _out, lines) = started(&place, "exec sleep 60");
    let socket = Path::new(&lines[1]);
    assert!(socket.exists());
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    until("the daemon's end", || !socket.exists());
    until("its folder's end", || place.left_behind().is_empty());
    // The command itself lives on, as under any killed parent; the test must end it.
    let command: u32 = lines[0].parse().unwrap();
    assert!(alive(command));
    kill_process(Pid::from_raw(command as i32).unwrap(), Signal::KILL).unwrap();
}

/// As on a disk that fills up while the daemon runs.
#[test]
fn statistics_that_cannot_be_written_end_no_daemon() {
    let place = Place::new();
    let folder = place.0.path().join("full");
    fs::create_dir(&folder).unwrap();
    let json = folder.join("stats.json");
    let args = ["daemon", "--stats-interval", "0.02", "--json", json.to_str().unwrap()];
    let mut daemon = place.command(&args).stderr(Stdio::null()).spawn().unwrap();
    until("the first statistics", || json.exists());
    fs::remove_dir_all(&folder).unwrap();
    thread::sleep(Duration::from_millis(200));
    assert!(place.output(&["daemon", "status"]).status.success());
    signal(&daemon, Signal::TERM);
    assert_eq!(daemon.wait().unwrap().code(), Some(1), "those of its end are lost");
}

#[test]
fn wrong_command_lines_are_one_clear_line() {
    let place = Place::new();
    for (args, status, says) in [
        (&["daemon", "--prefetch", "1B"][..], 2, "out of range"),
        (&["daemon", "--prefetch", "2M"], 2, "ambiguous"),
        (&["daemon", "--mode", "fast"], 2, "serialise"),
        (&["daemon", "--order", "random"], 2, "sweep"),
        (&["daemon", "--socket-mode", "999"], 2, "octal"),
        (&["run", "--shim", "/nowhere.so", "--", "true"], 5, "/nowhere.so"),
        (&["run", "--shim", "/etc/passwd", "--", "true"], 2, "not a shared library"),
        (&["daemon", "--size-max", "1"], 2, "(step-size) to 4GiB"),
        (&["release", "/", "--socket", "/nowhere.sock"], 5, "none keeps a file open"),
        (&["run", "--prefetch", "3", "--", "true"], 2, "--prefetch 3B is out of range"),
        (&["prove", "--for", "100s"], 2, "four blocks"),
        (&["daemon", "status", "--socket", "/nowhere.sock"], 5, "/nowhere.sock"),
        (&["doctor", "--pid", "2147483000"], 5, "2147483000"),
    ] {
        let out = place.output(args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn status_names_the_daemon_of_a_run() {
    let place = Place::new();
    let out = place.output(&["daemon", "status"]);
    assert_eq!(out.status.code(), Some(5));
    assert!(text(&out.stderr).trim_end().ends_with("start one with `seekless daemon`"), "there is no run");
    let mut run = place.command(&["run", "--", "sleep", "60"]).stderr(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    until("the daemon of the run is named", || {
        said = text(&place.output(&["daemon", "status"]).stderr);
        said.contains("--socket")
    });
    let socket = said.trim_end().rsplit("--socket ").next().unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    until("it answers", || place.output(&["daemon", "status", "--socket", socket]).status.success());
    signal(&run, Signal::TERM);
    run.wait().unwrap();
    assert!(!text(&place.output(&["daemon", "status"]).stderr).contains("--socket"), "it has ended");
}

#[test]
fn statistics_are_written_whole() {
    let place = Place::new();
    let json = place.0.path().join("stats.json");
    let out = place.output(&["run", "--json", json.to_str().unwrap(), "--mode", "track", "--", "true"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["mode"], "track");
    assert!(report["counters"]["connections"].as_u64().unwrap() >= 1);
}

#[test]
fn a_decision_log_ends_with_its_last_line_whatever_ends_the_daemon() {
    for number in [Signal::TERM, Signal::INT] {
        let place = Place::new();
        let log = place.0.path().join("decisions");
        let socket = place.0.path().join("state/daemon.sock");
        let mut daemon =
            place.command(&["daemon", "--decisions"]).arg(&log).stderr(Stdio::null()).spawn().unwrap();
        until("the daemon listens", || socket.exists());
        until("it answers", || place.output(&["daemon", "status"]).status.success());
        signal(&daemon, number);
        assert!(daemon.wait().unwrap().success());
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.lines().last(), Some("# end, 0 lines left out"), "{number:?}: {text}");
    }
}

#[test]
fn the_doctor_knows_who_is_hooked() {
    let place = Place::new();
    let out = place.output(&["doctor", "--pid", &std::process::id().to_string(), "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((out.status.code(), &report["hooked"]), (Some(1), &false.into()));
    let kinds: Vec<&str> =
        report["findings"].as_array().unwrap().iter().filter_map(|f| f["kind"].as_str()).collect();
    assert!(kinds.contains(&"not_preloaded") && kinds.contains(&"no_daemon"), "{kinds:?}");
    let machine = place.output(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&machine.stdout).unwrap();
    assert!(report["disks"].is_array() && report["kernel"].is_string());
}
