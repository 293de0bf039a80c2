//! Named sets of values: the defaults of Seekless, and those of each paper.

use clap::ValueEnum;
use seekless_policy::sizing::controller::AdjustBy;
use seekless_policy::{DEFAULT_PREFETCH, OrderKind, Prefetch};

/// A set of values for options that are not given. An option that is given always wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Automatic size; reads ahead of need, in disk order
    #[default]
    Auto,
    /// Libception (2018): 2 MiB on a miss, one piece at a time for all disks, in order of arrival, answered
    /// when the whole piece is read
    Libception,
    /// Automated prefetch sizing (2014): a gradient search for the size, on a miss, in order of arrival
    Asap,
    /// Competitive prefetching (2007): what the disk transfers in the time of one seek; the rest as auto
    Competitive,
}

/// Small reads that a drive has at once ([`seekless_policy::Config::small_in_flight`]): as many as SATA's
/// command queue has places. At half the drive has fewer to choose from; at double a drive without a queue
/// is served in the kernel's order and not in a sweep.
const SMALL_IN_FLIGHT: usize = 32;

/// Values of the options that are not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) prefetch: Prefetch,
    pub(crate) order: OrderKind,
    pub(crate) ahead: bool,
    pub(crate) adjust_by: AdjustBy,
    pub(crate) small_in_flight: usize,
    pub(crate) single_queue: bool,
    pub(crate) answer_late: bool,
}

impl Preset {
    pub(crate) const fn values(self) -> Values {
        let auto = Values {
            prefetch: Prefetch::Auto,
            order: OrderKind::Sweep,
            ahead: true,
            adjust_by: AdjustBy::Model,
            small_in_flight: SMALL_IN_FLIGHT,
            single_queue: false,
            answer_late: false,
        };
        // Neither paper's server reads before a miss or sorts its queue.
        let on_a_miss = Values { order: OrderKind::Fifo, ahead: false, small_in_flight: 1, ..auto };
        match self {
            Preset::Auto => auto,
            Preset::Libception => Values {
                prefetch: Prefetch::Fixed(DEFAULT_PREFETCH),
                single_queue: true,
                answer_late: true,
                ..on_a_miss
            },
            Preset::Asap => Values { adjust_by: AdjustBy::Gradient, ..on_a_miss },
            Preset::Competitive => Values { prefetch: Prefetch::Competitive, small_in_flight: 1, ..auto },
        }
    }
}
