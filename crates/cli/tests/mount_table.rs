//! What any user can put into the mount table and into names: a FUSE file system whose source reads like a
//! path below `/dev`, whose subtype reads like another file system's, whose mount point holds escape
//! sequences. Nothing of it is opened, nobody waits for it, and a terminal gets nothing to obey.
//!
//! The mounts are made in a mount namespace of the test's own, and nobody answers for them: whatever is asked
//! of them waits for ever.

mod common;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::SEEKLESS;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Long enough for any of these commands on a busy machine; a survey of disks takes a second or two.
const PATIENCE: Duration = Duration::from_secs(60);

const FORGED: &str = "\x1b[2J\nseekless: forged";

struct Home {
    dir: tempfile::TempDir,
    /// Source, subtype and mount point of each.
    mounts: Vec<(String, &'static str, PathBuf)>,
}

impl Home {
    /// `None`, and said so: not here.
    fn new() -> Option<Home> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            println!("skipped: mounting FUSE in a namespace of its own needs root and /dev/fuse");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let trap = dir.path().join("trap");
        // What the path of a disk's number would be, had the source been joined to a folder of sysfs.
        for file in ["dev", "size", "stat", "serial"] {
            fs::create_dir_all(&trap).unwrap();
            mknodat(CWD, trap.join(file), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
        }
        let disk = fs::read_dir("/sys/block").unwrap().flatten().next();
        let disk = disk.map_or("sda".into(), |disk| disk.file_name().to_string_lossy().into_owned());
        let trap = trap.display();
        let mounts = [
            (format!("/dev/{trap}"), "", "a"),
            (format!("/dev/../{trap}"), "mergerfs", "b"),
            (format!("/dev/{disk}"), "mergerfs", "c"),
            (format!("/dev/{disk}"), "btrfs", "d\x1b[2J\nseekless: forged"),
        ];
        let mounts = mounts.map(|(source, subtype, at)| (source, subtype, dir.path().join(at))).to_vec();
        for mount in &mounts {
            fs::create_dir(&mount.2).unwrap();
        }
        Some(Home { dir, mounts })
    }

    /// Runs a command where all of it is mounted. Ends it, and fails, if it waits.
    fn run(&self, words: &[&str]) -> Output {
        self.run_as(&[], words)
    }

    /// The same by another command.
    fn run_as(&self, by: &[&str], words: &[&str]) -> Output {
        let mut script = "set -e\n".to_string();
        for n in 0..self.mounts.len() {
            let at = 3 * n + 1;
            // Open until the command ends, and never read: the mount answers nothing.
            let fd = n + 4;
            script += &format!(
                "exec {fd}<>/dev/fuse; mount -c -i -t fuse -o \"fd={fd},rootmode=40000,user_id=65533,group_id=65533,\
                 allow_other${{{}:+,subtype=${{{}}}}}\" \"${{{at}}}\" \"${{{}}}\"\n",
                at + 1,
                at + 1,
                at + 2
            );
        }
        script += &format!("shift {}\nexec \"$@\"\n", 3 * self.mounts.len());
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]).arg(script).arg("sh");
        for (source, subtype, at) in &self.mounts {
            command.arg(source).arg(subtype).arg(at);
        }
        command.args(by).arg(&*SEEKLESS).args(words);
        command.env("SEEKLESS_STATE", self.dir.path().join("state")).env_remove("SEEKLESS_SOCKET");
        command.env("SEEKLESS_PROFILES", self.dir.path().join("profiles")).env("SEEKLESS_LOG", "debug");
        let child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let ended = thread::spawn(move || child.wait_with_output().unwrap());
        let until = Instant::now() + PATIENCE;
        while !ended.is_finished() {
            if Instant::now() > until {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                panic!("{words:?} waits for a path that a user wrote");
            }
            thread::sleep(Duration::from_millis(20));
        }
        ended.join().unwrap()
    }
}

/// What a terminal would show: no control but the ends of lines, no line of anybody else.
fn harmless(words: &[&str], output: &Output) -> String {
    for (what, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        let text = String::from_utf8_lossy(bytes);
        let obeyed = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(obeyed, None, "{words:?}, {what}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("seekless: forged")), "{words:?}, {what}: {text}");
    }
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn commands_wait_for_no_mount_and_show_its_name_escaped() {
    let Some(home) = Home::new() else { return };
    let text = harmless(&["disk", "list"], &home.run(&["disk", "list"]));
    assert!(!text.contains("forged"), "a user's mount is on none of these disks: {text}");
    let json = home.run(&["disk", "list", "--json"]);
    let disks: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let mounts = disks.as_array().unwrap().iter().flat_map(|disk| disk["mounts"].as_array().unwrap());
    let ours = home.dir.path().to_str().unwrap();
    let ours = mounts.filter(|mount| mount.as_str().unwrap().starts_with(ours)).count();
    assert_eq!(ours, 0, "{disks}");
    let text = harmless(&["doctor"], &home.run(&["doctor"]));
    assert!(text.contains("d\\x1b[2J\\nseekless: forged"), "its name is shown: {text}");
    // The daemon surveys all disks when it starts, and ends at a signal.
    let socket = home.dir.path().join(format!("d{FORGED}.sock"));
    // Nobody reads its statistics, which is a line of the log.
    let unread = home.dir.path().join(format!("unread{FORGED}"));
    mknodat(CWD, &unread, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let [at, to] = [&socket, &unread].map(|path| path.to_str().unwrap());
    let words = ["daemon", "--socket", at, "--stats-interval", "1", "--json", to];
    let timed = ["timeout", "--signal=TERM", "6"];
    let daemon = home.run_as(&timed, &words);
    let said = String::from_utf8_lossy(&daemon.stderr);
    for line in ["listening at ", "nobody reads "] {
        let line = said.lines().find(|l| l.contains(line)).unwrap_or_default();
        assert!(line.contains("\\x1b[2J\\nseekless: forged"), "{said}");
    }
    harmless(&words, &daemon);
}

#[test]
fn errors_and_logs_show_what_they_are_about_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join(format!("state{FORGED}"));
    let missing = format!("/nowhere{FORGED}\u{9b}31m\u{202e}");
    let latin = std::ffi::OsStr::from_bytes(b"/nowhere\x1b[2J\n\xff");
    for words in [
        vec!["disk", "profile", &missing],
        vec!["daemon", "status"],
        vec!["doctor"],
        vec!["disk", "tune", &missing],
    ] {
        for format in ["text", "json"] {
            let mut command = Command::new(&*SEEKLESS);
            command.args(["--log-format", format]).args(&words).env("SEEKLESS_STATE", &state);
            let output = command
                .env("SEEKLESS_LOG", format!("x={FORGED}"))
                .env_remove("SEEKLESS_SOCKET")
                .output()
                .unwrap();
            harmless(&words, &output);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("SEEKLESS_LOG") && said.contains("\\x1b[2J\\nseekless: forged"), "{said}");
        }
    }
    let output = Command::new(&*SEEKLESS).args(["disk", "profile"]).arg(latin).output().unwrap();
    harmless(&["disk", "profile"], &output);
}
