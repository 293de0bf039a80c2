//! The daemon's side of the loop: requests, reports, and what an engine orders.

use std::ops::Range;

use seekless_base::Bytes;
use seekless_base::wants::PROGRESS_STEP;
use seekless_policy::{
    Access, Action, Demand, Event, FileId, KernelRead, LEFT_ALONE, MemoryLimit, Outcome, ReadId, Reason,
    Request, Taken, Verdict,
};

use super::{Ev, Machine, Phase};
use crate::serving::cache::{PAGE, PageState};
use crate::serving::config::Door;
use crate::serving::disk::Waiter;
use crate::serving::engine::Reading;

/// Progress of a read is told every so many pages.
const REPORT_PAGES: u64 = PROGRESS_STEP / PAGE;
/// Thread number of an engine's reads.
const ENGINE_THREAD: u32 = 2_000_000;

/// The pages that hold these bytes: first, and behind the last.
fn pages(offset: u64, len: u64) -> (u64, u64) {
    let pages = seekless_base::wants::pages(offset, offset + len);
    (pages.start, pages.end)
}

impl Machine<'_> {
    pub(super) fn engine_of(&self, disk: u32) -> u32 {
        if self.engines.len() == 1 { 0 } else { disk }
    }

    pub(super) fn place(&self, file: u32) -> (u32, usize) {
        let files = self.catalogue.videos().len() as u32;
        (file / files, (file % files) as usize)
    }

    pub(super) fn file_id(&self, file: u32) -> FileId {
        FileId { dev: u64::from(self.place(file).0), ino: u64::from(file) }
    }

    /// A shim's question arrives: what is in memory is answered, the rest goes to the disk's queue.
    pub(super) fn ask(&mut self, c: u32) {
        let k = &self.connections[c as usize];
        if k.dead {
            return self.leave(c, Phase::Idle);
        }
        let Some(engine) = &self.config.engine else { return };
        let config = &engine.policy;
        let (file, local) = (k.file, k.local);
        let Some(looked_at) = self.looked_at(c) else { return self.read(c) };
        let want = looked_at.waited_for(self.config.server.how.kind(), &config.limits());
        let (reach, at) = (want.enlarged(config.prefetch.0), want.offset());
        let pages = reach.pages();
        let absent = self.cache.first_absent(file, pages.start, pages.end);
        let resident = if absent == pages.end { reach.len() } else { (absent * PAGE).max(at) - at };
        let Some(missing) = want.missing(resident) else {
            return self.plan(self.now + self.config.costs.wake, Ev::Answer(c));
        };
        let bitrate = engine.tells_bitrates.then(|| self.catalogue.video(local as u32).bits_per_s / 8);
        let e = self.engine_of(self.clients[c as usize].disk);
        // What its thread read before was reported before it asked.
        self.ring(e);
        let id = self.engines[e as usize].request_id(c);
        let disk = self.clients[c as usize].disk as usize;
        let random = self.config.server.random && engine.door == Door::Shim;
        let request = Request {
            id,
            file: self.file_id(file),
            from: at,
            offset: missing.offset(),
            len: missing.len(),
            file_size: want.file_bytes(),
            lba: Some(self.disks[disk].lba(local, missing.offset())),
            demand: Demand { bitrate, random, ..Demand::default() },
        };
        self.tell(e, Event::Request(request));
    }

    pub(super) fn ring(&mut self, e: u32) {
        let opens = self.config.engine.as_ref().is_some_and(|engine| engine.door == Door::Observe);
        for (file, offset, len) in std::mem::take(&mut self.reports[e as usize]) {
            let (disk, local) = self.place(file);
            let access = Access {
                file: self.file_id(file),
                offset,
                len,
                file_size: self.catalogue.video(local as u32).size.0,
                lba: Some(self.disks[disk as usize].lba(local, offset)),
                taken: Taken::All,
            };
            let engine = &mut self.engines[e as usize];
            if opens {
                // No request does.
                engine.open.insert(file);
                engine.policy.handle(self.now, Event::Opened { file: access.file });
            }
            engine.policy.handle(self.now, Event::Access(access));
        }
        for (file, bytes) in std::mem::take(&mut self.misses[e as usize]) {
            let file_id = self.file_id(file);
            // A file is looked for at its head, or when a read goes on.
            let engine = &mut self.engines[e as usize];
            if bytes.start == 0 && engine.open.insert(file) {
                engine.policy.handle(self.now, Event::Opened { file: file_id });
            }
            if engine.open.contains(&file) {
                self.read_by_kernel(e, file, bytes);
            }
        }
        self.act(e);
    }

    /// Reports a read of the kernel's own.
    fn read_by_kernel(&mut self, e: u32, file: u32, bytes: Range<u64>) {
        let (disk, local) = self.place(file);
        let file_size = self.catalogue.video(local as u32).size.0;
        let (first, last) = pages(bytes.start, KernelRead::looked_at(bytes.start, file_size));
        let resident = (self.cache.first_absent(file, first, last) * PAGE).saturating_sub(bytes.start);
        let read = KernelRead::new(self.file_id(file), bytes, resident, file_size);
        let lba = Some(self.disks[disk as usize].lba(local, read.end()));
        let event = Event::ReadByKernel(KernelRead { lba, ..read });
        self.engines[e as usize].policy.handle(self.now, event);
    }

    pub(super) fn tell(&mut self, e: u32, event: Event) {
        self.engines[e as usize].policy.handle(self.now, event);
        self.act(e);
    }

    pub(super) fn act(&mut self, e: u32) {
        let mut holes = Vec::new();
        while let Some(action) = self.engines[e as usize].policy.poll_action() {
            match action {
                Action::Answer { request, verdict } => {
                    let waiting = self.engines[e as usize].pending.remove(&request);
                    debug_assert!(!matches!(verdict, Verdict::Pass(Reason::Duplicate)));
                    if let Some(disk) = self.engines[e as usize].of_file_sets.remove(&request) {
                        let came = verdict == Verdict::Resident;
                        self.plan(self.now + self.config.costs.wake, Ev::StepEnded(disk, request.0, came));
                    }
                    let shim = self.config.engine.as_ref().is_some_and(|engine| engine.door == Door::Shim);
                    if let (Some(c), Verdict::Pass(Reason::DiskOrder), true) = (waiting, verdict, shim) {
                        let process = self.process_of(c);
                        self.left_alone.insert((process, e), self.now + LEFT_ALONE);
                    }
                    if let Some(c) = waiting {
                        self.plan(self.now + self.config.costs.wake, Ev::Answer(c));
                    }
                }
                Action::Read { id, file, offset, len, .. } => {
                    let (start, end) = pages(offset, len);
                    let reading = Reading {
                        file: file.ino as u32,
                        start,
                        end,
                        at: start,
                        reported: start,
                        submitted: start,
                    };
                    self.engines[e as usize].reads.insert(id, reading);
                    self.plan(self.now + self.config.costs.wake, Ev::Read(e, id.0));
                }
                Action::Drop { file, offset, len } => {
                    let (from, to) = pages(offset, len);
                    self.cache.drop_range(file.ino as u32, from, to);
                }
                Action::Probe { file, offset, len } => {
                    let (from, to) = pages(offset, len);
                    let hole = self.cache.first_absent(file.ino as u32, from, to);
                    if hole < to {
                        let end = self.cache.first_present(file.ino as u32, hole, to);
                        let missing = (offset.max(hole * PAGE), (offset + len).min(end * PAGE));
                        holes.push(Event::Missing { file, offset: missing.0, len: missing.1 - missing.0 });
                    }
                }
                // Any file can be read here.
                Action::Close { file } => {
                    self.engines[e as usize].open.remove(&(file.ino as u32));
                }
            }
        }
        let deadline = self.engines[e as usize].policy.next_deadline();
        if let Some(at) = deadline.filter(|&at| at < self.ticks[e as usize]) {
            self.ticks[e as usize] = at;
            self.engines[e as usize].tick += 1;
            let number = self.engines[e as usize].tick;
            self.plan(at, Ev::Tick(e, number));
        }
        for hole in holes {
            self.tell(e, hole);
        }
    }

    /// The machine's memory, as the daemon reports it.
    pub(super) fn memory_of(&mut self, e: u32) -> MemoryLimit {
        let (limit, held) = (Bytes(self.budget_limit()), self.engines[e as usize].policy.memory_use());
        MemoryLimit { bytes: self.memory.report(self.now, e, limit, held), tasks_wait: false }
    }

    pub(super) fn read_begins(&mut self, e: u32, id: ReadId) {
        if let Some(&r) = self.engines[e as usize].reads.get(&id) {
            let mut from = self.cache.first_present(r.file, r.start, r.end);
            while from < r.end {
                let upto = self.cache.first_absent(r.file, from, r.end);
                self.tell(e, Event::Found { read: id, from: from * PAGE, upto: upto * PAGE });
                from = self.cache.first_present(r.file, upto, r.end);
            }
        }
        self.submit_reading(e, id);
        self.read_on(e, id);
    }

    /// Submits what may be with the disk now.
    pub(super) fn submit_reading(&mut self, e: u32, id: ReadId) {
        let window =
            self.config.engine.as_ref().and_then(|c| c.window).map_or(u64::MAX, |w| (w.0 / PAGE).max(1));
        let Some(&r) = self.engines[e as usize].reads.get(&id) else { return };
        let (disk, local) = self.place(r.file);
        let whole = self.catalogue.video(local as u32).size.0.div_ceil(PAGE);
        let upto = r.end.min(whole).min(r.at.saturating_add(window));
        let from = r.submitted.max(r.at);
        if from < upto {
            self.engines[e as usize].reads.insert(id, Reading { submitted: upto, ..r });
            self.submit(disk, r.file, local, from, upto, (ENGINE_THREAD + e, false));
        }
    }

    /// How far a read has come; waits for the first page that is not there.
    pub(super) fn read_on(&mut self, e: u32, id: ReadId) {
        while let Some(&r) = self.engines[e as usize].reads.get(&id) {
            let at = self.cache.first_not_ready(r.file, r.at, r.end);
            let told = r.start + (at - r.start) / REPORT_PAGES * REPORT_PAGES;
            self.engines[e as usize].reads.insert(id, Reading { at, reported: told.max(r.reported), ..r });
            if at == r.end {
                self.engines[e as usize].reads.remove(&id);
                return self.tell(e, Event::Done { read: id, outcome: Outcome::Ok });
            }
            if told > r.reported {
                self.tell(e, Event::Progress { read: id, upto: told * PAGE });
            }
            self.submit_reading(e, id);
            let Some(&reading) = self.engines[e as usize].reads.get(&id) else { return };
            match self.cache.state(r.file, at) {
                PageState::Coming => {
                    let disk = self.place(r.file).0;
                    let waits = self.disks[disk as usize].wait(r.file, at, Waiter::Read(e, id.0));
                    debug_assert!(waits, "a page on its way is brought by some request");
                    return;
                }
                // It has come and left. Who still needs it asks for it.
                PageState::Absent => {
                    self.engines[e as usize].reads.insert(id, Reading { at: at + 1, ..reading });
                }
                PageState::Ready => {}
            }
        }
    }
}
