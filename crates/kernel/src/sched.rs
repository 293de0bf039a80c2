//! Scheduling of threads that simulate hardware.

use std::io;

use crate::syscall::done;

/// Lets the calling thread run before all ordinary ones (`SCHED_RR`, lowest real-time priority). It must
/// mostly sleep: the kernel reserves a part of each second for the others. Threads and processes it starts
/// inherit this.
///
/// # Errors
/// The permission is missing (root, or `CAP_SYS_NICE`); then nothing has changed.
pub fn run_first() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: `param` is valid for the length of the call, which only reads it; 0 names the calling thread.
    done(unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &param) }).map(drop)
}

/// Lets the calling thread run on the processor with this number, and only when nothing else in its
/// scheduling group wants to (`SCHED_IDLE`).
///
/// # Errors
/// The system refuses; the thread is unchanged, or no longer bound to its former processors.
pub fn run_last_on(processor: usize) -> io::Result<()> {
    let mut only = rustix::thread::CpuSet::new();
    only.set(processor);
    rustix::thread::sched_setaffinity(None, &only)?;
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: as in `run_first`.
    done(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &param) }).map(drop)
}

/// Blocks signals of the process in the calling thread, so that other threads receive them.
pub fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` writes the given set, and cannot fail for a valid pointer. The mask is read from
    // it afterwards; the old mask is not requested.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Numbers of the processors on which this thread may run, at most `max`.
pub fn processors(max: usize) -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&p| set.is_set(p)).take(max).collect()
}
