//! Coordinators: they stand between the requests of an upper cache level and the native cache and prefetcher
//! of the lower one (PFC, section 3.1).
//!
//! For each request a coordinator returns a [`Split`]: how many blocks from its start bypass the native cache
//! (read straight from below, or silently from the cache), how many blocks are added behind its end for the
//! native side only (*readmore*), and whether the blocks sent up leave the cache first (DU).
//!
//! Module [`pfc`] is the PreFetching-Coordinator. The coordinators that the paper's study compares with it
//! are in the simulator.

pub mod pfc;

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
    /// Number of requested blocks, at least one.
    pub fn len(&self) -> u64 {
        self.last - self.first + 1
    }

    /// Never: a request asks for at least one block.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Blocks from the start of the request that bypass the native side; at most the length of the request.
    pub bypass: u64,
    /// Blocks behind the end of the request that the native side fetches as well, though no reader waits for
    /// them.
    pub readmore: u64,
    /// Whether blocks sent up leave this cache first.
    pub demote: bool,
    /// Whether the requested blocks and those fetched ahead go down as two requests, which the scheduler
    /// below merges only under a backlog.
    pub demand_first: bool,
}

#[cfg(test)]
mod tests;
