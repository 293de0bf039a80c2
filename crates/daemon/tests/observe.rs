//! `seekless observe` over a file system of its own: ext4 on a loop device in memory. The readers are this
//! process and programs without the shim. Needs root, loop devices, mkfs.ext4 and Linux 5.10; reports what it
//! skips. Nothing stays after the test.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use seekless_base::Exit;
use seekless_daemon::{ObserveReport, StatusReport};
use seekless_frontend::control;
use seekless_kernel::cacheevents::CacheEvents;
use seekless_kernel::loopdev::LoopDevice;
use seekless_kernel::residency::cachestat;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

/// Maximum alignment of direct writes.
const PAGE: usize = 4096;

/// Timeout of every wait: not a measure of speed, only the difference between slow and never.
const NEVER: Duration = Duration::from_secs(60);

/// Pause of a client between two reads: several rounds of the listener.
const PAUSE: Duration = Duration::from_millis(20);

/// A mounted ext4. It is detached when dropped, even if one of its files is open.
struct Disk {
    folder: tempfile::TempDir,
    device: Option<LoopDevice>,
}

impl Disk {
    /// `None`, with a message, if this is not possible here.
    fn new() -> Option<Disk> {
        let skipped = |why: String| {
            println!("skipped: {why}");
            None
        };
        if let Err(error) = CacheEvents::probe() {
            return skipped(error.to_string());
        }
        let image = tempfile::tempfile_in("/dev/shm").unwrap();
        image.set_len(160 * M).unwrap();
        let device = match LoopDevice::attach(image.as_fd(), 512) {
            Ok(device) => device,
            Err(error) => return skipped(format!("no loop device ({error})")),
        };
        // New kernels read ahead twice the largest request by themselves, which would hide the effect.
        let ahead = format!("/sys/block/loop{}/queue/read_ahead_kb", device.number());
        fs::write(&ahead, "128").unwrap();
        assert_eq!(fs::read_to_string(&ahead).unwrap().trim(), "128");
        let options = ["-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard"];
        match Command::new("mkfs.ext4").args(options).arg(device.path()).output() {
            Ok(out) if out.status.success() => {}
            other => return skipped(format!("mkfs.ext4: {other:?}")),
        }
        let folder = tempfile::tempdir().unwrap();
        if let Err(error) = mount(device.path(), folder.path(), "ext4", MountFlags::NOATIME, c"") {
            return skipped(format!("cannot mount ext4 ({error})"));
        }
        Some(Disk { folder, device: Some(device) })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn backing(&self) -> PathBuf {
        let number = self.device.as_ref().map_or(0, LoopDevice::number);
        format!("/sys/block/loop{number}/loop/backing_file").into()
    }

    /// A file of this many bytes that was never in memory: it is written with direct I/O, so that an observer
    /// gets no event of its pages and follows nothing.
    fn cold(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path().join(name);
        let direct = OFlags::DIRECT.bits() as i32;
        let mut file = File::options().write(true).create_new(true).custom_flags(direct).open(&path).unwrap();
        let mut room = vec![0; bytes as usize + PAGE];
        let aligned = room.as_ptr().align_offset(PAGE);
        let content = &mut room[aligned..aligned + bytes as usize];
        for (word, i) in content.chunks_exact_mut(8).zip(0u64..) {
            word.copy_from_slice(&i.wrapping_mul(0x9E37_79B9).to_le_bytes());
        }
        file.write_all(content).unwrap();
        file.sync_all().unwrap();
        assert_eq!(cached(&path, 0, bytes), 0, "pages of {name} are in memory");
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

/// A mount that ends with the test, however the test ends.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, UnmountFlags::DETACH);
    }
}

/// Bytes of a range that are in memory.
fn cached(path: &Path, offset: u64, len: u64) -> u64 {
    let file = File::open(path).unwrap();
    cachestat(file.as_fd(), offset, len).unwrap().cached * 4 * K
}

/// The commands of this crate, built with its tests.
fn program() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    deps.parent().unwrap().parent().unwrap().join("examples/seekless-daemon")
}

/// An observer that serves devices without heads, such as the disks of these tests.
fn command(folder: &Path, socket: &Path) -> Command {
    let mut command = plain_command(folder, socket);
    command.args(["--include-ssd", "--prefetch", "2MiB"]);
    command
}

fn plain_command(folder: &Path, socket: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg("observe").arg(folder).arg("--socket").arg(socket);
    command.stderr(Stdio::piped()).stdin(Stdio::null());
    command
}

/// `seekless observe`, running.
struct Observing {
    child: Child,
    socket: PathBuf,
    stderr: BufReader<ChildStderr>,
    state: tempfile::TempDir,
}

impl Observing {
    fn start(folder: &Path) -> Observing {
        Observing::by(|socket| command(folder, socket))
    }

    fn by(command: impl FnOnce(&Path) -> Command) -> Observing {
        let state = tempfile::tempdir().unwrap();
        let socket = state.path().join("d.sock");
        let mut child = command(&socket).arg("--json").arg(state.path().join("end.json")).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut observing = Observing { child, socket, stderr, state };
        // It may report first what it ignores.
        let mut said = String::new();
        while !said.contains("observing") {
            let read = observing.stderr.read_line(&mut said).unwrap();
            assert!(read > 0, "it ended: {said}");
        }
        observing
    }

    fn until(&self, what: &str, wish: impl Fn(&ObserveReport, &StatusReport) -> bool) -> ObserveReport {
        let until = Instant::now() + NEVER;
        loop {
            let status = control::status(&self.socket).ok().map(|(_, report)| report);
            let observe = status.as_ref().and_then(|s| s.observe.clone());
            if let (Some(observe), Some(status)) = (&observe, &status)
                && wish(observe, status)
            {
                return observe.clone();
            }
            assert!(Instant::now() < until, "never came: {what}; {status:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn report(&self) -> ObserveReport {
        self.until("a status", |_, _| true)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends a signal to end. Returns the exit status and the last statistics.
    fn end(mut self) -> (Option<i32>, StatusReport) {
        self.signal(Signal::TERM);
        let status = wait(&mut self.child);
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        let text = fs::read_to_string(self.state.path().join("end.json")).unwrap();
        (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {said}")))
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(child: &mut Child) -> Option<i32> {
    let until = Instant::now() + NEVER;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(Instant::now() < until, "process {} does not end", child.id());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reads a few pieces one after the other, like a client on a slow link.
fn stream(file: &File, from: u64, pieces: u64) {
    let mut buffer = vec![0u8; 64 << 10];
    for piece in 0..pieces {
        file.read_exact_at(&mut buffer, from + piece * 64 * K).unwrap();
        std::thread::sleep(PAUSE);
    }
}

/// Waits until these bytes, which were not requested, are in memory.
fn read_ahead(observing: &Observing, path: &Path, offset: u64, len: u64) {
    observing.until("bytes read ahead of a stream", |_, _| cached(path, offset, len) == len);
}

#[test]
fn a_stream_is_read_ahead_and_our_own_reads_are_not_heard() {
    let Some(disk) = Disk::new() else { return };
    // One file opened before, one after.
    let early = disk.cold("early", 16 * M);
    let opened = File::open(&early).unwrap();
    let observing = Observing::start(disk.path());
    stream(&opened, 0, 4);
    // Far beyond the kernel's own read-ahead.
    read_ahead(&observing, &early, M, M / 2);
    let late = disk.cold("late", 16 * M);
    stream(&File::open(&late).unwrap(), 8 * M, 5);
    read_ahead(&observing, &late, 9 * M, M / 2);
    // The engine reads, and maps what it has read: this does not count as a program's read.
    let before = observing.until("own reads", |o, _| o.own > 0);
    std::thread::sleep(Duration::from_secs(1));
    let after = observing.report();
    assert_eq!((before.reads, before.accesses), (after.reads, after.accesses), "{after:?}");
    assert_eq!((after.found, after.unknown, after.outside), (2, 0, 0), "{after:?}");
    // A followed file that misses elsewhere is reported while the kernel reads.
    File::open(&late).unwrap().read_exact_at(&mut [0u8; 4096], 15 * M).unwrap();
    observing.until("the miss", |o, _| o.missed > after.missed);
    let (status, report) = observing.end();
    assert_eq!(status, Some(0));
    assert_eq!(report.disks.iter().map(|d| d.reads_failed).sum::<u64>(), 0);
    // Files stay named after they were closed; the miss was the kernel's to read.
    let files: Vec<_> = report.disks.iter().flat_map(|d| &d.files).collect();
    for path in [&early, &late] {
        let of = files.iter().find(|f| Path::new(&f.path) == path);
        assert!(of.is_some_and(|f| f.cost.reads > 0 && f.cost.disk_ms > 0.0), "{path:?}: {files:?}");
    }
    assert!(files.iter().any(|f| f.cost.kernel_reads > 0 && f.cost.kernel_bytes > 0), "{files:?}");
    let user = Some(rustix::process::getuid().as_raw());
    let programs: Vec<_> = report.disks.iter().flat_map(|d| &d.programs).collect();
    assert!(programs.iter().any(|p| p.program.user == user && p.cost.reads > 0), "{programs:?}");
    assert!(report.to_string().contains("observing"), "{report}");
}

/// As on a kernel before 6.11, which has no tracepoints for reads.
#[test]
fn functions_of_the_page_cache_stand_in_for_its_tracepoints() {
    use seekless_kernel::cacheevents::Attachment;
    let dev = (0, 0);
    let works = |one: &Attachment| CacheEvents::open_by(*one, &[dev]).is_ok();
    let Some(by) = [Attachment::Entries, Attachment::Probes].into_iter().find(works) else {
        println!("skipped: this kernel runs no programs at functions");
        return;
    };
    let Some(disk) = Disk::new() else { return };
    let observing = Observing::by(|socket| {
        let mut command = command(disk.path(), socket);
        command.args(["--attachment", by.name()]);
        command
    });
    let path = disk.cold("read", 16 * M);
    stream(&File::open(&path).unwrap(), 0, 4);
    read_ahead(&observing, &path, M, M / 2);
    // By `sendfile`, from the middle.
    let path = disk.cold("sent", 16 * M);
    let (to, mut from) = std::os::unix::net::UnixStream::pair().unwrap();
    let (file, mut at, mut taken) = (File::open(&path).unwrap(), 8 * M, [0; 64 << 10]);
    for _ in 0..5 {
        let sent = rustix::fs::sendfile(&to, &file, Some(&mut at), 64 << 10).unwrap();
        from.read_exact(&mut taken[..sent]).unwrap();
        std::thread::sleep(PAUSE);
    }
    read_ahead(&observing, &path, 9 * M, M / 2);
    let report = observing.report();
    assert_eq!((report.attachment.as_str(), report.found, report.unknown), (by.name(), 2, 0), "{report:?}");
    assert!(report.missed > 0 && report.own > 0, "{report:?}");
    // A stopped observer holds no reader.
    let path = disk.cold("stopped", 8 * M);
    observing.signal(Signal::STOP);
    assert_eq!(fs::read(&path).unwrap().len() as u64, 8 * M);
    observing.signal(Signal::CONT);
    assert_eq!(observing.end().0, Some(0));
}

#[test]
fn while_a_proof_passes_everything_reads_are_heard_of_and_not_read_ahead_of() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.cold("proof", 16 * M);
    let observing = Observing::start(disk.path());
    control::pass_all(&observing.socket, seekless_wire::PASS_ALL_UNTIL_TOLD).unwrap();
    let file = File::open(&path).unwrap();
    stream(&file, 0, 8);
    // Pages of the head that the daemon brings in itself, while it checks there and the kernel reads, do not
    // count as the client's.
    let heard = |o: &ObserveReport| o.bytes >= 512 * K || o.own > 0;
    let report = observing.until("all reads", |o, _| o.accesses >= 8 && heard(o));
    assert!(report.bytes < M, "each read once: {report:?}");
    assert_eq!((report.missed, report.found), (0, 1), "who misses is left to the kernel: {report:?}");
    assert_eq!(cached(&path, M, 15 * M), 0, "the kernel's own read-ahead ends before");
    // The stream is known when reads are served again, and data is read ahead before it goes on.
    control::pass_all(&observing.socket, 0).unwrap();
    read_ahead(&observing, &path, M, M / 2);
    assert_eq!(observing.end().0, Some(0));
}

#[test]
fn what_cannot_be_tried_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let out = Command::new(program()).arg("try").args(words).output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    if let Err(error) = CacheEvents::probe() {
        println!("skipped: {error}");
        return;
    }
    let here = folder.path().to_str().unwrap();
    for (words, exit, said) in [
        (&["/nowhere/at/all"][..], Exit::Missing, "no such folder"),
        (&[here, "--for", "100s"], Exit::Usage, "four blocks"),
        (&[here, "--block", "3s"], Exit::Usage, "write 35 s or more"),
    ] {
        let (status, text) = run(words);
        assert_eq!(status, Some(exit as i32), "{words:?}: {text}");
        assert!(text.contains(said), "{words:?}: {text}");
    }
}

#[test]
fn a_try_that_is_killed_leaves_no_folder() {
    let Some(disk) = Disk::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program());
    command.arg("try").arg(disk.path()).env("TMPDIR", folder.path()).stderr(Stdio::null());
    let mut trying = command.spawn().unwrap();
    let left = || fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.path()).collect::<Vec<_>>();
    let until = Instant::now() + NEVER;
    while !left().iter().any(|f| f.join("daemon.sock").exists()) {
        assert!(Instant::now() < until, "it never began: {:?}", trying.try_wait());
        std::thread::sleep(Duration::from_millis(10));
    }
    trying.kill().unwrap();
    trying.wait().unwrap();
    while !left().is_empty() {
        assert!(Instant::now() < until, "{:?}", left());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_random_reader_is_left_alone() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.cold("random", 32 * M);
    let observing = Observing::start(disk.path());
    let file = File::open(&path).unwrap();
    let mut page = [0u8; 4096];
    // Not at the head, where a reader counts as sequential.
    for i in 1..=200u64 {
        file.read_exact_at(&mut page, (i * 7919 % 8000) * 4096).unwrap();
    }
    // A large read raises several events but counts as one read.
    let mut large = vec![0u8; 256 << 10];
    file.read_exact_at(&mut large, 20 * M + 4096).unwrap();
    let report = observing.until("all reads", |o, _| o.reads >= 201);
    assert_eq!((report.looked_for, report.accesses), (0, 0), "{report:?}");
    observing.until("the file", |o, _| o.files_waiting >= 1);
    let (_, report) = observing.end();
    assert_eq!(report.disks.iter().map(|d| d.reads).sum::<u64>(), 0, "{:?}", report.disks);
}

#[test]
fn a_file_is_followed_from_the_first_miss_at_its_head() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.cold("head", 16 * M);
    let observing = Observing::start(disk.path());
    let file = File::open(&path).unwrap();
    file.read_exact_at(&mut [0u8; 4096], 0).unwrap();
    // Beyond the kernel's own read-ahead.
    read_ahead(&observing, &path, M / 2, M / 4);
    let report = observing.report();
    assert_eq!((report.looked_for, report.found, report.unknown), (1, 1, 0), "{report:?}");
    assert!(report.missed >= 1, "{report:?}");
    // A write is not a miss.
    let written = disk.path().join("written");
    let file_written = File::create(&written).unwrap();
    (&file_written).write_all(&[1; 4096]).unwrap();
    let searched = observing.until("its search", |o, _| o.looked_for >= 2);
    assert_eq!((searched.found, searched.missed), (1, report.missed), "{searched:?}");
    // The first file is known from now on.
    stream(&file, 12 * M, 3);
    observing.until("its reads", |o, _| o.accesses > report.accesses);
    assert_eq!(observing.end().0, Some(0));
}

#[test]
fn a_device_that_is_not_served_raises_no_more_events() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.cold("f", 8 * M);
    let observing = Observing::by(|socket| plain_command(disk.path(), socket));
    let file = File::open(&path).unwrap();
    stream(&file, 0, 4);
    observing.until("an answer", |o, _| o.not_a_disk == 1);
    // The rings are opened anew after the answer. Then as many reads as before raise nothing.
    let quiet = || {
        let before = observing.report().events;
        stream(&file, 0, 8);
        // The counts are those of a round, and rounds come at least ten times a second.
        std::thread::sleep(Duration::from_millis(500));
        observing.report().events == before
    };
    let until = Instant::now() + NEVER;
    while !quiet() {
        assert!(Instant::now() < until, "still heard: {:?}", observing.report());
    }
    assert_eq!(observing.end().0, Some(0));
}

#[test]
fn a_mapping_that_is_read_in_order_is_a_stream() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.cold("mapped", 16 * M);
    let observing = Observing::start(disk.path());
    let script = "import sys,mmap,time\nf=open(sys.argv[1],'rb')\n\
                  m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\n\
                  for i in range(0,512*1024,4096):\n m[i]\n if i%65536==0: time.sleep(0.02)\n";
    match Command::new("python3").args(["-c", script]).arg(&path).status() {
        Ok(status) if status.success() => read_ahead(&observing, &path, M, M / 2),
        other => println!("skipped: no python3 ({other:?})"),
    }
}

#[test]
fn reads_through_an_overlay_are_those_of_its_layer() {
    let Some(disk) = Disk::new() else { return };
    let layer = disk.path().join("lower");
    fs::create_dir(&layer).unwrap();
    let below = disk.cold("lower/f", 16 * M);
    let top = tempfile::tempdir_in("/dev/shm").unwrap();
    for name in ["upper", "work", "merged"] {
        fs::create_dir(top.path().join(name)).unwrap();
    }
    let (at, top_path) = (top.path().join("merged"), top.path().display());
    let options = format!("lowerdir={},upperdir={top_path}/upper,workdir={top_path}/work", layer.display());
    let options = std::ffi::CString::new(options).unwrap();
    if let Err(error) = mount("overlay", &at, "overlay", MountFlags::empty(), options.as_c_str()) {
        println!("skipped: no overlay ({error})");
        return;
    }
    let _overlay = Mounted(&at);
    let observing = Observing::start(disk.path());
    stream(&File::open(at.join("f")).unwrap(), 0, 4);
    read_ahead(&observing, &below, M, M / 2);
    // The overlay itself has no pages that could raise events.
    let state = tempfile::tempdir().unwrap();
    let refused = command(&at, &state.path().join("d.sock")).output().unwrap();
    assert_eq!(refused.status.code(), Some(Exit::Missing as i32));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("layers"), "{refused:?}");
}

#[test]
fn only_the_folders_are_read_ahead_of() {
    let Some(disk) = Disk::new() else { return };
    fs::create_dir(disk.path().join("in")).unwrap();
    let inside = disk.cold("in/f", 16 * M);
    let outside = disk.cold("f", 16 * M);
    let observing = Observing::start(&disk.path().join("in"));
    stream(&File::open(&outside).unwrap(), 0, 6);
    stream(&File::open(&inside).unwrap(), 0, 4);
    read_ahead(&observing, &inside, M, M / 2);
    assert_eq!(cached(&outside, M, M), 0);
    assert_eq!(observing.report().outside, 1);
}

#[test]
fn deleted_truncated_and_renumbered_files_do_no_harm() {
    let Some(disk) = Disk::new() else { return };
    // Deleted while it is read, so it is not opened. Written before: a head that was written and is clean
    // counts as one that was read.
    let gone = disk.cold("gone", 8 * M);
    let observing = Observing::start(disk.path());
    let file = File::open(&gone).unwrap();
    let number = |file: &File| std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    let ino = number(&file);
    fs::remove_file(&gone).unwrap();
    stream(&file, 0, 4);
    let report = observing.until("a search", |o, _| o.unknown > 0);
    assert_eq!(report.found, 0, "{report:?}");
    drop(file);
    // Another file has its number now; it may be ignored for some seconds, and is served then.
    let mut others: Vec<PathBuf> = (0..8).map(|i| disk.cold(&format!("new{i}"), 8 * M)).collect();
    let same = others.iter().position(|p| number(&File::open(p).unwrap()) == ino);
    let next = others.swap_remove(same.unwrap_or(0));
    let file = File::open(&next).unwrap();
    let until = Instant::now() + NEVER;
    let mut at = 0;
    while cached(&next, (at + 1) * M, M / 2) < M / 2 {
        assert!(Instant::now() < until, "never served: {:?}", observing.report());
        at = (at + 1) % 6;
        stream(&file, at * M, 5);
    }
    // Cut short while data is read ahead.
    stream(&file, 0, 4);
    File::options().write(true).open(&next).unwrap().set_len(100 * K).unwrap();
    let mut rest = Vec::new();
    (&file).read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len() as u64, 100 * K);
    let other = &others[0];
    stream(&File::open(other).unwrap(), 0, 4);
    read_ahead(&observing, other, M, M / 2);
    assert_eq!(observing.end().0, Some(0));
}

/// Any user may take abstract socket names; none of them stands for an observer.
#[test]
fn a_name_that_another_process_has_taken_keeps_no_observer_out() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let Some(disk) = Disk::new() else { return };
    let dev = fs::metadata(disk.path()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let name = SocketAddr::from_abstract_name(format!("seekless-observe-{major}:{minor}")).unwrap();
    let _taken = UnixListener::bind_addr(&name).unwrap();
    let path = disk.cold("f", 8 * M);
    let observing = Observing::start(disk.path());
    stream(&File::open(&path).unwrap(), 0, 4);
    read_ahead(&observing, &path, M, M / 2);
    assert_eq!(observing.end().0, Some(0));
}

#[test]
fn a_second_observer_of_a_file_system_is_refused() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.cold("f", 8 * M);
    let observing = Observing::start(disk.path());
    let state = tempfile::tempdir().unwrap();
    let second = command(disk.path(), &state.path().join("d.sock")).output().unwrap();
    assert_eq!(second.status.code(), Some(Exit::Busy as i32), "{second:?}");
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("another seekless observe") && said.trim().lines().count() == 1, "{said}");
    stream(&File::open(&path).unwrap(), 0, 4);
    read_ahead(&observing, &path, M, M / 2);
}

#[test]
fn a_storm_is_counted_and_a_stopped_observer_holds_nobody() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.cold("f", 16 * M);
    let observing = Observing::start(disk.path());
    let file = File::open(&path).unwrap();
    let mut page = [0u8; 4096];
    file.read_exact_at(&mut page, 0).unwrap();
    observing.until("the read", |o, _| o.reads > 0);
    observing.signal(Signal::STOP);
    // More than fits into the rings of all processors.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for i in 0..50_000 * processors as u64 {
        file.read_exact_at(&mut page, i % 4 * 4096).unwrap();
    }
    observing.signal(Signal::CONT);
    // Losses are reported with the next event that finds room.
    let report = observing.until("losses", |o, _| {
        file.read_exact_at(&mut [0u8; 4096], 0).unwrap();
        o.lost > 0
    });
    assert!(report.events > 1000, "{report:?}");
    let fresh = disk.cold("g", 16 * M);
    stream(&File::open(&fresh).unwrap(), 0, 4);
    read_ahead(&observing, &fresh, M, M / 2);
}

#[test]
fn the_end_of_it_lets_go_of_the_file_system() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let Some(disk) = Disk::new() else { return };
        let path = disk.cold("f", 16 * M);
        let mut observing = Observing::start(disk.path());
        stream(&File::open(&path).unwrap(), 0, 4);
        read_ahead(&observing, &path, M, M / 2);
        observing.signal(signal);
        let asked = Instant::now();
        wait(&mut observing.child);
        println!("{signal:?}: ended after {:?}", asked.elapsed());
        // At once, without a second attempt.
        unmount(disk.path(), UnmountFlags::empty()).unwrap();
    }
}

#[test]
fn files_are_let_go_of_when_asked_and_when_unmounted() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.cold("f", 16 * M);
    let observing = Observing::start(disk.path());
    stream(&File::open(&path).unwrap(), 0, 4);
    read_ahead(&observing, &path, M, M / 2);
    observing.signal(Signal::HUP);
    // Far sooner than a stream without reads ends.
    let until = Instant::now() + Duration::from_secs(10);
    while unmount(disk.path(), UnmountFlags::empty()).is_err() {
        assert!(Instant::now() < until, "still busy: {:?}", observing.report());
        std::thread::sleep(Duration::from_millis(5));
    }

    // Detached meanwhile: the device ends with its last open file.
    let Some(mut disk) = Disk::new() else { return };
    let path = disk.cold("f", 16 * M);
    drop(observing);
    let observing = Observing::start(disk.path());
    stream(&File::open(&path).unwrap(), 0, 4);
    read_ahead(&observing, &path, M, M / 2);
    let backing = disk.backing();
    drop(disk.device.take());
    assert!(backing.exists(), "the mount keeps its device");
    unmount(disk.path(), UnmountFlags::DETACH).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while backing.exists() {
        assert!(Instant::now() < until, "still open: {:?}", observing.report());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(observing.report().released >= 1);
}

#[test]
fn without_the_right_to_it_one_line_names_the_next_door() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to become somebody else");
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let refused = command(Path::new("/"), &state.path().join("d.sock")).uid(65534).gid(65534).output();
    let refused = match refused {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: nobody cannot start the program ({error})");
            return;
        }
    };
    let said = String::from_utf8_lossy(&refused.stderr);
    let expected = [Exit::Permission as i32, Exit::Missing as i32];
    assert!(refused.status.code().is_some_and(|code| expected.contains(&code)), "{refused:?}");
    assert!(said.contains("seekless run -- CMD") && said.trim().lines().count() == 1, "{said}");
    // That door takes root as well.
    let permission = refused.status.code() == Some(Exit::Permission as i32);
    assert!(!permission || !said.contains("seekless watch"), "{said}");
}
