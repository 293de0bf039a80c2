//! Requests to a running daemon: whether it answers, and its status.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use seekless_base::{Exit, Fault};
use seekless_kernel::fdpass::{self, Peer};
use seekless_wire::{FRAME_BYTES_MAX, Frame, Hello, RefuseReason, STATUS_BYTES_MAX, Settings};

use crate::own_daemon;
use crate::socket::{connect, socket_name};
use crate::status::StatusReport;

/// Maximum wait for a daemon's answer. It answers from memory; if it takes longer, it is stopped or
/// overloaded.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why a daemon did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No daemon listens.
    #[error("no daemon answers at {} ({}); start one with `seekless daemon`", .0.display(), .1)]
    NobodyThere(PathBuf, io::Error),
    /// A daemon listens, and this user may not connect.
    #[error("the daemon at {} belongs to another user and lets no other connect; try as root", .0.display())]
    NotAllowed(PathBuf),
    /// It listens and does not answer in time.
    #[error("the daemon at {} did not answer within {} s; is it stopped?", .0.display(), PATIENCE.as_secs())]
    Silent(PathBuf),
    /// It sends an unexpected answer.
    #[error("the listener at {} does not answer as a daemon: {}", .0.display(), .1)]
    Garbled(PathBuf, String),
}

impl From<AskError> for Fault {
    fn from(error: AskError) -> Fault {
        let exit = match error {
            AskError::NobodyThere(..) => Exit::Missing,
            AskError::NotAllowed(_) => Exit::Permission,
            AskError::Silent(_) | AskError::Garbled(..) => Exit::Failed,
        };
        let elsewhere = match error {
            AskError::NobodyThere(..) => own_daemon::another(),
            _ => None,
        };
        let hint = elsewhere.map(|socket| {
            let socket = socket.display();
            format!(", or look at the one that `seekless run` has started: --socket {socket}")
        });
        Fault::new(exit, format!("{error}{}", hint.unwrap_or_default()))
    }
}

/// A conversation with a daemon.
pub struct Conversation<'a> {
    path: &'a Path,
    socket: OwnedFd,
    until: Instant,
}

impl<'a> Conversation<'a> {
    /// Connects to the daemon that listens there.
    ///
    /// # Errors
    /// Nobody listens, may be reached, or answers in time.
    pub fn open(path: &'a Path) -> Result<Conversation<'a>, AskError> {
        let nobody = |error: io::Error| AskError::NobodyThere(path.to_path_buf(), error);
        let name = socket_name(path).map_err(nobody)?;
        let socket = connect(&name).map_err(|e| match e {
            Errno::ACCESS | Errno::PERM => AskError::NotAllowed(path.to_path_buf()),
            Errno::AGAIN => AskError::Silent(path.to_path_buf()),
            other => nobody(other.into()),
        })?;
        Ok(Conversation { path, socket, until: Instant::now() + PATIENCE })
    }

    /// The daemon's socket.
    pub fn path(&self) -> &Path {
        self.path
    }

    /// The error that the other side does not answer as a daemon does.
    pub fn garbled(&self, why: impl fmt::Display) -> AskError {
        AskError::Garbled(self.path.to_path_buf(), why.to_string())
    }

    /// The credentials of the other side, from the kernel.
    pub fn peer(&self) -> Result<Peer, AskError> {
        fdpass::peer(self.socket.as_fd()).map_err(|e| self.garbled(e))
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The frame has no encoding, or the other side has gone.
    pub fn send(&self, frame: Frame<'_>) -> Result<(), AskError> {
        let packet = frame.encode().ok_or_else(|| self.garbled("the question has no encoding"))?;
        fdpass::send(self.socket.as_fd(), packet.as_bytes(), None).map_err(|e| self.garbled(e))
    }

    /// Receives the next packet.
    fn receive<'b>(&self, packet: &'b mut [u8; FRAME_BYTES_MAX]) -> Result<Frame<'b>, AskError> {
        Ok(self.receive_with(packet)?.0)
    }

    /// Receives the next packet and its descriptor.
    pub fn receive_with<'b>(
        &self,
        packet: &'b mut [u8; FRAME_BYTES_MAX],
    ) -> Result<(Frame<'b>, Option<OwnedFd>), AskError> {
        let received = loop {
            match fdpass::receive(self.socket.as_fd(), packet) {
                Ok(received) if received.length == 0 => {
                    return Err(AskError::NotAllowed(self.path.to_path_buf()));
                }
                Ok(received) => break received,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(self.garbled(error)),
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(AskError::Silent(self.path.to_path_buf()));
            }
            let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
            // The next receive shows whether anything arrived.
            let _ = poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)], Some(&timeout));
        };
        let frame = Frame::decode(&packet[..received.length]).map_err(|e| self.garbled(e))?;
        if frame.carries_descriptor() != received.descriptor.is_some() {
            return Err(self.garbled(format_args!("{} came with the wrong descriptors", frame.name())));
        }
        Ok((frame, received.descriptor))
    }
}

/// The settings of the daemon at `socket`: the shortest check whether it answers.
///
/// # Errors
/// It does not answer.
pub fn settings(socket: &Path) -> Result<Settings, AskError> {
    let conversation = Conversation::open(socket)?;
    conversation.send(Frame::Hello(Hello { pid: std::process::id(), ring: false }))?;
    match conversation.receive(&mut [0; FRAME_BYTES_MAX])? {
        Frame::Settings(settings) => Ok(settings),
        other => Err(conversation.garbled(format_args!("it sent {}", other.name()))),
    }
}

/// Makes the daemon at `socket` pass every call for this many milliseconds; 0: serve again.
///
/// # Errors
/// It does not answer, refuses this user, or is too old.
pub fn pass_all(socket: &Path, lease_ms: u32) -> Result<(), AskError> {
    echoed(socket, Frame::PassAll { lease_ms }, "pass every call")
}

/// Makes the daemon at `socket` close every file of a file system, given by the device number of its files,
/// and waits until that is done.
///
/// # Errors
/// It does not answer, refuses this user, is too old, or a read there does not end.
pub fn release(socket: &Path, device: u64) -> Result<(), AskError> {
    echoed(socket, Frame::Release { device }, "release files")
}

/// Sends what a daemon echoes once it is done; `what` names it in the error of an older one.
fn echoed(socket: &Path, frame: Frame<'_>, what: &str) -> Result<(), AskError> {
    let conversation = Conversation::open(socket)?;
    conversation.send(frame)?;
    match conversation.receive(&mut [0; FRAME_BYTES_MAX])? {
        echo if echo == frame => Ok(()),
        Frame::Refuse(refuse) if refuse.reason == RefuseReason::Permission => {
            Err(AskError::NotAllowed(socket.to_path_buf()))
        }
        Frame::Refuse(_) => {
            Err(conversation.garbled(format_args!("it is older and cannot {what}; restart it")))
        }
        other => Err(conversation.garbled(format_args!("it sent {}", other.name()))),
    }
}

/// The status of the daemon at `socket`, as JSON text and parsed.
///
/// # Errors
/// It does not answer, or not with a status.
pub fn status(socket: &Path) -> Result<(String, StatusReport), AskError> {
    let conversation = Conversation::open(socket)?;
    conversation.send(Frame::StatusAsk)?;
    let mut text = Vec::new();
    let mut packet = [0; FRAME_BYTES_MAX];
    loop {
        match conversation.receive(&mut packet)? {
            Frame::StatusPart(part) => {
                text.extend_from_slice(part.text);
                if text.len() > STATUS_BYTES_MAX {
                    return Err(conversation.garbled("its status is too long"));
                }
                if part.last {
                    break;
                }
            }
            Frame::Working => {}
            other => return Err(conversation.garbled(format_args!("it sent {}", other.name()))),
        }
    }
    let text = String::from_utf8(text).map_err(|e| conversation.garbled(e))?;
    let report = serde_json::from_str(&text).map_err(|e| conversation.garbled(e))?;
    Ok((text, report))
}
