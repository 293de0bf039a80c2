//! What the engine does with the reads it is asked about: the options that `daemon`, `run` and `watch` share.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use seekless_engine::DecisionLog;
use seekless_policy::bitrate::BitrateRule;
use seekless_policy::competitive::Start;
use seekless_policy::controller::{AdjustBy, Params};
use seekless_policy::{AheadConfig, DropBehind, Mode, OrderKind, Prefetch, Sizing};
use seekless_units::{Bytes, Exit, Fault, Nanos};

use crate::settings::Settings;

/// What the daemon does with the reads it is asked about; shared by `daemon`, `run` and `watch`.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// What to do: off, track (only time calls), serialise (one read at a time a disk), prefetch (enlarge reads, in
    /// no order), both
    #[arg(long, default_value = "both", value_name = "MODE")]
    pub mode: Mode,
    /// How far a read is extended: a size, for example 2MiB (the paper's) or 4MiB; auto (it finds itself; with --ahead on);
    /// competitive (what the disk transfers in the time of one seek, from its profile)
    #[arg(long, default_value = "2MiB", value_name = "SIZE|auto|competitive")]
    pub prefetch: Prefetch,
    /// Order in which a disk's queue is served: fifo or sweep (by disk address)
    #[arg(long, default_value = "sweep", value_name = "ORDER")]
    pub order: OrderKind,
    /// One queue for all disks instead of one a disk
    #[arg(long)]
    pub single_queue: bool,
    /// Most requests waiting for one disk; more are passed on to the kernel at once
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub queue: u32,
    /// Reads of one disk in flight together; 1 is strictly serial, from 2 on the next is submitted shortly before the
    /// last one ends
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub in_flight: u32,
    /// With --in-flight 2 and more: bytes of a read still missing when the next one is submitted
    #[arg(long, default_value = "256KiB", value_name = "SIZE")]
    pub overlap: Bytes,
    /// Answer at the end of the whole read, as the paper does, instead of as soon as what was asked for has arrived
    #[arg(long)]
    pub answer_late: bool,
    /// Read before it is needed: follow streams through reads that hit as well, and fetch their next pieces under
    /// deadlines (mode both only): on, or off for the papers' prefetching on a miss
    #[arg(long, default_value = "on", value_name = "on|off", value_parser = on_off, action = clap::ArgAction::Set)]
    pub ahead: bool,
    /// When bytes are given back behind the last reader of a file: never, pressure (when unread bytes are seen evicted),
    /// always
    #[arg(long, default_value = "pressure", value_name = "WHEN")]
    pub drop_behind: DropBehind,
    /// Most bytes read ahead and not yet used, of each disk [default: from the memory limit, and what is observed]
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<Bytes>,
    /// Serve files on solid-state disks and in memory too, instead of leaving them alone
    #[arg(long)]
    pub include_ssd: bool,
    /// How the size depends on a stream's bitrate: sqrt, linear, same, one factor (0 to 1) for lower bitrates, or
    /// BYTES_PER_S=FACTOR,... [default: sqrt with --prefetch auto for bitrates that are known, else same]
    #[arg(long, value_name = "RULE")]
    pub scale: Option<BitrateRule>,
    /// Bitrate of all streams in bits a second, where it is known [default: from the files' headers, else observed]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u64).range(8..=1_000_000_000_000))]
    pub bitrate: Option<u64>,
    /// With --prefetch auto: the parameters of the paper's Table 2, by its names
    #[command(flatten)]
    pub table2: Table2,
    /// With --prefetch competitive: begin with 16 pages and double, as the paper does, instead of the whole depth
    #[arg(long)]
    pub slow_start: bool,
    /// Log every event and decision to FILE, for replay
    #[arg(long, value_name = "FILE")]
    pub decisions: Option<PathBuf>,
    /// Most of that; then it stops
    #[arg(long, default_value = "256MiB", value_name = "SIZE")]
    pub decisions_max: Bytes,
}

/// Parameters of the automatic size.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Automatic prefetch size")]
pub struct Table2 {
    /// Size at the start [default: the one the disk was left with, else from its profile]
    #[arg(long, value_name = "SIZE")]
    pub start_size: Option<Bytes>,
    /// What adjusts it: model (of disk, memory and readers, the gradient as its correction) or gradient (alone, as the paper)
    #[arg(long, value_name = "HOW", default_value = "model")]
    pub adjust_by: AdjustBy,
    /// Seconds between two adjustments
    #[arg(long, default_value_t = 180.0, value_name = "SECONDS")]
    pub adjust_interval: f64,
    /// By how much the size changes
    #[arg(long, default_value = "512KiB", value_name = "SIZE")]
    pub step_size: Bytes,
    /// Part by which stored scores shrink at a minimum
    #[arg(long, default_value_t = 0.05, value_name = "PART")]
    pub score_deflation_factor: f64,
    /// Part of the time the disk must be busy for anything to change
    #[arg(long, default_value_t = 0.6, value_name = "PART")]
    pub adjust_busy: f64,
    /// Bytes evicted before use, over bytes requested, from which on the eviction time sets the size
    #[arg(long, default_value_t = 0.05, value_name = "PART")]
    pub adjust_evict: f64,
    /// No automatic or competitive size is above this
    #[arg(long, default_value = "32MiB", value_name = "SIZE")]
    pub size_max: Bytes,
}

impl Table2 {
    fn params(&self) -> Result<Params, Fault> {
        let seconds = self.adjust_interval;
        let params = Params {
            start_size: self.start_size.unwrap_or(Params::default().start_size.min(self.size_max)),
            // Anything that is no number of seconds is out of range, which the check says.
            adjust_interval: Nanos::from_secs_f64(if seconds.is_finite() { seconds.max(0.0) } else { 0.0 }),
            step_size: self.step_size,
            score_deflation_factor: self.score_deflation_factor,
            adjust_busy: self.adjust_busy,
            adjust_evict: self.adjust_evict,
            size_max: self.size_max,
            adjust_by: self.adjust_by,
        };
        let usage = |why: String| {
            let why =
                ["start_size", "adjust_interval", "step_size", "adjust_busy", "adjust_evict", "size_max"]
                    .iter()
                    .fold(why, |why, name| why.replace(name, &format!("--{}", name.replace('_', "-"))));
            let why = why.replace("score_deflation_factor", "--score-deflation-factor");
            Fault::new(Exit::Usage, why)
        };
        params.check().map_err(usage)?;
        Ok(params)
    }

    fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("--adjust-interval={}", self.adjust_interval),
            format!("--step-size={}", self.step_size),
            format!("--score-deflation-factor={}", self.score_deflation_factor),
            format!("--adjust-busy={}", self.adjust_busy),
            format!("--adjust-evict={}", self.adjust_evict),
            format!("--size-max={}", self.size_max),
            format!("--adjust-by={}", self.adjust_by),
        ];
        words.extend(self.start_size.map(|s| format!("--start-size={s}")));
        words
    }
}

/// `on` or `off`.
fn on_off(word: &str) -> Result<bool, String> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".into()),
    }
}

impl EngineArgs {
    /// What the words come to; nothing is opened or created.
    pub(crate) fn settings(&self, socket: PathBuf) -> Result<Settings, Fault> {
        let params = self.table2.params()?;
        let mut settings = Settings::new(socket);
        let spindle = &mut settings.engine.spindle;
        match self.prefetch {
            Prefetch::Fixed(size) => {
                let page = Bytes(seekless_policy::PAGE);
                let largest = Bytes::gib(1);
                if size < page || size > largest {
                    let message = format!("--prefetch {size} is out of range; write {page} to {largest}");
                    return Err(Fault::new(Exit::Usage, message));
                }
                spindle.prefetch = size;
                spindle.read_max = spindle.read_max.max(size);
            }
            Prefetch::Auto => {
                if !self.ahead || self.mode != Mode::Both {
                    let message =
                        "--prefetch auto learns from every read: it needs --mode both and --ahead on";
                    return Err(Fault::new(Exit::Usage, message.to_string()));
                }
                spindle.sizing = Sizing::Auto(params);
                spindle.read_max = spindle.read_max.max(self.table2.size_max);
                settings.engine.start_size = self.table2.start_size;
            }
            Prefetch::Competitive => {
                spindle.sizing =
                    Sizing::Competitive(if self.slow_start { Start::Slow } else { Start::Depth });
                spindle.read_max = spindle.read_max.max(self.table2.size_max);
            }
        }
        spindle.mode = self.mode;
        spindle.order = self.order;
        spindle.scale_by_observed = self.scale.is_some();
        spindle.scale = self.scale.clone().unwrap_or(match self.prefetch {
            Prefetch::Auto => BitrateRule::SquareRoot,
            _ => BitrateRule::Same,
        });
        spindle.bitrate = self.bitrate.map(|bits| bits / 8);
        spindle.queue_max = self.queue as usize;
        spindle.reads_in_flight = self.in_flight as usize;
        spindle.overlap = self.overlap;
        spindle.answer_early = !self.answer_late;
        spindle.ahead =
            self.ahead.then(|| AheadConfig { drop_behind: self.drop_behind, ..AheadConfig::default() });
        settings.engine.budget = self.budget;
        settings.engine.single_queue = self.single_queue;
        settings.engine.include_ssd = self.include_ssd;
        Ok(settings)
    }

    /// Begins the decision log, if there is to be one. Once a process: it makes the file anew.
    pub(crate) fn open_log(&self, settings: &mut Settings) -> Result<(), Fault> {
        let Some(path) = &self.decisions else { return Ok(()) };
        let log = DecisionLog::create(path, self.decisions_max.0).map_err(|e| {
            let message =
                format!("cannot write {}: {e}; choose another file for --decisions", path.display());
            Fault::new(Exit::Failed, message)
        })?;
        settings.engine.decisions = Some(Arc::new(log));
        Ok(())
    }

    /// The same as words for another `seekless daemon`.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("--mode={}", self.mode.name()),
            format!("--prefetch={}", self.prefetch),
            format!("--order={}", self.order.name()),
            format!("--queue={}", self.queue),
            format!("--in-flight={}", self.in_flight),
            format!("--overlap={}", self.overlap),
            format!("--ahead={}", if self.ahead { "on" } else { "off" }),
            format!("--drop-behind={}", self.drop_behind),
            format!("--decisions-max={}", self.decisions_max),
        ];
        words.extend(self.table2.words());
        words.extend(self.budget.map(|b| format!("--budget={b}")));
        words.extend(self.scale.as_ref().map(|s| format!("--scale={s}")));
        words.extend(self.bitrate.map(|b| format!("--bitrate={b}")));
        words.extend(self.decisions.as_ref().map(|f| format!("--decisions={}", f.display())));
        let flags = [
            ("--single-queue", self.single_queue),
            ("--answer-late", self.answer_late),
            ("--include-ssd", self.include_ssd),
            ("--slow-start", self.slow_start),
        ];
        words.extend(flags.iter().filter(|f| f.1).map(|f| f.0.to_string()));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        engine: EngineArgs,
    }

    fn settings(words: &[&str]) -> Result<Settings, Fault> {
        let words = std::iter::once("x").chain(words.iter().copied());
        Words::try_parse_from(words).unwrap().engine.settings("/tmp/x.sock".into())
    }

    #[test]
    fn the_words_for_another_daemon_mean_the_same() {
        for words in [
            &["--prefetch", "auto", "--start-size", "3MiB", "--adjust-interval", "7.5", "--scale", "0.45"][..],
            &["--prefetch", "competitive", "--slow-start", "--size-max", "16MiB", "--ahead", "off"],
            &["--mode", "serialise", "--bitrate", "419000", "--budget", "1GiB", "--in-flight", "2"],
        ] {
            let args = std::iter::once("x").chain(words.iter().copied());
            let once = Words::try_parse_from(args).unwrap().engine;
            let again: Vec<String> = once.words();
            let again: Vec<&str> = again.iter().map(String::as_str).collect();
            let (a, b) = (settings(words).unwrap().engine, settings(&again).unwrap().engine);
            assert_eq!((a.spindle, a.budget, a.start_size), (b.spindle, b.budget, b.start_size));
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let fault = |words: &[&str]| settings(words).map(|_| ()).unwrap_err().message;
        assert!(fault(&["--prefetch", "2GiB"]).contains("--prefetch 2GiB"));
        assert!(fault(&["--prefetch", "auto", "--ahead", "off"]).contains("--ahead on"));
        assert!(fault(&["--adjust-busy", "1.5"]).contains("--adjust-busy = 1.5"));
        assert!(fault(&["--adjust-interval", "NaN"]).contains("--adjust-interval"));
        assert!(fault(&["--start-size", "64MiB"]).contains("--start-size"));
        assert!(fault(&["--step-size", "0B"]).contains("--step-size"));
        assert!(
            fault(&["--score-deflation-factor", "-1"][..1].iter().chain(&["2"]).copied().collect::<Vec<_>>())
                .contains("--score-deflation-factor")
        );
    }

    #[test]
    fn the_paper_s_values_are_the_defaults() {
        let auto = settings(&["--prefetch", "auto"]).unwrap().engine;
        assert_eq!(auto.spindle.sizing, Sizing::Auto(Params::default()));
        assert_eq!((auto.spindle.scale, auto.start_size), (BitrateRule::SquareRoot, None));
    }
}
