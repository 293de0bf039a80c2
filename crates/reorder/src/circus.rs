//! The server's side as a state machine: clients join and leave; blocks are chosen, read, sent and dropped.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use hashbrown::HashMap;

use super::bitmap::BlockMap;
use super::client::{ActiveFile, ClientDownload, Limits, Role};
use super::memory::Memory;
use super::reads::Reads;
use super::{Action, BLOCKS_MAX, ClientId, Config, ContentId, Event, ReadId, Refusal, Stats, Wanted};

/// A read in progress.
#[derive(Clone, Copy, Debug)]
struct Under {
    content: ContentId,
    first: u64,
    blocks: u64,
}

/// Block reordering for all downloads of one disk. The [module](super) says how blocks are chosen.
///
/// Every client gets every block that it wanted once, as long as the driver reports reads and sends, and
/// removes clients that take nothing any more: a block that is being sent stays in memory.
#[derive(Clone, Debug)]
pub struct Circus {
    limits: Limits,
    block: u64,
    clients_max: usize,
    reads_in_flight: usize,
    /// Longest read, blocks.
    read_blocks: u64,
    files: HashMap<ContentId, ActiveFile>,
    clients: HashMap<ClientId, ClientDownload>,
    /// Clients whose queue has room and which may still need blocks, by file and then in the order in which
    /// they joined.
    room: BTreeSet<(ContentId, u64, ClientId)>,
    joined: u64,
    memory: Memory,
    reads: Reads,
    under: HashMap<ReadId, Under>,
    actions: VecDeque<Action>,
    read_ids: u64,
    stats: Stats,
}

impl Circus {
    /// Without downloads, and with nothing in memory.
    pub fn new(config: &Config) -> Circus {
        let block = config.block.0.max(1);
        let reads_in_flight = config.reads_in_flight.max(1);
        let capacity = (config.memory.0 / block).max(1);
        // Reads in progress may fill at most half of the memory; otherwise blocks would be dropped before
        // they are sent.
        let share = (capacity / (2 * reads_in_flight as u64)).max(1);
        Circus {
            limits: Limits::new(config),
            block,
            clients_max: config.clients_max,
            reads_in_flight,
            read_blocks: (config.read.0 / block).clamp(1, share),
            files: HashMap::new(),
            clients: HashMap::new(),
            room: BTreeSet::new(),
            joined: 0,
            memory: Memory::new(capacity),
            reads: Reads::new(),
            under: HashMap::new(),
            actions: VecDeque::new(),
            read_ids: 0,
            stats: Stats::default(),
        }
    }

    /// Processes an event.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Join { client, content, blocks, wanted } => self.join(client, content, blocks, &wanted),
            Event::Memory(bytes) => {
                self.memory.resize(bytes.0 / self.block);
                self.shrink();
            }
            Event::Left { client } => {
                self.leave(client);
                self.actions.retain(|a| !matches!(a, Action::Send { client: c, .. } if *c == client));
            }
            Event::Sent { client, block } => self.sent(client, block),
            Event::ReadDone { read, blocks } => self.read_done(read, blocks),
        }
    }

    /// The next action; `None` until another event. A block is dropped before the read that needs its memory.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.fill_queues();
        if self.actions.is_empty() {
            self.begin_read();
        }
        self.actions.pop_front()
    }

    /// Counts since the start.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Number of downloads.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Number of files being downloaded.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Blocks in memory or reserved for reads.
    pub fn blocks_held(&self) -> u64 {
        self.memory.in_use()
    }

    /// The role of a client; `None` if it is unknown.
    pub fn role(&self, client: ClientId) -> Option<Role> {
        let client = self.clients.get(&client)?;
        Some(client.role(self.files.get(&client.content)?, &self.limits))
    }

    fn join(&mut self, id: ClientId, content: ContentId, blocks: u64, wanted: &Wanted) {
        if self.clients.contains_key(&id) {
            return;
        }
        let known = self.files.get(&content).map(|f| f.blocks);
        if blocks > BLOCKS_MAX || known.is_some_and(|b| b != blocks) {
            self.actions.push_back(Action::Refused { client: id, why: Refusal::Blocks });
            return;
        }
        if self.clients.len() >= self.clients_max {
            self.actions.push_back(Action::Refused { client: id, why: Refusal::Full });
            return;
        }
        let map = match wanted {
            Wanted::All => BlockMap::missing_all(blocks),
            Wanted::Ranges(ranges) => BlockMap::missing_only(blocks, ranges),
        };
        if map.missing == 0 {
            self.actions.push_back(Action::Complete { client: id });
            return;
        }
        let file = self.files.entry(content).or_insert(ActiveFile { cursor: 0, blocks, clients: 0 });
        file.clients += 1;
        self.joined += 1;
        let client = ClientDownload::join(content, map, file, &self.limits, self.joined);
        self.room.insert(client.turn(id));
        self.clients.insert(id, client);
    }

    /// The loop of Figure 5: each round goes over the files and the clients of each, and gives one block to
    /// every client whose queue has room, until all queues are full or all blocks are given.
    fn fill_queues(&mut self) {
        while !self.room.is_empty() {
            let round: Vec<_> = self.room.iter().copied().collect();
            for turn in round {
                if !self.choose(turn.2) {
                    self.room.remove(&turn);
                }
                self.send_next(turn.2);
            }
        }
    }

    /// Lines 7 to 16 of Figure 5: puts the next block into a client's queue. Returns `false` if the queue is
    /// full or no block is left for it.
    fn choose(&mut self, id: ClientId) -> bool {
        let Some(client) = self.clients.get_mut(&id) else { return false };
        let Some(file) = self.files.get_mut(&client.content) else { return false };
        if client.queue.len() >= self.limits.queue {
            return false;
        }
        let Some(block) = client.choose(file, &self.limits, &mut self.stats) else { return false };
        client.queue.push_back(block);
        let key = (client.content, block);
        let resident = self.memory.contains(key);
        self.stats.chosen_resident += u64::from(resident);
        self.reads.queued(key, id, resident);
        client.queue.len() < self.limits.queue
    }

    /// Sends the block at the head of a client's queue, or waits for it.
    fn send_next(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.sending.is_some() || client.waiting {
            return;
        }
        let Some(block) = client.queue.front().copied() else { return };
        let key = (client.content, block);
        if !self.memory.pin(key) {
            client.waiting = true;
            self.stats.stale += u64::from(self.reads.wait(key, id));
            return;
        }
        client.queue.pop_front();
        client.sending = Some(block);
        self.reads.unqueued(key, id);
        self.stats.blocks_sent += 1;
        self.actions.push_back(Action::Send { client: id, content: key.0, block });
        if client.map.missing > 0 {
            self.room.insert(client.turn(id));
        }
    }

    fn sent(&mut self, id: ClientId, block: u64) {
        let Some(client) = self.clients.get_mut(&id).filter(|c| c.sending == Some(block)) else { return };
        client.sending = None;
        client.received += 1;
        let key = (client.content, block);
        let done = client.queue.is_empty() && client.map.missing == 0;
        self.memory.unpin(key);
        self.shrink();
        if done {
            self.leave(id);
            self.actions.push_back(Action::Complete { client: id });
            return;
        }
        self.send_next(id);
    }

    fn leave(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.room.remove(&client.turn(id));
        for block in client.queue {
            self.reads.unqueued((client.content, block), id);
        }
        if let Some(block) = client.sending {
            self.memory.unpin((client.content, block));
            self.shrink();
        }
        if let Some(file) = self.files.get_mut(&client.content) {
            file.clients -= 1;
            if file.clients == 0 {
                self.files.remove(&client.content);
            }
        }
    }

    fn shrink(&mut self) {
        while let Some((content, block)) = self.memory.shrink() {
            self.actions.push_back(Action::Drop { content, block });
        }
    }

    fn begin_read(&mut self) {
        if self.under.len() >= self.reads_in_flight || !self.memory.has_room() {
            return;
        }
        let Some(((content, first), by)) = self.reads.next() else { return };
        let mut blocks = 0;
        while self.memory.has_room() {
            if let Some((content, block)) = self.memory.reserve() {
                self.actions.push_back(Action::Drop { content, block });
            }
            self.reads.begin((content, first + blocks));
            blocks += 1;
            if blocks == self.read_blocks || !self.reads_along((content, first + blocks), by) {
                break;
            }
        }
        self.read_ids += 1;
        let id = ReadId(self.read_ids);
        self.under.insert(id, Under { content, first, blocks });
        self.stats.reads += 1;
        self.stats.blocks_held_max = self.stats.blocks_held_max.max(self.memory.in_use());
        self.actions.push_back(Action::Read { id, content, first, blocks });
    }

    /// Whether a block should be read together with the one before it: it is neither in memory nor being
    /// read, and it is in some client's queue, or the client that the read is for still needs it.
    fn reads_along(&self, key: (ContentId, u64), by: Option<ClientId>) -> bool {
        if self.memory.contains(key) || self.reads.in_flight(key) {
            return false;
        }
        let needs = |c: &ClientDownload| c.content == key.0 && !c.map.is_given(key.1);
        self.reads.is_wanted(key) || by.and_then(|id| self.clients.get(&id)).is_some_and(needs)
    }

    fn read_done(&mut self, read: ReadId, got: u64) {
        let Some(Under { content, first, blocks }) = self.under.remove(&read) else { return };
        let got = got.min(blocks);
        self.stats.blocks_read += got;
        let mut waiting: Vec<(u64, ClientId)> = Vec::new();
        for block in first..first + blocks {
            let key = (content, block);
            if block < first + got {
                self.memory.fill(key);
            } else {
                self.memory.release();
            }
            waiting.extend(self.reads.end(key).into_iter().map(|c| (block, c)));
        }
        for (block, id) in waiting {
            if let Some(client) = self.clients.get_mut(&id) {
                client.waiting = false;
            }
            // A block that was only read along may be readable by itself; the one that the read was for is
            // not.
            if got == 0 && block == first {
                self.leave(id);
                self.actions.push_back(Action::Broken { client: id, block });
            } else {
                self.send_next(id);
            }
        }
        self.shrink();
    }
}

#[cfg(test)]
impl Circus {
    /// Number of entries in the table of blocks to read.
    pub(super) fn wants(&self) -> usize {
        self.reads.len()
    }
}
