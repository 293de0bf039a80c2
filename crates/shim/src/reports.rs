//! Telling the daemon what was read, hit or miss: a few stores into shared memory ([`seekless_kernel::ring`]).
//!
//! The daemon names a ring by a number in everything it says: one for each user, so that no user sees
//! another's reports. It comes along with the first settings. A ring that an answer names and that we have not
//! mapped is asked for, once, on a connection of its own. From then on a report costs no system call. A daemon
//! that was started again names another ring, and the old one stays mapped, because some thread may be writing
//! into it just now: a bounded number of times.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use seekless_kernel::ring::{Producer, Record, Ring};

/// Rings mapped in the life of a process, at 260 KiB each. A server that outlives so many daemons goes on without reports.
const RINGS_MAX: usize = 64;

/// A ring that is mapped.
struct Mapped {
    /// 0: none, or one not to be used again.
    number: AtomicU8,
    ring: AtomicPtr<Ring>,
}

/// Every ring mapped so far. A process that changes its user from call to call (`smbd`) is named another ring at each change, and finds
/// it here.
static MAPPED: [Mapped; RINGS_MAX] =
    [const { Mapped { number: AtomicU8::new(0), ring: AtomicPtr::new(std::ptr::null_mut()) } }; RINGS_MAX];
static MAPPED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The ring to write to; null: none.
static RING: AtomicPtr<Ring> = AtomicPtr::new(std::ptr::null_mut());
/// Its number. Also set when it could not be had, so that it is asked for once and not at every call.
static NUMBER: AtomicU8 = AtomicU8::new(0);

/// The daemon named this ring; `fetch` has its descriptor, or asks for it.
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
    // Another thread may have been named another one meanwhile: it is that one's turn.
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
    // SAFETY: null or a ring that stays mapped until the process ends; all access to it is atomic.
    unsafe { ring.as_ref() }.is_some_and(Ring::is_read).then_some(ring)
}

/// Asks for the ring of this number and maps it.
fn map(number: u8, fetch: impl FnOnce() -> Option<OwnedFd>) -> Option<*mut Ring> {
    let place = MAPPED.get(MAPPED_COUNT.fetch_add(1, Ordering::Relaxed));
    let Some(place) = place else {
        // So that it never counts round.
        MAPPED_COUNT.store(RINGS_MAX, Ordering::Relaxed);
        return None;
    };
    let ring: *const Ring = Producer::open(fetch()?.as_fd()).ok()?.forever();
    place.ring.store(ring.cast_mut(), Ordering::Relaxed);
    place.number.store(number, Ordering::Release);
    Some(ring.cast_mut())
}

/// Whether anybody listens.
#[inline]
pub(crate) fn wanted() -> bool {
    !RING.load(Ordering::Relaxed).is_null()
}

/// Reports a read that was done.
#[inline]
pub(crate) fn read(record: &Record) {
    // SAFETY: null or a ring that stays mapped until the process ends; all access to it is atomic.
    if let Some(ring) = unsafe { RING.load(Ordering::Acquire).as_ref() } {
        ring.push(record);
    }
}
