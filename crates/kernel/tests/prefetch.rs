//! Real files, actually evicted and brought back.

use std::fs::File;
use std::io::Write;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use seekless_kernel::prefetch::{Source, Steps, bring_in};
use seekless_kernel::residency::cachestat;

const STEPS: Steps = Steps { submit: 1 << 20, report: 256 << 10 };

/// An unnamed file on the build folder's file system, evicted; `None` where pages cannot be evicted (tmpfs).
fn cold_file(bytes: usize) -> Option<File> {
    let dir = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let mut file = tempfile::tempfile_in(dir).unwrap();
    file.write_all(&vec![0x5a; bytes]).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    match cached(&file, 0, bytes as u64) {
        Some(0) => Some(file),
        other => {
            println!("skipped: pages cannot be evicted or counted here ({other:?} cached)");
            None
        }
    }
}

/// Bytes of the range that have been brought into memory, in whole pages. Pages evicted since by a pager of
/// idle memory (DAMON) count: the kernel remembers them, but not those that the tests drop themselves.
fn cached(file: &File, offset: u64, len: u64) -> Option<u64> {
    let stat = cachestat(file.as_fd(), offset, len).ok()?;
    Some((stat.cached + stat.evicted) * 4096)
}

fn source(file: &File) -> Source {
    Source::reopen(file.as_fd()).unwrap().unwrap()
}

#[test]
fn a_range_longer_than_the_kernels_cut_becomes_resident_and_nothing_else() {
    let Some(file) = cold_file(16 << 20) else { return };
    let source = source(&file);
    assert!(source.is_own());
    let mut reports = Vec::new();
    // A step far above any real cut: pages that the kernel cuts off must be noticed and requested again.
    let steps = Steps { submit: 6 << 20, report: 512 << 10 };
    let brought = bring_in(&source, 4 << 20, 6 << 20, steps, |upto| reports.push(upto)).unwrap();
    assert_eq!(brought.lost, 0);
    assert_eq!(cached(&file, 4 << 20, 6 << 20), Some(6 << 20));
    assert_eq!(cached(&file, 0, 4 << 20), Some(0), "nothing before it");
    assert_eq!(cached(&file, 10 << 20, 6 << 20), Some(0), "no read-ahead of the kernel's own after it");
    let expected: Vec<u64> = (1..=12).map(|i| (4 << 20) + i * (512 << 10)).collect();
    assert_eq!(reports, expected);
}

#[test]
fn each_report_comes_when_its_bytes_are_there() {
    let Some(file) = cold_file(8 << 20) else { return };
    let source = source(&file);
    bring_in(&source, 0, 8 << 20, STEPS, |upto| assert_eq!(cached(&file, 0, upto), Some(upto))).unwrap();
}

/// rclone and Swift drop what they have read, and may be far ahead of the wait.
#[test]
fn what_leaves_memory_before_its_turn_is_not_read_again() {
    let Some(file) = cold_file(8 << 20) else { return };
    let resident = |offset, len| cachestat(file.as_fd(), offset, len).unwrap().cached * 4096;
    let (mut upto, mut dropped) = (0, false);
    let brought = bring_in(&source(&file), 0, 8 << 20, STEPS, |step| {
        // When the first step has arrived, the second half is dropped. A page in flight stays.
        let till = Instant::now() + Duration::from_secs(10);
        while !dropped && resident(4 << 20, 4 << 20) > 0 && Instant::now() < till {
            let length = NonZeroU64::new(4 << 20);
            rustix::fs::fadvise(&file, 4 << 20, length, Advice::DontNeed).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        dropped = true;
        upto = step;
    })
    .unwrap();
    assert!(upto == 8 << 20 && brought.lost >= (4 << 20) / 4096, "{brought:?}");
    assert_eq!((cached(&file, 0, 4 << 20), resident(4 << 20, 4 << 20)), (Some(4 << 20), 0));
}

#[test]
fn the_end_of_the_file_ends_the_wait() {
    let Some(file) = cold_file(100_001) else { return };
    bring_in(&source(&file), 0, 8 << 20, STEPS, |_| {}).unwrap();
    assert_eq!(cached(&file, 0, 100_001), Some(25 * 4096));
    bring_in(&source(&file), 1 << 30, 4096, STEPS, |_| {}).unwrap();
    bring_in(&source(&file), 0, 0, STEPS, |_| panic!("nothing to report")).unwrap();
}

#[test]
fn what_cannot_be_read_is_an_error_not_a_hang() {
    let dir = File::open("/proc").unwrap();
    let error = bring_in(&source(&dir), 0, 4096, STEPS, |_| {}).unwrap_err();
    assert!(error.to_string().contains("offset 0"), "{error}");
}

/// A lease lets its holder delay others' opens of a file, up to 45 seconds, in which the disk's reader would
/// do nothing else.
#[test]
#[allow(unsafe_code)]
fn a_leased_file_is_not_waited_for() {
    use std::os::fd::AsRawFd;
    let Some(file) = cold_file(1 << 20) else { return };
    // The holder gets a signal that is ignored by default; the usual one for leases ends a process.
    const F_SETSIG: i32 = 10;
    // SAFETY: plain calls on our own descriptor, which read and write no memory.
    let leased = unsafe {
        libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG);
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
    };
    if leased != 0 {
        return println!("skipped: no leases here ({})", std::io::Error::last_os_error());
    }
    // The passed descriptor shares its struct file with the holder's, so the lease stays.
    let passed = file.try_clone().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let refused = Source::reopen(passed.as_fd());
        assert!(refused.is_err(), "{refused:?}");
        let source = Source::passed(OwnedFd::from(passed));
        bring_in(&source, 0, 1 << 20, STEPS, |_| ()).unwrap();
        let _ = tell.send(());
    });
    let came = told.recv_timeout(std::time::Duration::from_secs(10));
    // SAFETY: as above.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    came.expect("the holder of a lease holds up the disk");
    assert_eq!(cached(&file, 0, 1 << 20), Some(1 << 20));
}
