//! The order in which a reader adds ranges that lie on several lanes.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Puts items of several lanes side by side: each lane's stay in their order, and wherever the list is cut,
/// what came before is as many bytes of each lane as of any other that still has items, but for one item. So
/// a reader that goes through the list has something of every lane at any time, and all of them bring it in
/// together.
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
