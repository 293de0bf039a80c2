//! Replays a decision log of a live daemon ([`seekless_policy::decisions`]).
//!
//! - [`exact`]: every event goes into a new engine with the recorded settings, and its actions must be the
//!   recorded ones. This shows that the log is complete and that the policy has not changed since.
//! - [`whatif`]: the reads of servers, at their recorded times ([`load`]), with other settings, another
//!   memory or another drive; disk and page cache are simulated. Reads do not wait for each other's answers
//!   there: the load is as recorded however fast the disk is.

mod device;
pub mod exact;
pub mod load;
mod resident;
#[cfg(test)]
mod tests;
pub mod whatif;

use std::io::BufRead;
use std::path::Path;

use seekless_base::Fault;
use seekless_model::workload::trace::read_line;
use seekless_policy::decisions::{FIRST_LINE, FORMAT, Line};

/// Maximum length of a line: settings with a profile of hundreds of points have some ten kilobytes.
const LINE_BYTES_MAX: usize = 1 << 20;

/// A log being read.
pub struct Log {
    bytes: Box<dyn BufRead + Send>,
    path: String,
    text: Vec<u8>,
    /// Lines read.
    pub number: u64,
    /// Lines that the daemon left out when the log reached its bound.
    pub left_out: u64,
    /// Whether the log has its last line, because the daemon that wrote it ended in an orderly way.
    pub ended: bool,
}

impl Log {
    /// Opens a log, packed or not; `-` is standard input.
    ///
    /// # Errors
    /// It cannot be read, or is not a log.
    pub fn open(path: &Path) -> Result<Log, Fault> {
        let bytes = seekless_input::open(path)?.bytes;
        let path = path.display().to_string();
        let mut log = Log { bytes, path, text: vec![], number: 0, left_out: 0, ended: false };
        match log.line()? {
            Some(first) if first == FIRST_LINE => Ok(log),
            other => {
                let version = other.and_then(|line| line.strip_prefix(FORMAT)).map(str::to_owned);
                let what = match version {
                    Some(version) => format!(
                        "{}: this decision log was written by a Seekless of format version {version}; this one reads \
                         `{FIRST_LINE}`. Replay it with the version that wrote it",
                        log.path
                    ),
                    None => format!(
                        "{}: is no decision log: its first line is not `{FIRST_LINE}`; give a file of `seekless \
                         daemon --decisions`",
                        log.path
                    ),
                };
                Err(Fault::failed(what))
            }
        }
    }

    fn fault(&self, what: &str) -> Fault {
        Fault::failed(format!("{}: line {}: {what}", self.path, self.number))
    }

    fn line(&mut self) -> Result<Option<&str>, Fault> {
        self.number += 1;
        let more = read_line(&mut self.bytes, &mut self.text, LINE_BYTES_MAX, "decision log");
        if !more.map_err(|e| self.fault(&e))? {
            self.number -= 1;
            return Ok(None);
        }
        match std::str::from_utf8(&self.text) {
            Ok(text) => Ok(Some(text.trim_end())),
            Err(_) => Err(self.fault("is not text; give a file of `seekless daemon --decisions`")),
        }
    }

    /// The next line of the log; comments are skipped.
    ///
    /// # Errors
    /// A malformed line; the last line of a daemon that was killed may be incomplete.
    pub fn next_line(&mut self) -> Result<Option<Line>, Fault> {
        loop {
            let Some(text) = self.line()? else { return Ok(None) };
            let parsed = match text.strip_prefix('#') {
                None => text.parse::<Line>(),
                Some(remark) => {
                    let end = remark.strip_prefix(" end, ").map(|rest| rest.split(' ').next().unwrap_or(""));
                    let left_out = end.map(|n| n.parse().unwrap_or(0));
                    self.ended |= left_out.is_some();
                    self.left_out = left_out.unwrap_or(self.left_out);
                    continue;
                }
            };
            return match parsed {
                Ok(line) => Ok(Some(line)),
                Err(e) => Err(self.fault(&e.to_string())),
            };
        }
    }
}
