//! AMP (Gill and Bathen, "AMP: Adaptive Multi-stream Prefetching in a Shared Cache", FAST 2007): degree p and trigger
//! distance g adapt, for each stream on its own.
//!
//! The best p of a stream is its request rate times the time a block lives in the cache: larger sets are evicted before
//! use, smaller ones waste requests. AMP finds it without measuring either:
//!
//! - p grows by the size of the request when the last block of a prefetched set is reached (the set was used up);
//! - p falls by one when a prefetched block is evicted before use, and g with it (g stays below p);
//! - g grows by one when a request has to wait for a prefetched block (the fetch began too late).
//!
//! A stream begins at a miss whose preceding block is cached. From the AMP paper: the rules above. Not given in PFC and
//! chosen here: p starts at 4 (RA's degree) and stays within 1 and 256 blocks, g starts at 1; at most 4,096 streams are
//! remembered, the oldest number is used again.

use alloc::vec::Vec;

use super::sarc::precedes_cached;
use super::{BlockRun, LevelAccess, PrefetchPlan};
use crate::cache::Cache;

/// Parameters of AMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmpParams {
    /// p of a new stream, blocks.
    pub degree_start: u32,
    /// Largest p, blocks.
    pub degree_max: u32,
    /// Most streams remembered.
    pub streams_max: u32,
}

impl Default for AmpParams {
    fn default() -> AmpParams {
        AmpParams { degree_start: 4, degree_max: 256, streams_max: 4096 }
    }
}

/// One stream's p, g and where its newest set ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmpStream {
    /// p: blocks the next set will have. At least 1.
    pub degree: u32,
    /// g: distance of the marked block from the end of its set. Below `degree`.
    pub trigger_distance: u32,
    /// Last block of the newest set.
    pub end: u64,
}

/// State of AMP.
#[derive(Clone, Debug)]
pub struct Amp {
    params: AmpParams,
    streams: Vec<AmpStream>,
    /// Number the next new stream gets once all have been given out.
    next: u32,
}

impl Amp {
    /// A prefetcher that has seen nothing.
    pub fn new(params: AmpParams) -> Amp {
        Amp { params, streams: Vec::new(), next: 0 }
    }

    /// The streams remembered.
    pub fn streams(&self) -> &[AmpStream] {
        &self.streams
    }

    fn new_stream(&mut self) -> u32 {
        let limit = self.params.streams_max.max(1);
        let degree = self.params.degree_start.max(1);
        let stream = AmpStream { degree, trigger_distance: 1.min(degree - 1), end: 0 };
        if (self.streams.len() as u32) < limit {
            self.streams.push(stream);
            self.streams.len() as u32 - 1
        } else {
            let number = self.next;
            self.next = (self.next + 1) % limit;
            self.streams[number as usize] = stream;
            number
        }
    }

    pub(super) fn access(&mut self, access: &LevelAccess, cache: &Cache) -> PrefetchPlan {
        if let Some(stream) = access.waited.and_then(|s| self.streams.get_mut(s as usize)) {
            stream.trigger_distance = (stream.trigger_distance + 1).min(stream.degree - 1);
        }
        if let Some(stream) = access.set_end.and_then(|s| self.streams.get_mut(s as usize)) {
            let grown = u64::from(stream.degree) + access.len();
            stream.degree = grown.min(self.params.degree_max.into()) as u32;
        }
        let sequential_miss =
            access.first_miss.is_some_and(|block| precedes_cached(access.first, block, cache));
        let (number, from) = match access.trigger {
            Some((_, Some(number))) if (number as usize) < self.streams.len() => {
                (number, self.streams[number as usize].end.max(access.last) + 1)
            }
            _ if sequential_miss => {
                let before = access.first.checked_sub(1).and_then(|block| cache.stream_of(block));
                let number = match before {
                    Some(number) if (number as usize) < self.streams.len() => number,
                    _ => self.new_stream(),
                };
                (number, access.last + 1)
            }
            _ => return PrefetchPlan::default(),
        };
        let stream = &mut self.streams[number as usize];
        let last = from + u64::from(stream.degree) - 1;
        stream.end = last;
        let trigger = Some(last - u64::from(stream.trigger_distance));
        PrefetchPlan {
            sequential: true,
            run: Some(BlockRun { first: from, last, trigger, stream: Some(number) }),
            stream: Some(number),
        }
    }

    pub(super) fn evicted_unused(&mut self, stream: u32) {
        if let Some(stream) = self.streams.get_mut(stream as usize) {
            stream.degree = (stream.degree - 1).max(1);
            stream.trigger_distance = stream.trigger_distance.min(stream.degree - 1);
        }
    }
}
