//! The block scheduler between the lowest cache and the disk: deadline, as in Linux since 2.6.
//!
//! Requests wait sorted by address and are served in one direction (C-LOOK). A request that continues or
//! precedes a waiting one is merged with it. Every request has half a second; after each batch of 16, the
//! oldest is served next if its time has passed, so that nothing starves beside a busy region. (Linux's
//! `deadline` defaults: `read_expire` 500 ms, `fifo_batch` 16; merged requests of at most 512 KiB,
//! `max_sectors_kb` of that time.) PFC used "an I/O scheduler that imitates I/O scheduling in Linux kernel
//! 2.6", without details.
//!
//! Reads and writes wait in separate queues and are served in batches of one kind ([`Turns`]). A write has
//! five seconds, and writes wait for two batches of reads at most (`write_expire`, `writes_starved`).

use std::collections::{BTreeMap, VecDeque};

use seekless_base::Nanos;

/// Maximum time a read waits before it is served first.
const READ_EXPIRE: Nanos = Nanos::from_millis(500);
/// The same for a write.
const WRITE_EXPIRE: Nanos = Nanos::from_secs(5);
/// Number of requests served in address order between two checks of the oldest.
const FIFO_BATCH: u32 = 16;
/// Maximum number of batches of reads that writes wait for.
const WRITES_STARVED: u32 = 2;

/// One request to the disk, in blocks of disk address, made of one or more fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskRequest {
    pub(super) first: u64,
    pub(super) last: u64,
    /// First of its fetches; the engine chains the others.
    pub(super) fetches: u32,
    expires: Nanos,
    seq: u64,
    apart: bool,
}

/// The result of submitting a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// It waits as a request of its own.
    Alone,
    /// It joined a waiting request, whose first fetch this was.
    Merged(u32),
}

/// Requests of one kind.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    sorted: BTreeMap<(u64, u64), DiskRequest>,
    /// Requests by age: address key and expiry. Entries of merged or served requests are skipped.
    by_age: VecDeque<((u64, u64), Nanos)>,
    position: u64,
    batch: u32,
    seq: u64,
    merge_blocks_max: u64,
    expire: Nanos,
}

impl Deadline {
    /// A queue of reads.
    pub(super) fn new(merge_blocks_max: u64) -> Deadline {
        Deadline { merge_blocks_max, expire: READ_EXPIRE, ..Deadline::default() }
    }

    /// A queue of writes.
    pub(super) fn of_writes(merge_blocks_max: u64) -> Deadline {
        Deadline { expire: WRITE_EXPIRE, ..Deadline::new(merge_blocks_max) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Whether the next request begins a batch.
    pub(super) fn begin_batch(&mut self) {
        self.batch = FIFO_BATCH;
    }

    /// Adds a fetch of blocks `first..=last`. If it merges, the caller chains it behind the returned fetch.
    /// One that is `apart` merges only with others that are, unless there is a backlog.
    pub(super) fn push(
        &mut self,
        now: Nanos,
        (first, last): (u64, u64),
        fetch: u32,
        apart: bool,
        backlog: bool,
    ) -> Queued {
        // Back merge: a waiting request that ends just before this one.
        let before = self.sorted.range(..(first, 0)).next_back().map(|(key, request)| (*key, *request));
        if let Some((key, request)) = before
            && request.last + 1 == first
            && (backlog || request.apart == apart)
            && last - request.first < self.merge_blocks_max
            && let Some(waiting) = self.sorted.get_mut(&key)
        {
            waiting.last = last;
            return Queued::Merged(request.fetches);
        }
        // Front merge: one that begins just behind it.
        let after = self.sorted.range((last + 1, 0)..=(last + 1, u64::MAX)).next().map(|(key, r)| (*key, *r));
        if let Some((key, request)) = after
            && (backlog || request.apart == apart)
            && request.last - first < self.merge_blocks_max
        {
            self.sorted.remove(&key);
            let merged = DiskRequest { first, ..request };
            self.sorted.insert((first, request.seq), merged);
            self.by_age.push_back(((first, request.seq), request.expires));
            return Queued::Merged(request.fetches);
        }
        self.seq += 1;
        let expires = now + self.expire;
        let key = (first, self.seq);
        self.sorted.insert(key, DiskRequest { first, last, fetches: fetch, expires, seq: self.seq, apart });
        self.by_age.push_back((key, expires));
        Queued::Alone
    }

    /// The next request.
    pub(super) fn pop(&mut self, now: Nanos) -> Option<DiskRequest> {
        if self.batch >= FIFO_BATCH {
            self.batch = 0;
            while let Some((key, expires)) = self.by_age.front().copied() {
                if !self.sorted.contains_key(&key) {
                    self.by_age.pop_front();
                } else if expires <= now {
                    return self.take(key);
                } else {
                    break;
                }
            }
        }
        let next = self.sorted.range((self.position, 0)..).next().or_else(|| self.sorted.iter().next());
        let key = *next?.0;
        self.take(key)
    }

    fn take(&mut self, key: (u64, u64)) -> Option<DiskRequest> {
        let request = self.sorted.remove(&key)?;
        self.position = request.last + 1;
        self.batch += 1;
        if self.sorted.is_empty() {
            self.by_age.clear();
        }
        Some(request)
    }
}

/// Which kind is served next.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Whether the batch is of writes.
    writes: bool,
    served: u32,
    /// Number of batches of reads that writes have waited for.
    starved: u32,
}

impl Turns {
    /// Whether the next request is a write, if both kinds may wait.
    pub(super) fn next_is_write(&mut self, reads: &mut Deadline, writes: &mut Deadline) -> bool {
        if reads.is_empty() && writes.is_empty() {
            return self.writes;
        }
        let waits = if self.writes { !writes.is_empty() } else { !reads.is_empty() };
        if self.served < FIFO_BATCH && waits {
            self.served += 1;
            return self.writes;
        }
        let turn = match (reads.is_empty(), writes.is_empty()) {
            (false, false) => self.starved >= WRITES_STARVED,
            (no_reads, _) => no_reads,
        };
        self.starved = if turn || writes.is_empty() { 0 } else { self.starved + 1 };
        if turn != self.writes {
            if turn { writes.begin_batch() } else { reads.begin_batch() }
        }
        (self.writes, self.served) = (turn, 1);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_have_one_batch_after_two_of_reads() {
        let (mut reads, mut writes, mut turns) = (Deadline::new(1), Deadline::of_writes(1), Turns::default());
        for i in 0..100 {
            reads.push(Nanos::ZERO, (10 * i, 10 * i), 1, false, false);
            writes.push(Nanos::ZERO, (50_000 + 10 * i, 50_000 + 10 * i), 2, false, true);
        }
        let mut next = || {
            let write = turns.next_is_write(&mut reads, &mut writes);
            if write { writes.pop(Nanos::ZERO) } else { reads.pop(Nanos::ZERO) }.unwrap();
            write
        };
        let ops: Vec<bool> = (0..112).map(|_| next()).collect();
        let batches: Vec<(bool, usize)> = ops.chunk_by(|a, b| a == b).map(|c| (c[0], c.len())).collect();
        // The first batch began before any write waited.
        assert_eq!(batches, [(false, 48), (true, 16), (false, 32), (true, 16)]);
    }

    fn firsts(d: &mut Deadline, now: Nanos) -> Vec<u64> {
        std::iter::from_fn(|| d.pop(now)).map(|r| r.first).collect()
    }

    #[test]
    fn one_direction_then_round() {
        let mut d = Deadline::new(128);
        d.push(Nanos::ZERO, (50, 50), 1, false, false);
        assert_eq!(firsts(&mut d, Nanos::ZERO), [50]);
        for first in [10, 90, 30, 70] {
            d.push(Nanos::ZERO, (first, first), 1, false, false);
        }
        assert_eq!(firsts(&mut d, Nanos::ZERO), [70, 90, 10, 30]);
    }

    #[test]
    fn neighbours_merge_up_to_the_limit() {
        let mut d = Deadline::new(8);
        assert_eq!(d.push(Nanos::ZERO, (10, 13), 1, false, false), Queued::Alone);
        assert_eq!(d.push(Nanos::ZERO, (14, 15), 2, false, false), Queued::Merged(1));
        assert_eq!(d.push(Nanos::ZERO, (8, 9), 3, false, false), Queued::Merged(1));
        assert_eq!(d.push(Nanos::ZERO, (16, 16), 4, false, false), Queued::Alone);
        let r = d.pop(Nanos::ZERO).unwrap();
        assert_eq!((r.first, r.last, r.fetches), (8, 15, 1));
    }

    #[test]
    fn an_expired_request_goes_first_after_a_batch() {
        let mut d = Deadline::new(1);
        d.push(Nanos::ZERO, (5, 5), 1, false, false);
        d.position = 1000;
        for i in 0..40 {
            d.push(Nanos::from_millis(400), (1000 + 2 * i, 1000 + 2 * i), 2, false, false);
        }
        let order = firsts(&mut d, Nanos::from_millis(501));
        assert_eq!(order[16], 5);
        assert_eq!(order.len(), 41);
    }
}
