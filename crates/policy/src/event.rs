//! What goes into a [`crate::DiskEngine`] and what comes out of it.

use seekless_units::{FileId, Lba, Nanos, words};

use crate::memory::MemoryLimit;

/// Name of a request, chosen by the driver; must not be used twice while the first is waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Name of a read, chosen by the engine; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// A client is about to read bytes that are not in memory, and waits until they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// The file.
    pub file: FileId,
    /// First byte of the read; at most `offset`. What lies between is in memory, and its reader has not taken
    /// it yet.
    pub from: u64,
    /// First byte that is missing. Best given past what is resident already.
    pub offset: u64,
    /// Bytes wanted from `offset` on; 0 means to the end of the file. Cut to [`crate::Config::read_max`].
    pub len: u64,
    /// Size of the file in bytes. Nothing is read beyond it.
    pub file_size: u64,
    /// Disk address of `offset`, if the driver knows it. Only the order of reads rests on it.
    pub lba: Option<Lba>,
    /// What is known of when and how fast the bytes are needed.
    pub demand: Demand,
}

/// When and how fast bytes are needed, as far as it was told; by default nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// When the bytes should be in memory. What is too far off counts as [`crate::Config::wait_max`] from
    /// now, and `None` as now.
    pub deadline: Option<Nanos>,
    /// Bytes a second at which they are played, as [`Event::Bitrate`] says it of the file; 0 is ignored.
    pub bitrate: Option<u64>,
    /// No client asks yet: one is expected to, for these bytes and for others of its set. They are read as
    /// asked, in the order of the disk, and a client that comes for them meanwhile waits for their turn. The
    /// deadline bounds that wait.
    pub foretold: bool,
    /// The kernel reads what comes before it, for a client that no door holds up. It joins that read instead
    /// of waiting in line. The answer reaches no client.
    pub along: bool,
    /// A file set asks, whose reader takes ranges in any order. They are read as asked, in the order of
    /// the disk, from what other readers leave of its time, and at least [`crate::Config::share`] of it. The
    /// bytes stay pinned until [`Event::Took`].
    pub file_set: bool,
    /// Its reader has said that it reads this file at random (`POSIX_FADV_RANDOM`). Nothing says then that it
    /// goes on: it is read as asked, and further only as far as such readers were seen to go. Holds for the
    /// file until another request of a client says otherwise.
    pub random: bool,
}

/// How much of a range that is reported as read has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Taken {
    /// All of it.
    #[default]
    All,
    /// Not known: the door hears of reads before they are done, and a `sendfile` takes no more than its
    /// socket has room for. What lies before the range has been read.
    Unknown,
}

/// A client read bytes: no request waits, but the client's stream moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub offset: u64,
    /// Bytes read.
    pub len: u64,
    /// Size of the file in bytes.
    pub file_size: u64,
    /// Disk address of `offset`, if the driver knows it.
    pub lba: Option<Lba>,
    /// How much of it.
    pub taken: Taken,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new request. It will be answered exactly once.
    Request(Request),
    /// A read, whether it hit or was waited for before. Ignored unless reading ahead of need is on
    /// ([`crate::Config::ahead`]).
    Access(Access),
    /// These bytes were found not to be in memory, as an [`Action::Probe`] asked: if they were fetched, they
    /// have been evicted. Ignored while a read of them is queued or in flight.
    Missing {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The kernel reads these bytes for a client that no door holds up. What of them is not known to be in
    /// memory comes from the disk.
    ReadByKernel {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// These bytes were handed to a cache above that keeps them: given back here, unless another stream is
    /// still to come to them or a read of them is under way. Ignored unless reading ahead of need is on
    /// ([`crate::Config::ahead`]).
    Release {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The reader of a file set has taken what this request brought in ([`Demand::file_set`]), or never
    /// will. Sent once for each request of a file set that was answered, whatever the answer. Unknown names
    /// are ignored.
    Took {
        /// Which request.
        request: RequestId,
        /// It has read the bytes.
        read: bool,
    },
    /// What is known beforehand of a file's bitrate. Remembered as long as the file is open.
    Bitrate {
        /// The file.
        file: FileId,
        /// Bytes a second; 0 is ignored.
        bytes_per_s: u64,
    },
    /// The driver can read this file until [`Action::Close`] names it. A request says so as well. Accesses to
    /// a file that is not open are ignored: nothing could be read ahead of it.
    Opened {
        /// The file.
        file: FileId,
    },
    /// The driver is to let go of this file: it was deleted, or its file system is to be unmounted. What no
    /// client waits for is not read, and the file is closed as soon as nothing of it is under way. Said to be
    /// open again, it is.
    Leave {
        /// The file.
        file: FileId,
    },
    /// These bytes are a hole, or were allocated and never written: no disk delivers them. They are neither
    /// read ahead nor counted, and what a request wants of them counts as in memory. Remembered as long as
    /// the file is open; ignored if it is not.
    Hole {
        /// The file.
        file: FileId,
        /// First of them.
        from: u64,
        /// File offset behind the last.
        upto: u64,
    },
    /// What was said to be a hole there may be none any more.
    Written {
        /// The file.
        file: FileId,
        /// First byte.
        from: u64,
        /// File offset behind the last.
        upto: u64,
    },
    /// The machine's memory, every [`crate::memory::REPORT_EVERY`].
    MemoryLimit(MemoryLimit),
    /// Whether the disk is left to its readers from now on. Then requests that wait are answered
    /// `Pass(Mode)`, what is queued is withdrawn, and nothing is read ahead of need until it is over. What
    /// clients read is heard of as ever, so that streams are known by then, and nothing is learnt about
    /// memory and sizes. A request that comes meanwhile is served.
    Rest(bool),
    /// Pieces that each part of the device bears at once ([`crate::Config::in_flight`]), once that is
    /// measured. Cut to 1 to [`crate::IN_FLIGHT_MAX`].
    InFlight(usize),
    /// The client that made this request is gone. Answered `Pass(Cancelled)`; what only it wanted is not read
    /// any more. Unknown names are ignored (the answer may have crossed the cancellation).
    Cancel(RequestId),
    /// Bytes of the read that were in memory before it began: the disk does not deliver them, and they were
    /// not evicted. Once for each stretch, before any [`Event::Progress`]; only the ledger and what is
    /// counted as evicted rest on it.
    Found {
        /// Which read.
        read: ReadId,
        /// First of them, as a file offset; what lies before the read does not count.
        from: u64,
        /// File offset behind the last.
        upto: u64,
    },
    /// Bytes of the read that were in memory and are not any more: they were evicted, and are read again.
    /// What of them was on its way is no evidence.
    Gone {
        /// Which read.
        read: ReadId,
        /// First of them, as a file offset; what lies before the read does not count.
        from: u64,
        /// File offset behind the last.
        upto: u64,
    },
    /// All bytes of the read before the file offset `upto` are now in memory.
    Progress {
        /// Which read.
        read: ReadId,
        /// File offset, not a count.
        upto: u64,
    },
    /// The read is over.
    Done {
        /// Which read.
        read: ReadId,
        /// How it ended.
        outcome: Outcome,
    },
    /// Time passed; nothing else happened. Sent at [`crate::DiskEngine::next_deadline`].
    Tick,
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every byte is in memory.
    Ok,
    /// Some byte could not be brought in. Requests still waiting on it are answered `Pass(Failed)`: the
    /// caller's own read then meets the error itself.
    Failed,
}

/// What the driver is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Bring these bytes into memory; report [`Event::Progress`] at will and [`Event::Done`] once.
    Read {
        /// Name for the reports.
        id: ReadId,
        /// The file.
        file: FileId,
        /// First byte, on a page boundary.
        offset: u64,
        /// Bytes, at least 1, at most [`crate::Config::read_max`].
        len: u64,
        /// Disk address of `offset`, as far as known.
        lba: Option<Lba>,
    },
    /// Give these bytes back to the system: their last reader has passed. A hint; nothing is reported.
    Drop {
        /// The file.
        file: FileId,
        /// First byte, on a page boundary.
        offset: u64,
        /// Bytes, in whole pages.
        len: u64,
    },
    /// Look whether these bytes are in memory; report the first hole as [`Event::Missing`]. A hint: the
    /// answer may be lost.
    Probe {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Keep these bytes in memory until [`Action::Unpin`]: they have arrived and their readers have not come.
    /// A hint: it may be refused, and nothing is reported.
    Pin {
        /// The file.
        file: FileId,
        /// First byte, on a page boundary.
        offset: u64,
        /// Bytes, in whole pages.
        len: u64,
    },
    /// Do again what keeps these pinned bytes in memory: the kernel may take them before their turn. A hint.
    Renew {
        /// The file.
        file: FileId,
        /// First byte, on a page boundary.
        offset: u64,
        /// Bytes, in whole pages.
        len: u64,
    },
    /// Bytes that were pinned need not stay. Not to be lost: what is pinned for ever is memory lost.
    Unpin {
        /// The file.
        file: FileId,
        /// First byte, on a page boundary.
        offset: u64,
        /// Bytes, in whole pages.
        len: u64,
        /// No client is to come for them: memory is best found there.
        cold: bool,
    },
    /// Close the file: nothing of it is read, pinned or waited for any more.
    Close {
        /// The file.
        file: FileId,
    },
    /// Tell the client that made the request.
    Answer {
        /// Which request.
        request: RequestId,
        /// What to tell.
        verdict: Verdict,
    },
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What was asked is in memory.
    Resident,
    /// Go ahead on your own: nothing was (or could be) done.
    Pass(Reason),
}

/// Why a request was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The queue is at its bound.
    QueueFull,
    /// The disk reported an error, or the bytes could not be kept in memory.
    Failed,
    /// Withdrawn by [`Event::Cancel`], or by [`Event::Leave`] where no client waits for it.
    Cancelled,
    /// It waited longer than [`crate::Config::wait_max`], or than [`crate::Config::stall_max`] while no read
    /// made progress.
    TooLate,
    /// The mode reads for no client.
    Mode,
    /// The range lies wholly beyond the end of the file.
    BeyondEnd,
    /// A request of this name is waiting already. A mistake of the driver.
    Duplicate,
    /// Nothing says that the reader goes on from here, and the algorithm leaves such readers alone: with
    /// their own reads the disk has as many to choose from as there are readers.
    Random,
    /// Small files are read one behind the other in the order of the disk as it is. A wait would only cost
    /// time: the client need not ask again for [`crate::LEFT_ALONE`].
    DiskOrder,
}

words! {
    Reason: QueueFull = "queue_full", Failed = "failed", Cancelled = "cancelled", TooLate = "too_late",
    Mode = "mode", BeyondEnd = "beyond_end", Duplicate = "duplicate", Random = "random",
    DiskOrder = "disk_order"
}

impl Reason {
    /// Position in [`Reason::ALL`], for tables of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}
