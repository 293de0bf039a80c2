//! A daemon in this process, and a client that sends single frames.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Advice;
use rustix::io::Errno;
use seekless_daemon::{Daemon, DaemonSettings, StatusReport};
use seekless_kernel::fdpass::{self, Address, TwinName};
use seekless_kernel::residency::cachestat;
use seekless_wire::{Answer, Call, FRAME_BYTES_MAX, Frame, Need, Refuse};

/// Timeout of every wait in these tests: not a measure of speed, only the difference between slow and never.
const NEVER: Duration = Duration::from_secs(30);

pub struct Bench {
    pub daemon: Daemon,
    pub socket: PathBuf,
    folder: tempfile::TempDir,
}

impl Bench {
    /// A daemon that serves every file on any device, with these changes to its settings.
    pub fn start(change: impl FnOnce(&mut DaemonSettings)) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("d.sock");
        let mut settings = DaemonSettings::new(socket.clone());
        settings.engine.include_ssd = true;
        change(&mut settings);
        Bench { daemon: Daemon::start(settings).unwrap(), socket, folder }
    }

    pub fn client(&self) -> Client {
        let path = CString::new(self.socket.as_os_str().as_bytes()).unwrap();
        Client(fdpass::connect(Address::Path(&path)).unwrap())
    }

    pub fn client_of_twin(&self) -> Client {
        let path = CString::new(self.socket.as_os_str().as_bytes()).unwrap();
        Client(fdpass::connect(Address::Twin(&TwinName::of(&path).unwrap())).unwrap())
    }

    pub fn status(&self) -> StatusReport {
        self.daemon.status().expect("the daemon tells its status")
    }

    /// Waits until the status is as wanted.
    pub fn until(&self, what: &str, wish: impl Fn(&StatusReport) -> bool) -> StatusReport {
        let until = Instant::now() + NEVER;
        loop {
            let status = self.status();
            if wish(&status) {
                return status;
            }
            assert!(Instant::now() < until, "never came: {what}; {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub struct Client(pub OwnedFd);

/// A received frame.
#[derive(Debug, PartialEq)]
pub enum Reply {
    Answer(Answer),
    Refuse(Refuse),
    Other(&'static str),
    Closed,
}

impl Client {
    pub fn send_bytes(&self, bytes: &[u8], fd: Option<BorrowedFd<'_>>) {
        fdpass::send(self.0.as_fd(), bytes, fd).unwrap();
    }

    pub fn send(&self, frame: Frame<'_>, fd: Option<BorrowedFd<'_>>) {
        self.send_bytes(frame.encode().unwrap().as_bytes(), fd);
    }

    pub fn need(&self, file: impl AsFd, call: Call, offset: u64, length: u64) {
        self.send(Frame::Need(Need { call, pid: 1, tid: 1, offset, length }), Some(file.as_fd()));
    }

    /// The next frame that is not `Working`, and the number of those before it.
    pub fn hear_counting(&self) -> (Reply, usize) {
        let until = Instant::now() + NEVER;
        let mut working = 0;
        let mut packet = [0u8; FRAME_BYTES_MAX];
        loop {
            match fdpass::receive(self.0.as_fd(), &mut packet) {
                Ok(r) if r.length == 0 => return (Reply::Closed, working),
                Ok(r) => match Frame::decode(&packet[..r.length]).unwrap() {
                    Frame::Working => working += 1,
                    Frame::Answer(answer) => return (Reply::Answer(answer), working),
                    Frame::Refuse(refuse) => return (Reply::Refuse(refuse), working),
                    other => return (Reply::Other(other.name()), working),
                },
                Err(Errno::AGAIN) => {
                    let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
                    poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)).unwrap();
                }
                Err(Errno::CONNRESET | Errno::PIPE) => return (Reply::Closed, working),
                Err(error) => panic!("{error}"),
            }
            assert!(Instant::now() < until, "the daemon does not answer");
        }
    }

    pub fn hear(&self) -> Reply {
        self.hear_counting().0
    }

    pub fn answer(&self) -> Answer {
        match self.hear() {
            Reply::Answer(answer) => answer,
            other => panic!("{other:?} instead of an answer"),
        }
    }
}

/// A file that is not in the page cache, on the build folder's file system; `None`, with a message, if pages
/// cannot be evicted.
pub fn cold_file(bytes: usize) -> Option<File> {
    let dir = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let mut file = tempfile::tempfile_in(dir).unwrap();
    file.write_all(&vec![0x5a; bytes]).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    match cachestat(file.as_fd(), 0, bytes as u64) {
        Ok(stat) if stat.cached == 0 => Some(file),
        other => {
            println!("skipped: pages cannot be evicted or counted here ({other:?})");
            None
        }
    }
}

/// Bytes of the range that have been brought into memory, in whole pages. Pages evicted since by a pager of
/// idle memory (DAMON) count: the kernel remembers them, but not those that the tests drop themselves.
pub fn cached(file: &File, offset: u64, len: u64) -> u64 {
    let stat = cachestat(file.as_fd(), offset, len).unwrap();
    (stat.cached + stat.evicted) * 4096
}
