//! The block layer: which of the waiting requests the drive gets next.
//!
//! - `none`: as they came.
//! - `mq-deadline` (and the deadline scheduler before it): by rising address, batch after batch of 16; a read
//!   older than 500 ms starts the next batch. A batch is of reads or of writes. Reads go first, but after two
//!   batches of reads that writes waited for, writes have one, from the oldest on if that has waited for 5 s
//!   (`block/mq-deadline.c`, `__dd_dispatch_request`). Writes of an fsync are as any.
//! - `bfq`: a queue a thread. One thread is served at a time, for up to 100 ms; when it
//!   has nothing queued the disk is kept idle for up to 8 ms if its last requests were sequential, because
//!   its next one is probably near. Threads that seek are served without waiting. This is the common core of
//!   CFQ and BFQ for threads of equal weight; BFQ's budgets in sectors, its favours for interactive threads
//!   and queue merging are left out. Writes that no program waits for have one queue, which pays three times
//!   for what it is served (`bfq_async_charge_factor`) and is never waited for. Writes of an fsync are those
//!   of its thread.
//! - `cfq`: the same as CFQ of Linux 3.2 has it: whether a thread seeks is remembered over its last 32
//!   requests, from one of its turns to the next (`seek_history`).
//! - `anticipatory`: a file of its own ([`anticipatory`]).

mod anticipatory;

use std::collections::BTreeMap;

use anticipatory::Anticipatory;
use seekless_base::Nanos;

/// Requests in one batch of the deadline scheduler (`fifo_batch`).
const BATCH: u32 = 16;
/// Age at which a read starts the next batch (`read_expire`).
const EXPIRE: Nanos = Nanos::from_millis(500);
/// Age at which a write starts the next batch of writes (`write_expire`).
const WRITE_EXPIRE: Nanos = Nanos::from_secs(5);
/// Batches of reads that writes wait for at most (`writes_starved`).
const WRITES_STARVED: u32 = 2;
/// How many times BFQ charges what no program waits for (`bfq_async_charge_factor`).
const ASYNC_CHARGE: u64 = 3;
/// How long a thread may be served in one go (`slice_sync`).
const SLICE: Nanos = Nanos::from_millis(100);
/// How long the disk is kept idle for it (`slice_idle`).
const IDLE: Nanos = Nanos::from_millis(8);
/// A request further than this from the thread's last one, in sectors, counts as a seek (`CFQQ_SEEK_THR`: 8
/// MiB in 3.x).
const SEEK_SECTORS: u64 = 8 * 100;
/// A thread seeks if more of its last 32 requests did (`CFQQ_SEEKY`).
const SEEKS_OF_32: u32 = 4;
/// Threads whose seeks are remembered. Beyond, all are forgotten: a kernel forgets a thread that ended.
const HISTORIES_MAX: usize = 1 << 16;

/// Which scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// As they came.
    #[default]
    #[serde(rename = "none")]
    None,
    /// By address, with a bound on age.
    #[serde(rename = "mq-deadline")]
    Deadline,
    /// Thread by thread.
    #[serde(rename = "bfq")]
    Fair,
    /// The same with CFQ's memory of who seeks.
    #[serde(rename = "cfq")]
    Cfq,
    /// By address, waiting a moment for the thread served last.
    #[serde(rename = "anticipatory")]
    Anticipatory,
}

impl std::str::FromStr for Kind {
    type Err = String;
    fn from_str(word: &str) -> Result<Kind, String> {
        match word {
            "none" | "noop" => Ok(Kind::None),
            "mq-deadline" | "deadline" => Ok(Kind::Deadline),
            "bfq" => Ok(Kind::Fair),
            "cfq" => Ok(Kind::Cfq),
            "anticipatory" | "as" => Ok(Kind::Anticipatory),
            _ => Err(format!(
                "`{word}` is not a scheduler the simulator knows; there are none, mq-deadline, bfq, cfq and anticipatory"
            )),
        }
    }
}

/// A waiting request, as the scheduler sees it.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// First sector.
    pub lba: u64,
    /// The sector after its last.
    pub end: u64,
    /// The thread it is for.
    pub thread: u32,
    /// When it came.
    pub since: Nanos,
    /// To the disk.
    pub write: bool,
    /// A program waits for it.
    pub sync: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Give the drive this one (index into the waiting requests, which are in order of arrival).
    Take(usize),
    /// Nothing before this time, unless something arrives.
    Wait(Nanos),
    /// Nothing.
    Idle,
}

/// The state of a scheduler.
#[derive(Clone, Debug)]
pub struct Scheduler {
    kind: Kind,
    /// Where the last read and the last write given to the drive ended.
    heads: [u64; 2],
    in_batch: u32,
    /// The batch is of writes.
    writes: bool,
    /// Batches of reads that writes have waited for.
    starved: u32,
    served: Option<Served>,
    last_thread: u32,
    anticipatory: Anticipatory,
    histories: BTreeMap<u32, History>,
}

/// Where a thread's last request began, and which of its last 32 were seeks, the newest lowest.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    last: Option<u64>,
    seeks: u32,
}

/// The thread being served.
#[derive(Clone, Copy, Debug)]
struct Served {
    thread: u32,
    until: Nanos,
    /// Where its last request ended.
    end: u64,
    seeky: bool,
    /// Idle since then.
    idle_since: Option<Nanos>,
}

impl Scheduler {
    /// A scheduler that has seen nothing.
    pub fn new(kind: Kind) -> Scheduler {
        Scheduler {
            kind,
            heads: [0; 2],
            in_batch: 0,
            writes: false,
            starved: 0,
            served: None,
            last_thread: 0,
            anticipatory: Anticipatory::default(),
            histories: BTreeMap::new(),
        }
    }

    /// Chooses among `waiting`. `busy`: commands of this disk the drive holds now.
    pub fn pick(&mut self, now: Nanos, waiting: &[Waiting], busy: usize) -> Pick {
        let pick = match self.kind {
            Kind::None if waiting.is_empty() => Pick::Idle,
            Kind::None => Pick::Take(0),
            Kind::Deadline => self.deadline(now, waiting),
            Kind::Fair | Kind::Cfq => self.fair(now, waiting, busy),
            Kind::Anticipatory => self.anticipatory.pick(now, waiting),
        };
        if let Pick::Take(i) = pick {
            self.heads[usize::from(waiting[i].write)] = waiting[i].end;
        }
        pick
    }

    /// A request has come in.
    pub fn arrived(&mut self, now: Nanos, request: &Waiting) {
        if self.kind == Kind::Anticipatory {
            self.anticipatory.arrived(now, request);
        }
        if self.kind == Kind::Cfq {
            if self.histories.len() >= HISTORIES_MAX {
                self.histories.clear();
            }
            let history = self.histories.entry(request.thread).or_default();
            let far = history.last.is_some_and(|last| last.abs_diff(request.lba) > SEEK_SECTORS);
            history.seeks = history.seeks << 1 | u32::from(far);
            history.last = Some(request.lba);
        }
    }

    /// Whether a thread is known to seek before its turn begins.
    fn seeks(&self, thread: u32) -> bool {
        self.histories.get(&thread).is_some_and(|history| history.seeks.count_ones() > SEEKS_OF_32)
    }

    /// A request of this thread is done.
    pub fn done(&mut self, now: Nanos, thread: u32) {
        if self.kind == Kind::Anticipatory {
            self.anticipatory.done(now, thread);
        }
    }

    fn deadline(&mut self, now: Nanos, waiting: &[Waiting]) -> Pick {
        if waiting.is_empty() {
            return Pick::Idle;
        }
        let there = |writes: bool| waiting.iter().any(|w| w.write == writes);
        let next = |writes: bool| {
            let head = self.heads[usize::from(writes)];
            let ahead = (0..waiting.len()).filter(|&i| waiting[i].write == writes && waiting[i].lba >= head);
            ahead.min_by_key(|&i| (waiting[i].lba, i))
        };
        if self.in_batch < BATCH
            && let Some(i) = next(self.writes)
        {
            self.in_batch += 1;
            return Pick::Take(i);
        }
        // A new batch.
        self.writes = match (there(false), there(true)) {
            (true, true) => {
                let starve = self.starved < WRITES_STARVED;
                self.starved += u32::from(starve);
                !starve
            }
            (reads, _) => !reads,
        };
        if self.writes {
            self.starved = 0;
        }
        let oldest = waiting.iter().position(|w| w.write == self.writes).unwrap_or(0);
        let expire = if self.writes { WRITE_EXPIRE } else { EXPIRE };
        let expired = waiting[oldest].since + expire <= now;
        self.in_batch = 1;
        Pick::Take(next(self.writes).filter(|_| !expired).unwrap_or(oldest))
    }

    fn fair(&mut self, now: Nanos, waiting: &[Waiting], busy: usize) -> Pick {
        if let Some(mut served) = self.served {
            let own = (0..waiting.len())
                .filter(|&i| waiting[i].thread == served.thread)
                .min_by_key(|&i| (waiting[i].lba < served.end, waiting[i].lba, i));
            match own {
                Some(i) if now < served.until => {
                    served.seeky = match self.kind {
                        Kind::Cfq => self.seeks(served.thread),
                        _ => {
                            let alone = waiting[i].write && !waiting[i].sync;
                            alone || waiting[i].lba.abs_diff(served.end) > SEEK_SECTORS
                        }
                    };
                    served.end = waiting[i].end;
                    served.idle_since = None;
                    self.served = Some(served);
                    return Pick::Take(i);
                }
                None if now < served.until && !served.seeky => {
                    if busy > 0 {
                        // Its own request is still with the drive: what it asks for next comes after that.
                        return Pick::Idle;
                    }
                    let since = *served.idle_since.get_or_insert(now);
                    self.served = Some(served);
                    if now < since + IDLE {
                        return Pick::Wait(since + IDLE);
                    }
                }
                _ => {}
            }
            self.served = None;
            self.last_thread = served.thread;
        }
        if waiting.is_empty() {
            return Pick::Idle;
        }
        // The next thread in turn.
        let turn = |t: u32| t.wrapping_sub(self.last_thread).wrapping_sub(1);
        let chosen = (0..waiting.len()).min_by_key(|&i| (turn(waiting[i].thread), waiting[i].lba, i));
        let i = chosen.unwrap_or(0);
        let w = waiting[i];
        let alone = w.write && !w.sync;
        // Nothing is waited for in the queue of what no program waits for.
        let seeky = alone || self.seeks(w.thread);
        let slice = Nanos(SLICE.0 / if alone { ASYNC_CHARGE } else { 1 });
        self.served =
            Some(Served { thread: w.thread, until: now + slice, end: w.end, seeky, idle_since: None });
        Pick::Take(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lba: u64, thread: u32, since_ms: u64) -> Waiting {
        Waiting { lba, end: lba + 8, thread, since: Nanos::from_millis(since_ms), write: false, sync: true }
    }

    fn order(kind: Kind, now_ms: u64, mut waiting: Vec<Waiting>) -> Vec<u64> {
        let mut scheduler = Scheduler::new(kind);
        let mut now = Nanos::from_millis(now_ms);
        let mut served = Vec::new();
        while !waiting.is_empty() {
            match scheduler.pick(now, &waiting, 0) {
                Pick::Take(i) => served.push(waiting.remove(i).lba),
                Pick::Wait(until) => now = until,
                Pick::Idle => panic!("something waits"),
            }
        }
        served
    }

    #[test]
    fn none_is_first_come_first_served() {
        assert_eq!(order(Kind::None, 0, vec![at(30, 1, 0), at(10, 2, 0), at(20, 3, 0)]), [30, 10, 20]);
    }

    #[test]
    fn deadline_goes_by_address_until_somebody_is_old() {
        let queue = vec![at(300, 1, 0), at(100, 2, 0), at(200, 3, 0)];
        assert_eq!(order(Kind::Deadline, 0, queue), [100, 200, 300]);
        // Twenty ahead of the head keep it going; after sixteen the oldest, which is behind, has its turn.
        let mut queue = vec![at(5, 9, 0)];
        let mut scheduler = Scheduler::new(Kind::Deadline);
        scheduler.heads[0] = 10;
        queue.extend((1..=20).map(|i| at(100 * i, 1, 600)));
        let mut served = 0;
        loop {
            let Pick::Take(i) = scheduler.pick(Nanos::from_millis(600), &queue, 0) else { panic!() };
            if queue.remove(i).lba == 5 {
                break;
            }
            served += 1;
        }
        assert_eq!(served, 16);
    }

    #[test]
    fn deadline_gives_writes_one_batch_after_two_of_reads() {
        let mut queue: Vec<Waiting> = (1..=100).map(|i| at(100 * i, 1, 0)).collect();
        let write = |lba| Waiting { write: true, sync: false, ..at(lba, 2, 0) };
        queue.extend((1..=40).map(|i| write(50_000 + 100 * i)));
        let mut scheduler = Scheduler::new(Kind::Deadline);
        let mut ops = Vec::new();
        for _ in 0..96 {
            let Pick::Take(i) = scheduler.pick(Nanos::ZERO, &queue, 0) else { panic!() };
            ops.push(queue.remove(i).write);
        }
        let turns: Vec<(bool, usize)> =
            ops.chunk_by(|a, b| a == b).map(|chunk| (chunk[0], chunk.len())).collect();
        // The first batch is nobody's choice.
        assert_eq!(turns, [(false, 48), (true, 16), (false, 32)]);
    }

    #[test]
    fn fair_gives_writeback_a_third_of_a_slice() {
        let write = |lba| Waiting { write: true, sync: false, ..at(lba, 2, 0) };
        let mut scheduler = Scheduler::new(Kind::Fair);
        let queue = [write(100), write(108), at(9_000_000, 1, 0)];
        // Thread 1 has its turn first, then writeback.
        let start = Nanos::from_millis(1);
        assert_eq!(scheduler.pick(start, &queue, 0), Pick::Take(2));
        let queue = [write(100), write(108), write(116), at(9_500_000, 3, 0)];
        let turn = start + IDLE;
        assert_eq!(scheduler.pick(start, &queue[..3], 0), Pick::Wait(turn), "thread 1 may go on");
        assert_eq!(scheduler.pick(turn, &queue, 0), Pick::Take(0));
        assert_eq!(scheduler.pick(turn, &queue[1..], 0), Pick::Take(0));
        let over = turn + Nanos(SLICE.0 / ASYNC_CHARGE);
        assert_eq!(scheduler.pick(over, &queue[2..], 0), Pick::Take(1), "another has its turn");
    }

    #[test]
    fn cfq_remembers_who_seeks_and_waits_for_nobody_who_does() {
        let mut scheduler = Scheduler::new(Kind::Cfq);
        let other = at(9_000_000, 2, 0);
        for i in 0..5 {
            scheduler.arrived(Nanos::ZERO, &at(i % 2 * 1_000_000, 1, 0));
        }
        let now = Nanos::from_millis(1);
        assert_eq!(scheduler.pick(now, &[at(0, 1, 0), other], 0), Pick::Take(0));
        assert_eq!(scheduler.pick(now, &[other], 0), Pick::Wait(now + IDLE), "four seeks are not enough");
        scheduler.arrived(now, &at(1_000_000, 1, 1));
        assert_eq!(scheduler.pick(now, &[other, at(1_000_000, 1, 1)], 0), Pick::Take(1));
        assert_eq!(scheduler.pick(now, &[other], 0), Pick::Take(0), "five are");
        for i in 0..32 {
            scheduler.arrived(now, &at(1_000_000 + 8 * i, 1, 1));
        }
        assert!(!scheduler.seeks(1), "32 requests without a seek make a sequential thread of it");
    }

    #[test]
    fn fair_waits_for_a_sequential_thread_and_then_serves_the_next() {
        let mut scheduler = Scheduler::new(Kind::Fair);
        let other = at(9_000_000, 2, 0);
        let now = Nanos::from_millis(1);
        assert_eq!(scheduler.pick(now, &[at(0, 1, 0), other], 0), Pick::Take(0));
        assert_eq!(scheduler.pick(now, &[other], 0), Pick::Wait(now + IDLE), "thread 1 may go on");
        assert_eq!(scheduler.pick(now, &[other, at(8, 1, 1)], 0), Pick::Take(1), "and does");
        assert_eq!(scheduler.pick(now, &[other], 0), Pick::Wait(now + IDLE));
        assert_eq!(scheduler.pick(now + IDLE, &[other], 0), Pick::Take(0));
    }
}
