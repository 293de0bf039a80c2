//! Block reordering with clients, disks and connections that do anything in any order, failing reads included: every client
//! gets each of its blocks once or is told that it cannot, memory keeps its bound, nobody is stuck.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Arbitrary, Unstructured};
use seekless_policy::ReadId;
use seekless_policy::reorder::{Action, Circus, ClientId, Config, ContentId, Event, Selection, Wanted};
use seekless_units::Bytes;

const BLOCK: u64 = 4096;

/// Blocks of the contents: less than a word of the block map, one more than a word, and one alone.
const BLOCKS: [u64; 3] = [130, 65, 1];

struct World {
    circus: Circus,
    config: Config,
    /// By client: its content and what it still has to get.
    clients: BTreeMap<u64, (u64, BTreeSet<u64>)>,
    sending: Vec<(u64, u64)>,
    reading: Vec<(ReadId, u64, u64, u64)>,
    memory: BTreeSet<(u64, u64)>,
    next: u64,
    failed: BTreeSet<(u64, u64)>,
}

/// A configuration, then steps of two or three bytes.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok(config) = config(&mut input) else { return };
    let mut world = World {
        circus: Circus::new(&config),
        config,
        clients: BTreeMap::new(),
        sending: vec![],
        reading: vec![],
        memory: BTreeSet::new(),
        next: 0,
        failed: BTreeSet::new(),
    };
    let mut steps = 0;
    while steps < 2000 && world.step(&mut input).is_ok() && !input.is_empty() {
        steps += 1;
    }
    // From here on reads end and connections drain; everybody must get to the end.
    for turn in 0.. {
        while world.poll() {}
        let choices = world.reading.len() + world.sending.len();
        if choices == 0 {
            break;
        }
        assert!(turn < 100_000, "no end");
        match turn * 7 % choices {
            nth if nth < world.reading.len() => world.read_done(nth, None),
            nth => world.sent(nth - world.reading.len()),
        }
    }
    assert!(world.clients.is_empty(), "stuck: {:?}", world.clients);
    assert_eq!((world.circus.clients(), world.circus.files()), (0, 0));
}

fn config(input: &mut Unstructured<'_>) -> arbitrary::Result<Config> {
    Ok(Config {
        selection: if bool::arbitrary(input)? { Selection::Circus } else { Selection::Sequential },
        block: Bytes(BLOCK),
        memory: Bytes(input.int_in_range(1..=60u64)? * BLOCK),
        region: Bytes(input.int_in_range(0..=40u64)? * BLOCK),
        threshold: f64::from(u8::arbitrary(input)?) / 200.0,
        leapfront: f64::from(u8::arbitrary(input)?) / 60.0,
        queue: input.int_in_range(0..=7usize)?,
        read: Bytes(input.int_in_range(0..=12u64)? * BLOCK),
        reads_in_flight: input.int_in_range(0..=5usize)?,
        clients_max: input.int_in_range(1..=12usize)?,
    })
}

impl World {
    fn step(&mut self, input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let nth = |input: &mut Unstructured<'_>, len: usize| input.int_in_range(0..=len.saturating_sub(1));
        match u8::arbitrary(input)? % 16 {
            0 | 1 => {
                let content = u64::from(u8::arbitrary(input)? % 3);
                let (from, to) = (u64::from(u8::arbitrary(input)?), u64::from(u8::arbitrary(input)?));
                self.join(content, (from & 1 == 0).then_some((from / 2, to / 2)));
            }
            2 => {
                let nth = nth(input, self.clients.len())?;
                // A refusal or completion not yet polled may still name it; take these first.
                while self.poll() {}
                let Some(client) = self.clients.keys().nth(nth).copied() else { return Ok(()) };
                self.clients.remove(&client);
                self.sending.retain(|s| s.0 != client);
                self.circus.handle(Event::Left { client: ClientId(client) });
            }
            3 => {
                let blocks = u64::from(u8::arbitrary(input)? % 60) + 1;
                while self.poll() {}
                self.config.memory = Bytes(blocks * BLOCK);
                self.circus.handle(Event::Memory(self.config.memory));
            }
            4 => {
                // Reports about things that are not there.
                self.circus.handle(Event::Left { client: ClientId(u64::MAX) });
                self.circus.handle(Event::ReadDone { read: ReadId(u64::MAX), blocks: 9 });
                self.circus.handle(Event::Sent { client: ClientId(self.next), block: u64::MAX });
            }
            5 if !self.reading.is_empty() => {
                let nth = nth(input, self.reading.len())?;
                let got = u64::from(u8::arbitrary(input)?) % self.reading[nth].3;
                self.read_done(nth, Some(got));
            }
            6..=8 if !self.reading.is_empty() => {
                let nth = nth(input, self.reading.len())?;
                self.read_done(nth, None);
            }
            9..=12 if !self.sending.is_empty() => {
                let nth = nth(input, self.sending.len())?;
                self.sent(nth);
            }
            _ => {
                for _ in 0..=u8::arbitrary(input)? % 8 {
                    self.poll();
                }
            }
        }
        Ok(())
    }

    fn join(&mut self, content: u64, range: Option<(u64, u64)>) {
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

    fn poll(&mut self) -> bool {
        let Some(action) = self.circus.poll_action() else { return false };
        match action {
            Action::Read { id, content, first, blocks } => {
                assert!(blocks > 0 && first + blocks <= BLOCKS[content.0 as usize]);
                for block in first..first + blocks {
                    let on_way =
                        |r: &(ReadId, u64, u64, u64)| r.1 == content.0 && (r.2..r.2 + r.3).contains(&block);
                    assert!(!self.memory.contains(&(content.0, block)), "read what is held");
                    assert!(!self.reading.iter().any(on_way), "read twice at once");
                }
                self.reading.push((id, content.0, first, blocks));
                assert!(self.reading.len() <= self.config.reads_in_flight.max(1));
            }
            Action::Drop { content, block } => {
                assert!(self.memory.remove(&(content.0, block)), "dropped what was not there");
                let sent = |s: &(u64, u64)| self.clients[&s.0].0 == content.0 && s.1 == block;
                assert!(!self.sending.iter().any(sent), "dropped while being sent");
            }
            Action::Send { client, content, block } => {
                let (of, wants) = self.clients.get_mut(&client.0).expect("a client that is here");
                assert_eq!(*of, content.0);
                assert!(wants.remove(&block), "a block twice or unasked");
                assert!(self.memory.contains(&(content.0, block)), "sent what is not in memory");
                assert!(!self.sending.iter().any(|s| s.0 == client.0), "two blocks at once");
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

    fn read_done(&mut self, nth: usize, got: Option<u64>) {
        let (read, content, first, blocks) = self.reading.remove(nth);
        let got = got.unwrap_or(blocks);
        self.memory.extend((first..first + got).map(|b| (content, b)));
        self.failed.extend((first + got..first + blocks).map(|b| (content, b)));
        self.circus.handle(Event::ReadDone { read, blocks: got });
    }

    fn sent(&mut self, nth: usize) {
        let (client, block) = self.sending.remove(nth);
        self.circus.handle(Event::Sent { client: ClientId(client), block });
    }
}
