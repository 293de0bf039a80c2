//! `--json` without a file, or with `-`: standard output has the result and nothing else. With a file: what
//! is there and is no JSON stays.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::SEEKLESS;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn seekless(words: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(&*SEEKLESS);
    command.args(words).current_dir(folder).env("SEEKLESS_STATE", folder.join("state"));
    command.output().unwrap()
}

#[test]
fn a_server_keeps_standard_output_for_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(&*SEEKLESS);
    command.args(["serve", ".", "--listen", "127.0.0.1:0", "--json"]).current_dir(&dir);
    command.env("SEEKLESS_STATE", dir.path().join("state"));
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(server.stderr.take().unwrap()).lines();
    said.by_ref()
        .map_while(Result::ok)
        .find(|line| line.starts_with("listening on http://"))
        .expect("an address");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    let mut report = String::new();
    server.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    assert!(server.wait().unwrap().success());
    let report: Value = serde_json::from_str(&report).expect(&report);
    assert!(report["counters"]["connections"].is_u64(), "{report}");
}

#[test]
fn a_run_gives_the_statistics_of_its_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let done = seekless(&["run", "--json", "-", "--", "true"], dir.path());
    let said = String::from_utf8_lossy(&done.stderr);
    if said.contains("is neither next to") {
        return println!("skipped: the shim is not built");
    }
    let statistics: Value = serde_json::from_slice(&done.stdout).expect(&said);
    assert!(statistics["pid"].is_u64(), "{statistics}");
}

/// The daemon writes them when it has ended: what its disks counted is not gone by then.
#[test]
fn a_run_reports_the_disks_that_were_read() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run-json");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    common::forget(&file);
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report");
    let done = Command::new(&*SEEKLESS)
        .args(["run", "--include-ssd", "--json"])
        .arg(&report)
        .args(["--", "dd", "of=/dev/null", "bs=64k", "count=1", "status=none"])
        .arg(format!("if={}", file.display()))
        .env("SEEKLESS_SHIM", common::shim())
        .env("SEEKLESS_STATE", dir.path().join("state"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).expect(&said);
    if report["counters"]["needs"] == 0 {
        return println!("skipped: {} lies on a file system in memory", file.display());
    }
    let disks = report["disks"].as_array().unwrap();
    assert!(disks.iter().any(|disk| disk["requests"] == 1 && disk["reads"].as_u64() > Some(0)), "{report}");
}

#[test]
fn a_list_is_not_taken_for_the_place_of_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list");
    std::fs::write(&list, "a\nb\n").unwrap();
    for command in ["order", "cat-set"] {
        let done = seekless(&[command, "--json", "list"], dir.path());
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!((done.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("list: it exists and holds no JSON"), "{said}");
        assert_eq!(std::fs::read_to_string(&list).unwrap(), "a\nb\n");
    }
}
