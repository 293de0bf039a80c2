//! A door of the engine: what it implements ([`Door`]), sends to a disk thread and gets back.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use seekless_base::wants::{CallKind, DoorLimits};
use seekless_kernel::prefetch::{Source, Steps};
use seekless_kernel::residency::resident_prefix;
use seekless_policy::{FileId, IoPriority, Reason, RequestId, Taken};

use crate::addresses::Edition;
use crate::deleted_files::Left;
use crate::opener::Opener;
use crate::submit::{Refused, Ticket};

/// Called once, on the disk thread, with the result of a request. It must not block.
pub type OnAnswer = Box<dyn FnOnce(Completion<'_>) + Send>;

/// The result of a request.
#[derive(Debug)]
pub enum Completion<'a> {
    /// The requested bytes are in memory.
    Resident(ResidentRange<'a>),
    /// Nothing was done, or could be: the caller reads for itself.
    Pass(Reason),
    /// The engine is being shut down: the caller reads for itself.
    Closing,
}

/// The bytes in memory at the end of a request. How far they extend is looked up only on demand.
#[derive(Debug)]
pub struct ResidentRange<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl ResidentRange<'_> {
    /// Number of bytes in memory from the start of the request, checked up to the request's end or `reach`,
    /// whichever is further. Makes a system call. 0 if the kernel does not report it.
    pub fn prefix(&self, reach: u64) -> u64 {
        resident_prefix(self.fd, self.offset, self.len.max(reach)).unwrap_or(0)
    }
}

/// How and for whom bytes are needed, as far as a door knows. By default nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientDemand {
    /// A file set asks ([`seekless_policy::Demand::file_set`]). [`crate::Engine::took`] ends the request.
    pub file_set: bool,
    /// The reader announced random reads ([`seekless_policy::Demand::random`]).
    pub random: bool,
    /// The I/O priority of the reader ([`crate::Engine::priority_of`]).
    pub io: IoPriority,
}

/// What a door does, and knows, while one of its calls is submitted ([`crate::Engine::submit`]). Every door
/// whose callers wait implements it.
pub trait Door {
    /// The file, open for reading.
    fn fd(&self) -> BorrowedFd<'_>;

    /// How the call takes its bytes. Called only if some of them are missing, as far as is known.
    ///
    /// # Errors
    /// [`Refused::Door`]: the call must go on as it is.
    fn kind(&mut self, limits: &DoorLimits) -> Result<CallKind, Refused>;

    /// The file's disk is served. The door should now report everything that was read before this call:
    /// reported later, it would seem to be another client's.
    fn before_look(&mut self) {}

    /// The call must wait. Returns the function to call at its end, and how to read its file. `None`: the
    /// door has no room for it, and the call is [`Refused::Door`].
    fn block(&mut self, ticket: Ticket) -> Option<(OnAnswer, Arc<Source>)>;

    /// The opener of the file, if [`Door::block`] passes a descriptor of another process. `None` selects
    /// the opener of this process.
    fn opener(&self) -> Option<&Opener> {
        None
    }
}

/// A caller in this process. It reads everything it requests, and is called back on the disk's thread.
pub struct InProcess<'fd> {
    fd: BorrowedFd<'fd>,
    on_answer: Option<OnAnswer>,
}

impl<'fd> InProcess<'fd> {
    /// `on_answer` is called exactly once if the call is blocked, and must not block itself.
    pub fn new(fd: BorrowedFd<'fd>, on_answer: OnAnswer) -> InProcess<'fd> {
        InProcess { fd, on_answer: Some(on_answer) }
    }
}

impl Door for InProcess<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd
    }

    fn kind(&mut self, _: &DoorLimits) -> Result<CallKind, Refused> {
        Ok(CallKind::Read)
    }

    fn block(&mut self, _: Ticket) -> Option<(OnAnswer, Arc<Source>)> {
        let own = rustix::io::fcntl_dupfd_cloexec(self.fd, 3).ok()?;
        Some((self.on_answer.take()?, Arc::new(Source::passed(own))))
    }
}

/// A request sent to a disk thread.
pub(crate) struct Ask {
    pub(crate) id: RequestId,
    /// Called with the result.
    pub(crate) on_answer: OnAnswer,
    /// The regular file, open for reading.
    pub(crate) source: Arc<Source>,
    /// See [`crate::ForwardedCall::pid`].
    pub(crate) pid: u32,
    pub(crate) file: FileId,
    /// Its size and time of change.
    pub(crate) edition: Edition,
    /// First byte that the caller wants.
    pub(crate) need_offset: u64,
    /// Bytes that the caller wants.
    pub(crate) need_len: u64,
    /// First missing byte.
    pub(crate) offset: u64,
    /// Bytes from there on.
    pub(crate) len: u64,
    /// First sector of the file system on the disk.
    pub(crate) start: u64,
    /// Sizes of read-ahead calls on that device.
    pub(crate) steps: Steps,
    /// The caller's demand.
    pub(crate) demand: ClientDemand,
    /// See [`crate::ForwardedCall::answer_is_read`].
    pub(crate) answer_is_read: bool,
}

/// A read that hit, and how to read more of its file.
#[derive(Debug)]
pub(crate) struct Hit {
    /// The regular file, open for reading.
    pub(crate) source: Arc<Source>,
    /// See [`crate::ForwardedCall::pid`].
    pub(crate) pid: u32,
    pub(crate) file: FileId,
    /// Its size and time of change.
    pub(crate) edition: Edition,
    /// First byte read.
    pub(crate) offset: u64,
    /// Bytes read.
    pub(crate) len: u64,
    /// How much of them was taken.
    pub(crate) taken: Taken,
    /// First sector of the file system on the disk.
    pub(crate) start: u64,
    /// Sizes of read-ahead calls on that device.
    pub(crate) steps: Steps,
}

/// From the doors to a disk thread.
pub(crate) enum Message {
    /// A client waits for bytes that are missing.
    Ask(Box<Ask>),
    /// A read that hit, of a file that the thread may not know.
    Hit(Box<Hit>),
    /// A read that is done. The thread knows the file if it reads ahead of it.
    Access {
        /// See [`crate::ForwardedCall::pid`].
        pid: u32,
        file: FileId,
        /// First byte read.
        offset: u64,
        /// Bytes read.
        len: u64,
        /// How much of them was taken.
        taken: Taken,
    },
    /// A file that was read through a passed descriptor has been opened again. With the same descriptor: it
    /// cannot be opened again, and the descriptor must be kept.
    Opened {
        file: FileId,
        /// How to read it from now on.
        source: Arc<Source>,
    },
    /// The kernel reads missing bytes of a file because a program waits for them. The bytes behind them are
    /// next.
    Missed {
        /// See [`crate::ForwardedCall::pid`].
        pid: u32,
        file: FileId,
        /// From the first byte, or a little behind it; the kernel may read more.
        bytes: Range<u64>,
        /// The I/O priority of that program.
        io: IoPriority,
    },
    /// Close every file of this device, so that its file system can be unmounted. Files that are still read
    /// are opened again.
    Leave {
        /// Device number of the file system.
        dev: u64,
        /// Dropped when the files are closed.
        left: Arc<Left>,
    },
    /// The client of this request is gone.
    Cancel(RequestId),
    /// The reader of a file set has taken the bytes of this request, or never will.
    Took {
        id: RequestId,
        /// Whether it has read the bytes.
        read: bool,
    },
}

impl Message {
    /// Whether it only reports reads. If lost, the engine is slower but correct.
    pub(crate) fn is_report(&self) -> bool {
        match self {
            Message::Hit(_) | Message::Access { .. } | Message::Missed { .. } => true,
            Message::Ask(_)
            | Message::Opened { .. }
            | Message::Leave { .. }
            | Message::Cancel(_)
            | Message::Took { .. } => false,
        }
    }
}

/// The file behind a descriptor, if it is a regular file open for reading. The engine must not read a file
/// for a process whose descriptor does not allow reading (`O_PATH`, `O_WRONLY`).
pub(crate) fn readable_file(fd: BorrowedFd<'_>) -> Option<(FileId, Edition)> {
    let flags = rustix::fs::fcntl_getfl(fd).ok()?;
    if flags.contains(OFlags::PATH) || flags & OFlags::ACCMODE == OFlags::WRONLY {
        return None;
    }
    // Cached attributes, without asking a file server, which may hang.
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
