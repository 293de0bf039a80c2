//! What a disk is asked to be: checked once at the edge, then passed from process to process as JSON.

use std::path::{Path, PathBuf};

use seekless_base::{Bytes, Fault};
use seekless_model::drive::DriveSpec;
use seekless_model::drive::catalogue;
use seekless_model::drive::set::{DriveSet, SetSpec};
use seekless_model::drive::spread::{Layout, Spread};
use serde::{Deserialize, Serialize};

use crate::mechanism::{Mechanism, Model, data_sheet};

/// The file system made on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FsKind {
    /// ext4, without reserved blocks and with nothing left to initialise later.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// Only the block device.
    None,
    /// No block device: a directory of files straight from the model, for users without root.
    Tree,
}

/// A disk as asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskConfig {
    /// Its name.
    pub name: String,
    /// Name of a drive of the catalogue, or the path of a file like those of `drives/`.
    pub drive: String,
    /// Which model of it.
    #[serde(default)]
    pub model: Model,
    /// Bytes.
    pub size: Bytes,
    /// What is made on it.
    pub fs: FsKind,
    /// Where it is mounted; absent with `FsKind::None`.
    pub mount: Option<PathBuf>,
    /// How many times as fast as life it runs.
    pub speedup: f64,
    /// How many such drives it is made of, and how.
    #[serde(default = "single")]
    pub set: SetSpec,
    /// Which part of the drive it takes.
    pub spread: String,
    /// Bytes that stay together where it is spread.
    pub chunk: Bytes,
    /// Block scheduler, if not the system's choice.
    pub scheduler: Option<String>,
    /// Largest kernel read-ahead, KiB.
    pub read_ahead_kb: Option<u64>,
    /// Largest request of the block layer, KiB.
    pub max_sectors_kb: Option<u64>,
    /// Commands the block layer dispatches at once; as many as the drive queues if absent.
    pub queue_depth: Option<u32>,
    /// Options for mount(2) beside `noatime`.
    pub mount_options: Option<String>,
    /// CSV file of all commands.
    pub trace: Option<PathBuf>,
    /// Directory of the unnamed backing file.
    pub backing: PathBuf,
    /// Files of a tree, in lines of size and path.
    pub manifest: Option<PathBuf>,
    /// Seed of the order in which a tree's files lie on the drive.
    pub seed: u64,
}

/// As a disk of an earlier version was.
fn single() -> SetSpec {
    SetSpec::SINGLE
}

/// The drive named `name`, or described in the file at that path.
///
/// # Errors
/// `Usage` with the list of names and the nearest one, or what is wrong in the file.
pub fn find_drive(name: &str) -> Result<DriveSpec, Fault> {
    if name.ends_with(".toml") || name.contains('/') {
        let text = seekless_output::input::text(Path::new(name))?;
        return catalogue::parse(&text).map_err(|e| Fault::usage(format!("drive {name}: {e}")));
    }
    if let Some(spec) = catalogue::get(name) {
        return Ok(spec);
    }
    let names: Vec<&str> = catalogue::names().collect();
    let hint = match names.iter().min_by_key(|n| distance(name, n)) {
        Some(nearest) if distance(name, nearest) <= 1 + name.len() / 3 => {
            format!(" (did you mean {nearest}?)")
        }
        _ => String::new(),
    };
    Err(Fault::usage(format!(
        "unknown drive `{name}`{hint}; there are: {}; or write drawn:SEED:INDEX, or the path of a .toml file",
        names.join(", ")
    )))
}

/// Letters to insert, delete or change to turn one word into the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

impl DiskConfig {
    /// The drives and the layout of the disk on them.
    ///
    /// # Errors
    /// `Usage`: unknown drive, no possible set, size out of range, a spread that does not fit.
    pub fn resolve(&self) -> Result<(Mechanism, Layout), Fault> {
        let usage = |message: String| Fault::usage(message);
        let spec = find_drive(&self.drive)?;
        let spread: Spread = self.spread.parse().map_err(usage)?;
        if !self.size.0.is_multiple_of(4096) || self.size < Bytes::mib(1) {
            return Err(usage(format!(
                "size {} cannot be had: use a multiple of 4KiB from 1MiB on",
                self.size
            )));
        }
        if !(0.001..=1000.0).contains(&self.speedup) {
            return Err(usage(format!("--speedup {} is out of range: 0.001 to 1000", self.speedup)));
        }
        if self.chunk < Bytes::kib(4) || !self.chunk.0.is_multiple_of(4096) {
            return Err(usage(format!(
                "--with spread-chunk={} cannot be had: use a multiple of 4KiB",
                self.chunk
            )));
        }
        let drives = match self.model {
            Model::Drive => DriveSet::new(&spec, self.set).map_err(|e| usage(e.to_string()))?.into(),
            Model::Platter if self.set.is_single() => {
                let platter = seekless_model::platter::Platter::new(&data_sheet(&spec));
                Mechanism::Platter(Box::new(platter.map_err(|why| usage(format!("{}: {why}", self.drive)))?))
            }
            Model::Platter => return Err(usage("--with model=platter is one drive: leave out --set".into())),
        };
        // Whole stripes stay together.
        let chunk = self.chunk.0.next_multiple_of(self.set.stripe().0.max(1));
        let layout = Layout::new(self.size.0, drives.sectors(), spread, chunk).map_err(|why| {
            let what = if self.set.is_single() { String::new() } else { format!("{}, each ", self.set) };
            usage(format!("a disk of {} {why}; {} is {what}{}", self.size, self.drive, spec.label))
        })?;
        Ok((drives, layout))
    }
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;

    #[test]
    fn unknown_drives_are_answered_with_the_names() {
        let fault = find_drive("wd-red-2tb").unwrap_err();
        assert_eq!(fault.exit, Exit::Usage);
        assert!(fault.message.contains("did you mean wd-red-1tb?"), "{fault}");
        assert!(fault.message.contains("cheetah-9lp"), "{fault}");
        assert!(!find_drive("zzzzzzzz").unwrap_err().message.contains("did you mean"));
        assert_eq!(find_drive("/nonexistent/x.toml").unwrap_err().exit, Exit::Missing);
        assert_eq!((distance("kitten", "sitting"), distance("", "ab"), distance("a", "a")), (3, 2, 0));
    }
}
