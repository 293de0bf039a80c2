//! What is known about files: whether they are inside the folders, and whether they need to be announced.
//!
//! An announced read costs its reader two context switches even if everything is in memory. So a file found
//! wholly in memory gets an ignore mark, and its reads cost nothing. Once a second the keeper asks the page
//! cache about those files; as soon as a page of one is gone, it is announced again. Reads of that page in
//! between go to the kernel, as without Seekless. Ignored files are known by handle: holding them open would
//! keep deleted files' blocks allocated and the mount busy.
//!
//! This is not done while the disk's engine gives back what readers have passed, or will do so soon, because
//! it then needs every hit. Unreported readers would count as gone, and what was fetched for them would be
//! given back before they read it.
//!
//! The hit at which a file is found wholly in memory is not reported to the engine either, unless the file
//! was missed lately or brought in before it was opened: there is nothing to fetch.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lru::LruCache;
use seekless_engine::{lock, recent};
use seekless_frontend::status::WatchReport;
use seekless_kernel::fanotify::Group;
use seekless_kernel::handle::FileHandle;
use seekless_kernel::residency::{cachestat, page_bytes, pages_of};
use seekless_policy::FileId;

use super::scope::Folders;
use crate::counts::Counts;

/// Maximum number of files; about 100 bytes each. Beyond it, those read longest ago are looked up again.
const KNOWN_MAX: usize = 16384;

/// Cache time of "inside", because files are moved.
const BELIEVED: Duration = Duration::from_secs(10);

/// Maximum number of files ignored because they are in memory; each is opened when it is checked. At half,
/// more reads of a large tree in memory are announced; at double, a missing page is noticed later.
const IGNORED_MAX: usize = 16384;

/// Minimum time between two counts of a file that was not wholly in memory.
const RECOUNT: Duration = Duration::from_millis(500);

/// How long a file is ignored: a file outside may be moved inside.
pub(crate) const IGNORED_FOR: Duration = Duration::from_secs(60);

/// Interval at which ignored files are checked; longer if there is much to count, so that it takes at most a
/// fiftieth of the keeper's time.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_SHARE: u32 = 50;

#[derive(Clone, Copy)]
struct WatchedFile {
    inside: bool,
    since: Instant,
    count_after: Instant,
    /// Whether all of it was in memory at the last count.
    resident: bool,
}

/// The table.
pub(crate) struct Files {
    ignore_resident: bool,
    known: Mutex<LruCache<FileId, WatchedFile>>,
    ignored: Mutex<HashMap<FileId, FileHandle>>,
}

impl Files {
    pub(crate) fn new(ignore_resident: bool) -> Files {
        Files { ignore_resident, known: Mutex::new(recent(KNOWN_MAX)), ignored: Mutex::default() }
    }

    /// Whether the file is inside the folders; looked up in `folders` if not known.
    pub(crate) fn inside(&self, id: FileId, file: BorrowedFd<'_>, folders: &Folders, now: Instant) -> bool {
        if let Some(known) = lock(&self.known).get(&id)
            && now.saturating_duration_since(known.since) < BELIEVED
        {
            return known.inside;
        }
        let inside = folders.contain(file, id.dev);
        let mut table = lock(&self.known);
        let (count_after, resident) = table.get(&id).map_or((now, false), |k| (k.count_after, k.resident));
        table.put(id, WatchedFile { inside, since: now, count_after, resident });
        inside
    }

    /// Called after a hit: whether all of the file is in memory. Then it is ignored, if there is room.
    /// Counted once in a while; `false` while every hit is needed.
    pub(crate) fn is_in_memory(
        &self,
        id: FileId,
        size: u64,
        file: BorrowedFd<'_>,
        now: Instant,
        (group, counts): (&Group, &Counts<WatchReport>),
        needs_every_hit: impl FnOnce() -> bool,
    ) -> bool {
        if !self.ignore_resident {
            return false;
        }
        match lock(&self.known).get_mut(&id) {
            Some(known) if now >= known.count_after => known.count_after = now + RECOUNT,
            known => return known.is_some_and(|known| known.resident),
        }
        let resident = !needs_every_hit() && wholly_resident(file, size);
        if let Some(known) = lock(&self.known).get_mut(&id) {
            known.resident = resident;
        }
        if resident && let Ok(handle) = FileHandle::of(file) {
            let mut ignored = lock(&self.ignored);
            if (ignored.len() < IGNORED_MAX || ignored.contains_key(&id)) && group.ignore(file).is_ok() {
                ignored.insert(id, handle);
                counts.count(|c| c.ignored += 1);
            }
        }
        resident
    }

    /// Announces ignored files again that are not wholly in memory, or on a disk whose engine needs every
    /// hit. Returns when to check next.
    pub(crate) fn look(
        &self,
        folders: &Folders,
        group: &Group,
        counts: &Counts<WatchReport>,
        needs_every_hit: impl Fn(FileId) -> bool,
    ) -> Duration {
        let began = Instant::now();
        let ignored: Vec<(FileId, FileHandle)> =
            lock(&self.ignored).iter().map(|(k, v)| (*k, v.clone())).collect();
        for (id, handle) in ignored {
            let Some(file) = folders.open(&handle, id.dev) else {
                // Removed, or its file system unmounted: the mark went with the inode.
                lock(&self.ignored).remove(&id);
                continue;
            };
            let size = rustix::fs::fstat(&file).map_or(0, |s| s.st_size as u64);
            if needs_every_hit(id) || !wholly_resident(file.as_fd(), size) {
                lock(&self.ignored).remove(&id);
                // Fails if the mark is gone already, with the inode.
                let _ = group.notice(file.as_fd());
                counts.count(|c| c.noticed += 1);
            }
        }
        LOOK_EVERY.max(began.elapsed() * LOOK_SHARE)
    }

    /// Announces all files again and looks everything up anew. Must be called every [`IGNORED_FOR`].
    pub(crate) fn refresh(&self, folders: &Folders, group: &Group) {
        lock(&self.ignored).clear();
        lock(&self.known).clear();
        folders.watch_again(group);
        let _ = group.notice_all();
        ignore_own_output(group);
    }

    pub(crate) fn ignored_now(&self) -> u64 {
        lock(&self.ignored).len() as u64
    }
}

/// Prevents announcements of our own output, a log under a watched folder.
pub(crate) fn ignore_own_output(group: &Group) {
    // Pipes and terminals raise no events; they take no marks, which does no harm.
    let _ = group.ignore(std::io::stdout().as_fd());
    let _ = group.ignore(std::io::stderr().as_fd());
}

/// Whether every page of the file is in memory. The last page is checked first, because a file being read
/// through for the first time does not have it, and counting a whole large file takes milliseconds.
fn wholly_resident(file: BorrowedFd<'_>, size: u64) -> bool {
    let resident =
        |offset: u64, len: u64| cachestat(file, offset, len).is_ok_and(|s| s.cached >= pages_of(offset, len));
    let last = size.saturating_sub(1) / page_bytes() * page_bytes();
    size > 0 && resident(last, size - last) && resident(0, size)
}
