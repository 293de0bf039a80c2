//! Filters of system calls (seccomp): a system call of the shim that a filter forbids would end the host.
//!
//! - A filter that the host installs is noticed before it applies, because it is installed by `prctl` or
//!   `syscall`, which are among the [`hooks`](crate::hooks). The shim first switches off for good ([`shut`]):
//!   the state is set to "off", every thread inside the shim leaves it, and from then on the shim makes no
//!   system call at all, not even to close a descriptor.
//! - A filter that exists when the program begins ([`is_inherited`]) is found in `/proc/self/status`. Reading
//!   that file takes the same system calls that the loader has just used to load the shim. The shim stays
//!   off, unless `SEEKLESS_SECCOMP=allow` says that the filter allows its calls.
//!
//! A filter installed without the C library is not noticed (Go, a static program's own instructions).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libc::{c_int, c_long, c_ulong};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{Timespec, nanosleep};

use crate::{config, host};

/// Number of counters of threads inside the shim, so that threads on different processors seldom share one.
const LINES: usize = 64;

/// Maximum wait of a filter for threads to leave the shim, in nanoseconds. They check every [`LOOK_MS`]; the
/// rest is for a busy machine. A thread that left the shim by `siglongjmp` is waited for in vain. At half,
/// the filter may meet a thread that lost its processor; at double, such a host starts its sandbox that much
/// later.
const OUT_NS_MAX: u64 = 2_000_000_000;

/// Interval at which a waiting thread checks whether the shim is off, in milliseconds. At half, it wakes
/// twice as often; at double, a sandbox may start that much later.
pub(crate) const LOOK_MS: u64 = 50;

#[repr(align(64))]
struct Line(AtomicU32);

static INSIDE: [Line; LINES] = [const { Line(AtomicU32::new(0)) }; LINES];

/// Set once the shim must make no system call any more.
static SEALED: AtomicBool = AtomicBool::new(false);

/// Runs `work`, which may make system calls, unless the shim is off.
#[inline]
pub(crate) fn unless_off<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    let Some(Line(inside)) = INSIDE.get(host::thread_mark() % LINES) else { return otherwise };
    // Either the thread that switches off sees this one inside, or this thread sees that the shim is off.
    inside.fetch_add(1, Ordering::SeqCst);
    let result = if config::enabled() { work() } else { otherwise };
    inside.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Whether no system call is allowed any more, not even to close a descriptor.
pub(crate) fn is_sealed() -> bool {
    SEALED.load(Ordering::Relaxed)
}

/// Switches off for good. Returns when no thread is inside the shim.
#[cold]
pub(crate) fn shut() {
    config::switch_off();
    let start = host::now_ns();
    let out = || INSIDE.iter().all(|line| line.0.load(Ordering::SeqCst) == 0);
    // A signal handler that interrupts the shim in its own thread would wait for itself.
    while !host::is_inside() && !out() && host::now_ns().saturating_sub(start) < OUT_NS_MAX {
        let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
    }
    SEALED.store(true, Ordering::SeqCst);
}

/// A forked child has one thread, which is not inside.
pub(crate) fn forked() {
    for Line(inside) in &INSIDE {
        if inside.load(Ordering::Relaxed) != 0 {
            inside.store(0, Ordering::Relaxed);
        }
    }
}

/// Called before a `prctl` of the host.
pub(crate) fn before_prctl(option: c_int) {
    if option == libc::PR_SET_SECCOMP {
        shut();
    }
}

/// Called before a `syscall` of the host that is `prctl` or `seccomp`.
pub(crate) extern "C" fn before_syscall(number: c_long, first: c_ulong, _second: c_ulong, third: c_ulong) {
    let installs = match number {
        libc::SYS_prctl => first == libc::PR_SET_SECCOMP as c_ulong,
        // With an invalid filter, libraries ask what the kernel supports.
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

/// Whether this thread has a filter; also `true` if that is not known.
pub(crate) fn is_inherited() -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    // With the system call that the loader uses, because the older `open` may be forbidden.
    let Ok(status) = rustix::fs::openat(rustix::fs::CWD, c"/proc/self/status", flags, Mode::empty()) else {
        return true;
    };
    let mode = seccomp_mode(|into| rustix::io::read(&status, into).unwrap_or(0));
    // SAFETY: the shim's own descriptor, not used afterwards. Not by the C library's `close`, which is one of
    // the hooks.
    unsafe { rustix::io::close(std::os::fd::IntoRawFd::into_raw_fd(status)) };
    mode != Some(b'0')
}

/// The digit behind `Seccomp:` in a text that is read in parts; `None` if there is none.
fn seccomp_mode(mut read: impl FnMut(&mut [u8]) -> usize) -> Option<u8> {
    const NAME: &[u8] = b"\nSeccomp:\t";
    /// The text of a process with the most groups that a user may have (65,536) has 700 KiB.
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
        // Keep a name that is cut by the end of the part.
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
