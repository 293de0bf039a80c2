//! PFC, the PreFetching-Coordinator (section 3.2, algorithms 1 and 2), with the paper's names.
//!
//! PFC watches the requests of the upper level (L1) and the content of the lower cache (L2). A large request
//! shows that L1 already prefetches aggressively; blocks stocked behind the request show that L2 does. In
//! both cases the whole request bypasses L2. Otherwise two lengths are adjusted:
//!
//! - `bypass_length` grows by one as long as none of the requested blocks was bypassed recently, and falls by
//!   one when one was and is not in L2's cache, because L1 evicted it early.
//! - `readmore_length` becomes `max_rm_size` (the larger of this request and the average) when a requested
//!   block is missing and lies in the window that a readmore would have fetched, 0 when it is missing and
//!   does not.
//!
//! Two queues of block numbers, each at most a tenth of the L2 cache, remember which blocks were bypassed and
//! which a readmore would have fetched.
//!
//! # Where the pseudo code leaves a choice
//!
//! The default follows the text literally; [`PfcParams`] has the alternatives. docs/PFC.md lists the options.
//!
//! - *Half the average.* Algorithm 2 and the text both say larger than half the average
//!   ([`LargeRequest::Half`]): most requests are. The other reading is larger than the average by half
//!   ([`LargeRequest::OneAndHalf`]).
//! - *Average so far* includes the present request.
//! - *Queues.* "The least recently inserted or re-accessed blocks are evicted": a hit in a queue refreshes
//!   the entry ([`PfcParams::refresh_on_hit`]); the other reading is plain insertion order.
//! - *Cached ranges.* `[end_u, end_u + req_size]` includes the last requested block itself, as written.
//! - *Length.* `bypass_length` may grow beyond the request; it is cut to the request when applied, not when
//!   kept ([`PfcParams::keep_within_request`] cuts it when kept as well).
//! - *Windows.* `[end_pfc, end_rm]` begins with the last readmore block itself, as written.

use alloc::vec::Vec;
use smart_default::SmartDefault;

use super::{LevelRequest, Split};
use crate::recent::RecentBlocks;

/// When L1's request counts as large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeRequest {
    /// Longer than half the average, as the text says.
    Half,
    /// Longer than one and a half times the average.
    OneAndHalf,
}

/// Parameters of PFC and the reading of its pseudo code.
#[derive(Clone, Copy, Debug, PartialEq, SmartDefault)]
pub struct PfcParams {
    /// Whether the bypass action is used.
    #[default(true)]
    pub bypass: bool,
    /// Whether the readmore action is used.
    #[default(true)]
    pub readmore: bool,
    /// Length of each queue as a part of the L2 cache; the paper uses 0.1.
    #[default(0.1)]
    pub queue_share: f64,
    /// When a request counts as large.
    #[default(LargeRequest::Half)]
    pub large_request: LargeRequest,
    /// Whether a hit in a queue makes the entry the most recent.
    #[default(true)]
    pub refresh_on_hit: bool,
    /// Whether `bypass_length` is stored cut to the present request.
    pub keep_within_request: bool,
    /// One set of lengths and averages for each context (file or client) instead of one for all.
    pub per_context: bool,
}

/// Maximum number of contexts with lengths of their own; further ones share them (number modulo this).
const CONTEXTS_MAX: u32 = 1 << 20;

/// The values that algorithm 2 sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PfcState {
    /// Blocks from the start of a request that go past the native side.
    pub bypass_length: u64,
    /// Blocks added behind a request.
    pub readmore_length: u64,
    /// Requests so far.
    pub requests: u64,
    /// Blocks requested so far; divided by `requests` it is `avg_req_size`.
    pub blocks: u64,
}

/// Which branch of algorithm 2 the requests took. The first three add up to all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PfcCounts {
    /// Bypassed whole because they were large.
    pub large: u64,
    /// Bypassed whole because L2 had stocked as many blocks behind them.
    pub stocked: u64,
    /// Neither: the lengths were adjusted.
    pub adjusted: u64,
    /// Of the adjusted ones, those that hit the readmore queue and missed L2. Only these set readmore_length.
    pub readmore_set: u64,
}

/// State of PFC.
#[derive(Clone, Debug)]
pub struct Pfc {
    params: PfcParams,
    states: Vec<PfcState>,
    bypass_queue: RecentBlocks,
    readmore_queue: RecentBlocks,
    counts: PfcCounts,
}

impl Pfc {
    /// A coordinator in front of an L2 cache of `capacity` blocks. Queues hold at least one block.
    pub fn new(params: PfcParams, capacity: usize) -> Pfc {
        let queue = ((capacity as f64 * params.queue_share) as usize).max(1);
        Pfc {
            params,
            states: alloc::vec![PfcState::default()],
            bypass_queue: RecentBlocks::new(queue),
            readmore_queue: RecentBlocks::new(queue),
            counts: PfcCounts::default(),
        }
    }

    /// Which branch requests took so far.
    pub fn counts(&self) -> PfcCounts {
        self.counts
    }

    /// The lengths in force for a context.
    pub fn state(&self, context: u32) -> PfcState {
        self.states.get(self.slot(context)).copied().unwrap_or_default()
    }

    fn slot(&self, context: u32) -> usize {
        if self.params.per_context { (context % CONTEXTS_MAX) as usize } else { 0 }
    }

    /// Algorithm 1, PFC_Process_Req, without the processing itself, which the level does. `holds`: whether
    /// the L2 cache has a block.
    pub fn decide(&mut self, request: &LevelRequest, holds: impl Fn(u64) -> bool) -> Split {
        let slot = self.slot(request.context);
        if slot >= self.states.len() {
            self.states.resize(slot + 1, PfcState::default());
        }
        let mut state = self.states[slot];
        let req_size = request.len();
        state.requests += 1;
        state.blocks += req_size;
        // Rounded up: for comparison with whole blocks a window must not be cut short.
        let avg_req_size = state.blocks.div_ceil(state.requests);
        let max_rm_size = req_size.max(avg_req_size);
        self.set_param(&mut state, request, max_rm_size, holds);

        let bypass = if self.params.bypass { state.bypass_length.min(req_size) } else { 0 };
        let readmore = if self.params.readmore { state.readmore_length } else { 0 };
        let end_pfc = request.last + readmore;
        let refresh = self.params.refresh_on_hit;
        for block in request.first..request.first + bypass {
            self.bypass_queue.insert(block, refresh);
        }
        for block in end_pfc..=end_pfc + max_rm_size {
            self.readmore_queue.insert(block, refresh);
        }
        self.states[slot] = state;
        Split { bypass, readmore, ..Split::default() }
    }

    /// Algorithm 2, PFC_Set_Param.
    fn set_param(
        &mut self,
        state: &mut PfcState,
        request: &LevelRequest,
        max_rm_size: u64,
        holds: impl Fn(u64) -> bool,
    ) {
        let req_size = request.len();
        // Whole numbers: 2 x req_size > blocks / requests without rounding.
        let (size, average) = (u128::from(req_size) * u128::from(state.requests), u128::from(state.blocks));
        let large = match self.params.large_request {
            LargeRequest::Half => 2 * size > average,
            LargeRequest::OneAndHalf => 2 * size > 3 * average,
        };
        if large || (request.last..=request.last + req_size).all(&holds) {
            match large {
                true => self.counts.large += 1,
                false => self.counts.stocked += 1,
            }
            state.bypass_length = req_size;
            state.readmore_length = 0;
            return;
        }
        self.counts.adjusted += 1;
        let (mut hit_cache, mut hit_bypass, mut hit_readmore) = (false, false, false);
        let refresh = self.params.refresh_on_hit;
        for block in request.first..=request.last {
            hit_cache |= holds(block);
            hit_bypass |= self.bypass_queue.contains(block, refresh);
            hit_readmore |= self.readmore_queue.contains(block, refresh);
        }
        if !hit_bypass {
            state.bypass_length += 1;
        }
        if !hit_cache {
            if hit_bypass {
                state.bypass_length = state.bypass_length.saturating_sub(1);
            }
            self.counts.readmore_set += u64::from(hit_readmore);
            state.readmore_length = if hit_readmore { max_rm_size } else { 0 };
        }
        if self.params.keep_within_request {
            state.bypass_length = state.bypass_length.min(req_size);
        }
    }
}
