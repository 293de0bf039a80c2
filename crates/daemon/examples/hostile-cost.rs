//! What a hostile user of the machine costs other users of the daemon.
//!
//! `hostile-cost PROGRAM DIR [ROUNDS] [SECONDS]`, as root: PROGRAM is `seekless`, DIR a folder with large
//! files on a disk with heads (`seekless vdisk`). Readers of one user ask the daemon for the files of DIR,
//! in order, as the shim does. A round has three arms of SECONDS each, in another order each time: nothing
//! else runs; threads that only burn processor time; the same number of threads of another user that send
//! nonsense: frames that are none, descriptors of folders, pipes, memory and `/proc`, connections by the
//! thousand, questions whose answers are never taken. The table shows the bytes that the readers got, as a
//! part of the quiet arm of the same round, and the processor time of the daemon.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal, Uid, getrlimit, kill_process, setrlimit};
use seekless_daemon::control;
use seekless_kernel::fdpass::{self, Address, TwinName};
use seekless_kernel::residency::cachestat;
use seekless_wire::{Call, FRAME_BYTES_MAX, Frame, Need};

const USAGE: &str = "hostile-cost PROGRAM DIR [ROUNDS] [SECONDS]";

/// Two users without rights.
const READER: u32 = 65_532;
const HOSTILE: u32 = 65_533;

const READERS: usize = 24;
const HOSTILES: usize = 2;

/// Bytes of a read.
const RANGE: u64 = 512 << 10;

/// Connections that a hostile thread holds open.
const HELD: usize = 2_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Arm {
    Quiet,
    Burning,
    Hostile,
}

/// A daemon of our own.
struct Daemon {
    child: Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Daemon {
    fn start(program: &Path) -> Daemon {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("daemon.sock");
        let child = Command::new(program)
            .args(["daemon", "--socket"])
            .arg(&socket)
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let until = Instant::now() + Duration::from_secs(60);
        while control::settings(&socket).is_err() {
            assert!(Instant::now() < until, "the daemon does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Daemon { child, socket, _folder: folder }
    }

    /// Seconds of processor time so far.
    fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().filter_map(|&i| fields.get(i)?.parse::<u64>().ok()).sum();
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// The way to the daemon, by a name that every user reaches.
fn connect(socket: &Path) -> Option<OwnedFd> {
    let path = CString::new(socket.as_os_str().as_bytes()).ok()?;
    fdpass::connect(Address::Twin(&TwinName::of(&path)?)).ok()
}

fn wait(socket: &OwnedFd, events: PollFlags) {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(socket, events)], Some(&second));
}

/// Asks as the shim does, and waits for the answer or for the end.
fn ask(socket: &Path, file: &File, offset: u64) {
    let Some(line) = connect(socket) else { return };
    let need = Need { call: Call::Pread, pid: 1, tid: 1, offset, length: RANGE };
    let Some(frame) = Frame::Need(need).encode() else { return };
    if fdpass::send(line.as_fd(), frame.as_bytes(), Some(file.as_fd())).is_err() {
        return;
    }
    let mut packet = [0; FRAME_BYTES_MAX];
    loop {
        match fdpass::receive(line.as_fd(), &mut packet) {
            Ok(got) if matches!(Frame::decode(&packet[..got.length]), Ok(Frame::Working)) => {}
            Err(rustix::io::Errno::AGAIN) => wait(&line, PollFlags::IN),
            _ => return,
        }
    }
}

fn become_user(uid: u32) {
    rustix::thread::set_thread_uid(Uid::from_raw(uid)).expect("only root becomes another user");
}

/// Waits until a file is out of memory: the daemon holds what it has read ahead for a while.
fn forget(file: &File, stop: &AtomicBool) {
    let size = file.metadata().map_or(0, |m| m.len());
    while !stop.load(Ordering::Relaxed) {
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        if cachestat(file.as_fd(), 0, size).is_ok_and(|stat| stat.cached * 4096 < size / 16) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Reads every file whose number is its own, again and again.
fn reader(socket: &Path, files: &[File], number: usize, stop: &AtomicBool, read: &AtomicU64) {
    become_user(READER);
    let mut buffer = vec![0; RANGE as usize];
    let own: Vec<&File> = files.iter().skip(number).step_by(READERS).collect();
    for file in own.iter().cycle() {
        forget(file, stop);
        for offset in (0..).step_by(RANGE as usize) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            ask(socket, file, offset);
            match file.read_at(&mut buffer, offset) {
                Ok(0) | Err(_) => break,
                Ok(n) => read.fetch_add(n as u64, Ordering::Relaxed),
            };
        }
    }
}

/// Everything at once, as fast as it goes.
fn hostile(socket: &Path, stop: &AtomicBool) {
    let open = |path: &str, flags| rustix::fs::open(path, flags, Mode::empty()).ok();
    let (end, _other_end) = rustix::pipe::pipe().expect("a pipe");
    let descriptors: Vec<OwnedFd> = [
        rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).ok(),
        Some(end),
        open("/", OFlags::RDONLY | OFlags::DIRECTORY),
        open("/proc/self/maps", OFlags::RDONLY),
        open("/proc/self/exe", OFlags::PATH),
        open("/dev/zero", OFlags::RDONLY),
    ]
    .into_iter()
    .flatten()
    .collect();
    become_user(HOSTILE);
    let encoded = |frame: Frame<'_>| frame.encode().expect("it has an encoding");
    let need = encoded(Frame::Need(Need { call: Call::Pread, pid: 1, tid: 1, offset: 0, length: RANGE }));
    let hello = encoded(Frame::Hello { pid: 1 });
    let status = encoded(Frame::StatusAsk);
    let mut held: Vec<OwnedFd> = Vec::new();
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        let Some(line) = connect(socket) else { continue };
        let descriptor = &descriptors[turn % descriptors.len()];
        let _ = match turn % 4 {
            0 => fdpass::send(line.as_fd(), &[turn as u8; 40], None),
            1 => fdpass::send(line.as_fd(), need.as_bytes(), Some(descriptor.as_fd())),
            2 => fdpass::send(line.as_fd(), need.as_bytes(), None),
            _ => fdpass::send(line.as_fd(), status.as_bytes(), None),
        };
        let at = turn % HELD;
        match held.get_mut(at) {
            Some(old) => {
                let _ = fdpass::send(old.as_fd(), hello.as_bytes(), None);
                *old = line;
            }
            None => held.push(line),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1);
    let program = PathBuf::from(args.next().expect(USAGE));
    let dir = PathBuf::from(args.next().expect(USAGE));
    let rounds: usize = args.next().map_or(9, |text| text.parse().expect(USAGE));
    let seconds: f64 = args.next().map_or(5.0, |text| text.parse().expect(USAGE));
    let most = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&dir).expect("the folder").flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let files: Vec<File> = paths.iter().filter(|path| path.is_file()).flat_map(File::open).collect();
    assert!(files.len() >= READERS, "{} has fewer than {READERS} files", dir.display());
    // The kernel tells only its owner which pages of a file are in memory.
    for file in &files {
        rustix::fs::fchown(file, Some(Uid::from_raw(READER)), None).expect("only root gives files away");
    }
    let daemon = Daemon::start(&program);
    let (stop, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut seen: Vec<(Arm, f64, f64)> = Vec::new();
    std::thread::scope(|scope| {
        for number in 0..READERS {
            let (socket, files, stop, read) = (&daemon.socket, &files, &stop, &read);
            scope.spawn(move || reader(socket, files, number, stop, read));
        }
        let mut arms = [Arm::Quiet, Arm::Burning, Arm::Hostile];
        std::thread::sleep(Duration::from_secs_f64(seconds));
        for round in 0..rounds {
            arms.rotate_left(1);
            if round % 3 == 0 {
                arms.swap(0, 2);
            }
            for arm in arms {
                let over = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    for _ in 0..HOSTILES {
                        match arm {
                            Arm::Quiet => {}
                            Arm::Burning => {
                                scope.spawn(|| {
                                    while !over.load(Ordering::Relaxed) {
                                        std::hint::spin_loop();
                                    }
                                });
                            }
                            Arm::Hostile => {
                                scope.spawn(|| hostile(&daemon.socket, &over));
                            }
                        }
                    }
                    let (before, cpu, since) = (read.load(Ordering::Relaxed), daemon.cpu(), Instant::now());
                    std::thread::sleep(Duration::from_secs_f64(seconds));
                    let (bytes, took) =
                        (read.load(Ordering::Relaxed) - before, since.elapsed().as_secs_f64());
                    seen.push((arm, bytes as f64 / took / 1e6, (daemon.cpu() - cpu) / took));
                    over.store(true, Ordering::Relaxed);
                });
                // What is left of it is over before the next arm.
                std::thread::sleep(Duration::from_secs(3));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let of = |wanted: Arm| seen.iter().filter(move |(arm, ..)| *arm == wanted);
    let quiet: Vec<f64> = of(Arm::Quiet).map(|(_, mb_s, _)| *mb_s).collect();
    println!("arm       MB/s   of quiet (median, least, most)   daemon's share of a core");
    for arm in [Arm::Quiet, Arm::Burning, Arm::Hostile] {
        let parts: Vec<f64> = of(arm).zip(&quiet).map(|((_, mb_s, _), quiet)| mb_s / quiet).collect();
        let (least, most) = parts
            .iter()
            .fold((f64::INFINITY, 0f64), |(least, most), &part| (least.min(part), most.max(part)));
        println!(
            "{:8} {:5.1}   {:.3} {least:.3} {most:.3}   {:.3}",
            format!("{arm:?}"),
            median(of(arm).map(|(_, mb_s, _)| *mb_s).collect()),
            median(parts),
            median(of(arm).map(|(.., cpu)| *cpu).collect())
        );
    }
    if let Ok((_, status)) = control::status(&daemon.socket) {
        let c = status.counters;
        println!(
            "refused {}, users muted {} times, connections unread {}, passed: bad {}, not a disk {}, full {}",
            c.frames_refused,
            c.users_muted,
            c.connections_muted,
            c.passed_bad_request,
            c.passed_not_a_disk,
            c.passed_full
        );
    }
}
