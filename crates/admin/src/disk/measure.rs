//! The measuring procedure on a real disk: issues its reads at the right moments and yields to other users of
//! the disk.
//!
//! The kernel counts every sector that a device reads and writes. If it counts more than our own read,
//! another program used the disk meanwhile. That figure is discarded, and for some seconds the measurement
//! keeps to its share of the disk's time: it rests between reads, longer while the disturbances go on.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use seekless_base::{Exit, Fault, Nanos};
use seekless_kernel::loopdev::fuse_backing;
use seekless_kernel::queue::{Queue, Usage, Used};
use seekless_kernel::rawio::RawDisk;
use seekless_kernel::sched::run_first;
use seekless_kernel::sysfs::SYS_BLOCK;
use seekless_policy::profile::{DiskProfile, Phase, Procedure, ProcedureOptions, Timing, Unmeasurable};

use crate::disk::awake::Awake;
use crate::disk::resolve::DiskTarget;

/// Longest read of the procedure.
const READ_MAX: usize = 2048 * 512;
/// Others count as active for this long after they were seen.
const ACTIVE: Duration = Duration::from_secs(5);
/// Longest rest.
const REST_MAX: Duration = Duration::from_secs(5);
/// A sleep ends this much early, and the remaining time is spent in a loop, because timers wake late by about
/// 60 us.
const SPIN: Duration = Duration::from_micros(200);

/// How the measurement shares the disk with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    /// Part of the disk's time while others use it.
    pub(crate) share: f64,
    /// Give up after this long.
    pub(crate) duration: Duration,
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// The profile.
    pub(crate) profile: DiskProfile,
    /// Number of reads.
    pub(crate) reads: u64,
    /// Number of these that were discarded because others used the disk.
    pub(crate) disturbed: u64,
    /// Time for which the disk worked for the measurement.
    pub(crate) busy: Duration,
    /// Total time.
    pub(crate) wall: Duration,
}

/// Measures a disk. `progress` gets the finished part and the current phase; `stop` ends it early.
///
/// # Errors
/// `Permission`, `Missing`: the device cannot be opened. `Interrupted`. `Failed`: it cannot be measured.
pub(crate) fn measure(
    target: &DiskTarget,
    manners: Manners,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(f64, Phase, bool),
) -> Result<Measured, Fault> {
    let device = target.device();
    let disk = RawDisk::open(&device, READ_MAX).map_err(|e| cannot_open(&device, &e))?;
    let behind = behind_the_loop(&target.name, disk.sectors());
    let past_the_queue = behind.is_some();
    let disk = behind.unwrap_or(disk);
    let queue = Queue::new(Path::new(SYS_BLOCK), &target.name);
    let block = queue.logical_block().unwrap_or(512).clamp(512, 65_536) / 512;
    let seed =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let options = ProcedureOptions { sectors: disk.sectors(), block: block as u32, seed };
    let procedure = Procedure::new(options).map_err(|why| cannot_measure(&device, why))?;
    let meter = Meter { usage: queue.usage().ok(), last: None, past_the_queue };
    // First, because threads inherit the priority set on the next line.
    let _awake = Awake::new();
    // A delay caused by other work is measured as disk time. Without the right to a higher priority, the
    // procedure works with what it gets, or reports that the host is too late.
    let _ = run_first();
    let run = Measurement {
        disk,
        meter,
        manners,
        origin: Instant::now(),
        busy: Duration::ZERO,
        last_others: None,
        calm: 0,
    };
    run.go(procedure, &device, stop, progress)
}

/// A software disk is read without the kernel's loop worker: on a busy machine that thread waits for a
/// processor for milliseconds, which no real disk does.
fn behind_the_loop(name: &str, sectors: u64) -> Option<RawDisk> {
    let path = fuse_backing(name.strip_prefix("loop")?.parse().ok()?)?;
    RawDisk::open(&path, READ_MAX).ok().filter(|disk| disk.sectors() == sectors)
}

/// Distinguishes our own use of the disk from that of others.
struct Meter {
    usage: Option<Usage>,
    last: Option<Used>,
    /// Whether our own reads are missing from the kernel's count.
    past_the_queue: bool,
}

impl Meter {
    /// Whether others used the disk since the last call, in which we read `sectors`.
    fn others(&mut self, sectors: u64) -> bool {
        let Some(used) = self.usage.as_ref().and_then(|u| u.now().ok()) else { return false };
        let last = self.last.replace(used).unwrap_or(used);
        let sectors = if self.past_the_queue { 0 } else { sectors };
        let foreign = used.sectors_read.wrapping_sub(last.sectors_read).saturating_sub(sectors)
            + used.sectors_written.wrapping_sub(last.sectors_written);
        foreign > 0 || used.in_flight > 0
    }
}

struct Measurement {
    disk: RawDisk,
    meter: Meter,
    manners: Manners,
    origin: Instant,
    busy: Duration,
    last_others: Option<Instant>,
    /// How often in a row others were seen at a rest.
    calm: u32,
}

impl Measurement {
    fn go(
        mut self,
        mut procedure: Procedure,
        device: &Path,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(f64, Phase, bool),
    ) -> Result<Measured, Fault> {
        let (mut reads, mut disturbed) = (0, 0);
        let mut busy_before = Duration::ZERO;
        self.meter.others(0);
        while let Some(read) = procedure.next(self.now()) {
            if stop.load(Ordering::Relaxed) {
                return Err(Fault::new(Exit::Interrupted, "interrupted; nothing was stored"));
            }
            if self.origin.elapsed() > self.manners.duration {
                return Err(Fault::failed(format!(
                    "{}: not done after {} s ({:.0} %, {disturbed} of {reads} reads disturbed by others); \
                     measure when it is less busy, or give it longer with --duration",
                    device.display(),
                    self.manners.duration.as_secs(),
                    procedure.progress() * 100.0
                )));
            }
            if read.may_rest {
                progress(procedure.progress(), procedure.phase(), self.others_active());
                self.rest(self.busy - busy_before, stop);
                busy_before = self.busy;
            }
            self.wait_until(read.not_before);
            let issued = self.now();
            let result = self.disk.read(read.lba.0, read.sectors);
            let completed = self.now();
            self.busy += Duration::from_nanos(completed.since(issued).0);
            reads += 1;
            let others = self.meter.others(u64::from(read.sectors));
            if others {
                disturbed += 1;
                self.last_others = Some(Instant::now());
            }
            let timing = Timing { issued, completed, disturbed: others };
            match result {
                Ok(()) => procedure.done(timing),
                Err(_) => procedure.failed(timing),
            }
        }
        progress(1.0, Phase::Finished, false);
        let profile = procedure.finish().map_err(|why| cannot_measure(device, why))?;
        Ok(Measured { profile, reads, disturbed, busy: self.busy, wall: self.origin.elapsed() })
    }

    /// Time since the start.
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wait_until(&self, at: Nanos) {
        loop {
            let left = Duration::from_nanos(at.since(self.now()).0);
            if left.is_zero() {
                return;
            }
            if left > SPIN {
                std::thread::sleep(left - SPIN);
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn others_active(&self) -> bool {
        self.last_others.is_some_and(|at| at.elapsed() < ACTIVE)
    }

    /// Rests until our use since the last rest is our share of the time; twice as long each time others are
    /// still active, within bounds.
    fn rest(&mut self, took: Duration, stop: &AtomicBool) {
        if self.meter.others(0) {
            self.last_others = Some(Instant::now());
            self.calm = (self.calm + 1).min(3);
        } else {
            self.calm = 0;
        }
        if !self.others_active() {
            return;
        }
        let share = took.mul_f64(1.0 / self.manners.share - 1.0) * (1 << self.calm);
        let until = Instant::now() + share.min(REST_MAX);
        while !stop.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        // What others did while we rested disturbs no read.
        self.meter.others(0);
    }
}

fn cannot_open(device: &Path, e: &std::io::Error) -> Fault {
    use std::io::ErrorKind::{InvalidInput, NotFound, PermissionDenied};
    let device = device.display();
    match e.kind() {
        PermissionDenied => {
            Fault::permission(format!("cannot read {device}: run as root or as a member of group disk"))
        }
        NotFound => Fault::missing(format!("there is no {device}")),
        InvalidInput => Fault::failed(format!("{device} cannot be read past the page cache (O_DIRECT): {e}")),
        _ => Fault::failed(format!("cannot open {device}: {e}")),
    }
}

fn cannot_measure(device: &Path, why: Unmeasurable) -> Fault {
    Fault::failed(format!("{} cannot be measured: {why}", device.display()))
}
