//! The receptionist: connections in, requests to the readers of their disks.
//!
//! It never touches a disk: no file is opened or read here, and residency is asked of the page cache. What it does wait
//! for is the next event, and once in a while it tells waiting shims that their disk is busy and not the daemon dead.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use seekless_engine::{
    Answer as Outcome, Ask, Demand, Devices, Engine, Message, Passed, Place, SharedDevices, lock,
    readable_file, run_first,
};
use seekless_kernel::fdpass;
use seekless_kernel::residency::resident_prefix;
use seekless_kernel::ring::Record;
use seekless_policy::{FileId, Mode, Reason, RequestId};
use seekless_wire::{
    Answer, Call, DecodeError, FRAME_BYTES_MAX, Frame, Need, PassReason, Refuse, RefuseReason,
    Settings as Settled, WORKING_EVERY_MS,
};

use crate::client::Client;
use crate::listener::Listener;
use crate::rings::Rings;
use crate::settings::DaemonSettings;
use crate::shares::{self, Shares};
use crate::statistics::{self, Shared, Statistics};
use crate::status::Counters;

/// Marks of what an event is about; connections count up from the last.
const STOP: u64 = 0;
const FIRST_LISTENER: u64 = 1;
const FIRST_CONNECTION: u64 = 16;

/// Events taken at once.
const EVENTS: usize = 256;

/// Connections accepted at once, before others get their turn.
const ACCEPTS: usize = 64;

/// Frames read from one connection at once, for the same reason.
const FRAMES: usize = 8;

/// How often the rings are emptied once there is one. A viewer of 10 Mb/s reads 6 KiB meanwhile.
const REPORTS_EVERY: Duration = Duration::from_millis(5);

/// How often waiting connections are looked through.
const TICK: Duration = Duration::from_millis(200);

/// A waiting shim hears from us this often; with [`TICK`] on top within what the protocol promises.
const WORKING_EVERY: Duration = Duration::from_millis(WORKING_EVERY_MS * 7 / 10);

/// A connection that says nothing for so long is closed: shims connect when they have something to say.
const IDLE_MAX: Duration = Duration::from_secs(5);

struct Connection {
    client: Arc<Client>,
    uid: u32,
    /// When either side last sent something.
    last: Instant,
    /// Reader of the request that waits, if one does.
    reader: usize,
    /// The request is advice: whoever gave it hangs up at once and wants it done all the same.
    advice: bool,
    /// The place in the queue of the last request.
    place: Option<shares::PlaceTaken>,
}

pub(crate) struct Receptionist {
    settings: Arc<DaemonSettings>,
    listener: Listener,
    stop: UnixStream,
    epoll: OwnedFd,
    /// Given up to accept and close a connection when descriptors run out; otherwise it would be reported for ever.
    spare: Option<OwnedFd>,
    connections: HashMap<u64, Connection>,
    by_user: HashMap<u32, usize>,
    next_connection: u64,
    next_request: u64,
    devices: SharedDevices,
    statistics: Statistics,
    shared: Shared,
    counters: Counters,
    shares: Shares,
    /// Where shims report what was read; `None`: in this mode nobody wants to know.
    rings: Option<Rings>,
}

impl Receptionist {
    /// # Errors
    /// The kernel has no event queue to give.
    pub(crate) fn new(
        settings: Arc<DaemonSettings>,
        listener: Listener,
        stop: UnixStream,
        engine: Engine,
        statistics: Statistics,
        shared: Shared,
        rings: Option<Rings>,
    ) -> io::Result<Receptionist> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>, mark: u64| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(mark), epoll::EventFlags::IN)
        };
        add(stop.as_fd(), STOP)?;
        for (i, socket) in listener.sockets().enumerate() {
            add(socket, FIRST_LISTENER + i as u64)?;
        }
        Ok(Receptionist {
            devices: engine.devices().clone(),
            shares: Shares::new(settings.engine.spindle.queue_max, rustix::process::geteuid().as_raw()),
            settings,
            listener,
            stop,
            epoll,
            spare: spare(),
            connections: HashMap::new(),
            by_user: HashMap::new(),
            next_connection: FIRST_CONNECTION,
            // Zero is the mark for "none waits".
            next_request: 1,
            statistics,
            shared,
            counters: Counters::default(),
            rings,
        })
    }

    /// Serves until the other end of `stop` is written to or closed.
    pub(crate) fn run(mut self) {
        run_first();
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let mut ticked = Instant::now();
        'serve: loop {
            let reports = self.rings.as_ref().is_some_and(Rings::any);
            let wait = if reports { REPORTS_EVERY } else { TICK };
            let timeout = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as _ };
            let marks: Vec<u64> = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
                Ok((events, _)) => events.iter().map(|e| e.data.u64()).collect(),
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "waiting for requests failed");
                    break;
                }
            };
            for mark in marks {
                match mark {
                    STOP => break 'serve,
                    FIRST_LISTENER..FIRST_CONNECTION => self.accept((mark - FIRST_LISTENER) as usize),
                    connection => self.readable(connection),
                }
            }
            self.take_reports();
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.tick(ticked);
            }
            self.publish();
        }
        self.close();
    }

    /// Says goodbye: no new connections, an answer for whoever waits.
    fn close(self) {
        let Receptionist { listener, devices, statistics, connections, stop, .. } = self;
        drop(listener);
        let end_readers = lock(&devices).close();
        end_readers();
        drop(connections);
        statistics.stop();
        drop(stop);
    }

    fn publish(&mut self) {
        self.counters.connections_now = self.connections.len() as u64;
        if let Some(rings) = &self.rings {
            let counts = rings.counts();
            self.counters.rings_now = rings.now() as u64;
            self.counters.rings_replaced = counts.replaced;
            self.counters.rings_refused = counts.refused;
            self.counters.reports_unknown = counts.unknown;
            self.counters.ring_dropped = rings.dropped();
        }
        if let Ok(mut shared) = self.shared.counters.lock() {
            shared.clone_from(&self.counters);
        }
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            let Some(socket) = self.listener.sockets().nth(listener) else { return };
            match fdpass::accept(socket) {
                Ok(connection) => self.welcome(connection),
                Err(Errno::MFILE | Errno::NFILE) => {
                    self.spare = None;
                    drop(fdpass::accept(socket));
                    self.spare = spare();
                    self.counters.connections_over_bound += 1;
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    /// Takes a connection in, or drops it: a shim whose connection is closed goes on by itself.
    fn welcome(&mut self, socket: OwnedFd) {
        self.counters.connections += 1;
        let Ok(peer) = fdpass::peer(socket.as_fd()) else { return };
        if !self.listener.admits(peer) {
            self.counters.connections_not_admitted += 1;
            return;
        }
        let held = self.by_user.get(&peer.uid).copied().unwrap_or(0);
        let share = if peer.uid == 0 { usize::MAX } else { self.settings.user_share() };
        if self.connections.len() >= self.settings.connections_max || held >= share {
            self.counters.connections_over_bound += 1;
            return;
        }
        let mark = self.next_connection;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        if epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(mark), interest).is_err() {
            self.counters.connections_over_bound += 1;
            return;
        }
        self.next_connection += 1;
        *self.by_user.entry(peer.uid).or_default() += 1;
        let client = Arc::new(Client::new(socket));
        self.connections.insert(
            mark,
            Connection { client, uid: peer.uid, last: Instant::now(), reader: 0, advice: false, place: None },
        );
        // The first frame usually is there already.
        self.readable(mark);
    }

    fn readable(&mut self, mark: u64) {
        let mut packet = [0u8; FRAME_BYTES_MAX];
        for _ in 0..FRAMES {
            let Some(connection) = self.connections.get_mut(&mark) else { return };
            let client = connection.client.clone();
            let received = match fdpass::receive(client.as_fd(), &mut packet) {
                Ok(received) if received.length == 0 => return self.hang_up(mark),
                Ok(received) => received,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => continue,
                Err(Errno::MSGSIZE) => return self.refuse(mark, RefuseReason::Malformed, 0),
                Err(Errno::PROTO) => return self.refuse(mark, RefuseReason::Descriptor, 0),
                Err(_) => return self.hang_up(mark),
            };
            connection.last = Instant::now();
            let uid = connection.uid;
            let frame = match Frame::decode(&packet[..received.length]) {
                Ok(frame) => frame,
                Err(DecodeError::Version { .. }) => return self.refuse(mark, RefuseReason::Version, 0),
                Err(DecodeError::Kind(kind)) => return self.refuse(mark, RefuseReason::Kind, kind),
                Err(_) => return self.refuse(mark, RefuseReason::Malformed, 0),
            };
            if frame.carries_descriptor() != received.descriptor.is_some() {
                return self.refuse(mark, RefuseReason::Descriptor, frame.kind());
            }
            match (frame, received.descriptor) {
                (Frame::Need(need), Some(fd)) => {
                    if client.waiting().is_some() {
                        return self.refuse(mark, RefuseReason::Malformed, frame.kind());
                    }
                    self.need(mark, &client, uid, need, fd);
                }
                (Frame::Hello { .. }, _) => {
                    let settings = self.told(uid);
                    let _ = client.send(Frame::Settings(settings));
                }
                (Frame::RingAsk, _) => {
                    let ring = self.rings.as_mut().map(|rings| rings.ring(uid, Instant::now()));
                    match ring {
                        Some(Ok(Some(ring))) => {
                            let _ = client.send_with(Frame::Ring, Some(ring));
                        }
                        // Without one reads go unreported, and the rest works.
                        Some(Err(error)) => {
                            tracing::warn!(%error, "no ring of reports for user {uid}");
                            return self.refuse(mark, RefuseReason::Kind, frame.kind());
                        }
                        Some(Ok(None)) | None => return self.refuse(mark, RefuseReason::Kind, frame.kind()),
                    }
                }
                // In other modes no shim has anything to say here.
                (Frame::Tracked(tracked), _) if self.settings.engine.spindle.mode == Mode::Track => {
                    let taken = self.statistics.send(statistics::Ask::Tracked(tracked));
                    self.counters.tracked_dropped += u64::from(!taken);
                }
                (Frame::StatusAsk, _) => {
                    if !client.begin_status() {
                        return self.refuse(mark, RefuseReason::Malformed, frame.kind());
                    }
                    // Its counters are those of this moment.
                    self.publish();
                    if !self.statistics.send(statistics::Ask::Status(client)) {
                        return self.hang_up(mark);
                    }
                }
                (other, _) => return self.refuse(mark, RefuseReason::Kind, other.kind()),
            }
        }
    }

    /// The settings as a process of this user is told them.
    fn told(&mut self, uid: u32) -> Settled {
        let ring = self.rings.as_mut().map_or(0, |rings| rings.number(uid, Instant::now()));
        self.settings.wire(ring)
    }

    fn need(&mut self, mark: u64, client: &Arc<Client>, uid: u32, need: Need, fd: OwnedFd) {
        self.counters.needs += 1;
        let id = RequestId(self.next_request);
        self.next_request += 1;
        client.begin(id);
        let wire = self.told(uid);
        let pass = |reason| client.answer(id, Frame::Answer(Answer::pass(reason, wire)));

        if !matches!(self.settings.engine.spindle.mode, Mode::Serialise | Mode::Both) {
            self.counters.passed_mode += 1;
            return pass(PassReason::Mode);
        }
        let Some((file, edition)) = readable_file(fd.as_fd()).filter(|(_, e)| need.offset < e.size) else {
            self.counters.passed_bad_request += 1;
            return pass(PassReason::BadRequest);
        };
        let place = self.place(uid, file, fd.as_fd());
        let (index, start, steps) = match place {
            Ok(Place::Reader { index, start, steps }) => (index, start, steps),
            Ok(Place::NotADisk) => {
                self.counters.passed_not_a_disk += 1;
                let device_ttl_ms = u32::try_from(self.settings.device_ttl.as_millis()).unwrap_or(u32::MAX);
                let answer = Answer { device_ttl_ms, ..Answer::pass(PassReason::NotADisk, wire) };
                return client.answer(id, Frame::Answer(answer));
            }
            Err(error) => {
                tracing::warn!(%error, "no reader for another disk");
                self.counters.passed_full += 1;
                return pass(PassReason::Full);
            }
        };

        // Whoever asks has reported what he read before. Heard of only after the question, those reads look like somebody else's.
        self.take_reports_of(uid);
        if let Some(rings) = &mut self.rings {
            rings.shown(uid, file, Instant::now());
        }
        let wanted = self.wanted(&need, edition.size);
        let reach = wanted.max(wire.prefetch_bytes).min(edition.size - need.offset);
        // Where the kernel does not tell, nothing is taken for resident.
        let resident = resident_prefix(fd.as_fd(), need.offset, reach).unwrap_or(0);
        if resident >= wanted {
            self.counters.hits_on_arrival += 1;
            return client.answer(id, Frame::Answer(Answer::resident(resident, wire)));
        }
        let Some(place) = self.shares.place(uid, index) else {
            self.counters.passed_share += 1;
            return pass(PassReason::Full);
        };
        let watched = place.watch();
        let ask = Ask {
            id,
            on_answer: {
                let client = client.clone();
                Box::new(move |outcome| {
                    client.answer(id, Frame::Answer(in_words(outcome, wire)));
                    drop(place);
                })
            },
            passed: Passed::Shared(fd),
            file,
            edition,
            need_offset: need.offset,
            need_len: wanted,
            offset: need.offset + resident,
            len: wanted - resident,
            start,
            steps,
            demand: Demand::default(),
            // The shim reports the read it then makes.
            answer_is_read: false,
        };
        let sent = lock(&self.devices).send(index, Message::Ask(Box::new(ask)));
        if sent.is_err() {
            self.counters.passed_full += 1;
            return pass(PassReason::Full);
        }
        self.counters.queued += 1;
        if let Some(connection) = self.connections.get_mut(&mark) {
            connection.reader = index;
            connection.advice = need.call.is_advice();
            connection.place = Some(watched);
        }
    }

    /// Where the files of a device are read.
    fn place(&mut self, uid: u32, file: FileId, fd: BorrowedFd<'_>) -> io::Result<Place> {
        // Files that live in memory alone (memfd, tmpfs) have seals, all others have not. Where we do not see what they are
        // mounted at they would go to the common queue.
        if !self.settings.engine.include_ssd && rustix::fs::fcntl_get_seals(fd).is_ok() {
            return Ok(Place::NotADisk);
        }
        let mut devices = lock(&self.devices);
        // No block device: its user may have made it.
        let own = rustix::fs::major(file.dev) == 0 && devices.reader_of(file).is_none();
        if own && !self.shares.may_bring_disk(uid) {
            return Ok(Place::NotADisk);
        }
        let before = devices.views().len();
        let place = devices.place(file, fd, Instant::now());
        if own && devices.views().len() > before {
            self.shares.brought_disk(uid);
        }
        place
    }

    /// Hands what shims report to the readers of its disks.
    fn take_reports(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        let devices = lock(&self.devices);
        let counters = &mut self.counters;
        rings.take_all(Instant::now(), |record| hand_on(record, &devices, counters));
    }

    /// The same for those of one user.
    fn take_reports_of(&mut self, uid: u32) {
        let Some(rings) = &mut self.rings else { return };
        let devices = lock(&self.devices);
        let counters = &mut self.counters;
        rings.take_of(uid, Instant::now(), |record| hand_on(record, &devices, counters));
    }

    /// How much of a need is waited for. Calls that may do less than asked (a socket takes what fits its buffer) name the
    /// whole rest of the file; reading further than the prefetch size for them would only fill memory.
    fn wanted(&self, need: &Need, size: u64) -> u64 {
        let config = &self.settings.engine.spindle;
        let rest = need.length.min(size - need.offset);
        let partial =
            !matches!(need.call, Call::Read | Call::Pread | Call::Readv | Call::Preadv | Call::Preadv2);
        match config.mode.prefetches() && partial {
            true => rest.min(config.prefetch.0),
            false => rest.min(config.read_max.0),
        }
    }

    /// Tells a client that it was not understood, and ends the conversation.
    fn refuse(&mut self, mark: u64, reason: RefuseReason, kind: u16) {
        self.counters.frames_refused += 1;
        if let Some(connection) = self.connections.get(&mark) {
            let _ = connection.client.send(Frame::Refuse(Refuse { reason, kind }));
        }
        self.hang_up(mark);
    }

    fn hang_up(&mut self, mark: u64) {
        let Some(connection) = self.connections.remove(&mark) else { return };
        let _ = epoll::delete(&self.epoll, connection.client.as_fd());
        if let Some(held) = self.by_user.get_mut(&connection.uid) {
            *held -= 1;
            if *held == 0 {
                self.by_user.remove(&connection.uid);
            }
        }
        if let Some(id) = connection.client.waiting().filter(|_| !connection.advice) {
            self.counters.hang_ups += 1;
            if let Some(place) = connection.place.and_then(|place| place.hold()) {
                self.shares.given_up(connection.uid, place, Instant::now());
            }
            // If the reader is too busy to hear it, the read is done for nobody.
            let _ = lock(&self.devices).send(connection.reader, Message::Cancel(id));
        }
    }

    fn tick(&mut self, now: Instant) {
        self.shares.tick(now);
        let mut idle = Vec::new();
        for (&mark, connection) in &mut self.connections {
            let silent = now.saturating_duration_since(connection.last);
            if connection.client.waiting().is_some() {
                if silent >= WORKING_EVERY && connection.client.send(Frame::Working).is_ok() {
                    connection.last = now;
                    self.counters.working_sent += 1;
                }
            } else if silent >= IDLE_MAX {
                idle.push(mark);
            }
        }
        for mark in idle {
            self.hang_up(mark);
        }
    }
}

/// What a reader's answer is to a shim.
fn in_words(outcome: Outcome<'_>, wire: Settled) -> Answer {
    match outcome {
        Outcome::Resident(found) => Answer::resident(found.prefix(wire.prefetch_bytes), wire),
        Outcome::Closing => Answer::pass(PassReason::Closing, wire),
        Outcome::Pass(reason) => Answer::pass(
            match reason {
                Reason::QueueFull => PassReason::Full,
                Reason::Failed | Reason::TooLate => PassReason::DiskError,
                Reason::Mode => PassReason::Mode,
                Reason::BeyondEnd | Reason::Duplicate => PassReason::BadRequest,
                // Nobody is there to read it.
                Reason::Cancelled => PassReason::Closing,
                Reason::Random => PassReason::Random,
            },
            wire,
        ),
    }
}

/// Hands a shim's report to the reader of its disk.
fn hand_on(record: &Record, devices: &Devices, counters: &mut Counters) {
    counters.reports += 1;
    // A device nobody has missed on yet has no reader, and no file of it is known.
    let file = FileId { dev: record.dev, ino: record.ino };
    let Some(index) = devices.reader_of(file) else { return };
    let access = Message::Access { file, offset: record.offset, len: record.len };
    counters.reports_dropped += u64::from(devices.send(index, access).is_err());
}

fn spare() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, rustix::fs::Mode::empty()).ok()
}
