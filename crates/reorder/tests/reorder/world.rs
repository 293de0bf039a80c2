//! Clients, disks and connections round a [`Circus`], which do whatever they are told and watch what must
//! hold: every client gets each of its blocks once or is told that it cannot, some client always makes
//! progress, memory and tables keep their bounds.
//!
//! Shared with the fuzz target (`fuzz/src/reorder.rs`). A number picks among what there is at that moment;
//! where there is nothing, nothing happens.

use std::collections::{BTreeMap, BTreeSet};

use seekless_base::Bytes;
use seekless_reorder::{Action, Circus, ClientId, Config, ContentId, Event, ReadId, Wanted};

pub(crate) const BLOCK: u64 = 4096;

/// Blocks of the contents: two words of the block map and a little, one more than a word, and one alone.
const BLOCKS: [u64; 3] = [130, 65, 1];

/// More turns than any of these worlds needs to come to its end.
const TURNS_MAX: usize = 100_000;

pub(crate) struct World {
    circus: Circus,
    config: Config,
    /// By client: its content and what it still has to get.
    clients: BTreeMap<u64, (u64, BTreeSet<u64>)>,
    /// Client and block.
    sending: Vec<(u64, u64)>,
    /// Content, first block, blocks.
    reading: Vec<(ReadId, u64, u64, u64)>,
    memory: BTreeSet<(u64, u64)>,
    failed: BTreeSet<(u64, u64)>,
    next: u64,
}

impl World {
    pub(crate) fn new(config: Config) -> World {
        World {
            circus: Circus::new(&config),
            config,
            clients: BTreeMap::new(),
            sending: vec![],
            reading: vec![],
            memory: BTreeSet::new(),
            failed: BTreeSet::new(),
            next: 0,
        }
    }

    /// A client joins for a part of one of the contents (0 to 2), or for the whole.
    pub(crate) fn join(&mut self, content: u64, range: Option<(u64, u64)>) {
        self.next += 1;
        let blocks = BLOCKS[content as usize];
        let wants: BTreeSet<u64> = match range {
            None => (0..blocks).collect(),
            Some((from, to)) => (from..to).filter(|b| *b < blocks).collect(),
        };
        let wanted = range.map_or(Wanted::All, |(from, to)| Wanted::Ranges(vec![from..to, from..to]));
        self.clients.insert(self.next, (content, wants));
        let (client, content) = (ClientId(self.next), ContentId(content));
        self.circus.handle(Event::Join { client, content, blocks, wanted });
    }

    /// A client leaves.
    pub(crate) fn leave(&mut self, nth: usize) {
        let Some(client) = self.clients.keys().nth(nth % self.clients.len().max(1)).copied() else { return };
        // A refusal or completion not yet polled may still name it; take these first.
        while self.poll() {}
        if self.clients.remove(&client).is_some() {
            self.sending.retain(|s| s.0 != client);
            self.circus.handle(Event::Left { client: ClientId(client) });
        }
    }

    /// The memory is so many blocks from now on, at least one.
    pub(crate) fn set_memory(&mut self, blocks: u64) {
        while self.poll() {}
        self.config.memory = Bytes(blocks.max(1) * BLOCK);
        self.circus.handle(Event::Memory(self.config.memory));
    }

    /// Reports about things that are not there, among them another block than the one being sent.
    pub(crate) fn wrong_reports(&mut self, nth: usize, block: u64) {
        if let Some(&(client, right)) = self.sending.get(nth % self.sending.len().max(1))
            && block != right
        {
            self.circus.handle(Event::Sent { client: ClientId(client), block });
        }
        self.circus.handle(Event::Sent { client: ClientId(self.next), block: u64::MAX });
        self.circus.handle(Event::Left { client: ClientId(u64::MAX) });
        self.circus.handle(Event::ReadDone { read: ReadId(u64::MAX), blocks: 9 });
    }

    /// A read ends; with `got`, after so many blocks (fewer than it was to read).
    pub(crate) fn read_done(&mut self, nth: usize, got: Option<u64>) {
        if self.reading.is_empty() {
            return;
        }
        let (read, content, first, blocks) = self.reading.remove(nth % self.reading.len());
        let got = got.map_or(blocks, |got| got % blocks);
        self.memory.extend((first..first + got).map(|b| (content, b)));
        self.failed.extend((first + got..first + blocks).map(|b| (content, b)));
        self.circus.handle(Event::ReadDone { read, blocks: got });
    }

    /// A client has taken its block.
    pub(crate) fn sent(&mut self, nth: usize) {
        if self.sending.is_empty() {
            return;
        }
        let (client, block) = self.sending.remove(nth % self.sending.len());
        self.circus.handle(Event::Sent { client: ClientId(client), block });
    }

    /// Does the next thing the machine says; whether there was one.
    pub(crate) fn poll(&mut self) -> bool {
        let Some(action) = self.circus.poll_action() else { return false };
        match action {
            Action::Read { id, content, first, blocks } => self.read(id, content.0, first, blocks),
            Action::Drop { content, block } => {
                assert!(self.memory.remove(&(content.0, block)), "dropped what was not there");
                let sent = |s: &(u64, u64)| self.clients[&s.0].0 == content.0 && s.1 == block;
                assert!(!self.sending.iter().any(sent), "dropped while being sent");
            }
            Action::Send { client, content, block } => {
                let (of, wants) = self.clients.get_mut(&client.0).expect("a client that is here");
                assert_eq!(*of, content.0);
                assert!(wants.remove(&block), "client {} gets block {block} twice or unasked", client.0);
                assert!(self.memory.contains(&(content.0, block)), "sent from memory");
                assert!(!self.sending.iter().any(|s| s.0 == client.0), "one block at a time a client");
                self.sending.push((client.0, block));
            }
            Action::Complete { client } => {
                let (_, wants) = self.clients.remove(&client.0).expect("completes once");
                assert!(wants.is_empty() && !self.sending.iter().any(|s| s.0 == client.0));
            }
            Action::Broken { client, block } => {
                let (content, _) = self.clients.remove(&client.0).expect("breaks once");
                assert!(self.failed.contains(&(content, block)), "broken without a failure");
                self.sending.retain(|s| s.0 != client.0);
            }
            Action::Refused { client, .. } => {
                self.clients.remove(&client.0).expect("refused once");
            }
        }
        assert!(self.circus.clients() <= self.config.clients_max);
        true
    }

    fn read(&mut self, id: ReadId, content: u64, first: u64, blocks: u64) {
        let longest = self.config.read.0.max(BLOCK) / BLOCK;
        assert!((1..=longest).contains(&blocks) && first + blocks <= BLOCKS[content as usize]);
        for block in first..first + blocks {
            let held = self.memory.contains(&(content, block));
            let on_way = self.reading.iter().any(|r| r.1 == content && (r.2..r.2 + r.3).contains(&block));
            assert!(!held && !on_way, "block {block} is read twice at once");
        }
        self.reading.push((id, content, first, blocks));
        assert!(self.reading.len() <= self.config.reads_in_flight.max(1));
        let promised: u64 = self.reading.iter().map(|r| r.3).sum();
        assert!(self.memory.len() as u64 + promised <= self.config.memory.0 / BLOCK, "memory is bounded");
    }

    /// From here on reads end and connections drain, in the order of `choose` (a number below the one it is
    /// given), and everybody must get to the end.
    pub(crate) fn finish(mut self, mut choose: impl FnMut(usize) -> usize) {
        for turn in 0.. {
            while self.poll() {}
            let choices = self.reading.len() + self.sending.len();
            if choices == 0 {
                break;
            }
            assert!(turn < TURNS_MAX, "no end");
            match choose(choices) {
                nth if nth < self.reading.len() => self.read_done(nth, None),
                nth => self.sent(nth - self.reading.len()),
            }
        }
        assert!(self.clients.is_empty(), "nobody is stuck: {:?}", self.clients);
        assert_eq!((self.circus.clients(), self.circus.files()), (0, 0));
    }
}
