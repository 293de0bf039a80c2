//! How long `seekless daemon status` takes: warm, and when nothing of the program is in memory.
//!
//! `status-cost PROGRAM DIR [TIMES]`: PROGRAM is `seekless`, DIR a folder on the disk to start it from. A
//! daemon runs from PROGRAM itself. A copy of it in DIR, which nothing else has mapped, asks it TIMES (20)
//! times with its pages in memory, and as often after the program's own pages were evicted. The libraries and
//! the rest of the machine stay as they are. How much is read then depends on `read_ahead_kb` of the disk.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};
use seekless_kernel::residency::{cachestat, page_bytes};

const USAGE: &str = "status-cost PROGRAM DIR [TIMES]";

/// Maximum time for the daemon to listen.
const START_MAX: Duration = Duration::from_secs(10);

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Bytes of the program in memory.
fn resident(program: &Path) -> u64 {
    let file = File::open(program).expect("the copy is there");
    let bytes = file.metadata().expect("it has a length").len();
    cachestat(file.as_fd(), 0, bytes).expect("the kernel has cachestat (Linux 6.5)").cached * page_bytes()
}

/// Milliseconds of one run, and the bytes that it brought into memory.
fn once(program: &Path, socket: &Path, cold: bool) -> (f64, u64) {
    if cold {
        let file = File::open(program).expect("the copy is there");
        fadvise(&file, 0, None, Advice::DontNeed).expect("the kernel takes advice");
        assert_eq!(resident(program), 0, "something else has the copy mapped");
    }
    let before = resident(program);
    let began = Instant::now();
    let status = Command::new(program)
        .args(["daemon", "status", "--socket"])
        .arg(socket)
        .stdout(Stdio::null())
        .status()
        .expect("the copy starts");
    let took = began.elapsed().as_secs_f64() * 1e3;
    assert!(status.success(), "{status}");
    (took, resident(program) - before)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let program = PathBuf::from(args.next().expect(USAGE));
    let dir = PathBuf::from(args.next().expect(USAGE));
    let times: usize = args.next().map_or(20, |text| text.parse().expect(USAGE));
    assert!(times > 0, "{USAGE}");
    let folder = tempfile::tempdir_in(dir).expect("the folder can be written to");
    let copy = folder.path().join("seekless");
    fs::copy(&program, &copy).expect("the program can be read");
    // Pages not yet written to the disk stay in memory despite the advice.
    File::open(&copy).expect("the copy is there").sync_all().expect("it reaches the disk");
    let socket = folder.path().join("daemon.sock");
    let mut command = Command::new(&program);
    command.args(["daemon", "--socket"]).arg(&socket).stderr(Stdio::null());
    let daemon = Daemon(command.spawn().expect("the program starts"));
    let began = Instant::now();
    while !socket.exists() {
        assert!(began.elapsed() < START_MAX, "the daemon does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    once(&copy, &socket, false);
    println!("{} bytes", fs::metadata(&copy).expect("the copy is there").len());
    println!("       median   least    most  ms   bytes read");
    for (name, cold) in [("warm", false), ("cold", true)] {
        let mut runs: Vec<(f64, u64)> = (0..times).map(|_| once(&copy, &socket, cold)).collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (least, middle, most) = (runs[0].0, runs[times / 2], runs[times - 1].0);
        println!("{name} {:9.1} {least:7.1} {most:7.1}     {:12}", middle.0, middle.1);
    }
    drop(daemon);
}
