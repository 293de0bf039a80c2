//! Who asks for what.

use seekless_units::Bytes;
use serde::{Deserialize, Serialize};

/// The kinds of load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Load {
    /// Clients that ask for the next range of a file as soon as they have the one before.
    Closed {
        /// Clients on each disk.
        clients: u32,
        /// Bytes a request.
        range: Bytes,
        /// Seconds before counting.
        warmup_s: f64,
        /// Seconds counted.
        duration_s: f64,
        /// Read the whole library into the page cache first (for the cost of the shim on hits).
        #[serde(default)]
        preload: bool,
    },
    /// Video sessions whose rate rises until 0.3 % of them fail; reports the highest rate before that.
    Ramp {
        /// Requests a second at the start, in the workload's own (unscaled) time.
        from: f64,
        /// Requests a second at the end; failures end the ramp earlier.
        to: f64,
        /// Seconds before the disk's counters are set to zero, in workload time.
        warmup_s: f64,
        /// Seconds of the ramp, in workload time.
        duration_s: f64,
    },
    /// Downloads of whole files, arriving at random.
    Downloads {
        /// Clients at work on average, if every one gets its link's rate all the time.
        clients: u32,
        /// Link rate of every client, such as `10Mb/s`.
        link: String,
        /// Number of files, equally likely.
        files: u32,
        /// Size of each.
        file_size: Bytes,
        /// Seconds before counting.
        warmup_s: f64,
        /// Seconds counted.
        duration_s: f64,
    },
    /// `diff -r` of two source trees, `instances` pairs at once; reports the completion time.
    Diff {
        /// Pairs compared at the same time.
        instances: u32,
        /// Files a tree.
        files: u32,
    },
}

impl Load {
    /// For `--quick`.
    pub(super) fn shorten(&mut self, warmup: Option<f64>, duration: Option<f64>) {
        match self {
            Load::Closed { warmup_s, duration_s, .. }
            | Load::Ramp { warmup_s, duration_s, .. }
            | Load::Downloads { warmup_s, duration_s, .. } => {
                *warmup_s = warmup.unwrap_or(*warmup_s);
                *duration_s = duration.unwrap_or(*duration_s);
            }
            Load::Diff { .. } => {}
        }
    }

    /// Sets the number of clients or instances.
    pub(super) fn set_clients(&mut self, count: u32) {
        match self {
            Load::Closed { clients, .. } | Load::Downloads { clients, .. } => *clients = count,
            Load::Diff { instances, .. } => *instances = count,
            Load::Ramp { .. } => {}
        }
    }

    /// Whether a web server is needed.
    pub fn is_http(&self) -> bool {
        !matches!(self, Load::Diff { .. })
    }
}
