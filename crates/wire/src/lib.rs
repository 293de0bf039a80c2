//! What shim and daemon say to each other: versioned frames, pure bytes.
//!
//! One frame is one packet of a `SOCK_SEQPACKET` socket, so there is no stream to cut up and no frame can be half
//! there: a frame either decodes as a whole or is refused with a reason. A descriptor travels beside the bytes
//! (`SCM_RIGHTS`), never in them.
//!
//! A conversation is short. The shim connects afresh for each miss:
//!
//! ```text
//! shim                                   daemon
//!   Need{call, offset, length} + fd  -->
//!                                    <--  Working          at least every second while the disk is busy
//!                                    <--  Answer{verdict}  the bytes are resident, or: go on without us
//! ```
//!
//! `Hello` asks only for the settings (`Settings`), `Tracked` reports a call after the fact and wants no answer,
//! `StatusAsk` gets the daemon's state as text in bounded pieces.
//!
//! A daemon takes the place of another of its user without a gap:
//!
//! ```text
//! new                                    old
//!   TakeOver{ask}                    -->
//!                                    <--  TakeOver{socket} + fd, {twin} + fd, {metrics} + fd   those there are
//!                                    <--  TakeOver{offered, ring}
//!   TakeOver{serving}                -->                     until here the old one goes on if the new one ends
//!                                    <--  TakeOver{released}  it accepts no more, answers all that wait, and ends
//! ```
//!
//! A program that takes files in any order asks for a file set, and keeps its connection until the end:
//!
//! ```text
//! program                                daemon
//!   FileSetAsk{window}               -->
//!                                    <--  FileSet{ranges, window}
//!   FileSetAdd{range, address} + fd  -->                        many, at most `ranges` of them not taken
//!                                    <--  FileSetReady{range}   in the order of the disk
//!   FileSetTook{range}               -->                        it was read: there is room for another
//! ```
//!
//! **Versions.** The 16-byte header is frozen for ever. It carries the version the frame is written in and the range
//! its sender can speak; the newer side writes in the lower version ([`common_version`]). A receiver that cannot read
//! a frame answers [`Frame::Refuse`], written in the oldest version there is, whose header names its own range.
//!
//! Nothing here allocates, panics or knows what a socket is: the shim runs this inside other people's programs.
//!
//! Must not know: sockets.
#![no_std]

mod bytes;
mod frame;
mod header;
mod status;
mod words;

pub use frame::{
    ADDRESS_UNKNOWN, Answer, FileSet, FileSetAdd, FileSetReady, Frame, FrameBuf, Need, PASS_ALL_UNTIL_TOLD,
    Refuse, Settings, StatusPart, Tracked,
};
pub use header::{
    DecodeError, FRAME_BYTES_MAX, HEADER_BYTES, MAGIC, VERSION, VERSION_OLDEST, Versions, common_version,
};
pub use status::{STATUS_BYTES_MAX, STATUS_PART_BYTES_MAX, StatusParts};
pub use words::{Call, Mode, PassReason, RefuseReason, TakeOverStep, Verdict};

/// Longest a daemon lets a waiting shim go without a frame, milliseconds. A third of the shim's patience
/// ([`PATIENCE_MS`]), so that one late wake-up is not taken for a dead daemon.
pub const WORKING_EVERY_MS: u64 = 1_000;

/// A shim that has heard nothing for this long goes on without the daemon, milliseconds.
pub const PATIENCE_MS: u64 = 3_000;

/// A shim waits for one answer this long at most, milliseconds, however often it hears `Working`. Longer than any
/// queue of a healthy disk, shorter than the time-outs servers put on their clients.
pub const WAIT_MS_MAX: u64 = 60_000;
