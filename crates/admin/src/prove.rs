//! `seekless prove`: what Seekless gains on a running server, with that server's own clients.
//!
//! Blocks of time alternate in which the daemon serves every call and in which it passes every call. In both,
//! shims ask and report as always, so bytes and waits are counted in the same way. A passed call still costs
//! its question: some tens of microseconds beside a disk read of milliseconds. A process that observes
//! (`seekless observe`) counts reads in both and reads ahead in one; waits are not known there. Disk time is
//! taken from the kernel (`io_ticks` of the disks that the daemon has met).

mod page;
mod statistics;
mod try_out;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Arg, Args, ValueEnum};
use seekless_base::{Exit, Fault};
use seekless_frontend::control;
use seekless_frontend::socket::SocketOption;
use seekless_frontend::status::StatusReport;
use seekless_kernel::queue::Queue;
use seekless_kernel::sysfs::SYS_BLOCK;
use seekless_options::{longest, week_at_most};
use seekless_output::{HtmlOption, JsonOption};
use seekless_wire::PASS_ALL_UNTIL_TOLD;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::statistics::{Block, Estimate, Proof, Reading, Verdict, is_certain, proof, quantile, suffers};

pub use try_out::{TryArgs, run_try};

/// Minimum of the wait that counts as suffering, if none is given: players buffer for longer.
const WAIT_MAX_MIN: Duration = Duration::from_secs(5);

/// How long `prove` takes at most, if no time is given: a dozen blocks with and without.
const AT_MOST: Duration = Duration::from_secs(20 * 60);

/// Minimum length of a block. A stream without a report for 30 s is forgotten together with its read-ahead.
/// In a shorter block of passed calls it is not forgotten, and what its client took meanwhile would count as
/// taken in the next block.
const BLOCK_MIN: Duration = Duration::from_secs(35);

/// Interval at which the state is read, and a lease renewed.
const EVERY: Duration = Duration::from_secs(1);

/// Length of a lease: the daemon serves again this long after the last request of a prover that died. Three
/// intervals, because one may be late.
const LEASE_MS: u32 = 3_000;

/// Number of consecutive blocks without a delivered byte after which there is no traffic to prove anything
/// with.
const EMPTY_MAX: usize = 2;

/// Seconds after the switch from which a block is checked for suffering clients.
const SUFFERS_FROM_S: f64 = 3.0;

/// What `try` cannot know, said beside what it found.
const AFTER_TRY: &str = "no program waited for Seekless; a preloaded server (`seekless run`, `seekless enable`) has its misses put in order too, which often gains more";

/// How it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Leave {
    /// Calls are served.
    On,
    /// Every call is passed, until `seekless prove --leave on --for 0` or the daemon's end.
    Off,
}

/// Measure on a running server what Seekless gains: blocks of time without it and with it alternate.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("at_most", |arg| help_more(arg, "; 0 only sets what --leave says [default: 20m]")))]
pub struct ProveArgs {
    #[command(flatten)]
    measure: MeasureOptions,
    /// Stop when more than one read in a hundred waits longer than this, at most a week [default: twice the
    /// p99 at the start, 5s or more]
    #[arg(long, value_name = "TIME", value_parser = longest)]
    wait_max: Option<Duration>,
    /// State of the daemon at the end: on (calls are served) or off (calls pass) [default: as it was]
    #[arg(long, value_enum, value_name = "on|off")]
    leave: Option<Leave>,
    #[command(flatten)]
    at: SocketOption,
}

/// Options of `prove` and `try`.
#[derive(Args, Clone, Debug)]
struct MeasureOptions {
    /// Longest time it may take, at most a week; it ends earlier when the result is certain
    #[arg(long = "for", value_name = "TIME", value_parser = week_at_most)]
    at_most: Option<Duration>,
    /// Length of a block, 35s or more; its first part is not counted
    #[arg(long, default_value = "40s", value_name = "TIME", value_parser = block_time)]
    block: Duration,
    #[command(flatten)]
    page: HtmlOption,
    #[command(flatten)]
    json: JsonOption,
}

/// An argument with more behind its help.
fn help_more(arg: Arg, more: &str) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default() + more;
    arg.help(help)
}

impl ProveArgs {
    fn at_most(&self) -> Duration {
        self.measure.at_most.unwrap_or(AT_MOST)
    }
}

fn block_time(text: &str) -> Result<Duration, String> {
    let block = week_at_most(text)?;
    if block < BLOCK_MIN { Err(format!("write {} s or more", BLOCK_MIN.as_secs())) } else { Ok(block) }
}

/// Why no more blocks were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Stopped {
    Certain,
    TimeIsUp,
    ClientsSuffered,
    NoTraffic,
    Interrupted,
}

impl Stopped {
    fn describe(self) -> &'static str {
        match self {
            Stopped::Certain => "it is certain",
            Stopped::TimeIsUp => "the time is up",
            Stopped::ClientsSuffered => "reads waited longer than --wait-max",
            Stopped::NoTraffic => "no client read anything",
            Stopped::Interrupted => "it was interrupted",
        }
    }
}

/// The result of a proof.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    version: String,
    /// `prove` or `try`.
    command: &'static str,
    stopped: Stopped,
    proof: Proof,
    /// Means over the blocks of each kind.
    without: Kind,
    with: Kind,
    disks: Vec<String>,
    /// Reads that shims could not report, in the whole time.
    reports_lost: u64,
    blocks: Vec<Block>,
}

/// All blocks of a kind together.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Kind {
    seconds: f64,
    disk_s_per_gb: f64,
    mb_per_s: f64,
    p99_ms: f64,
}

impl Kind {
    fn of(blocks: &[Block], served: bool) -> Kind {
        let all: Vec<&Block> = blocks.iter().filter(|b| b.served == served).collect();
        let sum = |value: fn(&Block) -> f64| all.iter().map(|b| value(b)).sum::<f64>();
        let (seconds, bytes) = (sum(|b| b.seconds), sum(|b| b.bytes as f64));
        if all.is_empty() || bytes == 0.0 {
            return Kind::default();
        }
        let mut p99: Vec<f64> = all.iter().map(|b| b.p99_ms).collect();
        p99.sort_by(f64::total_cmp);
        Kind {
            seconds,
            disk_s_per_gb: sum(|b| b.disk_s) / sum(|b| b.worked_bytes) * 1e9,
            mb_per_s: bytes / seconds / 1e6,
            p99_ms: p99[p99.len() / 2],
        }
    }
}

/// Checks everything that can be known to fail before anything is measured.
fn possible(args: &ProveArgs) -> Result<(), Fault> {
    // Two pairs: fewer give no interval, and so no result.
    let least = 4 * args.measure.block;
    if args.at_most() < least {
        return Err(Fault::usage(format!(
            "--for is shorter than four blocks, two without Seekless and two with it; write {} s or more",
            least.as_secs_f64()
        )));
    }
    Ok(())
}

/// `seekless prove`.
///
/// # Errors
/// The options cannot be met; no daemon answers, or it refuses this user; it has met no disk, or no server
/// reports its reads to it.
pub fn run_prove(args: ProveArgs) -> Result<Exit, Fault> {
    if !args.at_most().is_zero() {
        possible(&args)?;
    }
    measure("prove", &args)
}

/// Measures for the command of this name.
fn measure(name: &'static str, args: &ProveArgs) -> Result<Exit, Fault> {
    let socket = args.at.path()?;
    let found = control::status(&socket)?.1;
    let leave = args.leave.unwrap_or(if found.passes_all { Leave::Off } else { Leave::On });
    if args.at_most().is_zero() {
        leave_as(&socket, leave)?;
        let said =
            if leave == Leave::Off { "every call is passed from now on\n" } else { "calls are served\n" };
        seekless_output::give(
            args.measure.json.path(),
            &BTreeMap::from([("passes_all", leave == Leave::Off)]),
            || said.into(),
        )?;
        return Ok(Exit::Ok);
    }
    let disks = measurable(&found)?;
    // A server that is at its limit already must not end its own proof.
    let usual = quantile(0.99, found.delivered.reads, &found.delivered.waits);
    let wait_max =
        args.wait_max.unwrap_or_else(|| WAIT_MAX_MIN.max(Duration::from_secs_f64(2.0 * usual / 1e3)));
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ended.clone())
            .map_err(|e| Fault::failed(format!("cannot watch for signals: {e}")))?;
    }
    seekless_output::eprintln!(
        "seekless {name}: without and with Seekless in turn, {:.0} s each, until it is certain: {:.1} min at most",
        args.measure.block.as_secs_f64(),
        args.at_most().as_secs_f64() / 60.0
    );
    let bar = seekless_output::bar(args.at_most().as_secs(), "{bar:40} {pos}/{len} s at most");
    let mut prover = Prover {
        name,
        bar,
        socket: socket.clone(),
        disks,
        began: Instant::now(),
        ended,
        blocks: Vec::new(),
        wait_max_ms: wait_max.as_secs_f64() * 1e3,
        said: 0,
    };
    let stopped = prover.run(args);
    prover.bar.finish_and_clear();
    // In any case. If the daemon is gone, so is the lease.
    let left = leave_as(&socket, leave);
    let stopped = stopped?;
    left?;
    let lost = control::status(&socket)?.1.counters.ring_dropped.saturating_sub(found.counters.ring_dropped);
    let result = Outcome {
        version: found.version,
        command: name,
        stopped,
        proof: proof(&prover.blocks),
        without: Kind::of(&prover.blocks, false),
        with: Kind::of(&prover.blocks, true),
        disks: prover.disks,
        reports_lost: lost,
        blocks: prover.blocks,
    };
    if let Some(path) = &args.measure.page.html {
        seekless_output::write(path, page::page(&result))?;
    }
    if let Some(to) = args.measure.json.path() {
        seekless_output::write(to, seekless_output::pretty(&result)?)?;
    }
    if !args.measure.json.is_stdout() {
        seekless_output::print(words(&result) + "\n")?;
    }
    Ok(if stopped == Stopped::Interrupted { Exit::Interrupted } else { Exit::Ok })
}

fn leave_as(socket: &Path, leave: Leave) -> Result<(), Fault> {
    let lease = if leave == Leave::Off { PASS_ALL_UNTIL_TOLD } else { 0 };
    Ok(control::pass_all(socket, lease)?)
}

/// The disks whose time can be read; an error of one line if there is nothing to measure.
fn measurable(found: &StatusReport) -> Result<Vec<String>, Fault> {
    if found.watch.is_some() {
        return Err(Fault::missing(
            "the kernel does not tell `watch` how much a read took, so nothing can be measured there; preload the server: seekless run",
        ));
    }
    if !matches!(found.mode.as_str(), "both" | "serialise") {
        return Err(Fault::missing("in this mode shims report no reads; start the daemon with --mode both"));
    }
    if taken(found).1 == 0 {
        return Err(Fault::missing(
            "no server has reported a read to this daemon yet, and `observe` has seen none; `seekless doctor` says whether it is hooked",
        ));
    }
    let disks: Vec<String> =
        found.disks.iter().map(|d| d.name.clone()).filter(|d| disk_s(d).is_some()).collect();
    if disks.is_empty() {
        return Err(Fault::missing(
            "this daemon serves no disk whose busy time the kernel counts (/sys/block/*/stat)",
        ));
    }
    Ok(disks)
}

/// Bytes and reads that clients took, as reported by shims or, with `observe`, by the page cache.
fn taken(report: &StatusReport) -> (u64, u64) {
    let observed = report.observe.as_ref().map_or((0, 0), |observe| (observe.bytes, observe.reads));
    (report.delivered.bytes + observed.0, report.delivered.reads + observed.1)
}

/// Time in which a disk was busy, in seconds since the kernel met it.
fn disk_s(disk: &str) -> Option<f64> {
    let used = Queue::new(Path::new(SYS_BLOCK), disk).usage().ok()?.now().ok()?;
    Some(used.busy_ms as f64 / 1e3)
}

struct Prover {
    /// Name of the command.
    name: &'static str,
    /// Shows the elapsed time.
    bar: seekless_output::ProgressBar,
    socket: PathBuf,
    disks: Vec<String>,
    began: Instant,
    ended: Arc<AtomicBool>,
    blocks: Vec<Block>,
    wait_max_ms: f64,
    /// Number of blocks already printed.
    said: usize,
}

impl Prover {
    fn run(&mut self, args: &ProveArgs) -> Result<Stopped, Fault> {
        let mut empty = 0;
        loop {
            let first = coin();
            for served in [first, !first] {
                if self.began.elapsed() + args.measure.block > args.at_most() {
                    return Ok(Stopped::TimeIsUp);
                }
                match self.block(served, args)? {
                    Measured::Block(block) => {
                        empty = 0;
                        self.blocks.push(block);
                        self.tell();
                    }
                    Measured::Nothing => {
                        empty += 1;
                        if empty >= EMPTY_MAX {
                            return Ok(Stopped::NoTraffic);
                        }
                    }
                    Measured::End(stopped) => return Ok(stopped),
                }
            }
            if is_certain(&self.blocks) {
                return Ok(Stopped::Certain);
            }
        }
    }

    /// Measures one block from its switch to its end.
    fn block(&self, served: bool, args: &ProveArgs) -> Result<Measured, Fault> {
        let lease = if served { 0 } else { LEASE_MS };
        control::pass_all(&self.socket, lease)?;
        let began = Instant::now();
        let mut readings = vec![self.look()?];
        while began.elapsed() < args.measure.block {
            std::thread::sleep(EVERY.min(args.measure.block.saturating_sub(began.elapsed())));
            if self.ended.load(Ordering::Relaxed) {
                return Ok(Measured::End(Stopped::Interrupted));
            }
            control::pass_all(&self.socket, lease)?;
            self.bar.set_position(self.began.elapsed().as_secs());
            let now = self.look()?;
            let since = readings
                .iter()
                .find(|r| now.at - r.at >= SUFFERS_FROM_S && r.at - readings[0].at >= SUFFERS_FROM_S);
            if since.is_some_and(|since| suffers(since, &now, self.wait_max_ms)) {
                return Ok(Measured::End(Stopped::ClientsSuffered));
            }
            readings.push(now);
        }
        Ok(Block::of(served, &readings).map_or(Measured::Nothing, Measured::Block))
    }

    fn look(&self) -> Result<Reading, Fault> {
        let report = control::status(&self.socket)?.1;
        let (bytes, reads) = taken(&report);
        Ok(Reading {
            at: self.began.elapsed().as_secs_f64(),
            disk_s: self.disks.iter().filter_map(|d| disk_s(d)).sum(),
            bytes,
            unread: report.disks.iter().map(|d| d.bytes_unread_now).sum(),
            reads,
            waits: report.delivered.waits,
        })
    }

    /// Prints a line for each block.
    fn tell(&mut self) {
        for block in &self.blocks[self.said..] {
            let line = format!(
                "seekless {}: {} Seekless: {:.1} MB/s, {:.2} s of disk time per GB{}",
                self.name,
                if block.served { "with" } else { "without" },
                block.rate() / 1e6,
                block.disk_s_per_gb(),
                wait_text(block.p99_ms)
            );
            self.bar.suspend(|| seekless_output::eprintln!("{line}"));
        }
        self.said = self.blocks.len();
    }
}

enum Measured {
    Block(Block),
    Nothing,
    End(Stopped),
}

/// A random bit from the kernel.
fn coin() -> bool {
    RandomState::new().build_hasher().finish() & 1 == 1
}

/// `, p99 12 ms`; empty if waits are not known.
fn wait_text(p99_ms: f64) -> String {
    if p99_ms > 0.0 { format!(", p99 {p99_ms:.0} ms") } else { String::new() }
}

/// `3.12 (95 % interval 2.90 to 3.36)`. An interval over more than two powers of ten is not printed in
/// digits.
fn estimate_text(estimate: &Option<Estimate>) -> String {
    match estimate {
        Some(e) if e.high > 100.0 * e.low => format!("{:.2} (too few blocks for an interval)", e.ratio),
        Some(e) => format!("{:.2} (95 % interval {:.2} to {:.2})", e.ratio, e.low, e.high),
        None => "not measured".into(),
    }
}

fn verdict(result: &Outcome) -> String {
    let estimate = estimate_text(&result.proof.disk_time);
    match result.proof.verdict {
        Verdict::Gain => {
            format!("Seekless gains: without it a delivered byte costs {estimate} times the disk time.")
        }
        Verdict::Loss => {
            format!("Seekless loses here: without it a delivered byte costs {estimate} times the disk time.")
        }
        Verdict::NoGain => {
            format!("Seekless gains nothing here: the ratio of disk time per delivered byte is {estimate}.")
        }
        Verdict::Uncertain if result.proof.disk_time.is_none() => {
            "No result: too few blocks were measured; give it more time (--for).".into()
        }
        Verdict::Uncertain => {
            format!(
                "Not certain: the ratio of disk time per delivered byte is {estimate}; give it more time (--for)."
            )
        }
    }
}

/// The text for people.
fn words(result: &Outcome) -> String {
    let mut lines = vec![
        verdict(result),
        format!("throughput, with over without: {}", estimate_text(&result.proof.throughput)),
    ];
    // With `observe`, waits are not known.
    if result.proof.p99.is_some() {
        lines.push(format!("p99 wait of a read, without over with: {}", estimate_text(&result.proof.p99)));
    }
    for (name, kind) in [("without", result.without), ("with", result.with)] {
        lines.push(format!(
            "{name}: {:.2} s of disk time per GB, {:.1} MB/s{}, over {:.0} s",
            kind.disk_s_per_gb,
            kind.mb_per_s,
            wait_text(kind.p99_ms),
            kind.seconds
        ));
    }
    lines.push(format!(
        "stopped because {}; {} blocks measured",
        result.stopped.describe(),
        result.blocks.len()
    ));
    if result.command == "try" {
        lines.push(AFTER_TRY.to_owned());
    }
    if result.reports_lost > 0 {
        lines.push(format!(
            "{} reads were not reported because the ring was full; throughput is understated",
            result.reports_lost
        ));
    }
    seekless_output::joined(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_bounded() {
        assert_eq!(week_at_most("20m"), Ok(Duration::from_secs(1200)));
        assert_eq!(week_at_most("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(week_at_most("0"), Ok(Duration::ZERO));
        assert!(block_time("34s").is_err() && block_time("35s").is_ok());
        for wrong in ["", "x", "5d", "-3s", "1000h"] {
            assert!(week_at_most(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_to_measure_is_one_line_with_the_way_out() {
        let mut found = StatusReport { mode: "both".into(), ..Default::default() };
        let line = |found: &StatusReport| measurable(found).unwrap_err().message;
        assert!(line(&found).contains("doctor"));
        found.delivered.reads = 1;
        assert!(line(&found).contains("/sys/block"));
        found.mode = "prefetch".into();
        assert!(line(&found).contains("--mode both"));
        found.watch = Some(Default::default());
        assert!(line(&found).contains("seekless run") && !line(&found).contains('\n'));
    }
}
