//! From events of the page cache to reads. Pure: events go in, reads come out.
//!
//! A call raises an event for each batch of pages it takes (31 pages, small or large), and each of them names
//! the call's last page. So the first event of a call describes all of it, and the others are ignored: a
//! single read of 128 KiB must not look like a sequence of small ones. For a page fault the kernel reports
//! the page, and the 16 pages around it that it maps with it.
//!
//! Reads of one batch of events that continue one another are joined, so that the engine gets a stream a few
//! times a round and not for each call. The first two reads of a run stay separate, because the engine counts
//! how often a stream went on.

use std::collections::HashMap;

use lru::LruCache;
use seekless_engine::recent;
use seekless_kernel::cacheevents::{CacheEvent, Taken as How};
use seekless_policy::Taken;

/// Bytes that a fault maps at once (`fault_around_bytes`): a window may begin this far before the touched
/// page.
const AROUND: u64 = 64 << 10;

/// Pages that a thread adds to the cache within this distance of the last one are one miss: a window of the
/// kernel's read-ahead, of which one page in 16 is reported.
const WINDOW: u64 = 256 << 10;

/// Maximum number of calls remembered to distinguish their later events from new calls. Beyond it the oldest
/// is forgotten, and counts twice if it is still in progress.
const CALLS_MAX: usize = 8192;

/// Maximum number of runs of one file that are compared with a read. Beyond it the read starts a run of its
/// own, which costs a message.
const RUNS_COMPARED: usize = 16;

/// An inode, as named in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Inode {
    /// Major and minor number of the file system's device.
    pub(crate) dev: (u32, u32),
    /// Number on it.
    pub(crate) ino: u64,
}

/// A read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) inode: Inode,
    pub(crate) start: u64,
    /// Offset behind the last byte; may lie beyond the end of the file.
    pub(crate) end: u64,
    pub(crate) taken: Taken,
    /// The process that read; of several whose reads were joined, the first.
    pub(crate) pid: u32,
}

/// The kernel reads missing bytes of a file, because a program waits for some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Miss {
    pub(crate) inode: Inode,
    pub(crate) start: u64,
    /// Offset behind the last page that was reported.
    pub(crate) end: u64,
    /// The process and the thread that wait.
    pub(crate) pid: u32,
    pub(crate) tid: u32,
}

/// Reads of one batch that continue one another.
#[derive(Clone, Copy, Debug)]
struct Run {
    inode: Inode,
    pid: u32,
    start: u64,
    /// Where the first and the second read ended.
    ends: [u64; 2],
    end: u64,
    /// Start of its last read.
    last_start: u64,
    /// The previous run of the same file.
    before: Option<usize>,
}

/// Remembers which part of a call was already reported.
pub(crate) struct Reads {
    /// Bytes of a page.
    page: u64,
    /// First and last page of the call whose batch a thread took last, by thread and file.
    calls: LruCache<(u32, Inode), (u64, u64)>,
    runs: Vec<Run>,
    newest: HashMap<Inode, usize>,
    /// The last miss of each thread and file in this batch: its place in the list, and its last page.
    misses: HashMap<(u32, Inode), (usize, u64)>,
}

impl Reads {
    /// The initial state, on a machine with pages of this size.
    pub(crate) fn new(page: u64) -> Reads {
        Reads {
            page,
            calls: recent(CALLS_MAX),
            runs: Vec::new(),
            newest: HashMap::new(),
            misses: HashMap::new(),
        }
    }

    /// Appends the reads of a batch of events in order of time, and the misses. Returns the number of calls
    /// and faults.
    pub(crate) fn take(
        &mut self,
        events: &[CacheEvent],
        into: &mut Vec<Seen>,
        missed: &mut Vec<Miss>,
    ) -> u64 {
        let mut reads = 0;
        for event in events {
            let inode = Inode { dev: event.dev, ino: event.ino };
            let end = event.last.saturating_add(1).saturating_mul(self.page).min(i64::MAX as u64);
            let start = event.first.saturating_mul(self.page).min(end);
            if event.taken == How::Added {
                self.miss(Miss { inode, start, end, pid: event.pid, tid: event.tid }, missed);
                continue;
            }
            if event.taken == How::Read && self.is_later_batch(inode, event) {
                continue;
            }
            reads += 1;
            self.join((inode, event.pid), start, end, event.taken != How::Read);
        }
        for run in self.runs.drain(..) {
            let Run { inode, pid, start, ends: [first, second], end, .. } = run;
            // It is unknown how much of the last read was taken: a call may be in progress, or its socket
            // full.
            for (start, end, last) in
                [(start, first, first == end), (first, second, second == end), (second, end, true)]
            {
                let taken = if last { Taken::Unknown } else { Taken::All };
                if start < end {
                    into.push(Seen { inode, start, end, taken, pid });
                }
            }
        }
        self.newest.clear();
        self.misses.clear();
        reads
    }

    /// Pages that were added: a miss of their own, or more of the last one of their thread and file.
    fn miss(&mut self, added: Miss, missed: &mut Vec<Miss>) {
        let last = self.misses.entry((added.tid, added.inode));
        let (place, at) = last.or_insert((missed.len(), added.start));
        if added.start.abs_diff(*at) >= WINDOW {
            *place = missed.len();
        }
        *at = added.start;
        match missed.get_mut(*place) {
            Some(miss) => miss.end = miss.end.max(added.end),
            None => missed.push(added),
        }
    }

    fn is_later_batch(&mut self, inode: Inode, event: &CacheEvent) -> bool {
        let call = self.calls.put((event.tid, inode), (event.first, event.last));
        call.is_some_and(|(first, last)| last == event.last && first < event.first)
    }

    fn join(&mut self, (inode, pid): (Inode, u32), start: u64, end: u64, fault: bool) {
        let newest = self.newest.get(&inode).copied();
        let mut next = newest;
        for _ in 0..RUNS_COMPARED {
            let Some(index) = next else { break };
            let run = &mut self.runs[index];
            let behind = if fault { start.saturating_add(AROUND) } else { start };
            if start <= run.end && behind > run.last_start {
                if end > run.end {
                    let [first, second] = run.ends;
                    run.ends = [first, if second == first { end } else { second }];
                    (run.end, run.last_start) = (end, start);
                }
                return;
            }
            next = run.before;
        }
        self.newest.insert(inode, self.runs.len());
        self.runs.push(Run { inode, pid, start, ends: [end; 2], end, last_start: start, before: newest });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INODE: Inode = Inode { dev: (8, 1), ino: 7 };
    const K: u64 = 1024;

    fn event(tid: u32, how: How, first: u64, last: u64) -> CacheEvent {
        CacheEvent { taken: how, dev: INODE.dev, ino: INODE.ino, first, last, pid: tid, tid }
    }

    fn ranges(reads: &mut Reads, events: &[CacheEvent]) -> Vec<(u64, u64, Taken)> {
        let mut seen = Vec::new();
        reads.take(events, &mut seen, &mut Vec::new());
        seen.into_iter().map(|s| (s.start / K, s.end / K, s.taken)).collect()
    }

    #[test]
    fn the_batches_of_one_call_are_one_read_even_across_rounds() {
        let mut reads = Reads::new(4096);
        let call =
            [event(1, How::Read, 100, 131), event(1, How::Read, 115, 131), event(1, How::Read, 130, 131)];
        assert_eq!(ranges(&mut reads, &call[..2]), [(400, 528, Taken::Unknown)]);
        assert_eq!(ranges(&mut reads, &call[2..]), []);
        // The same call again counts as another one.
        assert_eq!(ranges(&mut reads, &call), [(400, 528, Taken::Unknown)]);
        // So does that of another thread.
        assert_eq!(ranges(&mut reads, &[event(2, How::Read, 130, 131)]), [(520, 528, Taken::Unknown)]);
    }

    #[test]
    fn reads_that_go_on_are_joined_after_the_second() {
        let mut reads = Reads::new(4096);
        let calls: Vec<CacheEvent> = (0..10).map(|i| event(1, How::Read, i * 16, i * 16 + 15)).collect();
        let expected = [(0, 64, Taken::All), (64, 128, Taken::All), (128, 640, Taken::Unknown)];
        assert_eq!(ranges(&mut reads, &calls), expected);
        assert_eq!(ranges(&mut reads, &calls[..2])[1], (64, 128, Taken::Unknown));
    }

    #[test]
    fn pages_brought_in_together_are_one_miss_and_no_read() {
        let mut reads = Reads::new(4096);
        let window =
            |tid, first: u64| (0..40).map(move |i| event(tid, How::Added, first + i * 16, first + i * 16));
        // Two windows of 2,560 KiB; the second is interleaved with one of another thread.
        let mut added: Vec<CacheEvent> = window(1, 0).collect();
        added.extend(window(1, 4096).zip(window(2, 9000)).flat_map(|(one, other)| [one, other]));
        let (mut seen, mut missed) = (Vec::new(), Vec::new());
        assert_eq!(reads.take(&added, &mut seen, &mut missed), 0);
        let miss = |tid: u32, first: u64| Miss {
            inode: INODE,
            start: first * 4096,
            end: (first + 39 * 16 + 1) * 4096,
            pid: tid,
            tid,
        };
        assert_eq!(missed, [miss(1, 0), miss(1, 4096), miss(2, 9000)]);
        assert!(seen.is_empty());
    }

    #[test]
    fn streams_of_one_file_stay_apart() {
        let mut reads = Reads::new(4096);
        let mut both = Vec::new();
        for i in 0..3 {
            both.push(event(1, How::Read, i * 16, i * 16 + 15));
            both.push(event(2, How::Read, 9000 + i * 16, 9000 + i * 16 + 15));
        }
        let seen = ranges(&mut reads, &both);
        assert_eq!(seen.iter().filter(|s| s.0 >= 36000).count(), 3, "{seen:?}");
        // Two threads that read the same place are two readers.
        let twice = [event(3, How::Read, 0, 15), event(4, How::Read, 0, 15)];
        assert_eq!(ranges(&mut reads, &twice).len(), 2);
    }

    #[test]
    fn a_mapping_read_in_order_is_one_stream() {
        // The first page is missing; then windows are mapped, and the fault on a read-ahead mark lies inside
        // the next window.
        let faults = [
            event(1, How::Fault, 0, 0),
            event(1, How::Mapped, 0, 15),
            event(1, How::Mapped, 16, 31),
            event(1, How::Fault, 40, 40),
            event(1, How::Mapped, 32, 47),
        ];
        let mut reads = Reads::new(4096);
        let seen = ranges(&mut reads, &faults[..3]);
        assert_eq!(seen, [(0, 4, Taken::All), (4, 64, Taken::All), (64, 128, Taken::Unknown)]);
        // A page touched far away starts another run.
        let mut far = faults.to_vec();
        far.push(event(1, How::Fault, 5000, 5000));
        let seen = ranges(&mut reads, &far);
        assert!(seen.iter().any(|s| s.0 == 20000), "{seen:?}");
    }

    #[test]
    fn pages_at_the_end_of_numbers_overflow_nothing() {
        let mut reads = Reads::new(4096);
        let seen = ranges(&mut reads, &[event(1, How::Read, u64::MAX, u64::MAX)]);
        assert!(seen.is_empty(), "{seen:?}");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut reads = Reads::new(4096);
        for tid in 0..3 * CALLS_MAX as u32 {
            ranges(&mut reads, &[event(tid, How::Read, 0, 15)]);
            assert!(reads.calls.len() <= CALLS_MAX);
        }
        assert!(reads.runs.is_empty() && reads.newest.is_empty());
    }
}
