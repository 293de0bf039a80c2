//! What a live disk did against what the model says of it: every command of a recorded run once more through
//! `seekless_model::drive`, in virtual time, as the simulator drives it, and every service time must be the
//! recorded one.
//!
//! The live disk runs on a clock, is woken late and asked by several threads, while the simulator knows when
//! to look. Drive time is the same for both, so the comparison is exact and a busy machine changes nothing:
//! it changes when commands arrive, and their arrivals are part of the recording. Needs what every live disk
//! needs, else says `skipped:`.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::thread;

use seekless_base::{Lba, Nanos};
use seekless_model::drive::{Command, Completion, Drive, DriveSpec, Op, catalogue};
use seekless_model::workload::draw::Draw;

use common::{Bench, open_direct, read_direct};

/// Commands the kernel has with the drive at most. Each may be two on the FUSE file (longer than 1 MiB) and
/// two more on the drive (across the end of a chunk): never more than the 32 the drives here queue, so none
/// waits outside the model.
const QUEUE_DEPTH: usize = 8;
const FILES: u64 = 24;
const FILE_BYTES: u64 = 8 << 20;

/// A command of a trace.
#[derive(Debug)]
struct Recorded {
    command: Command,
    arrived: Nanos,
    /// When the drive took it up and was done with it.
    service: (Nanos, Nanos),
    disk: u64,
    /// Commands present at its arrival, itself included.
    queue: u64,
}

/// The commands of a trace in the order in which they arrived.
fn recorded(trace: &Path) -> Vec<Recorded> {
    let text = fs::read_to_string(trace).unwrap();
    let one = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let n = |i: usize| fields[i].parse::<u64>().unwrap();
        let op = match fields[1] {
            "R" => Op::Read,
            "W" => Op::Write,
            _ => Op::Flush,
        };
        assert!(n(6) <= 32, "a command waited outside the drive: {line}");
        let command = Command { id: 0, op, lba: Lba(n(2)), sectors: n(3) as u32 };
        Recorded {
            command,
            arrived: Nanos(n(0)),
            service: (Nanos(n(4)), Nanos(n(5))),
            disk: n(7),
            queue: n(6),
        }
    };
    let mut all: Vec<Recorded> = text.lines().skip(1).map(one).collect();
    // Only the parts of one request arrive at the same time, and they go in by their place on the disk.
    all.sort_by_key(|r| (r.arrived, r.disk));
    for (id, recorded) in all.iter_mut().enumerate() {
        recorded.command.id = id as u64;
    }
    all
}

/// The commands through a drive at rest, each at its time; completions in order of arrival.
fn replayed(spec: &DriveSpec, recorded: &[Recorded]) -> Vec<Completion> {
    let mut drive = Drive::new(spec);
    let mut done = Vec::with_capacity(recorded.len());
    let mut coming = recorded.iter().peekable();
    loop {
        let ends = drive.next_completion();
        match coming.next_if(|r| ends.is_none_or(|at| r.arrived <= at)) {
            Some(r) => drive.submit(r.arrived, r.command).expect("as few commands as were recorded"),
            None => match ends {
                Some(at) => done.extend(drive.poll(at)),
                None => break,
            },
        }
    }
    done.sort_by_key(|c: &Completion| c.id);
    done
}

/// Commands whose service was not the recorded one.
fn differing(recorded: &[Recorded], replayed: &[Completion]) -> Vec<String> {
    assert_eq!(recorded.len(), replayed.len());
    let pairs = recorded.iter().zip(replayed);
    let differ = pairs.filter(|(r, c)| r.service != (c.started, c.finished));
    differ.map(|(r, c)| format!("recorded {r:?}, replayed {c:?}")).collect()
}

/// Readers from front to back through the page cache, readers at random past it, and a writer that syncs,
/// through the drive's write cache where it has one.
fn mixed_load(mount: &Path) {
    let path = |file: u64| mount.join(format!("{file:03}"));
    thread::scope(|scope| {
        for reader in 0..2 {
            scope.spawn(move || {
                for file in (0..FILES).filter(|f| f % 6 == reader) {
                    let read = File::open(path(file)).unwrap().read_to_end(&mut Vec::new()).unwrap();
                    assert_eq!(read as u64, FILE_BYTES);
                }
            });
        }
        for reader in 0..4 {
            scope.spawn(move || {
                let mut draw = Draw::new(reader, "random reads");
                for _ in 0..150 {
                    let file = open_direct(&path(draw.below(FILES)));
                    let offset = draw.below(FILE_BYTES / 65536) * 65536;
                    read_direct(&file, offset, 4096 << draw.below(5)).unwrap();
                }
            });
        }
        scope.spawn(|| {
            let mut file = File::create(mount.join("written")).unwrap();
            for i in 0..60_u8 {
                file.write_all(&[i; 100_000]).unwrap();
                file.sync_data().unwrap();
            }
        });
    });
}

#[test]
fn service_times_of_a_live_disk_are_the_models() {
    for drive in ["wd-red-1tb", "hp-146gb-10k"] {
        let Some(bench) = Bench::new() else { return };
        let (mount, trace, list) = (bench.path("mnt"), bench.path("trace.csv"), bench.path("list"));
        fs::write(&list, (0..FILES).map(|i| format!("{FILE_BYTES} {i:03}\n")).collect::<String>()).unwrap();
        let words = format!(
            "up --name d --drive {drive} --size 1GiB --speedup 50 --with queue-depth={QUEUE_DEPTH} --mount {} --trace {}",
            mount.display(),
            trace.display()
        );
        bench.json(&words.split(' ').collect::<Vec<_>>());
        bench.json(&["populate", "--name", "d", "--manifest", list.to_str().unwrap()]);
        mixed_load(&mount);
        bench.json(&["down", "--name", "d"]);
        bench.assert_clean();

        let recorded = recorded(&trace);
        let of = |op: Op| recorded.iter().filter(|r| r.command.op == op).collect::<Vec<_>>();
        let (reads, writes, flushes) = (of(Op::Read), of(Op::Write), of(Op::Flush));
        assert!(reads.len() > 600 && writes.len() > 60, "{} reads, {} writes", reads.len(), writes.len());
        // The second drive writes before it acknowledges, and has nothing to flush.
        let caches = catalogue::get(drive).unwrap().buffer.write_cache_sectors > 0;
        assert_eq!(caches, flushes.len() > 60, "{drive}: {} flushes", flushes.len());
        let spec = catalogue::get(drive).unwrap();
        let off = differing(&recorded, &replayed(&spec, &recorded));
        let deepest = recorded.iter().map(|r| r.queue).max();
        println!("{drive}: {} reads, {} writes, {deepest:?} at once", reads.len(), writes.len());
        assert!(off.is_empty(), "{drive}: {} of {} differ; {}", off.len(), recorded.len(), off[0]);

        // The comparison sees nanoseconds: on a bus slower by a hundredth, every read from the medium ends
        // later.
        let mut slower = spec;
        slower.electronics.bus_mb_per_s *= 0.99;
        let seen = differing(&recorded, &replayed(&slower, &recorded)).len();
        assert!(seen > reads.len() / 2, "{drive}: only {seen} of {} reads are seen to differ", reads.len());
    }
}
