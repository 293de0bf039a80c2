//! How a disk's queue is served: options of the commands with the paper's daemon, real or simulated.

use clap::Args;
use seekless_base::share;
use seekless_policy::{Config, DEFAULT_SHARE};

use crate::BOUNDS;

/// How a disk's queue is served.
#[derive(Args, Clone, Debug)]
pub struct QueueOptions {
    /// Most requests that wait for one disk, 1 to 65536; beyond it requests pass at once
    #[arg(
        long,
        default_value_t = 4096,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=65536),
        help_heading = BOUNDS,
        hide_short_help = true,
        hide_long_help = true
    )]
    pub queue: u32,
    /// Least part of a disk's time for file sets (`seekless order`, `cat-set`) while they wait for it, 0 to 1
    #[arg(long, default_value_t = DEFAULT_SHARE, value_name = "SHARE", value_parser = share, hide_short_help = true, hide_long_help = true)]
    pub share: f64,
}

impl QueueOptions {
    /// Copies them into the configuration of a disk queue.
    pub fn apply(&self, config: &mut Config) {
        config.queue_max = self.queue as usize;
        config.share = self.share;
    }
}
