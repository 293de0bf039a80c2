//! One file: the process that parses it, and what is heard of that process.

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Advice, fadvise, fstat};
use rustix::io::Errno;
use seekless_base::{Exit, Fault};
use serde::{Deserialize, Serialize};

use crate::bitrates::confine::{CPU_S_MAX, NOBODY, confine};
use crate::bitrates::header::{begins, bitrate};
use crate::bitrates::manifest::{self, Part};

/// Maximum bytes read of a file: its first boxes, the movie's header, an index of segments.
const LOOK_MAX: u64 = 512 << 10;

/// Maximum size of a manifest. A longer one is not a video's.
const MANIFEST_MAX: u64 = 256 << 10;

/// Bytes that identify the type of a file.
const HEAD_BYTES: usize = 1024;

/// Maximum time of a file's process, with the disk's.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum bytes read of its output: the addresses of a manifest, and numbers.
const SAID_MAX: u64 = 4 << 20;

/// How long a killed process is waited for. One whose disk hangs ends when the disk answers.
const END_MAX: Duration = Duration::from_secs(1);

/// The result of parsing a header.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Parsed {
    /// Bytes a second at which it is played.
    Rate(u64),
    /// It is a manifest, and says this of other files.
    Manifest(Vec<Part>),
    /// No bitrate.
    Nothing,
    /// Something that cannot be.
    Refused(String),
}

/// Whether a file begins as one that may say something. All that is done here is to compare bytes.
pub(crate) fn is_media(file: &File) -> io::Result<bool> {
    let mut head = [0; HEAD_BYTES];
    let len = rustix::io::pread(file, &mut head, 0)?;
    Ok(begins(&head[..len]) || manifest::kind(&head[..len]).is_some())
}

/// Has a file parsed. It is refused where that takes too long, too much memory or does not end well.
///
/// # Errors
/// No process can be had, or none without rights.
pub(crate) fn look(file: File) -> Result<Parsed, Fault> {
    let program = env::current_exe().map_err(|e| unstarted(&e))?;
    let mut command = Command::new(program);
    command.args(["bitrates", "--one", "."]).env_clear().env("SEEKLESS_CONFIG", "").current_dir("/");
    let mut child = command
        .stdin(Stdio::from(file))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| unstarted(&e))?;
    let said = read_output(&mut child, Instant::now() + TIME_MAX);
    let ended = end(&mut child);
    match (said, ended) {
        (Output::Late, _) => Ok(refused(format!("it was not read within {} s", TIME_MAX.as_secs()))),
        (Output::TooMuch, _) => Ok(refused("too much was found in it".into())),
        (Output::All(_), Some(status)) if status.code() == Some(Exit::Permission as i32) => {
            let how = "run it as a user that may read the files, with `sudo -u`";
            Err(Fault::permission(format!(
                "cannot become user {NOBODY} here, and root reads no headers: {how}"
            )))
        }
        (Output::All(text), Some(status)) if status.success() => {
            Ok(serde_json::from_slice(&text)
                .unwrap_or_else(|_| refused("what was found is no answer".into())))
        }
        (Output::All(_), Some(status)) => Ok(refused(ill(status))),
        (Output::All(_), None) => Ok(refused("its process does not end".into())),
    }
}

fn refused(why: String) -> Parsed {
    Parsed::Refused(why)
}

fn unstarted(error: &io::Error) -> Fault {
    Fault::failed(format!("cannot start a process that reads a header: {error}; see `ulimit -u`"))
}

/// Why a process ended that found nothing.
fn ill(status: ExitStatus) -> String {
    use rustix::process::Signal;
    match status.signal().and_then(Signal::from_named_raw) {
        Some(Signal::XCPU | Signal::KILL) => format!("it takes more than {CPU_S_MAX} s of processor time"),
        Some(Signal::ABORT | Signal::SEGV | Signal::BUS) => "it takes more memory than a header may".into(),
        Some(signal) => format!("its process was ended by signal {}", signal.as_raw()),
        None => "it cannot be read".into(),
    }
}

enum Output {
    All(Vec<u8>),
    TooMuch,
    Late,
}

/// What a process writes, until it has written all of it or the time is up.
fn read_output(child: &mut Child, until: Instant) -> Output {
    let Some(mut out) = child.stdout.take() else { return Output::All(Vec::new()) };
    let mut said = Vec::new();
    let mut some = [0; 1 << 14];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let wait = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
        match poll(&mut [PollFd::new(&out.as_fd(), PollFlags::IN)], Some(&wait)) {
            Ok(0) => return Output::Late,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return Output::All(said),
        }
        match out.read(&mut some) {
            Ok(0) | Err(_) => return Output::All(said),
            Ok(len) => said.extend_from_slice(&some[..len]),
        }
        if said.len() as u64 > SAID_MAX {
            return Output::TooMuch;
        }
    }
}

/// Ends a process that has said all it is to say; how it ended.
fn end(child: &mut Child) -> Option<ExitStatus> {
    let mut patience = Instant::now() + END_MAX;
    let mut killed = false;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= patience {
            if killed {
                return None;
            }
            let _ = child.kill();
            (killed, patience) = (true, Instant::now() + END_MAX);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The process of one file: parses standard input and writes what it says to standard output.
///
/// # Errors
/// `Permission`: it could not give up its rights.
pub(crate) fn one() -> Result<Exit, Fault> {
    confine().map_err(|e| Fault::permission(format!("rights remain: {e}")))?;
    let input = io::stdin();
    let said = parse(input.as_fd());
    let text = serde_json::to_string(&said).unwrap_or_default();
    seekless_output::print(text).map(|()| Exit::Ok)
}

/// What a file says.
pub(crate) fn parse(file: impl AsFd) -> Parsed {
    let Ok(about) = fstat(&file) else { return Parsed::Nothing };
    let size = u64::try_from(about.st_size).unwrap_or(0);
    // Boxes are spread over the file: what lies around them is not wanted.
    let _ = fadvise(&file, 0, None, Advice::Random);
    let (mut left, mut over) = (LOOK_MAX, false);
    let mut bytes = |offset: u64, len: u64| {
        let len = len.min(size.checked_sub(offset)?);
        over |= len > left;
        if len == 0 || len > left {
            return None;
        }
        left -= len;
        let mut bytes = vec![0; len as usize];
        let got = rustix::io::pread(&file, &mut bytes, offset).ok()?;
        bytes.truncate(got);
        Some(bytes)
    };
    let head = bytes(0, HEAD_BYTES as u64).unwrap_or_default();
    if let Some(kind) = manifest::kind(&head) {
        if size > MANIFEST_MAX {
            return refused(format!("a manifest of {size} bytes is longer than {MANIFEST_MAX}"));
        }
        let text = bytes(0, size).unwrap_or_default();
        return manifest::read(&text, kind).map_or_else(refused, Parsed::Manifest);
    }
    match bitrate(size, &mut bytes) {
        Ok(Some(rate)) => Parsed::Rate(rate),
        Ok(None) if over => refused(format!("its header has more than {LOOK_MAX} bytes")),
        Ok(None) => Parsed::Nothing,
        Err(lie) => refused(lie.to_string()),
    }
}
