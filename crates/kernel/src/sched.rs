//! The scheduling of threads that stand for hardware.

use std::io;

/// Makes the calling thread run before all ordinary ones (`SCHED_RR`, lowest real-time priority), as long as it mostly
/// sleeps: the kernel keeps a share of each second for the others. Threads and processes it starts inherit it.
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
