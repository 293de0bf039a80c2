//! Peers that take pieces of files in random order: how many bytes are read for each byte used.

use std::collections::{BTreeMap, BTreeSet};

use seekless_base::{Bytes, Lba, Nanos};
use seekless_policy::KernelRead;
use seekless_policy::sizing::competitive::Start;
use seekless_policy::sizing::controller::Params;
use seekless_policy::{
    Access, Action, AheadConfig, Config, Demand, DiskEngine, Event, FileId, MemoryLimit, Outcome, Request,
    RequestId, Sizing, Taken, Verdict,
};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const BLOCK: u64 = 16 * K;
const PIECE: u64 = 2 * M;
const FILE: u64 = 1 << 30;
const FILES: u64 = 24;
const PEERS: u64 = 40;

/// Which blocks of a piece a peer takes.
#[derive(Clone, Copy)]
enum Pattern {
    Whole,
    /// Three blocks of it.
    Scattered,
    /// Any three blocks of it in order: some are neighbours.
    AtRandom,
}

/// How reads are reported.
#[derive(Clone, Copy, PartialEq)]
enum Door {
    /// A miss waits, and its reader announced random reads.
    Advised,
    /// A miss waits.
    Waits,
    /// No call waits: the kernel reads the missing bytes, and what follows is read along with it.
    Observes,
}

/// Pseudorandom numbers: splitmix64.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % most
    }
}

/// A disk that delivers at once, and its page cache.
struct Machine {
    engine: DiskEngine,
    resident: BTreeMap<FileId, Vec<bool>>,
    /// Bytes from the disk; below, bytes that clients took.
    read: u64,
    used: u64,
    ids: u64,
    /// Where reads of a file ended, until one begins there: `observe` opens the file then.
    unconnected: BTreeMap<FileId, Option<Vec<u64>>>,
}

impl Machine {
    fn new(config: Config) -> Machine {
        Machine {
            engine: DiskEngine::new(config),
            resident: BTreeMap::new(),
            read: 0,
            used: 0,
            ids: 0,
            unconnected: BTreeMap::new(),
        }
    }

    fn fill(&mut self, file: FileId, from: u64, upto: u64) {
        let blocks = self.resident.entry(file).or_insert_with(|| vec![false; (FILE / BLOCK) as usize]);
        for block in from / BLOCK..upto.div_ceil(BLOCK) {
            if !std::mem::replace(&mut blocks[block as usize], true) {
                self.read += BLOCK;
            }
        }
    }

    fn has(&self, file: FileId, offset: u64) -> bool {
        self.resident.get(&file).is_some_and(|blocks| blocks[(offset / BLOCK) as usize])
    }

    fn serve(&mut self, now: Nanos) {
        while let Some(action) = self.engine.poll_action() {
            if let Action::Read { id, file, offset, len, .. } = action {
                self.fill(file, offset, offset + len);
                self.engine.handle(now, Event::Done { read: id, outcome: Outcome::Ok });
            }
        }
    }

    /// Whether `observe` has not opened the file yet. A read that connects to another is reported with it.
    fn is_unheard(&mut self, now: Nanos, file: FileId, offset: u64, len: u64) -> bool {
        let unconnected = self.unconnected.entry(file).or_insert(Some(Vec::new()));
        let Some(ends) = unconnected else { return false };
        if !ends.contains(&offset) {
            ends.push(offset + len);
            return true;
        }
        *unconnected = None;
        let lba = Some(Lba(file.ino * (FILE / 512) + (offset - len) / 512));
        let access = Access { file, offset: offset - len, len, file_size: FILE, lba, taken: Taken::Unknown };
        self.engine.handle(now, Event::Opened { file });
        self.engine.handle(now, Event::Access(access));
        self.serve(now);
        false
    }

    fn read(&mut self, now: Nanos, door: Door, file: FileId, offset: u64, len: u64) {
        let lba = Some(Lba(file.ino * (FILE / 512) + offset / 512));
        if !self.has(file, offset) {
            self.ids += 1;
            let event = if door == Door::Observes {
                let behind = Some(Lba(file.ino * (FILE / 512) + (offset + len) / 512));
                let read = KernelRead::new(file, offset..offset + len, 0, FILE);
                Event::ReadByKernel(KernelRead { lba: behind, ..read })
            } else {
                let demand = Demand { random: door == Door::Advised, ..Demand::default() };
                let (id, from) = (RequestId(self.ids), offset);
                Event::Request(Request { id, file, from, offset, len, file_size: FILE, lba, demand })
            };
            self.engine.handle(now, event);
            self.serve(now);
            // The client reads missing bytes for itself.
            self.fill(file, offset, offset + len);
        }
        self.used += len;
        let taken = if door == Door::Advised { Taken::All } else { Taken::Unknown };
        let access = Access { file, offset, len, file_size: FILE, lba, taken };
        self.engine.handle(now, Event::Access(access));
        self.serve(now);
    }
}

fn auto() -> Config {
    Config {
        sizing: Sizing::Auto(Params::default()),
        ahead: Some(AheadConfig::default()),
        memory: MemoryLimit { bytes: Bytes::gib(1), ..MemoryLimit::default() },
        read_max: Bytes::mib(64),
        ..Config::default()
    }
}

/// Bytes read for each byte used, with peers running for `seconds`.
fn amplification(config: Config, door: Door, pattern: Pattern, seconds: u64) -> f64 {
    let mut machine = Machine::new(config);
    let mut random = Numbers(7);
    // State of each peer: its file, and the blocks it has still to take, the last first.
    let mut peers: Vec<(FileId, Vec<u64>)> =
        (0..PEERS).map(|_| (FileId { dev: 8, ino: 0 }, Vec::new())).collect();
    for step in 0..seconds * 10 {
        for (number, (file, blocks)) in peers.iter_mut().enumerate() {
            let now = Nanos::from_millis(step * 100 + number as u64);
            let burst = match pattern {
                Pattern::Whole => 16,
                Pattern::Scattered | Pattern::AtRandom => 1,
            };
            for _ in 0..burst {
                if blocks.is_empty() {
                    *file = FileId { dev: 8, ino: 1 + random.below(FILES) };
                    let piece = random.below(FILE / PIECE) * PIECE;
                    *blocks = match pattern {
                        Pattern::Whole => (0..PIECE / BLOCK).map(|b| piece + b * BLOCK).collect(),
                        Pattern::Scattered => {
                            (0..3).map(|b| piece + (b * 40 + random.below(40)) * BLOCK).collect()
                        }
                        Pattern::AtRandom => {
                            let any = || piece + random.below(PIECE / BLOCK) * BLOCK;
                            std::iter::repeat_with(any)
                                .take(3)
                                .collect::<BTreeSet<u64>>()
                                .into_iter()
                                .collect()
                        }
                    };
                    blocks.reverse();
                }
                let block = blocks.pop().unwrap();
                if door == Door::Observes && machine.is_unheard(now, *file, block, BLOCK) {
                    machine.fill(*file, block, block + BLOCK);
                    machine.used += BLOCK;
                    continue;
                }
                machine.read(now, door, *file, block, BLOCK);
            }
        }
    }
    machine.read as f64 / machine.used as f64
}

/// On a disk with time to spare, where everything is read that may be.
#[test]
fn whole_pieces_in_random_order_are_read_about_once() {
    for (name, door, most) in
        [("advised", Door::Advised, 1.05), ("waits", Door::Waits, 1.25), ("observes", Door::Observes, 1.25)]
    {
        let read = amplification(auto(), door, Pattern::Whole, 30);
        println!("{name}: {read:.3}");
        assert!(read <= most, "{name}: {read:.3} bytes read for each that was used");
    }
}

#[test]
fn blocks_scattered_over_pieces_are_read_about_once() {
    for (name, door) in [("advised", Door::Advised), ("waits", Door::Waits), ("observes", Door::Observes)] {
        let read = amplification(auto(), door, Pattern::Scattered, 10);
        println!("{name}: {read:.3}");
        assert!(read <= 1.1, "{name}: {read:.3} bytes read for each that was used");
    }
}

/// Some of them are neighbours, and `observe` opens a file when it sees two such.
#[test]
fn neighbours_by_chance_are_no_streams() {
    for (name, door) in [("waits", Door::Waits), ("observes", Door::Observes)] {
        let read = amplification(auto(), door, Pattern::AtRandom, 40);
        println!("{name}: {read:.3}");
        assert!(read <= 1.25, "{name}: {read:.3} bytes read for each that was used");
    }
}

/// With every sizing algorithm.
#[test]
fn one_that_reads_at_random_is_read_as_asked_by_every_algorithm() {
    let fixed = Config { prefetch: Bytes::mib(4), ..Config::default() };
    let competitive = Sizing::Competitive(Start::Depth);
    for (name, config) in [
        ("fixed, on a miss", fixed.clone()),
        ("fixed", Config { ahead: Some(AheadConfig::default()), ..fixed.clone() }),
        ("gradient, on a miss", Config { ahead: None, ..auto() }),
        ("competitive, on a miss", Config { sizing: competitive.clone(), ..fixed }),
        ("competitive", Config { sizing: competitive, ..auto() }),
    ] {
        // Until it is known how far such readers go: none has stopped yet.
        let read = amplification(config, Door::Advised, Pattern::Whole, 1);
        assert_eq!(read, 1.0, "{name}");
    }
}

/// Pieces of known length are read whole: one read for each piece, not one for each block.
#[test]
fn what_was_learnt_of_pieces_is_read_whole() {
    let mut machine = Machine::new(auto());
    let mut now = Nanos::ZERO;
    let mut piece = |machine: &mut Machine, number: u64| {
        let before = machine.engine.stats().reads;
        for block in 0..PIECE / BLOCK {
            now += Nanos::from_millis(5);
            let file = FileId { dev: 8, ino: 1 + number % FILES };
            machine.read(now, Door::Advised, file, (7 * number + 1) * PIECE + block * BLOCK, BLOCK);
        }
        machine.engine.stats().reads - before
    };
    let reads: Vec<u64> = (0..60).map(|number| piece(&mut machine, number)).collect();
    // 16 KiB and 32 KiB are left to the reader, then each read doubles what it has: 64 KiB to 2 MiB.
    assert_eq!(reads[0], 6, "while nothing is known, as much as it has read");
    assert_eq!(reads[40..], [1; 20]);
    assert_eq!(machine.read, machine.used);
}

/// Bytes read for each byte used by 200 peers that together take what a disk delivers: each 32 KiB in 0.1 s.
/// The pieces of file `n` have `piece(n)` bytes, and the file begins `shift` bytes before the end of one. At
/// the end the peers finish their pieces.
fn swarm(door: Door, seconds: u64, piece: fn(u64) -> u64, shift: u64) -> f64 {
    let mut machine = Machine::new(auto());
    let mut random = Numbers(11);
    let mut peers: Vec<(FileId, Vec<u64>)> = vec![(FileId { dev: 8, ino: 0 }, Vec::new()); 200];
    let mut step = 0;
    while step < seconds * 10 || peers.iter().any(|(_, blocks)| !blocks.is_empty()) {
        for (number, (file, blocks)) in peers.iter_mut().enumerate() {
            let now = Nanos(step * 100_000_000 + number as u64 * 500_000);
            for _ in 0..2 {
                if blocks.is_empty() && step < seconds * 10 {
                    *file = FileId { dev: 8, ino: 1 + random.below(FILES) };
                    let piece = piece(file.ino);
                    let from = random.below((FILE - shift) / piece) * piece + shift;
                    *blocks = (0..piece / BLOCK).rev().map(|b| from + b * BLOCK).collect();
                }
                let Some(block) = blocks.pop() else { break };
                machine.read(now, door, *file, block, BLOCK);
            }
        }
        step += 1;
    }
    machine.read as f64 / machine.used as f64
}

#[test]
fn in_the_first_minute_200_peers_have_little_read_for_them_that_they_do_not_take() {
    type Piece = fn(u64) -> u64;
    let swarms: [(&str, Piece, u64); 3] = [
        ("2 MiB", |_| PIECE, 0),
        ("2 MiB, shifted", |_| PIECE, 5 * BLOCK),
        ("1 to 16 MiB", |file| M << (file % 5), 0),
    ];
    for (name, door) in [("advised", Door::Advised), ("waits", Door::Waits), ("observes", Door::Observes)] {
        for (pieces, piece, shift) in swarms {
            let read = swarm(door, 60, piece, shift);
            println!("{name}, {pieces}: {read:.3}");
            assert!(read <= 1.1, "{name}, {pieces}: {read:.3} bytes read for each that was used");
        }
    }
}

/// The last page of a piece that ends within a page comes with the piece, and nothing behind it.
#[test]
fn a_piece_that_does_not_align_is_read_to_its_last_page() {
    let mut engine = DiskEngine::new(auto());
    let (file, shift) = (FileId { dev: 8, ino: 1 }, 5_000);
    let mut reads = Vec::new();
    for number in 0..60u64 {
        let from = (7 * number + 1) * PIECE + shift;
        let (mut at, mut resident) = (from, from);
        reads.clear();
        while at < from + PIECE {
            let now = Nanos::from_millis(number * 3_000 + (at - from) / BLOCK);
            let len = BLOCK.min(from + PIECE - at);
            if at + len > resident {
                let demand = Demand { random: true, ..Demand::default() };
                let (id, lba) = (RequestId((number << 20) + at - from), Some(Lba(at / 512)));
                let request = Request { id, file, from: at, offset: at, len, file_size: FILE, lba, demand };
                engine.handle(now, Event::Request(request));
                resident = at + len;
            }
            while let Some(action) = engine.poll_action() {
                if let Action::Read { id, offset, len, .. } = action {
                    reads.push((offset, offset + len));
                    resident = resident.max(offset + len);
                    engine.handle(now, Event::Done { read: id, outcome: Outcome::Ok });
                }
            }
            let lba = Some(Lba(at / 512));
            let access = Access { file, offset: at, len, file_size: FILE, lba, taken: Taken::All };
            engine.handle(now, Event::Access(access));
            at += len;
        }
        if number > 40 {
            let page = |at: u64| at / 4096 * 4096;
            assert_eq!(reads, [(page(from), page(from + PIECE) + 4096)], "piece {number}");
        }
    }
}

/// A torrent is truncated while it is seeded, and grows again. Nothing is read beyond the ends that were told
/// last, and no call is left waiting.
#[test]
fn a_file_truncated_while_it_is_seeded_is_not_read_beyond_its_end() {
    const SIZES: [u64; 5] = [FILE, 300 * M + 1, 0, 5 * M, FILE];
    for door in [Door::Advised, Door::Waits] {
        let mut engine = DiskEngine::new(auto());
        let file = FileId { dev: 8, ino: 1 };
        let (mut random, mut piece) = (Numbers(3), 0);
        for step in 0..6_000u64 {
            let now = Nanos::from_millis(step * 20);
            let phase = (step / 1_200) as usize;
            let (size, told) = (SIZES[phase], SIZES[phase].max(SIZES[phase.saturating_sub(1)]));
            if step % 40 == 0 {
                piece = random.below(FILE / PIECE) * PIECE;
            }
            let offset = piece + step % 40 * BLOCK;
            let lba = Some(Lba(offset / 512));
            let demand = Demand { random: door == Door::Advised, ..Demand::default() };
            let (id, len) = (RequestId(step), BLOCK);
            let request = Request { id, file, from: offset, offset, len, file_size: size, lba, demand };
            engine.handle(now, Event::Request(request));
            let mut answered = false;
            while let Some(action) = engine.poll_action() {
                match action {
                    Action::Read { id, offset, len, .. } => {
                        let end = offset + len;
                        assert!(end <= told.next_multiple_of(4096), "step {step}: read to {end} of {told}");
                        engine.handle(now, Event::Done { read: id, outcome: Outcome::Ok });
                    }
                    Action::Answer { request, .. } => answered |= request == id,
                    _ => {}
                }
            }
            assert!(answered, "step {step} waits");
            let len = BLOCK.min(size.saturating_sub(offset));
            let access = Access { file, offset, len, file_size: size, lba, taken: Taken::All };
            engine.handle(now, Event::Access(access));
        }
        let stats = engine.stats();
        assert!(stats.bytes_unread <= stats.budget, "{} of {}", stats.bytes_unread, stats.budget);
    }
}

/// A client that reads on from the middle of a file is served by read-ahead as ever, beside peers and after
/// them.
#[test]
fn a_reader_that_goes_on_is_read_ahead_for_beside_a_swarm() {
    let mut machine = Machine::new(auto());
    let mut now = Nanos::ZERO;
    for number in 0..40u64 {
        for block in 0..PIECE / BLOCK {
            now += Nanos::from_millis(2);
            let file = FileId { dev: 8, ino: 1 + number % FILES };
            machine.read(now, Door::Waits, file, (7 * number + 1) * PIECE + block * BLOCK, BLOCK);
        }
    }
    let (file, start) = (FileId { dev: 8, ino: 99 }, 100 * M);
    let before = machine.engine.stats();
    for block in 0..64 * M / BLOCK {
        now += Nanos::from_millis(2);
        machine.read(now, Door::Waits, file, start + block * BLOCK, BLOCK);
    }
    let after = machine.engine.stats();
    // It waits at its begin, where the others' pieces end, and once for each doubling of what it has read.
    let (misses, reads) = (after.requests - before.requests, after.reads - before.reads);
    assert!(misses <= 6 && reads <= 20, "{misses} misses, {reads} reads");
}

/// Three of four clients read a needle of a store in one call, the others 4 MiB, a buffer a call.
#[test]
fn a_client_that_reads_all_in_one_call_is_read_as_asked_beside_others_that_go_on() {
    let mut machine = Machine::new(auto());
    let (mut now, mut random) = (Nanos::ZERO, Numbers(5));
    for i in 0..1_200 {
        let file = FileId { dev: 8, ino: random.below(FILES) };
        let mut at = (1 + random.below(60_000)) * BLOCK;
        let all_in_one = vec![(20 + random.below(40)) * BLOCK];
        let reads = if i % 4 == 0 { vec![256 * K; 16] } else { all_in_one };
        for len in reads {
            machine.read(now, Door::Waits, file, at, len);
            (at, now) = (at + len, now + Nanos::from_millis(2));
        }
        now += Nanos::from_millis(100);
    }
    let read = machine.read as f64 / machine.used as f64;
    assert!(read <= 1.1, "{read:.3} bytes read for each that was used");
}

/// Viewers that begin in the middle of films read in bursts, ten seconds apart. Their silences are not ends.
#[test]
fn silences_of_viewers_are_no_ends() {
    let mut machine = Machine::new(auto());
    let mut reads = Vec::new();
    for period in 0..12u64 {
        let before = machine.engine.stats().reads;
        for viewer in 0..32u64 {
            let now = Nanos::from_millis(period * 10_000 + viewer * 50);
            for block in 0..M / BLOCK {
                let offset = 100 * M + period * M + block * BLOCK;
                machine.read(now, Door::Waits, FileId { dev: 8, ino: 1 + viewer }, offset, BLOCK);
            }
        }
        reads.push(machine.engine.stats().reads - before);
    }
    // Once they have resumed, a piece holds several bursts.
    let late: u64 = reads[4..].iter().sum();
    assert!(late <= 8 * 32 / 2, "{reads:?}");
    assert!(machine.engine.stats().requests <= 4 * 32, "{}", machine.engine.stats().requests);
}

/// The answer to a request is a pass if nothing was read for it.
#[test]
fn a_read_at_random_is_passed_through_at_the_head_of_its_file_too() {
    let mut engine = DiskEngine::new(auto());
    let file = FileId { dev: 8, ino: 1 };
    let demand = Demand { random: true, ..Demand::default() };
    let request = Request {
        id: RequestId(1),
        file,
        from: 0,
        offset: 0,
        len: BLOCK,
        file_size: FILE,
        lba: None,
        demand,
    };
    engine.handle(Nanos::ZERO, Event::Request(request));
    let answer = std::iter::from_fn(|| engine.poll_action())
        .find_map(|action| match action {
            Action::Answer { verdict, .. } => Some(verdict),
            Action::Read { .. } => panic!("it is read"),
            _ => None,
        })
        .unwrap();
    assert!(matches!(answer, Verdict::Pass(_)), "{answer:?}");
    // A long request is read as asked.
    let long = Request { id: RequestId(2), offset: 0, len: M, ..request };
    engine.handle(Nanos::ZERO, Event::Request(long));
    let read = std::iter::from_fn(|| engine.poll_action()).find_map(|action| match action {
        Action::Read { offset, len, .. } => Some((offset, len)),
        _ => None,
    });
    assert_eq!(read, Some((0, M)));
}
