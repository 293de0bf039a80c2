//! The live runner: real processes, a software disk, this machine's kernel.
//!
//! One run of a scenario: bring the disks up and fill them; then for every repetition every arm, forwards and
//! backwards in turn. An arm is: set the block layer's knobs, empty the caches by unmounting and mounting
//! again, make a control group, start daemon and server inside it, let the load run, meanwhile let faults
//! happen, read the counters of disk and daemon, stop everything. Rows are written to `results.json` as they
//! come, so an interrupted run keeps what it has.

mod apart;
mod beside;
mod broker;
mod daemon;
mod diff;
pub(crate) mod disk;
mod faults;
mod file_set;
pub(crate) mod files;
mod fio;
pub(crate) mod hostile;
mod in_memory;
mod joined;
pub(crate) mod load;
pub(crate) mod machines;
mod preconditions;
pub(crate) mod probe;
mod programs;
mod proof;
mod readers;
mod restic;
mod sequences;
mod series;
pub(crate) mod serve;
mod threads;
mod works;
pub(crate) mod writer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use seekless_base::{Bytes, Fault};

use crate::environment::Environment;
use crate::guard::{self, Scratch};
use crate::memory_group::MemoryGroup;
use crate::report::number;
use crate::results::{Results, Row, SCHEMA};
use crate::scenario::{Arm, Load, Point, Scenario, ServerKind};
use crate::terminal::RunProgress;

pub(crate) use disk::LiveDisk;
use joined::JoinedFolder;
pub(crate) use preconditions::Ground;

/// What the parts of a run share.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) scratch: &'a Scratch,
    pub(crate) ground: Ground,
    /// The disks as one folder; it ends before they do.
    joined: Option<JoinedFolder>,
    pub(crate) disks: Vec<LiveDisk>,
    /// What the servers serve: the disk itself, or a folder with one entry a disk.
    pub(crate) root: PathBuf,
    /// What could not be done as the scenario says; each once.
    pub(crate) remarks: Vec<String>,
    /// What the doctor has recommended for the services and programs run so far, by name.
    advice: BTreeMap<String, works::Advice>,
}

impl Bench<'_> {
    pub(crate) fn remark(&mut self, text: String) {
        if !self.remarks.contains(&text) {
            tracing::info!("{text}");
            self.remarks.push(text);
        }
    }

    /// A fresh group for server and daemon, of a name no other has at the time; none where the system does
    /// not let us.
    pub(crate) fn group(&mut self, name: &str) -> Result<Option<MemoryGroup>, Fault> {
        self.group_of(name, self.scenario.memory)
    }

    /// The same with another limit.
    fn group_of(&mut self, name: &str, limit: Bytes) -> Result<Option<MemoryGroup>, Fault> {
        if !self.ground.groups {
            return Ok(None);
        }
        MemoryGroup::create(name, limit.0)
            .map(Some)
            .map_err(|e| Fault::permission(format!("cannot make a memory control group: {e}")))
    }

    /// Mount points of all disks.
    pub(crate) fn mounts(&self) -> Vec<&Path> {
        match &self.joined {
            Some(joined) => joined.mounts(),
            None => self.disks.iter().map(|d| d.mount.as_path()).collect(),
        }
    }

    /// What the servers serve of each disk, or of all joined, below their root.
    pub(crate) fn folders(&self) -> Vec<String> {
        match (self.disks.len(), &self.joined) {
            (_, Some(_)) | (1, None) => vec![String::new()],
            (disks, None) => (0..disks).map(|i| format!("disk{i}/")).collect(),
        }
    }

    /// Sets the disks' block layers as an arm has them, and forgets everything cached of their files.
    pub(crate) fn prepare(&mut self, arm: &Arm) -> Result<(), Fault> {
        for i in 0..self.disks.len() {
            for remark in self.disks[i].turn_knobs(arm)? {
                self.remark(remark);
            }
        }
        match &mut self.joined {
            Some(joined) => joined.drop_caches(&self.disks),
            None => self.disks.iter().try_for_each(LiveDisk::drop_caches),
        }
    }
}

/// Runs a scenario and leaves `results.json` and `report.html` in `out`.
///
/// # Errors
/// What stops the run; a check that fails is no error but [`Results::pass`].
pub(crate) fn run(name: &str, scenario: &Scenario, quick: bool, out: &Path) -> Result<Results, Fault> {
    guard::catch_signals();
    let begun = Instant::now();
    crate::results::folder(out)?;
    let ground = preconditions::survey(scenario)?;
    preconditions::sweep();

    let mut points = scenario.points();
    if let Some(axis) = scenario.axis.as_ref().filter(|axis| axis.is_of_servers()) {
        // The arms of a service are neighbours in time, in every repetition.
        points.sort_by_key(|point| axis.values.iter().position(|value| Some(value) == point.x.as_ref()));
    }
    if apart::is_needed(scenario) {
        let mut results = blank(name, scenario, quick, &points);
        apart::run(name, quick, &apart::parts(scenario), &mut results, out, |_, (), rows| rows)?;
        apart::finish(&mut results, out)?;
        return Ok(results);
    }
    let progress = RunProgress::new(points.len() as u64 * u64::from(scenario.repetitions));
    let scratch = Scratch::new()?;
    let mut results = blank(name, scenario, quick, &points);

    progress.now(&format!("{}: filling {} disk(s)", name, scenario.disks.len()));
    let mut bench = disk::set_up(scenario, &scratch, ground)?;
    let file = out.join("results.json");
    let mut position = 0;
    for repetition in 0..scenario.repetitions {
        let mut order: Vec<&Point> = points.iter().collect();
        if repetition % 2 == 1 {
            order.reverse();
        }
        for point in order {
            guard::check_interrupted()?;
            let label =
                point.x.as_ref().map_or(point.arm.name.clone(), |x| format!("{} @ {x}", point.arm.name));
            progress.now(&format!("{name}: {label}, run {} of {}", repetition + 1, scenario.repetitions));
            let mut row = Row {
                arm: point.arm.name.clone(),
                x: point.x.clone(),
                repetition,
                position,
                ..Row::default()
            };
            match point.load {
                Load::Diff { .. } => diff::run(&mut bench, point, &mut row)?,
                Load::Files { .. } => files::run(&mut bench, point, &mut row)?,
                Load::Fio { .. } => fio::run(&mut bench, point, &mut row)?,
                Load::Broker { .. } => broker::run(&mut bench, point, &mut row)?,
                Load::Programs { .. } => programs::run(&mut bench, point, &mut row)?,
                Load::Readers { .. } => works::run(&mut bench, point, &mut row)?,
                _ => serve::run(&mut bench, point, &mut row)?,
            }
            progress.done(&summary(&label, &row, scenario));
            results.rows.push(row);
            results.remarks.clone_from(&bench.remarks);
            results.environment.elapsed_s = begun.elapsed().as_secs_f64();
            results.judge();
            results.write(&file)?;
            position += 1;
        }
    }
    results.complete = true;
    results.judge();
    results.write(&file)?;
    crate::report::write(out)?;
    Ok(results)
}

/// The results of a run that has not begun.
fn blank(name: &str, scenario: &Scenario, quick: bool, points: &[Point]) -> Results {
    let environment = Environment { servers: servers(points), ..Environment::here() };
    Results {
        schema: SCHEMA,
        name: name.to_string(),
        driver: "live".into(),
        quick,
        complete: false,
        pass: false,
        rows: Vec::new(),
        checks: Vec::new(),
        remarks: Vec::new(),
        environment,
        scenario: scenario.clone(),
    }
}

/// Empties the caches of files while a server holds them open (so that nothing can be unmounted).
fn serve_cold(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.mounts().into_iter().try_for_each(disk::forget_pages)
}

fn summary(label: &str, row: &Row, scenario: &Scenario) -> String {
    let values = scenario.metrics.iter().filter_map(|name| {
        let unit = crate::metric::find(name).ok()?.unit;
        Some(format!("{name} {} {unit}", number(*row.metrics.get(name)?)).trim_end().to_string())
    });
    format!("{label}: {}", values.take(5).collect::<Vec<_>>().join(", "))
}

fn servers(points: &[Point]) -> Vec<String> {
    let mut kinds: Vec<ServerKind> = points.iter().filter_map(|p| p.arm.server).collect();
    kinds.dedup();
    let mut versions: Vec<String> = kinds.into_iter().filter_map(crate::server::version).collect();
    versions.sort();
    versions.dedup();
    versions
}
