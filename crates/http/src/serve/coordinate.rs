//! Two levels over HTTP: what to do with a request of a cache that fetches from us (nginx with `proxy_cache`
//! and `slice`, Varnish). Algorithms 1 and 2 of the PFC paper (`--coordinate pfc`) are applied to each
//! request.
//!
//! They give the number of blocks that *bypass* this level (read straight from the disk with
//! `RWF_DONTCACHE`, without the engine and its prefetching) and the number of blocks of *readmore* behind the
//! end, which the engine reads and no client waits for.
//!
//! Client and file together are the paper's context. What this level holds is kept as a model: block numbers
//! in least-recently-used order, as many as the page cache may hold. The kernel's own cache is near that
//! order but not of it, so the model is an approximation; it costs no system call.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Mutex;

use lru::LruCache;
use seekless_engine::{lock, recent};
use seekless_levels::coordinate::LevelRequest;
use seekless_levels::coordinate::pfc::{Pfc, PfcParams};
use seekless_levels::recent::RecentBlocks;

use super::tree::{FileVersion, Opened};
use crate::range::Span;

/// Unit of the model. Upper caches ask for hundreds of KiB at a time; the paper's 4 KiB would only cost
/// memory.
const BLOCK: u64 = 64 << 10;

/// Blocks of one file: numbers of files stand above them. 64 TiB.
const FILE_BITS: u32 = 30;

/// Contexts with their own average length; further ones share one.
const CONTEXTS: u32 = 4096;

/// Most files told apart; beyond it the one served longest ago counts as another when it is served again.
const FILES_MAX: usize = 65_536;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendPlan {
    /// Bytes before this offset bypass this level.
    pub(crate) bypass_end: u64,
    /// Bytes read further, though no client requested them.
    pub(crate) readmore: Option<Span>,
}

struct ModelState {
    pfc: Pfc,
    held: RecentBlocks,
    files: LruCache<FileVersion, u64>,
    next: u64,
}

/// A coordinator and its model.
pub(crate) struct PfcModel {
    state: Mutex<ModelState>,
    /// How far the engine extends a read.
    prefetch: u64,
}

impl PfcModel {
    /// For a page cache of `memory` bytes above which reads are extended to `prefetch`.
    pub(crate) fn new(params: PfcParams, memory: u64, prefetch: u64) -> PfcModel {
        // At least the paper's smallest, at most 4 TiB.
        let capacity = (memory / BLOCK).clamp(16, 1 << 26);
        let held = RecentBlocks::new(capacity as usize);
        let pfc = Pfc::new(params, capacity as usize);
        let state = ModelState { pfc, held, files: recent(FILES_MAX), next: 0 };
        PfcModel { state: Mutex::new(state), prefetch }
    }

    /// Decides on one request of a client.
    pub(crate) fn decide(&self, client: IpAddr, file: &Opened, span: Span) -> SendPlan {
        let version = file.version();
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let next = state.next + 1;
        let number = *state.files.get_or_insert(version, || next);
        state.next = state.next.max(number);
        let base = number << FILE_BITS;
        let mut hasher = DefaultHasher::new();
        (client, version).hash(&mut hasher);
        let context = (hasher.finish() % u64::from(CONTEXTS)) as u32;
        let request = LevelRequest {
            context,
            first: base + span.offset / BLOCK,
            last: base + (span.end() - 1) / BLOCK,
        };
        let split = state.pfc.decide(&request, |block| state.held.holds(block));

        let bypass = split.bypass.min(request.len());
        // The native side: the rest of the request with what the engine reads along, and what is read more.
        let native = request.first + bypass;
        let end_of_file = base + (file.size - 1) / BLOCK;
        let asked = (request.last + split.readmore).min(end_of_file);
        let extended = match native <= request.last {
            true => (native + self.prefetch / BLOCK).max(asked),
            false => asked,
        };
        for block in native..=extended.min(end_of_file) {
            state.held.insert(block, true);
        }
        let from = span.end();
        let to = ((asked - base + 1) * BLOCK).min(file.size);
        let readmore = (split.readmore > 0 && to > from).then(|| Span { offset: from, len: to - from });
        let bypass_end = if bypass == 0 { 0 } else { ((native - base) * BLOCK).min(span.end()) };
        SendPlan { bypass_end, readmore }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Entry, Tree};
    use super::*;
    use std::path::Path;

    /// The decisions are PFC's own: a small first request is native, one much larger than the average
    /// bypasses this level.
    #[test]
    fn requests_become_byte_ranges_within_the_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), vec![0; 40 << 16]).unwrap();
        let Ok(Entry::File(file)) = Tree::open(&[dir.path().into()]).unwrap().get(Path::new("f"), true)
        else {
            panic!("no file")
        };
        let client = "192.0.2.1".parse().unwrap();
        let params = PfcParams { per_context: true, ..PfcParams::default() };
        let pfc = PfcModel::new(params, 64 << 20, 4 << 20);
        for offset in (0..file.size).step_by(3 << 16) {
            let span = Span { offset, len: (3u64 << 16).min(file.size - offset) };
            let way = pfc.decide(client, &file, span);
            assert!(way.bypass_end <= span.end(), "{way:?}");
            if let Some(more) = way.readmore {
                assert!(more.offset == span.end() && more.end() <= file.size, "{way:?}");
            }
        }
        // By the paper, a request longer than half the average bypasses this level as a whole.
        let way = pfc.decide(client, &file, Span { offset: 0, len: 20 << 16 });
        assert_eq!(way, SendPlan { bypass_end: 20 << 16, readmore: None });
    }
}
