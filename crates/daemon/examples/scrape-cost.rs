//! What scraping a daemon once a second costs.
//!
//! `scrape-cost PROGRAM DIR [ROUNDS] [SECONDS] [STREAMS]`: PROGRAM is `seekless`, DIR a folder that can be
//! written to. A daemon follows STREAMS streams (10,000), each of a file without content. A round has two
//! halves of SECONDS (30) each. In one, no request is made. In the other, the metrics are requested once a
//! second as Prometheus text, each time on a new connection. The table shows the daemon's share of a core in
//! both, the difference, and its anonymous memory (`RssAnon`) at the beginning and at the end.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use seekless_frontend::control;
use seekless_kernel::fdpass::{self, Address};
use seekless_wire::{Call, FRAME_BYTES_MAX, Frame, Need};

const USAGE: &str = "scrape-cost PROGRAM DIR [ROUNDS] [SECONDS] [STREAMS]";

/// Bytes of a read, and of a file.
const READ: u64 = 64 << 10;
const FILE_BYTES: u64 = 16 << 20;

/// Interval between two reads of each stream.
const STREAM_READS_EVERY: Duration = Duration::from_secs(20);

struct Daemon {
    child: Child,
    socket: PathBuf,
    metrics: String,
    _folder: tempfile::TempDir,
}

impl Daemon {
    fn start(program: &str) -> Daemon {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("daemon.sock");
        let mut child = Command::new(program)
            .args(["daemon", "--include-ssd", "--prefetch", "64KiB", "--metrics", "127.0.0.1:0", "--socket"])
            .arg(&socket)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut metrics = String::new();
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some((_, at)) = line.split_once("metrics at http://") {
                metrics = at.trim_end_matches("/metrics").to_string();
            }
            if line.contains("listening at") {
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        Daemon { child, socket, metrics, _folder: folder }
    }

    /// Seconds of processor time so far.
    fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().filter_map(|&i| fields.get(i)?.parse::<u64>().ok()).sum();
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    /// Anonymous memory in KiB.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
        line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
    }

    /// Length of an answer in bytes.
    fn scrape(&self) -> usize {
        let mut stream = TcpStream::connect(&self.metrics).expect("it listens");
        let host = &self.metrics;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answer.len()
    }

    /// Makes one request, and waits for its end.
    fn ask(&self, file: &Path, offset: u64) {
        let file = File::open(file).expect("it is there");
        let path = CString::new(self.socket.as_os_str().as_bytes()).expect("a path has no zero");
        let line = fdpass::connect(Address::Path(&path)).expect("it listens");
        let need = Frame::Need(Need { call: Call::Pread, pid: 1, tid: 1, offset, length: READ });
        let frame = need.encode().expect("it has an encoding");
        fdpass::send(line.as_fd(), frame.as_bytes(), Some(file.as_fd())).expect("it reads");
        let mut packet = [0; FRAME_BYTES_MAX];
        while let Err(rustix::io::Errno::AGAIN) = fdpass::receive(line.as_fd(), &mut packet) {
            let fds = &mut [rustix::event::PollFd::new(&line, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(fds, None);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1);
    let program = args.next().expect(USAGE);
    let dir = PathBuf::from(args.next().expect(USAGE));
    let mut number = |otherwise: u64| args.next().map_or(otherwise, |text| text.parse().expect(USAGE));
    let (rounds, seconds, streams) = (number(5), number(30), number(10_000));
    let folder = tempfile::tempdir_in(dir).expect("the folder can be written to");
    let path = |i: u64| folder.path().join(i.to_string());
    for i in 0..streams {
        let file = File::create(path(i)).expect("the folder can be written to");
        file.set_len(FILE_BYTES).expect("a file may have no content");
    }
    let daemon = Daemon::start(&program);
    for nth in 0..2 {
        (0..streams).for_each(|i| daemon.ask(&path(i), nth * READ));
    }
    let (status, _) = control::status(&daemon.socket).expect("it answers");
    let bytes = daemon.scrape();
    let before = daemon.memory();
    let (mut quiet, mut scraped) = (Vec::new(), Vec::new());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Each stream reads on before it is forgotten.
        scope.spawn(|| {
            for nth in 2.. {
                for i in 0..streams {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    daemon.ask(&path(i), nth % (FILE_BYTES / READ) * READ);
                    std::thread::sleep(STREAM_READS_EVERY / u32::try_from(streams).unwrap_or(u32::MAX));
                }
            }
        });
        for round in 0..rounds {
            for half in 0..2 {
                let scrapes = (round + half) % 2 == 1;
                let (since, cpu) = (Instant::now(), daemon.cpu());
                for second in 1..=seconds {
                    if scrapes {
                        daemon.scrape();
                    }
                    std::thread::sleep(Duration::from_secs(second).saturating_sub(since.elapsed()));
                }
                let share = (daemon.cpu() - cpu) / since.elapsed().as_secs_f64();
                if scrapes { &mut scraped } else { &mut quiet }.push(share);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    let streams = control::status(&daemon.socket)
        .map_or(0, |(_, report)| report.disks.iter().map(|d| d.streams_now).sum::<u64>());
    let (quiet, scraped) = (median(quiet), median(scraped));
    println!(
        "{streams} streams; a scrape of {bytes} bytes each second: {:.3} % of a core beside {:.3} % without; memory of no file {before} KiB, \
         then {} KiB; status {} bytes",
        100.0 * (scraped - quiet),
        100.0 * quiet,
        daemon.memory(),
        status.len()
    );
}
