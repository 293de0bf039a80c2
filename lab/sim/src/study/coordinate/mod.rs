//! The coordinators that the study compares:
//!
//! - [`Coordinator::None`]: the request goes to the native side as it is.
//! - [`Coordinator::Du`]: the same, and blocks sent up are demoted (Chen et al., as PFC section 4.3 defines
//!   it).
//! - [`Coordinator::Pfc`]: the PreFetching-Coordinator, [`seekless_levels::coordinate::pfc`].
//! - [`Coordinator::Steer`]: ours, module [`steer`].

pub mod steer;
mod waits;

use crate::study::cache::Cache;
use seekless_levels::coordinate::{LevelRequest, Split, pfc};

/// Which coordinator, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Coordination {
    /// None.
    None,
    /// Blocks sent up leave first.
    Du,
    /// PreFetching-Coordinator.
    Pfc(pfc::PfcParams),
    /// Ours.
    Steer(steer::SteerParams),
}

/// The state of one coordinator.
#[derive(Clone, Debug)]
pub enum Coordinator {
    /// None.
    None,
    /// Blocks sent up leave first.
    Du,
    /// See [`pfc`].
    Pfc(Box<pfc::Pfc>),
    /// See [`steer`].
    Steer(Box<steer::Steer>),
}

impl Coordinator {
    /// A coordinator in front of a cache of `capacity` blocks.
    pub fn new(coordination: Coordination, capacity: usize) -> Coordinator {
        match coordination {
            Coordination::None => Coordinator::None,
            Coordination::Du => Coordinator::Du,
            Coordination::Pfc(params) => Coordinator::Pfc(pfc::Pfc::new(params, capacity).into()),
            Coordination::Steer(params) => Coordinator::Steer(steer::Steer::new(params, capacity).into()),
        }
    }

    /// Decides on one request. The cache may be looked at, not touched.
    #[inline]
    pub fn decide(&mut self, request: &LevelRequest, cache: &Cache) -> Split {
        match self {
            Coordinator::None => Split::default(),
            Coordinator::Du => Split { demote: true, ..Split::default() },
            Coordinator::Pfc(pfc) => pfc.decide(request, |block| cache.contains(block)),
            Coordinator::Steer(steer) => steer.decide(request, cache),
        }
    }

    /// Which way through PFC's algorithm 2 requests took, if this is PFC.
    pub fn pfc_counts(&self) -> Option<pfc::PfcCounts> {
        match self {
            Coordinator::Pfc(pfc) => Some(pfc.counts()),
            _ => None,
        }
    }

    /// A request came at `now_ns`; to be told before [`Coordinator::decide`]. Only Steer listens.
    #[inline]
    pub fn arrived(&mut self, now_ns: u64, request: &LevelRequest) {
        if let Coordinator::Steer(steer) = self {
            steer.arrived(now_ns, request);
        }
    }

    /// The request that ended with block `last` was answered at `now_ns`, `elapsed_ns` after it came.
    #[inline]
    pub fn answered(&mut self, now_ns: u64, elapsed_ns: u64, last: u64) {
        if let Coordinator::Steer(steer) = self {
            steer.answered(now_ns, elapsed_ns, last);
        }
    }
}

#[cfg(test)]
mod tests;
