//! What was sent up and is not kept, in order of its last use, until its room is needed.
//!
//! Memory that [`super::returns`] does not need yet holds what was sent last: readers of a file come in
//! bunches, and the second reader of a bunch is served from it.

use alloc::collections::{BTreeMap, VecDeque};

use seekless_base::Nanos;

/// Ranges by a name of the caller's.
#[derive(Clone, Debug)]
pub struct Lingering<T> {
    queue: VecDeque<(T, u64, Nanos, u64)>,
    /// The number of each range's last entry: those before it are void.
    last: BTreeMap<T, u64>,
    next: u64,
    bytes: u64,
}

/// Maximum number of entries; beyond it, the oldest leave whatever room there is. 48 bytes each.
const ENTRIES_MAX: usize = 1 << 16;

impl<T> Default for Lingering<T> {
    fn default() -> Lingering<T> {
        Lingering { queue: VecDeque::new(), last: BTreeMap::new(), next: 0, bytes: 0 }
    }
}

impl<T: Copy + Ord> Lingering<T> {
    /// A range of `len` bytes was sent. A range has the same length every time, or counts as one of the last.
    pub fn sent(&mut self, name: T, len: u64, now: Nanos) {
        self.next += 1;
        self.bytes += len;
        if self.last.insert(name, self.next).is_some() {
            // The older entry stays where it is and weighs nothing.
            self.bytes = self.bytes.saturating_sub(len);
        }
        self.queue.push_back((name, len, now, self.next));
    }

    /// The range used longest ago, if all of them have more than `room` bytes and it was sent before
    /// `before`; it is removed.
    pub fn leaves(&mut self, room: u64, before: Nanos) -> Option<(T, u64)> {
        while let Some(&(name, len, at, number)) = self.queue.front() {
            let void = self.last.get(&name) != Some(&number);
            let full = self.queue.len() > ENTRIES_MAX;
            if !void && !full && (self.bytes <= room || at >= before) {
                return None;
            }
            self.queue.pop_front();
            if !void {
                self.last.remove(&name);
                self.bytes = self.bytes.saturating_sub(len);
                return Some((name, len));
            }
        }
        None
    }

    /// Bytes in the list.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Nanos = Nanos(100);

    #[test]
    fn the_one_used_longest_ago_leaves_first_and_only_for_room() {
        let mut lingering = Lingering::default();
        for name in [1, 2, 3, 1] {
            lingering.sent(name, 10, Nanos(name));
        }
        assert_eq!(lingering.bytes(), 30);
        assert_eq!(lingering.leaves(30, LATER), None);
        assert_eq!(lingering.leaves(29, LATER), Some((2, 10)), "1 was used again");
        assert_eq!(lingering.leaves(10, LATER), Some((3, 10)));
        assert_eq!(lingering.leaves(0, Nanos(1)), None, "too soon");
        assert_eq!(lingering.leaves(0, LATER), Some((1, 10)));
        assert_eq!((lingering.leaves(0, LATER), lingering.bytes()), (None, 0));
    }

    #[test]
    fn entries_are_bounded() {
        let mut lingering = Lingering::default();
        for i in 0..200_000u64 {
            lingering.sent(i % 7, 1, Nanos(i));
            while lingering.leaves(u64::MAX, Nanos(0)).is_some() {}
            assert!(lingering.queue.len() <= ENTRIES_MAX + 1 && lingering.bytes() <= 7);
        }
    }
}
