//! The library as programs use it: every file once, in order, in memory when it comes, within the window.

#[path = "common/memory.rs"]
mod memory;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use seekless_kernel::extents::extents;
use seekless_kernel::residency::{cachestat, mincore, page_bytes};
use seekless_order::{By, Failure, How, Item, Options, ReadBy, Set, order};
use seekless_testing::skip::skipped;

/// A folder beside the build, which is on a disk where `/tmp` may not be.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn files(dir: &Path, sizes: impl IntoIterator<Item = usize>) -> Vec<PathBuf> {
    let make = |(i, size): (usize, usize)| {
        let path = dir.join(format!("f{i:05}"));
        fs::write(&path, vec![0x5a; size]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        path
    };
    sizes.into_iter().enumerate().map(make).collect()
}

fn all(paths: &[PathBuf], options: &Options) -> Vec<Item> {
    order(paths, options).unwrap().map(Result::unwrap).collect()
}

fn sorted(items: &[Item]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = items.iter().map(|item| item.path.clone()).collect();
    paths.sort();
    paths
}

fn address(path: &Path) -> Option<u64> {
    extents(File::open(path).unwrap(), 0).ok()?.first().map(|extent| extent.address)
}

/// Fails instead of waiting for ever.
fn within<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    thread::spawn(move || tell.send(what()));
    told.recv_timeout(Duration::from_secs(60)).expect("it does not wait for ever")
}

#[test]
fn items_come_once_and_by_address_or_inode_and_say_so() {
    let dir = folder();
    let mut paths = files(dir.path(), (0..80).map(|i| 1 + i * 997 % 40_000));
    paths.reverse();
    let inode = |item: &Item| fs::metadata(&item.path).unwrap().ino();
    for window in [0, 1 << 20, 64 << 20] {
        for batch in [1_000, 80] {
            let options = Options { window, batch, ..Options::default() };
            let cold = memory::forget(&paths);
            let items = all(&paths, &options);
            assert_eq!(sorted(&items).iter().rev().cloned().collect::<Vec<_>>(), paths);
            assert!(items.iter().all(|item| item.last && item.offset == 0));
            assert!(items.iter().all(|item| item.length == fs::metadata(&item.path).unwrap().len()));
            if (cold || window == 0) && address(&paths[0]).is_some() {
                let at: Vec<_> = items.iter().map(|item| address(&item.path)).collect();
                assert!(at.is_sorted() && items.iter().all(|item| item.how == How::Address));
            }
        }
        let items = all(&paths, &Options { window, by: By::Inode, ..Options::default() });
        assert!(items.is_sorted_by_key(inode) && items.iter().all(|item| item.how == How::Inode));
        let items = all(&paths, &Options { window, by: By::Listed, ..Options::default() });
        let listed: Vec<&PathBuf> = items.iter().map(|item| &item.path).collect();
        assert_eq!(listed, paths.iter().collect::<Vec<_>>());
        assert!(items.iter().all(|item| item.how == How::Listed));
    }
    assert_eq!([How::Address, How::Inode, How::Listed].map(How::name), ["address", "inode", "as listed"]);
}

#[test]
fn what_is_in_memory_comes_at_once_and_as_listed() {
    const EACH: usize = 16;
    let dir = folder();
    let paths = files(dir.path(), [5_000; 200]);
    let by = |paths: &[PathBuf], options: &Options| {
        let items = all(paths, options);
        assert_eq!(items.len(), paths.len());
        items
    };
    let items = by(&paths, &Options::default());
    assert!(items.iter().map(|item| &item.path).eq(&paths), "nothing is sorted");
    assert!(items.iter().all(|item| item.how == How::Listed && item.read_by == ReadBy::Nobody));
    // One that is looked at is not there: all of the batch is put in order and read.
    if !memory::forget([&paths[3 * EACH]]) {
        return skipped("files stay in memory here");
    }
    let addressed = address(&paths[0]).is_some();
    let items = by(&paths, &Options::default());
    assert!(!addressed || items.iter().all(|item| item.how == How::Address));
    assert!(items.iter().all(|item| item.read_by == ReadBy::Itself));
    // Asked for nothing but the order, it gives the order.
    let items = by(&paths, &Options { window: 0, ..Options::default() });
    assert!(!addressed || items.iter().all(|item| item.how == How::Address));
}

#[test]
fn a_long_list_is_taken_batch_by_batch() {
    let dir = folder();
    let paths = files(dir.path(), [10; 10]);
    let options = Options { batch: 100, ..Options::default() };
    let taken = std::cell::Cell::new(0);
    let list = (0..10_000).map(|i| {
        taken.set(taken.get() + 1);
        &paths[i % 10]
    });
    let mut given = 0;
    for item in order(list, &options).unwrap() {
        item.unwrap();
        given += 1;
        assert!(taken.get() - given <= 100, "{} paths taken for {given} items", taken.get());
    }
    assert_eq!(given, 10_000);
}

#[test]
fn paths_may_be_added_after_the_end() {
    let dir = folder();
    let paths = files(dir.path(), [10; 6]);
    let mut set = Set::new(&Options { batch: 3, ..Options::default() }).unwrap();
    assert_eq!(set.next(), None);
    for turn in 1..=2 {
        paths.iter().for_each(|path| set.add(path));
        assert!(set.is_full());
        let items: Vec<Item> = std::iter::from_fn(|| set.next()).map(Result::unwrap).collect();
        assert_eq!(sorted(&items), paths);
        assert!(!set.is_full());
        let counts = set.counts();
        assert_eq!((counts.found, counts.bytes, counts.batches), (6 * turn, 60 * turn, 2 * turn));
    }
}

#[test]
fn each_failure_is_told_before_the_items_of_its_batch_and_the_rest_goes_on() {
    let dir = folder();
    let good = files(dir.path(), [10; 2]);
    symlink("loop", dir.path().join("loop")).unwrap();
    let bad = ["gone", "loop"].map(|name| dir.path().join(name));
    let odd = [PathBuf::from("/dev/null"), "".into(), "x/".repeat(3_000).into()];
    let nul = PathBuf::from(std::ffi::OsStr::from_bytes(b"nul\0byte"));
    let bad: Vec<PathBuf> = bad.into_iter().chain(odd).chain([nul]).collect();
    let list: Vec<&PathBuf> = bad.iter().flat_map(|bad| [bad, &good[0], &good[1]]).collect();
    for window in [0, 1 << 20] {
        let options = Options { window, ..Options::default() };
        let (mut failures, mut items) = (Vec::new(), Vec::new());
        for next in order(&list, &options).unwrap() {
            match next {
                Err(failure) => {
                    assert!(items.is_empty(), "{failure} after an item");
                    failures.push(failure);
                }
                Ok(item) => items.push(item),
            }
        }
        assert_eq!(items.len(), 2 * bad.len());
        let mut failed: Vec<&PathBuf> = failures.iter().map(|failure| &failure.path).collect();
        failed.sort();
        let mut expected: Vec<&PathBuf> = bad.iter().collect();
        expected.sort();
        assert_eq!(failed, expected);
        assert!(failures.iter().all(|failure| !failure.to_string().contains('\n')));
    }
    let failure = Failure { path: "two\nlines".into(), reason: "no".into() };
    assert_eq!(failure.to_string(), "\"two\\nlines\": no");
}

#[test]
fn a_folder_stands_for_its_files_where_that_is_asked_for() {
    let dir = folder();
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    for path in ["a/1", "a/b/2", "3"] {
        fs::write(dir.path().join(path), "text").unwrap();
    }
    symlink("..", dir.path().join("a/round")).unwrap();
    let root = [dir.path().to_path_buf()];
    // A batch is full in the middle of the folder.
    let items = all(&root, &Options { folders: true, batch: 2, ..Options::default() });
    assert_eq!(sorted(&items), ["3", "a/1", "a/b/2"].map(|path| dir.path().join(path)));
    let items = all(&root, &Options::default());
    assert_eq!((items.len(), items[0].length, items[0].last), (1, 0, true));
}

#[test]
fn ranges_of_a_file_come_one_after_the_other_to_its_end() {
    let dir = folder();
    let paths = files(dir.path(), [10_000, 0, 4_096, 4_097]);
    for window in [0, 8_192] {
        let items = all(&paths, &Options { window, range_max: 4_096, ..Options::default() });
        let mut ranges: BTreeMap<&Path, Vec<(u64, u64, bool)>> = BTreeMap::new();
        let mut open = None;
        for item in &items {
            assert!(open.is_none_or(|path| path == &item.path), "another file before the last range");
            open = (!item.last).then_some(&item.path);
            ranges.entry(&item.path).or_default().push((item.offset, item.length, item.last));
        }
        let expected = [
            vec![(0, 4_096, false), (4_096, 4_096, false), (8_192, 1_808, true)],
            vec![(0, 0, true)],
            vec![(0, 4_096, true)],
            vec![(0, 4_096, false), (4_096, 1, true)],
        ];
        assert_eq!(ranges.into_values().collect::<Vec<_>>(), expected);
    }
}

/// Bytes of a file that have been read into memory, those included that were evicted since.
fn resident(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    let mut pages = 0;
    let count = |_, resident| {
        pages += u64::from(resident);
        true
    };
    mincore(file.as_fd(), 0, bytes, count).unwrap();
    (pages + cachestat(file.as_fd(), 0, bytes).unwrap().evicted) * page_bytes()
}

#[test]
fn files_are_in_memory_when_they_come_and_no_more_than_the_window() {
    const SIZE: u64 = 256 << 10;
    const WINDOW: u64 = 12 << 20;
    let dir = folder();
    let mut paths = files(dir.path(), [SIZE as usize; 64]);
    // One longer than the window, in ranges.
    paths.extend(files(
        &{
            let sub = dir.path().join("sub");
            fs::create_dir(&sub).unwrap();
            sub
        },
        [3 * WINDOW as usize],
    ));
    if !memory::forget(&paths) {
        return skipped("files stay in memory here");
    }
    let in_memory = || paths.iter().map(|path| resident(path)).sum::<u64>();
    let options = Options { window: WINDOW, range_max: 4 << 20, ..Options::default() };
    let mut taken = 0;
    for item in order(&paths, &options).unwrap().map(Result::unwrap) {
        let there = resident(&item.path);
        assert!(there >= item.offset + item.length, "{there} bytes of {item:?} when it comes");
        taken += item.length;
        // What is waited for is not in memory as a whole at the next look.
        thread::sleep(Duration::from_millis(1));
        assert!(in_memory() <= taken + WINDOW, "{} bytes in memory, {taken} taken", in_memory());
    }
    assert_eq!(taken, 64 * SIZE + 3 * WINDOW);
    assert_eq!(in_memory(), taken);
}

#[test]
fn a_set_that_is_dropped_in_the_middle_ends() {
    let dir = folder();
    let paths = files(dir.path(), [100_000; 100]);
    within(move || {
        for taken in [0, 1, 50, 100] {
            for window in [0, 4_096, 1 << 20] {
                let mut ordered = order(&paths, &Options { window, ..Options::default() }).unwrap();
                assert_eq!(ordered.by_ref().take(taken).count(), taken);
                // It may be waiting for its caller by now.
                thread::sleep(Duration::from_millis(3));
                drop(ordered);
            }
        }
    });
}
