//! Cgroups whose reading is limited: Seekless reads nothing for them that the kernel would not let them read.
//! On a loop device of its own, in cgroups that end with the test.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Bench;
use rustix::fs::{Advice, fadvise};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal};
use seekless_frontend::control;
use seekless_kernel::fdpass::{self, Address};
use seekless_kernel::loopdev::LoopDevice;
use seekless_kernel::residency::resident_prefix;
use seekless_kernel::spawn::join_cgroup;
use seekless_policy::AheadConfig;
use seekless_wire::Call;

const M: u64 = 1 << 20;
const K: u64 = 1 << 10;

/// Bytes a second that the cgroup may read.
const LIMIT: u64 = 4 * M;

/// Duration of the reads. A twentieth of the bytes, and the first calls, allow for a busy machine.
const FOR: Duration = Duration::from_secs(4);

struct Disk {
    folder: tempfile::TempDir,
    device: LoopDevice,
}

impl Disk {
    fn new() -> Result<Disk, String> {
        let image = tempfile::tempfile_in("/dev/shm").map_err(|e| e.to_string())?;
        image.set_len(320 * M).unwrap();
        let device = LoopDevice::attach(image.as_fd(), 512).map_err(|e| format!("no loop device ({e})"))?;
        let made =
            Command::new("mkfs.ext4").args(["-q", "-F", "-E", "nodiscard"]).arg(device.path()).output();
        if !made.as_ref().is_ok_and(|made| made.status.success()) {
            return Err(format!("mkfs.ext4: {made:?}"));
        }
        let folder = tempfile::tempdir().unwrap();
        mount(device.path(), folder.path(), "ext4", MountFlags::NOATIME, c"")
            .map_err(|e| format!("cannot mount ext4 ({e})"))?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Ok(Disk { folder, device })
    }

    fn file(&self, name: &str, mib: u64) -> PathBuf {
        let path = self.folder.path().join(name);
        let mut file = File::create(&path).unwrap();
        (0..mib).for_each(|i| file.write_all(&vec![i as u8; M as usize]).unwrap());
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(self.folder.path(), UnmountFlags::DETACH);
    }
}

/// A v1 cgroup with a limit; a child of it is deliberately limited too.
struct Group(PathBuf);

impl Group {
    fn new(disk: &Disk) -> Result<Group, String> {
        let root = Path::new("/sys/fs/cgroup/blkio");
        if !root.join("blkio.throttle.read_bps_device").exists() {
            return Err("no blkio hierarchy (v1) here".into());
        }
        let group =
            Group(root.join(format!("seekless-test-{}-{}", std::process::id(), disk.device.number())));
        fs::create_dir(&group.0).map_err(|e| format!("no control group can be made ({e})"))?;
        let limit = format!("7:{} {LIMIT}", disk.device.number());
        fs::write(group.0.join("blkio.throttle.read_bps_device"), &limit)
            .map_err(|e| format!("{limit}: {e}"))?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// In a process of its own: reads a file through like a server with the shim, for a while, and prints the
/// number of bytes.
#[test]
fn reader() {
    let (Some(path), Some(socket)) = (std::env::var_os("READ"), std::env::var("SOCKET").ok()) else { return };
    let (file, mut buffer) = (File::open(path).unwrap(), vec![0; 128 * K as usize]);
    let socket = std::ffi::CString::new(socket).unwrap();
    let (size, began, mut at) = (file.metadata().unwrap().len(), Instant::now(), 0);
    let mut left_alone = Instant::now();
    while at < size && began.elapsed() < FOR {
        let missing = resident_prefix(file.as_fd(), at, 128 * K).unwrap() < (128 * K).min(size - at);
        if missing && !socket.is_empty() && Instant::now() >= left_alone {
            let client = common::Client(fdpass::connect(Address::Path(&socket)).unwrap());
            client.need(&file, Call::Pread, at, 128 * K);
            left_alone = Instant::now() + Duration::from_millis(client.answer().device_ttl_ms.into());
        }
        at += file.read_at(&mut buffer, at).unwrap() as u64;
    }
    println!("\nread {at} in {}", began.elapsed().as_millis());
}

fn start(path: &Path, socket: &Path, group: Option<&Group>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["reader", "--exact", "--nocapture"]).env("READ", path).env("SOCKET", socket);
    if let Some(group) = group {
        join_cgroup(&mut command, &group.0).unwrap();
    }
    command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap()
}

/// Bytes, and bytes a second.
fn ended(child: Child) -> (f64, f64) {
    let said = child.wait_with_output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix("read ")).unwrap_or_else(|| panic!("{said}"));
    let (bytes, ms) = line.split_once(" in ").unwrap();
    (bytes.parse().unwrap(), ms.parse::<f64>().unwrap() / 1e3)
}

#[test]
fn who_is_limited_gets_no_more_than_its_limit_and_others_all() {
    let made = Disk::new().and_then(|disk| Group::new(&disk).map(|group| (disk, group)));
    let (disk, group) = match made {
        Ok(made) => made,
        Err(why) => return println!("skipped: {why}"),
    };
    let bench = Bench::start(|s| s.engine.policy.ahead = Some(AheadConfig::default()));
    let (slow, fast) = (disk.file("slow", 96), disk.file("fast", 64));
    let limited = start(&slow, &bench.socket, Some(&group));
    let free = start(&fast, &bench.socket, None);
    let (bytes, seconds) = ended(limited);
    let most = 1.25 * LIMIT as f64 * seconds + M as f64;
    assert!(bytes <= most, "{bytes} bytes in {seconds} s: {:?}", bench.status().counters);
    assert!(bytes >= 0.5 * LIMIT as f64 * seconds, "{bytes} bytes in {seconds} s");
    let ahead = rustix::fs::open(&slow, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let there = common::cached(&ahead.into(), 0, 96 * M);
    assert!(there as f64 <= most + M as f64, "nothing is read ahead for it: {there}");
    let (bytes, seconds) = ended(free);
    assert_eq!(bytes, 64.0 * M as f64, "in {seconds} s");
    let counters = bench.status().counters;
    assert!(counters.passed_limited > 0 && counters.queued > 2, "{counters:?}");
    // The limit is removed, and Seekless reads again.
    fs::write(group.0.join("blkio.throttle.read_bps_device"), format!("7:{} 0", disk.device.number()))
        .unwrap();
    let again = disk.file("again", 64);
    let (bytes, _) = ended(start(&again, &bench.socket, Some(&group)));
    assert_eq!(bytes, 64.0 * M as f64);
    assert!(bench.status().counters.queued > counters.queued + 2, "{:?}", bench.status().counters);
}

#[test]
fn a_group_below_a_limited_one_is_limited_too() {
    let made = Disk::new().and_then(|disk| Group::new(&disk).map(|group| (disk, group)));
    let (disk, group) = match made {
        Ok(made) => made,
        Err(why) => return println!("skipped: {why}"),
    };
    let below = Group(group.0.join("below"));
    fs::create_dir(&below.0).unwrap();
    let bench = Bench::start(|s| s.engine.policy.ahead = Some(AheadConfig::default()));
    let path = disk.file("film", 8);
    ended(start(&path, &bench.socket, Some(&below)));
    let counters = bench.status().counters;
    assert!(counters.passed_limited > 0 && counters.queued == 0, "{counters:?}");
    drop(below);
}

/// A door without a shim, as a process.
struct Door(Child);

impl Door {
    /// Opens it, or returns why it does not open.
    fn open(command: &str, folder: &Path, state: &Path) -> Result<Door, String> {
        let deps = std::env::current_exe().unwrap();
        let program = deps.parent().unwrap().parent().unwrap().join("examples/seekless-daemon");
        let mut child = Command::new(program)
            .arg(command)
            .arg(folder)
            .arg("--socket")
            .arg(state.join(format!("{command}.sock")))
            .arg("--include-ssd")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut door = Door(child);
        let mut all = String::new();
        while !all.contains("watching") && !all.contains("observing") {
            if said.read_line(&mut all).unwrap() == 0 {
                door.0.wait().unwrap();
                return Err(all);
            }
        }
        // No other thread reads its output.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Ok(door)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn who_is_limited_gets_no_more_by_watch_or_observe() {
    let state = tempfile::tempdir().unwrap();
    for command in ["watch", "observe"] {
        let made = Disk::new().and_then(|disk| Group::new(&disk).map(|group| (disk, group)));
        let (disk, group) = match made {
            Ok(made) => made,
            Err(why) => return println!("skipped: {why}"),
        };
        let (slow, fast) = (disk.file("slow", 96), disk.file("fast", 64));
        let door = match Door::open(command, disk.folder.path(), state.path()) {
            Ok(door) => door,
            Err(why) => {
                println!("skipped: {command}: {why}");
                continue;
            }
        };
        let (limited, free) = (start(&slow, Path::new(""), Some(&group)), start(&fast, Path::new(""), None));
        let (bytes, seconds) = ended(limited);
        let report = control::status(&state.path().join(format!("{command}.sock"))).unwrap().1;
        let most = 1.25 * LIMIT as f64 * seconds + M as f64;
        assert!(bytes <= most, "{command}: {bytes} bytes in {seconds} s: {report:?}");
        let (bytes, _) = ended(free);
        assert_eq!(bytes, 64.0 * M as f64, "{command}");
        let left = report.watch.map_or(0, |w| w.limited) + report.observe.map_or(0, |o| o.limited);
        assert!(left > 0, "{command}: {left}");
        drop(door);
    }
}
