//! What was done: counts, failures a line each, and the summary of `--json`.

use std::io::Write;

use indicatif::ProgressBar;
use serde::Serialize;

use crate::ahead::AheadSummary;
use crate::look::{Found, How, Look};
use crate::walk::as_path;

/// Counts of one run.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Paths of the list so far: ordered, and not.
    pub(crate) paths: u64,
    /// Of these, not.
    pub(crate) failures: u64,
    pub(crate) batches: u64,
    /// Of each file system, by index.
    counts: Vec<Counts>,
    pub(crate) bar: ProgressBar,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counts {
    paths: u64,
    bytes: u64,
    by_address: u64,
    by_inode: u64,
    as_listed: u64,
}

/// `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// Paths of the list.
    paths: u64,
    /// Number of these written in order.
    ordered: u64,
    /// Bytes of their files.
    bytes: u64,
    /// Ordered by the address of their first bytes.
    by_address: u64,
    /// Ordered by inode number.
    by_inode: u64,
    /// Left in the order of the list.
    as_listed: u64,
    /// Paths that could not be ordered.
    failures: u64,
    /// Batches, each sorted by itself.
    batches: u64,
    /// File systems, by order of appearance.
    devices: Vec<DeviceSummary>,
    /// Counts of reading ahead; absent without `--ahead`.
    ahead: Option<AheadSummary>,
}

/// One file system.
#[derive(Debug, Serialize)]
struct DeviceSummary {
    name: String,
    #[serde(flatten)]
    counts: Counts,
}

impl Tally {
    pub(crate) fn new(bar: ProgressBar) -> Tally {
        Tally { paths: 0, failures: 0, batches: 0, counts: Vec::new(), bar }
    }

    /// A path cannot be ordered: one line on standard error.
    pub(crate) fn refuse(&mut self, path: &[u8], why: &str) {
        self.paths += 1;
        self.failures += 1;
        self.say(path, why);
    }

    /// One line on standard error about a path.
    pub(crate) fn say(&self, path: &[u8], why: &str) {
        // Quoted, so that any name is one line.
        let why =
            if path.contains(&0) { "has zero bytes in it; a list of `find -print0` needs -0" } else { why };
        self.bar.suspend(|| {
            // Standard error may be closed; then the line is lost.
            let _ = writeln!(std::io::stderr().lock(), "seekless: {:?}: {why}", as_path(path));
        });
    }

    /// Counts an item.
    pub(crate) fn count(&mut self, found: &Found) {
        self.paths += 1;
        if self.counts.len() <= found.device {
            self.counts.resize(found.device + 1, Counts::default());
        }
        let counts = &mut self.counts[found.device];
        counts.paths += 1;
        counts.bytes = counts.bytes.saturating_add(found.bytes);
        *match found.how {
            How::Address => &mut counts.by_address,
            How::Inode => &mut counts.by_inode,
            How::Listed => &mut counts.as_listed,
        } += 1;
    }

    pub(crate) fn summary(&self, look: &Look, ahead: Option<AheadSummary>) -> Summary {
        let all = self.counts.iter().zip(&look.devices);
        let devices =
            all.map(|(counts, device)| DeviceSummary { name: device.name.clone(), counts: *counts });
        let sum = |of: fn(&Counts) -> u64| self.counts.iter().map(of).fold(0, u64::saturating_add);
        Summary {
            paths: self.paths,
            ordered: sum(|d| d.paths),
            bytes: sum(|d| d.bytes),
            by_address: sum(|d| d.by_address),
            by_inode: sum(|d| d.by_inode),
            as_listed: sum(|d| d.as_listed),
            failures: self.failures,
            batches: self.batches,
            devices: devices.collect(),
            ahead,
        }
    }
}
