//! What a process at the other end of a socket may do to this one, according to the kernel: whether it is in
//! the same user namespace, sees the same mounts, and has the same capabilities.
//!
//! A user id alone is not enough, because root of a container has root's id. Only files of `/proc` that every
//! user may read are used, because a service without capabilities may read no others. A pidfd of the
//! connection (`SO_PEERPIDFD`, Linux 6.5) ensures that they belong to the process that connected. On older
//! kernels, a process that has ended, and whose process id root has now, counts as root's.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::fdpass::Peer;

/// Maximum number of bytes read of a file of `/proc`: a user map has 340 lines at most, and of a mount table
/// only the first line is needed.
const TEXT_MAX: u64 = 16 << 10;

/// `NS_GET_OWNER_UID`, `PIDFD_GET_USER_NAMESPACE` (linux/nsfs.h, linux/pidfd.h).
const NS_GET_OWNER_UID: libc::Ioctl = 0xb704 as libc::Ioctl;
const PIDFD_GET_USER_NAMESPACE: libc::Ioctl = 0xff09 as libc::Ioctl;

/// A process compared with this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether it is in the same user namespace, so that user ids mean the same.
    pub same_users: bool,
    /// Whether it sees the same mounts from the same root folder.
    pub same_mounts: bool,
    /// Whether it has every capability that this process has.
    pub as_capable: bool,
    /// Number of its first mount, which is unique to its mount namespace.
    pub mounts: u64,
    /// The user that made its user namespace, if that can be queried.
    pub owner: Option<u32>,
}

/// Examines the process that made a connection. `None`: it has ended, or is in a process namespace that is
/// not visible from here.
pub fn standing(socket: BorrowedFd<'_>, peer: Peer) -> Option<Standing> {
    let pid = Pid::from_raw(peer.pid)?;
    let pidfd = pidfd_of(socket).or_else(|| pidfd_open(pid, PidfdFlags::empty()).ok())?;
    let of = |who: &str, file: &str| text(&format!("/proc/{who}/{file}"));
    let number = peer.pid.to_string();
    let same_users = of(&number, "uid_map")? == of("self", "uid_map")?;
    let mounts = first_mount(&of(&number, "mountinfo")?)?;
    let same_mounts = of("self", "mountinfo").as_deref().and_then(first_mount) == Some(mounts);
    let (theirs, ours) = (capabilities(&of(&number, "status")?)?, capabilities(&of("self", "status")?)?);
    let owner = if same_users { None } else { owner_of_users(&pidfd) };
    let standing = Standing { same_users, same_mounts, as_capable: theirs & ours == ours, mounts, owner };
    // If it is still alive, it had its id all the while, and the values read are its own.
    is_alive(&pidfd).then_some(standing)
}

/// A pidfd becomes readable when its process ends.
fn is_alive(pidfd: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)) == Ok(0)
}

fn pidfd_of(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, one integer.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        )
    };
    // SAFETY: a descriptor that the call just returned, without another owner.
    (done == 0 && fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn owner_of_users(pidfd: &OwnedFd) -> Option<u32> {
    // SAFETY: this request takes no argument and returns a descriptor.
    let namespace = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_USER_NAMESPACE, 0) };
    if namespace < 0 {
        return None;
    }
    // SAFETY: a descriptor that the call just returned, without another owner.
    let namespace = unsafe { OwnedFd::from_raw_fd(namespace) };
    let mut owner: libc::uid_t = 0;
    // SAFETY: this request writes one user id.
    let done = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut owner) };
    (done == 0).then_some(owner)
}

fn text(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(TEXT_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn first_mount(mountinfo: &str) -> Option<u64> {
    mountinfo.split_ascii_whitespace().next()?.parse().ok()
}

fn capabilities(status: &str) -> Option<u64> {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(effective.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdpass;
    use std::os::fd::AsFd;

    #[test]
    fn a_process_stands_as_it_is_to_itself() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        let standing = standing(a.as_fd(), fdpass::peer(a.as_fd()).unwrap()).unwrap();
        assert!(standing.same_users && standing.same_mounts && standing.as_capable, "{standing:?}");
    }

    #[test]
    fn texts_of_proc_are_read() {
        assert_eq!(first_mount("631 559 0:55 / / rw - overlay overlay rw\n632 ..."), Some(631));
        assert_eq!(capabilities("Name:\tx\nCapEff:\t00000000a80425fb\nCapBnd:\t0\n"), Some(0xa804_25fb));
        assert_eq!((first_mount(""), capabilities("Name:\tx\n")), (None, None));
    }
}
