//! `seekless-lab plan`, run as a person would: a small log, the formulas, and what is refused.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn plan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seekless-lab")).arg("plan").args(arguments).output().expect("starts")
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Four viewers of two files: a whole answer, and parts that go on where the last one ended.
fn log(repeat: usize) -> String {
    let mut text = String::new();
    for round in 0..repeat {
        let minute = round % 60;
        let hour = round / 60 % 24;
        for (host, path, status, bytes) in [
            ("10.0.0.1", "/a.mp4", 200, 1_048_576),
            ("10.0.0.2", "/b.mp4?t=1", 206, 524_288),
            ("10.0.0.2", "/b.mp4", 206, 524_288),
            ("10.0.0.3", "/b.mp4", 304, 0),
        ] {
            let _ = writeln!(
                text,
                "{host} - - [17/May/2015:{hour:02}:{minute:02}:03 +0000] \"GET {path} HTTP/1.1\" {status} {bytes} \"-\" \"x\""
            );
        }
    }
    text
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("written");
    path.to_string_lossy().into_owned()
}

#[test]
fn a_page_that_cannot_be_written_is_known_before_the_log_is_read() {
    let output = plan(&["--log", "/no/such/log", "--html", "/no/such/folder/plan.html"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write /no/such/folder/plan.html"), "{said}");
}

#[test]
fn a_log_is_measured_and_answered() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = write(dir.path(), "access.log", &log(100));
    let html = dir.path().join("plan.html");
    let v = json(&plan(&["--log", &path, "--memory", "1GiB", "--html", &html.to_string_lossy(), "--json"]));
    let n = |pointer: &str| {
        v.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {v}"))
    };
    assert_eq!((n("/log/requests"), n("/log/others"), n("/log/lines")), (300.0, 100.0, 400.0));
    assert_eq!(n("/popularity/files"), 2.0);
    // 1 MiB of a; b goes on for 512 KiB and 512 KiB, and by later rounds within five minutes further and
    // further.
    assert_eq!(n("/log/streams"), 101.0);
    assert_eq!(n("/log/bytes"), 100.0 * 2.0 * 1_048_576.0);
    assert_eq!(n("/working_set/bytes"), 101.0 * 1_048_576.0);
    assert_eq!(v["miss_ratio_curve"]["exact"], true);
    for way in ["shipped", "tuned", "seekless"] {
        assert!(n(&format!("/ways/{way}/disk_mb_per_s")) > 1.0);
        assert!(v["ways"][way]["command"].as_str().is_some_and(|c| c.starts_with("seekless-lab sim serve")));
    }
    assert!(n("/ways/seekless/disk_mb_per_s") > n("/ways/shipped/disk_mb_per_s"));
    let page = std::fs::read_to_string(&html).expect("a page");
    assert!(page.matches("<svg").count() == 3 && !page.contains("http://") || page.contains("w3.org"));

    // Exact: the same.
    let again = json(&plan(&["--log", &path, "--memory", "1GiB", "--with", "exact=true", "--json"]));
    for part in ["popularity", "working_set", "ways"] {
        assert_eq!(again[part], v[part], "{part}");
    }
}

/// A log says how large a file was, not in which pieces a server read it for a client on a slow link.
#[test]
fn whole_files_are_simulated_in_the_pieces_that_sockets_take() {
    let dir = tempfile::tempdir().expect("a folder");
    let films = log(100).replace(" 1048576 ", " 734003200 ");
    let path = write(dir.path(), "access.log", &films);
    let v = json(&plan(&["--log", &path, "--memory", "1GiB", "--json"]));
    for way in ["shipped", "tuned", "seekless"] {
        let command = v["ways"][way]["command"].as_str().expect("a command");
        assert!(command.contains(" --range 512KiB "), "{command}");
    }
    let rate = |way: &str| v["ways"][way]["disk_mb_per_s"].as_f64().expect("a rate");
    assert!(rate("seekless") > 2.5 * rate("shipped"), "{v}");
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(text).and_then(|()| packer.finish()).expect("packed")
}

fn xz(text: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut packer = lzma_rust2::XzWriter::new(Vec::new(), options).expect("options that fit");
    packer.write_all(text).and_then(|()| packer.finish()).expect("packed")
}

fn zstd(text: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn packed_logs_give_what_plain_ones_give_and_broken_ones_one_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = log(100);
    let about_the_log = |v: &Value| {
        let mut log = v["log"].clone();
        log["read_s"] = Value::Null;
        [log, v["popularity"].clone(), v["working_set"].clone(), v["miss_ratio_curve"].clone()]
    };
    let path = write(dir.path(), "access.log", &text);
    let plain = about_the_log(&json(&plan(&["--log", &path, "--json"])));
    for (name, packed) in [
        ("access.log.gz", gzip(text.as_bytes())),
        ("access.log.xz", xz(text.as_bytes())),
        ("access.log.zst", zstd(text.as_bytes())),
    ] {
        let path = dir.path().join(name);
        let plan_of = |bytes: &[u8], more: &[&str]| {
            std::fs::write(&path, bytes).expect("written");
            plan(&[&["--log", &path.to_string_lossy(), "--json"], more].concat())
        };
        assert_eq!(about_the_log(&json(&plan_of(&packed, &[]))), plain, "{name}");
        let mut changed = packed.clone();
        changed[packed.len() / 2] ^= 0x10;
        // Not even a lenient reader goes on behind what cannot be unpacked.
        for (broken, more) in [(&packed[..packed.len() / 2], &[][..]), (&changed, &["--lenient"])] {
            let output = plan_of(broken, more);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{name}: {said}");
            assert!(said.contains(&format!("{name}: line ")), "{said}");
            assert!(said.contains("damaged or cut short"), "{said}");
            assert!(said.lines().count() == 1 && output.stdout.is_empty(), "{said}");
        }
    }
}

#[test]
fn a_packed_log_may_come_from_standard_input() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = write(dir.path(), "access.log", &log(3));
    let packed = dir.path().join("packed");
    std::fs::write(&packed, zstd(&std::fs::read(&path).expect("read"))).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekless-lab"));
    let input = std::fs::File::open(&packed).expect("opened");
    let output = command.args(["plan", "--log", "-", "--json"]).stdin(input).output().expect("starts");
    assert_eq!(json(&output)["log"]["requests"], 9);
}

#[test]
fn lines_that_do_not_fit_stop_it_or_are_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut text = log(3);
    text.insert_str(text.find('\n').map_or(0, |i| i + 1), "garbage\n");
    let path = write(dir.path(), "access.log", &text);
    let strict = plan(&["--log", &path, "--json"]);
    assert_eq!(strict.status.code(), Some(1));
    let said = String::from_utf8_lossy(&strict.stderr).into_owned();
    assert!(said.contains("line 2") && said.lines().count() == 1 && strict.stdout.is_empty(), "{said}");
    let v = json(&plan(&["--log", &path, "--lenient", "--json"]));
    assert_eq!((&v["log"]["skipped"], &v["log"]["requests"]), (&Value::from(1), &Value::from(9)));
}

#[test]
fn what_is_no_log_or_no_question_is_refused_in_one_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let empty = write(dir.path(), "empty.log", "");
    let folder = dir.path().to_string_lossy().into_owned();
    for (arguments, exit, why) in [
        (vec!["--log", "/no/such.log"], 5, "no such file"),
        (vec!["--log", &empty], 1, "none of its 0 lines"),
        (vec!["--log", &folder], 2, "is a directory"),
        (vec!["--log", &empty, "--with", "part=1B"], 2, "part=1B"),
        (vec!["--log", &empty, "--rate", "fast"], 2, "--rate"),
        (vec!["--drive", "floppy"], 2, "no drive"),
        (vec!["--client", "2Gb/s"], 2, "faster"),
        (vec!["--with", "block=100KB"], 2, "--with block="),
        (vec!["--with", "position=-1"], 2, "position"),
        (vec!["--memory", "3B"], 2, "--memory"),
    ] {
        let output = plan(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {said}");
        assert!(said.contains(why) && output.stdout.is_empty(), "{arguments:?}: {said}");
    }
}

/// The example of Circus section 2.2, and a simulation beside the formula.
#[test]
fn the_formula_and_a_simulation_answer_the_same_question() {
    let paper =
        ["--link", "1Gb/s", "--client", "1544kb/s", "--with", "position=5,sequential=50MB/s,block=256KiB"];
    let mut arguments = paper.to_vec();
    arguments.extend(["--memory", "90MiB", "--data", "1TiB", "--json"]);
    let v = json(&plan(&arguments));
    assert_eq!(v["formula"]["disks"], 5);
    assert_eq!(v["formula"]["clients"].as_f64().map(f64::round), Some(648.0));
    let v = json(&plan(&["--link", "400Mb/s", "--data", "8GiB", "--memory", "512MiB", "--json"]));
    let n = |pointer: &str| {
        v.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {v}"))
    };
    assert!(n("/simulated/sequential/disks") >= 1.0);
    assert!(n("/simulated/circus/network_mb_per_s") > n("/simulated/sequential/network_mb_per_s"));
}
