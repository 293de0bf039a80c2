//! The decision log of all disks in one file: [`seekless_policy::decisions`] as it happens, up to a bound.
//!
//! At the bound the end is cut off, because a log with a gap could not be replayed. The last line says how
//! many lines are missing. The file is written through a buffer, which is flushed with every report of the
//! machine's memory and at the end.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use seekless_base::Nanos;
use seekless_policy::decisions::{Entry, FIRST_LINE, Line};
use seekless_policy::{Action, Config, Event};

use crate::lock;

/// A log that disk threads write to.
#[derive(Debug)]
pub struct DecisionLog {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    out: BufWriter<File>,
    written: u64,
    most: u64,
    left_out: u64,
    disks: u32,
    failed: bool,
    ended: bool,
}

impl DecisionLog {
    /// Starts a log of at most `most` bytes in a new file.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(path: &Path, most: u64) -> io::Result<DecisionLog> {
        DecisionLog::begin(File::create(path)?, most)
    }

    /// Starts a log in an empty file that is open already.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(file: File, most: u64) -> io::Result<DecisionLog> {
        let mut out = BufWriter::with_capacity(64 << 10, file);
        writeln!(out, "{FIRST_LINE}")?;
        let inner = Inner { out, written: 0, most, left_out: 0, disks: 0, failed: false, ended: false };
        Ok(DecisionLog { inner: Mutex::new(inner) })
    }

    /// The number of another disk.
    pub(crate) fn disk(&self) -> u32 {
        let mut inner = lock(&self.inner);
        inner.disks += 1;
        inner.disks - 1
    }

    pub(crate) fn write(&self, line: &Line) {
        lock(&self.inner).write(line);
    }

    pub(crate) fn flush(&self) {
        let _ = lock(&self.inner).out.flush();
    }

    /// Writes the last line. A thread that still has the log adds nothing after it.
    pub(crate) fn end(&self) {
        lock(&self.inner).end();
    }
}

/// The log of one disk; does nothing if logging is off.
pub(crate) struct DiskLog(Option<(u32, Arc<DecisionLog>)>);

impl DiskLog {
    /// Starts with the disk's name and settings.
    pub(crate) fn begin(log: Option<Arc<DecisionLog>>, name: &str, config: &Config) -> DiskLog {
        let disk_log = DiskLog(log.map(|log| (log.disk(), log)));
        let name = name.to_string();
        disk_log.write(Nanos::ZERO, || Entry::Disk { name, config: Box::new(config.clone()) });
        disk_log
    }

    fn write(&self, at: Nanos, entry: impl FnOnce() -> Entry) {
        if let Some((disk, log)) = &self.0 {
            log.write(&Line { disk: *disk, at, entry: entry() });
        }
    }

    pub(crate) fn event(&self, at: Nanos, event: Event) {
        self.write(at, || Entry::Event(event));
    }

    pub(crate) fn action(&self, at: Nanos, action: Action) {
        self.write(at, || Entry::Action(action));
    }

    pub(crate) fn flush(&self) {
        if let Some((_, log)) = &self.0 {
            log.flush();
        }
    }
}

impl Inner {
    fn write(&mut self, line: &Line) {
        if self.ended {
            return;
        }
        // Once a line was left out, no later one is written, even if it is shorter and would fit.
        if self.left_out > 0 || self.failed {
            self.left_out += 1;
            return;
        }
        let text = format!("{line}\n");
        if self.written + text.len() as u64 > self.most {
            self.left_out += 1;
            tracing::warn!("the decision log has reached its bound of {} bytes", self.most);
            return;
        }
        self.written += text.len() as u64;
        if let Err(error) = self.out.write_all(text.as_bytes()) {
            self.failed = true;
            tracing::warn!(%error, "cannot write the decision log any more");
        }
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let _ = writeln!(self.out, "# end, {} lines left out", self.left_out);
        let _ = self.out.flush();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_says_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = DecisionLog::create(&path, 200).unwrap();
        let disk = log.disk();
        for i in 0..50 {
            log.write(&Line { disk, at: Nanos(i), entry: Entry::Event(Event::Tick) });
        }
        log.end();
        log.write(&Line { disk, at: Nanos(99), entry: Entry::Event(Event::Tick) });
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], FIRST_LINE);
        let kept = lines.len() - 2;
        assert_eq!(*lines.last().unwrap(), format!("# end, {} lines left out", 50 - kept));
        drop(log);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "nothing after the end");
        assert!(kept > 5 && text.len() < 200 + 60, "{text}");
        for (i, line) in lines[1..=kept].iter().enumerate() {
            assert_eq!(line.parse::<Line>().unwrap().at, Nanos(i as u64));
        }
    }
}
