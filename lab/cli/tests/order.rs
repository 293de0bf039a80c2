//! `seekless order` and `seekless cat-set` on a disk of `seekless-lab vdisk`: addresses rise, and so do the
//! disk's own reads.
//!
//! Needs root, FUSE and loop devices; says so and passes otherwise.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use common::SEEKLESS;
use common::disk::Disk;
use seekless_kernel::extents::extents;
use seekless_kernel::residency::{mincore, page_bytes};

const FILES: usize = 300;

/// Files that are read together at most (`crates/order/src/ahead.rs`), and the one that is added.
const UNDER_WAY_MAX: usize = 65;

/// Addresses of a file's bytes on the disk, in sectors: first and past the last.
fn sectors(path: &Path) -> (u64, u64) {
    let file = File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    let map = extents(&file, 0).unwrap();
    let first = map.address_of(0).unwrap();
    assert_eq!(map.address_of(bytes - 1), Some(first + bytes - 1), "one extent");
    (first / 512, (first + bytes).div_ceil(512))
}

fn pages_in_memory(path: &Path) -> (u64, u64) {
    let file = File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    let mut there = 0;
    mincore(file.as_fd(), 0, bytes, |_, resident| {
        there += u64::from(resident);
        true
    })
    .unwrap();
    (there, bytes.div_ceil(page_bytes()))
}

/// How often these addresses fall.
fn turns_back(addresses: &[u64]) -> usize {
    addresses.windows(2).filter(|pair| pair[1] < pair[0]).count()
}

#[test]
fn the_disk_reads_in_one_sweep_what_the_list_has_in_no_order() {
    let names: Vec<String> = (0..FILES).map(|i| format!("d{}/f{i:03}", i * 7 % 5)).collect();
    let files: Vec<(&str, u64)> = names
        .iter()
        .enumerate()
        .map(|(i, name)| (name.as_str(), 4_096 + (i as u64 * 7_919) % 60_000))
        .collect();
    let Some(disk) = Disk::up(&files) else { return };
    let path = |name: &str| disk.mount().join(name);
    // No order of the disk's: every 113th, round and round.
    let list: Vec<&String> = (0..FILES).map(|i| &names[i * 113 % FILES]).collect();
    let given: Vec<u64> = list.iter().map(|name| sectors(&path(name)).0).collect();
    assert!(turns_back(&given) > FILES / 10, "the list was in order already");
    let places: Vec<(u64, u64)> = names.iter().map(|name| sectors(&path(name))).collect();
    let sectors_of = |lba: u64| places.iter().any(|(first, end)| (*first..*end).contains(&lba));
    names.iter().for_each(|name| common::forget(&path(name)));
    let mut trace = end_of_trace(&disk);

    let mut order = Command::new(&*SEEKLESS)
        .args(["order", "-0", "--ahead", "64MiB"])
        .current_dir(disk.mount())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = order.stdin.take().unwrap();
    list.iter().for_each(|name| write!(stdin, "{name}\0").unwrap());
    drop(stdin);
    let out = order.wait_with_output().unwrap();
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    let ordered: Vec<&str> = text.strip_suffix('\0').unwrap().split('\0').collect();

    let addresses: Vec<u64> = ordered.iter().map(|name| sectors(&path(name)).0).collect();
    assert_eq!(turns_back(&addresses), 0, "addresses rise");
    let (mut a, mut b) = (ordered, names.iter().map(String::as_str).collect::<Vec<_>>());
    a.sort_unstable();
    b.sort_unstable();
    assert_eq!(a, b);
    // A pager of idle memory may have taken a page of a few out again.
    let whole = names.iter().map(|name| pages_in_memory(&path(name))).filter(|(there, all)| there == all);
    assert!(whole.count() > FILES * 9 / 10, "brought into memory");

    disk.flush();
    one_sweep(&mut trace, sectors_of);

    names.iter().for_each(|name| common::forget(&path(name)));
    let mut trace = end_of_trace(&disk);
    let mut cat = Command::new(&*SEEKLESS)
        .args(["cat-set", "-0", "--ahead", "64MiB"])
        .current_dir(disk.mount())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = cat.stdin.take().unwrap();
    list.iter().for_each(|name| write!(stdin, "{name}\0").unwrap());
    drop(stdin);
    let bytes = cat.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
    assert!(cat.wait().unwrap().success());
    assert!(bytes > files.iter().map(|file| file.1 as usize).sum(), "contents and headers");
    disk.flush();
    one_sweep(&mut trace, sectors_of);
}

/// The disk's trace, behind what it has by now.
fn end_of_trace(disk: &Disk) -> File {
    disk.flush();
    let mut trace = File::open(disk.trace()).unwrap();
    trace.seek(SeekFrom::End(0)).unwrap();
    trace
}

/// The reads of the files are one sweep.
fn one_sweep(trace: &mut File, ours: impl Fn(u64) -> bool) {
    let mut reads = Vec::new();
    for line in BufReader::new(trace).lines().map(Result::unwrap) {
        let fields: Vec<&str> = line.split(',').collect();
        let lba: u64 = fields[7].parse().unwrap();
        if fields[1] == "R" && ours(lba) {
            reads.push(lba);
        }
    }
    assert!(reads.len() > FILES / 50, "{} reads of the files", reads.len());
    // The drive swaps what is in its queue together, and no more: none is out of its turn by more than that.
    let mut rising = reads.clone();
    rising.sort_unstable();
    for (turn, lba) in reads.iter().enumerate() {
        let rank = rising.partition_point(|other| other < lba);
        assert!(rank.abs_diff(turn) <= UNDER_WAY_MAX, "read {turn} is number {rank} on the disk");
    }
}
