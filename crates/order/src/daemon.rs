//! A set that a running daemon reads. Ranges are sent to it and return in the order of the disk, in which the
//! daemon reads for other programs and servers as well.
//!
//! The frames are those of file sets ([`seekless_wire`]). Every wait has a time limit. After any error this
//! process reads the rest of the set itself.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use seekless_kernel::fdpass::{self, Address};
use seekless_kernel::state;
use seekless_wire::{
    ADDRESS_UNKNOWN, FRAME_BYTES_MAX, FileSetAdd, FileSetReady, Frame, PATIENCE_MS, PassReason,
};

/// Maximum time for a daemon to answer the first question, or to make room in its socket.
const PATIENCE: Duration = Duration::from_millis(PATIENCE_MS);

/// Delay before a descriptor that the kernel refused is sent again. At half, there are more attempts; at
/// double, a fast disk waits.
const SEND_AGAIN: Duration = Duration::from_millis(2);

/// A file set of a daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    socket: OwnedFd,
    /// Maximum number of ranges that may be added and not taken.
    pub(crate) ranges_max: usize,
    /// Maximum bytes that are in memory and not taken.
    pub(crate) window: u64,
}

/// The daemon is gone, or sends an invalid frame.
#[derive(Debug)]
pub(crate) struct Lost;

/// Path of a daemon's socket: `$SEEKLESS_SOCKET`, else `daemon.sock` in the state folder. `None`: other users
/// may write to that folder.
fn socket() -> Option<PathBuf> {
    let named = std::env::var_os("SEEKLESS_SOCKET").filter(|name| !name.is_empty());
    named.map(PathBuf::from).or_else(|| Some(state::folder().ok()?.join("daemon.sock")))
}

impl Daemon {
    /// Asks the daemon for a file set with a window of `window` bytes. `None`: there is no daemon, or it
    /// refuses.
    pub(crate) fn ask(window: u64) -> Option<Daemon> {
        let name = CString::new(socket()?.as_os_str().as_bytes()).ok()?;
        // Not at the twin, whose name any process may take.
        let socket = fdpass::connect(Address::Path(&name)).ok()?;
        let mut daemon = Daemon { socket, ranges_max: 0, window: 0 };
        daemon.send(Frame::FileSetAsk { window_bytes: window }, None).ok()?;
        let mut packet = [0; FRAME_BYTES_MAX];
        match daemon.receive(&mut packet, PATIENCE).ok()?? {
            Frame::FileSet(set) if set.reason == PassReason::None && set.ranges > 0 => {
                (daemon.ranges_max, daemon.window) = (set.ranges as usize, set.window_bytes);
                Some(daemon)
            }
            _ => None,
        }
    }

    /// Adds a range of an open file.
    pub(crate) fn add(
        &self,
        range: u32,
        file: BorrowedFd<'_>,
        (offset, length): (u64, u64),
        address: Option<u64>,
    ) -> Result<(), Lost> {
        let address = address.unwrap_or(ADDRESS_UNKNOWN);
        self.send(Frame::FileSetAdd(FileSetAdd { range, offset, length, address }), Some(file))
    }

    /// The reader has read a range, or never will.
    pub(crate) fn took(&self, range: u32, read: bool) -> Result<(), Lost> {
        self.send(Frame::FileSetTook { range, read }, None)
    }

    /// The next range that has a result, if one gets it within this time.
    pub(crate) fn ready(&self, within: Duration) -> Result<Option<FileSetReady>, Lost> {
        let mut packet = [0; FRAME_BYTES_MAX];
        match self.receive(&mut packet, within)? {
            None => Ok(None),
            Some(Frame::FileSetReady(ready)) => Ok(Some(ready)),
            Some(Frame::Working) => Ok(None),
            Some(_) => Err(Lost),
        }
    }

    fn send(&self, frame: Frame<'_>, file: Option<BorrowedFd<'_>>) -> Result<(), Lost> {
        let packet = frame.encode().ok_or(Lost)?;
        let until = Instant::now() + PATIENCE;
        loop {
            match fdpass::send(self.socket.as_fd(), packet.as_bytes(), file) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                // Too many descriptors are in flight; the daemon takes them.
                Err(Errno::TOOMANYREFS) => {
                    left(until)?;
                    std::thread::sleep(SEND_AGAIN);
                }
                Err(Errno::AGAIN | Errno::NOBUFS) => self.wait(PollFlags::OUT, left(until)?),
                Err(_) => return Err(Lost),
            }
        }
    }

    fn receive<'b>(
        &self,
        packet: &'b mut [u8; FRAME_BYTES_MAX],
        within: Duration,
    ) -> Result<Option<Frame<'b>>, Lost> {
        let until = Instant::now() + within;
        let length = loop {
            match fdpass::receive(self.socket.as_fd(), packet) {
                Ok(received) if received.length == 0 => return Err(Lost),
                Ok(received) => break received.length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => match left(until) {
                    Ok(time) => self.wait(PollFlags::IN, time),
                    Err(Lost) => return Ok(None),
                },
                Err(_) => return Err(Lost),
            }
        };
        Frame::decode(&packet[..length]).map(Some).map_err(|_| Lost)
    }

    fn wait(&self, flags: PollFlags, time: Duration) {
        let timeout = Timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ };
        // Whether it was interrupted or not, the next attempt shows.
        let _ = poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), flags)], Some(&timeout));
    }
}

fn left(until: Instant) -> Result<Duration, Lost> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Lost) } else { Ok(left) }
}
