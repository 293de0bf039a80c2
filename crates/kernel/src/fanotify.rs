//! Pre-content events (Linux 6.14+): the kernel announces a read before it happens, and waits for an answer.
//!
//! A group of class `FAN_CLASS_PRE_CONTENT` with a mark for `FAN_PRE_ACCESS` receives an event for each read,
//! sendfile, splice or page fault under the mark, with a descriptor of the file and the range about to be
//! read. The reader sleeps until a response is written. This makes a door for programs into which nothing can
//! be preloaded: static and Go binaries, containers, running servers.
//!
//! - The event's descriptor is a struct file of its own (nothing done to it affects the reader's) and raises
//!   no events itself. Reads on a file's behalf must go through it, or the daemon would wait for itself.
//! - Closing the last descriptor of the group releases every waiting reader: the end of the process, however
//!   it comes, is always safe.
//! - An event that is dropped without [`Event::allow`] is answered on drop, so no code path can forget a
//!   reader.

use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::handle::FileHandle;
use crate::syscall::{done, owned};

/// A read or an access to a mapped page is about to happen; in the kernel's headers since 6.14, not yet in
/// the libc crate.
const FAN_PRE_ACCESS: u64 = 0x0010_0000;
/// Information record: offset and count of the access.
const FAN_EVENT_INFO_TYPE_RANGE: u8 = 6;
/// The mark's mask lists events that are not sent.
const FAN_MARK_IGNORE: u32 = 0x0000_0400;
/// Keeps the ignore mark when the file is written to.
const FAN_MARK_IGNORED_SURV_MODIFY: u32 = 0x0000_0040;

/// An ignore mark that does not keep the inode in memory, and goes with it.
const FAN_MARK_EVICTABLE: u32 = 0x0000_0200;

/// Length of an event with its range, the only kind that these marks raise.
const EVENT_BYTES: usize = 48;
/// Maximum number of events taken at once, so that one wake-up drains a burst.
const EVENTS_MAX: usize = 64;

/// What a mark covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything reached through one mount. A bind mount of a folder watches just that folder; accesses
    /// through a container's own mount of the same file system are not seen.
    Mount,
    /// Everything on the file system, through whatever mount.
    FileSystem,
}

/// A notification group. Clones share it: several threads may read events from it.
#[derive(Clone, Debug)]
pub struct Group {
    fd: Arc<OwnedFd>,
}

/// Why pre-content events are not available.
#[derive(Debug)]
pub enum Unavailable {
    /// The kernel is older than 6.14, was built without fanotify permission events, or this file system type
    /// does not support them.
    NotSupported,
    /// Needs `CAP_SYS_ADMIN` in the initial user namespace.
    NotPermitted,
    /// Any other error.
    Other(io::Error),
}

impl From<io::Error> for Unavailable {
    fn from(e: io::Error) -> Unavailable {
        match e.raw_os_error() {
            Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::ENODEV) => Unavailable::NotSupported,
            Some(libc::EPERM | libc::EACCES) => Unavailable::NotPermitted,
            _ => Unavailable::Other(e),
        }
    }
}

fn init(flags: u32, event_flags: u32) -> io::Result<OwnedFd> {
    // SAFETY: it takes no pointers, and returns a new descriptor.
    unsafe { owned(libc::fanotify_init(flags, event_flags)) }
}

/// `path` is that of the file, or `None` for the descriptor `dir` itself.
fn mark(group: &OwnedFd, flags: u32, mask: u64, dir: i32, path: Option<&Path>) -> io::Result<()> {
    let path = path.map(|path| CString::new(path.as_os_str().as_bytes())).transpose()?;
    let pointer = path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
    // SAFETY: `pointer` is null or a terminated string that outlives the call.
    done(unsafe { libc::fanotify_mark(group.as_raw_fd(), flags, mask, dir, pointer) }).map(drop)
}

impl Group {
    /// A group without marks. Reading events does not block.
    ///
    /// # Errors
    /// The kernel is too old, or does not permit it.
    pub fn new() -> Result<Group, Unavailable> {
        // The event's descriptor: read-only, no access-time updates from our reads.
        let event_flags = (libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC | libc::O_NOATIME) as u32;
        let flags = libc::FAN_CLASS_PRE_CONTENT
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            // There is one ignore mark for each file; they are evictable, so memory bounds them.
            | libc::FAN_UNLIMITED_MARKS
            // Report the thread, not only the process: see [`crate::call`].
            | libc::FAN_REPORT_TID;
        Ok(Group { fd: Arc::new(init(flags, event_flags)?) })
    }

    /// Checks that the kernel has these events; watches nothing. A group alone can be made on older kernels.
    ///
    /// # Errors
    /// The kernel is too old, or does not permit it.
    pub fn probe() -> Result<(), Unavailable> {
        // The kernel looks at the events before it looks for the path, and none is empty.
        match Group::new()?.watch(Path::new(""), Scope::Mount) {
            Err(Unavailable::Other(e)) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other,
        }
    }

    /// Watches the mount or file system of `path`.
    ///
    /// # Errors
    /// `path` does not exist, or its file system raises no such events.
    pub fn watch(&self, path: &Path, scope: Scope) -> Result<(), Unavailable> {
        Ok(self.mark(libc::FAN_MARK_ADD | scope.flag(), libc::AT_FDCWD, Some(path))?)
    }

    /// Ends a watch.
    ///
    /// # Errors
    /// `ENOENT`: it is not watched, or `path` does not exist.
    pub fn unwatch(&self, path: &Path, scope: Scope) -> io::Result<()> {
        self.mark(libc::FAN_MARK_REMOVE | scope.flag(), libc::AT_FDCWD, Some(path))
    }

    /// Sends no events for the mount or file system of `path` until [`Group::resume`]. In contrast to
    /// [`Group::unwatch`], files opened meanwhile raise events afterwards: the kernel checks at the open
    /// whether something is watched, and at each read whether it is ignored.
    ///
    /// # Errors
    /// There is no memory for the mark, or `path` does not exist.
    pub fn pause(&self, path: &Path, scope: Scope) -> io::Result<()> {
        let flags = libc::FAN_MARK_ADD | FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY | scope.flag();
        self.mark(flags, libc::AT_FDCWD, Some(path))
    }

    /// Sends events for it again. Does nothing without a pause.
    ///
    /// # Errors
    /// `ENOENT`: it is not watched, or `path` does not exist.
    pub fn resume(&self, path: &Path, scope: Scope) -> io::Result<()> {
        self.mark(libc::FAN_MARK_REMOVE | FAN_MARK_IGNORE | scope.flag(), libc::AT_FDCWD, Some(path))
    }

    /// Sends no more events for one file, so that its reads cost nothing. Ends with [`Group::notice`],
    /// [`Group::notice_all`], and when the kernel drops the inode from memory, no earlier than the last
    /// cached page of the file.
    ///
    /// # Errors
    /// There is no memory for the mark.
    pub fn ignore(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let flags = libc::FAN_MARK_ADD | FAN_MARK_IGNORE | FAN_MARK_IGNORED_SURV_MODIFY | FAN_MARK_EVICTABLE;
        self.mark(flags, file.as_raw_fd(), None)
    }

    /// Sends events for this file again.
    ///
    /// # Errors
    /// `ENOENT`: it was not ignored.
    pub fn notice(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        self.mark(libc::FAN_MARK_REMOVE | FAN_MARK_IGNORE, file.as_raw_fd(), None)
    }

    /// Sends events for every file again.
    ///
    /// # Errors
    /// Those of fanotify_mark(2).
    pub fn notice_all(&self) -> io::Result<()> {
        // Removes the marks of inodes; those of mounts and file systems stay.
        mark(&self.fd, libc::FAN_MARK_FLUSH, 0, libc::AT_FDCWD, Some(Path::new("/")))
    }

    fn mark(&self, flags: u32, dir: i32, path: Option<&Path>) -> io::Result<()> {
        mark(&self.fd, flags, FAN_PRE_ACCESS, dir, path)
    }

    /// Appends waiting events to `into`, at most `most` (1 to 64), or none. Events that one thread takes are
    /// not available to others: with several threads, take few.
    ///
    /// # Errors
    /// Those of read(2): `EMFILE` or `ENFILE` if no descriptor is left for the file of an event.
    pub fn read(&self, into: &mut Vec<Event>, most: usize) -> io::Result<()> {
        let mut buffer = Buffer([MaybeUninit::uninit(); EVENT_BYTES * EVENTS_MAX]);
        let room = &mut buffer.0[..EVENT_BYTES * most.clamp(1, EVENTS_MAX)];
        let (bytes, _) = match rustix::io::read(&*self.fd, room) {
            Ok(got) => got,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let mut rest: &[u8] = bytes;
        while let Some((event, length)) = parse(rest) {
            if let Some(raw) = event {
                // SAFETY: the kernel opened this descriptor for this event; it has no other owner.
                let file = unsafe { OwnedFd::from_raw_fd(raw.fd) };
                let group = self.clone();
                into.push(Event { group, file: Some(file), tid: raw.tid, range: raw.range, answered: false });
            }
            rest = &rest[length..];
        }
        Ok(())
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Scope {
    fn flag(self) -> u32 {
        match self {
            Scope::Mount => libc::FAN_MARK_MOUNT,
            Scope::FileSystem => libc::FAN_MARK_FILESYSTEM,
        }
    }
}

/// Aligned for the kernel's records.
#[repr(align(8))]
struct Buffer([MaybeUninit<u8>; EVENT_BYTES * EVENTS_MAX]);

/// A reader that waits for an answer.
#[derive(Debug)]
pub struct Event {
    group: Group,
    file: Option<OwnedFd>,
    tid: i32,
    range: Option<(u64, u64)>,
    answered: bool,
}

impl Event {
    /// The file; reading through it raises no events.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(OwnedFd::as_fd)
    }

    /// The thread id of the reader in our process namespace (0 if outside).
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// First byte and number of bytes about to be read. `None` if the kernel does not report them, which
    /// means the whole file.
    pub fn range(&self) -> Option<(u64, u64)> {
        self.range
    }

    /// Releases the reader, and returns the file for further reading ahead.
    pub fn allow(mut self) -> Option<OwnedFd> {
        self.answer();
        self.file.take()
    }

    fn answer(&mut self) {
        let Some(file) = self.file.as_ref().filter(|_| !self.answered) else { return };
        self.answered = true;
        let response = libc::fanotify_response { fd: file.as_raw_fd(), response: libc::FAN_ALLOW };
        // SAFETY: two integers, read as the eight bytes they consist of.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                (&raw const response).cast::<u8>(),
                size_of::<libc::fanotify_response>(),
            )
        };
        // It can only fail if the reader or the group is gone already.
        let _ = rustix::io::write(&*self.group.fd, bytes);
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.answer();
    }
}

/// A group that reports which files are opened on a file system, after the fact, so that no program waits for
/// it. Files are named by handle, so nothing stays open and no mount is kept busy. Its queue is bounded
/// (`fs.fanotify.max_queued_events`).
#[derive(Debug)]
pub struct Opens {
    fd: OwnedFd,
}

impl Opens {
    /// Reports every file opened from now on on the file system of `path`.
    ///
    /// # Errors
    /// No permission (`CAP_SYS_ADMIN`), a kernel before Linux 5.1, or a file system without handles.
    pub fn of(path: &Path) -> Result<Opens, Unavailable> {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_REPORT_FID;
        let fd = init(flags, libc::O_RDONLY as u32)?;
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        mark(&fd, flags, libc::FAN_OPEN, libc::AT_FDCWD, Some(path))?;
        Ok(Opens { fd })
    }

    /// Passes the queued events to `take`. Returns how often events were lost because the queue was full.
    pub fn drain(&self, mut take: impl FnMut(FileHandle)) -> u64 {
        let mut lost = 0;
        let mut buffer = Box::new(Buffer([MaybeUninit::uninit(); EVENT_BYTES * EVENTS_MAX]));
        // Bounded: if files are opened faster than this reads, the rest is read the next time.
        for _ in 0..64 {
            let Ok((bytes, _)) = rustix::io::read(&self.fd, &mut buffer.0[..]) else { break };
            let mut rest: &[u8] = bytes;
            if rest.is_empty() {
                break;
            }
            while let Some((mask, handle, length)) = parse_opened(rest) {
                lost += u64::from(mask & libc::FAN_Q_OVERFLOW != 0);
                handle.into_iter().for_each(&mut take);
                rest = &rest[length..];
            }
        }
        lost
    }
}

impl AsFd for Opens {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The first event of `bytes`: its mask, the file (`None` in an overflow), its length. A file record is {
/// type u8, pad u8, len u16, fsid 8 bytes, handle_bytes u32, handle_type i32, bytes }.
fn parse_opened(bytes: &[u8]) -> Option<(u64, Option<FileHandle>, usize)> {
    let length = u32::from_ne_bytes(bytes_at(bytes, 0)?) as usize;
    let metadata = u16::from_ne_bytes(bytes_at(bytes, 6)?) as usize;
    if length < METADATA_BYTES || length > bytes.len() || bytes[4] != libc::FANOTIFY_METADATA_VERSION {
        return None;
    }
    let event = &bytes[..length];
    let mask = u64::from_ne_bytes(bytes_at(event, 8)?);
    let record = event.get(metadata.max(METADATA_BYTES)..).unwrap_or(&[]);
    let handle = || {
        let bytes = u32::from_ne_bytes(bytes_at(record, 12)?) as usize;
        let kind = i32::from_ne_bytes(bytes_at(record, 16)?);
        FileHandle::from_parts(kind, record.get(20..20usize.checked_add(bytes)?)?)
    };
    let handle = record.first().filter(|&&kind| kind == libc::FAN_EVENT_INFO_TYPE_FID).and_then(|_| handle());
    Some((mask, handle, length))
}

/// The fields of an event.
#[derive(Debug, PartialEq, Eq)]
struct Raw {
    fd: i32,
    tid: i32,
    range: Option<(u64, u64)>,
}

const METADATA_BYTES: usize = 24;

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

/// The first event of `bytes` (`None` if it has no descriptor, as in an overflow) and its length. `None` at
/// the end, or if the bytes are invalid.
///
/// Layout: `fanotify_event_metadata` { event_len u32, vers u8, reserved u8, metadata_len u16, mask u64, fd
/// i32, pid i32 }, then records { type u8, pad u8, len u16, ... }; a range record continues with { pad u32,
/// offset u64, count u64 }.
fn parse(bytes: &[u8]) -> Option<(Option<Raw>, usize)> {
    let length = u32::from_ne_bytes(bytes_at(bytes, 0)?) as usize;
    let version = *bytes.get(4)?;
    let metadata = u16::from_ne_bytes(bytes_at(bytes, 6)?) as usize;
    if length < METADATA_BYTES || length > bytes.len() || version != libc::FANOTIFY_METADATA_VERSION {
        return None;
    }
    let event = &bytes[..length];
    let fd = i32::from_ne_bytes(bytes_at(event, 16)?);
    let tid = i32::from_ne_bytes(bytes_at(event, 20)?);
    let mut range = None;
    let mut records = event.get(metadata.max(METADATA_BYTES)..).unwrap_or(&[]);
    while let Some(size) = bytes_at(records, 2).map(|b| u16::from_ne_bytes(b) as usize) {
        if size < 4 || size > records.len() {
            break;
        }
        if records[0] == FAN_EVENT_INFO_TYPE_RANGE {
            let offset = bytes_at(records, 8).map(u64::from_ne_bytes);
            let count = bytes_at(records, 16).map(u64::from_ne_bytes);
            range = offset.zip(count);
        }
        records = &records[size..];
    }
    Some(((fd >= 0).then_some(Raw { fd, tid, range }), length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    fn event(fd: i32, range: Option<(u64, u64)>) -> Vec<u8> {
        let length = METADATA_BYTES + if range.is_some() { 24 } else { 0 };
        let mut bytes = Vec::new();
        bytes.extend((length as u32).to_ne_bytes());
        bytes.extend([libc::FANOTIFY_METADATA_VERSION, 0]);
        bytes.extend((METADATA_BYTES as u16).to_ne_bytes());
        bytes.extend(FAN_PRE_ACCESS.to_ne_bytes());
        bytes.extend(fd.to_ne_bytes());
        bytes.extend(42i32.to_ne_bytes());
        if let Some((offset, count)) = range {
            bytes.extend([FAN_EVENT_INFO_TYPE_RANGE, 0]);
            bytes.extend(24u16.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend(offset.to_ne_bytes());
            bytes.extend(count.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn events_are_read_as_the_kernel_lays_them_out() {
        let bytes = [event(7, Some((4096, 65536))), event(-1, None), event(8, None)].concat();
        let (first, length) = parse(&bytes).unwrap();
        assert_eq!(first, Some(Raw { fd: 7, tid: 42, range: Some((4096, 65536)) }));
        let (overflow, second_length) = parse(&bytes[length..]).unwrap();
        assert_eq!(overflow, None);
        let (third, _) = parse(&bytes[length + second_length..]).unwrap();
        assert_eq!(third, Some(Raw { fd: 8, tid: 42, range: None }));
        for cut in 0..length {
            assert!(parse(&bytes[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn an_opened_file_is_named_by_its_handle() {
        // Events arrive for the whole file system: only the test's own files are expected.
        let dir = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let opens = match Opens::of(dir.path()) {
            Ok(opens) => opens,
            Err(why) => {
                println!("skipped: no events of opened files here ({why:?})");
                return;
            }
        };
        let file = std::fs::File::open(&path).unwrap();
        let handle = FileHandle::of(file.as_fd()).unwrap();
        let mut heard = Vec::new();
        let mut lost = 0;
        for _ in 0..64 {
            lost += opens.drain(|opened| heard.push(opened));
        }
        assert!(lost > 0 || heard.contains(&handle), "{} opened", heard.len());
        assert!(parse_opened(&[0; 24]).is_none());
    }

    /// A mount of the test's own, so that nothing else on the machine is affected.
    fn own_mount() -> Option<(tempfile::TempDir, Mounted)> {
        let dir = tempfile::tempdir().ok()?;
        // A bind mount of a folder on itself: a mount of its own on the same file system.
        rustix::mount::mount_bind(dir.path(), dir.path()).ok()?;
        let mounted = Mounted(dir.path().to_path_buf());
        Some((dir, mounted))
    }

    struct Mounted(std::path::PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        }
    }

    #[test]
    fn a_reader_waits_for_the_answer_and_ignored_files_do_not() {
        let Some((dir, _mounted)) = own_mount() else {
            println!("skipped: a bind mount needs root");
            return;
        };
        let group = match Group::new() {
            Ok(group) => group,
            Err(why) => {
                println!("skipped: no pre-content events here ({why:?})");
                return;
            }
        };
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7u8; 100_000]).unwrap();
        if let Err(why) = group.watch(dir.path(), Scope::Mount) {
            println!("skipped: this file system takes no part ({why:?})");
            return;
        }
        let answered = AtomicU64::new(0);
        let stop = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut events = Vec::new();
                while stop.load(Ordering::Acquire) == 0 {
                    group.read(&mut events, 8).unwrap();
                    for event in events.drain(..) {
                        let (offset, count) = event.range().unwrap();
                        assert!(offset <= 100_000 && count > 0);
                        // Our own read of the same file must not wait for ourselves.
                        let mut byte = [0];
                        assert_eq!(rustix::io::pread(event.file().unwrap(), &mut byte, 0).unwrap(), 1);
                        answered.fetch_add(1, Ordering::AcqRel);
                        event.allow();
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let mut content = Vec::new();
            let mut file = std::fs::File::open(&path).unwrap();
            file.read_to_end(&mut content).unwrap();
            assert_eq!(content.len(), 100_000);
            let seen = answered.load(Ordering::Acquire);
            assert!(seen > 0, "the read was not announced");
            group.ignore(file.as_fd()).unwrap();
            assert_eq!(std::fs::read(&path).unwrap().len(), 100_000);
            assert_eq!(answered.load(Ordering::Acquire), seen, "an ignored file was announced");
            group.notice(file.as_fd()).unwrap();
            assert_eq!(std::fs::read(&path).unwrap().len(), 100_000);
            assert!(answered.load(Ordering::Acquire) > seen, "noticed again, but not announced");
            group.ignore(file.as_fd()).unwrap();
            let seen = answered.load(Ordering::Acquire);
            assert_eq!(std::fs::read(&path).unwrap().len(), 100_000);
            assert_eq!(answered.load(Ordering::Acquire), seen);
            group.notice_all().unwrap();
            assert_eq!(std::fs::read(&path).unwrap().len(), 100_000);
            assert!(answered.load(Ordering::Acquire) > seen, "all noticed again, but not announced");
            group.pause(dir.path(), Scope::Mount).unwrap();
            let seen = answered.load(Ordering::Acquire);
            let mut in_pause = std::fs::File::open(&path).unwrap();
            assert_eq!(in_pause.read(&mut [0; 4096]).unwrap(), 4096);
            assert_eq!(answered.load(Ordering::Acquire), seen, "announced in a pause");
            group.resume(dir.path(), Scope::Mount).unwrap();
            assert_eq!(in_pause.read(&mut [0; 4096]).unwrap(), 4096);
            assert_eq!(
                answered.load(Ordering::Acquire),
                seen + 1,
                "a file opened in a pause is announced after it"
            );
            group.resume(dir.path(), Scope::Mount).unwrap();
            stop.store(1, Ordering::Release);
        });
        // Dropping the group releases what waits: no event is read any more, and the reads go through.
        drop(group);
        assert_eq!(std::fs::read(&path).unwrap().len(), 100_000);
    }
}
