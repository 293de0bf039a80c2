//! The table: a bitrate and a path in each line.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use seekless_base::{BITRATES_BYTES_MAX, BITRATES_MAX, Fault, Rate, name_to_text};
use serde::Serialize;

/// How a table begins.
const FIRST: &str = "# Bitrates of files";

/// Most lines that are kept of those that say why a file is left out; all are counted.
const LEFT_OUT_MAX: usize = 4096;

/// Longest line of a file that is to be replaced.
const LINE_MAX: u64 = 4 << 10;

/// Where a bitrate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum From {
    /// A manifest names the file.
    Manifest,
    /// The file's own header.
    Header,
}

/// What was found below a folder.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By path. A header outdoes a manifest, and of two manifests the higher bitrate counts.
    rates: BTreeMap<PathBuf, (From, u64)>,
    /// Bytes of the table.
    bytes: u64,
    left_out: Vec<LeftOut>,
    left_out_count: u64,
}

/// A file without a bitrate, and why.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LeftOut {
    path: String,
    why: String,
}

impl Table {
    /// Notes a file's bitrate, bytes a second. `false`: the table is full.
    pub(crate) fn tell(&mut self, path: PathBuf, from: From, bytes_per_s: u64) -> bool {
        if let Some(known) = self.rates.get_mut(&path) {
            *known = (*known).max((from, bytes_per_s));
            return true;
        }
        self.bytes += line(&path, bytes_per_s).len() as u64;
        if self.rates.len() as u64 >= BITRATES_MAX || self.bytes > BITRATES_BYTES_MAX {
            return false;
        }
        self.rates.insert(path, (from, bytes_per_s));
        true
    }

    /// Notes why a file has no bitrate, and returns the line that says so.
    pub(crate) fn leave_out(&mut self, path: &Path, why: &str) -> String {
        // The reason may have words of the file in it.
        let (path, why) = (name_to_text(path.as_os_str().as_bytes()), name_to_text(why.as_bytes()));
        let line = format!("{path}: {why}");
        self.left_out_count += 1;
        if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.push(LeftOut { path, why });
        }
        line
    }

    pub(crate) fn len(&self) -> usize {
        self.rates.len()
    }

    pub(crate) fn left_out(&self) -> u64 {
        self.left_out_count
    }

    /// As text, by path.
    pub(crate) fn text(&self, folder: &Path) -> String {
        let mut text = format!("{FIRST} below {}\n", name_to_text(folder.as_os_str().as_bytes()));
        for (path, (_, bytes_per_s)) in &self.rates {
            text.push_str(&line(path, *bytes_per_s));
        }
        text
    }

    /// As JSON.
    pub(crate) fn json(&self, folder: &Path) -> serde_json::Value {
        let rates = self.rates.iter().map(|(path, (from, bytes_per_s))| {
            let path = name_to_text(path.as_os_str().as_bytes());
            serde_json::json!({ "path": path, "bytes_per_s": bytes_per_s, "from": from })
        });
        serde_json::json!({
            "folder": name_to_text(folder.as_os_str().as_bytes()),
            "bitrates": rates.collect::<Vec<_>>(),
            "left_out": self.left_out,
            "left_out_count": self.left_out_count,
        })
    }
}

fn line(path: &Path, bytes_per_s: u64) -> String {
    let mut line = String::new();
    let _ = writeln!(line, "{} {}", Rate(bytes_per_s), name_to_text(path.as_os_str().as_bytes()));
    line
}

/// Refuses to put a table in the place of a file that is none: the name of a film slips in easily.
///
/// # Errors
/// `Usage`: a regular file is there, and neither empty nor a table.
pub(crate) fn replaceable(path: &Path) -> Result<(), Fault> {
    if !std::fs::symlink_metadata(path).is_ok_and(|there| there.is_file() && there.len() > 0) {
        return Ok(());
    }
    let mut first = Vec::new();
    // What cannot be read is met when it is written.
    let Ok(file) = File::open(path) else { return Ok(()) };
    let _ = BufReader::new(file.take(LINE_MAX)).read_until(b'\n', &mut first);
    let word = first.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let rate = str::from_utf8(word).is_ok_and(|word| word.parse::<Rate>().is_ok());
    if rate || first.starts_with(b"#") {
        return Ok(());
    }
    let name = name_to_text(path.as_os_str().as_bytes());
    Err(Fault::usage(format!(
        "cannot write {name}: it exists and holds no table; choose another file, or remove it"
    )))
}
