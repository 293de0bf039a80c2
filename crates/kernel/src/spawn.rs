//! Starts a process that cannot outlive this one and is inside its cgroup from the first instruction; and one
//! that outlives this process and is not its child.
//!
//! Between fork and exec the child does two things: it requests a signal for when its parent dies (so a
//! killed runner leaves no server behind), and it writes itself into cgroups (so that not even the pages
//! touched by its dynamic linker are charged to another one). Both must happen before exec, where only
//! async-signal-safe calls are allowed; the parent does everything that allocates (opening the cgroups'
//! files).

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Lets `command`'s process receive `signal` when the thread that spawns it ends.
///
/// The kernel ties this to the spawning *thread*: spawn from one that lives as long as the child should. A
/// set-uid exec clears it.
pub fn die_with_parent(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    let hook = move || {
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // The parent may have died before the line above; then the signal would never be sent.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: the hook runs between fork and exec and makes two raw system calls (prctl, getppid); it neither
    // allocates nor takes a lock.
    unsafe { command.pre_exec(hook) };
}

/// Prevents programs that this process starts from now on from inheriting descriptors beyond the three
/// standard ones. For a program that puts itself into the background: inherited descriptors (a lock, a pipe)
/// would stay open as long as it lives. Linux 5.11; does nothing on older kernels.
pub fn pass_on_no_descriptors() {
    // SAFETY: close_range(2) with CLOSE_RANGE_CLOEXEC sets a flag of open descriptors; it closes none and
    // reads no memory of this process.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Puts `command`'s process into the cgroup at `dir` before it runs.
///
/// # Errors
/// `dir/cgroup.procs` cannot be opened for writing. If the kernel refuses at the time of the spawn, the spawn
/// fails.
pub fn join_cgroup(command: &mut Command, dir: &Path) -> io::Result<()> {
    let procs = File::options().write(true).open(dir.join("cgroup.procs"))?;
    let hook = move || {
        // "0" means the writer itself, in v1 and v2. SAFETY: write(2) is async-signal-safe; the descriptor is
        // owned by the closure, which the command owns.
        let written = unsafe { libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) };
        if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the hook makes one async-signal-safe system call and does not allocate (last_os_error reads
    // errno).
    unsafe { command.pre_exec(hook) };
    Ok(())
}

/// A process that this one started and that is not its child.
#[derive(Debug)]
pub struct Adopted(OwnedFd);

impl Adopted {
    /// Starts `command` from an intermediate process that exits at once. The kernel makes the reaper of
    /// orphans its parent: process 1, or a service manager. systemd waits for a main process to end only if
    /// it was systemd's child when it was announced (`MAINPID=`).
    ///
    /// # Errors
    /// It cannot be started, or has ended already; or the kernel has no pidfd (before Linux 5.3).
    pub fn spawn(mut command: Command) -> io::Result<Adopted> {
        let (told, tell) = pipe_with(PipeFlags::CLOEXEC)?;
        let hook = move || {
            // SAFETY: fork(2) in a process of one thread, as after a fork.
            match unsafe { libc::fork() } {
                -1 => Err(io::Error::last_os_error()),
                0 => {
                    let pid = rustix::process::getpid().as_raw_nonzero().get();
                    rustix::io::write(&tell, &pid.to_ne_bytes())?;
                    Ok(())
                }
                // SAFETY: _exit(2) ends the intermediate process, which has nothing to clean up.
                _ => unsafe { libc::_exit(0) },
            }
        };
        // SAFETY: the hook makes raw system calls and forks; it neither allocates nor takes a lock of this
        // process.
        unsafe { command.pre_exec(hook) };
        // Returns when the program runs, because its process also holds the pipe of spawn errors until its
        // exec.
        let mut intermediate = command.spawn()?;
        drop(command);
        intermediate.wait()?;
        let mut pid = [0; size_of::<i32>()];
        File::from(told).read_exact(&mut pid)?;
        let pid = Pid::from_raw(i32::from_ne_bytes(pid)).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Adopted(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn ended(&self) -> io::Result<bool> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&now))? > 0)
    }

    /// Kills it.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn an_adopted_process_is_not_our_child_and_its_end_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo $PPID >parent && exec sleep 60"]).current_dir(folder.path());
        let adopted = Adopted::spawn(command).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let parent = loop {
            let text = std::fs::read_to_string(folder.path().join("parent")).unwrap_or_default();
            if let Ok(parent) = text.trim().parse::<u32>() {
                break parent;
            }
            assert!(Instant::now() < until, "it does not run");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_ne!(parent, std::process::id());
        assert!(!adopted.ended().unwrap());
        adopted.kill();
        while !adopted.ended().unwrap() {
            assert!(Instant::now() < until, "it lives on");
        }
    }

    #[test]
    fn a_program_that_cannot_be_started_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let kind = || Adopted::spawn(Command::new(&path)).unwrap_err().kind();
        assert_eq!(kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "not executable").unwrap();
        assert_eq!(kind(), io::ErrorKind::PermissionDenied);
    }
}
