//! How much of a disk file sets get: options of the commands that serve them, real or simulated.

use clap::Args;
use seekless_base::share;
use seekless_policy::{Config, DEFAULT_SHARE};

/// How much of a disk file sets get.
#[derive(Args, Clone, Debug)]
pub struct FileSetOptions {
    /// Least part of a disk's time for file sets (`seekless order`, `cat-set`) while they wait for it, 0 to 1
    #[arg(long, default_value_t = DEFAULT_SHARE, value_name = "SHARE", value_parser = share, hide_short_help = true, hide_long_help = true)]
    pub share: f64,
}

impl FileSetOptions {
    /// Copies them into the configuration of a disk queue.
    pub fn apply(&self, config: &mut Config) {
        config.share = self.share;
    }

    /// The same options as arguments for another command.
    pub fn to_args(&self) -> Vec<String> {
        vec![format!("--share={}", self.share)]
    }
}
