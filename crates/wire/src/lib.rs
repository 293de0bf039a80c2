//! The protocol between shim and daemon: versioned frames, pure bytes.
//!
//! One frame is one packet of a `SOCK_SEQPACKET` socket, so frames need no delimiters and cannot arrive in
//! parts: a frame either decodes as a whole or is refused with a reason. A descriptor travels beside the
//! bytes (`SCM_RIGHTS`), never in them.
//!
//! A conversation is short. The shim opens a new connection for each miss:
//!
//! ```text
//! shim                                   daemon
//!   Need{call, offset, length} + fd  -->
//!                                    <--  Working          at least every second while the disk is busy
//!                                    <--  Answer{verdict}  the bytes are resident, or: go on without us
//! ```
//!
//! `Hello` asks only for the settings (`Settings`), `Tracked` reports a call afterwards and has no answer,
//! `StatusAsk` gets the daemon's state as text in bounded pieces.
//!
//! A daemon takes the place of another of its user without a gap:
//!
//! ```text
//! new                                    old
//!   TakeOver{ask}                    -->
//!                                    <--  TakeOver{socket} + fd, {twin} + fd, {metrics} + fd   (as existing)
//!                                    <--  TakeOver{offered, ring}
//!   TakeOver{serving}                -->                  until here the old one goes on if the new one ends
//!                                    <--  TakeOver{released}  it accepts no more, answers all, and ends
//! ```
//!
//! A program that takes files in any order asks for a file set, and keeps its connection open:
//!
//! ```text
//! program                                daemon
//!   FileSetAsk{window}               -->
//!                                    <--  FileSet{ranges, window}
//!   FileSetAdd{range, address} + fd  -->                        many, at most `ranges` of them not taken
//!                                    <--  FileSetReady{range}   in disk order
//!   FileSetTook{range}               -->                        it was read: there is room for another
//! ```
//!
//! **Versions.** The 16-byte header is frozen for ever. It has the version that the frame is written in and
//! the range that its sender can speak. The newer side writes in the lower version ([`common_version`]). A
//! receiver that cannot read a frame answers [`Frame::Refuse`], written in the oldest version, with its own
//! range in the header.
//!
//! Nothing here allocates, panics or knows sockets: the shim runs this code inside other programs.
//!
//! This crate must not know sockets.
#![no_std]

mod bytes;
mod frame;
mod header;
mod status;
mod words;

pub use frame::{
    ADDRESS_UNKNOWN, Answer, FileSet, FileSetAdd, FileSetReady, Frame, FrameBuf, Hello, Need,
    PASS_ALL_UNTIL_TOLD, Refuse, Settings, StatusPart, Tracked,
};
pub use header::{
    DecodeError, FRAME_BYTES_MAX, HEADER_BYTES, MAGIC, VERSION, VERSION_OLDEST, Versions, common_version,
};
pub use status::{STATUS_BYTES_MAX, STATUS_PART_BYTES_MAX, StatusParts};
pub use words::{Call, Mode, PassReason, RefuseReason, TakeOverStep, Verdict};

/// Maximum interval in milliseconds in which a daemon sends a frame to a waiting shim. A third of the shim's
/// patience ([`PATIENCE_MS`]), so that one late wake-up does not make the daemon seem dead.
pub const WORKING_EVERY_MS: u64 = 1_000;

/// A shim that has received nothing for this many milliseconds goes on without the daemon.
pub const PATIENCE_MS: u64 = 3_000;

/// Maximum wait of a shim for one answer, in milliseconds, however often it receives `Working`. Longer than
/// any queue of a healthy disk, shorter than the timeouts that servers apply to their clients.
pub const WAIT_MS_MAX: u64 = 60_000;
