//! What to read next from a disk, how much, in which order, and what to keep in memory: the decisions,
//! without the doing.
//!
//! A disk that serves many sequential readers with small reads spends its time seeking. [`DiskEngine`] is the
//! cure as a state machine, one per disk. Callers that need bytes hand it a [`Request`]. It turns requests
//! into *pieces* that are larger than asked (prefetch), submits few at a time (serialisation), in a chosen
//! order ([`OrderKind`]), and answers every request exactly once. Libception \[L\] 3.2.2 calls this part
//! Reception's DiskIODaemon. It also hears of reads that hit, follows each sequential reader as a stream, and
//! reads ahead of need. It says which bytes are to be pinned, and which are to be given back.
//!
//! # The contract of a driver
//!
//! A driver does what the engine decides: the daemon in real time, a simulator in virtual time, a replay from
//! a log. It has no rules of its own. `tests/contract.rs` runs a driver that keeps this contract on a machine
//! where everything goes wrong, and checks after each action that the engine keeps its side.
//!
//! ## The loop
//!
//! 1. [`DiskEngine::handle`]`(now, event)`. `now` never runs backwards. All times count from one origin.
//! 2. [`DiskEngine::poll_action`] until it returns `None`. Each action is done, or begun, in the order it
//!    came: answers first, then hints and closes, reads last. More events may be handed in before that. What
//!    was not polled then waits, and keeps its order. Hints beyond a bound are left out.
//! 3. Sleep until the next event or [`DiskEngine::next_deadline`]. At that time the event is [`Event::Tick`].
//!    A late tick is no error: what was due is done late.
//!
//! [`DiskEngine::stats`] and [`DiskEngine::config`] may be called at any time. They change nothing.
//!
//! ## What goes in
//!
//! These must not be lost:
//!
//! - [`Event::Request`]: a client is blocked on bytes. Its file can be read from now on. Lost, the client
//!   waits in vain.
//! - [`Event::Done`]: a read is over. Sent once for each, whatever happened to it. Lost, the disk is busy for
//!   ever.
//!
//! These should not be lost. Without them the engine is slower, and right:
//!
//! - [`Event::Cancel`]: that client is gone. Lost, the disk reads for no client.
//! - [`Event::Opened`]: the driver can read a file that no request named. Lost, nothing is read ahead of it.
//! - [`Event::Access`]: a client has read, or begins to. Lost, its stream looks slower than it is, or over.
//! - [`Event::Found`]: a part of a read was in memory when the read began. Sent before the read's progress.
//!   Lost, the account takes the part for delivered by the disk, and its bytes for evicted.
//! - [`Event::Gone`]: a part of a read left memory before the read came to it. Lost, the account takes the
//!   part for still there, and the budget stays too large.
//! - [`Event::Progress`]: a read has come so far. Lost, requests are answered later.
//! - [`Event::Missing`]: a probe found a hole. Lost, a client is blocked there.
//! - [`Event::ReadByKernel`]: the kernel reads for a client that no door holds up. Lost, the account takes
//!   these bytes for a hit.
//! - [`Event::Release`]: a cache above keeps these bytes. Lost, they stay here as well.
//! - [`Event::Took`]: a file set's reader has what it waited for. Lost, the bytes stay pinned until their
//!   file is closed.
//! - [`Event::Bitrate`]: a file's bitrate is known. Lost, its pieces have the size of a file of which nothing
//!   is known.
//! - [`Event::Rest`]: the disk is left to its readers, or no longer. Lost, it stays as it was.
//! - [`Event::InFlight`]: when it is found that the device is a set of spindles, or no longer one. Lost, it
//!   stays as it was.
//! - [`Event::MemoryLimit`]: every [`memory::REPORT_EVERY`]. Lost, the budget stays what it is.
//! - [`Event::Tick`]: at the deadline. Lost, what is due waits for the next event.
//!
//! Names must hold. A [`RequestId`] is not used again before its answer: the second request is refused
//! ([`Reason::Duplicate`]). A [`FileId`] means the same file for as long as it is open. Numbers may be
//! absurd: they are cut to what a file can have. Events about files that are not open, reads that are over
//! and requests that were answered are ignored, because they may have crossed the action that made them so.
//!
//! ## What comes out
//!
//! These must be done:
//!
//! - [`Action::Answer`]: tell the client. Each request gets exactly one answer. `Resident` means that reads
//!   under way since the request was made have brought in every byte of it. The client then reads by itself
//!   in any case.
//! - [`Action::Read`]: bring the bytes in. The file is open. The range is whole pages, at most
//!   [`Config::read_max`] long, and no two reads under way share a byte.
//! - [`Action::Unpin`]: unpin bytes. Each pinned byte is named once, before its file is closed.
//!   Lost, memory is lost with it.
//! - [`Action::Close`]: close the file. Nothing of it is read, pinned or waited for. It is withdrawn when the
//!   file is opened again before it was polled. Lost, the file system stays busy.
//!
//! These are hints. One that is not followed costs performance and nothing else, and nothing is reported:
//!
//! - [`Action::Pin`]: whole pages of an open file that have been in memory, as far as was reported, and are
//!   not pinned. Where a pin is refused the bytes count as pinned all the same. Their `Unpin` comes, and is
//!   ignored.
//! - [`Action::Renew`]: pinned bytes.
//! - [`Action::Drop`]: whole pages of an open file that are neither pinned nor on their way.
//! - [`Action::Probe`]: bytes of an open file. A hole is reported as [`Event::Missing`].
//!
//! Without [`Config::ahead`] there are answers, reads and closes only.
//!
//! ## What is left at the end
//!
//! When every client is gone and every read is over, the engine comes to rest after as long as
//! [`StreamConfig::idle`] and half a minute of ticks. Nothing is blocked, queued, in flight, pinned or open
//! then, and `next_deadline` returns `None`. Until then everything has a bound: [`Config::queue_max`]
//! requests, as many pieces, [`StreamConfig::streams_max`] streams, [`AheadConfig::files_max`] open files
//! beside those that are being read, 16,384 ranges of bytes, or four for each stream. A driver that stops
//! before closes and unpins by itself.
//!
//! # Elsewhere
//!
//! How long a piece is: `sizing`. What a disk costs: `profile`. The text of a decision log: `decisions`.
//! Multi-level storage (replacement, native prefetchers, coordination): `levels`. Downloads in any order:
//! `reorder`.
//!
//! Must not know: descriptors, paths, sockets, threads, clocks, logging. Time comes in as an argument.
#![no_std]
extern crate alloc;

pub mod constants;
pub mod memory;
pub mod pool;
pub mod recency;

mod by_time;
mod config;
mod drops;
mod engine;
mod event;
mod extents;
mod files;
mod holes;
mod order;
mod piece;
mod pins;
mod queue;
mod service;
mod share;
mod spindle;
mod stats;
mod stream;

pub use config::{
    AheadConfig, Config, DEFAULT_PREFETCH, DEFAULT_SHARE, IN_FLIGHT_MAX, LongestWait, Mode, OrderKind, PAGE,
};
pub use constants::Constants;
pub use engine::{DiskEngine, LEFT_ALONE};
pub use event::{Access, Action, Demand, Event, Outcome, ReadId, Reason, Request, RequestId, Taken, Verdict};
pub use memory::MemoryLimit;
pub(crate) use order::{Place, Queued, Sweep};
pub use piece::FOUND_MAX;
pub use seekless_ledger::{Histogram, Totals};
pub use seekless_sizing::bitrate::BitrateRule;
pub use seekless_sizing::{EndEvidence, Prefetch, PrefetchSize, SizeReport, Sizing};
pub use seekless_units::FileId;
pub use stats::{FileSetStats, Stats};
pub use stream::StreamConfig;
pub(crate) use stream::{Stream, StreamId, Streams};
