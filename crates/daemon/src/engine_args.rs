//! What the engine does with the reads it is asked about: the options that `daemon`, `run` and `watch` share.

use std::path::PathBuf;

use clap::Args;
use seekless_options::EngineOptions;
use seekless_policy::{Mode, Prefetch};
use seekless_units::{Bytes, Fault};

use crate::settings::DaemonSettings;

/// What the daemon does with the reads it is asked about; shared by `daemon`, `run` and `watch`.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// What to do: off, track (only time calls), serialise (one read at a time a disk), prefetch (enlarge reads, in
    /// no order), both (which --prefetch auto and --ahead need)
    #[arg(long, default_value = "both", value_name = "MODE")]
    pub mode: Mode,
    /// How far a read is extended: a size, for example 2MiB (the paper's) or 4MiB; auto (it finds itself; with --ahead on);
    /// competitive (what the disk transfers in the time of one seek, from its profile)
    #[arg(long, default_value = "2MiB", value_name = "SIZE|auto|competitive")]
    pub prefetch: Prefetch,
    /// One queue for all disks instead of one a disk
    #[arg(long)]
    pub single_queue: bool,
    /// Most requests waiting for one disk; more are passed on to the kernel at once
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
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
    /// What every engine is told
    #[command(flatten)]
    pub engine: EngineOptions,
}

impl EngineArgs {
    /// What the words come to; nothing is opened or created.
    pub(crate) fn settings(&self, socket: PathBuf) -> Result<DaemonSettings, Fault> {
        let mut settings = DaemonSettings {
            engine: self.engine.settings(self.mode, &self.prefetch)?,
            ..DaemonSettings::new(socket)
        };
        settings.engine.single_queue = self.single_queue;
        let spindle = &mut settings.engine.spindle;
        spindle.queue_max = self.queue as usize;
        spindle.reads_in_flight = self.in_flight as usize;
        spindle.overlap = self.overlap;
        spindle.answer_early = !self.answer_late;
        Ok(settings)
    }

    /// Begins the decision log, if there is to be one. Once a process: it makes the file anew.
    pub(crate) fn open_log(&self, settings: &mut DaemonSettings) -> Result<(), Fault> {
        self.engine.open_log(&mut settings.engine)
    }

    /// The same as words for another `seekless daemon`.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("--mode={}", self.mode.name()),
            format!("--prefetch={}", self.prefetch),
            format!("--queue={}", self.queue),
            format!("--in-flight={}", self.in_flight),
            format!("--overlap={}", self.overlap),
        ];
        let flags = [("--single-queue", self.single_queue), ("--answer-late", self.answer_late)];
        words.extend(flags.iter().filter(|f| f.1).map(|f| f.0.to_string()));
        words.extend(self.engine.words());
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

    fn settings(words: &[&str]) -> Result<DaemonSettings, Fault> {
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
    fn an_automatic_size_needs_every_read() {
        let fault = settings(&["--prefetch", "auto", "--mode", "serialise"]).map(|_| ()).unwrap_err();
        assert!(fault.message.contains("--mode both and --ahead on"), "{}", fault.message);
    }
}
