//! Numbers of descriptors: the shim must not occupy a number that the host expects for a descriptor of its
//! own.
//!
//! The kernel gives a new descriptor the lowest free number. A host that has closed 0, 1 or 2 would write its
//! log lines into the shim's socket and read its standard input from there, and `close(1); open()` would not
//! return 1. So:
//!
//! - a descriptor is made only while 0, 1 and 2 are taken; otherwise the call goes on without the shim;
//! - it is moved at once to a high number ([`ABOVE`]), which frees the low one;
//! - a host's `close` of 0, 1 or 2 and the making of a descriptor exclude one another ([`before_closing`]). A
//!   close without a call of `close` (inside `fclose`, a raw system call) is found by a check beforehand. A
//!   race of some hundred nanoseconds remains.
//!
//! There is no lock. The state consists of numbers, each of which recovers by itself in a forked child or
//! when a thread vanishes.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use libc::c_int;

use crate::host;

/// The shim's descriptors are moved to the first of these numbers that the process may have, or the next free
/// one above it. 960: the kernel's table of descriptors grows to 1,024 entries (8 KiB) once, which is also
/// the limit of `select`. At half, a server with some hundred files meets the shim's descriptors; at double,
/// the table takes twice as much in every process. The others are for small limits (`RLIMIT_NOFILE`).
const ABOVE: [c_int; 5] = [960, 240, 60, 15, 3];

/// Standard input, output and error.
const STANDARD: std::ops::RangeInclusive<c_int> = 0..=2;

/// After 0, 1 or 2 was found free, no descriptor is made for this long, in milliseconds, because a host that
/// closes one may do so again. At half, a host without one of them is checked twice as often; at double, a
/// host that is about to go into the background is left alone for longer.
const FREE_PAUSE_MS: u64 = 1_000;

/// Maximum time in milliseconds for which a host's `close` prevents new descriptors, if its end is not seen.
/// If the closing thread loses its processor for longer, the check beforehand applies.
const CLOSING_MS: u64 = 100;

/// Maximum wait of a host's `close` for a descriptor to be made and moved, in nanoseconds. That takes
/// microseconds; once in the life of a process with threads, when the table grows, some milliseconds. At
/// half, a busy machine may take longer.
const MAKING_NS_MAX: u64 = 50_000_000;

/// Number of threads that are making a descriptor: process id in the upper bits, count in the lower. A count
/// with another process id was copied by `fork`, or is the parent's after `vfork`, and is ignored.
static MAKING: AtomicU64 = AtomicU64::new(0);
/// Until then the host is closing one of 0 to 2.
static CLOSING_UNTIL_MS: AtomicU64 = AtomicU64::new(0);
/// Until then one of them counts as free.
static FREE_UNTIL_MS: AtomicU64 = AtomicU64::new(0);

/// Runs `make`, which may make descriptors. `None`: one of 0 to 2 is free, and `make` did not run.
pub(crate) fn make<T>(make: impl FnOnce() -> T) -> Option<T> {
    if host::coarse_ms() < FREE_UNTIL_MS.load(Ordering::Relaxed) {
        return None;
    }
    let (pid, _) = host::pid_tid();
    let count = |by: fn(u64) -> u64| {
        let _ = MAKING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
            let own = if word >> 32 == u64::from(pid) { word as u32 } else { 0 };
            Some(u64::from(pid) << 32 | by(own.into()) & u64::from(u32::MAX))
        });
    };
    count(|n| n.saturating_add(1));
    // Either the closing thread sees this one, or this thread sees the close.
    fence(Ordering::SeqCst);
    let now_ms = host::coarse_ms();
    let closing = now_ms < CLOSING_UNTIL_MS.load(Ordering::SeqCst);
    let made = if closing || !standard_are_taken() {
        FREE_UNTIL_MS.store(now_ms.saturating_add(FREE_PAUSE_MS), Ordering::Relaxed);
        None
    } else {
        Some(make())
    };
    count(|n| n.saturating_sub(1));
    made
}

fn standard_are_taken() -> bool {
    STANDARD.into_iter().all(|number| {
        // SAFETY: the number is only queried.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        rustix::io::fcntl_getfd(fd).is_ok()
    })
}

/// Moves a new descriptor out of the host's way. `None`: that is not possible, and it was closed.
pub(crate) fn moved(made: OwnedFd) -> Option<OwnedFd> {
    let number = made.as_raw_fd();
    if ABOVE.first().is_some_and(|above| number >= *above) {
        return Some(made);
    }
    let moved = match STANDARD.contains(&number) {
        // It was freed at this very moment.
        true => None,
        false => ABOVE.iter().find_map(|above| rustix::io::fcntl_dupfd_cloexec(&made, *above).ok()),
    };
    // SAFETY: the shim's own descriptor, not used afterwards. Not by the C library's `close`, which is one of
    // the hooks.
    unsafe { rustix::io::close(made.into_raw_fd()) };
    moved
}

/// Whether a number is 0, 1 or 2.
pub(crate) fn is_standard(number: c_int) -> bool {
    STANDARD.contains(&number)
}

/// Called before the host closes one of 0 to 2: prevents new descriptors, and waits until the one being made
/// is moved.
pub(crate) fn before_closing() {
    let (pid, _) = host::pid_tid();
    CLOSING_UNTIL_MS.store(host::coarse_ms().saturating_add(CLOSING_MS), Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let start = host::now_ns();
    let being_made = || {
        let word = MAKING.load(Ordering::SeqCst);
        word >> 32 == u64::from(pid) && word as u32 > 0
    };
    // A signal handler that interrupts the making in its own thread would wait for itself.
    while !host::is_inside() && being_made() && host::now_ns().saturating_sub(start) < MAKING_NS_MAX {
        rustix::thread::sched_yield();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_are_far_above_those_of_the_host() {
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let low = file.as_raw_fd();
        let moved = make(|| moved(file)).flatten().unwrap();
        assert!(moved.as_raw_fd() >= 960 || moved.as_raw_fd() > low, "{moved:?}");
        assert!(rustix::io::fcntl_getfd(&moved).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}
