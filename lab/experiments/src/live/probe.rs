//! Small readers that look at one thing a loaded server cannot show.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use seekless_base::{Exit, Fault};

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
/// Rounds of reads to tell what watching costs, and reads of one round.
const COST_ROUNDS: usize = 5;
const COST_READS: usize = 5000;

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

/// Files of a manifest longer than two ranges of `range` bytes: size and path.
pub(super) fn files(manifest: &Path, range: u64) -> Vec<(u64, String)> {
    let manifest = std::fs::read_to_string(manifest).unwrap_or_default();
    manifest
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| {
            l.split_once(' ').and_then(|(size, path)| Some((size.parse().ok()?, path.to_string())))
        })
        .filter(|(size, _)| *size > 2 * range)
        .collect()
}

/// Asks for a fixed list of ranges of the library, one after the other; how many failed.
pub(super) fn fixed_list(bench: &Bench<'_>, url: &str) -> Result<f64, Fault> {
    let port = url.trim_end_matches('/').rsplit_once(':').and_then(|(_, p)| p.parse().ok());
    let port = port.ok_or_else(|| Fault::failed(format!("no port in {url}")))?;
    let files = files(&bench.scratch.path().join("manifest.txt"), RANGE_BYTES);
    let mut failed = 0;
    for i in 0..LIST_RANGES {
        guard::check_interrupted()?;
        let (size, path) = files
            .get(i * files.len() / LIST_RANGES)
            .ok_or_else(|| Fault::failed("the library has no file large enough to probe"))?;
        // Another place in each file, the same in every run.
        let first = (size - RANGE_BYTES) / 97 * (i as u64 % 97);
        if get(port, &format!("/{path}"), Some((first, RANGE_BYTES))).is_err() {
            failed += 1;
        }
    }
    Ok(f64::from(failed))
}

/// Kills `seekless watch` under readers it holds. Returns the longest wait after a kill, in ms.
///
/// Supervisor and worker are stopped, so that neither answers nor the supervisor kills the worker, and a
/// reader is held. Its bytes are brought into the cache by a descriptor opened before the watch began, whose
/// reads are not announced. Then the supervisor is killed: what the reader still waits is the wait `watch`
/// adds by dying.
pub(super) fn after_a_watch_is_killed(bench: &Bench<'_>, arm: &Arm, dir: &Path) -> Result<f64, Fault> {
    let disk = &bench.disks[0];
    let mut waited: f64 = 0.0;
    let file = any_file(&disk.mount)?;
    for trial in 0..KILLS {
        forget(&file)?;
        let unannounced = File::open(&file).map_err(|e| fault(&file, &e))?;
        let place = bench.scratch.dir(&format!("held{trial}"))?;
        let mut watch = Daemon::watch(arm, &place, &disk.mount, &[])?;
        watch.status()?;
        let pids = watch.pids();
        pids.iter().for_each(|pid| signal(*pid, Signal::STOP));
        let offset = (trial * 2 * WAIT_BYTES) as u64;
        let mut reader = reader(&file, dir, offset, WAIT_BYTES, 1, &format!("held{trial}"), false)?;
        guard::wait_for(Duration::from_secs(5), || Ok((reader.last_line() == "ready").then_some(())))?;
        guard::sleep(Duration::from_millis(300))?;
        let mut bytes = vec![0; WAIT_BYTES];
        unannounced.read_exact_at(&mut bytes, offset).map_err(|e| fault(&file, &e))?;
        let held = reader.ended().is_none();
        let killed = now_ns();
        watch.kill()?;
        if !held {
            return Err(Fault::failed("a reader was not held by a stopped watch: is the folder watched?"));
        }
        reader.wait(Duration::from_secs(30))?;
        let done: u64 = word(&reader, 0)?;
        waited = waited.max(done.saturating_sub(killed) as f64 / 1e6);
    }
    Ok(waited)
}

/// Median microseconds a 4 KiB read of cached bytes takes more while `watch` hears of it, and more while
/// `watch` runs and the file is wholly in memory. Arms in turn, [`COST_ROUNDS`] rounds.
pub(super) fn cost_of_watching(bench: &Bench<'_>, arm: &Arm, dir: &Path) -> Result<(f64, f64), Fault> {
    let disk = &bench.disks[0];
    let file = any_file(&disk.mount)?;
    // All of it into memory.
    std::fs::File::open(&file)
        .and_then(|mut f| io::copy(&mut f, &mut io::sink()))
        .map_err(|e| fault(&file, &e))?;
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..COST_ROUNDS {
        for (i, options) in
            [None, Some(["--announce-resident"].as_slice()), Some([].as_slice())].into_iter().enumerate()
        {
            let place = bench.scratch.dir(&format!("cost{round}-{i}"))?;
            let watch = options.map(|o| Daemon::watch(arm, &place, &disk.mount, o)).transpose()?;
            if let Some(watch) = &watch {
                watch.status()?;
            }
            let name = format!("cost{round}-{i}");
            let mut reader = reader(&file, dir, 0, 4096, COST_READS, &name, false)?;
            reader.wait(Duration::from_secs(60))?;
            took[i].push(word(&reader, 2)? as f64 / 1e3);
        }
    }
    let [without, announced, resident] = took.map(|mut t| {
        t.sort_by(f64::total_cmp);
        t[t.len() / 2]
    });
    Ok((announced - without, resident - without))
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Kills daemons under readers that wait for them. Returns the longest wait after a kill and the longest call
/// on cached bytes with no daemon there, in ms.
pub(super) fn after_a_kill(bench: &Bench<'_>, arm: &Arm, dir: &Path) -> Result<(f64, f64), Fault> {
    let disk = &bench.disks[0];
    let mut waited: f64 = 0.0;
    let file = any_file(&disk.mount)?;
    for trial in 0..KILLS {
        forget(&file)?;
        let mut stopped = Daemon::start(arm, dir, !bench.ground.block, None)?;
        // Bound is not yet listening.
        stopped.status()?;
        stopped.process.signal(Signal::STOP);
        let offset = (trial * 2 * WAIT_BYTES) as u64;
        let mut reader = reader(&file, dir, offset, WAIT_BYTES, 1, &format!("waiter{trial}"), true)?;
        // The reader says "ready", then reads, and so waits for a daemon that does not move.
        guard::wait_for(Duration::from_secs(5), || Ok((reader.last_line() == "ready").then_some(())))?;
        guard::sleep(Duration::from_millis(300))?;
        let mut bytes = vec![0; WAIT_BYTES];
        File::open(&file).and_then(|f| f.read_exact_at(&mut bytes, offset)).map_err(|e| fault(&file, &e))?;
        if reader.ended().is_some() {
            // A stopped process does not hear that it should end.
            stopped.process.kill();
            return Err(Fault::failed("a reader did not wait for a stopped daemon: is the shim loaded?"));
        }
        let killed = now_ns();
        stopped.process.kill();
        reader.wait(Duration::from_secs(30))?;
        let done: u64 = word(&reader, 0)?;
        waited = waited.max(done.saturating_sub(killed) as f64 / 1e6);
    }
    let mut cached = reader(&file, dir, 0, 4096, CACHED_READS, "cached", true)?;
    cached.wait(Duration::from_secs(60))?;
    let longest: u64 = word(&cached, 1)?;
    Ok((waited, longest as f64 / 1e6))
}

fn fault(path: &Path, error: &dyn std::fmt::Display) -> Fault {
    Fault::failed(format!("{}: {error}", path.display()))
}

fn word(reader: &Process, index: usize) -> Result<u64, Fault> {
    let line = reader.last_line();
    line.split(' ')
        .nth(index)
        .and_then(|w| w.parse().ok())
        .ok_or_else(|| Fault::failed(format!("the probe said: {line}")))
}

/// Starts `seekless-lab probe`, under the shim if asked.
fn reader(
    file: &Path,
    dir: &Path,
    offset: u64,
    bytes: usize,
    times: usize,
    name: &str,
    shim: bool,
) -> Result<Process, Fault> {
    let mut command = tools::command(&["probe"])?;
    command.arg(file).args([offset.to_string(), bytes.to_string(), times.to_string()]);
    if shim {
        command.envs(daemon::environment(dir)?);
    }
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

/// `seekless-lab probe`: reads a range of a file `times` times with pread; prints when the last was done on
/// the monotonic clock, how long the longest took and how long the median one, all in ns.
pub(crate) fn read(file: &Path, offset: u64, bytes: usize, times: usize) -> Result<Exit, Fault> {
    let opened = File::open(file).map_err(|e| fault(file, &e))?;
    let mut buffer = vec![0; bytes];
    println!("ready");
    io::stdout().flush().map_err(|e| fault(file, &e))?;
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        opened.read_exact_at(&mut buffer, offset).map_err(|e| fault(file, &e))?;
        took.push(start.elapsed().as_nanos());
    }
    let done = now_ns();
    took.sort_unstable();
    let (longest, median) = (took.last().copied().unwrap_or(0), took.get(times / 2).copied().unwrap_or(0));
    println!("{done} {longest} {median}");
    Ok(Exit::Ok)
}
