//! `seekless cat-set` and `seekless order --ahead` where a real daemon reads the files, and where it is
//! killed meanwhile: every file comes whole, and once.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Daemon, SEEKLESS};

const FILES: usize = 24;

/// Every sixth is longer than what is read at a time.
fn content(n: usize) -> Vec<u8> {
    let size = if n.is_multiple_of(6) { 6 << 20 } else { 30_000 };
    (0..size).map(|i| (i * 37 + n * 11) as u8).collect()
}

/// A folder with the files in `t`, none of which is in memory.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(dir.path().join("t")).unwrap();
    for n in 0..FILES {
        let path = dir.path().join(format!("t/f{n:02}"));
        fs::write(&path, content(n)).unwrap();
        common::forget(&path);
    }
    dir
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(&*SEEKLESS);
    command.args(args).args(["--json", "sum.json"]).current_dir(dir).stdin(Stdio::null());
    command.env("SEEKLESS_SOCKET", dir.join("daemon.sock"));
    command
}

/// A long file of a stream counts by the ranges it is read in.
fn read_by_the_daemon(dir: &Path) -> u64 {
    let text = fs::read(dir.join("sum.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&text).unwrap();
    summary.pointer("/ahead/by_daemon").and_then(serde_json::Value::as_u64).unwrap()
}

/// The stream has every file whole.
fn check_stream(dir: &Path, stream: &[u8]) {
    fs::write(dir.join("stream.tar"), stream).unwrap();
    let listed = Command::new("tar").args(["-tf", "stream.tar"]).current_dir(dir).output().unwrap();
    assert!(listed.status.success());
    let names = String::from_utf8(listed.stdout).unwrap();
    let files: Vec<&str> = names.lines().filter(|name| !name.ends_with('/')).collect();
    assert_eq!((files.len(), files.iter().collect::<BTreeSet<_>>().len()), (FILES, FILES), "each once");
    fs::create_dir(dir.join("out")).unwrap();
    let extract = ["-xf", "stream.tar", "-C", "out"];
    assert!(Command::new("tar").args(extract).current_dir(dir).status().unwrap().success());
    for n in 0..FILES {
        assert!(fs::read(dir.join(format!("out/t/f{n:02}"))).unwrap() == content(n), "f{n:02}");
    }
}

#[test]
fn a_stream_is_read_by_the_daemon_and_holds_every_file_whole() {
    let dir = tree();
    let daemon = Daemon::start(dir.path(), &[]);
    let out = command(dir.path(), &["cat-set", "t"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    check_stream(dir.path(), &out.stdout);
    assert!(read_by_the_daemon(dir.path()) >= FILES as u64);
    let status = daemon.status().unwrap();
    assert!(status.to_string().contains("file_sets"), "{status}");
}

#[test]
fn a_daemon_killed_meanwhile_loses_no_file_of_a_stream() {
    let dir = tree();
    let mut daemon = Daemon::start(dir.path(), &[]);
    // A small window: most of the files are still to be read when the daemon ends.
    let mut child = command(dir.path(), &["cat-set", "--ahead", "1MiB", "t"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut from = child.stdout.take().unwrap();
    let mut stream = vec![0; 256 << 10];
    from.read_exact(&mut stream).unwrap();
    daemon.kill();
    from.read_to_end(&mut stream).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    check_stream(dir.path(), &stream);
}

#[test]
fn a_list_comes_whole_and_once_from_the_daemon() {
    let dir = tree();
    let _daemon = Daemon::start(dir.path(), &[]);
    let out = command(dir.path(), &["order", "--dirs", "t", "--ahead", "16MiB"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let mut paths: Vec<&str> = text.lines().collect();
    paths.sort_unstable();
    assert_eq!(paths, (0..FILES).map(|n| format!("t/f{n:02}")).collect::<Vec<_>>());
    assert_eq!(read_by_the_daemon(dir.path()), FILES as u64);
}
