//! `seekless-lab sim trace run|info|optimal|generate`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::study::cache::Replacement;
use crate::study::coordinate::Coordination;
use crate::study::coordinate::steer::SteerParams;
use clap::{Args, Subcommand};
use seekless_base::{Bytes, Exit, Fault, Nanos};
use seekless_model::drive::catalogue;
use seekless_model::load_options::{DriveOption, LenientOption, SeedOption};
use seekless_model::workload::generate::Kind;
use seekless_model::workload::trace::{Format, Op, Options};
use seekless_output::{BYTES, JsonOption, bar, give, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::coordinator;
use crate::study::oracle;
use crate::study::prefetch::Algorithm;
use crate::study::spec::parse_levels;
use crate::study::trace::{SourceSpec, TraceSource, Writes, info};
use crate::study::twolevel::report;
use crate::study::twolevel::{LevelSpec, Network, Pacing, Simulation, SystemSpec};
use seekless_model::with::WithOption;

#[derive(Args, Clone, Debug)]
pub(super) struct TraceArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Replay a trace through cache levels
    Run(RunArgs),
    /// Requests, read share, sequential share, footprint, and a plot
    Info(InfoArgs),
    /// Misses of one cache by LRU and ARC, and the fewest any cache of that size could have (Belady)
    Optimal(OptimalArgs),
    /// Write a generated trace in SPC format (no times: as a .lis list of 4 KiB blocks)
    Generate(GenerateArgs),
}

/// Treatment of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WritesArg {
    /// They touch their blocks like reads
    AsReads,
    /// They are written
    Replay,
    /// They are left out
    Skip,
}

/// Which trace, and how it is read.
#[derive(Args, Clone, Debug)]
struct FileArgs {
    /// The trace, plain or compressed (gz, xz, zst); `-` means standard input; `gen:oltp`, `gen:websearch`
    /// and `gen:multi` are generated
    file: PathBuf,
    /// Format: spc, msr, cloudphysics, vscsi1, vscsi2, srt, disksim, lis, blocks or access-log [default: from
    /// the name]
    #[arg(long)]
    format: Option<String>,
    #[command(flatten)]
    lines: LenientOption,
    #[command(flatten)]
    generated: GeneratedOptions,
    #[command(flatten)]
    with: WithOption,
}

/// What `--with` sets.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Model {
    /// Size of a cache block.
    block: Bytes,
    /// When requests are issued.
    timing: TimingArg,
    /// Requests under way at once with timing=closed.
    clients: u32,
    /// Factor on the times of the trace; 2 is half as fast.
    time_stretch: f64,
    /// Block size of formats that count blocks of an unstated size (lis, blocks). None: a cache block.
    trace_block: Option<Bytes>,
    /// What becomes of writes: as-reads, replay (of `run`) or skip.
    writes: WritesArg,
    /// Cost of one exchange between two levels, milliseconds.
    alpha_ms: f64,
    /// Cost of each block sent between two levels, milliseconds.
    beta_ms: f64,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            block: Bytes::kib(4),
            timing: TimingArg::Auto,
            clients: 1,
            time_stretch: 1.0,
            trace_block: None,
            writes: WritesArg::AsReads,
            alpha_ms: 6.0,
            beta_ms: 0.03,
        }
    }
}

/// The drive below the levels, if none is named: the paper's.
pub(super) const DRIVE: &str = "cheetah-9lp";

/// A generated trace.
#[derive(Args, Clone, Debug)]
pub(super) struct GeneratedOptions {
    /// Scale of a generated trace: footprint and length; 1 is the paper's
    #[arg(long, default_value_t = 1.0)]
    pub(super) scale: f64,
    #[command(flatten)]
    pub(super) from: SeedOption,
}

impl FileArgs {
    fn spec(&self) -> Result<SourceSpec, Fault> {
        let format = match &self.format {
            None => None,
            Some(name) => match Format::from_name(name) {
                Some(format) => Some(format),
                None => {
                    let names = Format::ALL.map(Format::name).join(", ");
                    return Err(Fault::usage(format!("no format is called `{name}`; there are {names}")));
                }
            },
        };
        let model: Model = self.with.settings()?;
        let block = model.block.0;
        if block < 512 || !block.is_multiple_of(512) || block > 1 << 30 {
            let given = model.block;
            return Err(Fault::usage(format!(
                "--with block={given}: a block is a multiple of 512 bytes, up to 1 GiB"
            )));
        }
        let trace_block = model.trace_block.unwrap_or(model.block).0;
        if trace_block == 0 || trace_block > 1 << 30 {
            return Err(Fault::usage(format!(
                "--with trace-block={}: not within 1 byte and 1 GiB",
                Bytes(trace_block)
            )));
        }
        Ok(SourceSpec {
            file: self.file.clone(),
            format,
            options: Options { lenient: self.lines.lenient, block_bytes: trace_block },
            writes: match model.writes {
                WritesArg::AsReads => Writes::AsReads,
                WritesArg::Replay => Writes::Replay,
                WritesArg::Skip => Writes::Skip,
            },
            scale: self.generated.scale,
            seed: self.generated.from.seed,
            block_bytes: block,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TimingArg {
    /// The times of the trace, if it has any, else closed
    Auto,
    /// The times of the trace
    Trace,
    /// The next request when one completes
    Closed,
}

#[derive(Args, Clone, Debug)]
struct RunArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Cache levels from the application down: CACHE+PREFETCHER:SIZE,...
    ///
    /// CACHE: lru, sarc, arc. PREFETCHER: none, ra(P), ra-adaptive(P), linux(MAX), linux-kernel(MAX),
    /// sarc(P/G), amp(P). SIZE: 64MiB, or 16384blk.
    #[arg(long, value_name = "LEVELS")]
    levels: String,
    /// What stands between the levels: none, du, pfc, steer or demand-first; one for all, or one for each
    /// level from the second, with commas
    #[arg(long, default_value = "none", value_name = "NAMES")]
    coordinate: String,
    #[command(flatten)]
    below: DriveOption,
    #[command(flatten)]
    json: JsonOption,
}

#[derive(Args, Clone, Debug)]
struct InfoArgs {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    json: JsonOption,
}

#[derive(Args, Clone, Debug)]
struct OptimalArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Size of the cache: 64MiB, or 16384blk
    #[arg(long)]
    capacity: String,
    #[command(flatten)]
    json: JsonOption,
}

#[derive(Args, Clone, Debug)]
struct GenerateArgs {
    /// oltp, websearch or multi
    kind: String,
    #[command(flatten)]
    generated: GeneratedOptions,
}

pub(super) fn run(args: TraceArgs) -> Result<Exit, Fault> {
    match args.command {
        Command::Run(args) => run_trace(&args),
        Command::Info(args) => run_info(&args),
        Command::Optimal(args) => optimal(&args),
        Command::Generate(args) => generate(&args),
    }
}

fn positive(name: &str, value: f64) -> Result<f64, Fault> {
    if value.is_finite() && (0.0..=1e9).contains(&value) {
        return Ok(value);
    }
    Err(Fault::usage(format!("{name} {value} is not within 0 and 1,000,000,000")))
}

/// Puts a coordinator before each level but the first.
fn coordinate(levels: &mut [LevelSpec], names: &str) -> Result<(), Fault> {
    let names: Vec<&str> = names.split(',').collect();
    let lower = levels.len().saturating_sub(1);
    if lower == 0 && names.iter().any(|name| name.trim() != "none") {
        let message = "--coordinate: nothing to coordinate, since --levels gives one level; give two or more";
        return Err(Fault::usage(message.to_owned()));
    }
    if names.len() != 1 && names.len() != lower {
        return Err(Fault::usage(format!(
            "--coordinate names {} coordinators for {lower} levels below the first; give one, or one for each",
            names.len()
        )));
    }
    for (i, name) in names.iter().enumerate() {
        let coordination = coordinator::parse(name)?;
        let which = if names.len() == 1 { 1..levels.len() } else { i + 1..i + 2 };
        for at in which {
            levels[at].coordination = match coordination {
                Coordination::Steer(params) => {
                    let upper_prefetches = levels[at - 1].prefetch != Algorithm::None;
                    Coordination::Steer(SteerParams { upper_prefetches, ..params })
                }
                other => other,
            };
        }
    }
    Ok(())
}

fn system(args: &RunArgs, timed: bool) -> Result<SystemSpec, Fault> {
    let model: Model = args.file.with.settings()?;
    let mut levels = parse_levels(&args.levels, model.block.0)?;
    coordinate(&mut levels, &args.coordinate)?;
    let drive = match args.below.name(DRIVE) {
        "none" => None,
        name => Some(catalogue::find(name).map_err(|why| Fault::usage(format!("{why}; or none")))?),
    };
    if !(model.time_stretch > 0.0 && model.time_stretch <= 1e6) {
        return Err(Fault::usage(format!(
            "--with time-stretch={} is out of range; write more than 0 and at most 1,000,000",
            model.time_stretch
        )));
    }
    if model.clients == 0 {
        return Err(Fault::usage("--with clients=0: nobody would ask for anything; give at least 1"));
    }
    let timing = match model.timing {
        TimingArg::Trace if !timed => {
            return Err(Fault::usage("--with timing=trace: this trace has no times; use timing=closed"));
        }
        TimingArg::Auto if !timed => Pacing::Closed { clients: model.clients },
        TimingArg::Auto | TimingArg::Trace => Pacing::Trace { stretch: model.time_stretch },
        TimingArg::Closed => Pacing::Closed { clients: model.clients },
    };
    let network = Network {
        alpha: Nanos::from_millis_f64(positive("--with alpha-ms", model.alpha_ms)?),
        beta: Nanos::from_millis_f64(positive("--with beta-ms", model.beta_ms)?),
    };
    Ok(SystemSpec { levels, network, drive, devices: 0, block_bytes: model.block.0, timing })
}

/// Requests between two looks at the progress.
const TICK_REQUESTS: u64 = 4096;

fn run_trace(args: &RunArgs) -> Result<Exit, Fault> {
    let source_spec = args.file.spec()?;
    let mut source = TraceSource::open(&source_spec)?;
    let spec = system(args, source.timed)?;
    let mut engine = Simulation::new(&spec).map_err(|e| Fault::usage(e.to_string()))?;
    let bar = bar(source.progress.total(), BYTES);
    let started = std::time::Instant::now();
    while let Some(record) = source.next_record()? {
        let request = source.blocks(&record)?;
        match (record.op, source_spec.writes) {
            (Op::Write, Writes::Replay) => engine.write(&request),
            _ => engine.request(&request),
        }
        if source.requests.is_multiple_of(TICK_REQUESTS) {
            bar.set_position(source.progress.read());
        }
    }
    let outcome = engine.finish();
    bar.finish_and_clear();
    let elapsed = started.elapsed().as_secs_f64();
    let mut result = report::outcome(&spec, &outcome);
    result["trace"] = trace_json(args.file.file.as_path(), &source);
    if source_spec.writes == Writes::Replay {
        result["writes"] = report::writes(&outcome);
    }
    let rate = outcome.levels[0].blocks as f64 / elapsed.max(1e-9) / 1e6;
    give(args.json.path(), &result, || summary(&result, &source, rate))?;
    Ok(Exit::Ok)
}

fn trace_json(file: &Path, source: &TraceSource) -> Value {
    let (skipped, first) = source.skipped();
    json!({
        "file": file.to_string_lossy(),
        "format": source.format,
        "requests": source.requests,
        "writes_skipped": source.writes_skipped,
        "lines_skipped": skipped,
        "first_line_skipped": first,
    })
}

/// The result for a reader.
fn summary(result: &Value, source: &TraceSource, million_per_s: f64) -> String {
    let mut text = String::new();
    let number = |v: &Value| v.as_u64().unwrap_or(0);
    let real = |v: &Value| v.as_f64().unwrap_or(0.0);
    let _ = writeln!(
        text,
        "{} requests, {} blocks ({}); {million_per_s:.2} million blocks/s simulated",
        number(&result["requests"]),
        number(&result["block_requests"]),
        source.format
    );
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "level",
        "cache",
        "prefetch",
        "coordinate",
        "blocks",
        "hits",
        "late",
        "silent",
        "misses",
        "bypassed",
        "hit ratio",
        "prefetched",
        "readmore",
        "unused",
    ]);
    for (i, level) in result["levels"].as_array().into_iter().flatten().enumerate() {
        let word = |key: &str| level[key].as_str().unwrap_or("").to_owned();
        let count = |key: &str| number(&level[key]).to_string();
        table.add_row([
            format!("L{} {} blocks", i + 1, number(&level["capacity_blocks"])),
            word("cache"),
            word("prefetch"),
            word("coordinate"),
            count("blocks"),
            count("hits"),
            count("late_hits"),
            count("silent_hits"),
            count("misses"),
            count("bypassed"),
            format!("{:.4}", real(&level["hit_ratio"])),
            count("prefetched"),
            count("readmore"),
            count("unused"),
        ]);
    }
    let _ = writeln!(text, "{table}");
    let (disk, response) = (&result["disk"], &result["response"]);
    let _ = writeln!(
        text,
        "disk: {} requests, {} blocks, busy {:.1} s of {:.1} s",
        number(&disk["requests"]),
        number(&disk["blocks"]),
        real(&disk["busy_s"]),
        real(&result["simulated_s"])
    );
    let _ = writeln!(
        text,
        "response: mean {:.3} ms, p50 {:.3}, p95 {:.3}, p99 {:.3}, max {:.3}",
        real(&response["mean_ms"]),
        real(&response["p50_ms"]),
        real(&response["p95_ms"]),
        real(&response["p99_ms"]),
        real(&response["max_ms"])
    );
    let writes = &result["writes"];
    if writes.is_object() {
        let response = &writes["response"];
        let _ = writeln!(
            text,
            "writes: {}, {} blocks; to the drive {} requests, {} blocks, {:.1} s at its medium; ms: mean {:.3}, p99 {:.3}, max {:.3}",
            number(&writes["requests"]),
            number(&writes["blocks"]),
            number(&writes["disk_requests"]),
            number(&writes["disk_blocks"]),
            real(&writes["medium_s"]),
            real(&response["mean_ms"]),
            real(&response["p99_ms"]),
            real(&response["max_ms"])
        );
    }
    if let (skipped, Some(first)) = source.skipped() {
        let _ = writeln!(text, "{skipped} lines skipped; the first: {first}");
    }
    text
}

fn run_info(args: &InfoArgs) -> Result<Exit, Fault> {
    let spec = args.file.spec()?;
    let mut source = TraceSource::open(&spec)?;
    let bar = bar(source.progress.total(), BYTES);
    let info = info::measure(&mut source, |source| {
        if source.requests.is_multiple_of(TICK_REQUESTS) {
            bar.set_position(source.progress.read());
        }
    })?;
    bar.finish_and_clear();
    let mut value = info.json(spec.block_bytes);
    value["trace"] = trace_json(&args.file.file, &source);
    give(args.json.path(), &value, || info_text(&info, &source, spec.block_bytes))?;
    Ok(Exit::Ok)
}

fn info_text(info: &info::Info, source: &TraceSource, block_bytes: u64) -> String {
    let mut text = String::new();
    let block = Bytes(block_bytes);
    let footprint = match info.footprint_blocks {
        Some(blocks) => {
            format!("{blocks} blocks of {block}, {:.1} MB", (blocks * block_bytes) as f64 / 1e6)
        }
        None => "more than 2^26 blocks; use a larger --block".into(),
    };
    let _ = writeln!(text, "format            {}", source.format);
    let _ = writeln!(text, "requests          {}", info.requests);
    let _ = writeln!(text, "bytes             {:.1} MB", info.bytes as f64 / 1e6);
    let _ = writeln!(text, "read share        {:.1} %", info.read_share() * 100.0);
    let _ = writeln!(text, "sequential share  {:.1} %", info.sequential_share() * 100.0);
    let _ = writeln!(text, "footprint         {footprint}");
    let _ = writeln!(text, "files or devices  {}", info.contexts);
    if let Some(span) = info.span {
        let _ = writeln!(text, "span              {:.1} s", span.as_secs_f64());
    }
    if let (skipped, Some(first)) = source.skipped() {
        let _ = writeln!(text, "skipped           {skipped} lines; the first: {first}");
    }
    text.push_str("\nblock number against request number:\n");
    text.push_str(&info.plot(72, 16));
    text
}

fn optimal(args: &OptimalArgs) -> Result<Exit, Fault> {
    let spec = args.file.spec()?;
    if spec.writes == Writes::Replay {
        let message = "--with writes=replay is of `trace run`; the oracle knows as-reads and skip";
        return Err(Fault::usage(message));
    }
    // One level of the `--levels` language, so that sizes are written the same way everywhere.
    let level = parse_levels(&format!("lru:{}", args.capacity), spec.block_bytes)?;
    let capacity = level[0].capacity_blocks;
    let mut source = TraceSource::open(&spec)?;
    let mut blocks = Vec::new();
    while let Some(record) = source.next_record()? {
        let request = source.blocks(&record)?;
        blocks.extend(request.first..=request.last);
        if blocks.len() > oracle::REQUESTS_MAX {
            return Err(Fault::failed(format!(
                "more than {} block requests; the oracle holds them all",
                oracle::REQUESTS_MAX
            )));
        }
    }
    let misses = |replacement| {
        oracle::misses(replacement, &blocks, capacity as usize, 0).map_err(|e| Fault::usage(e.to_string()))
    };
    let (lru, arc) = (misses(Replacement::Lru)?, misses(Replacement::Arc)?);
    let best = oracle::optimal_misses(&blocks, capacity as usize, 0);
    let requests = blocks.len();
    let value = json!({
        "trace": trace_json(&args.file.file, &source),
        "capacity_blocks": capacity,
        "block_requests": requests,
        "misses": { "lru": lru, "arc": arc, "optimal": best },
    });
    give(args.json.path(), &value, || {
        format!("{requests} block requests, {capacity} blocks: misses LRU {lru}, ARC {arc}, optimal {best}\n")
    })?;
    Ok(Exit::Ok)
}

fn generate(args: &GenerateArgs) -> Result<Exit, Fault> {
    let kind = Kind::from_name(&args.kind).ok_or_else(|| {
        let names = Kind::ALL.map(Kind::name).join(", ");
        Fault::usage(format!("no generator is called `{}`; there are {names}", args.kind))
    })?;
    if !(args.generated.scale > 0.0 && args.generated.scale <= 100.0) {
        return Err(Fault::usage(format!(
            "--scale {} is out of range; write more than 0 and at most 100",
            args.generated.scale
        )));
    }
    let mut records = kind.generate(args.generated.scale, args.generated.from.seed).enumerate();
    stream(|out| {
        records.try_for_each(|(i, r)| match r.at {
            Some(at) => {
                let op = if r.op == Op::Read { 'R' } else { 'W' };
                let (s, ns) = (at.0 / 1_000_000_000, at.0 % 1_000_000_000);
                writeln!(out, "{},{},{},{op},{s}.{ns:09}", r.context, r.offset / 512, r.bytes)
            }
            None => writeln!(out, "{} {} 0 {i}", r.offset / 4096, r.bytes / 4096),
        })
    })?;
    Ok(Exit::Ok)
}
