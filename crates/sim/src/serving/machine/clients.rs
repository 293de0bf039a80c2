//! The clients' side of the loop: who becomes due, what has arrived, who gives up.

use seekless_units::Nanos;
use seekless_workload::closed::RangeRequest;

use super::{Connection, Ev, Machine, Phase};
use crate::serving::client::{Client, Kind, Link};
use crate::serving::config::Load;
use crate::serving::readahead::OnDemand;

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
            start: 0,
            at: 0,
            end: 0,
            call_start: 0,
            call_end: 0,
            call_began: Nanos::ZERO,
            turn_start: 0,
            page: 0,
            unit_end: 0,
            ra: OnDemand::default(),
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
            Kind::Closed(_) => {
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
                    seekless_workload::session::Due::At(at) => at,
                    seekless_workload::session::Due::AfterPrevious => done,
                };
                self.clients[c as usize].due = due;
                // A segment that is due while the one before still comes waits for it.
                self.plan(due.max(done), Ev::Due(c));
            }
        }
    }

    pub(super) fn due(&mut self, c: u32) {
        let catalogue = self.catalogue;
        let client = &mut self.clients[c as usize];
        let due = client.due;
        let Some((_, range)) = client.next(catalogue, due) else { return };
        if let Kind::Session { measured, .. } = &mut client.kind
            && !*measured
            && self.record.measures(due)
        {
            *measured = true;
            self.record.sessions.measured += 1;
        }
        self.record.offered += u64::from(self.record.measures(due));
        let (disk, delay) = (client.disk, client.delay);
        self.aim(c, disk, range);
        let serial = self.connections[c as usize].serial;
        // Nobody gives up on a server that has only just been started and has nothing in memory yet: who left then would be
        // missing from the load that is measured.
        if let Load::Sessions { timeout, .. } = self.config.load
            && due.0 >= self.config.warmup.0 / 2
        {
            self.plan(due + timeout, Ev::Timeout(c, serial));
        }
        self.plan(self.now + delay, Ev::Arrived(c, serial));
    }

    /// The connection's next request. The server opens the file for it: the kernel's read-ahead knows nothing yet.
    pub(super) fn aim(&mut self, c: u32, disk: u32, range: RangeRequest) {
        let files = self.catalogue.videos().len() as u32;
        let size = self.catalogue.video(range.video).size.0;
        let k = &mut self.connections[c as usize];
        k.serial = k.serial.wrapping_add(1);
        k.file = disk * files + range.video;
        k.local = range.video as usize;
        k.size = size;
        k.start = range.offset;
        k.at = range.offset;
        k.end = range.offset + range.len;
        k.turn_start = range.offset;
        k.ra = OnDemand::default();
    }

    pub(super) fn complete(&mut self, c: u32, serial: u32) {
        if self.connections[c as usize].serial != serial || self.connections[c as usize].dead {
            return;
        }
        // Whatever is planned for this request from now on is stale.
        self.connections[c as usize].serial = serial.wrapping_add(1);
        self.record.answered(self.clients[c as usize].due, self.now);
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
