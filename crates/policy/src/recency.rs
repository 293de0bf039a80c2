//! Keys in order of use: a doubly linked list in a slab, so that a change takes constant time.

use alloc::vec::Vec;

/// End of the list.
const NIL: u32 = u32::MAX;

/// Handle of a key in a [`Recency`]; valid from [`Recency::add`] until the key is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u32);

#[derive(Clone, Debug)]
struct Node<K> {
    key: K,
    older: u32,
    newer: u32,
}

/// Keys, from the least to the most recently used.
#[derive(Clone, Debug)]
pub struct Recency<K> {
    nodes: Vec<Node<K>>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl<K> Default for Recency<K> {
    fn default() -> Recency<K> {
        Recency { nodes: Vec::new(), free: Vec::new(), oldest: NIL, newest: NIL }
    }
}

impl<K: Copy> Recency<K> {
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a key as the most recently used.
    pub fn add(&mut self, key: K) -> Handle {
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
        Handle(at)
    }

    /// Removes a key. Its handle must not be used again.
    pub fn remove(&mut self, handle: Handle) {
        self.unlink(handle.0);
        self.free.push(handle.0);
    }

    /// The least recently used key.
    pub fn oldest(&self) -> Option<K> {
        Some(self.nodes.get(self.oldest as usize)?.key)
    }

    /// Removes and returns the least recently used key.
    pub fn pop_oldest(&mut self) -> Option<K> {
        let key = self.oldest()?;
        self.remove(Handle(self.oldest));
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
        /// Behaves like a plain list of keys, newest last.
        #[test]
        fn behaves_like_a_plain_list(ops in proptest::collection::vec((0u8..5, 0u32..1000), 0..300)) {
            let mut recency = Recency::default();
            let mut model: Vec<(u32, Handle)> = Vec::new();
            for (op, n) in ops {
                let i = (!model.is_empty()).then(|| n as usize % model.len());
                match (op, i) {
                    (0..=2, _) => model.push((n, recency.add(n))),
                    (3, Some(i)) => recency.remove(model.remove(i).1),
                    _ => {
                        let oldest = (!model.is_empty()).then(|| model.remove(0).0);
                        prop_assert_eq!(recency.pop_oldest(), oldest);
                    }
                }
                prop_assert_eq!(recency.len(), model.len());
            }
            for (key, _) in model {
                prop_assert_eq!(recency.pop_oldest(), Some(key));
            }
            prop_assert_eq!(recency.pop_oldest(), None);
        }
    }
}
