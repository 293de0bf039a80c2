//! P-block read-ahead (RA): after every request, hit or miss, the next P blocks are to be in the cache.
//!
//! The generalisation of one-block look-ahead (Smith, "Sequentiality and prefetching in database systems",
//! ACM TODS 1978) from 1 to P blocks, as PFC section 2.2 describes it; PFC fixes P = 4.
//!
//! Adaptive P: Dahlgren, Dubois and Stenstrom, "Fixed and adaptive sequential prefetching in shared memory
//! multiprocessors" (ICPP 1993), which PFC cites for it: of every 16 prefetched blocks those that were used
//! are counted; more than 75 % used raises P by one, fewer than 50 % lowers it by one. Ours: P starts at the
//! fixed value and stays within 1 and `degree_max` (theirs may fall to 0 and needs a second mechanism to rise
//! again).

use super::{BlockRun, LevelAccess, PrefetchPlan};

/// Parameters of RA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaParams {
    /// P, blocks; PFC uses 4. Range 1 to 4096.
    pub degree: u32,
    /// Whether P adapts to how many prefetched blocks are used.
    pub adaptive: bool,
    /// Largest adaptive P, blocks.
    pub degree_max: u32,
}

impl Default for RaParams {
    fn default() -> RaParams {
        RaParams { degree: 4, adaptive: false, degree_max: 64 }
    }
}

/// Prefetched blocks after which adaptive P is reconsidered.
const SAMPLE_BLOCKS: u64 = 16;
/// Used blocks of a sample above which P rises (75 %).
const HIGH_MARK: u64 = 12;
/// Used blocks of a sample below which P falls (50 %).
const LOW_MARK: u64 = 8;

/// State of RA.
#[derive(Clone, Debug)]
pub struct Ra {
    params: RaParams,
    degree: u32,
    issued: u64,
    used: u64,
}

impl Ra {
    /// A read-ahead that has seen nothing.
    pub fn new(params: RaParams) -> Ra {
        Ra { params, degree: params.degree.max(1), issued: 0, used: 0 }
    }

    /// Present P, blocks.
    pub fn degree(&self) -> u32 {
        self.degree
    }

    pub(super) fn access(&mut self, access: &LevelAccess) -> PrefetchPlan {
        let first = access.last + 1;
        let run = BlockRun { first, last: access.last + u64::from(self.degree), trigger: None };
        PrefetchPlan { run: Some(run), ..PrefetchPlan::default() }
    }

    pub(super) fn issued(&mut self, count: u64) {
        if !self.params.adaptive {
            return;
        }
        self.issued += count;
        if self.issued >= SAMPLE_BLOCKS {
            // A large set may carry several samples at once; the shares are compared, not the counts.
            if self.used * SAMPLE_BLOCKS > HIGH_MARK * self.issued {
                self.degree = (self.degree + 1).min(self.params.degree_max);
            } else if self.used * SAMPLE_BLOCKS < LOW_MARK * self.issued {
                self.degree = (self.degree - 1).max(1);
            }
            self.issued = 0;
            self.used = 0;
        }
    }

    pub(super) fn first_use(&mut self) {
        self.used += 1;
    }
}
