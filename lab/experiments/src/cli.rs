//! The experiments' commands of `seekless-lab`, and `seekless-lab demo`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use seekless_base::{Exit, Fault};
use seekless_output::{JsonOption, give};

use crate::check::SEEDS;
use crate::record;
use crate::results::Results;
use crate::scenario::{self, Scenario};
use crate::{against, compare, demo, file_server, live, report, sheet, sim, small_files, terminal};

/// Experiments: scenarios in, results and reports out.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Show the scenarios that come with the program
    List {
        /// Where the result goes
        #[command(flatten)]
        json: JsonOption,
    },
    /// Run a scenario; ends with status 0 only if every check holds
    Run(RunArgs),
    /// Compare a live run of a scenario with its simulation; ends with status 0 only if every prediction is
    /// within the limits
    Compare(CompareArgs),
    /// Compare the measured profile of a disk with the model of its drive; ends with status 0 only if every
    /// figure is within 5%
    Against(against::AgainstArgs),
    /// Draw the report of a run again from its results.json
    Report {
        /// Folder of the run
        dir: PathBuf,
        /// Where the result goes
        #[command(flatten)]
        json: JsonOption,
    },
    /// Record finished runs, for the pages of docs/results
    Record {
        /// Folders of runs
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
        /// Where the records are
        #[command(flatten)]
        kept: RecordsOption,
        /// Where the result goes
        #[command(flatten)]
        json: JsonOption,
    },
    /// Write the pages of docs/results from the recorded runs
    Docs {
        /// Write nothing; end with status 1 if a page is not what the records give
        #[arg(long)]
        check: bool,
        /// Where the records are
        #[command(flatten)]
        kept: RecordsOption,
        /// Folder of the pages
        #[arg(long, value_name = "DIR", default_value = report::pages::FOLDER)]
        out: PathBuf,
        /// Where the result goes
        #[command(flatten)]
        json: JsonOption,
    },
    /// Count what the papers print about outcomes: predicted, fitted, not reproduced, not decidable
    Statements {
        /// Only check the scenarios against docs/STATEMENTS.md and docs/CHOSEN.md; status 1 with file and
        /// line of each breach
        #[arg(long)]
        check: bool,
        /// Where the records are
        #[command(flatten)]
        kept: RecordsOption,
        /// Where the result goes
        #[command(flatten)]
        json: JsonOption,
    },
    /// The baseline server of scenarios that need no other (loopback only)
    #[command(hide = true)]
    FileServer {
        /// Port on 127.0.0.1
        port: u16,
        /// Folder to serve
        root: PathBuf,
    },
    /// Checksums of the members of the tar stream on standard input
    #[command(hide = true)]
    Sums,
    /// Do harm to a daemon as a user without rights, or only use processor time
    #[command(hide = true)]
    Hostile {
        /// Where the daemon listens; absent: use processor time
        socket: Option<PathBuf>,
    },
    /// Write a file at a rate, as a program beside a load
    #[command(hide = true)]
    Writer(live::writer::WriterArgs),
    /// Read a range of a file and time it
    #[command(hide = true)]
    Probe {
        /// The file
        file: PathBuf,
        /// Where the range begins
        offset: u64,
        /// Its bytes
        bytes: usize,
        /// How often it is read
        times: usize,
    },
}

/// Where the records are.
#[derive(Debug, Args)]
pub struct RecordsOption {
    /// Folder of the records
    #[arg(long, value_name = "DIR", default_value = record::FOLDER)]
    records: PathBuf,
}

/// Options of `seekless-lab compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Folder of the live run
    live: PathBuf,
    /// Folder of the simulated run
    simulated: PathBuf,
    #[command(flatten)]
    json: JsonOption,
}

/// Options of `seekless-lab run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A scenario's name (see `seekless-lab list`) or a file; with --sim also several names, or `all`
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Run in the simulator, in virtual time, instead of real processes on a software disk
    #[arg(long)]
    sim: bool,
    /// Run shorter: less time, fewer repetitions and points
    #[arg(long)]
    quick: bool,
    /// With --sim: run ten seeds of everything that a paper states. Finished parts are kept in the folder of
    /// the run; start an interrupted run again, and it continues there
    #[arg(long, requires = "sim", conflicts_with_all = ["quick", "repetitions", "engine", "keep"])]
    full: bool,
    /// Concurrent simulations; the results do not depend on it [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Seed from which machines are drawn [default: the scenario's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of machines, in a scenario that draws them at random [default: the scenario's]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=1000))]
    machines: Option<u32>,
    /// Runs of each arm [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,
    /// With --sim: further options of `seekless-lab sim serve` for every arm with Seekless, as one word
    #[arg(long, value_name = "OPTIONS", requires = "sim", allow_hyphen_values = true)]
    engine: Option<String>,
    /// Without --sim: model of the software disks, as `seekless-lab vdisk up --with model=...`; platter is
    /// the second one, to see what holds on both [default: drive]
    #[arg(long, value_name = "MODEL", conflicts_with = "sim", value_parser = ["drive", "platter"])]
    model: Option<String>,
    /// Take simulated rows of arms without Seekless from the earlier run in this folder instead of running
    /// them again
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOption,
    /// Folder for results.json and report.html [default: lab-out/SCENARIO, with --sim lab-out/SCENARIO-sim]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep the run as the recorded one, in DIR (see `seekless-lab docs`) [default DIR: results]
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = record::FOLDER,
        conflicts_with_all = ["quick", "seed", "machines", "repetitions"]
    )]
    record: Option<PathBuf>,
}

/// Show on this machine what Seekless gains: a virtual disk, a video library, a web server, in a few minutes.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Folder for results.json and report.html
    #[arg(long, value_name = "DIR", default_value = "lab-out/demo")]
    out: PathBuf,
    #[command(flatten)]
    json: JsonOption,
}

/// Carries out one of the experiments' commands.
///
/// # Errors
/// In one line each: unknown scenario or field ([`Exit::Usage`]), a system that does not let us
/// ([`Exit::Permission`]), something that is not here ([`Exit::Missing`]), a part that does not start
/// ([`Exit::Failed`]).
pub fn run(command: LabCommand) -> Result<Exit, Fault> {
    match command {
        LabCommand::List { json } => list(json.path()),
        LabCommand::Run(args) => run_scenario(&args),
        LabCommand::Report { dir, json } if !dir.join("results.json").exists() => {
            report_all(&dir, json.path())
        }
        LabCommand::Report { dir, json } => {
            let path = report::write(&dir)?;
            let results = Results::read(&dir.join("results.json"))?;
            give(json.path(), &results, || format!("{}\n", path.display()))?;
            Ok(Exit::Ok)
        }
        LabCommand::Record { dirs, kept, json } => {
            let keep = |dir: &PathBuf| record::add(&kept.records, &Results::read(&dir.join("results.json"))?);
            let written = dirs.iter().map(keep).collect::<Result<Vec<_>, _>>()?;
            give(json.path(), &written, || lines(written.iter().map(|p| p.display().to_string())))?;
            Ok(Exit::Ok)
        }
        LabCommand::Docs { check: true, kept, out, json } => {
            let differ = report::pages::differences(&kept.records, &out)?;
            let say = |name: &String| {
                let page = out.join(name);
                format!(
                    "{} is not what the records give; `seekless-lab docs` writes the pages",
                    page.display()
                )
            };
            give(json.path(), &differ, || lines(differ.iter().map(say)))?;
            Ok(if differ.is_empty() { Exit::Ok } else { Exit::Failed })
        }
        LabCommand::Docs { check: false, kept, out, json } => {
            let written = report::pages::write(&kept.records, &out)?;
            give(json.path(), &written, || lines(written.iter().map(|n| out.join(n).display().to_string())))?;
            Ok(Exit::Ok)
        }
        LabCommand::Statements { check: true, kept: _, json } => {
            let chosen = std::fs::read_to_string(sheet::CHOSEN).ok();
            let breaches = sheet::breaches(chosen.as_deref())?;
            give(json.path(), &breaches, || lines(breaches.iter().map(ToString::to_string)))?;
            Ok(if breaches.is_empty() { Exit::Ok } else { Exit::Failed })
        }
        LabCommand::Statements { check: false, kept, json } => {
            record::folder_of_records(&kept.records)?;
            let stated = report::statements::all(&kept.records)?;
            give(json.path(), &stated, || report::statements::table(&stated, str::to_string))?;
            Ok(Exit::Ok)
        }
        LabCommand::Compare(args) => {
            let read = |dir: &Path| Results::read(&dir.join("results.json"));
            let lines = compare::compare(&read(&args.live)?, &read(&args.simulated)?)?;
            give(args.json.path(), &lines, || compare::text(&lines, terminal::width()))?;
            Ok(if lines.iter().all(|l| l.within) { Exit::Ok } else { Exit::Failed })
        }
        LabCommand::Against(args) => against::run(&args),
        LabCommand::FileServer { root, port } => file_server::serve(&root, port),
        LabCommand::Sums => small_files::sums(),
        LabCommand::Hostile { socket } => live::hostile::run(socket.as_deref()),
        LabCommand::Writer(args) => live::writer::run(&args),
        LabCommand::Probe { file, offset, bytes, times } => live::probe::read(&file, offset, bytes, times),
    }
}

/// `seekless-lab demo`.
///
/// # Errors
/// As [`run`].
pub fn run_demo(args: DemoArgs) -> Result<Exit, Fault> {
    let results = demo::run(&args.out)?;
    give(args.json.path(), &results, || demo::text(&results, &args.out))?;
    Ok(if results.pass { Exit::Ok } else { Exit::Failed })
}

fn lines(all: impl Iterator<Item = String>) -> String {
    all.map(|line| line + "\n").collect()
}

fn list(json: Option<&Path>) -> Result<Exit, Fault> {
    let mut entries = Vec::new();
    for (name, text) in scenario::all() {
        let scenario = Scenario::parse(text, name)?;
        let paper = [scenario.paper.as_deref(), scenario.figure.as_deref()];
        entries.push(serde_json::json!({
            "name": name,
            "title": scenario.title,
            "source": paper.into_iter().flatten().collect::<Vec<_>>().join(", "),
            "runs": scenario.points().len() * scenario.repetitions as usize,
            "checks": scenario.checks.len(),
            "drivers": drivers(&scenario),
        }));
    }
    give(json, &entries, || {
        let field = |e: &serde_json::Value, name: &str| e[name].as_str().unwrap_or_default().to_string();
        let width = entries.iter().map(|e| field(e, "name").len()).max().unwrap_or(0);
        entries.iter().map(|e| format!("{:width$}  {}\n", field(e, "name"), field(e, "title"))).collect()
    })?;
    Ok(Exit::Ok)
}

fn drivers(scenario: &Scenario) -> Vec<&'static str> {
    let live = (!scenario.sim.only).then_some("live");
    let simulated = sim::refusal(scenario).is_none().then_some("sim");
    live.into_iter().chain(simulated).collect()
}

fn run_scenario(args: &RunArgs) -> Result<Exit, Fault> {
    // Before hours of work whose end would find no place.
    args.record.as_deref().map_or(Ok(()), record::folder_of_records)?;
    let several = args.scenarios.len() > 1 || args.scenarios[0] == "all";
    if several && !args.sim {
        return Err(Fault::usage("several scenarios run in one go in the simulator only: use --sim"));
    }
    if several {
        let machines = args.seed.is_some() || args.machines.is_some();
        if machines || args.repetitions.is_some() || args.engine.is_some() || args.keep.is_some() {
            let message = "--seed, --machines, --repetitions, --engine and --keep are for one scenario, not for several";
            return Err(Fault::usage(message));
        }
        return run_all(args);
    }
    let (name, mut scenario) = scenario::find(&args.scenarios[0])?;
    drawn_as_asked(args, &mut scenario)?;
    let mut scenario = as_long_as_asked(args, scenario);
    scenario.repetitions = args.repetitions.unwrap_or(scenario.repetitions);
    if let Some(options) = &args.engine {
        let words: Vec<String> = options.split_whitespace().map(String::from).collect();
        scenario.arms.iter_mut().filter(|a| a.mode.is_some()).for_each(|a| a.sim.extend(words.clone()));
    }
    scenario.disks.iter_mut().for_each(|disk| disk.model = args.model.clone().or(disk.model.take()));
    let default = if args.sim { format!("{name}-sim") } else { name.clone() };
    let out = args.out.clone().unwrap_or_else(|| Path::new("lab-out").join(default));
    let results = match args.sim {
        true => {
            let kept = args.keep.as_deref().map_or(Ok(Vec::new()), |dir| sim::kept(dir, &name, &scenario))?;
            sim::Pool::with(threads(args), answers(args, &out), |pool| {
                sim::run(&name, &scenario, args.quick, &kept, pool, &out)
            })?
        }
        false if scenario.sim.only => {
            return Err(Fault::missing(format!("`{name}` runs in the simulator only: use --sim")));
        }
        false if scenario.axis.as_ref().is_some_and(|a| a.drawn.is_some()) => {
            let kept = args.keep.as_deref().map_or(Ok(Vec::new()), |dir| sim::kept(dir, &name, &scenario))?;
            let beside = out.join("sim");
            let simulated = sim::Pool::with(threads(args), None, |pool| {
                sim::run(&name, &scenario, args.quick, &kept, pool, &beside)
            })?;
            live::machines::run(&name, &scenario, args.quick, args.model.as_deref(), &simulated, &out)?
        }
        false => live::run(&name, &scenario, args.quick, &out)?,
    };
    if let Some(folder) = &args.record {
        record::add(folder, &results)?;
    }
    give(args.json.path(), &results, || summary(&results, &out))?;
    Ok(if results.pass { Exit::Ok } else { Exit::Failed })
}

/// The scenario with `--quick` or `--full`.
fn as_long_as_asked(args: &RunArgs, scenario: Scenario) -> Scenario {
    let mut scenario = if args.quick { scenario.quickened() } else { scenario };
    if args.full && scenario.checks.iter().any(|check| check.source.is_some()) {
        scenario.repetitions = scenario.repetitions.max(SEEDS as u32);
    }
    scenario
}

/// Where `--full` keeps answers.
fn answers(args: &RunArgs, out: &Path) -> Option<PathBuf> {
    args.full.then(|| out.join("answers"))
}

/// The machines of the command line instead of the scenario's.
fn drawn_as_asked(args: &RunArgs, scenario: &mut Scenario) -> Result<(), Fault> {
    if args.seed.is_none() && args.machines.is_none() {
        return Ok(());
    }
    let own = scenario.axis.as_ref().and_then(|axis| axis.drawn);
    let (seed, machines) = own.map_or((1, 1), |own| (own.seed, own.machines));
    scenario
        .draw(args.seed.unwrap_or(seed), args.machines.unwrap_or(machines))
        .map_err(|why| Fault::usage(format!("`{}`: {why}", args.scenarios[0])))
}

/// Simulator runs at a time.
fn threads(args: &RunArgs) -> usize {
    args.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

fn summary(results: &Results, out: &Path) -> String {
    let width = terminal::width();
    let remarks: String = results.remarks.iter().map(|r| format!("note: {r}\n")).collect();
    format!(
        "{}\n\n{}\n\n{}\n{remarks}{}\n",
        results.scenario.title,
        report::comparison(results, width),
        report::outcomes(results, width),
        out.join("report.html").display()
    )
}

/// Every scenario the simulator can run (or the named ones), and one report of all. They share what they run
/// alike.
fn run_all(args: &RunArgs) -> Result<Exit, Fault> {
    let begun = Instant::now();
    let out = args.out.clone().unwrap_or_else(|| Path::new("lab-out").join("all-sim"));
    let named = (args.scenarios[0] != "all").then_some(&args.scenarios);
    if let Some(unknown) = named.into_iter().flatten().find(|n| !scenario::all().iter().any(|(m, _)| m == n))
    {
        scenario::find(unknown)?;
        return Err(Fault::usage(format!("`{unknown}`: several scenarios are given by name, not as files")));
    }
    let (mut wanted, mut left_out) = (Vec::new(), Vec::new());
    for (name, text) in
        scenario::all().iter().filter(|(n, _)| named.is_none_or(|all| all.iter().any(|a| a == n)))
    {
        let scenario = Scenario::parse(text, name)?;
        let scenario = as_long_as_asked(args, scenario);
        match why_left_out(&scenario) {
            Some(why) => left_out.push((name.to_string(), why)),
            None => wanted.push((name, scenario)),
        }
    }
    let all = sim::Pool::with(threads(args), answers(args, &out), |pool| {
        sim::ask(wanted.iter().map(|(name, scenario)| (**name, scenario)), pool);
        wanted.iter().map(|(name, scenario)| run_one_of_all(name, scenario, args, pool, &out)).collect()
    });
    let all: Vec<Results> = all?;
    write_all(&out, &all, &left_out, Some(begun.elapsed()), args.json.path())
}

/// One page of all results in the folders of `dir`.
fn report_all(dir: &Path, json: Option<&Path>) -> Result<Exit, Fault> {
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    for (name, text) in scenario::all() {
        let path = dir.join(name).join("results.json");
        match path.exists() {
            true => all.push(Results::read(&path)?),
            false => {
                let why = why_left_out(&Scenario::parse(text, name)?);
                left_out.push((name.to_string(), why.unwrap_or_else(|| "not run".into())));
            }
        }
    }
    if all.is_empty() {
        return Err(Fault::missing(format!(
            "{}: no results.json in it or its folders; give the folder of a finished `seekless-lab run`",
            dir.display()
        )));
    }
    write_all(dir, &all, &left_out, None, json)
}

fn write_all(
    out: &Path,
    all: &[Results],
    left_out: &[(String, String)],
    took: Option<Duration>,
    json: Option<&Path>,
) -> Result<Exit, Fault> {
    let page = report::render_all("Five papers in virtual time", all, left_out, took)?;
    let path = out.join("report.html");
    seekless_output::whole(&path, page)?;
    give(json, &all, || format!("{}{}\n", report::totals(all, left_out), path.display()))?;
    Ok(if all.iter().all(|r| r.pass) { Exit::Ok } else { Exit::Failed })
}

/// Why a run of all scenarios in virtual time goes on without this one.
fn why_left_out(scenario: &Scenario) -> Option<String> {
    let live = sim::refusal(scenario).map(|why| format!("runs live only: {why}"));
    let apart = || scenario.sim.apart.clone();
    let lacks = || scenario.load.lacks().map(|file| format!("needs {}, which is not here", file.display()));
    live.or_else(apart).or_else(lacks)
}

fn run_one_of_all(
    name: &str,
    scenario: &Scenario,
    args: &RunArgs,
    pool: &sim::Pool,
    out: &Path,
) -> Result<Results, Fault> {
    let results = sim::run(name, scenario, args.quick, &[], pool, &out.join(name))?;
    if let Some(folder) = &args.record {
        record::add(folder, &results)?;
    }
    let held = results.checks.iter().filter(|c| c.pass).count();
    seekless_output::eprintln!("  {held} of {} checks hold", results.checks.len());
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(subcommand)]
        lab: LabCommand,
    }

    fn lab(line: &str) -> Result<Exit, Fault> {
        run(Only::try_parse_from(format!("lab {line}").split(' ')).unwrap().lab)
    }

    #[test]
    fn a_model_that_is_none_is_refused_before_a_disk_is_made() {
        let words = |model: &str| ["seekless-lab", "run", "closed-loop", "--model", model].map(str::to_owned);
        assert!(Only::try_parse_from(words("platter")).is_ok());
        let refused = Only::try_parse_from(words("plater")).unwrap_err().to_string();
        assert!(refused.contains("platter"), "{refused}");
    }

    #[test]
    fn what_cannot_be_run_is_said_in_one_line() {
        for (line, exit, word) in [
            ("run closed-lop", Exit::Usage, "closed-loop"),
            ("run ./nowhere.toml", Exit::Missing, "nowhere.toml"),
            ("run hot-cache --sim", Exit::Missing, "leave out --sim"),
            ("run closed-loop --sim --quick --out /proc/nowhere", Exit::Failed, "give another --out"),
            ("run all --sim --seed 3", Exit::Usage, "--seed"),
            ("run closed-loop --sim --full --out /proc/nowhere", Exit::Failed, "give another --out"),
            ("run closed-loop --sim --seed 3", Exit::Usage, "machines"),
            ("run any-disk --sim --machines 2 --keep /nowhere/at/all", Exit::Missing, "results.json"),
            ("report /nowhere/at/all", Exit::Missing, "results.json"),
            ("record /nowhere/at/all", Exit::Missing, "results.json"),
            ("run all --sim --record=/nowhere/at/all", Exit::Missing, "/nowhere/at/all"),
            ("docs --check --records /nowhere/at/all", Exit::Missing, "/nowhere/at/all"),
        ] {
            let fault = lab(line).unwrap_err();
            assert_eq!(fault.exit, exit, "{fault}");
            assert!(fault.message.contains(word) && !fault.message.contains('\n'), "{fault}");
        }
    }

    #[test]
    fn a_run_of_all_says_why_it_leaves_a_scenario_out() {
        let why = |name: &str| {
            let (_, mut scenario) = scenario::find(name).unwrap();
            if let scenario::Load::Command { needs, .. } = &mut scenario.load {
                needs.push("/nowhere/at/all".into());
            }
            why_left_out(&scenario).unwrap()
        };
        assert!(why("soak").starts_with("runs live only"));
        assert!(why("auto-vs-fixed").contains("run it by its name"));
        assert!(why("pfc-table1").contains("/nowhere/at/all"));
        assert_eq!(why_left_out(&scenario::find("pfc-table1").unwrap().1), None);
    }

    #[test]
    fn the_list_is_json_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list.json");
        assert_eq!(lab(&format!("list --json {}", path.display())).unwrap(), Exit::Ok);
        let listed: Vec<serde_json::Value> =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(listed.len(), scenario::all().len());
    }
}
