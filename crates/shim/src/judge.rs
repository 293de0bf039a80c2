//! What to do about a call, in the order of the cost of the questions. Is the shim off, or this thread
//! already inside it? Is it a regular file with bytes at that place, on a device that is not left alone? Is
//! there a daemon, and in which mode? Are the bytes resident? Anything expensive comes after that.
//!
//! So a call on resident bytes costs two or three system calls of a tenth of a microsecond each and one
//! `cachestat`.

use std::os::fd::{AsFd, BorrowedFd};

use libc::{c_int, off_t};
use rustix::fs::{FileType, OFlags, SeekFrom, Stat};
use seekless_base::wants::{Want, passes};
use seekless_kernel::residency::{self, Residency};
use seekless_kernel::ring::Record;
use seekless_wire::{Call, Mode, Tracked};

use crate::advice::ADVICE;
use crate::marks::{self, FileId, MARKS};
use crate::memory::{Known, MEMORY};
use crate::{ask, config, filter, host, mapping, own_read, reports};

/// The file offset at which a call starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// At the descriptor's own position.
    Cursor,
    /// At this offset.
    At(off_t),
    /// At the offset that this points to; at the descriptor's own position if it is null.
    Pointer(*const off_t),
}

/// The number of bytes that a call wants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    /// This many.
    Bytes(u64),
    /// The total of this array of vectors.
    Vectors(*const libc::iovec, c_int),
}

/// What is left to do once the original call has returned. Contains nothing with a destructor, because a
/// cancelled thread unwinds past it.
#[derive(Clone, Copy)]
pub(crate) enum After {
    Nothing,
    /// Mode `track`: report the duration.
    Track(Tracked),
    /// Report the read, so that the daemon can read ahead.
    Report(Record),
}

/// The number of bytes that a call moved, from its result.
pub(crate) trait Moved {
    /// 0 for an error, or for a call that moves none.
    fn bytes(&self) -> u64;
}

impl Moved for libc::ssize_t {
    fn bytes(&self) -> u64 {
        u64::try_from(*self).unwrap_or(0)
    }
}

impl Moved for c_int {
    fn bytes(&self) -> u64 {
        0
    }
}

impl Moved for *mut libc::c_void {
    fn bytes(&self) -> u64 {
        0
    }
}

impl After {
    /// Must be called when the original call has returned.
    #[inline]
    pub(crate) fn returned(self, moved: u64) {
        match self {
            After::Nothing => {}
            After::Track(report) => {
                let duration_ns = host::now_ns().saturating_sub(report.duration_ns);
                inside((), || ask::tracked(Tracked { duration_ns, ..report }));
            }
            // Only stores into memory: nothing that could change errno or re-enter the shim.
            After::Report(record) if moved > 0 => reports::read(&Record { len: moved, ..record }),
            After::Report(_) => {}
        }
    }
}

/// Must be called before the original call. When it returns, the call should be made.
#[inline]
pub(crate) fn before(call: Call, fd: c_int, place: Place, length: Length) -> After {
    if fd < 0 || !config::enabled() {
        return After::Nothing;
    }
    inside(After::Nothing, || {
        // SAFETY: the number is only ever passed to system calls, each of which checks whether it is open;
        // nothing here closes it or keeps it longer than this call, made on behalf of its owner.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        judge(call, fd, place, length).unwrap_or(After::Nothing)
    })
}

/// Runs `work`, which may make system calls, if this thread is not inside the shim already and the shim is
/// not off. Keeps the host's `errno`.
#[inline]
fn inside<T: Copy>(otherwise: T, work: impl FnOnce() -> T) -> T {
    host::with_errno_kept(|| host::unless_inside(otherwise, || filter::unless_off(otherwise, work)))
}

/// As [`before`], for a call about memory: `madvise` gives an address, and the file behind it must be found.
pub(crate) fn before_mapped(call: Call, address: usize, length: usize) {
    if length == 0 || !config::enabled() {
        return;
    }
    inside((), || {
        let now_ms = host::coarse_ms();
        let known = MEMORY.settings(now_ms);
        // Finding the file is expensive: not while no daemon would get the advice.
        if MEMORY.pausing(now_ms) || (known.fresh && matches!(known.mode, Mode::Off | Mode::Track)) {
            return;
        }
        if let Some(mapped) = mapping::file_at(address, length) {
            let (at, length) = (Place::At(mapped.offset as off_t), Length::Bytes(mapped.length));
            judge(call, mapped.file.as_fd(), at, length);
        }
    })
}

/// Stores the host's access pattern for a file. Kept without a daemon too, because one may come.
pub(crate) fn says(fd: c_int, random: bool) {
    if fd < 0 || !config::enabled() || (!random && !ADVICE.any()) {
        return;
    }
    inside((), || {
        // SAFETY: as in `before`.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        if let Some(stat) = regular_file(fd) {
            ADVICE.set(FileId { device: stat.st_dev, inode: stat.st_ino }, random);
        }
    })
}

/// As [`says`], for a mapping. The kernel keeps the pattern with the mapping; most programs that set it for a
/// mapping read the whole file that way.
pub(crate) fn says_of_mapping(address: usize, length: usize, random: bool) {
    if length == 0 || !config::enabled() || (!random && !ADVICE.any()) {
        return;
    }
    inside((), || {
        let mapped = mapping::file_at(address, length);
        if let Some(stat) = mapped.and_then(|mapped| regular_file(mapped.file.as_fd())) {
            ADVICE.set(FileId { device: stat.st_dev, inode: stat.st_ino }, random);
        }
    })
}

/// `None`: nothing to do, before or after the call.
fn judge(call: Call, fd: BorrowedFd<'_>, place: Place, length: Length) -> Option<After> {
    let now_ms = host::coarse_ms();
    let known = MEMORY.settings(now_ms);
    if known.fresh && known.mode == Mode::Off {
        return None;
    }
    let stat = regular_file(fd)?;
    if MEMORY.left_alone(stat.st_dev, now_ms) {
        return None;
    }
    let known = current(known, now_ms)?;
    let want = want(call, fd, &stat, place, length)?;
    let file = FileId { device: stat.st_dev, inode: stat.st_ino };

    if known.mode == Mode::Track {
        let (offset, length) = (want.offset(), want.len());
        let resident = residency::residency(fd, offset, length, stat.st_uid) == Residency::Resident;
        let (pid, tid) = host::pid_tid();
        let (device, inode, start_ns) = (file.device, file.inode, host::now_ns());
        // Until the call returns, the field holds its start time.
        let duration_ns = start_ns;
        return Some(After::Track(Tracked {
            call,
            resident,
            pid,
            tid,
            device,
            inode,
            offset,
            length,
            duration_ns,
        }));
    }
    provide(call, fd, &stat, known, file, want);
    // Checked after the miss, which may just have brought the ring.
    let reports =
        reports::wanted() && !call.is_advice() && matches!(known.mode, Mode::Serialise | Mode::Both);
    reports.then_some(After::Report(Record {
        dev: stat.st_dev,
        ino: stat.st_ino,
        offset: want.offset(),
        len: 0,
        file_size: stat.st_size as u64,
    }))
}

/// Ensures that the bytes are resident before the call is made, as the mode requires.
fn provide(call: Call, fd: BorrowedFd<'_>, stat: &Stat, known: Known, file: FileId, want: Want) {
    // Marks first: if there are any, the kernel has refused to report residency before, and asking it again
    // costs as much as the rest.
    let ttl_ms = match known.mode {
        Mode::Prefetch => marks::TTL_ASKED_MS,
        _ => marks::TTL_MS,
    };
    if MARKS.all(file, want, ttl_ms, host::coarse_ms()) {
        return;
    }
    let (offset, length) = (want.offset(), want.len());
    let residency = residency::residency(fd, offset, length, stat.st_uid);
    let hidden = residency == Residency::Unknown;
    if residency == Residency::Resident || (hidden && known.mode == Mode::Prefetch && probed(fd, want)) {
        return;
    }
    if !reads_through_cache(fd) {
        return;
    }
    let random = ADVICE.is_random(file);
    match known.mode {
        Mode::Off | Mode::Track => {}
        // Nothing indicates that the following bytes will be read.
        Mode::Prefetch if random => {}
        Mode::Prefetch => {
            let more = want.enlarged(known.prefetch_bytes);
            match known.reads {
                true => own_read::bring_in(fd, more),
                false => read_ahead(fd, more),
            }
            if hidden {
                MARKS.set(file, more, host::coarse_ms());
            }
        }
        Mode::Serialise | Mode::Both if call.is_advice() => ask::advise(fd, call, random, offset, length),
        Mode::Serialise | Mode::Both => {
            let answer = ask::need(fd, call, random, offset, length, stat.st_dev);
            if let (true, Some(answer)) = (hidden, answer) {
                // A daemon that cannot check residency either has at least brought in the requested bytes.
                let resident = if answer.resident_bytes > 0 { answer.resident_bytes } else { length };
                if let Some(resident) = Want::of(offset, resident, want.file_bytes()) {
                    MARKS.set(file, resident, host::coarse_ms());
                }
            }
        }
    }
}

fn regular_file(fd: BorrowedFd<'_>) -> Option<Stat> {
    let stat = rustix::fs::fstat(fd).ok()?;
    // Files of /proc have no size, and no bytes to prefetch.
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size > 0).then_some(stat)
}

/// The settings to use, renewed if they have expired. `None`: there is no daemon, or the mode is "off".
fn current(known: Known, now_ms: u64) -> Option<Known> {
    let mut known = known;
    if !known.fresh {
        if MEMORY.pausing(now_ms) {
            return None;
        }
        // One thread asks; until it has an answer, the others use the last known settings.
        if MEMORY.may_ask_settings(now_ms) {
            if let Some(s) = ask::settings() {
                known = Known::of(s, true);
                MEMORY.asked_settings();
            } else if MEMORY.pausing(host::coarse_ms()) {
                return None;
            }
            // Otherwise the daemon is there and busy: no thread asks it again for a moment.
        } else if MEMORY.in_doubt() {
            return None;
        }
    }
    (known.mode != Mode::Off).then_some(known)
}

/// The bytes to check; `None` if there are none.
fn want(call: Call, fd: BorrowedFd<'_>, stat: &Stat, place: Place, length: Length) -> Option<Want> {
    let named = match length {
        Length::Bytes(n) => n,
        Length::Vectors(vectors, count) => host::iovec_bytes(vectors, count)?,
    };
    let offset = match place {
        Place::At(offset) => u64::try_from(offset).ok()?,
        Place::Pointer(at) if !at.is_null() => {
            if !host::readable_8(at.cast()) {
                return None;
            }
            // SAFETY: eight readable bytes, and the host is about to pass the same pointer to the kernel. The
            // kernel does not require alignment.
            u64::try_from(unsafe { at.read_unaligned() }).ok()?
        }
        Place::Cursor | Place::Pointer(_) => rustix::fs::seek(fd, SeekFrom::Current(0)).ok()?,
    };
    Some(Want::of(offset, named, stat.st_size as u64)?.looked_at(call.kind()))
}

/// A probe of bytes without a recent mark, for mode `prefetch` (which asks no daemon) where the kernel hides
/// residency. If it fails, the small read that it starts is the beginning of the large one that follows.
fn probed(fd: BorrowedFd<'_>, want: Want) -> bool {
    // The last byte first: the kernel takes the latest position for the reader's, and the call is about to
    // read from the first.
    residency::nowait_page_resident(fd, want.end() - 1) && residency::nowait_page_resident(fd, want.offset())
}

/// Whether it is open for reading, and not with direct I/O.
fn reads_through_cache(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| {
        !flags.intersects(OFlags::DIRECT | OFlags::PATH) && flags & OFlags::RWMODE != OFlags::WRONLY
    })
}

/// Mode `prefetch`: the application's own thread requests the enlarged range, all pieces in flight together,
/// and goes on to its call, which waits for the bytes it needs.
fn read_ahead(fd: BorrowedFd<'_>, want: Want) {
    use std::os::fd::AsRawFd;
    for part in passes(want) {
        let len = part.end - part.start;
        // SAFETY: only numbers are passed; the call reads into the page cache.
        if unsafe { libc::syscall(libc::SYS_readahead, fd.as_raw_fd(), part.start, len) } != 0 {
            return;
        }
    }
}
