//! Competitive depth on the drive models: the disk's time for streams of unknown length against that of
//! somebody who knows them, \[C\] section 2 and the microbenchmarks of its section 3.1.

mod common;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use seekless_base::{Bytes, Lba, Nanos};
use seekless_model::drive::{Command, Drive, DriveSpec, Op, catalogue};
use seekless_policy::sizing::competitive::{Competitive, SLOW_START, SequentialReader, Start};

/// A stream: where it lies, how long it is, how far it was read ahead, what is known of its reader.
struct Stream {
    lba: Lba,
    length: u64,
    ahead: u64,
    start: SequentialReader,
}

/// One disk, one command at a time, as long as each is.
struct Disk {
    drive: Drive,
    now: Nanos,
}

impl Disk {
    fn read(&mut self, lba: Lba, bytes: u64) {
        let command = Command { id: 0, op: Op::Read, lba, sectors: bytes.div_ceil(512) as u32 };
        self.drive.submit(self.now, command).unwrap();
        self.now = self.drive.next_completion().unwrap();
        self.drive.poll(self.now).unwrap();
    }
}

fn streams(spec: &DriveSpec, seed: u64, start: Start, length: impl Fn(&mut Pcg64) -> u64) -> Vec<Stream> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let room = spec.sectors() - (64 << 11);
    (0..300)
        .map(|_| Stream {
            lba: Lba(rng.random_range(0..room) / 8 * 8),
            length: length(&mut rng),
            ahead: 0,
            start: SequentialReader::new(start),
        })
        .collect()
}

/// Time to serve the streams, `concurrent` at a time by turns, each by 64 KiB reads, read ahead as `depth`
/// says.
fn serve(
    spec: &DriveSpec,
    mut streams: Vec<Stream>,
    concurrent: usize,
    mut depth: impl FnMut(&mut Stream, Lba, u64) -> u64,
) -> Nanos {
    let mut disk = Disk { drive: Drive::new(spec), now: Nanos::ZERO };
    let mut active: Vec<Stream> = Vec::new();
    while !streams.is_empty() || !active.is_empty() {
        while active.len() < concurrent {
            let Some(stream) = streams.pop() else { break };
            active.push(stream);
        }
        for stream in &mut active {
            // Reads from memory cost the disk nothing: on to the next one that does.
            let at = stream.lba.plus_bytes(stream.ahead);
            let bytes = depth(stream, at, stream.ahead);
            disk.read(at, bytes);
            stream.ahead += bytes;
        }
        active.retain(|s| s.ahead < s.length);
    }
    disk.now
}

#[test]
fn at_most_twice_the_offline_optimum() {
    for name in ["ibm-36gb-10k", "wd-red-1tb", "seagate-1tb-7200", "modern-20tb-7200"] {
        let spec = catalogue::get(name).unwrap();
        let profile = common::measure(&spec, |_, timing| timing).profile;
        type Length = fn(&mut Pcg64) -> u64;
        let lengths: [(&str, Length); 4] = [
            ("whole files of 4 MiB", |_| 4 << 20),
            ("a random part of 4 MiB", |rng| rng.random_range(1..=64) << 16),
            ("any length up to 32 MiB", |rng| rng.random_range(1..=512) << 16),
            ("64 KiB", |_| 1 << 16),
        ];
        for (what, length) in lengths {
            for concurrent in [1, 16] {
                let best =
                    serve(&spec, streams(&spec, 7, Start::Depth, length), concurrent, |s, _, _| s.length);
                // Read in requests of 64 KiB; only what is missing is asked for.
                let ours = |start: Start| {
                    let mut engine = Competitive::new(profile.clone(), Bytes::mib(64));
                    serve(&spec, streams(&spec, 7, start, length), concurrent, |s, lba, at| {
                        let bytes = s.start.read_len(at, 1 << 16, engine.depth(lba));
                        engine.observe(lba, Bytes(bytes));
                        bytes
                    })
                };
                let ratio = |time: Nanos| time.as_secs_f64() / best.as_secs_f64();
                let (depth, slow) = (ratio(ours(Start::Depth)), ratio(ours(Start::Slow)));
                println!(
                    "{name}, {what}, {concurrent} at a time: {depth:.2} of the optimum, {slow:.2} with slow start"
                );
                assert!(depth <= 2.0, "{name}, {what}, {concurrent}: {depth}");
            }
        }
    }
}

#[test]
fn random_reads_cost_what_they_cost_without() {
    let spec = catalogue::get("ibm-36gb-10k").unwrap();
    let run = |ahead: bool| {
        let mut rng = Pcg64::seed_from_u64(3);
        let mut disk = Disk { drive: Drive::new(&spec), now: Nanos::ZERO };
        for _ in 0..400 {
            // Four-64KB-0: a random block of a random 4 MiB file, never its first.
            let file = rng.random_range(0..6000u64) * 4096 + 8192;
            let block = rng.random_range(1..64u64) << 16;
            let mut start = SequentialReader::new(Start::Depth);
            let bytes = if ahead { start.read_len(block, 1 << 16, Bytes::mib(1)) } else { 1 << 16 };
            disk.read(Lba(file).plus_bytes(block), bytes);
        }
        disk.now
    };
    assert_eq!(run(true), run(false));
    assert!(SLOW_START >= Bytes::kib(64));
}
