//! The order in which a reader adds ranges that lie on several lanes.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Interleaves the items of several lanes: the items of each lane stay in order, and at every point of the
/// list as many bytes of each lane came before as of any other that still has items, within one item. So a
/// reader that goes through the list always has items of every lane pending, and all lanes read at once.
pub fn side_by_side<T>(
    items: Vec<T>,
    lane: impl Fn(&T) -> usize,
    bytes: impl Fn(&T) -> u64,
) -> impl Iterator<Item = T> {
    let mut lanes: BTreeMap<usize, VecDeque<T>> = BTreeMap::new();
    for item in items {
        lanes.entry(lane(&item)).or_default().push_back(item);
    }
    // Bytes of each lane so far.
    let mut next: BTreeSet<(u64, usize)> = lanes.keys().map(|&lane| (0, lane)).collect();
    core::iter::from_fn(move || {
        while let Some((so_far, lane)) = next.pop_first() {
            if let Some(item) = lanes.get_mut(&lane).and_then(VecDeque::pop_front) {
                next.insert((so_far.saturating_add(bytes(&item)), lane));
                return Some(item);
            }
        }
        None
    })
}
