//! The kernel's own read-ahead, recorded live on a disk of `seekless-lab vdisk`, against the simulator's,
//! read by read.
//!
//! After each read of a pattern the page cache is asked which pages have come in (`cachestat`): that is what
//! the kernel decided to read. The model (`sim::serving::readahead`) is given the same reads and has to bring
//! in the same pages. After each pattern the disk's own trace has to show just these pages, each once. Needs
//! root, FUSE, loop devices and a kernel of the kind the model is of (6.18); says so and passes otherwise.

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::disk::Disk;
use seekless_kernel::{extents, residency};
use seekless_sim::serving::cache::{PAGE, PageCache, Replacement};
use seekless_sim::serving::readahead::{Bounds, OnDemand, Window};

const FILE_BYTES: u64 = 64 << 20;
const FILE_PAGES: u64 = FILE_BYTES / PAGE;
const K: u64 = 1024;
const M: u64 = K * K;

/// Read `(open file, offset, length)`: readers of one number share what the kernel remembers of them.
type Read = (usize, u64, u64);

struct Pattern {
    name: &'static str,
    reads: Vec<Read>,
    /// By `sendfile`, which takes what a pipe holds at a time, instead of `pread`.
    sent: bool,
    /// Reads that may differ. Not zero only where two readers share what the kernel remembers of an open
    /// file.
    differ_max: usize,
}

fn run(name: &'static str, from: u64, step: u64, len: u64, count: u64) -> Pattern {
    Pattern {
        name,
        reads: (0..count).map(|i| (0, from + i * step, len)).collect(),
        sent: false,
        differ_max: 0,
    }
}

fn random(name: &'static str, len: u64, count: u64) -> Pattern {
    let mut draw = seekless_model::workload::draw::Draw::new(1, name);
    let reads = (0..count).map(|_| (0, draw.below(FILE_PAGES - len / PAGE) * PAGE, len)).collect();
    Pattern { name, reads, sent: false, differ_max: 0 }
}

fn patterns() -> Vec<Pattern> {
    // Two readers at the start and at 30 MiB, turn by turn, with a state each or sharing one.
    let two = |name, len, count, shared: bool, differ_max| Pattern {
        name,
        reads: (0..count)
            .map(|i| (if shared { 0 } else { i as usize % 2 }, i % 2 * 30 * M + i / 2 * len, len))
            .collect(),
        sent: false,
        differ_max,
    };
    // A server that opens the file anew for each piece.
    let anew = |name, from: u64, len, count, differ_max| Pattern {
        name,
        reads: (0..count).map(|i| (i as usize, from + i * len, len)).collect(),
        sent: false,
        differ_max,
    };
    let sent = |pattern| Pattern { sent: true, ..pattern };
    let backward = |name, len, count: u64| Pattern {
        name,
        reads: (1..count).map(|i| (0, 40 * M - i * len, len)).collect(),
        sent: false,
        differ_max: 0,
    };
    vec![
        run("sequential 4K", 0, 4 * K, 4 * K, 200),
        run("sequential 64K", 0, 64 * K, 64 * K, 100),
        run("sequential 512K", 0, 512 * K, 512 * K, 40),
        run("sequential 8M", 0, 8 * M, 8 * M, 4),
        run("sequential from the middle, 4K", 20 * M, 4 * K, 4 * K, 200),
        run("sequential from the middle, 64K", 20 * M, 64 * K, 64 * K, 100),
        run("unaligned", 0, 10_000, 10_000, 150),
        run("every second page", 0, 8 * K, 4 * K, 100),
        run("strided 4K of 64K", 0, 64 * K, 4 * K, 100),
        run("strided 16K of 128K", 0, 128 * K, 16 * K, 100),
        random("random 4K", 4 * K, 100),
        random("random 64K", 64 * K, 100),
        backward("backward 4K", 4 * K, 100),
        backward("backward 64K", 64 * K, 100),
        run("the end of the file", FILE_BYTES - 512 * K, 64 * K, 64 * K, 8),
        two("two readers, 64K", 64 * K, 100, false, 0),
        two("two readers in one open file, 4K", 4 * K, 150, true, 2),
        two("two readers in one open file, 64K", 64 * K, 100, true, 0),
        anew("opened anew, 64K", 0, 64 * K, 60, 0),
        anew("opened anew from the middle, 512K", 10 * M, 512 * K, 30, 0),
        sent(run("sent, 512K", 0, 512 * K, 512 * K, 40)),
        sent(anew("sent, opened anew, 512K", 0, 512 * K, 60, 0)),
        sent(anew("sent, opened anew from the middle, 512K", 10 * M, 512 * K, 60, 0)),
    ]
}

/// What `sendfile`'s pipe holds.
const PIPE_BYTES: u64 = 64 * K;

/// Sends bytes of the file into the void; how many.
fn send(file: &File, offset: u64, len: u64, to: &File) -> u64 {
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let left = (end - at) as usize;
        if rustix::fs::sendfile(to, file, Some(&mut at), left).unwrap() == 0 {
            break;
        }
    }
    at - offset
}

/// The model of one file: its page cache, and what the kernel remembers of each open file.
struct Model {
    cache: PageCache,
    readers: Vec<OnDemand>,
    bounds: Bounds,
}

impl Model {
    fn new(bounds: Bounds) -> Model {
        let cache = PageCache::new(Replacement::Lru, 2 * FILE_BYTES, [FILE_BYTES].into_iter());
        Model { cache, readers: vec![OnDemand::default(); 200], bounds }
    }

    fn bring(&mut self, window: Window) {
        let to = (window.start + window.pages).min(FILE_PAGES);
        let mark = window.mark.filter(|m| self.cache.first_absent(0, m.start, m.start + 1) == m.start);
        self.cache.insert(0, window.start, to, false);
        self.cache.ready(0, window.start, to);
        if let Some(mark) = mark.filter(|m| m.start < to) {
            self.cache.mark(0, mark);
        }
    }

    /// One read, as `filemap_read` looks through its pages.
    fn read(&mut self, (reader, offset, len): Read) {
        let end = (offset + len).min(FILE_BYTES);
        let last = end.div_ceil(PAGE);
        let mut page = offset / PAGE;
        loop {
            let stop = self.cache.first_absent(0, page, last);
            if let Some(marked) = self.cache.first_marked(0, page, stop.min(last)) {
                let mark = self.cache.take_mark(0, marked);
                let asked = last.saturating_sub(mark.start);
                let window = self.readers[reader].reached(&self.cache, 0, mark, asked, self.bounds);
                window.into_iter().for_each(|w| self.bring(w));
                page = marked;
                continue;
            }
            if stop >= last {
                break;
            }
            let window = self.readers[reader].missing(&self.cache, 0, stop, last - stop, self.bounds);
            self.bring(window);
            page = stop;
        }
        self.readers[reader].read_upto(end);
    }

    fn pages(&self) -> BTreeSet<u64> {
        (0..FILE_PAGES).filter(|&p| self.cache.first_present(0, p, p + 1) == p).collect()
    }
}

/// Pages of a file that are in the cache or on their way to it.
fn resident(file: &File, from: u64, to: u64, pages: &mut BTreeSet<u64>) {
    let count = residency::cachestat(file.as_fd(), from * PAGE, (to - from) * PAGE).unwrap().cached;
    if count == to - from {
        pages.extend(from..to);
    } else if count > 0 {
        let middle = from.midpoint(to);
        resident(file, from, middle, pages);
        resident(file, middle, to, pages);
    }
}

fn cached(file: &File) -> BTreeSet<u64> {
    let mut pages = BTreeSet::new();
    resident(file, 0, FILE_PAGES, &mut pages);
    pages
}

/// The same behind `before`. A page may be missing for a moment; counted as one that comes in again, it would
/// be one the disk was not asked for (256 KiB of 435 MiB, on a machine busy with builds).
fn cached_since(file: &File, before: &BTreeSet<u64>) -> BTreeSet<u64> {
    for _ in 0..20 {
        let now = cached(file);
        if before.is_subset(&now) {
            return now;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Evicted, then.
    cached(file)
}

/// Empties the cache of the file; pages still on their way need another try.
fn forget(file: &File) {
    for _ in 0..200 {
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if cached(file).is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the page cache keeps the file");
}

/// Runs of pages, for a message.
fn runs(pages: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some((_, end)) if *end == page => *end += 1,
            _ => runs.push((page, page + 1)),
        }
    }
    runs
}

/// A disk with one file; `None`, with a word, where there can be none.
fn disk() -> Option<Disk> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if !release.starts_with("6.18") {
        println!("skipped: the model is of Linux 6.18, this is {release}");
        return None;
    }
    Disk::up(&[("film.mp4", FILE_BYTES)])
}

fn max_sectors_kb(queue: &str) -> u64 {
    fs::read_to_string(format!("{queue}/max_sectors_kb")).unwrap().trim().parse().unwrap()
}

/// What the disk was asked for, read as it grows.
struct Trace(BufReader<File>);

impl Trace {
    /// From the next command on.
    fn behind_now(disk: &Disk) -> Trace {
        disk.flush();
        let mut file = File::open(disk.trace()).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        Trace(BufReader::new(file))
    }

    /// Those of these sectors that were read since the last look, in rising order.
    fn read(&mut self, disk: &Disk, of: &BTreeSet<u64>) -> Vec<u64> {
        disk.flush();
        let mut asked = Vec::new();
        for line in self.0.by_ref().lines() {
            let line = line.unwrap();
            let fields: Vec<&str> = line.split(',').collect();
            let (first, sectors): (u64, u64) = (fields[7].parse().unwrap(), fields[3].parse().unwrap());
            let read = fields[1] == "R";
            asked.extend((first..first + sectors).filter(|s| read && of.contains(s)));
        }
        asked.sort_unstable();
        asked
    }
}

/// Reads a pattern with the kernel and the model side by side: the pages that came in, and the reads in which
/// they differ.
fn recorded(
    pattern: &Pattern,
    bounds: Bounds,
    (path, film): (&Path, &File),
    nowhere: &File,
) -> (Vec<u64>, Vec<String>) {
    let mut model = Model::new(bounds);
    let mut open: Vec<Option<File>> = Vec::new();
    let (mut came, mut differ) = (Vec::new(), Vec::new());
    let (mut before, mut model_before) = (BTreeSet::new(), BTreeSet::new());
    for (i, &(reader, offset, len)) in pattern.reads.iter().enumerate() {
        open.resize_with(open.len().max(reader + 1), || None);
        let file = open[reader].get_or_insert_with(|| File::open(path).unwrap());
        // What was paged out since (see below) comes in anew if it is read again.
        let there = cached(film);
        for &page in before.difference(&there) {
            model.cache.drop_range(0, page, page + 1);
        }
        before.retain(|page| there.contains(page));
        model_before.clone_from(&before);
        let taken = match pattern.sent {
            true => send(file, offset, len, nowhere),
            false => file.read_at(&mut vec![0; len as usize], offset).unwrap() as u64,
        };
        assert_eq!(taken, len.min(FILE_BYTES - offset));
        let step = if pattern.sent { PIPE_BYTES } else { len };
        (0..len.div_ceil(step)).for_each(|i| model.read((reader, offset + i * step, step)));
        let (now, model_now) = (cached_since(film, &before), model.pages());
        let theirs = runs(now.difference(&before).copied());
        let ours = runs(model_now.difference(&model_before).copied());
        came.extend(now.difference(&before));
        if theirs != ours {
            differ.push(format!("read {i} at page {}: kernel {theirs:?}, model {ours:?}", offset / PAGE));
            // From here on both start from what is really there.
            for &page in now.difference(&model_now) {
                model.cache.insert(0, page, page + 1, false);
                model.cache.ready(0, page, page + 1);
            }
            for &page in model_now.difference(&now) {
                model.cache.drop_range(0, page, page + 1);
            }
        }
        (before, model_before) = (now.clone(), now);
    }
    (came, differ)
}

#[test]
fn the_model_reads_what_the_kernel_reads() {
    let Some(disk) = disk() else { return };
    let queue = format!("/sys/block/loop{}/queue", disk.loop_number);
    let path = disk.mount().join("film.mp4");
    let film = File::open(&path).unwrap();
    let map = extents::extents(&film, 0).unwrap();
    let address = |page: u64| {
        map.address_of(page * PAGE).expect("the first extents are all of a fresh disk's file") / PAGE
    };
    let nowhere = File::options().write(true).open("/dev/null").unwrap();
    // By sector: the disk may be spread over the drive in pieces that cut a page in two.
    let sectors_per_page = PAGE / 512;
    let sectors = |pages: &mut dyn Iterator<Item = u64>| -> Vec<u64> {
        let mut sectors: Vec<u64> =
            pages.map(address).flat_map(|p| p * sectors_per_page..(p + 1) * sectors_per_page).collect();
        sectors.sort_unstable();
        sectors
    };
    let of_the_film: BTreeSet<u64> = sectors(&mut (0..FILE_PAGES)).into_iter().collect();
    forget(&film);
    let mut trace = Trace::behind_now(&disk);
    let (mut wrong, mut again) = (Vec::new(), 0);
    for read_ahead_kb in [128, 2048] {
        fs::write(format!("{queue}/read_ahead_kb"), read_ahead_kb.to_string()).unwrap();
        let page_kb = PAGE / K;
        let bounds =
            Bounds { read_ahead: read_ahead_kb / page_kb, request: max_sectors_kb(&queue) / page_kb };
        for pattern in patterns() {
            // A kernel may page out what it takes for cold, of any file at any time (DAMON): a page that goes
            // before it was looked for is one that never came, and one that goes before it is read again
            // comes twice. What differs is read twice more.
            for attempt in 1..=3 {
                let (came, mut differ) = recorded(&pattern, bounds, (&path, &film), &nowhere);
                forget(&film);
                let fits_the_model = differ.len() <= pattern.differ_max;
                // The disk was asked for these pages, each once, and for no others of the file.
                let asked = trace.read(&disk, &of_the_film);
                let came = sectors(&mut came.into_iter());
                let fits_the_disk = asked == came;
                println!(
                    "{read_ahead_kb} KiB, {}: {} of {} reads differ, {} sectors came in, {} were asked for",
                    pattern.name,
                    differ.len(),
                    pattern.reads.len(),
                    came.len(),
                    asked.len()
                );
                differ.iter().for_each(|d| println!("    {d}"));
                if fits_the_model && fits_the_disk {
                    again += usize::from(attempt > 1);
                    break;
                }
                if attempt == 3 {
                    differ.truncate(3);
                    if !fits_the_disk {
                        differ.push(format!(
                            "{} sectors came in, {} were asked for",
                            came.len(),
                            asked.len()
                        ));
                    }
                    wrong.push(format!("{read_ahead_kb} KiB, {}: {differ:#?}", pattern.name));
                }
            }
        }
    }
    let lines = wrong.join("\n");
    assert!(wrong.is_empty(), "{lines}");
    // A pager takes a page in one pattern of fifty.
    assert!(again <= 8, "{again} patterns had to be read again");
}
