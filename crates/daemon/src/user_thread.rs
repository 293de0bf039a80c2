//! The thread that serves the connections of one user: it receives frames and makes calls to the engine.
//!
//! Everything that a user's descriptor can block is done here: its type, its residency, the lookup of its
//! disk, and closing it. A FUSE file whose server does not answer, or a socket that lingers, stops only this
//! thread and the calls of that user (then [`crate::acceptor`] releases its connections). Descriptors that
//! were passed with calls come back here to be closed. The thread never touches a disk. It sends keepalives
//! to waiting shims, so that they know that the disk is busy and the daemon alive.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};
use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::io::Errno;
use seekless_base::wants::{CallKind, DoorLimits};
use seekless_engine::{
    ClientDemand, Completion, Door, ForwardedCall, OnAnswer, Opener, Refused, Submitted, Ticket, lock,
    run_first,
};
use seekless_kernel::deferred::Closer;
use seekless_kernel::fdpass;
use seekless_kernel::prefetch::Source;
use seekless_kernel::twinkey;
use seekless_policy::{FileId, IoPriority, LEFT_ALONE, Mode, Reason};
use seekless_wire::{
    Answer, DecodeError, FRAME_BYTES_MAX, FileSet, FileSetAdd, Frame, Hello, Need, PassReason, Refuse,
    RefuseReason, Settings as Settled, WORKING_EVERY_MS,
};

use crate::acceptor::TakeOverWish;
use crate::client::Client;
use crate::file_sets::{Added, Message};
use crate::frame_limiter::Weight;
use crate::front::Front;
use crate::shares;
use crate::statistics;
use crate::take_over::DRAIN_IDLE;

/// Mark of an event of the inbox. Other events carry the number of their connection.
const WAKE: u64 = 0;

/// Maximum number of events taken at once. At half, a burst takes twice as many calls for events; at double,
/// descriptors to be closed wait twice as long.
const EVENTS: usize = 256;

/// Maximum number of frames read from one connection at once, for the same reason. A shim sends one. A
/// program with a file set sends hundreds: at half, they take twice as many rounds; at double, others wait
/// for twice as many.
const FRAMES: usize = 8;

/// Interval at which waiting connections are checked. At half, thousands of them cost twice as much; at
/// double, this plus [`WORKING_EVERY`] exceeds what the protocol promises.
const TICK: Duration = Duration::from_millis(200);

/// Interval of keepalives to a waiting shim; together with [`TICK`] within what the protocol promises.
const WORKING_EVERY: Duration = Duration::from_millis(WORKING_EVERY_MS * 7 / 10);

/// A connection silent for this long is closed, because shims connect when they have something to send. At
/// half, a client without a processor may be cut off; at double, silent connections keep others out for twice
/// as long.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// How long a process limited by its cgroup ignores the disk, in milliseconds. At half, its questions take
/// twice as much of its time; at double, a removed limit applies for a second more.
const LIMITED_FOR_MS: u32 = 1_000;

/// Messages to the thread.
enum Inbound {
    /// A connection to serve.
    Serve(OwnedFd),
    /// A descriptor to close: of a call that has ended, or a connection that is not served and has
    /// descriptors queued.
    Close(OwnedFd),
    /// The daemon ends, and so do the connections.
    End,
}

/// The handle of a user's thread. The thread ends when its user's connections and descriptors are gone and
/// this is dropped.
pub(crate) struct UserThread {
    to: Arc<Inbox>,
    state: Arc<State>,
    front: Arc<Front>,
}

/// Where connections and descriptors arrive.
struct Inbox {
    to: Option<Sender<Inbound>>,
    wake: OwnedFd,
    state: Arc<State>,
}

/// The thread's state as seen by others.
#[derive(Default)]
struct State {
    /// Number of open connections.
    connections: AtomicUsize,
    /// Number of descriptors to close.
    to_close: AtomicUsize,
    /// Since when it is busy with one thing, in milliseconds since the front was made, plus one; 0: not busy.
    busy_since: AtomicU64,
}

impl Inbox {
    fn send(&self, what: Inbound) {
        // The thread runs as long as this exists.
        let _ = self.to.as_ref().map(|to| to.send(what));
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn close(&self, fd: OwnedFd) {
        self.state.to_close.fetch_add(1, Ordering::AcqRel);
        self.send(Inbound::Close(fd));
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.to = None;
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl UserThread {
    /// Starts the thread of a user.
    ///
    /// # Errors
    /// No thread can be started, or no descriptor is left.
    pub(crate) fn start(uid: u32, front: Arc<Front>) -> io::Result<UserThread> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        // Bounded by the senders: connections by their user's share, the rest by what the acceptor keeps.
        let (to, inbound) = unbounded();
        let state = Arc::new(State::default());
        let inbox = Arc::new(Inbox { to: Some(to), wake: wake.try_clone()?, state: state.clone() });
        let body = Body {
            uid,
            state: state.clone(),
            inbound,
            wake,
            epoll,
            connections: HashMap::new(),
            opener: Arc::new(front.engine.new_opener()),
            inbox: Arc::downgrade(&inbox),
            front: front.clone(),
        };
        thread::Builder::new().name(format!("user {uid}")).spawn(move || body.run())?;
        Ok(UserThread { to: inbox, state, front })
    }

    /// Hands over a connection.
    pub(crate) fn serve(&self, connection: OwnedFd) {
        self.state.connections.fetch_add(1, Ordering::AcqRel);
        self.front.connections.fetch_add(1, Ordering::AcqRel);
        self.to.send(Inbound::Serve(connection));
    }

    /// Makes it close a descriptor.
    pub(crate) fn close(&self, fd: OwnedFd) {
        self.to.close(fd);
    }

    /// Ends its connections, and the thread once it has nothing left to close.
    pub(crate) fn end(self) {
        self.to.send(Inbound::End);
    }

    /// Number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Acquire)
    }

    /// Number of descriptors still to close.
    pub(crate) fn to_close(&self) -> usize {
        self.state.to_close.load(Ordering::Acquire)
    }

    /// How long it has been busy with one thing; `now_ms` is on the front's clock.
    pub(crate) fn busy_for(&self, now_ms: u64) -> Duration {
        match self.state.busy_since.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            since => Duration::from_millis(now_ms.saturating_sub(since - 1)),
        }
    }
}

struct Connection {
    client: Arc<Client>,
    /// Closes the descriptors that arrive through it.
    closer: Closer,
    /// Its process id; 0: not in our process namespace.
    pid: u32,
    /// When either side last sent something.
    last: Instant,
    /// The last request that was blocked.
    ticket: Option<Ticket>,
    /// Whether the request is an advice: its sender disconnects at once, and it is carried out all the same.
    advice: bool,
    /// The place of the last request in the queue.
    place: Option<shares::PlaceTaken>,
    /// Whether it has sent anything.
    spoke: bool,
    /// Whether it has asked for a file set, and so may be silent for any time.
    file_set: bool,
}

/// The state of the thread.
struct Body {
    /// The user's account number ([`crate::accounts`]).
    uid: u32,
    state: Arc<State>,
    inbound: Receiver<Inbound>,
    wake: OwnedFd,
    epoll: OwnedFd,
    connections: HashMap<u64, Connection>,
    /// Opens the files of this user for the engine.
    opener: Arc<Opener>,
    /// For descriptors that must come back here.
    inbox: Weak<Inbox>,
    front: Arc<Front>,
}

impl Body {
    /// Serves until all handles are dropped.
    fn run(mut self) {
        run_first();
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let mut ticked = Instant::now();
        loop {
            let timeout = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as _ };
            // Without connections nothing is due, and the thread is woken by messages.
            let timeout = (!self.connections.is_empty()).then_some(&timeout);
            let marks: Vec<u64> = match epoll::wait(&self.epoll, &mut events, timeout) {
                Ok((events, _)) => events.iter().map(|e| e.data.u64()).collect(),
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "waiting for requests failed");
                    return;
                }
            };
            for mark in marks {
                self.busy();
                match mark {
                    WAKE => {
                        if !self.take_in() {
                            return;
                        }
                    }
                    connection => self.readable(connection),
                }
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.busy();
                self.tick(ticked);
            }
            self.state.busy_since.store(0, Ordering::Release);
        }
    }

    /// Records that another piece of work starts.
    fn busy(&self) {
        self.state.busy_since.store(self.front.now_ms() + 1, Ordering::Release);
    }

    /// Takes messages. Returns `false` if all handles are dropped.
    fn take_in(&mut self) -> bool {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        loop {
            self.busy();
            match self.inbound.try_recv() {
                Ok(Inbound::Serve(connection)) => self.welcome(connection),
                Ok(Inbound::End) => {
                    let all: Vec<u64> = self.connections.keys().copied().collect();
                    all.into_iter().for_each(|mark| self.hang_up(mark));
                }
                Ok(Inbound::Close(fd)) => {
                    drop(fd);
                    self.state.to_close.fetch_sub(1, Ordering::AcqRel);
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return self.connections.is_empty(),
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd) {
        let mark = self.front.next_mark();
        let interest = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        let added = epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(mark), interest);
        let inbox = self.inbox.upgrade().filter(|_| added.is_ok());
        let Some(inbox) = inbox else {
            self.front.count(|c| c.connections_over_bound += 1);
            return self.closed();
        };
        let closer: Closer = Arc::new(move |fd| inbox.close(fd));
        let pid = fdpass::peer(socket.as_fd()).map_or(0, |peer| u32::try_from(peer.pid).unwrap_or(0));
        let client = Arc::new(Client::new(socket, &closer));
        self.connections.insert(
            mark,
            Connection {
                client,
                closer,
                pid,
                last: Instant::now(),
                ticket: None,
                advice: false,
                place: None,
                spoke: false,
                file_set: false,
            },
        );
        // The first frame has usually arrived already.
        self.readable(mark);
    }

    /// Counts a closed connection.
    fn closed(&self) {
        self.state.connections.fetch_sub(1, Ordering::AcqRel);
        self.front.connections.fetch_sub(1, Ordering::AcqRel);
    }

    fn readable(&mut self, mark: u64) {
        let mut packet = [0u8; FRAME_BYTES_MAX];
        let uid = self.uid;
        for _ in 0..FRAMES {
            let Some(connection) = self.connections.get_mut(&mark) else { return };
            let client = connection.client.clone();
            if lock(&self.front.frame_limiter).is_muted(uid, Instant::now()) {
                self.front.count(|c| c.connections_muted += 1);
                return self.hang_up(mark);
            }
            let received = match fdpass::receive(client.as_fd(), &mut packet) {
                Ok(received) if received.length == 0 => return self.left(mark),
                Ok(received) => received,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => continue,
                Err(Errno::MSGSIZE) => return self.refuse(mark, RefuseReason::Malformed, 0),
                Err(Errno::PROTO) => return self.refuse(mark, RefuseReason::Descriptor, 0),
                // Not the client's fault. The frame with the descriptor is a call that waits, or a range of a
                // file set, whose number is lost with it.
                Err(Errno::MFILE) if !connection.file_set && !client.is_waiting() => {
                    (connection.last, connection.spoke) = (Instant::now(), true);
                    self.front.count(|c| c.passed_full += 1);
                    let wire = self.front.told(uid);
                    client.reply(Frame::Answer(Answer::pass(PassReason::Full, wire)));
                    continue;
                }
                Err(_) => return self.hang_up(mark),
            };
            connection.last = Instant::now();
            let is_first = !std::mem::replace(&mut connection.spoke, true);
            let frame = match Frame::decode(&packet[..received.length]) {
                Ok(frame) => frame,
                Err(DecodeError::Version { .. }) => return self.refuse(mark, RefuseReason::Version, 0),
                Err(DecodeError::Kind(kind)) => return self.refuse(mark, RefuseReason::Kind, kind),
                Err(_) => return self.refuse(mark, RefuseReason::Malformed, 0),
            };
            if frame.carries_descriptor() != received.descriptor.is_some() {
                return self.refuse(mark, RefuseReason::Descriptor, frame.kind());
            }
            let for_trusted =
                matches!(frame, Frame::PassAll { .. } | Frame::Release { .. } | Frame::TakeOver { .. });
            if for_trusted && !lock(&self.front.shares).trusts(uid) {
                return self.refuse(mark, RefuseReason::Permission, frame.kind());
            }
            match (frame, received.descriptor) {
                (Frame::Need(need), Some(fd)) => {
                    if client.is_waiting() {
                        return self.refuse(mark, RefuseReason::Malformed, frame.kind());
                    }
                    let fd = Source::passed(fd);
                    fd.closed_by(&connection.closer);
                    self.need(mark, &client, need, fd);
                }
                (Frame::Hello(Hello { ring, .. }), _) => {
                    let settings = self.front.told(uid);
                    // A short-lived process needs only one question if its ring comes along. Only with the
                    // first answer, so that a client that never reads has one descriptor in flight and not
                    // hundreds. If no ring is available, the shim asks for it and gets the reason.
                    let wanted = ring && is_first && settings.ring != 0;
                    let ring = if wanted { self.front.ring(uid).ok().flatten() } else { None };
                    let frame = Frame::Settings(settings);
                    let sent = client.send_with(frame, ring.as_ref().map(AsFd::as_fd));
                    if sent.is_err() && (ring.is_none() || client.send(frame).is_err()) {
                        self.front.count_invalid(uid, Weight::Invalid);
                    }
                }
                (Frame::RingAsk, _) => {
                    match self.front.ring(uid) {
                        Ok(Some(ring)) => {
                            if client.send_with(Frame::Ring, Some(ring.as_fd())).is_err() {
                                self.front.count_invalid(uid, Weight::Invalid);
                            }
                        }
                        // Without a ring, reads go unreported, and everything else works.
                        Err(error) => {
                            tracing::warn!(%error, "cannot make a ring of reports for user {uid}");
                            return self.refuse(mark, RefuseReason::Kind, frame.kind());
                        }
                        Ok(None) => return self.refuse(mark, RefuseReason::Kind, frame.kind()),
                    }
                }
                // In other modes shims have nothing to report here.
                (Frame::Tracked(tracked), _) if self.front.settings.engine.policy.mode == Mode::Track => {
                    let taken = self.front.statistics.send(statistics::Ask::Tracked(tracked));
                    self.front.count(|c| c.tracked_dropped += u64::from(!taken));
                }
                (Frame::PassAll { lease_ms }, _) => {
                    self.front.shared.passing.lease(lease_ms, Instant::now());
                    self.front.rest();
                    let _ = client.send(frame);
                }
                (Frame::Challenge { nonce }, _) => {
                    let Some(key) = &self.front.key else {
                        return self.refuse(mark, RefuseReason::Kind, frame.kind());
                    };
                    let _ = client.send(Frame::Proof { digest: twinkey::proof(key, nonce) });
                }
                (Frame::Release { device }, _) => {
                    self.front.engine.leave_and(device, move || {
                        let _ = client.send(Frame::Release { device });
                    });
                }
                (Frame::TakeOver { step, .. }, _) => self.front.wish(TakeOverWish { client, step }),
                (Frame::FileSetAsk { window_bytes }, _) => {
                    if connection.file_set {
                        return self.refuse(mark, RefuseReason::Malformed, frame.kind());
                    }
                    connection.file_set = true;
                    self.begin_file_set(mark, client, window_bytes);
                }
                (Frame::FileSetAdd(add), Some(fd)) if connection.file_set => {
                    let fd = Source::passed(fd);
                    fd.closed_by(&connection.closer);
                    let message = self.added(mark, add, fd);
                    if !self.front.file_sets.tell(message) {
                        return self.hang_up(mark);
                    }
                }
                (Frame::FileSetTook { range, read }, _) if connection.file_set => {
                    if !self.front.file_sets.tell(Message::Took { set: mark, range, read }) {
                        return self.hang_up(mark);
                    }
                }
                (Frame::StatusAsk, _) => {
                    if !client.begin_status() {
                        return self.refuse(mark, RefuseReason::Malformed, frame.kind());
                    }
                    // The counters must be up to date.
                    self.front.publish();
                    if !self.front.statistics.send(statistics::Ask::Status(client)) {
                        return self.hang_up(mark);
                    }
                }
                (other, _) => return self.refuse(mark, RefuseReason::Kind, other.kind()),
            }
        }
    }

    fn need(&mut self, mark: u64, client: &Arc<Client>, need: Need, fd: Source) {
        let (front, uid) = (&self.front, self.uid);
        front.count(|c| c.needs += 1);
        let wire = front.told(uid);
        let pass = |reason| client.reply(Frame::Answer(Answer::pass(reason, wire)));
        // In mode prefetch, shims read ahead for themselves.
        if !front.settings.engine.policy.mode.serialises() {
            front.count(|c| c.passed_mode += 1);
            return pass(PassReason::Mode);
        }
        let Ok(call) = ForwardedCall::of(fd.as_fd(), need.offset, need.length) else {
            front.count(|c| c.passed_bad_request += 1);
            pass(PassReason::BadRequest);
            return front.count_invalid(uid, Weight::Invalid);
        };
        let io = self.priority_of(mark);
        let demand = ClientDemand { random: need.reads_at_random(), io, ..ClientDemand::default() };
        let pid = self.pid_of(mark);
        let call = ForwardedCall { pid, look_upto: wire.enlarged_bytes(), demand, ..call };
        let now = Instant::now();
        if self.is_limited(mark, call.file, now) {
            front.count(|c| c.passed_limited += 1);
            // Its process need not ask again for a while.
            let answer = Answer { device_ttl_ms: LIMITED_FOR_MS, ..Answer::pass(PassReason::Full, wire) };
            return client.reply(Frame::Answer(answer));
        }
        // An advice is not a read, so none is reported for it.
        if !need.call.is_advice() {
            lock(&front.shared.deliveries).asked(call.file, call.want.offset(), now);
        }
        if front.shared.passing.now(now) {
            // Files whose disk is served by another door: only their reads are counted, as if they were
            // served.
            let served = lock(front.engine.devices()).reader_of(call.file).is_some();
            if let Some(rings) = front.rings.as_ref().filter(|_| served) {
                lock(rings).shown(uid, call.file, now);
            }
            front.count(|c| c.passed_all += 1);
            return pass(PassReason::Mode);
        }
        let (file, kind) = (call.file, need.call.kind());
        let fd = Arc::new(fd);
        let mut door =
            ShimDoor { front, client, opener: &self.opener, uid, wire, file, kind, fd, place: None };
        let submitted = front.engine.submit(call, &mut door);
        let place = door.place;
        match submitted {
            Ok(Submitted::Resident { bytes, .. }) => {
                front.count(|c| c.hits_on_arrival += 1);
                client.reply(Frame::Answer(Answer::resident(bytes, wire)));
            }
            Ok(Submitted::Blocked(ticket)) => {
                front.count(|c| c.queued += 1);
                if let Some(connection) = self.connections.get_mut(&mark) {
                    connection.ticket = Some(ticket);
                    connection.advice = need.call.is_advice();
                    connection.place = place;
                }
            }
            Err(Refused::NotADisk) => {
                front.count(|c| c.passed_not_a_disk += 1);
                let device_ttl_ms = u32::try_from(front.settings.device_ttl.as_millis()).unwrap_or(u32::MAX);
                let answer = Answer { device_ttl_ms, ..Answer::pass(PassReason::NotADisk, wire) };
                client.reply(Frame::Answer(answer));
                front.count_invalid(uid, Weight::InGoodFaith);
            }
            Err(Refused::Mode) => {
                front.count(|c| c.passed_mode += 1);
                pass(PassReason::Mode);
            }
            Err(Refused::BadRequest) => {
                front.count(|c| c.passed_bad_request += 1);
                pass(PassReason::BadRequest);
                front.count_invalid(uid, Weight::Invalid);
            }
            Err(Refused::Full) => {
                front.count(|c| c.passed_full += 1);
                pass(PassReason::Full);
            }
            Err(Refused::Door) => {
                front.count(|c| c.passed_share += 1);
                pass(PassReason::Full);
            }
        }
    }

    /// The process of a connection; 0 if it is not in our process namespace.
    fn pid_of(&self, mark: u64) -> u32 {
        self.connections.get(&mark).map_or(0, |connection| connection.pid)
    }

    /// Whether the process of a connection is limited on a file's disk.
    fn is_limited(&self, mark: u64, file: FileId, now: Instant) -> bool {
        let pid = self.pid_of(mark);
        self.front.shared.limits.holds_afresh(pid, file.dev, now)
    }

    /// The I/O priority of the process of a connection.
    fn priority_of(&self, mark: u64) -> IoPriority {
        self.front.engine.priority_of(self.pid_of(mark))
    }

    /// Requests a file set for a connection. In a mode that serves no call there is none.
    fn begin_file_set(&mut self, mark: u64, client: Arc<Client>, window: u64) {
        let serves = self.front.settings.engine.policy.mode.serialises();
        if !serves || self.front.shared.passing.now(Instant::now()) {
            let none = FileSet { reason: PassReason::Mode, ranges: 0, window_bytes: 0 };
            let _ = client.send(Frame::FileSet(none));
            return;
        }
        let user = (!lock(&self.front.shares).trusts(self.uid)).then_some(self.uid);
        // If the message cannot be sent, the set is refused by disconnecting.
        if !self.front.file_sets.tell(Message::Open { set: mark, client, user, window }) {
            self.hang_up(mark);
        }
    }

    /// A range of a file set, with its disk. A range that cannot be read there is left to its reader.
    fn added(&self, mark: u64, add: FileSetAdd, fd: Source) -> Message {
        let left = |reason| Message::Passed { set: mark, range: add.range, reason };
        if self.front.shared.passing.now(Instant::now()) {
            return left(PassReason::Mode);
        }
        let Ok(call) = ForwardedCall::of(fd.as_fd(), add.offset, add.length) else {
            return left(PassReason::BadRequest);
        };
        if self.is_limited(mark, call.file, Instant::now()) {
            self.front.count(|c| c.passed_limited += 1);
            return left(PassReason::Full);
        }
        let io = self.priority_of(mark);
        match self.front.engine.disk_of(call.file, fd.as_fd()) {
            Ok(disk) => Message::Add {
                set: mark,
                range: add.range,
                added: Box::new(Added {
                    source: Arc::new(fd),
                    opener: self.opener.clone(),
                    call: ForwardedCall {
                        pid: self.pid_of(mark),
                        demand: ClientDemand { io, ..call.demand },
                        ..call
                    },
                    address: add.address,
                    disk,
                }),
            },
            Err(Refused::Mode) => left(PassReason::Mode),
            Err(Refused::NotADisk) => left(PassReason::NotADisk),
            Err(Refused::BadRequest | Refused::Door) => left(PassReason::BadRequest),
            Err(Refused::Full) => left(PassReason::Full),
        }
    }

    /// Sends a refusal to a client, and ends the conversation.
    fn refuse(&mut self, mark: u64, reason: RefuseReason, kind: u16) {
        self.front.count(|c| c.frames_refused += 1);
        if let Some(connection) = self.connections.get(&mark) {
            let _ = connection.client.send(Frame::Refuse(Refuse { reason, kind }));
            self.front.count_invalid(self.uid, Weight::Invalid);
        }
        self.hang_up(mark);
    }

    /// The other side has closed, perhaps without a frame.
    fn left(&mut self, mark: u64) {
        if self.connections.get(&mark).is_some_and(|connection| !connection.spoke) {
            self.front.count_invalid(self.uid, Weight::InGoodFaith);
        }
        self.hang_up(mark);
    }

    fn hang_up(&mut self, mark: u64) {
        let Some(connection) = self.connections.remove(&mark) else { return };
        let _ = epoll::delete(&self.epoll, connection.client.as_fd());
        self.closed();
        if let Some(ticket) =
            connection.ticket.filter(|_| connection.client.is_waiting() && !connection.advice)
        {
            self.front.count(|c| c.hang_ups += 1);
            if let Some(place) = connection.place.and_then(|place| place.hold()) {
                lock(&self.front.shares).given_up(self.uid, place, Instant::now());
            }
            self.front.engine.cancel(ticket);
        }
        if connection.file_set {
            self.front.file_sets.close(mark);
        }
    }

    fn tick(&mut self, now: Instant) {
        let idle_max = if self.front.hand_over.is_done() { DRAIN_IDLE } else { IDLE_MAX };
        let mut idle = Vec::new();
        for (&mark, connection) in &mut self.connections {
            let silent = now.saturating_duration_since(connection.last);
            if connection.client.is_waiting() {
                if silent >= WORKING_EVERY && connection.client.send(Frame::Working).is_ok() {
                    connection.last = now;
                    self.front.count(|c| c.working_sent += 1);
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

/// The socket's side of a submitted call: its user's shares, and the reports of its user's processes.
struct ShimDoor<'a> {
    front: &'a Front,
    client: &'a Arc<Client>,
    opener: &'a Opener,
    uid: u32,
    wire: Settled,
    file: FileId,
    kind: CallKind,
    /// The file as the shim passed it.
    fd: Arc<Source>,
    /// The call's place in the disk's queue.
    place: Option<shares::PlaceTaken>,
}

impl Door for ShimDoor<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn kind(&mut self, _: &DoorLimits) -> Result<CallKind, Refused> {
        Ok(self.kind)
    }

    fn before_look(&mut self) {
        self.front.take_reports_of(self.uid, self.file);
    }

    fn block(&mut self, ticket: Ticket) -> Option<(OnAnswer, Arc<Source>)> {
        let place = lock(&self.front.shares).place(self.uid, ticket.disk())?;
        self.place = Some(place.watch());
        let (client, wire) = (self.client.clone(), self.wire);
        client.begin(ticket.number());
        let on_answer = move |outcome: Completion<'_>| {
            client.answer(ticket.number(), Frame::Answer(to_wire(outcome, wire)));
            drop(place);
        };
        Some((Box::new(on_answer), self.fd.clone()))
    }

    fn opener(&self) -> Option<&Opener> {
        Some(self.opener)
    }
}

/// The engine's answer as a frame for a shim.
fn to_wire(outcome: Completion<'_>, wire: Settled) -> Answer {
    match outcome {
        Completion::Resident(found) => Answer::resident(found.prefix(wire.enlarged_bytes()), wire),
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
                // Its client is gone, so the reason does not matter.
                Reason::Cancelled => PassReason::Closing,
                // Shims of older versions do not know a reason for the second.
                Reason::Random | Reason::DiskOrder => PassReason::Random,
            };
            Answer { device_ttl_ms, ..Answer::pass(reason, wire) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reader_in_disk_order_is_told_to_leave_the_disk_alone() {
        let mode = seekless_wire::Mode::Both;
        let wire = Settled { mode, ring: 0, settings_ttl_ms: 100, prefetch_bytes: 0 };
        for reason in Reason::ALL {
            let answer = to_wire(Completion::Pass(reason), wire);
            assert_ne!(answer.reason, PassReason::None, "{reason:?}");
            let told = if reason == Reason::DiskOrder { 100 } else { 0 };
            assert_eq!(answer.device_ttl_ms, told, "{reason:?}");
        }
    }
}
