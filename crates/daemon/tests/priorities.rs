//! `ionice` means what it says to programs that Seekless reads for.

mod common;

use std::ffi::CString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{Bench, Client, cold_file};
use seekless_engine::DecisionLog;
use seekless_kernel::fdpass::{self, Address};
use seekless_policy::Event;
use seekless_policy::decisions::{Entry, Line};
use seekless_wire::{Call, Verdict};

/// Environment variables of the process that reads.
const SOCKET: &str = "TEST_READER_SOCKET";
const FILE: &str = "TEST_READER_FILE";

/// Not a test: the body of the reader's process, which is this program again. It asks as a shim does.
#[test]
#[ignore = "the reader's process of the test below"]
fn the_readers_process() {
    let (Ok(socket), Ok(file)) = (std::env::var(SOCKET), std::env::var(FILE)) else { return };
    let path = CString::new(Path::new(&socket).as_os_str().as_bytes()).unwrap();
    let client = Client(fdpass::connect(Address::Path(&path)).unwrap());
    client.need(File::open(file).unwrap(), Call::Pread, 0, 64 << 10);
    assert_eq!(client.answer().verdict, Verdict::Resident);
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
        let Some(file) = cold_file(1 << 20) else { return };
        let link = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&file));
        let done = Command::new(prefix[0])
            .args(&prefix[1..])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "the_readers_process", "--ignored", "--test-threads=1"])
            .env(SOCKET, &bench.socket)
            .env(FILE, link)
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
    // Relative to one another: the group of this test may have a weight.
    let [(true, _), (false, low), (false, usual)] = asked[..] else { panic!("{asked:?}") };
    assert_eq!(u64::from(usual) / u64::from(low), 4, "{asked:?}");
}
