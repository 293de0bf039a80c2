//! `seekless-lab run --sim`: the same bytes twice, and with one run or two at a time.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const SERVED: &str = r#"
title = "Two arms, two sizes"
memory = "64MiB"
[library]
times_memory = 10
[[disk]]
drive = "wd-red-1tb"
size = "1GiB"
[load]
kind = "closed"
clients = 20
range = "512KiB"
warmup_s = 2
duration_s = 4
[[arm]]
name = "as shipped"
server = "nginx"
fixed = true
[[arm]]
name = "Seekless"
server = "builtin"
mode = "both"
order = "sweep"
ahead = true
[axis]
label = "prefetch size"
knobs = ["prefetch"]
values = ["1MiB", "2MiB"]
[[check]]
name = "serves something"
arm = "Seekless"
of = "min"
is = ">"
target = 0
"#;

const SESSIONS: &str = r#"
title = "Sessions"
memory = "256MiB"
[library]
videos = 200
[[disk]]
drive = "wd-red-1tb"
size = "4GiB"
[load]
kind = "search"
rate = 30
rate_max = 120
max_failed = 0
precision = 0.3
warmup_s = 20
duration_s = 30
[[arm]]
name = "a thread a viewer"
server = "builtin"
[[arm]]
name = "Seekless"
server = "builtin"
mode = "both"
order = "sweep"
ahead = true
prefetch = "2MiB"
[[check]]
name = "serves something"
metric = "failure_free_mb_s"
arm = "Seekless"
is = ">"
target = 0
"#;

/// `results.json` of one run, what the machine and the clock put into it apart.
fn run(dir: &Path, scenario: &str, threads: &str, out: &str) -> String {
    let out = dir.join(out);
    let output = Command::new(env!("CARGO_BIN_EXE_seekless-lab"))
        .args(["run", &dir.join(scenario).to_string_lossy(), "--sim", "--threads", threads, "--out"])
        .arg(&out)
        .output()
        .expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(out.join("results.json")).expect("results");
    let mut results: Value = serde_json::from_str(&text).expect("JSON");
    let there = results.as_object_mut().and_then(|all| all.remove("environment"));
    assert!(there.is_some(), "the machine is told in one place");
    results.to_string()
}

#[test]
fn the_same_bytes_twice_and_with_one_run_or_two_at_a_time() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in [("served.toml", SERVED), ("sessions.toml", SESSIONS)] {
        std::fs::write(dir.path().join(name), text).expect("written");
        let first = run(dir.path(), name, "1", "first");
        assert!(first.contains("\"mb_s\"") && first.len() > 2000, "{first}");
        assert_eq!(first, run(dir.path(), name, "1", "again"), "{name}: twice");
        assert_eq!(first, run(dir.path(), name, "2", "both"), "{name}: one and two at a time");
    }
}

#[test]
fn a_figure_of_downloads_is_the_same_with_one_thread_and_two() {
    let figure = |threads: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_seekless-lab"))
            .args(["sim", "circus", "--load", "10,40", "--with", "size=16MiB,time=60", "--json", "-"])
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .expect("starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let one = figure("1");
    assert!(one.len() > 500);
    assert_eq!(one, figure("2"));
}
