//! Options of the engine that every command with an engine in it takes, whatever its front door: how far it reads, in which
//! order, how early, in how much memory. What they mean, their ranges and what is said of a wrong one are the same everywhere.
//!
//! Must not know: the doors; what a command does beside.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use seekless_engine::{DecisionLog, Settings};
use seekless_policy::bitrate::BitrateRule;
use seekless_policy::competitive::Start;
use seekless_policy::controller::{AdjustBy, Params};
use seekless_policy::{AheadConfig, DropBehind, Mode, OrderKind, Prefetch, Sizing};
use seekless_units::{Bytes, Exit, Fault, Nanos};

/// How an engine reads. `--prefetch` is each command's own, for its default is.
#[derive(Args, Clone, Debug)]
pub struct EngineOptions {
    /// Order in which a disk's queue is served: fifo or sweep (by disk address)
    #[arg(long, default_value = "sweep", value_name = "ORDER")]
    pub order: OrderKind,
    /// Read before it is needed: follow streams through reads that hit as well, and fetch their next pieces under
    /// deadlines: on, or off for the papers' prefetching on a miss
    #[arg(long, default_value = "on", value_name = "on|off", value_parser = on_off, action = clap::ArgAction::Set)]
    pub ahead: bool,
    /// When bytes are given back behind the last reader of a file: never, pressure (when unread bytes are seen evicted),
    /// always
    #[arg(long, default_value = "pressure", value_name = "WHEN")]
    pub drop_behind: DropBehind,
    /// Most bytes read ahead and not yet used, of each disk [default: from the memory limit, and what is observed]
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<Bytes>,
    /// Keep what was read ahead mapped until it is read, so that reclaim takes it last, and a pager of idle memory that spares mapped
    /// pages (DAMON, by its filter) not at all: on or off
    #[arg(long, default_value = "on", value_name = "on|off", value_parser = on_off, action = clap::ArgAction::Set)]
    pub hold: bool,
    /// Let requests go when their disk has read nothing for this many seconds: it hangs, and their callers see for themselves
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS", value_parser = seconds)]
    pub stalled: f64,
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
    /// With --prefetch competitive: begin with 16 pages and double, as the paper does, instead of the whole depth
    #[arg(long)]
    pub slow_start: bool,
    /// Log every event and decision to FILE, for replay
    #[arg(long, value_name = "FILE")]
    pub decisions: Option<PathBuf>,
    /// Most of that; then it stops
    #[arg(long, default_value = "256MiB", value_name = "SIZE")]
    pub decisions_max: Bytes,
    /// With --prefetch auto: the parameters of the paper's Table 2, by its names
    #[command(flatten)]
    pub table2: Table2,
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
///
/// # Errors
/// Any other word.
pub fn on_off(word: &str) -> Result<bool, String> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".into()),
    }
}

/// A time in seconds.
///
/// # Errors
/// It is not a number of seconds from 0.01 to 1000000.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.01..=1e6).contains(s));
    seconds.ok_or_else(|| "write a number of seconds from 0.01 to 1000000".to_string())
}

impl EngineOptions {
    /// The settings of an engine that reads so far, in this mode; nothing is opened or created.
    ///
    /// # Errors
    /// A size or parameter out of range; an automatic size where not every read is heard of.
    pub fn settings(&self, mode: Mode, prefetch: &Prefetch) -> Result<Settings, Fault> {
        let params = self.table2.params()?;
        let mut settings = Settings {
            budget: self.budget,
            hold: self.hold,
            include_ssd: self.include_ssd,
            ..Settings::default()
        };
        let spindle = &mut settings.spindle;
        match *prefetch {
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
                if !self.ahead || mode != Mode::Both {
                    let modes = if mode == Mode::Both { "" } else { "--mode both and " };
                    let message =
                        format!("--prefetch auto learns from every read: it needs {modes}--ahead on");
                    return Err(Fault::new(Exit::Usage, message));
                }
                spindle.sizing = Sizing::Auto(params);
                spindle.read_max = spindle.read_max.max(self.table2.size_max);
                settings.start_size = self.table2.start_size;
            }
            Prefetch::Competitive => {
                spindle.sizing =
                    Sizing::Competitive(if self.slow_start { Start::Slow } else { Start::Depth });
                spindle.read_max = spindle.read_max.max(self.table2.size_max);
            }
        }
        spindle.mode = mode;
        spindle.stall_max = Nanos::from_secs_f64(self.stalled);
        spindle.order = self.order;
        spindle.scale_by_observed = self.scale.is_some();
        spindle.scale = self.scale.clone().unwrap_or(match prefetch {
            Prefetch::Auto => BitrateRule::SquareRoot,
            _ => BitrateRule::Same,
        });
        spindle.bitrate = self.bitrate.map(|bits| bits / 8);
        spindle.ahead =
            self.ahead.then(|| AheadConfig { drop_behind: self.drop_behind, ..AheadConfig::default() });
        Ok(settings)
    }

    /// Begins the decision log, if there is to be one. Once a process: it makes the file anew.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open_log(&self, settings: &mut Settings) -> Result<(), Fault> {
        let Some(path) = &self.decisions else { return Ok(()) };
        let begun =
            seekless_output::create(path).and_then(|file| DecisionLog::begin(file, self.decisions_max.0));
        let log = begun.map_err(|e| {
            let message =
                format!("cannot write {}: {e}; choose another file for --decisions", path.display());
            Fault::new(Exit::Failed, message)
        })?;
        settings.decisions = Some(Arc::new(log));
        Ok(())
    }

    /// The same as words for another command.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("--order={}", self.order.name()),
            format!("--ahead={}", if self.ahead { "on" } else { "off" }),
            format!("--drop-behind={}", self.drop_behind),
            format!("--hold={}", if self.hold { "on" } else { "off" }),
            format!("--stalled={}", self.stalled),
            format!("--decisions-max={}", self.decisions_max),
        ];
        words.extend(self.table2.words());
        words.extend(self.budget.map(|b| format!("--budget={b}")));
        words.extend(self.scale.as_ref().map(|s| format!("--scale={s}")));
        words.extend(self.bitrate.map(|b| format!("--bitrate={b}")));
        words.extend(self.decisions.as_ref().map(|f| format!("--decisions={}", f.display())));
        let flags = [("--include-ssd", self.include_ssd), ("--slow-start", self.slow_start)];
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
        #[arg(long, default_value = "2MiB")]
        prefetch: Prefetch,
        #[command(flatten)]
        engine: EngineOptions,
    }

    fn settings(words: &[&str]) -> Result<Settings, Fault> {
        let words = Words::try_parse_from(std::iter::once("x").chain(words.iter().copied())).unwrap();
        words.engine.settings(Mode::Both, &words.prefetch)
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
        assert!(fault(&["--score-deflation-factor=2"]).contains("--score-deflation-factor"));
    }

    #[test]
    fn the_paper_s_values_are_the_defaults() {
        let auto = settings(&["--prefetch", "auto"]).unwrap();
        assert_eq!(auto.spindle.sizing, Sizing::Auto(Params::default()));
        assert_eq!((auto.spindle.scale, auto.start_size), (BitrateRule::SquareRoot, None));
    }
}
