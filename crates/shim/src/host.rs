//! The host process: its `errno`, its clocks, its pointers, and whether a thread is inside one of the shim's
//! own calls.

use std::cell::Cell;

use libc::c_int;

/// Runs `work` and restores the host's `errno`.
pub(crate) fn with_errno_kept<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: libc returns the calling thread's own errno; it stays valid as long as the thread.
    let errno = unsafe { *libc::__errno_location() };
    let result = work();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    result
}

thread_local! {
    /// The stack position at which this thread entered the shim; 0 if it is not inside.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread is inside `dlsym` for the shim.
    static RESOLVING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` unless this thread is already inside the shim. The shim's own calls, and those of a signal
/// handler that interrupts a wait of the shim, go straight through.
///
/// A handler may leave a wait by `siglongjmp`, and then nothing marks the exit. So the stack position is
/// stored instead of a flag: a call from further up the stack than the stored position proves that the
/// earlier one is gone. (A handler on an alternate stack may be mistaken for that; then it asks for itself,
/// which is allowed.)
pub(crate) fn unless_inside<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    let marker = 0u8;
    let here = &raw const marker as usize;
    let at = INSIDE.get();
    if at != 0 && here < at {
        return otherwise;
    }
    INSIDE.set(here);
    let result = work();
    INSIDE.set(0);
    result
}

/// Whether this thread is inside the shim, unless it left by `siglongjmp`.
pub(crate) fn is_inside() -> bool {
    INSIDE.get() != 0
}

/// A number that differs between most threads.
#[inline]
pub(crate) fn thread_mark() -> usize {
    // The highest bits of the product depend on every bit of the address.
    INSIDE.with(|inside| (&raw const *inside).addr().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48)
}

/// Runs `work` unless this thread is already resolving a symbol (`dlsym` may allocate, and an allocator may
/// read or map).
pub(crate) fn unless_resolving<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    if RESOLVING.get() {
        return otherwise;
    }
    RESOLVING.set(true);
    let result = work();
    RESOLVING.set(false);
    result
}

fn clock(id: libc::clockid_t) -> (u64, u64) {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a local timespec.
    unsafe { libc::clock_gettime(id, &raw mut t) };
    (t.tv_sec as u64, t.tv_nsec as u64)
}

/// Milliseconds since boot, up to a few behind and nearly free: for expiries.
pub(crate) fn coarse_ms() -> u64 {
    let (s, ns) = clock(libc::CLOCK_MONOTONIC_COARSE);
    s.saturating_mul(1_000).saturating_add(ns / 1_000_000)
}

/// Nanoseconds since boot: for waits and durations.
pub(crate) fn now_ns() -> u64 {
    let (s, ns) = clock(libc::CLOCK_MONOTONIC);
    s.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// The process and thread ids, read anew each time, because both change under `fork`.
pub(crate) fn pid_tid() -> (u32, u32) {
    let pid = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    (pid, tid)
}

/// Whether the eight bytes at `at` can be read.
///
/// The kernel answers a bad pointer with `EFAULT`; the shim would crash on it, so it asks first.
/// `rt_sigprocmask` copies the set in before it checks `how`. With an invalid `how` it changes nothing and
/// returns `EINVAL` for a good pointer and `EFAULT` for a bad one, takes no lock and is allowed by every
/// seccomp filter.
pub(crate) fn readable_8(at: *const u8) -> bool {
    const NO_SUCH_HOW: c_int = c_int::MAX;
    if at.is_null() {
        return false;
    }
    // SAFETY: the kernel checks the address itself; nothing is written (the old set is not requested).
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_HOW, at, core::ptr::null_mut::<u8>(), 8usize);
        *libc::__errno_location() == libc::EINVAL
    }
}

/// Sum of the lengths of an `iovec` array, as the kernel computes it; `None` if the kernel would refuse the
/// array.
pub(crate) fn iovec_bytes(vectors: *const libc::iovec, count: c_int) -> Option<u64> {
    // IOV_MAX, the kernel's UIO_MAXIOV.
    const VECTORS_MAX: c_int = 1024;
    /// It is enough to check one address in each smallest page that the array touches.
    const CHECK_EVERY: usize = seekless_base::wants::PAGE as usize;
    if !(1..=VECTORS_MAX).contains(&count) {
        return None;
    }
    let bytes = count as usize * size_of::<libc::iovec>();
    let start = vectors.cast::<u8>();
    let mut at = 0;
    while at < bytes {
        if !readable_8(start.wrapping_add(at)) {
            return None;
        }
        at += CHECK_EVERY;
    }
    if !readable_8(start.wrapping_add(bytes - 8)) {
        return None;
    }
    let mut sum = 0u64;
    for i in 0..count as usize {
        // SAFETY: inside the array just found readable; the host is about to pass the same array to the
        // kernel.
        let length = unsafe { (*vectors.wrapping_add(i)).iov_len };
        if length > isize::MAX as usize {
            return None;
        }
        sum = sum.saturating_add(length as u64);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_pointers_are_seen() {
        let good = 5u64;
        assert!(readable_8((&raw const good).cast()));
        assert!(!readable_8(core::ptr::null()));
        assert!(!readable_8(8 as *const u8));
        assert!(!readable_8((usize::MAX - 4) as *const u8));
    }

    #[test]
    fn vectors_are_summed_as_the_kernel_would() {
        let v = |n| libc::iovec { iov_base: core::ptr::null_mut(), iov_len: n };
        let array = [v(1), v(0), v(4096)];
        assert_eq!(iovec_bytes(array.as_ptr(), 3), Some(4097));
        assert_eq!(iovec_bytes(array.as_ptr(), 0), None);
        assert_eq!(iovec_bytes(array.as_ptr(), -1), None);
        assert_eq!(iovec_bytes(array.as_ptr(), 1025), None);
        assert_eq!(iovec_bytes(core::ptr::null(), 1), None);
        let long = [v(usize::MAX)];
        assert_eq!(iovec_bytes(long.as_ptr(), 1), None);
        let many = [v(10); 1024];
        assert_eq!(iovec_bytes(many.as_ptr(), 1024), Some(10_240));
    }

    #[test]
    fn a_deeper_call_is_inside_and_errno_survives() {
        #[inline(never)]
        fn deeper() -> bool {
            let pad = std::hint::black_box([0u8; 64]);
            unless_inside(false, || std::hint::black_box(pad)[0] == 0)
        }
        assert!(deeper());
        assert!(!unless_inside(true, deeper));
        assert!(deeper(), "out again");
        // SAFETY: this thread's own errno.
        unsafe { *libc::__errno_location() = 77 };
        with_errno_kept(|| readable_8(core::ptr::null::<u8>().wrapping_add(16)));
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 77);
    }
}
