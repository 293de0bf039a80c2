//! Reopens files for which another process has passed a descriptor, so that the engine can read them after
//! the process has closed its own.
//!
//! Opening may block, on the server of the file or on a program that scans files. So a thread does it, one
//! for each user of a door, while the first piece is read through the passed descriptor. A file is opened
//! once, and kept open until its streams have ended.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use crossbeam_channel::{Sender, TrySendError, bounded};
use seekless_kernel::prefetch::Source;
use seekless_policy::FileId;

use crate::devices::SharedDevices;
use crate::door::Message;
use crate::lock;

/// Maximum number of files waiting to be opened. Further ones are read through the descriptors that come with
/// their misses, and nothing is read ahead. At half, a server that starts with as many new files at once is
/// slower in its first seconds; at double, a user whose files hang occupies that many more descriptors.
const FILES_MAX: usize = 256;

struct ToOpen {
    disk: usize,
    file: FileId,
    source: Arc<Source>,
}

/// A thread that opens files, started with the first file.
pub struct Opener {
    devices: SharedDevices,
    /// Files waiting to be opened, or being opened.
    files: Arc<Mutex<HashSet<FileId>>>,
    thread: OnceLock<Option<Sender<ToOpen>>>,
}

impl Opener {
    pub(crate) fn new(devices: SharedDevices) -> Opener {
        Opener { devices, files: Arc::default(), thread: OnceLock::new() }
    }

    /// Opens a file for a disk's thread, unless it is open or about to be. Does not block.
    pub(crate) fn open(&self, disk: usize, file: FileId, source: Arc<Source>) {
        if lock(&self.devices).has_open(file) || !lock(&self.files).insert(file) {
            return;
        }
        let thread = self.thread.get_or_init(|| self.start());
        let sent = thread.as_ref().map(|to| to.try_send(ToOpen { disk, file, source }));
        if !matches!(sent, Some(Ok(()))) {
            lock(&self.files).remove(&file);
        }
        if let Some(Err(TrySendError::Disconnected(_))) = sent {
            tracing::error!("the thread that opens files has ended");
        }
    }

    fn start(&self) -> Option<Sender<ToOpen>> {
        let (to, todo) = bounded::<ToOpen>(FILES_MAX);
        let (devices, files) = (self.devices.clone(), self.files.clone());
        let run = move || {
            for ToOpen { disk, file, source } in todo {
                let opened = match Source::reopen(source.as_fd()) {
                    Ok(again) => Some(again.map_or(source, Arc::new)),
                    Err(error) => {
                        tracing::debug!(%error, "a file cannot be opened again: nothing is read ahead of its readers");
                        None
                    }
                };
                // If the thread is behind, the next miss brings the file again.
                if let Some(source) = opened {
                    let _ = lock(&devices).send(disk, Message::Opened { file, source });
                }
                lock(&files).remove(&file);
            }
        };
        match thread::Builder::new().name("opens files".into()).spawn(run) {
            Ok(_) => Some(to),
            Err(error) => {
                tracing::warn!(%error, "cannot start a thread that opens files; nothing is read ahead");
                None
            }
        }
    }
}
