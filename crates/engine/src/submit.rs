//! How a call enters the engine, from any door.
//!
//! A door makes a [`ForwardedCall`] from what it receives (a frame, an event of the kernel, an HTTP request)
//! and submits it ([`Engine::submit`]). This module decides which bytes the call waits for, which disk they
//! are on, what of them is in memory, and what to request from the disk thread. Meanwhile it asks the door
//! for what only the door knows ([`Door`]).

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use seekless_base::Lba;
use seekless_base::wants::{CallKind, DoorLimits, Want};
use seekless_kernel::prefetch::{Source, Steps};
use seekless_kernel::residency::resident_prefix;
use seekless_policy::{FileId, IoPriority, Mode, RequestId, Taken};

use crate::addresses::Edition;
use crate::deleted_files::Left;
use crate::devices::{Devices, Place};
use crate::door::{Ask, ClientDemand, Door, Hit, Message, readable_file};
use crate::engine::Engine;
use crate::lock;

/// A call that a door forwards.
#[derive(Clone, Copy, Debug)]
pub struct ForwardedCall {
    /// The process or thread that calls, in our process namespace; 0 if it is not known.
    pub pid: u32,
    /// Which file.
    pub file: FileId,
    /// Its size and time of change.
    pub edition: Edition,
    /// The bytes it wants, within the file.
    pub want: Want,
    /// The client's demand.
    pub demand: ClientDemand,
    /// Bytes from its beginning that the door has found in memory; `None` if the door has not checked.
    pub resident: Option<u64>,
    /// How far the door wants to know what is in memory, in bytes from the beginning of the call.
    pub look_upto: u64,
    /// Whether the door will not report the read that follows the answer, so that a `Resident` answer counts
    /// as that read. How much the read takes, and when, is unknown ([`Taken::Unknown`]).
    pub answer_is_read: bool,
}

impl ForwardedCall {
    /// A call for `len` bytes from `offset` on, of a file that is open as `fd`.
    ///
    /// # Errors
    /// [`Refused::BadRequest`].
    pub fn of(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<ForwardedCall, Refused> {
        let (file, edition) = readable_file(fd).ok_or(Refused::BadRequest)?;
        let want = Want::of(offset, len, edition.size).ok_or(Refused::BadRequest)?;
        let demand = ClientDemand::default();
        let (resident, look_upto) = (None, 0);
        Ok(ForwardedCall { pid: 0, file, edition, want, demand, resident, look_upto, answer_is_read: false })
    }

    /// The same call after a check of memory, which tells how much is resident of the bytes that it may wait
    /// for. If the kernel does not report it, nothing counts as resident.
    pub fn looked(self, fd: BorrowedFd<'_>, limits: &DoorLimits) -> ForwardedCall {
        let most = self.want.waited_for(CallKind::Read, limits);
        ForwardedCall { resident: Some(resident_bytes(fd, most)), ..self }
    }
}

fn resident_bytes(fd: BorrowedFd<'_>, want: Want) -> u64 {
    resident_prefix(fd, want.offset(), want.len()).unwrap_or(0)
}

/// The result for a call that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The bytes that it waits for are in memory.
    Resident {
        /// The bytes that it waits for.
        want: Want,
        /// Number of bytes in memory from its beginning, as far as was checked.
        bytes: u64,
    },
    /// It waits for the disk. The function that [`Door::block`] returned is called at its end.
    Blocked(Ticket),
}

/// Why the engine does not serve a call. The caller reads for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// In this mode nothing is read for clients.
    #[error("the mode reads for no client")]
    Mode,
    /// The file is not on a disk with heads.
    #[error("the file is on no disk with heads")]
    NotADisk,
    /// Not a regular file open for reading, or the range lies beyond its end.
    #[error("no regular file open for reading, or nothing there")]
    BadRequest,
    /// The disk's thread cannot take more now, or no thread could be started for another disk.
    #[error("the disk's queue is full")]
    Full,
    /// Its own door released it.
    #[error("the door has no room for it")]
    Door,
}

/// Identifies a waiting call, for [`Engine::cancel`]. Unique while an engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    disk: usize,
    id: RequestId,
}

impl Ticket {
    /// The index of its disk, counted from 0 in the order in which disks were met.
    pub fn disk(self) -> usize {
        self.disk
    }

    /// Its number, from 1.
    pub fn number(self) -> u64 {
        self.id.0
    }
}

impl Engine {
    /// Brings the bytes of a call into memory. After `Resident`, now or as its answer, the caller's own read
    /// most likely finds the bytes in memory; nothing locks them there. The read is reported when it is done
    /// ([`Engine::read`], [`Engine::hit`]), because bytes that count as read may be dropped.
    ///
    /// The engine looks up the file's disk (cached for seconds), asks the kernel which bytes are in memory,
    /// and hands the rest over to the disk's thread. The file system of a file that another process has made
    /// can block the first two for any time, so a door must call this where only that process's user waits.
    ///
    /// # Errors
    /// The call is not served, and no answer follows. The caller reads for itself, and may block.
    pub fn submit(&self, call: ForwardedCall, door: &mut impl Door) -> Result<Submitted, Refused> {
        let policy = &self.settings().policy;
        let limits = policy.limits();
        let there = |want: Want| {
            let bytes = call.resident.filter(|&bytes| bytes >= want.len())?;
            Some(Submitted::Resident { want, bytes })
        };
        if let Some(hit) = there(call.want.waited_for(CallKind::Read, &limits)) {
            return Ok(hit);
        }
        if matches!(policy.mode, Mode::Off | Mode::Track) {
            return Err(Refused::Mode);
        }
        let want = call.want.waited_for(door.kind(&limits)?, &limits);
        if let Some(hit) = there(want) {
            return Ok(hit);
        }
        let place = self.place(call.file, door.fd())?;
        door.before_look();
        let bytes = match call.resident {
            Some(bytes) => bytes,
            None => resident_bytes(door.fd(), want.enlarged(call.look_upto)),
        };
        let Some(missing) = want.missing(bytes) else { return Ok(Submitted::Resident { want, bytes }) };
        let ticket = Ticket { disk: place.0, id: self.next_id() };
        let (on_answer, source) = door.block(ticket).ok_or(Refused::Door)?;
        let to_open = (!source.is_own()).then(|| source.clone());
        let ask = Ask {
            id: ticket.id,
            on_answer,
            source,
            pid: call.pid,
            file: call.file,
            edition: call.edition,
            need_offset: want.offset(),
            need_len: want.len(),
            offset: missing.offset(),
            len: missing.len(),
            start: place.1,
            steps: place.2,
            demand: call.demand,
            answer_is_read: call.answer_is_read,
        };
        // On failure the message is dropped unanswered: the door learns of it from the error alone.
        let sent = lock(self.devices()).send(ticket.disk, Message::Ask(Box::new(ask)));
        if sent.is_err() {
            return Err(Refused::Full);
        }
        if let Some(source) = to_open {
            door.opener().unwrap_or_else(|| self.opener()).open(ticket.disk, call.file, source);
        }
        Ok(Submitted::Blocked(ticket))
    }

    /// The caller is gone: its call is answered `Pass(Cancelled)`, and bytes that only it wanted are not
    /// read.
    pub fn cancel(&self, ticket: Ticket) {
        // If the disk's thread is too busy to take this, the read is done for no client.
        let _ = lock(self.devices()).send(ticket.disk, Message::Cancel(ticket.id));
    }

    /// The reader of a file set has taken the bytes of its call, or never will ([`ClientDemand::file_set`]).
    /// Sent once for each such call that was blocked, whatever its answer.
    pub fn took(&self, ticket: Ticket, read: bool) {
        // If this is lost, the bytes count against the budget until their file is closed.
        let _ = lock(self.devices()).send(ticket.disk, Message::Took { id: ticket.id, read });
    }

    /// The index of the disk on which a file is read, as in [`Ticket::disk`].
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn disk_of(&self, file: FileId, fd: BorrowedFd<'_>) -> Result<usize, Refused> {
        match self.settings().policy.mode {
            Mode::Off | Mode::Track => Err(Refused::Mode),
            _ => self.place(file, fd).map(|place| place.0),
        }
    }

    /// Maximum of bytes read ahead and not used, of a disk; 0 if nothing is read ahead.
    pub fn budget(&self, disk: usize) -> u64 {
        let devices = lock(self.devices());
        devices.views().nth(disk).map_or(0, |(_, snapshot)| lock(snapshot).engine.budget)
    }

    /// Start addresses of the parts of a disk with their own heads, except the first part at address 0.
    pub fn parts(&self, disk: usize) -> Vec<Lba> {
        let devices = lock(self.devices());
        devices.views().nth(disk).map_or_else(Vec::new, |(_, snapshot)| lock(snapshot).parts.clone())
    }

    /// Reports a hit of a file that the engine may not know: its stream moved on, and the next piece may be
    /// due. Lossy: dropped if the disk thread is behind.
    pub fn hit(&self, call: &ForwardedCall, taken: Taken, source: Source) {
        if !self.settings().hears_hits() {
            return;
        }
        let place = Devices::place(self.devices(), call.file, source.as_fd(), Instant::now());
        let Ok(Place::Reader { index, start, steps }) = place else { return };
        let (pid, file, edition) = (call.pid, call.file, call.edition);
        let (offset, len) = (call.want.offset(), call.want.len());
        let source = Arc::new(source);
        let hit = Hit { source, pid, file, edition, offset, len, taken, start, steps };
        let _ = lock(self.devices()).send(index, Message::Hit(Box::new(hit)));
    }

    /// Reports a read of a file that was requested from the engine lately. Lossy.
    pub fn read(&self, file: FileId, offset: u64, len: u64) {
        let _ = lock(self.devices()).read(file, offset, len);
    }

    /// Closes every file of a device, so that its file system can be unmounted. Reads in flight end first; a
    /// disk thread that is behind acts late.
    pub fn leave(&self, dev: u64) {
        self.leave_and(dev, || {});
    }

    /// Closes every file of a device, and then calls `then`, once none of them is open any more. `then` runs
    /// on a thread of the engine and must not block. It is not called if a disk thread is too far behind to
    /// take the message.
    pub fn leave_and(&self, dev: u64, then: impl FnOnce() + Send + 'static) {
        let left = Left::then(then);
        let devices = lock(self.devices());
        for index in 0..devices.views().len() {
            if devices.send(index, Message::Leave { dev, left: left.clone() }).is_err() {
                left.never();
            }
        }
    }

    /// Where the file of a call is read.
    fn place(&self, file: FileId, fd: BorrowedFd<'_>) -> Result<DiskPlace, Refused> {
        // Only files that exist in memory alone (memfd, tmpfs) have seals. Those on mounts that are not
        // visible here would go to the common queue.
        if !self.settings().include_ssd && rustix::fs::fcntl_get_seals(fd).is_ok() {
            return Err(Refused::NotADisk);
        }
        match Devices::place(self.devices(), file, fd, Instant::now()) {
            Ok(Place::Reader { index, start, steps }) => Ok((index, start, steps)),
            Ok(Place::NotADisk) => Err(Refused::NotADisk),
            Err(error) => {
                tracing::warn!(%error, "cannot start a thread for another disk");
                Err(Refused::Full)
            }
        }
    }
}

/// The index of the disk, the first sector of the file system on it, and the sizes of read-ahead calls there.
type DiskPlace = (usize, u64, Steps);

/// The result of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// A disk thread has accepted it.
    Taken,
    /// No thread serves the file: no client has missed on it.
    Unknown,
    /// The thread is behind.
    Dropped,
}

impl Devices {
    /// Reports a read that is done. For a door that reports many under one lock; others call
    /// [`Engine::read`].
    pub fn read(&self, file: FileId, offset: u64, len: u64) -> Reported {
        self.access(Message::Access { pid: 0, file, offset, len, taken: Taken::All }, file)
    }

    /// Reports a read by this process (0: not known) of which `taken` says how much was taken.
    pub fn read_taken(&self, pid: u32, file: FileId, offset: u64, len: u64, taken: Taken) -> Reported {
        self.access(Message::Access { pid, file, offset, len, taken }, file)
    }

    fn access(&self, access: Message, file: FileId) -> Reported {
        match self.reader_of(file).map(|index| self.send(index, access)) {
            Some(Ok(())) => Reported::Taken,
            Some(Err(_)) => Reported::Dropped,
            None => Reported::Unknown,
        }
    }

    /// Reports that the kernel reads these bytes, at least, because a program waits for them. The bytes
    /// behind them are brought in as if a call of this I/O priority waited for them, if the thread knows the
    /// file. No call is answered. `pid`: as [`ForwardedCall::pid`].
    pub fn missed(&self, pid: u32, file: FileId, bytes: Range<u64>, io: IoPriority) -> Reported {
        self.access(Message::Missed { pid, file, bytes, io }, file)
    }
}
