use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::thread;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use seekless_base::Exit;

use super::*;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn make(path: &Path, kind: FileType, device: u64) -> rustix::io::Result<()> {
    mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, device)
}

#[test]
fn a_replaced_file_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    whole(&path, "a longer first text").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    replace_synced(&path, "second").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(names(dir.path()), ["r.json"]);
}

/// A symlink that another user has made where root writes; not in a folder with the sticky bit, where Linux
/// itself may refuse.
#[test]
fn root_follows_no_symlink_of_another_user() {
    use std::os::unix::fs::lchown;
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can give symlinks away");
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("victim"), "precious").unwrap();
    for (link, target) in [("planted", "victim"), ("dangling", "nowhere")] {
        symlink(target, at(link)).unwrap();
        lchown(at(link), Some(65534), Some(65534)).unwrap();
        // A symlink of root's own that leads to it.
        symlink(link, at(&format!("by-{link}"))).unwrap();
        for path in [at(link), at(&format!("by-{link}"))] {
            let fault = whole(&path, "text").unwrap_err();
            assert!(
                fault.message.contains("symlink of user 65534") && !fault.message.contains('\n'),
                "{fault}"
            );
            assert!(offer(&path, "text").is_err());
            assert_eq!(create(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert_eq!(place(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }
    make(&at("fifo"), FileType::Fifo, 0).unwrap();
    symlink("fifo", at("to-fifo")).unwrap();
    lchown(at("to-fifo"), Some(65534), None).unwrap();
    assert!(offer(&at("to-fifo"), "text").is_err());
    assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
    assert!(!at("nowhere").exists());
    // Its own symlinks are followed as before.
    symlink("victim", at("own")).unwrap();
    whole(&at("own"), "new").unwrap();
    assert_eq!(fs::read(at("victim")).unwrap(), b"new");
    drop(create(&at("own")).unwrap());
    assert_eq!(fs::read(at("victim")).unwrap(), b"");
    assert_eq!(place(&at("own")).unwrap(), at("victim"));
}

#[test]
fn a_failed_write_leaves_the_old_text_and_no_other_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let half = |file: &mut File| {
        file.write_all(b"ha").unwrap();
        Err(io::ErrorKind::StorageFull.into())
    };
    let full = fill(&path, half).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert_eq!(names(dir.path()), [""; 0]);
    whole(&path, "old").unwrap();
    fill(&path, half).unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(dir.path()), ["r.json"]);
}

#[test]
fn a_place_that_cannot_be_written_is_named_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    // Not even root can make files in /proc, and a folder is no file.
    for path in [dir.path().join("no/such"), "/proc/seekless.json".into(), dir.path().into()] {
        let fault = whole(&path, "text").unwrap_err();
        assert_eq!(fault.exit, Exit::Failed);
        let line = fault.message;
        assert!(line.starts_with(&format!("cannot write {}: ", path.display())), "{line}");
        assert!(line.ends_with("; choose another file") && !line.contains('\n'), "{line}");
        assert_eq!(writable([path.as_path()]).unwrap_err().message, line, "known before the work too");
    }
    assert_eq!(names(dir.path()), [""; 0]);
    let file = dir.path().join("old");
    fs::write(&file, "text").unwrap();
    writable([file.as_path(), Path::new("/dev/null"), Path::new("-")]).unwrap();
    assert_eq!((names(dir.path()), fs::read(&file).unwrap()), (vec!["old".to_owned()], b"text".to_vec()));
}

#[test]
fn json_takes_the_place_of_json_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r");
    replaceable_by_json(&path).unwrap();
    for text in ["", " \n", "{}", "\n[1]"] {
        fs::write(&path, text).unwrap();
        replaceable_by_json(&path).unwrap();
    }
    for text in ["srv/a\nsrv/b\n", "seekless-decisions 7\n"] {
        fs::write(&path, text).unwrap();
        let fault = replaceable_by_json(&path).unwrap_err();
        assert_eq!(fault.exit, Exit::Usage);
        assert!(fault.message.contains("holds no JSON") && !fault.message.contains('\n'), "{fault}");
    }
    for place in ["-", "/dev/null", "/dev/stdout"] {
        replaceable_by_json(Path::new(place)).unwrap();
    }
}

#[test]
fn a_symlink_stays_and_its_target_has_the_text() {
    let dir = tempfile::tempdir().unwrap();
    let (link, target) = (dir.path().join("link"), dir.path().join("target"));
    symlink("target", &link).unwrap();
    for text in ["made through the link", "shorter"] {
        whole(&link, text).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), text);
    }
    assert_eq!(names(dir.path()), ["link", "target"]);
}

/// Through symlinks, so that a mistake replaces those and not the machine's devices.
#[test]
fn a_device_takes_the_text_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let (null, full) = (dir.path().join("null"), dir.path().join("full"));
    symlink("/dev/null", &null).unwrap();
    symlink("/dev/full", &full).unwrap();
    whole(&null, "text").unwrap();
    replace_synced(&null, "text").unwrap();
    assert_eq!(replace(&full, "text").unwrap_err().kind(), io::ErrorKind::StorageFull);
    for link in [&null, &full] {
        assert!(fs::symlink_metadata(link).unwrap().is_symlink());
        assert!(fs::metadata(link).unwrap().file_type().is_char_device());
    }
    assert_eq!(names(dir.path()), ["full", "null"]);
}

#[test]
fn a_disk_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    // A loop device that does not exist: opening it would give another error.
    if let Err(error) = make(&disk, FileType::BlockDevice, makedev(7, 99_999)) {
        return println!("skipped: no right to make a device: {error}");
    }
    symlink("disk", dir.path().join("link")).unwrap();
    for path in [disk, dir.path().join("link")] {
        let line = format!("cannot write {}: it is a block device; choose another file", path.display());
        assert_eq!(writable([path.as_path()]).unwrap_err().message, line);
        assert_eq!(whole(&path, "text").unwrap_err().message, line);
        assert_eq!(offer(&path, "text").unwrap_err().message, line);
        assert_eq!(create(&path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn a_device_of_our_own_stays_a_device() {
    let dir = tempfile::tempdir().unwrap();
    let null = dir.path().join("null");
    if let Err(error) = make(&null, FileType::CharacterDevice, makedev(1, 3)) {
        assert_eq!(error, rustix::io::Errno::PERM);
        std::eprintln!("not run: device nodes are made by root alone");
        return;
    }
    // On a file system mounted `nodev` it cannot be opened; in any case it stays.
    if let Err(error) = replace(&null, "text") {
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
    assert!(fs::symlink_metadata(&null).unwrap().file_type().is_char_device());
    assert_eq!(names(dir.path()), ["null"]);
}

#[test]
fn a_fifo_hands_on_the_whole_text() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    make(&fifo, FileType::Fifo, 0).unwrap();
    // Several times what a pipe holds.
    let text = "0123456789abcdef".repeat(1 << 14);
    let reader = thread::spawn({
        let fifo = fifo.clone();
        move || fs::read_to_string(fifo).unwrap()
    });
    whole(&fifo, &text).unwrap();
    // This comes first: the reader of a FIFO that was replaced would wait for ever.
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    assert!(reader.join().unwrap() == text);
    assert_eq!(names(dir.path()), ["fifo"]);
}

#[test]
fn a_reader_of_a_fifo_that_went_away_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    make(&fifo, FileType::Fifo, 0).unwrap();
    let reader = thread::spawn({
        let fifo = fifo.clone();
        move || drop(File::open(fifo).unwrap())
    });
    whole(&fifo, vec![b'x'; 1 << 20]).unwrap();
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    reader.join().unwrap();
}

#[test]
fn json_is_pretty_and_ends_with_a_newline() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    json(&path, &[1, 2]).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "[\n  1,\n  2\n]\n");
    assert_eq!(pretty(&std::collections::BTreeMap::from([((1, 2), 3)])).unwrap_err().exit, Exit::Failed);
}

fn within<T: Send + 'static>(patience: Duration, what: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || tell.send(what()));
    told.recv_timeout(patience).expect("it does not wait for ever")
}

#[test]
fn a_fifo_without_a_reader_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    make(&fifo, FileType::Fifo, 0).unwrap();
    let (a, b) = (fifo.clone(), fifo.clone());
    assert!(!within(Duration::from_secs(20), move || offer(&a, "text").unwrap()));
    // A reader that takes nothing: more than a pipe holds.
    let mut options = OpenOptions::new();
    let reader = options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&fifo).unwrap();
    assert!(!within(Duration::from_secs(20), move || offer(&b, vec![b'x'; 1 << 20]).unwrap()));
    drop(reader);
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
}

#[test]
fn a_fifo_with_a_reader_hands_on_what_is_offered() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    make(&fifo, FileType::Fifo, 0).unwrap();
    let mut options = OpenOptions::new();
    let mut reader =
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&fifo).unwrap();
    let text = "0123456789abcdef".repeat(1 << 14);
    let offered = thread::spawn({
        let (fifo, text) = (fifo.clone(), text.clone());
        move || offer(&fifo, text).unwrap()
    });
    let mut got = Vec::new();
    while got.len() < text.len() {
        if let Err(e) = io::Read::read_to_end(&mut reader, &mut got) {
            assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
            thread::sleep(Duration::from_millis(2));
        }
    }
    assert!(offered.join().unwrap() && got == text.as_bytes());
    // What is not a FIFO is written as before.
    let file = dir.path().join("file");
    assert!(offer(&file, "text").unwrap());
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
}

#[test]
fn a_place_is_found_through_its_symlinks() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("sub")).unwrap();
    fs::write(at("sub/file"), "text").unwrap();
    symlink("sub/file", at("one")).unwrap();
    symlink("one", at("two")).unwrap();
    symlink("../new", at("sub/dangling")).unwrap();
    symlink("round", at("round")).unwrap();
    assert_eq!(place(&at("two")).unwrap(), at("sub/file"));
    assert_eq!(place(&at("sub/file")).unwrap(), at("sub/file"));
    assert_eq!(place(&at("sub/dangling")).unwrap(), at("sub/../new"));
    assert_eq!(place(&at("nothing")).unwrap(), at("nothing"));
    assert!(place(&at("round")).is_err());
    // Like `/dev/stdout`: through a descriptor to a file that may have lost its name.
    let open = File::open(at("sub/file")).unwrap();
    let by = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
    symlink(&by, at("stdout")).unwrap();
    assert_eq!(place(&at("stdout")).unwrap(), fs::canonicalize(at("sub/file")).unwrap());
    fs::remove_file(at("sub/file")).unwrap();
    assert_eq!(place(&at("stdout")).unwrap_err().kind(), io::ErrorKind::NotFound);
}
