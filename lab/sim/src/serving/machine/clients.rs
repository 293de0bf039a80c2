//! The clients' side of the loop: which become due, what has arrived, which give up.

use seekless_base::Nanos;
use seekless_model::workload::closed::{OtherDisks, RangeRequest};
use seekless_model::workload::handler::Step;

use super::node::ClientEvent;
use super::{Connection, Ev, Machine, Phase};
use crate::serving::cache::PAGE;
use crate::serving::client::{Client, Kind, Link};
use crate::serving::config::Load;
use crate::serving::readahead::OpenFile;
use crate::serving::record::Known;

impl<'a> Machine<'a> {
    pub(super) fn admit(&mut self, kind: Kind<'a>, disk: u32, delay: Nanos, link: Option<u64>) -> u32 {
        let client = Client { kind, disk, due: Nanos::ZERO, delay };
        let connection = Connection {
            phase: Phase::Idle,
            pool: 0,
            thread: 0,
            serial: 0,
            file: 0,
            local: 0,
            size: 0,
            steps: Vec::new().into_iter(),
            at: 0,
            end: 0,
            answer: 0,
            known: Known::default(),
            at_head: false,
            call_start: 0,
            call_end: 0,
            look_end: 0,
            host_call: None,
            call_began: Nanos::ZERO,
            turn_start: 0,
            reach: 0,
            page: 0,
            unit_end: 0,
            pread: None,
            files: vec![OpenFile::default()],
            open: 0,
            link: Link::new(link),
            dead: false,
        };
        let c = match self.free.pop() {
            Some(c) => {
                // A name used before: answers to its former holder stay stale.
                let serial = self.connections[c as usize].serial;
                self.clients[c as usize] = client;
                self.connections[c as usize] = Connection { serial, ..connection };
                c
            }
            None => {
                self.clients.push(client);
                self.connections.push(connection);
                (self.clients.len() - 1) as u32
            }
        };
        self.connections[c as usize].pool = c % self.pools.len() as u32;
        self.live += 1;
        self.record.sessions.at_once_max = self.record.sessions.at_once_max.max(self.live);
        c
    }

    pub(super) fn next_session(&mut self, disk: u32) {
        let Load::Sessions { classes, .. } = &self.config.load else { return };
        let Some(session) = self.sessions[disk as usize].next() else { return };
        if session.start > self.config.length {
            return;
        }
        let class = &classes[session.class as usize];
        let kind = Kind::Session { session, next: session.first, measured: false };
        // Known from now on, though it asks for nothing before its start.
        let c = self.admit(kind, disk, class.delay, class.link_bits_per_s);
        self.live -= 1;
        self.connections[c as usize].dead = false;
        self.clients[c as usize].due = session.start;
        self.plan(session.start, Ev::Session(disk));
        self.plan(session.start, Ev::Due(c));
    }

    /// A session begins: count it and plan the next.
    pub(super) fn session(&mut self, disk: u32) {
        self.record.sessions.started += 1;
        self.live += 1;
        self.record.sessions.at_once_max = self.record.sessions.at_once_max.max(self.live);
        self.next_session(disk);
    }

    /// Plans what a client asks for next; `done`: when it had the last.
    pub(super) fn next_request(&mut self, c: u32, done: Nanos) {
        match self.clients[c as usize].kind {
            Kind::Balanced => {
                if let Some(node) = &mut self.node {
                    node.client_events.push(ClientEvent::Answered(c));
                }
            }
            Kind::Closed(_) | Kind::Handler(_) | Kind::Tree(_) | Kind::Diff(_) => {
                self.clients[c as usize].due = done;
                self.plan(done, Ev::Due(c));
            }
            Kind::Session { session, next, .. } => {
                if next >= session.end {
                    self.record.sessions.completed += 1;
                    self.retire(c);
                    return;
                }
                let due = match session.due(next) {
                    seekless_model::workload::session::Due::At(at) => at,
                    seekless_model::workload::session::Due::AfterPrevious => done,
                };
                self.clients[c as usize].due = due;
                // A segment that is due while the one before still comes waits for it.
                self.plan(due.max(done), Ev::Due(c));
            }
        }
    }

    /// Whether the client has left the disk that is read once.
    fn has_left(&self, c: u32) -> bool {
        let once = matches!(self.config.load, Load::Closed { other_disks: OtherDisks::ReadOnce, .. });
        once && self.clients[c as usize].disk > 0 && self.now >= OtherDisks::READ_FOR
    }

    pub(super) fn due(&mut self, c: u32) {
        if self.has_left(c) {
            return self.retire(c);
        }
        let catalogue = self.catalogue;
        let client = &mut self.clients[c as usize];
        let due = client.due;
        let Some((_, steps)) = client.next(catalogue, due) else {
            if matches!(self.clients[c as usize].kind, Kind::Tree(_) | Kind::Diff(_)) {
                self.working -= 1;
                self.retire(c);
            }
            return;
        };
        let client = &mut self.clients[c as usize];
        if let Kind::Session { measured, .. } = &mut client.kind
            && !*measured
            && self.record.measures(due)
        {
            *measured = true;
            self.record.sessions.measured += 1;
        }
        self.record.offered += u64::from(self.record.measures(due));
        let delay = client.delay;
        self.accept(c, steps);
        let serial = self.connections[c as usize].serial;
        // No client gives up on a server that has just been started with nothing in memory: it would be
        // missing from the load that is measured.
        if let Load::Sessions { timeout, .. } = self.config.load
            && due.0 >= self.config.warmup.0 / 2
        {
            self.plan(due + timeout, Ev::Timeout(c, serial));
        }
        self.plan(self.now + delay, Ev::Arrived(c, serial));
    }

    /// The connection's next request. The server opens its files for it: the kernel's read-ahead knows
    /// nothing yet.
    pub(super) fn accept(&mut self, c: u32, steps: Vec<Step>) {
        let client = &self.clients[c as usize];
        let handled = matches!(client.kind, Kind::Handler(_) | Kind::Diff(_));
        let stretches = stretches(&steps);
        let bytes = stretches.iter().map(|r| r.len).sum();
        let sum = |time: &dyn Fn(&RangeRequest) -> Nanos| match client.kind {
            Kind::Session { .. } => Nanos::ZERO,
            _ => stretches.iter().fold(Nanos::ZERO, |sum, r| sum + time(r)),
        };
        let least = sum(&|r| self.least_time(client.disk, r));
        let uncached = sum(&|r| self.uncached_time(client.disk, r));
        let k = &mut self.connections[c as usize];
        k.serial = k.serial.wrapping_add(1);
        // A handler's own answer is short.
        k.answer = if handled { 0 } else { bytes };
        k.known = Known { bytes, least, uncached };
        k.at_head = stretches.first().is_some_and(|r| r.offset == 0);
        k.steps = steps.into_iter();
        k.files.clear();
        (k.at, k.end) = (0, 0);
    }

    /// Disk time for what is not in memory of a stretch, if it is read in one go.
    fn least_time(&self, disk: u32, stretch: &RangeRequest) -> Nanos {
        let (from, to) = (stretch.offset / PAGE, (stretch.offset + stretch.len).div_ceil(PAGE));
        let there = self.cache.present_pages(self.file(disk, stretch.video), from, to);
        match to - from - there {
            0 => Nanos::ZERO,
            missing => {
                let file = stretch.video as usize;
                self.disks[disk as usize].least_time(file, stretch.offset, missing * PAGE)
            }
        }
    }

    /// The same of all of it, whatever is in memory: \[C\]'s estimate (section 3.2) has none.
    fn uncached_time(&self, disk: u32, stretch: &RangeRequest) -> Nanos {
        self.disks[disk as usize].least_time(stretch.video as usize, stretch.offset, stretch.len)
    }

    /// A file's number in the page cache, which all disks share.
    fn file(&self, disk: u32, video: u32) -> u32 {
        disk * self.catalogue.videos().len() as u32 + video
    }

    /// The connection turns to this range of one of its open files.
    pub(super) fn aim(&mut self, c: u32, open: u32, range: RangeRequest) {
        let disk = self.clients[c as usize].disk;
        let file = self.file(disk, range.video);
        let size = self.catalogue.video(range.video).size.0;
        let k = &mut self.connections[c as usize];
        k.open = open as usize;
        if k.files.len() <= k.open {
            k.files.resize_with(k.open + 1, OpenFile::default);
        }
        k.file = file;
        k.local = range.video as usize;
        k.size = size;
        k.at = range.offset;
        k.end = range.offset + range.len;
        k.turn_start = range.offset;
    }

    pub(super) fn complete(&mut self, c: u32, serial: u32) {
        if self.connections[c as usize].serial != serial || self.connections[c as usize].dead {
            return;
        }
        // Whatever is planned for this request from now on is stale.
        self.connections[c as usize].serial = serial.wrapping_add(1);
        let at_head = self.connections[c as usize].at_head;
        self.record.answered(self.clients[c as usize].due, self.now, at_head);
        self.record.known(self.connections[c as usize].known, self.now);
        self.next_request(c, self.now);
    }

    pub(super) fn timeout(&mut self, c: u32, serial: u32) {
        if self.connections[c as usize].serial != serial || self.connections[c as usize].dead {
            return;
        }
        let measured = matches!(self.clients[c as usize].kind, Kind::Session { measured: true, .. });
        self.record.sessions.failed += 1;
        self.record.sessions.failed_measured += u64::from(measured);
        self.record.failures += u64::from(measured);
        self.retire(c);
    }

    /// A client goes away. Its place is free once no thread and no queue knows it.
    pub(super) fn retire(&mut self, c: u32) {
        self.live -= 1;
        let k = &mut self.connections[c as usize];
        k.dead = true;
        k.serial = k.serial.wrapping_add(1);
        if k.phase == Phase::Idle {
            self.free.push(c);
        }
    }
}

/// What is read of each file in one go, whatever is read of others in between.
fn stretches(steps: &[Step]) -> Vec<RangeRequest> {
    let mut all: Vec<(u32, RangeRequest)> = Vec::new();
    for step in steps {
        let Step::Read { open, range } = *step else { continue };
        match all.iter_mut().rfind(|(number, _)| *number == open) {
            Some((_, r)) if r.video == range.video && r.offset + r.len == range.offset => r.len += range.len,
            _ => all.push((open, range)),
        }
    }
    all.into_iter().map(|(_, stretch)| stretch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_files_are_stretches_of_their_own() {
        let read = |open, video, offset, len| Step::Read { open, range: RangeRequest { video, offset, len } };
        let steps = [
            read(0, 7, 0, 10),
            read(1, 8, 50, 10),
            Step::Think(Nanos(1)),
            read(0, 7, 10, 10),
            read(1, 8, 60, 5),
            read(0, 7, 90, 1),
        ];
        let got: Vec<_> = stretches(&steps).iter().map(|r| (r.video, r.offset, r.len)).collect();
        assert_eq!(got, [(7, 0, 20), (8, 50, 15), (7, 90, 1)]);
    }
}
