//! A miss that no door holds up: the kernel reads its bytes by itself.
//!
//! Its client will want what follows as soon as it has them. So what follows is requested for it, and the
//! answer goes to nobody.

use std::os::fd::AsFd;

use seekless_kernel::residency::resident_prefix;
use seekless_policy::{Demand, FileId, Request, RequestId};
use seekless_wants::PROGRESS_STEP;

use crate::open_files::OpenFiles;

/// How far beyond a miss it is looked for bytes that are missing: what the kernel reads ahead by itself, and
/// a little more. What lies further is read ahead in its turn.
const MISSED_MAX: u64 = 512 << 10;

/// Requests that nobody hears the answer of are numbered from here on; those of doors count from 1.
const MISSED_IDS: u64 = 1 << 62;

/// Numbers the requests.
#[derive(Default)]
pub(crate) struct Missed(u64);

impl Missed {
    /// The request for what follows a miss at `offset`; none where nothing is missing there.
    pub(crate) fn request(&mut self, files: &mut OpenFiles, file: FileId, offset: u64) -> Option<Request> {
        let open = files.get(file)?;
        let size = open.edition.size;
        let len = MISSED_MAX.min(size.saturating_sub(offset));
        // What is on its way counts as there.
        let there = resident_prefix(open.source.as_fd(), offset, len).unwrap_or(len);
        if there >= len {
            return None;
        }
        let (from, offset) = (offset, offset + there);
        let (lba, file_size) = files.locate(file, offset)?;
        self.0 += 1;
        let (id, len) = (RequestId(MISSED_IDS + self.0), PROGRESS_STEP.min(file_size.saturating_sub(offset)));
        Some(Request { id, file, from, offset, len, file_size, lba, demand: Demand::default() })
    }
}
