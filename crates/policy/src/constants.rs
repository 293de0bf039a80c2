//! The constants of the read path, in one place.
//!
//! None of these numbers can be derived from the disk's profile, from observation or from memory. They are
//! not options: a user has no reason to change them. The simulator accepts other values (`seekless-lab sim
//! serve
//! --constant NAME=VALUE`), and `seekless-lab run sensitivity --sim` shows the effect of half and double of
//! each.

use seekless_base::Nanos;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// The constants. Times are in seconds, sizes in bytes, shares within 0 to 1 unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct Constants {
    /// Most queued read-ahead pieces. A new miss may wait a whole sweep over them; with fewer, the sweep has
    /// less to order.
    #[default(16)]
    pub queue_ahead: u64,
    /// Length of the pieces that the automatic wait allows to everybody, in units of what the disk transfers
    /// in one switch. At half, a tenth less is read. At double, most clients wait longer than for the
    /// kernel's own read-ahead of 2,560 KiB.
    #[default(6.0)]
    pub wait_depths: f64,
    /// While everybody still has a turn within this time, pieces may be twice that length. Users keep their
    /// train of thought for about a second (Nielsen, "Usability Engineering", 1993, section 5.5). At half,
    /// twice as many machines with few readers fall behind the best-tuned kernel. At double, twice as many
    /// have a client that waits longer than with it.
    #[default(1.0)]
    pub wait_unnoticed_s: f64,
    /// A stream silent for this long may have lost its client. Nothing is read ahead for it until it reads
    /// again. Longer than a player's ten-second segment (\[A\] 6.2, \[L\] 4), and longer than a read whose
    /// end is not reported: a socket takes the rest of a `sendfile` as its client makes room.
    #[default(12.0)]
    pub quiet_s: f64,
    /// Up to this many budgets of unread bytes, a blocked client is served its whole piece; beyond, half of
    /// it.
    #[default(1.2)]
    pub blocked_over_budget: f64,
    /// Share of the memory that may hold fetched and unread bytes. The rest is for bytes in flight and bytes
    /// that servers read twice.
    #[default(0.8)]
    pub budget_share: f64,
    /// The assumed memory shrinks by this share when bytes that should have been kept were evicted.
    #[default(0.1)]
    pub budget_step: f64,
    /// Share of the streams that may exceed what counts as the highest bitrate. It keeps one download from
    /// making every other piece small.
    #[default(0.05)]
    pub bitrate_outliers: f64,
}

impl Constants {
    /// The same with every value in range. NaN becomes the default.
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
            wait_depths: within(self.wait_depths, default.wait_depths, 0.0, 1e6),
            wait_unnoticed_s: within(self.wait_unnoticed_s, default.wait_unnoticed_s, 0.0, 1e6),
            quiet_s: within(self.quiet_s, default.quiet_s, 0.0, 1e6),
            blocked_over_budget: within(self.blocked_over_budget, default.blocked_over_budget, 0.0, 1e6),
            budget_share: budget(self.budget_share, default.budget_share),
            budget_step: part(self.budget_step, default.budget_step),
            bitrate_outliers: part(self.bitrate_outliers, default.bitrate_outliers),
        }
    }
}

/// A constant in seconds as a time. Invalid values become 0.
pub(crate) fn time(seconds: f64) -> Nanos {
    Nanos::from_secs_f64(if seconds.is_finite() { seconds.max(0.0) } else { 0.0 })
}
