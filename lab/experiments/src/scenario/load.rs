//! Which clients there are, and what they request.

use std::path::{Path, PathBuf};

use seekless_base::Bytes;
use seekless_model::workload::handler::Handler;
use serde::{Deserialize, Serialize};

use super::Program;

/// The kinds of load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Load {
    /// Clients that ask for the next range of a file as soon as they have the one before.
    Closed {
        /// Clients on each disk.
        clients: u32,
        /// Bytes a request.
        range: Bytes,
        /// Seconds before counting.
        warmup_s: f64,
        /// Seconds counted.
        duration_s: f64,
        /// Files are chosen by the library's popularity, not all equally often.
        #[serde(default)]
        popular: bool,
        /// Connections of each client, which ask for its ranges out of order: a client of SMB, NFS or S3.
        #[serde(default = "one")]
        connections: u32,
        /// Link rate of every client, such as `20Mb/s`: the load is then what the links carry, whatever the
        /// server could do.
        link: Option<String>,
        /// Read the whole library into the page cache first (for the cost of the shim on hits).
        #[serde(default)]
        preload: bool,
    },
    /// Clients that send the next request to a handler as soon as the last is answered. A handler reads
    /// several files, in part, in turn, and thinks. Live each block is a request over HTTP, for which the
    /// server opens the file anew.
    Handlers {
        /// Clients on each disk.
        clients: u32,
        /// What a handler does, as `seekless-lab sim serve --handler` has it: `one-rand-10`, `index-search`,
        /// ...
        handler: Handler,
        /// Seconds before counting.
        warmup_s: f64,
        /// Seconds counted.
        duration_s: f64,
    },
    /// Clients that each read a file of their own to its end, then the next, no faster than `rate`, by the
    /// client program of the service's protocol. Live only.
    Readers {
        /// Clients on the disk.
        clients: u32,
        /// Bytes a second that each takes at most.
        rate: Bytes,
        /// Seconds before counting.
        warmup_s: f64,
        /// The same for a server with another in front of it, whose buffers fill first; without it as the
        /// others.
        #[serde(default)]
        warmup_behind_s: Option<f64>,
        /// Seconds counted.
        duration_s: f64,
    },
    /// Video sessions whose rate rises until 0.3 % of them fail; reports the highest rate before that.
    Ramp {
        /// Requests a second at the start, in the workload's own (unscaled) time.
        from: f64,
        /// Requests a second at the end; failures end the ramp earlier.
        to: f64,
        /// Seconds before the disk's counters are set to zero, in workload time.
        warmup_s: f64,
        /// Seconds of the ramp, in workload time.
        duration_s: f64,
        /// Link rates of the viewers, such as `10Mb/s`; without it the workload's own, 3.5 and 10 Mb/s.
        link: Option<String>,
    },
    /// Downloads of whole files, arriving at random.
    Downloads {
        /// Clients at work on average, if every one gets its link's rate all the time.
        clients: u32,
        /// Link rates of the clients, such as `10Mb/s` or, the second twice as often,
        /// `1.5Mb/s,10Mb/s,10Mb/s`.
        link: String,
        /// Number of files, equally likely.
        files: u32,
        /// Size of each.
        file_size: Bytes,
        /// Seconds before counting.
        warmup_s: f64,
        /// Seconds counted.
        duration_s: f64,
    },
    /// Video sessions at one rate.
    Sessions {
        /// Requests a second, in the workload's own time.
        rate: f64,
        /// Seconds before counting.
        warmup_s: f64,
        /// Seconds counted.
        duration_s: f64,
    },
    /// The highest rate of video sessions at which fewer than a share of them fail, by runs at constant
    /// rates.
    Search {
        /// First rate tried, requests a second.
        rate: f64,
        /// No higher rate is tried.
        rate_max: f64,
        /// Share of sessions that may fail; 0: none.
        max_failed: f64,
        /// Ends when the highest good and the lowest bad rate are this close (a share).
        precision: f64,
        /// Seconds before counting, of each run.
        warmup_s: f64,
        /// Seconds counted, of each run.
        duration_s: f64,
    },
    /// A command of `seekless-lab sim` that answers in JSON; each arm reads its metrics out of it. Simulator
    /// only.
    Command {
        /// Its words, without `--json`.
        command: Vec<String>,
        /// JSON pointer to a list in the answer, of which each arm picks one element (its `row`); the arm's
        /// pointers are then into that element.
        rows: Option<String>,
        /// Field of an element that must be the axis value, where there is an axis.
        x: Option<String>,
        /// Files without which it cannot run, from the folder the lab is started in; a run of all scenarios
        /// goes on without it.
        #[serde(default)]
        needs: Vec<PathBuf>,
    },
    /// That of the machine, where the axis has the knob `machine`.
    Drawn {},
    /// `diff -r` of two source trees, `instances` pairs at once; reports the completion time.
    Diff {
        /// Pairs compared at the same time.
        instances: u32,
        /// Files a tree.
        files: u32,
    },
    /// A broker (Kafka) whose log is on the disk: producers, consumers that follow what is written, and
    /// consumers that each catch up with a partition of their own, from a place of its own on, over and over.
    /// Live only.
    Broker {
        /// Consumers that catch up, and partitions that have a backlog.
        clients: u32,
        /// Backlog of each.
        backlog: Bytes,
        /// Consumers that follow.
        tailing: u32,
        /// What the producers write, as a writer's rate: MB/s or a share of the drive's rate (`20%`).
        rate: String,
        /// Seconds before counting.
        warmup_s: f64,
        /// Seconds counted.
        duration_s: f64,
    },
    /// Jobs of fio, each on files of its own.
    Fio {
        /// Jobs at the same time.
        clients: u32,
        /// Files of each job. It has all of them open, and reads or writes a block of each in turn.
        #[serde(default = "one")]
        files: u32,
        /// Size of each file.
        file_size: Bytes,
        /// Read all files into the page cache first.
        #[serde(default)]
        preload: bool,
        /// Options of every job as in fio's job files, with blanks between them: `rw=randread bs=64k`.
        #[serde(default)]
        job: String,
        /// Seconds before counting.
        warmup_s: f64,
        /// Seconds counted.
        duration_s: f64,
    },
    /// Every file of a tree of small files and some packs is read once, by a program that takes them in any
    /// order (the arm's `reader`); reports the completion time.
    Files {
        /// Small files, of lognormal sizes.
        files: u32,
        /// Median of their sizes.
        median: Bytes,
        /// A pack beside every so many of them.
        files_per_pack: u32,
        /// Size of each pack.
        pack: Bytes,
        /// How far the arms that read ahead are ahead of their consumer.
        ahead: Bytes,
        /// Read the tree into the page cache first: what ordering costs when there is nothing to win.
        #[serde(default)]
        preload: bool,
        /// Simulated: what the programs do beside reading; without it nothing.
        work: Option<ProgramWork>,
    },
    /// Programs, each of which reads its data to the end; an axis with the knob `program` chooses. Reports
    /// the completion time. Live only.
    Programs {
        /// All that the axis may name; the one it chose.
        program: Vec<Program>,
    },
}

/// The time of programs that read files, beside their reads: as the same programs take it on the machine of
/// the live runs with everything in memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramWork {
    /// Milliseconds to start one.
    pub start_ms: f64,
    /// Microseconds for each file.
    pub file_us: f64,
    /// MB/s of the checksum.
    pub mb_s: f64,
}

impl Load {
    /// For `--quick`.
    pub(super) fn shorten(&mut self, warmup: Option<f64>, duration: Option<f64>) {
        match self {
            Load::Closed { warmup_s, duration_s, .. }
            | Load::Handlers { warmup_s, duration_s, .. }
            | Load::Readers { warmup_s, warmup_behind_s: None, duration_s, .. }
            | Load::Fio { warmup_s, duration_s, .. }
            | Load::Broker { warmup_s, duration_s, .. }
            | Load::Ramp { warmup_s, duration_s, .. }
            | Load::Downloads { warmup_s, duration_s, .. }
            | Load::Sessions { warmup_s, duration_s, .. }
            | Load::Search { warmup_s, duration_s, .. } => {
                *warmup_s = warmup.unwrap_or(*warmup_s);
                *duration_s = duration.unwrap_or(*duration_s);
            }
            Load::Readers { warmup_s, warmup_behind_s: Some(behind_s), duration_s, .. } => {
                // Buffers fill no faster in a short run.
                *warmup_s = warmup.unwrap_or(*warmup_s);
                *behind_s = behind_s.max(*warmup_s);
                *duration_s = duration.unwrap_or(*duration_s);
            }
            Load::Diff { .. }
            | Load::Files { .. }
            | Load::Programs { .. }
            | Load::Command { .. }
            | Load::Drawn {} => {}
        }
    }

    /// For `--quick`: so many small files.
    pub(super) fn set_files(&mut self, count: u32) {
        if let Load::Files { files, .. } = self {
            *files = count;
        }
    }

    /// Instead of a search for the highest rate of sessions, a run at this one.
    pub(crate) fn at_rate(&self, rate: f64) -> Load {
        match self {
            Load::Search { warmup_s, duration_s, .. } => {
                Load::Sessions { rate, warmup_s: *warmup_s, duration_s: *duration_s }
            }
            other => other.clone(),
        }
    }

    /// A closed loop of clients with this link.
    pub(crate) fn with_link(&self, rate: &str) -> Load {
        let mut load = self.clone();
        if let Load::Closed { link, .. } = &mut load {
            *link = Some(rate.into());
        }
        load
    }

    /// Sets whether a closed loop chooses files by their popularity.
    pub(super) fn set_popular(&mut self, by_popularity: bool) {
        if let Load::Closed { popular, .. } = self {
            *popular = by_popularity;
        }
    }

    /// Sets the number of clients or instances.
    pub(super) fn set_clients(&mut self, count: u32) {
        match self {
            Load::Closed { clients, .. }
            | Load::Handlers { clients, .. }
            | Load::Readers { clients, .. }
            | Load::Fio { clients, .. }
            | Load::Broker { clients, .. }
            | Load::Downloads { clients, .. } => *clients = count,
            Load::Diff { instances, .. } => *instances = count,
            Load::Ramp { .. }
            | Load::Sessions { .. }
            | Load::Search { .. }
            | Load::Command { .. }
            | Load::Files { .. }
            | Load::Programs { .. }
            | Load::Drawn {} => {}
        }
    }

    /// The same load by one client that leaves after these seconds.
    pub(crate) fn of_one_client(&self, seconds: f64) -> Load {
        let mut load = self.clone();
        load.set_clients(1);
        load.shorten(Some(0.0), Some(seconds));
        load
    }

    /// Sets what a handler does.
    pub(super) fn set_handler(&mut self, name: &str) -> Result<(), String> {
        let Load::Handlers { handler, .. } = self else {
            return Err("the knob `handler` needs a load of kind `handlers`".into());
        };
        *handler = name.parse()?;
        Ok(())
    }

    /// Leaves this program alone.
    pub(super) fn choose_program(&mut self, name: &str) -> Result<(), String> {
        let Load::Programs { program: all } = self else {
            return Err("the knob `program` needs a load of kind `programs`".into());
        };
        let chosen = all.iter().find(|program| program.name == name).cloned();
        *all = vec![chosen.ok_or_else(|| format!("no [[load.program]] is called `{name}`"))?];
        Ok(())
    }

    /// Sets what fio's jobs do.
    pub(super) fn set_job(&mut self, options: &str) -> Result<(), String> {
        let Load::Fio { job, .. } = self else {
            return Err("the knob `job` needs a load of kind `fio`".into());
        };
        *job = options.into();
        Ok(())
    }

    /// The first file it needs that is not here.
    pub fn lacks(&self) -> Option<&Path> {
        match self {
            Load::Command { needs, .. } => needs.iter().map(PathBuf::as_path).find(|f| !f.exists()),
            _ => None,
        }
    }

    /// Seconds after the warm-up, of clients that stay as many.
    pub fn counted_s(&self) -> f64 {
        match self {
            Load::Closed { duration_s, .. }
            | Load::Handlers { duration_s, .. }
            | Load::Sessions { duration_s, .. } => *duration_s,
            _ => 0.0,
        }
    }

    /// Whether it puts its own files on the disk, which needs a file system, instead of reading the library.
    pub(crate) fn has_own_files(&self) -> bool {
        matches!(self, Load::Diff { .. } | Load::Files { .. } | Load::Fio { .. } | Load::Broker { .. })
    }

    /// Whether a web server is needed.
    pub fn is_http(&self) -> bool {
        !matches!(
            self,
            Load::Diff { .. }
                | Load::Files { .. }
                | Load::Fio { .. }
                | Load::Broker { .. }
                | Load::Programs { .. }
                | Load::Readers { .. }
                | Load::Command { .. }
        )
    }
}

fn one() -> u32 {
    1
}
