//! What is predicted of readers of whole files, and what is not.

use std::collections::BTreeSet;

use proptest::prelude::*;
use seekless_base::{FileId, Lba, Nanos};
use seekless_policy::successors::{
    Action, ENTRIES_MAX, Entry, FILES_AHEAD_MAX, FOLDERS_MAX, GAP_MAX, IDLE, LISTED_AFTER, Read, Successors,
    WASTE_PRICE, WINDOW_START, head,
};

const BYTES: u64 = 8 << 10;
const ROOM: u64 = 1 << 30;

/// A driver that does at once what it is told.
struct Driver {
    successors: Successors,
    now: Nanos,
    /// Entries of each folder; the folder's inode is its number.
    folders: Vec<Vec<Entry>>,
    /// In memory, brought in.
    ahead: BTreeSet<(u32, FileId)>,
    listed: usize,
    opened: usize,
    withdrawn: usize,
    /// Most files ahead at once.
    most: usize,
}

/// A number that has nothing to do with `i`.
fn mixed(i: u64) -> u64 {
    let x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

/// Folders of `count` files each whose three orders have nothing to do with one another.
fn folders(folders: u64, count: u64) -> Vec<Vec<Entry>> {
    let folder = |f: u64| {
        let mut by_name: Vec<u64> = (0..count).collect();
        by_name.sort_by_key(|&i| mixed(i + 1_000_000 * f));
        let mut inos: Vec<u64> = (0..count).collect();
        inos.sort_by_key(|&i| mixed(i + 7_000_000 + 1_000_000 * f));
        let entry =
            |i: u64| Entry { ino: 1_000 + f * count + inos[i as usize], by_name: by_name[i as usize] as u32 };
        (0..count).map(entry).collect()
    };
    (0..folders).map(folder).collect()
}

/// Inodes of a folder in the order listed, by name, by inode.
fn in_order(entries: &[Entry], order: usize) -> Vec<u64> {
    let mut entries = entries.to_vec();
    match order {
        0 => {}
        1 => entries.sort_by_key(|e| e.by_name),
        _ => entries.sort_by_key(|e| e.ino),
    }
    entries.iter().map(|e| e.ino).collect()
}

impl Driver {
    fn new(folders: Vec<Vec<Entry>>) -> Driver {
        Driver {
            successors: Successors::new(ROOM),
            now: Nanos::from_secs(1),
            folders,
            ahead: BTreeSet::new(),
            listed: 0,
            opened: 0,
            withdrawn: 0,
            most: 0,
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.successors.poll() {
            match action {
                Action::List { reader, folder } => {
                    self.listed += 1;
                    let entries = self.folders[folder.ino as usize].clone();
                    self.successors.listed(self.now, reader, folder, &entries);
                }
                Action::Open { reader, folder, entry, file } => {
                    assert_eq!(self.folders[folder.ino as usize][entry as usize].ino, file.ino);
                    self.opened += 1;
                    assert!(self.ahead.insert((reader, file)), "asked for twice");
                    self.successors.opened(reader, file, head(BYTES));
                    self.successors.arrived(reader, file);
                }
                Action::Withdraw { reader, file } => {
                    self.withdrawn += 1;
                    assert!(self.ahead.remove(&(reader, file)), "withdrawn without being ahead");
                }
            }
        }
        self.most = self.most.max(self.ahead.len());
        assert_eq!(self.successors.stats().files_now as usize, self.ahead.len());
    }

    /// Reads a file; whether it was ahead.
    fn read(&mut self, reader: u32, folder: usize, ino: u64, whole: bool) -> bool {
        self.now += Nanos::from_millis(1);
        let file = FileId { dev: 1, ino };
        let was = self.ahead.remove(&(reader, file));
        let folder = Some(FileId { dev: 1, ino: folder as u64 });
        self.successors.read(self.now, Read { reader, file, folder, head: true, end: whole, place: None });
        self.act();
        was
    }

    /// Reads every file of a folder by an order; how many were ahead.
    fn read_all(&mut self, folder: usize, order: usize) -> usize {
        let inos = in_order(&self.folders[folder].clone(), order);
        inos.into_iter().filter(|&ino| self.read(1, folder, ino, true)).count()
    }
}

#[test]
fn each_order_is_found_out_and_believed_in_the_next_folder() {
    for order in 0..3 {
        let mut driver = Driver::new(folders(3, 100));
        // The first files teach it.
        let first = driver.read_all(0, order);
        assert!((80..100 - LISTED_AFTER as usize).contains(&first), "order {order}: {first}");
        for folder in 1..3 {
            assert_eq!(driver.read_all(folder, order), 99, "order {order}: all but the first");
        }
        assert_eq!((driver.listed, driver.withdrawn), (3, 0));
        assert_eq!(driver.successors.stats().wasted, 0);
        assert_eq!(driver.successors.stats().bytes_used, driver.opened as u64 * BYTES);
    }
}

#[test]
fn the_window_grows_with_what_is_used() {
    let mut driver = Driver::new(folders(1, 2_000));
    let inos = in_order(&driver.folders[0].clone(), 1);
    for &ino in &inos[..12] {
        driver.read(1, 0, ino, true);
    }
    assert!(driver.most <= 2 * WINDOW_START as usize, "{}", driver.most);
    for &ino in &inos[12..600] {
        driver.read(1, 0, ino, true);
    }
    assert!(driver.most > 300, "{}", driver.most);
}

#[test]
fn four_programs_that_share_out_batches_are_predicted() {
    let mut driver = Driver::new(folders(40, 100));
    let list: Vec<(usize, u64)> =
        (0..40).flat_map(|f| in_order(&driver.folders[f], 0).into_iter().map(move |ino| (f, ino))).collect();
    let mut batches: Vec<&[(usize, u64)]> = list.chunks(64).rev().collect();
    let mut programs: Vec<&[(usize, u64)]> = vec![&[]; 4];
    let (mut ahead, mut turn) = (0, 0);
    loop {
        let program = &mut programs[turn % 4];
        if program.is_empty() {
            match batches.pop() {
                Some(batch) => *program = batch,
                None if programs.iter().all(|p| p.is_empty()) => break,
                None => {
                    turn += 1;
                    continue;
                }
            }
        }
        let program = &mut programs[turn % 4];
        let ((folder, ino), rest) = (program[0], &program[1..]);
        *program = rest;
        ahead += usize::from(driver.read(1, folder, ino, true));
        // They are not in step.
        turn += if mixed(turn as u64).is_multiple_of(5) { 2 } else { 1 };
    }
    assert!(ahead > 4_000 * 8 / 10, "{ahead} of 4,000");
    let stats = driver.successors.stats();
    assert!(stats.wasted * 20 < stats.asked, "{stats:?}");
}

#[test]
fn programs_that_take_a_file_at_a_time_are_predicted() {
    let mut driver = Driver::new(folders(1, 1_000));
    let inos = in_order(&driver.folders[0].clone(), 1);
    let mut ahead = 0;
    for four in inos.chunks(4) {
        for i in [1, 0, 3, 2] {
            ahead += usize::from(driver.read(1, 0, four[i], true));
        }
    }
    assert!(ahead > 900, "{ahead} of 1,000");
}

#[test]
fn reads_at_random_have_nothing_read_ahead() {
    for count in [12, 40, 100, 1_000] {
        let mut driver = Driver::new(folders(1, count));
        for i in 0..4_000 {
            let entry = mixed(i) % count;
            let ino = driver.folders[0][entry as usize].ino;
            driver.read(1, 0, ino, true);
        }
        let stats = driver.successors.stats();
        // By chance some follow one another.
        assert!(stats.asked - stats.used < 4_000 / 50, "{count}: {stats:?}");
    }
}

#[test]
fn who_reads_heads_only_has_nothing_read_ahead() {
    let mut driver = Driver::new(folders(1, 500));
    // Three whole files, so that the folder is listed.
    for (i, ino) in in_order(&driver.folders[0].clone(), 0).into_iter().enumerate() {
        driver.read(1, 0, ino, i < 5);
    }
    assert!(driver.opened < 40, "{}", driver.opened);
}

#[test]
fn a_folder_is_not_listed_for_a_few_files() {
    let mut driver = Driver::new(folders(1, 100));
    let inos = in_order(&driver.folders[0].clone(), 0);
    for &ino in &inos[..LISTED_AFTER as usize - 1] {
        driver.read(1, 0, ino, true);
    }
    assert_eq!(driver.listed, 0);
    driver.read(1, 0, inos[LISTED_AFTER as usize - 1], true);
    assert_eq!(driver.listed, 1);
}

#[test]
fn what_a_reader_leaves_is_withdrawn_and_held_against_it() {
    let mut driver = Driver::new(folders(30, 200));
    let mut asked = Vec::new();
    for folder in 0..30 {
        // It leaves each folder after a while.
        let inos = in_order(&driver.folders[folder].clone(), 0);
        for &ino in &inos[..20] {
            driver.read(1, folder, ino, true);
        }
        driver.now += IDLE + IDLE;
        driver.successors.tick(driver.now);
        driver.act();
        assert!(driver.ahead.is_empty());
        asked.push(driver.opened);
    }
    let stats = driver.successors.stats();
    assert_eq!(stats.wasted as usize, driver.withdrawn);
    let late = asked[29] - asked[19];
    assert!(late < asked[9], "{asked:?}");
    // What it wastes is bounded by what it reads.
    let right = 30 * 20;
    assert!(
        stats.wasted <= (u64::from(WINDOW_START) + right) / u64::from(WASTE_PRICE) + 2 * right / 20,
        "{stats:?}"
    );
}

#[test]
fn no_more_bytes_are_ahead_than_there_is_room_for() {
    let mut driver = Driver::new(folders(1, 2_000));
    driver.successors.room(20 * BYTES);
    driver.read_all(0, 1);
    // The first files are thought to be larger.
    assert!((2..=20).contains(&driver.most), "{}", driver.most);
}

#[test]
fn readers_do_not_teach_one_another() {
    let mut driver = Driver::new(folders(1, 100));
    let inos = in_order(&driver.folders[0].clone(), 0);
    for &ino in &inos[..50] {
        driver.read(1, 0, ino, true);
    }
    let (opened, listed) = (driver.opened, driver.listed);
    assert!(opened > 0);
    driver.read(2, 0, inos[70], true);
    assert_eq!((driver.opened, driver.listed), (opened, listed), "another reader has to show its own");
}

#[test]
fn a_second_time_through_a_folder_is_predicted_again() {
    let mut driver = Driver::new(folders(1, 400));
    driver.read_all(0, 1);
    let again = driver.read_all(0, 1);
    assert!(again > 380, "{again}");
}

#[test]
fn empty_files_and_files_in_memory_do_not_end_a_walk() {
    let mut driver = Driver::new(folders(1, 64 * GAP_MAX as u64));
    let inos = in_order(&driver.folders[0].clone(), 1);
    let read = inos.iter().enumerate().filter(|(i, _)| i % 5 != 3);
    let ahead = read.filter(|&(_, &ino)| driver.read(1, 0, ino, true)).count();
    assert!(ahead > 180, "{ahead}");
}

#[test]
fn a_folder_that_cannot_be_listed_is_left_alone() {
    let mut successors = Successors::new(ROOM);
    let folder = FileId { dev: 1, ino: 1 };
    let mut lists = 0;
    for ino in 100..140 {
        let file = FileId { dev: 1, ino };
        successors.read(
            Nanos(ino),
            Read { reader: 1, file, folder: Some(folder), head: true, end: true, place: None },
        );
        while let Some(action) = successors.poll() {
            assert!(matches!(action, Action::List { .. }));
            lists += 1;
            successors.closed(1, folder);
        }
    }
    assert_eq!(lists, 1);
}

#[test]
fn folders_and_entries_are_bounded() {
    let count = 1_024;
    let mut driver = Driver::new(folders(2 * (ENTRIES_MAX as u64 / count) + 3, count));
    for folder in 0..driver.folders.len() {
        let inos = in_order(&driver.folders[folder].clone(), 0);
        for &ino in &inos[..8] {
            driver.read(1, folder, ino, true);
        }
    }
    assert!(driver.most <= FILES_AHEAD_MAX as usize);
    let mut many = Driver::new(folders(3 * FOLDERS_MAX as u64, 8));
    for folder in 0..many.folders.len() {
        many.read_all(folder, 2);
    }
    assert!(many.successors.folders_known() <= FOLDERS_MAX);
}

proptest! {
    /// Whatever is read and answered, counts agree and bounds hold.
    #[test]
    fn anything_keeps_its_bounds(
        steps in proptest::collection::vec((0u32..3, 0usize..4, 0u64..60, any::<bool>(), 0u8..12), 1..400),
        room in 0u64..40,
    ) {
        let mut driver = Driver::new(folders(4, 60));
        driver.successors.room(room * BYTES);
        for (reader, folder, entry, whole, what) in steps {
            let ino = driver.folders[folder][entry as usize].ino;
            match what {
                0 => driver.now += IDLE,
                1 => {
                    let file = FileId { dev: 1, ino };
                    driver.successors.unusable(1, file);
                    driver.ahead.remove(&(1, file));
                }
                _ => {
                    let inos = in_order(&driver.folders[folder].clone(), reader as usize);
                    let at = inos.iter().position(|i| *i == ino).unwrap_or(0);
                    for &ino in inos.iter().skip(at).take(what as usize) {
                        driver.read(1 + reader / 2, folder, ino, whole);
                    }
                }
            }
            driver.successors.tick(driver.now);
            driver.act();
            let stats = driver.successors.stats();
            prop_assert!(stats.files_now <= FILES_AHEAD_MAX);
            prop_assert!(stats.bytes_now <= (room * BYTES).max(1));
            prop_assert!(stats.used + stats.wasted + stats.withdrawn <= stats.asked);
            prop_assert!(stats.asked >= stats.used);
        }
    }
}

/// Reads every file of a folder by name, each at its place on the disk; how many were asked for.
fn asked_with(place: impl Fn(u64) -> Lba) -> u64 {
    let mut driver = Driver::new(folders(1, 256));
    for (i, ino) in in_order(&driver.folders[0].clone(), 1).into_iter().enumerate() {
        driver.now += Nanos::from_millis(1);
        let (reader, file, folder) = (1, FileId { dev: 1, ino }, Some(FileId { dev: 1, ino: 0 }));
        driver.ahead.remove(&(reader, file));
        let place = Some((place(i as u64), BYTES));
        driver.successors.read(driver.now, Read { reader, file, folder, head: true, end: true, place });
        // Its report comes after the request.
        driver.successors.read(driver.now, Read { reader, file, folder, head: true, end: true, place });
        driver.act();
    }
    driver.successors.stats().asked
}

#[test]
fn a_reader_in_disk_order_is_left_alone() {
    let sectors = BYTES / 512;
    assert!(asked_with(|i| Lba(mixed(i) % 1_000_000_000)) > 230);
    assert_eq!(asked_with(|i| Lba(1_000 + i * sectors)), 0);
    // Four programs side by side, a small gap behind each file, and one file of eight far away.
    let side_by_side = |i: u64| match i % 8 {
        3 => Lba(mixed(i) % 1_000_000_000),
        _ => Lba(1_000_000_000 + i % 4 * 10_000_000 + i / 4 * (sectors + 100)),
    };
    assert!(asked_with(side_by_side) < 20);
}

/// Programs that take 64 files each in the order of the disk; of each only the first read is heard of, and
/// it is told (`told`) that nothing is heard of the rest. How many folders were listed.
fn listed_for_batches(told: bool) -> usize {
    let mut driver = Driver::new(folders(4, 256));
    let (sectors, reader) = (BYTES / 512, 1);
    // The first files of the first program show the order.
    let starts = (0..4).chain((1..40).map(|program| program * 64));
    for (i, file) in starts.enumerate() {
        driver.now += Nanos::from_millis(50);
        let (folder, entry) = (i % 4, i / 4);
        let ino = driver.folders[folder][entry].ino;
        let (file_id, folder) = (FileId { dev: 1, ino }, Some(FileId { dev: 1, ino: folder as u64 }));
        driver.ahead.remove(&(reader, file_id));
        let place = Some((Lba(1_000 + file * sectors), BYTES));
        driver
            .successors
            .read(driver.now, Read { reader, file: file_id, folder, head: true, end: true, place });
        if told && i >= 3 {
            driver.successors.passed_in_disk_order(reader);
        }
        driver.act();
    }
    driver.listed
}

#[test]
fn no_folder_is_listed_for_a_reader_in_disk_order_that_is_heard_of_now_and_then() {
    assert_eq!(listed_for_batches(true), 0);
    assert_eq!(listed_for_batches(false), 4, "files that lie apart are no disk order");
}
