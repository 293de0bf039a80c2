//! The source of block requests: a trace file, or a generator.

use std::io::BufRead;
use std::path::PathBuf;

use seekless_base::Fault;
use seekless_input::Progress;
use seekless_model::workload::generate::Kind;
use seekless_model::workload::trace::{Format, Op, Options, Reader, Record};

use crate::study::twolevel::{BlockRequest, DEVICE_SHIFT, DEVICES_MAX, REQUEST_BLOCKS_MAX};

/// How writes are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// They touch their blocks like reads.
    AsReads,
    /// They are written ([`crate::study::twolevel::Simulation::write`]).
    Replay,
    /// They are left out.
    Skip,
}

/// A trace to replay.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    /// A file (`-` for standard input), or `gen:KIND`.
    pub file: PathBuf,
    /// Its format; guessed from the name if possible.
    pub format: Option<Format>,
    /// How lines are parsed.
    pub options: Options,
    /// How writes are treated.
    pub writes: Writes,
    /// Scale of a generated trace.
    pub scale: f64,
    /// Seed of a generated trace.
    pub seed: u64,
    /// Bytes a cache block.
    pub block_bytes: u64,
}

enum Records {
    File { reader: Box<Reader<Box<dyn BufRead + Send>>>, path: String },
    Generated(Box<dyn Iterator<Item = Record> + Send>),
}

/// An open trace.
pub struct TraceSource {
    records: Records,
    /// The format, or `generated`.
    pub format: String,
    /// Whether its requests have times.
    pub timed: bool,
    /// How far a file has been read; `None` for a generated trace.
    pub progress: Progress,
    writes: Writes,
    block_bytes: u64,
    /// Number of requests returned.
    pub requests: u64,
    /// Number of writes left out.
    pub writes_skipped: u64,
}

impl TraceSource {
    /// Opens a trace.
    ///
    /// # Errors
    /// The file cannot be read, its format is unknown, or the generator is unknown.
    pub fn open(spec: &SourceSpec) -> Result<TraceSource, Fault> {
        let (writes, block_bytes) = (spec.writes, spec.block_bytes);
        let name = spec.file.to_string_lossy();
        if let Some(kind) = name.strip_prefix("gen:") {
            let known = || Kind::ALL.map(Kind::name).join(", ");
            let kind = Kind::from_name(kind).ok_or_else(|| {
                Fault::usage(format!("gen:{kind}: no such generator; there are {}", known()))
            })?;
            if !(spec.scale > 0.0 && spec.scale <= 100.0) {
                return Err(Fault::usage(format!("--scale {} is not within 0 and 100", spec.scale)));
            }
            return Ok(TraceSource {
                records: Records::Generated(kind.generate(spec.scale, spec.seed)),
                format: format!("generated {}", kind.name()),
                timed: kind.timed(),
                progress: Progress::default(),
                writes,
                block_bytes,
                requests: 0,
                writes_skipped: 0,
            });
        }
        let input = seekless_input::open(&spec.file)?;
        let format = spec.format.or_else(|| Format::guess(&input.name)).ok_or_else(|| {
            let names = Format::ALL.map(Format::name).join(", ");
            Fault::usage(format!("{name}: say its format with --format; there are {names}"))
        })?;
        Ok(TraceSource {
            records: Records::File {
                reader: Box::new(Reader::new(input.bytes, format, spec.options)),
                path: name.into_owned(),
            },
            format: format.name().to_owned(),
            timed: format.timed(),
            progress: input.progress,
            writes,
            block_bytes,
            requests: 0,
            writes_skipped: 0,
        })
    }

    /// The next record; writes are included as requested.
    ///
    /// # Errors
    /// A malformed line (unless lenient), unreadable or truncated input, a file without a request.
    pub fn next_record(&mut self) -> Result<Option<Record>, Fault> {
        loop {
            let record = match &mut self.records {
                Records::Generated(generated) => match generated.next() {
                    Some(record) => record,
                    None => return Ok(None),
                },
                Records::File { reader, path } => match reader.next() {
                    Some(Ok(record)) => record,
                    Some(Err(e)) => {
                        let advice = match self.requests {
                            0 => format!("is it really {}? --format says another", self.format),
                            _ => "mend the file, or skip such lines with --lenient".to_string(),
                        };
                        return Err(Fault::failed(format!("{path}: {e}; {advice}")));
                    }
                    None if self.requests == 0 => {
                        return Err(Fault::failed(format!(
                            "{path}: no request in it; is it really {}? --format says another",
                            self.format
                        )));
                    }
                    None => return Ok(None),
                },
            };
            if record.op == Op::Write && self.writes == Writes::Skip {
                self.writes_skipped += 1;
                continue;
            }
            self.requests += 1;
            return Ok(Some(record));
        }
    }

    /// A record in blocks of the caches. A very long one would need several pieces; no known trace has one,
    /// so it is refused.
    ///
    /// # Errors
    /// Too many devices, too many blocks in one request.
    pub fn blocks(&self, record: &Record) -> Result<BlockRequest, Fault> {
        let fail = |what: String| Fault::failed(format!("request {}: {what}", self.requests));
        let device = u64::from(record.device);
        if device >= DEVICES_MAX {
            return Err(fail(format!("device {device} is beyond the {DEVICES_MAX} that can be told apart")));
        }
        let first = record.offset / self.block_bytes;
        let last = (record.offset + record.bytes - 1) / self.block_bytes;
        if last >> DEVICE_SHIFT != 0 {
            let block = self.block_bytes;
            return Err(fail(format!(
                "block {last} is beyond 2^{DEVICE_SHIFT}; use a --block larger than {block}"
            )));
        }
        if last - first >= REQUEST_BLOCKS_MAX {
            return Err(fail(format!("{} blocks are more than {REQUEST_BLOCKS_MAX}", last - first + 1)));
        }
        let limit = match record.end {
            Some(end) => (end.max(1) - 1) / self.block_bytes,
            None => (1 << DEVICE_SHIFT) - 1,
        };
        let base = device << DEVICE_SHIFT;
        Ok(BlockRequest {
            at: record.at.unwrap_or_default(),
            context: record.context,
            first: base + first,
            last: base + last,
            limit: base + limit.max(last).min((1 << DEVICE_SHIFT) - 1),
        })
    }

    /// Number of lines that a lenient reader skipped, and the first of them.
    pub fn skipped(&self) -> (u64, Option<String>) {
        match &self.records {
            Records::File { reader, .. } => {
                (reader.skipped(), reader.first_skipped().map(ToString::to_string))
            }
            Records::Generated(_) => (0, None),
        }
    }
}
