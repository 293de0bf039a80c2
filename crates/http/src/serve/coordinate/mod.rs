//! Two levels over HTTP: what to do with a request of a cache that fetches from us (nginx with `proxy_cache`
//! and `slice`, Varnish).
//!
//! - [`CoordinationMode::Returns`] (`--coordinate returns`), ours: what the upper cache now has is given back
//!   here, unless it belongs to what comes back most ([`seekless_levels::coordinate::returns`]). That is
//!   PFC's bypass by PFC's evidence, for requests that all have one length. Readmore is left to the engine,
//!   whose read-ahead grows with a run of slices.
//! - [`CoordinationMode::Pfc`] (`--coordinate pfc`): algorithms 1 and 2 of the PFC paper, applied to each
//!   request. They give the number of blocks that *bypass* this level (read straight from the disk with
//!   `RWF_DONTCACHE`, without the engine and its prefetching) and the number of blocks of *readmore* behind
//!   the end, which the engine reads and no client waits for.

mod pfc;
mod returns;

use std::net::IpAddr;

use seekless_base::Bytes;
use seekless_levels::coordinate::pfc::PfcParams;
use seekless_levels::coordinate::returns::RECENT_SHARE;
use seekless_policy::FileId;

use self::pfc::PfcModel;
use self::returns::ReturnsKeeper;
use super::tree::Opened;
use crate::range::Span;

/// Which coordination with the caches above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CoordinationMode {
    /// None: they are clients like others.
    None,
    /// Only what comes back stays here. The memory there is for it; `None`: what the page cache may hold.
    Returns(Option<Bytes>),
    /// PFC, on every request.
    Pfc(PfcParams),
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendPlan {
    /// Bytes before this offset bypass this level.
    pub(crate) bypass_end: u64,
    /// Bytes read further, though no client requested them.
    pub(crate) readmore: Option<Span>,
    /// Given back when they have been sent.
    pub(crate) drop_when_sent: bool,
}

/// A coordinator at work.
pub(crate) enum Coordinate {
    Returns(ReturnsKeeper),
    Pfc(PfcModel),
}

impl Coordinate {
    /// For a page cache of `memory` bytes above which reads are extended to `prefetch`.
    pub(crate) fn new(mode: CoordinationMode, memory: u64, prefetch: u64) -> Option<Coordinate> {
        match mode {
            CoordinationMode::None => None,
            CoordinationMode::Returns(own) => {
                Some(Coordinate::Returns(ReturnsKeeper::new(own.map_or(memory, |own| own.0))))
            }
            CoordinationMode::Pfc(params) => Some(Coordinate::Pfc(PfcModel::new(params, memory, prefetch))),
        }
    }

    /// Decides on one request of a client.
    pub(crate) fn decide(&self, client: IpAddr, file: &Opened, span: Span) -> SendPlan {
        match self {
            Coordinate::Returns(keeper) => {
                SendPlan { drop_when_sent: !keeper.keeps(file, span), ..SendPlan::default() }
            }
            Coordinate::Pfc(model) => model.decide(client, file, span),
        }
    }

    /// These bytes are being sent to the upper cache. Calls `give` for bytes that were sent long enough ago.
    pub(crate) fn sent(&self, file: FileId, span: Span, give: impl FnMut(FileId, Span)) {
        if let Coordinate::Returns(keeper) = self {
            keeper.sent(file, span, give);
        }
    }
}

/// Part of the memory for bytes that are fetched and not yet read, if a coordinator decides on the rest.
pub(crate) const BUDGET_SHARE: f64 = 1.0 - RECENT_SHARE;
