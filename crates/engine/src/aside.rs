//! A thread beside each disk's, for calls on its files that a file system can hold up: closing them, and looking
//! at what of them is still in memory. One that hangs holds up neither the disk's reads nor its clients: evictions
//! are then noticed by the next miss.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Sender, unbounded};
use seekless_kernel::deferred::Closer;
use seekless_kernel::prefetch::Source;
use seekless_kernel::residency::{missing_prefix, page_bytes, resident_prefix};
use seekless_policy::FileId;
use seekless_wants::PROGRESS_STEP;

use crate::door::readable_file;
use crate::worker::{Report, short_name};

/// Most looks in line. One that finds no room is left out: what it would find is found by the next miss. At half
/// of it a disk of a thousand streams whose file system is slow for a moment misses some, at double it looks for
/// what was decided upon long ago.
const LOOKS_MAX: usize = 1024;

enum Errand {
    /// As many as were open at once, so never more than descriptors.
    Close(OwnedFd),
    Look {
        file: FileId,
        source: Arc<Source>,
        offset: u64,
        len: u64,
    },
}

/// The way to the thread, which ends with it.
pub(crate) struct Aside(Sender<Errand>);

impl Aside {
    /// Starts the thread of a disk. What it finds goes to `report`.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(disk: &str, report: Sender<Report>) -> io::Result<Aside> {
        // Bounded by what is sent: descriptors, and LOOKS_MAX.
        let (to, errands) = unbounded();
        let run = move || {
            for errand in errands {
                match errand {
                    Errand::Close(fd) => drop(fd),
                    Errand::Look { file, source, offset, len } => {
                        let missing = first_missing(&source, offset, len);
                        drop(source);
                        if let Some((offset, len)) = missing {
                            let _ = report.send(Report::Missing { file, offset, len });
                        }
                    }
                }
            }
        };
        thread::Builder::new().name(short_name("aside", disk)).spawn(run)?;
        Ok(Aside(to))
    }

    /// Closes descriptors there.
    pub(crate) fn closer(&self) -> Closer {
        let to = self.0.clone();
        // After the end of the thread the descriptor comes back and is closed here.
        Arc::new(move |fd| drop(to.send(Errand::Close(fd))))
    }

    /// Looks for the first byte of these that is missing, and reports it.
    pub(crate) fn look(&self, file: FileId, source: Arc<Source>, offset: u64, len: u64) {
        if self.0.len() < LOOKS_MAX {
            let _ = self.0.send(Errand::Look { file, source, offset, len });
        }
    }
}

/// The first hole in memory. The rest is looked for, or missed, later.
fn first_missing(source: &Source, offset: u64, len: u64) -> Option<(u64, u64)> {
    // What a file has lost since it was last read has not been evicted.
    let (_, edition) = readable_file(source.as_fd())?;
    let len = len.min(edition.size.saturating_sub(offset));
    let there = resident_prefix(source.as_fd(), offset, len).ok()?;
    if there >= len {
        return None;
    }
    let (hole, most) = (offset + there, PROGRESS_STEP.min(len - there));
    // Its first page is missing, whatever is told of the others.
    let missing = missing_prefix(source.as_fd(), hole, most).unwrap_or(0).max(page_bytes());
    Some((hole, missing))
}
