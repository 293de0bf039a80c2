//! Telling the daemon what was read, hit or miss: a few stores into shared memory ([`seekless_kernel::ring`]).
//!
//! The daemon names its ring by a number in everything it says. A number we have not mapped is asked for, once, on a
//! connection of its own; from then on a report costs no system call. A daemon that was started again names another ring,
//! and the old one stays mapped, because some thread may be writing into it just now: a bounded number of times.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use seekless_kernel::ring::{Producer, Record, Ring};

/// Rings mapped in the life of a process, at 260 KiB each. A server that outlives so many daemons goes on without reports.
const RINGS_MAX: u32 = 64;

/// The ring to write to; null: none.
static RING: AtomicPtr<Ring> = AtomicPtr::new(std::ptr::null_mut());
/// Its number. Also set when it could not be had, so that it is asked for once and not at every call.
static NUMBER: AtomicU8 = AtomicU8::new(0);
static MAPPED: AtomicU32 = AtomicU32::new(0);

/// The daemon named this ring; `fetch` asks it for the descriptor.
pub(crate) fn named(number: u8, fetch: fn() -> Option<OwnedFd>) {
    let known = NUMBER.load(Ordering::Relaxed);
    if number == known
        || NUMBER.compare_exchange(known, number, Ordering::Relaxed, Ordering::Relaxed).is_err()
    {
        return;
    }
    // Whoever changed the number fetches the ring; nobody writes to the old one meanwhile.
    RING.store(std::ptr::null_mut(), Ordering::Release);
    if number == 0 || MAPPED.fetch_add(1, Ordering::Relaxed) >= RINGS_MAX {
        return;
    }
    if let Some(ring) = fetch().and_then(|fd| Producer::open(fd.as_fd()).ok()) {
        let ring: *const Ring = ring.forever();
        RING.store(ring.cast_mut(), Ordering::Release);
    }
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
