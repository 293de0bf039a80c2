//! What must hold of block reordering whatever clients, disks and connections do, and in whatever order:
//! every client gets every block it wants once, some client always makes progress, memory and tables keep
//! their bounds.

mod world;

use proptest::prelude::*;
use seekless_base::Bytes;
use seekless_reorder::{Config, Selection};
use world::{BLOCK, World};

#[derive(Clone, Debug)]
enum Step {
    Join { content: u64, from: u64, to: u64, all: bool },
    Leave { nth: usize },
    Sent { nth: usize },
    SentWrong { nth: usize, block: u64 },
    ReadDone { nth: usize },
    ReadFailed { nth: usize, got: u64 },
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
        1 => (any::<usize>(), any::<u64>()).prop_map(|(nth, got)| Step::ReadFailed { nth, got }),
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

fn take(world: &mut World, step: Step) {
    match step {
        Step::Join { content, from, to, all } => world.join(content, (!all).then_some((from, to))),
        Step::Leave { nth } => world.leave(nth),
        Step::Memory { blocks } => world.set_memory(blocks),
        Step::Sent { nth } => world.sent(nth),
        Step::SentWrong { nth, block } => world.wrong_reports(nth, block),
        Step::ReadDone { nth } => world.read_done(nth, None),
        Step::ReadFailed { nth, got } => world.read_done(nth, Some(got)),
        Step::Poll { times } => {
            for _ in 0..times {
                world.poll();
            }
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
        let mut world = World::new(config);
        for step in steps {
            take(&mut world, step);
        }
        let mut seed = order;
        world.finish(|choices| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % choices
        });
    }
}
