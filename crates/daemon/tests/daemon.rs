//! A daemon, a raw client and a real file.

mod common;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::time::Duration;

use common::{Bench, Reply, cached, cold_file};
use seekless_base::{Bytes, Exit};
use seekless_daemon::{Daemon, DaemonSettings};
use seekless_frontend::control;
use seekless_kernel::fdpass;
use seekless_policy::Mode;
use seekless_wire::{
    Call, Frame, Hello, Mode as WireMode, Need, PassReason, Refuse, RefuseReason, Tracked, Verdict,
};

const M: u64 = 1 << 20;

#[test]
fn a_missing_range_becomes_resident_with_its_prefetch() {
    let bench = Bench::start(|s| s.engine.policy.prefetch = Bytes::mib(4));
    let Some(file) = cold_file(16 << 20) else { return };
    let client = bench.client();
    client.need(&file, Call::Pread, 2 * M, 512 << 10);
    let answer = client.answer();
    assert_eq!(
        (answer.verdict, answer.mode, answer.prefetch_bytes),
        (Verdict::Resident, WireMode::Both, 4 * M)
    );
    assert_eq!(cached(&file, 2 * M, 512 << 10), 512 << 10);
    assert!(answer.resident_bytes >= 512 << 10, "{answer:?}");
    let status = bench.until("the whole piece", |s| s.disks.iter().any(|d| d.service.count == 1));
    assert_eq!(cached(&file, 2 * M, 4 * M), 4 * M);
    assert_eq!((cached(&file, 0, 2 * M), cached(&file, 6 * M, 10 * M)), (0, 0), "no more than that");
    let disk = &status.disks[0];
    assert_eq!((disk.reads, disk.bytes_read, disk.resident, disk.lost_pages), (1, 4 * M, 1, 0));

    // The same again, now in memory, so the disk is not asked: on the same connection, and through the twin.
    client.need(&file, Call::Pread, 2 * M, 512 << 10);
    assert_eq!(client.answer().verdict, Verdict::Resident);
    let twin = bench.client_of_twin();
    twin.need(&file, Call::Sendfile, 3 * M, 512 << 10);
    let answer = twin.answer();
    assert_eq!((answer.verdict, answer.resident_bytes), (Verdict::Resident, 3 * M));
    // Counters are updated a moment after the answer.
    let counters = bench.until("three needs", |s| s.counters.needs == 3).counters;
    assert_eq!((counters.needs, counters.hits_on_arrival, counters.queued), (3, 2, 1));
}

#[test]
fn serialise_reads_what_was_asked_and_no_more() {
    let bench = Bench::start(|s| s.engine.policy.mode = Mode::Serialise);
    let Some(file) = cold_file(4 << 20) else { return };
    let client = bench.client();
    client.need(&file, Call::Read, M, 256 << 10);
    assert_eq!(client.answer().verdict, Verdict::Resident);
    assert_eq!(cached(&file, 0, 4 * M), 256 << 10);
}

#[test]
fn the_other_modes_pass_at_once_and_tell_the_mode() {
    for (mode, told) in
        [(Mode::Off, WireMode::Off), (Mode::Track, WireMode::Track), (Mode::Prefetch, WireMode::Prefetch)]
    {
        let bench = Bench::start(|s| s.engine.policy.mode = mode);
        let Some(file) = cold_file(M as usize) else { return };
        let client = bench.client();
        client.need(&file, Call::Read, 0, M);
        let answer = client.answer();
        assert_eq!((answer.verdict, answer.reason, answer.mode), (Verdict::Pass, PassReason::Mode, told));
        assert_eq!(cached(&file, 0, M), 0);
    }
}

#[test]
fn memory_is_left_alone_unless_asked() {
    let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
        println!("skipped: no /dev/shm");
        return;
    };
    file.set_len(M).unwrap();
    let bench = Bench::start(|s| s.engine.include_ssd = false);
    let client = bench.client();
    client.need(&file, Call::Read, 0, M);
    let answer = client.answer();
    assert_eq!((answer.verdict, answer.reason), (Verdict::Pass, PassReason::NotADisk));
    assert!(answer.device_ttl_ms > 0, "so that the shim stops asking");
}

#[test]
fn what_is_no_readable_file_is_passed() {
    let bench = Bench::start(|_| {});
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    File::create(&path).unwrap().write_all(&[1; 10_000]).unwrap();
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    let flags = |f| rustix::fs::open(&path, f, rustix::fs::Mode::empty()).unwrap();
    let folder = rustix::fs::open(dir.path(), rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let bad = [pipe, folder, flags(rustix::fs::OFlags::WRONLY), flags(rustix::fs::OFlags::PATH)];
    for fd in &bad {
        let client = bench.client();
        client.need(fd, Call::Read, 0, 4096);
        let answer = client.answer();
        assert_eq!((answer.verdict, answer.reason), (Verdict::Pass, PassReason::BadRequest));
    }
    let client = bench.client();
    client.need(flags(rustix::fs::OFlags::RDONLY), Call::Read, 10_000, 1);
    assert_eq!(client.answer().reason, PassReason::BadRequest, "beyond the end");
    bench.until("all were passed", |status| status.counters.passed_bad_request == bad.len() as u64 + 1);
}

#[test]
fn garbage_is_refused_and_the_daemon_goes_on() {
    let bench = Bench::start(|_| {});
    let file = tempfile::tempfile().unwrap();
    let need = Frame::Need(Need { call: Call::Read, pid: 1, tid: 1, offset: 0, length: 1 }).encode().unwrap();
    let need = need.as_bytes();
    let mut other_version = need.to_vec();
    other_version[4] = 99;
    let mut other_kind = need.to_vec();
    other_kind[10] = 77;
    let working = Frame::Working.encode().unwrap();
    let fd = file.as_fd();
    for (what, bytes, fd, reason) in [
        ("noise", &b"GET / HTTP/1.1"[..], None, RefuseReason::Malformed),
        ("cut short", &need[..need.len() - 1], Some(fd), RefuseReason::Malformed),
        ("header only", &need[..16], Some(fd), RefuseReason::Malformed),
        ("one byte", &need[..1], None, RefuseReason::Malformed),
        ("too long", &[7u8; 5000][..], None, RefuseReason::Malformed),
        ("version", &other_version[..], Some(fd), RefuseReason::Version),
        ("kind", &other_kind[..], None, RefuseReason::Kind),
        ("a daemon's frame", working.as_bytes(), None, RefuseReason::Kind),
        ("no descriptor", need, None, RefuseReason::Descriptor),
    ] {
        let client = bench.client();
        client.send_bytes(bytes, fd);
        let Reply::Refuse(Refuse { reason: told, .. }) = client.hear() else {
            panic!("{what} was not refused")
        };
        assert_eq!(told, reason, "{what}");
        assert_eq!(client.hear(), Reply::Closed, "{what}");
    }
    let client = bench.client();
    client.send(Frame::StatusAsk, Some(fd));
    assert!(matches!(client.hear(), Reply::Refuse(_)), "a descriptor nobody asked for");
    let hello = bench.client();
    hello.send(Frame::Hello(Hello { pid: 1, ring: false }), None);
    assert_eq!(hello.hear(), Reply::Other("Settings"));
    // Counters are published once the frames that arrived together are processed.
    bench.until("ten frames refused", |status| status.counters.frames_refused == 10);
}

#[test]
fn an_end_of_file_that_moved_is_no_hang() {
    let bench = Bench::start(|_| {});
    let Some(file) = cold_file(4 << 20) else { return };
    let client = bench.client();
    client.need(&file, Call::Read, 3 * M, 900_000);
    file.set_len(M).unwrap();
    // Either answer is right, depending on which was first.
    client.answer();
}

#[test]
fn status_and_settings_are_told() {
    let bench = Bench::start(|s| s.engine.policy.prefetch = Bytes::mib(3));
    let settings = control::settings(&bench.socket).unwrap();
    assert_eq!((settings.mode, settings.prefetch_bytes), (WireMode::Both, 3 * M));
    let (text, report) = control::status(&bench.socket).unwrap();
    assert!(text.contains("\"prefetch_bytes\":3145728"), "{text}");
    assert_eq!((report.pid, report.mode.as_str()), (std::process::id(), "both"));
    assert!(report.to_string().contains("mode both, prefetch 3MiB"), "{report}");
}

#[test]
fn a_miss_is_charged_to_the_process_that_connected() {
    let bench = Bench::start(|s| s.engine.policy.prefetch = Bytes::mib(1));
    let Some(file) = cold_file(16 << 20) else { return };
    let client = bench.client();
    // Its program is looked up beside its first miss.
    for at in 0..8 {
        client.need(&file, Call::Read, at * 2 * M, 4096);
        client.answer();
        std::thread::sleep(Duration::from_millis(20));
    }
    let user = Some(rustix::process::getuid().as_raw());
    let status = bench.until("a program", |status| {
        let mut programs = status.disks.iter().flat_map(|d| &d.programs);
        programs.any(|p| p.program.user == user && !p.program.name.is_empty() && p.cost.seeks > 0)
    });
    assert!(status.to_string().contains("of its busy time"), "{status}");
}

#[test]
fn tracked_calls_become_a_profile() {
    let bench = Bench::start(|s| s.engine.policy.mode = Mode::Track);
    let client = bench.client();
    for i in 1..=100 {
        let tracked = Tracked {
            call: Call::Sendfile,
            resident: false,
            pid: 1,
            tid: 1,
            device: 1,
            inode: 1,
            offset: 0,
            length: 1000,
            duration_ns: i * 1_000_000,
        };
        client.send(Frame::Tracked(tracked), None);
    }
    let status = bench.until("all calls", |s| s.calls.iter().map(|c| c.count).sum::<u64>() == 100);
    let call = &status.calls[0];
    assert_eq!((call.call.as_str(), call.resident, call.bytes), ("sendfile", false, 100_000));
    assert!((49.0..=52.0).contains(&call.mean_ms), "{call:?}");
}

#[test]
fn a_second_daemon_is_told_that_one_runs() {
    let bench = Bench::start(|_| {});
    let error = Daemon::start(DaemonSettings::new(bench.socket.clone())).err().unwrap();
    assert!(error.message.contains("a daemon already listens at"), "{error}");
    assert_eq!(error.exit, Exit::Busy);
    assert!(control::settings(&bench.socket).is_ok(), "the first one goes on");
}

#[test]
fn a_dead_socket_is_replaced_and_a_file_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/d.sock");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    drop(fdpass::listen(fdpass::Address::Path(&name), 1).unwrap());
    assert!(path.exists(), "a killed daemon leaves its socket");
    let daemon = Daemon::start(DaemonSettings::new(path.clone())).unwrap();
    assert!(std::fs::metadata(&path).unwrap().file_type().is_socket());
    drop(daemon);
    assert!(!path.exists());
    std::fs::write(&path, "mine").unwrap();
    let error = Daemon::start(DaemonSettings::new(path.clone())).err().unwrap();
    assert!(error.message.contains("is in the way and is not a dead socket"), "{error}");
    assert_eq!(error.exit, Exit::Busy);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn the_sockets_bits_are_as_asked() {
    let bench = Bench::start(|s| s.socket_mode = 0o660);
    let mode = std::fs::metadata(&bench.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn an_overlong_path_is_a_clear_error() {
    let path = std::env::temp_dir().join("x".repeat(200));
    let fault = Daemon::start(DaemonSettings::new(path)).err().unwrap();
    assert_eq!(fault.exit, Exit::Usage);
    assert!(fault.message.contains("107 bytes"), "{fault}");
}
