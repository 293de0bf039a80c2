//! The order in which ranges were touched: a list threaded through a slab, so that a touch costs the same however many there are.

use alloc::vec::Vec;

/// No range.
const NIL: u32 = u32::MAX;

/// Place of a range in the order. It is the range's until it is removed, however often it is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age(u32);

#[derive(Clone, Debug)]
struct Node<K> {
    key: K,
    older: u32,
    newer: u32,
}

/// Ranges from the one untouched longest to the one touched last.
#[derive(Clone, Debug)]
pub(super) struct Ages<K> {
    nodes: Vec<Node<K>>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl<K: Copy> Ages<K> {
    pub(super) fn new() -> Ages<K> {
        Ages { nodes: Vec::new(), free: Vec::new(), oldest: NIL, newest: NIL }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// A range that is touched for the first time.
    pub(super) fn add(&mut self, key: K) -> Age {
        let node = Node { key, older: NIL, newer: NIL };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.link(at);
        Age(at)
    }

    /// A range is touched again.
    pub(super) fn touch(&mut self, age: Age) {
        if self.newest != age.0 {
            self.unlink(age.0);
            self.link(age.0);
        }
    }

    /// The same, and it goes by another name from now on.
    pub(super) fn rename(&mut self, age: Age, key: K) {
        self.nodes[age.0 as usize].key = key;
        self.touch(age);
    }

    pub(super) fn remove(&mut self, age: Age) {
        self.unlink(age.0);
        self.free.push(age.0);
    }

    /// Takes out the one untouched longest.
    pub(super) fn pop_oldest(&mut self) -> Option<K> {
        let key = self.nodes.get(self.oldest as usize)?.key;
        self.remove(Age(self.oldest));
        Some(key)
    }

    fn unlink(&mut self, at: u32) {
        let Node { older, newer, .. } = self.nodes[at as usize];
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.newest = older,
        }
    }

    fn link(&mut self, at: u32) {
        let before = core::mem::replace(&mut self.newest, at);
        let node = &mut self.nodes[at as usize];
        (node.older, node.newer) = (before, NIL);
        match self.nodes.get_mut(before as usize) {
            Some(node) => node.newer = at,
            None => self.oldest = at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// A plain list of names, newest last, is the same.
        #[test]
        fn behaves_like_a_plain_list(ops in proptest::collection::vec((0u8..5, 0u32..1000), 0..300)) {
            let mut ages = Ages::new();
            let mut model: Vec<(u32, Age)> = Vec::new();
            for (op, n) in ops {
                let i = (!model.is_empty()).then(|| n as usize % model.len());
                match (op, i) {
                    (0 | 1, _) => model.push((n, ages.add(n))),
                    (2, Some(i)) => {
                        let (key, age) = model.remove(i);
                        ages.rename(age, key + 1000);
                        model.push((key + 1000, age));
                    }
                    (3, Some(i)) => ages.remove(model.remove(i).1),
                    _ => {
                        let oldest = (!model.is_empty()).then(|| model.remove(0).0);
                        prop_assert_eq!(ages.pop_oldest(), oldest);
                    }
                }
                prop_assert_eq!(ages.len(), model.len());
            }
            for (key, _) in model {
                prop_assert_eq!(ages.pop_oldest(), Some(key));
            }
            prop_assert_eq!(ages.pop_oldest(), None);
        }
    }
}
