//! Which disks seek: measured instead of assumed.
//!
//! The kernel's `rotational` flag reports what a driver was told. Hardware RAID, virtio, bcache and volumes
//! of all kinds report 0 over disks with heads, and virtual machines report 1 over flash. So the kind of a
//! disk is determined once, by the first of these sources that has an answer:
//!
//! 1. its stored profile (`seekless disk profile`);
//! 2. an earlier probe of this device in this boot (`<disk>.kind.json` beside the profiles; a device that is
//!    attached again has another `diskseq`);
//! 3. a probe now: some fifty small direct reads ([`seekless_policy::profile::ProbeTimes`]) in under a
//!    second, of the device or, if that cannot be opened, of the file in question; only while the disk has
//!    next to nothing else to do;
//! 4. the flag, until the disk has been idle for long enough.
//!
//! A disk that seeks may be a set of several behind one device. If its layout cannot be read
//! ([`crate::layout`]), its concurrency limit is measured with it
//! ([`seekless_policy::profile::Concurrency`]): long reads, one to eight in flight, in under a second.
//!
//! On a volume with late allocation, reads of unwritten space return at once, whatever lies below. So if a
//! device seems not to seek, the probe is repeated on a file, if there is one.
//!
//! A disk may hang, so all of this runs in a thread of its own, and each wait for it is bounded.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use seekless_base::{Bytes, Nanos};
use seekless_kernel::queue::{Queue, Usage, Used};
use seekless_kernel::rawio::RawDisk;
use seekless_kernel::sysfs::{self, SYS_BLOCK};
use seekless_kernel::topology::{Backing, Dev, Disk, MountTable, Topology, is_device_name};
use seekless_policy::profile::{
    Concurrency, DiskKind, PIECE, ProbeTimes, ROUNDS, RUN, RUNS, SMALL, piece, place,
};
use serde::Serialize;

use crate::disk::Known;
use crate::layout::Layout;
use crate::lock;

/// Maximum duration of a probe, which then ends with what it has: a disk of 5400 rpm takes 0.4 s.
const PROBE_MAX: Duration = Duration::from_millis(800);

/// Maximum duration of the concurrency measurement, checked between two reads.
const CONCURRENCY_MAX: Duration = Duration::from_millis(900);

/// Time for which the disk is observed for other load.
const IDLE_FOR: Duration = Duration::from_millis(60);

/// Maximum utilisation of the disk in that time, in per cent. The medians of a probe tolerate a few disturbed
/// reads.
const BUSY_MAX: u64 = 20;

/// A disk of which only the flag is known is probed again after this time, and so is a file system on several
/// disks.
pub(crate) const RETRY: Duration = Duration::from_secs(60);

/// Minimum size of a file to probe, in bytes. A drive may have all of a smaller file in its buffer.
const FILE_MIN: u64 = 64 << 20;

/// Maximum number of known disks, and of probes at once.
const DISKS_MAX: usize = 1024;
const THREADS_MAX: usize = 64;

/// The source of a disk's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KnownBy {
    /// Its stored profile.
    Profile,
    /// A probe in this boot.
    Probe,
    /// The kernel's flag alone.
    Flag,
}

/// The kind of a disk, for people and scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KindReport {
    /// Kernel name of the disk.
    pub disk: String,
    /// Whether it seeks. Without `--include-ssd`, only disks that seek are served.
    pub seeks: bool,
    /// The kernel's flag.
    pub rotational: bool,
    /// The source of this.
    pub by: KnownBy,
    /// The measured kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<DiskKind>,
    /// Why it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
}

impl fmt::Display for KindReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (does, how) =
            if self.seeks { ("served", "it seeks") } else { ("left alone", "it does not seek") };
        write!(f, "{} is {does}: ", self.disk)?;
        let flag = u8::from(self.rotational);
        let lies = if self.seeks == self.rotational {
            String::new()
        } else {
            format!(", though its flag is rotational={flag}")
        };
        match self.kind {
            Some(kind) => {
                let by = if self.by == KnownBy::Profile { "its profile" } else { "measured" };
                let lost = kind.lost.as_millis_f64();
                let mib = kind.depth.0 as f64 / f64::from(1 << 20);
                write!(f, "{how} (a jump costs {lost:.2} ms, in which it reads {mib:.2} MiB; {by}{lies})")?;
                if self.seeks && kind.at_once > 1 {
                    write!(f, "; it reads {} pieces at once", kind.at_once)?;
                }
            }
            None => {
                let why = self.not_measured.as_deref().unwrap_or("not measured");
                write!(f, "the kernel says rotational={flag} ({why})")?;
            }
        }
        if self.seeks { Ok(()) } else { f.write_str("; --include-ssd serves it too") }
    }
}

#[derive(Debug)]
struct Entry {
    /// See [`sequence`].
    sequence: u64,
    /// The kind, as far as is known now.
    report: KindReport,
    measuring: bool,
    since: Instant,
    /// Whether the probe also used a file.
    with_file: bool,
}

/// The kinds of all disks, shared within one process.
#[derive(Debug, Default)]
pub struct Kinds {
    table: Mutex<HashMap<Dev, Entry>>,
    changed: Condvar,
}

impl Kinds {
    /// Whether a disk seeks, as far as is known now; starts a probe if it is not known. Never waits. `fd` is
    /// a file on the disk, `profiles` the folder of profiles. Anything that is not a block device counts as
    /// its topology says.
    pub(crate) fn seeks(self: &Arc<Self>, disk: &Disk, fd: Option<BorrowedFd<'_>>, profiles: &Path) -> bool {
        if !is_block(&disk.name) {
            return disk.rotational;
        }
        let sequence = sequence(&disk.name);
        let mut table = lock(&self.table);
        if table.len() >= DISKS_MAX && !table.contains_key(&disk.dev) {
            table.retain(|_, e| e.measuring);
        }
        let known = table.get(&disk.dev).filter(|e| e.sequence == sequence);
        if let Some(entry) = known {
            let settled = entry.measuring || entry.report.by != KnownBy::Flag;
            let untried = fd.is_some() && !entry.with_file;
            if settled || (entry.since.elapsed() < RETRY && !untried) {
                return entry.report.seeks;
            }
        }
        let flag = |why: &str| by_flag(disk, why.into());
        let report = known.map_or_else(|| flag("not measured yet"), |e| e.report.clone());
        let seeks = report.seeks;
        let with_file = fd.is_some();
        let measuring = table.values().filter(|e| e.measuring).count() < THREADS_MAX;
        let entry = Entry { sequence, report, measuring, since: Instant::now(), with_file };
        table.insert(disk.dev, entry);
        if !measuring {
            return seeks;
        }
        drop(table);
        let file = fd.and_then(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 3).ok());
        let (kinds, of, folder) = (self.clone(), disk.clone(), profiles.to_path_buf());
        let work = move || {
            let first = |report| kinds.found(of.dev, sequence, report, true);
            let report = look(&of, sequence, file.as_ref(), &folder, first);
            kinds.found(of.dev, sequence, report, false);
        };
        if let Err(error) = thread::Builder::new().name(format!("kind {}", disk.name)).spawn(work) {
            self.found(disk.dev, sequence, flag(&format!("no thread to measure it: {error}")), false);
        }
        seeks
    }

    /// Whether a disk seeks, as far as is known without a probe: measured before, or else by the kernel's
    /// flag.
    pub(crate) fn seeks_unprobed(&self, disk: &Disk) -> bool {
        let sequence = sequence(&disk.name);
        let table = lock(&self.table);
        let known = table.get(&disk.dev).filter(|entry| entry.sequence == sequence);
        known.map_or(disk.rotational, |entry| entry.report.seeks)
    }

    /// The concurrency limit of the disk with this kernel name, if it was measured.
    pub(crate) fn at_once(&self, name: &str) -> Option<usize> {
        let table = lock(&self.table);
        let entry = table.values().find(|e| e.report.disk == name && !e.measuring)?;
        Some(entry.report.kind?.at_once as usize).filter(|at_once| *at_once > 0)
    }

    /// Stores a result. `measuring` means that more follows.
    fn found(&self, dev: Dev, sequence: u64, report: KindReport, measuring: bool) {
        let mut table = lock(&self.table);
        if let Some(entry) = table.get_mut(&dev).filter(|e| e.sequence == sequence) {
            if entry.report.seeks != report.seeks {
                tracing::info!("{report}");
            }
            (entry.report, entry.measuring, entry.since) = (report, measuring, Instant::now());
        }
        self.changed.notify_all();
    }

    /// Probes the disks under all mounts (or only under these folders), waits at most `patience`, and returns
    /// what is known of each, by name.
    pub fn survey(
        self: &Arc<Self>,
        folders: Option<&[PathBuf]>,
        profiles: &Path,
        patience: Duration,
    ) -> Vec<KindReport> {
        let until = Instant::now() + patience;
        let disks = mounted(folders);
        for disk in &disks {
            self.seeks(disk, None, profiles);
        }
        let mut table = lock(&self.table);
        let under_way = |table: &HashMap<Dev, Entry>| {
            disks.iter().any(|d| table.get(&d.dev).is_some_and(|e| e.measuring))
        };
        while under_way(&table)
            && let Some(left) = until.checked_duration_since(Instant::now()).filter(|l| !l.is_zero())
        {
            table = match self.changed.wait_timeout(table, left) {
                Ok((table, _)) => table,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        let mut reports: Vec<KindReport> =
            disks.iter().filter_map(|d| table.get(&d.dev)).map(|e| e.report.clone()).collect();
        reports.sort_by(|a, b| a.disk.cmp(&b.disk));
        reports
    }
}

/// The distinct block devices under the mounts.
fn mounted(folders: Option<&[PathBuf]>) -> Vec<Disk> {
    let mounts = MountTable::of_system();
    let topology = Topology::new("/sys", mounts.clone());
    let wanted: Vec<(Dev, Option<u64>)> = match folders {
        None => mounts.iter().map(|m| (m.dev, Some(m.id))).collect(),
        Some(folders) => {
            let paths = folders.iter().filter_map(|f| fs::canonicalize(f).ok());
            paths.filter_map(|p| mounts.by_path(&p).map(|m| (m.dev, Some(m.id)))).collect()
        }
    };
    let mut disks: Vec<Disk> = Vec::new();
    for (dev, mount) in wanted {
        let Backing::Disk { disk, members, .. } = topology.backing(dev, mount) else { continue };
        for disk in if members.is_empty() { vec![disk] } else { members } {
            let known = disks.iter().any(|d| d.dev == disk.dev);
            if is_block(&disk.name) && !known && disks.len() < DISKS_MAX {
                disks.push(disk);
            }
        }
    }
    disks
}

/// Sequence number of the block device with this kernel name among all since boot; another number is another
/// disk. 0 if it is not a block device, and before Linux 5.15.
pub(crate) fn sequence(name: &str) -> u64 {
    let path = || Path::new(SYS_BLOCK).join(name).join("diskseq");
    is_block(name).then(|| sysfs::number(path())).flatten().unwrap_or(0)
}

/// Whether this is the kernel name of a block device.
pub(crate) fn is_block(name: &str) -> bool {
    is_device_name(name) && Path::new(SYS_BLOCK).join(name).is_dir()
}

fn by_flag(disk: &Disk, why: String) -> KindReport {
    KindReport {
        disk: disk.name.clone(),
        seeks: disk.rotational,
        rotational: disk.rotational,
        by: KnownBy::Flag,
        kind: None,
        not_measured: Some(why),
    }
}

/// Finds out everything. May take as long as the disk likes.
///
/// If more is measured, `publish` first gets whether the disk seeks.
fn look(
    disk: &Disk,
    sequence: u64,
    file: Option<&OwnedFd>,
    profiles: &Path,
    publish: impl FnOnce(KindReport),
) -> KindReport {
    let known = Known::look_up(&disk.name, sequence, profiles);
    let report = |by, kind: DiskKind| KindReport {
        disk: disk.name.clone(),
        seeks: kind.seeks,
        rotational: disk.rotational,
        by,
        kind: Some(kind),
        not_measured: None,
    };
    let by_probe = |kind| (KnownBy::Probe, kind);
    let (by, kind) = match (known.profile().map(|p| DiskKind::of_profile(&p)), known.kind()) {
        (Some(kind), Some(DiskKind { at_once: at_once @ 1.., .. })) => {
            return report(KnownBy::Profile, DiskKind { at_once, ..kind });
        }
        (None, Some(kind @ DiskKind { at_once: 1.., .. })) => return report(KnownBy::Probe, kind),
        (Some(kind), _) => (KnownBy::Profile, kind),
        (None, Some(kind)) => (KnownBy::Probe, kind),
        (None, None) => match probe(&disk.name, file).map(by_probe) {
            Ok(found) => found,
            Err(why) => return by_flag(disk, why),
        },
    };
    // A readable layout needs no measurement; an inconsistent one is served as one spindle.
    let told = !matches!(Layout::read(Path::new(SYS_BLOCK), &disk.name), Ok(None));
    if told || !kind.seeks {
        known.remember_kind(kind);
        return report(by, kind);
    }
    // Whether it seeks is known, and callers wait for that. It is stored, even if the rest cannot be measured
    // now.
    let kind = DiskKind { at_once: 0, ..kind };
    known.remember_kind(kind);
    publish(report(by, kind));
    match concurrency(&disk.name, file) {
        Ok(at_once) => {
            let kind = DiskKind { at_once, ..kind };
            known.remember_kind(kind);
            report(by, kind)
        }
        // The next start measures it; until then it is found under load.
        Err(why) => {
            tracing::debug!(disk = disk.name, why, "its pieces at once are found under load");
            report(by, kind)
        }
    }
}

/// The disk's usage, if it has next to nothing to do; otherwise the reason.
fn quiet(usage: &Usage) -> Result<Used, String> {
    let before = usage.now().map_err(uncounted)?;
    thread::sleep(IDLE_FOR);
    let now = usage.now().map_err(uncounted)?;
    let busy_ms = now.busy_ms.saturating_sub(before.busy_ms);
    if now.in_flight > 0 || busy_ms * 100 > IDLE_FOR.as_millis() as u64 * BUSY_MAX {
        return Err("not measured: busy".into());
    }
    Ok(now)
}

fn uncounted(error: io::Error) -> String {
    format!("not measured: the kernel does not count its commands ({error})")
}

/// Measures the concurrency limit of a disk, on the device or, if that cannot be opened, on the file.
fn concurrency(name: &str, file: Option<&OwnedFd>) -> Result<u32, String> {
    let usage = Queue::new(Path::new(SYS_BLOCK), name).usage().map_err(uncounted)?;
    let before = quiet(&usage)?;
    let device = Path::new("/dev").join(name.replace('!', "/"));
    let own = file.map(|f| PathBuf::from(format!("/proc/self/fd/{}", f.as_raw_fd())));
    let open = |path: &Path| RawDisk::open(path, PIECE.0 as usize);
    let path = match (open(&device), own) {
        (Ok(_), _) => device,
        (Err(_), Some(own)) => own,
        (Err(error), None) => return Err(format!("not measured: {}: {error}", device.display())),
    };
    let (found, reads) = pieces_at_once(&path).map_err(|error| format!("not measured: {error}"))?;
    let after = usage.now().map_err(uncounted)?;
    // A piece is split into a few commands; any others come from other load.
    if after.commands.saturating_sub(before.commands) > reads as u64 * COMMANDS_A_PIECE {
        return Err("not measured: busy".into());
    }
    Ok(found.at_once() as u32)
}

/// Maximum number of commands that the block layer splits a piece into: its default is 1280 KiB, that of some
/// drivers 128 KiB.
const COMMANDS_A_PIECE: u64 = PIECE.0 / (128 << 10);

/// Times long reads of a device or file, with more and more in flight. Returns the times and the number of
/// reads.
fn pieces_at_once(path: &Path) -> io::Result<(Concurrency, usize)> {
    let began = Instant::now();
    let (mut found, mut first) = (Concurrency::default(), 0);
    while let Some((deep, reads)) = found.next() {
        let open = |_| RawDisk::open(path, PIECE.0 as usize);
        let mut disks = (0..deep).map(open).collect::<io::Result<Vec<RawDisk>>>()?;
        let bytes = Bytes(disks[0].sectors().saturating_mul(512));
        if bytes.0 < FILE_MIN {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too small to jump in"));
        }
        let (next, upto) = (AtomicUsize::new(first), first + reads);
        let start = Instant::now();
        let read_on = |disk: &mut RawDisk| -> io::Result<usize> {
            let mut done = 0;
            while began.elapsed() < CONCURRENCY_MAX {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= upto {
                    break;
                }
                disk.read(piece(bytes, i).0, (PIECE.0 / 512) as u32)?;
                done += 1;
            }
            Ok(done)
        };
        let done = thread::scope(|scope| -> io::Result<usize> {
            let spawn = |disk| thread::Builder::new().spawn_scoped(scope, || read_on(disk));
            let threads = disks.iter_mut().map(spawn).collect::<io::Result<Vec<_>>>()?;
            let ended = threads.into_iter().map(|t| t.join().unwrap_or(Ok(0)));
            ended.sum()
        })?;
        first += done;
        // Time is up: the earlier stages count.
        if done < reads {
            break;
        }
        found.observe(Bytes(PIECE.0 * reads as u64), Nanos(start.elapsed().as_nanos() as u64));
    }
    Ok((found, first))
}

/// Probes the device and, if it cannot be opened or seems not to seek, the file.
fn probe(name: &str, file: Option<&OwnedFd>) -> Result<DiskKind, String> {
    let usage = Queue::new(Path::new(SYS_BLOCK), name).usage().map_err(uncounted)?;
    let now = quiet(&usage)?;
    let path = Path::new("/dev").join(name.replace('!', "/"));
    let mut found = timed(&path, 0).map_err(|error| format!("not measured: {}: {error}", path.display()));
    // Opening the path of an open descriptor opens the same file again, with an offset and flags of its own.
    let own = file.map(|f| PathBuf::from(format!("/proc/self/fd/{}", f.as_raw_fd())));
    if let Some(own) = own
        && !matches!(&found, Ok(times) if times.kind().is_some_and(|k| k.seeks))
    {
        match timed(&own, FILE_MIN) {
            Ok(times) if times.kind().is_some() => found = Ok(times),
            // The result of the device stands.
            Ok(_) => {}
            Err(error) if found.is_err() => found = Err(format!("not measured: {error}")),
            Err(_) => {}
        }
    }
    let times = found?;
    let after = usage.now().map_err(uncounted)?;
    let own = (times.jump.len() + times.next.len() + times.again.len()) as u64;
    // A run is split into a few commands, up to RUN / 4 KiB; other load may add as many.
    let cut = Bytes(RUN.0 / 4096).0 * times.run.len() as u64;
    if after.commands.saturating_sub(now.commands) > own * 2 + cut {
        return Err("not measured: busy".into());
    }
    times.kind().ok_or_else(|| "not measured: too slow an answer".to_string())
}

/// Times the reads of a probe on a device or file of at least this many bytes.
fn timed(path: &Path, least: u64) -> io::Result<ProbeTimes> {
    let began = Instant::now();
    let mut raw = RawDisk::open(path, RUN.0 as usize)?;
    let bytes = Bytes(raw.sectors().saturating_mul(512));
    let span = Bytes(SMALL.0 + RUN.0);
    if bytes.0 < least.max(2 * span.0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too small to jump in"));
    }
    let mut times = ProbeTimes::default();
    let mut read = |lba: u64, len: Bytes| -> io::Result<Nanos> {
        let start = Instant::now();
        raw.read(lba, (len.0 / 512) as u32)?;
        Ok(Nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)))
    };
    for round in 0..ROUNDS {
        if began.elapsed() >= PROBE_MAX {
            break;
        }
        let lba = place(bytes, span, round).0;
        let behind = lba + SMALL.0 / 512;
        times.jump.push(read(lba, SMALL)?);
        times.next.push(read(behind, SMALL)?);
        times.again.push(read(lba, SMALL)?);
        if round % (ROUNDS / RUNS) == 0 {
            times.run.push(read(behind, RUN)?);
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, rotational: bool) -> Disk {
        Disk { dev: Dev { major: 250, minor: 7 }, name: name.into(), rotational }
    }

    #[test]
    fn what_is_no_block_device_is_what_its_topology_says() {
        let kinds = Arc::new(Kinds::default());
        for rotational in [false, true] {
            assert_eq!(kinds.seeks(&disk("/mnt/x", rotational), None, Path::new("/nowhere")), rotational);
        }
        assert!(lock(&kinds.table).is_empty());
    }

    #[test]
    fn a_line_says_what_is_done_and_why() {
        let kind =
            DiskKind { seeks: true, lost: Nanos::from_micros(12_340), depth: Bytes::mib(1), at_once: 1 };
        let found = |seeks, rotational| KindReport {
            disk: "sda".into(),
            seeks,
            rotational,
            by: KnownBy::Probe,
            kind: Some(DiskKind { seeks, ..kind }),
            not_measured: None,
        };
        let line = found(true, false).to_string();
        assert_eq!(
            line,
            "sda is served: it seeks (a jump costs 12.34 ms, in which it reads 1.00 MiB; measured, though its flag is rotational=0)"
        );
        let set = KindReport { kind: Some(DiskKind { at_once: 4, ..kind }), ..found(true, true) };
        assert!(set.to_string().ends_with("; it reads 4 pieces at once"), "{set}");
        let line = found(false, true).to_string();
        assert!(
            line.contains("left alone") && line.contains("rotational=1") && line.contains("--include-ssd")
        );
        assert!(!found(true, true).to_string().contains("though"));
        let line = by_flag(&disk("sdb", true), "not measured: busy".into()).to_string();
        assert_eq!(line, "sdb is served: the kernel says rotational=1 (not measured: busy)");
    }

    #[test]
    fn a_file_in_memory_does_not_seek_and_a_small_one_says_nothing() {
        let file = tempfile::tempfile().unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        file.set_len(1 << 20).unwrap();
        assert_eq!(timed(&path, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        file.set_len(FILE_MIN).unwrap();
        match timed(&path, FILE_MIN) {
            // Holes: nothing is read from the disk.
            Ok(times) => assert!(times.kind().is_some_and(|k| !k.seeks), "{times:?}"),
            Err(error) => println!("skipped: no reads past the page cache here: {error}"),
        }
        match pieces_at_once(&path) {
            Ok((found, reads)) => {
                assert!([1, 2, 4, 8].contains(&found.at_once()) && (6..=66).contains(&reads), "{found:?}");
            }
            Err(error) => println!("skipped: no reads past the page cache here: {error}"),
        }
        file.set_len(1 << 20).unwrap();
        assert!(pieces_at_once(&path).is_err(), "too small");
        assert!(pieces_at_once(Path::new("/nowhere/at/all")).is_err());
        assert!(timed(Path::new("/nowhere/at/all"), 0).is_err());
    }
}
