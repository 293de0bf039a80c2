//! Numbers of descriptors: none of ours stands where the host expects one of its own.
//!
//! The kernel gives a new descriptor the lowest number that is free. A host that has closed 0, 1 or 2 would
//! write its log lines into our socket and take its standard input from there, and `close(1); open()` would
//! not give it 1. So:
//!
//! - a descriptor is made only while 0, 1 and 2 are taken, and otherwise the call goes on without us;
//! - it is moved at once to a high number ([`ABOVE`]), and the low one is free again;
//! - a host's `close` of 0, 1 or 2 and the making of ours exclude one another ([`before_closing`]). A close
//!   that is no call of `close` (inside `fclose`, a raw system call) is found by a look before. Some hundred
//!   nanoseconds remain.
//!
//! No lock: what is kept are numbers, each of which heals by itself in a forked child or when a thread
//! vanishes.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use libc::c_int;

use crate::host;

/// Ours are moved to the first of these numbers, or the next free one above it, that the process may have.
/// 960: the kernel's table of descriptors grows to 1,024 entries (8 KiB) once, which is as far as `select`
/// reaches. At half of it a server with some hundred files meets ours; at double the table takes twice as
/// much in every process. The others are for small limits (`RLIMIT_NOFILE`).
const ABOVE: [c_int; 5] = [960, 240, 60, 15, 3];

/// Standard input, output and error.
const STANDARD: std::ops::RangeInclusive<c_int> = 0..=2;

/// When one of 0 to 2 was seen free, no descriptor is made for so long, milliseconds: a host that closes one
/// may do so again. Half: twice as many looks at a host that has none. Double: a host that is about to put
/// itself into the background is left alone for longer.
const FREE_PAUSE_MS: u64 = 1_000;

/// How long the host's closing keeps ours from being made, milliseconds, if its end is not heard of. A thread
/// that loses its processor in between for longer meets the look.
const CLOSING_MS: u64 = 100;

/// Longest a host's `close` waits for ours to be made and moved. That takes microseconds; once in the life of
/// a process with threads, when the table grows, some milliseconds. At half of it a busy machine may take
/// longer.
const MAKING_NS_MAX: u64 = 50_000_000;

/// Threads that make a descriptor now: the process above, their number below. The number of another process
/// is not ours: it was copied by `fork`, or is the parent's after `vfork`.
static MAKING: AtomicU64 = AtomicU64::new(0);
/// The host closes one of 0 to 2 until then.
static CLOSING_UNTIL_MS: AtomicU64 = AtomicU64::new(0);
/// One of them was free.
static FREE_UNTIL_MS: AtomicU64 = AtomicU64::new(0);

/// Runs `make`, which may make descriptors. `None`: one of 0 to 2 is free, and nothing was made.
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
    // Either the one that closes sees us here, or we see that it closes.
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
        // SAFETY: a number that is only asked about.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        rustix::io::fcntl_getfd(fd).is_ok()
    })
}

/// Moves a descriptor just made out of the host's way. `None`: it cannot be, and is closed.
pub(crate) fn moved(made: OwnedFd) -> Option<OwnedFd> {
    let number = made.as_raw_fd();
    if ABOVE.first().is_some_and(|above| number >= *above) {
        return Some(made);
    }
    let moved = match STANDARD.contains(&number) {
        // It was freed in the very moment.
        true => None,
        false => ABOVE.iter().find_map(|above| rustix::io::fcntl_dupfd_cloexec(&made, *above).ok()),
    };
    // SAFETY: ours, and not used after. Not by the C library's `close`, which is one of our hooks.
    unsafe { rustix::io::close(made.into_raw_fd()) };
    moved
}

/// Whether a number is one of those that are waited for.
pub(crate) fn is_standard(number: c_int) -> bool {
    STANDARD.contains(&number)
}

/// Before the host closes one of 0 to 2: none of ours is made from now on, and the one that is being made is
/// out of the way.
pub(crate) fn before_closing() {
    let (pid, _) = host::pid_tid();
    CLOSING_UNTIL_MS.store(host::coarse_ms().saturating_add(CLOSING_MS), Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let start = host::now_ns();
    let being_made = || {
        let word = MAKING.load(Ordering::SeqCst);
        word >> 32 == u64::from(pid) && word as u32 > 0
    };
    // A handler that interrupts the making of one in its own thread would wait for itself.
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
