//! `seekless-lab vdisk down`.

use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use seekless_base::{Exit, Fault};
use serde_json::json;

use super::JsonArgs;
use crate::process::Ours;
use crate::state::{DiskDir, DiskRecord, Lock};
use crate::supervisor::clear_stale;

/// Longer than a supervisor takes in the worst case: two unmounts that each wait twice.
const PATIENCE: Duration = Duration::from_secs(100);

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["name", "all"]))]
pub(super) struct DownArgs {
    /// Name of the disk
    #[arg(long)]
    name: Option<String>,
    /// Every disk
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    json: JsonArgs,
}

pub(super) fn run(args: &DownArgs) -> Result<Exit, Fault> {
    let disks = match &args.name {
        Some(name) => {
            let dir = DiskDir::new(name)?;
            if !dir.path().exists() && !dir.running() {
                return Err(Fault::missing(format!(
                    "there is no disk `{name}`; `seekless-lab vdisk list` shows those there are"
                )));
            }
            vec![dir]
        }
        None => DiskDir::all()?,
    };
    let mut gone = Vec::new();
    for dir in &disks {
        take_down(dir)?;
        gone.push(dir.name());
    }
    args.json
        .show(&json!({ "down": gone }), || gone.iter().map(|name| format!("{name}: down\n")).collect())?;
    Ok(Exit::Ok)
}

fn take_down(dir: &DiskDir) -> Result<(), Fault> {
    if let Some(lock) = dir.try_lock()? {
        // No supervisor: it died, and so did (or does) its worker.
        clear_stale(dir);
        drop(lock);
        return Ok(());
    }
    let patience = Instant::now() + PATIENCE;
    let mut told = None;
    while Instant::now() < patience {
        // The holder of the lock wrote the record, or is about to.
        if let (None, Some(record)) = (&told, dir.record()) {
            told = Some(tell(dir, &record)?);
        }
        std::thread::sleep(Duration::from_millis(5));
        if let Some(lock) = dir.try_lock()? {
            finish(dir, lock)?;
            // Its last steps are quick. They are waited for, so that a count of processes finds none.
            if let Some(Some(process)) = told {
                let mut ended = [PollFd::new(&process, PollFlags::IN)];
                let _ = poll(&mut ended, Some(&Timespec { tv_sec: 2, tv_nsec: 0 }));
            }
            return Ok(());
        }
    }
    Err(Fault::failed(format!(
        "disk `{}` did not go down in {} s; is a program using it stuck?",
        dir.name(),
        PATIENCE.as_secs()
    )))
}

/// Asks the supervisor to go. A handle of it comes back unless it is gone already.
fn tell(dir: &DiskDir, record: &DiskRecord) -> Result<Option<Ours>, Fault> {
    let cannot = |e: Errno| {
        Fault::permission(format!("cannot end disk `{}` (process {}): {e}", dir.name(), record.pid))
    };
    let Some(process) =
        Ours::find(record.pid, record.started, &["supervise", "up"], dir.name()).map_err(cannot)?
    else {
        return match std::path::Path::new(&format!("/proc/{}", record.pid)).exists() {
            false => Ok(None),
            true => Err(Fault::failed(format!(
                "the record of disk `{}` names process {}, which is not its supervisor: it is left alone; see which process \
                     holds {} (fuser -v) and end it",
                dir.name(),
                record.pid,
                dir.path().with_file_name(format!("{}.lock", dir.name())).display(),
            ))),
        };
    };
    match process.signal(Signal::TERM) {
        Ok(()) => Ok(Some(process)),
        Err(Errno::SRCH) => Ok(None),
        Err(e) => Err(cannot(e)),
    }
}

/// The supervisor is gone. If it was killed meanwhile, its work is done here.
fn finish(dir: &DiskDir, lock: Lock) -> Result<(), Fault> {
    if dir.path().exists() {
        clear_stale(dir);
    }
    drop(lock);
    Ok(())
}

/// Clears away a disk whose supervisor was killed, while its worker still serves.
pub(super) fn clean(args: &DownArgs) -> Result<Exit, Fault> {
    let Some(name) = &args.name else { return Ok(Exit::Ok) };
    let dir = DiskDir::new(name)?;
    // Not free: someone else is at it already.
    if let Some(lock) = dir.try_lock()? {
        finish(&dir, lock)?;
    }
    Ok(Exit::Ok)
}
