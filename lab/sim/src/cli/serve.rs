//! `seekless-lab sim serve`: a machine that serves files from hard disks.

use std::fmt::Write as _;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use seekless_base::{Bytes, Exit, Fault, Lba, Nanos};
use seekless_model::drive::set::{DriveSet, SetKind, SetSpec};
use seekless_model::drive::{DriveSpec, catalogue as drives};
use seekless_model::load_options::{ClosedOptions, HoldsOption, LibraryOptions, SeedOption};
use seekless_model::set_options::SetOptions;
use seekless_model::workload::catalogue::Catalogue;
use seekless_model::workload::closed::ClosedSpec;
use seekless_model::workload::session::ClientClass;
use seekless_model::workload::sources::{self, Forest, SourceFile};
use seekless_model::workload::tree::{Folders, TreeSpec};
use seekless_options::{PolicyOptions, QueueOptions};
use seekless_output::JsonOption;
use seekless_policy::profile::STRIPED_AT_ONCE;
use seekless_policy::{Config as PolicyConfig, Constants, DiskEngine, MemoryLimit, Mode, PAGE, Sizing};
use serde_json::{Value, json};

use super::serve_model::{Cache, KernelReadAhead, Model};
use crate::serving::config::{
    self, Costs, DiskConfig, EngineConfig, FileSetLoad, RecorderLoad, Rise, ServerModel, WriterLoad,
};
use crate::serving::{
    self, Config, DiffLoad, KernelConfig, Load, ProgramWork, Replacement, SecondProgram, Standby, TreeLoad,
    profile_of, readahead, scheduler,
};
use seekless_model::with::WithOption;

const LOAD: &str = "Load";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LoadKind {
    /// A fixed number of clients; each requests the next range when it has the last
    Closed,
    /// A fixed number of clients; each sends its next request to a --handler after the last answer
    Handlers,
    /// Viewing sessions at --rate requests a second
    Sessions,
    /// --clients programs that read every file of a tree of small files once, as `xargs -P` starts them
    Tree,
    /// --clients programs `diff -r`, each comparing two source trees of --files files of its own
    Diff,
    /// Search for the highest rate of sessions at which at most --max-failed fail, by bisection
    Search,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Server {
    Nginx,
    Apache,
    Lighttpd,
    /// One thread for each client: `seekless-lab file-server`
    Builtin,
    /// The papers' userver: `workers` event loops; variant threads: a helper reads, so that none blocks
    Userver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Variant {
    /// As the distribution ships it
    Shipped,
    /// nginx: aio threads; Apache: EnableMMAP Off, EnableSendfile On
    Threads,
    /// nginx: aio threads, sendfile off, reads of 32 KiB; built-in: read instead of sendfile
    Reads,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DoorArg {
    /// A library in the server: a miss waits for the engine, in its order
    Shim,
    /// The kernel announces each call, at the price of two wake-ups, and misses wait
    Watch,
    /// The page cache reports reads afterwards, and no call waits
    Observe,
}

impl From<DoorArg> for config::Door {
    fn from(door: DoorArg) -> config::Door {
        match door {
            DoorArg::Shim => config::Door::Shim,
            DoorArg::Watch => config::Door::Watch,
            DoorArg::Observe => config::Door::Observe,
        }
    }
}

/// Serve files from hard disks in virtual time: clients, server, page cache, kernel and drive simulated,
/// Seekless real.
#[derive(Args, Clone, Debug)]
pub(super) struct ServeArgs {
    /// A drive of `drives/`; give it once for each disk
    #[arg(long, value_name = "NAME", default_value = "wd-red-1tb")]
    drive: Vec<String>,
    #[command(flatten)]
    set: SetOptions,
    /// Size of each disk's file system, which covers the whole drive [default: the library and a tenth more]
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Memory for the page cache
    #[arg(long, value_name = "SIZE", default_value = "768MiB")]
    memory: Bytes,
    #[command(flatten)]
    library: LibraryOptions,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    with: WithOption,
    #[command(flatten)]
    json: JsonOption,
}

#[derive(Args, Clone, Debug)]
struct ServerArgs {
    /// The server
    #[arg(long, value_enum, default_value = "nginx")]
    server: Server,
    /// Configuration of the server
    #[arg(long, value_enum, default_value = "shipped")]
    variant: Variant,
    /// Read-ahead of the kernel, in KiB
    #[arg(long, value_name = "N", default_value_t = 128)]
    read_ahead_kb: u64,
    /// Block scheduler: none, mq-deadline, bfq, cfq, anticipatory
    #[arg(long, value_name = "NAME", default_value = "none")]
    scheduler: scheduler::Kind,
}

#[derive(Args, Clone, Debug)]
struct EngineArgs {
    /// What Seekless does: off, track, serialise, prefetch, both [default: both with --preset, else no
    /// Seekless]
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Door by which reads reach the engine
    #[arg(long, value_enum, default_value = "shim")]
    door: DoorArg,
    /// How far, how early and in which order, as the daemon takes it
    #[command(flatten)]
    policy: PolicyOptions,
    /// How a disk's queue is served, as the daemon takes it
    #[command(flatten)]
    queue: QueueOptions,
    /// Another value for a constant of the read path (docs/BOUNDS.md lists them)
    #[arg(long, value_name = "NAME=VALUE", hide = true)]
    constant: Vec<String>,
}

#[derive(Args, Clone, Debug)]
struct LoadArgs {
    /// Kind of clients, and what they request
    #[arg(long, value_enum, default_value = "closed")]
    load: LoadKind,
    #[command(flatten)]
    closed: ClosedOptions,
    /// Sessions: requests a second on each disk; search: first rate to try
    #[arg(long, value_name = "RATE", default_value = "50", value_parser = positive)]
    rate: f64,
    /// Link rates of the sessions' clients, in equal shares, or `none`
    #[arg(long, value_name = "RATES", value_delimiter = ',', default_value = "3.5Mb/s,10Mb/s", help_heading = LOAD, hide_short_help = true)]
    link: Vec<String>,
    /// Requests due before this time are not counted
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = LOAD, hide_short_help = true)]
    warmup: Nanos,
    /// Length of a run, warm-up included
    #[arg(long, value_name = "TIME", default_value = "30s")]
    duration: Nanos,
    #[command(flatten)]
    from: SeedOption,
    /// Search: result of an earlier search; the two rates next to it are tried first
    #[arg(long, value_name = "RATE", value_parser = positive, hide = true)]
    expected: Option<f64>,
    #[command(flatten)]
    holds: HoldsOption,
}

/// Time of `sha256sum` on one core with the instructions for it, and of `diff` for equal data.
const CHECKSUM_NS_PER_KIB: u64 = 1_000;

/// Maximum number of files in all trees of `--load diff`: each takes some hundred bytes here.
const DIFF_FILES_MAX: u64 = 10_000_000;

pub(super) fn positive(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|v| v.is_finite() && *v > 0.0);
    value.ok_or_else(|| format!("`{text}` is not a number above 0"))
}

/// Reads `3.5Mb/s`, `500kb/s`, or `none`.
pub(super) fn link_rate(text: &str) -> Result<Option<u64>, Fault> {
    if text == "none" {
        return Ok(None);
    }
    let parsed = text.strip_suffix("b/s").and_then(|bits| {
        let (number, factor) = match bits.char_indices().next_back()? {
            (i, 'k') => (&bits[..i], 1e3),
            (i, 'M') => (&bits[..i], 1e6),
            (i, 'G') => (&bits[..i], 1e9),
            _ => (bits, 1.0),
        };
        number.parse::<f64>().ok().map(|n| n * factor).filter(|r| r.is_finite() && *r >= 1e3)
    });
    let wrong =
        || usage(format!("--link {text} is not a link rate; write for example 3.5Mb/s, 500kb/s or none"));
    parsed.map(|r| Some(r as u64)).ok_or_else(wrong)
}

fn usage(message: impl Into<String>) -> Fault {
    Fault::usage(message)
}

impl ServeArgs {
    fn catalogue(&self, model: &Model) -> Result<Catalogue, Fault> {
        let seed = self.library.catalogue_seed;
        if self.load.load == LoadKind::Tree {
            let Model { files, files_per_pack, .. } = *model;
            let spec = TreeSpec { files, median: model.median.0, files_per_pack, pack: model.pack.0, seed };
            return Catalogue::of_tree(spec.files(), seed).map_err(|e| usage(e.to_string()));
        }
        if self.load.load == LoadKind::Diff {
            let trees = u64::from(self.load.closed.clients) * 2;
            if trees * u64::from(model.files) > DIFF_FILES_MAX {
                return Err(usage(format!(
                    "{trees} trees of files={} are more than {DIFF_FILES_MAX} files",
                    model.files
                )));
            }
            let (forest, files) = self.forest(model);
            return Catalogue::of_tree(forest.all(&files), seed).map_err(|e| usage(e.to_string()));
        }
        Catalogue::new(&self.library.spec()).map_err(|e| usage(e.to_string()))
    }

    /// The part of the memory that is page cache.
    fn page_cache(&self, model: &Model) -> Result<Bytes, Fault> {
        let handlers = self.load.load == LoadKind::Handlers;
        if model.thread_memory.0 > 0 && !handlers {
            return Err(usage("--with thread-memory= is for --load handlers"));
        }
        let threads = if handlers { u64::from(self.load.closed.clients) } else { 0 };
        let taken = model.reserve.0.saturating_add(model.thread_memory.0.saturating_mul(threads));
        let left = Bytes(self.memory.0.saturating_sub(taken));
        if left < Bytes::mib(1) {
            let less = if taken > 0 { format!(" less {}", Bytes(taken)) } else { String::new() };
            return Err(usage(format!("--memory {}{less} is too small; leave at least 1MiB", self.memory)));
        }
        Ok(left)
    }

    fn config(&self, model: &Model, catalogue: &Catalogue) -> Result<Config, Fault> {
        let memory = self.page_cache(model)?;
        let l = &self.load;
        if l.duration <= l.warmup {
            return Err(usage(format!("--warmup {} leaves nothing of --duration {}", l.warmup, l.duration)));
        }
        if l.closed.range.0 == 0 || model.socket < Bytes(PAGE * 3) {
            return Err(usage("--range must be at least 1B and --with socket= at least 12KiB"));
        }
        let s = &self.server;
        if s.read_ahead_kb > 1 << 20 {
            return Err(usage("--read-ahead-kb is 0 to 1048576"));
        }
        let written = if model.writer.is_some() { model.writer_file.0 } else { 0 };
        let library = catalogue.total().0 + catalogue.videos().len() as u64 * PAGE + written;
        let set = self.set.spec()?;
        let disks = self.drive.iter().map(|name| {
            let mut drive = drives::find(name).map_err(|why| usage(why.to_string()))?;
            drive.queue.depth = model.queue_depth.unwrap_or(drive.queue.depth);
            let whole = DriveSet::new(&drive, set).map_err(|e| usage(e.to_string()))?.capacity();
            let size = self.size.unwrap_or(Bytes((library + library / 10 + (64 << 20)).min(whole.0)));
            Ok(DiskConfig { drive, set, size, speedup: 1.0 })
        });
        let disks = disks.collect::<Result<Vec<_>, Fault>>()?;
        if disks.len() > 64 {
            return Err(usage("more than 64 disks"));
        }
        let first = disks.first().ok_or_else(|| usage("no --drive"))?;
        let writer = self.writer(model, &first.drive)?;
        let engine = self.engine.config(model, first, memory)?;
        let engines = engine.is_some();
        let (tree, diff) = (l.load == LoadKind::Tree, l.load == LoadKind::Diff);
        if (tree || diff) && disks.len() > 1 {
            return Err(usage("--load tree and --load diff are for one --drive"));
        }
        Ok(Config {
            disks,
            memory,
            kernel: KernelConfig {
                read_ahead: Bytes::kib(s.read_ahead_kb),
                competitive: model.competitive_read_ahead,
                max_request: Bytes::kib(model.max_sectors_kb),
                segments: model.max_segments,
                max_command: Bytes::kib(model.max_command_kb),
                scheduler: s.scheduler,
                requests: model.nr_requests as usize,
                algorithm: match model.kernel_read_ahead {
                    KernelReadAhead::OnDemand => readahead::Kind::OnDemand,
                    KernelReadAhead::OnDemand3 => readahead::Kind::OnDemand3,
                    KernelReadAhead::Linux26 => readahead::Kind::Linux26,
                    KernelReadAhead::Linux26Doubling => readahead::Kind::Linux26Doubling,
                    KernelReadAhead::Cluster => readahead::Kind::Cluster,
                },
                replacement: match model.cache {
                    Cache::Lru => Replacement::Lru,
                    Cache::TwoList => Replacement::TwoList,
                    Cache::EvenLists => Replacement::EvenLists,
                    Cache::Fifo => Replacement::Fifo,
                },
                standby: model.standby.map(|after| Standby { after, spin_up: model.spin_up }),
                ..KernelConfig::default()
            },
            server: match l.load {
                LoadKind::Tree => ServerModel::checksums(),
                LoadKind::Diff => ServerModel::handlers(),
                _ => ServerModel { random: model.random_advice, ..s.model(model.workers) },
            },
            socket: model.socket,
            engine,
            costs: Costs {
                copy_ns_per_kib: match tree || diff {
                    true => CHECKSUM_NS_PER_KIB,
                    false => Costs::default().copy_ns_per_kib,
                },
                // Data of a comparison or a checksum does not cross a network.
                network: if tree || diff { Nanos::ZERO } else { model.network_alpha },
                network_ns_per_kib: if tree { 0 } else { (1.024e6 / model.network_mb_per_s) as u64 },
                ..Costs::default()
            },
            load: self.load(model, catalogue)?,
            file_set: self.file_set(model, engines)?,
            writer,
            warmup: l.warmup,
            length: l.duration,
        })
    }

    /// The trees of all pairs, one behind the other, each with its folders in random order as ext4 spreads
    /// them.
    fn forest(&self, model: &Model) -> (Forest, Vec<SourceFile>) {
        let files = sources::files(model.files, self.library.catalogue_seed);
        (Forest::new(2 * self.load.closed.clients, &files), files)
    }

    fn writer(&self, model: &Model, drive: &DriveSpec) -> Result<Option<WriterLoad>, Fault> {
        let Some(rate) = model.writer else {
            let of_none = model.cameras > 0 || model.missed.is_some();
            return if of_none { Err(usage("--with cameras= and missed= need writer=")) } else { Ok(None) };
        };
        if matches!(self.load.load, LoadKind::Tree | LoadKind::Diff) {
            return Err(usage("a writer is for loads of a server: closed, handlers, sessions or search"));
        }
        let file = model.writer_file;
        if file < Bytes::mib(1) || !file.0.is_multiple_of(PAGE) || model.writer_sync == Some(Bytes(0)) {
            return Err(usage(
                "--with writer-file= must be whole pages of at least 1MiB, writer-sync= at least 1B",
            ));
        }
        if model.cameras == 0 && model.missed.is_some() {
            return Err(usage("--with missed= needs cameras="));
        }
        let recorder = (model.cameras > 0).then_some(RecorderLoad {
            cameras: model.cameras,
            segment: model.segment,
            journal: model.journal,
        });
        Ok(Some(WriterLoad { rate: rate.of(drive), sync_every: model.writer_sync, file, recorder }))
    }

    fn file_set(&self, model: &Model, seekless: bool) -> Result<Option<FileSetLoad>, Fault> {
        if !model.file_set {
            return Ok(None);
        }
        if !seekless {
            return Err(usage("--with file-set=true needs Seekless; give --mode both"));
        }
        if model.file_set_range.0 == 0 || self.load.load == LoadKind::Tree {
            return Err(usage(
                "--with file-set-range= must be at least 1B, and a file set is for other loads than tree",
            ));
        }
        Ok(Some(FileSetLoad {
            window: model.file_set_window,
            range: model.file_set_range,
            rate: model.file_set_rate * 1e6,
        }))
    }

    fn load(&self, model: &Model, catalogue: &Catalogue) -> Result<Load, Fault> {
        let l = &self.load;
        let ClosedOptions { range, pick, connections, .. } = l.closed;
        let spec = ClosedSpec { range, pick, random_start: true, connections, seed: l.from.seed };
        if l.load == LoadKind::Closed {
            let clients = if model.nobody_reads { 0 } else { l.closed.clients };
            let link = model.closed_link.as_deref().map_or(Ok(None), link_rate)?;
            return Ok(Load::Closed { clients, spec, other_disks: model.other_disks, link });
        }
        if l.load == LoadKind::Tree {
            let folders = Arc::new(Folders::of(catalogue.videos().iter().map(|v| &*v.path)));
            let (programs, batch, taking) = (l.closed.clients, model.batch, model.taking);
            let work = |mb_s: Option<f64>| ProgramWork {
                start: model.start_time,
                file: model.file_time,
                rate: mb_s.map(|mb_s| mb_s * 1e6),
            };
            let after = model.second_after;
            let second = model.second_rate.map(|mb_s| SecondProgram { after, work: work(Some(mb_s)) });
            let (work, fresh, clients) = (work(model.work_rate), model.fresh, (model.beside, spec));
            let tree = TreeLoad { programs, batch, taking, folders, fresh, work, second, clients };
            return Ok(Load::Tree(tree));
        }
        if l.load == LoadKind::Diff {
            return Ok(Load::Diff(DiffLoad { pairs: l.closed.clients, forest: self.forest(model).0 }));
        }
        if l.load == LoadKind::Handlers {
            let handler = l.closed.handler.map_or_else(|| "one-whole-0".parse().map_err(usage), Ok)?;
            handler.check(catalogue).map_err(usage)?;
            return Ok(Load::Handlers { clients: l.closed.clients, handler, seed: l.from.seed });
        }
        let class = |text: &String| {
            Ok(ClientClass {
                name: text.trim().to_owned(),
                link_bits_per_s: link_rate(text.trim())?,
                delay: model.delay,
                share: 1.0,
            })
        };
        if model.rise_over == Some(Nanos::ZERO) {
            return Err(usage("--with rise-over= must be above 0s"));
        }
        Ok(Load::Sessions {
            per_s: l.rate,
            rise: model.rise_over.map(|over| Rise { from: Rise::FROM, over }),
            sessions: model.sessions.unwrap_or(u32::MAX),
            classes: l.link.iter().map(class).collect::<Result<Vec<_>, Fault>>()?,
            warm_start: !model.cold_start,
            timeout: model.timeout,
            seed: l.from.seed,
        })
    }
}

impl ServerArgs {
    fn model(&self, workers: u32) -> ServerModel {
        match (self.server, self.variant) {
            (Server::Nginx, Variant::Shipped) => ServerModel::nginx(workers),
            (Server::Nginx, Variant::Threads) => ServerModel::nginx_threads(workers),
            (Server::Nginx, Variant::Reads) => ServerModel::nginx_reads(workers),
            (Server::Apache, Variant::Threads) => ServerModel::apache_send(),
            (Server::Apache, _) => ServerModel::apache(),
            (Server::Lighttpd, _) => ServerModel::lighttpd(),
            (Server::Builtin, Variant::Reads) => ServerModel::handlers(),
            (Server::Builtin, _) => ServerModel::threads(),
            (Server::Userver, Variant::Shipped) => ServerModel::userver(workers),
            (Server::Userver, _) => ServerModel::asap(),
        }
    }
}

impl EngineArgs {
    /// All disks of a run use the profile of the first, and are sets of the same kind.
    fn config(
        &self,
        model: &Model,
        first: &DiskConfig,
        memory: Bytes,
    ) -> Result<Option<EngineConfig>, Fault> {
        let Some(mode) = self.mode.or(self.policy.preset.map(|_| Mode::Both)) else {
            return self.nothing_for_seekless().map(|()| None);
        };
        let mut policy = self.policy.config(mode)?;
        self.queue.apply(&mut policy);
        policy.profile = (!model.unprofiled).then(|| profile_of(&first.drive, &first.set));
        policy.find_in_flight = model.find_at_once;
        match model.at_once {
            _ if model.find_at_once => {}
            Some(pieces) => policy.in_flight = pieces as usize,
            None => (policy.in_flight, policy.parts) = at_once(&first.drive, &first.set),
        }
        policy.constants = self.constants()?;
        if let Some(start) = scaled_start(model.start_factor, &policy, memory)? {
            policy.start_size = Some(start);
        }
        let (door, single_queue) = (self.door.into(), self.policy.single_queue()?);
        let (window, tells_bitrates) = (model.window, model.tell_bitrates);
        let preads = self.policy.preads()?;
        Ok(Some(EngineConfig { door, policy, single_queue, tells_bitrates, window, preads }))
    }

    /// Refuses options of Seekless if Seekless is not simulated. They would change nothing, and the output
    /// would look like a result.
    fn nothing_for_seekless(&self) -> Result<(), Fault> {
        let p = &self.policy;
        let options = [
            ("--prefetch", p.prefetch.is_some()),
            ("--order", p.order.is_some()),
            ("--ahead", p.ahead.is_some()),
            ("--budget", p.budget.is_some()),
            ("--quiet", p.quiet),
            ("--scale", p.scale.is_some()),
            ("--constant", !self.constant.is_empty()),
        ];
        let given = options.iter().find(|(_, given)| *given);
        given.map_or(Ok(()), |(option, _)| {
            Err(usage(format!(
                "{option} is an option of Seekless, which is not there: add --mode both or a --preset"
            )))
        })
    }

    /// The constants of the read path, with the given ones replaced.
    fn constants(&self) -> Result<Constants, Fault> {
        let mut constants = json!(Constants::default());
        for given in &self.constant {
            let known = || {
                let names: Vec<&str> =
                    constants.as_object().into_iter().flat_map(|c| c.keys()).map(|k| &**k).collect();
                usage(format!("--constant {given}: write NAME=VALUE; the names are {}", names.join(", ")))
            };
            let (name, value) = given.split_once('=').ok_or_else(known)?;
            let value: f64 = value.parse().map_err(|_| known())?;
            let old = constants.get(name).ok_or_else(known)?;
            let new = if old.is_u64() { json!(value.max(0.0) as u64) } else { json!(value) };
            constants[name] = new;
        }
        serde_json::from_value(constants).map_err(|e| usage(format!("--constant: {e}")))
    }
}

/// The start size of an automatic one, times the requested factor.
fn scaled_start(factor: f64, config: &PolicyConfig, memory: Bytes) -> Result<Option<Bytes>, Fault> {
    if factor != 1.0 && config.start_size.is_some() {
        return Err(usage("--with start-factor= is for a size of its own: leave out the start size"));
    }
    let Sizing::Auto(params) = config.sizing else { return Ok(None) };
    if factor == 1.0 {
        return Ok(None);
    }
    let memory = MemoryLimit { bytes: memory, ..MemoryLimit::default() };
    let start = DiskEngine::new(PolicyConfig { memory, ..config.clone() }).stats().size.size as f64;
    let size = Bytes((start * factor) as u64 / PAGE * PAGE);
    Ok(Some(size.clamp(Bytes(PAGE), params.size_max)))
}

/// Concurrency limit, and start addresses of parts with heads of their own, of a set with a known layout
/// (`seekless_engine`, `layout`).
fn at_once(drive: &DriveSpec, set: &SetSpec) -> (usize, Vec<Lba>) {
    let members = set.members as usize;
    match set.kind {
        SetKind::Raid1 => (members, Vec::new()),
        SetKind::Raid10 => (2, Vec::new()),
        SetKind::Raid0 | SetKind::Raid5 | SetKind::Raid6 => (members.min(STRIPED_AT_ONCE), Vec::new()),
        SetKind::Linear => {
            let each = drive.sectors() / u64::from(set.actuators);
            (1, (1..u64::from(set.spindles())).map(|i| Lba(i * each)).collect())
        }
    }
}

pub(super) fn run(args: &ServeArgs) -> Result<Exit, Fault> {
    let model: Model = args.with.settings()?;
    model.check()?;
    let catalogue = args.catalogue(&model)?;
    let config = args.config(&model, &catalogue)?;
    let (report, extra) = if args.load.load == LoadKind::Search {
        let l = &args.load;
        let plan = serving::search::Search {
            first: l.rate,
            highest: model.rate_max,
            max_failed: l.holds.max_failed,
            precision: model.precision,
            runs: model.runs,
            expected: l.expected,
        };
        let found = serving::search(&config, &catalogue, &plan, |step| {
            seekless_output::eprintln!(
                "{:.1} requests/s: {:.1} MB/s, {:.2} % of sessions failed: {}",
                step.rate_per_s,
                step.mb_per_s,
                step.failed_share * 100.0,
                if step.good { "holds" } else { "too much" }
            );
        })
        .map_err(usage)?;
        let rate = found.best.as_ref().map(|(rate, _)| *rate);
        let mb = found.best.as_ref().map(|(_, r)| r.mb_per_s);
        let extra = json!({ "kind": "search", "max_per_s": rate, "max_mb_per_s": mb, "steps": found.steps });
        let report = found.best.map(|(_, r)| r).or(found.worst);
        (report.ok_or_else(|| usage("a search of no runs; give --runs of at least 1"))?, extra)
    } else if let Some(missed) = model.missed {
        let plan = serving::search::MissedSearch { missed, precision: model.precision, runs: model.runs };
        let found = serving::search_missed(&config, &catalogue, &plan, |link, report| {
            let missed = report.recorder().map_or(0.0, |r| r.missed) * 100.0;
            seekless_output::eprintln!(
                "{:.2} Mb/s: {missed:.1} % of segments late or lost",
                link as f64 / 1e6
            );
        });
        let (link, report) = found.map_err(usage)?;
        (report, json!({ "link_mbit_s": link as f64 / 1e6 }))
    } else {
        let link = if let Load::Closed { link, .. } = config.load { link } else { None };
        let extra = link.map_or_else(|| json!({}), |link| json!({ "link_mbit_s": link as f64 / 1e6 }));
        (serving::run(&config, &catalogue).map_err(usage)?, extra)
    };
    let mut load = report.load_json();
    if let (Value::Object(all), Value::Object(extra)) = (&mut load, extra) {
        all.extend(extra);
    }
    let reuse = report.reuse();
    let value = json!({
        "load": load,
        "disks": report.disks_json(),
        "engines": report.engines_json(),
        "cache": report.cache,
        "reuse": { "used_bytes": reuse.used, "read_bytes": reuse.read, "lru_bytes": reuse.lru,
                   "min_bytes": reuse.min, "closed": reuse.closed() },
        "calls": { "under_1ms": report.calls.0, "under_0_1ms": report.calls.1, "p99_ms": report.calls.2,
                   "cdf": report.calls_cdf },
        "library": { "files": catalogue.videos().len(), "bytes": catalogue.total().0 },
        "events": report.events,
    });
    seekless_output::give(args.json.path(), &value, || {
        text(&args.load, model.standby.is_some(), &report, &reuse, &value)
    })?;
    Ok(Exit::Ok)
}

fn text(
    args: &LoadArgs,
    stops: bool,
    report: &serving::Report,
    reuse: &serving::Reuse,
    value: &Value,
) -> String {
    let mut out = String::new();
    if let Some(rate) = value.pointer("/load/max_per_s").and_then(Value::as_f64) {
        let _ = writeln!(out, "maximum rate: {rate:.1} requests/s");
    }
    let l = |name| report.latency_ms.get(name).copied().unwrap_or(0.0);
    let optimum = match args.load {
        LoadKind::Handlers => format!(" (optimum {:.1})", report.optimum_mb_per_s),
        _ => String::new(),
    };
    let _ = match args.load {
        LoadKind::Tree | LoadKind::Diff if report.length_s < args.duration.as_secs_f64() => {
            writeln!(out, "all files read after {:.1} s", report.length_s)
        }
        LoadKind::Tree | LoadKind::Diff => {
            writeln!(out, "not all files read in the {} of --duration", args.duration)
        }
        _ => writeln!(
            out,
            "{:.1} MB/s{optimum}, {} requests, {} failed; ms: p50 {:.0}, p95 {:.0}, p99 {:.0}",
            report.mb_per_s,
            report.requests,
            report.failures,
            l("p50"),
            l("p95"),
            l("p99")
        ),
    };
    if let Some(set) = report.file_set {
        let percent = set.share * 100.0;
        let _ = writeln!(out, "file set: {:.1} MB/s, {percent:.1} % of the disk's time", set.mb_per_s);
    }
    if let Some(w) = report.writer {
        let _ = writeln!(
            out,
            "writer: {:.1} MB/s of {:.1}, {:.1} % of the disk's time; {} fsyncs; ms: p50 {:.0}, p99 {:.0}, longest {:.0}",
            w.mb_per_s,
            w.asked_mb_per_s,
            w.disk_share * 100.0,
            w.fsyncs,
            w.fsync_p50_ms,
            w.fsync_p99_ms,
            w.fsync_max_ms
        );
        if let Some(r) = w.recorder {
            let _ = writeln!(
                out,
                "recorder: {} segments, {} late, {} lost; {} fdatasyncs; ms: p50 {:.0}, p99 {:.0}",
                r.segments, r.late, r.lost, r.fdatasyncs, r.fdatasync_p50_ms, r.fdatasync_p99_ms
            );
        }
    }
    for (i, d) in report.disks.iter().enumerate() {
        let s = d.elapsed_ns.max(1) as f64 / 1e9;
        let reads = d.reads.max(1) as f64;
        let _ = writeln!(
            out,
            "disk {i}: {:.1} MB/s, {:.0} reads/s of {:.0} KiB, {:.2} seeks/MB, busy {:.0} %; a read: seek {:.1}, turn {:.1}, \
             transfer {:.1} ms, {:.0} % from the buffer",
            d.read_bytes as f64 / 1e6 / s,
            d.reads as f64 / s,
            d.read_bytes as f64 / reads / 1024.0,
            d.seeks as f64 / (d.read_bytes.max(1) as f64 / 1e6),
            d.busy_ns as f64 / 1e7 / s,
            d.seek_ns as f64 / 1e6 / reads,
            d.rotation_ns as f64 / 1e6 / reads,
            d.transfer_ns as f64 / 1e6 / reads,
            d.buffer_hits as f64 * 100.0 / reads,
        );
    }
    for (i, d) in report.disks.iter().enumerate().filter(|_| stops) {
        let hours = d.elapsed_ns.max(1) as f64 / 3.6e12;
        let _ = writeln!(
            out,
            "disk {i}: an hour {:.0} accesses, {:.1} spin-ups, awake for {:.0} s",
            d.accesses as f64 / hours,
            d.spin_ups as f64 / hours,
            d.awake_ns as f64 / 1e9 / hours,
        );
    }
    for (i, m) in report.disks.iter().flat_map(|d| d.members.iter().enumerate()) {
        let _ = writeln!(
            out,
            "  member {i}: {:.1} MB in {} reads of {:.0} KiB, busy {:.1} s, seek {:.1} s, rotation {:.1} s",
            m.read_bytes as f64 / 1e6,
            m.reads,
            m.read_bytes as f64 / m.reads.max(1) as f64 / 1024.0,
            m.busy_ns as f64 / 1e9,
            m.seek_ns as f64 / 1e9,
            m.rotation_ns as f64 / 1e9,
        );
    }
    let c = &report.cache;
    // Members of a set work at the same time: each one's part of the time is out of the total of all; idle is
    // that of the set as a whole.
    let all: u64 = report.disks.iter().map(|d| d.elapsed_ns).sum();
    let of_members: u64 = report.disks.iter().map(|d| d.elapsed_ns * d.members.len().max(1) as u64).sum();
    let time = |part: fn(&serving::DiskStats) -> u64| {
        report.disks.iter().map(part).sum::<u64>() as f64 * 100.0 / of_members.max(1) as f64
    };
    let busy: u64 = report.disks.iter().map(|d| d.busy_ns).sum();
    let read: u64 = report.disks.iter().map(|d| d.read_bytes).sum();
    let of_read = |pages: u64| (pages * PAGE) as f64 / read.max(1) as f64;
    let transfer = time(|d| d.transfer_ns);
    let _ = writeln!(
        out,
        "time of the disks: seek {:.1} %, rotation {:.1} %, transfer {transfer:.1} %, overhead {:.1} %, idle {:.1} %; of the \
         transfer: re-read {:.1} %, wasted {:.1} %",
        time(|d| d.seek_ns),
        time(|d| d.rotation_ns),
        time(|d| d.overhead_ns),
        100.0 - busy as f64 * 100.0 / all.max(1) as f64,
        transfer * of_read(c.refetched),
        transfer * of_read(c.never_used()),
    );
    let _ = writeln!(
        out,
        "page cache: {} MiB in, {} MiB evicted after use, {} MiB before",
        c.inserted >> 8,
        c.evicted_used >> 8,
        c.evicted_unused >> 8
    );
    let of_used = |bytes: u64| bytes as f64 / reuse.used.max(1) as f64;
    let closed = reuse.closed().map(|closed| format!("; {:.0} % of the gap closed", closed * 100.0));
    let _ = writeln!(
        out,
        "reuse: {:.3} bytes read for a byte used; least recently used {:.3}, Belady's optimum {:.3}{}",
        of_used(reuse.read),
        of_used(reuse.lru),
        of_used(reuse.min),
        closed.unwrap_or_default(),
    );
    for (i, e) in report.engines.iter().enumerate() {
        let _ = writeln!(
            out,
            "engine {i}: {} requests, {} reads of {:.0} KiB ({} ahead), {} MiB evicted unread, {} MiB wasted, {} streams, \
             {} of {} MiB unread, {} times held back",
            e.requests,
            e.reads,
            e.bytes_read as f64 / e.reads.max(1) as f64 / 1024.0,
            e.ahead,
            e.bytes_evicted_unused >> 20,
            e.bytes_wasted >> 20,
            e.streams,
            e.bytes_unread >> 20,
            e.budget >> 20,
            e.held_back
        );
        let (size, t) = (&e.size, e.ledger.ratios());
        let _ = writeln!(
            out,
            "  {} size {}{}{}{}; of what was requested: {:.3} from the disk, {:.3} cached, {:.4} evicted \
             before use, {:.3} wasted",
            size.kind,
            Bytes(size.size),
            if size.target == size.size {
                String::new()
            } else {
                format!(", on its way to {}", Bytes(size.target))
            },
            if size.decision.is_empty() { "" } else { ", last: " },
            size.decision,
            t.disk,
            t.cached,
            t.evicted,
            t.wasted
        );
    }
    let _ = writeln!(out, "{} events", report.events);
    out
}
