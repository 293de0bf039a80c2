//! `ionice` means what it says to programs that Seekless reads for.

mod common;

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use common::{Bench, Client, cold_file};
use seekless_engine::DecisionLog;
use seekless_kernel::fdpass::{self, Address};
use seekless_policy::Event;
use seekless_policy::decisions::{Entry, Line};
use seekless_wire::{Call, Verdict};

/// Environment variables of the process that reads.
const SOCKET: &str = "TEST_READER_SOCKET";
const FILES: &str = "TEST_READER_FILES";

/// Files that it reads, one each tenth of a second. The daemon looks the process up when it first asks.
const COUNT: usize = 10;

/// Not a test: the body of the reader's process, which is this program again. It asks as a shim does.
#[test]
#[ignore = "the reader's process of the test below"]
fn the_readers_process() {
    let (Ok(socket), Ok(files)) = (std::env::var(SOCKET), std::env::var(FILES)) else { return };
    let path = CString::new(Path::new(&socket).as_os_str().as_bytes()).unwrap();
    for file in files.split(':') {
        let client = Client(fdpass::connect(Address::Path(&path)).unwrap());
        client.need(File::open(file).unwrap(), Call::Pread, 0, 64 << 10);
        assert_eq!(client.answer().verdict, Verdict::Resident);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn the_priority_of_the_process_that_asks_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions");
    let log = Arc::new(DecisionLog::create(&path, 1 << 20).unwrap());
    let bench = Bench::start(|settings| settings.engine.decisions = Some(log));
    // As the process itself has it, which may have been started with another than the default.
    let priorities: [&[&str]; 3] = [&["ionice", "-c3"], &["ionice", "-c2", "-n7"], &["ionice", "-c2", "-n4"]];
    for prefix in priorities {
        let files: Option<Vec<File>> = (0..COUNT).map(|_| cold_file(128 << 10)).collect();
        let Some(files) = files else { return };
        let link = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let links: Vec<String> = files.iter().map(link).collect();
        let done = Command::new(prefix[0])
            .args(&prefix[1..])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "the_readers_process", "--ignored", "--test-threads=1"])
            .env(SOCKET, &bench.socket)
            .env(FILES, links.join(":"))
            .output();
        let Ok(done) = done else { return println!("skipped: there is no ionice here") };
        assert!(done.status.success(), "{done:?}");
    }
    drop(bench);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().filter_map(|line| line.parse::<Line>().ok());
    let asked: Vec<(bool, u32)> = lines
        .filter_map(|line| match line.entry {
            Entry::Event(Event::Request(request)) => Some((request.demand.io.idle, request.demand.io.weight)),
            _ => None,
        })
        .collect();
    assert_eq!(asked.len(), 3 * COUNT, "{asked:?}");
    assert_eq!(asked[0], (false, 100), "the first read waits for no look");
    // Relative to one another: the group of this test may have a weight.
    let known: Vec<(bool, u32)> = asked.chunks(COUNT).map(|of| of[COUNT - 1]).collect();
    let [(true, _), (false, low), (false, usual)] = known[..] else { panic!("{asked:?}") };
    assert_eq!(u64::from(usual) / u64::from(low), 4, "{asked:?}");
}
