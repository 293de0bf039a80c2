//! The process that serves a disk's bytes: FUSE on one side, the drive model on the other.
//!
//! It does nothing that could wait for itself: attaching, making and mounting what lies above its file is the
//! supervisor's work. So it can be killed at any point; the kernel then ends the FUSE connection, everything
//! that waits for it fails, and the supervisor clears up. Should the supervisor die first, the pipe between
//! them breaks and the worker starts a cleaner.

use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;

use fuser::{Config, Filesystem, MountOption, Session, SessionACL};
use seekless_base::{Exit, Fault};

use crate::config::{DiskConfig, FsKind};
use crate::control;
use crate::engine::DriveEngine;
use crate::fuse_file::DiskFile;
use crate::fuse_tree::Tree;
use crate::manifest::Manifest;
use crate::state::{DiskDir, cannot};
use crate::store::Store;
use crate::trace::Trace;

/// What the worker writes to its supervisor once it serves.
pub const READY: &str = "ready";
/// What the supervisor writes before it lets go of the worker.
pub const BYE: u8 = b'.';

/// How FUSE mounts of disk `name` are named in the mount table.
pub fn source_name(name: &str) -> String {
    format!("seekless-{name}")
}

/// Serves until told to go.
///
/// # Errors
/// Whatever keeps the disk from coming up; also written to the supervisor, as JSON.
pub fn run(config: &DiskConfig) -> Result<Exit, Fault> {
    // One thread's panic is the disk's end: half a disk would leave callers waiting forever.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        std::process::exit(101);
    }));
    forward_signals()?;
    let dir = DiskDir::new(&config.name)?;
    let (drives, layout) = config.resolve()?;
    let trace = match &config.trace {
        Some(path) => Trace::create(path).map_err(|e| cannot("write trace", path, &e))?,
        None => Trace::off(),
    };
    let engine = Arc::new(DriveEngine::new(drives, layout, config.speedup, trace));
    let store = if config.fs == FsKind::Tree {
        let path = config.manifest.as_deref().unwrap_or(std::path::Path::new(""));
        let tree = Tree::new(Arc::clone(&engine), &Manifest::read(path)?, config.size.0, config.seed)?;
        let mount = config.mount.clone().unwrap_or_default();
        serve(tree, &mount, config, true)?;
        None
    } else {
        let store = Store::new(config.size.0, &config.backing).map_err(|e| {
            let Fault { exit, message } = cannot("make an unnamed sparse file in", &config.backing, &e);
            Fault::new(exit, message + "; choose another --with backing")
        })?;
        let store = Arc::new(store);
        serve(DiskFile::new(Arc::clone(&engine), Arc::clone(&store)), &dir.fuse(), config, false)?;
        Some(store)
    };
    let service = Arc::clone(&engine);
    std::thread::Builder::new()
        .name("service".into())
        .spawn(move || service.serve())
        .map_err(|e| Fault::failed(format!("cannot start a thread: {e}")))?;
    control::listen(&dir.socket(), Arc::clone(&engine), store)
        .map_err(|e| cannot("make", &dir.socket(), &e))?;
    let mut out = std::io::stdout();
    if writeln!(out, "{READY}").and_then(|()| out.flush()).is_ok() {
        wait_for_the_end(&dir);
    }
    engine.stop();
    Ok(Exit::Ok)
}

/// Mounts `fs` and answers the kernel on a thread of its own; the connection's end is the process's.
fn serve<F: Filesystem>(
    fs: F,
    target: &std::path::Path,
    config: &DiskConfig,
    shared: bool,
) -> Result<(), Fault> {
    let mut options = Config::default();
    options.mount_options = vec![MountOption::FSName(source_name(&config.name)), MountOption::NoAtime];
    if shared {
        options.mount_options.extend([MountOption::RO, MountOption::NoSuid, MountOption::NoDev]);
        // Servers drop to a user of their own, which has to see the tree. Without root only /etc/fuse.conf
        // may allow it.
        let allowed = rustix::process::geteuid().is_root() || user_allow_other();
        options.acl = if allowed { SessionACL::All } else { SessionACL::Owner };
    }
    let session = Session::new(fs, target, &options).map_err(|e| {
        let exit = match e.kind() {
            std::io::ErrorKind::PermissionDenied => Exit::Permission,
            std::io::ErrorKind::NotFound => Exit::Missing,
            _ => Exit::Failed,
        };
        let how = if rustix::process::geteuid().is_root() {
            "is /dev/fuse there and allowed?"
        } else {
            "without root this needs fusermount3 (package fuse3) and a readable, writable /dev/fuse"
        };
        let why = e.to_string();
        let why = why.trim();
        Fault::new(exit, format!("cannot mount FUSE at {}: {why}; {how}", target.display()))
    })?;
    std::thread::Builder::new()
        .name("fuse".into())
        .spawn(move || {
            // A request arrives at the drive when the thread that reads it runs; fuser starts it, and it
            // inherits this.
            let _ = seekless_kernel::sched::run_first();
            let _ = session.run();
            // Unmounted under us, or the connection was aborted.
            std::process::exit(Exit::Failed as i32);
        })
        .map_err(|e| Fault::failed(format!("cannot start a thread: {e}")))?;
    Ok(())
}

fn user_allow_other() -> bool {
    std::fs::read_to_string("/etc/fuse.conf").is_ok_and(|t| t.lines().any(|l| l.trim() == "user_allow_other"))
}

/// A polite signal to the worker is one to the supervisor, which knows how to take the disk down in order.
fn forward_signals() -> Result<(), Fault> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|e| Fault::failed(format!("cannot listen for signals: {e}")))?;
    let parent = rustix::process::getppid();
    std::thread::spawn(move || {
        let mut signals = signals;
        for _ in signals.forever() {
            // A new parent means that the supervisor is gone, and the other thread has seen it.
            if let Some(parent) = parent.filter(|p| rustix::process::getppid() == Some(*p)) {
                let _ = rustix::process::kill_process(parent, rustix::process::Signal::TERM);
            }
        }
    });
    Ok(())
}

/// Waits on the pipe from the supervisor. A word of farewell ends the worker; a pipe that breaks without one
/// means that the supervisor was killed, and that clearing up is left to us.
fn wait_for_the_end(dir: &DiskDir) {
    let mut byte = [0];
    if matches!(std::io::stdin().read(&mut byte), Ok(1)) && byte[0] == BYE {
        return;
    }
    // In a process of its own, as unmounting waits for this one to serve its last writes.
    let cleaner = std::env::current_exe()
        .and_then(|exe| Command::new(exe).args(["vdisk", "clean", "--name", dir.name()]).status());
    if let Err(e) = cleaner {
        seekless_output::eprintln!(
            "cannot start a cleaner: {e}; `seekless-lab vdisk down --name {}` will do it",
            dir.name()
        );
    }
}
