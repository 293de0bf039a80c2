//! Events of the page cache for reads, after the fact: the kernel's tracepoints `filemap:*` (Linux 6.11).
//!
//! `mm_filemap_get_pages` is hit once for each batch of pages that a `read`, `sendfile` or `splice` takes
//! from the page cache, however the call was made (by a C library, Go, io_uring, a kernel server). It names
//! the device, the inode, the first page of the batch and the last page of the *call*. `mm_filemap_map_pages`
//! is hit when a page fault maps pages that are in memory, `mm_filemap_fault` when a fault finds its page
//! missing. All are hit when the pages are in memory, and nothing waits for the listener.
//!
//! `mm_filemap_add_to_page_cache` is hit when a page is added to the cache, to be read from the disk or to be
//! written: a program is about to wait for it. Only every sixteenth page raises an event.
//!
//! The kernel filters events by device: only those of the requested devices reach the ring. Events of this
//! process are dropped here.
//!
//! The kernel runs a program at each tracepoint. A kernel without these tracepoints runs the programs at
//! functions of its page cache ([`functions`], [`Attachment`]).

mod functions;
mod program;

use std::io;
use std::os::fd::BorrowedFd;

use seekless_base::words;

use crate::tracepoint::{Field, TraceError, Tracefs, Tracepoint};
use functions::Functions;
use program::{By, Programs};

/// Pages of the ring for each processor. 1 MiB holds 18,000 records, which a processor that only reads
/// cached pages makes in 15 ms. At half, a reader of the ring that is late by as much loses events; at
/// double, memory is held for nothing.
const RING_PAGES: usize = 256;

/// Maximum number of devices; each is compared at each event.
pub const DEVICES_MAX: usize = 16;

/// Mask of the page number: one of 16 pages added to the cache raises an event, 64 KiB of small pages. At
/// half, a disk that streams raises twice the events; at double, a small window of read-ahead may raise none.
/// Large folios begin at such a page, and every window of the kernel's read-ahead contains one.
const ADDED_MASK: u64 = 15;

/// How events are received. All need `CAP_BPF` and `CAP_PERFMON`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// By a program at each tracepoint.
    Programs,
    /// By a program at each function, which the kernel calls at its entry (fentry).
    Entries,
    /// By a program at each function, as a probe (kprobe).
    Probes,
}

// In the order in which they are tried.
words! { Attachment: Programs = "programs", Entries = "entries", Probes = "probes" }

/// The tracepoint that is older than the others, with the field of its last page.
const ADDED: (&str, Taken, &str) = ("mm_filemap_add_to_page_cache", Taken::Added, "index");

/// How pages were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// By a read call.
    Read,
    /// Mapped by a page fault.
    Mapped,
    /// By a page fault that waits for them, or has waited.
    Fault,
    /// Added to the cache, to be read from the disk or written now.
    Added,
}

/// Pages of a file that were taken from the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheEvent {
    /// How they were taken.
    pub taken: Taken,
    /// Major and minor number of the file system's device.
    pub dev: (u32, u32),
    /// Inode number on it.
    pub ino: u64,
    /// First page number.
    pub first: u64,
    /// Last page number; for a call, the last requested.
    pub last: u64,
    /// The process id in our process namespace (0: outside).
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
}

/// A tracepoint, and where its record has each field.
#[derive(Clone, Copy, Debug)]
struct Layout {
    taken: Taken,
    number: u64,
    dev: Field,
    ino: Field,
    first: Field,
    last: Field,
}

/// Receives events of the page cache.
#[derive(Debug)]
pub struct CacheEvents {
    attachment: Attachment,
    programs: Programs,
}

/// Counts of one drain of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Events of this process, dropped.
    pub own: u64,
    /// Events that found the ring full.
    pub lost: u64,
}

impl CacheEvents {
    /// Receives the page cache events of these devices, given by major and minor number ([`DEVICES_MAX`] at
    /// most), in the cheapest attachment that the kernel allows.
    ///
    /// # Errors
    /// Neither such tracepoints nor such functions, no permission, or no memory for the ring.
    pub fn open(devices: &[(u32, u32)]) -> Result<CacheEvents, TraceError> {
        by_the_best(|attachment| CacheEvents::open_by(attachment, devices))
    }

    /// Receives them through the given attachment.
    ///
    /// # Errors
    /// As [`CacheEvents::open`].
    pub fn open_by(attachment: Attachment, devices: &[(u32, u32)]) -> Result<CacheEvents, TraceError> {
        let devices = &devices[..devices.len().min(DEVICES_MAX)];
        let programs = match attachment {
            Attachment::Programs => Programs::open(&CacheEvents::describe()?, devices),
            Attachment::Entries | Attachment::Probes => {
                Programs::open_at(&Functions::find()?, by(attachment), devices)
            }
        };
        Ok(CacheEvents { attachment, programs: programs.map_err(|e| failed(attachment, e))? })
    }

    /// The attachment in use.
    pub fn attachment(&self) -> Attachment {
        self.attachment
    }

    /// Checks that the kernel has these tracepoints or functions and allows their use; switches nothing on.
    ///
    /// # Errors
    /// Those of [`CacheEvents::open`].
    pub fn probe() -> Result<(), TraceError> {
        by_the_best(|attachment| {
            let accepted = match attachment {
                Attachment::Programs => Programs::probe(&CacheEvents::describe()?),
                Attachment::Entries | Attachment::Probes => {
                    Programs::probe_at(&Functions::find()?, by(attachment))
                }
            };
            accepted.map_err(|e| failed(attachment, e))
        })
    }

    fn describe() -> Result<Vec<Layout>, TraceError> {
        let tracefs = Tracefs::open()?;
        let points = [
            ("mm_filemap_get_pages", Taken::Read, "last_index"),
            ("mm_filemap_map_pages", Taken::Mapped, "last_index"),
            ("mm_filemap_fault", Taken::Fault, "index"),
            ADDED,
        ];
        points.into_iter().map(|point| layout(&tracefs, point)).collect()
    }

    /// Appends the events in the ring, in order of time.
    pub fn drain(&mut self, into: &mut Vec<CacheEvent>) -> Drained {
        self.programs.drain(into)
    }

    /// Becomes readable when the ring fills.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.programs.descriptor()
    }
}

/// The first attachment that works. Functions stand in where the kernel has no tracepoints, and only there.
/// If none works, the error is that of the last one which the kernel has.
fn by_the_best<T>(mut open: impl FnMut(Attachment) -> Result<T, TraceError>) -> Result<T, TraceError> {
    let second = |first, second| match second {
        // What the kernel does not permit may be mended; what it does not have, not.
        Err(TraceError::Missing(_)) => Err(first),
        other => other,
    };
    match open(Attachment::Programs) {
        Err(TraceError::Missing(what)) if what != Tracefs::NAME => open(Attachment::Entries)
            .or_else(|first| second(first, open(Attachment::Probes)))
            .map_err(|why| match why {
                TraceError::Missing(also) => TraceError::Missing(format!("{what}, nor {also}")),
                other => other,
            }),
        other => other,
    }
}

fn by(attachment: Attachment) -> By {
    if attachment == Attachment::Entries { By::Entries } else { By::Probes }
}

fn failed(attachment: Attachment, error: io::Error) -> TraceError {
    TraceError::of(
        match attachment {
            Attachment::Programs => "programs at tracepoints (bpf)",
            Attachment::Entries => "programs at functions (bpf, fentry)",
            Attachment::Probes => "programs at functions (bpf, kprobe)",
        },
        error,
    )
}

/// A tracepoint of the page cache, given by its name, the kind of its events, and the field of its last page.
fn layout(tracefs: &Tracefs, (name, taken, last): (&str, Taken, &str)) -> Result<Layout, TraceError> {
    let point = tracefs.tracepoint("filemap", name)?;
    let field = |field: &str| {
        let unknown = || TraceError::Missing(format!("field {field} in tracepoint filemap:{name}"));
        Tracepoint::field(&point, field).ok_or_else(unknown)
    };
    Ok(Layout {
        taken,
        number: point.id,
        dev: field("s_dev")?,
        ino: field("i_ino")?,
        first: field("index")?,
        last: field(last)?,
    })
}

/// The kernel's internal form of a device number, which is not that of `stat`.
fn number_of((major, minor): (u32, u32)) -> u32 {
    (major << 20) | minor
}

/// Its major and minor number.
fn device(number: u32) -> (u32, u32) {
    (number >> 20, number & 0xf_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::process::{Command, Stdio};
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};

    /// Held by each test: what another one reads through this process is on the same device, where it fills
    /// the rings and is counted as our own.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file of the test's own on the build folder's file system, and a listener for it.
    fn heard(attachment: Attachment) -> Option<(tempfile::NamedTempFile, CacheEvents)> {
        let beside = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let file = tempfile::NamedTempFile::new_in(beside).unwrap();
        // Page by page, for small folios: one fault may map all of a large folio, and tells of one page.
        for page in 0..256 {
            file.as_file().write_all_at(&[7u8; 4096], page * 4096).unwrap();
        }
        let dev = file.as_file().metadata().unwrap().dev();
        // The last of many other devices.
        let mut devices: Vec<(u32, u32)> = (0..15).map(|minor| (4095, minor)).collect();
        devices.push((rustix::fs::major(dev), rustix::fs::minor(dev)));
        match CacheEvents::open_by(attachment, &devices) {
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

    const ATTACHMENTS: [Attachment; 3] = Attachment::ALL;

    #[test]
    fn a_read_of_another_process_is_heard_with_its_pages() {
        let _alone = alone();
        for (file, mut events) in ATTACHMENTS.into_iter().filter_map(heard) {
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
            assert!(heard.is_sorted_by_key(|e| e.first), "{heard:?}");
        }
    }

    /// Process ids are those of the observer's own namespace: in a container too, its own reads are dropped
    /// and those of one process are told from those of another.
    #[test]
    fn a_process_namespace_of_its_own_is_no_hindrance() {
        let inside = "cacheevents::tests::a_read_of_another_process_is_heard_with_its_pages";
        let us = std::env::current_exe().unwrap();
        let ran =
            Command::new("unshare").args(["--pid", "--fork"]).arg(us).args(["--exact", inside]).output();
        match ran {
            Ok(ran) if String::from_utf8_lossy(&ran.stderr).contains("unshare") => {
                println!("skipped: no process namespace of its own is permitted here");
            }
            Ok(ran) => assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout)),
            Err(error) => println!("skipped: unshare: {error}"),
        }
    }

    #[test]
    fn a_function_tells_of_each_call_once() {
        let _alone = alone();
        for (file, mut events) in ATTACHMENTS.into_iter().filter_map(heard) {
            if events.attachment() == Attachment::Programs {
                continue;
            }
            let ino = file.as_file().metadata().unwrap().ino();
            let from = format!("if={}", file.path().display());
            let read =
                Command::new("dd").arg(from).args(["of=/dev/null", "bs=64k"]).stderr(Stdio::null()).status();
            assert!(read.unwrap().success());
            let all =
                until(&mut events, ino, |of| of.iter().any(|e| e.taken == Taken::Read && e.last == 255));
            let reads: Vec<(u64, u64)> =
                all.iter().filter(|e| e.taken == Taken::Read).map(|e| (e.first, e.last)).collect();
            let expected: Vec<(u64, u64)> = (0..16).map(|i| (i * 16, i * 16 + 15)).collect();
            // The call at the end of the file, of which the program learns so, comes behind it.
            assert_eq!(reads[..16], expected[..], "{reads:?}");
        }
    }

    #[test]
    fn a_file_that_is_sent_or_mapped_is_heard() {
        let _alone = alone();
        for (file, mut events) in ATTACHMENTS.into_iter().filter_map(heard) {
            let (to, from) = std::os::unix::net::UnixStream::pair().unwrap();
            let sent = rustix::fs::sendfile(&to, file.as_file(), None, 64 << 10).unwrap();
            assert!(sent > 0 && events.drain(&mut Vec::new()).own > 0);
            drop(from);
            // The interpreter maps it and touches each page.
            let ino = file.as_file().metadata().unwrap().ino();
            let script = "import sys,mmap\nf=open(sys.argv[1],'rb')\n\
                          m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\n\
                          for i in range(0,1048576,4096):\n m[i]\n";
            let Ok(mapped) = Command::new("python3").args(["-c", script]).arg(file.path()).status() else {
                println!("skipped in part: there is no python3");
                continue;
            };
            assert!(mapped.success());
            until(&mut events, ino, |of| of.iter().any(|e| e.taken == Taken::Mapped && e.last == 255));
        }
    }

    #[test]
    fn pages_that_are_brought_in_are_told_of_before_they_are_taken() {
        let _alone = alone();
        for (file, mut events) in ATTACHMENTS.into_iter().filter_map(heard) {
            let ino = file.as_file().metadata().unwrap().ino();
            file.as_file().sync_all().unwrap();
            rustix::fs::fadvise(file.as_file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
            let from = format!("if={}", file.path().display());
            let read =
                Command::new("dd").arg(from).args(["of=/dev/null", "bs=256k"]).stderr(Stdio::null()).status();
            assert!(read.unwrap().success());
            let heard =
                until(&mut events, ino, |of| of.iter().any(|e| e.taken == Taken::Read && e.first == 192));
            let added: Vec<u64> = heard.iter().filter(|e| e.taken == Taken::Added).map(|e| e.first).collect();
            // Evicted pages are brought in, unless the pages of a file just written could not be evicted.
            assert!(added.iter().all(|page| page % 16 == 0), "{added:?}");
            // A function is entered before its pages are there.
            let before = usize::from(events.attachment() != Attachment::Programs);
            if let (Some(Taken::Added), Some(first)) = (heard.get(before).map(|e| e.taken), added.first()) {
                assert_eq!(*first, 0);
            } else {
                println!("skipped: the pages stay in memory");
            }
        }
    }

    #[test]
    fn our_own_reads_are_left_out_and_counted() {
        let _alone = alone();
        for (file, mut events) in ATTACHMENTS.into_iter().filter_map(heard) {
            let ino = file.as_file().metadata().unwrap().ino();
            std::io::copy(&mut File::open(file.path()).unwrap(), &mut std::io::sink()).unwrap();
            let mut all = Vec::new();
            let drained = events.drain(&mut all);
            assert!(drained.own > 0 && all.iter().all(|e| e.ino != ino), "{drained:?}");
        }
    }

    #[test]
    fn what_finds_its_ring_full_is_counted() {
        let _alone = alone();
        use std::os::unix::fs::FileExt;
        for (file, mut events) in ATTACHMENTS.into_iter().filter_map(heard) {
            // Twice what fits into the ring.
            let reads = 25_000 * crate::perf::processors().min(16) as u64 * 2;
            for i in 0..reads {
                file.as_file().read_exact_at(&mut [0u8; 1], i % 4 * 4096).unwrap();
            }
            let (mut heard, end) = (Drained::default(), Instant::now() + Duration::from_secs(20));
            while heard.lost == 0 {
                assert!(Instant::now() < end, "nothing is lost of {reads}: {heard:?}");
                let drained = events.drain(&mut Vec::new());
                heard = Drained { own: heard.own + drained.own, lost: heard.lost + drained.lost };
            }
            assert!(heard.own + heard.lost >= reads, "{heard:?} of {reads}");
        }
    }

    #[test]
    fn a_device_that_is_not_asked_for_is_not_heard() {
        let _alone = alone();
        for attachment in ATTACHMENTS {
            let Some((file, _)) = heard(attachment) else { continue };
            let Ok(mut elsewhere) = CacheEvents::open_by(attachment, &[(4095, 1)]) else { continue };
            std::io::copy(&mut File::open(file.path()).unwrap(), &mut std::io::sink()).unwrap();
            let mut all = Vec::new();
            assert_eq!((elsewhere.drain(&mut all), all.len()), (Drained::default(), 0));
        }
    }
}
