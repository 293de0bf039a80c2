//! What file sets have of a disk: options of the commands that serve them, really or in virtual time.

use clap::Args;
use seekless_base::share;
use seekless_policy::{Config, DEFAULT_SHARE};

/// What file sets have of a disk.
#[derive(Args, Clone, Debug)]
pub struct FileSetOptions {
    /// Least part of a disk's time that file sets have while they wait for it (`seekless order`, `cat-set`),
    /// 0 to 1; beyond it they have what others leave
    #[arg(long, default_value_t = DEFAULT_SHARE, value_name = "SHARE", value_parser = share, hide_short_help = true)]
    pub share: f64,
}

impl FileSetOptions {
    /// Puts them into the configuration of a spindle.
    pub fn apply(&self, spindle: &mut Config) {
        spindle.share = self.share;
    }

    /// The same as words for another command.
    pub fn words(&self) -> Vec<String> {
        vec![format!("--share={}", self.share)]
    }
}
