use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::*;

fn id(path: &Path) -> FileId {
    let about = fs::metadata(path).unwrap();
    FileId { dev: about.dev(), ino: about.ino() }
}

/// Reads a table once. Returns the bitrates, the number of lines without a result, and the first of them.
fn read(table: &Path) -> (Bitrates, u64, Option<String>) {
    let bitrates = Bitrates::default();
    let mut reading = Reading::of(table, opened(table).unwrap()).unwrap();
    reading.all(&bitrates, 1, &AtomicBool::new(false));
    bitrates.end(1);
    (bitrates, reading.left_out, reading.first_left_out)
}

#[test]
fn a_table_tells_the_bitrates_of_files_by_relative_and_absolute_paths() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("films")).unwrap();
    for name in ["films/a film.mp4", "films/new\nline.mp4", "b.mp4"] {
        fs::write(at(name), "x").unwrap();
    }
    let table = at("table");
    let absolute = at("b.mp4");
    let text = format!(
        "# films\n\n400kb/s films/a film.mp4\r\n  1MB/s\tfilms/new\\x0aline.mp4\n8kb/s {}",
        absolute.display()
    );
    fs::write(&table, text).unwrap();
    let (bitrates, left_out, _) = read(&table);
    assert_eq!(left_out, 0);
    assert_eq!(bitrates.of(id(&at("films/a film.mp4"))), Some(50_000));
    assert_eq!(bitrates.of(id(&at("films/new\nline.mp4"))), Some(1_000_000));
    assert_eq!(bitrates.of(id(&absolute)), Some(1_000));
    assert_eq!(bitrates.of(id(&table)), None);
}

#[test]
fn bad_lines_are_counted_and_the_first_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (table, film) = (dir.path().join("table"), dir.path().join("a"));
    fs::write(&film, "x").unwrap();
    for (line, why) in [
        ("2095 a", "line 1: `2095` is not a bitrate: it has no unit; write for example"),
        ("400kb/s", "line 1: there is no path after the bitrate; write for example"),
        ("a 400kb/s", "line 1: `a` is not a bitrate: it does not start with a number"),
        ("400kb/s \\n", "line 1: its path has a byte that is to be written \\xHH"),
        ("400kb/s a\x1b[2J", "line 1: its path has a byte that is to be written \\xHH"),
        ("400kb/s a\\x00", "line 1: its path has a zero byte"),
        ("400kb/s nothing\\x0ahere", "line 1: nothing\\x0ahere: No such file"),
        ("400kb/s .", "line 1: .: no regular file"),
        (&"x".repeat(LINE_BYTES_MAX as usize + 9), "line 1: it is longer than 16448 bytes"),
    ] {
        fs::write(&table, format!("{line}\n400kb/s a\nnonsense\n")).unwrap();
        let (bitrates, left_out, first) = read(&table);
        let first = first.unwrap();
        assert!(first.starts_with(why) && !first.contains(char::is_control), "{first}");
        assert_eq!((left_out, bitrates.of(id(&film))), (2, Some(50_000)), "the others stand: {line}");
    }
}

#[test]
fn no_link_leads_a_bitrate_to_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for folder in ["mine", "theirs"] {
        fs::create_dir(at(folder)).unwrap();
    }
    fs::write(at("theirs/film"), "x").unwrap();
    symlink(at("theirs"), at("mine/folder")).unwrap();
    symlink(at("theirs/film"), at("mine/film")).unwrap();
    fs::write(at("table"), "400kb/s mine/folder/film\n400kb/s mine/film\n").unwrap();
    let (bitrates, left_out, first) = read(&at("table"));
    assert_eq!((bitrates.of(id(&at("theirs/film"))), left_out), (None, 2));
    assert!(first.unwrap().contains("there is a symlink in it"));
}

#[test]
fn a_later_reading_replaces_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("a"), "x").unwrap();
    fs::write(at("b"), "x").unwrap();
    let bitrates = Bitrates::default();
    for (number, text) in [(1, "400kb/s a\n400kb/s b\n"), (2, "800kb/s a\n")] {
        fs::write(at("table"), text).unwrap();
        let mut reading = Reading::of(&at("table"), opened(&at("table")).unwrap()).unwrap();
        reading.all(&bitrates, number, &AtomicBool::new(false));
        bitrates.end(number);
    }
    assert_eq!((bitrates.of(id(&at("a"))), bitrates.of(id(&at("b")))), (Some(100_000), None));
}

#[test]
fn what_is_no_table_is_refused_before_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let refused = |name: &str| check_table(&at(name)).unwrap_err();
    let missing = refused("none");
    assert_eq!(missing.exit, Exit::Missing);
    assert!(
        missing.message.contains("there is no such file; `seekless-lab bitrates` writes one"),
        "{missing}"
    );
    fs::create_dir(at("folder")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    for name in ["folder", "fifo"] {
        let fault = refused(name);
        assert_eq!(fault.exit, Exit::Usage, "{fault}");
        assert!(fault.message.contains("it is not a regular file"), "{fault}");
    }
    File::create(at("long")).unwrap().set_len(BITRATES_BYTES_MAX + 1).unwrap();
    assert!(refused("long").message.contains("are more than the 67108864 of a table"));
    fs::write(at("table"), "").unwrap();
    assert_eq!(check_table(&at("table")), Ok(()));
}

#[test]
fn root_believes_only_what_root_alone_can_write() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root has other users' files");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mode = |name: &str, bits| fs::set_permissions(at(name), PermissionsExt::from_mode(bits)).unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/table"), "").unwrap();
    symlink("folder/table", at("link")).unwrap();
    let refused = |name: &str, why: &str| {
        let fault = check_table(&at(name)).unwrap_err();
        assert_eq!(fault.exit, Exit::Permission, "{fault}");
        assert!(fault.message.contains(why), "{fault}");
    };
    assert_eq!(check_table(&at("link")), Ok(()));
    mode("folder/table", 0o666);
    refused("folder/table", "may be written to by other users");
    mode("folder/table", 0o644);
    mode("folder", 0o777);
    refused("folder/table", "folder may be written to by other users");
    mode("folder", 0o1777);
    assert_eq!(check_table(&at("folder/table")), Ok(()), "as in /tmp");
    chown(at("folder"), Some(65_534), None).unwrap();
    refused("folder/table", "folder belongs to user 65534");
    chown(at("folder"), Some(0), None).unwrap();
    chown(at("folder/table"), Some(65_534), None).unwrap();
    refused("link", "table belongs to user 65534");
    chown(at("folder/table"), Some(0), None).unwrap();
    std::os::unix::fs::lchown(at("link"), Some(65_534), None).unwrap();
    refused("link", "link belongs to user 65534");
}
