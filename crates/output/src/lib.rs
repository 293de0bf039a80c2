//! Giving out what commands make: text and JSON, to standard output or to a file, and a progress bar meanwhile.
//!
//! A file appears whole or not at all: it is written beside and renamed. What stands at its place and is no regular file
//! (a device, a FIFO, a socket, a symlink; so `/dev/null`, `/dev/stdout` and `>(jq)`) is written straight to and never
//! replaced. A block device is never written to. A reader that went away (`| head`) is no error.
//!
//! Root follows no symlink that another user has made, wherever it stands: in a folder that others may write to, it could
//! lead to any file of the system. (`fs.protected_symlinks` does as much in folders like `/tmp`, where it is on.)
//!
//! Text for people is escaped here, once ([`lines`]).
//!
//! Must not know: what is given out; who asked for it.

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
use seekless_base::{Exit, Fault};
use serde::Serialize;

/// How long [`offer`] waits for a reader that takes nothing.
const READER_PATIENCE: Duration = Duration::from_secs(1);
/// How often it looks whether one takes something again.
const READER_POLL: Duration = Duration::from_millis(10);
/// How much of a file is looked at to tell whether it is JSON: spaces before it are few.
const HEAD_BYTES: u64 = 64;
/// As many symlinks after one another as the kernel follows.
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

/// Writes data to standard output as it is; it may be longer than one would hold in memory.
///
/// # Errors
/// Those of [`print()`].
pub fn stream(content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    let mut out = BufWriter::new(io::stdout().lock());
    heard(content(&mut out).and_then(|()| out.flush()))
        .map_err(|e| Fault::new(Exit::Failed, format!("standard output cannot be written: {e}")))
}

/// Writes a file that appears whole or not at all.
///
/// # Errors
/// `Failed`: the file or its folder cannot be written; nothing new is left there then.
pub fn whole(path: &Path, text: impl AsRef<[u8]>) -> Result<(), Fault> {
    replace(path, text).map_err(|e| unwritten(path, &e))
}

/// Fails now where [`write()`] would fail later, for results that take minutes: before the work, not after
/// it.
///
/// # Errors
/// Those of [`whole`].
pub fn writable<'a>(results: impl IntoIterator<Item = &'a Path>) -> Result<(), Fault> {
    for path in results {
        // What is there and is no regular file may lose bytes by being opened: a FIFO, a pipe.
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

/// Refuses to put JSON in the place of a file that holds something else: behind `--json` a list or a log that
/// is to be read slips in easily (`order --json LIST`), and would be lost. A symlink is believed: `/dev/stdout`
/// may lead to a file of any kind.
///
/// # Errors
/// `Usage`: a regular file is there, and neither empty nor JSON.
pub fn replaceable_by_json(path: &Path) -> Result<(), Fault> {
    if !fs::symlink_metadata(path).is_ok_and(|there| there.is_file()) {
        return Ok(());
    }
    let mut head = Vec::new();
    // What cannot be read is met when it is written.
    let _ = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    match head.trim_ascii_start().first() {
        None | Some(b'{' | b'[') => Ok(()),
        Some(_) => Err(Fault::new(
            Exit::Usage,
            format!(
                "cannot write {}: it exists and holds no JSON; choose another file, or remove it",
                path.display()
            ),
        )),
    }
}

fn unwritten(path: &Path, e: &io::Error) -> Fault {
    Fault::new(Exit::Failed, format!("cannot write {}: {e}; choose another file", path.display()))
}

/// [`whole`], for those who say of an error what it means to them.
///
/// # Errors
/// As the system gave it.
pub fn replace(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    fill(path, |file| file.write_all(text.as_ref()))
}

/// [`replace`], for what must outlast a power failure: on the disk before it has its name.
///
/// # Errors
/// As the system gave it.
pub fn replace_synced(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    fill(path, |file| {
        file.write_all(text.as_ref())?;
        match file.sync_all() {
            // There is nothing to sync behind a pipe or a device like `/dev/null`.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    })
}

/// Writes text where a command line says: `-` is standard output, anything else a file as by [`whole`].
///
/// # Errors
/// Those of [`print()`] and [`whole`].
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), Fault> {
    if is_stdout(path) { stream(|out| out.write_all(text.as_ref())) } else { whole(path, text) }
}

/// [`write()`], for those who must not wait: where a FIFO is named, its reader has to be there and to take what it is given. What
/// one leaves for a second is lost to it. Whether it was all taken.
///
/// # Errors
/// Those of [`write()`].
pub fn offer(path: &Path, text: impl AsRef<[u8]>) -> Result<bool, Fault> {
    if is_stdout(path) || !fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo()) {
        return write(path, text).map(|()| true);
    }
    match follow(path).and_then(|_| pour(path, text.as_ref())) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => Ok(false),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::BrokenPipe) => Ok(false),
        Err(e) => Err(unwritten(path, &e)),
    }
}

/// Makes a file anew, or empties the one that is there, for those who write to it bit by bit.
///
/// # Errors
/// As the system gave it; `PermissionDenied`: it is a symlink that root does not follow.
pub fn create(path: &Path) -> io::Result<File> {
    straight_to(path, true)
}

/// Where a file lies that is to be replaced by renaming another to its name: the path with the symlinks at its end followed, so
/// that they stay. What the last of them names need not be there.
///
/// # Errors
/// As the system gave it; symlinks that lead round; a symlink like `/dev/stdout` to a file that has lost its name; one that root does
/// not follow.
pub fn place(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        let link = fs::symlink_metadata(&at).ok().filter(Metadata::is_symlink);
        if let Some(link) = &link {
            trusted(&at, link)?;
        } else {
            let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
            return match (fs::metadata(path), fs::metadata(&at)) {
                (Ok(meant), Ok(found)) if !same(&meant, &found) => Err(io::ErrorKind::NotFound.into()),
                (Ok(_), Err(e)) => Err(e),
                _ => Ok(at),
            };
        }
        let target = fs::read_link(&at)?;
        at = at.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// A value as JSON for people to read, with a newline at its end.
///
/// # Errors
/// `Failed`: the value has no form in JSON.
pub fn pretty(value: &impl Serialize) -> Result<String, Fault> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Fault::new(Exit::Failed, format!("the result cannot be written as JSON: {e}")))?;
    Ok(json_escaped(text) + "\n")
}

/// Gives out a value as JSON where `--json` says; see [`write()`].
///
/// # Errors
/// Those of [`pretty`] and [`write()`].
pub fn json(path: &Path, value: &impl Serialize) -> Result<(), Fault> {
    write(path, pretty(value)?)
}

/// Gives out a result: as JSON where that was asked for, and as text for people unless the JSON went to standard output.
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

/// Whether a command line means standard output by this path.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// A bar on standard error if that is a terminal and there is something to count; else nothing.
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

/// What was written, or wanted by nobody any more.
fn heard(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Lets `content` fill what `path` names: a new file that then takes its name, or what is there and is no regular file.
fn fill(path: &Path, content: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let there = fs::symlink_metadata(path).ok();
    if let Some(special) = there.as_ref().filter(|m| !m.is_file()) {
        // Only a symlink may point at what is yet to be made. In a folder like /tmp, Linux refuses to *create* another
        // user's FIFO, root included (fs.protected_fifos).
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

/// Opens what stands there to write to it; with `make`, also what does not.
fn straight_to(path: &Path, make: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(true).create(make);
    if !follow(path)? {
        // It is no symlink, and does not become one now.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    }
    no_disk(path)?;
    options.open(path)
}

/// A block device is no place for a result: its name slips in easily where a command takes a disk as well
/// (`--json /dev/sda`), and what lies at its beginning would be lost.
fn no_disk(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| there.file_type().is_block_device()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a block device"));
    }
    Ok(())
}

/// Whether a path is a symlink, and may be followed to its end.
///
/// # Errors
/// `PermissionDenied`: it may not.
fn follow(path: &Path) -> io::Result<bool> {
    let mut at = path.to_owned();
    for followed in 0..LINKS_MAX {
        let Some(link) = fs::symlink_metadata(&at).ok().filter(Metadata::is_symlink) else {
            return Ok(followed > 0);
        };
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

/// Gives a FIFO's reader what it takes.
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

/// A new file; one that is there is of a process that had our number and was killed.
fn made(beside: &Path) -> io::Result<File> {
    let _ = fs::remove_file(beside);
    OpenOptions::new().write(true).create_new(true).open(beside)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    name.into()
}

/// Gives the new file the mode of the old one and, where we may, its owner.
fn resemble(file: &File, old: &Metadata) -> io::Result<()> {
    let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    file.set_permissions(old.permissions())
}

#[cfg(test)]
mod tests;
