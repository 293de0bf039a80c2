//! Bitrates known beforehand, from a table of paths in a text file (`--bitrates`).
//!
//! A stream's bitrate sets its deadlines and, with `--scale`, its prefetch size. Observing it from reads
//! takes ten seconds. No file's content is parsed for it here: a user who knows the bitrates writes them
//! down, or `seekless-lab bitrates` does, which runs without privileges.
//!
//! ```text
//! # a line that begins with # is a comment
//! 2095kb/s films/high.mp4
//! 52kB/s /srv/films/a\x0anewline.mp4
//! ```
//!
//! A line has a bitrate with its unit, then a path: absolute, or relative to the folder of the table. Bytes
//! of a path that would not be plain text are written `\xHH` ([`seekless_base::name_to_text`]).
//!
//! A thread reads the table, again whenever it has changed, and finds the file of each path. Paths may lead
//! to any file system, so nothing waits for this thread. It takes at most a quarter of a disk's time. A path
//! with a symlink in it is ignored, because the owner of the link would choose which file gets the bitrate. A
//! wrong bitrate does little harm: a client faster than it is followed at its own rate, and data is read
//! early for a slower one.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags, fstat, makedev, open, openat2, stat,
    statx,
};
use rustix::io::Errno;
use seekless_base::{BITRATES_BYTES_MAX, BITRATES_MAX, Exit, Fault, Rate, name_from_text, name_to_text};
use seekless_kernel::trust::is_only_ours;
use seekless_policy::FileId;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;
use crate::{lock, sleep_unless};

/// Maximum length of a line in bytes: a path of `PATH_MAX` bytes, all of them escaped, and a bitrate.
const LINE_BYTES_MAX: u64 = 4 * 4096 + 64;

/// Interval between checks whether the table has changed.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A path lookup that took longer than this went to the disk. The thread then sleeps three times as long as
/// the lookup took.
const FROM_MEMORY: Duration = Duration::from_millis(1);

/// Maximum length of such a sleep. A lookup may have waited in line, so its time does not show its cost.
const SLEEP_MAX: Duration = Duration::from_millis(60);

/// The state of the table of bitrates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitratesReport {
    /// Path of the table.
    pub table: String,
    /// Files with a bitrate, as far as their paths were looked up.
    pub files: u64,
    /// Lines without a result: no bitrate, no path, or a path that leads to no file.
    pub lines_left_out: u64,
    /// Number of times that the whole table was read.
    pub readings: u64,
}

/// The bitrates of files.
#[derive(Debug, Default)]
pub(crate) struct Bitrates {
    /// Bytes a second, and the reading of the table that they come from.
    known: Mutex<HashMap<FileId, (u64, u64)>>,
    readings: AtomicU64,
}

impl Bitrates {
    /// Bytes a second, if known.
    pub(crate) fn of(&self, file: FileId) -> Option<u64> {
        // Without a table nothing is locked.
        let known = self.read() > 0;
        known.then(|| lock(&self.known).get(&file).map(|&(rate, _)| rate)).flatten()
    }

    /// A counter that changes with the table: it counts the beginnings and ends of readings.
    pub(crate) fn read(&self) -> u64 {
        self.readings.load(Ordering::Acquire)
    }

    fn tell(&self, file: FileId, rate: Rate, reading: u64) {
        lock(&self.known).insert(file, (rate.0, reading));
    }

    /// Ends a reading: bitrates from earlier ones are forgotten.
    fn end(&self, reading: u64) -> u64 {
        let mut known = lock(&self.known);
        known.retain(|_, told| told.1 == reading);
        let files = known.len() as u64;
        drop(known);
        self.readings.fetch_add(1, Ordering::Release);
        files
    }
}

/// Handle of the thread that reads the table; it ends soon after this is dropped.
pub(crate) struct Table {
    report: Arc<Mutex<BitratesReport>>,
    stop: Arc<AtomicBool>,
}

impl Table {
    /// Starts the thread for the table of these settings, if there is one.
    pub(crate) fn of(settings: &Settings, bitrates: &Arc<Bitrates>) -> Option<Table> {
        let path = settings.bitrates.clone()?;
        let report =
            BitratesReport { table: name_to_text(path.as_os_str().as_bytes()), ..Default::default() };
        let table = Table { report: Arc::new(Mutex::new(report)), stop: Arc::default() };
        let (report, stop, bitrates) = (table.report.clone(), table.stop.clone(), bitrates.clone());
        let run = move || keep(&path, &bitrates, &report, &stop);
        if let Err(why) = thread::Builder::new().name("bitrates".into()).spawn(run) {
            tracing::warn!("the table of bitrates is not read: cannot start a thread: {why}");
            return None;
        }
        Some(table)
    }

    pub(crate) fn report(&self) -> BitratesReport {
        lock(&self.report).clone()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // Not joined: a path may lead to a file system that hangs.
        self.stop.store(true, Ordering::Release);
    }
}

fn keep(path: &Path, bitrates: &Bitrates, report: &Mutex<BitratesReport>, stop: &AtomicBool) {
    let mut seen = None;
    while !stop.load(Ordering::Acquire) {
        let now = edition(path);
        if now.is_some() && now != seen {
            let readings = lock(report).readings;
            match opened(path).and_then(|file| Reading::of(path, file)) {
                Ok(mut reading) => {
                    // Results are usable during the reading, because a long table takes a while on a cold
                    // disk.
                    bitrates.readings.fetch_add(1, Ordering::Release);
                    reading.all(bitrates, readings + 1, stop);
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    let files = bitrates.end(readings + 1);
                    let left_out = reading.left_out;
                    if let Some(first) = reading.first_left_out {
                        tracing::warn!(
                            "{}: {left_out} lines of this table of bitrates are ignored; the first, {first}",
                            reading.name
                        );
                    }
                    let mut report = lock(report);
                    (report.files, report.lines_left_out) = (files, left_out);
                    report.readings += 1;
                }
                Err(why) => {
                    let name = name_to_text(path.as_os_str().as_bytes());
                    tracing::warn!("{name}: this table of bitrates is not read: {why}");
                }
            }
            // If the table changed during the reading, it is read again.
            seen = now;
        }
        sleep_unless(stop, LOOK_EVERY);
    }
}

/// The values that change with a file's content: device, inode, size, and modification time.
fn edition(path: &Path) -> Option<(u64, u64, u64, i64, i64)> {
    let about = fs::metadata(path).ok()?;
    Some((about.dev(), about.ino(), about.size(), about.ctime(), about.ctime_nsec()))
}

/// Checks that a table can be read, before anything is started for it.
///
/// # Errors
/// `Missing`: there is no such file. `Permission`: it may not be read, or root does not trust it because
/// another user may write to it or to a folder above it. `Usage`: it is not a regular file, or too large.
pub fn check_table(path: &Path) -> Result<(), Fault> {
    let name = name_to_text(path.as_os_str().as_bytes());
    let file = opened(path).map_err(|why| {
        let exit = match why {
            Refusal::Missing => Exit::Missing,
            Refusal::Io(Errno::ACCESS | Errno::PERM) | Refusal::NotOurs(_) => Exit::Permission,
            Refusal::Io(_) => Exit::Failed,
            Refusal::Kind | Refusal::Size(_) => Exit::Usage,
        };
        Fault::new(exit, format!("--bitrates {name}: {why}"))
    })?;
    drop(file);
    Ok(())
}

/// Why a table is not read.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("there is no such file; `seekless-lab bitrates` writes one")]
    Missing,
    #[error("it cannot be opened: {0}")]
    Io(Errno),
    #[error("it is not a regular file; name one")]
    Kind,
    #[error("{0} bytes are more than the {BITRATES_BYTES_MAX} of a table; write a shorter one")]
    Size(u64),
    /// Another user may write to it.
    #[error("{0}, and root believes only what root alone can write; chown or chmod it")]
    NotOurs(String),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Refusal {
        if error == Errno::NOENT { Refusal::Missing } else { Refusal::Io(error) }
    }
}

/// Opens the table. Root opens only a table that no other user can write to or replace.
fn opened(path: &Path) -> Result<File, Refusal> {
    // Checked before it is opened, because opening a device or a FIFO may have side effects.
    let regular = |about: &Stat| FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
    if !regular(&stat(path)?) {
        return Err(Refusal::Kind);
    }
    if rustix::process::geteuid().is_root() {
        is_only_ours(path).map_err(Refusal::NotOurs)?;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = open(path, flags, Mode::empty())?;
    let about = fstat(&fd)?;
    match u64::try_from(about.st_size).unwrap_or(0) {
        _ if !regular(&about) => Err(Refusal::Kind),
        size if size > BITRATES_BYTES_MAX => Err(Refusal::Size(size)),
        _ => Ok(File::from(fd)),
    }
}

/// One reading of a table.
struct Reading {
    name: String,
    /// The folder that relative paths begin from.
    folder: OwnedFd,
    lines: BufReader<io::Take<File>>,
    left_out: u64,
    /// The first line without a result, with its number.
    first_left_out: Option<String>,
}

impl Reading {
    fn of(path: &Path, file: File) -> Result<Reading, Refusal> {
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Reading {
            name: name_to_text(path.as_os_str().as_bytes()),
            folder: open(folder, flags, Mode::empty())?,
            lines: BufReader::new(file.take(BITRATES_BYTES_MAX)),
            left_out: 0,
            first_left_out: None,
        })
    }

    /// Stores the bitrates of all lines.
    fn all(&mut self, bitrates: &Bitrates, reading: u64, stop: &AtomicBool) {
        let mut line = Vec::new();
        for number in 1.. {
            if stop.load(Ordering::Acquire) {
                return;
            }
            let found = match self.next(&mut line) {
                Ok(false) => return,
                Ok(true) if number > BITRATES_MAX => {
                    return self.leave_out(number, format!("this and all after it: {BITRATES_MAX} are read"));
                }
                Ok(true) => parse(&line).and_then(|told| match told {
                    Some((rate, path)) => self.file(&path).map(|file| Some((file, rate))),
                    None => Ok(None),
                }),
                Err(error) => return self.leave_out(number, format!("this and all after it: {error}")),
            };
            match found {
                Ok(Some((file, rate))) => bitrates.tell(file, rate, reading),
                Ok(None) => {}
                Err(why) => self.leave_out(number, why),
            }
        }
    }

    fn leave_out(&mut self, number: u64, why: String) {
        self.left_out += 1;
        self.first_left_out.get_or_insert_with(|| format!("line {number}: {why}"));
    }

    /// Reads the next line, without its end; skips the rest of a line that is too long. Returns `false` at
    /// the end of the table.
    fn next(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        self.lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line)?;
        if line.is_empty() {
            return Ok(false);
        }
        let ended = line.last() == Some(&b'\n');
        if ended {
            line.pop();
        }
        if !ended && line.len() as u64 == LINE_BYTES_MAX {
            self.lines.skip_until(b'\n')?;
        }
        Ok(true)
    }

    /// Finds the file of a path.
    fn file(&self, path: &Path) -> Result<FileId, String> {
        let began = Instant::now();
        let found = self.look_up(path);
        let took = began.elapsed();
        if took > FROM_MEMORY {
            thread::sleep((3 * took).min(SLEEP_MAX));
        }
        found.map_err(|error| {
            let name = name_to_text(path.as_os_str().as_bytes());
            let why = match error {
                Errno::LOOP => "there is a symlink in it; write the path without".to_string(),
                Errno::ISDIR => "no regular file".to_string(),
                error => io::Error::from(error).to_string(),
            };
            format!("{name}: {why}")
        })
    }

    fn look_up(&self, path: &Path) -> Result<FileId, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let fd = openat2(&self.folder, path, flags, Mode::empty(), resolve)?;
        // A file server need not be asked for the file's size and times.
        let at = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let about = statx(&fd, c"", at, StatxFlags::TYPE | StatxFlags::INO)?;
        match FileType::from_raw_mode(about.stx_mode.into()) {
            FileType::RegularFile => {
                let dev = makedev(about.stx_dev_major, about.stx_dev_minor);
                Ok(FileId { dev, ino: about.stx_ino })
            }
            FileType::Symlink => Err(Errno::LOOP),
            _ => Err(Errno::ISDIR),
        }
    }
}

/// The bitrate and path of a line; `None` if it is empty or a comment.
fn parse(line: &[u8]) -> Result<Option<(Rate, PathBuf)>, String> {
    if line.len() as u64 >= LINE_BYTES_MAX {
        return Err(format!("it is longer than {LINE_BYTES_MAX} bytes"));
    }
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let (rate, path) = match line.iter().position(u8::is_ascii_whitespace) {
        Some(at) => (&line[..at], line[at..].trim_ascii()),
        None => (line, &b""[..]),
    };
    let rate: Rate = String::from_utf8_lossy(rate).parse().map_err(|e| format!("{e}"))?;
    if path.is_empty() {
        return Err("there is no path after the bitrate; write for example 2095kb/s films/a.mp4".into());
    }
    let path =
        name_from_text(path).ok_or("its path has a byte that is to be written \\xHH, or a wrong \\")?;
    if path.contains(&0) {
        return Err("its path has a zero byte".into());
    }
    Ok(Some((rate, PathBuf::from(OsString::from_vec(path)))))
}

#[cfg(test)]
mod tests;
