//! What the page cache says of reads, after the fact: the kernel's tracepoints `filemap:*` (Linux 6.11).
//!
//! `mm_filemap_get_pages` is met once for each batch of pages that a `read`, `sendfile` or `splice` takes
//! from the page cache, by whatever way the call was made (a C library, Go, io_uring, a kernel server). It
//! names device, inode, the first page of the batch and the last page of the *call*. `mm_filemap_map_pages`
//! is met when a page fault maps pages that are in memory, `mm_filemap_fault` when it finds its page missing.
//! All are met when the pages are there: nothing waits for the listener.
//!
//! `mm_filemap_add_to_page_cache` is met when a page is put into the cache, to be read from the disk or to be
//! written: a program is about to wait for it. Only every sixteenth page is told of.
//!
//! A filter in the kernel lets only the devices through that are asked for. Events of this process are left
//! out here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::perf::{Ring, Sample, processors};
use crate::tracepoint::{Field, TraceError, Tracefs, Tracepoint};

/// Bytes of each ring in pages: 1 MiB holds 12,000 records, what a processor meets in 10 ms when it does
/// nothing but read cached pages.
const RING_PAGES: [usize; 3] = [256, 64, 16];

/// Most devices the filter names: a filter is a tree that the kernel walks at each event.
pub const DEVICES_MAX: usize = 16;

/// Of pages put into the cache one in so many is told of, less one: 64 KiB of small pages. At half of it a
/// disk that streams raises twice the events; at double of it a small window of read-ahead may have none.
const ADDED_MASK: u64 = 15;

/// How pages were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A call read them.
    Read,
    /// A page fault mapped them.
    Mapped,
    /// A page fault waits for them, or has waited.
    Fault,
    /// They were put into the cache, and are read from the disk or written now.
    Added,
}

/// Pages of a file that were taken from the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheEvent {
    /// How.
    pub taken: Taken,
    /// Major and minor number of the file system's device.
    pub dev: (u32, u32),
    /// Inode number on it.
    pub ino: u64,
    /// First page.
    pub first: u64,
    /// Last page; of a call, the last it asked for.
    pub last: u64,
    /// The process, in our process namespace (0: not in it).
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// When: orders the events of different processors.
    pub time: u64,
}

#[derive(Clone, Copy, Debug)]
struct Layout {
    taken: Taken,
    number: u64,
    dev: Field,
    ino: Field,
    first: Field,
    last: Field,
}

/// The open rings.
#[derive(Debug)]
pub struct CacheEvents {
    kind: Field,
    layouts: Vec<Layout>,
    rings: Vec<Ring>,
    own: u32,
}

/// What was found in the rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Events of this process, left out.
    pub own: u64,
    /// Events that found their ring full.
    pub lost: u64,
}

impl CacheEvents {
    /// Listens to the page cache of these devices, given by major and minor number ([`DEVICES_MAX`] at most).
    ///
    /// # Errors
    /// No such tracepoints, no permission, or no memory for the rings.
    pub fn open(devices: &[(u32, u32)]) -> Result<CacheEvents, TraceError> {
        let (kind, layouts) = CacheEvents::describe()?;
        let devices = &devices[..devices.len().min(DEVICES_MAX)];
        // The kernel's own form of a device number, which is not that of `stat`.
        let names: Vec<String> =
            devices.iter().map(|(major, minor)| format!("s_dev == {}", (major << 20) | minor)).collect();
        let all = names.join(" || ");
        // Large folios begin at such a page, and a window of the kernel's read-ahead has one in it.
        let few = format!("!(index & {ADDED_MASK}) && ({all})");
        let filter = |l: &Layout| if l.taken == Taken::Added { few.as_str() } else { all.as_str() };
        let points: Vec<(u64, &str)> = layouts.iter().map(|l| (l.number, filter(l))).collect();
        let failed = |e: io::Error| TraceError::of("perf events of tracepoints (perf_event_open)", e);
        let mut rings = Vec::new();
        for processor in processors().map_err(failed)? {
            let mut tries = RING_PAGES.iter().map(|&pages| Ring::open(processor, &points, pages));
            // A smaller ring where a large one is more than this user may lock.
            let ring = tries.find(|t| !matches!(t, Err(e) if is_too_large(e)));
            match ring {
                Some(Ok(ring)) => rings.push(ring),
                // Taken from service a moment ago.
                Some(Err(e)) if e.raw_os_error() == Some(libc::ENODEV) => {}
                Some(Err(e)) => return Err(failed(e)),
                None => return Err(failed(io::Error::from_raw_os_error(libc::EPERM))),
            }
        }
        Ok(CacheEvents { kind, layouts, rings, own: std::process::id() })
    }

    /// Whether the kernel has these tracepoints and lets us read of them; nothing is switched on.
    ///
    /// # Errors
    /// Those of [`CacheEvents::open`].
    pub fn probe() -> Result<(), TraceError> {
        CacheEvents::describe().map(drop)
    }

    fn describe() -> Result<(Field, Vec<Layout>), TraceError> {
        let tracefs = Tracefs::open()?;
        let points = [
            ("mm_filemap_get_pages", Taken::Read, "last_index"),
            ("mm_filemap_map_pages", Taken::Mapped, "last_index"),
            ("mm_filemap_fault", Taken::Fault, "index"),
            ("mm_filemap_add_to_page_cache", Taken::Added, "index"),
        ];
        let mut kind = None;
        let mut layouts = Vec::new();
        for (name, taken, last) in points {
            let point = tracefs.tracepoint("filemap", name)?;
            let field = |field: &str| {
                let unknown = || TraceError::Missing(format!("field {field} in tracepoint filemap:{name}"));
                Tracepoint::field(&point, field).ok_or_else(unknown)
            };
            kind = Some(field("common_type")?);
            layouts.push(Layout {
                taken,
                number: point.id,
                dev: field("s_dev")?,
                ino: field("i_ino")?,
                first: field("index")?,
                last: field(last)?,
            });
        }
        let none = || TraceError::Missing("tracepoints filemap:*".into());
        Ok((kind.ok_or_else(none)?, layouts))
    }

    /// Appends what is there, in the order of time.
    pub fn drain(&mut self, into: &mut Vec<CacheEvent>) -> Drained {
        let mut drained = Drained::default();
        let before = into.len();
        for ring in &mut self.rings {
            let (kind, layouts, own) = (self.kind, &self.layouts, self.own);
            drained.lost += ring.drain(|sample| {
                if sample.pid == own {
                    drained.own += 1;
                } else if let Some(event) = event(kind, layouts, sample) {
                    into.push(event);
                }
            });
        }
        if self.rings.len() > 1 {
            into[before..].sort_by_key(|event| event.time);
        }
        drained
    }

    /// Descriptors that are readable when a ring fills up.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(AsFd::as_fd)
    }
}

/// More than this user may lock in memory.
fn is_too_large(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM))
}

fn event(kind: Field, layouts: &[Layout], sample: Sample<'_>) -> Option<CacheEvent> {
    let number = kind.read(sample.raw)?;
    let layout = layouts.iter().find(|l| l.number == number)?;
    let dev = layout.dev.read(sample.raw)? as u32;
    let first = layout.first.read(sample.raw)?;
    Some(CacheEvent {
        taken: layout.taken,
        dev: (dev >> 20, dev & 0xf_ffff),
        ino: layout.ino.read(sample.raw)?,
        first,
        last: layout.last.read(sample.raw)?.max(first),
        pid: sample.pid,
        tid: sample.tid,
        time: sample.time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// A file of our own on the build folder's file system, the numbers of its device, and ears for it.
    fn heard() -> Option<(tempfile::NamedTempFile, CacheEvents)> {
        let beside = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let file = tempfile::NamedTempFile::new_in(beside).unwrap();
        std::fs::write(file.path(), vec![7u8; 1 << 20]).unwrap();
        let dev = file.as_file().metadata().unwrap().dev();
        match CacheEvents::open(&[(rustix::fs::major(dev), rustix::fs::minor(dev))]) {
            Ok(events) => Some((file, events)),
            Err(error) => {
                println!("skipped: {error}");
                None
            }
        }
    }

    fn until(events: &mut CacheEvents, ino: u64, enough: impl Fn(&[CacheEvent]) -> bool) -> Vec<CacheEvent> {
        let end = Instant::now() + Duration::from_secs(20);
        let (mut all, mut of_file) = (Vec::new(), Vec::new());
        while !enough(&of_file) {
            assert!(Instant::now() < end, "never came: {of_file:?}");
            all.clear();
            events.drain(&mut all);
            of_file.extend(all.iter().filter(|e| e.ino == ino));
            std::thread::sleep(Duration::from_millis(2));
        }
        of_file
    }

    #[test]
    fn a_read_of_another_process_is_heard_with_its_pages() {
        let Some((file, mut events)) = heard() else { return };
        let ino = file.as_file().metadata().unwrap().ino();
        let mut dd = Command::new("dd")
            .arg(format!("if={}", file.path().display()))
            .args(["of=/dev/null", "bs=256k", "skip=1", "count=2"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(dd.wait().unwrap().success());
        let heard = until(&mut events, ino, |of| of.iter().any(|e| e.last == 191));
        assert_eq!((heard[0].taken, heard[0].first, heard[0].last), (Taken::Read, 64, 127));
        assert!(heard.iter().all(|e| e.pid == dd.id()), "{heard:?}");
        assert!(heard.is_sorted_by_key(|e| e.time));
    }

    #[test]
    fn pages_that_are_brought_in_are_told_of_before_they_are_taken() {
        let Some((file, mut events)) = heard() else { return };
        let ino = file.as_file().metadata().unwrap().ino();
        file.as_file().sync_all().unwrap();
        rustix::fs::fadvise(file.as_file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let from = format!("if={}", file.path().display());
        let read =
            Command::new("dd").arg(from).args(["of=/dev/null", "bs=256k"]).stderr(Stdio::null()).status();
        assert!(read.unwrap().success());
        let heard = until(&mut events, ino, |of| of.iter().any(|e| e.taken == Taken::Read && e.first == 192));
        let added: Vec<u64> = heard.iter().filter(|e| e.taken == Taken::Added).map(|e| e.first).collect();
        // Evicted pages are brought in, unless the pages of a file just written could not be evicted.
        assert!(added.iter().all(|page| page % 16 == 0), "{added:?}");
        if let (Some(Taken::Added), Some(first)) = (heard.first().map(|e| e.taken), added.first()) {
            assert_eq!(*first, 0);
        } else {
            println!("skipped: the pages stay in memory");
        }
    }

    #[test]
    fn our_own_reads_are_left_out_and_counted() {
        let Some((file, mut events)) = heard() else { return };
        let ino = file.as_file().metadata().unwrap().ino();
        std::io::copy(&mut File::open(file.path()).unwrap(), &mut std::io::sink()).unwrap();
        let mut all = Vec::new();
        let drained = events.drain(&mut all);
        assert!(drained.own > 0 && all.iter().all(|e| e.ino != ino), "{drained:?}");
    }
}
