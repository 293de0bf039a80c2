//! The service of one disk: requests enter the drive model when they arrive and are answered at the model's
//! time.
//!
//! FUSE threads [`submit`](DriveEngine::submit); one service thread sleeps until the model's next completion
//! and answers. Requests are decided and timed on the drive's own time line, so waking up late delays an
//! answer but never slows the drive. Requests that do not fit into the model's bounded command queue wait
//! outside in order of arrival, as in a host adapter; their number is bounded by FUSE.
//!
//! In unthrottled mode, for population and for dismantling, requests are answered at once and no time passes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use seekless_base::{Lba, Nanos, SECTOR_BYTES};
use seekless_model::drive::set::SetCompletion;
use seekless_model::drive::spread::Layout;
use seekless_model::drive::{Command, Completion, Op};

use crate::clock::Clock;
use crate::faults::{Faults, MemberOrders, MemberState};
use crate::mechanism::Mechanism;
use crate::stats::{Counter, MemberReport, Stats};
use crate::trace::Trace;

/// Called when a request is answered, with its success, or failure with EIO.
pub type Finish = Box<dyn FnOnce(bool) + Send>;

/// The drive at work.
pub struct DriveEngine {
    core: Mutex<Core>,
    /// Signalled when the service thread must check earlier than planned.
    look: Condvar,
    epoch: Instant,
}

struct Core {
    drives: Mechanism,
    clock: Clock,
    layout: Layout,
    faults: Faults,
    counter: Counter,
    trace: Trace,
    requests: HashMap<u64, KernelRequest>,
    commands: HashMap<u64, DriveCommand>,
    /// Commands the model's queue has no room for, oldest first.
    waiting: VecDeque<Command>,
    /// A completion that is held back while drive time stands still, because its command is slowed.
    held: Option<SetCompletion>,
    /// The drives' time for writes when the counters were reset.
    write_time_before: Nanos,
    next_id: u64,
    /// Times handed to the model never go backwards.
    submitted: Nanos,
    /// Number of open holds of unthrottled mode, and the wall time of the first.
    unthrottled: u32,
    unthrottled_since: Nanos,
    /// When the service thread will check by itself.
    planned: Nanos,
    stopping: bool,
}

/// One request of the kernel.
struct KernelRequest {
    parts: u32,
    failed: bool,
    finish: Finish,
}

/// One command to the drive: a request, or the part of it that lies in one chunk.
struct DriveCommand {
    request: u64,
    disk: Lba,
    /// Drive time of arrival. For a command that had to wait outside the model, this is before the model's
    /// own.
    arrived: Nanos,
    queue: usize,
    factor: f64,
}

impl DriveEngine {
    /// An idle drive, or a set of them, with `layout`, running `speed` times as fast as real time.
    pub fn new(drives: impl Into<Mechanism>, layout: Layout, speed: f64, trace: Trace) -> DriveEngine {
        let core = Core {
            drives: drives.into(),
            clock: Clock::new(speed),
            layout,
            faults: Faults::default(),
            counter: Counter::default(),
            trace,
            requests: HashMap::new(),
            commands: HashMap::new(),
            waiting: VecDeque::new(),
            held: None,
            write_time_before: Nanos::ZERO,
            next_id: 0,
            submitted: Nanos::ZERO,
            unthrottled: 0,
            unthrottled_since: Nanos::ZERO,
            planned: Nanos::MAX,
            stopping: false,
        };
        DriveEngine { core: Mutex::new(core), look: Condvar::new(), epoch: Instant::now() }
    }

    // A panic inside the lock ends the whole process (see `worker`), so poison is never met.
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wall(&self) -> Nanos {
        Nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// A request for `len` bytes at `offset` of the disk. `finish` runs when the drive has done it: on this
    /// thread in unthrottled mode, else on the service thread.
    pub fn submit(&self, op: Op, offset: u64, len: u64, finish: Finish) {
        let mut core = self.lock();
        let nothing = if op == Op::Flush { !core.drives.caches_writes() } else { len == 0 };
        if core.unthrottled > 0 || nothing {
            core.counter.unthrottled(len);
            let ok = !core.faults.fails(&(offset..offset + len));
            drop(core);
            return finish(ok);
        }
        let wall = self.wall();
        core.arrive(wall, op, offset, len, finish);
        if core.next_look() < core.planned {
            self.look.notify_one();
        }
    }

    /// Whether an injected fault makes a request for these bytes fail.
    pub fn fails(&self, offset: u64, len: u64) -> bool {
        self.lock().faults.fails(&(offset..offset + len))
    }

    /// Answers requests until [`stop`](DriveEngine::stop): the body of the service thread.
    pub fn serve(&self) {
        // By default a sleeping thread is woken up to 50 us late, so that wake-ups can be bundled; a disk is
        // not late.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        // Its priority is above that of the programs that use it. Without that right it is delayed by them,
        // which shows in latency at low queue depths, not in the drive's throughput.
        let _ = seekless_kernel::sched::run_first();
        let mut done = Vec::new();
        let mut core = self.lock();
        loop {
            core.collect(self.wall(), &mut done);
            if !done.is_empty() {
                drop(core);
                for (finish, ok) in done.drain(..) {
                    finish(ok);
                }
                core = self.lock();
                continue;
            }
            if core.stopping {
                core.trace.flush();
                return;
            }
            let look = core.next_look();
            core.planned = look;
            if look == Nanos::MAX {
                core.trace.flush();
                core = self.look.wait(core).unwrap_or_else(|e| e.into_inner());
            } else {
                let left = Duration::from_nanos(look.since(self.wall()).0);
                core = self.look.wait_timeout(core, left).unwrap_or_else(|e| e.into_inner()).0;
            }
            core.planned = Nanos::ZERO;
        }
    }

    /// Ends [`serve`](DriveEngine::serve). Unanswered requests are dropped, which answers them with an error.
    pub fn stop(&self) {
        let mut core = self.lock();
        core.stopping = true;
        let dropped: Vec<KernelRequest> = core.requests.drain().map(|(_, r)| r).collect();
        core.commands.clear();
        self.look.notify_one();
        drop(core);
        drop(dropped);
    }

    /// Opens (`true`) or closes one hold of unthrottled mode. Opening it answers all requests in progress.
    pub fn unthrottle(&self, on: bool) {
        let mut done = Vec::new();
        {
            let mut core = self.lock();
            let wall = self.wall();
            if on {
                core.unthrottled += 1;
                if core.unthrottled == 1 {
                    core.run_dry(wall, &mut done);
                    core.unthrottled_since = wall;
                }
            } else if core.unthrottled > 0 {
                core.unthrottled -= 1;
                if core.unthrottled == 0 {
                    let span = core.clock.drive_at(wall) - core.clock.drive_at(core.unthrottled_since);
                    core.counter.leave_out(span);
                }
            }
        }
        for (finish, ok) in done {
            finish(ok);
        }
    }

    /// The drive does nothing for this long on the wall, then goes on.
    pub fn hang(&self, span: Duration) {
        let mut core = self.lock();
        let wall = self.wall();
        let (now, until) = (core.clock.drive_at(wall), wall + Nanos(span.as_nanos() as u64));
        core.clock.stall(now, until);
    }

    /// Faults for members of the set; all of them are repaired first with `mend`.
    ///
    /// # Errors
    /// Errors of the set.
    pub fn change_members(&self, mend: bool, orders: &MemberOrders) -> Result<Vec<MemberState>, String> {
        let mut core = self.lock();
        let now = core.clock.drive_at(self.wall());
        let Some(set) = core.drives.set_mut() else {
            let none = *orders == MemberOrders::default();
            return if none {
                Ok(Vec::new())
            } else {
                Err("a disk of the second model has no members".into())
            };
        };
        if mend {
            for member in 0..set.layout().spec().members {
                set.mend(now, member).map_err(|e| e.to_string())?;
            }
        }
        let changed = orders.apply(set, now);
        let states = MemberState::of(set);
        // There may be a request to answer, or a rebuild to begin.
        self.look.notify_one();
        changed.map(|()| states)
    }

    /// Every member of a set and the counters of its spindles; empty for a single drive.
    pub fn members(&self, reset: bool) -> Vec<MemberReport> {
        let mut core = self.lock();
        let now = core.clock.drive_at(self.wall());
        let Some(drives) = core.drives.set_mut() else { return Vec::new() };
        let set = *drives.layout().spec();
        if set.is_single() {
            return Vec::new();
        }
        let stats = drives.stats(now);
        let each = stats.chunks(set.actuators as usize);
        let states = MemberState::of(drives);
        let report = states
            .into_iter()
            .zip(each)
            .map(|(state, spindles)| MemberReport { state, spindles: spindles.to_vec() });
        let report = report.collect();
        if reset {
            drives.reset_stats(now);
        }
        report
    }

    /// Changes the faults. `end_hang` ends a current hang.
    pub fn change_faults(&self, end_hang: bool, change: impl FnOnce(&mut Faults)) -> Faults {
        let mut core = self.lock();
        change(&mut core.faults);
        if end_hang {
            core.clock.resume(self.wall());
            self.look.notify_one();
        }
        core.faults.clone()
    }

    /// The counters; `reset` sets them to zero afterwards.
    pub fn stats(&self, reset: bool) -> Stats {
        let mut core = self.lock();
        let now = core.clock.drive_at(self.wall());
        let mut since = core.counter.read(now);
        since.write_ns = core.drives.write_time().0.saturating_sub(core.write_time_before.0);
        if core.unthrottled > 0 {
            // The hold of unthrottled mode that is still open does not count either.
            let span = now - core.clock.drive_at(core.unthrottled_since);
            since.elapsed_ns = since.elapsed_ns.saturating_sub(span.0);
            since.idle_ns = since.idle_ns.saturating_sub(span.0);
        }
        if reset {
            core.counter.reset(now);
            core.write_time_before = core.drives.write_time();
            core.unthrottled_since = self.wall();
        }
        core.trace.flush();
        since
    }

    /// Starts a new trace, or ends the current one.
    pub fn set_trace(&self, trace: Trace) {
        let mut core = self.lock();
        core.trace.flush();
        core.trace = trace;
    }
}

impl Core {
    fn arrive(&mut self, wall: Nanos, op: Op, offset: u64, len: u64, finish: Finish) {
        let request = self.next_id;
        self.next_id += 1;
        let failed = self.faults.fails(&(offset..offset + len));
        let (mut parts, mut at) = (0, offset);
        self.submitted = self.submitted.max(self.clock.drive_at(wall));
        // A flush is one command, of no place.
        let flush = (op == Op::Flush).then_some((Lba(0), 0));
        for (lba, sectors) in self.layout.pieces(offset, len).chain(flush) {
            let id = self.next_id;
            self.next_id += 1;
            let bytes = u64::from(sectors) * SECTOR_BYTES;
            let queue = self.commands.len() + 1;
            self.counter.arrived(queue);
            let factor = self.faults.factor(&(at..at + bytes));
            let disk = Lba(at / SECTOR_BYTES);
            self.commands.insert(id, DriveCommand { request, disk, arrived: self.submitted, queue, factor });
            let command = Command { id, op, lba, sectors };
            // First come, first served: no command overtakes those that already wait.
            if !self.waiting.is_empty() || self.drives.submit(self.submitted, command).is_err() {
                self.waiting.push_back(command);
            }
            parts += 1;
            at += bytes;
        }
        self.requests.insert(request, KernelRequest { parts, failed, finish });
    }

    /// When the next answer is due: wall time, `MAX` if nothing is in progress.
    fn next_look(&mut self) -> Nanos {
        if self.held.is_some() {
            return self.clock.resumes_at();
        }
        self.drives.next_event().map_or(Nanos::MAX, |at| self.clock.wall_at(at))
    }

    /// Moves requests that are due at `wall` into `done`.
    fn collect(&mut self, wall: Nanos, done: &mut Vec<(Finish, bool)>) {
        while !self.clock.stalled(wall) {
            if let Some(held) = self.held.take() {
                self.complete(&held, done);
                continue;
            }
            let Some(c) = self.drives.poll(self.clock.drive_at(wall)) else { return };
            let factor = self.commands.get(&c.done.id).map_or(1.0, |p| p.factor);
            if factor > 1.0 {
                // The drive stands still from the end of the command for its additional time.
                let ends = self.clock.wall_at(c.done.finished);
                let whole = ends.since(self.clock.wall_at(c.done.started)).0;
                self.clock.stall(c.done.finished, ends + Nanos((whole as f64 * (factor - 1.0)) as u64));
                self.held = Some(c);
            } else {
                self.complete(&c, done);
            }
        }
    }

    /// All commands in progress are done at once; drive time jumps to their end.
    fn run_dry(&mut self, wall: Nanos, done: &mut Vec<(Finish, bool)>) {
        self.clock.resume(wall);
        if let Some(held) = self.held.take() {
            self.complete(&held, done);
        }
        // A rebuild also continues after the last command.
        while self.drives.queue_len() > 0
            && let Some(at) = self.drives.next_event()
        {
            self.clock.advance(wall, at);
            while let Some(c) = self.drives.poll(at) {
                self.complete(&c, done);
            }
        }
    }

    fn complete(&mut self, c: &SetCompletion, done: &mut Vec<(Finish, bool)>) {
        let (c, lost) = (&c.done, c.failed);
        self.submitted = self.submitted.max(c.finished);
        while let Some(command) = self.waiting.front() {
            if self.drives.submit(self.submitted, *command).is_err() {
                break;
            }
            self.waiting.pop_front();
        }
        let oldest = self.commands.values().map(|p| p.arrived).min().unwrap_or(c.arrived);
        let Some(part) = self.commands.remove(&c.id) else { return };
        let Some(request) = self.requests.get_mut(&part.request) else { return };
        request.parts -= 1;
        request.failed |= lost;
        let (last, failed) = (request.parts == 0, request.failed);
        let c = Completion { arrived: part.arrived, ..*c };
        self.counter.completed(&c, oldest, failed);
        self.trace.record(&c, part.queue, part.disk);
        if last && let Some(request) = self.requests.remove(&part.request) {
            done.push((request.finish, !failed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_model::drive::catalogue;
    use seekless_model::drive::set::{DriveSet, Health, SetKind, SetSpec};
    use seekless_model::drive::spread::Spread;
    use std::sync::Arc;
    use std::sync::mpsc;

    const SIZE: u64 = 1 << 30;

    /// An engine a thousand times as fast as life, and its service thread.
    fn engine() -> (Arc<DriveEngine>, std::thread::JoinHandle<()>) {
        engine_of(SetSpec::SINGLE)
    }

    fn engine_of(set: SetSpec) -> (Arc<DriveEngine>, std::thread::JoinHandle<()>) {
        let drives = DriveSet::new(&catalogue::get("wd-red-1tb").unwrap(), set).unwrap();
        let layout = Layout::new(SIZE, drives.sectors(), Spread::FULL, 1 << 20).unwrap();
        let engine = Arc::new(DriveEngine::new(drives, layout, 1000.0, Trace::off()));
        let service = Arc::clone(&engine);
        (engine, std::thread::spawn(move || service.serve()))
    }

    fn submit(engine: &DriveEngine, offset: u64, len: u64, id: u64, tell: &mpsc::Sender<(u64, bool)>) {
        let tell = tell.clone();
        engine.submit(Op::Read, offset, len, Box::new(move |ok| tell.send((id, ok)).unwrap()));
    }

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn more_than_the_drive_queues_is_all_answered_once() {
        let (engine, service) = engine();
        engine.change_faults(false, |f| f.eio.push("0+4KiB".parse().unwrap()));
        let (tell, told) = mpsc::channel();
        // The drive stands still until all of them are there, however slow this thread is.
        engine.hang(SOON);
        // Twenty times the drive's queue; each request lies across two chunks, so it is two commands.
        for i in 0..640 {
            submit(&engine, i * (1 << 20), (1 << 20) + 4096, i, &tell);
        }
        engine.change_faults(true, |_| ());
        let mut seen = vec![0; 640];
        for _ in 0..640 {
            let (id, ok) = told.recv_timeout(SOON).unwrap();
            seen[id as usize] += 1;
            assert_eq!(ok, id != 0, "only the request on the bad range fails");
        }
        assert!(seen.iter().all(|n| *n == 1));
        let stats = engine.stats(true);
        assert_eq!((stats.reads, stats.read_bytes), (1280, 640 * ((1 << 20) + 4096)));
        assert!(stats.errors >= 1 && stats.queue_max > 32, "{stats:?}");
        assert_eq!(stats.busy_ns + stats.idle_ns, stats.elapsed_ns);
        assert_eq!(engine.stats(false).reads, 0, "zero after the reset");
        engine.stop();
        service.join().unwrap();
    }

    #[test]
    fn the_second_model_answers_everything_once_and_has_no_members() {
        let sheet = crate::mechanism::data_sheet(&catalogue::get("wd-red-1tb").unwrap());
        let platter = Mechanism::Platter(Box::new(seekless_model::platter::Platter::new(&sheet).unwrap()));
        let layout = Layout::new(SIZE, platter.sectors(), Spread::FULL, 1 << 20).unwrap();
        let engine = Arc::new(DriveEngine::new(platter, layout, 1000.0, Trace::off()));
        let service = Arc::clone(&engine);
        let service = std::thread::spawn(move || service.serve());
        let (tell, told) = mpsc::channel();
        engine.hang(SOON);
        for i in 0..200 {
            submit(&engine, i * (4 << 20), 1 << 20, i, &tell);
        }
        engine.change_faults(true, |_| ());
        let mut ids: Vec<u64> = (0..200).map(|_| told.recv_timeout(SOON).unwrap().0).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..200).collect::<Vec<_>>());
        let stats = engine.stats(false);
        assert_eq!(stats.read_bytes, 200 << 20);
        assert!(stats.queue_max > 32 && stats.seek_ns > 0 && stats.rotation_ns > 0, "{stats:?}");
        assert!(engine.members(false).is_empty());
        let fail = MemberOrders { fail: vec![0], ..MemberOrders::default() };
        assert!(engine.change_members(false, &fail).unwrap_err().contains("no members"));
        engine.stop();
        service.join().unwrap();
    }

    #[test]
    fn a_set_answers_everything_whatever_becomes_of_its_members() {
        let set = SetSpec { kind: SetKind::Raid5, members: 4, ..SetSpec::SINGLE };
        let (engine, service) = engine_of(set);
        let (tell, told) = mpsc::channel();
        let lost = || {
            for i in 0..200 {
                submit(&engine, i * (4 << 20), 1 << 20, i, &tell);
            }
            (0..200).filter(|_| !told.recv_timeout(SOON).unwrap().1).count()
        };
        assert_eq!(lost(), 0);
        let members = engine.members(true);
        assert!(members.len() == 4 && members.iter().all(|m| m.spindles[0].reads > 0), "{members:?}");
        let order = |slow: &[&str], fail: &[u32], rebuild: &[u32]| MemberOrders {
            slow: slow.iter().map(|s| s.parse().unwrap()).collect(),
            fail: fail.to_vec(),
            rebuild: rebuild.to_vec(),
        };
        let states = engine.change_members(false, &order(&["1,3"], &[2], &[])).unwrap();
        assert_eq!(states.iter().map(MemberState::is_fault).collect::<Vec<_>>(), [false, true, true, false]);
        assert_eq!(lost(), 0);
        let reads = engine.members(true)[2].spindles[0].reads;
        assert_eq!(reads, 0, "a failed member is not touched");
        engine.change_members(false, &order(&[], &[3], &[])).unwrap();
        // Chunks on the two that are left can still be read.
        assert!((1..200).contains(&lost()));
        engine.change_members(true, &order(&[], &[], &[2])).unwrap();
        assert_eq!(lost(), 0);
        let wait = Instant::now();
        while engine.members(false)[2].spindles[0].rebuild_bytes == 0 {
            assert!(wait.elapsed() < SOON, "the rebuild goes on while nothing is asked");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(engine.change_members(false, &order(&[], &[4], &[])).unwrap_err().contains("0 to 3"));
        let health = engine.lock().drives.set().unwrap().health()[2];
        assert!(matches!(health, Health::Rebuilding(upto) if upto > 0));
        engine.change_members(true, &MemberOrders::default()).unwrap();
        // Unthrottled mode answers everything, even with a rebuild in progress.
        engine.change_members(false, &order(&[], &[], &[0])).unwrap();
        submit(&engine, 0, 1 << 20, 1, &tell);
        engine.unthrottle(true);
        assert!(told.recv_timeout(SOON).unwrap().1);
        engine.stop();
        service.join().unwrap();
    }

    #[test]
    fn unthrottled_mode_lets_go_of_what_hangs_and_takes_no_time() {
        let (engine, service) = engine();
        engine.hang(Duration::from_secs(36_000));
        let (tell, told) = mpsc::channel();
        submit(&engine, 0, 4096, 1, &tell);
        assert!(told.recv_timeout(Duration::from_millis(20)).is_err(), "it hangs");
        engine.unthrottle(true);
        assert_eq!(told.recv_timeout(SOON), Ok((1, true)));
        let before = engine.stats(true).reads;
        submit(&engine, 4096, 1 << 20, 2, &tell);
        assert_eq!(told.try_recv(), Ok((2, true)), "answered on the spot");
        let stats = engine.stats(false);
        assert_eq!((before, stats.reads, stats.unthrottled_bytes), (1, 0, 1 << 20));
        engine.unthrottle(false);
        submit(&engine, 0, 4096, 3, &tell);
        assert_eq!(told.recv_timeout(SOON), Ok((3, true)), "and in time again");
        assert_eq!(engine.stats(false).reads, 1);
        engine.stop();
        service.join().unwrap();
    }

    #[test]
    fn slowness_is_drive_time_standing_still() {
        let (engine, service) = engine();
        engine.change_faults(false, |f| f.slow.push("20000".parse().unwrap()));
        let (tell, told) = mpsc::channel();
        let start = Instant::now();
        submit(&engine, SIZE / 2, 65536, 1, &tell);
        assert_eq!(told.recv_timeout(SOON), Ok((1, true)));
        // Over 10 ms of seek and half the bytes of a track, a thousandth of that in our time, 20,000 times
        // that.
        assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
        let stats = engine.stats(false);
        assert!(stats.busy_ns < 100_000_000, "the model's own time does not change: {stats:?}");
        // `--clear` releases a command that is being slowed.
        submit(&engine, 0, 65536, 2, &tell);
        engine.change_faults(true, |f| *f = Faults::default());
        assert_eq!(told.recv_timeout(SOON), Ok((2, true)));
        engine.stop();
        service.join().unwrap();
    }
}
