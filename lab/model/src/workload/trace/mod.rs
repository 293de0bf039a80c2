//! Block traces: one record type, a reader for each format people keep them in.
//!
//! A [`Reader`] takes any `BufRead` (decompression is its caller's), reads one line at a time and keeps
//! nothing but the last time and the numbers it gave to devices and files, so a trace of any length takes
//! bounded memory. A line that does not fit its format is an error with its number; a lenient reader skips
//! and counts it. What is refused: text that is no number, negative and absurdly large addresses, requests of
//! no bytes, times that run backwards.

mod format;
mod line;
mod log;
mod text;
mod vscsi;

use std::collections::HashMap;
use std::fmt;
use std::io::BufRead;

use seekless_base::Nanos;

pub use format::Format;
pub use line::{LINE_BYTES_MAX, read_line};
pub use log::{Entry, entry};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// One request of a trace, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// From the first request of the trace; formats without times have none.
    pub at: Option<Nanos>,
    /// Disk, volume or object: addresses of different devices have nothing to do with one another. Dense from
    /// 0.
    pub device: u32,
    /// What prefetchers keep apart: the file where the trace knows it, else the device.
    pub context: u32,
    /// Reads or writes.
    pub op: Op,
    /// First byte, from the start of the device.
    pub offset: u64,
    /// Bytes, at least one.
    pub bytes: u64,
    /// End of the file or object on the device, if known: nothing is there to be fetched ahead beyond it.
    pub end: Option<u64>,
}

/// Addresses at or above this are refused: 4 PiB, larger than any volume these formats come from.
pub const OFFSET_MAX: u64 = 1 << 52;
/// Longest request taken, bytes: 4 GiB. A longer one is a misread column.
pub const REQUEST_BYTES_MAX: u64 = 1 << 32;
/// Devices or objects told apart, at most; bounds the memory of a reader.
pub const NAMES_MAX: usize = 1 << 22;

/// What is wrong with a trace, and in which line (from 1; for binary formats the record).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Line or record number, from 1.
    pub line: u64,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for TraceError {}

/// Dense numbers for names (volumes, URLs), in order of appearance. Keeps 64-bit hashes, not the names.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<u64, u32>,
}

impl Names {
    /// The number of a name.
    pub(crate) fn number(&mut self, name: &[u8]) -> Result<u32, String> {
        // FNV-1a over the bytes, then one multiplication to spread it.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in name {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let next = self.numbers.len() as u32;
        if let Some(number) = self.numbers.get(&hash) {
            return Ok(*number);
        }
        if self.numbers.len() >= NAMES_MAX {
            return Err(format!("more than {NAMES_MAX} different devices or files"));
        }
        self.numbers.insert(hash, next);
        Ok(next)
    }
}

/// How a trace is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Skip and count lines that do not fit, instead of stopping at the first.
    pub lenient: bool,
    /// Bytes a block in formats that count blocks of a size they do not state (`lis`, `blocks`).
    pub block_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { lenient: false, block_bytes: 4096 }
    }
}

/// What a line turned out to be.
pub(crate) enum Line {
    /// A request; its time, if any, is absolute, in nanoseconds of the format's own clock.
    Request(RawRequest),
    /// A header, a comment, a break: nothing to replay.
    Nothing,
}

/// A request as its line says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRequest {
    pub(crate) time_ns: Option<u128>,
    pub(crate) device: u32,
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) end: Option<u64>,
}

/// Reads a trace record by record.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    format: Format,
    options: Options,
    names: Names,
    line: Vec<u8>,
    number: u64,
    skipped: u64,
    reordered: u64,
    first_skipped: Option<TraceError>,
    start_ns: Option<u128>,
    last_ns: u128,
    failed: bool,
}

impl<R: BufRead> Reader<R> {
    /// A reader at the start of a trace.
    pub fn new(input: R, format: Format, options: Options) -> Reader<R> {
        Reader {
            input,
            format,
            options,
            names: Names::default(),
            line: Vec::with_capacity(256),
            number: 0,
            skipped: 0,
            reordered: 0,
            first_skipped: None,
            start_ns: None,
            last_ns: 0,
            failed: false,
        }
    }

    /// Lines a lenient reader has skipped so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Requests so far that came slightly out of order in an access log, whose lines are written when a
    /// request *ends*.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// The first line skipped.
    pub fn first_skipped(&self) -> Option<&TraceError> {
        self.first_skipped.as_ref()
    }

    /// Lines (or binary records) read so far.
    pub fn lines(&self) -> u64 {
        self.number
    }

    /// The next unit of input in `self.line`; false at the end.
    fn next_line(&mut self) -> Result<bool, String> {
        if let Some(size) = self.format.record_bytes() {
            self.line.clear();
            return vscsi::read_record(&mut self.input, size, &mut self.line);
        }
        read_line(&mut self.input, &mut self.line, LINE_BYTES_MAX, format_args!("{} trace", self.format))
    }

    fn interpret(&mut self) -> Result<Option<Record>, String> {
        let parsed = self.format.parse(&self.line, self.number, self.options.block_bytes, &mut self.names)?;
        let Line::Request(raw) = parsed else { return Ok(None) };
        if raw.bytes == 0 {
            return Err("a request of no bytes".into());
        }
        if raw.bytes > REQUEST_BYTES_MAX {
            return Err(format!(
                "a request of {} bytes; more than {REQUEST_BYTES_MAX} is not credible",
                raw.bytes
            ));
        }
        if raw.offset >= OFFSET_MAX || raw.offset + raw.bytes > OFFSET_MAX {
            return Err(format!("the address {} is beyond 4 PiB", raw.offset));
        }
        let at = match raw.time_ns {
            None => None,
            Some(mut time) => {
                let start = *self.start_ns.get_or_insert(time);
                if time < self.last_ns {
                    if !self.format.written_at_end() {
                        let back = (self.last_ns - time) as f64 / 1e9;
                        return Err(format!("the time runs backwards by {back:.6} s"));
                    }
                    self.reordered += 1;
                    time = self.last_ns;
                }
                self.last_ns = time;
                Some(Nanos(u64::try_from(time.saturating_sub(start)).unwrap_or(u64::MAX)))
            }
        };
        let RawRequest { device, op, offset, bytes, end, .. } = raw;
        Ok(Some(Record { at, device, context: device, op, offset, bytes, end }))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        loop {
            self.number += 1;
            match self.next_line() {
                Ok(true) => {}
                Ok(false) => {
                    self.number -= 1;
                    return None;
                }
                Err(message) => {
                    // Unreadable input does not get better by going on, lenient or not.
                    self.failed = true;
                    return Some(Err(TraceError { line: self.number, message }));
                }
            }
            match self.interpret() {
                Ok(Some(record)) => return Some(Ok(record)),
                Ok(None) => {}
                Err(message) => {
                    let error = TraceError { line: self.number, message };
                    if !self.options.lenient {
                        self.failed = true;
                        return Some(Err(error));
                    }
                    self.skipped += 1;
                    self.first_skipped.get_or_insert(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
