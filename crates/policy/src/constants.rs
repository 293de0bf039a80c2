//! The constants of the read path, in one place.
//!
//! Each is a number that could not be derived from the disk's profile, from what is observed or from memory.
//! They are no options: a user has no reason to change them. The simulator takes other values
//! (`seekless sim serve --constant NAME=VALUE`), and `seekless lab run sensitivity --sim` shows what half and
//! double of each does.

use seekless_units::Nanos;
use serde::{Deserialize, Serialize};

/// The constants. Times are in seconds, sizes in bytes, parts within 0 to 1 unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Constants {
    /// Most queued read-ahead pieces. A new miss may wait a whole sweep over them; fewer give the sweep less
    /// to order.
    pub queue_ahead: u64,
    /// A stream silent for so long may have lost its client: nothing is read ahead for it until it reads
    /// again. Longer than a player's ten-second segment (\[A\] 6.2, \[L\] 4). Nor does a read
    /// whose end is not reported take longer: a socket takes the rest of a `sendfile` as its client makes
    /// room.
    pub quiet_s: f64,
    /// A blocked client is served its whole piece up to this many budgets, and half of it beyond.
    pub blocked_over_budget: f64,
    /// Part of the memory that may hold bytes that are fetched and unread. The rest is for bytes on their way
    /// and for what servers read twice.
    pub budget_share: f64,
    /// Part by which the memory that is counted on shrinks when what was to be kept is found gone.
    pub budget_step: f64,
    /// Part of the streams that may be faster than what counts as the highest bitrate: one download must not
    /// make every other piece small.
    pub bitrate_outliers: f64,
}

impl Default for Constants {
    fn default() -> Constants {
        Constants {
            queue_ahead: 16,
            quiet_s: 12.0,
            blocked_over_budget: 1.2,
            budget_share: 0.8,
            budget_step: 0.1,
            bitrate_outliers: 0.05,
        }
    }
}

impl Constants {
    /// The same with every value inside its range; what is no number becomes the default.
    pub(crate) fn normalised(self) -> Constants {
        let default = Constants::default();
        let within = |value: f64, default: f64, least: f64, most: f64| match value.is_nan() {
            true => default,
            false => value.clamp(least, most),
        };
        let part = |value, default| within(value, default, 0.0, 1.0);
        let budget = |value, default| within(value, default, 0.05, 1.0);
        Constants {
            queue_ahead: self.queue_ahead.min(1 << 20),
            quiet_s: within(self.quiet_s, default.quiet_s, 0.0, 1e6),
            blocked_over_budget: within(self.blocked_over_budget, default.blocked_over_budget, 0.0, 1e6),
            budget_share: budget(self.budget_share, default.budget_share),
            budget_step: part(self.budget_step, default.budget_step),
            bitrate_outliers: part(self.bitrate_outliers, default.bitrate_outliers),
        }
    }
}

/// A constant in seconds as a time; nonsense counts as none.
pub(crate) fn time(seconds: f64) -> Nanos {
    Nanos::from_secs_f64(if seconds.is_finite() { seconds.max(0.0) } else { 0.0 })
}
