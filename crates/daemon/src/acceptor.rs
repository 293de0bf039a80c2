//! The acceptor: accepts connections and hands each to the thread of its user.
//!
//! It decides to which user a connection belongs and whether it is served ([`crate::accounts`],
//! [`crate::shares`], [`crate::frame_limiter`]), empties the rings of reports, and hands the sockets over
//! when another daemon takes its place. It makes no call that a user's descriptor can block. Closing a
//! connection is such a call if a packet with a descriptor waits in it. So the acceptor checks for a packet
//! first, and leaves such a connection to the thread of its user ([`crate::user_thread`]).

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::io::Errno;
use seekless_engine::{ends_within, lock, run_first};
use seekless_kernel::fdpass;
use seekless_wire::{Frame, Refuse, RefuseReason, TakeOverStep};

use crate::accounts::account;
use crate::client::Client;
use crate::deferred_closes::DeferredCloses;
use crate::file_sets::FileSetThread;
use crate::frame_limiter::{FrameLimiter, Weight};
use crate::front::Front;
use crate::listener::Listener;
use crate::rings::Rings;
use crate::shares::Shares;
use crate::statistics::{Shared, Statistics};
use crate::take_over::HandOver;
use crate::user_thread::UserThread;

/// Marks that identify the source of an event.
const STOP: u64 = 0;
const WAKE: u64 = 1;
const FIRST_LISTENER: u64 = 2;

/// Maximum number of events taken at once: there are no more sources.
const EVENTS: usize = 8;

/// Maximum number of connections accepted at once, before the rings get their turn. At half, the shims of a
/// server that starts take twice as many rounds; at double, reports wait twice as long.
const ACCEPTS: usize = 64;

/// Interval at which the rings are emptied, if there are any. A viewer of 10 Mb/s reads 6 KiB meanwhile. At
/// half, an idle machine is woken 400 times a second; at double, one user may report half as many reads
/// ([`crate::rings`]).
const REPORTS_EVERY: Duration = Duration::from_millis(5);

/// Interval at which the connections and places of users are checked. At half, an idle machine is woken ten
/// times a second; at double, a user whose thread hangs is released that much later.
const TICK: Duration = Duration::from_millis(200);

/// A thread busy with one thing for this long counts as hung: its user's connections are released until it
/// returns. At half, a machine with busy processors seems hung; at double, the user's servers wait that much
/// longer, once.
const HANGS: Duration = Duration::from_secs(1);

/// How long a user without connections keeps its thread. At half, a server with a miss a minute has its
/// thread started twice as often, which takes 50 us; at double, idle threads are kept for twice as long.
const THREAD_IDLE: Duration = Duration::from_secs(10);

/// Maximum number of users with a thread of their own. Further users share one: Samba has a user for each
/// client. At half, a file server of 200 users has some that can block each other; at double, a hostile user
/// with many user ids costs twice as many threads.
const THREADS_MAX: usize = 256;

/// The id of the shared thread; no user has it.
const SHARED: u32 = u32::MAX;

/// Maximum number of descriptors queued for closing in the thread of a user. Beyond it, connections wait in
/// [`crate::deferred_closes`]. At half, they are checked once more; at double, a hostile user holds twice as
/// many descriptors.
const TO_CLOSE_MAX: usize = 256;

/// Maximum number of queued takeover steps: a daemon that takes over sends two.
const WISHES_MAX: usize = 16;

/// Maximum time at the end of a daemon for closing connections that were not accepted.
const CLOSE_MAX: Duration = Duration::from_millis(500);

/// A step requested by another daemon.
pub(crate) struct TakeOverWish {
    pub(crate) client: Arc<Client>,
    pub(crate) step: TakeOverStep,
}

struct User {
    thread: UserThread,
    /// When it last had a connection.
    used: Instant,
    /// Whether its hang has been logged.
    hangs: bool,
}

pub(crate) struct Acceptor {
    front: Arc<Front>,
    listener: Listener,
    /// Whether accepting is paused, because there is no descriptor for another connection.
    paused: bool,
    stop: UnixStream,
    epoll: OwnedFd,
    users: HashMap<u32, User>,
    deferred: DeferredCloses,
    /// A connection for which not even the deferred ones have room. While there is one, no other is accepted.
    last_straw: Option<OwnedFd>,
    wishes: Receiver<TakeOverWish>,
    hand_over: HandOver,
}

impl Acceptor {
    /// # Errors
    /// The kernel provides no event queue.
    pub(crate) fn new(
        listener: Listener,
        stop: UnixStream,
        statistics: Statistics,
        shared: Shared,
        rings: Option<Rings>,
        hand_over: HandOver,
    ) -> io::Result<Acceptor> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (wish, wishes) = bounded(WISHES_MAX);
        let file_sets = FileSetThread::start(shared.engine.clone(), shared.file_sets.clone())?;
        let own_uid = rustix::process::geteuid().as_raw();
        let front = Arc::new(Front {
            shares: Mutex::new(Shares::new(shared.settings.engine.policy.queue_max, own_uid)),
            settings: shared.settings.clone(),
            engine: shared.engine.clone(),
            shared,
            statistics,
            rings: rings.map(Mutex::new),
            frame_limiter: Mutex::new(FrameLimiter::default()),
            file_sets,
            hand_over: hand_over.clone(),
            key: listener.key,
            wishes: wish,
            wake,
            connections: Default::default(),
            last_mark: Default::default(),
        });
        let acceptor = Acceptor {
            front,
            listener,
            paused: false,
            stop,
            epoll,
            users: HashMap::new(),
            deferred: DeferredCloses::default(),
            last_straw: None,
            wishes,
            hand_over,
        };
        acceptor.add(acceptor.stop.as_fd(), STOP)?;
        acceptor.add(acceptor.front.wake.as_fd(), WAKE)?;
        acceptor.listen()?;
        Ok(acceptor)
    }

    fn add(&self, fd: BorrowedFd<'_>, mark: u64) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(mark), epoll::EventFlags::IN)
    }

    fn listen(&self) -> Result<(), Errno> {
        let sockets = self.listener.sockets().enumerate();
        sockets.into_iter().try_for_each(|(i, socket)| self.add(socket, FIRST_LISTENER + i as u64))
    }

    /// Stops accepting.
    fn leave_listeners(&self) {
        for socket in self.listener.sockets() {
            let _ = epoll::delete(&self.epoll, socket);
        }
    }

    /// Serves until the other end of `stop` is written to or closed.
    pub(crate) fn run(mut self) {
        run_first();
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let mut ticked = Instant::now();
        'serve: loop {
            let reports = self.front.rings.as_ref().is_some_and(|rings| lock(rings).any());
            let wait = if reports { REPORTS_EVERY } else { TICK };
            let timeout = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as _ };
            let marks: Vec<u64> = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
                Ok((events, _)) => events.iter().map(|e| e.data.u64()).collect(),
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "waiting for connections failed");
                    break;
                }
            };
            for mark in marks {
                match mark {
                    STOP => break 'serve,
                    WAKE => self.hear_wishes(),
                    listener => self.accept((listener - FIRST_LISTENER) as usize),
                }
            }
            self.front.rest();
            if !self.hand_over.released() {
                self.front.take_reports();
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.tick(ticked);
            }
            self.front.publish();
            if self.hand_over.drained(self.front.connections.load(Ordering::Acquire)) {
                break;
            }
        }
        self.close();
    }

    /// Ends: accepts no more, and answers each waiting request.
    fn close(self) {
        let Acceptor { listener, front, stop, users, .. } = self;
        // This also closes connections that were not accepted, and the descriptors in them.
        let listening = thread::Builder::new().name("closes".into()).spawn(move || drop(listener));
        front.engine.close();
        users.into_values().for_each(|user| user.thread.end());
        drop(front);
        if let Ok(thread) = &listening {
            ends_within(thread, CLOSE_MAX);
        }
        drop(stop);
    }

    fn accept(&mut self, number: usize) {
        for _ in 0..ACCEPTS {
            let Some(socket) = self.listener.sockets().nth(number) else { return };
            match fdpass::accept(socket) {
                Ok(connection) => self.welcome(number, connection),
                // Waiting clients time out by themselves.
                Err(Errno::MFILE | Errno::NFILE) => {
                    self.front.count(|c| c.connections_over_bound += 1);
                    return self.pause();
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    fn pause(&mut self) {
        if !std::mem::replace(&mut self.paused, true) {
            self.leave_listeners();
        }
    }

    /// Accepts a connection or closes it. A shim whose connection is closed reads for itself.
    fn welcome(&mut self, number: usize, socket: OwnedFd) {
        self.front.count(|c| c.connections += 1);
        let Ok(peer) = fdpass::peer(socket.as_fd()) else {
            return self.dismiss(SHARED, socket);
        };
        // Checked before any lookup about the connection, which takes ten times as long. Root's id, or the
        // daemon's own, may be that of a container, which counts as another user.
        let is_itself = !lock(&self.front.shares).trusts(peer.uid);
        if is_itself && self.is_muted(peer.uid) {
            return self.dismiss(peer.uid, socket);
        }
        let account = account(socket.as_fd(), peer, self.listener.is_path(number));
        let Some(uid) = account.filter(|&uid| self.listener.admits(number, uid)) else {
            self.front.count(|c| c.connections_not_admitted += 1);
            self.dismiss(SHARED, socket);
            return self.front.count_invalid(peer.uid, Weight::InGoodFaith);
        };
        if !(is_itself && uid == peer.uid) && self.is_muted(uid) {
            return self.dismiss(uid, socket);
        }
        // 0 means that the process is not in our process namespace.
        if let Ok(pid @ 1..) = u32::try_from(peer.pid) {
            self.front.shared.callers.called(pid);
        }
        let trusted = lock(&self.front.shares).trusts(uid);
        let share = if trusted { usize::MAX } else { self.front.settings.user_share() };
        let held = self.users.get(&self.number(uid)).map_or(0, |user| user.thread.connections());
        let all = self.front.connections.load(Ordering::Acquire);
        if all >= self.front.settings.connections_max || held >= share {
            self.front.count(|c| c.connections_over_bound += 1);
            self.dismiss(uid, socket);
            return self.front.count_invalid(uid, Weight::InGoodFaith);
        }
        match self.user(uid) {
            Some(user) => {
                user.used = Instant::now();
                user.thread.serve(socket);
            }
            None => {
                self.front.count(|c| c.connections_over_bound += 1);
                self.dismiss(uid, socket);
            }
        }
    }

    /// Whether a user is muted now; counts the connection if so.
    fn is_muted(&mut self, uid: u32) -> bool {
        let muted = lock(&self.front.frame_limiter).is_muted(uid, Instant::now()) || self.hangs(uid);
        if muted {
            self.front.count(|c| c.connections_muted += 1);
        }
        muted
    }

    /// The id of the thread that serves this user. If there are too many, all further users share one. Root
    /// and the daemon's own user always have their own.
    fn number(&self, uid: u32) -> u32 {
        let full = self.users.len() >= THREADS_MAX && !self.users.contains_key(&uid);
        if full && !lock(&self.front.shares).trusts(uid) { SHARED } else { uid }
    }

    fn user(&mut self, uid: u32) -> Option<&mut User> {
        let number = self.number(uid);
        if !self.users.contains_key(&number) {
            match UserThread::start(number, self.front.clone()) {
                Ok(thread) => {
                    self.users.insert(number, User { thread, used: Instant::now(), hangs: false });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot start a thread for another user; its calls pass");
                    return None;
                }
            }
        }
        self.users.get_mut(&number)
    }

    /// Whether a call on a descriptor of this user hangs.
    fn hangs(&mut self, uid: u32) -> bool {
        let now_ms = self.front.now_ms();
        let number = self.number(uid);
        let Some(user) = self.users.get_mut(&number) else { return false };
        let hangs = user.thread.busy_for(now_ms) >= HANGS;
        if hangs && !std::mem::replace(&mut user.hangs, true) {
            tracing::warn!(
                "a descriptor that a process of user {uid} passed blocks a call; that user's servers read for themselves until it returns"
            );
        }
        hangs
    }

    /// Closes a connection. If descriptors wait in it, the thread of its user closes it.
    fn dismiss(&mut self, uid: u32, socket: OwnedFd) {
        if fdpass::dismiss(socket.as_fd()) {
            return;
        }
        match self.user(uid) {
            Some(user) if user.thread.to_close() < TO_CLOSE_MAX => user.thread.close(socket),
            _ => {
                if let Err(socket) = self.deferred.put(uid, socket) {
                    self.last_straw = Some(socket);
                    self.pause();
                }
            }
        }
    }

    /// Has deferred connections closed if their users' threads have room again.
    fn close_deferred(&mut self) {
        for _ in 0..self.deferred.held.min(TO_CLOSE_MAX) {
            let Some((uid, socket)) = self.deferred.take() else { return };
            self.dismiss(uid, socket);
        }
    }

    fn tick(&mut self, now: Instant) {
        lock(&self.front.shares).tick(now);
        lock(&self.front.frame_limiter).tick(now);
        self.close_deferred();
        self.users.retain(|_, user| {
            if user.thread.connections() + user.thread.to_close() > 0 {
                user.used = now;
            }
            now.saturating_duration_since(user.used) < THREAD_IDLE
        });
        let now_ms = self.front.now_ms();
        for user in self.users.values_mut() {
            user.hangs &= user.thread.busy_for(now_ms) >= HANGS;
        }
        if let Some(socket) = self.last_straw.take() {
            self.dismiss(SHARED, socket);
        }
        if self.paused && self.last_straw.is_none() {
            self.paused = self.listen().is_err();
        }
    }

    fn hear_wishes(&mut self) {
        let _ = rustix::io::read(&self.front.wake, &mut [0u8; 8]);
        while let Ok(TakeOverWish { client, step }) = self.wishes.try_recv() {
            if let Err(reason) = self.take_over(&client, step) {
                let kind = Frame::TakeOver { step, ring: 0 }.kind();
                let _ = client.send(Frame::Refuse(Refuse { reason, kind }));
            }
        }
    }

    /// Another daemon asks to take over.
    fn take_over(&mut self, client: &Client, step: TakeOverStep) -> Result<(), RefuseReason> {
        if !self.front.settings.hands_over || self.hand_over.released() {
            return Err(RefuseReason::Kind);
        }
        match step {
            TakeOverStep::Ask => {
                let ring = self.front.rings.as_ref().map_or(0, |rings| lock(rings).last_number);
                let offered = self.hand_over.offer(client, &self.listener, ring);
                if offered { Ok(()) } else { Err(RefuseReason::Kind) }
            }
            TakeOverStep::Serving => {
                // The other daemon has the same sockets open, so closing ours would not remove them from the
                // event queue.
                self.leave_listeners();
                self.listener.disown();
                self.listener = Listener::none();
                self.hand_over.release(client, Instant::now());
                tracing::info!("another daemon has taken over; this one ends after its last answer");
                Ok(())
            }
            _ => Err(RefuseReason::Kind),
        }
    }
}
