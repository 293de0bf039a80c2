//! `seekless cat-set` as its users run it: whole files in disk order as a tar stream that `tar` reads.

mod common;
#[path = "common/memory.rs"]
mod memory;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use seekless_kernel::extents::extents;
use seekless_kernel::memory::Refaults;
use seekless_testing::skip::skipped;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(common::program());
    command.arg("cat-set").args(args).current_dir(dir);
    command
}

fn cat(dir: &Path, args: &[&str], list: &[u8]) -> Output {
    let mut command = command(dir, args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let list = list.to_vec();
    let feeder = thread::spawn(move || drop(stdin.write_all(&list)));
    let out = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    out
}

fn stderr(out: &Output) -> String {
    String::from_utf8(out.stderr.clone()).unwrap()
}

/// Members in the order of the stream: name and content.
type Members = Vec<(OsString, Vec<u8>)>;

fn members(stream: &[u8]) -> Members {
    let mut archive = tar::Archive::new(stream);
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        assert!(entry.header().entry_type().is_file());
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (OsString::from_vec(entry.path_bytes().into_owned()), content)
    };
    archive.entries().unwrap().map(read).collect()
}

fn address(path: &Path) -> Option<u64> {
    extents(File::open(path).unwrap(), 0).ok()?.first().map(|extent| extent.address)
}

fn content(n: usize, size: usize) -> Vec<u8> {
    (0..size).map(|i| (i * 31 + n * 7) as u8).collect()
}

#[test]
fn a_stream_holds_every_file_whole_in_disk_order() {
    let dir = folder();
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    let deep = "long-name-".repeat(20);
    // An empty one, one longer than a range, and one whose name does not fit into a header.
    let names: Vec<String> = (0..40).map(|i| format!("a/f{i:02}")).chain([format!("a/b/{deep}")]).collect();
    let sizes = |i: usize| if i == 7 { 20_000_000 } else { i * 997 % 30_000 };
    for (i, name) in names.iter().enumerate() {
        fs::write(dir.path().join(name), content(i, sizes(i))).unwrap();
    }
    let forget = || memory::forget(names.iter().map(|name| dir.path().join(name)));
    fs::set_permissions(dir.path().join("a/f03"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("f01", dir.path().join("a/link")).unwrap();
    for args in [&["a"][..], &["--ahead", "0", "a"], &["--ahead", "64KiB", "a"], &["--batch", "7", "a"]] {
        let cold = forget();
        let out = cat(dir.path(), args, b"");
        assert!(out.status.success() && out.stderr.is_empty(), "{args:?}: {}", stderr(&out));
        let members = members(&out.stdout);
        let order: Vec<Option<u64>> =
            members.iter().map(|(name, _)| address(&dir.path().join(name))).collect();
        if cold && !args.contains(&"--batch") && order.iter().any(Option::is_some) {
            assert!(order.is_sorted(), "{args:?}");
        }
        let mut got: Vec<&str> = members.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        got.sort();
        let mut expected: Vec<&str> = names.iter().map(String::as_str).collect();
        expected.sort();
        assert_eq!(got, expected, "{args:?}");
        for (name, bytes) in &members {
            assert!(*bytes == fs::read(dir.path().join(name)).unwrap(), "{args:?}: {name:?}");
        }
    }
    // What everyone else makes of it.
    if !forget() {
        return skipped("files stay in memory here");
    }
    let out = cat(dir.path(), &["a", "--json", "sum.json"], b"");
    let copy = dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let Ok(mut tar) = Command::new("tar").args(["xpf", "-"]).current_dir(&copy).stdin(Stdio::piped()).spawn()
    else {
        return skipped("no tar");
    };
    tar.stdin.take().unwrap().write_all(&out.stdout).unwrap();
    assert!(tar.wait().unwrap().success());
    for name in &names {
        let (old, new) = (dir.path().join(name), copy.join(name));
        assert!(fs::read(&old).unwrap() == fs::read(&new).unwrap(), "{name}");
        let (old, new) = (fs::metadata(&old).unwrap(), fs::metadata(&new).unwrap());
        assert_eq!((old.mode(), old.mtime()), (new.mode(), new.mtime()), "{name}");
    }
    let sum: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("sum.json")).unwrap()).unwrap();
    let bytes: u64 = names.iter().map(|name| fs::metadata(dir.path().join(name)).unwrap().len()).sum();
    assert_eq!((&sum["files"], &sum["bytes"]), (&41.into(), &bytes.into()), "{sum}");
    assert_eq!((&sum["failures"], &sum["changed"], &sum["batches"]), (&0.into(), &0.into(), &1.into()));
    let count = |name: &str| sum[name].as_u64().unwrap();
    assert_eq!(count("by_address") + count("by_inode"), 41);
    assert_eq!(sum["ahead"]["bytes"], bytes);
}

#[test]
fn names_are_kept_byte_for_byte_and_lead_nowhere_else() {
    let dir = folder();
    let sub = dir.path().join("sub");
    fs::create_dir(&sub).unwrap();
    let long: Vec<u8> = [&b"x\xff"[..], "y".repeat(180).as_bytes()].concat();
    let names: [&[u8]; 4] = [b"\xff\xfe", b"two\nlines", b"-0", &long];
    names.iter().for_each(|name| fs::write(sub.join(OsStr::from_bytes(name)), name).unwrap());
    let check = |out: &Output, prefix: &[u8]| {
        assert!(out.status.success(), "{}", stderr(out));
        let mut got = members(&out.stdout);
        got.sort();
        let mut expected: Vec<(OsString, Vec<u8>)> =
            names.iter().map(|n| (OsString::from_vec([prefix, n].concat()), n.to_vec())).collect();
        expected.sort();
        assert_eq!(got, expected);
    };
    check(&cat(dir.path(), &["sub"], b""), b"sub/");
    check(&cat(&sub, &[".."], b""), b"sub/");
    let absolute = sub.as_os_str().as_bytes();
    check(&cat(dir.path(), &[sub.to_str().unwrap()], b""), &[&absolute[1..], b"/"].concat());
    let list = names.map(|name| [b"sub/", name, b"\0"].concat()).concat();
    check(&cat(dir.path(), &["-0"], &list), b"sub/");
}

#[test]
fn what_cannot_be_read_is_one_line_and_the_rest_goes_on() {
    let dir = folder();
    fs::write(dir.path().join("good"), "text").unwrap();
    symlink("loop", dir.path().join("loop")).unwrap();
    mknodat(CWD, dir.path().join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let bad = ["gone", "loop", "fifo", "/dev/null", "good/below"];
    let list: String = bad.iter().flat_map(|bad| [bad, "\n"]).chain(["good\n"]).collect();
    let out = cat(dir.path(), &["--json", "sum.json"], list.as_bytes());
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(members(&out.stdout), [("good".into(), b"text".to_vec())]);
    let text = stderr(&out);
    assert_eq!(text.lines().count(), bad.len() + 1, "{text}");
    for bad in bad {
        assert!(
            text.lines().any(|line| line.starts_with(&format!("seekless: \"{bad}\": "))),
            "{bad}: {text}"
        );
    }
    assert!(text.ends_with("seekless: of 6 paths, 5 are not in the stream and 0 changed in it\n"), "{text}");
    let sum = fs::read_to_string(dir.path().join("sum.json")).unwrap();
    assert!(sum.contains("\"failures\": 5"), "{sum}");
    // No permission: as another user, where that can be.
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can become another user");
    }
    use std::os::unix::process::CommandExt;
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(open.path().join("secret"), "x").unwrap();
    fs::set_permissions(open.path().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(open.path().join("public"), "y").unwrap();
    let copy = open.path().join("order");
    fs::copy(common::program(), &copy).unwrap();
    let mut command = Command::new(copy);
    command.args(["cat-set", "secret", "public"]).current_dir(open.path()).uid(65_534).gid(65_534);
    let out = command.output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert_eq!(members(&out.stdout), [("public".into(), b"y".to_vec())]);
    assert!(stderr(&out).starts_with("seekless: \"secret\": Permission denied"), "{}", stderr(&out));
}

/// The stream stops after the first member has begun, as its reader does; meanwhile the file changes.
fn while_it_is_read(change: impl FnOnce(&Path)) -> (Members, Output, Vec<u8>) {
    let dir = folder();
    let (large, after) = (dir.path().join("large"), dir.path().join("after"));
    let bytes = content(1, 30_000_000);
    fs::write(&large, &bytes).unwrap();
    fs::write(&after, "after").unwrap();
    let args = ["--by", "listed", "--json", "sum.json", "large", "after"];
    let mut child = command(dir.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut stream = vec![0; 1 << 20];
    out.read_exact(&mut stream).unwrap();
    thread::sleep(Duration::from_millis(100));
    change(&large);
    out.read_to_end(&mut stream).unwrap();
    let done = child.wait_with_output().unwrap();
    (members(&stream), done, bytes)
}

#[test]
fn a_file_that_becomes_shorter_is_filled_up_with_zeros() {
    let (members, done, bytes) =
        while_it_is_read(|path| File::options().write(true).open(path).unwrap().set_len(10_000_000).unwrap());
    assert_eq!(done.status.code(), Some(1));
    let text = stderr(&done);
    assert!(
        text.starts_with("seekless: \"large\": became shorter while it was read, 10000000 bytes"),
        "{text}"
    );
    assert!(text.ends_with("of 2 paths, 0 are not in the stream and 1 changed in it\n"), "{text}");
    assert_eq!((members.len(), members[0].1.len()), (2, bytes.len()));
    assert!(members[0].1[..10_000_000] == bytes[..10_000_000]);
    assert!(members[0].1[10_000_000..].iter().all(|byte| *byte == 0));
    assert_eq!(members[1].1, b"after", "the next member is where its header says");
}

#[test]
fn a_file_that_becomes_longer_or_is_written_to_is_told() {
    let (members, done, bytes) = while_it_is_read(|path| {
        File::options().append(true).open(path).unwrap().write_all(&[9; 5_000_000]).unwrap();
    });
    assert_eq!(done.status.code(), Some(1));
    assert!(stderr(&done).starts_with("seekless: \"large\": became longer"), "{}", stderr(&done));
    assert!(members[0].1 == bytes && members[1].1 == b"after");
    let (members, done, bytes) = while_it_is_read(|path| {
        std::os::unix::fs::FileExt::write_at(&File::options().write(true).open(path).unwrap(), b"x", 0)
            .unwrap();
    });
    assert!(stderr(&done).starts_with("seekless: \"large\": changed"), "{}", stderr(&done));
    assert_eq!((done.status.code(), members[0].1.len()), (Some(1), bytes.len()));
}

#[test]
fn the_window_shrinks_where_files_are_evicted_before_they_are_used() {
    const FILES: usize = 400;
    let dir = folder();
    let paths: Vec<PathBuf> = (0..FILES).map(|i| dir.path().join(format!("f{i:03}"))).collect();
    for path in &paths {
        fs::write(path, [7; 64 << 10]).unwrap();
    }
    // Nothing stands for the memory that others take: the files are put out of it.
    if !memory::forget(&paths) {
        return skipped("files stay in memory here");
    }
    let refaulted = || Refaults::of_group().and_then(|group| group.bytes());
    for evicts in [false, true] {
        memory::forget(&paths);
        let again = refaulted();
        let args = ["--ahead", "8MiB", "--json", "/proc/self/fd/2", "."];
        let mut command = command(dir.path(), &args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (mut part, mut stream) = (vec![0; 512 << 10], Vec::new());
        loop {
            // What is ahead is in memory by now.
            thread::sleep(Duration::from_millis(4));
            if evicts {
                paths.iter().for_each(|path| memory::evict(&File::open(path).unwrap()));
            }
            let got = out.read(&mut part).unwrap();
            if got == 0 {
                break;
            }
            stream.extend_from_slice(&part[..got]);
        }
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", stderr(&done));
        assert_eq!(members(&stream).len(), FILES, "slower, and nothing is lost");
        let sum: serde_json::Value = serde_json::from_slice(&done.stderr).unwrap();
        let ahead = |name: &str| sum["ahead"][name].as_u64().unwrap();
        assert_eq!(ahead("window"), 8 << 20);
        // Others of a group with a limit may have read something again meanwhile.
        if evicts || refaulted() == again {
            assert_eq!(ahead("least") < ahead("window"), evicts, "{sum}");
        }
        assert!(ahead("least") >= 2 << 20, "{sum}");
    }
}

#[test]
fn wrong_usage_and_broken_streams_are_one_line() {
    let dir = folder();
    fs::write(dir.path().join("file"), content(1, 2_000_000)).unwrap();
    for args in [&["--ahead", "much"][..], &["--ahead", "1B", "file"], &["--batch", "0"], &["--by", "name"]] {
        assert_eq!(command(dir.path(), args).output().unwrap().status.code(), Some(2), "{args:?}");
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let out = command(dir.path(), &["file"]).stdout(full).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).starts_with("seekless: standard output cannot be written"), "{}", stderr(&out));
    assert_eq!(stderr(&out).lines().count(), 1);
    // A folder in place of a list.
    let out = command(dir.path(), &[]).stdin(File::open(dir.path()).unwrap()).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).starts_with("seekless: the list cannot be read"), "{}", stderr(&out));
    // Its reader has what it wants.
    let mut child =
        command(dir.path(), &["file"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 100]).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!((done.status.code(), stderr(&done).as_str()), (Some(0), ""));
    // It does not hold itself.
    let archive = dir.path().join("own.tar");
    let out = command(dir.path(), &["."]).stdout(File::create(&archive).unwrap()).output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(stderr(&out), "seekless: \"./own.tar\": is the stream itself, and is left out\n");
    let names: Vec<OsString> = members(&fs::read(&archive).unwrap()).into_iter().map(|m| m.0).collect();
    assert_eq!(names, ["file"]);
    fs::remove_file(&archive).unwrap();
    // The summary in place of the stream.
    let out = command(dir.path(), &["file", "--json"]).output().unwrap();
    let sum: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&sum["files"], &sum["bytes"]), (&1.into(), &2_000_000.into()));
}

/// A file of `size` bytes with data at these places, which is what is returned of them.
fn sparse(path: &Path, size: u64, data: &[(u64, usize)]) -> u64 {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for &(offset, len) in data {
        std::os::unix::fs::FileExt::write_all_at(&file, &content(offset as usize, len), offset).unwrap();
    }
    file.sync_all().unwrap();
    data.iter().map(|&(_, len)| len as u64).sum()
}

/// What `tar -S` reads: each member has its data, and is told where they lie.
#[test]
fn holes_are_told_and_not_written() {
    let dir = folder();
    let at = |name: &str| dir.path().join("set").join(name);
    fs::create_dir(dir.path().join("set")).unwrap();
    let pieces: Vec<(u64, usize)> = (0..70).map(|n| (n << 20, 4096)).collect();
    let deep = "long-name-".repeat(20);
    let mut data = 0;
    data += sparse(&at("begins"), 64 << 20, &[(0, 100_000)]);
    data += sparse(&at("ends"), (64 << 20) + 777, &[((64 << 20) + 700, 77)]);
    data += sparse(&at("middle"), 64 << 20, &[(20 << 20, 3 << 20), (40 << 20, 1)]);
    data += sparse(&at("pieces"), 70 << 20, &pieces);
    data += sparse(&at("nothing"), 32 << 20, &[]);
    data += sparse(&at("small"), 10_000, &[]);
    data += sparse(&at(&deep), 5 << 20, &[(1 << 20, 5000)]);
    data += sparse(&at("whole"), 3 << 20, &[(0, 3 << 20)]);
    data += sparse(&at("empty"), 0, &[]);
    // Longer than anything could be read or written, and than eleven octal digits say.
    data += sparse(&at("huge"), 200 << 30, &[(100 << 30, 300)]);
    let unwritten = File::create(at("unwritten")).unwrap();
    let allocated =
        rustix::fs::fallocate(&unwritten, rustix::fs::FallocateFlags::empty(), 0, 64 << 20).is_ok();
    let tells = |name: &str| {
        let file = File::open(at(name)).unwrap();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)) == Err(rustix::io::Errno::NXIO)
    };
    if !tells("nothing") {
        return skipped("this file system does not tell of holes");
    }
    if !allocated || !tells("unwritten") {
        println!("skipped in part: no file system of unwritten space");
        fs::remove_file(at("unwritten")).unwrap();
    }
    memory::forget(fs::read_dir(dir.path().join("set")).unwrap().map(|entry| entry.unwrap().path()));
    for args in
        [&["set"][..], &["--ahead", "0", "set"], &["--ahead", "64KiB", "set"], &["--no-daemon", "set"]]
    {
        let args = [args, &["--json", "sum.json"]].concat();
        let out = cat(dir.path(), &args, b"");
        assert!(out.status.success() && out.stderr.is_empty(), "{args:?}: {}", stderr(&out));
        // Heads, names and blocks of a page take some.
        let bytes = out.stdout.len() as u64;
        assert!((data..data + 700_000).contains(&bytes), "{args:?}: {bytes} for {data}");
        let sum: serde_json::Value =
            serde_json::from_slice(&fs::read(dir.path().join("sum.json")).unwrap()).unwrap();
        let lengths: u64 = fs::read_dir(dir.path().join("set"))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        let count = |name: &str| sum[name].as_u64().unwrap();
        assert_eq!(count("bytes") + count("holes"), lengths, "{sum}");
        assert!((data..data + 600_000).contains(&count("bytes")), "{sum}");
        let ahead = sum["ahead"]["bytes"].as_u64().unwrap_or(0);
        assert!(ahead <= data + 600_000, "holes were read: {sum}");
        // What everyone else makes of it.
        let copy = dir.path().join("copy");
        fs::create_dir(&copy).unwrap();
        let Ok(mut tar) =
            Command::new("tar").args(["xf", "-"]).current_dir(&copy).stdin(Stdio::piped()).spawn()
        else {
            return skipped("no tar");
        };
        tar.stdin.take().unwrap().write_all(&out.stdout).unwrap();
        assert!(tar.wait().unwrap().success());
        for entry in fs::read_dir(dir.path().join("set")).unwrap() {
            let (old, new) =
                (entry.as_ref().unwrap().path(), copy.join("set").join(entry.unwrap().file_name()));
            let (was, is) = (fs::metadata(&old).unwrap(), fs::metadata(&new).unwrap());
            assert_eq!(was.len(), is.len(), "{new:?}");
            assert!(is.blocks() * 512 <= was.blocks() * 512 + (128 << 10), "{new:?} has its holes");
            // The huge one around its data.
            let place = if was.len() > 1 << 30 { (100 << 30) - 5000 } else { 0 };
            let bytes = |path: &Path| {
                let mut bytes = vec![0; (was.len() - place).min(80 << 20) as usize];
                std::os::unix::fs::FileExt::read_exact_at(&File::open(path).unwrap(), &mut bytes, place)
                    .unwrap();
                bytes
            };
            assert!(bytes(&old) == bytes(&new), "{args:?}: {new:?}");
        }
        fs::remove_dir_all(&copy).unwrap();
        memory::forget(fs::read_dir(dir.path().join("set")).unwrap().map(|entry| entry.unwrap().path()));
    }
}
