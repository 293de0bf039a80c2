//! Options of the policy: from a command line to the configuration of a disk queue.

use clap::Args;
use seekless_base::{Bytes, Fault, Nanos};
use seekless_policy::memory::BUDGET_MIN;
use seekless_policy::sizing::bitrate::BitrateRule;
use seekless_policy::sizing::controller::AdjustBy;
use seekless_policy::{
    AheadConfig, Config, DEFAULT_PREFETCH, LongestWait, Mode, OrderKind, PAGE, Prefetch, Sizing,
};

use crate::{BOUNDS, PAPERS, Parameters, Preset, Writers, on_off, seconds};

/// Largest fixed size.
pub(crate) const PREFETCH_MAX: Bytes = Bytes::gib(1);

/// How far, how early and in which order data is read. One group for every command that contains the policy.
#[derive(Args, Clone, Debug)]
pub struct PolicyOptions {
    /// Set of defaults for the options below [default: auto]
    #[arg(long, value_enum, value_name = "NAME")]
    pub preset: Option<Preset>,
    /// How far a read is extended: auto (tuned continuously), competitive (what the disk transfers in the
    /// time of one seek, from its profile), a size of 4KiB to 1GiB, or 0: as asked, which is --mode
    /// serialise [default: auto, or the preset's]
    #[arg(long, value_name = "SIZE|auto|competitive")]
    pub prefetch: Option<Prefetch>,
    /// Order in which the queue of a disk is served: sweep (by disk address) or fifo (by arrival) [default:
    /// sweep, or the preset's]
    #[arg(long, value_name = "ORDER", hide_short_help = true, hide_long_help = true)]
    pub order: Option<OrderKind>,
    /// Fetch the next piece of each stream before it is needed (on), or read only on a miss, as the papers do
    /// (off) [default: on, or the preset's]
    #[arg(long, value_name = "on|off", value_parser = on_off)]
    pub ahead: Option<bool>,
    /// Most bytes read ahead and not yet used, for each disk, 8MiB or more [default: from the memory of the
    /// machine or control group]
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<Bytes>,
    /// Let disks sleep: read for all streams at once, as much as the budget holds, then nothing until the
    /// first of them is about to run dry; Seekless itself wakes no disk. For disks with little to do
    #[arg(long)]
    pub quiet: bool,
    /// How long a client may wait because the pieces of others are long: a time of 1ms to 1h, auto (about as
    /// long as with the kernel's own read-ahead), or off (only throughput counts)
    #[arg(long, default_value = "auto", value_name = "WAIT", help_heading = BOUNDS)]
    pub longest_wait: LongestWait,
    /// Least part of a disk's time for writes while they wait for it, 0 to 0.9, or off: reads take no account
    /// of writes
    #[arg(
        long,
        default_value_t = Writers::default(),
        value_name = "SHARE|off",
        help_heading = BOUNDS,
        hide_short_help = true,
        hide_long_help = true
    )]
    pub writers: Writers,
    /// Pass a request after its disk has read nothing for this many seconds (0.01 to 1000000); its caller
    /// then reads for itself
    #[arg(
        long,
        alias = "stalled",
        default_value_t = 30.0,
        value_name = "SECONDS",
        value_parser = seconds,
        help_heading = BOUNDS,
        hide_short_help = true,
        hide_long_help = true
    )]
    pub stall_timeout: f64,
    /// Bitrate of all streams, in bits a second (8 to 10^12) [default: from --bitrates, else observed]
    #[arg(
        long,
        value_name = "BITS",
        value_parser = clap::value_parser!(u64).range(8..=1_000_000_000_000),
        help_heading = PAPERS,
        hide_short_help = true,
        hide_long_help = true
    )]
    pub bitrate: Option<u64>,
    /// How the size depends on a stream's bitrate: sqrt, linear, same, a factor of 0 to 1 for lower bitrates,
    /// or a table BYTES_PER_S=FACTOR,... [default: with --prefetch auto sqrt for known bitrates, else same]
    #[arg(long, value_name = "RULE", help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub scale: Option<BitrateRule>,
    /// Largest automatic or competitive size, 4KiB to 4GiB
    #[arg(long, default_value = "32MiB", value_name = "SIZE", help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub size_max: Bytes,
    /// The papers' parameters
    #[command(flatten)]
    pub parameters: Parameters,
}

impl PolicyOptions {
    /// The configuration that the options give in this mode.
    ///
    /// # Errors
    /// A size, a budget or a parameter is out of range; the size is automatic in a mode in which the policy
    /// does not extend reads, or by the model without the streams that it needs.
    pub fn config(&self, mode: Mode) -> Result<Config, Fault> {
        let preset = self.preset.unwrap_or_default().values();
        let ahead = self.ahead.unwrap_or(preset.ahead);
        let mut config = Config { mode, order: self.order.unwrap_or(preset.order), ..Config::default() };
        config.small_in_flight = preset.small_in_flight;
        let (size_max, parameters) = (self.size_max, self.parameters.values()?);
        parameters.apply(&mut config, preset);
        if parameters.preads && mode != Mode::Prefetch {
            return Err(Fault::usage(
                "--parameter preads=true is for --mode prefetch; write that, or leave it out",
            ));
        }
        // Only in mode `both` does the policy extend reads. In mode `prefetch` the shim extends them, and
        // needs a fixed size; a preset's automatic one does not apply.
        let found = if mode == Mode::Both { preset.prefetch } else { Prefetch::Fixed(DEFAULT_PREFETCH) };
        let prefetch = self.prefetch.unwrap_or(found);
        let by_default = if ahead { preset.adjust_by } else { AdjustBy::Gradient };
        let adjust_by = parameters.adjust_by.unwrap_or(by_default);
        // Checked whatever the size is, so that a mistake is not met later.
        let params = parameters.params(adjust_by, size_max)?;
        match prefetch {
            // "Serialization-only mode (...) is identical to prefetching with a prefetch size of zero"
            // ([L] 3.2).
            Prefetch::Fixed(Bytes::ZERO) => {
                config.prefetch = Bytes::ZERO;
                if mode == Mode::Both {
                    config.mode = Mode::Serialise;
                }
            }
            Prefetch::Fixed(size) => {
                let page = Bytes(PAGE);
                if size < page || size > PREFETCH_MAX {
                    return Err(Fault::usage(format!(
                        "--prefetch {size} is out of range; write {page} to {PREFETCH_MAX}, or 0"
                    )));
                }
                config.prefetch = size;
                config.read_max = config.read_max.max(size);
            }
            Prefetch::Auto if mode != Mode::Both => {
                return Err(Fault::usage("--prefetch auto learns from every read, so it needs --mode both"));
            }
            Prefetch::Auto if !ahead && adjust_by == AdjustBy::Model => {
                return Err(Fault::usage(
                    "--parameter adjust-by=model needs --ahead on; write that, or adjust-by=gradient",
                ));
            }
            Prefetch::Auto => {
                config.sizing = Sizing::Auto(params);
                config.read_max = config.read_max.max(size_max);
            }
            Prefetch::Competitive => {
                config.sizing = Sizing::Competitive(parameters.start());
                config.read_max = config.read_max.max(size_max);
            }
        }
        if self.quiet && (!ahead || mode != Mode::Both) {
            return Err(Fault::usage("--quiet reads long ahead, so it needs --mode both and --ahead on"));
        }
        if let Some(budget) = self.budget.filter(|budget| *budget < BUDGET_MIN) {
            return Err(Fault::usage(format!(
                "--budget {budget} is out of range; write {BUDGET_MIN} or more (--ahead off reads nothing ahead)"
            )));
        }
        config.stall_max = Nanos::from_secs_f64(self.stall_timeout);
        config.scale_by_observed = self.scale.is_some();
        config.scale = self.scale.clone().unwrap_or(match prefetch {
            Prefetch::Auto => BitrateRule::SquareRoot,
            _ => BitrateRule::Same,
        });
        config.bitrate = self.bitrate.map(|bits| bits / 8);
        config.ahead = ahead.then(|| AheadConfig {
            budget: self.budget,
            longest_wait: self.longest_wait,
            quiet: self.quiet,
            ..AheadConfig::default()
        });
        config.writers = self.writers.0;
        config.start_size = parameters.start_size;
        Ok(config)
    }

    /// Whether all disks share one queue; a driver with several disks asks.
    ///
    /// # Errors
    /// Those of [`PolicyOptions::config`] about the papers' parameters.
    pub fn single_queue(&self) -> Result<bool, Fault> {
        let preset = self.preset.unwrap_or_default().values();
        Ok(self.parameters.values()?.single_queue.unwrap_or(preset.single_queue))
    }

    /// Whether the shim reads the longer range itself in mode `prefetch`; a driver with a shim asks.
    ///
    /// # Errors
    /// Those of [`PolicyOptions::config`] about the papers' parameters.
    pub fn preads(&self) -> Result<bool, Fault> {
        Ok(self.parameters.values()?.preads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};
    use seekless_policy::sizing::competitive::Start;
    use seekless_policy::sizing::controller::Params;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        policy: PolicyOptions,
        #[command(flatten)]
        queue: crate::QueueOptions,
    }

    fn parsed(words: &[&str]) -> PolicyOptions {
        Words::try_parse_from(std::iter::once("x").chain(words.iter().copied())).unwrap().policy
    }

    fn choice(words: &[&str]) -> Result<Config, Fault> {
        parsed(words).config(Mode::Both)
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let fault = |words: &[&str]| choice(words).map(|_| ()).unwrap_err().message;
        assert!(fault(&["--prefetch", "2GiB"]).contains("--prefetch 2GiB"));
        assert!(fault(&["--parameter", "adjust-by=model", "--ahead", "off"]).contains("--ahead on"));
        for budget in ["0", "1B", "8191KiB"] {
            assert!(fault(&["--budget", budget]).contains("write 8MiB or more"), "{budget}");
        }
        assert!(choice(&["--budget", "8MiB"]).is_ok());
        assert!(fault(&["--quiet", "--ahead", "off"]).contains("--ahead on"));
        assert!(fault(&["--quiet", "--preset", "libception"]).contains("--ahead on"));
        assert!(fault(&["--parameter", "preads=true"]).contains("--mode prefetch"));
        assert!(parsed(&["--parameter", "preads=true"]).config(Mode::Prefetch).is_ok());
        assert!(fault(&["--parameter", "adjust-busy=1.5"]).contains("--parameter adjust-busy = 1.5"));
        assert!(fault(&["--parameter", "adjust-interval=0"]).contains("adjust-interval"));
        assert!(fault(&["--parameter", "start-size=64MiB"]).contains("start-size = 64MiB"));
        assert!(fault(&["--parameter", "start-size=1B"]).contains("4KiB to --size-max"));
        assert!(fault(&["--parameter", "step-size=0B"]).contains("step-size"));
        assert!(fault(&["--parameter=score-deflation-factor=2"]).contains("score-deflation-factor"));
        // Reported even if the size is not automatic, before the value is relied on.
        assert!(fault(&["--prefetch", "4MiB", "--parameter", "adjust-evict=200"]).contains("adjust-evict"));
        assert!(fault(&["--size-max", "8KiB"]).starts_with("--size-max = 8KiB is out of range"));
    }

    #[test]
    fn the_default_is_the_automatic_size_ahead_of_need_in_disk_order() {
        let auto = choice(&[]).unwrap();
        assert_eq!(auto.sizing, Sizing::Auto(Params::default()));
        assert_eq!((auto.order, auto.ahead.is_some()), (OrderKind::Sweep, true));
        let ahead = auto.ahead.clone().unwrap();
        assert_eq!((ahead.budget, auto.start_size), (None, None));
        assert_eq!(auto.scale, BitrateRule::SquareRoot);
        assert_eq!(auto, choice(&["--preset", "auto"]).unwrap());
        let said = ["--prefetch", "auto", "--ahead", "on", "--order", "sweep"];
        assert_eq!(auto, choice(&said).unwrap());
    }

    #[test]
    fn a_preset_is_what_its_paper_does() {
        let libception = choice(&["--preset", "libception"]).unwrap();
        assert_eq!((libception.sizing, libception.prefetch), (Sizing::Fixed, Bytes::mib(2)));
        assert_eq!((libception.order, libception.ahead), (OrderKind::Fifo, None));
        assert_eq!(libception.scale, BitrateRule::Same);
        let none = choice(&["--preset", "libception", "--prefetch", "0"]).unwrap();
        assert_eq!((none.mode, none.prefetch), (Mode::Serialise, Bytes::ZERO), "serialise only");
        assert!(choice(&["--prefetch", "1KiB"]).unwrap_err().message.contains("or 0"));
        assert_eq!(libception.reads_in_flight, 1, "serialised");
        assert!(!libception.answer_early && parsed(&["--preset", "libception"]).single_queue().unwrap());
        let said = ["--preset", "libception", "--parameter", "answer-late=false,single-queue=false"];
        assert!(choice(&said).unwrap().answer_early && !parsed(&said).single_queue().unwrap());

        let asap = choice(&["--preset", "asap"]).unwrap();
        let table2 = Params { adjust_by: AdjustBy::Gradient, ..Params::default() };
        assert_eq!(asap.sizing, Sizing::Auto(table2));
        assert_eq!((asap.order, asap.ahead), (OrderKind::Fifo, None));

        let competitive = choice(&["--preset", "competitive"]).unwrap();
        assert_eq!(competitive.sizing, Sizing::Competitive(Start::Depth));
        assert_eq!(competitive.order, OrderKind::Sweep);
        assert!(competitive.ahead.is_some());
    }

    #[test]
    fn what_is_given_overrides_its_part_of_the_preset() {
        let mixed = choice(&["--preset", "libception", "--order", "sweep", "--prefetch", "8MiB"]).unwrap();
        assert_eq!((mixed.order, mixed.prefetch), (OrderKind::Sweep, Bytes::mib(8)));
        assert_eq!(mixed.ahead, None, "the rest stays the preset's");
        let off = choice(&["--ahead", "off"]).unwrap();
        let Sizing::Auto(params) = off.sizing else { panic!("not automatic") };
        assert_eq!(params.adjust_by, AdjustBy::Gradient, "the model needs streams");
        assert!(choice(&["--preset", "asap", "--ahead", "on"]).unwrap().ahead.is_some());
    }

    #[test]
    fn a_mode_that_extends_nothing_here_has_a_fixed_size() {
        for mode in [Mode::Off, Mode::Track, Mode::Serialise, Mode::Prefetch] {
            let choice = parsed(&[]).config(mode).unwrap();
            assert_eq!((choice.sizing, choice.prefetch), (Sizing::Fixed, DEFAULT_PREFETCH));
            let fault = parsed(&["--prefetch", "auto"]).config(mode).map(|_| ()).unwrap_err();
            assert!(fault.message.contains("--mode both"), "{}", fault.message);
        }
    }

    #[test]
    fn the_stall_timeout_has_its_old_name_too() {
        assert_eq!(choice(&["--stalled", "5"]).unwrap(), choice(&["--stall-timeout", "5"]).unwrap());
        assert!(!Words::command().render_long_help().to_string().contains("--stalled"));
    }

    /// The manual page and `seekless config --show` have the papers' parameters.
    #[test]
    fn help_shows_what_people_use_and_no_parameter_of_the_papers() {
        let short = Words::command().render_help().to_string();
        let long = Words::command().render_long_help().to_string();
        for person in ["--preset", "--prefetch", "--ahead", "--budget"] {
            assert!(short.contains(person) && long.contains(person), "{person}");
        }
        for paper in ["--parameter", "--scale", "--bitrate "] {
            assert!(!short.contains(paper) && !long.contains(paper), "{paper}");
        }
    }
}
