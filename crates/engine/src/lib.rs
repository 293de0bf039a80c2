//! The policy on a real machine (policy x kernel, in real time), shared by every door.
//!
//! ```text
//!  threads of shims' users   watch's and observe's threads   serve's event loops (other crates)
//!            \                  |                  /
//!             `-- ForwardedCall: submit --------'
//!                               v
//!   Devices: which disk?  -->  thread of that disk  (DiskEngine: what, how much, in which order)
//!                               |        ^
//!                          piece|        | progress, done
//!                               v        |
//!                              worker: read-ahead, wait
//! ```
//!
//! - One *disk thread* a disk (`disk_thread`) runs a [`seekless_policy::DiskEngine`] and translates for it. A
//!   few *workers* under it wait for the disk, so that a disk that hangs stalls neither that thread nor
//!   another disk.
//! - [`Devices`] finds the disk of a file, and starts the disk's thread at its first file.
//! - Another thread keeps the metadata of trees in memory, if configured (`metadata`), and another reads the
//!   table of bitrates (`bitrates`).
//! - [`Engine`] is one handle for all of this.
//!
//! Every queue, table and wait is bounded; at a bound a request is refused and its caller reads for itself.
//!
//! This crate must not know sockets, frames, command lines or the doors.

mod addresses;
mod bitrates;
mod costs;
mod decisions;
mod deleted_files;
mod devices;
mod disk;
mod disk_thread;
mod door;
mod engine;
mod files_used;
mod kind;
mod layout;
mod machine;
mod metadata;
mod open_files;
mod opener;
mod processes;
mod report;
mod settings;
mod sleep;
mod snapshot;
mod start;
mod submit;
mod volume;
mod worker;
mod writes;

pub use addresses::Edition;
pub use bitrates::{BitratesReport, check_table};
pub use costs::{CostReport, FileCost, ProgramCost};
pub use decisions::DecisionLog;
pub use devices::{Devices, SharedDevices};
pub use disk::stored_profile;
pub use door::{ClientDemand, Completion, Door, InProcess, OnAnswer, ResidentRange};
pub use engine::Engine;
pub use files_used::FilesUsed;
pub use kind::{KindReport, Kinds, KnownBy};
pub use machine::page_cache;
pub use metadata::MetadataReport;
pub use opener::Opener;
pub use processes::Program;
pub use report::{DiskReport, Durations, FileSetUse, WriterUse};
pub use settings::Settings;
pub use sleep::SleepReport;
pub use snapshot::Snapshot;
pub use submit::{ForwardedCall, Refused, Reported, Submitted, Ticket};
pub use worker::run_first;

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lru::LruCache;

/// How soon a thread that sleeps notices that it is to stop.
const STOP_LOOK: Duration = Duration::from_millis(100);

/// Sleeps this long, or until `stop`.
fn sleep_unless(stop: &AtomicBool, time: Duration) {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Acquire) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(STOP_LOOK));
    }
}

/// A map of a bounded number of entries. It keeps those that were used last.
pub fn recent<K: Hash + Eq, V>(most: usize) -> LruCache<K, V> {
    LruCache::sparse(NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN))
}

/// Locks a mutex, even after a thread that held it has panicked. The data must be consistent at every step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a thread to end, for so long at most: one that waits for a disk is left to the end of the
/// process.
pub fn ends_within<T>(thread: &JoinHandle<T>, at_most: Duration) {
    let until = Instant::now() + at_most;
    while !thread.is_finished() && Instant::now() < until {
        thread::sleep(Duration::from_millis(2));
    }
}
