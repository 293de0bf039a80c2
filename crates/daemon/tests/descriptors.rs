//! A daemon that has no descriptor left. In a process of its own, because other tests need theirs.

mod common;

use common::{Bench, cold_file};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seekless_wire::{Call, PassReason, Verdict};

const M: u64 = 1 << 20;

/// In that case the kernel drops the descriptor of a frame, which is not its sender's fault.
#[test]
fn a_daemon_without_descriptors_passes_what_it_is_asked() {
    let bench = Bench::start(|_| {});
    let Some(file) = cold_file(M as usize) else { return };
    let client = bench.client();
    bench.until("it", |s| s.counters.connections_now == 1);
    let few = Rlimit { current: Some(256), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, few).unwrap();
    let mut all = Vec::new();
    let error = loop {
        match file.try_clone() {
            Ok(file) => all.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(Errno::from_io_error(&error), Some(Errno::MFILE));
    client.need(&file, Call::Read, 0, M);
    let answer = client.answer();
    assert_eq!((answer.verdict, answer.reason), (Verdict::Pass, PassReason::Full));
    assert_eq!(bench.status().counters.frames_refused, 0);
    drop(all);
    client.need(&file, Call::Read, 0, M);
    assert_eq!(client.answer().verdict, Verdict::Resident);
}
