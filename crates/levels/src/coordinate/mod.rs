//! Coordinators: what stands between the requests of an upper cache level and the native cache and prefetcher
//! of the lower one (PFC, section 3.1).
//!
//! For each request a coordinator answers with a [`Split`]: how many blocks from its start go past the native
//! cache (*bypass*: straight to what lies below, or silently out of the cache), how many blocks are added
//! behind its end for the native side only (*readmore*), and whether what was sent up is to leave the cache
//! first (DU).
//!
//! Module [`pfc`] is the PreFetching-Coordinator. What the paper's study compares with it is in the
//! simulator. Module [`returns`] answers another question, for upper levels that fetch slices of one length:
//! what to keep here at all.

pub mod lingering;
pub mod pfc;
pub mod returns;

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
    /// What is asked for and what the native side fetches ahead go down as two requests; the scheduler below
    /// merges them only under a backlog.
    pub demand_first: bool,
}

#[cfg(test)]
mod tests;
