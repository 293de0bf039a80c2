use alloc::vec;
use alloc::vec::Vec;

use super::*;

const BLOCK: u64 = 64 << 10;

fn config(memory_blocks: u64, region_blocks: u64) -> Config {
    Config {
        memory: Bytes(memory_blocks * BLOCK),
        region: Bytes(region_blocks * BLOCK),
        queue: 1,
        ..Config::default()
    }
}

fn join(circus: &mut Circus, client: u64, blocks: u64) {
    circus.handle(Event::Join {
        client: ClientId(client),
        content: ContentId(1),
        blocks,
        wanted: Wanted::All,
    });
}

/// Does what is asked at once; returns the blocks sent, which are not acknowledged yet.
fn run(circus: &mut Circus) -> Vec<(u64, u64)> {
    let mut sends = vec![];
    while let Some(action) = circus.poll_action() {
        match action {
            Action::Read { id, blocks, .. } => circus.handle(Event::ReadDone { read: id, blocks }),
            Action::Send { client, block, .. } => sends.push((client.0, block)),
            _ => {}
        }
    }
    sends
}

/// Lets a client receive `n` blocks.
fn advance(circus: &mut Circus, client: u64, n: u64, at: &mut Vec<(u64, u64)>) {
    for _ in 0..n {
        at.extend(run(circus));
        let i = at.iter().position(|(c, _)| *c == client).expect("the client has a block to take");
        let (_, block) = at.remove(i);
        circus.handle(Event::Sent { client: ClientId(client), block });
    }
    at.extend(run(circus));
}

fn next_of(at: &[(u64, u64)], client: u64) -> u64 {
    at.iter().find(|(c, _)| *c == client).expect("being sent").1
}

/// Hand-worked: a file of 100 blocks, a region of 10. With a queue of one, the block being sent is one behind
/// the cursor.
#[test]
fn a_client_that_joins_starts_in_the_middle_of_the_region() {
    let mut circus = Circus::new(&config(100, 10));
    let mut at = vec![];
    join(&mut circus, 1, 100);
    advance(&mut circus, 1, 30, &mut at);
    assert_eq!(next_of(&at, 1), 30);
    // Cursor 31; the middle of the region is 5 behind it, and blocks 26 to 31 are in memory.
    let read = circus.stats().blocks_read;
    join(&mut circus, 2, 100);
    at.extend(run(&mut circus));
    assert_eq!(next_of(&at, 2), 26);
    assert_eq!(circus.stats().blocks_read, read);
    assert_eq!(circus.role(ClientId(1)), Some(Role::Frontrunner));
    assert_eq!(circus.role(ClientId(2)), Some(Role::Follower));
}

#[test]
fn a_follower_that_falls_behind_is_moved_to_the_middle() {
    let mut circus = Circus::new(&config(100, 10));
    let mut at = vec![];
    join(&mut circus, 1, 100);
    join(&mut circus, 2, 100);
    advance(&mut circus, 2, 3, &mut at);
    advance(&mut circus, 1, 40, &mut at);
    // File cursor 41. Client 2 is being sent block 3 and has 4 queued; after these it goes on at 36.
    advance(&mut circus, 2, 1, &mut at);
    assert_eq!(next_of(&at, 2), 4);
    advance(&mut circus, 2, 1, &mut at);
    assert_eq!(next_of(&at, 2), 36);
    assert_eq!(circus.stats().moved, 1);
    assert_eq!(circus.role(ClientId(1)), Some(Role::Frontrunner));
    // Faster now than the other, it overtakes and takes over the front.
    advance(&mut circus, 2, 10, &mut at);
    assert_eq!(circus.role(ClientId(2)), Some(Role::Frontrunner));
    assert_eq!(circus.role(ClientId(1)), Some(Role::Follower));
}

#[test]
fn beyond_the_threshold_a_client_collects_what_it_misses() {
    let mut circus = Circus::new(&config(100, 10));
    let mut at = vec![];
    join(&mut circus, 1, 100);
    join(&mut circus, 2, 100);
    // Client 2 gets 2, misses 2 to 34 when it is moved to 36, then goes on with the region round the circle.
    advance(&mut circus, 2, 2, &mut at);
    advance(&mut circus, 1, 40, &mut at);
    advance(&mut circus, 2, 4, &mut at);
    // It runs to the end of the file: blocks 36 to 99 make 64 + the first ones.
    let mut got = vec![];
    while circus.clients() == 2 {
        got.push(next_of(&at, 2));
        advance(&mut circus, 2, 1, &mut at);
    }
    assert_eq!(got.last(), Some(&35), "{got:?}");
    let tail: Vec<u64> = got.iter().copied().filter(|b| *b < 36).collect();
    assert!(tail.is_sorted() && tail.contains(&5), "what it skipped comes last, in order: {tail:?}");
}

/// A client at the front that lacks nothing within the leapfront distance does not drag the region along.
#[test]
fn a_leap_leaves_the_region_where_it_is() {
    let mut circus = Circus::new(&config(100, 10));
    let mut at = vec![];
    join(&mut circus, 1, 100);
    advance(&mut circus, 1, 20, &mut at);
    circus.handle(Event::Join {
        client: ClientId(2),
        content: ContentId(1),
        blocks: 100,
        wanted: Wanted::Ranges(vec![60..65, 65..70]),
    });
    at.extend(run(&mut circus));
    assert_eq!(next_of(&at, 2), 60);
    assert_eq!(circus.role(ClientId(2)), Some(Role::Independent));
    assert_eq!(circus.role(ClientId(1)), Some(Role::Frontrunner));
    assert!(circus.stats().chosen_outside > 0);
}

#[test]
fn sequential_order_is_sequential_and_shares_nothing_by_itself() {
    let mut circus = Circus::new(&Config { selection: Selection::Sequential, ..config(4, 10) });
    let mut at = vec![];
    join(&mut circus, 1, 50);
    advance(&mut circus, 1, 25, &mut at);
    join(&mut circus, 2, 50);
    let mut got = vec![];
    at.extend(run(&mut circus));
    while circus.clients() == 2 {
        got.push(next_of(&at, 2));
        advance(&mut circus, 2, 1, &mut at);
    }
    assert_eq!(got, (0..50).collect::<Vec<_>>());
}

/// Figure 5 goes round: two clients that come together get their blocks in turn.
#[test]
fn queues_fill_one_block_a_round() {
    let mut circus = Circus::new(&Config { queue: 3, reads_in_flight: 16, ..config(100, 10) });
    for client in [1, 2] {
        circus.handle(Event::Join {
            client: ClientId(client),
            content: ContentId(client),
            blocks: 50,
            wanted: Wanted::All,
        });
    }
    let mut reads = vec![];
    while let Some(action) = circus.poll_action() {
        if let Action::Read { content, first, .. } = action {
            reads.push((content.0, first));
        }
    }
    // Block 0 is waited for, so it comes first in any case; those behind it are read in the order of choice.
    assert_eq!(reads, [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)]);
    assert_eq!(circus.stats().chosen, 6, "no queue beyond its bound");
}

#[test]
fn one_block_of_memory_is_enough() {
    for read in [1, 8] {
        let mut circus = Circus::new(&Config { read: Bytes(read * BLOCK), queue: 5, ..config(1, 10) });
        join(&mut circus, 1, 40);
        join(&mut circus, 2, 40);
        let mut got = [0, 0, 0];
        while circus.clients() > 0 {
            let sends = run(&mut circus);
            assert!(!sends.is_empty(), "somebody makes progress: {got:?}");
            for (client, block) in sends {
                got[client as usize] += 1;
                circus.handle(Event::Sent { client: ClientId(client), block });
            }
        }
        assert_eq!(got, [0, 40, 40]);
        assert_eq!(circus.stats().blocks_held_max, 1);
    }
}

#[test]
fn a_read_goes_on_as_far_as_the_client_needs_and_no_block_is_read_twice() {
    let mut circus = Circus::new(&Config { read: Bytes(8 * BLOCK), queue: 5, ..config(400, 10) });
    circus.handle(Event::Join {
        client: ClientId(1),
        content: ContentId(1),
        blocks: 100,
        wanted: Wanted::Ranges(vec![0..20, 30..40]),
    });
    let mut reads = vec![];
    while circus.clients() > 0 {
        while let Some(action) = circus.poll_action() {
            match action {
                Action::Read { id, first, blocks, .. } => {
                    reads.push((first, blocks));
                    circus.handle(Event::ReadDone { read: id, blocks });
                }
                Action::Send { client, block, .. } => circus.handle(Event::Sent { client, block }),
                _ => {}
            }
        }
    }
    assert_eq!(reads, [(0, 8), (8, 8), (16, 4), (30, 8), (38, 2)]);
    assert_eq!(circus.wants(), 0);
}

#[test]
fn an_unreadable_block_ends_those_who_need_it_and_no_others() {
    let mut circus = Circus::new(&Config { read: Bytes(4 * BLOCK), ..config(100, 10) });
    join(&mut circus, 1, 20);
    circus.handle(Event::Join {
        client: ClientId(2),
        content: ContentId(1),
        blocks: 20,
        wanted: Wanted::Ranges(vec![0..6, 7..20]),
    });
    let (mut broken, mut complete) = (vec![], vec![]);
    while let Some(action) = circus.poll_action() {
        match action {
            // Block 6 cannot be read.
            Action::Read { id, first, blocks, .. } => {
                let good = if first <= 6 { blocks.min(6 - first) } else { blocks };
                circus.handle(Event::ReadDone { read: id, blocks: good });
            }
            Action::Send { client, block, .. } => {
                assert_ne!(block, 6);
                circus.handle(Event::Sent { client, block });
            }
            Action::Broken { client, block } => broken.push((client.0, block)),
            Action::Complete { client } => complete.push(client.0),
            _ => {}
        }
    }
    assert_eq!((broken, complete), (vec![(1, 6)], vec![2]));
    assert_eq!((circus.clients(), circus.files(), circus.wants()), (0, 0, 0));
}

#[test]
fn what_cannot_be_taken_on_is_refused() {
    let mut circus = Circus::new(&Config { clients_max: 1, ..config(10, 10) });
    let refused = |circus: &mut Circus| {
        let mut why = None;
        while let Some(action) = circus.poll_action() {
            if let Action::Refused { why: w, .. } = action {
                why = Some(w);
            }
        }
        why
    };
    join(&mut circus, 1, BLOCKS_MAX + 1);
    assert_eq!(refused(&mut circus), Some(Refusal::Blocks));
    join(&mut circus, 1, 10);
    join(&mut circus, 1, 10);
    assert_eq!((refused(&mut circus), circus.clients()), (None, 1));
    join(&mut circus, 2, 11);
    assert_eq!(refused(&mut circus), Some(Refusal::Blocks));
    join(&mut circus, 2, 10);
    assert_eq!(refused(&mut circus), Some(Refusal::Full));
    circus.handle(Event::Left { client: ClientId(1) });
    join(&mut circus, 3, 0);
    assert_eq!(circus.poll_action(), Some(Action::Complete { client: ClientId(3) }));
}
