//! Block reordering with clients, disks and connections that do anything in any order, failing reads included; what must hold is
//! asserted by the world they share with the property test of `policy`.

use arbitrary::{Arbitrary, Unstructured};
use seekless_base::Bytes;
use seekless_reorder::{Config, Selection};

use self::world::{BLOCK, World};

#[path = "../../crates/reorder/tests/reorder/world.rs"]
mod world;

/// A configuration, then steps of two or three bytes.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok(config) = config(&mut input) else { return };
    let mut world = World::new(config);
    let mut steps = 0;
    while steps < 2000 && step(&mut world, &mut input).is_ok() && !input.is_empty() {
        steps += 1;
    }
    let mut turn = 0;
    world.finish(|choices| {
        turn += 7;
        turn % choices
    });
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

fn step(world: &mut World, input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let number = |input: &mut Unstructured<'_>| u8::arbitrary(input).map(usize::from);
    match u8::arbitrary(input)? % 16 {
        0 | 1 => {
            let content = u64::from(u8::arbitrary(input)? % 3);
            let (from, to) = (u64::from(u8::arbitrary(input)?), u64::from(u8::arbitrary(input)?));
            world.join(content, (from & 1 == 0).then_some((from / 2, to / 2)));
        }
        2 => world.leave(number(input)?),
        3 => world.set_memory(u64::from(u8::arbitrary(input)? % 60) + 1),
        4 => world.wrong_reports(0, u64::MAX),
        5 => world.read_done(number(input)?, Some(u64::from(u8::arbitrary(input)?))),
        6..=8 => world.read_done(number(input)?, None),
        9..=12 => world.sent(number(input)?),
        _ => {
            for _ in 0..=u8::arbitrary(input)? % 8 {
                world.poll();
            }
        }
    }
    Ok(())
}
