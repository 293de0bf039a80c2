//! Decides which bytes are kept here, and gives back the others once they have been sent.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use seekless_base::Nanos;
use seekless_engine::lock;
use seekless_kernel::residency::resident_prefix;
use seekless_levels::coordinate::lingering::Lingering;
use seekless_levels::coordinate::returns::{Returns, ReturnsParams};
use seekless_policy::FileId;

use super::super::tree::Opened;
use crate::range::Span;

/// Shortest time between an answer and giving back its bytes: pages that a socket still holds cannot be given
/// back.
const LINGER: Duration = Duration::from_millis(500);

/// Decides what stays.
pub(crate) struct ReturnsKeeper {
    returns: Mutex<Returns>,
    lingering: Mutex<Lingering<(FileId, u64)>>,
    began: Instant,
}

impl ReturnsKeeper {
    /// For a page cache of `memory` bytes.
    pub(crate) fn new(memory: u64) -> ReturnsKeeper {
        let returns = Mutex::new(Returns::new(ReturnsParams::default(), memory));
        ReturnsKeeper { returns, lingering: Mutex::default(), began: Instant::now() }
    }

    /// Whether the requested bytes stay here.
    pub(crate) fn keeps(&self, file: &Opened, span: Span) -> bool {
        let mut hasher = DefaultHasher::new();
        // Another edition of a file is another file.
        (file.id, file.size, file.modified).hash(&mut hasher);
        let number = hasher.finish();
        let mut returns = lock(&self.returns);
        let mut all = true;
        for (unit, from, len) in returns.units_of(number, span.offset, span.len) {
            let kept = returns.requested(unit, from, len, file.size);
            all &= kept;
            if kept {
                let here = resident_prefix(file.as_fd(), span.offset, span.len).unwrap_or(span.len);
                if here < span.len {
                    returns.lost(unit, len.min(span.len - here));
                }
            }
        }
        all
    }

    /// See [`super::Coordinate::sent`].
    pub(crate) fn sent(&self, file: FileId, span: Span, mut give: impl FnMut(FileId, Span)) {
        let room = lock(&self.returns).room();
        let now = Nanos(self.began.elapsed().as_nanos() as u64);
        let before = Nanos(now.0.saturating_sub(LINGER.as_nanos() as u64));
        let mut due = Vec::new();
        {
            let mut lingering = lock(&self.lingering);
            lingering.sent((file, span.offset), span.len, now);
            while let Some(((file, offset), len)) = lingering.leaves(room, before) {
                due.push((file, Span { offset, len }));
            }
        }
        due.into_iter().for_each(|(file, span)| give(file, span));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_given_back_after_a_while_when_room_is_wanted() {
        // Room for 60 % of a GiB.
        let keeper = ReturnsKeeper::new(1 << 30);
        let file = FileId { dev: 1, ino: 2 };
        let mut given = Vec::new();
        let sent = |offset: u64, given: &mut Vec<u64>| {
            keeper.sent(file, Span { offset: offset << 20, len: 1 << 20 }, |_, span| {
                given.push(span.offset >> 20)
            });
        };
        (0..700).for_each(|offset| sent(offset, &mut given));
        assert!(given.is_empty(), "too soon");
        std::thread::sleep(LINGER);
        sent(0, &mut given);
        assert!(
            (86..=88).contains(&given.len()) && given[0] == 1,
            "the oldest, but for the first: {given:?}"
        );
    }
}
