//! The WD Red model under the loads the project is about, against what the papers and common sense say of
//! them.

mod common;

use common::{read, serial, spec, within};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use seekless_base::{Lba, Nanos};
use seekless_model::drive::{Drive, DriveSpec};

/// MB/s that `readers` sequential readers get together, each at a random place, each asking for its next
/// `sectors` in turn, `depth` commands outstanding.
fn interleaved(spec: &DriveSpec, readers: usize, sectors: u32, depth: usize, commands: usize) -> f64 {
    let mut rng = Pcg64::seed_from_u64(7);
    let mut drive = Drive::new(spec);
    let mut next: Vec<u64> = (0..readers).map(|_| rng.random_range(0..spec.sectors() - (1 << 20))).collect();
    let (mut now, mut sent, mut done) = (Nanos::ZERO, 0, 0);
    while done < commands {
        while sent < commands && drive.queue_len() < depth {
            let reader = sent % readers;
            drive.submit(now, read(sent as u64, next[reader], sectors)).expect("there is room");
            next[reader] += u64::from(sectors);
            sent += 1;
        }
        now = drive.next_completion().expect("something is queued");
        while drive.poll(now).is_some() {
            done += 1;
        }
    }
    commands as f64 * f64::from(sectors) * 512.0 / 1e6 / now.as_secs_f64()
}

/// MB/s of reads of `bytes` at random places, one after another, each cut into commands of 512 KiB of which
/// two are outstanding.
fn serialised(spec: &DriveSpec, bytes: u64, reads: u64) -> f64 {
    let mut rng = Pcg64::seed_from_u64(11);
    let mut drive = Drive::new(spec);
    let mut now = Nanos::ZERO;
    let piece = 1024;
    for _ in 0..reads {
        let start = rng.random_range(0..spec.sectors() - bytes / 512);
        let pieces = bytes / 512 / piece;
        let (mut sent, mut done) = (0, 0);
        while done < pieces {
            while sent < pieces && drive.queue_len() < 2 {
                drive.submit(now, read(sent, start + sent * piece, piece as u32)).expect("there is room");
                sent += 1;
            }
            now = drive.next_completion().expect("something is queued");
            while drive.poll(now).is_some() {
                done += 1;
            }
        }
    }
    (reads * bytes) as f64 / 1e6 / now.as_secs_f64()
}

fn between(what: &str, got: f64, low: f64, high: f64) {
    println!("{what}: {got:.1} MB/s");
    assert!((low..=high).contains(&got), "{what}: {got:.1} MB/s is not within {low} to {high}");
}

#[test]
fn wd_red_delivers_what_the_papers_saw() {
    let spec = spec("wd-red-1tb");
    between("100 readers, 128 KiB, 1 outstanding", interleaved(&spec, 100, 256, 1, 6000), 16.0, 25.0);
    between("100 readers, 128 KiB, 2 outstanding", interleaved(&spec, 100, 256, 2, 6000), 16.0, 25.0);
    between("2 MiB serial reads", serialised(&spec, 2 << 20, 1500), 48.0, 70.0);
    between("4 MiB serial reads", serialised(&spec, 4 << 20, 1500), 66.0, 82.0);
}

#[test]
fn one_sequential_reader_gets_the_media_rate() {
    let spec = spec("wd-red-1tb");
    let mut drive = Drive::new(&spec);
    let first = spec.sectors() / 3;
    let start = serial(&mut drive, Nanos::ZERO, [(first, 256)]);
    let end = serial(&mut drive, start, (1..4000).map(|i| (first + i * 256, 256)));
    let rate = 3999.0 * 256.0 * 512.0 / end.since(start).as_secs_f64();
    within("sequential, MB/s", rate / 1e6, spec.media_rate(Lba(first)) / 1e6, 1.0);
}
