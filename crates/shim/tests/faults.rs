//! Daemons that misbehave, are gone, false or full: the host's calls go through, and no later than they must.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use seekless_kernel::ring::Consumer;
use seekless_wire::{Call, Mode, Settings};
use support::fake::{Fake, Manner, SETTINGS, listening};
use support::{ColdFile, FILE_BYTES, compile, folder, hooked, plain, run, source};

/// A host that reads chunks on command, so that the daemon can change between two reads.
struct Host {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

/// For tests of timeouts.
const SHORT: (&str, &str) = ("SEEKLESS_PATIENCE_MS", "400");

impl Host {
    fn start(folder: &Path, file: &ColdFile, socket: &Path) -> Option<Host> {
        Host::start_with(folder, file, socket, &[])
    }

    fn start_with(folder: &Path, file: &ColdFile, socket: &Path, env: &[(&str, &str)]) -> Option<Host> {
        let program = folder.join("follow");
        compile(&source("hardship", "follow"), &program, &[])?;
        assert!(file.chill());
        let mut command = hooked(&program, socket, None);
        command.envs(env.iter().copied());
        let mut child = command.arg(&file.path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Some(Host { child, output })
    }

    /// Makes it read a chunk, checks the content, and returns how long it took.
    fn read(&mut self, file: &ColdFile, number: u64) -> Duration {
        let start = Instant::now();
        self.order(number);
        self.check(file, number);
        start.elapsed()
    }

    fn order(&mut self, number: u64) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{number}").unwrap();
    }

    fn check(&mut self, file: &ColdFile, number: u64) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0u8; CHUNK as usize];
        file.file.read_exact_at(&mut bytes, number * CHUNK).unwrap();
        let sum =
            bytes.iter().fold(1469598103934665603u64, |sum, b| (sum ^ *b as u64).wrapping_mul(1099511628211));
        assert_eq!(line.trim(), format!("{number} {sum:x}"));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CHUNK: u64 = 65_536;

/// Waits longer than any pause after a daemon that is gone, plus the clock's resolution.
fn after_the_pause() {
    std::thread::sleep(Duration::from_millis(150));
}

/// Reads with a misbehaving daemon return the right bytes, and at most `asks` needs are sent before the shim
/// pauses.
fn ill(manner: Manner, asks: usize) {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let daemon = Fake::start(folder.path(), manner, SETTINGS);
    let Some(mut host) = Host::start_with(folder.path(), &file, &daemon.path, &[SHORT]) else { return };
    let start = Instant::now();
    for number in 0..8 {
        host.read(&file, number * 8);
    }
    assert!(start.elapsed() < support::HANG, "{manner:?} took {:?}", start.elapsed());
    let needs = daemon.needs().len();
    assert!((1..=asks).contains(&needs), "{manner:?}: asked {needs} times");
}

#[test]
fn a_daemon_that_never_answers_is_left_alone_after_one_wait() {
    // One wait of the patience, then pauses of one second and of two: eight reads meet at most two or three
    // waits.
    ill(Manner::Silent, 3);
}

#[test]
fn a_daemon_that_works_for_ever_is_given_up_at_last() {
    ill(Manner::WorkingForEver, 3);
}

#[test]
fn a_daemon_that_closes_at_once_costs_nothing() {
    ill(Manner::Close, 8);
}

#[test]
fn nonsense_is_not_listened_to() {
    for manner in [Manner::Garbage, Manner::CutShort, Manner::Huge, Manner::Refuse] {
        ill(manner, 2);
    }
}

/// The answer is valid; the descriptor is closed and does not stay with the host.
#[test]
fn a_descriptor_with_the_answer_does_not_stay() {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let daemon = Fake::start(folder.path(), Manner::ExtraDescriptor, SETTINGS);
    let Some(mut host) = Host::start(folder.path(), &file, &daemon.path) else { return };
    let open = |host: &Host| std::fs::read_dir(format!("/proc/{}/fd", host.child.id())).unwrap().count();
    host.read(&file, 0);
    let after_one = open(&host);
    for number in 1..8 {
        host.read(&file, number * 8);
    }
    assert!(!daemon.needs().is_empty());
    assert_eq!(open(&host), after_one, "descriptors stay in the host");
}

/// Killed during a wait: the wait ends, the next reads go through, and a new daemon is found.
#[test]
fn a_daemon_killed_in_mid_wait_and_started_again() {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let first = Fake::start(folder.path(), Manner::Silent, SETTINGS);
    let socket = first.path.clone();
    // With this patience, only the end of file can have ended the wait.
    let Some(mut host) =
        Host::start_with(folder.path(), &file, &socket, &[("SEEKLESS_PATIENCE_MS", "50000")])
    else {
        return;
    };
    host.order(1);
    let asked = Instant::now();
    while first.needs().is_empty() {
        assert!(asked.elapsed() < support::HANG, "it never asks");
    }
    let killed = Instant::now();
    first.stop();
    host.check(&file, 1);
    assert!(
        killed.elapsed() < Duration::from_secs(20),
        "the wait outlived the daemon: {:?}",
        killed.elapsed()
    );

    after_the_pause();
    let second = Fake::serving(folder.path());
    host.read(&file, 20);
    assert_eq!(second.needs().len(), 1, "the new daemon is asked");
    second.stop();
    // Its path stays, without a listener.
    for number in [30, 40, 50] {
        host.read(&file, number);
    }
    after_the_pause();
    let third = Fake::serving(folder.path());
    host.read(&file, 60);
    assert_eq!(third.needs().len(), 1);
}

#[test]
fn a_socket_that_is_removed_is_found_by_its_twin() {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let daemon = Fake::serving(folder.path());
    let Some(mut host) = Host::start(folder.path(), &file, &daemon.path) else { return };
    host.read(&file, 1);
    std::fs::remove_file(&daemon.path).unwrap();
    host.read(&file, 20);
    assert_eq!(daemon.needs().len(), 2);
}

/// Root of a container that shares the machine's network can take the name, and has the credentials of root.
#[test]
fn who_listens_at_the_twin_and_does_not_know_the_key_gets_nothing() {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let stranger = Fake::serving(folder.path());
    // The key that the daemon left there.
    std::fs::write(folder.path().join("twin.key"), [7; 32]).unwrap();
    let Some(mut host) = Host::start(folder.path(), &file, &stranger.path) else { return };
    std::fs::remove_file(&stranger.path).unwrap();
    for number in [1, 20] {
        host.read(&file, number);
        after_the_pause();
    }
    assert_eq!(stranger.needs().len(), 0);
    // Nor if there is no key at all.
    let elsewhere = self::folder();
    let stranger = Fake::serving(elsewhere.path());
    std::fs::remove_file(elsewhere.path().join("twin.key")).unwrap();
    let Some(mut host) = Host::start(folder.path(), &file, &stranger.path) else { return };
    std::fs::remove_file(&stranger.path).unwrap();
    host.read(&file, 40);
    assert_eq!(stranger.needs().len(), 0);
}

#[test]
fn a_full_backlog_is_not_waited_for() {
    use seekless_kernel::fdpass::{Address, connect, listen};
    use std::os::unix::ffi::OsStrExt;
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let path = folder.path().join("full.sock");
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let _listener = listen(Address::Path(&name), 1).unwrap();
    let mut held = Vec::new();
    while let Ok(socket) = connect(Address::Path(&name)) {
        held.push(socket);
        assert!(held.len() < 64, "the backlog never fills");
    }
    // The patience exceeds the hang limit, so a wait would show.
    let Some(mut host) = Host::start_with(folder.path(), &file, &path, &[("SEEKLESS_PATIENCE_MS", "59000")])
    else {
        return;
    };
    let start = Instant::now();
    for number in 0..8 {
        host.read(&file, number * 8);
    }
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

/// A service manager holds the socket while the daemon restarts, or after it was stopped: connections wait in
/// the kernel's queue. There is one wait, far shorter than the patience, and one descriptor left in the
/// queue; then one question at each pause's end, until the daemon accepts.
#[test]
fn a_socket_where_nobody_accepts_is_waited_for_once_and_not_for_long() {
    const LONG_MS: u64 = 6_000;
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let (path, listener) = listening(folder.path());
    let patience = LONG_MS.to_string();
    let Some(mut host) =
        Host::start_with(folder.path(), &file, &path, &[("SEEKLESS_PATIENCE_MS", &patience)])
    else {
        return;
    };
    let start = Instant::now();
    for number in 0..8 {
        host.read(&file, number * 8);
    }
    let took = start.elapsed();
    assert!(took < Duration::from_millis(LONG_MS), "eight reads took {took:?}");
    println!("eight reads took {took:?} with a patience of {LONG_MS} ms");
    // The first pause, a second, is over. This read asks for the settings, and sends no descriptor.
    std::thread::sleep(Duration::from_millis(1_200));
    host.read(&file, 20);
    let daemon = Fake::at(path, vec![listener], Manner::Serve, SETTINGS);
    std::thread::sleep(Duration::from_millis(2_200));
    assert!(file.chill());
    host.read(&file, 40);
    let chunks: Vec<u64> = daemon.needs().iter().map(|seen| seen.offset / CHUNK).collect();
    assert_eq!(chunks, [0, 40], "the first that waited, and the first that was answered");
}

/// Another program that has taken the name gets no descriptor, and not even a frame.
#[test]
fn a_stranger_is_told_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: pretending to be another user needs root");
        return;
    }
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    support::set_mode(folder.path(), 0o777);
    let stranger = {
        let folder = folder.path().to_owned();
        // The kernel records the credentials of the listener; only this thread changes its user meanwhile.
        std::thread::spawn(move || {
            let (root, nobody) = (rustix::process::Uid::ROOT, rustix::process::Uid::from_raw(65_534));
            rustix::thread::set_thread_res_uid(root, nobody, root).unwrap();
            let fake = Fake::serving(&folder);
            rustix::thread::set_thread_res_uid(root, root, root).unwrap();
            fake
        })
        .join()
        .unwrap()
    };
    let Some(mut host) = Host::start(folder.path(), &file, &stranger.path) else { return };
    for number in 0..4 {
        host.read(&file, number * 8);
    }
    assert!(stranger.needs().is_empty());
    assert_eq!(stranger.record.lock().unwrap().hellos, 0);
}

/// A slow disk: the wait goes on as long as a frame arrives now and then.
#[test]
fn working_keeps_the_wait_alive() {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let slow = 2_500;
    let daemon = Fake::start(folder.path(), Manner::ServeSlowly(slow), SETTINGS);
    let Some(mut host) =
        Host::start_with(folder.path(), &file, &daemon.path, &[("SEEKLESS_PATIENCE_MS", "1000")])
    else {
        return;
    };
    let took = host.read(&file, 3);
    assert!(took >= Duration::from_millis(slow), "it did not wait for the answer: {took:?}");
    assert_eq!(daemon.needs().len(), 1);
}

#[test]
fn a_device_to_be_left_alone_is_left_alone() {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let daemon = Fake::start(folder.path(), Manner::PassDevice, SETTINGS);
    let Some(mut host) = Host::start(folder.path(), &file, &daemon.path) else { return };
    for number in 0..8 {
        host.read(&file, number * 8);
    }
    assert_eq!(daemon.needs().len(), 1);
}

fn in_mode(mode: Mode, prefetch_bytes: u64) -> Option<(Fake, ColdFile, Host, tempfile::TempDir)> {
    let folder = folder();
    let file = ColdFile::new(folder.path(), "data")?;
    let settings = Settings { mode, prefetch_bytes, ..SETTINGS };
    let daemon = Fake::start(folder.path(), Manner::Serve, settings);
    // The patience allows for the busiest machine, because everything here depends on the settings.
    let mut host =
        Host::start_with(folder.path(), &file, &daemon.path, &[("SEEKLESS_PATIENCE_MS", "50000")])?;
    for number in [2, 34, 2] {
        host.read(&file, number);
    }
    Some((daemon, file, host, folder))
}

#[test]
fn mode_off_asks_for_settings_only() {
    let Some((daemon, ..)) = in_mode(Mode::Off, 0) else { return };
    assert!(daemon.needs().is_empty());
    assert!(daemon.record.lock().unwrap().hellos >= 1);
}

#[test]
fn mode_track_reports_each_call_and_changes_nothing() {
    let Some((daemon, file, ..)) = in_mode(Mode::Track, 0) else { return };
    assert!(daemon.needs().is_empty());
    let record = daemon.record.lock().unwrap();
    let stat = rustix::fs::fstat(&file.file).unwrap();
    let seen: Vec<_> = record.tracked.iter().map(|t| (t.call, t.offset / CHUNK, t.length)).collect();
    assert_eq!(seen, [(Call::Pread, 2, CHUNK), (Call::Pread, 34, CHUNK), (Call::Pread, 2, CHUNK)]);
    assert!(
        record.tracked.iter().all(|t| (t.device, t.inode) == (stat.st_dev, stat.st_ino) && t.duration_ns > 0)
    );
    let resident: Vec<_> = record.tracked.iter().map(|t| t.resident).collect();
    assert_eq!(resident, [false, false, true]);
}

#[test]
fn mode_prefetch_enlarges_by_itself() {
    use std::os::fd::AsFd;
    let Some((daemon, file, mut host, _folder)) = in_mode(Mode::Prefetch, 1 << 20) else { return };
    assert!(daemon.needs().is_empty());
    // From chunk 34 on a MiB is in flight; its last byte must arrive without being read.
    assert!(file.chill());
    host.read(&file, 34);
    let start = Instant::now();
    let resident =
        || seekless_kernel::residency::resident_prefix(file.file.as_fd(), 34 * CHUNK, 1 << 20).unwrap();
    while resident() < 1 << 20 {
        assert!(start.elapsed() < support::HANG, "only {} bytes came", resident());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(daemon.needs().is_empty());
}

#[test]
fn mode_prefetch_by_reads_has_the_range_before_the_call() {
    use std::os::fd::AsFd;
    let megabyte = Settings { prefetch_bytes: 1 << 20, ..SETTINGS }.by_reads(true);
    let started = in_mode(Mode::Prefetch, megabyte.prefetch_bytes);
    let Some((daemon, file, mut host, _folder)) = started else { return };
    assert!(file.chill());
    host.read(&file, 34);
    let resident = seekless_kernel::residency::resident_prefix(file.file.as_fd(), 34 * CHUNK, 1 << 20);
    assert_eq!(resident.unwrap(), 1 << 20, "nothing is on its way");
    assert!(daemon.needs().is_empty());
}

#[test]
fn mode_serialise_asks_for_what_was_asked() {
    let Some((daemon, ..)) = in_mode(Mode::Serialise, 1 << 20) else { return };
    let seen: Vec<_> = daemon.needs().iter().map(|s| (s.offset / CHUNK, s.length)).collect();
    assert_eq!(seen, [(2, CHUNK), (34, CHUNK)]);
}

#[test]
fn switched_off_by_the_environment() {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let daemon = Fake::serving(folder.path());
    for (value, hellos) in [("1", 0), ("0", 1), ("", 1)] {
        daemon.clear();
        let Some(mut host) =
            Host::start_with(folder.path(), &file, &daemon.path, &[("SEEKLESS_DISABLE", value)])
        else {
            return;
        };
        host.read(&file, 4);
        assert_eq!(daemon.needs().len(), hellos, "SEEKLESS_DISABLE={value}");
    }
}

/// The reads reported through a ring, each as its offset.
fn reported(ring: &mut Consumer) -> Vec<u64> {
    std::iter::from_fn(|| ring.pop(Instant::now())).map(|report| report.offset / CHUNK / 8).collect()
}

/// A process that changes its user from call to call gets the name of another ring at each change. It
/// requests each ring once, and reports each read through the one named last.
#[test]
fn rings_of_several_users_are_asked_for_once_each() {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let daemon = Fake::start(folder.path(), Manner::RingsByTurns, SETTINGS);
    let Some(mut host) = Host::start(folder.path(), &file, &daemon.path) else { return };
    for number in 0..8 {
        host.read(&file, number * 8);
    }
    assert_eq!(daemon.needs().len(), 8, "every read missed");
    let mut record = daemon.record.lock().unwrap();
    assert_eq!(record.ring_asks, 2);
    let reports: Vec<Vec<u64>> = record.rings.values_mut().map(|(ring, _)| reported(ring)).collect();
    assert_eq!(reports, [[1, 3, 5, 7], [0, 2, 4, 6]]);
}

#[test]
fn a_ring_that_comes_with_the_settings_is_not_asked_for() {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let daemon = Fake::start(folder.path(), Manner::RingAlong, SETTINGS);
    let Some(mut host) = Host::start(folder.path(), &file, &daemon.path) else { return };
    for number in 0..4 {
        host.read(&file, number * 8);
    }
    assert_eq!(daemon.needs().len(), 4, "every read missed, and nothing else was asked");
    let mut record = daemon.record.lock().unwrap();
    assert_eq!((record.ring_asks, record.rings.len()), (0, 1));
    let (ring, _) = record.rings.get_mut(&5).unwrap();
    assert_eq!(reported(ring), [0, 1, 2, 3]);
    drop(record);
    // Once: each further one would be a useless descriptor in the host at every renewal of the settings.
    std::thread::sleep(Duration::from_millis(u64::from(SETTINGS.settings_ttl_ms) + 100));
    host.read(&file, 0);
    let record = daemon.record.lock().unwrap();
    assert_eq!((record.hellos, record.rings_along, record.ring_asks), (2, 1, 0));
}

/// The state folder gives the path of the socket.
#[test]
fn the_socket_is_found_by_its_folder() {
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let daemon = Fake::serving(folder.path());
    std::fs::rename(&daemon.path, folder.path().join("daemon.sock")).unwrap();
    let state = folder.path().to_str().unwrap();
    let Some(mut host) = Host::start_with(folder.path(), &file, Path::new(""), &[("SEEKLESS_STATE", state)])
    else {
        return;
    };
    host.read(&file, 4);
    assert_eq!(daemon.needs().len(), 1);
}

/// A whole file sent by one call goes in parts, each reported, and the caller sees one call.
#[test]
fn a_whole_file_is_sent_in_parts_that_are_reported() {
    const PART: u64 = 512 << 10;
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let program = folder.path().join("sendfile_whole");
    let Some(()) = compile(&source("hardship", "sendfile_whole"), &program, &[]) else { return };
    let daemon = Fake::start(folder.path(), Manner::RingsByTurns, SETTINGS);
    let run = |mut command: std::process::Command| {
        assert!(file.chill(), "the file does not go cold");
        command.arg(&file.path);
        run(command)
    };
    let without = run(plain(&program));
    let with = run(hooked(&program, &daemon.path, None));
    assert_eq!(with, without);
    daemon.needs();
    let mut record = daemon.record.lock().unwrap();
    let mut reports: Vec<(u64, u64)> = Vec::new();
    for (ring, _) in record.rings.values_mut() {
        reports.extend(
            std::iter::from_fn(|| ring.pop(Instant::now())).map(|report| (report.offset, report.len)),
        );
    }
    // The fake daemon decides which ring a part is reported through; all of it must be reported.
    assert!(reports.iter().all(|&(_, len)| len <= PART), "{reports:?}");
    for start in [4096, 0] {
        let mut at = start;
        while at < FILE_BYTES {
            let next = reports.iter().position(|&(offset, len)| offset == at && len > 0);
            at += reports.remove(next.unwrap_or_else(|| panic!("nothing from {at} on: {reports:?}"))).1;
        }
    }
}
