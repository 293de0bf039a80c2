//! Several nodes behind HAProxy on one clock: which client goes where, and how one of them is watched.
//!
//! Viewers and downloads are shared by all nodes. HAProxy counts a request as its server's from the moment it
//! is sent there until the last byte of the answer has come; on a viewer's slow link it waits in the
//! balancer, and counts no more. One node may be killed and started again with nothing in memory; what was
//! under way there breaks off, and its client goes on with the next request.

use seekless_base::Nanos;
use seekless_model::workload::catalogue::Catalogue;
use seekless_model::workload::closed::{ClosedReader, RangeRequest};
use seekless_model::workload::draw::Draw;
use seekless_model::workload::handler::Step;

use super::node::ClientEvent;
use super::{Ev, Machine};
use crate::serving::balancer::Ring;
use crate::serving::client::Kind;
use crate::serving::config::{Config, Node};
use crate::serving::node::Look;
use crate::serving::record::Report;

/// From one download's file to the next one's: the live scenario's step, which meets every file and is no
/// neighbour's.
const STEP: usize = 7;

/// What happens to the nodes and not in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Own {
    Look,
    Kill,
    Start,
    /// The balancer has seen that it is back.
    Up,
}

/// A download that goes through the library, file after file.
struct Download {
    next: usize,
    at: Option<usize>,
}

struct Cluster<'a> {
    config: &'a Config,
    plan: &'a Node,
    catalogue: &'a Catalogue,
    ring: Ring,
    /// By their numbers less one; `None`: killed.
    nodes: Vec<Option<Machine<'a>>>,
    /// Nodes the balancer sends requests to.
    up: u32,
    /// Requests under way at each.
    under_way: Vec<u32>,
    readers: Vec<ClosedReader<'a>>,
    /// The node each viewer waits for, and whether the whole answer has left it.
    waits: Vec<Option<(usize, bool)>>,
    downloads: Vec<Download>,
    looks: Vec<Look>,
}

pub(super) fn run(config: &Config, plan: &Node, catalogue: &Catalogue) -> Result<Report, String> {
    let number = plan.number.checked_sub(1).filter(|number| *number < plan.nodes);
    let seen = number.ok_or("no node has this number")? as usize;
    let mut first = Draw::new(plan.spec.seed, "downloads");
    let files = catalogue.videos().len() as u64;
    let mut cluster = Cluster {
        config,
        plan,
        catalogue,
        ring: Ring::new(plan.nodes),
        nodes: Vec::new(),
        up: plan.nodes,
        under_way: vec![0; plan.nodes as usize],
        readers: (0..plan.clients).map(|number| ClosedReader::new(catalogue, &plan.spec, number)).collect(),
        waits: vec![None; plan.clients as usize],
        downloads: (0..plan.downloads)
            .map(|_| Download { next: first.below(files) as usize, at: None })
            .collect(),
        looks: Vec::new(),
    };
    for _ in 0..plan.nodes {
        let node = cluster.start(Nanos::ZERO)?;
        cluster.nodes.push(Some(node));
    }
    cluster.go(seen)?;
    // Killed and not returned: what one that never served reports.
    let node = match cluster.nodes[seen].take() {
        Some(node) => node,
        None => cluster.start(config.length)?,
    };
    Ok(Report { looks: cluster.looks, ..node.report() })
}

impl<'a> Cluster<'a> {
    /// A node with nothing in memory.
    fn start(&self, now: Nanos) -> Result<Machine<'a>, String> {
        let mut node = Machine::new(self.config, self.catalogue)?;
        node.now = now;
        for _ in 0..self.plan.clients {
            node.admit(Kind::Balanced, 0, Nanos::ZERO, Some(self.plan.link));
        }
        node.begin(&[]);
        node.leave_room();
        Ok(node)
    }

    fn go(&mut self, seen: usize) -> Result<(), String> {
        let mut own = vec![(self.plan.look, Own::Look)];
        if let Some((killed, returned)) = self.plan.lost {
            own.extend([(killed, Own::Kill), (returned, Own::Start), (returned + self.plan.up, Own::Up)]);
        }
        (0..self.readers.len()).for_each(|viewer| self.ask(Nanos::ZERO, viewer));
        (0..self.downloads.len()).for_each(|number| self.download(Nanos::ZERO, number));
        loop {
            let of_node = |(n, node): (usize, &Option<Machine<'_>>)| Some((node.as_ref()?.next_at()?, n));
            let next = self.nodes.iter().enumerate().filter_map(of_node).min();
            let Some(first) = (0..own.len()).min_by_key(|i| own[*i]) else { return Ok(()) };
            let (at, what) = own[first];
            match next.filter(|(its, _)| *its <= at) {
                Some((its, _)) if its > self.config.length => return Ok(()),
                Some((_, n)) => self.step(n),
                None if at > self.config.length => return Ok(()),
                None => {
                    own.swap_remove(first);
                    if what == Own::Look {
                        own.push((at + self.plan.look, what));
                    }
                    self.happens(at, what, seen)?;
                }
            }
        }
    }

    fn happens(&mut self, now: Nanos, what: Own, seen: usize) -> Result<(), String> {
        match what {
            Own::Look => {
                let (served, read) = self.nodes[seen].as_mut().map_or((0, 0), Machine::since_last_look);
                self.looks.push(Look { at: now, served, read });
            }
            Own::Kill => self.kill(now, seen),
            Own::Start => self.nodes[seen] = Some(self.start(now)?),
            Own::Up => (self.ring, self.up) = (Ring::new(self.plan.nodes), self.plan.nodes),
        }
        Ok(())
    }

    fn kill(&mut self, now: Nanos, killed: usize) {
        self.nodes[killed] = None;
        self.under_way[killed] = 0;
        if self.plan.nodes > 1 {
            let others = (1..=self.plan.nodes).filter(|number| *number as usize != killed + 1);
            (self.ring, self.up) = (Ring::of(others), self.plan.nodes - 1);
        }
        for viewer in 0..self.waits.len() {
            if self.waits[viewer].is_some_and(|(n, _)| n == killed) {
                self.ask(now, viewer);
            }
        }
        for number in 0..self.downloads.len() {
            if self.downloads[number].at == Some(killed) {
                self.download(now, number);
            }
        }
    }

    /// Where a request for a file goes, which counts there from now on: HAProxy's `chash_server_is_eligible`.
    fn choose(&mut self, video: u32) -> usize {
        let all = f64::from(self.under_way.iter().sum::<u32>() + 1);
        let most = ((all * self.plan.bound).ceil() / f64::from(self.up)).ceil() as u32;
        let path = format!("/{}", self.catalogue.video(video).path);
        let n = self.ring.node_with_room(&path, |node| self.under_way[node as usize - 1] < most) as usize - 1;
        self.under_way[n] += 1;
        n
    }

    /// A viewer's next request.
    fn ask(&mut self, now: Nanos, viewer: usize) {
        self.waits[viewer] = None;
        let Some(range) = self.readers[viewer].next() else { return };
        let n = self.choose(range.video);
        if let Some(node) = &mut self.nodes[n] {
            node.asked(now, viewer as u32, range);
            self.waits[viewer] = Some((n, false));
        }
    }

    /// A download turns to its next file.
    fn download(&mut self, now: Nanos, number: usize) {
        let download = &mut self.downloads[number];
        let video = (download.next % self.catalogue.videos().len()) as u32;
        download.next += STEP;
        let n = self.choose(video);
        self.downloads[number].at = Some(n);
        if let Some(node) = &mut self.nodes[n] {
            node.now = now;
            node.download(number as u32, video);
        }
    }

    /// The next thing in a node, and what follows from it for what waits.
    fn step(&mut self, n: usize) {
        let Some(node) = &mut self.nodes[n] else { return };
        node.step();
        let now = node.now;
        let Some(state) = &mut node.node else { return };
        for event in std::mem::take(&mut state.client_events) {
            match event {
                ClientEvent::Sent(viewer) => {
                    self.under_way[n] -= 1;
                    self.waits[viewer as usize] = Some((n, true));
                }
                ClientEvent::Answered(viewer) => self.ask(now, viewer as usize),
                ClientEvent::Downloaded(number) => {
                    self.under_way[n] -= 1;
                    self.download(now, number as usize);
                }
            }
        }
    }
}

impl Machine<'_> {
    /// The balancer sends a viewer's request.
    fn asked(&mut self, now: Nanos, viewer: u32, range: RangeRequest) {
        self.now = now;
        self.clients[viewer as usize].due = now;
        self.accept(viewer, vec![Step::Read { open: 0, range }]);
        let serial = self.connections[viewer as usize].serial;
        self.plan(now, Ev::Arrived(viewer, serial));
    }
}
