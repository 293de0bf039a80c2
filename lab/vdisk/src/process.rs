//! Our own processes, known by a process id in a record.
//!
//! The id may belong to another process by now, and any user with access may have written the record. So a
//! process is first opened (a pidfd, which always means the same process), then checked, and only then
//! signalled.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Maximum length of a command line that is read: a disk's configuration has some hundred bytes, and paths.
const LINE_MAX: usize = 64 << 10;

/// An open process, known to be ours.
#[derive(Debug)]
pub(crate) struct Ours(OwnedFd);

impl Ours {
    /// The process `pid`, if it runs as our user, has one of the `roles` of `seekless-lab vdisk`, and started
    /// at the recorded time or, if that is not recorded, names the disk `name`. `None` if there is no such
    /// process or it is another one.
    ///
    /// # Errors
    /// The kernel gives no pidfd.
    pub(crate) fn find(
        pid: u32,
        started_at: Option<u64>,
        roles: &[&str],
        name: &str,
    ) -> rustix::io::Result<Option<Ours>> {
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let process = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(process) => process,
            // ENOENT and EINVAL: the number of a thread.
            Err(Errno::SRCH | Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(e) => return Err(e),
        };
        // From here on, what is read belongs to this process, unless it has ended, and then signalling it
        // fails.
        let own_user = fs::metadata(format!("/proc/{pid}"))
            .is_ok_and(|about| about.uid() == rustix::process::geteuid().as_raw());
        let mut line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.truncate(LINE_MAX);
        let same = match started_at {
            Some(at) => started(pid) == Some(at) && has_role(&line, roles),
            None => has_role(&line, roles) && has_name(&line, name),
        };
        let ours = own_user && same;
        Ok(ours.then_some(Ours(process)))
    }

    /// Signals it.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub(crate) fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        pidfd_send_signal(&self.0, signal)
    }
}

impl AsFd for Ours {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether this is the command line of one of these processes.
fn has_role(line: &[u8], roles: &[&str]) -> bool {
    let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    words.windows(2).any(|w| w[0] == b"vdisk" && roles.iter().any(|r| w[1] == r.as_bytes()))
}

/// Whether it names the disk: in its configuration, or as the option of `vdisk up --foreground`.
fn has_name(line: &[u8], name: &str) -> bool {
    let (in_config, in_option) = (format!("\"name\":\"{name}\""), format!("--name={name}"));
    let words: Vec<_> = line.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
    words.iter().any(|word| word.contains(&in_config) || *word == in_option)
        || words.windows(2).any(|w| w[0] == "--name" && w[1] == name)
}

/// When a process started, in clock ticks since boot; with its id it identifies a process for good.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything; the start is the 20th field after it.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_ours_is_left_alone() {
        let own = std::process::id();
        assert!(started(own).is_some_and(|at| at > 0));
        assert!(Ours::find(own, None, &["supervise"], "d").unwrap().is_none(), "a test is no supervisor");
        assert!(Ours::find(0, None, &["supervise"], "d").unwrap().is_none());
        assert!(Ours::find(u32::MAX, None, &["supervise"], "d").unwrap().is_none());
        // A process that looks like one, but started at another time.
        let mut like = std::process::Command::new("sh")
            .args(["-c", "sleep 30 & wait", "vdisk", "supervise", "{\"name\":\"d\"}"])
            .spawn()
            .unwrap();
        let pid = like.id();
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while Ours::find(pid, None, &["supervise"], "d").unwrap().is_none() {
            assert!(std::time::Instant::now() < patience, "it never becomes the shell");
        }
        assert!(Ours::find(pid, started(pid), &["supervise"], "d").unwrap().is_some());
        assert!(Ours::find(pid, started(pid).map(|at| at + 1), &["supervise"], "d").unwrap().is_none());
        assert!(Ours::find(pid, None, &["worker"], "d").unwrap().is_none());
        assert!(Ours::find(pid, None, &["supervise"], "e").unwrap().is_none());
        assert!(
            Ours::find(pid, started(pid), &["supervise"], "e").unwrap().is_some(),
            "its start says enough"
        );
        let _ = like.kill();
        let _ = like.wait();
        assert!(Ours::find(pid, None, &["supervise"], "d").unwrap().is_none());
    }

    #[test]
    fn command_lines_are_told_apart() {
        let line = |words: &[&str]| words.join("\0").into_bytes();
        let roles = &["supervise", "up"];
        for (words, role, name) in [
            (&["seekless", "vdisk", "supervise", "--config", "{\"name\":\"a\"}"][..], true, true),
            (&["seekless", "vdisk", "up", "--foreground", "--name", "a"], true, true),
            (&["seekless", "vdisk", "up", "--name=a"], true, true),
            (&["seekless", "vdisk", "up", "--name", "ab"], true, false),
            (&["seekless", "vdisk", "worker", "--name", "a"], false, true),
            (&["vi", "vdisk"], false, false),
            (&[], false, false),
        ] {
            assert_eq!(
                (has_role(&line(words), roles), has_name(&line(words), "a")),
                (role, name),
                "{words:?}"
            );
        }
    }
}
