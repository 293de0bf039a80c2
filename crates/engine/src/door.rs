//! What a door hands to a disk thread, and what it gets back.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use seekless_kernel::prefetch::{Source, Steps};
use seekless_kernel::residency::resident_prefix;
use seekless_policy::{FileId, Reason, RequestId, Taken};

use crate::addresses::Edition;
use crate::aside::Left;

/// Called once, on the disk thread, with what became of a request. It must not wait.
pub type OnAnswer = Box<dyn FnOnce(Completion<'_>) + Send>;

/// What became of a request.
#[derive(Debug)]
pub enum Completion<'a> {
    /// What was asked for is in memory.
    Resident(ResidentRange<'a>),
    /// Nothing was (or could be) done: the caller reads for itself.
    Pass(Reason),
    /// The engine is being shut down: the caller reads for itself.
    Closing,
}

/// Bytes found in memory at the end of a request; how many more there are is looked up only on demand.
#[derive(Debug)]
pub struct ResidentRange<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl ResidentRange<'_> {
    /// Bytes in memory from the start of the request on, looked for up to the request's end or `reach`,
    /// whichever is further. A system call. 0 where the kernel does not tell.
    pub fn prefix(&self, reach: u64) -> u64 {
        resident_prefix(self.fd, self.offset, self.len.max(reach)).unwrap_or(0)
    }
}

/// When and how fast bytes are needed, as far as a door knows; by default it knows nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientDemand {
    /// When the bytes should be in memory.
    pub deadline: Option<Instant>,
    /// Bytes a second at which they are played. What the table of bitrates says the engine finds for itself
    /// ([`crate::Engine::bitrate`]).
    pub bitrate: Option<u64>,
    /// A file set asks ([`seekless_policy::Demand::file_set`]): [`crate::Engine::took`] ends it.
    pub file_set: bool,
    /// The file is read at random ([`seekless_policy::Demand::random`]).
    pub random: bool,
}

/// A request on its way to a disk thread.
pub(crate) struct Ask {
    /// Its name.
    pub(crate) id: RequestId,
    /// Told what became of it.
    pub(crate) on_answer: OnAnswer,
    /// Open for reading, a regular file.
    pub(crate) source: Arc<Source>,
    /// See [`crate::ForwardedCall::reader`].
    pub(crate) reader: u32,
    /// Which file.
    pub(crate) file: FileId,
    /// Its size and time of change.
    pub(crate) edition: Edition,
    /// What the caller asked for: first byte.
    pub(crate) need_offset: u64,
    /// Bytes.
    pub(crate) need_len: u64,
    /// What of it is missing: first byte.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// First sector of the file system on the disk.
    pub(crate) start: u64,
    /// Sizes of read-ahead calls there.
    pub(crate) steps: Steps,
    /// What the caller knows of when and how fast.
    pub(crate) demand: ClientDemand,
    /// See [`crate::ForwardedCall::answer_is_read`].
    pub(crate) answer_is_read: bool,
}

/// A read that hit, and how to read more of its file.
#[derive(Debug)]
pub(crate) struct Hit {
    /// Open for reading, a regular file.
    pub(crate) source: Arc<Source>,
    /// See [`crate::ForwardedCall::reader`].
    pub(crate) reader: u32,
    /// Which file.
    pub(crate) file: FileId,
    /// Its size and time of change.
    pub(crate) edition: Edition,
    /// First byte read.
    pub(crate) offset: u64,
    /// Bytes read.
    pub(crate) len: u64,
    /// How much of them.
    pub(crate) taken: Taken,
    /// First sector of the file system on the disk.
    pub(crate) start: u64,
    /// Sizes of read-ahead calls there.
    pub(crate) steps: Steps,
}

/// From the doors to a disk thread.
pub(crate) enum Message {
    /// A client waits for bytes that are missing.
    Ask(Box<Ask>),
    /// A read that hit, of a file the thread may not know.
    Hit(Box<Hit>),
    /// A read that was done, of a file the thread knows if it reads ahead of it.
    Access {
        /// See [`crate::ForwardedCall::reader`].
        reader: u32,
        /// Which file.
        file: FileId,
        /// First byte read.
        offset: u64,
        /// Bytes read.
        len: u64,
        /// How much of them.
        taken: Taken,
    },
    /// A file that was read through a passed descriptor is open by itself now; the same descriptor again: it
    /// cannot be, and is to be kept.
    Opened {
        /// Which file.
        file: FileId,
        /// How it is read from now on.
        source: Arc<Source>,
    },
    /// The kernel reads missing bytes of a file by itself, because a program waits for them: what follows is
    /// next.
    Missed {
        /// Which file.
        file: FileId,
        /// First byte, or a little behind it.
        offset: u64,
    },
    /// Every file of this device is closed, so that its file system can be unmounted. What is
    /// still read there is opened again.
    Leave {
        /// Device number of the file system.
        dev: u64,
        /// Dropped when they are closed.
        left: Arc<Left>,
    },
    /// Bytes that a cache above has now ([`seekless_policy::Event::Release`]).
    Release {
        /// Which file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The client of this request is gone.
    Cancel(RequestId),
    /// The reader of a file set has taken what this request brought in, or never will.
    Took {
        /// Which request.
        id: RequestId,
        /// It has read the bytes.
        read: bool,
    },
}

impl Message {
    /// Whether it only tells what was read: lost, the engine is slower, and right.
    pub(crate) fn is_report(&self) -> bool {
        match self {
            Message::Hit(_) | Message::Access { .. } | Message::Missed { .. } | Message::Release { .. } => {
                true
            }
            Message::Ask(_)
            | Message::Opened { .. }
            | Message::Leave { .. }
            | Message::Cancel(_)
            | Message::Took { .. } => false,
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Message::Ask(_) => "Ask",
            Message::Hit(_) => "Hit",
            Message::Access { .. } => "Access",
            Message::Opened { .. } => "Opened",
            Message::Leave { .. } => "Leave",
            Message::Missed { .. } => "Missed",
            Message::Release { .. } => "Release",
            Message::Cancel(_) => "Cancel",
            Message::Took { .. } => "Took",
        })
    }
}

/// The file behind a descriptor, if it is a regular one open for reading. A descriptor that its holder may
/// not read through (`O_PATH`, `O_WRONLY`) must not be read on its behalf.
pub(crate) fn readable_file(fd: BorrowedFd<'_>) -> Option<(FileId, Edition)> {
    let flags = rustix::fs::fcntl_getfl(fd).ok()?;
    if flags.contains(OFlags::PATH) || flags & OFlags::ACCMODE == OFlags::WRONLY {
        return None;
    }
    // What is known, without asking a file server that may hang.
    let at = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let what = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::MTIME;
    let stat = rustix::fs::statx(fd, "", at, what).ok()?;
    if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile {
        return None;
    }
    let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let changed = (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
    Some((FileId { dev, ino: stat.stx_ino }, Edition { size: stat.stx_size, changed }))
}
