//! `seekless-lab bitrates` on hostile folders, and its table in a daemon and in `serve`. Headers are made
//! here, byte by byte.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{Daemon, SEEKLESS, SEEKLESS_LAB, public_folder, shim};
use serde_json::Value;

/// A user that owns nothing.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat()
}

/// An MP4 file of so many bytes that plays for so many seconds.
fn film(bytes: usize, seconds: u32) -> Vec<u8> {
    let mut mvhd = vec![0; 100];
    mvhd[12..16].copy_from_slice(&1000u32.to_be_bytes());
    mvhd[16..20].copy_from_slice(&(seconds * 1000).to_be_bytes());
    let mut file = boxed(b"ftyp", b"isom\0\0\x02\0isom");
    file.extend(boxed(b"moov", &boxed(b"mvhd", &mvhd)));
    file.extend(boxed(b"mdat", &vec![7; bytes - file.len() - 8]));
    file
}

fn bitrates(words: &[&str], dir: &Path) -> Output {
    Command::new(SEEKLESS_LAB).arg("bitrates").args(words).arg(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The lines of a table, without remarks.
fn lines(table: &str) -> Vec<&str> {
    table.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn a_table_is_written_from_headers() {
    let dir = public_folder();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("b")).unwrap();
    fs::write(at("a film.mp4"), film(400_000, 8)).unwrap();
    fs::write(at("b/other.mp4"), film(1_000_000, 4)).unwrap();
    fs::write(at("b/short.mp4"), film(400_000, 1_000_000)).unwrap();
    fs::write(at("text"), "no film").unwrap();
    let here = fs::canonicalize(dir.path()).unwrap().display().to_string();
    let done = bitrates(&[], dir.path());
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    let expected = [format!("400kb/s {here}/a film.mp4"), format!("2Mb/s {here}/b/other.mp4")];
    assert_eq!(lines(&text(&done.stdout)), expected);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("b/short.mp4: 400000 bytes in 1000000.000 s: 0.000 Mb/s is no medium's rate"),
        "{said}"
    );

    let table = at("table");
    let done = bitrates(&["--json", "-", "--output", table.to_str().unwrap()], dir.path());
    assert_eq!(lines(&fs::read_to_string(&table).unwrap()), expected);
    let json: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(json["bitrates"][0]["bytes_per_s"], 50_000, "{json}");
    assert_eq!((&json["bitrates"][0]["from"], &json["left_out_count"]), (&"header".into(), &1.into()));
    // Again over its own table, but over no film.
    assert!(bitrates(&["-o", table.to_str().unwrap()], dir.path()).status.success());
    let done = bitrates(&["-o", at("text").to_str().unwrap()], dir.path());
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("it exists and holds no table; choose another file"));
    for (wrong, status) in [("none", 5), ("text", 2)] {
        let done = bitrates(&[], &at(wrong));
        let said = text(&done.stderr);
        assert_eq!((done.status.code(), said.lines().count()), (Some(status), 1), "{said}");
        assert!(said.contains("name a folder"), "{said}");
    }
}

/// Names that would forge lines of a log or reach a terminal, read back by what reads a table.
#[test]
fn a_newline_in_a_name_stays_in_its_line() {
    let dir = public_folder();
    let name = std::ffi::OsStr::from_bytes(b"a\nseekless: forged\x1b[2J \xff.mp4");
    fs::write(dir.path().join(name), film(400_000, 8)).unwrap();
    let lie = std::ffi::OsStr::from_bytes(b"b\nseekless: forged.mp4");
    fs::write(dir.path().join(lie), film(400_000, 1_000_000)).unwrap();
    let done = bitrates(&["--output", dir.path().join("table").to_str().unwrap()], dir.path());
    let (table, said) = (fs::read_to_string(dir.path().join("table")).unwrap(), text(&done.stderr));
    assert_eq!(lines(&table).len(), 1, "{table:?}");
    assert!(lines(&table)[0].ends_with("/a\\x0aseekless: forged\\x1b[2J \\xff.mp4"), "{table:?}");
    assert!(said.lines().all(|line| line.starts_with("seekless-lab bitrates: ")), "{said:?}");
    assert!(!said.contains('\x1b') && said.contains("b\\x0aseekless: forged.mp4: "), "{said:?}");

    let daemon = Daemon::start(dir.path(), &["--bitrates", dir.path().join("table").to_str().unwrap()]);
    let report = read_by(&daemon, 1);
    assert_eq!((&report["files"], &report["lines_left_out"]), (&1.into(), &0.into()), "{report}");
}

/// The status of a daemon that has read its table so many times.
fn read_by(daemon: &Daemon, readings: u64) -> Value {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let report = daemon.status().map(|status| status["bitrates"].clone()).unwrap_or_default();
        if report["readings"].as_u64() >= Some(readings) {
            return report;
        }
        assert!(Instant::now() < until, "the table is not read: {report}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A description of 256 KiB that took 4.1 GB and 15 s: one address of half of it, named a thousand times.
#[test]
fn a_hostile_description_is_one_line_and_little_memory() {
    let dir = public_folder();
    let segment = "<SegmentURL media=\"a\"/>";
    let base = "x".repeat(128 << 10);
    let segments = segment.repeat(((256 << 10) - base.len() - 400) / segment.len());
    let mpd = format!(
        "<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\"><Period><AdaptationSet><Representation bandwidth=\"80000\">\
         <BaseURL>{base}</BaseURL><SegmentList>{segments}</SegmentList></Representation></AdaptationSet></Period></MPD>"
    );
    fs::write(dir.path().join("a.mpd"), &mpd).unwrap();
    // A playlist and a film of noise besides.
    fs::write(dir.path().join("b.m3u8"), format!("#EXTM3U\n{}", "#EXTINF:1,\n".repeat(20_000))).unwrap();
    let noise: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(dir.path().join("c.mkv"), [&[0x1a, 0x45, 0xdf, 0xa3][..], &noise].concat()).unwrap();
    fs::write(dir.path().join("d.mp4"), film(400_000, 8)).unwrap();
    let began = Instant::now();
    let done = bitrates(&[], dir.path());
    let said = text(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("a.mpd: an address has more than 4096 bytes"), "{said}");
    assert!(lines(&text(&done.stdout)).iter().any(|line| line.ends_with("/d.mp4")), "the others stand");
    assert!(said.lines().count() <= 3, "{said}");
    assert!(began.elapsed() < Duration::from_secs(30));
}

/// The process that reads a header, held where it is about to say what it found: its standard output is full.
#[test]
fn a_header_is_read_without_rights_and_within_limits() {
    let dir = public_folder();
    let path = dir.path().join("film.mp4");
    fs::write(&path, film(400_000, 8)).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[0; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let mut one = Command::new(SEEKLESS_LAB)
        .args(["bitrates", "--one", "."])
        .stdin(fs::File::open(&path).unwrap())
        .stdout(writer)
        .spawn()
        .unwrap();
    let about = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", one.id())).unwrap_or_default();
    let line = |name: &str, begins: &str| {
        let text = about(name);
        let line = text.lines().find_map(|line| line.strip_prefix(begins)).unwrap_or_default().to_string();
        line.split_whitespace().map(String::from).collect::<Vec<_>>()
    };
    let until = Instant::now() + Duration::from_secs(30);
    while line("status", "NoNewPrivs:") != ["1"] {
        assert!(Instant::now() < until, "rights remain: {}", about("status"));
        std::thread::sleep(Duration::from_millis(5));
    }
    let limit = |name: &str| line("limits", name)[0].parse::<u64>().unwrap();
    let found =
        (limit("Max cpu time"), limit("Max file size"), limit("Max data size"), limit("Max open files"));
    let mapped = limit("Max address space");
    let (rights, user) = (line("status", "CapPrm:"), line("status", "Uid:"));
    one.kill().unwrap();
    one.wait().unwrap();
    drop(reader);
    assert_eq!(found, (2, 0, 64 << 20, 8));
    assert!(mapped < 2 << 30, "{mapped}");
    assert_eq!(rights, ["0000000000000000"]);
    if is_root() {
        assert_eq!(user, [NOBODY.to_string().as_str(); 4]);
    }
}

/// Root opens what a user without rights could not, and no more: it parses nothing.
#[test]
fn root_has_files_read_that_only_it_may_open() {
    if !is_root() {
        return println!("skipped: only root may open other users' files");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("film.mp4");
    fs::write(&path, film(400_000, 8)).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let done = bitrates(&[], dir.path());
    assert_eq!(lines(&text(&done.stdout)).len(), 1, "{}", text(&done.stderr));
}

/// A file of 8 MiB on whatever disk the tests are built on, not in memory; `None`: it cannot be.
fn cold(name: &str) -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bitrates");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(name);
    fs::write(&path, vec![7; 8 << 20]).unwrap();
    common::forget(&path);
    let file = fs::File::open(&path).unwrap();
    let there = seekless_kernel::residency::resident_prefix(std::os::fd::AsFd::as_fd(&file), 0, 8 << 20);
    if there.is_ok_and(|there| there == 8 << 20) {
        println!("skipped: {} lies on a file system in memory", dir.display());
        return None;
    }
    Some(path)
}

/// Reads so many blocks from the beginning of a file under the shim.
fn read_by_shim(daemon: &Daemon, path: &Path, blocks: u32) {
    let read = Command::new("dd")
        .arg(format!("if={}", path.display()))
        .args(["of=/dev/null", "bs=64k", "status=none", &format!("count={blocks}")])
        .env("LD_PRELOAD", shim())
        .env("SEEKLESS_SOCKET", &daemon.socket)
        .status();
    assert!(read.unwrap().success());
}

/// The square-root rule: a sixteenth of the bitrate, a quarter of the size.
#[test]
fn the_bitrates_of_a_table_set_the_sizes_of_pieces() {
    let (Some(high), Some(low)) = (cold("high"), cold("low")) else { return };
    let dir = public_folder();
    let (table, log) = (dir.path().join("table"), dir.path().join("log"));
    let lines = format!("16Mb/s {}\n1Mb/s {}\nnonsense\n", high.display(), low.display());
    fs::write(&table, lines).unwrap();
    let options = ["--prefetch", "4MiB", "--ahead", "off", "--scale", "sqrt"];
    let files = ["--bitrates", table.to_str().unwrap(), "--decisions", log.to_str().unwrap()];
    let mut daemon = Daemon::start(dir.path(), &[&options[..], &files].concat());
    let report = read_by(&daemon, 1);
    assert_eq!((&report["files"], &report["lines_left_out"]), (&2.into(), &1.into()), "{report}");
    read_by_shim(&daemon, &high, 1);
    read_by_shim(&daemon, &low, 1);
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.ended());
    let log = fs::read_to_string(&log).unwrap();
    let reads: Vec<u64> = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|line| line[2]["action"]["read"]["len"].as_u64())
        .collect();
    assert_eq!(reads, [4 << 20, 1 << 20], "{log}");
}

/// What a user wrote is read by no process that serves others, and names are in no line of its.
#[test]
fn a_daemon_parses_no_media() {
    let Some(path) = cold("parsed\nseekless: forged.mpd") else { return };
    let segment = "<SegmentURL media=\"a\"/>";
    let mpd = format!(
        "<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\"><Period><AdaptationSet><Representation bandwidth=\"80000\">\
         <BaseURL>{}</BaseURL><SegmentList>{}</SegmentList></Representation></AdaptationSet></Period></MPD>",
        "x".repeat(64 << 10),
        segment.repeat(5_000)
    );
    fs::write(&path, mpd).unwrap();
    common::forget(&path);
    let dir = public_folder();
    let daemon = Daemon::start(dir.path(), &[]);
    read_by_shim(&daemon, &path, 1);
    read_by_shim(&daemon, &path, 16);
    // Before, a thread looked at the file within a moment after its first read was reported.
    let most = || {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().to_string();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert!(most() < 200 << 10, "{} KiB", most());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_table_that_cannot_be_is_one_line() {
    let dir = public_folder();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    fs::write(at("table"), "").unwrap();
    let mut refused = vec![("none", 5, "there is no such file; `seekless-lab bitrates` writes one")];
    if is_root() {
        fs::write(at("theirs"), "").unwrap();
        chown(at("theirs"), Some(NOBODY), None).unwrap();
        symlink("table", at("link")).unwrap();
        std::os::unix::fs::lchown(at("link"), Some(NOBODY), None).unwrap();
        fs::write(at("open"), "").unwrap();
        fs::set_permissions(at("open"), PermissionsExt::from_mode(0o666)).unwrap();
        refused.push((
            "theirs",
            3,
            "theirs belongs to user 65534, and root believes only what root alone can",
        ));
        refused.push(("link", 3, "link belongs to user 65534"));
        refused.push(("open", 3, "open may be written to by other users"));
    }
    let tmp = dir.path().to_str().unwrap();
    for (table, status, why) in refused {
        let table = at(table);
        for words in [
            &["daemon", "--socket", &at("s"), "--bitrates", &table][..],
            &["run", "--bitrates", &table, "--", "true"],
            &["serve", tmp, "--listen", "127.0.0.1:0", "--bitrates", &table],
            &["watch", tmp, "--bitrates", &table],
            &["observe", tmp, "--bitrates", &table],
        ] {
            let mut command = Command::new(&*SEEKLESS);
            command.args(words).env("SEEKLESS_SHIM", shim()).env("SEEKLESS_STATE", at("state"));
            let done = command.output().unwrap();
            let said = text(&done.stderr);
            assert_eq!((done.status.code(), said.lines().count()), (Some(status), 1), "{words:?}: {said}");
            assert!(said.contains(why), "{words:?}: {said}");
        }
    }
}
