//! The window: how far reading is ahead of the consumer. Pure.
//!
//! A file counts from before it is read until the consumer has taken its path. Paths are taken in the order
//! in which they were handed on, so the files taken follow from the number of output bytes taken.
//!
//! Memory may hold less than the window, because other programs and the kernel's records of the files need
//! some. Then files are evicted before they are used, and the disk reads them twice. So the window halves
//! when a file is found evicted at its turn, and grows again slowly while files are found in memory.

use std::collections::VecDeque;

/// Minimum size of a window that shrinks, in bytes: two transfers of a fast disk. At half, the disk has no
/// queue of larger files; at double, the files in it may still be evicted.
pub const LEAST: u64 = 2 << 20;

/// Part of its full size by which a window grows when a file is found in memory. One file is checked for each
/// window, so growing back from half takes this many windows. At half, a short lack of memory slows the disk
/// for long; at double, the next eviction comes sooner.
const GROWTH: u64 = 32;

/// Bytes read for a consumer that has not taken their paths yet; never more than its size.
#[derive(Debug)]
pub struct Window {
    /// Its maximum.
    full: u64,
    size: u64,
    ahead: u64,
    /// Bytes of paths handed on so far.
    position: u64,
    /// For each path that was handed on and is not known to be taken: the position after it, and the bytes of
    /// its file.
    handed: VecDeque<(u64, u64)>,
}

impl Window {
    /// An empty window of `size` bytes.
    pub fn new(size: u64) -> Window {
        Window { full: size, size, ahead: 0, position: 0, handed: VecDeque::new() }
    }

    /// Its present size.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes read, or being read, whose paths were not taken.
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    /// A file was checked when its consumer took its path: whether it was still in memory.
    pub fn found(&mut self, in_memory: bool) {
        self.size = match in_memory {
            true => self.full.min(self.size + self.full / GROWTH),
            false => (self.size / 2).max(LEAST.min(self.full)),
        };
    }

    /// The position behind everything that was handed on.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reserves `bytes` that are about to be read. Refused, without a change, if they do not fit.
    #[must_use]
    pub fn reserve(&mut self, bytes: u64) -> bool {
        let fits = self.ahead.checked_add(bytes).is_some_and(|sum| sum <= self.size);
        if fits {
            self.ahead += bytes;
        }
        fits
    }

    /// A path of `path_bytes`, its end mark included, was handed on; `bytes` were reserved for its file.
    pub fn hand_on(&mut self, path_bytes: u64, bytes: u64) {
        self.position += path_bytes;
        self.handed.push_back((self.position, bytes));
    }

    /// The consumer has taken the output up to this position.
    pub fn taken(&mut self, upto: u64) {
        while let Some(&(end, bytes)) = self.handed.front()
            && end <= upto
        {
            self.handed.pop_front();
            self.ahead -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_taken_with_its_last_byte() {
        let mut window = Window::new(100);
        assert!(window.reserve(60));
        assert!(!window.reserve(41));
        assert!(window.reserve(40));
        window.hand_on(10, 60);
        window.hand_on(5, 40);
        window.taken(9);
        assert_eq!(window.ahead(), 100);
        window.taken(10);
        assert_eq!(window.ahead(), 40);
        window.taken(9);
        assert_eq!(window.ahead(), 40, "what is taken stays taken");
        window.taken(15);
        assert_eq!(window.ahead(), 0);
    }

    #[test]
    fn it_halves_with_an_eviction_and_grows_back_to_its_full_size() {
        let full = 64 * LEAST;
        let mut window = Window::new(full);
        assert!(window.reserve(full));
        window.found(false);
        assert_eq!((window.size(), window.ahead()), (full / 2, full), "what is read stays counted");
        assert!(!window.reserve(1));
        window.hand_on(1, full);
        window.taken(window.position());
        assert!(window.reserve(full / 2) && !window.reserve(1));
        (0..20).for_each(|_| window.found(false));
        assert_eq!(window.size(), LEAST);
        window.found(true);
        assert_eq!(window.size(), LEAST + full / GROWTH);
        (0..GROWTH).for_each(|_| window.found(true));
        assert_eq!(window.size(), full);
        // One that is small anyway stays.
        let mut small = Window::new(10);
        small.found(false);
        assert_eq!(small.size(), 10);
    }

    proptest! {
        #[test]
        fn never_further_ahead_than_its_size(
            size in 1..1_000u64, steps in prop::collection::vec((0..3u8, 1..400u64), 0..200)
        ) {
            let mut window = Window::new(size);
            let (mut reserved, mut handed) = (VecDeque::new(), Vec::<(u64, u64)>::new());
            let (mut position, mut taken) = (0, 0);
            for (what, n) in steps {
                match what {
                    0 => if window.reserve(n) { reserved.push_back(n); },
                    1 => if let Some(bytes) = reserved.pop_front() {
                        position += n;
                        handed.push((position, bytes));
                        window.hand_on(n, bytes);
                    },
                    _ => {
                        taken = position.min(taken + n);
                        window.taken(taken);
                    }
                }
                prop_assert!(window.ahead() <= size);
                let untaken: u64 = handed.iter().filter(|h| h.0 > taken).map(|h| h.1).sum();
                prop_assert_eq!(window.ahead(), untaken + reserved.iter().sum::<u64>());
            }
        }
    }
}
