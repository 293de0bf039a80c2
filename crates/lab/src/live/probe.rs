//! Small readers that look at one thing a loaded server cannot show.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use seekless_units::{Exit, Fault};

use super::Bench;
use super::daemon::{self, Daemon};
use crate::guard;
use crate::process::Process;
use crate::scenario::Arm;
use crate::tools;

/// Ranges asked for on a broken disk.
const LIST_RANGES: usize = 150;
/// Bytes of each.
const RANGE_BYTES: u64 = 512 << 10;
/// Times a daemon is killed under a waiting reader.
const KILLS: usize = 3;
/// Bytes the waiting reader asks for.
const WAIT_BYTES: usize = 256 << 10;
/// Reads of cached bytes timed with no daemon there.
const CACHED_READS: usize = 2000;

/// `GET` of a path, or of a range of it; an error when the answer is not whole or no success.
pub(crate) fn get(port: u16, path: &str, range: Option<(u64, u64)>) -> io::Result<Vec<u8>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let range = range
        .map_or(String::new(), |(first, length)| format!("Range: bytes={first}-{}\r\n", first + length - 1));
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{range}Connection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let short = || io::Error::new(io::ErrorKind::UnexpectedEof, "the answer is not whole");
    let head = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(short)? + 4;
    let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
    let status = text.split(' ').nth(1).unwrap_or_default().to_string();
    if status != "200" && status != "206" {
        return Err(io::Error::other(format!("status {status}")));
    }
    let length = text.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    if length.is_some_and(|l| l != answer.len() - head) {
        return Err(short());
    }
    Ok(answer.split_off(head))
}

/// Asks for a fixed list of ranges of the library, one after the other; how many failed.
pub(super) fn fixed_list(bench: &Bench<'_>, url: &str) -> Result<f64, Fault> {
    let port = url.trim_end_matches('/').rsplit_once(':').and_then(|(_, p)| p.parse().ok());
    let port = port.ok_or_else(|| Fault::new(Exit::Failed, format!("no port in {url}")))?;
    let manifest = std::fs::read_to_string(bench.scratch.path().join("manifest.txt")).unwrap_or_default();
    let files: Vec<(u64, &str)> = manifest
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.split_once(' ').and_then(|(size, path)| Some((size.parse().ok()?, path))))
        .filter(|(size, _)| *size > 2 * RANGE_BYTES)
        .collect();
    let mut failed = 0;
    for i in 0..LIST_RANGES {
        guard::check_interrupted()?;
        let (size, path) = *files
            .get(i * files.len() / LIST_RANGES)
            .ok_or_else(|| Fault::new(Exit::Failed, "the library has no file large enough to probe"))?;
        // Another place in each file, the same in every run.
        let first = (size - RANGE_BYTES) / 97 * (i as u64 % 97);
        if get(port, &format!("/{path}"), Some((first, RANGE_BYTES))).is_err() {
            failed += 1;
        }
    }
    Ok(f64::from(failed))
}

/// Kills daemons under readers that wait for them. Returns the longest wait after a kill and the longest call on
/// cached bytes with no daemon there, in ms.
pub(super) fn after_a_kill(bench: &Bench<'_>, arm: &Arm, dir: &Path) -> Result<(f64, f64), Fault> {
    let disk = &bench.disks[0];
    let mut waited: f64 = 0.0;
    let file = any_file(&disk.mount)?;
    for trial in 0..KILLS {
        forget(&file)?;
        let mut stopped = Daemon::start(arm, dir, !bench.ground.block, None)?;
        stopped.process.signal(Signal::STOP);
        let offset = (trial * 2 * WAIT_BYTES) as u64;
        let mut reader = reader(&file, dir, offset, WAIT_BYTES, 1, &format!("waiter{trial}"))?;
        // The reader says "ready", then reads, and so waits for a daemon that does not move.
        guard::wait_for(Duration::from_secs(5), || Ok((reader.last_line() == "ready").then_some(())))?;
        guard::sleep(Duration::from_millis(300))?;
        let mut bytes = vec![0; WAIT_BYTES];
        File::open(&file).and_then(|f| f.read_exact_at(&mut bytes, offset)).map_err(|e| fault(&file, &e))?;
        if reader.ended().is_some() {
            return Err(Fault::new(
                Exit::Failed,
                "a reader did not wait for a stopped daemon: is the shim loaded?",
            ));
        }
        let killed = now_ns();
        stopped.process.kill();
        reader.wait(Duration::from_secs(30))?;
        let done: u64 = word(&reader, 0)?;
        waited = waited.max(done.saturating_sub(killed) as f64 / 1e6);
    }
    let mut cached = reader(&file, dir, 0, 4096, CACHED_READS, "cached")?;
    cached.wait(Duration::from_secs(60))?;
    let longest: u64 = word(&cached, 1)?;
    Ok((waited, longest as f64 / 1e6))
}

fn fault(path: &Path, error: &dyn std::fmt::Display) -> Fault {
    Fault::new(Exit::Failed, format!("{}: {error}", path.display()))
}

fn word(reader: &Process, index: usize) -> Result<u64, Fault> {
    let line = reader.last_line();
    line.split(' ')
        .nth(index)
        .and_then(|w| w.parse().ok())
        .ok_or_else(|| Fault::new(Exit::Failed, format!("the probe said: {line}")))
}

/// Starts `seekless lab probe` under the shim.
fn reader(
    file: &Path,
    dir: &Path,
    offset: u64,
    bytes: usize,
    times: usize,
    name: &str,
) -> Result<Process, Fault> {
    let mut command =
        tools::command(&["lab", "probe", "--offset", &offset.to_string(), "--bytes", &bytes.to_string()])?;
    command.args(["--times", &times.to_string(), "--file"]).arg(file).envs(daemon::environment(dir)?);
    Process::spawn("the probe", command, &dir.join(format!("{name}.log")), None)
}

/// The first file below `dir` that is large enough.
fn any_file(dir: &Path) -> Result<PathBuf, Fault> {
    for entry in std::fs::read_dir(dir).map_err(|e| fault(dir, &e))?.flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "lost+found" {
            if let Ok(found) = any_file(&path) {
                return Ok(found);
            }
        } else if entry.metadata().is_ok_and(|m| m.is_file() && m.len() > (2 * KILLS * WAIT_BYTES) as u64) {
            return Ok(path);
        }
    }
    Err(fault(dir, &"no file large enough to probe"))
}

fn forget(file: &Path) -> Result<(), Fault> {
    let opened = File::open(file).map_err(|e| fault(file, &e))?;
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).map_err(|e| fault(file, &e))
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// `seekless lab probe`: reads a range of a file `times` times with pread; prints when the last was done on the
/// monotonic clock and how long the longest took, both in ns.
pub(crate) fn read(file: &Path, offset: u64, bytes: usize, times: usize) -> Result<Exit, Fault> {
    let opened = File::open(file).map_err(|e| fault(file, &e))?;
    let mut buffer = vec![0; bytes];
    println!("ready");
    io::stdout().flush().map_err(|e| fault(file, &e))?;
    let mut longest = 0;
    for _ in 0..times {
        let start = Instant::now();
        opened.read_exact_at(&mut buffer, offset).map_err(|e| fault(file, &e))?;
        longest = longest.max(start.elapsed().as_nanos());
    }
    println!("{} {longest}", now_ns());
    Ok(Exit::Ok)
}
