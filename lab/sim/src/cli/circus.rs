//! `seekless-lab sim circus`: downloads in any order, simulated.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use seekless_base::{Bytes, Exit, Fault, Nanos};
use seekless_model::drive::{DriveSpec, catalogue};
use seekless_model::load_options::{DriveOption, SeedOption};
use seekless_output::JsonOption;
use serde::Deserialize;
use serde_json::{Value, json};

use super::RUNS;
use crate::circus::conclusions::{Conclusion, conclusions};
use crate::circus::figures::{self, Figure, FigurePoint};
use crate::circus::{CircusReport, Class, LINKS, Setup, Trials, trials, trials_until};
use seekless_model::with::WithOption;

/// Virtual time measured at most: beyond a day nothing new happens.
const TIME_S_MAX: f64 = 86_400.0;
/// Longest sweep of loads.
const LOADS_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OrderArg {
    /// Any order, chosen by the algorithm
    Circus,
    /// First block to last
    Sequential,
    /// One after the other, same arrivals
    Both,
}

#[derive(Args, Clone, Debug)]
pub(super) struct CircusArgs {
    /// Figure of the paper, 8 to 17, to compute beside the values of its text; sets files, size, load and
    /// clients
    #[arg(long, conflicts_with_all = ["load", "clients", "order"])]
    figure: Option<u32>,
    #[command(flatten)]
    drive: DriveOption,
    /// Offered load in percent of the server's link; several separated by commas
    #[arg(long, default_value = "40")]
    load: String,
    /// Links of clients: T1, 10T, T3, mix (20 % T1, 60 % 10T, 20 % T3), bits a second such as 25Mb/s, or
    /// several with shares: 10T:0.5,T3:0.5
    #[arg(long, default_value = "10T")]
    clients: String,
    /// Order of blocks
    #[arg(long, value_enum, default_value_t = OrderArg::Both)]
    order: OrderArg,
    /// Runs with different seeds; the mean is printed, with its 95 % confidence interval
    #[arg(long, default_value_t = 1)]
    trials: u64,
    #[command(flatten)]
    from: SeedOption,
    #[command(flatten)]
    with: WithOption,
    #[command(flatten)]
    json: JsonOption,
}

/// What `--with` sets: files, server of the paper, network, and how long is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Model {
    /// Number of files, all equally popular.
    files: Option<u64>,
    /// Size of each file.
    size: Option<Bytes>,
    /// Memory for blocks and clients.
    memory: Bytes,
    /// Measured seconds, after a warm-up of the longest download.
    time: f64,
    /// Stop before --trials when the 95 % interval of the network throughput is within this share of its mean
    /// (the paper: 0.05).
    until: Option<f64>,
    /// Memory of the server for each client; the rest is for blocks.
    per_client: Bytes,
    /// Rate of the server's link, Mbit/s.
    link: f64,
    /// Round-trip time, milliseconds.
    rtt: Option<f64>,
    /// Share of packets lost, percent.
    loss: Option<f64>,
    /// Block size.
    block: Bytes,
    /// Length of the active region.
    region: Bytes,
    /// Queue length limit, blocks.
    queue: usize,
    /// Client threshold, share of a file.
    threshold: f64,
    /// Leapfront distance over the length of the active region.
    leapfront: f64,
    /// Reads in flight, at most the depth of the drive's queue.
    reads_in_flight: usize,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            files: None,
            size: None,
            memory: figures::MEMORY,
            time: 1800.0,
            until: None,
            per_client: figures::PER_CLIENT,
            link: 1000.0,
            rtt: None,
            loss: None,
            block: Bytes::kib(64),
            region: Bytes::mib(16),
            queue: 5,
            threshold: 0.75,
            leapfront: 1.0,
            reads_in_flight: 8,
        }
    }
}

fn usage(message: String) -> Fault {
    Fault::usage(message)
}

/// Checks that a number lies within a range, both ends included.
fn within(name: &str, value: f64, low: f64, high: f64) -> Result<f64, Fault> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(usage(format!("--{name} {value} is not from {low} to {high}")))
}

/// A rate by name, or with its unit.
fn rate(text: &str) -> Result<f64, Fault> {
    if let Some((_, bits)) = LINKS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        return Ok(bits / 8.0);
    }
    let units = [("kb/s", 1e3), ("Mb/s", 1e6), ("Gb/s", 1e9)];
    let bits = units
        .iter()
        .find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.trim().parse::<f64>().ok()? * factor));
    match bits {
        Some(bits) if (1e3..=1e12).contains(&bits) => Ok(bits / 8.0),
        _ => Err(usage(format!("--clients: `{text}` is no link; write T1, 10T, T3 or for example 25Mb/s"))),
    }
}

fn parse_clients(text: &str) -> Result<Vec<Class>, Fault> {
    if text == "mix" {
        return Ok(figures::mix());
    }
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let mut classes = vec![];
    for part in &parts {
        let (name, share) = match part.split_once(':') {
            Some((name, share)) => {
                let share = share.parse().ok().filter(|s| *s > 0.0 && *s <= 1.0);
                (
                    name,
                    share.ok_or_else(|| {
                        usage(format!("--clients: the share in `{part}` is not above 0 and up to 1"))
                    })?,
                )
            }
            None => (*part, 1.0 / parts.len() as f64),
        };
        classes.push(Class { name: name.to_owned(), rate: rate(name)?, share });
    }
    let sum: f64 = classes.iter().map(|c| c.share).sum();
    if (sum - 1.0).abs() > 1e-6 {
        return Err(usage(format!("--clients: the shares add up to {sum}, not to 1")));
    }
    Ok(classes)
}

fn drive(args: &CircusArgs) -> Result<DriveSpec, Fault> {
    let default = if args.figure.is_some() { "cheetah-18gb-10k" } else { "wd-red-1tb" };
    catalogue::find(args.drive.name(default)).map_err(|why| usage(why.to_string()))
}

/// The experiment the options describe, load apart.
fn setup(args: &CircusArgs, model: &Model) -> Result<Setup, Fault> {
    let sets = model.rtt.is_some() || model.loss.is_some() || model.files.is_some() || model.size.is_some();
    if args.figure.is_some() && sets {
        return Err(usage("--figure sets files, size, rtt and loss: leave them out of --with".into()));
    }
    let drive = drive(args)?;
    let time = within("with time", model.time, 1.0, TIME_S_MAX)?;
    let mut setup = figures::base(&drive, args.from.seed, Nanos::from_secs_f64(time));
    let block = model.block.0;
    if !(512..=(64 << 20)).contains(&block) || !block.is_power_of_two() {
        return Err(usage(format!("--with block={} is not a power of two from 512B to 64MiB", model.block)));
    }
    let (files, size) = (model.files.unwrap_or(1), model.size.unwrap_or(Bytes::mib(512)));
    if size.0 < block || size.0 / block > seekless_reorder::BLOCKS_MAX {
        return Err(usage(format!("--with size={size} is less than a block or more than 16777216 of them")));
    }
    if files == 0 || files.saturating_mul(size.0) > drive.capacity().0 {
        return Err(usage(format!(
            "--with files={files} of {size} do not fit on {}, which holds {} GB, or are none",
            drive.name,
            drive.capacity().0 / 1_000_000_000
        )));
    }
    if model.memory.0 < block {
        return Err(usage(format!("--with memory={} is less than one block", model.memory)));
    }
    setup.files = files;
    setup.size = size;
    setup.link_rate = within("with link", model.link, 0.001, 1e6)? * 1e6 / 8.0;
    setup.round_trip = Nanos::from_millis_f64(within("with rtt", model.rtt.unwrap_or(1.0), 0.001, 10_000.0)?);
    setup.loss = within("with loss", model.loss.unwrap_or(0.0), 0.0, 90.0)? / 100.0;
    setup.classes = parse_clients(&args.clients)?;
    setup.memory = model.memory;
    setup.per_client = model.per_client;
    let server = &mut setup.server;
    server.block = model.block;
    server.region = model.region;
    server.queue = within("with queue", model.queue as f64, 1.0, 65_536.0)? as usize;
    server.threshold = within("with threshold", model.threshold, 0.0, 1.0)?;
    server.leapfront = within("with leapfront", model.leapfront, 0.0, 1000.0)?;
    server.reads_in_flight =
        within("with reads-in-flight", model.reads_in_flight as f64, 1.0, 1024.0)? as usize;
    server.read = model.block;
    Ok(setup)
}

/// The loads asked for as points of a sweep.
fn sweep(args: &CircusArgs, setup: &Setup) -> Result<Vec<FigurePoint>, Fault> {
    let mut points = vec![];
    let loads: Vec<&str> = args.load.split(',').map(str::trim).collect();
    if loads.len() > LOADS_MAX {
        return Err(usage(format!("--load: more than {LOADS_MAX} values")));
    }
    for text in loads {
        let percent = text.parse().map_err(|_| usage(format!("--load: `{text}` is no number of percent")))?;
        let load = within("load", percent, 0.1, 1000.0)? / 100.0;
        let setup = Setup { load, ..setup.clone() };
        for sequential in [false, true] {
            let wanted = match args.order {
                OrderArg::Both => true,
                OrderArg::Circus => !sequential,
                OrderArg::Sequential => sequential,
            };
            if wanted {
                let setup = if sequential { setup.sequential() } else { setup.clone() };
                let curve = args.clients.clone();
                points.push(FigurePoint { curve, x: text.to_owned(), sequential, setup, published: vec![] });
            }
        }
    }
    Ok(points)
}

pub(super) fn run(args: CircusArgs) -> Result<Exit, Fault> {
    let model: Model = args.with.settings()?;
    let setup = setup(&args, &model)?;
    within("trials", args.trials as f64, 1.0, 1000.0)?;
    model.until.map_or(Ok(0.0), |share| within("with until", share, 0.001, 1.0))?;
    let figure = match args.figure {
        None => Figure { number: 0, title: "", axis: "load, %", points: sweep(&args, &setup)? },
        Some(number) => figures::figure(number, &setup).ok_or_else(|| {
            let (first, last) = figures::NUMBERS.into_inner();
            usage(format!("--figure {number}: the study has the figures {first} to {last}"))
        })?,
    };
    let points = &figure.points;
    let pool = rayon::ThreadPoolBuilder::new()
        .build()
        .map_err(|e| Fault::failed(format!("threads cannot be started: {e}")))?;
    // What must give the same is run once.
    let mut setups: Vec<&Setup> = Vec::new();
    let of_point = points.iter().map(|FigurePoint { setup, .. }| {
        setups.iter().position(|other| other.gives_the_same(setup)).unwrap_or_else(|| {
            setups.push(setup);
            setups.len() - 1
        })
    });
    let of_point: Vec<usize> = of_point.collect();
    let bar = seekless_output::bar(setups.len() as u64, RUNS);
    let of_setup: Vec<Trials> = pool.install(|| {
        use rayon::prelude::*;
        setups
            .par_iter()
            .map(|setup| {
                let result = match model.until {
                    Some(share) => trials_until(setup, share, args.trials),
                    None => trials(setup, args.trials),
                };
                bar.inc(1);
                result
            })
            .collect()
    });
    bar.finish_and_clear();
    let results: Vec<Trials> = of_point.iter().map(|&i| of_setup[i].clone()).collect();
    let checks = conclusions(&figure, &results);
    let exit = if checks.iter().all(Conclusion::holds) { Exit::Ok } else { Exit::Failed };
    seekless_output::give(args.json.path(), &as_json(&args, model.time, &figure, &results, &checks), || {
        as_text(&args, &figure, &results, &checks)
    })?;
    Ok(exit)
}

/// The measured value a published one stands beside.
fn measured(metric: &str, point: &FigurePoint, result: &Trials) -> f64 {
    match metric {
        "network" => result.mean(|r| r.network) / 1e6,
        "disk" => result.mean(|r| r.disk) / 1e6,
        "t3_s" => {
            let i = point.setup.classes.iter().position(|c| c.name == "T3").unwrap_or(0);
            result.mean(|r| r.classes[i].mean_s)
        }
        _ => result.mean(|r| r.download_s),
    }
}

fn order(point: &FigurePoint) -> &'static str {
    if point.sequential { "sequential" } else { "circus" }
}

fn as_json(
    args: &CircusArgs,
    time: f64,
    figure: &Figure,
    results: &[Trials],
    checks: &[Conclusion],
) -> Value {
    let Figure { title, axis, points, .. } = figure;
    let rows: Vec<Value> = points.iter().zip(results).map(|(p, r)| row(p, r)).collect();
    let checks: Vec<Value> = checks
        .iter()
        .map(|c| {
            // JSON has no infinity: no bound.
            let most = c.within.1.is_finite().then_some(c.within.1);
            json!({ "name": c.says, "value": c.value, "least": c.within.0, "most": most, "pass": c.holds() })
        })
        .collect();
    json!({
        "figure": args.figure,
        "title": title,
        "axis": axis,
        "drive": points.first().map(|p| p.setup.drive.name.clone()),
        "seed": args.from.seed,
        "trials": args.trials,
        "time_s": time,
        "rows": rows,
        "checks": checks,
    })
}

fn row(p: &FigurePoint, r: &Trials) -> Value {
    let classes: Vec<Value> = p
        .setup
        .classes
        .iter()
        .enumerate()
        .map(|(i, class)| {
            json!({
                "name": class.name,
                "mb_per_s": class.rate / 1e6,
                "share": class.share,
                "undisturbed_s": p.setup.undisturbed(class).as_secs_f64(),
                "mean_s": mean_time(r, |r| r.classes[i].mean_s),
                "p95_s": r.mean(|r| r.classes[i].p95_s),
                "downloads": r.reports.iter().map(|r| r.classes[i].downloads).sum::<u64>(),
            })
        })
        .collect();
    let published: Vec<Value> = p
        .published
        .iter()
        .map(|s| json!({ "metric": s.metric, "sense": s.sense, "value": s.value, "ours": measured(s.metric, p, r) }))
        .collect();
    json!({
        "clients": p.curve,
        "x": p.x,
        "order": order(p),
        "load_percent": p.setup.load * 100.0,
        "files": p.setup.files,
        "file_bytes": p.setup.size.0,
        "memory_bytes": p.setup.memory.0,
        "offered_mb_per_s": p.setup.offered() / 1e6,
        "network_mb_per_s": r.mean(|r| r.network) / 1e6,
        "network_half_length_mb_per_s": r.half_length(|r| r.network).map(|h| h / 1e6),
        "disk_mb_per_s": r.mean(|r| r.disk) / 1e6,
        "disk_busy": r.mean(|r| r.disk_busy),
        "reads_per_s": r.mean(|r| r.reads),
        "miss_ratio": r.mean(CircusReport::miss_ratio),
        "download_s": mean_time(r, |r| r.download_s),
        "downloads": r.reports.iter().map(|r| r.downloads).sum::<u64>(),
        "concurrent": r.mean(|r| r.concurrent),
        "outside": r.mean(|r| r.outside),
        "stale": r.mean(|r| r.stale),
        "classes": classes,
        "published": published,
    })
}

/// Mean of a time over the trials. Nothing where no download ended in one of them: zero is no time.
fn mean_time(trials: &Trials, of: impl Fn(&CircusReport) -> f64) -> Option<f64> {
    trials.reports.iter().all(|report| of(report) > 0.0).then(|| trials.mean(of))
}

fn as_text(args: &CircusArgs, figure: &Figure, results: &[Trials], checks: &[Conclusion]) -> String {
    let Figure { title, axis, points, .. } = figure;
    let mut text = String::new();
    if let (Some(number), Some(p)) = (args.figure, points.first()) {
        let _ = writeln!(text, "Circus (2004), Figure {number}: {title}; on {}", p.setup.drive.name);
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header(vec![
        "clients",
        axis,
        "order",
        "offered MB/s",
        "network MB/s",
        "disk MB/s",
        "busy",
        "miss",
        "download s",
        "under way",
        "paper",
    ]);
    for (p, r) in points.iter().zip(results) {
        let network = r.mean(|r| r.network) / 1e6;
        let spread = r.half_length(|r| r.network).map_or(String::new(), |h| format!(" ±{:.1}", h / 1e6));
        let said: Vec<String> = p
            .published
            .iter()
            .map(|s| {
                let ours = measured(s.metric, p, r);
                let digits = if s.value < 20.0 { 1 } else { 0 };
                format!("{} {} {:.digits$} (ours {ours:.digits$})", s.metric, s.sense, s.value)
            })
            .collect();
        let times: Vec<String> =
            (0..p.setup.classes.len()).map(|i| format!("{:.0}", r.mean(|r| r.classes[i].mean_s))).collect();
        table.add_row(vec![
            p.curve.clone(),
            p.x.clone(),
            order(p).to_owned(),
            format!("{:.1}", p.setup.offered() / 1e6),
            format!("{network:.1}{spread}"),
            format!("{:.1}", r.mean(|r| r.disk) / 1e6),
            format!("{:.0} %", r.mean(|r| r.disk_busy) * 100.0),
            format!("{:.3}", r.mean(CircusReport::miss_ratio)),
            times.join(" / "),
            format!("{:.0}", r.mean(|r| r.concurrent)),
            said.join("; "),
        ]);
    }
    let _ = writeln!(text, "{table}");
    for c in checks {
        let verdict = if c.holds() { "holds" } else { "DOES NOT HOLD" };
        let range = match c.within {
            (least, most) if most.is_infinite() => format!("at least {least}"),
            (least, most) if least <= 0.0 => format!("at most {most}"),
            (least, most) => format!("{least} to {most}"),
        };
        let _ = writeln!(text, "{verdict}: {}: {:.2}, expected {range}", c.says, c.value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_named_or_rated_and_their_shares_add_up() {
        let names = |text: &str| -> Vec<(String, f64)> {
            parse_clients(text).unwrap().into_iter().map(|c| (c.name, c.share)).collect()
        };
        assert_eq!(names("10T,T3"), [("10T".to_owned(), 0.5), ("T3".to_owned(), 0.5)]);
        assert_eq!(names("T1:0.2,25Mb/s:0.8")[1], ("25Mb/s".to_owned(), 0.8));
        assert!((parse_clients("25Mb/s").unwrap()[0].rate - 3.125e6).abs() < 1e-6);
        for (bad, why) in [
            ("T9", "no link"),
            ("10T:0.3,T3:0.3", "add up"),
            ("10T:-1,T3:2", "share"),
            ("25", "no link"),
            ("", "no link"),
            ("-3Mb/s", "no link"),
        ] {
            let fault = parse_clients(bad).unwrap_err();
            assert!(fault.message.contains(why), "{bad}: {fault}");
            assert_eq!(fault.exit, Exit::Usage);
        }
    }
}
