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
pub(crate) struct Held {
    event: Mutex<Option<Event>>,
    count: Arc<AtomicUsize>,
}

impl Held {
    /// Releases the reader. Returns `false` if another thread has done so.
    pub(crate) fn try_release(&self) -> bool {
        let event = lock(&self.event).take();
        let held = event.is_some();
        if held {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
        // Dropping the event answers it.
        drop(event);
        held
    }

    pub(crate) fn release(&self) {
        self.try_release();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

/// All blocked readers, oldest first.
#[derive(Debug)]
pub(crate) struct Registry {
    queue: Mutex<VecDeque<(Instant, Weak<Held>)>>,
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
    pub(crate) fn hold(&self, event: Event, now: Instant) -> Option<Arc<Held>> {
        if self.now.fetch_add(1, Ordering::AcqRel) >= self.most {
            self.now.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let held = Arc::new(Held { event: Mutex::new(Some(event)), count: self.now.clone() });
        let mut queue = lock(&self.queue);
        // Answered readers are removed when they reach the front. If one at the front is blocked for its
        // whole time, answered ones would accumulate behind it.
        if queue.len() >= 2 * self.most {
            queue.retain(|(_, held)| held.strong_count() > 0);
        }
        queue.push_back((now, Arc::downgrade(&held)));
        Some(held)
    }

    /// Releases all readers whose time is up.
    pub(crate) fn enforce(&self, now: Instant) {
        loop {
            let held = {
                let mut queue = lock(&self.queue);
                let Some((since, held)) = queue.front() else { return };
                let over = now.saturating_duration_since(*since) >= self.limit;
                let gone = held.strong_count() == 0;
                if !over && !gone {
                    return;
                }
                queue.pop_front().and_then(|(_, held)| held.upgrade())
            };
            if held.is_some_and(|held| held.try_release()) {
                self.overdue.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Releases all readers now.
    pub(crate) fn release_all(&self) {
        let queue = std::mem::take(&mut *lock(&self.queue));
        for held in queue.iter().filter_map(|(_, held)| held.upgrade()) {
            held.release();
        }
    }

    /// Number of readers blocked now.
    pub(crate) fn held_now(&self) -> u64 {
        self.now.load(Ordering::Acquire) as u64
    }

    /// Number of readers released because their time was up.
    pub(crate) fn overdue(&self) -> u64 {
        self.overdue.load(Ordering::Relaxed)
    }
}
