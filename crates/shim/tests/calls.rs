//! Each intercepted call, in a small program of its own: the results with and without the shim are the same,
//! the daemon is asked for exactly the bytes that were not resident, and both hold in a constructor that runs
//! before the shim's.

mod support;

use std::path::Path;

use seekless_wire::Call;
use support::fake::{Fake, Seen};
use support::{ColdFile, FILE_BYTES, compile, folder, hooked, plain, run, source};

/// Runs a snippet with and without the shim, as a program and in a constructor. Expects these needs in this
/// order, at least once, and no others.
fn check(name: &str, expected: &[(Call, u64, u64)]) {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let program = folder.path().join(name);
    if compile(&source("snippets", name), &program, &[]).is_none() {
        return;
    }
    let daemon = Fake::serving(folder.path());
    let without = run_on(&file, plain(&program));
    let with = run_on(&file, hooked(&program, &daemon.path, None));
    assert_eq!(with, without, "{name}");
    assert_needs(name, &daemon.needs(), expected);
    if !expected.is_empty() {
        daemon.clear();
        // Now everything is resident: straight through.
        let mut again = hooked(&program, &daemon.path, None);
        again.arg(&file.path);
        let _kept = file.keep();
        assert_eq!(run(again), without, "{name}, resident");
        assert_needs(name, &daemon.needs(), &[]);
    }

    let (early, host) = (folder.path().join("early.so"), folder.path().join("host"));
    compile(&source("snippets", name), &early, &["-DEARLY", "-shared", "-fPIC"]).unwrap();
    compile(&source("hardship", "nothing"), &host, &[]).unwrap();
    let mut command = plain(&host);
    command.env("LD_PRELOAD", &early);
    let without = run_on(&file, command);
    assert!(without.stdout.contains("early:") || name == "read_chk_overflow", "{without:?}");
    daemon.clear();
    let with = run_on(&file, hooked(&host, &daemon.path, Some(&early)));
    assert_eq!(with, without, "{name} in a constructor");
    assert_needs(name, &daemon.needs(), expected);
}

fn run_on(file: &ColdFile, mut command: std::process::Command) -> support::Outcome {
    assert!(file.chill(), "the file does not go cold");
    command.arg(&file.path);
    run(command)
}

fn assert_needs(name: &str, seen: &[Seen], expected: &[(Call, u64, u64)]) {
    let seen: Vec<_> = seen.iter().map(|s| (s.call, s.offset, s.length)).collect();
    assert_eq!(seen, expected, "{name}: what the daemon was asked");
}

macro_rules! calls {
    ($($name:ident: [$($call:ident($offset:expr, $length:expr)),*];)+) => {$(
        #[test]
        fn $name() {
            check(stringify!($name), &[$((Call::$call, $offset, $length)),*]);
        }
    )+};
}

calls! {
    // The last call fails because of its buffer, after the shim has checked: its page is requested too.
    read: [Read(65_536, 100_000), Read(0, 10)];
    underscore_read: [Read(65_536, 100_000)];
    read_chk: [Read(65_536, 100_000)];
    read_chk_overflow: [];
    pread: [Pread(131_072, 300_000)];
    pread64: [Pread(131_072, 300_000)];
    underscore_pread64: [Pread(131_072, 300_000)];
    pread_chk: [Pread(131_072, 300_000)];
    pread64_chk: [Pread(131_072, 300_000)];
    readv: [Readv(65_536, 100_000)];
    preadv: [Preadv(131_072, 300_000)];
    preadv64: [Preadv(131_072, 300_000)];
    preadv2: [Preadv2(131_072, 300_000)];
    preadv64v2: [Preadv2(131_072, 300_000)];
    preadv2_cursor: [Preadv2(65_536, 100_000)];
    preadv2_nowait: [];
    sendfile: [Sendfile(131_072, 300_000)];
    sendfile64: [Sendfile(131_072, 300_000)];
    sendfile_cursor: [Sendfile(65_536, 100_000)];
    splice: [Splice(131_072, 50_000)];
    copy_file_range: [CopyFileRange(131_072, 300_000)];
    mmap: [Mmap(131_072, 300_000)];
    mmap64: [Mmap(131_072, 300_000)];
    madvise: [Madvise(131_072, 300_000)];
    madvise_populate: [Mmap(131_072, 300_000)];
    posix_madvise: [Madvise(131_072, 300_000)];
    posix_fadvise: [Fadvise(131_072, 300_000)];
    posix_fadvise64: [Fadvise(131_072, 300_000)];
    fadvise_to_end: [Fadvise(131_072, FILE_BYTES - 131_072)];
    readahead: [Readahead(131_072, 300_000)];
    fread: [Read(65_536, 100_000)];
    fread_unlocked: [Read(65_536, 100_000)];
    fread_chk: [Read(65_536, 100_000)];
    fread_unlocked_chk: [Read(65_536, 100_000)];
    o_direct: [];
    not_a_file: [];
}

/// Every snippet has its line above.
#[test]
fn no_snippet_is_forgotten() {
    let me = include_str!("calls.rs");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snippets");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".c") {
            assert!(me.contains(&format!("\n    {name}: [")), "{name}");
        }
    }
}

/// The loader initialises the other object first; otherwise the constructor half of the tests above shows
/// nothing.
#[test]
fn the_other_constructor_runs_before_ours() {
    let folder = folder();
    let (early, host) = (folder.path().join("early.so"), folder.path().join("host"));
    if compile(&source("snippets", "read"), &early, &["-DEARLY", "-shared", "-fPIC"]).is_none() {
        return;
    }
    compile(&source("hardship", "nothing"), &host, &[]).unwrap();
    let mut command = hooked(&host, &folder.path().join("nobody"), Some(&early));
    command.env("LD_DEBUG", "files");
    let said = run(command).stderr;
    let at = |name: &str| said.find(&format!("calling init: {name}"));
    let (theirs, ours) = (at(early.to_str().unwrap()), at(support::library().to_str().unwrap()));
    if said.contains("calling init") {
        assert!(theirs.unwrap() < ours.unwrap());
    } else {
        println!("skipped: this loader does not say in which order it initialises");
    }
}

/// The library exports only the hooks: any other symbol could replace one of the host's.
#[test]
fn only_the_hooks_are_exported() {
    let Ok(out) =
        std::process::Command::new("nm").args(["-D", "--defined-only"]).arg(support::library()).output()
    else {
        println!("skipped: no nm");
        return;
    };
    let text = String::from_utf8(out.stdout).unwrap();
    let mut names: Vec<&str> = text.lines().filter_map(|l| l.split_whitespace().last()).collect();
    names.sort_unstable();
    let expected = [
        "__close",
        "__fread_chk",
        "__fread_unlocked_chk",
        "__pread64",
        "__pread64_chk",
        "__pread_chk",
        "__read",
        "__read_chk",
        "close",
        "copy_file_range",
        "fread",
        "fread_unlocked",
        "madvise",
        "mmap",
        "mmap64",
        "posix_fadvise",
        "posix_fadvise64",
        "posix_madvise",
        "prctl",
        "pread",
        "pread64",
        "preadv",
        "preadv2",
        "preadv64",
        "preadv64v2",
        "read",
        "readahead",
        "readv",
        "sendfile",
        "sendfile64",
        "splice",
        "syscall",
    ];
    assert_eq!(names, expected);
}
