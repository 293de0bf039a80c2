//! Takes a disk apart, from any state in which it was left.
//!
//! Each step checks that an object is ours before it changes it - a mount whose source is our loop device, a
//! loop device whose file is ours - so it can run twice, after a crash, or while another program has the
//! freed loop device.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use seekless_kernel::loopdev;
use seekless_kernel::loopdev::LoopDevice;
use seekless_kernel::topology::MountTable;

use crate::config::FsKind;
use crate::control::{ControlClient, ControlRequest};
use crate::fuse_file::FILE_NAME;
use crate::mkfs::find_program;
use crate::queue::LoopQueue;
use crate::state::{DiskDir, DiskRecord};
use crate::worker::source_name;

/// Maximum time of an orderly unmount before the worker under it is ended, which fails the remaining
/// requests.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(20);

/// Removes what `record` names: mount, loop device, FUSE mount, mount directory. `device` is the supervisor's
/// own handle of the loop device. `end_worker` is called once the worker is no longer needed, or when the
/// wait for it takes too long.
pub fn dismantle(
    dir: &DiskDir,
    record: &DiskRecord,
    device: Option<LoopDevice>,
    mut end_worker: impl FnMut(),
) {
    // Everything still to be written is written at once, and a hang ends.
    let hold = ControlClient::connect(dir)
        .and_then(|mut client| client.ask(&ControlRequest::Unthrottle).map(|_| client));
    if let Some(number) = record.loop_number {
        let node = PathBuf::from(format!("/dev/loop{number}"));
        // Held open, so that the unmount does not release the file before the queue's settings are restored.
        let open = File::open(&node);
        if let Some(target) = &record.config.mount {
            unmount_all(target, &node, &mut end_worker);
        }
        let bound = bound_to(number, &dir.fuse());
        if bound || loopdev::backing_file(number).is_none() {
            LoopQueue::undress(number, &record.queue_before);
        }
        if bound {
            let _ = loopdev::detach(number);
        }
        drop((open, device));
        // It is detached at its last close; that was ours, but another program may examine every new device
        // for a moment.
        let patience = Instant::now() + Duration::from_secs(2);
        while bound && bound_to(number, &dir.fuse()) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    drop(hold);
    let source = source_name(&record.config.name);
    unmount_all(&dir.fuse(), Path::new(&source), &mut end_worker);
    if let (FsKind::Tree, Some(target)) = (record.config.fs, &record.config.mount) {
        unmount_all(target, Path::new(&source), &mut end_worker);
    }
    end_worker();
    if let (true, Some(target)) = (record.mount_created, &record.config.mount) {
        let _ = std::fs::remove_dir(target);
    }
    dir.remove();
}

/// Whether the backing file of loop device `number` is ours.
fn bound_to(number: u32, fuse: &Path) -> bool {
    loopdev::backing_file(number).is_some_and(|file| {
        let file = file.to_string_lossy().into_owned();
        // After a lazy unmount the kernel names the file relative to its own root.
        let file = file.trim_end_matches(" (deleted)");
        Path::new(file) == fuse.join(FILE_NAME) || file == format!("/{FILE_NAME}")
    })
}

/// Unmounts `source` from `target` as often as it is mounted there. If it is in use, it leaves the tree of
/// directories at once and ends when its last user closes it.
fn unmount_all(target: &Path, source: &Path, end_worker: &mut impl FnMut()) {
    // Bounded: a mount that cannot be removed must not block this process for ever.
    for _ in 0..8 {
        let ours =
            MountTable::of_system().iter().any(|m| m.target == target && Path::new(&m.source) == source);
        if !ours {
            return;
        }
        let (tell, told) = mpsc::channel();
        let path = target.to_path_buf();
        let spawned = std::thread::Builder::new().name("unmount".into()).spawn(move || {
            let result = unmount(&path, UnmountFlags::NOFOLLOW)
                .or_else(|_| unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW));
            if result == Err(rustix::io::Errno::PERM) {
                unmount_as_user(&path);
            }
            let _ = tell.send(());
        });
        if spawned.is_err() {
            let _ = unmount(target, UnmountFlags::DETACH);
        } else if told.recv_timeout(UNMOUNT_PATIENCE).is_err() {
            end_worker();
            let _ = told.recv_timeout(UNMOUNT_PATIENCE);
        }
    }
}

/// Without root only the set-user-id helper may unmount.
fn unmount_as_user(target: &Path) {
    if let Some(program) = find_program("fusermount3").or_else(|| find_program("fusermount")) {
        let _ = std::process::Command::new(program).args(["-u", "-z", "-q", "--"]).arg(target).status();
    }
}
