//! Pages held until their reader reads them: on real files, under requests to evict them.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::Advice;
use seekless_kernel::hold::Hold;
use seekless_kernel::prefetch::{Source, Steps, bring_in};
use seekless_kernel::residency::{cachestat, page_bytes};

const MIB: u64 = 1 << 20;

/// Folios in the page cache are at most this large on x86; a folio that is held in part stays whole.
const UNIT: u64 = 2 * MIB;

/// An unnamed file on the build folder's file system, in memory and clean.
fn warm_file(bytes: u64) -> File {
    let dir = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let mut file = tempfile::tempfile_in(dir).unwrap();
    file.write_all(&vec![0x5a; bytes as usize]).unwrap();
    file.sync_all().unwrap();
    file
}

/// Requests the eviction of all of it, and returns the bytes of each unit that stay. `None` if pages cannot
/// be evicted or counted (tmpfs, overlays).
fn what_stays(file: &File, units: u64) -> Option<Vec<u64>> {
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
    let cached = |at| Some(cachestat(file.as_fd(), at * UNIT, UNIT).ok()?.cached * page_bytes());
    (0..units).map(cached).collect()
}

/// Whether all of it counts as in memory, and may be held.
fn holdable(file: &File, units: u64) -> bool {
    let counted =
        cachestat(file.as_fd(), 0, units * UNIT).is_ok_and(|stat| stat.cached * page_bytes() == units * UNIT);
    let held = counted && Hold::new(file.as_fd(), 0, 1).is_ok();
    if !held {
        println!(
            "skipped: pages cannot be counted or held here (a file system in layers, or Linux before 5.14)"
        );
    }
    held
}

#[test]
fn what_is_held_stays_and_what_is_let_go_goes() {
    let file = warm_file(4 * UNIT);
    if !holdable(&file, 4) {
        return;
    }
    let mut hold = Hold::new(file.as_fd(), UNIT, 2 * UNIT).unwrap();
    let stays = what_stays(&file, 4);
    if stays == Some(vec![UNIT; 4]) {
        println!("skipped: pages cannot be evicted here");
        return;
    }
    assert_eq!(stays, Some(vec![0, UNIT, UNIT, 0]));
    hold.release_before(UNIT);
    hold.cool_before(2 * UNIT + 1);
    assert_eq!((hold.offset(), hold.end()), (2 * UNIT, 3 * UNIT));
    assert_eq!(what_stays(&file, 4), Some(vec![0, 0, UNIT, 0]));
    hold.release_before(UNIT);
    assert_eq!(what_stays(&file, 4), Some(vec![0, 0, UNIT, 0]), "nothing twice");
    drop(hold);
    assert_eq!(what_stays(&file, 4), Some(vec![0; 4]));
}

#[test]
fn whole_pages_are_held_up_to_the_end_of_the_file_and_no_further() {
    let file = warm_file(UNIT + 100);
    if !holdable(&file, 1) {
        return;
    }
    let hold = Hold::new(file.as_fd(), UNIT - 1, 101).unwrap();
    assert_eq!((hold.offset(), hold.end()), (UNIT - page_bytes(), UNIT + page_bytes()));
    assert!(Hold::new(file.as_fd(), 2 * UNIT, 1).is_err(), "beyond the end");
    assert!(Hold::new(file.as_fd(), 0, 0).is_err(), "nothing");
}

/// Otherwise it would be read a page at a time.
#[test]
fn what_is_not_in_memory_is_not_held() {
    let file = warm_file(4 * UNIT);
    if holdable(&file, 4) && what_stays(&file, 4) == Some(vec![0; 4]) {
        assert_eq!(Hold::new(file.as_fd(), 0, MIB).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(what_stays(&file, 4), Some(vec![0; 4]), "nothing was read");
    }
}

#[test]
fn what_has_left_memory_is_not_renewed() {
    let file = warm_file(2 * UNIT);
    if !holdable(&file, 2) {
        return;
    }
    let hold = Hold::new(file.as_fd(), 0, 2 * UNIT).unwrap();
    hold.renew(file.as_fd()).unwrap();
    // Truncated and extended again, its second half is a hole that was never read.
    file.set_len(UNIT).unwrap();
    hold.renew(file.as_fd()).expect_err("what lies beyond the end cannot be mapped");
    file.set_len(2 * UNIT).unwrap();
    assert_eq!(hold.renew(file.as_fd()).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(cachestat(file.as_fd(), UNIT, UNIT).unwrap().cached, 0, "nothing was read");
}

#[test]
fn a_file_cut_short_under_it_does_no_harm() {
    let file = warm_file(UNIT);
    if !holdable(&file, 1) {
        return;
    }
    let mut hold = Hold::new(file.as_fd(), 0, UNIT).unwrap();
    file.set_len(page_bytes()).unwrap();
    hold.release_before(MIB);
    drop(hold);
    assert!(Hold::new(file.as_fd(), MIB, MIB).is_err());
}

/// A mapped file: its address, and its page frames.
struct Mapped {
    at: *mut core::ffi::c_void,
    frames: Vec<u64>,
}

/// `None` without permission to see the frames (CAP_SYS_ADMIN).
fn mapped(file: &File) -> Option<Mapped> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let inode = file.metadata().unwrap().ino().to_string();
    let line = maps.lines().find(|l| l.split_whitespace().nth(4) == Some(&inode)).expect("it is mapped");
    let (from, upto) = line.split_whitespace().next()?.split_once('-')?;
    let page = |address| Some(u64::from_str_radix(address, 16).ok()? / page_bytes());
    let entries = (page(from)?..page(upto)?).map(|page| entry("/proc/self/pagemap", page));
    let frames: Vec<u64> = entries.map(|entry| Some(entry? & ((1 << 55) - 1))).collect::<Option<_>>()?;
    let at = (page(from)? * page_bytes()) as *mut core::ffi::c_void;
    frames.iter().all(|&frame| frame != 0).then_some(Mapped { at, frames })
}

/// Number of these on the kernel's active list.
fn active(frames: &[u64]) -> Option<usize> {
    const ACTIVE: u64 = 1 << 6;
    let flags: Option<Vec<u64>> = frames.iter().map(|&frame| entry("/proc/kpageflags", frame)).collect();
    Some(flags?.iter().filter(|&&flags| flags & ACTIVE != 0).count())
}

fn entry(table: &str, number: u64) -> Option<u64> {
    let mut entry = [0; 8];
    File::open(table).ok()?.read_exact_at(&mut entry, number * 8).ok()?;
    Some(u64::from_ne_bytes(entry))
}

#[test]
fn what_is_held_is_active_and_what_was_passed_is_cold() {
    if std::fs::read_to_string("/sys/kernel/mm/lru_gen/enabled").is_ok_and(|on| on.trim() != "0x0000") {
        println!("skipped: this kernel has generations instead of an active list");
        return;
    }
    let file = warm_file(2 * UNIT);
    if what_stays(&file, 2) != Some(vec![0; 2]) {
        println!("skipped: pages cannot be evicted here");
        return;
    }
    // As after read-ahead: not touched yet.
    let source = Source::reopen(file.as_fd()).unwrap().unwrap();
    bring_in(&source, 0, 2 * UNIT, Steps { submit: MIB, report: MIB }, |_| {}).unwrap();
    let mut hold = Hold::new(file.as_fd(), 0, 2 * UNIT).unwrap();
    let Some(Mapped { at, frames }) = mapped(&file) else {
        println!("skipped: page frames are root's to see");
        return;
    };
    // The kernel moves pages to the other list in batches, and the first page a moment later.
    assert!(active(&frames).unwrap() > frames.len() / 10 * 9, "{:?} of {}", active(&frames), frames.len());
    // As the kernel does when it needs pages and the active list is the longer one. SAFETY: the mapping of
    // `hold`, whose bytes are not accessed.
    unsafe { rustix::mm::madvise(at, 2 * UNIT as usize, rustix::mm::Advice::LinuxCold) }.unwrap();
    assert!(active(&frames).unwrap() < frames.len() / 10, "{:?} of {}", active(&frames), frames.len());
    hold.renew(file.as_fd()).unwrap();
    assert!(active(&frames).unwrap() > frames.len() / 10 * 9, "{:?} of {}", active(&frames), frames.len());
    hold.cool_before(2 * UNIT);
    assert!(active(&frames).unwrap() < frames.len() / 10, "{:?} of {}", active(&frames), frames.len());
    drop(hold);
    // With any length, and repeatedly; except for a thread that moves to another processor at this very
    // moment.
    for pages in [1, 16, 100, 128, 1000] {
        // Cold pages may have been evicted meanwhile.
        bring_in(&source, 0, 2 * UNIT, Steps { submit: MIB, report: MIB }, |_| {}).unwrap();
        let hold = Hold::new(file.as_fd(), 0, pages * page_bytes()).unwrap();
        let Mapped { frames, .. } = mapped(&file).unwrap();
        let all_active = (0..8).filter(|_| {
            hold.renew(file.as_fd()).unwrap();
            active(&frames).unwrap() == frames.len()
        });
        let times = all_active.count();
        assert!(times >= 6, "{pages} pages, active {times} times of 8");
    }
}
