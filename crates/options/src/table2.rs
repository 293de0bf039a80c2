//! Parameters of the automatic size, by the names of \[A\] section 4.1; the values of its Table 2 are the
//! defaults.

use clap::Args;
use seekless_base::{Bytes, Exit, Fault, Nanos};
use seekless_policy::sizing::controller::{AdjustBy, Params};

use crate::PAPERS;

/// Parameters of the automatic size.
#[derive(Args, Clone, Debug)]
pub struct Table2 {
    /// First automatic size, 4KiB to --size-max [default: the size last used on that disk, else from its
    /// profile]
    #[arg(long, value_name = "SIZE", help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub start_size: Option<Bytes>,
    /// What adjusts the automatic size: model (of disk, memory and clients; needs --ahead on) or gradient
    /// (the paper's controller) [default: model, with --ahead off gradient]
    #[arg(long, value_name = "HOW", help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub adjust_by: Option<AdjustBy>,
    /// Time between two adjustments, 1ms to 24h
    #[arg(long, default_value = "180s", value_name = "TIME", help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub adjust_interval: Nanos,
    /// Change of the size at an adjustment, 4KiB to 1GiB
    #[arg(long, default_value = "512KiB", value_name = "SIZE", help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub step_size: Bytes,
    /// Part by which stored scores shrink at a minimum, 0 to 0.99
    #[arg(long, default_value_t = 0.05, value_name = "PART", help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub score_deflation_factor: f64,
    /// Part of the time that the disk must be busy for the size to change, 0 to 1
    #[arg(long, default_value_t = 0.6, value_name = "PART", help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub adjust_busy: f64,
    /// Bytes evicted before use, as a part of the bytes requested, above which the time to eviction sets the
    /// size, 0 to 100
    #[arg(long, default_value_t = 0.05, value_name = "PART", help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub adjust_evict: f64,
    /// Largest automatic or competitive size, --step-size to 4GiB
    #[arg(long, default_value = "32MiB", value_name = "SIZE", help_heading = PAPERS, hide_short_help = true, hide_long_help = true)]
    pub size_max: Bytes,
}

impl Table2 {
    /// The controller's parameters.
    ///
    /// # Errors
    /// One is out of range.
    pub fn params(&self, adjust_by: AdjustBy) -> Result<Params, Fault> {
        let params = Params {
            start_size: self.start_size.unwrap_or(Params::default().start_size.min(self.size_max)),
            adjust_interval: self.adjust_interval,
            step_size: self.step_size,
            score_deflation_factor: self.score_deflation_factor,
            adjust_busy: self.adjust_busy,
            adjust_evict: self.adjust_evict,
            size_max: self.size_max,
            adjust_by,
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

    pub(crate) fn to_args(&self) -> Vec<String> {
        let mut words = vec![
            format!("--adjust-interval={}", self.adjust_interval.as_secs_f64()),
            format!("--step-size={}", self.step_size),
            format!("--score-deflation-factor={}", self.score_deflation_factor),
            format!("--adjust-busy={}", self.adjust_busy),
            format!("--adjust-evict={}", self.adjust_evict),
            format!("--size-max={}", self.size_max),
        ];
        words.extend(self.adjust_by.map(|how| format!("--adjust-by={how}")));
        words.extend(self.start_size.map(|s| format!("--start-size={s}")));
        words
    }
}
