//! Native sequential prefetchers of one cache level (PFC, section 2.2): what to fetch ahead of a request.
//!
//! A prefetcher is told of every request that reaches its level, after the cache was looked up
//! ([`Prefetcher::access`]), and answers with at most one run of blocks. It also hears of the first use of a
//! prefetched block, of its eviction before use, and of a request that had to wait for one; adaptive algorithms live
//! on these. It never sees time: the two-level study has none at this place.
//!
//! The level drops from the run what it already holds, sends a run that directly continues the missing blocks
//! together with them as one request (that is what a synchronous prefetch is), and everything else as a request of
//! its own that nobody waits for.
//!
//! One algorithm a file: [`ra`], [`linux`], [`sarc`], [`amp`].

pub mod amp;
pub mod linux;
pub mod ra;
pub mod sarc;

use crate::cache::{Cache, Evicted, Hit};

/// One request as a prefetcher sees it. Block numbers are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelAccess {
    /// File, client or device the request belongs to.
    pub context: u32,
    /// First block asked for.
    pub first: u64,
    /// Last block asked for.
    pub last: u64,
    /// First block asked for that was not cached, if any was not.
    pub first_miss: Option<u64>,
    /// A block whose mark starts the next prefetch was reached: its number and stream.
    pub trigger: Option<(u64, Option<u32>)>,
    /// The last block of a prefetched set was reached, for this stream.
    pub set_end: Option<u32>,
    /// A prefetched block was still on its way, for this stream, when it was asked for.
    pub waited: Option<u32>,
}

impl LevelAccess {
    /// A request of which nothing has been looked up yet.
    pub fn new(context: u32, first: u64, last: u64) -> LevelAccess {
        LevelAccess { context, first, last, first_miss: None, trigger: None, set_end: None, waited: None }
    }

    /// Takes note of what the cache said about one block of the request that it held.
    #[inline]
    pub fn note_hit(&mut self, block: u64, hit: Hit) {
        if hit.trigger {
            self.trigger = Some((block, hit.stream));
        }
        if hit.set_end {
            self.set_end = hit.stream;
        }
        if hit.fetch != 0 && hit.first_use {
            self.waited = hit.stream;
        }
    }

    /// Takes note of a block of the request that was not cached.
    #[inline]
    pub fn note_miss(&mut self, block: u64) {
        self.first_miss.get_or_insert(block);
    }

    /// Blocks asked for.
    pub fn len(&self) -> u64 {
        self.last - self.first + 1
    }

    /// Never: a request asks for at least one block.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// A run of blocks to fetch ahead. Inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// First block.
    pub first: u64,
    /// Last block.
    pub last: u64,
    /// Block to mark: reaching it starts the next prefetch.
    pub trigger: Option<u64>,
    /// Stream the blocks are for.
    pub stream: Option<u32>,
}

/// A prefetcher's answer to one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefetchPlan {
    /// The request is part of a sequential run: SARC's cache puts its blocks on SEQ.
    pub sequential: bool,
    /// What to fetch ahead, if anything.
    pub run: Option<BlockRun>,
    /// Stream the missing blocks of the request themselves belong to (AMP).
    pub stream: Option<u32>,
}

/// Which algorithm, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// Nothing is fetched ahead.
    None,
    /// P-block read-ahead with a fixed degree.
    Ra(ra::RaParams),
    /// Read-ahead of Linux 2.6.
    Linux(linux::LinuxParams),
    /// SARC's fixed degree and trigger distance.
    Sarc(sarc::SarcParams),
    /// AMP: both adaptive, by stream.
    Amp(amp::AmpParams),
}

/// The state of one level's prefetcher.
#[derive(Clone, Debug)]
pub enum Prefetcher {
    /// Nothing is fetched ahead.
    None,
    /// See [`ra`].
    Ra(ra::Ra),
    /// See [`linux`].
    Linux(linux::Linux),
    /// See [`sarc`].
    Sarc(sarc::Sarc),
    /// See [`amp`].
    Amp(amp::Amp),
}

impl Prefetcher {
    /// A prefetcher that has seen nothing yet.
    pub fn new(algorithm: Algorithm) -> Prefetcher {
        match algorithm {
            Algorithm::None => Prefetcher::None,
            Algorithm::Ra(params) => Prefetcher::Ra(ra::Ra::new(params)),
            Algorithm::Linux(params) => Prefetcher::Linux(linux::Linux::new(params)),
            Algorithm::Sarc(params) => Prefetcher::Sarc(sarc::Sarc::new(params)),
            Algorithm::Amp(params) => Prefetcher::Amp(amp::Amp::new(params)),
        }
    }

    /// What to fetch ahead now that this request has come. `cache` has been looked up for it already, but its
    /// missing blocks are not in yet.
    #[inline]
    pub fn access(&mut self, access: &LevelAccess, cache: &Cache) -> PrefetchPlan {
        match self {
            Prefetcher::None => PrefetchPlan::default(),
            Prefetcher::Ra(ra) => ra.access(access),
            Prefetcher::Linux(linux) => linux.access(access),
            Prefetcher::Sarc(sarc) => sarc.access(access, cache),
            Prefetcher::Amp(amp) => amp.access(access, cache),
        }
    }

    /// `count` blocks are being fetched ahead.
    #[inline]
    pub fn issued(&mut self, count: u64) {
        if let Prefetcher::Ra(ra) = self {
            ra.issued(count);
        }
    }

    /// A prefetched block was asked for, the first time.
    #[inline]
    pub fn first_use(&mut self) {
        if let Prefetcher::Ra(ra) = self {
            ra.first_use();
        }
    }

    /// A block was evicted; of interest are those that nobody had asked for.
    #[inline]
    pub fn evicted(&mut self, evicted: &Evicted) {
        if let Prefetcher::Amp(amp) = self
            && evicted.unused
            && let Some(stream) = evicted.stream
        {
            amp.evicted_unused(stream);
        }
    }
}

#[cfg(test)]
mod tests;
