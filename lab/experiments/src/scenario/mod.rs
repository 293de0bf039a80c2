//! A scenario: one figure, table or benchmark as data.
//!
//! Unknown fields are errors, and [`Scenario::parse`] also refuses what the types cannot: a check of an arm
//! that does not exist, an axis whose values its knob does not take, Seekless settings on an arm without
//! Seekless. So a file that parses runs.

mod arm;
mod builtin;
mod constants;
mod load;
mod machine;
mod program;
mod service;
mod validate;

use std::collections::BTreeMap;
use std::path::Path;

use seekless_base::{Bytes, Fault};
use serde::{Deserialize, Serialize};

pub(crate) use arm::written_mb_s;
pub use arm::{
    Arm, Door, DriveChoice, DriveSet, FaultAt, FaultKind, FileReader, FileSetBy, GridSearch, Joined,
    KnobValues, Mode, Neighbour, QueueOrder, ServerKind, ServerVariant, WriterSpec,
};
pub use builtin::{all, find};
pub(crate) use constants::{FACTORS, arm_name};
pub use load::{Load, ProgramWork};
pub use machine::Machine;
pub use program::Program;
pub use service::{Protocol, Service};

use crate::check::Check;

/// One experiment. See `scenarios/README.md` for a tour of the fields.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// One line that says what is compared.
    pub title: String,
    /// The source of the published values; absent for benchmarks of our own.
    pub paper: Option<String>,
    /// Figure or table of that paper.
    pub figure: Option<String>,
    /// What a reader of the report must know: departures from the paper, reasons for sizes.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Limit on the page cache and memory of server and daemon together. Required, as disks and library are,
    /// unless the machines are drawn.
    #[serde(default)]
    pub memory: Bytes,
    /// Number of runs of each arm, 1-100; arms alternate.
    #[serde(default = "one")]
    pub repetitions: u32,
    /// Disks, each with its own copy of the library (directories `disk0`, `disk1`, ... when there is more
    /// than one).
    #[serde(default, rename = "disk")]
    pub disks: Vec<DiskSetup>,
    /// The files on each disk.
    #[serde(default)]
    pub library: Library,
    /// The clients, and what they request.
    pub load: Load,
    /// The compared arms.
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
    /// The axis; absent if only the arms are compared.
    pub axis: Option<Axis>,
    /// Names of the metrics the report shows, the main one first (see [`crate::metric`]).
    #[serde(default = "default_metrics")]
    pub metrics: Vec<String>,
    /// Values printed in the paper.
    #[serde(default)]
    pub published: Vec<PublishedValue>,
    /// The checks.
    #[serde(default, rename = "check")]
    pub checks: Vec<Check>,
    /// Statements of the paper that cannot be decided here.
    #[serde(default)]
    pub undecided: Vec<Undecided>,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
    /// Further settings for the simulator.
    #[serde(default)]
    pub sim: Sim,
}

/// Settings for the simulator.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sim {
    /// Whether the scenario runs only in the simulator, because the machine that it describes is not
    /// available.
    #[serde(default)]
    pub only: bool,
    /// Why it can only run live; absent if the simulator can run it.
    pub not: Option<String>,
    /// Why a run of all scenarios leaves it out, although the simulator can run it.
    pub apart: Option<String>,
    /// Further arguments of `seekless-lab sim serve`, for settings without a field above.
    #[serde(default)]
    pub args: Vec<String>,
    /// Name of an arm. For each constant of the read path ([`seekless_policy::Constants`]) there are two more
    /// arms, with half and double of the constant.
    pub constants: Option<String>,
}

/// One software disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSetup {
    /// Name of a drive in `drives/`.
    pub drive: String,
    /// How the drive is modelled in a live run: see `seekless-lab vdisk up --with model=...`.
    pub model: Option<String>,
    /// Capacity of the block device; it stands for the whole drive. Must hold the library.
    pub size: Bytes,
    /// File system.
    #[serde(default = "ext4")]
    pub fs: String,
    /// How much faster than real time the drive runs; sessions are sped up by the same factor. 1-1000.
    #[serde(default = "one_f64")]
    pub speedup: f64,
}

/// The files on a disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Library {
    /// Total size as a multiple of the memory limit; absent if `size` or `videos` is given.
    #[serde(default)]
    pub times_memory: f64,
    /// Total size, in place of a multiple of the memory.
    pub size: Option<Bytes>,
    /// Number of videos; if a size is given too, durations are scaled to it.
    pub videos: Option<u32>,
    /// `videos`, `clips` (media clips), `index` (a search index, which has a size of its own) or `mirror` (of
    /// a distribution's packages).
    #[serde(default = "videos")]
    pub content: String,
    /// Size of every file, in place of drawn durations.
    pub file_size: Option<Bytes>,
    /// `sd` (419 kb/s) or `hd` (2095 kb/s) videos, or `mixed`.
    #[serde(default = "sd")]
    pub bitrate: String,
    /// Exponent of the Zipf popularity.
    #[serde(default = "zipf")]
    pub zipf: f64,
    /// Seed of catalogue and sessions.
    #[serde(default = "seed")]
    pub seed: u64,
}

impl Default for Library {
    fn default() -> Library {
        Library {
            times_memory: 0.0,
            size: None,
            videos: None,
            content: videos(),
            file_size: None,
            bitrate: sd(),
            zipf: zipf(),
            seed: seed(),
        }
    }
}

/// An axis: a setting with several values; every arm that is not `fixed` runs at each.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The label of the axis in the report.
    pub label: String,
    /// The settings that get the value, together.
    pub knobs: Vec<Knob>,
    /// Values in the knob's notation, in plotting order. For the knob `machine` they may be absent if `drawn`
    /// is given.
    #[serde(default)]
    pub values: Vec<String>,
    /// For the knob `machine`: a number of machines of a seed.
    pub drawn: Option<Drawn>,
    /// For the knob `sim`: the argument of `seekless-lab sim serve` that gets the value.
    pub flag: Option<String>,
    /// For the knob `sim`, in place of `flag`: the arguments of `seekless-lab sim serve` for each value.
    #[serde(default)]
    pub points: BTreeMap<String, Vec<String>>,
}

/// Drawn machines.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drawn {
    /// The seed, unless the command line gives one.
    pub seed: u64,
    /// Their number, unless the command line gives one.
    pub machines: u32,
}

/// A setting that an axis can vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// Seekless prefetch size, e.g. `2MiB`.
    Prefetch,
    /// Kernel read-ahead of the device, as a size (`2MiB`).
    ReadAhead,
    /// Largest request the block layer makes, as a size, or `hardware` for the device's own limit.
    MaxSectors,
    /// Block scheduler: `none`, `mq-deadline`, `kyber`, `bfq`.
    Scheduler,
    /// Server: `nginx`, `apache`, `lighttpd`, `caddy`, `gofile`, `builtin`.
    Server,
    /// A service of a load of kind `readers`: `nginx`, `samba`, ...
    Service,
    /// A program of a load of kind `programs`.
    Program,
    /// File system: `ext4`, `xfs`, `btrfs`. Each value is a disk of its own.
    Fs,
    /// How several disks form one folder ([`Joined`]). Each value has disks of its own.
    Joined,
    /// Several drives as one disk: `KIND:MEMBERS`, or `one`. Live, each value is a disk of its own.
    Set,
    /// The drive: a name in `drives/`, or `MODEL:NAME`. Live, each value is a disk of its own.
    Drive,
    /// Instances or clients of the load.
    Clients,
    /// Requests of a load of kind `handlers`, e.g. `one-rand-10`.
    Handler,
    /// Options of fio's jobs, e.g. `rw=randread bs=4k`.
    Job,
    /// Configuration of the server: `shipped`, `threads`, `reads`.
    Variant,
    /// The whole machine: drive, memory, library, server and load, drawn by the name `SEED:INDEX`. The
    /// scenario's own are not used. Simulator only.
    Machine,
    /// An argument of the simulator, named by the axis' `flag`.
    Sim,
    /// No setting: the values are those in a command's answer, which has a row for each (load `command` with
    /// `rows`).
    Row,
}

/// A value printed in the paper.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedValue {
    /// Arm it belongs to.
    pub arm: String,
    /// Axis value it belongs to; absent without an axis or for a fixed arm.
    pub x: Option<String>,
    /// Metric, the scenario's first by default.
    pub metric: Option<String>,
    /// The value, in the metric's unit.
    pub value: f64,
    /// Table, figure or sentence it was read from.
    pub source: String,
}

/// A statement of the paper that cannot be decided, because its subject is not published or not modelled.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Undecided {
    /// The statement.
    pub name: String,
    /// Section, table or figure.
    pub source: String,
    /// What is missing to decide it.
    pub reason: String,
}

/// The changes of `--quick`: less time and fewer points, with the same arithmetic.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Number of repetitions.
    pub repetitions: Option<u32>,
    /// Seconds of load before counting.
    pub warmup_s: Option<f64>,
    /// Seconds counted.
    pub duration_s: Option<f64>,
    /// Only these axis values.
    pub axis_values: Option<Vec<String>>,
    /// Only these arms. Checks that need another arm are left out.
    pub arms: Option<Vec<String>>,
    /// Fewer small files (a load of kind `files`).
    pub files: Option<u32>,
    /// A smaller library.
    pub times_memory: Option<f64>,
    /// A smaller memory limit (and with it a smaller library).
    pub memory: Option<Bytes>,
    /// Maximum number of drawn machines.
    pub machines: Option<u32>,
    /// Options of the simulator, after the scenario's own (`sim.args`).
    #[serde(default)]
    pub sim: Vec<String>,
}

fn one() -> u32 {
    1
}
fn one_f64() -> f64 {
    1.0
}
fn ext4() -> String {
    "ext4".into()
}
fn videos() -> String {
    "videos".into()
}
fn sd() -> String {
    "sd".into()
}
/// The paper's alpha (\[L\] section 4).
fn zipf() -> f64 {
    0.8
}
fn seed() -> u64 {
    1
}
fn default_metrics() -> Vec<String> {
    vec!["mb_s".into(), "disk_mb_s".into()]
}

impl Scenario {
    /// Reads a scenario from TOML. `origin` names the file in errors.
    ///
    /// # Errors
    /// `Exit::Usage` with the line of a syntax error or unknown field, or with the fields that contradict
    /// each other.
    pub fn parse(text: &str, origin: &str) -> Result<Scenario, Fault> {
        let mut scenario: Scenario = toml::from_str(text).map_err(|error| {
            let line =
                error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let message = error.message().replace('\n', " ");
            Fault::usage(format!("{origin}, line {line}: {message}; scenarios/README.md has the fields"))
        })?;
        let usage = |why: String| Fault::usage(format!("{origin}: {why}"));
        scenario.resolve().map_err(usage)?;
        scenario.validate().map_err(usage)?;
        let margin =
            |(line, text): (usize, &str)| text.trim_start().starts_with("margin").then_some(line + 1);
        let at = text.lines().enumerate().find_map(margin).unwrap_or(0);
        crate::sheet::resolve(&mut scenario).map_err(|why| usage(format!("line {at}: {why}")))?;
        Ok(scenario)
    }

    /// Resolves references: settings of `like` arms, names of drawn machines.
    fn resolve(&mut self) -> Result<(), String> {
        constants::expand(self)?;
        let arms = self.arms.clone();
        for arm in &mut self.arms {
            let Some(name) = &arm.like else { continue };
            let base = arms.iter().find(|a| a.name == *name && a.like.is_none() && a.best.is_none());
            let base = base.ok_or_else(|| {
                format!("arm `{}`: like = \"{name}\" names no arm that has settings of its own", arm.name)
            })?;
            let own = arm.clone();
            *arm = Arm {
                name: own.name,
                like: own.like,
                best: own.best,
                load_of: own.load_of,
                alone: own.alone,
                sim: base.sim.iter().chain(&own.sim).cloned().collect(),
                ..base.clone()
            };
        }
        match self.axis.as_ref().and_then(|a| a.drawn) {
            Some(drawn) => self.draw(drawn.seed, drawn.machines),
            None => Ok(()),
        }
    }

    /// Uses this many machines of this seed in place of those of the file.
    ///
    /// # Errors
    /// The scenario has no axis of drawn machines, or there are too many.
    pub fn draw(&mut self, seed: u64, machines: u32) -> Result<(), String> {
        let axis = self.axis.as_mut().filter(|a| a.drawn.is_some() && a.knobs == [Knob::Machine]);
        let axis =
            axis.ok_or("no machines are drawn here: it needs an axis with the knob `machine` and `drawn`")?;
        if !(1..=machine::MOST).contains(&machines) {
            return Err(format!("{machines} machines: 1 to {}", machine::MOST));
        }
        axis.drawn = Some(Drawn { seed, machines });
        axis.values = (0..machines).map(|index| format!("{seed}:{index}")).collect();
        Ok(())
    }

    /// Reads a scenario from a file.
    ///
    /// # Errors
    /// Those of [`seekless_output::input::text`] and of [`Scenario::parse`].
    pub fn read(path: &Path) -> Result<Scenario, Fault> {
        let text = seekless_output::input::text(path)?;
        let origin = path.display().to_string();
        let scenario = Scenario::parse(&text, &origin)?;
        crate::sheet::refuse(&origin, &text, &scenario)?;
        Ok(scenario)
    }

    /// The scenario as `--quick` runs it.
    pub fn quickened(mut self) -> Scenario {
        let quick = self.quick.clone();
        self.repetitions = quick.repetitions.unwrap_or(self.repetitions);
        self.memory = quick.memory.unwrap_or(self.memory);
        self.library.times_memory = quick.times_memory.unwrap_or(self.library.times_memory);
        self.load.shorten(quick.warmup_s, quick.duration_s);
        self.sim.args.extend(quick.sim);
        if let Some(files) = quick.files {
            self.load.set_files(files);
        }
        if let (Some(axis), Some(values)) = (&mut self.axis, quick.axis_values) {
            axis.values = values;
        }
        if let (Some(axis), Some(machines)) = (&mut self.axis, quick.machines) {
            axis.values.truncate(machines as usize);
        }
        if let Some(arms) = quick.arms {
            self.arms.retain(|arm| arms.contains(&arm.name));
        }
        let points: Vec<_> = self.points().into_iter().map(|p| (p.arm.name, p.x)).collect();
        let there = |arm: &String, x: &Option<String>| {
            points.iter().any(|(a, b)| a == arm && (x.is_none() || b.is_none() || b == x))
        };
        self.checks.retain(|check| check.operands().iter().all(|(arm, x)| there(arm, x)));
        self
    }

    /// Bytes of files on each disk; `None` if only their number is given.
    pub fn library_bytes(&self) -> Option<Bytes> {
        let library = &self.library;
        if library.size.is_some() || library.videos.is_some() {
            return library.size;
        }
        Some(Bytes((self.memory.0 as f64 * library.times_memory) as u64))
    }

    /// Every (arm, axis value) to run, in order, each with the arm's settings at that value.
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for arm in &self.arms {
            let mut load = self.load.clone();
            arm.popular.into_iter().for_each(|popular| load.set_popular(popular));
            match &self.axis {
                Some(axis) if !arm.fixed => points.extend(axis.values.iter().map(|value| {
                    let mut load = load.clone();
                    let arm = axis.knobs.iter().fold(arm.clone(), |arm, knob| {
                        // Parsing has tried every knob with every value.
                        axis.turn(*knob, arm, &mut load, value).unwrap_or_else(|why| panic!("{why}"))
                    });
                    // As above.
                    let machine = axis.knobs.contains(&Knob::Machine).then(|| value.parse().ok()).flatten();
                    Point { arm, load, x: Some(value.clone()), machine }
                })),
                _ => points.push(Point { arm: arm.clone(), load, x: None, machine: None }),
            }
        }
        points
    }

    /// The metric of checks, plots and published values that name none.
    pub fn main_metric(&self) -> &str {
        self.metrics.first().map_or("mb_s", String::as_str)
    }
}

/// One thing to run.
#[derive(Clone, Debug)]
pub struct Point {
    /// The arm with the axis' settings in it.
    pub arm: Arm,
    /// The load at this axis value.
    pub load: Load,
    /// The axis value; `None` without an axis and for fixed arms.
    pub x: Option<String>,
    /// The machine, if the axis has the knob `machine`; it replaces the scenario's disks, memory and library.
    pub machine: Option<Machine>,
}

impl Axis {
    /// Whether its values are servers or programs, which have one line of a table each.
    pub(crate) fn is_of_servers(&self) -> bool {
        self.knobs.iter().any(|knob| matches!(knob, Knob::Service | Knob::Program))
    }

    /// As [`Knob::turn`], with the axis' own knowledge.
    ///
    /// # Errors
    /// Why the value is wrong.
    pub fn turn(&self, knob: Knob, mut arm: Arm, load: &mut Load, value: &str) -> Result<Arm, String> {
        if knob != Knob::Sim {
            return knob.turn(arm, load, value);
        }
        // Before the arm's own settings, which win.
        let words = match (self.points.get(value), &self.flag) {
            (Some(words), _) => words.clone(),
            (None, Some(flag)) => vec![flag.clone(), value.to_string()],
            (None, None) => {
                return Err(format!("the knob `sim` needs `flag`, or arguments for `{value}` in `points`"));
            }
        };
        arm.sim.splice(0..0, words);
        Ok(arm)
    }
}

impl Knob {
    /// `arm` (or the load) with this setting at `value`.
    ///
    /// # Errors
    /// Why the value is wrong.
    pub fn turn(self, mut arm: Arm, load: &mut Load, value: &str) -> Result<Arm, String> {
        let kib = |text: &str| -> Result<u32, String> {
            let bytes: Bytes = text.parse().map_err(|e: seekless_base::ParseBytesError| e.to_string())?;
            u32::try_from(bytes.0 >> 10).ok().filter(|kb| *kb > 0).ok_or(format!("`{text}` is out of range"))
        };
        match self {
            Knob::Prefetch => {
                let size = value.parse().map_err(|e: seekless_base::ParseBytesError| e.to_string())?;
                arm.prefetch = arm.mode.map(|_| size);
            }
            Knob::ReadAhead => arm.read_ahead_kb = Some(kib(value)?),
            Knob::MaxSectors if value == "hardware" => arm.max_sectors_kb = None,
            Knob::MaxSectors => arm.max_sectors_kb = Some(kib(value)?),
            Knob::Scheduler => arm.scheduler = Some(value.to_string()),
            Knob::Server => arm.server = Some(value.parse()?),
            Knob::Service => arm.service = Some(value.parse()?),
            Knob::Program => load.choose_program(value)?,
            Knob::Fs => arm.fs = Some(value.to_string()),
            Knob::Joined => arm.joined = Some(value.parse()?),
            Knob::Set if value == "one" => arm.set = None,
            Knob::Set => arm.set = Some(value.to_string().try_into()?),
            Knob::Drive => arm.drive = Some(value.to_string().try_into()?),
            Knob::Variant => arm.variant = value.parse()?,
            Knob::Machine => {
                let machine: Machine = value.parse()?;
                arm.server = Some(machine.server);
                arm.variant = machine.variant;
                if arm.mode.is_some() {
                    arm.door = machine.door;
                }
                *load = machine.load;
            }
            Knob::Sim | Knob::Row => {}
            Knob::Clients => {
                load.set_clients(value.parse().map_err(|_| format!("`{value}` is not a count"))?)
            }
            Knob::Handler => load.set_handler(value)?,
            Knob::Job => load.set_job(value)?,
        }
        Ok(arm)
    }
}
