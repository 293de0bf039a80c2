//! The conversation with the daemon: connect, one frame, wait for one answer, close.
//!
//! A fresh connection each time costs a few microseconds beside a disk read of milliseconds, and in return there is no
//! descriptor of ours for the host to trip over between calls, nothing to share among threads, nothing for a forked child
//! to inherit, and a daemon that was started again is found by itself.
//!
//! Every way this can go ends in "go on": nobody there, backlog full, no descriptor left, a stranger's socket, end of
//! file, nonsense, silence, or too long a wait altogether.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use seekless_kernel::fdpass::{self, Received, TwinName};
use seekless_kernel::twinkey;
use seekless_wire::{Answer, Call, Frame, Need, PATIENCE_MS, Settings, Tracked, Verdict, WAIT_MS_MAX};

use crate::memory::MEMORY;
use crate::{aside, config, filter, host, reports};

/// The longest frame of ours, and the longest we listen to (`Answer` has 44 bytes).
const FRAME_BYTES: usize = 128;

/// Frames listened to in one wait. At one `Working` a second there are 60 in the longest; a daemon that sends thousands
/// is out of its mind.
const FRAMES_MAX: u32 = 1_000;

/// What a daemon does without its disk is waited for this part of the patience (300 ms of 3 s): that it reads
/// a frame, and that it answers the question for the settings. One that has not even read does not run (a
/// service manager holds its socket while it is started again), or hangs. Settings that do not come while it
/// is in good standing are not held against it, because its machine may be busy. At twice the part a busy
/// daemon is let be for a second; at half of it every thread of a server stands still for as long when its
/// daemon is started again.
const PROMPT_PATIENCE_PART: u64 = 10;

/// A connection, for as long as one conversation. The host may close any number at any time, ours too ("close everything
/// above 2"), and be given it again for something of its own; so before the number is used or closed, it is looked at
/// whether it is still the socket it was. (Between looking and doing remain some hundred nanoseconds.)
struct Line {
    socket: ManuallyDrop<OwnedFd>,
    inode: u64,
}

impl Line {
    fn new(socket: OwnedFd) -> Option<Line> {
        let inode = rustix::fs::fstat(&socket).ok()?.st_ino;
        Some(Line { socket: ManuallyDrop::new(socket), inode })
    }

    /// The socket; `None` if the host has closed it.
    /// Nor if no system call may be made any more.
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
            // SAFETY: dropped here and nowhere else, and the value is not used after.
            unsafe { ManuallyDrop::drop(&mut self.socket) };
        }
    }
}

/// Nobody listens any more.
fn gone() {
    MEMORY.gone(host::coarse_ms());
    reports::daemon_gone();
}

/// Asks for bytes and waits until they are resident or the daemon lets us go. `None`: nobody answered.
/// `random`: the host has said that it reads the file so.
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
    // A minute altogether, unless the patience was made shorter.
    let total_ms = patience_ms.saturating_mul(WAIT_MS_MAX / PATIENCE_MS).min(WAIT_MS_MAX);
    let answer = match converse(&line, patience_ms, total_ms, false) {
        Ok(Said::Answer(answer)) => answer,
        Ok(Said::Settings(..)) | Err(Failed::Nonsense | Failed::Silence) => {
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

/// Passes an advice on and does not wait: the caller goes on with other work meanwhile.
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

/// Asks how to behave. `None` without a pause begun (see [`Memory::pausing`](crate::memory::Memory::pausing)): go by what
/// was known.
pub(crate) fn settings() -> Option<Settings> {
    let (pid, _) = host::pid_tid();
    let line = connect(pid)?;
    let ring_along = !reports::wanted();
    say(&line, Frame::Hello { pid, ring: ring_along }, None)?;
    let patience_ms = prompt_ms();
    let (settings, came) = match converse(&line, patience_ms, patience_ms, ring_along) {
        Ok(Said::Settings(settings, ring)) => (settings, ring),
        Ok(Said::Answer(answer)) => (answer.settings(), None),
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
    let patience_ms = prompt_ms();
    let timeout =
        Timespec { tv_sec: (patience_ms / 1_000) as i64, tv_nsec: (patience_ms % 1_000 * 1_000_000) as _ };
    // An interruption costs the ring until the daemon is started again: no harm, and no loop.
    let ready = rustix::event::poll(&mut [PollFd::new(&*line.socket, PollFlags::IN)], Some(&timeout));
    if !ready.is_ok_and(|n| n > 0) {
        return None;
    }
    let mut bytes = [0u8; FRAME_BYTES];
    let received = receive(line.socket()?, &mut bytes, true).ok()?;
    match bytes.get(..received.length).map(Frame::decode) {
        Some(Ok(Frame::Ring)) => received.descriptor,
        _ => None,
    }
}

/// Reports a call.
pub(crate) fn tracked(report: Tracked) {
    if let Some(line) = connect(report.pid) {
        say(&line, Frame::Tracked(report), None);
    }
}

/// A connection to a daemon that may have our descriptors: root's, or our own user's. Not to ourselves: a daemon that was
/// started under its own shim must not wait for itself.
fn connect(own_pid: u32) -> Option<Line> {
    let path = config::socket_path()?;
    let mut connected = line_to(SocketAddrUnix::new(path));
    if connected.is_ok() {
        config::see_key();
    }
    let mut at_twin = false;
    // The path cannot be seen: another root directory, another user. Its twin has no place in the file system.
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
        // Busy, or we are out of descriptors: the next call may be luckier.
        Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE) => None,
        Err(_) => {
            gone();
            None
        }
    }
}

/// Whether who listens at the twin knows the key that stands beside the socket ([`twinkey`]). Its user alone says
/// nothing: root of a container that shares our network has the number of root, and any user that a user namespace
/// does not know has one and the same.
fn is_proven(line: &Line) -> bool {
    let mut nonce = [0; 8];
    let random = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::NONBLOCK);
    let (Some(key), Ok(8)) = (config::key(), random) else { return false };
    let nonce = u64::from_ne_bytes(nonce);
    if say(line, Frame::Challenge { nonce }, None).is_none() {
        return false;
    }
    let ms = prompt_ms();
    let timeout = Timespec { tv_sec: (ms / 1_000) as i64, tv_nsec: (ms % 1_000 * 1_000_000) as _ };
    let ready = rustix::event::poll(&mut [PollFd::new(&*line.socket, PollFlags::IN)], Some(&timeout));
    let Some(socket) = line.socket().filter(|_| ready.is_ok_and(|n| n > 0)) else { return false };
    let mut bytes = [0u8; FRAME_BYTES];
    let Ok(received) = receive(socket, &mut bytes, false) else { return false };
    let frame = bytes.get(..received.length).map(Frame::decode);
    matches!(frame, Some(Ok(Frame::Proof { digest })) if digest == twinkey::proof(&key, nonce))
}

/// A connection, made at once or not at all, on a number that is out of the host's way. `MFILE`: there is none to be had.
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

/// A packet that is there. A descriptor beside it is taken only where one is expected: otherwise the kernel drops it, and it
/// never has a number here.
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
        // Too many descriptors in flight, no memory, or the host closed the descriptor under us: only this call.
        Err(_) => None,
    }
}

/// What ends a wait well.
enum Said {
    Answer(Answer),
    /// With the ring that it names, from a daemon that sends it along.
    Settings(Settings, Option<OwnedFd>),
}

/// What ends it badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// The other side closed.
    Gone,
    /// No word, or no last word, for too long.
    Silence,
    /// A frame that is none, or is not for us.
    Nonsense,
    /// We were switched off meanwhile.
    Off,
}

/// What one readable moment of the socket brought.
enum Heard {
    Nothing,
    Working,
    Said(Said),
    Failed(Failed),
}

/// See [`PROMPT_PATIENCE_PART`]. At least one: with none nobody would be heard.
fn prompt_ms() -> u64 {
    (config::patience_ms() / PROMPT_PATIENCE_PART).max(1)
}

/// Waits for an answer: `patience_ms` without a word, `total_ms` altogether, and not so long while our frame
/// is not read. Signals are handled by the host's handlers and then the wait goes on with what is left of it.
/// `ring_along`: the ring may come beside the settings.
fn converse(line: &Line, patience_ms: u64, total_ms: u64, ring_along: bool) -> Result<Said, Failed> {
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
            let timeout =
                Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as _ };
            match rustix::event::poll(&mut [PollFd::new(&*line.socket, PollFlags::IN)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR | Errno::AGAIN) => {}
                Ok(_) => break,
                Err(_) => return Err(Failed::Gone),
            }
        }
        match listen(line, ring_along) {
            Heard::Nothing => {}
            Heard::Working => (last_word, known_read) = (host::now_ns(), true),
            Heard::Said(said) => return Ok(said),
            Heard::Failed(failed) => return Err(failed),
        }
    }
    Err(Failed::Nonsense)
}

fn listen(line: &Line, ring_along: bool) -> Heard {
    let Some(socket) = line.socket() else { return Heard::Failed(Failed::Gone) };
    let mut bytes = [0u8; FRAME_BYTES];
    let received = match receive(socket, &mut bytes, ring_along) {
        Ok(received) if received.length == 0 => return Heard::Failed(Failed::Gone),
        // A descriptor beside any other frame than `Settings` is closed here.
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Heard::Nothing,
        Err(Errno::MSGSIZE | Errno::PROTO | Errno::MFILE) => return Heard::Failed(Failed::Nonsense),
        Err(_) => return Heard::Failed(Failed::Gone),
    };
    match bytes.get(..received.length).map(Frame::decode) {
        Some(Ok(Frame::Working)) => Heard::Working,
        Some(Ok(Frame::Answer(answer))) => Heard::Said(Said::Answer(answer)),
        Some(Ok(Frame::Settings(settings))) => Heard::Said(Said::Settings(settings, received.descriptor)),
        // A refusal too: we cannot say it otherwise.
        _ => Heard::Failed(Failed::Nonsense),
    }
}
