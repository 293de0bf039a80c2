//! Pages held until their reader comes: on real files, asked to go.
#![cfg(feature = "full")]

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use rustix::fs::Advice;
use seekless_kernel::hold::Hold;
use seekless_kernel::residency::{cachestat, page_bytes};

const MIB: u64 = 1 << 20;

/// An unnamed file on the build folder's file system, in memory and clean.
fn warm_file(bytes: u64) -> File {
    let dir = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let mut file = tempfile::tempfile_in(dir).unwrap();
    file.write_all(&vec![0x5a; bytes as usize]).unwrap();
    file.sync_all().unwrap();
    file
}

/// Asks for all of it to go; the bytes of each MiB that stay. `None` where pages cannot be evicted or counted (tmpfs).
fn what_stays(file: &File, mib: u64) -> Option<Vec<u64>> {
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
    let cached = |at| Some(cachestat(file.as_fd(), at * MIB, MIB).ok()?.cached * page_bytes());
    (0..mib).map(cached).collect()
}

#[test]
fn what_is_held_stays_and_what_is_let_go_goes() {
    let file = warm_file(4 * MIB);
    let mut hold = Hold::new(file.as_fd(), MIB, 2 * MIB).unwrap();
    let stays = what_stays(&file, 4);
    if stays.is_none() || stays == Some(vec![MIB; 4]) {
        println!("skipped: pages cannot be evicted or counted here");
        return;
    }
    assert_eq!(stays, Some(vec![0, MIB, MIB, 0]));
    hold.release_before(MIB);
    hold.release_before(2 * MIB + 1);
    assert_eq!((hold.offset(), hold.end()), (2 * MIB, 3 * MIB));
    assert_eq!(what_stays(&file, 4), Some(vec![0, 0, MIB, 0]));
    hold.release_before(MIB);
    assert_eq!(what_stays(&file, 4), Some(vec![0, 0, MIB, 0]), "nothing twice");
    drop(hold);
    assert_eq!(what_stays(&file, 4), Some(vec![0; 4]));
}

#[test]
fn whole_pages_are_held_up_to_the_end_of_the_file_and_no_further() {
    let file = warm_file(MIB + 100);
    let hold = Hold::new(file.as_fd(), MIB - 1, 101).unwrap();
    assert_eq!((hold.offset(), hold.end()), (MIB - page_bytes(), MIB + page_bytes()));
    assert!(Hold::new(file.as_fd(), 2 * MIB, 1).is_err(), "beyond the end");
    assert!(Hold::new(file.as_fd(), 0, 0).is_err(), "nothing");
}

#[test]
fn a_file_cut_short_under_it_does_no_harm() {
    let file = warm_file(2 * MIB);
    let mut hold = Hold::new(file.as_fd(), 0, 2 * MIB).unwrap();
    file.set_len(page_bytes()).unwrap();
    hold.release_before(MIB);
    drop(hold);
    assert!(Hold::new(file.as_fd(), 0, 2 * MIB).is_err());
}
