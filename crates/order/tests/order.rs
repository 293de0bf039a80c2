//! `seekless order` as its users run it: lists in, lists out, and what is in memory when a path arrives.

mod common;
#[path = "common/memory.rs"]
mod memory;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use seekless_kernel::extents::extents;
use seekless_kernel::residency::{cachestat, mincore, page_bytes};
use seekless_testing::skip::skipped;

/// A folder beside the build, which is on a disk where `/tmp` may not be.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(common::program());
    command.arg("order").args(args).current_dir(dir);
    command
}

fn start(dir: &Path, args: &[&str], stderr: Stdio) -> Child {
    let mut command = command(dir, args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap()
}

/// Ends a process that a test would wait for without end, unless dropped before.
struct Watchdog {
    _ended: Sender<()>,
}

impl Watchdog {
    fn of(child: &Child) -> Watchdog {
        let pid = rustix::process::Pid::from_child(child);
        let (ended, end) = channel();
        thread::spawn(move || {
            if end.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        Watchdog { _ended: ended }
    }
}

/// Runs with this list on standard input.
fn order(dir: &Path, args: &[&str], list: &[u8]) -> Output {
    let mut child = start(dir, args, Stdio::piped());
    let mut stdin = child.stdin.take().unwrap();
    let list = list.to_vec();
    // The command may end before it has read all of the list.
    let feeder = thread::spawn(move || drop(stdin.write_all(&list)));
    let out = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    out
}

fn ended(end: u8, paths: &[OsString]) -> Vec<u8> {
    let mut list = Vec::new();
    for path in paths {
        list.extend_from_slice(path.as_bytes());
        list.push(end);
    }
    list
}

fn parts(end: u8, out: &[u8]) -> Vec<OsString> {
    let Some(out) = out.strip_suffix(&[end]) else {
        assert!(out.is_empty(), "the last path has no end mark");
        return Vec::new();
    };
    out.split(|byte| *byte == end).map(|path| OsString::from_vec(path.to_vec())).collect()
}

fn sorted(paths: &[OsString]) -> Vec<OsString> {
    let mut paths = paths.to_vec();
    paths.sort();
    paths
}

fn stderr(out: &Output) -> String {
    String::from_utf8(out.stderr.clone()).unwrap()
}

/// Files of these sizes, on the disk. Names rise.
fn files(dir: &Path, sizes: impl IntoIterator<Item = usize>) -> Vec<OsString> {
    let make = |(i, size): (usize, usize)| {
        let name = format!("f{i:05}");
        let mut file = File::create(dir.join(&name)).unwrap();
        file.write_all(&vec![0x5a; size]).unwrap();
        file.sync_all().unwrap();
        name.into()
    };
    sizes.into_iter().enumerate().map(make).collect()
}

fn address(dir: &Path, path: &OsStr) -> Option<u64> {
    let map = extents(File::open(dir.join(path)).unwrap(), 0).ok()?;
    map.first().map(|extent| extent.address)
}

#[test]
fn addresses_rise_in_whatever_order_the_list_was() {
    let dir = folder();
    let mut paths = files(dir.path(), (0..80).map(|i| 1 + i * 997 % 40_000));
    let at = |path: &OsString| address(dir.path(), path);
    if at(&paths[0]).is_none() {
        return skipped("no FIEMAP here");
    }
    paths.sort_by_key(|path| std::cmp::Reverse(at(path)));
    // As arguments and as a list; in batches as well.
    let list = ended(b'\n', &paths);
    // They are in memory: who wants the disk's order in a pipe says so.
    let by_address = ["--by", "address"];
    let by_list = order(dir.path(), &by_address, &list);
    let words: Vec<&str> = by_address.into_iter().chain(paths.iter().map(|p| p.to_str().unwrap())).collect();
    let by_words = command(dir.path(), &words).output().unwrap();
    for out in [&by_list, &by_words] {
        assert!(out.status.success() && out.stderr.is_empty(), "{}", stderr(out));
        let out = parts(b'\n', &out.stdout);
        assert_eq!(sorted(&out), sorted(&paths));
        assert!(out.windows(2).all(|pair| at(&pair[0]) < at(&pair[1])));
    }
    let batches = parts(b'\n', &order(dir.path(), &["--by", "address", "--batch", "30"], &list).stdout);
    assert_eq!(sorted(&batches), sorted(&paths));
    for (batch, from) in batches.chunks(30).zip(paths.chunks(30)) {
        assert_eq!(sorted(batch), sorted(from), "a batch is sorted by itself");
        assert!(batch.windows(2).all(|pair| at(&pair[0]) < at(&pair[1])));
    }
}

#[test]
fn what_is_in_memory_goes_through_a_pipe_as_it_is_listed_and_into_a_file_in_order() {
    let dir = folder();
    let mut paths = files(dir.path(), [5_000; 80]);
    let at = |path: &OsString| address(dir.path(), path);
    if at(&paths[0]).is_none() {
        return skipped("no FIEMAP here");
    }
    paths.sort_by_key(|path| std::cmp::Reverse(at(path)));
    // One that is not there in between, and more than one page of paths.
    let more: Vec<OsString> = std::iter::repeat_n(paths.clone(), 10).flatten().collect();
    let list = [ended(b'\n', &more[..100]), b"gone\n".to_vec(), ended(b'\n', &more[100..])].concat();
    for ahead in [&[][..], &["--ahead", "1MiB"]] {
        let out = order(dir.path(), ahead, &list);
        assert_eq!(out.status.code(), Some(1));
        assert_eq!(stderr(&out).lines().count(), 2, "{}", stderr(&out));
        assert!(parts(b'\n', &out.stdout) == more, "{ahead:?}");
    }
    let into = dir.path().join("into");
    let mut command = command(dir.path(), &[]);
    let words = paths.iter().collect::<Vec<_>>();
    let status = command.args(words).stdout(File::create(&into).unwrap()).status().unwrap();
    assert!(status.success());
    let out = parts(b'\n', &fs::read(&into).unwrap());
    assert_eq!(sorted(&out), sorted(&paths));
    assert!(out.windows(2).all(|pair| at(&pair[0]) < at(&pair[1])));
}

#[test]
fn without_addresses_inodes_rise() {
    let dir = folder();
    let paths = files(dir.path(), [10; 40]);
    let inode = |path: &OsString| fs::metadata(dir.path().join(path)).unwrap().ino();
    let mut falling = paths.clone();
    falling.sort_by_key(|path| std::cmp::Reverse(inode(path)));
    let out = parts(b'\n', &order(dir.path(), &["--by", "inode"], &ended(b'\n', &falling)).stdout);
    assert_eq!(sorted(&out), paths);
    assert!(out.windows(2).all(|pair| inode(&pair[0]) < inode(&pair[1])));
    // Empty files have no address: they come first, by inode.
    let empty = folder();
    let mut paths = files(empty.path(), (0..20).map(|i| if i % 2 == 0 { 5_000 } else { 0 }));
    paths.reverse();
    let out = parts(b'\n', &order(empty.path(), &["--by", "address"], &ended(b'\n', &paths)).stdout);
    let inode = |path: &OsString| fs::metadata(empty.path().join(path)).unwrap().ino();
    assert_eq!(sorted(&out), sorted(&paths));
    if address(empty.path(), &out[19]).is_none() {
        return skipped("no FIEMAP here");
    }
    assert!(out[..10].iter().all(|path| address(empty.path(), path).is_none()));
    assert!(out[..10].windows(2).all(|pair| inode(&pair[0]) < inode(&pair[1])));
}

#[test]
fn names_are_kept_byte_for_byte_and_repeated_paths_stay() {
    let dir = folder();
    let names: [&[u8]; 6] = [b"\xff\xfe", b"two\nlines", b" ", b"-0", b"\xc3\x28.txt", b"\r"];
    let paths: Vec<OsString> = names.map(|name| OsString::from_vec([b"./", name].concat())).into();
    paths.iter().for_each(|path| fs::write(dir.path().join(path), "x").unwrap());
    let twice: Vec<OsString> = [paths.clone(), paths.clone()].concat();
    let out = order(dir.path(), &["-0"], &ended(b'\0', &twice));
    assert!(out.status.success(), "{}", stderr(&out));
    assert_eq!(sorted(&parts(b'\0', &out.stdout)), sorted(&twice));
    // The last one may lack its end mark.
    let out = order(dir.path(), &["-0"], b"./ \0./\xff\xfe");
    assert_eq!(parts(b'\0', &out.stdout).len(), 2);
    // As lines, a name with a newline cannot be told from two names.
    let out = command(dir.path(), &["--dirs", "."]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(parts(b'\n', &out.stdout).len(), 5);
    assert!(stderr(&out).starts_with("seekless: \"./two\\nlines\": its name has a newline: use -0\n"));
    assert!(stderr(&out).ends_with("seekless: 1 of 6 paths could not be ordered\n"), "{}", stderr(&out));
    assert_eq!(stderr(&out).lines().count(), 2);
}

#[test]
fn each_path_that_cannot_be_ordered_is_one_line_and_the_rest_goes_on() {
    let dir = folder();
    let good = files(dir.path(), [100; 3]);
    symlink("loop", dir.path().join("loop")).unwrap();
    symlink("f00001", dir.path().join("link")).unwrap();
    mknodat(CWD, dir.path().join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let _socket = UnixListener::bind(dir.path().join("s")).unwrap();
    let long = "x/".repeat(3_000);
    let bad = ["gone", "loop", "fifo", "s", "/dev/null", "", "f00000/below", &long, "nul\0byte"];
    let mut list = Vec::new();
    for (bad, good) in bad.iter().zip(good.iter().map(Some).chain(std::iter::repeat(None))) {
        list.extend([bad.as_bytes(), b"\n"].concat());
        list.extend(good.map_or(Vec::new(), |good| [good.as_bytes(), b"\n"].concat()));
    }
    list.extend(b"link\n");
    let begun = Instant::now();
    for more in [&[][..], &["--by", "inode"], &["--ahead", "1MiB"]] {
        let out = order(dir.path(), more, &list);
        assert_eq!(out.status.code(), Some(1));
        assert_eq!(sorted(&parts(b'\n', &out.stdout)), ["f00000", "f00001", "f00002", "link"]);
        let text = stderr(&out);
        assert_eq!(text.lines().count(), bad.len() + 1, "{text}");
        assert!(text.ends_with("seekless: 9 of 13 paths could not be ordered\n"), "{text}");
        for said in
            ["\"gone\": No such file", "\"fifo\": neither", "\"s\": neither", "\"/dev/null\": neither"]
        {
            assert!(text.contains(&format!("seekless: {said}")), "{text}");
        }
        for path in ["loop", "", "f00000/below", "nul\\0byte"] {
            assert!(
                text.lines().any(|l| l.starts_with(&format!("seekless: \"{path}\": "))),
                "{path}: {text}"
            );
        }
        assert!(text.contains("longer than"), "{text}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "nobody waits for the other end of the FIFO");
}

#[test]
fn folders_are_walked_down_to_regular_files() {
    let dir = folder();
    fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
    for path in ["a/1", "a/b/2", "a/b/c/3", "4"] {
        fs::write(dir.path().join(path), "text").unwrap();
    }
    symlink("../../a", dir.path().join("a/b/round")).unwrap();
    symlink("a", dir.path().join("to-a")).unwrap();
    mknodat(CWD, dir.path().join("a/fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let walk = |args: &[&str]| {
        let out = command(dir.path(), args).output().unwrap();
        (sorted(&parts(b'\n', &out.stdout)), out.status.code(), stderr(&out))
    };
    let below: Vec<OsString> = ["4", "a/1", "a/b/2", "a/b/c/3"].map(OsString::from).into();
    let (out, status, text) = walk(&["--dirs", "a", "4"]);
    assert_eq!((out, status, text.as_str()), (below, Some(0), ""));
    // A symlink that is listed itself is followed.
    assert_eq!(walk(&["--dirs", "to-a/"]).0, ["to-a/1", "to-a/b/2", "to-a/b/c/3"]);
    // Without --dirs a folder is a path like any other.
    assert_eq!(walk(&["a", "4"]).0, ["4", "a"]);
    let (out, status, text) = walk(&["--dirs", "a", "gone"]);
    assert_eq!((out.len(), status), (3, Some(1)));
    assert!(text.ends_with("1 of 4 paths could not be ordered\n"), "{text}");
    // Deeper than descriptors last.
    let mut deep = dir.path().join("deep");
    (0..300).for_each(|_| deep.push("d"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(dir.path().join("deep/d/file"), "x").unwrap();
    let (out, status, text) = walk(&["--dirs", "deep"]);
    assert_eq!((out, status), (vec![OsString::from("deep/d/file")], Some(1)));
    assert!(text.contains("deep here"), "{text}");
}

#[test]
fn a_list_of_any_length_takes_bounded_memory() {
    const PATHS: usize = 200_000;
    const BATCH: usize = 1_000;
    let dir = folder();
    files(dir.path(), [10; 4]);
    let (said, json) = (dir.path().join("stderr"), dir.path().join("sum.json"));
    let args = ["--by", "inode", "--batch", "1000", "--json", json.to_str().unwrap()];
    let mut child = start(dir.path(), &args, File::create(&said).unwrap().into());
    let _watchdog = Watchdog::of(&child);
    let mut stdin = child.stdin.take().unwrap();
    // Long paths: all of them at once would be 160 MB. An empty one after each.
    let feeder = thread::spawn(move || {
        let paths = [0, 1, 2, 3].map(|i| format!("{}f{i:05}\n\n", "./".repeat(400)));
        (0..PATHS).for_each(|i| stdin.write_all(paths[i % 4].as_bytes()).unwrap());
        stdin
    });
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (mut line, mut bytes) = (String::new(), 0);
    for _ in 0..PATHS {
        line.clear();
        bytes += out.read_line(&mut line).unwrap();
        assert!(line.starts_with("./") && line.len() == 807, "{line:?}");
    }
    assert!(bytes > 160_000_000);
    // It waits for more now.
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let most = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(most < 40_000, "{most} kB for a list of 160 MB");
    drop(feeder.join().unwrap());
    assert_eq!(out.read_to_string(&mut line).unwrap(), 0);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let sum: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    // An empty path is a path of its batch.
    assert_eq!(sum["batches"], 2 * PATHS / BATCH);
    assert_eq!((&sum["paths"], &sum["failures"]), (&(2 * PATHS).into(), &PATHS.into()));
    let said = BufReader::new(File::open(said).unwrap()).lines().map(Result::unwrap);
    let (mut lines, mut last) = (0, String::new());
    said.for_each(|line| (lines, last) = (lines + 1, line));
    assert_eq!(lines, PATHS + 1);
    assert_eq!(last, "seekless: 200000 of 400000 paths could not be ordered");
}

#[test]
fn a_consumer_that_goes_away_ends_it_quietly() {
    let dir = folder();
    files(dir.path(), [10; 10]);
    let list: Vec<u8> = (0..100_000).flat_map(|i| format!("f{:05}\n", i % 10).into_bytes()).collect();
    for (args, lines) in [
        (&["--batch", "500"][..], 1),
        (&["--batch", "500", "--ahead", "1MiB"], 1),
        // The window is full, and nothing is being written.
        (&["--ahead", "16KiB"], 0),
    ] {
        let mut child = start(dir.path(), args, Stdio::piped());
        let _watchdog = Watchdog::of(&child);
        let mut stdin = child.stdin.take().unwrap();
        let list = list.clone();
        let feeder = thread::spawn(move || drop(stdin.write_all(&list)));
        let mut out = BufReader::with_capacity(16, child.stdout.take().unwrap());
        let mut line = String::new();
        for _ in 0..lines {
            out.read_line(&mut line).unwrap();
        }
        assert_eq!(line.lines().count(), lines);
        if lines == 0 {
            thread::sleep(Duration::from_millis(300));
        }
        drop(out);
        let done = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        assert_eq!((done.status.code(), stderr(&done).as_str()), (Some(0), ""), "{args:?}");
    }
}

/// Bytes of a file that have been read into memory. What a pager of idle memory (DAMON) has taken out since
/// counts: the kernel remembers those pages, and none of those that a test drops.
fn resident(dir: &Path, path: &OsStr) -> u64 {
    let file = File::open(dir.join(path)).unwrap();
    let meta = file.metadata().unwrap();
    let mut pages = 0;
    let count = |_, resident| {
        pages += u64::from(resident);
        true
    };
    mincore(file.as_fd(), 0, meta.len(), count).unwrap();
    (pages + cachestat(file.as_fd(), 0, meta.len()).unwrap().evicted) * page_bytes()
}

#[test]
fn files_are_in_memory_before_their_paths_arrive_and_within_the_window() {
    const SIZE: u64 = 256 << 10;
    // More than what is under way at a time, and less than the files have.
    const WINDOW: u64 = 12 << 20;
    let dir = folder();
    let paths = files(dir.path(), [SIZE as usize; 64]);
    // One larger than the window: it counts as much as the window, and waits until nothing else is in it.
    let large = dir.path().join("large");
    let mut file = File::create(&large).unwrap();
    file.write_all(&vec![1; 3 * WINDOW as usize]).unwrap();
    file.sync_all().unwrap();
    let all: Vec<OsString> = [paths, vec!["large".into()]].concat();
    if !memory::forget(all.iter().map(|path| dir.path().join(path))) {
        return skipped("files stay in memory here");
    }
    let json = dir.path().join("sum.json");
    let args = ["--ahead", "12MiB", "--json", json.to_str().unwrap()];
    let mut child = start(dir.path(), &args, Stdio::inherit());
    let _watchdog = Watchdog::of(&child);
    child.stdin.take().unwrap().write_all(&ended(b'\n', &all)).unwrap();
    let in_memory = || all.iter().map(|path| resident(dir.path(), path)).sum::<u64>();
    // Nothing is taken: it goes as far as the window.
    let until = Instant::now() + Duration::from_secs(60);
    let (mut before, mut now) = (0, in_memory());
    while now == 0 || now != before {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(300));
        (before, now) = (now, in_memory());
    }
    assert!((SIZE..=WINDOW).contains(&now), "{now} bytes in memory, none taken");
    // A pipe is read byte by byte here, so that a path is taken when it arrives and no other is.
    let mut out = child.stdout.take().unwrap();
    let (mut arrived, mut line, mut taken) = (Vec::new(), Vec::new(), 0);
    let mut byte = [0];
    while out.read(&mut byte).unwrap() > 0 {
        if byte != [b'\n'] {
            line.push(byte[0]);
            continue;
        }
        let path = OsString::from_vec(std::mem::take(&mut line));
        let wanted = match path.to_str().unwrap() {
            "large" => WINDOW,
            _ => SIZE,
        };
        assert_eq!(resident(dir.path(), &path), wanted, "{path:?} when it arrives");
        taken += wanted;
        arrived.push(path);
        let now = in_memory();
        assert!(now <= taken + WINDOW, "{now} bytes in memory, {taken} taken");
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(sorted(&arrived), sorted(&all));
    let sum: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let ahead = &sum["ahead"];
    assert_eq!(ahead["bytes"], 64 * SIZE + WINDOW, "{sum}");
    assert_eq!((&ahead["window"], &ahead["left"]), (&WINDOW.into(), &0.into()));
    assert_eq!(ahead["furthest"], WINDOW, "{sum}");
}

#[test]
fn a_summary_counts_what_was_done() {
    let dir = folder();
    let paths = files(dir.path(), [5_000, 0, 7]);
    let list = [ended(b'\n', &paths), b"gone\n".to_vec()].concat();
    let out = order(dir.path(), &["--json"], &list);
    assert_eq!(out.status.code(), Some(1));
    let sum: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON in place of the paths");
    assert_eq!((&sum["paths"], &sum["ordered"], &sum["failures"]), (&4.into(), &3.into(), &1.into()));
    assert_eq!((&sum["bytes"], &sum["batches"]), (&5_007.into(), &1.into()));
    let count = |value: &serde_json::Value, name: &str| value[name].as_u64().unwrap();
    assert_eq!(count(&sum, "by_address") + count(&sum, "by_inode"), 3);
    let addressed = paths.iter().filter(|path| address(dir.path(), path).is_some()).count();
    assert_eq!(count(&sum, "by_address"), addressed as u64);
    let devices = sum["devices"].as_array().unwrap();
    assert_eq!((devices.len(), count(&devices[0], "paths")), (1, 3));
    assert!(sum["ahead"].is_null());
    let file = dir.path().join("sum.json");
    let out = order(dir.path(), &["--json", file.to_str().unwrap()], &ended(b'\n', &paths));
    assert!(out.status.success());
    assert_eq!(parts(b'\n', &out.stdout).len(), 3, "the paths, beside the summary");
    assert!(fs::read_to_string(&file).unwrap().contains("\"failures\": 0"));
    // A folder and an empty file have nothing to read ahead.
    fs::create_dir(dir.path().join("sub")).unwrap();
    let args = ["--ahead", "1MiB", "--json", file.to_str().unwrap()];
    let list = [ended(b'\n', &paths), b"sub\n".to_vec()].concat();
    let cold = memory::forget(paths.iter().map(|path| dir.path().join(path)));
    // In memory there is nothing to read ahead at all.
    for bytes in if cold { vec![5_007, 0] } else { vec![0] } {
        let out = order(dir.path(), &args, &list);
        assert_eq!(parts(b'\n', &out.stdout).len(), 4);
        let sum: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!((&sum["ahead"]["bytes"], &sum["ahead"]["left"]), (&bytes.into(), &0.into()));
    }
}

#[test]
fn disks_come_one_after_the_other() {
    let (dir, memory) = (folder(), tempfile::tempdir_in("/dev/shm"));
    let Ok(memory) = memory else { return skipped("no /dev/shm") };
    if fs::metadata(dir.path()).unwrap().dev() == fs::metadata(memory.path()).unwrap().dev() {
        return skipped("one file system");
    }
    fn on(dir: &Path) -> impl Iterator<Item = OsString> {
        files(dir, [100; 3]).into_iter().map(move |n| dir.join(n).into_os_string())
    }
    let mixed: Vec<OsString> = on(dir.path()).zip(on(memory.path())).flat_map(|(a, b)| [a, b]).collect();
    let out = order(dir.path(), &["--by", "address"], &ended(b'\n', &mixed));
    assert!(out.status.success(), "{}", stderr(&out));
    let out = parts(b'\n', &out.stdout);
    assert_eq!(sorted(&out), sorted(&mixed));
    let on: Vec<u64> = out.iter().map(|path| fs::metadata(path).unwrap().dev()).collect();
    let changes = on.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!((changes, on.iter().collect::<BTreeSet<_>>().len()), (1, 2));
    // The disk comes first, as in the list, although what has no address (memory) precedes what has one.
    assert_eq!(on[0], fs::metadata(dir.path()).unwrap().dev());
}

#[test]
fn wrong_usage_and_broken_streams_are_one_line() {
    let dir = folder();
    files(dir.path(), [10]);
    let to_file = |args: &[&str]| {
        let mut command = command(dir.path(), args);
        command.stdout(File::create(dir.path().join("out")).unwrap()).output().unwrap()
    };
    let out = to_file(&["--ahead", "1MiB", "f00000"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).contains("must be a pipe"), "{}", stderr(&out));
    assert_eq!(
        command(dir.path(), &["--ahead", "1MiB", "f00000", "--json"]).output().unwrap().status.code(),
        Some(2)
    );
    for args in [&["--ahead", "much"][..], &["--ahead", "0", "f00000"], &["--batch", "0"], &["--by", "name"]]
    {
        assert_eq!(command(dir.path(), args).output().unwrap().status.code(), Some(2), "{args:?}");
    }
    // A folder in place of a list.
    let out = command(dir.path(), &[]).stdin(File::open(dir.path()).unwrap()).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).starts_with("seekless: the list cannot be read"), "{}", stderr(&out));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let out = command(dir.path(), &["f00000"]).stdout(full).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).starts_with("seekless: standard output cannot be written"), "{}", stderr(&out));
}

/// A database that a directory service fills by number, an image of a machine, a download that is only
/// allocated.
#[test]
fn holes_are_neither_read_ahead_nor_counted() {
    let dir = folder();
    let sparse = |name: &str, size: u64, data: &[(u64, usize)]| {
        let file = File::create(dir.path().join(name)).unwrap();
        file.set_len(size).unwrap();
        for &(offset, len) in data {
            std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; len], offset).unwrap();
        }
        file.sync_all().unwrap();
        file
    };
    let hole = sparse("a-hole", 8 << 30, &[]);
    sparse("b-far", 200 << 30, &[(100 << 30, 4096)]);
    sparse("c-image", 64 << 20, &[(0, 1 << 20), (30 << 20, 1 << 20), (60 << 20, 1 << 20)]);
    let whole = files(dir.path(), [1 << 20]);
    if rustix::fs::seek(&hole, rustix::fs::SeekFrom::Data(0)) != Err(rustix::io::Errno::NXIO) {
        return skipped("this file system does not tell of holes");
    }
    let names = ["a-hole", "b-far", "c-image"].map(OsString::from);
    let all: Vec<OsString> = [&names[..], &whole].concat();
    if !memory::forget(all.iter().map(|path| dir.path().join(path))) {
        return skipped("files stay in memory here");
    }
    let json = dir.path().join("sum.json");
    let args = ["--ahead", "64MiB", "--no-daemon", "--json", json.to_str().unwrap()];
    let out = order(dir.path(), &args, &ended(b'\n', &all));
    assert!(out.status.success(), "{}", stderr(&out));
    assert_eq!(sorted(&parts(b'\n', &out.stdout)), sorted(&all));
    let sum: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let data = (4 << 20) + 4096;
    assert_eq!((&sum["ahead"]["bytes"], &sum["ahead"]["left"]), (&data.into(), &0.into()), "{sum}");
    assert!(sum["ahead"]["furthest"].as_u64().unwrap() <= data + 4096 * 4, "{sum}");
    let cached = |name: &OsString| {
        let file = File::open(dir.path().join(name)).unwrap();
        cachestat(file.as_fd(), 0, 300 << 30).unwrap().cached * page_bytes()
    };
    assert_eq!(names.iter().map(cached).collect::<Vec<_>>(), [0, 4096, 3 << 20]);
    // All there is of them is in memory now. The first is looked at.
    let image = [names[2].clone(), names[0].clone()];
    let listed = order(dir.path(), &["--json", json.to_str().unwrap()], &ended(b'\n', &image));
    assert!(listed.status.success());
    let sum: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(sum["by_address"].as_u64().unwrap() + sum["by_inode"].as_u64().unwrap(), 0, "{sum}");
}
