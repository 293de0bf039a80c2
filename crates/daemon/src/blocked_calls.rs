//! Readers that the kernel blocks, each for a bounded time.
//!
//! A blocked reader sleeps until its event is answered. The disk's thread does that, normally within a disk's
//! service time. But the disk may hang, and with it any thread that makes a call on it. So every blocked
//! reader is also in a [`Registry`], in order of arrival, and a thread that never touches a disk releases
//! those whose time is up.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use seekless_engine::lock;
use seekless_kernel::fanotify::Event;

/// One blocked reader. Released at the latest when this is dropped.
#[derive(Debug)]
pub(crate) struct BlockedCall {
    event: Mutex<Option<Event>>,
    count: Arc<AtomicUsize>,
}

impl BlockedCall {
    /// Releases the reader. Returns `false` if another thread has done so.
    pub(crate) fn try_release(&self) -> bool {
        let event = lock(&self.event).take();
        let was_blocked = event.is_some();
        if was_blocked {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        // Dropping the event answers it.
        drop(event);
        was_blocked
    }

    pub(crate) fn release(&self) {
        self.try_release();
    }
}

impl Drop for BlockedCall {
    fn drop(&mut self) {
        self.release();
    }
}

/// All blocked readers, oldest first.
#[derive(Debug)]
pub(crate) struct Registry {
    queue: Mutex<VecDeque<(Instant, Weak<BlockedCall>)>>,
    now: Arc<AtomicUsize>,
    limit: Duration,
    most: usize,
    overdue: AtomicU64,
}

impl Registry {
    /// Readers are released after `limit`; at most `most` are blocked at once.
    pub(crate) fn new(limit: Duration, most: usize) -> Registry {
        Registry {
            queue: Mutex::default(),
            now: Arc::default(),
            limit,
            most: most.max(1),
            overdue: AtomicU64::new(0),
        }
    }

    /// Blocks the reader of an event. At the bound it is released at once and `None` returned.
    pub(crate) fn block(&self, event: Event, now: Instant) -> Option<Arc<BlockedCall>> {
        if self.now.fetch_add(1, Ordering::AcqRel) >= self.most {
            self.now.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let call = Arc::new(BlockedCall { event: Mutex::new(Some(event)), count: self.now.clone() });
        let mut queue = lock(&self.queue);
        // Answered readers are removed when they reach the front. If one at the front is blocked for its
        // whole time, answered ones would accumulate behind it.
        if queue.len() >= 2 * self.most {
            queue.retain(|(_, call)| call.strong_count() > 0);
        }
        queue.push_back((now, Arc::downgrade(&call)));
        Some(call)
    }

    /// Releases all readers whose time is up.
    pub(crate) fn enforce(&self, now: Instant) {
        loop {
            let call = {
                let mut queue = lock(&self.queue);
                let Some((since, call)) = queue.front() else { return };
                let over = now.saturating_duration_since(*since) >= self.limit;
                let gone = call.strong_count() == 0;
                if !over && !gone {
                    return;
                }
                queue.pop_front().and_then(|(_, call)| call.upgrade())
            };
            if call.is_some_and(|call| call.try_release()) {
                self.overdue.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Releases all readers now.
    pub(crate) fn release_all(&self) {
        let queue = std::mem::take(&mut *lock(&self.queue));
        for call in queue.iter().filter_map(|(_, call)| call.upgrade()) {
            call.release();
        }
    }

    /// Number of readers blocked now.
    pub(crate) fn blocked_now(&self) -> u64 {
        self.now.load(Ordering::Acquire) as u64
    }

    /// Number of readers released because their time was up.
    pub(crate) fn overdue(&self) -> u64 {
        self.overdue.load(Ordering::Relaxed)
    }
}
