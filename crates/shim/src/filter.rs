//! Filters of system calls (seccomp): a call of ours that one forbids would end the host.
//!
//! - A filter that the host installs is seen coming, because it is installed by `prctl` or `syscall`, which
//!   are among our [`hooks`](crate::hooks). We switch off for good first ([`shut`]): the state says "off",
//!   every thread that is inside of us comes out, and from then on we make no system call whatever, not even
//!   to close a descriptor.
//! - A filter that was there when the program began ([`is_inherited`]) is known by `/proc/self/status`. To
//!   look there takes the calls that the loader has just made to load us. We stay off, unless
//!   `SEEKLESS_SECCOMP=allow` says that the filter allows what we do.
//!
//! Not seen: a filter installed without the C library (Go, a static program's own instructions).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libc::{c_int, c_long, c_ulong};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{Timespec, nanosleep};

use crate::{config, host};

/// Counters of threads inside, spread so that threads on different processors seldom share one.
const LINES: usize = 64;

/// Longest a filter waits for threads to come out of us, nanoseconds. They look every [`LOOK_MS`]; the rest
/// is for a busy machine. A thread that left us by `siglongjmp` is waited for in vain. At half of it a thread
/// that lost its processor may be met by the filter; at double such a host starts its sandbox so much later.
const OUT_NS_MAX: u64 = 2_000_000_000;

/// A wait looks so often whether we are off, milliseconds. At half of it a waiting thread wakes twice as
/// often; at double a sandbox may start so much later.
pub(crate) const LOOK_MS: u64 = 50;

#[repr(align(64))]
struct Line(AtomicU32);

static INSIDE: [Line; LINES] = [const { Line(AtomicU32::new(0)) }; LINES];

/// No system call of ours is to be made any more.
static SEALED: AtomicBool = AtomicBool::new(false);

/// Runs `work`, which may make system calls, unless we are off.
#[inline]
pub(crate) fn unless_off<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    let Some(Line(inside)) = INSIDE.get(host::thread_mark() % LINES) else { return otherwise };
    // Either the one that switches off sees us here, or we see that we are off.
    inside.fetch_add(1, Ordering::SeqCst);
    let result = if config::enabled() { work() } else { otherwise };
    inside.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Whether no system call is to be made, not even to tidy up.
pub(crate) fn is_sealed() -> bool {
    SEALED.load(Ordering::Relaxed)
}

/// Switches off for good. Returns when no thread is inside of us.
#[cold]
pub(crate) fn shut() {
    config::switch_off();
    let start = host::now_ns();
    let out = || INSIDE.iter().all(|line| line.0.load(Ordering::SeqCst) == 0);
    // A handler that interrupts us in its own thread would wait for itself.
    while !host::is_inside() && !out() && host::now_ns().saturating_sub(start) < OUT_NS_MAX {
        let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
    }
    SEALED.store(true, Ordering::SeqCst);
}

/// A forked child has one thread, and that is not inside.
pub(crate) fn forked() {
    for Line(inside) in &INSIDE {
        if inside.load(Ordering::Relaxed) != 0 {
            inside.store(0, Ordering::Relaxed);
        }
    }
}

/// Before a `prctl` of the host.
pub(crate) fn before_prctl(option: c_int) {
    if option == libc::PR_SET_SECCOMP {
        shut();
    }
}

/// Before a `syscall` of the host that is `prctl` or `seccomp`.
pub(crate) extern "C" fn before_syscall(number: c_long, first: c_ulong, _second: c_ulong, third: c_ulong) {
    let installs = match number {
        libc::SYS_prctl => first == libc::PR_SET_SECCOMP as c_ulong,
        // A filter that is none is how a library asks what the kernel has.
        libc::SYS_seccomp => {
            first == c_ulong::from(libc::SECCOMP_SET_MODE_STRICT)
                || (first == c_ulong::from(libc::SECCOMP_SET_MODE_FILTER) && third != 0)
        }
        _ => false,
    };
    if installs {
        shut();
    }
}

/// Whether this thread is under a filter; also where that cannot be told.
pub(crate) fn is_inherited() -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    // By the call that the loader makes: the older `open` may be forbidden.
    let Ok(status) = rustix::fs::openat(rustix::fs::CWD, c"/proc/self/status", flags, Mode::empty()) else {
        return true;
    };
    let mode = seccomp_mode(|into| rustix::io::read(&status, into).unwrap_or(0));
    // SAFETY: ours, and not used after. Not by the C library's `close`, which is one of our hooks.
    unsafe { rustix::io::close(std::os::fd::IntoRawFd::into_raw_fd(status)) };
    mode != Some(b'0')
}

/// The digit behind `Seccomp:` of a text that comes in parts; `None`: there is none.
fn seccomp_mode(mut read: impl FnMut(&mut [u8]) -> usize) -> Option<u8> {
    const NAME: &[u8] = b"\nSeccomp:\t";
    /// A process with the most groups that a user may have (65,536) has a text of 700 KiB.
    const PARTS_MAX: usize = 1 << 10;
    let mut text = [0u8; 1024];
    let mut kept = 0;
    for _ in 0..PARTS_MAX {
        let got = read(text.get_mut(kept..)?);
        if got == 0 {
            return None;
        }
        let filled = kept + got;
        let known = text.get(..filled)?;
        if let Some(at) = known.windows(NAME.len()).position(|part| part == NAME)
            && let Some(digit) = known.get(at + NAME.len())
        {
            return Some(*digit);
        }
        // A name that is cut by the end of the part.
        kept = filled.min(NAME.len());
        text.copy_within(filled - kept..filled, 0);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_found_wherever_the_text_is_cut() {
        let text = b"Name:\tx\nGroups:\t1 2 3\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        for size in 1..text.len() {
            let mut rest = &text[..];
            let mode = seccomp_mode(|into| {
                let length = size.min(into.len()).min(rest.len());
                into[..length].copy_from_slice(&rest[..length]);
                rest = &rest[length..];
                length
            });
            assert_eq!(mode, Some(b'2'), "in parts of {size}");
        }
        assert_eq!(seccomp_mode(|_| 0), None);
    }

    #[test]
    fn this_process_is_told_as_the_kernel_tells() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(is_inherited(), !status.contains("\nSeccomp:\t0\n"));
    }
}
