//! What receiving page cache events costs a read of bytes that are in memory, in each of the ways.
//!
//! `cache-events-cost DIR [BYTES] [ROUNDS]`: a child reads BYTES (64 KiB) at a time from a file in DIR that
//! is wholly in memory, over and over. Meanwhile this process receives no events, or receives them in one of
//! the ways; one that the kernel has not is NaN. They alternate, ROUNDS times. The table shows the median
//! round's microseconds of processor time per read.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use seekless_kernel::cacheevents::{Attachment, CacheEvents};

const FILE_BYTES: u64 = 64 << 20;

/// Duration of each arm of a round; below, reads between two queries of the clock.
const READS_FOR: Duration = Duration::from_millis(400);
const BATCH: u32 = 64;

/// Interval at which the rings are emptied, as in `seekless observe`.
const ROUND: Duration = Duration::from_millis(2);

const USAGE: &str = "cache-events-cost DIR [BYTES] [ROUNDS]";

fn main() {
    let mut args = std::env::args().skip(1);
    let first = args.next().expect(USAGE);
    let number = |text: String| text.parse::<usize>().expect(USAGE);
    if first == "--child" {
        return child(Path::new(&args.next().expect(USAGE)), args.next().map(number).expect(USAGE));
    }
    let (bytes, rounds) = (args.next().map_or(64 << 10, number), args.next().map_or(15, number));
    let path = PathBuf::from(first).join("cache-events-cost");
    fs::write(&path, vec![7u8; FILE_BYTES as usize]).expect("the folder can be written to");
    let mut child = Command::new(std::env::current_exe().expect("it has a name"))
        .arg("--child")
        .args([path.as_os_str(), bytes.to_string().as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut ask = child.stdin.take().expect("piped");
    let mut answers = BufReader::new(child.stdout.take().expect("piped"));
    let dev = fs::metadata(&path).expect("it is there").dev();
    let device = (rustix::fs::major(dev), rustix::fs::minor(dev));

    let arms = [
        ("without", None),
        ("by programs", Some(Attachment::Programs)),
        ("by entries", Some(Attachment::Entries)),
        ("by probes", Some(Attachment::Probes)),
    ];
    let mut microseconds = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        for ((_, attachment), into) in arms.iter().zip(&mut microseconds) {
            into.push(match attachment {
                None => read(&mut ask, &mut answers),
                Some(attachment) => match CacheEvents::open_by(*attachment, &[device]) {
                    Ok(events) => while_listening(events, || read(&mut ask, &mut answers)),
                    Err(_) => f64::NAN,
                },
            });
        }
    }
    drop(ask);
    let _ = child.wait();
    let _ = fs::remove_file(&path);
    let medians = microseconds.map(median);
    for ((name, _), each) in arms.iter().zip(medians) {
        println!("{name:<12} {each:6.2} us a read, {:+.2} us", each - medians[0]);
    }
}

/// Runs one arm of the child's reads. Returns microseconds per read.
fn read(ask: &mut ChildStdin, answers: &mut BufReader<ChildStdout>) -> f64 {
    writeln!(ask).expect("the child listens");
    let mut line = String::new();
    answers.read_line(&mut line).expect("the child answers");
    line.trim().parse().expect("a number")
}

fn while_listening(mut events: CacheEvents, read: impl FnOnce() -> f64) -> f64 {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut heard = Vec::new();
            while !end.load(Ordering::Relaxed) {
                std::thread::sleep(ROUND);
                heard.clear();
                events.drain(&mut heard);
            }
        });
        let microseconds = read();
        end.store(true, Ordering::Relaxed);
        microseconds
    })
}

/// For each input line, runs an arm of reads and prints a line with the median batch's microseconds.
fn child(path: &Path, bytes: usize) {
    let file = File::open(path).expect("it is there");
    let (mut buffer, mut at) = (vec![0u8; bytes], 0);
    for _ in std::io::stdin().lines() {
        let (began, mut batches) = (Instant::now(), Vec::new());
        while began.elapsed() < READS_FOR {
            let before = clock_gettime(ClockId::ThreadCPUTime);
            for _ in 0..BATCH {
                file.read_exact_at(&mut buffer, at).expect("it reads");
                at = (at + bytes as u64) % (FILE_BYTES - bytes as u64 + 1);
            }
            let after = clock_gettime(ClockId::ThreadCPUTime);
            let ns = (after.tv_sec - before.tv_sec) * 1_000_000_000 + (after.tv_nsec - before.tv_nsec);
            batches.push(ns as f64 / 1e3 / f64::from(BATCH));
        }
        println!("{}", median(batches));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
