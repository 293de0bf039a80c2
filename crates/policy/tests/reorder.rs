//! What must hold of block reordering whatever clients, disks and connections do, and in whatever order: every client gets
//! every block it wants once, somebody always gets on, memory and tables keep their bounds.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use seekless_policy::ReadId;
use seekless_policy::reorder::{Action, Circus, ClientId, Config, ContentId, Event, Selection, Wanted};
use seekless_units::Bytes;

const BLOCK: u64 = 4096;

#[derive(Clone, Debug)]
enum Step {
    Join { content: u64, from: u64, to: u64, all: bool },
    Leave { nth: usize },
    Sent { nth: usize },
    SentWrong { nth: usize, block: u64 },
    ReadDone { nth: usize },
    Poll { times: usize },
    Memory { blocks: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..3u64, 0..140u64, 0..140u64, any::<bool>())
            .prop_map(|(content, from, to, all)| Step::Join { content, from, to, all }),
        1 => any::<usize>().prop_map(|nth| Step::Leave { nth }),
        12 => any::<usize>().prop_map(|nth| Step::Sent { nth }),
        1 => (any::<usize>(), any::<u64>()).prop_map(|(nth, block)| Step::SentWrong { nth, block }),
        8 => any::<usize>().prop_map(|nth| Step::ReadDone { nth }),
        8 => (1..6usize).prop_map(|times| Step::Poll { times }),
        1 => (0..60u64).prop_map(|blocks| Step::Memory { blocks }),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    (any::<bool>(), 1..60u64, 1..40u64, 0.0..1.1f64, 0.0..4.0f64, 0..7usize, 0..12u64, 0..5usize, 1..12usize)
        .prop_map(
            |(circus, memory, region, threshold, leapfront, queue, read, reads_in_flight, clients_max)| {
                Config {
                    selection: if circus { Selection::Circus } else { Selection::Sequential },
                    block: Bytes(BLOCK),
                    region: Bytes(region * BLOCK),
                    threshold,
                    leapfront,
                    queue,
                    memory: Bytes(memory * BLOCK),
                    read: Bytes(read * BLOCK),
                    reads_in_flight,
                    clients_max,
                }
            },
        )
}

/// Blocks of the three contents: less than a word of the block map, one more than one, and one alone.
fn blocks_of(content: u64) -> u64 {
    [130, 65, 1][content as usize]
}

struct World {
    circus: Circus,
    config: Config,
    clients: BTreeMap<u64, (u64, BTreeSet<u64>)>,
    sending: Vec<(u64, u64)>,
    reading: Vec<(ReadId, u64, u64, u64)>,
    memory: BTreeSet<(u64, u64)>,
    next: u64,
    completed: usize,
}

impl World {
    fn join(&mut self, content: u64, range: Option<(u64, u64)>) {
        self.next += 1;
        let blocks = blocks_of(content);
        let wants: BTreeSet<u64> = match range {
            None => (0..blocks).collect(),
            Some((from, to)) => (from..to).filter(|b| *b < blocks).collect(),
        };
        let wanted = range.map_or(Wanted::All, |(from, to)| Wanted::Ranges(vec![from..to, from..to]));
        self.clients.insert(self.next, (content, wants));
        self.circus.handle(Event::Join {
            client: ClientId(self.next),
            content: ContentId(content),
            blocks,
            wanted,
        });
    }

    fn poll(&mut self) -> bool {
        let Some(action) = self.circus.poll_action() else { return false };
        match action {
            Action::Read { id, content, first, blocks } => {
                let queue = self.config.read.0.max(BLOCK) / BLOCK;
                assert!((1..=queue).contains(&blocks) && first + blocks <= blocks_of(content.0));
                for block in first..first + blocks {
                    let held = self.memory.contains(&(content.0, block));
                    let on_way =
                        self.reading.iter().any(|r| r.1 == content.0 && (r.2..r.2 + r.3).contains(&block));
                    assert!(!held && !on_way, "block {block} is read twice at once");
                }
                self.reading.push((id, content.0, first, blocks));
                assert!(self.reading.len() <= self.config.reads_in_flight.max(1));
                let promised: u64 = self.reading.iter().map(|r| r.3).sum();
                assert!(
                    self.memory.len() as u64 + promised <= self.config.memory.0 / BLOCK,
                    "memory is bounded"
                );
            }
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
                self.completed += 1;
            }
            Action::Refused { client, .. } => {
                self.clients.remove(&client.0).expect("refused once");
            }
            Action::Broken { .. } => panic!("every read succeeded"),
        }
        assert!(self.circus.clients() <= self.config.clients_max);
        true
    }

    fn read_done(&mut self, nth: usize) {
        let (read, content, first, blocks) = self.reading.remove(nth);
        self.memory.extend((first..first + blocks).map(|b| (content, b)));
        self.circus.handle(Event::ReadDone { read, blocks });
    }

    fn sent(&mut self, nth: usize) {
        let (client, block) = self.sending.remove(nth);
        self.circus.handle(Event::Sent { client: ClientId(client), block });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Join { content, from, to, all } => self.join(content, (!all).then_some((from, to))),
            Step::Leave { nth } => {
                let Some(client) = self.clients.keys().nth(nth % self.clients.len().max(1)).copied() else {
                    return;
                };
                // A refusal or completion not yet polled may still name it; take these first.
                while self.poll() {}
                if self.clients.remove(&client).is_some() {
                    self.sending.retain(|s| s.0 != client);
                    self.circus.handle(Event::Left { client: ClientId(client) });
                }
            }
            Step::Memory { blocks } => {
                while self.poll() {}
                self.config.memory = Bytes(blocks.max(1) * BLOCK);
                self.circus.handle(Event::Memory(self.config.memory));
            }
            Step::Sent { nth } if !self.sending.is_empty() => self.sent(nth % self.sending.len()),
            Step::SentWrong { nth, block } if !self.sending.is_empty() => {
                let (client, right) = self.sending[nth % self.sending.len()];
                if block != right {
                    self.circus.handle(Event::Sent { client: ClientId(client), block });
                }
                self.circus.handle(Event::Left { client: ClientId(u64::MAX) });
                self.circus.handle(Event::ReadDone { read: ReadId(u64::MAX), blocks: 9 });
            }
            Step::ReadDone { nth } if !self.reading.is_empty() => self.read_done(nth % self.reading.len()),
            Step::Poll { times } => {
                for _ in 0..times {
                    self.poll();
                }
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_client_gets_every_block_once(
        config in config(),
        steps in proptest::collection::vec(step(), 1..400),
        order in any::<u64>(),
    ) {
        let mut world = World {
            circus: Circus::new(&config),
            config,
            clients: BTreeMap::new(),
            sending: vec![],
            reading: vec![],
            memory: BTreeSet::new(),
            next: 0,
            completed: 0,
        };
        for step in steps {
            world.step(step);
        }
        // From here on reads end and connections drain, in an arbitrary order, and everybody must get to the end.
        let mut seed = order;
        loop {
            while world.poll() {}
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let choices = world.reading.len() + world.sending.len();
            if choices == 0 {
                break;
            }
            let nth = (seed >> 33) as usize % choices;
            if nth < world.reading.len() {
                world.read_done(nth);
            } else {
                world.sent(nth - world.reading.len());
            }
        }
        prop_assert!(world.clients.is_empty(), "nobody is stuck: {:?}", world.clients);
        prop_assert_eq!((world.circus.clients(), world.circus.files()), (0, 0));
    }
}
