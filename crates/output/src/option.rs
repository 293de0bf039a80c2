//! `--json`, which every command with a result takes, and `--html`.

use std::path::{Path, PathBuf};

use clap::Args;

/// Where a command writes its result as JSON.
#[derive(Args, Clone, Debug, Default)]
pub struct JsonOption {
    /// Write the result as JSON, to standard output or to FILE
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Where a command writes its result as a page.
#[derive(Args, Clone, Debug, Default)]
pub struct HtmlOption {
    /// Write the result as a page for a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl JsonOption {
    /// `-` for standard output. `None`: no JSON was asked for.
    pub fn path(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// Whether JSON takes the place of the text on standard output.
    pub fn is_stdout(&self) -> bool {
        self.path().is_some_and(super::is_stdout)
    }
}
