//! What to read next from a disk, how much, in which order, and what to keep in memory: decisions only,
//! without I/O.
//!
//! A disk that serves many sequential readers with small reads spends its time seeking. [`DiskEngine`] is a
//! state machine, one per disk, that prevents this. Callers that need bytes hand it a [`Request`]. It turns
//! requests into *pieces* that are larger than requested (prefetch), submits a few at a time (serialisation)
//! in a chosen order ([`OrderKind`]), and answers every request exactly once. Libception \[L\] 3.2.2 calls
//! this part Reception's DiskIODaemon. Hits are reported to it too, so it follows each sequential reader as a
//! stream and reads ahead of need. It says which bytes to drop.
//!
//! # The contract of a driver
//!
//! A driver carries out what the engine decides: the daemon in real time, a simulator in virtual time, a
//! replay from a log. It has no rules of its own. `tests/contract.rs` runs a driver that keeps this contract
//! on a machine where everything goes wrong, and checks after each action that the engine keeps its side.
//!
//! ## The loop
//!
//! 1. [`DiskEngine::handle`]`(now, event)`. `now` never runs backwards. All times count from one origin.
//! 2. [`DiskEngine::poll_action`] until it returns `None`. Each action is done, or begun, in the order it
//!    came: answers first, then hints and closes, reads last. More events may be handed in before everything
//!    is polled. Actions not yet polled wait and keep their order. Hints beyond a bound are left out.
//! 3. Sleep until the next event or [`DiskEngine::next_deadline`]. At that time the event is [`Event::Tick`].
//!    A late tick is no error: what was due is done late.
//!
//! [`DiskEngine::stats`] and [`DiskEngine::config`] may be called at any time. They change nothing.
//!
//! ## What goes in
//!
//! These events must not be lost:
//!
//! - [`Event::Request`]: a client is blocked on bytes. Its file can be read from now on. If lost, the client
//!   waits in vain.
//! - [`Event::Done`]: a read is over. Sent once for each read, whatever its outcome. If lost, the disk is
//!   busy for ever.
//!
//! These should not be lost. Without them the engine is slower but correct:
//!
//! - [`Event::Cancel`]: a client is gone. If lost, the disk reads for no client.
//! - [`Event::Opened`]: the driver can read a file that no request named. If lost, nothing is read ahead of
//!   it.
//! - [`Event::Access`]: a client has read, or begins to. If lost, its stream seems slower than it is, or
//!   ended.
//! - [`Event::Found`]: a part of a read was in memory when the read began. Sent before the read's progress.
//!   If lost, the account counts the part as delivered by the disk, and its bytes as evicted.
//! - [`Event::Progress`]: how far a read has come. If lost, requests are answered later.
//! - [`Event::Missing`]: a probe found bytes missing. If lost, a client is blocked there.
//! - [`Event::ReadByKernel`]: the kernel reads for a client that no door blocks. Its file can be read from
//!   now on. If lost, the account counts these bytes as a hit, and they are read again.
//! - [`Event::Took`]: a file set's reader has taken its bytes. If lost, the bytes count against the
//!   budget until their file is closed.
//! - [`Event::Bitrate`]: a file's bitrate is known. If lost, its pieces have the size for an unknown bitrate.
//! - [`Event::Rest`]: the disk is left to its readers, or no longer. If lost, the engine stays as it was.
//! - [`Event::InFlight`]: the device was found to be a set of spindles, or no longer to be one. If lost, the
//!   engine stays as it was.
//! - [`Event::Writes`]: what waits to be written, while reads are under way. If lost, writes wait for reads,
//!   or reads for at most a second more.
//! - [`Event::MemoryLimit`]: every [`memory::REPORT_EVERY`]. If lost, the budget stays as it is.
//! - [`Event::Tick`]: at the deadline. If lost, due work waits for the next event.
//!
//! Ids must stay valid. A [`RequestId`] is not used again before its answer: the second request is refused
//! ([`Reason::Duplicate`]). A [`FileId`] means the same file for as long as it is open. Numbers out of range
//! are cut to what a file can have. Events about files that are not open, reads that are over and requests
//! that were answered are ignored, because they may have crossed the action that made them so.
//!
//! ## What comes out
//!
//! These must be done:
//!
//! - [`Action::Answer`]: answer the client. Each request gets exactly one answer. `Resident` means that reads
//!   in flight since the request have brought in every byte of it. In any case the client then reads for
//!   itself.
//! - [`Action::Read`]: bring the bytes in. The file is open. The range is whole pages, at most
//!   [`Config::read_max`] long, and no two reads in flight share a byte.
//! - [`Action::Close`]: close the file. Nothing of it is read or waited for. It is withdrawn if the
//!   file is opened again before the action is polled. If lost, the file system stays busy.
//!
//! These are hints. Ignoring one costs only performance, and nothing is reported:
//!
//! - [`Action::Drop`]: drop whole pages of an open file that are not in flight.
//! - [`Action::Probe`]: check bytes of an open file. Missing bytes are reported as [`Event::Missing`].
//!
//! Without [`Config::ahead`] there are answers, reads and closes only.
//!
//! ## What is left at the end
//!
//! When every client is gone and every read is over, the engine becomes idle after [`StreamConfig::idle`] and
//! another half minute of ticks. Then nothing is blocked, queued, in flight or open, and
//! `next_deadline` returns `None`. Until then everything is bounded: [`Config::queue_max`] requests, as many
//! pieces, [`StreamConfig::streams_max`] streams, [`AheadConfig::files_max`] open files beside those that are
//! being read, 16,384 ranges of bytes, or four for each stream. A driver that stops earlier closes its files
//! by itself.
//!
//! # Other crates
//!
//! How long a piece is: `sizing`. What a disk costs: `profile`. The text of a decision log: `decisions`.
//! Multi-level storage (replacement, native prefetchers, coordination): `levels`. Downloads in any order:
//! `reorder`.
//!
//! This crate must not know descriptors, paths, sockets, threads, clocks or logging. Time is an argument.
#![no_std]
extern crate alloc;

pub mod constants;
pub mod costs;
pub mod decisions;
pub mod filesets;
pub mod ledger;
pub mod memory;
pub mod pool;
pub mod profile;
pub mod sizing;

mod by_time;
mod config;
mod disk_order;
mod disk_queue;
mod drops;
mod engine;
mod event;
mod extents;
mod files;
mod holes;
mod io_priority;
mod kernel_read;
mod order;
mod piece;
mod queue;
mod service;
mod share;
mod stats;
mod stream;
mod writers;

pub use config::{
    AheadConfig, Config, DEFAULT_PREFETCH, DEFAULT_SHARE, DEFAULT_WRITERS, IN_FLIGHT_MAX, LongestWait, Mode,
    OrderKind, PAGE, SMALL_READS, WRITERS_MAX,
};
pub use constants::Constants;
pub use engine::{DiskEngine, LEFT_ALONE};
pub use event::{
    Access, Action, Demand, Event, Outcome, ReadId, Reason, Request, RequestId, Taken, Verdict, Writes,
};
pub use io_priority::{IDLE_WAIT, IoPriority};
pub use kernel_read::KernelRead;
pub use memory::MemoryLimit;
pub(crate) use order::{Place, Queued, Sweep};
pub use piece::FOUND_MAX;
pub use seekless_base::FileId;
pub use stats::{FileSetStats, Stats};
pub use stream::StreamConfig;
pub(crate) use stream::{Stream, StreamId, Streams};
pub use writers::{WRITES_BELIEVED, WriterStats};

pub use crate::ledger::{Histogram, Totals};
pub use crate::sizing::bitrate::BitrateRule;
pub use crate::sizing::{EndEvidence, Prefetch, PrefetchSize, SizeReport, Sizing};
