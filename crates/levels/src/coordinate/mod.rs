//! Coordinators: what stands between the requests of an upper cache level and the native cache and prefetcher of the
//! lower one (PFC, section 3.1).
//!
//! For each request a coordinator answers with a [`Split`]: how many blocks from its start go past the native cache
//! (*bypass*: straight to what lies below, or silently out of the cache), how many blocks are added behind its end
//! for the native side only (*readmore*), and whether what was sent up is to leave the cache first (DU).
//!
//! - [`Coordinator::None`]: the request goes to the native side as it is.
//! - [`Coordinator::Du`]: the same, and blocks sent up are demoted (Chen et al., as PFC section 4.3 defines it).
//! - [`Coordinator::Pfc`]: the PreFetching-Coordinator, module [`pfc`].
//! - [`Coordinator::Steer`]: ours, module [`steer`].
//!
//! Module [`returns`] answers another question, for upper levels that fetch slices of one length: what to keep here at all.

pub mod lingering;
pub mod pfc;
pub mod returns;
pub mod steer;
mod waits;

use crate::cache::Cache;

/// One request of the upper level. Blocks are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelRequest {
    /// File or client it belongs to.
    pub context: u32,
    /// First block.
    pub first: u64,
    /// Last block.
    pub last: u64,
}

impl LevelRequest {
    /// Blocks asked for, at least one.
    pub fn len(&self) -> u64 {
        self.last - self.first + 1
    }

    /// Never: a request asks for at least one block.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// What is to happen to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Blocks from the start of the request that go past the native side; at most the length of the request.
    pub bypass: u64,
    /// Blocks behind the end of the request that the native side is asked for as well. Nobody waits for them.
    pub readmore: u64,
    /// Blocks sent up leave this cache first.
    pub demote: bool,
    /// What is asked for and what the native side fetches ahead go down as two requests; the scheduler below merges them
    /// only under a backlog.
    pub demand_first: bool,
}

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
    Pfc(alloc::boxed::Box<pfc::Pfc>),
    /// See [`steer`].
    Steer(alloc::boxed::Box<steer::Steer>),
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
            Coordinator::Pfc(pfc) => pfc.decide(request, cache),
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
