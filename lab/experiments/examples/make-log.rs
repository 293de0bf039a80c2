//! Writes an access log of a site of videos to standard output: `make-log LINES [FILES [SEED]]`.
//!
//! Viewers arrive at random, choose a file by popularity (Zipf 0.8), watch a measured share of it and ask for
//! 512 KiB every ten seconds, as in the video papers; a hundredth of the requests are downloads of a whole
//! file. Lines are written as requests end, in order of time. For measurements of `seekless-lab plan`, which
//! must not depend on a real log.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, BufWriter, Write};

use seekless_model::workload::distribution::{DURATION_S, VIEWED_FRACTION};
use seekless_model::workload::draw::Draw;
use seekless_model::workload::zipf::Zipf;

/// 2015-05-17, 00:00 UTC.
const DAY: u64 = 17;
const SEGMENT: u64 = 512 << 10;
/// Bytes a second of a video (\[A\] 6.2: 512 KiB are ten seconds).
const RATE: f64 = SEGMENT as f64 / 10.0;
/// Viewers a second.
const ARRIVALS: f64 = 20.0;

/// Time in ms, viewer, file, bytes left, whole file.
type Request = (u64, u64, usize, u64, bool);

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>().unwrap_or(0));
    let lines = arguments.next().unwrap_or(1_000_000);
    let files = arguments.next().unwrap_or(200_000);
    let seed = arguments.next().unwrap_or(1);
    let zipf = Zipf::new(files as usize, 0.8);
    let mut draw = Draw::new(seed, "log");
    let mut sizes = Draw::new(seed, "log sizes");
    let sizes: Vec<u64> = (0..files).map(|_| (DURATION_S.quantile(sizes.unit()) * RATE) as u64 + 1).collect();
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let mut due: BinaryHeap<Reverse<Request>> = BinaryHeap::new();
    let (mut arrival, mut viewer) = (0.0, 0);
    for _ in 0..lines {
        while due.peek().is_none_or(|Reverse(d)| d.0 as f64 >= arrival * 1e3) {
            viewer += 1;
            let file = zipf.sample(&mut draw);
            let whole = draw.below(100) == 0;
            let viewed = (VIEWED_FRACTION.quantile(draw.unit()) * sizes[file] as f64) as u64 + 1;
            let left = if whole { sizes[file] } else { viewed };
            due.push(Reverse(((arrival * 1e3) as u64, viewer, file, left, whole)));
            arrival += draw.exponential() / ARRIVALS;
        }
        let Some(Reverse((at, who, file, left, whole))) = due.pop() else { break };
        let bytes = if whole { left } else { left.min(SEGMENT) };
        if left > bytes {
            due.push(Reverse((at + 10_000, who, file, left - bytes, false)));
        }
        let s = at / 1000;
        let (day, h, m, s) = (DAY + s / 86_400 % 14, s / 3600 % 24, s / 60 % 60, s % 60);
        let status = if whole { 200 } else { 206 };
        writeln!(
            out,
            "10.{}.{}.{} - - [{day:02}/May/2015:{h:02}:{m:02}:{s:02} +0000] \"GET /videos/{file:06}.mp4 HTTP/1.1\" {status} {bytes} \
             \"-\" \"player/1.0 (a user agent of usual length; like so many)\"",
            who >> 16 & 255,
            who >> 8 & 255,
            who & 255
        )?;
    }
    out.flush()
}
