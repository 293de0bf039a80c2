//! `seekless-lab sim`, run as a person would, and through `seekless`, which starts it.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{SEEKLESS, SEEKLESS_LAB};
use serde_json::Value;

fn seekless(words: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(SEEKLESS_LAB);
    command.args(words).current_dir(folder).env("SEEKLESS_STATE", folder.join("state"));
    command.output().unwrap()
}

#[test]
fn a_simulation_without_seekless_takes_no_options_of_it() {
    let dir = tempfile::tempdir().unwrap();
    for option in [["--prefetch", "4MiB"], ["--ahead", "on"], ["--constant", "nosuch=1"]] {
        let short = ["sim", "serve", "--library", "64MiB", "--clients", "2", "--duration", "11s"];
        let done = seekless(&[&short[..], &option].concat(), dir.path());
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{option:?}: {said}");
        assert!(said.contains("add --mode both or a --preset"), "{option:?}: {said}");
        let auto = [&short[..], &["--preset", "auto", "--json"]].concat();
        let done: Value = serde_json::from_slice(&seekless(&auto, dir.path()).stdout).unwrap();
        assert_eq!(done["engines"].as_array().map(Vec::len), Some(1), "a preset means that it is there");
    }
}

#[test]
fn seekless_starts_the_laboratory_where_it_is_and_says_how_to_get_it_where_not() {
    let run = |program: &Path, words: &[&str]| {
        Command::new(program).args(words).env("PATH", "/nowhere").output().unwrap()
    };
    let own = |words: &[&str]| Command::new(SEEKLESS_LAB).args(words).output().unwrap();
    for (old, new) in [
        (
            &["sim", "trace", "info", "--json", "gen:oltp"][..],
            &["sim", "trace", "info", "--json", "gen:oltp"][..],
        ),
        (&["lab", "list"], &["list"]),
        (&["vdisk", "drives", "--json"], &["vdisk", "drives", "--json"]),
        (&["plan", "--help"], &["plan", "--help"]),
        (&["load", "--nosuch"], &["load", "--nosuch"]),
    ] {
        let (old, new) = (run(&SEEKLESS, old), own(new));
        assert_eq!((old.status, &old.stdout, &old.stderr), (new.status, &new.stdout, &new.stderr));
    }
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("seekless");
    std::fs::copy(&*SEEKLESS, &alone).unwrap();
    let done = run(&alone, &["sim", "serve", "--json"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!((done.status.code(), said.lines().count(), done.stdout.len()), (Some(5), 1, 0), "{said}");
    assert!(said.contains("`seekless-lab sim` is not installed: install the package seekless-lab"), "{said}");
}
