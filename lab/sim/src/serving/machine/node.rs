//! One of several nodes behind a balancer: downloads in any order, digests of what is downloaded, and one
//! memory for their blocks and for pages.
//!
//! Downloads run through the server's own [`Circus`], whose blocks are held beside the page cache: as many as
//! there are, so much less of it is left. Before a file's first download its digest is made, by one more
//! client that takes every block. The [cluster](super::cluster) says which client comes here, and when.

use std::collections::{BTreeMap, BTreeSet};

use seekless_base::{Bytes, Nanos};
use seekless_reorder::{Action, Circus, ClientId, ContentId, Event, ReadId, Wanted};

use super::{Ev, Machine};
use crate::serving::cache::{PAGE, PageState};
use crate::serving::config::{Load, Node};
use crate::serving::disk::{Pages, Waiter};

/// Files whose pages are read past the cache have this added to their number.
pub(super) const PAST: u32 = 1 << 31;
/// Thread number of these reads.
const PAST_THREAD: u32 = 3_000_000;
/// Bytes a second of which one core makes a digest (SHA-256 with its instructions: 1.3 GB/s on the machine of
/// the live runs).
const DIGEST_RATE: f64 = 1.3e9;

/// What a client did, as the balancer sees it.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClientEvent {
    /// The last byte of a viewer's answer is on its way.
    Sent(u32),
    /// The viewer has received it.
    Answered(u32),
    /// A download has ended.
    Downloaded(u32),
}

/// What takes blocks: a download, or what makes the digest for it.
#[derive(Clone, Copy)]
struct Taker {
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
    circus: Circus,
    /// The downloads by their numbers, then the makers of their digests.
    takers: Vec<Taker>,
    /// Files whose digests are known.
    digests: BTreeSet<u32>,
    reads: BTreeMap<ReadId, PastRead>,
    clients: u64,
    /// Since the last look.
    served: u64,
    read: u64,
    pub(super) client_events: Vec<ClientEvent>,
}

impl NodeState {
    pub(super) fn new(plan: &Node) -> NodeState {
        let nobody = Taker { video: 0, client: ClientId(0) };
        NodeState {
            circus: Circus::new(&plan.any_order),
            takers: vec![nobody; 2 * plan.downloads as usize],
            digests: BTreeSet::new(),
            reads: BTreeMap::new(),
            clients: 0,
            served: 0,
            read: 0,
            client_events: Vec::new(),
        }
    }

    /// All of a viewer's answer is in the socket; the access log tells it then.
    pub(super) fn sent(&mut self, viewer: u32, bytes: u64) {
        self.served += bytes;
        self.client_events.push(ClientEvent::Sent(viewer));
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

    /// What was served and read since this was last asked.
    pub(super) fn since_last_look(&mut self) -> (u64, u64) {
        let node = self.node.as_mut();
        node.map_or((0, 0), |node| (std::mem::take(&mut node.served), std::mem::take(&mut node.read)))
    }

    /// A download of a file begins.
    pub(super) fn download(&mut self, number: u32, video: u32) {
        let (Some(plan), Some(node)) = (self.plan_of(), &self.node) else { return };
        let small = self.catalogue.video(video).size <= plan.digest_max;
        match small && !node.digests.contains(&video) {
            true => self.join(plan.downloads + number, video),
            false => self.join(number, video),
        }
    }

    fn join(&mut self, number: u32, video: u32) {
        let (Some(plan), Some(node)) = (self.plan_of(), &mut self.node) else { return };
        node.clients += 1;
        let (client, content) = (ClientId(node.clients), ContentId(video.into()));
        node.takers[number as usize] = Taker { video, client };
        let blocks = self.catalogue.video(video).size.0.div_ceil(plan.any_order.block.0);
        self.tell_circus(Event::Join { client, content, blocks, wanted: Wanted::All });
    }

    /// A download has taken its block.
    pub(super) fn took(&mut self, number: u32, block: u64) {
        let Some(node) = &self.node else { return };
        let client = node.takers[number as usize].client;
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
        let of = |client| node.takers.iter().position(|t| t.client == client).map(|number| number as u32);
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
                let Some(taker) = of(client) else { return };
                let size = self.catalogue.video(node.takers[taker as usize].video).size.0;
                let bytes = (size - number * block).min(block);
                let rate = if taker < plan.downloads { plan.download_rate } else { DIGEST_RATE };
                let takes = Nanos::from_secs_f64(bytes as f64 / rate);
                self.plan(self.now + takes, Ev::Took(taker, number));
            }
            Action::Complete { client } => {
                let Some(taker) = of(client) else { return };
                let video = node.takers[taker as usize].video;
                match taker.checked_sub(plan.downloads) {
                    Some(number) => {
                        node.digests.insert(video);
                        self.join(number, video);
                    }
                    None => {
                        // As an access log tells it: at the end.
                        node.served += self.catalogue.video(video).size.0;
                        node.client_events.push(ClientEvent::Downloaded(taker));
                    }
                }
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

    /// The page cache has what the server and the blocks of downloads leave of the memory. What a read past
    /// it brings is there twice until the read is done.
    pub(super) fn leave_room(&mut self) {
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
