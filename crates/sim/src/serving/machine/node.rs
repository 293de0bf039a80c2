//! One of several nodes behind a balancer: what is served elsewhere, downloads in any order, and what is seen of it every few seconds.
//!
//! A request for a file of another node takes the time of the reader's link and nothing here. Downloads run through the server's
//! own [`Circus`], whose blocks are held beside the page cache: as many as there are, so much less of it is left.

use std::collections::BTreeMap;

use seekless_policy::ReadId;
use seekless_policy::reorder::{Action, Circus, ClientId, ContentId, Event, Wanted};
use seekless_units::{Bytes, Nanos};
use seekless_workload::catalogue::Catalogue;
use seekless_workload::draw::Draw;
use seekless_workload::handler::Step;

use super::{Ev, Machine};
use crate::serving::cache::{PAGE, PageState};
use crate::serving::config::{Load, Node};
use crate::serving::disk::{Pages, Waiter};
use crate::serving::node::Look;

/// Files whose pages are read past the cache have this added to their number.
pub(super) const PAST: u32 = 1 << 31;
/// Thread number of these reads.
const PAST_THREAD: u32 = 3_000_000;
/// From one download's file to the next one's: the live scenario's step, which meets every file and is no neighbour's.
const STEP: usize = 7;

/// A download that goes through the library, file after file.
struct Download {
    next: usize,
    video: u32,
    client: ClientId,
}

/// A read past the page cache; places are pages.
#[derive(Clone, Copy)]
struct PastRead {
    video: u32,
    at: u64,
    to: u64,
    blocks: u64,
}

/// What a node has beside the machine every server has.
pub(super) struct NodeState {
    here: Vec<bool>,
    circus: Circus,
    downloads: Vec<Download>,
    reads: BTreeMap<ReadId, PastRead>,
    clients: u64,
    /// Requests of viewers under way here, and how many there may be.
    under_way: u32,
    most: u32,
    /// Since the last look.
    served: u64,
    read: u64,
    pub(super) looks: Vec<Look>,
}

/// How many requests of viewers a node may have under way: HAProxy's `chash_server_is_eligible`, where all viewers and downloads
/// have one somewhere. Downloads are few, and let out.
fn most(plan: &Node) -> u32 {
    let all = f64::from(plan.clients + plan.downloads);
    ((all * plan.bound).ceil() / f64::from(plan.nodes.max(1))).ceil().max(1.0) as u32
}

impl NodeState {
    pub(super) fn new(plan: &Node, catalogue: &Catalogue) -> NodeState {
        let files = catalogue.videos().len();
        let mut first = Draw::new(plan.spec.seed, "downloads");
        let start = |_| Download { next: first.below(files as u64) as usize, video: 0, client: ClientId(0) };
        NodeState {
            here: plan.here(catalogue),
            circus: Circus::new(&plan.any_order),
            downloads: (0..plan.downloads).map(start).collect(),
            reads: BTreeMap::new(),
            clients: 0,
            under_way: 0,
            most: most(plan),
            served: 0,
            read: 0,
            looks: Vec::new(),
        }
    }

    /// A viewer has had an answer of so many bytes.
    pub(super) fn answered(&mut self, bytes: u64) {
        self.served += bytes;
        self.under_way -= 1;
    }

    pub(super) fn read(&mut self, bytes: u64) {
        self.read += bytes;
    }
}

impl<'a> Machine<'a> {
    fn plan_of(&self) -> Option<&'a Node> {
        match &self.config.load {
            Load::Node(plan) => Some(plan),
            _ => None,
        }
    }

    pub(super) fn begin_node(&mut self, plan: &'a Node) {
        for number in 0..plan.downloads {
            self.plan(plan.up, Ev::Download(number));
        }
        self.plan(plan.look, Ev::Sample);
        self.leave_room();
    }

    /// How long a request takes that another node serves. `None`: it is served here.
    pub(super) fn elsewhere(&mut self, steps: &[Step]) -> Option<Nanos> {
        let (plan, node) = (self.plan_of()?, self.node.as_mut()?);
        let Some(Step::Read { range, .. }) = steps.first() else { return None };
        if node.here[range.video as usize] && node.under_way < node.most {
            node.under_way += 1;
            return None;
        }
        Some(Nanos::from_secs_f64(range.len as f64 * 8.0 / plan.link as f64))
    }

    /// What was served and read since the last look.
    pub(super) fn look_at_node(&mut self) {
        let (Some(plan), Some(node)) = (self.plan_of(), &mut self.node) else { return };
        let (served, read) = (std::mem::take(&mut node.served), std::mem::take(&mut node.read));
        node.looks.push(Look { at: self.now, served, read });
        self.plan(self.now + plan.look, Ev::Sample);
    }

    /// A download turns to its next file.
    pub(super) fn next_download(&mut self, number: u32) {
        let (Some(plan), Some(node)) = (self.plan_of(), &mut self.node) else { return };
        let download = &mut node.downloads[number as usize];
        download.video = (download.next % node.here.len()) as u32;
        download.next += STEP;
        let size = self.catalogue.video(download.video).size.0;
        if !node.here[download.video as usize] {
            let takes = Nanos::from_secs_f64(size as f64 / plan.download_rate);
            return self.plan(self.now + takes, Ev::Download(number));
        }
        node.clients += 1;
        download.client = ClientId(node.clients);
        let (client, content) = (download.client, ContentId(download.video.into()));
        let blocks = size.div_ceil(plan.any_order.block.0);
        self.tell_circus(Event::Join { client, content, blocks, wanted: Wanted::All });
    }

    /// A download has taken its block.
    pub(super) fn took(&mut self, number: u32, block: u64) {
        let Some(node) = &self.node else { return };
        let client = node.downloads[number as usize].client;
        self.tell_circus(Event::Sent { client, block });
    }

    fn tell_circus(&mut self, event: Event) {
        let (Some(plan), Some(node)) = (self.plan_of(), &mut self.node) else { return };
        node.circus.handle(event);
        while let Some(action) = self.node.as_mut().and_then(|n| n.circus.poll_action()) {
            self.circus_acts(plan, action);
        }
        self.leave_room();
    }

    fn circus_acts(&mut self, plan: &Node, action: Action) {
        let block = plan.any_order.block.0;
        let Some(node) = &mut self.node else { return };
        let of = |client| node.downloads.iter().position(|d| d.client == client).map(|number| number as u32);
        match action {
            Action::Read { id, content, first, blocks } => {
                let video = content.0 as u32;
                let size = self.catalogue.video(video).size.0;
                let (at, to) = (first * block / PAGE, ((first + blocks) * block).min(size).div_ceil(PAGE));
                node.reads.insert(id, PastRead { video, at, to, blocks });
                self.submit_past(video, at, to);
                self.plan(self.now, Ev::Past(id.0));
            }
            Action::Send { client, block: number, .. } => {
                let Some(download) = of(client) else { return };
                let size = self.catalogue.video(node.downloads[download as usize].video).size.0;
                let bytes = (size - number * block).min(block);
                let takes = Nanos::from_secs_f64(bytes as f64 / plan.download_rate);
                self.plan(self.now + takes, Ev::Took(download, number));
            }
            Action::Complete { client } => {
                let Some(download) = of(client) else { return };
                // As an access log tells it: at the end.
                node.served += self.catalogue.video(node.downloads[download as usize].video).size.0;
                self.plan(self.now, Ev::Download(download));
            }
            Action::Drop { .. } => {}
            Action::Broken { .. } | Action::Refused { .. } => {
                debug_assert!(false, "no read fails here, and there is room for every download");
            }
        }
    }

    /// Reads what the page cache does not hold, leaving nothing there.
    fn submit_past(&mut self, video: u32, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let start = self.cache.first_absent(video, at, to);
            let end = self.cache.first_present(video, start, to);
            if start < end {
                let pages = Pages { file: PAST | video, from: start, to: end };
                self.disks[0].submit(self.now, video as usize, pages, PAST_THREAD, false);
            }
            at = end;
        }
        self.pump(0);
    }

    /// How far a read past the cache has come.
    pub(super) fn past_on(&mut self, id: ReadId) {
        let Some(&PastRead { video, at, to, blocks }) = self.node.as_ref().and_then(|n| n.reads.get(&id))
        else {
            return;
        };
        for page in at..to {
            let disk = &mut self.disks[0];
            let waits = disk.wait(PAST | video, page, Waiter::Past(id.0))
                || (self.cache.state(video, page) == PageState::Coming
                    && disk.wait(video, page, Waiter::Past(id.0)));
            if waits {
                if let Some(read) = self.node.as_mut().and_then(|n| n.reads.get_mut(&id)) {
                    read.at = page;
                }
                return;
            }
        }
        if let Some(node) = &mut self.node {
            node.reads.remove(&id);
        }
        self.tell_circus(Event::ReadDone { read: id, blocks });
    }

    /// The page cache has what the server and the blocks of downloads leave of the memory. What a read past it brings is there
    /// twice until the read is done.
    fn leave_room(&mut self) {
        let (Some(plan), Some(node)) = (self.plan_of(), &self.node) else { return };
        let passing: u64 = node.reads.values().map(|read| read.blocks).sum();
        let blocks = (node.circus.blocks_held() + passing) * plan.any_order.block.0;
        self.cache.resize(Bytes(self.config.memory.0.saturating_sub(plan.own.0 + blocks)));
    }

    /// The memory of which the engine's budget is a part.
    pub(super) fn budget_limit(&self) -> u64 {
        match (self.plan_of(), &self.node) {
            (Some(plan), Some(node)) if plan.budget_of_rest => {
                let blocks = node.circus.blocks_held() * plan.any_order.block.0;
                self.config.memory.0.saturating_sub(plan.own.0 + blocks)
            }
            _ => self.config.memory.0,
        }
    }
}
