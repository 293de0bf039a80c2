//! Writes what commands produce, text and JSON, to standard output or to a file, and a progress bar
//! meanwhile.
//!
//! A file appears whole or not at all: it is written under another name and renamed. If something other than
//! a regular file has its name (a device, a FIFO, a socket, a symlink; so `/dev/null`, `/dev/stdout` and
//! `>(jq)`), it is written to directly and never replaced. A block device is never written to. A reader that
//! has ended (`| head`) is not an error.
//!
//! Root follows no symlink that another user has made, in any folder, because in a folder that others may
//! write to it could lead to any file of the system. (`fs.protected_symlinks` does the same in folders like
//! `/tmp`, if it is on.)
//!
//! Text for people is escaped here, once ([`lines`]).
//!
//! Must not know: what is written, and for whom.

pub mod input;
pub mod lines;
mod option;

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressStyle};
pub use lines::{LogLines, escaped, html_escaped, joined, json_escaped, say, say_lines};
pub use option::{HtmlOption, JsonOption};
use rustix::fs::OFlags;
use seekless_base::Fault;
use serde::Serialize;

/// How long [`offer`] waits for a reader that takes nothing.
const READER_PATIENCE: Duration = Duration::from_secs(1);
/// How often it checks whether the reader takes data again.
const READER_POLL: Duration = Duration::from_millis(10);
/// How much of a file is examined to tell whether it is JSON: few spaces come before it.
const HEAD_BYTES: u64 = 64;
/// Maximum number of symlinks in a row, as in the kernel.
const LINKS_MAX: usize = 40;

/// Template of a [`bar`] that counts the bytes of a file.
pub const BYTES: &str = "{bar:40} {binary_bytes}/{binary_total_bytes} {eta}";

/// Prints text for people to standard output, escaped but for its newlines ([`lines`]).
///
/// # Errors
/// `Failed`: standard output cannot be written, as on a full disk.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Fault> {
    stream(|out| out.write_all(lines::shown(text.as_ref()).as_bytes()))
}

/// Writes data to standard output unchanged; it may be too long for memory.
///
/// # Errors
/// Those of [`print()`].
pub fn stream(content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    let mut out = BufWriter::new(io::stdout().lock());
    heard(content(&mut out).and_then(|()| out.flush()))
        .map_err(|e| Fault::failed(format!("standard output cannot be written: {e}")))
}

/// Writes a file that appears whole or not at all.
///
/// # Errors
/// `Failed`: the file or its folder cannot be written; no new file is left then.
pub fn whole(path: &Path, text: impl AsRef<[u8]>) -> Result<(), Fault> {
    replace(path, text).map_err(|e| unwritten(path, &e))
}

/// Fails now if [`write()`] would fail later. For results that take minutes: called before the work.
///
/// # Errors
/// Those of [`whole`].
pub fn writable<'a>(results: impl IntoIterator<Item = &'a Path>) -> Result<(), Fault> {
    for path in results {
        // Opening something other than a regular file, such as a FIFO, may lose bytes.
        let special = fs::symlink_metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir());
        if is_stdout(path) {
            continue;
        }
        if special {
            no_disk(path).map_err(|e| unwritten(path, &e))?;
            continue;
        }
        if path.is_dir() {
            return Err(unwritten(path, &rustix::io::Errno::ISDIR.into()));
        }
        let beside = beside(path);
        made(&beside).and_then(|_| fs::remove_file(&beside)).map_err(|e| unwritten(path, &e))?;
    }
    Ok(())
}

/// Refuses to replace a file that is not JSON: the name of a list or a log that should be read easily gets
/// behind `--json` (`order --json LIST`), and would be lost. A symlink is accepted: `/dev/stdout` may lead to
/// a file of any kind.
///
/// # Errors
/// `Usage`: there is a regular file that is neither empty nor JSON.
pub fn replaceable_by_json(path: &Path) -> Result<(), Fault> {
    if !fs::symlink_metadata(path).is_ok_and(|there| there.is_file()) {
        return Ok(());
    }
    let mut head = Vec::new();
    // An unreadable file gives its error when it is written.
    let _ = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    match head.trim_ascii_start().first() {
        None | Some(b'{' | b'[') => Ok(()),
        Some(_) => Err(Fault::usage(format!(
            "cannot write {}: it exists and holds no JSON; choose another file, or remove it",
            path.display()
        ))),
    }
}

fn unwritten(path: &Path, e: &io::Error) -> Fault {
    Fault::failed(format!("cannot write {}: {e}; choose another file", path.display()))
}

/// [`whole`], for callers that have their own message for an error.
///
/// # Errors
/// The system's error.
pub fn replace(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    fill(path, |file| file.write_all(text.as_ref()))
}

/// [`replace`] for a file that must survive a power failure: its data is on the disk before it has its name.
///
/// # Errors
/// The system's error.
pub fn replace_synced(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    fill(path, |file| {
        file.write_all(text.as_ref())?;
        match file.sync_all() {
            // A pipe or a device like `/dev/null` has nothing to sync.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    })
}

/// Writes text to the place that a command line names: `-` is standard output, anything else a file as by
/// [`whole`].
///
/// # Errors
/// Those of [`print()`] and [`whole`].
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), Fault> {
    if is_stdout(path) { stream(|out| out.write_all(text.as_ref())) } else { whole(path, text) }
}

/// [`write()`] for callers that must not wait: if a FIFO is named, its reader must be there and take the
/// data. Data that it leaves for a second is lost. Returns whether all was taken.
///
/// # Errors
/// Those of [`write()`].
pub fn offer(path: &Path, text: impl AsRef<[u8]>) -> Result<bool, Fault> {
    if is_stdout(path) || !fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo()) {
        return write(path, text).map(|()| true);
    }
    match behind(path).and_then(|_| pour(path, text.as_ref())) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => Ok(false),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::BrokenPipe) => Ok(false),
        Err(e) => Err(unwritten(path, &e)),
    }
}

/// Creates a file, or empties an existing one, for callers that write it in parts.
///
/// # Errors
/// The system's error; `PermissionDenied`: it is a symlink that root does not follow.
pub fn create(path: &Path) -> io::Result<File> {
    straight_to(path, true)
}

/// The path of a file that will be replaced by a rename: symlinks at the end of the path are followed, so
/// that they stay. The target of the last one need not exist.
///
/// # Errors
/// The system's error; a loop of symlinks; a symlink like `/dev/stdout` to a file that has lost its name; one
/// that root does not follow.
pub fn place(path: &Path) -> io::Result<PathBuf> {
    let at = behind(path)?;
    // Not so for a file in /proc/self/fd that was renamed or deleted.
    let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    match (fs::metadata(path), fs::metadata(&at)) {
        (Ok(meant), Ok(found)) if !same(&meant, &found) => Err(io::ErrorKind::NotFound.into()),
        (Ok(_), Err(e)) => Err(e),
        _ => Ok(at),
    }
}

/// A value as indented JSON, with a newline at its end.
///
/// # Errors
/// `Failed`: the value has no form in JSON.
pub fn pretty(value: &impl Serialize) -> Result<String, Fault> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Fault::failed(format!("the result cannot be written as JSON: {e}")))?;
    Ok(json_escaped(text) + "\n")
}

/// Writes a value as JSON to the place that `--json` names; see [`write()`].
///
/// # Errors
/// Those of [`pretty`] and [`write()`].
pub fn json(path: &Path, value: &impl Serialize) -> Result<(), Fault> {
    write(path, pretty(value)?)
}

/// Writes a result: as JSON if that was requested, else as text.
///
/// # Errors
/// Those of [`json()`] and [`print()`].
pub fn json_or(
    to: Option<&Path>,
    value: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Fault> {
    to.map_or_else(|| print(text()), |path| json(path, value))
}

/// Writes a result: as JSON if that was requested, and as text unless the JSON went to standard output.
///
/// # Errors
/// Those of [`json()`] and [`print()`].
pub fn give(to: Option<&Path>, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Fault> {
    if let Some(path) = to {
        json(path, value)?;
        if is_stdout(path) {
            return Ok(());
        }
    }
    print(text())
}

/// Whether this path means standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// A bar on standard error if that is a terminal and the length is known; else nothing.
pub fn bar(total: u64, template: &str) -> ProgressBar {
    if total == 0 || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// The data was written, or nobody wants it any more.
fn heard(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Lets `content` fill the file that `path` names: a new file that then takes its name, or an existing one
/// that is not a regular file.
fn fill(path: &Path, content: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let there = fs::symlink_metadata(path).ok();
    if let Some(special) = there.as_ref().filter(|m| !m.is_file()) {
        // Only a symlink may name a target that does not exist yet. In a folder like /tmp, Linux refuses even
        // root to *create* another user's FIFO (fs.protected_fifos).
        return heard(content(&mut straight_to(path, special.is_symlink())?));
    }
    let beside = beside(path);
    let mut file = made(&beside)?;
    let filled = content(&mut file)
        .and_then(|()| there.map_or(Ok(()), |old| resemble(&file, &old)))
        .and_then(|()| fs::rename(&beside, path));
    if filled.is_err() {
        let _ = fs::remove_file(&beside);
    }
    filled
}

/// Opens an existing file to write to it; with `make`, creates it if it is missing.
fn straight_to(path: &Path, make: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(true).create(make);
    if behind(path)? == path {
        // It is not a symlink, and cannot become one now.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    }
    no_disk(path)?;
    options.open(path)
}

/// A result is never written to a block device: its name easily gets behind `--json` where a command takes a
/// disk as well (`--json /dev/sda`), and the data at its beginning would be lost.
fn no_disk(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| there.file_type().is_block_device()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a block device"));
    }
    Ok(())
}

/// The target of the symlinks at the end of a path; the path itself if there are none.
///
/// # Errors
/// `PermissionDenied`: one must not be followed; a loop of symlinks.
fn behind(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Some(link) = fs::symlink_metadata(&at).ok().filter(Metadata::is_symlink) else { return Ok(at) };
        trusted(&at, &link)?;
        let target = fs::read_link(&at)?;
        at = at.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// Whether a symlink is one that this process may follow.
fn trusted(path: &Path, link: &Metadata) -> io::Result<()> {
    if rustix::process::geteuid().is_root() && link.uid() != 0 {
        let why =
            format!("{} is a symlink of user {}, which root does not follow", path.display(), link.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// Writes to a FIFO as long as its reader takes the data.
fn pour(path: &Path, mut text: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut fifo = options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let mut moved = Instant::now();
    while !text.is_empty() {
        match fifo.write(text) {
            Ok(taken) => {
                text = &text[taken..];
                moved = Instant::now();
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && moved.elapsed() < READER_PATIENCE => {
                thread::sleep(READER_POLL);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// A new file. An existing one belongs to a killed process that had our process id.
fn made(beside: &Path) -> io::Result<File> {
    let _ = fs::remove_file(beside);
    OpenOptions::new().write(true).create_new(true).open(beside)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    name.into()
}

/// Gives the new file the mode of the old one and, if permitted, its owner.
fn resemble(file: &File, old: &Metadata) -> io::Result<()> {
    let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    file.set_permissions(old.permissions())
}

#[cfg(test)]
mod tests;
