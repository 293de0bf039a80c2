//! The timing model of a hard disk.
//!
//! A drive is a [`DriveSpec`] (one file of `drives/`, see [`catalogue`]) run as a [`Drive`]: commands go in
//! with the time they arrive, completions come out with the time they finish. Time is an argument; nothing
//! sleeps. The model has what decides throughput: the seek curve, rotation with skews, zones, the track
//! buffer with look-ahead, native command queueing, a write cache with flushes, bands of shingled tracks,
//! command overhead and the bus. It does not have: reading a track from wherever the head lands, remapped
//! sectors, thermal recalibration, power saving, vibration.
//!
//! ```
//! use seekless_model::drive::{catalogue, Command, Drive, Op};
//! use seekless_base::{Lba, Nanos};
//!
//! let mut drive = Drive::new(&catalogue::get("cheetah-9lp").unwrap());
//! drive.submit(Nanos::ZERO, Command { id: 1, op: Op::Read, lba: Lba(1_000_000), sectors: 256 }).unwrap();
//! let when = drive.next_completion().unwrap();
//! let done = drive.poll(when).unwrap();
//! assert_eq!((done.id, done.finished), (1, when));
//! ```
//!
//! Pure: no I/O, no clock, no threads. Must not know: descriptors, paths, sockets, threads, logging.

mod buffer;
pub mod catalogue;
mod command;
pub mod draw;
#[allow(clippy::module_inception, reason = "it is named as the type it has")]
mod drive;
mod geometry;
mod seek;
pub mod set;
mod shingles;
mod spec;
pub mod spread;
mod write_cache;

pub use command::{Command, Completion, Op, QueueFull, ServiceTime};
pub use drive::Drive;
pub use spec::{Buffer, DriveSpec, Electronics, Order, Published, Queue, Shingled, SpecError};
