//! The loop: arrivals, deliveries and completed reads in order of time, the policy in the middle.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;
use seekless_base::{Lba, Nanos, SECTOR_BYTES};
use seekless_model::drive::{Command, Drive, Op};
use seekless_model::workload::draw::Draw;
use seekless_reorder::{Action, Circus, ClientId, ContentId, Event, ReadId, Stats, Wanted};

use super::link::{ClientLink, ServerLink};
use super::{CircusReport, ClassReport, Setup};

/// Something that will happen at a known time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A client asks for a file.
    Arrival,
    /// A client has a block.
    Delivered(u64),
}

/// One download as the client sees it.
struct Download {
    class: usize,
    started: Nanos,
    link: ClientLink,
    /// The block the policy waits to see sent.
    unsent: Option<u64>,
    /// The policy is done with it; the last blocks are on the wire.
    all_sent: bool,
}

struct World<'a> {
    setup: &'a Setup,
    block: u64,
    blocks: u64,
    policy: Circus,
    drive: Drive,
    /// When the drive completes next, while known.
    drive_next: Option<Nanos>,
    link: ServerLink,
    due: BinaryHeap<Reverse<(Nanos, u64, Due)>>,
    downloads: HashMap<u64, Download>,
    /// Reads under way: blocks of each.
    reads: HashMap<u64, u64>,
    next_client: u64,
    order: u64,
    arrivals: Draw,
    classes: Draw,
    files: Draw,
    tally: Tally,
}

/// Sums since measurement began.
#[derive(Default)]
struct Tally {
    from: Nanos,
    at: Nanos,
    delivered: u64,
    read: u64,
    busy: Nanos,
    client_s: f64,
    times: Vec<Vec<f64>>,
    before: Stats,
}

/// Runs one experiment.
pub fn run(setup: &Setup) -> CircusReport {
    let block = setup.server.block.0.max(SECTOR_BYTES);
    let drive = Drive::new(&setup.drive);
    let mut server = setup.server.clone();
    server.memory = setup.block_memory(0);
    // A command more than the drive holds would only wait outside of it.
    server.reads_in_flight = server.reads_in_flight.min(setup.drive.queue.depth as usize);
    let mut world = World {
        setup,
        block,
        blocks: setup.size.0.div_ceil(block).max(1),
        policy: Circus::new(&server),
        drive,
        drive_next: None,
        link: ServerLink::new(setup.link_rate),
        due: BinaryHeap::new(),
        downloads: HashMap::new(),
        reads: HashMap::new(),
        next_client: 0,
        order: 0,
        arrivals: Draw::new(setup.seed, "circus arrivals"),
        classes: Draw::new(setup.seed, "circus classes"),
        files: Draw::new(setup.seed, "circus files"),
        tally: Tally { times: vec![Vec::new(); setup.classes.len()], ..Tally::default() },
    };
    let longest = setup.classes.iter().map(|c| setup.undisturbed(c)).max().unwrap_or_default();
    let from = setup.warm_up.unwrap_or(longest);
    world.schedule_arrival(Nanos::ZERO);
    world.until(from);
    world.begin_tally(from);
    let end = from + setup.time;
    world.until(end);
    world.report(end)
}

impl World<'_> {
    fn until(&mut self, end: Nanos) {
        loop {
            let due = self.due.peek().map(|Reverse((at, _, _))| *at);
            let drive = self.drive_next;
            let Some(now) = [due, drive].into_iter().flatten().min().filter(|at| *at <= end) else {
                self.elapse(end);
                return;
            };
            self.elapse(now);
            if drive == Some(now) {
                while let Some(done) = self.drive.poll(now) {
                    let blocks = self.reads.remove(&done.id).unwrap_or(0);
                    self.tally.read += u64::from(done.sectors) * SECTOR_BYTES;
                    self.policy.handle(Event::ReadDone { read: ReadId(done.id), blocks });
                }
                self.drive_next = self.drive.next_completion();
            } else if let Some(Reverse((_, _, due))) = self.due.pop() {
                match due {
                    Due::Arrival => self.arrive(now),
                    Due::Delivered(client) => self.delivered(now, client),
                }
            }
            self.act(now);
        }
    }

    fn schedule(&mut self, at: Nanos, due: Due) {
        self.order += 1;
        self.due.push(Reverse((at, self.order, due)));
    }

    fn schedule_arrival(&mut self, now: Nanos) {
        let mean_s = self.setup.size.0 as f64 / self.setup.offered();
        let gap = Nanos::from_secs_f64(self.arrivals.exponential() * mean_s);
        self.schedule(now + gap, Due::Arrival);
    }

    fn arrive(&mut self, now: Nanos) {
        self.schedule_arrival(now);
        let u = self.classes.unit();
        let mut sum = 0.0;
        let last = self.setup.classes.len() - 1;
        let class = self.setup.classes.iter().position(|c| {
            sum += c.share;
            u < sum
        });
        let class = class.unwrap_or(last);
        let content = ContentId(self.files.below(self.setup.files));
        let rate = self.setup.goodput(&self.setup.classes[class]);
        self.next_client += 1;
        let id = self.next_client;
        let link = ClientLink::new(rate);
        self.downloads.insert(id, Download { class, started: now, link, unsent: None, all_sent: false });
        let blocks = self.blocks;
        self.clients_changed();
        self.policy.handle(Event::Join { client: ClientId(id), content, blocks, wanted: Wanted::All });
    }

    fn delivered(&mut self, now: Nanos, id: u64) {
        let Some(download) = self.downloads.get_mut(&id) else { return };
        self.tally.delivered += self.block;
        let was_full = download.link.delivered();
        if was_full && let Some(block) = download.unsent.take() {
            self.policy.handle(Event::Sent { client: ClientId(id), block });
        }
        if download.all_sent && download.link.is_idle() {
            self.tally.times[download.class].push(now.since(download.started).as_secs_f64());
            self.downloads.remove(&id);
            self.clients_changed();
        }
    }

    /// Memory left for blocks follows the number of clients.
    fn clients_changed(&mut self) {
        if self.setup.per_client.0 > 0 {
            self.policy.handle(Event::Memory(self.setup.block_memory(self.downloads.len())));
        }
    }

    /// Does what the policy wants done.
    fn act(&mut self, now: Nanos) {
        let mut submitted = false;
        while let Some(action) = self.policy.poll_action() {
            match action {
                Action::Read { id, content, first, blocks } => {
                    let sectors = self.block / SECTOR_BYTES * blocks;
                    let lba = self.address(content) + first * (self.block / SECTOR_BYTES);
                    let command = Command {
                        id: id.0,
                        op: Op::Read,
                        lba: Lba(lba % self.drive.sectors()),
                        sectors: sectors as u32,
                    };
                    self.reads.insert(id.0, blocks);
                    if self.drive.submit(now, command).is_err() {
                        // Not more reads are under way than the drive's queue holds.
                        unreachable!("the drive's queue is full");
                    }
                    submitted = true;
                }
                Action::Send { client, block, .. } => {
                    let Some(download) = self.downloads.get_mut(&client.0) else { continue };
                    let at = self.link.send(now, &mut download.link, self.block);
                    if download.link.has_room() {
                        self.policy.handle(Event::Sent { client, block });
                    } else {
                        download.unsent = Some(block);
                    }
                    self.schedule(at, Due::Delivered(client.0));
                }
                Action::Complete { client } => {
                    if let Some(download) = self.downloads.get_mut(&client.0) {
                        download.all_sent = true;
                    }
                }
                Action::Refused { client, .. } | Action::Broken { client, .. } => {
                    self.downloads.remove(&client.0);
                }
                Action::Drop { .. } => {}
            }
        }
        if submitted {
            self.drive_next = self.drive.next_completion();
        }
    }

    /// First sector of a file: files lie at even distances over the whole disk.
    fn address(&self, content: ContentId) -> u64 {
        let share = self.drive.sectors() / self.setup.files;
        content.0 * share / (self.block / SECTOR_BYTES) * (self.block / SECTOR_BYTES)
    }

    fn elapse(&mut self, now: Nanos) {
        let span = now.since(self.tally.at);
        if !self.reads.is_empty() {
            self.tally.busy += span;
        }
        self.tally.client_s += self.downloads.len() as f64 * span.as_secs_f64();
        self.tally.at = self.tally.at.max(now);
    }

    fn begin_tally(&mut self, now: Nanos) {
        self.tally = Tally {
            from: now,
            at: now,
            times: vec![Vec::new(); self.setup.classes.len()],
            before: self.policy.stats(),
            ..Tally::default()
        };
    }

    fn report(mut self, end: Nanos) -> CircusReport {
        let span = end.since(self.tally.from).as_secs_f64().max(1e-9);
        let (stats, before) = (self.policy.stats(), self.tally.before);
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        let chosen = stats.chosen - before.chosen;
        let all: Vec<f64> = self.tally.times.iter().flatten().copied().collect();
        let classes = self.tally.times.iter_mut().map(|times| class_report(times)).collect();
        CircusReport {
            network: self.tally.delivered as f64 / span,
            disk: self.tally.read as f64 / span,
            disk_busy: self.tally.busy.as_secs_f64() / span,
            reads: (stats.reads - before.reads) as f64 / span,
            classes,
            downloads: all.len() as u64,
            download_s: if all.is_empty() { 0.0 } else { all.iter().sum::<f64>() / all.len() as f64 },
            concurrent: self.tally.client_s / span,
            outside: share(stats.chosen_outside - before.chosen_outside, chosen),
            stale: share(stats.stale - before.stale, chosen),
        }
    }
}

fn class_report(times: &mut [f64]) -> ClassReport {
    if times.is_empty() {
        return ClassReport::default();
    }
    times.sort_by(f64::total_cmp);
    let p95 = times[(times.len() - 1) * 95 / 100];
    ClassReport {
        downloads: times.len() as u64,
        mean_s: times.iter().sum::<f64>() / times.len() as f64,
        p95_s: p95,
    }
}
