//! Whether bytes are in the page cache, without reading anything.
//!
//! There are three ways, each with a pitfall:
//!
//! - `cachestat` (Linux 6.5) counts pages of a range in 0.6 us for 512 KiB. A page whose read is still in
//!   flight counts as present, which is right here: its next reader waits for that page, not in a queue. On
//!   overlayfs it checks the wrong inode and never counts anything; there `mincore` is used instead.
//! - `mmap` + `mincore` costs ten times that, but works everywhere. Since Linux 5.2 it tells a process that
//!   neither owns nor may write the file that *everything* is resident; since 6.14, and in the stable series
//!   of early 2025, `cachestat` returns `EPERM` to such a process. A server whose workers run as `www-data`
//!   and whose files belong to `root` is exactly that case. So `mincore` is used only where the kernel
//!   answers truthfully, and otherwise the result is [`Residency::Unknown`].
//! - `preadv2` with `RWF_NOWAIT` of one byte works for every process, but on a miss it starts a small read of
//!   its own, which must be avoided on a disk that seeks. It is for ranges believed to be resident
//!   ([`nowait_page_resident`]).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::mm::ProtFlags;

use crate::mapping::Mapping;
use crate::syscall::done;

/// `cachestat(2)`: one number on every architecture that Rust builds for; libc 0.2 defines it on a few only.
const SYS_CACHESTAT: libc::c_long = 451;

/// Number of pages mapped at once to call `mincore`: its result, a byte a page, fits a small stack buffer.
const MINCORE_PAGES: usize = 512;

/// Whether a range of a file is in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// All of it is, or is in flight.
    Resident,
    /// Not all of it.
    Missing,
    /// The kernel does not tell this process.
    Unknown,
}

/// The counts of `cachestat`, in pages of the given range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CacheStat {
    /// In the cache, or being read.
    pub cached: u64,
    /// Waiting to be written.
    pub dirty: u64,
    /// Being written.
    pub writeback: u64,
    /// Evicted at some time.
    pub evicted: u64,
    /// Evicted so lately that memory must be short.
    pub recently_evicted: u64,
}

#[repr(C)]
struct CacheStatRange {
    offset: u64,
    length: u64,
}

/// Bytes of a page; never 0.
///
/// From the C library. rustix reads it from `/proc`, and panics in a root directory without one where the
/// kernel does not tell otherwise (before 6.4).
#[inline]
pub fn page_bytes() -> u64 {
    static BYTES: AtomicU64 = AtomicU64::new(0);
    match BYTES.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: reads what the kernel put beside the environment.
            let bytes = unsafe { libc::getauxval(libc::AT_PAGESZ) }.max(seekless_base::wants::PAGE);
            BYTES.store(bytes, Ordering::Relaxed);
            bytes
        }
        known => known,
    }
}

/// Number of pages that `length` bytes from `offset` touch.
pub fn pages_of(offset: u64, length: u64) -> u64 {
    if length == 0 {
        return 0;
    }
    let page = page_bytes();
    (offset.saturating_add(length - 1)) / page - offset / page + 1
}

/// Counts pages of `length` bytes from `offset`. `length` 0 means no bytes here (for the kernel: to the end
/// of the file).
///
/// # Errors
/// `ENOSYS` before Linux 6.5 and under some seccomp filters, `EPERM` if the process neither owns nor may
/// write the file (6.14), `EOPNOTSUPP` on huge-page file systems, `EBADF`.
pub fn cachestat(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<CacheStat> {
    let mut stat = CacheStat::default();
    if length == 0 {
        return Ok(stat);
    }
    let range = CacheStatRange { offset, length };
    // SAFETY: both structures have the kernel's layout (u64 fields in its order) and live across the call,
    // which reads one and writes the other.
    done(unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0u32) })?;
    Ok(stat)
}

/// Set once `cachestat` is found not to exist, so that it is not tried on every call of a hot path.
static NO_CACHESTAT: AtomicBool = AtomicBool::new(false);

/// Whether all of `length` bytes from `offset` are in the page cache, or in flight. The caller cuts the range
/// at the end of the file, because bytes beyond it are never resident.
///
/// `owner_uid` is the file's owner (`st_uid`): `mincore` is trusted only by its owner and by root.
pub fn residency(file: BorrowedFd<'_>, offset: u64, length: u64, owner_uid: u32) -> Residency {
    if length == 0 {
        return Residency::Resident;
    }
    if !NO_CACHESTAT.load(Ordering::Relaxed) {
        match cachestat(file, offset, length) {
            Ok(stat) if stat.cached >= pages_of(offset, length) => return Residency::Resident,
            Ok(stat) if stat.cached > 0 || !is_overlay(file) => return Residency::Missing,
            Ok(_) => {}
            Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => NO_CACHESTAT.store(true, Ordering::Relaxed),
            Err(_) => {}
        }
    }
    let uid = rustix::process::geteuid().as_raw();
    if uid != 0 && uid != owner_uid {
        return Residency::Unknown;
    }
    let mut all = true;
    match mincore(file, offset, length, |_, resident| {
        all &= resident;
        all
    }) {
        Ok(()) if all => Residency::Resident,
        Ok(()) => Residency::Missing,
        Err(_) => Residency::Unknown,
    }
}

/// Whether a file is on overlayfs, whose inodes have no pages of their own: those belong to the underlying
/// file.
fn is_overlay(file: BorrowedFd<'_>) -> bool {
    crate::fstype::of(file).is_some_and(|fs| fs.magic == crate::fstype::OVERLAY)
}

/// Number of bytes from `offset` on, at most `length`, that are in the page cache without a gap.
///
/// Uses `cachestat` with bisection (a few calls for any length), so it needs a file that this process owns or
/// may write. On overlayfs `mincore`.
///
/// # Errors
/// Those of [`cachestat`].
pub fn resident_prefix(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<u64> {
    let page = page_bytes();
    let whole = |bytes: u64| -> io::Result<bool> {
        Ok(cachestat(file, offset, bytes)?.cached >= pages_of(offset, bytes))
    };
    if length == 0 || whole(length)? {
        return Ok(length);
    }
    if is_overlay(file) {
        let mut end = offset;
        mincore(file, offset, length, |number, resident| {
            if resident {
                end = (number + 1) * page;
            }
            resident
        })?;
        return Ok((end - offset).min(length));
    }
    // Invariant: `yes` pages are resident, `no` pages are not all resident.
    let first = page - offset % page;
    let bytes_of = |pages: u64| if pages == 0 { 0 } else { first + (pages - 1) * page };
    let (mut yes, mut no) = (0u64, pages_of(offset, length));
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if whole(bytes_of(middle).min(length))? { yes = middle } else { no = middle }
    }
    Ok(bytes_of(yes).min(length))
}

/// Number of bytes from `offset` on, at most `length`, that are not in the page cache, up to the first page
/// that is; a page in flight counts as missing.
///
/// # Errors
/// Those of [`mincore`], with its limitations.
pub fn missing_prefix(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<u64> {
    let mut end = offset;
    mincore(file, offset, length, |number, resident| {
        if !resident {
            end = (number + 1) * page_bytes();
        }
        !resident
    })?;
    Ok((end - offset).min(length))
}

/// The ranges `[from, upto)` of `length` bytes from `offset` on that are in the page cache, the first `most`
/// of them. Needs one `cachestat` if nothing or everything is there, which is nearly always.
///
/// # Errors
/// Those of [`cachestat`] and [`mincore`].
pub fn resident_stretches(
    file: BorrowedFd<'_>,
    offset: u64,
    length: u64,
    most: usize,
) -> io::Result<Vec<(u64, u64)>> {
    let (page, pages) = (page_bytes(), pages_of(offset, length));
    let end = offset.saturating_add(length);
    let cached = cachestat(file, offset, length)?.cached;
    if cached >= pages {
        return Ok(if length == 0 { Vec::new() } else { vec![(offset, end)] });
    }
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    if cached == 0 && !is_overlay(file) {
        return Ok(stretches);
    }
    mincore(file, offset, length, |number, resident| {
        let (from, upto) = ((number * page).max(offset), ((number + 1) * page).min(end));
        let full = stretches.len() == most;
        match stretches.last_mut() {
            _ if !resident => {}
            Some(last) if last.1 == from => last.1 = upto,
            _ if full => return false,
            _ => stretches.push((from, upto)),
        }
        true
    })?;
    if stretches == [(offset, end)] {
        // This differs from the count of a moment ago: the rest has arrived since, or `mincore` cannot be
        // trusted.
        let there = resident_prefix(file, offset, length)?;
        stretches = [(offset, offset + there)].into_iter().filter(|(from, upto)| from < upto).collect();
    }
    Ok(stretches)
}

/// Calls `visit` for each page of the range, in order, with its number in the file and whether `mincore`
/// calls it resident, until it returns false. The module's documentation says when that is the truth.
///
/// # Errors
/// Those of `mmap` and `mincore`: no permission to read, no address space left, not a mappable file.
pub fn mincore(
    file: BorrowedFd<'_>,
    offset: u64,
    length: u64,
    mut visit: impl FnMut(u64, bool) -> bool,
) -> io::Result<()> {
    let page = page_bytes();
    let mut next = offset / page;
    let end = next + pages_of(offset, length);
    while next < end {
        let pages = (end - next).min(MINCORE_PAGES as u64);
        let mut states = [0u8; MINCORE_PAGES];
        mincore_window(file, next * page, (pages * page) as usize, &mut states)?;
        for state in states.iter().take(pages as usize) {
            if !visit(next, state & 1 != 0) {
                return Ok(());
            }
            next += 1;
        }
    }
    Ok(())
}

fn mincore_window(
    file: BorrowedFd<'_>,
    offset: u64,
    bytes: usize,
    states: &mut [u8; MINCORE_PAGES],
) -> io::Result<()> {
    // Never dereferenced, so a file that shrinks cannot cause a fault.
    let mapping = Mapping::of(file, ProtFlags::READ, offset, bytes)?;
    // SAFETY: a mapping of `bytes` bytes, at most MINCORE_PAGES pages, and the kernel writes one byte a page.
    done(unsafe { libc::syscall(libc::SYS_mincore, mapping.at(), bytes, states.as_mut_ptr()) }).map(drop)
}

/// Whether the page that contains byte `offset` can be read at once (`RWF_NOWAIT`, one byte). On a miss the
/// kernel starts a small read there, so use it only for bytes that should be resident.
pub fn nowait_page_resident(file: BorrowedFd<'_>, offset: u64) -> bool {
    let mut byte = 0u8;
    let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: one vector with one local byte, alive across the call. The system call is made directly,
    // because the shim intercepts the libc function of that name. On 64-bit the kernel ignores the offset's
    // second half.
    let got = unsafe {
        libc::syscall(libc::SYS_preadv2, file.as_raw_fd(), &raw const part, 1, offset, 0, libc::RWF_NOWAIT)
    };
    got == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    /// Beside the test program: the build folder is more often on a disk than /tmp.
    fn target_dir() -> std::path::PathBuf {
        let exe = std::env::current_exe().unwrap();
        exe.parent().unwrap().to_path_buf()
    }

    /// A file of `pages` pages, on disk and not in the cache except for those read; `None` if the file system
    /// keeps everything in memory (tmpfs).
    fn cold_file(pages: u64) -> Option<std::fs::File> {
        let mut file = tempfile::tempfile_in(target_dir()).ok()?;
        file.write_all(&vec![7u8; (pages * page_bytes()) as usize]).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        // No read-ahead beyond what a test reads.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let stat = cachestat(file.as_fd(), 0, pages * page_bytes());
        match stat {
            Ok(s) if s.cached == 0 => Some(file),
            other => {
                println!("skipped: no cold file to be had here ({other:?})");
                None
            }
        }
    }

    fn touch(file: &std::fs::File, page: u64) {
        use std::os::unix::fs::FileExt;
        file.read_exact_at(&mut [0u8], page * page_bytes()).unwrap();
    }

    #[test]
    fn pages_are_counted_from_any_offset() {
        let p = page_bytes();
        for (offset, length, pages) in
            [(0, 0, 0), (0, 1, 1), (0, p, 1), (0, p + 1, 2), (p - 1, 2, 2), (p - 1, 1, 1), (5 * p, 3 * p, 3)]
        {
            assert_eq!(pages_of(offset, length), pages, "{offset} {length}");
        }
    }

    #[test]
    fn residency_follows_what_was_read() {
        let Some(file) = cold_file(16) else { return };
        let (fd, p, me) = (file.as_fd(), page_bytes(), rustix::process::geteuid().as_raw());
        assert_eq!(residency(fd, 0, 16 * p, me), Residency::Missing);
        for page in 2..6 {
            touch(&file, page);
        }
        assert_eq!(residency(fd, 2 * p, 4 * p, me), Residency::Resident);
        assert_eq!(residency(fd, 2 * p + 1, 4 * p - 2, me), Residency::Resident);
        assert_eq!(residency(fd, 2 * p, 4 * p + 1, me), Residency::Missing);
        assert_eq!(residency(fd, 2 * p - 1, 2, me), Residency::Missing);
        assert_eq!(residency(fd, 0, 0, me), Residency::Resident);
        assert!(nowait_page_resident(fd, 3 * p + 17));

        let mut seen = Vec::new();
        mincore(fd, 0, 16 * p, |page, resident| {
            if resident {
                seen.push(page);
            }
            true
        })
        .unwrap();
        assert_eq!(seen, [2, 3, 4, 5], "mincore and cachestat agree");
    }

    #[test]
    fn the_prefix_ends_at_the_first_gap() {
        let Some(file) = cold_file(64) else { return };
        let (fd, p) = (file.as_fd(), page_bytes());
        assert_eq!(resident_prefix(fd, 0, 64 * p).unwrap(), 0);
        for page in (0..23).chain(40..64) {
            touch(&file, page);
        }
        assert_eq!(resident_prefix(fd, 0, 64 * p).unwrap(), 23 * p);
        assert_eq!(resident_prefix(fd, 100, 64 * p - 100).unwrap(), 23 * p - 100);
        assert_eq!(resident_prefix(fd, 22 * p, 10 * p).unwrap(), p);
        assert_eq!(resident_prefix(fd, 23 * p, p).unwrap(), 0);
        assert_eq!(resident_prefix(fd, 40 * p, 24 * p).unwrap(), 24 * p);
        assert_eq!(resident_prefix(fd, 5, 3).unwrap(), 3);
    }

    #[test]
    fn holes_and_what_lies_between_them() {
        let Some(file) = cold_file(64) else { return };
        let (fd, p) = (file.as_fd(), page_bytes());
        let stretches = |offset, length, most| resident_stretches(fd, offset, length, most).unwrap();
        assert_eq!(stretches(0, 64 * p, 9), []);
        assert_eq!(missing_prefix(fd, 0, 64 * p).unwrap(), 64 * p);
        for page in (3..23).chain(40..41).chain(50..64) {
            touch(&file, page);
        }
        assert_eq!(stretches(0, 64 * p, 9), [(3 * p, 23 * p), (40 * p, 41 * p), (50 * p, 64 * p)]);
        assert_eq!(stretches(0, 64 * p, 2), [(3 * p, 23 * p), (40 * p, 41 * p)]);
        assert_eq!(stretches(5 * p, 30 * p, 9), [(5 * p, 23 * p)]);
        assert_eq!(stretches(5 * p, 10 * p, 9), [(5 * p, 15 * p)], "all of it");
        assert_eq!(stretches(5 * p + 7, 40 * p, 1), [(5 * p + 7, 23 * p)]);
        assert_eq!(stretches(5 * p, 0, 9), []);
        assert_eq!(missing_prefix(fd, 0, 64 * p).unwrap(), 3 * p);
        assert_eq!(missing_prefix(fd, 23 * p + 5, 64 * p).unwrap(), 17 * p - 5);
        assert_eq!(missing_prefix(fd, 23 * p, p / 2).unwrap(), p / 2);
        assert_eq!(missing_prefix(fd, 4 * p, p).unwrap(), 0);
    }

    #[test]
    fn a_closed_or_wrong_descriptor_is_unknown_not_a_panic() {
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert_ne!(residency(pipe.as_fd(), 0, 4096, 0), Residency::Resident);
        assert!(!nowait_page_resident(pipe.as_fd(), 0));
        let path = rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        assert_eq!(residency(path.as_fd(), 0, 4096, 0), Residency::Unknown);
    }
}
