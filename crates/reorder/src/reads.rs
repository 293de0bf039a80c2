//! Which blocks to read next: those that a client waits for first, then those in queues, in the order of
//! choice.

use alloc::vec::Vec;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use lru::LruCache;

use super::ClientId;
use super::memory::Key;

#[derive(Clone, Debug, Default)]
struct Want {
    /// Client queues that contain it.
    queued: u32,
    /// The client that queued it last. What that client needs next may be read along.
    by: Option<ClientId>,
    /// Clients that have nothing else to send.
    waiting: Vec<ClientId>,
    /// Whether it is being read.
    in_flight: bool,
}

/// Blocks in queues that are not in memory, or were not when chosen. It has as many entries as queues hold
/// blocks, plus those being read.
#[derive(Clone, Debug)]
pub(super) struct Reads {
    wants: HashMap<Key, Want>,
    /// Blocks to read, first come, first served: first these,
    urgent: LruCache<Key, ()>,
    /// then these.
    queued: LruCache<Key, ()>,
}

impl Reads {
    pub(super) fn new() -> Reads {
        Reads { wants: HashMap::new(), urgent: LruCache::unbounded(), queued: LruCache::unbounded() }
    }

    /// A block entered a client's queue.
    pub(super) fn queued(&mut self, key: Key, client: ClientId, resident: bool) {
        let want = self.wants.entry(key).or_default();
        want.queued += 1;
        want.by = Some(client);
        if !resident && !want.in_flight && !self.urgent.contains(&key) && !self.queued.contains(&key) {
            self.queued.put(key, ());
        }
    }

    /// A client waits for the block at the head of its queue, which is not in memory. Even if it was in
    /// memory before, it is not being read now.
    pub(super) fn wait(&mut self, key: Key, client: ClientId) -> bool {
        let want = self.wants.entry(key).or_default();
        want.waiting.push(client);
        if want.in_flight || self.urgent.contains(&key) {
            return false;
        }
        self.urgent.put(key, ());
        self.queued.pop(&key).is_none()
    }

    /// A block left a client's queue: it is being sent, or the client is gone.
    pub(super) fn unqueued(&mut self, key: Key, client: ClientId) {
        let Entry::Occupied(mut entry) = self.wants.entry(key) else { return };
        let want = entry.get_mut();
        want.queued = want.queued.saturating_sub(1);
        want.waiting.retain(|c| *c != client);
        if want.queued == 0 {
            if !want.in_flight {
                entry.remove();
            }
            self.out_of_order(key);
        }
    }

    /// The next block to read, and a client that it is for.
    pub(super) fn next(&self) -> Option<(Key, Option<ClientId>)> {
        let (key, ()) = self.urgent.peek_lru().or(self.queued.peek_lru())?;
        let want = self.wants.get(key)?;
        Some((*key, want.waiting.first().copied().or(want.by)))
    }

    pub(super) fn in_flight(&self, key: Key) -> bool {
        self.wants.get(&key).is_some_and(|w| w.in_flight)
    }

    /// A read of the block has begun.
    pub(super) fn begin(&mut self, key: Key) {
        self.wants.entry(key).or_default().in_flight = true;
        self.out_of_order(key);
    }

    /// It need not be read any more.
    fn out_of_order(&mut self, key: Key) {
        self.urgent.pop(&key);
        self.queued.pop(&key);
    }

    /// The read of the block has ended. Returns the clients that waited for it.
    pub(super) fn end(&mut self, key: Key) -> Vec<ClientId> {
        let Entry::Occupied(mut entry) = self.wants.entry(key) else { return Vec::new() };
        let want = entry.get_mut();
        want.in_flight = false;
        let waiting = core::mem::take(&mut want.waiting);
        if want.queued == 0 {
            entry.remove();
        }
        waiting
    }

    /// Whether the block is in some client's queue.
    pub(super) fn is_wanted(&self, key: Key) -> bool {
        self.wants.get(&key).is_some_and(|w| w.queued > 0)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.wants.len()
    }
}
