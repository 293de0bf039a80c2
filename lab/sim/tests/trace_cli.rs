//! `seekless-lab sim trace` from outside: results, determinism, and one clear line for whatever is wrong.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Parser;
use seekless_base::{Exit, Fault};
use seekless_sim::cli::{SimArgs, run};
use serde_json::Value;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: SimArgs,
}

/// Runs a command; its words are separated by blanks.
fn sim(words: &[&str]) -> Result<Exit, Fault> {
    let words = std::iter::once("sim").chain(words.iter().copied());
    run(Command::try_parse_from(words).expect("the command line parses").args)
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_string_lossy().into_owned()
    }

    fn out(&self, name: &str) -> String {
        self.dir.path().join(name).to_string_lossy().into_owned()
    }
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

const LEVELS: &str = "lru+linux:64KiB,lru+linux:128KiB";

#[test]
fn a_trace_gives_counts_by_level_and_the_same_bytes_twice() {
    let place = Place::new();
    let text: String =
        (0..2000).map(|i| format!("{}\n", if i % 5 == 0 { i * 37 % 900 } else { i })).collect();
    let trace = place.file("t.trace", text.as_bytes());
    for coordinate in ["none", "du", "pfc", "steer"] {
        let (a, b) = (place.out("a.json"), place.out("b.json"));
        for out in [&a, &b] {
            let words = [
                "trace",
                "run",
                &trace,
                "--format",
                "blocks",
                "--levels",
                LEVELS,
                "--coordinate",
                coordinate,
            ];
            assert_eq!(sim(&[&words[..], &["--json", out]].concat()).unwrap(), Exit::Ok);
        }
        assert_eq!(fs::read(&a).unwrap(), fs::read(&b).unwrap());
        let result = json(&a);
        assert_eq!(result["requests"], 2000);
        assert_eq!(result["levels"][1]["coordinate"], coordinate);
        for key in ["hits", "misses", "prefetched", "unused"] {
            assert!(result["levels"][0][key].is_u64() && result["levels"][1][key].is_u64(), "{key}");
        }
        assert!(
            result["disk"]["requests"].as_u64().unwrap() > 0
                && result["disk"]["blocks"].as_u64().unwrap() > 0
        );
        assert!(result["response"]["mean_ms"].as_f64().unwrap() > 0.0);
        assert!(result["response"]["p95_ms"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn writes_are_replayed_as_reads_or_left_out() {
    let place = Place::new();
    let text = b"0,0,8192,W,0.0\n0,16,4096,R,0.1\n0,8,4096,R,0.2\n0,800,4096,W,0.3\n0,808,4096,W,0.3\n";
    let trace = place.file("t.spc", text);
    let run = |writes: &str| {
        let (out, with) = (place.out("out.json"), format!("writes={writes}"));
        let words =
            ["trace", "run", &trace, "--levels", "lru:64KiB,lru:64KiB", "--with", &with, "--json", &out];
        sim(&words).unwrap();
        json(&out)
    };
    // Requests, and by level those that were found.
    let counts = |result: &Value| {
        [&result["requests"], &result["levels"][0]["hits"], &result["levels"][0]["misses"]]
            .map(|count| count.as_u64().unwrap())
    };
    let (as_reads, skipped, replayed) = (run("as-reads"), run("skip"), run("replay"));
    assert_eq!(counts(&as_reads), [5, 1, 5]);
    assert_eq!(counts(&skipped), [2, 0, 2]);
    assert_eq!(counts(&replayed), [2, 1, 1]);
    assert_eq!((&skipped["writes"], &as_reads["writes"]), (&Value::Null, &Value::Null));
    assert_eq!(skipped["trace"]["writes_skipped"], 3);
    let writes = &replayed["writes"];
    for (field, count) in [("requests", 3), ("blocks", 4), ("disk_requests", 3), ("disk_blocks", 4)] {
        assert_eq!(writes[field], count, "{field}");
    }
    assert!(writes["medium_s"].as_f64().unwrap() > 0.0);
    assert!(writes["response"]["max_ms"].as_f64().unwrap() > 6.0, "one exchange at least");
    assert_eq!(replayed["disk"]["blocks"], 1);
    let fault = sim(&["trace", "optimal", &trace, "--capacity", "64KiB", "--with", "writes=replay"]);
    assert!(fault.is_err_and(|fault| fault.message.contains("writes=replay")));
}

#[test]
fn compressed_files_give_what_plain_ones_give_or_a_line_that_says_why_not() {
    let place = Place::new();
    let text = b"0,8,4096,R,0.0\n0,16,4096,R,0.1\n0,8,8192,W,0.2\n";
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(text).unwrap();
    let gz = gz.finish().unwrap();
    for (name, bytes) in [("plain.spc", &text[..]), ("packed.spc.gz", &gz)] {
        let (trace, out) = (place.file(name, bytes), place.out("out.json"));
        sim(&["trace", "info", &trace, "--json", &out]).unwrap();
        assert_eq!(json(&out)["requests"], 3, "{name}");
    }
    let cut = place.file("cut.spc.gz", &gz[..gz.len() - 12]);
    let fault = sim(&["trace", "run", &cut, "--levels", LEVELS]).unwrap_err();
    assert_eq!(fault.exit, Exit::Failed);
    assert!(fault.message.contains("cut.spc.gz: line ") && fault.message.contains("cut short"), "{fault}");
}

#[test]
fn what_is_wrong_is_one_clear_line_and_no_result() {
    let place = Place::new();
    let good = place.file("good.spc", b"0,8,4096,R,0.0\n0,16,4096,R,0.1\n");
    let backwards = place.file("backwards.spc", b"0,8,4096,R,0.5\n0,16,4096,R,0.1\n");
    let negative = place.file("negative.spc", b"0,8,4096,R,0.0\n0,-16,4096,R,0.1\n");
    let mixed =
        place.file("mixed.spc", b"0,8,4096,R,0.0\n128166372003061629,usr,0,Read,7014609920,24576,41286\n");
    let empty = place.file("empty.spc", b"");
    let unknown = place.file("what.dat", b"1 2 3\n");
    let lis = place.file("list.lis", b"1 1 0 0\n");
    let missing = place.out("missing.spc");
    let directory = place.dir.path().to_string_lossy().into_owned();
    let run = |file: &str, more: &[&str]| {
        let out = place.out("never.json");
        let mut words = vec!["trace", "run", file, "--json", &out];
        words.extend(more);
        let fault = sim(&words).unwrap_err();
        assert!(!Path::new(&out).exists(), "a result was left behind: {fault}");
        assert!(!fault.message.contains('\n'), "{fault}");
        fault
    };
    for (file, more, exit, why) in [
        (&backwards, &["--levels", LEVELS][..], Exit::Failed, "line 2: the time runs backwards"),
        (&negative, &["--levels", LEVELS], Exit::Failed, "line 2: the address (LBA) `-16` is negative"),
        (&mixed, &["--levels", LEVELS], Exit::Failed, "line 2:"),
        (&empty, &["--levels", LEVELS], Exit::Failed, "no request in it"),
        (&missing, &["--levels", LEVELS], Exit::Missing, "no such file"),
        (&directory, &["--levels", LEVELS], Exit::Usage, "is a directory"),
        (&unknown, &["--levels", LEVELS], Exit::Usage, "--format"),
        (&lis, &["--levels", LEVELS, "--with", "timing=trace"], Exit::Usage, "no times"),
        (&good, &["--levels", LEVELS, "--format", "tape"], Exit::Usage, "no format is called `tape`"),
        (&good, &["--levels", "lru+linux:64KiB,lru+linux"], Exit::Usage, "level 2: `lru+linux` has no size"),
        (&good, &["--levels", "lru+linux:0"], Exit::Usage, "less than one block"),
        (&good, &["--levels", "lru:64KiB", "--coordinate", "pfc"], Exit::Usage, "nothing to coordinate"),
        (
            &good,
            &["--levels", LEVELS, "--coordinate", "magic"],
            Exit::Usage,
            "no coordinator is called `magic`",
        ),
        (&good, &["--levels", LEVELS, "--coordinate", "du,pfc"], Exit::Usage, "2 coordinators for 1 levels"),
        (&good, &["--levels", LEVELS, "--drive", "floppy"], Exit::Usage, "no drive is called `floppy`"),
        (&good, &["--levels", LEVELS, "--with", "block=1000B"], Exit::Usage, "multiple of 512"),
        (&good, &["--levels", LEVELS, "--with", "clients=0"], Exit::Usage, "clients=0"),
        (&good, &["--levels", LEVELS, "--with", "time-stretch=0"], Exit::Usage, "time-stretch=0"),
        (&good, &["--levels", LEVELS, "--with", "alpha-ms=-1"], Exit::Usage, "--with alpha-ms"),
    ] {
        let fault = run(file, more);
        assert!(fault.message.contains(why), "{file} {more:?}: {fault}");
        assert_eq!(fault.exit, exit, "{fault}");
    }
    let lenient = place.out("lenient.json");
    sim(&["trace", "run", &mixed, "--levels", LEVELS, "--lenient", "--json", &lenient]).unwrap();
    assert_eq!(json(&lenient)["trace"]["lines_skipped"], 1);
    assert_eq!(json(&lenient)["requests"], 1);
}

/// The folder with data that cannot be shipped.
fn shared(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = std::env::var_os("SEEKLESS_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let path = dir.join("traces").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not here", path.display());
    None
}

#[test]
fn real_traces_are_read_whole() {
    for (name, format, requests) in [
        ("websearch-first-minute.spc.gz", "spc", 24_783),
        ("cloudPhysicsIO.csv.xz", "cloudphysics", 113_872),
        ("OLTP.lis.zst", "lis", 914_145),
        ("multi1.trace.gz", "blocks", 15_858),
        ("cs.trace.gz", "blocks", 6_781),
        ("ajw.1week.csv.gz", "srt", 44_519),
        ("apache_logs.gz", "access-log", 0),
    ] {
        let Some(path) = shared(name) else { continue };
        let place = Place::new();
        let out = place.out("info.json");
        sim(&["trace", "info", &path.to_string_lossy(), "--format", format, "--json", &out]).unwrap();
        let got = json(&out)["requests"].as_u64().unwrap();
        if requests == 0 {
            assert!(got > 5000, "{name}: {got}");
        } else {
            assert_eq!(got, requests, "{name}");
        }
    }
}
