//! With a log: what the site would serve as shipped, tuned and with Seekless, and what it would need.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use crate::chart::{Axis, Scale};
use seekless_base::{Bytes, Exit, Fault};
use seekless_model::drive::DriveSpec;
use seekless_model::with::within;
use seekless_output::bar;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DRIVE, PlanArgs, drive, rate, table, usage};
use crate::plan::answer::{Machine, Served};
use crate::plan::configurations::{self, Configuration, Streams};
use crate::plan::format;
use crate::plan::page::{Page, chart};
use crate::plan::site::{self, LogOptions, Site};

/// Least that a simulated client asks for at a time: half of it would simulate requests rather than streams.
const REQUEST_MIN: f64 = 65_536.0;
/// Most of it. The simulated clients take what they are sent at once, those of a log at the rate of their
/// links: a server that sends a whole film to one of these gets rid of a socket buffer at a time and seeks to
/// another file in between. With 2 MiB and more nginx as shipped would be simulated reading long pieces that
/// it does not read. The value is the request of the closed loop that the live experiments measure.
const REQUEST_MAX: f64 = 524_288.0;

/// The answer for one configuration, with the size of read-ahead that serves most.
struct BestConfiguration<'a> {
    configuration: &'a Configuration,
    served: Served,
    disks: Option<u64>,
    memory: Option<f64>,
}

/// What a simulated client asks for at a time: the mean request of the log within bounds.
fn asked_at_once(site: &Site) -> Bytes {
    Bytes(site.request_bytes().clamp(REQUEST_MIN, REQUEST_MAX) as u64 / 4096 * 4096)
}

/// The best sizes of each configuration: for what the site serves, for the fewest disks and for the least
/// memory, which need not be the same.
fn best<'a>(
    machine: &Machine<'_>,
    configurations: &'a [Configuration],
    target: f64,
) -> Vec<BestConfiguration<'a>> {
    let mut lines: Vec<BestConfiguration> = vec![];
    for configuration in configurations {
        let line = BestConfiguration {
            configuration,
            served: machine.serves(configuration),
            disks: machine.disks_for(configuration, target),
            memory: machine.memory_for(configuration, target),
        };
        let unbounded = |l: &BestConfiguration| l.served.rate.unwrap_or(f64::INFINITY);
        match lines.last_mut().filter(|l| l.configuration.name == configuration.name) {
            Some(last) => {
                let disks = [last.disks, line.disks].into_iter().flatten().min();
                let memory = [last.memory, line.memory].into_iter().flatten().min_by(f64::total_cmp);
                if unbounded(&line) > unbounded(last) {
                    *last = line;
                }
                (last.disks, last.memory) = (disks, memory);
            }
            None => lines.push(line),
        }
    }
    lines
}

/// What `--with` sets.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Settings {
    /// Compute an exact miss-ratio curve instead of a sampled one; takes 150 bytes of memory for each part.
    exact: bool,
    /// Size of the parts of files that are followed.
    part: Bytes,
    /// Concurrent streams for which the drive is measured.
    streams: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { exact: false, part: Bytes::kib(256), streams: 100 }
    }
}

pub(super) fn run(args: &PlanArgs, log: &Path) -> Result<Exit, Fault> {
    let settings: Settings = args.with.settings()?;
    let drive = drive(args)?;
    if !(4096..=(1 << 30)).contains(&settings.part.0) {
        return Err(usage(format!("--with part={} is not from 4KiB to 1GiB", settings.part)));
    }
    within(&[("streams", f64::from(settings.streams), 1.0, 10_000.0)])?;
    if !(1..=100_000).contains(&args.disks) {
        return Err(usage(format!("--disks {} is not from 1 to 100000", args.disks)));
    }
    if args.memory < Bytes::mib(1) {
        return Err(usage(format!("--memory {} is less than 1MiB; is its unit right?", args.memory)));
    }
    let target = args.rate.as_ref().map(|r| rate("--rate", r)).transpose()?;
    let options =
        LogOptions { lenient: args.lines.lenient, exact: settings.exact, part: settings.part.0 as u32 };
    let started = Instant::now();
    let input = seekless_input::open(log)?;
    let progress = bar(input.progress.total(), seekless_output::BYTES);
    let tick = || progress.set_position(input.progress.read());
    let site = site::read(input.bytes, log.display(), options, tick)?;
    progress.finish_and_clear();
    let read_s = started.elapsed().as_secs_f64();
    let streams = Streams {
        count: settings.streams,
        range: asked_at_once(&site),
        file: Bytes((site.popularity.bytes / site.popularity.files.max(1.0)) as u64),
        memory: args.memory,
    };
    let progress = bar(configurations::simulations(), "{bar:40} {pos}/{len} simulations of the drive");
    let configurations = configurations::measure(&drive, &streams, args.from.seed, || progress.inc(1))?;
    progress.finish_and_clear();
    let machine = Machine {
        curve: &site.curve,
        stream_rate: site.stream_rate().max(1.0),
        memory: args.memory.0 as f64,
        disks: args.disks,
    };
    let target = target.unwrap_or(2.0 * site.peak_rate());
    let lines = best(&machine, &configurations, target);
    if let Some(path) = &args.page.html {
        page(args, &site, &drive, &lines, target)?.write(path)?;
    }
    let value = as_json(args, settings.part, &site, &lines, target, read_s);
    seekless_output::give(args.json.path(), &value, || as_text(args, &site, &drive, &lines, target, read_s))?;
    Ok(Exit::Ok)
}

fn as_json(
    args: &PlanArgs,
    part: Bytes,
    site: &Site,
    lines: &[BestConfiguration],
    target: f64,
    read_s: f64,
) -> Value {
    let configurations: serde_json::Map<String, Value> = lines
        .iter()
        .map(|l| {
            let value = json!({
                "what": l.configuration.what,
                "read_ahead_bytes": l.configuration.ahead,
                "disk_mb_per_s": l.configuration.rate / 1e6,
                "serves_mb_per_s": l.served.rate.map(|r| r / 1e6),
                "streams": l.served.streams,
                "cache_bytes": l.served.cache,
                "miss_ratio": l.served.miss_ratio,
                "disks_for_target": l.disks,
                "memory_bytes_for_target": l.memory,
                "command": l.configuration.command,
            });
            (l.configuration.name.to_owned(), value)
        })
        .collect();
    let p = &site.popularity;
    json!({
        "kind": "log",
        "log": {
            "lines": site.lines, "skipped": site.skipped, "first_skipped": site.first_skipped,
            "requests": site.requests, "others": site.others, "bytes": site.bytes, "streams": site.streams,
            "span_s": site.span_s, "read_s": read_s,
            "busiest_minute_mb_per_s": site.peak_rate() / 1e6, "busiest_minute_streams": site.peak.streams,
            "stream_kb_per_s": site.stream_rate() / 1e3,
        },
        "popularity": {
            "files": p.files, "bytes": p.bytes, "share_counted": p.share, "zipf": p.zipf,
            "top_1_percent": p.top.0, "top_10_percent": p.top.1, "asked_once": p.once,
            "requests_by_rank": p.ranks,
        },
        "working_set": {
            "bytes": site.curve.footprint,
            "first_access_share": site.curve.miss_ratio(f64::MAX),
            "bytes_for_half_of_all_hits": half(site),
        },
        "miss_ratio_curve": {
            "part_bytes": part.0,
            "parts_followed_share": site.curve.share.min(1.0),
            "exact": site.curve.share >= 1.0 && site.curve.error == 0.0,
            "error": site.curve.error,
            "points": site.curve.points(),
        },
        "drive": args.drive.name(DRIVE), "disks": args.disks, "memory_bytes": args.memory.0,
        "target_mb_per_s": target / 1e6,
        "ways": configurations,
    })
}

/// The cache that gets half of the hits an unbounded one would.
fn half(site: &Site) -> Option<f64> {
    let least = site.curve.miss_ratio(f64::MAX);
    site.curve.cache_for(1.0 - (1.0 - least) / 2.0)
}

fn sentences(args: &PlanArgs, site: &Site, drive: &DriveSpec) -> Vec<String> {
    let p = &site.popularity;
    let mut lines = vec![format!(
        "{} requests sent {} in {:.1} hours, to {} streams; busiest minute {} to {} streams",
        site.requests,
        format::size(site.bytes as f64),
        site.span_s as f64 / 3600.0,
        site.streams,
        format::rate(site.peak_rate()),
        site.peak.streams
    )];
    if site.others + site.skipped > 0 {
        let skipped = site.first_skipped.as_ref().map_or(String::new(), |f| format!(" (first: {f})"));
        lines.push(format!("{} lines are other requests; {} do not fit{skipped}", site.others, site.skipped));
    }
    lines.push(format!(
        "{:.0} files, {} in all{}; the top 1 % get {:.0} % of the requests, the top 10 % {:.0} %; {:.0} % are asked for once",
        p.files,
        format::size(p.bytes),
        p.zipf.map_or(String::new(), |z| format!(", Zipf exponent {:.2}", z.max(0.0))),
        p.top.0 * 100.0,
        p.top.1 * 100.0,
        p.once * 100.0
    ));
    let curve = &site.curve;
    let how = if curve.error > 0.0 || curve.share < 1.0 {
        format!("from {:.2} % of the parts, error about {:.3}", curve.share * 100.0, curve.error)
    } else {
        "exact".into()
    };
    lines.push(format!(
        "working set {}; {:.0} % of the bytes are asked for the first time; half of all hits with {} of cache ({how})",
        format::size(curve.footprint),
        curve.miss_ratio(f64::MAX) * 100.0,
        half(site).map_or("-".into(), format::size)
    ));
    lines.push(format!("{} x {}, {} of memory", args.disks, drive.label, format::size(args.memory.0 as f64)));
    lines
}

fn rows(lines: &[BestConfiguration], target: f64) -> Vec<Vec<String>> {
    let mut rows = vec![vec![
        "way".to_owned(),
        "reads of".into(),
        "one disk".into(),
        "site serves".into(),
        "streams".into(),
        "misses".into(),
        "to shipped".into(),
        format!("disks for {}", format::rate(target)),
        "or memory".into(),
    ]];
    let shipped = lines.first().and_then(|l| l.served.rate);
    for l in lines {
        let gain = l.served.rate.zip(shipped).map_or("-".into(), |(r, s)| format!("{:.1} x", r / s));
        rows.push(vec![
            l.configuration.name.to_owned(),
            format::size(l.configuration.ahead),
            format::rate(l.configuration.rate),
            l.served.rate.map_or("not limited by disks".into(), format::rate),
            format!("{:.0}", l.served.streams),
            format!("{:.0} %", l.served.miss_ratio * 100.0),
            gain,
            l.disks.map_or("memory is short".into(), |d| d.to_string()),
            l.memory.map_or("no memory is enough".into(), format::size),
        ]);
    }
    rows
}

fn as_text(
    args: &PlanArgs,
    site: &Site,
    drive: &DriveSpec,
    lines: &[BestConfiguration],
    target: f64,
    read_s: f64,
) -> String {
    let mut text = String::new();
    for line in sentences(args, site, drive) {
        let _ = writeln!(text, "{line}");
    }
    text.push_str(&table(&rows(lines, target)));
    for l in lines {
        let _ = writeln!(text, "{}: {}", l.configuration.name, l.configuration.what);
    }
    let _ = writeln!(text, "{} lines read in {read_s:.1} s", site.lines);
    text
}

fn page(
    args: &PlanArgs,
    site: &Site,
    drive: &DriveSpec,
    lines: &[BestConfiguration],
    target: f64,
) -> Result<Page, Fault> {
    let mut page = Page::new("What this site would serve");
    for line in sentences(args, site, drive) {
        page.note(&line);
    }
    page.table(&rows(lines, target));
    for l in lines {
        page.note(&format!(
            "{}: {}. Measured with: {}",
            l.configuration.name, l.configuration.what, l.configuration.command
        ));
    }
    page.heading("What a cache would answer");
    page.note("Share of the bytes that a cache (least recently used leaves first) of this size misses.");
    let size = Axis::new("cache", Scale::Log2, &format::size);
    let ratio = Axis::new("miss ratio", Scale::Linear, &format::number);
    page.chart(&chart(size, ratio, vec![(String::new(), site.curve.points())]))?;
    page.heading("Popularity");
    page.note("Requests of the file of each rank.");
    let rank = Axis::new("rank", Scale::Log10, &format::number);
    let requests = Axis::new("requests", Scale::Log10, &format::number);
    page.chart(&chart(rank, requests, vec![(String::new(), site.popularity.ranks.clone())]))?;
    page.heading("Traffic");
    page.note("Busiest minute of each stretch of the log.");
    let hours = Axis::new("hours", Scale::Linear, &format::number);
    let rate = Axis::new("MB/s", Scale::Linear, &format::number);
    let minutes = site.minutes.iter().map(|(h, r)| (*h, r / 1e6)).collect();
    page.chart(&chart(hours, rate, vec![(String::new(), minutes)]))?;
    Ok(page)
}
