//! Statistics of a trace: requests, read share, sequential share, footprint, and two plots.

use std::collections::{HashMap, HashSet, VecDeque};

use seekless_base::{Fault, Nanos};
use seekless_model::workload::trace::Op;
use serde_json::{Value, json};

use super::source::TraceSource;

/// A request is sequential if it begins where one of this many last requests of its file or device ended.
const RUNS: usize = 64;
/// Maximum number of points of a plot.
const POINTS: usize = 2000;
/// Maximum footprint, in blocks, that is counted (about half a gigabyte of memory); a larger one is not
/// reported, because an estimate would look like a count.
const FOOTPRINT_BLOCKS_MAX: usize = 1 << 26;

/// Summary of a trace.
#[derive(Clone, Debug, Default)]
pub struct Info {
    /// Requests.
    pub requests: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Requests that begin where one of the last 64 of the same file or device ended.
    pub sequential: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// Requested blocks, with repetitions.
    pub block_requests: u64,
    /// Number of different blocks; `None` beyond 2^26.
    pub footprint_blocks: Option<u64>,
    /// Devices or files.
    pub contexts: u64,
    /// From first to last request, if the trace has times.
    pub span: Option<Nanos>,
    /// (request number, block number within its device, device), thinned out evenly.
    pub places: Vec<(u64, u64, u32)>,
    /// Requests by size: (blocks, requests).
    pub sizes: Vec<(u64, u64)>,
}

/// Reads a whole trace.
///
/// # Errors
/// What [`TraceSource::next_record`] and [`TraceSource::blocks`] refuse.
pub fn measure(source: &mut TraceSource, mut tick: impl FnMut(&TraceSource)) -> Result<Info, Fault> {
    let mut info = Info { footprint_blocks: Some(0), ..Info::default() };
    let mut seen: HashSet<u64> = HashSet::new();
    let mut ends: HashMap<u32, VecDeque<u64>> = HashMap::new();
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    let mut stride = 1;
    while let Some(record) = source.next_record()? {
        let blocks = source.blocks(&record)?;
        info.requests += 1;
        info.reads += u64::from(record.op == Op::Read);
        info.bytes += record.bytes;
        let count = blocks.last - blocks.first + 1;
        info.block_requests += count;
        *sizes.entry(count).or_default() += 1;
        let recent = ends.entry(record.context).or_default();
        info.sequential += u64::from(recent.contains(&record.offset));
        recent.push_back(record.offset + record.bytes);
        if recent.len() > RUNS {
            recent.pop_front();
        }
        if info.footprint_blocks.is_some() {
            seen.extend(blocks.first..=blocks.last);
            if seen.len() > FOOTPRINT_BLOCKS_MAX {
                info.footprint_blocks = None;
                seen = HashSet::new();
            }
        }
        if let Some(at) = record.at {
            info.span = Some(at);
        }
        if info.requests.is_multiple_of(stride) {
            let device_block = blocks.first & ((1 << crate::study::twolevel::DEVICE_SHIFT) - 1);
            info.places.push((info.requests, device_block, record.device));
            if info.places.len() >= 2 * POINTS {
                let mut keep = false;
                info.places.retain(|_| {
                    keep = !keep;
                    keep
                });
                stride *= 2;
            }
        }
        tick(source);
    }
    info.contexts = ends.len() as u64;
    info.footprint_blocks = info.footprint_blocks.map(|_| seen.len() as u64);
    info.sizes = sizes.into_iter().collect();
    info.sizes.sort_unstable();
    Ok(info)
}

impl Info {
    /// Share of `part` in the requests.
    fn share(&self, part: u64) -> f64 {
        if self.requests == 0 { 0.0 } else { part as f64 / self.requests as f64 }
    }

    /// Share of reads.
    pub fn read_share(&self) -> f64 {
        self.share(self.reads)
    }

    /// Share of sequential requests.
    pub fn sequential_share(&self) -> f64 {
        self.share(self.sequential)
    }

    /// As JSON.
    pub fn json(&self, block_bytes: u64) -> Value {
        json!({
            "requests": self.requests,
            "read_share": self.read_share(),
            "sequential_share": self.sequential_share(),
            "bytes": self.bytes,
            "block_bytes": block_bytes,
            "block_requests": self.block_requests,
            "footprint_blocks": self.footprint_blocks,
            "footprint_bytes": self.footprint_blocks.map(|b| b * block_bytes),
            "contexts": self.contexts,
            "span_s": self.span.map(Nanos::as_secs_f64),
            "sizes": self.sizes,
            "places": self.places,
        })
    }

    /// The places of requests over the course of the trace, in characters: a row is a part of the address
    /// space (devices one above the other), a column a part of the trace.
    pub fn plot(&self, width: usize, height: usize) -> String {
        let Some(last) = self.places.last() else { return String::new() };
        let devices = self.places.iter().map(|p| p.2).max().unwrap_or(0) as usize + 1;
        let mut span = vec![1_u64; devices];
        for (_, block, device) in &self.places {
            let s = &mut span[*device as usize];
            *s = (*s).max(block + 1);
        }
        let before: Vec<u64> = span
            .iter()
            .scan(0_u64, |sum, s| {
                let at = *sum;
                *sum = sum.saturating_add(*s);
                Some(at)
            })
            .collect();
        let total = span.iter().fold(0_u64, |a, b| a.saturating_add(*b)).max(1);
        let mut cells = vec![0_u32; width * height];
        for (number, block, device) in &self.places {
            let x = (*number as u128 * width as u128 / (last.0 as u128 + 1)) as usize;
            let place = before[*device as usize].saturating_add(*block);
            let y = (place as u128 * height as u128 / total as u128) as usize;
            cells[y.min(height - 1) * width + x.min(width - 1)] += 1;
        }
        let most = cells.iter().max().copied().unwrap_or(1).max(1);
        let shades: Vec<char> = " .:+*#".chars().collect();
        let mut out = String::new();
        for row in cells.chunks(width).rev() {
            out.push('|');
            for n in row {
                let shade = if *n == 0 { 0 } else { 1 + (*n as usize * 4 / most as usize).min(4) };
                out.push(shades[shade]);
            }
            out.push('\n');
        }
        out.push('+');
        out.extend(std::iter::repeat_n('-', width));
        out.push_str("> requests\n");
        out
    }
}
