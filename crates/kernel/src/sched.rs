//! The scheduling of threads that stand for hardware.

use std::io;

/// Makes the calling thread run before all ordinary ones (`SCHED_RR`, lowest real-time priority), as long as
/// it mostly sleeps: the kernel keeps a share of each second for the others. Threads and processes it starts
/// inherit it.
///
/// # Errors
/// The right to it is missing (root, or `CAP_SYS_NICE`); nothing has changed then.
pub fn run_first() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: `param` is valid for the length of the call, which only reads it; 0 names the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the calling thread run on the processor with this number, and only where nothing else of its
/// scheduling group wants to (`SCHED_IDLE`).
///
/// # Errors
/// The system refuses; the thread is as it was, or no longer bound to the processors it was bound to.
pub fn run_last_on(processor: usize) -> io::Result<()> {
    let mut only = rustix::thread::CpuSet::new();
    only.set(processor);
    rustix::thread::sched_setaffinity(None, &only)?;
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: as in `run_first`.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Keeps signals of the process away from the calling thread, so that they reach other threads.
pub fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` writes the set that it is given, and cannot fail for a valid pointer. The mask is
    // read from it after that; the old mask is not asked for.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Numbers of the processors this thread may run on, `max` at the most.
pub fn processors(max: usize) -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&p| set.is_set(p)).take(max).collect()
}
