//! `seekless-lab load`: the commands.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use seekless_base::{Bytes, Exit, Fault, Nanos};
use seekless_model::workload::closed::{ClosedSpec, Pick};
use seekless_model::workload::handler::Handler;
use seekless_model::workload::httperf;
use seekless_model::workload::session::{Rate, SessionSpec, Sessions};
use seekless_output::give;
use serde_json::{Value, json};

use crate::args::{CatalogueArgs, LineArgs, RunArgs, SessionArgs, classes, positive};
use crate::closed::{ClosedRun, closed};
use crate::connection::ClientLink;
use crate::downloads::{DownloadRun, arrivals_per_s, downloads};
use crate::replay::{ReplayRun, replay};
use crate::report::RunReport;
use crate::run::{Finished, RunSettings};
use crate::search::SearchArgs;
use crate::sessions::{SessionRun, sessions};

/// Longest a request may take where sessions do not say (a closed loop has no player that runs dry).
const CLOSED_TIMEOUT: &str = "60s";

/// Load a server with real clients and verify every byte they receive.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// A fixed number of clients; each requests the next range when it has the last
    Closed(ClosedArgs),
    /// Downloads of whole files, arriving at random, in order or in any order
    Downloads(DownloadsArgs),
    /// Viewing sessions at a given request rate
    Sessions(SessionsArgs),
    /// Search for the highest request rate at which (almost) no session fails
    Search(SearchArgs),
    /// Replay an httperf session file (wsesslog, with pace_time, timeout and Range headers)
    Replay(ReplayArgs),
    /// Write the library's manifest: one `size path` line a file
    Catalogue(ManifestArgs),
    /// Write sessions as an httperf session file
    Export(ExportArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PickArg {
    /// All files equally likely
    Uniform,
    /// By popularity
    Zipf,
}

#[derive(Args, Clone, Debug)]
struct ClosedArgs {
    #[command(flatten)]
    catalogue: CatalogueArgs,
    #[command(flatten)]
    run: RunArgs,
    /// Number of clients
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// Bytes in one request
    #[arg(long, value_name = "SIZE", default_value = "512KiB")]
    range: Bytes,
    /// Length of the run, warm-up included
    #[arg(long, value_name = "TIME", default_value = "30s")]
    duration: Nanos,
    /// Connections of each client, which ask for its ranges out of order
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: u32,
    /// Ask for what a request handler reads, block by block: index-search, files-part-think such as
    /// one-rand-10, or piece-2mib-100 (a peer of a torrent)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["range", "pick", "from_start", "connections"])]
    handler: Option<Handler>,
    /// How a client chooses its next file
    #[arg(long, value_enum, default_value = "uniform")]
    pick: PickArg,
    /// Begin every first file at its start instead of at a random range
    #[arg(long)]
    from_start: bool,
    /// How long a request may take
    #[arg(long, value_name = "TIME", default_value = CLOSED_TIMEOUT)]
    timeout: Nanos,
    /// Link rate of every client, such as 10Mb/s
    #[arg(long, value_name = "RATE", default_value = "none")]
    link: String,
    /// Delay each way
    #[arg(long, value_name = "TIME", default_value = "0s")]
    delay: Nanos,
}

#[derive(Args, Clone, Debug)]
struct DownloadsArgs {
    #[command(flatten)]
    catalogue: CatalogueArgs,
    #[command(flatten)]
    run: RunArgs,
    /// Clients at work on average, if every one gets its link's rate all the time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// Take the blocks in any order the server likes
    #[arg(long)]
    any_order: bool,
    /// Length of the run, warm-up included
    #[arg(long, value_name = "TIME", default_value = "120s")]
    duration: Nanos,
    /// How long a download may take
    #[arg(long, value_name = "TIME", default_value = "3600s")]
    timeout: Nanos,
    /// Link rates of the clients, such as 1.5Mb/s,10Mb/s (equal shares; a rate named twice has two)
    #[arg(long, value_name = "RATES", value_delimiter = ',', default_value = "10Mb/s")]
    link: Vec<String>,
    /// Delay each way
    #[arg(long, value_name = "TIME", default_value = "0s")]
    delay: Nanos,
    /// Most clients at once; a further one fails at once
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    max_clients: u64,
}

#[derive(Args, Clone, Debug)]
struct SessionsArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Requests a second offered by all sessions together
    #[arg(long, value_name = "RATE", default_value = "50", value_parser = positive)]
    rate: f64,
    /// Raise the rate linearly from --rate to this, over --ramp-over
    #[arg(long, value_name = "RATE", value_parser = positive)]
    ramp_to: Option<f64>,
    /// Length of the rise
    #[arg(long, value_name = "TIME", default_value = "300s")]
    ramp_over: Nanos,
    /// Sessions in all (the papers: 14400)
    #[arg(long, value_name = "N", default_value_t = 14_400)]
    sessions: u32,
    /// Stop after this time, warm-up included [default: when the last session ends]
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
}

#[derive(Args, Clone, Debug)]
struct ReplayArgs {
    /// The session file
    file: PathBuf,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    line: LineArgs,
    /// Sessions started a second
    #[arg(long, value_name = "RATE", default_value = "1", value_parser = positive)]
    rate: f64,
    /// Sessions in all [default: as many as the file has]
    #[arg(long, value_name = "N")]
    sessions: Option<u64>,
    /// Stop after this time, warm-up included
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// How long a request without `timeout=` may take
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: Nanos,
}

#[derive(Args, Clone, Debug)]
struct ManifestArgs {
    #[command(flatten)]
    catalogue: CatalogueArgs,
    /// Where to write it
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
    /// Write number and size of the files as JSON to FILE, or to standard output
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct ExportArgs {
    #[command(flatten)]
    catalogue: CatalogueArgs,
    /// Sessions to write
    #[arg(long, value_name = "N", default_value_t = 1000)]
    sessions: u32,
    /// Seed of the sessions
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Where to write them
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
}

/// Runs `seekless-lab load`.
///
/// # Errors
/// Wrong arguments, no server, wrong content, or not one answer; each one line.
pub fn run(args: LoadArgs) -> Result<Exit, Fault> {
    match args.command {
        Command::Closed(a) => run_closed(&a),
        Command::Downloads(a) => run_downloads(&a),
        Command::Sessions(a) => run_sessions(&a),
        Command::Search(a) => crate::search::run_search(&a),
        Command::Replay(a) => run_replay(&a),
        Command::Catalogue(a) => run_manifest(&a),
        Command::Export(a) => run_export(&a),
    }
}

/// What was asked for, for the report; `own` are the fields of the kind of load.
fn config(run: &RunArgs, own: Value) -> Value {
    let mut config = json!({
        "url": run.url, "warmup_s": run.warmup.as_secs_f64(), "speedup": run.speedup, "seed": run.seed,
        "threads": run.threads, "verify": !run.no_verify,
    });
    if let (Value::Object(all), Value::Object(own)) = (&mut config, own) {
        all.extend(own);
    }
    config
}

fn catalogue_config(args: &CatalogueArgs) -> Value {
    match &args.manifest {
        Some(path) => json!({ "manifest": path, "zipf": args.zipf, "seed": args.catalogue_seed }),
        None => json!(args.spec()),
    }
}

fn finish(
    kind: &str,
    run: &RunArgs,
    own: Value,
    settings: &RunSettings,
    finished: &Finished,
) -> Result<Exit, Fault> {
    let report = RunReport::new(kind, config(run, own), settings, finished);
    give(run.json.as_deref(), &report, || report.text())?;
    report.verdict()
}

fn run_closed(a: &ClosedArgs) -> Result<Exit, Fault> {
    if a.range == Bytes::ZERO {
        return Err(Fault::new(Exit::Usage, "--range 0B asks for nothing; give a size such as 512KiB"));
    }
    let class = classes(std::slice::from_ref(&a.link), a.delay)?;
    let catalogue = Arc::new(a.catalogue.catalogue()?);
    let settings = a.run.settings(Some(a.duration), &class)?;
    let pick = match a.pick {
        PickArg::Uniform => Pick::Uniform,
        PickArg::Zipf => Pick::Zipf,
    };
    if let Some(handler) = a.handler {
        handler.check(&catalogue).map_err(|why| Fault::new(Exit::Usage, why))?;
    }
    let spec = ClosedSpec {
        range: a.range,
        pick,
        random_start: !a.from_start,
        connections: a.connections,
        seed: a.run.seed,
    };
    let own = json!({
        "catalogue": catalogue_config(&a.catalogue), "library_bytes": catalogue.total(),
        "library_files": catalogue.videos().len(), "clients": a.clients, "reader": spec, "handler": a.handler,
        "duration_s": a.duration.as_secs_f64(), "timeout_s": a.timeout.as_secs_f64(), "classes": class,
    });
    let line = ClientLink { class: 0, link_bits_per_s: class[0].link_bits_per_s, delay: a.delay };
    let plan =
        ClosedRun { catalogue, spec, handler: a.handler, clients: a.clients, line, timeout: a.timeout };
    let finished = closed(&settings, plan)?;
    finish("closed", &a.run, own, &settings, &finished)
}

fn run_downloads(a: &DownloadsArgs) -> Result<Exit, Fault> {
    let classes = classes(&a.link, a.delay)?;
    let catalogue = Arc::new(a.catalogue.catalogue()?);
    let mean_bytes = catalogue.total().0 as f64 / catalogue.videos().len().max(1) as f64;
    let Some(per_s) = arrivals_per_s(f64::from(a.clients), mean_bytes.max(1.0), &classes) else {
        return Err(Fault::new(
            Exit::Usage,
            "--link none: downloads need a link rate, from which follows how many begin",
        ));
    };
    let settings = a.run.settings(Some(a.duration), &classes)?;
    let own = json!({
        "catalogue": catalogue_config(&a.catalogue), "library_bytes": catalogue.total(),
        "library_files": catalogue.videos().len(), "clients": a.clients, "any_order": a.any_order,
        "downloads_per_s": per_s, "duration_s": a.duration.as_secs_f64(), "timeout_s": a.timeout.as_secs_f64(),
        "classes": classes,
    });
    let plan = DownloadRun {
        catalogue,
        per_s,
        classes,
        any_order: a.any_order,
        timeout: a.timeout,
        max_clients: a.max_clients,
        seed: a.run.seed,
    };
    let finished = downloads(&settings, plan)?;
    finish("downloads", &a.run, own, &settings, &finished)
}

fn run_sessions(a: &SessionsArgs) -> Result<Exit, Fault> {
    let s = &a.session;
    let class = s.line.classes()?;
    let catalogue = Arc::new(s.catalogue.catalogue()?);
    let settings = s.run.settings(a.duration, &class)?;
    let rate = match a.ramp_to {
        Some(to_per_s) => Rate::Ramp { from_per_s: a.rate, to_per_s, over: a.ramp_over },
        None => Rate::Constant { per_s: a.rate },
    };
    let spec = SessionSpec {
        rate,
        sessions: a.sessions,
        warm_start: !s.cold_start,
        classes: class,
        seed: s.run.seed,
    };
    let own = json!({
        "catalogue": catalogue_config(&s.catalogue), "library_bytes": catalogue.total(),
        "library_files": catalogue.videos().len(), "sessions": spec,
        "duration_s": a.duration.map(Nanos::as_secs_f64), "timeout_s": s.timeout.as_secs_f64(),
    });
    let plan = SessionRun { catalogue, spec, max_clients: s.max_clients, timeout: s.timeout };
    let finished = sessions(&settings, Arc::new(plan), |_, _| true)?;
    finish("sessions", &s.run, own, &settings, &finished)
}

fn run_replay(a: &ReplayArgs) -> Result<Exit, Fault> {
    let class = a.line.classes()?;
    let log = httperf::parse(seekless_output::input::text(&a.file)?.as_bytes())
        .map_err(|e| Fault::new(Exit::Usage, format!("{}: {e}", a.file.display())))?;
    let settings = a.run.settings(a.duration, &class)?;
    let count = a.sessions.unwrap_or(log.len() as u64);
    let own = json!({
        "file": a.file, "file_sessions": log.len(), "sessions": count, "sessions_per_s": a.rate,
        "duration_s": a.duration.map(Nanos::as_secs_f64), "timeout_s": a.timeout.as_secs_f64(), "classes": class,
    });
    let plan = ReplayRun {
        log,
        sessions: count,
        rate_per_s: a.rate,
        classes: class,
        timeout: a.timeout,
        seed: a.run.seed,
    };
    let finished = replay(&settings, plan)?;
    finish("replay", &a.run, own, &settings, &finished)
}

fn run_manifest(a: &ManifestArgs) -> Result<Exit, Fault> {
    let catalogue = a.catalogue.catalogue()?;
    let mut text = String::new();
    for line in catalogue.manifest() {
        text.push_str(&line);
        text.push('\n');
    }
    seekless_output::write(&a.out, text)?;
    if let Some(path) = &a.json {
        let summary = json!({
            "files": catalogue.videos().len(), "bytes": catalogue.total(), "manifest": a.out,
            "catalogue": catalogue_config(&a.catalogue),
        });
        seekless_output::json(path, &summary)?;
    }
    Ok(Exit::Ok)
}

fn run_export(a: &ExportArgs) -> Result<Exit, Fault> {
    let catalogue = a.catalogue.catalogue()?;
    // Arrivals and links are not part of the file; any rate and class will do.
    let spec = SessionSpec {
        rate: Rate::Constant { per_s: 1.0 },
        sessions: a.sessions,
        warm_start: false,
        classes: classes(&["none".into()], Nanos::ZERO)?,
        seed: a.seed,
    };
    let logs: Vec<_> =
        Sessions::new(&catalogue, &spec).map(|s| httperf::from_session(&s, &catalogue)).collect();
    seekless_output::write(&a.out, httperf::write(&logs))?;
    Ok(Exit::Ok)
}
