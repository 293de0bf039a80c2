//! How far reading is ahead of the consumer, pure.
//!
//! A file counts from before it is read until the consumer has taken its path. Paths are taken in the order
//! in which they were handed on, so what is taken follows from how many bytes of the output are taken.

use std::collections::VecDeque;

/// Bytes read for a consumer that has not taken their paths yet: never more than its size.
#[derive(Debug)]
pub struct Window {
    size: u64,
    ahead: u64,
    /// Bytes of paths handed on so far.
    position: u64,
    /// Of each path handed on and not known to be taken: the position after it, and the bytes of its file.
    handed: VecDeque<(u64, u64)>,
}

impl Window {
    /// An empty window of `size` bytes.
    pub fn new(size: u64) -> Window {
        Window { size, ahead: 0, position: 0, handed: VecDeque::new() }
    }

    /// Its size.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes read, or being read, whose paths are not taken.
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Counts `bytes` that are about to be read. Refused, without a change, if they do not fit.
    #[must_use]
    pub fn reserve(&mut self, bytes: u64) -> bool {
        let fits = self.ahead.checked_add(bytes).is_some_and(|sum| sum <= self.size);
        if fits {
            self.ahead += bytes;
        }
        fits
    }

    /// A path of `path_bytes`, its end mark included, is handed on; `bytes` were reserved for its file.
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
