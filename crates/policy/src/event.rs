//! What goes into a [`crate::DiskEngine`] and what comes out of it.

use seekless_base::{FileId, Lba, words};
use serde::{Deserialize, Serialize};

use crate::memory::MemoryLimit;
use crate::{IoPriority, KernelRead};

/// Id of a request, chosen by the driver. Must not be used again while the first request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// Id of a read, chosen by the engine. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReadId(pub u64);

/// A client is about to read bytes that are not in memory, and waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// The file.
    pub file: FileId,
    /// First byte of the read; at most `offset`. The bytes between are in memory, and the reader has not
    /// taken them yet.
    pub from: u64,
    /// First missing byte. Best given beyond what is resident already.
    pub offset: u64,
    /// Bytes wanted from `offset` on; 0 means to the end of the file. Cut to [`crate::Config::read_max`].
    pub len: u64,
    /// Size of the file in bytes. Nothing is read beyond it.
    pub file_size: u64,
    /// Disk address of `offset`, if the driver knows it. Only the order of reads depends on it.
    pub lba: Option<Lba>,
    /// How fast and for whom the bytes are needed.
    #[serde(default, skip_serializing_if = "Demand::is_unknown")]
    pub demand: Demand,
}

/// How fast and for whom bytes are needed, as far as the driver knows. By default nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Demand {
    /// Bytes a second at which the file is played, as in [`Event::Bitrate`]; 0 is ignored.
    pub bitrate: Option<u64>,
    /// A file set asks, whose reader takes ranges in any order. They are read as asked, in disk order, in the
    /// time that other readers leave, and at least [`crate::Config::share`] of the disk's time. The bytes
    /// count against the budget until [`Event::Took`].
    pub file_set: bool,
    /// The reader announced random reads of this file (`POSIX_FADV_RANDOM`). The range is read as asked, and
    /// beyond it only as far as such readers were seen to read. Applies to the file until another request of
    /// a client says otherwise.
    pub random: bool,
    /// What the kernel says about the reader's priority.
    pub io: IoPriority,
}

impl Demand {
    fn is_unknown(&self) -> bool {
        *self == Demand::default()
    }
}

/// How much of a reported range has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Taken {
    /// The whole range.
    #[default]
    All,
    /// Unknown: the door reports reads before they are done, and a `sendfile` takes no more than its socket
    /// has room for. Everything before the range has been read.
    Unknown,
}

/// A client read bytes. No request waits, but the client's stream moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// How much of the range was read.
    pub taken: Taken,
}

/// What waits to be written to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writes {
    /// Write requests that wait for the device or are in flight there; 0 if nothing is to be written.
    pub waiting: u64,
    /// Bytes that the device has written since the last report.
    pub bytes: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A new request. It will be answered exactly once.
    Request(Request),
    /// A read, whether it hit or had to wait before. Ignored unless reading ahead is on
    /// ([`crate::Config::ahead`]).
    Access(Access),
    /// These bytes are not in memory, as an [`Action::Probe`] found. If they were fetched, they have been
    /// evicted. Ignored while a read of them is queued or in flight.
    Missing {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The kernel reads for a client that no door blocks. Bytes that are not known to be in memory come from
    /// the disk. All of them count as fetched for the stream that goes on there, and the next piece may be
    /// read directly behind them.
    ReadByKernel(KernelRead),
    /// The reader of a file set has taken the bytes of this request ([`Demand::file_set`]), or never will.
    /// Sent once for each answered request of a file set, whatever the answer. Unknown ids are ignored.
    Took {
        /// Which request.
        request: RequestId,
        /// Whether it has read the bytes.
        read: bool,
    },
    /// The bitrate of a file, known beforehand. Remembered as long as the file is open.
    Bitrate {
        /// The file.
        file: FileId,
        /// Bytes a second; 0 is ignored.
        bytes_per_s: u64,
    },
    /// The driver can read this file until [`Action::Close`] names it. A request implies this too. Accesses
    /// to a file that is not open are ignored, because nothing can be read ahead of it.
    Opened {
        /// The file.
        file: FileId,
    },
    /// The driver is to close this file, because it was deleted or its file system is to be unmounted. Pieces
    /// that no client waits for are not read, and the file is closed as soon as none is in flight. A later
    /// `Opened` or request opens it again.
    Leave {
        /// The file.
        file: FileId,
    },
    /// These bytes are a hole, or were allocated and never written: no disk delivers them. They are neither
    /// read ahead nor counted, and a request finds them in memory. Remembered as long as the file is open;
    /// ignored if it is not.
    Hole {
        /// The file.
        file: FileId,
        /// First byte.
        from: u64,
        /// File offset behind the last byte.
        upto: u64,
    },
    /// A range reported as a hole may have been written.
    Written {
        /// The file.
        file: FileId,
        /// First byte.
        from: u64,
        /// File offset behind the last byte.
        upto: u64,
    },
    /// The machine's memory, reported every [`crate::memory::REPORT_EVERY`].
    MemoryLimit(MemoryLimit),
    /// Whether the disk is left to its readers from now on. If so, waiting requests are answered
    /// `Pass(Mode)`, queued pieces are withdrawn, and nothing is read ahead until the rest is over. Reads of
    /// clients are still reported, so that streams are known afterwards, but nothing is learnt about memory
    /// and sizes. A request that arrives meanwhile is served.
    Rest(bool),
    /// Pieces in flight on each part of the device ([`crate::Config::in_flight`]), once measured. Cut to 1 to
    /// [`crate::IN_FLIGHT_MAX`].
    InFlight(usize),
    /// What waits to be written. Reported at once when writes begin or cease to wait; several
    /// times in the time of a piece while bytes are written; and every half of [`crate::WRITES_BELIEVED`]
    /// while any wait, because a report counts no longer than that. Without any report the engine reads as if
    /// nobody wrote.
    Writes(Writes),
    /// The client of this request is gone. The request is answered `Pass(Cancelled)`, and bytes that only it
    /// wanted are not read. Unknown ids are ignored, because the answer may have crossed the cancellation.
    Cancel(RequestId),
    /// Bytes of the read that were in memory before it began: the disk does not deliver them, and they were
    /// not evicted. Sent once for each range, before any [`Event::Progress`]. Only the ledger and the count
    /// of evictions depend on it.
    Found {
        /// Which read.
        read: ReadId,
        /// First byte, as a file offset; bytes before the read do not count.
        from: u64,
        /// File offset behind the last byte.
        upto: u64,
    },
    /// All bytes of the read before the file offset `upto` have arrived. Some may have left memory again:
    /// their reader may drop what it has read, as rclone does. Who still needs them asks for them.
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
    /// Time passed and nothing else happened. Sent at [`crate::DiskEngine::next_deadline`].
    Tick,
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every byte is in memory.
    Ok,
    /// Some byte could not be brought in. Requests still waiting for it are answered `Pass(Failed)`; the
    /// caller's own read then meets the error.
    Failed,
}

/// What the driver must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Bring these bytes into memory. Report [`Event::Progress`] any number of times and [`Event::Done`]
    /// once.
    Read {
        /// Id for the reports.
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
    /// Give these bytes back to the kernel: their last reader has passed. A hint; nothing is reported.
    Drop {
        /// The file.
        file: FileId,
        /// First byte, on a page boundary.
        offset: u64,
        /// Bytes, in whole pages.
        len: u64,
    },
    /// Check whether these bytes are in memory, and report the first missing range as [`Event::Missing`]. A
    /// hint: the report may be lost.
    Probe {
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Close the file: nothing of it is read or waited for any more.
    Close {
        /// The file.
        file: FileId,
    },
    /// Answer the client of the request.
    Answer {
        /// Which request.
        request: RequestId,
        /// The answer.
        verdict: Verdict,
    },
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The requested bytes are in memory.
    Resident,
    /// Read for yourself: nothing was done, or could be.
    Pass(Reason),
}

/// Why a request was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The queue is full.
    QueueFull,
    /// The disk reported an error, or the bytes could not be kept in memory.
    Failed,
    /// Withdrawn by [`Event::Cancel`], or by [`Event::Leave`] if no client waits for it.
    Cancelled,
    /// Waited longer than [`crate::Config::wait_max`], or than [`crate::Config::stall_max`] without progress
    /// of any read.
    TooLate,
    /// In this mode nothing is read for clients.
    Mode,
    /// The range lies wholly beyond the end of the file.
    BeyondEnd,
    /// A request of this id waits already. A mistake of the driver.
    Duplicate,
    /// Nothing indicates that the reader goes on from here, and the algorithm leaves such readers alone:
    /// their own reads give the disk as many requests to choose from as there are readers.
    Random,
    /// The reader takes small files one after the other, already in disk order. A wait would only cost time:
    /// for [`crate::LEFT_ALONE`] the client need not ask again.
    DiskOrder,
}

words! {
    Reason: QueueFull = "queue_full", Failed = "failed", Cancelled = "cancelled", TooLate = "too_late",
    Mode = "mode", BeyondEnd = "beyond_end", Duplicate = "duplicate", Random = "random",
    DiskOrder = "disk_order"
}

impl Reason {
    /// Index in [`Reason::ALL`], for tables of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}
