//! The conversation with the daemon: connect, send one frame, wait for one answer, close.
//!
//! A new connection each time costs a few microseconds beside a disk read of milliseconds. In return the host
//! meets no descriptor of the shim between calls, threads share nothing, a forked child inherits nothing, and
//! a restarted daemon is found without further code.
//!
//! Every failure ends in "go on": no daemon, a full backlog, no descriptor left, another program's socket,
//! end of file, an invalid frame, silence, or a wait that is too long in total.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use seekless_kernel::fdpass::{self, Received, TwinName};
use seekless_kernel::twinkey;
use seekless_wire::{Answer, Call, Frame, Hello, Need, PATIENCE_MS, Settings, Tracked, Verdict, WAIT_MS_MAX};

use crate::memory::MEMORY;
use crate::{aside, config, filter, host, reports};

/// Maximum length of a frame sent or received, in bytes (`Answer` has 44).
const FRAME_BYTES: usize = 128;

/// Maximum number of frames received in one wait. At one `Working` a second there are 60 in the longest wait;
/// a daemon that sends thousands is broken.
const FRAMES_MAX: u32 = 1_000;

/// Fraction of the patience (300 ms of 3 s) that a daemon gets for what it does without its disk: to read a
/// frame, and to answer the question for the settings. An unread frame means that the daemon is stopped (a
/// service manager holds its socket while it restarts) or hung. Missing settings do not count against a
/// daemon that has answered before, because its machine may be busy. At twice the divisor, a busy daemon is
/// avoided for a second; at half, every thread of a server blocks for twice as long when its daemon restarts.
const PROMPT_PATIENCE_PART: u64 = 10;

/// A connection for one conversation. The host may close any number at any time, including the shim's ("close
/// everything above 2"), and get it again for a descriptor of its own. So before the number is used or
/// closed, the shim checks that it is still the same socket. (Between check and use, some hundred nanoseconds
/// remain.)
struct Line {
    socket: ManuallyDrop<OwnedFd>,
    inode: u64,
}

impl Line {
    fn new(socket: OwnedFd) -> Option<Line> {
        let inode = rustix::fs::fstat(&socket).ok()?.st_ino;
        Some(Line { socket: ManuallyDrop::new(socket), inode })
    }

    /// The socket; `None` if the host has closed it, or if no system call is allowed any more.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        if filter::is_sealed() {
            return None;
        }
        let stat = rustix::fs::fstat(&*self.socket).ok()?;
        let ours = FileType::from_raw_mode(stat.st_mode) == FileType::Socket && stat.st_ino == self.inode;
        ours.then(|| self.socket.as_fd())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.socket().is_some() {
            // SAFETY: dropped only here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.socket) };
        }
    }
}

/// The daemon is gone.
fn gone() {
    MEMORY.gone(host::coarse_ms());
    reports::daemon_gone();
}

/// Asks for bytes and waits until they are resident or the daemon passes the call. `None`: go on without
/// them. `random`: the host announced random reads of the file.
pub(crate) fn need(
    fd: BorrowedFd<'_>,
    call: Call,
    random: bool,
    offset: u64,
    length: u64,
    device: u64,
) -> Option<Answer> {
    let line = send_need(fd, call, random, offset, length)?;
    let patience_ms = config::patience_ms();
    // One minute in total, unless the patience is shorter.
    let total_ms = patience_ms.saturating_mul(WAIT_MS_MAX / PATIENCE_MS).min(WAIT_MS_MAX);
    let answer = match converse(&line, patience_ms, total_ms, false) {
        Ok(Reply::Answer(answer)) => answer,
        Ok(Reply::Settings(..)) | Err(Failed::Nonsense | Failed::Silence) => {
            MEMORY.hung(host::coarse_ms());
            return None;
        }
        Err(Failed::Gone) => {
            gone();
            return None;
        }
        Err(Failed::Off) => return None,
    };
    let now = host::coarse_ms();
    MEMORY.learn(answer.settings(), now);
    reports::named(answer.ring, ring);
    if answer.device_ttl_ms > 0 {
        MEMORY.leave_alone(device, answer.device_ttl_ms, now);
    }
    (answer.verdict == Verdict::Resident).then_some(answer)
}

/// Forwards an advice without waiting: the caller goes on with other work meanwhile.
pub(crate) fn advise(fd: BorrowedFd<'_>, call: Call, random: bool, offset: u64, length: u64) {
    send_need(fd, call, random, offset, length);
}

fn send_need(fd: BorrowedFd<'_>, call: Call, random: bool, offset: u64, length: u64) -> Option<Line> {
    let (pid, tid) = host::pid_tid();
    let line = connect(pid)?;
    let need = Need { call, pid, tid, offset, length }.at_random(random);
    say(&line, Frame::Need(need), Some(fd))?;
    Some(line)
}

/// Asks for the settings. `None` and no pause begun (see
/// [`Memory::pausing`](crate::memory::Memory::pausing)): use the last known ones.
pub(crate) fn settings() -> Option<Settings> {
    let (pid, _) = host::pid_tid();
    let line = connect(pid)?;
    let ring_along = !reports::wanted();
    say(&line, Frame::Hello(Hello { pid, ring: ring_along }), None)?;
    let patience_ms = prompt_ms();
    let (settings, came) = match converse(&line, patience_ms, patience_ms, ring_along) {
        Ok(Reply::Settings(settings, ring)) => (settings, ring),
        Ok(Reply::Answer(answer)) => (answer.settings(), None),
        Err(Failed::Silence) if !MEMORY.in_doubt() => return None,
        Err(Failed::Silence | Failed::Nonsense) => {
            MEMORY.hung(host::coarse_ms());
            return None;
        }
        Err(Failed::Gone) => {
            gone();
            return None;
        }
        Err(Failed::Off) => return None,
    };
    MEMORY.learn(settings, host::coarse_ms());
    reports::named(settings.ring, || came.or_else(ring));
    Some(settings)
}

/// Asks for the ring that reads are reported through.
fn ring() -> Option<OwnedFd> {
    let (pid, _) = host::pid_tid();
    let line = connect(pid)?;
    say(&line, Frame::RingAsk, None)?;
    // A signal costs the ring until the daemon is restarted. That does no harm, and avoids a loop.
    match promptly(&line, &mut [0; FRAME_BYTES], true)? {
        (Frame::Ring, ring) => ring,
        _ => None,
    }
}

/// The frame that comes on this line now, and its descriptor if there may be one.
fn promptly<'b>(
    line: &Line,
    bytes: &'b mut [u8; FRAME_BYTES],
    with_descriptor: bool,
) -> Option<(Frame<'b>, Option<OwnedFd>)> {
    let timeout = timeout(prompt_ms().saturating_mul(1_000_000));
    let ready = rustix::event::poll(&mut [PollFd::new(&*line.socket, PollFlags::IN)], Some(&timeout));
    let socket = line.socket().filter(|_| ready.is_ok_and(|n| n > 0))?;
    let received = receive(socket, bytes, with_descriptor).ok()?;
    Some((Frame::decode(bytes.get(..received.length)?).ok()?, received.descriptor))
}

fn timeout(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}

/// Reports a call of mode `track`.
pub(crate) fn tracked(report: Tracked) {
    if let Some(line) = connect(report.pid) {
        say(&line, Frame::Tracked(report), None);
    }
}

/// Connects to a daemon that may get the host's descriptors: root's, or the own user's. Never to the own
/// process: a daemon started under its own shim must not wait for itself.
fn connect(own_pid: u32) -> Option<Line> {
    let path = config::socket_path()?;
    let mut connected = line_to(SocketAddrUnix::new(path));
    if connected.is_ok() {
        config::see_key();
    }
    let mut at_twin = false;
    // The path is not visible: another root directory, another user. Its twin has no place in the file
    // system.
    if matches!(connected, Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::PERM))
        && let Some(twin) = TwinName::of(path)
        && let Ok(socket) = line_to(SocketAddrUnix::new_abstract_name(twin.as_bytes()))
    {
        (connected, at_twin) = (Ok(socket), true);
    }
    match connected {
        Ok(socket) => {
            let trusted = fdpass::peer(socket.as_fd())
                .is_ok_and(|p| (p.uid == 0 || p.uid == config::own_uid()) && p.pid as u32 != own_pid);
            let line = if trusted { Line::new(socket) } else { None };
            let line = line.filter(|line| !at_twin || is_proven(line));
            if line.is_none() {
                MEMORY.hung(host::coarse_ms());
            }
            line
        }
        // The daemon is busy, or there are no descriptors: the next call may succeed.
        Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE) => None,
        Err(_) => {
            gone();
            None
        }
    }
}

/// Whether the listener at the twin knows the key beside the socket ([`twinkey`]). Its user id proves
/// nothing: root of a container that shares the network has the id of root, and all users unknown to a user
/// namespace have one id.
fn is_proven(line: &Line) -> bool {
    let mut nonce = [0; 8];
    let random = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::NONBLOCK);
    let (Some(key), Ok(8)) = (config::key(), random) else { return false };
    let nonce = u64::from_ne_bytes(nonce);
    if say(line, Frame::Challenge { nonce }, None).is_none() {
        return false;
    }
    matches!(
        promptly(line, &mut [0; FRAME_BYTES], false),
        Some((Frame::Proof { digest }, _)) if digest == twinkey::proof(&key, nonce)
    )
}

/// A connection, made at once or not at all, with a number out of the host's way. `MFILE`: no number is
/// available.
fn line_to(address: Result<SocketAddrUnix, Errno>) -> Result<OwnedFd, Errno> {
    let address = address?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let make = || {
        let made = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        aside::moved(made).ok_or(Errno::MFILE)
    };
    let socket = aside::make(make).ok_or(Errno::MFILE)??;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// Receives a waiting packet. A descriptor with it is accepted only if one is expected. Otherwise the kernel
/// drops it, and it never gets a number.
fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], with_descriptor: bool) -> Result<Received, Errno> {
    if with_descriptor {
        let take = || {
            let received = fdpass::receive(socket, bytes)?;
            Ok(Received { descriptor: received.descriptor.and_then(aside::moved), ..received })
        };
        if let Some(received) = aside::make(take) {
            return received;
        }
    }
    let most = bytes.len();
    let (_, length) = rustix::net::recv(socket, bytes, RecvFlags::DONTWAIT | RecvFlags::TRUNC)?;
    if length > most { Err(Errno::MSGSIZE) } else { Ok(Received { length, descriptor: None }) }
}

fn say(line: &Line, frame: Frame<'_>, descriptor: Option<BorrowedFd<'_>>) -> Option<()> {
    let mut bytes = [0u8; FRAME_BYTES];
    let packet = frame.encode_into(&mut bytes)?;
    match fdpass::send(line.socket()?, packet, descriptor) {
        Ok(()) => Some(()),
        Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
            gone();
            None
        }
        // Too many descriptors in flight, no memory, or the host closed the descriptor: only this call fails.
        Err(_) => None,
    }
}

/// The end of a successful wait.
enum Reply {
    Answer(Answer),
    /// With the ring that they name, if the daemon sends it along.
    Settings(Settings, Option<OwnedFd>),
}

/// Why a wait failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// The daemon closed the connection.
    Gone,
    /// No frame for too long, or no answer within the total time.
    Silence,
    /// An invalid frame, or one not meant for the shim.
    Nonsense,
    /// The shim was switched off meanwhile.
    Off,
}

/// The result of one receive.
enum Incoming {
    Nothing,
    Working,
    Reply(Reply),
    Failed(Failed),
}

/// The time of [`PROMPT_PATIENCE_PART`], in milliseconds. At least one, because with zero no answer could
/// arrive.
fn prompt_ms() -> u64 {
    (config::patience_ms() / PROMPT_PATIENCE_PART).max(1)
}

/// Waits for an answer: at most `patience_ms` without a frame, `total_ms` in total, and only [`prompt_ms`]
/// while the daemon has not read the frame. Signals run the host's handlers, and the wait goes on for the
/// rest of its time. `ring_along`: the ring may come with the settings.
fn converse(line: &Line, patience_ms: u64, total_ms: u64, ring_along: bool) -> Result<Reply, Failed> {
    let [prompt, patience, total] =
        [prompt_ms(), patience_ms, total_ms].map(|ms| ms.saturating_mul(1_000_000));
    let start = host::now_ns();
    let (mut last_word, mut known_read) = (start, false);
    for _ in 0..FRAMES_MAX {
        // Wait until it is readable; interruptions do not count as frames.
        loop {
            let now = host::now_ns();
            let waited = now.saturating_sub(start);
            let left =
                patience.saturating_sub(now.saturating_sub(last_word)).min(total.saturating_sub(waited));
            let left = match prompt.saturating_sub(waited) {
                _ if known_read => left,
                0 if line.socket().is_some_and(fdpass::unread) => 0,
                0 => {
                    known_read = true;
                    left
                }
                until_read => left.min(until_read),
            };
            if left == 0 {
                return Err(Failed::Silence);
            }
            if !config::enabled() {
                return Err(Failed::Off);
            }
            let left = left.min(filter::LOOK_MS * 1_000_000);
            let timeout = timeout(left);
            match rustix::event::poll(&mut [PollFd::new(&*line.socket, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR | Errno::AGAIN) => {}
                Ok(_) => break,
                Err(_) => return Err(Failed::Gone),
            }
        }
        match listen(line, ring_along) {
            Incoming::Nothing => {}
            Incoming::Working => (last_word, known_read) = (host::now_ns(), true),
            Incoming::Reply(reply) => return Ok(reply),
            Incoming::Failed(failed) => return Err(failed),
        }
    }
    Err(Failed::Nonsense)
}

fn listen(line: &Line, ring_along: bool) -> Incoming {
    let Some(socket) = line.socket() else { return Incoming::Failed(Failed::Gone) };
    let mut bytes = [0u8; FRAME_BYTES];
    let received = match receive(socket, &mut bytes, ring_along) {
        Ok(received) if received.length == 0 => return Incoming::Failed(Failed::Gone),
        // A descriptor with any other frame than `Settings` is closed here.
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Incoming::Nothing,
        Err(Errno::MSGSIZE | Errno::PROTO | Errno::MFILE) => return Incoming::Failed(Failed::Nonsense),
        Err(_) => return Incoming::Failed(Failed::Gone),
    };
    match bytes.get(..received.length).map(Frame::decode) {
        Some(Ok(Frame::Working)) => Incoming::Working,
        Some(Ok(Frame::Answer(answer))) => Incoming::Reply(Reply::Answer(answer)),
        Some(Ok(Frame::Settings(settings))) => {
            Incoming::Reply(Reply::Settings(settings, received.descriptor))
        }
        // This includes a refusal: the shim has no other version to offer.
        _ => Incoming::Failed(Failed::Nonsense),
    }
}
