//! What `seekless observe` costs a read of bytes that are in memory.
//!
//! `observe-cost PROGRAM DIR [BYTES] [ROUNDS]`: PROGRAM is `seekless`, DIR a folder on a disk's file system.
//! A loop of `pread`s of BYTES (64 KiB) reads a file that is wholly in memory from start to end, over and
//! over, without `observe` and with it. The two alternate, ROUNDS times. The table shows the median round's
//! microseconds of processor time a read of each, their difference and their ratio.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

const FILE_BYTES: u64 = 64 << 20;

/// Duration of each arm of a round.
const READS_FOR: Duration = Duration::from_millis(400);

/// Reads between two queries of the clock; below, the minimum number of batches of an arm.
const BATCH: u32 = 64;
const BATCHES_MIN: usize = 31;

struct Observe(Child);

impl Observe {
    fn start(program: &Path, dir: &Path) -> Observe {
        let mut child = Command::new(program)
            .args(["observe", "--include-ssd", "--no-socket"])
            .arg(dir)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("it says something");
        assert!(line.contains("observing"), "{line}");
        Observe(child)
    }
}

impl Drop for Observe {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Microseconds of this thread's processor time per read, the median of many batches, so that other programs
/// on the machine do not count.
fn read(file: &File, bytes: usize) -> f64 {
    let mut buffer = vec![0u8; bytes];
    let began = Instant::now();
    let (mut batches, mut at) = (Vec::new(), 0);
    while began.elapsed() < READS_FOR || batches.len() < BATCHES_MIN {
        let before = clock_gettime(ClockId::ThreadCPUTime);
        for _ in 0..BATCH {
            file.read_exact_at(&mut buffer, at).expect("it reads");
            at = (at + bytes as u64) % (FILE_BYTES - bytes as u64 + 1);
        }
        let after = clock_gettime(ClockId::ThreadCPUTime);
        let ns = (after.tv_sec - before.tv_sec) * 1_000_000_000 + (after.tv_nsec - before.tv_nsec);
        batches.push(ns as f64 / 1e3 / f64::from(BATCH));
    }
    median(batches)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1);
    let usage = "observe-cost PROGRAM DIR [BYTES] [ROUNDS]";
    let program = PathBuf::from(args.next().expect(usage));
    let dir = PathBuf::from(args.next().expect(usage));
    let bytes = args.next().map_or(64 << 10, |text| text.parse().expect(usage));
    let rounds = args.next().map_or(15, |text| text.parse().expect(usage));
    let path = dir.join("observe-cost");
    fs::write(&path, vec![7u8; FILE_BYTES as usize]).expect("the folder can be written to");
    let file = File::open(&path).expect("it is there");
    read(&file, bytes);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        without.push(read(&file, bytes));
        let observe = Observe::start(&program, &dir);
        with.push(read(&file, bytes));
        drop(observe);
    }
    let _ = fs::remove_file(&path);
    let (without, with) = (median(without), median(with));
    println!(
        "without {without:.2} us a read, with {with:.2} us: {:+.2} us, {:.3}",
        with - without,
        with / without
    );
}
