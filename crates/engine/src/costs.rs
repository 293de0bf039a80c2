//! The costs of files and programs on a disk: the account of its thread, and its report.
//!
//! The rules are in [`seekless_policy::costs`]. This module determines for which process a piece is read: the
//! one whose last read of the file was nearest before it ([`Askers`]). The names of files are looked up when
//! a report is requested, through their open descriptors (`/proc/self/fd`), or when a file is closed, by the
//! thread that closes it.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use seekless_base::{Lba, Nanos};
use seekless_kernel::prefetch::Source;
use seekless_policy::costs::{Begun, Cost, Entry, Heaviest, Spending};
use seekless_policy::{FileId, ReadId};
use serde::{Deserialize, Serialize};

use crate::lock;
use crate::processes::{Processes, Program, shown};

/// Maximum number of places in a file at which processes read. At half, a third program in a file with
/// several streams is mistaken for another; at double, a miss compares twice as many.
const ASKERS_MAX: usize = 8;

/// A read within this distance of a place moves that place on: servers read some bytes twice, and parallel
/// readers read out of order.
const NEAR: u64 = 8 << 20;

/// Maximum number of files, and of programs, in the report of a disk. At half, a screen is not filled; at
/// double, the report of a machine with sixty disks exceeds the maximum that is sent.
const SHOWN_MAX: usize = 32;

/// Maximum length of a path in the report, in bytes; a longer one is shown by its end.
const PATH_MAX: usize = 240;

/// Which process reads at which place of a file.
#[derive(Debug, Default)]
pub(crate) struct Askers(Vec<(u32, u64)>);

impl Askers {
    /// A process (0: not known) has requested bytes up to `upto`.
    pub(crate) fn asked(&mut self, pid: u32, from: u64, upto: u64) {
        if pid == 0 {
            return;
        }
        let near = |&(of, at): &(u32, u64)| of == pid && from.abs_diff(at) <= NEAR;
        // The latest is last.
        let oldest = (self.0.len() >= ASKERS_MAX).then_some(0);
        if let Some(moved) = self.0.iter().position(near).or(oldest) {
            self.0.remove(moved);
        }
        self.0.push((pid, upto));
    }

    /// The process for which bytes from `offset` on are read; 0 if none is known.
    pub(crate) fn of(&self, offset: u64) -> u32 {
        let before = self.0.iter().rev().filter(|(_, at)| *at <= offset.saturating_add(NEAR));
        let nearest = before.min_by_key(|(_, at)| offset.abs_diff(*at));
        nearest.or(self.0.last()).map_or(0, |&(pid, _)| pid)
    }
}

/// How to find the path of a file.
#[derive(Clone, Debug)]
enum Name {
    Open(Weak<Source>),
    Known(String),
}

/// The account of a disk, shared by its thread and by those that request reports.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    files: Heaviest<FileId>,
    programs: Heaviest<Arc<Program>>,
    /// Paths of the files in the table.
    names: HashMap<FileId, Name>,
    /// Time on the disk thread's clock.
    now: Nanos,
}

pub(crate) type SharedCosts = Arc<Mutex<Costs>>;

impl Costs {
    fn charge(
        &mut self,
        now: Nanos,
        file: FileId,
        program: Arc<Program>,
        cost: Cost,
        source: Option<&Arc<Source>>,
    ) {
        self.now = self.now.max(now);
        if let Some(lost) = self.files.add(now, file, cost) {
            self.names.remove(&lost);
        }
        self.programs.add(now, program, cost);
        let Some(source) = source else { return };
        match self.names.get(&file) {
            Some(Name::Known(_)) => {}
            Some(Name::Open(of)) if of.strong_count() > 0 => {}
            _ => drop(self.names.insert(file, Name::Open(Arc::downgrade(source)))),
        }
    }

    /// Whether the name of a file still has to be looked up.
    fn wants_name(&self, file: FileId) -> bool {
        self.files.has(&file) && !matches!(self.names.get(&file), Some(Name::Known(_)))
    }

    /// Stores the path of a file, if the file has a place.
    pub(crate) fn named(&mut self, file: FileId, path: String) {
        if self.files.has(&file) {
            self.names.insert(file, Name::Known(path));
        }
    }
}

/// The path of an open file, as this process sees it. Waits for no file system.
pub(crate) fn path_of(source: &Source) -> Option<String> {
    let link = format!("/proc/self/fd/{}", source.as_fd().as_raw_fd());
    let path = shown(&std::fs::read_link(link).ok()?.to_string_lossy());
    let from = path.len().saturating_sub(PATH_MAX);
    let from = (from..path.len()).find(|&at| path.is_char_boundary(at)).unwrap_or(0);
    Some(if from == 0 { path } else { format!("...{}", &path[from..]) })
}

/// The disk thread's side.
pub(crate) struct CostMeter {
    spending: Spending,
    shared: SharedCosts,
    processes: Arc<Processes>,
}

impl CostMeter {
    /// Without reads, for a disk of these parts.
    pub(crate) fn on(parts: Vec<Lba>, processes: Arc<Processes>) -> CostMeter {
        CostMeter { spending: Spending::on(parts), shared: SharedCosts::default(), processes }
    }

    pub(crate) fn shared(&self) -> SharedCosts {
        self.shared.clone()
    }

    /// A process has requested bytes of a file.
    pub(crate) fn asked(&self, pid: u32) {
        self.processes.asked(pid, Instant::now());
    }

    /// A read begins.
    pub(crate) fn begin(&mut self, now: Nanos, begun: Begun) {
        self.spending.begin(now, begun);
    }

    /// Bytes of a read were in memory.
    pub(crate) fn found(&mut self, read: ReadId, bytes: u64) {
        self.spending.found(read, bytes);
    }

    /// A read has ended. `source`: how its file is open.
    pub(crate) fn end(
        &mut self,
        now: Nanos,
        read: ReadId,
        source: impl FnOnce(FileId) -> Option<Arc<Source>>,
    ) {
        if let Some((file, pid, cost)) = self.spending.end(now, read) {
            let program = self.processes.program_of(pid);
            lock(&self.shared).charge(now, file, program, cost, source(file).as_ref());
        }
    }

    /// The kernel reads bytes of a file for a process that waits.
    pub(crate) fn by_kernel(&mut self, now: Nanos, file: FileId, pid: u32, bytes: u64, source: &Arc<Source>) {
        let cost = Cost { kernel_reads: 1, kernel_bytes: bytes, ..Cost::default() };
        let program = self.processes.program_of(pid);
        lock(&self.shared).charge(now, file, program, cost, Some(source));
    }

    /// Whether the name of a file that is about to be closed still has to be looked up.
    pub(crate) fn wants_name(&self, file: FileId) -> bool {
        lock(&self.shared).wants_name(file)
    }
}

/// The cost of a file or a program, since it got its place among those that cost most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CostReport {
    /// Pieces read.
    pub reads: u64,
    /// Bytes that the disk delivered for them.
    pub bytes: u64,
    /// Pieces that did not begin where the one before ended.
    pub seeks: u64,
    /// Disk time in milliseconds; reads in flight together share it equally.
    pub disk_ms: f64,
    /// Maximum disk time before it got its place.
    pub disk_ms_before_max: f64,
    /// The kernel's own reads, as far as `observe` sees them; their time is not known.
    pub kernel_reads: u64,
    /// Bytes of those.
    pub kernel_bytes: u64,
}

impl CostReport {
    fn of<K>(entry: &Entry<K>) -> CostReport {
        let Cost { reads, bytes, seeks, disk_time, kernel_reads, kernel_bytes } = entry.cost;
        CostReport {
            reads,
            bytes,
            seeks,
            disk_ms: disk_time.as_millis_f64(),
            disk_ms_before_max: entry.over.as_millis_f64(),
            kernel_reads,
            kernel_bytes,
        }
    }
}

/// The cost of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileCost {
    /// Its path as the daemon sees it; or device and inode, if it was closed too early.
    pub path: String,
    /// Its cost.
    #[serde(flatten)]
    pub cost: CostReport,
}

/// The cost of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramCost {
    /// The program; without a name if it is not known.
    #[serde(flatten)]
    pub program: Program,
    /// Its cost.
    #[serde(flatten)]
    pub cost: CostReport,
}

/// The files and programs that cost a disk most, by falling cost. Looks up the names of files, so it must be
/// called by a thread that only reports.
pub(crate) fn report(costs: &SharedCosts) -> (Vec<FileCost>, Vec<ProgramCost>) {
    let (files, programs, names) = {
        let costs = lock(costs);
        let of_file = |entry: &Entry<FileId>| (entry.key, CostReport::of(entry));
        let files: Vec<_> = costs.files.top(costs.now, SHOWN_MAX).into_iter().map(of_file).collect();
        let of_program = |entry: &Entry<Arc<Program>>| ProgramCost {
            program: (*entry.key).clone(),
            cost: CostReport::of(entry),
        };
        let programs: Vec<_> = costs.programs.top(costs.now, SHOWN_MAX).into_iter().map(of_program).collect();
        let name = |(file, _): &(FileId, CostReport)| Some((*file, costs.names.get(file)?.clone()));
        let names: BTreeMap<FileId, Name> = files.iter().filter_map(name).collect();
        (files, programs, names)
    };
    // Without the lock, which the disk's thread takes.
    let mut found = Vec::new();
    let named = files.into_iter().map(|(file, cost)| {
        let path = match names.get(&file) {
            Some(Name::Known(path)) => Some(path.clone()),
            Some(Name::Open(source)) => source.upgrade().and_then(|source| path_of(&source)),
            None => None,
        };
        if let (Some(path), Some(Name::Open(_))) = (&path, names.get(&file)) {
            found.push((file, path.clone()));
        }
        let unnamed = || {
            let (major, minor) = (rustix::fs::major(file.dev), rustix::fs::minor(file.dev));
            format!("inode {} on {major}:{minor}", file.ino)
        };
        FileCost { path: path.unwrap_or_else(unnamed), cost }
    });
    let files = named.collect();
    let mut costs = lock(costs);
    found.into_iter().for_each(|(file, path)| costs.named(file, path));
    (files, programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { dev: 2049, ino: 12 };

    #[test]
    fn each_program_in_a_file_pays_for_what_it_reads_on() {
        let mut askers = Askers::default();
        assert_eq!(askers.of(0), 0);
        // A scrubber in the middle, a server with two streams.
        askers.asked(7, 0, 1 << 20);
        askers.asked(8, 500 << 20, 501 << 20);
        askers.asked(7, 900 << 20, 901 << 20);
        for (offset, pid) in [(2 << 20, 7), (505 << 20, 8), (903 << 20, 7)] {
            assert_eq!(askers.of(offset), pid, "{offset}");
        }
        // The scrubber reads on and on.
        for mib in 501..700u64 {
            askers.asked(8, mib << 20, (mib + 1) << 20);
        }
        assert_eq!((askers.of(700 << 20), askers.of(4 << 20)), (8, 7));
        askers.asked(0, 0, 1 << 40);
        assert_eq!(askers.0.len(), 3);
        for pid in 100..200 {
            askers.asked(pid, 0, 0);
        }
        assert_eq!(askers.0.len(), ASKERS_MAX);
    }

    #[test]
    fn a_file_is_named_while_it_is_open_and_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("film.mkv");
        let source = Arc::new(Source::own(std::fs::File::create(&path).unwrap().into()));
        let costs = SharedCosts::default();
        let cost = Cost { reads: 1, bytes: 5, seeks: 1, disk_time: Nanos::from_millis(3), ..Cost::default() };
        let program = || Arc::new(Program { name: "nginx".into(), ..Program::default() });
        lock(&costs).charge(Nanos(1), FILE, program(), cost, Some(&source));
        // A file whose descriptor is gone.
        lock(&costs).charge(Nanos(2), FileId { ino: 13, ..FILE }, program(), cost, None);
        assert!(lock(&costs).wants_name(FILE));
        let (files, programs) = report(&costs);
        assert_eq!(files[0].path, path.to_str().unwrap());
        assert_eq!(files[1].path, "inode 13 on 8:1");
        assert_eq!((programs.len(), programs[0].cost.reads, programs[0].cost.disk_ms), (1, 2, 6.0));
        assert!(!lock(&costs).wants_name(FILE));
        drop(source);
        assert_eq!(report(&costs).0[0].path, path.to_str().unwrap());
        let json = serde_json::to_value(&programs[0]).unwrap();
        assert_eq!((&json["name"], &json["disk_ms"]), (&"nginx".into(), &6.0.into()));
    }

    #[test]
    fn a_long_or_odd_path_is_shown_by_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{}\n.mkv", "ä".repeat(100)));
        let more = dir.path().join("x".repeat(200));
        std::fs::create_dir_all(&more).unwrap();
        let shown = |path| path_of(&Source::own(std::fs::File::create(path).unwrap().into())).unwrap();
        assert!(shown(path).ends_with("ä?.mkv"));
        let long = shown(more.join("y".repeat(200)));
        assert!(long.starts_with("...") && long.len() <= PATH_MAX + 3 && long.ends_with("yyy"), "{long}");
    }
}
