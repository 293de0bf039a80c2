//! Reports of reads to the daemon, hits and misses: a few stores into shared memory
//! ([`seekless_kernel::ring`]).
//!
//! Every frame of the daemon that carries settings names a ring by a number. Each user has one, so that no
//! user sees another's reports. The ring comes with the first settings. If an answer names a ring that is not
//! mapped, it is requested once, on a connection of its own. From then on a report needs no system call. A
//! restarted daemon names another ring. The old one stays mapped, because a thread may be writing to it; the
//! number of mapped rings is bounded.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use seekless_kernel::ring::{Producer, Record, Ring};

/// Maximum number of rings mapped in the life of a process, 260 KiB each. A server that outlives that many
/// daemons goes on without reports.
const RINGS_MAX: usize = 64;

/// A mapped ring.
struct Mapped {
    /// 0: none, or a ring that must not be used again.
    number: AtomicU8,
    ring: AtomicPtr<Ring>,
}

/// Every ring mapped so far. A process that changes its user from call to call (`smbd`) gets the name of
/// another ring at each change, and finds it here.
static MAPPED: [Mapped; RINGS_MAX] =
    [const { Mapped { number: AtomicU8::new(0), ring: AtomicPtr::new(std::ptr::null_mut()) } }; RINGS_MAX];
static MAPPED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The current ring; null if there is none.
static RING: AtomicPtr<Ring> = AtomicPtr::new(std::ptr::null_mut());
/// Its number. Also set if the ring was not available, so that it is requested once and not at every call.
static NUMBER: AtomicU8 = AtomicU8::new(0);

/// The daemon named this ring; `fetch` returns its descriptor, or requests it.
pub(crate) fn named(number: u8, fetch: impl FnOnce() -> Option<OwnedFd>) {
    let known = NUMBER.load(Ordering::Relaxed);
    if number == known
        || NUMBER.compare_exchange(known, number, Ordering::Relaxed, Ordering::Relaxed).is_err()
    {
        return;
    }
    // The thread that changed the number fetches the ring; no thread writes to the old one meanwhile.
    RING.store(std::ptr::null_mut(), Ordering::Release);
    if number == 0 {
        return;
    }
    let ring = mapped(number).or_else(|| map(number, fetch)).unwrap_or(std::ptr::null_mut());
    // If another thread got another number meanwhile, it stores its own ring.
    if NUMBER.load(Ordering::Relaxed) == number {
        RING.store(ring, Ordering::Release);
    }
}

/// The daemon is gone: the next one may give the same numbers to other rings.
pub(crate) fn daemon_gone() {
    let count = MAPPED_COUNT.load(Ordering::Relaxed);
    MAPPED.iter().take(count).for_each(|m| m.number.store(0, Ordering::Relaxed));
}

/// A ring of this number that is mapped already.
fn mapped(number: u8) -> Option<*mut Ring> {
    let count = MAPPED_COUNT.load(Ordering::Relaxed);
    let all = MAPPED.iter().take(count).filter(|m| m.number.load(Ordering::Acquire) == number);
    let ring = all.map(|m| m.ring.load(Ordering::Relaxed)).next_back()?;
    // SAFETY: null, or a ring that stays mapped until the process ends; all access to it is atomic.
    unsafe { ring.as_ref() }.is_some_and(Ring::is_read).then_some(ring)
}

/// Requests the ring of this number and maps it.
fn map(number: u8, fetch: impl FnOnce() -> Option<OwnedFd>) -> Option<*mut Ring> {
    if MAPPED_COUNT.load(Ordering::Relaxed) >= RINGS_MAX {
        return None;
    }
    let producer = Producer::open(fetch()?.as_fd()).ok()?;
    let place = MAPPED.get(MAPPED_COUNT.fetch_add(1, Ordering::Relaxed));
    let Some(place) = place else {
        // Keeps the count from wrapping.
        MAPPED_COUNT.store(RINGS_MAX, Ordering::Relaxed);
        return None;
    };
    let ring: *const Ring = producer.forever();
    place.ring.store(ring.cast_mut(), Ordering::Relaxed);
    place.number.store(number, Ordering::Release);
    Some(ring.cast_mut())
}

/// Whether a daemon reads the reports.
#[inline]
pub(crate) fn wanted() -> bool {
    !RING.load(Ordering::Relaxed).is_null()
}

/// Reports a read that is done.
#[inline]
pub(crate) fn read(record: &Record) {
    let ring = RING.load(Ordering::Acquire);
    // SAFETY: null, or a ring that stays mapped until the process ends; all access to it is atomic.
    if unsafe { ring.as_ref() }.is_some_and(|ring| !ring.push(record)) {
        full(ring);
    }
}

/// A ring is full. Its daemon may have been killed, and the next one may give the same number to another
/// ring; the next answer that names a ring decides.
#[cold]
fn full(ring: *mut Ring) {
    if RING.compare_exchange(ring, std::ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        NUMBER.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_kernel::ring::{CAPACITY, Consumer};
    use std::path::Path;
    use std::time::Instant;

    fn ring() -> (Consumer, OwnedFd) {
        Consumer::create(Path::new("/run/x.sock")).unwrap()
    }

    fn report(offset: u64) {
        read(&Record { offset, ..Record::default() });
    }

    /// One test, because mapped rings belong to the process.
    #[test]
    fn reports_reach_the_daemon_that_is_there() {
        // A daemon that has no ring to give takes no slot.
        for round in 0..2 * RINGS_MAX {
            named(1 + (round % 2) as u8, || None);
        }
        let (killed, fd) = ring();
        named(5, || Some(fd));
        assert!(wanted());
        daemon_gone();
        // The next daemon happens to give the same number.
        let (mut next, fd) = ring();
        let mut fd = Some(fd);
        for offset in 0..=CAPACITY as u64 {
            report(offset);
            named(5, || fd.take());
        }
        report(7);
        assert_eq!(next.pop(Instant::now()).map(|record| record.offset), Some(7));
        // A daemon that is merely slow keeps its ring.
        for offset in 0..2 * CAPACITY as u64 {
            report(offset);
        }
        named(5, || panic!("it is mapped already"));
        while next.pop(Instant::now()).is_some() {}
        report(8);
        assert_eq!(next.pop(Instant::now()).map(|record| record.offset), Some(8));
        drop(killed);
    }
}
