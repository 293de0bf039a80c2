//! Starting a process that cannot outlive us and that is inside its control group from its first instruction.
//!
//! Between fork and exec the child does two things: it asks the kernel for a signal when its parent dies (so
//! a killed runner leaves no server behind), and it writes itself into control groups (so that not even the
//! pages its dynamic linker touches are charged to another group). Both must happen before exec, where only
//! async-signal-safe calls are allowed; everything that allocates (opening the groups' files) is done by the
//! parent.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Arranges that `command`'s process receives `signal` when the thread that spawns it ends.
///
/// The kernel ties this to the spawning *thread*: spawn from one that lives as long as the child should. It
/// is cleared by a set-uid exec.
pub fn die_with_parent(command: &mut Command, signal: rustix::process::Signal) {
    let parent = rustix::process::getpid();
    let hook = move || {
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // The parent may have died before the line above; then nobody would ever send the signal.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: the hook runs between fork and exec and makes two raw system calls (prctl, getppid); it neither
    // allocates nor takes a lock.
    unsafe { command.pre_exec(hook) };
}

/// Arranges that no program which this process starts from now on inherits a descriptor beyond the three
/// standard ones. For one that puts itself into the background: what it inherited (a lock, a pipe) would stay
/// open as long as it lives. Linux 5.11; does nothing on older kernels.
pub fn pass_on_no_descriptors() {
    // SAFETY: close_range(2) with CLOSE_RANGE_CLOEXEC sets a flag of open descriptors; it closes none and
    // reads no memory of ours.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Puts `command`'s process into the control group at `dir` before it runs.
///
/// # Errors
/// `dir/cgroup.procs` cannot be opened for writing. A refusal by the kernel at the time of the spawn is the
/// spawn's error.
pub fn join_cgroup(command: &mut Command, dir: &Path) -> io::Result<()> {
    let procs = File::options().write(true).open(dir.join("cgroup.procs"))?;
    let hook = move || {
        // "0" means the writer itself, in v1 and v2.
        // SAFETY: write(2) is async-signal-safe; the descriptor is owned by the closure, which the command
        // owns.
        let written = unsafe { libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) };
        if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the hook makes one async-signal-safe system call and does not allocate (last_os_error reads
    // errno).
    unsafe { command.pre_exec(hook) };
    Ok(())
}
