//! What another user can put where Seekless looks for its own: a state folder, records in it, symlinks where
//! a file is to be written. Nothing of it is believed, signalled or followed; one line says why.

mod common;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::{Child, Command, Output};

use common::{SEEKLESS, program_of};

/// A user without rights.
const MALLORY: u32 = 65_533;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped in part: only root can give files away");
    }
    root
}

fn seekless(state: &Path, words: &[&str]) -> Output {
    Command::new(program_of(words[0]))
        .args(words)
        .env("SEEKLESS_STATE", state)
        .env_remove("SEEKLESS_SOCKET")
        .output()
        .unwrap()
}

fn one_line(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().to_string()
}

/// A process that is none of ours; ended with the test.
struct Bystander(Child);

impl Bystander {
    fn start() -> Bystander {
        Bystander(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The record of a software disk `d` that names a process, and its lock, which we hold: as if the disk were
/// up.
fn plant(state: &Path, pid: u32, started: Option<u64>) -> fs::File {
    let disk = state.join("vdisk/d");
    fs::create_dir_all(disk.join("fuse")).unwrap();
    let record = serde_json::json!({
        "name": "d", "drive": "wd-red-1tb", "size": 1 << 30, "fs": "ext4", "mount": null, "speedup": 1.0, "spread": "full",
        "chunk": 64 << 20, "scheduler": null, "read_ahead_kb": null, "max_sectors_kb": null, "queue_depth": null,
        "mount_options": null, "trace": null, "backing": "/var/tmp", "manifest": null, "seed": 1,
        "drive_label": "x", "pid": pid, "started": started, "worker_pid": pid, "device": null, "loop_number": null,
        "mount_created": false, "queue_before": [],
    });
    fs::write(disk.join("disk.json"), record.to_string()).unwrap();
    let lock = fs::File::create(state.join("vdisk/d.lock")).unwrap();
    // Waits: a program that a test beside this one is starting has our last one until it is another program.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    lock
}

/// Every command that uses the state folder says that it does not believe it.
#[test]
fn a_state_folder_of_somebody_else_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut bystander = Bystander::start();
    fs::DirBuilder::new().mode(0o777).create(at("open")).unwrap();
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o1777)).unwrap();
    let mut planted = vec![at("open")];
    if is_root() {
        fs::create_dir(at("theirs")).unwrap();
        chown(at("theirs"), Some(MALLORY), None).unwrap();
        fs::create_dir(at("real")).unwrap();
        symlink("real", at("link")).unwrap();
        lchown(at("link"), Some(MALLORY), None).unwrap();
        planted.extend([at("theirs"), at("link")]);
    }
    for state in &planted {
        let _lock = plant(state, bystander.0.id(), None);
        for words in [
            &["daemon"][..],
            &["daemon", "status"],
            &["vdisk", "down", "--name", "d"],
            &["vdisk", "down", "--all"],
            &["vdisk", "list"],
            &["vdisk", "stats", "--name", "d"],
        ] {
            let output = seekless(state, words);
            let line = one_line(&output);
            assert_eq!(output.status.code(), Some(3), "{words:?}: {line}");
            assert!(
                line.contains(state.to_str().unwrap()) && line.contains("SEEKLESS_STATE"),
                "{words:?}: {line}"
            );
        }
        assert!(bystander.lives(), "a process named in a planted record was ended");
    }
    assert!(!at("open/daemon.sock").exists());
}

/// A folder of our own may hold a record whose process has ended and whose number another has by now.
#[test]
fn a_process_that_is_no_disks_supervisor_is_not_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut bystander = Bystander::start();
    for started in [None, Some(1)] {
        let lock = plant(dir.path(), bystander.0.id(), started);
        let output = seekless(dir.path(), &["vdisk", "down", "--name", "d"]);
        let line = one_line(&output);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(
            line.contains(&format!("process {}", bystander.0.id())) && line.contains("not its supervisor"),
            "{line}"
        );
        assert!(bystander.lives());
        drop(lock);
    }
    // Without the lock its supervisor is gone; neither is the process named as its worker ended.
    let output = seekless(dir.path(), &["vdisk", "down", "--name", "d"]);
    assert!(output.status.success(), "{output:?}");
    assert!(bystander.lives());
}

#[test]
fn root_writes_through_no_planted_symlink() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("victim"), "precious").unwrap();
    symlink("victim", at("planted")).unwrap();
    lchown(at("planted"), Some(MALLORY), None).unwrap();
    let planted = at("planted");
    let planted = planted.to_str().unwrap();
    let socket = at("d.sock");
    let socket = socket.to_str().unwrap();
    for words in [
        &["doctor", "--json", planted][..],
        &["vdisk", "drives", "--json", planted],
        &["daemon", "--socket", socket, "--decisions", planted],
        &["get", "-o", planted, "http://127.0.0.1:9/x"],
    ] {
        let output = seekless(dir.path(), words);
        assert!(!output.status.success(), "{words:?}: {output:?}");
        let line = one_line(&output);
        assert!(line.contains(&format!("symlink of user {MALLORY}")), "{words:?}: {line}");
        assert_eq!(fs::read(at("victim")).unwrap(), b"precious", "{words:?}");
    }
    // Where a daemon writes its statistics at the end, it is the end that says so.
    let mut daemon =
        Command::new(&*SEEKLESS).args(["daemon", "--socket", socket, "--json", planted]).spawn().unwrap();
    while !Path::new(socket).exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
        assert!(daemon.try_wait().unwrap().is_none());
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(daemon.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
}
