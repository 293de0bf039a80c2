//! `seekless-lab hostile`: everything that a user without rights may do to a daemon that all users share, at
//! once and as fast as possible.
//!
//! It sends invalid frames; requests with descriptors of folders, pipes, memory and `/proc`, and without any;
//! connections by the thousand that are held open; and questions whose answers are never read. None of it
//! reads a disk: how much of that a user may do is not decided by the daemon.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, Uid, getrlimit, setrlimit};
use seekless_base::{Exit, Fault};
use seekless_kernel::fdpass::{self, Address, TwinName};
use seekless_wire::{Call, Frame, Hello, Need};

/// A user without rights. No distribution uses this user id.
const USER: u32 = 65_533;

/// As many as a small server has processors. One leaves the other to the daemon; more wait for each other.
const THREADS: usize = 2;

/// Connections that a thread holds open. Half of them are within what one user may have, double more than it
/// has descriptors.
const HELD: usize = 2_000;

/// Bytes that it pretends to need.
const RANGE: u64 = 512 << 10;

/// Does harm to the daemon at `socket` until the process is ended; without one the threads only use processor
/// time.
pub(crate) fn run(socket: Option<&Path>) -> Result<Exit, Fault> {
    let most = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let path = socket.map(|socket| CString::new(socket.as_os_str().as_bytes()));
    let fault = |why: &dyn std::fmt::Display| Fault::failed(format!("lab hostile: {why}"));
    let path = path.transpose().map_err(|e| fault(&e))?;
    let twin = path.as_deref().map(|path| TwinName::of(path).ok_or_else(|| fault(&"the path is too long")));
    let twin = twin.transpose()?;
    let thread = || -> Result<(), Fault> {
        let descriptors = descriptors();
        rustix::thread::set_thread_uid(Uid::from_raw(USER)).map_err(|e| fault(&e))?;
        match (&path, &twin) {
            (Some(path), Some(twin)) => harm(door(path, twin), &descriptors),
            _ => loop {
                std::hint::spin_loop();
            },
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(thread)).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err(fault(&"a thread panicked"))))
    })?;
    Ok(Exit::Ok)
}

/// Of every kind but files on a disk.
fn descriptors() -> Vec<OwnedFd> {
    let open = |path: &str, flags| rustix::fs::open(path, flags, Mode::empty()).ok();
    [
        rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).ok(),
        rustix::pipe::pipe().ok().map(|(end, _)| end),
        open("/", OFlags::RDONLY | OFlags::DIRECTORY),
        open("/proc/self/maps", OFlags::RDONLY),
        open("/proc/self/exe", OFlags::PATH),
        open("/dev/zero", OFlags::RDONLY),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The folder of the socket may be closed to this user; its twin is for all who share the daemon's network,
/// and a container does not.
fn door<'a>(path: &'a CStr, twin: &'a TwinName) -> Address<'a> {
    match fdpass::connect(Address::Path(path)) {
        Err(Errno::ACCESS | Errno::NOENT) => Address::Twin(twin),
        _ => Address::Path(path),
    }
}

fn harm(address: Address<'_>, descriptors: &[OwnedFd]) -> ! {
    let need = Frame::Need(Need { call: Call::Pread, pid: 1, tid: 1, offset: 0, length: RANGE }).encode();
    let (hello, status) = (Frame::Hello(Hello { pid: 1, ring: false }).encode(), Frame::StatusAsk.encode());
    let [need, hello, status] =
        [&need, &hello, &status].map(|f| f.as_ref().map_or(&[][..], |f| f.as_bytes()));
    let mut held: Vec<OwnedFd> = Vec::new();
    for turn in 0usize.. {
        // The backlog is full, or there are no more descriptors.
        let Ok(line) = fdpass::connect(address) else { continue };
        let descriptor = &descriptors[turn / 4 % descriptors.len()];
        // A daemon that has closed the connection has done what it should.
        let _ = match turn % 4 {
            0 => fdpass::send(line.as_fd(), &[turn as u8; 40], None),
            1 => fdpass::send(line.as_fd(), need, Some(descriptor.as_fd())),
            2 => fdpass::send(line.as_fd(), need, None),
            _ => fdpass::send(line.as_fd(), status, None),
        };
        match held.get_mut(turn % HELD) {
            Some(old) => {
                let _ = fdpass::send(old.as_fd(), hello, None);
                *old = line;
            }
            None => held.push(line),
        }
    }
    unreachable!("numbers do not end")
}
