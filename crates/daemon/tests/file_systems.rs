//! Disks that differ from their flag, and file systems whose files lie elsewhere: loop devices over memory
//! and over a FUSE file that responds like a disk with heads, overlays of two of them, a pool that reports
//! where its files are, a FUSE file system with direct I/O. Needs root, loop devices and mkfs.ext4; reports
//! what it skips.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, ReplyWrite, ReplyXattr,
    Request, Session, SessionACL, WriteFlags,
};
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno as Error;
use rustix::mount::{MountFlags, UnmountFlags};
use seekless_engine::{
    Completion, Engine, ForwardedCall, InProcess, KindReport, KnownBy, Refused, Settings, Submitted,
};
use seekless_kernel::loopdev::LoopDevice;
use tempfile::TempDir;

const M: u64 = 1 << 20;

/// Timeout of every wait.
const NEVER: Duration = Duration::from_secs(60);

/// Size of the stand-in's file, and of every disk made here.
const BYTES: usize = 96 << 20;

/// Cost of a seek on the disk with heads: less than on any real one, so that the test is short.
const JUMP: Duration = Duration::from_millis(6);

/// The stand-in's recent reads, which a drive would have in its buffer.
#[derive(Default)]
struct Arm {
    from: u64,
    to: u64,
}

/// A file system of one file, `disk`, in this process's memory.
#[derive(Clone)]
struct StandIn {
    bytes: Arc<Mutex<Vec<u8>>>,
    arm: Arc<Mutex<Arm>>,
    seeks: Arc<AtomicBool>,
    direct: bool,
    /// The value of `user.mergerfs.fullpath`.
    path: Option<PathBuf>,
}

impl StandIn {
    fn new(direct: bool, path: Option<PathBuf>) -> StandIn {
        let bytes = Arc::new(Mutex::new(vec![0; BYTES]));
        StandIn { bytes, arm: Arc::default(), seeks: Arc::default(), direct, path }
    }

    fn mount(&self, kind: &str) -> Option<Fuse> {
        let folder = tempfile::tempdir().unwrap();
        // By hand, so that the mount table names the kind, as for mounts by libfuse.
        let mounted = || -> std::io::Result<BackgroundSession> {
            let channel = File::options().read(true).write(true).open("/dev/fuse")?;
            let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", channel.as_raw_fd());
            let options = std::ffi::CString::new(options)?;
            let kind = format!("fuse.{kind}");
            rustix::mount::mount("stand-in", folder.path(), &*kind, MountFlags::NODEV, options.as_c_str())?;
            Session::from_fd(self.clone(), channel.into(), SessionACL::All, Config::default())?.spawn()
        };
        match mounted() {
            Ok(session) => Some(Fuse { session: Some(session), folder }),
            Err(error) => {
                seekless_testing::skip::skipped(format!("no FUSE file system can be mounted ({error})"));
                None
            }
        }
    }
}

struct Fuse {
    session: Option<BackgroundSession>,
    folder: TempDir,
}

impl Fuse {
    fn file(&self) -> PathBuf {
        self.folder.path().join("disk")
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.folder.path(), UnmountFlags::DETACH);
        drop(self.session.take());
    }
}

fn attributes(ino: INodeNo) -> FileAttr {
    let root = ino == INodeNo::ROOT;
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino,
        size: if root { 0 } else { BYTES as u64 },
        blocks: BYTES as u64 / 512,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: if root { FileType::Directory } else { FileType::RegularFile },
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for StandIn {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "disk" {
            true => reply.entry(&NEVER, &attributes(INodeNo(2)), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&NEVER, &attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = if self.direct { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::empty() };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = offset + u64::from(size);
        let mut arm = self.arm.lock().unwrap();
        if (arm.from..=arm.to).contains(&offset) {
            arm.to = arm.to.max(end);
        } else {
            if self.seeks.load(Ordering::Relaxed) {
                std::thread::sleep(JUMP);
            }
            *arm = Arm { from: offset, to: end };
        }
        let bytes = self.bytes.lock().unwrap();
        let within = |at: u64| (at as usize).min(bytes.len());
        reply.data(&bytes[within(offset)..within(end)]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut bytes = self.bytes.lock().unwrap();
        let from = offset as usize;
        match bytes.get_mut(from..from + data.len()) {
            Some(place) => {
                place.copy_from_slice(data);
                reply.written(data.len() as u32);
            }
            None => reply.error(Errno::ENOSPC),
        }
    }

    fn getxattr(&self, _: &Request, _: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.path.as_ref().filter(|_| name == "user.mergerfs.fullpath");
        let Some(value) = value.map(|p| p.as_os_str().as_encoded_bytes()) else {
            return reply.error(Errno::ENODATA);
        };
        match size as usize {
            0 => reply.size(value.len() as u32),
            room if room < value.len() => reply.error(Errno::ERANGE),
            _ => reply.data(value),
        }
    }
}

/// A mounted disk: a file as a loop device, with ext4 on it. Detached when dropped.
struct Disk {
    device: LoopDevice,
    folder: TempDir,
}

impl Disk {
    fn on(image: &File, rotational: bool) -> Option<Disk> {
        let skipped = |why: String| {
            seekless_testing::skip::skipped(why);
            None
        };
        if !rustix::process::geteuid().is_root() {
            return skipped("needs root".into());
        }
        let device = match LoopDevice::attach(image.as_fd(), 512) {
            Ok(device) => device,
            Err(error) => return skipped(format!("no loop device ({error})")),
        };
        let flag = format!("/sys/block/loop{}/queue/rotational", device.number());
        fs::write(flag, if rotational { "1" } else { "0" }).unwrap();
        // Nothing is left to be written in the background, so the disk is idle from now on.
        let options = ["-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard"];
        let made = Command::new("mkfs.ext4").args(options).arg(device.path()).output();
        match made {
            Ok(out) if out.status.success() => {}
            other => return skipped(format!("mkfs.ext4: {other:?}")),
        }
        let folder = tempfile::tempdir().unwrap();
        if let Err(error) =
            rustix::mount::mount(device.path(), folder.path(), "ext4", MountFlags::NOATIME, c"")
        {
            return skipped(format!("cannot mount ext4 ({error})"));
        }
        Some(Disk { device, folder })
    }

    /// In memory.
    fn flash(rotational: bool) -> Option<Disk> {
        let image = tempfile::tempfile_in("/dev/shm").unwrap();
        image.set_len(BYTES as u64).unwrap();
        // The device keeps it open.
        Disk::on(&image, rotational)
    }

    fn name(&self) -> String {
        format!("loop{}", self.device.number())
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// What a new daemon that keeps profiles in `profiles` finds out about the disk.
    fn kind(&self, profiles: &Path) -> KindReport {
        let folders = [self.path().to_path_buf()];
        for _ in 0..20 {
            let settings = Settings { profiles: profiles.to_path_buf(), ..Settings::default() };
            let found = settings.survey(Some(&folders));
            assert_eq!(found.len(), 1, "{found:?}");
            if found[0].by != KnownBy::Flag {
                return found[0].clone();
            }
            // The mount may still be writing.
            println!("{}", found[0]);
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("never idle");
    }
}

impl Drop for Disk {
    /// Waits until an engine that has just ended closes its files. A later unmount would write to the disk
    /// after the thread that serves its image is gone, and this process would never end.
    fn drop(&mut self) {
        let end = Instant::now() + NEVER;
        while rustix::mount::unmount(self.folder.path(), UnmountFlags::empty()) == Err(Error::BUSY) {
            if Instant::now() > end {
                let _ = rustix::mount::unmount(self.folder.path(), UnmountFlags::DETACH);
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A file that is not in memory.
fn cold(path: &Path) -> File {
    fs::write(path, vec![7; 4 * M as usize]).unwrap();
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    file
}

fn ask(engine: &Engine, file: &File) -> Result<bool, Refused> {
    let (told, answer) = mpsc::channel();
    let on_answer = move |a: Completion<'_>| {
        let _ = told.send(matches!(a, Completion::Resident(_)));
    };
    let call = ForwardedCall::of(file.as_fd(), 0, 256 << 10)?;
    match engine.submit(call, &mut InProcess::new(file.as_fd(), Box::new(on_answer)))? {
        Submitted::Resident { .. } => Ok(true),
        Submitted::Blocked(_) => Ok(answer.recv_timeout(NEVER).expect("answered")),
    }
}

fn engine(profiles: &Path, include_ssd: bool) -> Engine {
    Engine::start(Settings { profiles: profiles.to_path_buf(), include_ssd, ..Settings::default() })
}

#[test]
fn a_disk_that_seeks_is_served_though_its_flag_says_it_does_not() {
    let stand_in = StandIn::new(false, None);
    let Some(fuse) = stand_in.mount("stand-in") else { return };
    let image = File::options().read(true).write(true).open(fuse.file()).unwrap();
    let Some(disk) = Disk::on(&image, false) else { return };
    let profiles = tempfile::tempdir().unwrap();
    stand_in.seeks.store(true, Ordering::Relaxed);
    let found = disk.kind(profiles.path());
    println!("{found}");
    assert!(found.seeks && !found.rotational && found.by == KnownBy::Probe, "{found:?}");
    assert!(found.to_string().contains("is served") && found.to_string().contains("rotational=0"), "{found}");

    // Known for the rest of the boot: a disk that now answers at once would count as flash if it were probed
    // again.
    stand_in.seeks.store(false, Ordering::Relaxed);
    let again = disk.kind(profiles.path());
    assert_eq!((again.seeks, again.kind), (true, found.kind));

    let file = cold(&disk.path().join("film"));
    let engine = engine(profiles.path(), false);
    // The first question may arrive before the stored result is read from its file.
    engine.settings().survey(Some(&[disk.path().to_path_buf()]));
    assert_eq!(ask(&engine, &file), Ok(true));
    assert_eq!(engine.statistics()[0].name, disk.name());
}

/// What was learnt about a disk is forgotten with it.
#[test]
fn another_disk_of_the_same_number_is_another_disk() {
    let Some(disk) = Disk::flash(true) else { return };
    let profiles = tempfile::tempdir().unwrap();
    let (engine, name) = (engine(profiles.path(), true), disk.name());
    let file = cold(&disk.path().join("film"));
    assert_eq!(ask(&engine, &file), Ok(true));
    engine.leave(file.metadata().unwrap().dev());
    drop((file, disk));
    let Some(disk) = Disk::flash(true) else { return };
    if disk.name() != name {
        return println!("skipped: another program has taken {name}");
    }
    // The place of a device's files is cached for two seconds.
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(ask(&engine, &cold(&disk.path().join("film"))), Ok(true));
    let served: Vec<_> = engine.statistics().into_iter().map(|d| (d.name, d.requests)).collect();
    assert_eq!(served, [(name, 1)]);
    drop(engine);
}

#[test]
fn flash_is_left_alone_though_its_flag_says_it_turns() {
    let Some(disk) = Disk::flash(true) else { return };
    let profiles = tempfile::tempdir().unwrap();
    let found = disk.kind(profiles.path());
    println!("{found}");
    assert!(!found.seeks && found.rotational, "{found:?}");
    let file = cold(&disk.path().join("film"));
    let alone = engine(profiles.path(), false);
    alone.settings().survey(Some(&[disk.path().to_path_buf()]));
    assert_eq!(ask(&alone, &file), Err(Refused::NotADisk));
    assert_eq!(ask(&engine(profiles.path(), true), &file), Ok(true), "--include-ssd serves it");
}

#[test]
fn a_file_of_an_overlay_is_read_by_the_disk_of_its_layer() {
    let (Some(lower), Some(upper)) = (Disk::flash(true), Disk::flash(true)) else { return };
    let (low, up, work) = (lower.path().join("low"), upper.path().join("up"), upper.path().join("work"));
    for dir in [&low, &up, &work] {
        fs::create_dir(dir).unwrap();
    }
    cold(&low.join("old"));
    cold(&up.join("new"));
    cold(&low.join("both"));
    let merged = tempfile::tempdir().unwrap();
    let options = format!("lowerdir={},upperdir={},workdir={}", low.display(), up.display(), work.display());
    let options = std::ffi::CString::new(options).unwrap();
    if let Err(error) =
        rustix::mount::mount("overlay", merged.path(), "overlay", MountFlags::empty(), options.as_c_str())
    {
        seekless_testing::skip::skipped(format!("no overlayfs ({error})"));
        return;
    }
    let profiles = tempfile::tempdir().unwrap();
    let outcome = std::panic::catch_unwind(|| {
        let engine = engine(profiles.path(), true);
        let requests = |disk: &Disk| {
            let reports = engine.statistics();
            reports.iter().find(|r| r.name == disk.name()).map_or(0, |r| r.requests)
        };
        let read = |name: &str| {
            let file = File::open(merged.path().join(name)).unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            ask(&engine, &file)
        };
        assert_eq!(read("old"), Ok(true));
        assert_eq!((requests(&lower), requests(&upper)), (1, 0));
        assert_eq!(read("new"), Ok(true));
        assert_eq!((requests(&lower), requests(&upper)), (1, 1));
        // A write copies it to the upper layer.
        fs::write(merged.path().join("both"), vec![8; 4 * M as usize]).unwrap();
        File::open(up.join("both")).unwrap().sync_all().unwrap();
        assert_eq!(read("both"), Ok(true));
        assert_eq!((requests(&lower), requests(&upper)), (1, 2));
    });
    let _ = rustix::mount::unmount(merged.path(), UnmountFlags::DETACH);
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_file_of_a_pool_is_read_by_the_disk_that_the_pool_names() {
    let Some(disk) = Disk::flash(true) else { return };
    let branch = disk.path().join("film");
    cold(&branch);
    let Some(pool) = StandIn::new(false, Some(branch)).mount("mergerfs") else { return };
    let profiles = tempfile::tempdir().unwrap();
    let engine = engine(profiles.path(), true);
    assert_eq!(ask(&engine, &File::open(pool.file()).unwrap()), Ok(true));
    assert_eq!(engine.statistics()[0].name, disk.name());
}

#[test]
fn reads_that_pass_by_the_page_cache_are_passed() {
    let profiles = tempfile::tempdir().unwrap();
    for include_ssd in [false, true] {
        let engine = engine(profiles.path(), include_ssd);
        let (direct, cached) = (StandIn::new(true, None), StandIn::new(false, None));
        let (Some(direct), Some(cached)) = (direct.mount("a"), cached.mount("b")) else { return };
        assert_eq!(ask(&engine, &File::open(direct.file()).unwrap()), Err(Refused::NotADisk));
        assert_eq!(ask(&engine, &File::open(cached.file()).unwrap()), Ok(true));
        assert_eq!(engine.statistics().len(), 1);
    }
}

/// Every user may mount and unmount FUSE file systems without end: the resources of each are released.
#[test]
fn a_mount_that_is_gone_gives_its_disks_place_to_another() {
    let profiles = tempfile::tempdir().unwrap();
    let engine = engine(profiles.path(), true);
    let stand_in = StandIn::new(false, None);
    let Some(mut mounted) = stand_in.mount("a") else { return };
    for round in 0..4 {
        assert_eq!(ask(&engine, &File::open(mounted.file()).unwrap()), Ok(true), "round {round}");
        // Before the other one is gone, so that it gets another number.
        let Some(next) = stand_in.mount("a") else { return };
        drop(std::mem::replace(&mut mounted, next));
        // As long as results are cached.
        std::thread::sleep(Duration::from_nanos(seekless_policy::memory::REPORT_EVERY.0));
    }
    let names: Vec<String> = engine.statistics().into_iter().map(|disk| disk.name).collect();
    assert!(names.len() <= 2, "{names:?}");
}
