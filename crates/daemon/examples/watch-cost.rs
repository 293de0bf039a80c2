//! What `seekless watch` costs a read of bytes that are in memory.
//!
//! `watch-cost PROGRAM DIR [BYTES] [ROUNDS]`: PROGRAM is `seekless`, DIR a folder on a disk's file system. A
//! loop of `pread`s of one range of a file, all in memory, pinned to one processor; without `watch`, with it
//! (the file is wholly in memory, so it is not announced), and with it announcing every read; the worker's
//! threads pinned to the reader's processor, to another, or not at all. The arms alternate, ROUNDS times; the
//! table shows the median round's microseconds per read, and the difference to "without".

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use seekless_frontend::control;

const READS: u32 = 2000;

#[derive(Clone, Copy, PartialEq)]
enum Pin {
    Same,
    Other,
    Free,
}

struct Arm {
    name: &'static str,
    /// Options of `watch`; `None` runs none.
    options: Option<&'static [&'static str]>,
    pin: Pin,
}

const ARMS: [Arm; 8] = [
    Arm { name: "without", options: None, pin: Pin::Free },
    Arm { name: "watch", options: Some(&[]), pin: Pin::Free },
    Arm { name: "announced, free", options: Some(&["--announce-resident"]), pin: Pin::Free },
    Arm { name: "announced, same core", options: Some(&["--announce-resident"]), pin: Pin::Same },
    Arm { name: "announced, other core", options: Some(&["--announce-resident"]), pin: Pin::Other },
    Arm {
        name: "announced, free, 1 thread",
        options: Some(&["--announce-resident", "--threads=1"]),
        pin: Pin::Free,
    },
    Arm {
        name: "announced, free, 4 threads",
        options: Some(&["--announce-resident", "--threads=4"]),
        pin: Pin::Free,
    },
    Arm {
        name: "announced, 1 thread, same core",
        options: Some(&["--announce-resident", "--threads=1"]),
        pin: Pin::Same,
    },
];

struct Watch(Child, PathBuf);

impl Watch {
    fn start(program: &Path, dir: &Path, options: &[&str]) -> Watch {
        let socket = std::env::temp_dir().join(format!("watch-cost-{}.sock", std::process::id()));
        let mut child = Command::new(program)
            .args(["watch", "--include-ssd", "--socket"])
            .args([&socket, dir])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("it says something");
        assert!(line.contains("watching"), "{line}");
        Watch(child, socket)
    }

    fn worker(&self) -> u32 {
        control::status(&self.1).expect("it answers").1.pid
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

/// Microseconds a read.
fn measure(arm: &Arm, program: &Path, dir: &Path, path: &Path, bytes: usize) -> f64 {
    // A child inherits the processors of its parent.
    let mut everywhere = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| everywhere.set(cpu));
    sched_setaffinity(None, &everywhere).expect("any processor");
    let watch = arm.options.map(|options| Watch::start(program, dir, options));
    if let Some(watch) = watch.as_ref().filter(|_| arm.pin != Pin::Free) {
        let cpu = if arm.pin == Pin::Same { 0 } else { 1 };
        for thread in fs::read_dir(format!("/proc/{}/task", watch.worker())).expect("it runs").flatten() {
            let tid = thread.file_name().to_str().and_then(|t| t.parse().ok()).and_then(Pid::from_raw);
            sched_setaffinity(tid, &only(cpu)).expect("two processors");
        }
    }
    sched_setaffinity(None, &only(0)).expect("a processor");
    // Opened under the watch, because files opened before are not announced.
    let file = File::open(path).expect("it is there");
    let mut buffer = vec![0; bytes];
    let read = |buffer: &mut [u8]| file.read_exact_at(buffer, 0).expect("it can be read");
    for _ in 0..100 {
        read(&mut buffer);
    }
    // Time for the file to be found wholly in memory.
    std::thread::sleep(Duration::from_millis(600));
    read(&mut buffer);
    let began = Instant::now();
    for _ in 0..READS {
        read(&mut buffer);
    }
    began.elapsed().as_secs_f64() * 1e6 / f64::from(READS)
}

fn main() {
    let mut words = std::env::args().skip(1);
    let program = PathBuf::from(words.next().expect("watch-cost PROGRAM DIR [BYTES] [ROUNDS]"));
    let dir = PathBuf::from(words.next().expect("a folder"));
    let bytes: usize = words.next().map_or(512 << 10, |w| w.parse().expect("a number of bytes"));
    let rounds: usize = words.next().map_or(5, |w| w.parse().expect("a number of rounds"));
    let path = dir.join("watch-cost.bin");
    File::create(&path)
        .and_then(|mut f| f.write_all(&vec![1; bytes.max(8 << 20)]).and(f.sync_all()))
        .expect("room");
    let mut taken = vec![Vec::new(); ARMS.len()];
    for _ in 0..rounds {
        for (arm, taken) in ARMS.iter().zip(&mut taken) {
            taken.push(measure(arm, &program, &dir, &path, bytes));
        }
    }
    let _ = fs::remove_file(&path);
    let medians: Vec<f64> = taken
        .iter_mut()
        .map(|t| {
            t.sort_by(f64::total_cmp);
            t[t.len() / 2]
        })
        .collect();
    println!(
        "| {bytes} bytes, median of {rounds} rounds of {READS} reads | us a read | extra |\n| --- | ---: | ---: |"
    );
    for (arm, median) in ARMS.iter().zip(&medians) {
        println!("| {} | {median:.1} | {:+.1} |", arm.name, median - medians[0]);
    }
}
