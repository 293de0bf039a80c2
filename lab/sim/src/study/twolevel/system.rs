//! What is simulated: cache levels from the application down, the network between them, the disk below.

use crate::study::cache::Replacement;
use crate::study::coordinate::Coordination;
use crate::study::prefetch::Algorithm;
use seekless_base::Nanos;
use seekless_model::drive::DriveSpec;

/// One cache level.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelSpec {
    /// What leaves.
    pub replacement: Replacement,
    /// What is fetched ahead.
    pub prefetch: Algorithm,
    /// What stands between it and the level above; meaningless at the top level.
    pub coordination: Coordination,
    /// Blocks it holds.
    pub capacity_blocks: u64,
}

/// What one exchange between two levels costs beyond the lower level's work: alpha + beta x blocks sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// alpha, once an exchange. PFC measured 6 ms.
    pub alpha: Nanos,
    /// beta, each block. PFC measured 0.03 ms a page.
    pub beta: Nanos,
}

impl Network {
    /// PFC section 4.1: 6 ms and 0.03 ms a page, measured between two computers in a LAN.
    pub const PFC: Network = Network { alpha: Nanos::from_millis(6), beta: Nanos::from_micros(30) };
    /// Levels of one machine.
    pub const NONE: Network = Network { alpha: Nanos::ZERO, beta: Nanos::ZERO };

    /// Cost of sending `blocks` up.
    pub fn cost(&self, blocks: u64) -> Nanos {
        Nanos(self.alpha.0.saturating_add(self.beta.0.saturating_mul(blocks)))
    }
}

/// How requests are issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// At the times of the trace, multiplied by this (2 is half as fast), whatever became of earlier ones.
    Trace {
        /// Factor on the times.
        stretch: f64,
    },
    /// So many at a time; the next one when one completes. The times of the trace are ignored.
    Closed {
        /// Requests under way at once, at least 1.
        clients: u32,
    },
}

/// What a request that misses waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// The whole read that brings its blocks, what is fetched ahead with them included: one request to what
    /// lies below.
    #[default]
    Whole,
    /// Its own blocks. They and what is fetched ahead go down as two requests, one behind the other; those to
    /// the disk become one again where they meet in its queue.
    Own,
    /// Its own blocks, and the disk's queue joins the two only under a backlog.
    DemandFirst,
}

/// What PFC leaves open about the system itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// What a request that misses waits for, at every level.
    pub waiting: Waiting,
}

/// The whole system.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemSpec {
    /// From the application (L1) down.
    pub levels: Vec<LevelSpec>,
    /// Between any two levels.
    pub network: Network,
    /// `None`: what lies below takes no time (counts only).
    pub drive: Option<DriveSpec>,
    /// Devices of the trace, which divide the drive into equal parts; 0: not known, and they begin spread
    /// over the drive by the golden ratio.
    pub devices: u64,
    /// Bytes a block, a multiple of 512.
    pub block_bytes: u64,
    /// How requests are issued.
    pub timing: Pacing,
}

/// One request of the application. Blocks are keys (device and number), inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// When, from the start of the trace.
    pub at: Nanos,
    /// File, client or device: whatever the prefetchers are to keep apart.
    pub context: u32,
    /// First block.
    pub first: u64,
    /// Last block.
    pub last: u64,
    /// Last block of the file. Only a prefetcher that knows files stops there
    /// ([`crate::study::prefetch::Algorithm::knows_files`]).
    pub limit: u64,
}
