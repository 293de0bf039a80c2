//! Native sequential prefetchers of one cache level (PFC, section 2.2): what to fetch ahead of a request.
//!
//! A prefetcher is notified of every block that is hit ([`Prefetcher::hit`]) and of every request that
//! reaches its level, after the cache was looked up ([`Prefetcher::access`]). It returns at most one run of
//! blocks, and stores its notes when they have entered the cache ([`Prefetcher::entered`]). It is also
//! notified of unused blocks that reached the end of the cache ([`Prefetcher::replaced`]). It does not use
//! time, which does not exist at this place of the two-level study.
//!
//! The level removes from the run what it already has, sends a run that directly continues the missing blocks
//! together with them as one request (a synchronous prefetch), and everything else as a separate request
//! without a waiting reader.
//!
//! One algorithm a file: [`ra`], [`linux`], [`sarc`], [`amp`].

pub mod amp;
pub mod linux;
pub mod ra;
pub mod sarc;

use crate::study::cache::{Cache, Hit, SecondChance};

/// One request as a prefetcher sees it. Block numbers are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelAccess {
    /// File, client or device the request belongs to; only an algorithm that knows files looks at it.
    pub context: u32,
    /// First block asked for.
    pub first: u64,
    /// Last block asked for.
    pub last: u64,
    /// First block asked for that was not cached, if any was not.
    pub first_miss: Option<u64>,
    /// A block whose mark starts the next prefetch was reached.
    pub trigger: Option<u64>,
}

impl LevelAccess {
    /// A request of which nothing has been looked up yet.
    pub fn new(context: u32, first: u64, last: u64) -> LevelAccess {
        LevelAccess { context, first, last, first_miss: None, trigger: None }
    }

    /// Takes note of what the cache said about one block of the request that it held.
    #[inline]
    pub fn note_hit(&mut self, block: u64, hit: &Hit) {
        if hit.trigger {
            self.trigger = Some(block);
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
}

/// The blocks that one read brings, as AMP notes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetNote {
    /// First block.
    pub first: u64,
    /// Last block asked for; the set ends here if nothing behind it is fetched.
    pub last: u64,
    /// p.
    pub degree: u16,
    /// g, below p.
    pub trigger_distance: u16,
    /// Nobody waits for it.
    pub alone: bool,
}

/// What a prefetcher writes on blocks once they are in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notes {
    /// Nothing.
    #[default]
    None,
    /// AMP's set.
    Set(SetNote),
    /// SARC's counter, on `first..=last`.
    Counter {
        /// First block.
        first: u64,
        /// Last block.
        last: u64,
        /// The counter.
        counter: u32,
    },
}

/// A prefetcher's answer to one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefetchPlan {
    /// The request is part of a sequential run: SARC's cache puts its blocks on SEQ.
    pub sequential: bool,
    /// What to fetch ahead, if anything.
    pub run: Option<BlockRun>,
    /// What to write on the blocks.
    pub notes: Notes,
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

impl Algorithm {
    /// Whether the algorithm works on files, at whichever level it runs: it keeps its state by file and
    /// fetches nothing behind a file's end. Of those in PFC section 2.2 only Linux "maintains for each file a
    /// read-ahead group". RA, SARC and AMP see block addresses, and read on up to the end of the device.
    pub fn knows_files(self) -> bool {
        matches!(self, Algorithm::Linux(_))
    }
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

    /// What [`Algorithm::knows_files`] says of its algorithm.
    #[inline]
    pub fn knows_files(&self) -> bool {
        matches!(self, Prefetcher::Linux(_))
    }

    /// Which unused blocks the cache of this prefetcher is to spare once.
    pub fn second_chance(&self) -> SecondChance {
        match self {
            Prefetcher::Amp(amp) => amp.second_chance(),
            _ => SecondChance::None,
        }
    }

    /// A request of `len` blocks hit this one, and the cache said so much about it. To be told block by
    /// block, before [`Prefetcher::access`].
    #[inline]
    pub fn hit(&mut self, block: u64, hit: &Hit, len: u64, cache: &mut Cache) {
        match self {
            Prefetcher::Ra(ra) if hit.first_use => ra.first_use(),
            Prefetcher::Amp(amp) => amp.hit(block, hit, len, cache),
            _ => {}
        }
    }

    /// What to fetch ahead now that this request has come. `cache` has been looked up for it already, but its
    /// missing blocks are not in yet.
    #[inline]
    pub fn access(&mut self, access: &LevelAccess, cache: &mut Cache) -> PrefetchPlan {
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

    /// The blocks of a plan have entered the cache, those fetched ahead up to `run_last`, where the end of a
    /// file cut the run.
    #[inline]
    pub fn entered(&mut self, plan: &PrefetchPlan, run_last: Option<u64>, cache: &mut Cache) {
        match (self, plan.notes) {
            (Prefetcher::Amp(amp), Notes::Set(set)) => {
                let last = run_last.map_or(set.last, |last| last.max(set.last));
                amp.entered(&set, last, cache);
            }
            (Prefetcher::Sarc(sarc), Notes::Counter { first, last, counter }) => {
                for block in first..=last {
                    sarc.note(block, counter, cache);
                }
            }
            _ => {}
        }
    }

    /// Blocks entered the cache, and others had to leave or were spared: takes note of the latter.
    #[inline]
    pub fn replaced(&mut self, cache: &mut Cache) {
        if let Prefetcher::Amp(amp) = self {
            while let Some(block) = cache.take_spared() {
                amp.spared(block, cache);
            }
        }
    }
}

#[cfg(test)]
mod tests;
