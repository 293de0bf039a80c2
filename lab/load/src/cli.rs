//! `seekless-lab load`: the commands.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use seekless_base::{Bytes, Exit, Fault, Nanos};
use seekless_model::load_options::{ClosedOptions, SeedOption};
use seekless_model::workload::closed::ClosedSpec;
use seekless_model::workload::handler::Items;
use seekless_model::workload::httperf;
use seekless_model::workload::session::{ClientClass, Rate, SessionSpec, Sessions};
use seekless_output::{JsonOption, give};
use serde_json::{Value, json};

use crate::args::{
    CLOSED, CatalogueArgs, DOWNLOADS, LineArgs, MAX_CLIENTS, RunArgs, SessionArgs, VIEWERS, classes, positive,
};
use crate::closed::{ClosedRun, closed};
use crate::connection::ClientLink;
use crate::downloads::{DownloadRun, arrivals_per_s, downloads};
use crate::replay::{ReplayRun, replay};
use crate::report::RunReport;
use crate::run::{Finished, RunSettings};
use crate::search::SearchArgs;
use crate::sessions::{SessionRun, sessions};

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

#[derive(Args, Clone, Copy, Debug)]
struct LengthOption {
    /// Length of the run, warm-up included [default: closed 30s; downloads 120s; else until the last session
    /// ends]
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
}

/// Of a closed loop, if no length is given.
const CLOSED_S: Nanos = Nanos::from_secs(30);

/// Of downloads, if no length is given.
const DOWNLOADS_S: Nanos = Nanos::from_secs(120);

#[derive(Args, Clone, Debug)]
struct ClosedArgs {
    #[command(flatten)]
    catalogue: CatalogueArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    closed: ClosedOptions,
    #[command(flatten)]
    length: LengthOption,
    #[command(flatten)]
    line: LineArgs,
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
    #[command(flatten)]
    length: LengthOption,
    #[command(flatten)]
    line: LineArgs,
}

#[derive(Args, Clone, Debug)]
struct SessionsArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Requests a second offered by all sessions together
    #[arg(long, value_name = "RATE", default_value = "50", value_parser = positive)]
    rate: f64,
    /// Sessions in all (the papers: 14400)
    #[arg(long, value_name = "N", default_value_t = 14_400)]
    sessions: u32,
    #[command(flatten)]
    length: LengthOption,
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
    #[command(flatten)]
    length: LengthOption,
}

#[derive(Args, Clone, Debug)]
struct OutOption {
    /// Where to write it
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
}

#[derive(Args, Clone, Debug)]
struct ManifestArgs {
    #[command(flatten)]
    catalogue: CatalogueArgs,
    #[command(flatten)]
    to: OutOption,
    #[command(flatten)]
    json: JsonOption,
}

#[derive(Args, Clone, Debug)]
struct ExportArgs {
    #[command(flatten)]
    catalogue: CatalogueArgs,
    /// Sessions to write
    #[arg(long, value_name = "N", default_value_t = 1000)]
    sessions: u32,
    #[command(flatten)]
    from: SeedOption,
    #[command(flatten)]
    to: OutOption,
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
        "url": run.url, "warmup_s": run.warmup.as_secs_f64(), "speedup": run.speedup, "seed": run.from.seed,
        "verify": !run.no_verify,
    });
    if let (Value::Object(all), Value::Object(own)) = (&mut config, own) {
        all.extend(own);
    }
    config
}

fn catalogue_config(args: &CatalogueArgs) -> Value {
    match &args.manifest {
        Some(path) => {
            json!({ "manifest": path, "zipf": args.library.zipf, "seed": args.library.catalogue_seed })
        }
        None => json!(args.library.spec()),
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
    give(run.json.path(), &report, || report.text())?;
    report.verdict()
}

fn run_closed(a: &ClosedArgs) -> Result<Exit, Fault> {
    let ClosedOptions { clients, range, pick, connections, handler } = a.closed;
    if range == Bytes::ZERO {
        return Err(Fault::usage("--range 0B asks for nothing; give a size such as 512KiB"));
    }
    let class = a.line.classes(&CLOSED)?;
    let [ClientClass { link_bits_per_s, delay, .. }] = class[..] else {
        return Err(Fault::usage("--link: closed-loop clients all have one rate; give one"));
    };
    let length = a.length.duration.unwrap_or(CLOSED_S);
    let timeout = a.line.timeout(&CLOSED);
    let catalogue = Arc::new(a.catalogue.catalogue()?);
    let settings = a.run.settings(Some(length), &class)?;
    if let Some(handler) = handler {
        handler.check(&catalogue).map_err(Fault::usage)?;
    }
    let spec = ClosedSpec { range, pick, random_start: true, connections, seed: a.run.from.seed };
    let own = json!({
        "catalogue": catalogue_config(&a.catalogue), "library_bytes": catalogue.total(),
        "library_files": catalogue.videos().len(), "clients": clients, "reader": spec, "handler": handler,
        "duration_s": length.as_secs_f64(), "timeout_s": timeout.as_secs_f64(), "classes": class,
    });
    let line = ClientLink { class: 0, link_bits_per_s, delay };
    let handler = handler.map(|handler| (handler, Items::new(&catalogue, handler)));
    let plan = ClosedRun { catalogue, spec, handler, clients, line, timeout };
    let finished = closed(&settings, plan)?;
    finish("closed", &a.run, own, &settings, &finished)
}

fn run_downloads(a: &DownloadsArgs) -> Result<Exit, Fault> {
    let classes = a.line.classes(&DOWNLOADS)?;
    let length = a.length.duration.unwrap_or(DOWNLOADS_S);
    let catalogue = Arc::new(a.catalogue.catalogue()?);
    let mean_bytes = catalogue.total().0 as f64 / catalogue.videos().len().max(1) as f64;
    let Some(per_s) = arrivals_per_s(f64::from(a.clients), mean_bytes.max(1.0), &classes) else {
        return Err(Fault::usage(
            "--link none: downloads need a link rate, from which follows how many begin",
        ));
    };
    let settings = a.run.settings(Some(length), &classes)?;
    let own = json!({
        "catalogue": catalogue_config(&a.catalogue), "library_bytes": catalogue.total(),
        "library_files": catalogue.videos().len(), "clients": a.clients, "any_order": a.any_order,
        "downloads_per_s": per_s, "duration_s": length.as_secs_f64(), "timeout_s": a.line.timeout(&DOWNLOADS).as_secs_f64(),
        "classes": classes,
    });
    let plan = DownloadRun {
        catalogue,
        per_s,
        classes,
        any_order: a.any_order,
        timeout: a.line.timeout(&DOWNLOADS),
        max_clients: MAX_CLIENTS,
        seed: a.run.from.seed,
    };
    let finished = downloads(&settings, plan)?;
    finish("downloads", &a.run, own, &settings, &finished)
}

fn run_sessions(a: &SessionsArgs) -> Result<Exit, Fault> {
    let s = &a.session;
    let class = s.line.classes(&VIEWERS)?;
    let catalogue = Arc::new(s.catalogue.catalogue()?);
    let settings = s.run.settings(a.length.duration, &class)?;
    let spec = SessionSpec {
        rate: Rate::Constant { per_s: a.rate },
        sessions: a.sessions,
        warm_start: !s.cold_start,
        classes: class,
        seed: s.run.from.seed,
    };
    let own = json!({
        "catalogue": catalogue_config(&s.catalogue), "library_bytes": catalogue.total(),
        "library_files": catalogue.videos().len(), "sessions": spec,
        "duration_s": a.length.duration.map(Nanos::as_secs_f64), "timeout_s": s.line.timeout(&VIEWERS).as_secs_f64(),
    });
    let plan = SessionRun { catalogue, spec, max_clients: MAX_CLIENTS, timeout: s.line.timeout(&VIEWERS) };
    let finished = sessions(&settings, Arc::new(plan), |_, _| true)?;
    finish("sessions", &s.run, own, &settings, &finished)
}

fn run_replay(a: &ReplayArgs) -> Result<Exit, Fault> {
    let class = a.line.classes(&VIEWERS)?;
    let log = httperf::parse(seekless_output::input::text(&a.file)?.as_bytes())
        .map_err(|e| Fault::usage(format!("{}: {e}", a.file.display())))?;
    let settings = a.run.settings(a.length.duration, &class)?;
    let count = a.sessions.unwrap_or(log.len() as u64);
    let own = json!({
        "file": a.file, "file_sessions": log.len(), "sessions": count, "sessions_per_s": a.rate,
        "duration_s": a.length.duration.map(Nanos::as_secs_f64), "timeout_s": a.line.timeout(&VIEWERS).as_secs_f64(), "classes": class,
    });
    let plan = ReplayRun {
        log,
        sessions: count,
        rate_per_s: a.rate,
        classes: class,
        timeout: a.line.timeout(&VIEWERS),
        seed: a.run.from.seed,
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
    seekless_output::write(&a.to.out, text)?;
    if let Some(path) = a.json.path() {
        let summary = json!({
            "files": catalogue.videos().len(), "bytes": catalogue.total(), "manifest": a.to.out,
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
        seed: a.from.seed,
    };
    let logs: Vec<_> =
        Sessions::new(&catalogue, &spec).map(|s| httperf::from_session(&s, &catalogue)).collect();
    seekless_output::write(&a.to.out, httperf::write(&logs))?;
    Ok(Exit::Ok)
}
