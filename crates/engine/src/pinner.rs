//! Carries out [`Action::Pin`], `Renew` and `Unpin`, with [`seekless_kernel::hold`].
//!
//! A thread beside each disk's thread does it: touching the pages of 4 MiB takes a third of a millisecond,
//! and a page that is evicted at that moment is read again. Neither the disk nor a client that waits for an
//! answer should wait for that. Orders are executed in sequence, so that unpinned ranges stay unpinned.
//!
//! [`Action::Pin`]: seekless_policy::Action::Pin

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, TrySendError, bounded};
use seekless_kernel::hold::Hold;
use seekless_kernel::prefetch::Source;
use seekless_policy::FileId;

use crate::worker::short_name;

/// Maximum number of orders queued for the thread. Hints are dropped when half of the places are taken.
const ORDERS_MAX: usize = 256;

/// Maximum delay until a backlog is retried.
const AGAIN: Duration = Duration::from_millis(10);

/// Bytes of a file, `[start, end)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) file: FileId,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    /// `len` bytes from `start` on.
    pub(crate) fn of(file: FileId, start: u64, len: u64) -> Span {
        Span { file, start, end: start.saturating_add(len) }
    }
}

enum Order {
    Pin(Span, Arc<Source>),
    Renew(Span, Arc<Source>),
    Unpin(Span, bool),
}

/// The disk thread's handle. The other thread ends with it, and unpins everything.
pub(crate) struct Pinner {
    orders: Sender<Order>,
    /// Orders that did not fit. Only orders that must not be lost are kept, so never more than there are
    /// pins.
    backlog: VecDeque<Order>,
    /// Number of pinned ranges.
    count: Arc<AtomicUsize>,
}

impl Pinner {
    /// Starts the thread of a disk.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(disk: &str) -> io::Result<Pinner> {
        let (orders, todo) = bounded(ORDERS_MAX);
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let run = move || {
            let mut pinned = Pinned::default();
            for order in todo {
                pinned.carry_out(order);
                counted
                    .store(pinned.files.values().map(|holds| holds.by_start.len()).sum(), Ordering::Relaxed);
            }
        };
        thread::Builder::new().name(short_name("pin", disk)).spawn(run)?;
        Ok(Pinner { orders, backlog: VecDeque::new(), count })
    }

    /// Number of pinned ranges, as counted by the thread.
    pub(crate) fn count(&self) -> Arc<AtomicUsize> {
        self.count.clone()
    }

    fn takes_hints(&self) -> bool {
        self.backlog.is_empty() && self.orders.len() < ORDERS_MAX / 2
    }

    pub(crate) fn pin(&mut self, span: Span, source: &Arc<Source>) {
        if self.takes_hints() {
            let _ = self.orders.try_send(Order::Pin(span, source.clone()));
        }
    }

    pub(crate) fn renew(&mut self, span: Span, source: &Arc<Source>) {
        if self.takes_hints() {
            let _ = self.orders.try_send(Order::Renew(span, source.clone()));
        }
    }

    pub(crate) fn unpin(&mut self, span: Span, cold: bool) {
        self.backlog.push_back(Order::Unpin(span, cold));
        self.flush();
    }

    /// Sends the backlog. If some of it does not fit, returns when to try again.
    pub(crate) fn flush(&mut self) -> Option<Instant> {
        while let Some(order) = self.backlog.pop_front() {
            match self.orders.try_send(order) {
                Ok(()) => {}
                Err(TrySendError::Full(order)) => {
                    self.backlog.push_front(order);
                    return Some(Instant::now() + AGAIN);
                }
                // The thread has ended, and everything it had pinned is unpinned.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
        None
    }
}

/// The mappings, by file and start.
#[derive(Default)]
struct Pinned {
    files: HashMap<FileId, Holds>,
}

/// The mappings of a file.
struct Holds {
    by_start: BTreeMap<u64, Hold>,
    /// A mapping keeps its file open. A thread that waits until this source is dropped waits for the mappings
    /// too.
    _source: Arc<Source>,
}

impl Pinned {
    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Pin(span, source) => {
                // If it cannot be mapped, its pages are left to the kernel.
                if let Ok(hold) = Hold::new(source.as_fd(), span.start, span.end - span.start) {
                    let new = || Holds { by_start: BTreeMap::new(), _source: source.clone() };
                    let holds = self.files.entry(span.file).or_insert_with(new);
                    holds.by_start.insert(hold.offset(), hold);
                }
            }
            Order::Renew(span, source) => {
                let holds = self.files.get(&span.file).into_iter().flat_map(|holds| &holds.by_start);
                for (_, hold) in holds.filter(|(_, h)| h.offset() < span.end && span.start < h.end()) {
                    // If it cannot be renewed, it stays mapped.
                    let _ = hold.renew(source.as_fd());
                }
            }
            Order::Unpin(span, cold) => self.unpin(span, cold),
        }
    }

    fn unpin(&mut self, Span { file, start, end }: Span, cold: bool) {
        let Some(Holds { by_start: holds, .. }) = self.files.get_mut(&file) else { return };
        let touched = holds.iter().filter(|(_, h)| h.offset() < end && start < h.end());
        let touched: Vec<u64> = touched.map(|(&at, _)| at).collect();
        for at in touched {
            let Some(mut hold) = holds.remove(&at) else { continue };
            let mut rest = hold.split_off(start);
            match cold {
                true => rest.cool_before(end),
                false => rest.release_before(end),
            }
            for part in [hold, rest] {
                if part.offset() < part.end() {
                    holds.insert(part.offset(), part);
                }
            }
        }
        if holds.is_empty() {
            self.files.remove(&file);
        }
    }

    #[cfg(test)]
    fn all(&self) -> Vec<(u64, u64)> {
        let holds = self.files.values().flat_map(|holds| holds.by_start.values());
        let mut all: Vec<(u64, u64)> = holds.map(|h| (h.offset(), h.end())).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const M: u64 = 1 << 20;
    const FILE: FileId = FileId { dev: 1, ino: 2 };

    fn span(start: u64, end: u64) -> Span {
        Span { file: FILE, start, end }
    }

    /// A file that is in memory completely.
    fn source() -> Arc<Source> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 16 << 20]).unwrap();
        Arc::new(Source::own(file.into()))
    }

    #[test]
    fn orders_are_done_to_the_mappings() {
        let (source, mut pinned) = (source(), Pinned::default());
        for i in 0..3 {
            pinned.carry_out(Order::Pin(span(i * 4 * M, (i + 1) * 4 * M), source.clone()));
        }
        pinned.carry_out(Order::Unpin(span(0, M), false));
        pinned.carry_out(Order::Unpin(span(5 * M, 6 * M), true));
        assert_eq!(pinned.all(), [(M, 4 * M), (4 * M, 5 * M), (6 * M, 8 * M), (8 * M, 12 * M)]);
        pinned.carry_out(Order::Renew(span(0, 16 * M), source));
        pinned.carry_out(Order::Unpin(span(2 * M, 9 * M), false));
        assert_eq!(pinned.all(), [(M, 2 * M), (9 * M, 12 * M)]);
        pinned.carry_out(Order::Unpin(span(0, u64::MAX), true));
        assert!(pinned.all().is_empty() && pinned.files.is_empty());
    }

    #[test]
    fn what_is_not_in_memory_is_not_pinned() {
        let mut pinned = Pinned::default();
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 * M).unwrap();
        pinned.carry_out(Order::Pin(span(0, 4 * M), Arc::new(Source::own(file.into()))));
        assert!(pinned.all().is_empty());
    }

    #[test]
    fn an_unpin_is_never_lost_and_a_hint_may_be() {
        let (orders, todo) = bounded(4);
        let mut pinner = Pinner { orders, backlog: VecDeque::new(), count: Arc::default() };
        let source = source();
        for i in 0..20 {
            pinner.unpin(span(i * M, (i + 1) * M), false);
            pinner.pin(span(0, M), &source);
        }
        let mut unpinned = 0;
        while unpinned < 20 {
            match todo.try_recv() {
                Ok(Order::Unpin(span, _)) => {
                    assert_eq!(span.start, unpinned * M, "in order");
                    unpinned += 1;
                }
                Ok(_) => {}
                Err(_) => assert!(pinner.flush().is_some() || !todo.is_empty(), "lost"),
            }
        }
    }
}
