//! What an access log says about a site, in one pass and bounded memory.
//!
//! A log says which client got how many bytes of what, not where a part began. A whole answer (200) is read
//! from the first byte to the last. A part (206) is taken to go on where the same client's last part of the
//! same file ended, as players and resumed downloads do, if that was not long ago; else to begin at the first
//! byte. Such a run of requests is a *stream*.
//!
//! Files are looked at in parts of 256 KiB or as asked. A request accesses the parts whose first byte it
//! covers, and the part in which its stream begins, so that consecutive requests do not count the part they
//! share twice.

use std::fmt::Display;
use std::io::BufRead;

use seekless_base::Fault;
use seekless_model::workload::splitmix::{GOLDEN, mix};
use seekless_model::workload::trace::{Entry, LINE_BYTES_MAX, entry, read_line};

use crate::plan::distances::{Curve, Distances, MixedMap};

/// A client that asked for nothing of a file for so long begins anew: longer than pauses between the segments
/// of a player, of whatever length.
const STREAM_IDLE_S: u64 = 300;
/// Streams remembered, in two generations of half as many; about 100 MB at the most.
const STREAMS_MAX: usize = 1 << 20;
/// Files counted one by one; beyond, a sample. About 100 MB at the most.
const FILES_MAX: usize = 1 << 20;
/// Parts followed in each of two samples. SHARDS' mean error is below 0.01 from 8,192 on (Waldspurger et al.
/// 2015); this is four times as much, in 5 MB.
const SAMPLES: usize = 32_768;
/// With `exact`, parts followed at most: 2.5 GB of memory.
const EXACT_MAX: usize = 1 << 24;
/// Longest log, minutes: ten years.
const MINUTES_MAX: u64 = 10 * 366 * 24 * 60;
/// Largest answer believed, bytes: 16 TiB. More is a misread column.
const ANSWER_BYTES_MAX: u64 = 1 << 44;
/// Lines between two ticks.
const TICK_LINES: u64 = 4096;
/// Points of the popularity plot.
const RANKS: usize = 200;

/// How a log is to be read.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Skip and count lines that do not fit instead of stopping at the first.
    pub lenient: bool,
    /// Follow every part.
    pub exact: bool,
    /// Bytes a part, at least 4096.
    pub part: u32,
}

#[derive(Clone, Copy, Debug)]
struct ClientStream {
    next: u64,
    last_s: u64,
    minute: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct FileCount {
    requests: u32,
    bytes: u64,
    /// Furthest byte sent, which is the size once a client has got all of it.
    end: u64,
}

/// One minute of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Minute {
    /// Bytes sent.
    pub bytes: u64,
    /// Requests answered with bytes.
    pub requests: u32,
    /// Streams that asked for something.
    pub streams: u32,
}

/// What is known of the popularity of files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Popularity {
    /// Different files asked for (estimated beyond [`FILES_MAX`]).
    pub files: f64,
    /// Bytes of these, as far as they were asked for.
    pub bytes: f64,
    /// Share of files counted one by one.
    pub share: f64,
    /// Exponent of the Zipf law that fits the more popular files best.
    pub zipf: Option<f64>,
    /// Share of requests that go to the most popular hundredth and tenth of the files.
    pub top: (f64, f64),
    /// Share of files asked for once.
    pub once: f64,
    /// (rank from 1, requests), thinned out.
    pub ranks: Vec<(f64, f64)>,
}

/// A site, as its log has it.
#[derive(Clone, Debug)]
pub struct Site {
    /// Lines read.
    pub lines: u64,
    /// Lines skipped because they do not fit, with `lenient`.
    pub skipped: u64,
    /// The first of these.
    pub first_skipped: Option<String>,
    /// Requests answered with bytes of a file.
    pub requests: u64,
    /// Lines that are something else: other methods, other answers.
    pub others: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Streams: runs of requests of one client for one file.
    pub streams: u64,
    /// From the first to the last request, seconds.
    pub span_s: u64,
    /// Its busiest minute.
    pub peak: Minute,
    /// Bytes by minute, thinned out to the busiest minute of each stretch.
    pub minutes: Vec<(f64, f64)>,
    /// Files and their popularity.
    pub popularity: Popularity,
    /// Miss ratio by cache size.
    pub curve: Curve,
}

/// Streams seen of late, in two generations: when the young one is full it becomes the old one.
#[derive(Debug, Default)]
struct ClientStreams {
    young: MixedMap<ClientStream>,
    old: MixedMap<ClientStream>,
}

impl ClientStreams {
    fn take(&mut self, key: u64) -> Option<ClientStream> {
        self.young.remove(&key).or_else(|| self.old.remove(&key))
    }

    fn put(&mut self, key: u64, stream: ClientStream) {
        if self.young.len() >= STREAMS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, stream);
    }
}

struct LogReader {
    options: LogOptions,
    first_s: Option<u64>,
    last_s: u64,
    requests: u64,
    bytes: u64,
    stream_count: u64,
    streams: ClientStreams,
    minutes: Vec<Minute>,
    files: MixedMap<FileCount>,
    /// Files are counted whose hash lies below; halved whenever there are too many.
    files_below: u64,
    samples: [Distances; 2],
}

fn hash(seed: u64, bytes: &[u8]) -> u64 {
    // Eight bytes at a time, each mixed in by a multiplication and a shift; spread by SplitMix64's finaliser.
    let mut h = seed ^ (bytes.len() as u64).wrapping_mul(GOLDEN);
    let (chunks, rest) = bytes.as_chunks::<8>();
    let step = |h: u64, word: u64| {
        let h = (h ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h ^ (h >> 32)
    };
    for chunk in chunks {
        h = step(h, u64::from_le_bytes(*chunk));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(step(h, u64::from_le_bytes(last)))
}

impl LogReader {
    fn new(options: LogOptions) -> LogReader {
        let samples = if options.exact { EXACT_MAX } else { SAMPLES };
        // One is enough if it leaves nothing out.
        let second = if options.exact { 1 } else { samples };
        LogReader {
            options,
            first_s: None,
            last_s: 0,
            requests: 0,
            bytes: 0,
            stream_count: 0,
            streams: ClientStreams::default(),
            minutes: vec![],
            files: MixedMap::default(),
            files_below: u64::MAX,
            samples: [Distances::new(samples, 1), Distances::new(second, 2)],
        }
    }

    fn take(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        if entry.bytes > ANSWER_BYTES_MAX {
            return Err(format!("{} bytes are not credible", entry.bytes));
        }
        let first_s = *self.first_s.get_or_insert(entry.time_s);
        // Lines are written when a request ends, so times may step back a little.
        let now_s = entry.time_s.max(first_s);
        let minute = (now_s - first_s) / 60;
        if minute >= MINUTES_MAX {
            return Err("is more than ten years after the first".into());
        }
        self.last_s = self.last_s.max(now_s);
        let file = hash(0, entry.path);
        let key = hash(file, entry.host);
        let whole = entry.status == 200;
        let known =
            self.streams.take(key).filter(|s| !whole && now_s.saturating_sub(s.last_s) <= STREAM_IDLE_S);
        let begins = known.is_none();
        let from = known.map_or(0, |s| s.next);
        let end = from + entry.bytes;
        self.stream_count += u64::from(begins);
        let fresh = known.is_none_or(|s| u64::from(s.minute) != minute);
        self.streams.put(key, ClientStream { next: end, last_s: now_s, minute: minute as u32 });
        if self.minutes.len() <= minute as usize {
            self.minutes.resize(minute as usize + 1, Minute::default());
        }
        let m = &mut self.minutes[minute as usize];
        m.bytes += entry.bytes;
        m.requests = m.requests.saturating_add(1);
        m.streams = m.streams.saturating_add(u32::from(fresh));
        self.requests += 1;
        self.bytes += entry.bytes;
        self.count_file(file, entry.bytes, end);
        self.access(file, from, end, begins, whole);
        if self.options.exact && self.samples[0].share() < 1.0 {
            return Err(format!(
                "more than {EXACT_MAX} different parts are too many for --exact; leave it out or use a larger --part"
            ));
        }
        Ok(())
    }

    fn count_file(&mut self, file: u64, bytes: u64, end: u64) {
        if mix(file) > self.files_below {
            return;
        }
        let count = self.files.entry(file).or_default();
        count.requests = count.requests.saturating_add(1);
        count.bytes += bytes;
        count.end = count.end.max(end);
        if self.files.len() > FILES_MAX {
            self.files_below /= 2;
            let below = self.files_below;
            self.files.retain(|file, _| mix(*file) <= below);
        }
    }

    fn access(&mut self, file: u64, from: u64, end: u64, begins: bool, whole: bool) {
        let part = u64::from(self.options.part);
        let first = if begins { from / part } else { from.div_ceil(part) };
        for n in first..end.div_ceil(part) {
            // Only a whole answer says where the file ends; a part is taken to be one of many.
            let bytes = if whole { part.min(end - n * part) } else { part };
            let key = mix(file ^ n.wrapping_mul(GOLDEN));
            self.samples[0].access(key, bytes as u32);
            self.samples[1].access(key, bytes as u32);
        }
    }

    fn popularity(&self) -> Popularity {
        let share =
            if self.files_below == u64::MAX { 1.0 } else { self.files_below as f64 / u64::MAX as f64 };
        let mut requests: Vec<u32> = self.files.values().map(|f| f.requests).collect();
        requests.sort_unstable_by(|a, b| b.cmp(a));
        let total: f64 = requests.iter().map(|r| f64::from(*r)).sum();
        let top = |part: f64| {
            let n = ((requests.len() as f64 * part).ceil() as usize).max(1).min(requests.len());
            requests[..n].iter().map(|r| f64::from(*r)).sum::<f64>() / total.max(1.0)
        };
        let mut ranks: Vec<(f64, f64)> = vec![];
        let step = (requests.len().max(2) as f64).powf(1.0 / RANKS as f64).max(1.0 + 1e-9);
        let mut at = 1.0;
        while at <= requests.len() as f64 {
            let rank = at as usize;
            let point = (rank as f64 / share, f64::from(requests[rank - 1]));
            if ranks.last().is_none_or(|last| last.0 < point.0) {
                ranks.push(point);
            }
            at *= step;
        }
        Popularity {
            files: requests.len() as f64 / share,
            bytes: self.files.values().map(|f| f.end as f64).sum::<f64>() / share,
            share,
            zipf: zipf(&ranks),
            top: if requests.is_empty() { (0.0, 0.0) } else { (top(0.01), top(0.1)) },
            once: requests.iter().filter(|r| **r == 1).count() as f64 / requests.len().max(1) as f64,
            ranks,
        }
    }

    /// At most `n` points: (hours from the start, busiest minute's bytes a second).
    fn minutes(&self, n: usize) -> Vec<(f64, f64)> {
        let stretch = self.minutes.len().div_ceil(n).max(1);
        let busiest = |c: &[Minute]| c.iter().map(|m| m.bytes).max().unwrap_or(0) as f64 / 60.0;
        self.minutes
            .chunks(stretch)
            .enumerate()
            .map(|(i, c)| ((i * stretch) as f64 / 60.0, busiest(c)))
            .collect()
    }
}

/// Least squares of log requests over log rank, over ranks even on that scale, as far as files have at least
/// five requests: below, ranks tie.
fn zipf(ranks: &[(f64, f64)]) -> Option<f64> {
    let points: Vec<(f64, f64)> =
        ranks.iter().filter(|(_, r)| *r >= 5.0).map(|(rank, r)| (rank.ln(), r.ln())).collect();
    if points.len() < 10 {
        return None;
    }
    let n = points.len() as f64;
    let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let cov: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    let var: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    Some(-cov / var)
}

/// Reads a log called `name` in messages, and calls `tick` now and then on the way.
///
/// # Errors
/// The bytes cannot be read; a line does not fit (unless lenient); nothing in it is a request answered with
/// bytes.
pub fn read(
    mut log: impl BufRead,
    name: impl Display,
    options: LogOptions,
    tick: impl Fn(),
) -> Result<Site, Fault> {
    let mut line = Vec::with_capacity(512);
    let mut reading = LogReader::new(options);
    let (mut number, mut skipped, mut others) = (0_u64, 0_u64, 0_u64);
    let mut first_skipped = None;
    loop {
        match read_line(&mut log, &mut line, LINE_BYTES_MAX, "access log") {
            Ok(true) => {}
            Ok(false) => break,
            // Unreadable input does not get better by going on.
            Err(e) => return Err(Fault::failed(format!("{name}: line {}: {e}", number + 1))),
        }
        number += 1;
        if number.is_multiple_of(TICK_LINES) {
            tick();
        }
        let taken = entry(&line).and_then(|entry| match entry {
            Some(entry) if entry.sends_file() => reading.take(&entry),
            _ => {
                others += 1;
                Ok(())
            }
        });
        if let Err(e) = taken {
            let message = format!("{name}: line {number}: {e}");
            if !options.lenient {
                return Err(Fault::failed(format!(
                    "{message}; give a log in the common or combined format (--lenient skips lines that do not fit)"
                )));
            }
            skipped += 1;
            first_skipped.get_or_insert(message);
        }
    }
    if reading.requests == 0 {
        return Err(Fault::failed(format!(
            "{name}: none of its {number} lines is a GET answered with bytes of a file; give a log of a \
             file server"
        )));
    }
    let [a, b] = &reading.samples;
    let curve = if a.share() >= 1.0 { a.curve() } else { Curve::both(&a.curve(), &b.curve()) };
    let peak = reading.minutes.iter().copied().max_by_key(|m| m.bytes).unwrap_or_default();
    Ok(Site {
        lines: number,
        skipped,
        first_skipped,
        requests: reading.requests,
        others,
        bytes: reading.bytes,
        streams: reading.stream_count,
        span_s: reading.last_s - reading.first_s.unwrap_or(reading.last_s),
        peak,
        minutes: reading.minutes(600),
        popularity: reading.popularity(),
        curve,
    })
}

impl Site {
    /// Mean size of an answer, bytes.
    pub fn request_bytes(&self) -> f64 {
        self.bytes as f64 / self.requests.max(1) as f64
    }

    /// Mean rate of one stream in the busiest minute, bytes a second.
    pub fn stream_rate(&self) -> f64 {
        self.peak_rate() / f64::from(self.peak.streams.max(1))
    }

    /// Bytes a second in the busiest minute (of the whole log if it is shorter).
    pub fn peak_rate(&self) -> f64 {
        self.peak.bytes as f64 / (self.span_s.clamp(1, 60) as f64)
    }
}
