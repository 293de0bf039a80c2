//! Misses that no door holds up, as requests whose answer nobody hears ([`seekless_wants::behind_a_miss`]).

use std::os::fd::AsFd;

use seekless_kernel::residency::resident_prefix;
use seekless_policy::{Demand, FileId, Request, RequestId};
use seekless_wants::{behind_a_miss, looked_at_behind};

use crate::open_files::OpenFiles;

/// Requests that nobody hears the answer of are numbered from here on; those of doors count from 1.
const MISSED_IDS: u64 = 1 << 62;

/// Numbers the requests.
#[derive(Default)]
pub(crate) struct Missed(u64);

impl Missed {
    /// The request for what follows a miss at `from`; none where nothing is missing there.
    pub(crate) fn request(&mut self, files: &mut OpenFiles, file: FileId, from: u64) -> Option<Request> {
        let open = files.get(file)?;
        let size = open.edition.size;
        let looked_at = looked_at_behind(from, size);
        // What is on its way counts as there.
        let there = resident_prefix(open.source.as_fd(), from, looked_at).unwrap_or(looked_at);
        let (offset, len) = behind_a_miss(from, there, size)?;
        let (lba, file_size) = files.locate(file, offset)?;
        self.0 += 1;
        let id = RequestId(MISSED_IDS + self.0);
        Some(Request { id, file, from, offset, len, file_size, lba, demand: Demand::default() })
    }
}
