//! The supervisor of a disk: it starts the worker, builds the layers above its file (loop device, file
//! system, mount), waits, and removes everything again when it is told to, or when the worker ends in any
//! way.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use seekless_base::{Exit, Fault};
use seekless_kernel::loopdev::LoopDevice;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::{DiskConfig, FsKind};
use crate::control::{ControlClient, ControlRequest};
use crate::dismantle::dismantle;
use crate::fuse_file::FILE_NAME;
use crate::mkfs;
use crate::process;
use crate::queue::LoopQueue;
use crate::state::{DiskDir, DiskRecord, Lock, cannot};
use crate::worker::{BYE, READY};

/// Maximum number of requests that a loop device dispatches at once ([`LoopQueue::dress`]); a large set could
/// take more.
const DEPTH_MAX: u32 = 128;

/// A disk that is being built or is up. Dropping it removes the disk, so every way out of this process does.
struct Standing {
    dir: DiskDir,
    record: DiskRecord,
    worker: Option<Child>,
    /// Kept open, so that a loop device that is not mounted yet releases its file when this process ends.
    device: Option<LoopDevice>,
    _lock: Lock,
}

impl Drop for Standing {
    fn drop(&mut self) {
        let mut worker = self.worker.take();
        dismantle(&self.dir, &self.record, self.device.take(), || end(worker.take()));
    }
}

/// Ends the worker: asks it first, and kills it after two seconds.
fn end(worker: Option<Child>) {
    let Some(mut worker) = worker else { return };
    if let Some(mut pipe) = worker.stdin.take() {
        let _ = pipe.write_all(&[BYE]);
    }
    let patience = Instant::now() + Duration::from_secs(2);
    while Instant::now() < patience {
        if !matches!(worker.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = worker.kill();
    let _ = worker.wait();
}

/// Brings the disk up, calls `announce`, and returns when it is down again.
///
/// # Errors
/// Why it did not come up (nothing is left behind then), or `Failed` if the worker ended by itself.
pub fn run(config: &DiskConfig, announce: impl FnOnce(&DiskRecord)) -> Result<Exit, Fault> {
    let dir = DiskDir::new(&config.name)?;
    let busy = || {
        Fault::busy(format!(
            "a disk named `{0}` is up; take it down with `seekless-lab vdisk down --name {0}`, or choose another name",
            config.name
        ))
    };
    let lock = dir.try_lock()?.ok_or_else(busy)?;
    clear_stale(&dir);
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD])
        .map_err(|e| Fault::failed(format!("cannot listen for signals: {e}")))?;
    let (drives, _) = config.resolve()?;
    dir.create()?;
    let mut standing = Standing {
        record: DiskRecord {
            config: config.clone(),
            drive_label: crate::config::find_drive(&config.drive)?.label,
            pid: std::process::id(),
            started: process::started(std::process::id()),
            worker_pid: None,
            device: None,
            loop_number: None,
            mount_created: false,
            queue_before: Vec::new(),
        },
        dir,
        worker: None,
        device: None,
        _lock: lock,
    };
    standing.dir.write_record(&standing.record)?;
    standing.build(u32::try_from(drives.depth()).unwrap_or(DEPTH_MAX).min(DEPTH_MAX))?;
    announce(&standing.record);
    standing.watch(signals)
}

/// Removes a disk of this name whose supervisor died. The caller holds the lock.
pub fn clear_stale(dir: &DiskDir) {
    match dir.record() {
        Some(record) => dismantle(dir, &record, None, || kill_orphan(dir, &record)),
        None => dir.remove(),
    }
}

/// Ends a worker without its supervisor, if it still is one of ours.
fn kill_orphan(dir: &DiskDir, record: &DiskRecord) {
    let Some(pid) = record.worker_pid else { return };
    if let Ok(Some(worker)) = process::Ours::find(pid, None, &["worker"], dir.name()) {
        let _ = worker.signal(rustix::process::Signal::KILL);
    }
}

impl Standing {
    fn build(&mut self, drive_depth: u32) -> Result<(), Fault> {
        let config = self.record.config.clone();
        if let Some(target) = &config.mount {
            self.record.mount_created = prepare_mount_dir(target)?;
            self.dir.write_record(&self.record)?;
        }
        self.start_worker(&config)?;
        self.dir.write_record(&self.record)?;
        if config.fs == FsKind::Tree {
            return Ok(());
        }
        // Creating and mounting the file system take no drive time; the hold ends with this function.
        let mut hold = ControlClient::connect(&self.dir)?;
        hold.ask(&ControlRequest::Unthrottle)?;
        let file = self.dir.fuse().join(FILE_NAME);
        let opened = fs::OpenOptions::new().read(true).write(true).open(&file);
        let opened = opened.map_err(|e| cannot("open", &file, &e))?;
        let device = LoopDevice::attach(opened.as_fd(), 512).map_err(|e| {
            let fault = cannot("get a loop device from", Path::new("/dev/loop-control"), &e);
            Fault::new(
                fault.exit,
                format!("{}; this needs root and the loop driver, or use --tree", fault.message),
            )
        })?;
        self.record.loop_number = Some(device.number());
        self.record.device = Some(device.path());
        self.dir.write_record(&self.record)?;
        let mut queue = LoopQueue::of_loop(device.number());
        self.device = Some(device);
        let depth = config.queue_depth.unwrap_or(drive_depth);
        let dressed =
            queue.dress(depth, config.scheduler.as_deref(), config.read_ahead_kb, config.max_sectors_kb);
        self.record.queue_before.clone_from(&queue.before);
        self.dir.write_record(&self.record)?;
        dressed?;
        let path = self.record.device.clone().unwrap_or_default();
        mkfs::make(config.fs, &path)?;
        if let Some(target) = &config.mount {
            mkfs::mount_at(config.fs, &path, target, config.mount_options.as_deref())?;
        }
        queue.set_read_ahead(config.read_ahead_kb);
        Ok(())
    }

    fn start_worker(&mut self, config: &DiskConfig) -> Result<(), Fault> {
        let failed = |why: String| Fault::failed(format!("cannot start the disk's server: {why}"));
        let exe = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
        let text = serde_json::to_string(config).map_err(|e| failed(e.to_string()))?;
        let mut command = Command::new(exe);
        command.args(["vdisk", "worker", &text]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Ok(log) = fs::File::create(self.dir.log()) {
            command.stderr(log);
        }
        // A terminal's interrupt goes only to the supervisor, which takes the disk down in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        if let Some(helper) = mkfs::find_program("fusermount3") {
            command.env("FUSERMOUNT_PATH", helper);
        }
        let mut worker = command.spawn().map_err(|e| failed(e.to_string()))?;
        self.record.worker_pid = Some(worker.id());
        let out = worker.stdout.take();
        self.worker = Some(worker);
        let mut line = String::new();
        if let Some(out) = out {
            let _ = BufReader::new(out).read_line(&mut line);
        }
        match line.trim_end() {
            READY => Ok(()),
            "" => Err(failed("it ended without a word".into())),
            text => Err(crate::message::fault_from_json(text)),
        }
    }

    /// Waits for the order to end, or for the worker's end.
    fn watch(&mut self, mut signals: Signals) -> Result<Exit, Fault> {
        for signal in signals.forever() {
            if signal != SIGCHLD {
                return Ok(Exit::Ok);
            }
            let ended = self.worker.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                self.worker = None;
                return Err(Fault::failed(format!(
                    "disk `{}` went down: its server ended ({status})",
                    self.dir.name()
                )));
            }
        }
        Ok(Exit::Ok)
    }
}

/// Creates the mount directory, or checks that it is empty. Returns whether it was created.
fn prepare_mount_dir(target: &Path) -> Result<bool, Fault> {
    match fs::read_dir(target) {
        Ok(mut entries) => match entries.next() {
            None => Ok(false),
            Some(_) => Err(Fault::busy(format!(
                "{} is not empty: mount the disk at an empty or new directory",
                target.display()
            ))),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir(target).map_err(|e| cannot("make directory", target, &e))?;
            Ok(true)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => Err(Fault::usage(format!(
            "{} is no directory: mount the disk at an empty or new one",
            target.display()
        ))),
        Err(e) => Err(cannot("use as mount directory", target, &e)),
    }
}
