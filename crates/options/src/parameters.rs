//! `--parameter NAME=VALUE`: the papers' parameters. Those of the automatic size have the names of \[A\]
//! section 4.1, and the values of its Table 2 as defaults.

use clap::Args;
use seekless_base::{Bytes, Fault, Nanos};
use seekless_policy::Config;
use seekless_policy::sizing::competitive::Start;
use seekless_policy::sizing::controller::{AdjustBy, Params};
use serde::Deserialize;
use smart_default::SmartDefault;

use crate::policy::PREFETCH_MAX;
use crate::preset::Values;
use crate::{PAPERS, named, parsed};

/// Options of the previous release that are parameters now.
pub const MOVED: [&str; 12] = [
    "start-size",
    "adjust-by",
    "adjust-interval",
    "step-size",
    "score-deflation-factor",
    "adjust-busy",
    "adjust-evict",
    "in-flight",
    "overlap",
    "slow-start",
    "answer-late",
    "single-queue",
];

/// The papers' parameters.
#[derive(Args, Clone, Debug, Default)]
pub struct Parameters {
    /// Parameters of the papers, as NAME=VALUE,...; an unknown name lists them all
    ///
    /// Names: start-size, adjust-by, adjust-interval, step-size, score-deflation-factor, adjust-busy,
    /// adjust-evict (of the automatic size), slow-start, in-flight, overlap, answer-late, single-queue,
    /// preads.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = known, help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    parameter: Vec<String>,
}

/// The values of the parameters.
#[derive(Clone, Debug, Deserialize, SmartDefault)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct ParameterValues {
    /// First automatic size, 4KiB to --size-max. None: the size last used on that disk, else from its
    /// profile.
    pub(crate) start_size: Option<Bytes>,
    /// `model` (of disk, memory and clients; needs --ahead on) or `gradient` (the paper's controller).
    pub(crate) adjust_by: Option<AdjustBy>,
    /// Time between two adjustments, 1ms to 24h.
    #[serde(deserialize_with = "parsed")]
    #[default(Params::default().adjust_interval)]
    adjust_interval: Nanos,
    /// Change of the size at an adjustment, 4KiB to 1GiB.
    #[default(Params::default().step_size)]
    step_size: Bytes,
    /// Part by which stored scores shrink at a minimum, 0 to 0.99.
    #[default(Params::default().score_deflation_factor)]
    score_deflation_factor: f64,
    /// Part of the time that the disk must be busy for the size to change, 0 to 1.
    #[default(Params::default().adjust_busy)]
    adjust_busy: f64,
    /// Bytes evicted before use, as a part of the bytes requested, above which the time to eviction sets the
    /// size, 0 to 100.
    #[default(Params::default().adjust_evict)]
    adjust_evict: f64,
    /// With --prefetch competitive: begin each stream with 16 pages and double them, as the paper does,
    /// instead of reading the whole length at once.
    slow_start: bool,
    /// Reads in flight on one disk, 1 to 64: 1 is strictly serial; from 2 on the next read is submitted
    /// shortly before the last one ends.
    #[default(1)]
    in_flight: u32,
    /// With in-flight 2 or more: submit the next read when this many bytes of the last are missing, at most
    /// 1GiB.
    #[default(Bytes::kib(256))]
    overlap: Bytes,
    /// Answer at the end of the whole read, as the paper does, instead of when the requested bytes have
    /// arrived. None: the preset's.
    answer_late: Option<bool>,
    /// One queue for all disks, as in \[L\], instead of one for each. The driver has it. None: the preset's.
    pub(crate) single_queue: Option<bool>,
    /// With --mode prefetch, the shim reads the longer range by a call of its own, as Libception's does,
    /// instead of asking the kernel to read ahead. The driver has it.
    pub(crate) preads: bool,
}

fn known(word: &str) -> Result<String, String> {
    named::<ParameterValues>(&[word.into()]).map(|_| word.into())
}

impl Parameters {
    /// # Errors
    /// `in-flight` or `overlap` is out of range.
    pub(crate) fn values(&self) -> Result<ParameterValues, Fault> {
        let usage = |why| Fault::usage(format!("--parameter {why}"));
        let values: ParameterValues = named(&self.parameter).map_err(usage)?;
        if !(1..=64).contains(&values.in_flight) {
            return Err(usage(format!("in-flight={}: write 1 to 64", values.in_flight)));
        }
        if values.overlap > PREFETCH_MAX {
            return Err(usage(format!("overlap={}: write at most {PREFETCH_MAX}", values.overlap)));
        }
        Ok(values)
    }
}

impl ParameterValues {
    /// The controller's parameters.
    ///
    /// # Errors
    /// One is out of range.
    pub(crate) fn params(&self, adjust_by: AdjustBy, size_max: Bytes) -> Result<Params, Fault> {
        let params = Params {
            start_size: self.start_size.unwrap_or(Params::default().start_size.min(size_max)),
            adjust_interval: self.adjust_interval,
            step_size: self.step_size,
            score_deflation_factor: self.score_deflation_factor,
            adjust_busy: self.adjust_busy,
            adjust_evict: self.adjust_evict,
            size_max,
            adjust_by,
        };
        let usage = |why: String| {
            let why = why.replace("size_max", "--size-max").replace('_', "-");
            let option = if why.starts_with("--") { "" } else { "--parameter " };
            Fault::usage(format!("{option}{why}"))
        };
        params.check().map(|()| params).map_err(usage)
    }

    /// How a stream of the competitive size begins.
    pub(crate) fn start(&self) -> Start {
        if self.slow_start { Start::Slow } else { Start::Depth }
    }

    /// How the reads of a disk follow one another.
    pub(crate) fn apply(&self, config: &mut Config, preset: Values) {
        config.reads_in_flight = self.in_flight as usize;
        config.overlap = self.overlap;
        config.answer_early = !self.answer_late.unwrap_or(preset.answer_late);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(word: &str) -> String {
        let given = known(word).map(|word| Parameters { parameter: vec![word] });
        given.map_or_else(|why| why, |given| given.values().unwrap_err().message)
    }

    #[test]
    fn every_option_that_moved_is_a_name_and_others_are_none() {
        let names = fault("adjust=1");
        let all: Vec<&str> = MOVED.into_iter().chain(["preads"]).collect();
        assert_eq!(names.matches('`').count() / 2 - 1, all.len(), "{names}");
        assert!(all.iter().all(|name| names.contains(&format!("`{name}`"))), "{names}");
        assert!(fault("slow-start").contains("NAME=VALUE"));
    }

    #[test]
    fn values_are_within_their_ranges() {
        for (word, said) in [
            ("in-flight=65", "--parameter in-flight=65: write 1 to 64"),
            ("in-flight=0", "1 to 64"),
            ("overlap=1025MiB", "at most 1GiB"),
            ("overlap=x", "overlap=x: "),
            ("adjust-by=hope", "gradient"),
        ] {
            assert!(fault(word).contains(said), "{word}: {}", fault(word));
        }
        assert!(Parameters { parameter: vec!["overlap=1GiB".into()] }.values().is_ok());
    }
}
