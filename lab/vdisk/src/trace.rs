//! A line of CSV for every command the drive completed.
//!
//! Columns: `arrival_ns,op,lba,sectors,started_ns,finished_ns,queue,disk_lba`. Times are drive time; `lba` is
//! the address on the modelled drive, `disk_lba` that on the disk as the system sees it (they differ where a
//! small disk is spread over the drive); `queue` counts the commands present at arrival, this one included;
//! `op` is `R`, `W` or `F` (a flush).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use seekless_base::Lba;
use seekless_model::drive::{Completion, Op};

/// Writes the trace. An error (a full disk) ends the trace, not the disk.
#[derive(Debug)]
pub struct Trace {
    out: Option<BufWriter<File>>,
}

impl Trace {
    /// No trace.
    pub fn off() -> Trace {
        Trace { out: None }
    }

    /// A new file with the line of column names.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: &Path) -> io::Result<Trace> {
        let mut out = BufWriter::with_capacity(1 << 16, File::create(path)?);
        writeln!(out, "arrival_ns,op,lba,sectors,started_ns,finished_ns,queue,disk_lba")?;
        Ok(Trace { out: Some(out) })
    }

    /// One command; `queue` and `disk` as described for the columns.
    pub fn record(&mut self, done: &Completion, queue: usize, disk: Lba) {
        let Some(out) = &mut self.out else { return };
        let op = match done.op {
            Op::Read => 'R',
            Op::Write => 'W',
            Op::Flush => 'F',
        };
        let (arrived, started, finished) = (done.arrived.0, done.started.0, done.finished.0);
        let (lba, sectors, disk) = (done.lba.0, done.sectors, disk.0);
        if writeln!(out, "{arrived},{op},{lba},{sectors},{started},{finished},{queue},{disk}").is_err() {
            self.out = None;
        }
    }

    /// What was recorded reaches the file.
    pub fn flush(&mut self) {
        if let Some(out) = &mut self.out
            && out.flush().is_err()
        {
            self.out = None;
        }
    }
}
