//! The whole of it behind one handle, for a front door in the same process.
//!
//! A door asks ([`Engine::request`]) only for what it found missing, and reports what it sent from memory
//! ([`Engine::access`]), so that streams are followed and read ahead of need. Calls are short: a file's disk is looked up
//! (cached for seconds), the rest is handed over to the disk's reader. The first request for a device reads `/sys`.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use seekless_kernel::prefetch::Steps;
use seekless_kernel::residency::resident_prefix;
use seekless_policy::{FileId, Mode, RequestId, Taken};

use crate::devices::{Devices, Place, SharedDevices};
use crate::door::{Answer, Ask, Demand, Found, Hit, Message, OnAnswer, Passed, readable_file};
use crate::lock;
use crate::report::DiskReport;
use crate::settings::Settings;

/// Bytes somebody is about to read.
#[derive(Clone, Copy, Debug)]
pub struct Need<'a> {
    /// The file, regular and open for reading. It is duplicated and opened again; its own read-ahead state is left alone.
    pub fd: BorrowedFd<'a>,
    /// First byte.
    pub offset: u64,
    /// Bytes, at most; cut to the end of the file and to `read_max`. 0 means to the end of the file.
    pub len: u64,
    /// When and how fast.
    pub demand: Demand,
}

impl<'a> Need<'a> {
    /// `len` bytes of a file from `offset` on, nobody knows how soon.
    pub fn new(fd: BorrowedFd<'a>, offset: u64, len: u64) -> Need<'a> {
        Need { fd, offset, len, demand: Demand::default() }
    }
}

/// Why the engine does not serve a file: read for yourself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The mode reads nothing on anybody's behalf.
    Mode,
    /// It is on no disk with heads.
    NotADisk,
    /// No regular file open for reading, or the range lies beyond its end.
    BadRequest,
    /// The reader cannot take more now, or no thread could be had for another disk.
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Mode => "the mode reads nothing on anybody's behalf",
            Refused::NotADisk => "the file is on no disk with heads",
            Refused::BadRequest => "no regular file open for reading, or nothing there",
            Refused::Full => "the disk's queue is full",
        })
    }
}

impl std::error::Error for Refused {}

/// Names a request that waits, for [`Engine::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    reader: usize,
    id: RequestId,
}

/// Readers of all disks. Clones are the same engine; it ends with the last.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Arc<Settings>,
    devices: SharedDevices,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let stop = lock(&self.devices).close();
        stop();
    }
}

impl Engine {
    /// An engine without readers yet: each disk's is started when a file on it is first asked for.
    pub fn start(settings: Settings) -> Engine {
        let settings = Arc::new(settings.normalised());
        let devices = Arc::new(Mutex::new(Devices::new(settings.clone())));
        Engine { shared: Arc::new(Shared { settings, devices }) }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The readers, for a door that does its own looking up.
    pub fn devices(&self) -> &SharedDevices {
        &self.shared.devices
    }

    /// Asks for bytes to be brought into memory. `on_answer` is called exactly once, unless this returns an error: on
    /// the calling thread if they are there already, else on the reader's, where it must not wait. After `Resident` the
    /// caller's own read finds the bytes in memory, most likely: they are not pinned. It reports that read when it is done
    /// ([`Engine::access`]): what counts as read may be given back.
    ///
    /// # Errors
    /// The file is not served; the caller reads for himself (and may block).
    pub fn request(&self, need: Need<'_>, on_answer: OnAnswer) -> Result<Option<Ticket>, Refused> {
        let spindle = &self.shared.settings.spindle;
        if matches!(spindle.mode, Mode::Off | Mode::Track) {
            return Err(Refused::Mode);
        }
        let (file, edition) =
            readable_file(need.fd).filter(|(_, e)| need.offset < e.size).ok_or(Refused::BadRequest)?;
        let (index, start, steps) = self.place(file, need.fd)?;
        let rest = edition.size - need.offset;
        let wanted = if need.len == 0 { rest } else { need.len.min(rest) }.min(spindle.read_max.0);
        let resident = resident_prefix(need.fd, need.offset, wanted).unwrap_or(0).min(wanted);
        if resident >= wanted {
            on_answer(Answer::Resident(Found { fd: need.fd, offset: need.offset, len: wanted }));
            return Ok(None);
        }
        let own = duplicate(need.fd)?;
        let id = lock(&self.shared.devices).next_id();
        let ask = Ask {
            id,
            on_answer,
            passed: Passed::Shared(own),
            file,
            edition,
            need_offset: need.offset,
            need_len: wanted,
            offset: need.offset + resident,
            len: wanted - resident,
            start,
            steps,
            demand: need.demand,
            answer_is_read: false,
        };
        match lock(&self.shared.devices).send(index, Message::Ask(Box::new(ask))) {
            Ok(()) => Ok(Some(Ticket { reader: index, id })),
            Err(Message::Ask(ask)) => {
                // Dropped unanswered: the caller learns it from the error alone.
                drop(ask);
                Err(Refused::Full)
            }
            Err(_) => Err(Refused::Full),
        }
    }

    /// Whoever made this request is gone: it is answered `Pass(Cancelled)`, and what only it wanted is not read any more.
    pub fn cancel(&self, ticket: Ticket) {
        // If the reader is too busy to hear it, the read is done for nobody.
        let _ = lock(&self.shared.devices).send(ticket.reader, Message::Cancel(ticket.id));
    }

    /// Reports that bytes were read from memory: its stream moved on, and the next piece may be due. Lossy: a reader that
    /// is behind misses it.
    pub fn access(&self, fd: BorrowedFd<'_>, offset: u64, len: u64) {
        if !self.shared.settings.hears_hits() {
            return;
        }
        let Some((file, edition)) = readable_file(fd) else { return };
        let Ok((index, start, steps)) = self.place(file, fd) else { return };
        let Ok(own) = duplicate(fd) else { return };
        let hit =
            Hit { passed: Passed::Shared(own), file, edition, offset, len, taken: Taken::All, start, steps };
        let _ = lock(&self.shared.devices).send(index, Message::Hit(Box::new(hit)));
    }

    /// Bytes a second at which a file is played: as configured, else as its own header or a manifest said. A header is read
    /// soon after its file first was.
    pub fn bitrate(&self, file: FileId) -> Option<u64> {
        let configured = self.shared.settings.spindle.bitrate;
        configured.or_else(|| lock(&self.shared.devices).bitrates().of(file))
    }

    /// What each disk's reader counts, in the order they were first used.
    pub fn statistics(&self) -> Vec<DiskReport> {
        lock(&self.shared.devices).reports()
    }

    fn place(&self, file: FileId, fd: BorrowedFd<'_>) -> Result<(usize, u64, Steps), Refused> {
        match lock(&self.shared.devices).place(file, fd, Instant::now()) {
            Ok(Place::Reader { index, start, steps }) => Ok((index, start, steps)),
            Ok(Place::NotADisk) => Err(Refused::NotADisk),
            Err(error) => {
                tracing::warn!(%error, "no reader for another disk");
                Err(Refused::Full)
            }
        }
    }
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, Refused> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(|_| Refused::Full)
}
