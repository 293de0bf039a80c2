//! `disk tune` through the command line, on a tree of devices made for the test: dry run, apply, apply again,
//! revert, persist, refusals.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command line alone, built beside this test with the crate's examples; built now if it is not there.
fn program() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let profile_dir = exe.parent().and_then(Path::parent).unwrap();
    let program = profile_dir.join("examples/disk");
    if !program.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "seekless-admin", "--example", "disk"]);
        if profile_dir.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success());
    }
    program
}

struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { dir: tempfile::tempdir().unwrap() };
        for (file, text) in [
            ("size", "2147483648\n"),
            ("dev", "8:0\n"),
            ("serial", "TESTDISK-1\n"),
            ("queue/rotational", "1\n"),
            // A plain file does not keep the list when the chosen one is written, as sysfs does.
            ("queue/scheduler", "[none] mq-deadline\n"),
            ("queue/nr_requests", "64\n"),
            ("queue/read_ahead_kb", "128\n"),
            ("queue/max_sectors_kb", "1280\n"),
            ("queue/max_hw_sectors_kb", "32767\n"),
            ("device/queue_depth", "1\n"),
        ] {
            let path = machine.path("sys/sdx").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(machine.path("udev")).unwrap();
        machine
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn tune(&self, args: &[&str]) -> Output {
        Command::new(program())
            .args(["disk", "tune", "/dev/sdx", "--json"])
            .arg("--sys-block")
            .arg(self.path("sys"))
            .arg("--udev-dir")
            .arg(self.path("udev"))
            .args(args)
            .env("SEEKLESS_STATE", self.path("state"))
            .env("SEEKLESS_PROFILES", self.path("profiles"))
            .output()
            .unwrap()
    }

    fn ok(&self, args: &[&str]) -> serde_json::Value {
        let out = self.tune(args);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let all: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        all[0].clone()
    }

    fn get(&self, file: &str) -> String {
        fs::read_to_string(self.path("sys/sdx").join(file)).unwrap().trim().to_string()
    }

    fn all(&self) -> Vec<String> {
        [
            "queue/scheduler",
            "device/queue_depth",
            "queue/nr_requests",
            "queue/max_sectors_kb",
            "queue/read_ahead_kb",
        ]
        .iter()
        .map(|f| self.get(f))
        .collect()
    }
}

#[test]
fn apply_and_revert_lead_back_to_the_start() {
    let m = Machine::new();
    let shipped = m.all();
    let dry = m.ok(&[]);
    assert_eq!(m.all(), shipped, "a dry run changes nothing");
    assert!(dry["profile"].as_str().unwrap().starts_with("not measured"));
    assert!(dry["tuned_mb_per_s"].as_f64() > dry["now_mb_per_s"].as_f64());
    assert!(m.ok(&["--apply"])["applied"].as_bool().unwrap());
    assert_eq!(m.all(), ["mq-deadline", "32", "64", "2048", "2048"]);
    // A setting is changed, and applied again: the first record counts.
    fs::write(m.path("sys/sdx/queue/read_ahead_kb"), "256\n").unwrap();
    m.ok(&["--apply"]);
    let back = m.ok(&["--revert"]);
    // In the tree the chosen scheduler is written without its brackets.
    assert_eq!(m.all(), ["none", "1", "64", "1280", "128"]);
    assert_eq!(back["reverted"].as_array().unwrap().len(), 4, "{back}");
    assert!(!m.path("state/tune").join("serial-TESTDISK-1.json").exists());
    let nothing = m.tune(&["--revert"]);
    assert_eq!(nothing.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("nothing to revert"));
}

#[test]
fn a_rule_is_written_and_taken_away() {
    let m = Machine::new();
    let report = m.ok(&["--persist"]);
    let rule = PathBuf::from(report["rule"].as_str().unwrap());
    let text = fs::read_to_string(&rule).unwrap();
    assert!(
        text.contains("ATTR{queue/read_ahead_kb}=\"2048\"")
            && text.contains("ATTR{queue/scheduler}=\"mq-deadline\"")
    );
    assert_eq!(m.get("queue/read_ahead_kb"), "128", "--persist alone sets nothing now");
    m.ok(&["--revert"]);
    assert!(!rule.exists());
}

#[test]
fn a_refused_value_leaves_everything_as_before() {
    let m = Machine::new();
    // A directory where the value should go: the write fails after the scheduler was set.
    let file = m.path("sys/sdx/queue/max_sectors_kb");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let out = m.tune(&["--apply"]);
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("max_sectors_kb") && said.lines().count() == 1, "{said}");
    assert_eq!(m.get("queue/scheduler"), "none");
    assert_eq!(m.get("queue/read_ahead_kb"), "128");
    assert!(!m.path("state/tune").join("serial-TESTDISK-1.json").exists());
}

#[test]
fn a_damaged_profile_is_named_and_not_used() {
    let m = Machine::new();
    fs::create_dir_all(m.path("profiles")).unwrap();
    fs::write(m.path("profiles/serial-TESTDISK-1.json"), "{\"schema\": 1, \"disk\":").unwrap();
    let report = m.ok(&[]);
    let said = report["profile"].as_str().unwrap();
    assert!(said.contains("assumed") && said.contains("truncated"), "{said}");
}

#[test]
fn wrong_uses_end_in_one_line() {
    let program = program();
    for (args, code, word) in [
        (vec!["disk", "tune", "/no/such/thing"], 5, "/no/such/thing"),
        (vec!["disk", "profile", "/no/such/thing"], 5, "/no/such/thing"),
        (vec!["disk", "profile", "/proc/self"], 2, "memory"),
    ] {
        let out = Command::new(&program).args(&args).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{said}");
    }
    let out = Command::new(&program).args(["disk", "profile", "/", "--share", "200%"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
}
