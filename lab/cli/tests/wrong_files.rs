//! Files that cannot be what a command needs: one line on standard error that names the file and says what to
//! do, the documented status, and nothing on standard output.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{SEEKLESS, SEEKLESS_LAB, program_of};

/// Commands that read a file; `@` is its place.
const READERS: &[&str] = &[
    "plan --log @",
    "sim replay @",
    "sim trace info --format spc @",
    "sim trace run --levels lru:1MiB --format spc @",
    "sim trace optimal --capacity 1MiB --format spc @",
    "run --sim @",
    "load replay @",
    "load catalogue --manifest @",
    "load export --manifest @",
    "load closed --url http://127.0.0.1:1/ --manifest @",
    "load closed --url https://127.0.0.1:1/ --cacert @",
    "get https://127.0.0.1:1/x --retries 0 --cacert @",
];

/// Commands that write a result; `@` is the file.
const WRITERS: &[&str] = &[
    "plan --json @",
    "plan --html @",
    "sim serve --json @",
    "sim node --json @",
    "sim circus --json @",
    "sim pfc-table --json @",
    "sim replay x --json @",
    "sim trace info x --json @",
    "list --json @",
    "compare x y --json @",
    "statements --records results --json @",
    "load catalogue --json @",
    "load catalogue --out @",
    "load export --out @",
    "vdisk list --json @",
    "vdisk drives --json @",
    "disk list --json @",
    "get http://127.0.0.1:1/x --json @",
    "order . --json @",
    "doctor --json @",
    "top --json @",
    "prove --json @",
    "prove --html @",
    "try / --html @",
];

/// The program that has the command.
fn program(words: &str) -> Command {
    Command::new(program_of(words.split(' ').next().unwrap_or_default()))
}

fn run(mut command: Command, words: &str, file: &Path) -> Output {
    let file = file.to_str().unwrap();
    command.args(words.split(' ').map(|word| if word == "@" { file } else { word }));
    command.output().unwrap()
}

/// Checks the status, and that one line names the file and what to do about it.
fn refused(words: &str, file: &Path, output: &Output, statuses: &[i32]) {
    let said = String::from_utf8_lossy(&output.stderr);
    let status = output.status.code().unwrap();
    assert!(statuses.contains(&status), "{words}: status {status}: {said}");
    assert!(said.lines().count() == 1 && output.stdout.is_empty(), "{words}: {said}");
    assert!(said.contains(file.to_str().unwrap()), "{words}: which file? {said}");
    let advises = ["; ", "(--lenient", "is it really"].iter().any(|part| said.contains(part));
    assert!(advises, "{words}: what to do? {said}");
}

#[test]
fn files_that_are_missing_folders_empty_or_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let (empty, binary) = (dir.path().join("empty"), dir.path().join("binary"));
    std::fs::write(&empty, "").unwrap();
    std::fs::write(&binary, [0xff, 0x00, 0xfe, b'\n'].repeat(500)).unwrap();
    for words in READERS {
        for (file, statuses) in [
            (dir.path().join("missing"), &[5][..]),
            (empty.join("below-a-file"), &[5]),
            (dir.path().to_path_buf(), &[2]),
            (empty.clone(), &[1, 2]),
            (binary.clone(), &[1, 2]),
        ] {
            refused(words, &file, &run(program(words), words, &file), statuses);
        }
    }
}

#[test]
fn folders_of_runs_without_results() {
    let dir = tempfile::tempdir().unwrap();
    let of = |words: &str, file: &Path, status| {
        refused(words, file, &run(program(words), words, file), &[status]);
    };
    for words in ["compare @ @", "report @", "record @"] {
        of(words, dir.path(), 5);
        of(words, &dir.path().join("missing"), 5);
    }
    of("statements --records @", &dir.path().join("missing"), 5);
    std::fs::write(dir.path().join("results.json"), "{").unwrap();
    for words in ["compare @ @", "report @", "record @"] {
        of(words, dir.path(), 2);
    }
}

#[test]
fn a_file_that_the_user_may_not_read() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let shut = dir.path().join("shut");
    std::fs::write(&shut, "x").unwrap();
    std::fs::set_permissions(&shut, PermissionsExt::from_mode(0o000)).unwrap();
    for words in READERS {
        let mut command = program(words);
        if rustix::process::geteuid().is_root() {
            // nobody, which must be able to reach the program.
            command.uid(65_534).gid(65_534).current_dir("/");
            if program(words).arg("--version").uid(65_534).gid(65_534).output().is_err() {
                return println!("skipped: nobody");
            }
        }
        refused(words, &shut, &run(command, words, &shut), &[3]);
    }
}

#[test]
fn a_result_that_cannot_be_written_is_said_before_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("no-such-folder/result");
    for words in WRITERS {
        refused(words, &file, &run(program(words), words, &file), &[1]);
    }
    // Into a folder that is there, with nothing left behind where the work then fails.
    let file = dir.path().join("result");
    let output = run(program("compare"), "compare x y --json @", &file);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn numbers_and_units_that_an_option_does_not_take() {
    for words in [
        "plan --memory -5",
        "plan --memory 5parsecs",
        "plan --disks -1",
        "plan --rate 5parsecs --log @",
        "sim serve --memory -1GiB",
        "sim serve --with workers=-1",
        "sim node --with memory=-1",
        "sim circus --with time=-1",
        "sim trace run --levels lru:1parsec gen:oltp",
        "sim trace optimal --capacity -1MiB @",
        "sim replay --with memory=5parsecs @",
        "run --sim --threads -1 closed-loop",
        "load closed --clients -1",
        "load closed --range 5parsecs",
        "load closed --speedup -1",
        "vdisk up --name x --size -1GiB",
        "vdisk up --name x --size 5parsecs",
        "disk profile / --share -1",
        "serve --rate -1 .",
        "serve --bound head-timeout=-1s .",
        "serve --stall-timeout -1 .",
        "daemon --share 2",
        "daemon --budget -1",
        "get http://127.0.0.1:1/x --retries -1",
        "order --ahead -1MiB .",
        "top --json --interval -1",
        "try --for -1s .",
    ] {
        let output = run(program(words), words, Path::new("/no/such"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(said.lines().count() == 1 && output.stdout.is_empty(), "{words}: {said}");
    }
}

/// No program with a file set asks `serve`, so its share is no option of it; those that are asked have it.
#[test]
fn only_commands_that_file_sets_ask_take_their_share() {
    for (command, takes) in [("serve", false), ("daemon", true), ("run", true), ("sim serve", true)] {
        let words: Vec<&str> = command.split(' ').chain(["--share", "x"]).collect();
        // `run` is a command of both programs.
        let of_laboratory = words[0] == "sim";
        let program = if of_laboratory { SEEKLESS_LAB.into() } else { SEEKLESS.clone() };
        let said = Command::new(program).args(words).output().unwrap();
        let said = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.contains("invalid value 'x' for '--share <SHARE>'"), takes, "{command}: {said}");
    }
}
