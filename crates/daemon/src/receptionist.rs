//! The receptionist: connections in, calls to the engine.
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
    ClientDemand, Completion, Devices, Engine, ForwardedCall, OnAnswer, Passed, Refused, Reported, Submitted,
    Ticket, Transport, lock, run_first,
};
use seekless_kernel::fdpass;
use seekless_kernel::ring::Record;
use seekless_policy::{FileId, LEFT_ALONE, Mode, Reason};
use seekless_wants::{CallKind, DoorLimits};
use seekless_wire::{
    Answer, DecodeError, FRAME_BYTES_MAX, FileSet, FileSetAdd, Frame, Need, PassReason, Refuse, RefuseReason,
    Settings as Settled, TakeOverStep, WORKING_EVERY_MS,
};

use crate::client::Client;
use crate::deliveries::Deliveries;
use crate::file_sets::{Added, FileSetThread, Said};
use crate::listener::Listener;
use crate::rings::Rings;
use crate::settings::DaemonSettings;
use crate::shares::{self, Shares};
use crate::statistics::{self, Shared, Statistics};
use crate::status::Counters;
use crate::strikes::{Strikes, Weight};
use crate::take_over::{DRAIN_IDLE, HandOver};

/// Marks of what an event is about; connections count up from the last.
const STOP: u64 = 0;
const FIRST_LISTENER: u64 = 1;
const FIRST_CONNECTION: u64 = 16;

/// Events taken at once. At half of it a burst costs twice as many looks at the queue of events; at double
/// rings and ticks wait twice as long for its end.
const EVENTS: usize = 256;

/// Connections accepted at once, before others get their turn. At half of it the shims of a server that
/// starts take twice as many rounds; at double those that are connected wait twice as long.
const ACCEPTS: usize = 64;

/// Frames read from one connection at once, for the same reason. A shim sends one. A program with a file set
/// sends hundreds: at half of it they take twice as many rounds, at double others wait for twice as many.
const FRAMES: usize = 8;

/// How often the rings are emptied once there is one. A viewer of 10 Mb/s reads 6 KiB meanwhile. At half of
/// it an idle machine is woken 400 times a second; at double one user may report half as many reads
/// ([`crate::rings`]).
const REPORTS_EVERY: Duration = Duration::from_millis(5);

/// How often waiting connections are looked through. At half of it thousands of them cost twice as much; at
/// double [`WORKING_EVERY`] and it are more than the protocol promises.
const TICK: Duration = Duration::from_millis(200);

/// A waiting shim hears from us this often; with [`TICK`] on top within what the protocol promises.
const WORKING_EVERY: Duration = Duration::from_millis(WORKING_EVERY_MS * 7 / 10);

/// A connection that says nothing for so long is closed: shims connect when they have something to say. At
/// half of it one that is not given a processor may be cut short; at double silent ones keep others out for
/// twice as long.
const IDLE_MAX: Duration = Duration::from_secs(5);

struct Connection {
    client: Arc<Client>,
    uid: u32,
    /// When either side last sent something.
    last: Instant,
    /// The last request that was blocked.
    ticket: Option<Ticket>,
    /// The request is advice: its sender hangs up at once, and it is done all the same.
    advice: bool,
    /// The place in the queue of the last request.
    place: Option<shares::PlaceTaken>,
    /// It has said something.
    spoke: bool,
    /// It has asked for a file set, and may be silent for as long as its program likes.
    file_set: bool,
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
    engine: Engine,
    statistics: Statistics,
    shared: Shared,
    counters: Counters,
    shares: Shares,
    /// Where shims report what was read; `None` in modes that need no reports.
    rings: Option<Rings>,
    hand_over: HandOver,
    strikes: Strikes,
    file_sets: FileSetThread,
}

impl Receptionist {
    /// # Errors
    /// The kernel has no event queue to give.
    #[allow(clippy::too_many_arguments, reason = "its parts are made where their errors are told apart")]
    pub(crate) fn new(
        settings: Arc<DaemonSettings>,
        listener: Listener,
        stop: UnixStream,
        engine: Engine,
        statistics: Statistics,
        shared: Shared,
        rings: Option<Rings>,
        hand_over: HandOver,
    ) -> io::Result<Receptionist> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>, mark: u64| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(mark), epoll::EventFlags::IN)
        };
        add(stop.as_fd(), STOP)?;
        for (i, socket) in listener.sockets().enumerate() {
            add(socket, FIRST_LISTENER + i as u64)?;
        }
        let file_sets = FileSetThread::start(engine.clone(), shared.file_sets.clone())?;
        Ok(Receptionist {
            engine,
            shares: Shares::new(settings.engine.spindle.queue_max, rustix::process::geteuid().as_raw()),
            settings,
            listener,
            stop,
            epoll,
            spare: spare(),
            connections: HashMap::new(),
            by_user: HashMap::new(),
            next_connection: FIRST_CONNECTION,
            statistics,
            shared,
            counters: Counters::default(),
            rings,
            hand_over,
            strikes: Strikes::default(),
            file_sets,
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
            self.rest();
            if !self.hand_over.released() {
                self.take_reports();
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.tick(ticked);
            }
            self.publish();
            if self.hand_over.drained(self.connections.len()) {
                break;
            }
        }
        self.close();
    }

    /// Says goodbye: no new connections, an answer for each request that waits.
    fn close(self) {
        let Receptionist { listener, engine, statistics, connections, stop, file_sets, .. } = self;
        drop(listener);
        engine.close();
        drop(connections);
        drop(file_sets);
        statistics.stop();
        drop(stop);
    }

    fn publish(&mut self) {
        self.counters.connections_now = self.connections.len() as u64;
        self.counters.users_muted = self.strikes.muted();
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
                Ok(connection) => self.welcome(listener, connection),
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
    fn welcome(&mut self, listener: usize, socket: OwnedFd) {
        self.counters.connections += 1;
        let Ok(peer) = fdpass::peer(socket.as_fd()) else { return };
        if !self.listener.admits(listener, peer) {
            self.counters.connections_not_admitted += 1;
            return;
        }
        if self.strikes.is_muted(peer.uid, Instant::now()) {
            self.counters.connections_muted += 1;
            return;
        }
        // 0: not in our process namespace.
        if let Ok(pid @ 1..) = u32::try_from(peer.pid) {
            self.shared.callers.called(pid);
        }
        let held = self.by_user.get(&peer.uid).copied().unwrap_or(0);
        let share = if peer.uid == 0 { usize::MAX } else { self.settings.user_share() };
        if self.connections.len() >= self.settings.connections_max || held >= share {
            self.counters.connections_over_bound += 1;
            return self.strike(peer.uid, Weight::InGoodFaith);
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
            Connection {
                client,
                uid: peer.uid,
                last: Instant::now(),
                ticket: None,
                advice: false,
                place: None,
                spoke: false,
                file_set: false,
            },
        );
        // The first frame usually is there already.
        self.readable(mark);
    }

    fn readable(&mut self, mark: u64) {
        let mut packet = [0u8; FRAME_BYTES_MAX];
        for _ in 0..FRAMES {
            let Some(connection) = self.connections.get_mut(&mark) else { return };
            let client = connection.client.clone();
            if self.strikes.is_muted(connection.uid, Instant::now()) {
                self.counters.connections_muted += 1;
                return self.hang_up(mark);
            }
            let received = match fdpass::receive(client.as_fd(), &mut packet) {
                Ok(received) if received.length == 0 => return self.left(mark),
                Ok(received) => received,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => continue,
                Err(Errno::MSGSIZE) => return self.refuse(mark, RefuseReason::Malformed, 0),
                Err(Errno::PROTO) => return self.refuse(mark, RefuseReason::Descriptor, 0),
                // No fault of the client's. What has a descriptor beside it is a call that waits, or a range
                // of a file set, whose number is lost with it.
                Err(Errno::MFILE) if !connection.file_set && !client.is_waiting() => {
                    (connection.last, connection.spoke) = (Instant::now(), true);
                    let uid = connection.uid;
                    self.counters.passed_full += 1;
                    let wire = self.told(uid);
                    client.reply(Frame::Answer(Answer::pass(PassReason::Full, wire)));
                    continue;
                }
                Err(_) => return self.hang_up(mark),
            };
            connection.last = Instant::now();
            let is_first = !std::mem::replace(&mut connection.spoke, true);
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
                    if client.is_waiting() {
                        return self.refuse(mark, RefuseReason::Malformed, frame.kind());
                    }
                    self.need(mark, &client, uid, need, fd);
                }
                (Frame::Hello { ring, .. }, _) => {
                    let settings = self.told(uid);
                    // A process that ends soon asks but once where its ring goes along. Only with the first
                    // answer: a client that never reads has one descriptor on its way, not hundreds. Where
                    // there is no ring to be had, the shim asks for it and is told.
                    let rings = self.rings.as_mut().filter(|_| ring && is_first && settings.ring != 0);
                    let ring = rings.and_then(|rings| rings.ring(uid, Instant::now()).ok().flatten());
                    let frame = Frame::Settings(settings);
                    let sent = client.send_with(frame, ring);
                    if sent.is_err() && (ring.is_none() || client.send(frame).is_err()) {
                        self.strike(uid, Weight::Strike);
                    }
                }
                (Frame::RingAsk, _) => {
                    let ring = self.rings.as_mut().map(|rings| rings.ring(uid, Instant::now()));
                    match ring {
                        Some(Ok(Some(ring))) => {
                            if client.send_with(Frame::Ring, Some(ring)).is_err() {
                                self.strike(uid, Weight::Strike);
                            }
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
                (Frame::PassAll { lease_ms }, _) => {
                    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
                        return self.refuse(mark, RefuseReason::Permission, frame.kind());
                    }
                    self.shared.passing.lease(lease_ms, Instant::now());
                    self.rest();
                    let _ = client.send(frame);
                }
                (Frame::TakeOver { step, .. }, _) => {
                    if let Err(reason) = self.take_over(uid, &client, step) {
                        return self.refuse(mark, reason, frame.kind());
                    }
                }
                (Frame::FileSetAsk { window_bytes }, _) => {
                    if connection.file_set {
                        return self.refuse(mark, RefuseReason::Malformed, frame.kind());
                    }
                    connection.file_set = true;
                    self.begin_file_set(mark, client, uid, window_bytes);
                }
                (Frame::FileSetAdd(add), Some(fd)) if connection.file_set => {
                    let said = self.added(mark, uid, add, fd);
                    if !self.file_sets.tell(said) {
                        return self.hang_up(mark);
                    }
                }
                (Frame::FileSetTook { range, read }, _) if connection.file_set => {
                    if !self.file_sets.tell(Said::Took { set: mark, range, read }) {
                        return self.hang_up(mark);
                    }
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

    /// Another daemon wants our place.
    fn take_over(&mut self, uid: u32, client: &Client, step: TakeOverStep) -> Result<(), RefuseReason> {
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            return Err(RefuseReason::Permission);
        }
        if !self.settings.hands_over || self.hand_over.released() {
            return Err(RefuseReason::Kind);
        }
        match step {
            TakeOverStep::Ask => {
                let ring = self.rings.as_ref().map_or(0, Rings::last_number);
                let offered = self.hand_over.offer(client, &self.listener, ring);
                if offered { Ok(()) } else { Err(RefuseReason::Kind) }
            }
            TakeOverStep::Serving => {
                // The other daemon has the same sockets open: closing ours would not take them out of the
                // queue of events.
                for socket in self.listener.sockets() {
                    let _ = epoll::delete(&self.epoll, socket);
                }
                self.listener.disown();
                self.listener = Listener::none();
                self.hand_over.release(client, Instant::now());
                tracing::info!("another daemon has taken over; this one ends after its last answer");
                Ok(())
            }
            _ => Err(RefuseReason::Kind),
        }
    }

    /// The settings as a process of this user is told them.
    fn told(&mut self, uid: u32) -> Settled {
        let ring = self.rings.as_mut().map_or(0, |rings| rings.number(uid, Instant::now()));
        self.settings.wire(ring)
    }

    fn need(&mut self, mark: u64, client: &Arc<Client>, uid: u32, need: Need, fd: OwnedFd) {
        self.counters.needs += 1;
        let wire = self.told(uid);
        let pass = |reason| client.reply(Frame::Answer(Answer::pass(reason, wire)));
        // In mode prefetch shims read ahead for themselves.
        if !self.settings.engine.spindle.mode.serialises() {
            self.counters.passed_mode += 1;
            return pass(PassReason::Mode);
        }
        let Ok(call) = ForwardedCall::of(fd.as_fd(), need.offset, need.length) else {
            self.counters.passed_bad_request += 1;
            pass(PassReason::BadRequest);
            return self.strike(uid, Weight::Strike);
        };
        let demand = ClientDemand { random: need.reads_at_random(), ..ClientDemand::default() };
        let call = ForwardedCall { reader: uid, look_upto: wire.prefetch_bytes, demand, ..call };
        let now = Instant::now();
        // Advice is no read: none is reported for it.
        if !need.call.is_advice() {
            lock(&self.shared.deliveries).asked(call.file, call.want.offset(), now);
        }
        if self.shared.passing.now(now) {
            // Of files whose disk is served otherwise: only their reads are counted, as when they are served.
            if let (Some(rings), Some(_)) =
                (&mut self.rings, lock(self.engine.devices()).reader_of(call.file))
            {
                rings.shown(uid, call.file, now);
            }
            self.counters.passed_all += 1;
            return pass(PassReason::Mode);
        }
        let Receptionist { engine, counters, rings, shares, shared, .. } = self;
        let (file, kind) = (call.file, need.call.kind());
        let mut door = RingDoor {
            engine,
            shared,
            counters,
            rings,
            shares,
            client,
            uid,
            wire,
            file,
            kind,
            fd: Some(fd),
            place: None,
        };
        let submitted = engine.submit(call, &mut door);
        let place = door.place;
        match submitted {
            Ok(Submitted::Resident { bytes, .. }) => {
                self.counters.hits_on_arrival += 1;
                client.reply(Frame::Answer(Answer::resident(bytes, wire)));
            }
            Ok(Submitted::Blocked(ticket)) => {
                self.counters.queued += 1;
                if let Some(connection) = self.connections.get_mut(&mark) {
                    connection.ticket = Some(ticket);
                    connection.advice = need.call.is_advice();
                    connection.place = place;
                }
            }
            Err(Refused::NotADisk) => {
                self.counters.passed_not_a_disk += 1;
                let device_ttl_ms = u32::try_from(self.settings.device_ttl.as_millis()).unwrap_or(u32::MAX);
                let answer = Answer { device_ttl_ms, ..Answer::pass(PassReason::NotADisk, wire) };
                client.reply(Frame::Answer(answer));
                self.strike(uid, Weight::InGoodFaith);
            }
            Err(Refused::Mode) => {
                self.counters.passed_mode += 1;
                pass(PassReason::Mode);
            }
            Err(Refused::BadRequest) => {
                self.counters.passed_bad_request += 1;
                pass(PassReason::BadRequest);
                self.strike(uid, Weight::Strike);
            }
            Err(Refused::Full) => {
                self.counters.passed_full += 1;
                pass(PassReason::Full);
            }
            Err(Refused::Door) => {
                self.counters.passed_share += 1;
                pass(PassReason::Full);
            }
        }
    }

    /// The engine rests while every call is passed. A lease ends by itself.
    fn rest(&self) {
        self.engine.rest(self.shared.passing.now(Instant::now()));
    }

    /// Asks for a file set on behalf of a connection. In a mode that serves no call there is none.
    fn begin_file_set(&mut self, mark: u64, client: Arc<Client>, uid: u32, window: u64) {
        let serves = self.settings.engine.spindle.mode.serialises();
        if !serves || self.shared.passing.now(Instant::now()) {
            let none = FileSet { reason: PassReason::Mode, ranges: 0, window_bytes: 0 };
            let _ = client.send(Frame::FileSet(none));
            return;
        }
        let user = (!self.shares.trusts(uid)).then_some(uid);
        // One that is not told is refused as a client that hangs up.
        if !self.file_sets.tell(Said::Open { set: mark, client, user, window }) {
            self.hang_up(mark);
        }
    }

    /// A range of a file set, with the disk that it lies on; one that cannot be read there is left to its
    /// reader.
    fn added(&mut self, mark: u64, uid: u32, add: FileSetAdd, fd: OwnedFd) -> Said {
        let left = |reason| Said::Left { set: mark, range: add.range, reason };
        if self.shared.passing.now(Instant::now()) {
            return left(PassReason::Mode);
        }
        let Ok(call) = ForwardedCall::of(fd.as_fd(), add.offset, add.length) else {
            return left(PassReason::BadRequest);
        };
        let Receptionist { engine, shares, .. } = self;
        match engine.disk_of(call.file, &mut Newcomer { fd: fd.as_fd(), uid, shares }) {
            Ok(disk) => Said::Add {
                set: mark,
                range: add.range,
                added: Box::new(Added { fd, reader: uid, call, address: add.address, disk }),
            },
            Err(Refused::Mode) => left(PassReason::Mode),
            Err(Refused::NotADisk) => left(PassReason::NotADisk),
            Err(Refused::BadRequest | Refused::Door) => left(PassReason::BadRequest),
            Err(Refused::Full) => left(PassReason::Full),
        }
    }

    /// Hands what shims report to the threads of its disks.
    fn take_reports(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        let devices = lock(self.engine.devices());
        let counters = &mut self.counters;
        let now = Instant::now();
        let mut deliveries = lock(&self.shared.deliveries);
        rings.take_all(now, |uid, record| hand_on(uid, record, &devices, counters, &mut deliveries, now));
    }

    /// Tells a client that it was not understood, and ends the conversation.
    fn refuse(&mut self, mark: u64, reason: RefuseReason, kind: u16) {
        self.counters.frames_refused += 1;
        if let Some(connection) = self.connections.get(&mark) {
            let _ = connection.client.send(Frame::Refuse(Refuse { reason, kind }));
            self.strike(connection.uid, Weight::Strike);
        }
        self.hang_up(mark);
    }

    /// The other side has closed, perhaps without a word.
    fn left(&mut self, mark: u64) {
        if let Some(connection) = self.connections.get(&mark).filter(|connection| !connection.spoke) {
            self.strike(connection.uid, Weight::InGoodFaith);
        }
        self.hang_up(mark);
    }

    /// This user has said something that is of no use.
    fn strike(&mut self, uid: u32, weight: Weight) {
        if self.shares.trusts(uid) || !self.strikes.count(uid, weight, Instant::now()) {
            return;
        }
        if self.strikes.muted() == 1 {
            tracing::warn!(
                "too much of what user {uid} sends is refused: it is not read for a while. Any more are counted only (users_muted)"
            );
        }
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
        if let Some(ticket) =
            connection.ticket.filter(|_| connection.client.is_waiting() && !connection.advice)
        {
            self.counters.hang_ups += 1;
            if let Some(place) = connection.place.and_then(|place| place.hold()) {
                self.shares.given_up(connection.uid, place, Instant::now());
            }
            self.engine.cancel(ticket);
        }
        if connection.file_set {
            self.file_sets.close(mark);
        }
    }

    fn tick(&mut self, now: Instant) {
        self.shares.tick(now);
        self.strikes.tick(now);
        let idle_max = if self.hand_over.released() { DRAIN_IDLE } else { IDLE_MAX };
        let mut idle = Vec::new();
        for (&mark, connection) in &mut self.connections {
            let silent = now.saturating_duration_since(connection.last);
            if connection.client.is_waiting() {
                if silent >= WORKING_EVERY && connection.client.send(Frame::Working).is_ok() {
                    connection.last = now;
                    self.counters.working_sent += 1;
                }
            } else if silent >= idle_max && !connection.file_set {
                idle.push(mark);
            }
        }
        for mark in idle {
            self.hang_up(mark);
        }
    }
}

/// The socket's side of a call that is submitted: its user's shares, and the reports of its user's processes.
struct RingDoor<'a> {
    engine: &'a Engine,
    shared: &'a Shared,
    counters: &'a mut Counters,
    rings: &'a mut Option<Rings>,
    shares: &'a mut Shares,
    client: &'a Arc<Client>,
    uid: u32,
    wire: Settled,
    file: FileId,
    kind: CallKind,
    /// As the shim passed it; the disk's thread takes it when the call is blocked.
    fd: Option<OwnedFd>,
    /// The place in the disk's queue that the call was given.
    place: Option<shares::PlaceTaken>,
}

impl Transport for RingDoor<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().map_or(rustix::fs::CWD, AsFd::as_fd)
    }

    fn kind(&mut self, _: &DoorLimits) -> Result<CallKind, Refused> {
        Ok(self.kind)
    }

    fn may_add_disk(&mut self) -> bool {
        self.shares.may_bring_disk(self.uid)
    }

    fn added_disk(&mut self) {
        self.shares.brought_disk(self.uid);
    }

    fn before_look(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        let now = Instant::now();
        let devices = lock(self.engine.devices());
        let mut deliveries = lock(&self.shared.deliveries);
        let counters = &mut *self.counters;
        rings.take_of(self.uid, now, |uid, record| {
            hand_on(uid, record, &devices, counters, &mut deliveries, now)
        });
        rings.shown(self.uid, self.file, now);
    }

    fn block(&mut self, ticket: Ticket) -> Option<(OnAnswer, Passed)> {
        let place = self.shares.place(self.uid, ticket.disk())?;
        let fd = self.fd.take()?;
        self.place = Some(place.watch());
        let (client, wire) = (self.client.clone(), self.wire);
        client.begin(ticket.number());
        let on_answer = move |outcome: Completion<'_>| {
            client.answer(ticket.number(), Frame::Answer(in_words(outcome, wire)));
            drop(place);
        };
        Some((Box::new(on_answer), Passed::Shared(fd)))
    }
}

/// A file that is met for the first time, on its user's behalf.
struct Newcomer<'a> {
    fd: BorrowedFd<'a>,
    uid: u32,
    shares: &'a mut Shares,
}

impl Transport for Newcomer<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd
    }

    fn kind(&mut self, _: &DoorLimits) -> Result<CallKind, Refused> {
        Ok(CallKind::Read)
    }

    fn may_add_disk(&mut self) -> bool {
        self.shares.may_bring_disk(self.uid)
    }

    fn added_disk(&mut self) {
        self.shares.brought_disk(self.uid);
    }

    fn block(&mut self, _: Ticket) -> Option<(OnAnswer, Passed)> {
        None
    }
}

/// What a reader's answer is to a shim.
fn in_words(outcome: Completion<'_>, wire: Settled) -> Answer {
    match outcome {
        Completion::Resident(found) => Answer::resident(found.prefix(wire.prefetch_bytes), wire),
        Completion::Closing => Answer::pass(PassReason::Closing, wire),
        Completion::Pass(reason) => {
            let device_ttl_ms = match reason {
                Reason::DiskOrder => (LEFT_ALONE.0 / 1_000_000) as u32,
                _ => 0,
            };
            let reason = match reason {
                Reason::QueueFull => PassReason::Full,
                Reason::Failed | Reason::TooLate => PassReason::DiskError,
                Reason::Mode => PassReason::Mode,
                Reason::BeyondEnd | Reason::Duplicate => PassReason::BadRequest,
                // Nobody is there to read it.
                Reason::Cancelled => PassReason::Closing,
                // Shims of older versions have no word for the second.
                Reason::Random | Reason::DiskOrder => PassReason::Random,
            };
            Answer { device_ttl_ms, ..Answer::pass(reason, wire) }
        }
    }
}

/// Counts a shim's report, and hands it to the reader of its disk.
fn hand_on(
    uid: u32,
    record: &Record,
    devices: &Devices,
    counters: &mut Counters,
    deliveries: &mut Deliveries,
    now: Instant,
) {
    counters.reports += 1;
    let file = FileId { dev: record.dev, ino: record.ino };
    deliveries.read(file, record.offset, record.len, now);
    let report = devices.read(uid, file, record.offset, record.len);
    counters.reports_dropped += u64::from(report == Reported::Dropped);
}

fn spare() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, rustix::fs::Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reader_in_disk_order_is_told_to_leave_the_disk_alone() {
        let mode = seekless_wire::Mode::Both;
        let wire = Settled { mode, ring: 0, settings_ttl_ms: 100, prefetch_bytes: 0 };
        for reason in Reason::ALL {
            let answer = in_words(Completion::Pass(reason), wire);
            assert_ne!(answer.reason, PassReason::None, "{reason:?}");
            let told = if reason == Reason::DiskOrder { 100 } else { 0 };
            assert_eq!(answer.device_ttl_ms, told, "{reason:?}");
        }
    }
}
