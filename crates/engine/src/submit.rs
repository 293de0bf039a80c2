//! How a call enters the engine, whatever door it comes through.
//!
//! A door makes a [`ForwardedCall`] of what its transport says (a frame, an event of the kernel, an HTTP
//! request) and submits it ([`Engine::submit`]). Which bytes are waited for, where their disk is, what of
//! them is in memory, and what is asked of the disk thread is decided here. While that goes on the door is
//! asked what only it can know: [`Transport`].

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use seekless_kernel::prefetch::{Source, Steps};
use seekless_kernel::residency::resident_prefix;
use seekless_policy::{FileId, Mode, RequestId, Taken};
use seekless_units::Lba;
use seekless_wants::{CallKind, DoorLimits, Want};

use crate::addresses::Edition;
use crate::aside::Left;
use crate::devices::{Devices, Place};
use crate::door::{Ask, ClientDemand, Hit, Message, OnAnswer, readable_file};
use crate::engine::Engine;
use crate::lock;
use crate::opener::Opener;

/// A call that a door forwards.
#[derive(Clone, Copy, Debug)]
pub struct ForwardedCall {
    /// Whose it is, as far as the door tells readers apart: the user's number, else 0.
    pub reader: u32,
    /// Which file.
    pub file: FileId,
    /// Its size and time of change.
    pub edition: Edition,
    /// The bytes it names, as far as the file goes.
    pub want: Want,
    /// What its client says of when and how fast.
    pub demand: ClientDemand,
    /// Bytes from its beginning that the door has found in memory; `None`: it has not looked.
    pub resident: Option<u64>,
    /// How far the door likes to know what is in memory, bytes from the beginning of the call.
    pub look_upto: u64,
    /// The door will not report the read that follows the answer, so a `Resident` one counts as that read.
    /// How much it takes, and when, is unknown ([`Taken::Unknown`]).
    pub answer_is_read: bool,
}

impl ForwardedCall {
    /// A call of `len` bytes from `offset` on of a file held open as `fd`.
    ///
    /// # Errors
    /// [`Refused::BadRequest`].
    pub fn of(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<ForwardedCall, Refused> {
        let (file, edition) = readable_file(fd).ok_or(Refused::BadRequest)?;
        let want = Want::of(offset, len, edition.size).ok_or(Refused::BadRequest)?;
        let demand = ClientDemand::default();
        let (resident, look_upto) = (None, 0);
        Ok(ForwardedCall {
            reader: 0,
            file,
            edition,
            want,
            demand,
            resident,
            look_upto,
            answer_is_read: false,
        })
    }

    /// The same after a look into memory, which tells how much of what may be waited for at most is there.
    /// Where the kernel does not tell, nothing is.
    pub fn looked(self, fd: BorrowedFd<'_>, limits: &DoorLimits) -> ForwardedCall {
        let most = self.want.waited_for(CallKind::Read, limits);
        ForwardedCall { resident: Some(resident_bytes(fd, most)), ..self }
    }
}

fn resident_bytes(fd: BorrowedFd<'_>, want: Want) -> u64 {
    resident_prefix(fd, want.offset(), want.len()).unwrap_or(0)
}

/// What a door does, and knows, while a call of its is submitted.
pub trait Transport {
    /// The file, open for reading.
    fn fd(&self) -> BorrowedFd<'_>;

    /// How the call takes its bytes. Asked only when some of them are missing as far as is known.
    ///
    /// # Errors
    /// [`Refused::Door`]: the call is to go on as it is.
    fn kind(&mut self, limits: &DoorLimits) -> Result<CallKind, Refused>;

    /// The file's disk is served. Whatever was read before this call should be reported now: heard of later,
    /// it would look like another client's.
    fn before_look(&mut self) {}

    /// The call is to wait. Returns what is called at its end, and how its file is read. `None`: the door has
    /// no room for it, and the call is [`Refused::Door`].
    fn block(&mut self, ticket: Ticket) -> Option<(OnAnswer, Arc<Source>)>;

    /// Where the file is opened for the engine if [`Transport::block`] passes a descriptor of another
    /// process. `None`: where the files of this process are.
    fn opener(&self) -> Option<&Opener> {
        None
    }
}

/// A caller in this process: it reads all it names, and is told on the disk's thread.
pub struct InProcess<'fd> {
    fd: BorrowedFd<'fd>,
    on_answer: Option<OnAnswer>,
}

impl fmt::Debug for InProcess<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("fd", &self.fd).finish_non_exhaustive()
    }
}

impl<'fd> InProcess<'fd> {
    /// `on_answer` is called exactly once if the call is blocked, and must not wait.
    pub fn new(fd: BorrowedFd<'fd>, on_answer: OnAnswer) -> InProcess<'fd> {
        InProcess { fd, on_answer: Some(on_answer) }
    }
}

impl Transport for InProcess<'_> {
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

/// What becomes of a call that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// What it waits for is in memory.
    Resident {
        /// What it waits for.
        want: Want,
        /// Bytes in memory from its beginning on, as far as was looked.
        bytes: u64,
    },
    /// It waits for the disk. What [`Transport::block`] returned is called at its end.
    Blocked(Ticket),
}

/// Why the engine does not serve a call: its caller reads for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The mode reads for no client.
    Mode,
    /// The file is on no disk with heads.
    NotADisk,
    /// No regular file open for reading, or the range lies beyond its end.
    BadRequest,
    /// The disk's thread cannot take more now, or no thread could be had for another disk.
    Full,
    /// Its own door let it go.
    Door,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Mode => "the mode reads for no client",
            Refused::NotADisk => "the file is on no disk with heads",
            Refused::BadRequest => "no regular file open for reading, or nothing there",
            Refused::Full => "the disk's queue is full",
            Refused::Door => "the door has no room for it",
        })
    }
}

impl std::error::Error for Refused {}

/// Names a call that waits, for [`Engine::cancel`]. No two are alike while an engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    disk: usize,
    id: RequestId,
}

impl Ticket {
    /// Which of the engine's disks, counted from 0 in the order in which they were met.
    pub fn disk(self) -> usize {
        self.disk
    }

    /// Its number, from 1.
    pub fn number(self) -> u64 {
        self.id.0
    }
}

impl Engine {
    /// Brings what a call wants into memory. After `Resident`, now or as its answer, the caller's own read
    /// most likely finds the bytes in memory: they are not pinned. The read is reported when it is done
    /// ([`Engine::read`], [`Engine::hit`]), because what counts as read may be given back.
    ///
    /// A file's disk is looked up (remembered for seconds), what of it is in memory is asked of the kernel,
    /// the rest is handed over to the disk's thread. The file system of a file that another process has made
    /// can hold up the first two for as long as it likes: a door calls this where only that process's user
    /// waits.
    ///
    /// # Errors
    /// The call is not served, and no answer follows; the caller reads for itself, and may block.
    pub fn submit(&self, call: ForwardedCall, door: &mut impl Transport) -> Result<Submitted, Refused> {
        let spindle = &self.settings().spindle;
        let limits = spindle.limits();
        let there = |want: Want| {
            let bytes = call.resident.filter(|&bytes| bytes >= want.len())?;
            Some(Submitted::Resident { want, bytes })
        };
        if let Some(hit) = there(call.want.waited_for(CallKind::Read, &limits)) {
            return Ok(hit);
        }
        if matches!(spindle.mode, Mode::Off | Mode::Track) {
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
            reader: call.reader,
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
        // On failure the message comes back and is dropped unanswered: the door learns it from the error
        // alone.
        let sent = lock(self.devices()).send(ticket.disk, Message::Ask(Box::new(ask)));
        if sent.is_err() {
            return Err(Refused::Full);
        }
        if let Some(source) = to_open {
            door.opener().unwrap_or_else(|| self.opener()).open(ticket.disk, call.file, source);
        }
        Ok(Submitted::Blocked(ticket))
    }

    /// The caller is gone: its call is answered `Pass(Cancelled)`, and what only it wanted is not read any
    /// more.
    pub fn cancel(&self, ticket: Ticket) {
        // If the disk's thread is too busy to hear it, the read is done for no client.
        let _ = lock(self.devices()).send(ticket.disk, Message::Cancel(ticket.id));
    }

    /// The reader of a file set has taken what its call brought in, or never will
    /// ([`ClientDemand::file_set`]). Said once for each such call that was blocked, whatever its answer.
    pub fn took(&self, ticket: Ticket, read: bool) {
        // Unheard, the bytes stay pinned until their file is closed.
        let _ = lock(self.devices()).send(ticket.disk, Message::Took { id: ticket.id, read });
    }

    /// The disk on which a file is read, counted as [`Ticket::disk`] does.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn disk_of(&self, file: FileId, fd: BorrowedFd<'_>) -> Result<usize, Refused> {
        match self.settings().spindle.mode {
            Mode::Off | Mode::Track => Err(Refused::Mode),
            _ => self.place(file, fd).map(|place| place.0),
        }
    }

    /// Bytes that may lie in memory read ahead and not used, of a disk; 0 where nothing is read ahead.
    pub fn budget(&self, disk: usize) -> u64 {
        let devices = lock(self.devices());
        devices.views().nth(disk).map_or(0, |(_, snapshot)| lock(snapshot).engine.budget)
    }

    /// Where parts of a disk begin that have heads of their own, the first (at address 0) left out.
    pub fn parts(&self, disk: usize) -> Vec<Lba> {
        let devices = lock(self.devices());
        devices.views().nth(disk).map_or_else(Vec::new, |(_, snapshot)| lock(snapshot).parts.clone())
    }

    /// Reports a read that hit, of a file the engine may not know: its stream moved on, and the next piece
    /// may be due. Lossy: a disk thread that is behind misses it.
    pub fn hit(&self, call: &ForwardedCall, taken: Taken, source: Source) {
        if !self.settings().hears_hits() {
            return;
        }
        let place = Devices::place(self.devices(), call.file, source.as_fd(), Instant::now());
        let Ok(Place::Reader { index, start, steps }) = place else { return };
        let (reader, file, edition) = (call.reader, call.file, call.edition);
        let (offset, len) = (call.want.offset(), call.want.len());
        let source = Arc::new(source);
        let hit = Hit { source, reader, file, edition, offset, len, taken, start, steps };
        let _ = lock(self.devices()).send(index, Message::Hit(Box::new(hit)));
    }

    /// Reports a read of a file the engine was asked about lately. Lossy.
    pub fn read(&self, file: FileId, offset: u64, len: u64) {
        let _ = lock(self.devices()).read(0, file, offset, len);
    }

    /// Closes every file of a device, and lets go of what is pinned of them, so that its file system can be
    /// unmounted. Reads under way end first; a disk thread that is behind hears of it late.
    pub fn leave(&self, dev: u64) {
        self.leave_and(dev, || {});
    }

    /// The same; `then` is called when nothing is open there any more of what was, on a thread of the
    /// engine's, and must not wait. Not called where a disk thread is too far behind to hear of it.
    pub fn leave_and(&self, dev: u64, then: impl FnOnce() + Send + 'static) {
        let left = Left::then(then);
        let devices = lock(self.devices());
        for index in 0..devices.views().len() {
            if devices.send(index, Message::Leave { dev, left: left.clone() }).is_err() {
                left.never();
            }
        }
    }

    /// Reports that a cache above has these bytes now ([`seekless_policy::Event::Release`]). Lossy: a disk
    /// thread that is behind leaves them to the page cache.
    pub fn release(&self, file: FileId, offset: u64, len: u64) {
        let devices = lock(self.devices());
        if let Some(index) = devices.reader_of(file) {
            let _ = devices.send(index, Message::Release { file, offset, len });
        }
    }

    /// Where the file of a call is read.
    fn place(&self, file: FileId, fd: BorrowedFd<'_>) -> Result<DiskPlace, Refused> {
        // Files that live in memory alone (memfd, tmpfs) have seals, all others have not. Where we do not see
        // what they are mounted at they would go to the common queue.
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

/// The disk, the first sector of the file system on it, and the sizes of read-ahead calls there.
type DiskPlace = (usize, u64, Steps);

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// A disk thread has it.
    Taken,
    /// No thread serves the file: no client has missed on it.
    Unknown,
    /// The thread is behind.
    Dropped,
}

impl Devices {
    /// Reports a read that was done. For a door that reports many under one lock; others call
    /// [`Engine::read`]. `reader`: see [`ForwardedCall::reader`].
    pub fn read(&self, reader: u32, file: FileId, offset: u64, len: u64) -> Reported {
        self.read_taken(reader, file, offset, len, Taken::All)
    }

    /// The same of a read of which `taken` says how much was taken.
    pub fn read_taken(&self, reader: u32, file: FileId, offset: u64, len: u64, taken: Taken) -> Reported {
        let access = Message::Access { reader, file, offset, len, taken };
        match self.reader_of(file).map(|index| self.send(index, access)) {
            Some(Ok(())) => Reported::Taken,
            Some(Err(_)) => Reported::Dropped,
            None => Reported::Unknown,
        }
    }

    /// Reports that the kernel reads bytes from here on as a program waits for them. What follows them is
    /// brought in as if a call waited for it, if the thread knows the file; no call is answered.
    pub fn missed(&self, file: FileId, offset: u64) -> Reported {
        match self.reader_of(file).map(|index| self.send(index, Message::Missed { file, offset })) {
            Some(Ok(())) => Reported::Taken,
            Some(Err(_)) => Reported::Dropped,
            None => Reported::Unknown,
        }
    }
}
