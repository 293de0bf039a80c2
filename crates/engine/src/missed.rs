//! Misses that no door blocks, as requests whose answers reach no client
//! ([`seekless_base::wants::behind_a_miss`]).

use std::ops::Range;
use std::os::fd::AsFd;

use seekless_base::wants::{behind_a_miss, looked_at_behind};
use seekless_kernel::residency::resident_prefix;
use seekless_policy::{Demand, Event, FileId, IoPriority, Request, RequestId};

use crate::open_files::OpenFiles;

/// First id of requests whose answers reach no client; ids of doors' requests start at 1.
const MISSED_IDS: u64 = 1 << 62;

/// The last id.
#[derive(Default)]
pub(crate) struct Missed(u64);

impl Missed {
    /// The bytes that the kernel reads for a miss, `bytes` at least, and a request for those behind them.
    /// `None` for either if nothing is missing there.
    pub(crate) fn events(
        &mut self,
        files: &mut OpenFiles,
        file: FileId,
        bytes: Range<u64>,
        io: IoPriority,
    ) -> [Option<Event>; 2] {
        let from = bytes.start;
        let Some(open) = files.get(file) else { return [None, None] };
        let size = open.edition.size;
        let looked_at = looked_at_behind(from, size);
        // Bytes in flight count as resident.
        let there = resident_prefix(open.source.as_fd(), from, looked_at).unwrap_or(looked_at);
        let there = there.max(bytes.end.min(size).saturating_sub(from));
        let by_kernel = Event::ReadByKernel { file, offset: from, len: there };
        let request = behind_a_miss(from, there, size).and_then(|(offset, len)| {
            let (lba, file_size) = files.locate(file, offset)?;
            self.0 += 1;
            let (id, demand) =
                (RequestId(MISSED_IDS + self.0), Demand { joins_kernel: true, io, ..Demand::default() });
            Some(Request { id, file, from, offset, len, file_size, lba, demand })
        });
        [Some(by_kernel), request.map(Event::Request)]
    }
}
