//! Disks brought up for real: FUSE, loop device, ext4, faults, and what is left when they end in every way
//! there is.
//!
//! Needs root, `/dev/fuse` and loop devices; without them each test says `skipped:` and passes. Every disk
//! lives in a state directory of its own test, and a guard takes it down also when the test fails.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use seekless_model::workload::content::Content;
use serde_json::Value;

use common::{Bench, files_below, kill, open_direct, program, read_direct};

#[test]
fn a_set_serves_its_library_with_a_member_slow_failed_and_rebuilt() {
    let Some(bench) = Bench::new() else { return };
    let mount = bench.path("mnt");
    let files: Vec<(String, u64)> = (0..12).map(|i| (format!("{i:03}.mp4"), (6 << 20) + i * 4096)).collect();
    let manifest = bench.path("manifest");
    fs::write(&manifest, files.iter().map(|(p, s)| format!("{s} {p}\n")).collect::<String>()).unwrap();
    let set = ["--set", "raid5", "--members", "4", "--chunk", "64KiB", "--speedup", "50"];
    let at = ["--mount", mount.to_str().unwrap()];
    let up = bench.up(&[set.as_slice(), at.as_slice()].concat());
    let config = &up["set"];
    assert_eq!((config["kind"].as_str(), config["members"].as_u64()), (Some("raid5"), Some(4)));
    bench.json(&["populate", "--name", "d", "--manifest", manifest.to_str().unwrap()]);
    let read_all = || {
        for (path, size) in &files {
            let file = open_direct(&mount.join(path));
            let data = read_direct(&file, 0, *size as usize).unwrap();
            assert_eq!(Content::of_path(path).check(0, &data), Ok(()), "{path}");
        }
        bench.json(&["stats", "--name", "d", "--reset"])["members"].clone()
    };
    let read = |members: &Value, i: usize| members[i]["spindles"][0]["read_bytes"].as_u64().unwrap();
    bench.json(&["stats", "--name", "d", "--reset"]);
    let whole = read_all();
    assert!((0..4).all(|i| read(&whole, i) > 1 << 20), "{whole}");
    let order = ["fault", "--name", "d", "--slow-member", "1,3", "--fail-member", "2"];
    let now = &bench.json(&order)["faults"]["members"];
    assert_eq!((now[0]["slow"].as_f64(), now[1]["health"].as_str()), (Some(3.0), Some("failed")));
    let degraded = read_all();
    assert_eq!(read(&degraded, 2), 0, "a failed member is not read");
    assert!(read(&degraded, 0) > read(&whole, 0), "the others are read for it");
    bench.json(&["fault", "--name", "d", "--rebuild-member", "2"]);
    read_all();
    let now = bench.json(&["fault", "--name", "d", "--clear"]);
    assert_eq!(now["faults"]["members"], Value::Null, "{now}");
    assert!(read(&read_all(), 2) > 1 << 20);
    assert!(bench.fault(2, &["fault", "--name", "d", "--fail-member", "7"]).contains("0 to 3"));
    bench.json(&["down", "--name", "d"]);
    bench.assert_clean();
    for (words, said) in [
        (&["--set", "raid6", "--members", "3"][..], "give 4 to 64"),
        (&["--set", "raid0"], "--members is missing"),
        (&["--members", "4"], "--set"),
    ] {
        let args = [&["up", "--name", "d", "--size", "1GiB", "--fs", "none"], words].concat();
        assert!(bench.fault(2, &args).contains(said), "{words:?}");
    }
}

#[test]
fn a_library_is_served_verified_and_traced() {
    let Some(bench) = Bench::new() else { return };
    let (mount, trace) = (bench.path("mnt"), bench.path("trace.csv"));
    // Odd sizes, nested folders: 200 MB in all.
    let files: Vec<(String, u64)> =
        (0..25).map(|i| (format!("v{}/{i:03}.mp4", i % 3), 8_000_000 + i * 777)).collect();
    let manifest = bench.path("manifest");
    fs::write(&manifest, files.iter().map(|(p, s)| format!("{s} {p}\n")).collect::<String>()).unwrap();
    let up = bench.up(&[
        "--mount",
        mount.to_str().unwrap(),
        "--speedup",
        "50",
        "--trace",
        trace.to_str().unwrap(),
        "--scheduler",
        "mq-deadline",
    ]);
    assert_eq!(up["name"], "d");
    let number = up["loop_number"].as_u64().unwrap();
    let setting = |name: &str| fs::read_to_string(format!("/sys/block/loop{number}/queue/{name}")).unwrap();
    assert_eq!(setting("rotational").trim(), "1");
    assert_eq!(setting("read_ahead_kb").trim(), "128");
    assert!(setting("scheduler").contains("[mq-deadline]"));
    let done = bench.json(&["populate", "--name", "d", "--manifest", manifest.to_str().unwrap()]);
    assert_eq!(done["bytes"].as_u64().unwrap(), files.iter().map(|f| f.1).sum::<u64>());
    let cold = bench.json(&["stats", "--name", "d", "--reset"]);
    assert_eq!(cold["stats"]["writes"], 0, "population takes no drive time");
    assert!(cold["backing_bytes"].as_u64().unwrap() < 64 << 20, "the library itself takes no storage");
    let bytes = files.iter().map(|f| f.1).sum::<u64>();
    for (path, size) in &files {
        let mut data = Vec::new();
        File::open(mount.join(path)).unwrap().read_to_end(&mut data).unwrap();
        assert_eq!(data.len() as u64, *size);
        assert_eq!(Content::of_path(path).check(0, &data), Ok(()), "{path}");
    }
    let stats = bench.json(&["stats", "--name", "d"]);
    let (read, seeks) = (&stats["stats"]["read_bytes"], &stats["stats"]["seeks"]);
    assert!(read.as_u64().unwrap() >= bytes, "the files were cold: {stats}");
    assert!(seeks.as_u64().unwrap() >= files.len() as u64, "one seek a file at least: {stats}");
    let parts: u64 = ["seek_ns", "rotation_ns", "transfer_ns", "overhead_ns"]
        .map(|p| stats["stats"][p].as_u64().unwrap())
        .iter()
        .sum();
    let s = |name: &str| stats["stats"][name].as_u64().unwrap();
    assert_eq!(s("busy_ns") + s("idle_ns"), s("elapsed_ns"));
    assert!(s("service_ns") <= s("busy_ns"), "{stats}");
    assert!(parts >= s("service_ns"), "time in service is all accounted for: {stats}");
    // The trace tells the same.
    let text = fs::read_to_string(&trace).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("arrival_ns,op,lba,sectors,started_ns,finished_ns,queue,disk_lba"));
    let (mut traced, mut reached) = (0, 0);
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let n = |i: usize| fields[i].parse::<u64>().unwrap();
        assert_eq!(fields.len(), 8, "{line}");
        assert!(n(0) <= n(4) && n(4) <= n(5), "{line}");
        assert!(n(7) * 512 < 1 << 30, "{line}");
        reached = reached.max(n(2));
        traced += if fields[1] == "R" { n(3) * 512 } else { 0 };
    }
    assert!(traced >= bytes);
    assert!(reached * 512 > 800_000_000_000, "a fifth of the disk is spread over the whole drive: {reached}");
    bench.json(&["down", "--name", "d"]);
    bench.assert_clean();
    assert!(!mount.exists(), "the mount directory was made for the disk");
    assert_eq!(setting("rotational").trim(), "0", "the loop device is as it was");
}

#[test]
fn faults_act_only_in_their_range_and_until_cleared() {
    let Some(bench) = Bench::new() else { return };
    let up = bench.up(&["--fs", "none", "--speedup", "50"]);
    let device = PathBuf::from(up["device"].as_str().unwrap());
    let content = Content::of_path("x");
    let mut data = vec![0; 4 << 20];
    content.fill(0, &mut data);
    let writer = OpenOptions::new().write(true).open(&device).unwrap();
    writer.write_all_at(&data, 0).unwrap();
    writer.sync_all().unwrap();
    drop(writer);
    let file = open_direct(&device);
    let good = |offset: u64| content.check(offset, &read_direct(&file, offset, 65536).unwrap());
    assert_eq!(good(1 << 20), Ok(()));

    bench.json(&["fault", "--name", "d", "--eio", "1MiB+4KiB"]);
    let error = read_direct(&file, 1 << 20, 65536).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    assert_eq!(good(2 << 20), Ok(()), "elsewhere all is well");
    assert_eq!(good((1 << 20) + 4096), Ok(()), "also right behind");
    let stats = bench.json(&["stats", "--name", "d"]);
    assert_eq!(stats["faults"]["eio"][0]["offset"], 1 << 20);
    assert!(stats["stats"]["errors"].as_u64().unwrap() >= 1);
    bench.json(&["fault", "--name", "d", "--clear"]);
    assert_eq!(good(1 << 20), Ok(()), "mended, nothing lost");

    let start = Instant::now();
    bench.json(&["fault", "--name", "d", "--hang", "700ms"]);
    let told = start.elapsed();
    assert_eq!(good(3 << 20), Ok(()));
    assert!(start.elapsed() >= Duration::from_millis(700), "hung {:?} after {told:?}", start.elapsed());

    // A hang is ended by --clear, long before its time.
    bench.json(&["fault", "--name", "d", "--hang", "3600s"]);
    let reader = std::thread::spawn({
        let device = device.clone();
        move || read_direct(&open_direct(&device), 0, 4096).map(|_| ())
    });
    std::thread::sleep(Duration::from_millis(50));
    bench.json(&["fault", "--name", "d", "--clear"]);
    reader.join().unwrap().unwrap();

    // At 50 times life's speed a command takes well under a millisecond, 1000 times slower at least one.
    bench.json(&["fault", "--name", "d", "--slow", "100000,2MiB+64KiB"]);
    let start = Instant::now();
    assert_eq!(good(2 << 20), Ok(()));
    let slow = start.elapsed();
    assert!(slow >= Duration::from_millis(100), "slowed to {slow:?}");
    drop(file);
    bench.json(&["down", "--name", "d"]);
    bench.assert_clean();
}

#[test]
fn nothing_stays_when_the_worker_is_killed() {
    let Some(bench) = Bench::new() else { return };
    let mount = bench.path("mnt");
    let up = bench.up(&["--mount", mount.to_str().unwrap()]);
    fs::write(mount.join("file"), "not yet on the disk").unwrap();
    kill(&up["worker_pid"]);
    bench.wait_clean();
}

/// A lock that the shell has taken for `up` ends with the shell, not with the disk.
#[test]
fn a_disk_keeps_no_descriptor_of_the_shell_that_made_it() {
    let Some(bench) = Bench::new() else { return };
    let lock = bench.path("lock");
    let script = "exec 9>\"$1\"; \"$2\" vdisk up --name d --size 1GiB --fs none --json";
    let out = Command::new("sh")
        .args(["-c", script, "sh"])
        .args([&lock, &program()])
        .env("SEEKLESS_STATE", bench.path("state"))
        .output()
        .unwrap();
    let up: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    for process in ["pid", "worker_pid"] {
        let open = fs::read_dir(format!("/proc/{}/fd", up[process])).unwrap();
        let open: Vec<_> = open.flatten().filter_map(|fd| fs::read_link(fd.path()).ok()).collect();
        assert!(!open.is_empty() && !open.contains(&lock), "{process}: {open:?}");
    }
    bench.json(&["down", "--name", "d"]);
}

#[test]
fn nothing_stays_when_the_supervisor_is_killed() {
    let Some(bench) = Bench::new() else { return };
    let mount = bench.path("mnt");
    let up = bench.up(&["--mount", mount.to_str().unwrap()]);
    fs::write(mount.join("file"), "not yet on the disk").unwrap();
    kill(&up["pid"]);
    bench.wait_clean();
}

#[test]
fn down_clears_away_what_two_kills_left_and_up_works_again() {
    let Some(bench) = Bench::new() else { return };
    let mount = bench.path("mnt");
    for again in [false, true] {
        let up = bench.up(&["--mount", mount.to_str().unwrap()]);
        // The supervisor cannot act between the two.
        let supervisor = Pid::from_raw(up["pid"].as_i64().unwrap() as i32).unwrap();
        kill_process(supervisor, Signal::STOP).unwrap();
        kill(&up["worker_pid"]);
        kill(&up["pid"]);
        let patience = Instant::now() + Duration::from_secs(30);
        while !bench.processes().is_empty() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(bench.json(&["list"])[0]["state"], "stale");
        if again {
            bench.json(&["down", "--name", "d"]);
            bench.assert_clean();
        } else {
            bench.up(&["--mount", mount.to_str().unwrap()]);
            assert_eq!(bench.json(&["list"])[0]["state"], "up");
            bench.json(&["down", "--name", "d"]);
            bench.assert_clean();
        }
    }
}

#[test]
fn a_disk_in_use_can_be_taken_down() {
    let Some(bench) = Bench::new() else { return };
    let mount = bench.path("mnt");
    bench.up(&["--mount", mount.to_str().unwrap()]);
    let held = File::create(mount.join("held")).unwrap();
    let start = Instant::now();
    // Also a disk that hangs: what waits for it is let go.
    bench.json(&["fault", "--name", "d", "--hang", "3600s"]);
    bench.json(&["down", "--name", "d"]);
    assert!(start.elapsed() < Duration::from_secs(600));
    assert!(!bench.path("state").exists());
    drop(held);
    bench.wait_clean();
}

#[test]
fn a_signal_to_either_process_takes_the_disk_down_in_order() {
    let Some(bench) = Bench::new() else { return };
    for key in ["pid", "worker_pid"] {
        let up = bench.up(&["--mount", bench.path("mnt").to_str().unwrap()]);
        let pid = Pid::from_raw(up[key].as_i64().unwrap() as i32).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        bench.wait_clean();
    }
}

#[test]
fn bad_input_is_one_clear_line_and_leaves_nothing() {
    let Some(bench) = Bench::new() else { return };
    let mount = bench.path("mnt");
    let mnt = mount.to_str().unwrap();
    let full = bench.path("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("x"), "").unwrap();
    let base = ["up", "--name", "d", "--size", "64MiB"];
    let cases: [(i32, &[&str], &str); 12] = [
        (2, &["--mount", mnt, "--drive", "wd-red"], "unknown drive"),
        (2, &["--mount", mnt, "--size", "64GB2"], "cannot be used multiple times"),
        (2, &["--mount", mnt, "--fs", "zfs"], "zfs"),
        (2, &["--mount", mnt, "--scheduler", "cfq"], "this kernel offers"),
        (2, &["--mount", mnt, "--with", "spread=most"], "percentages"),
        (2, &["--mount", mnt, "--speedup", "0"], "out of range"),
        (2, &["--mount", mnt, "--mount-options", "nosuch"], "refuses --mount-options"),
        (2, &[], "--mount DIR is missing"),
        (4, &["--mount", full.to_str().unwrap()], "not empty"),
        (2, &["--mount", "/dev/null"], "/dev/null is no directory"),
        (5, &["--mount", "/nonexistent/here"], "/nonexistent/here"),
        (5, &["--mount", mnt, "--with", "backing=/nonexistent"], "choose another --with backing"),
    ];
    for (exit, more, words) in cases {
        let line = bench.fault(exit, &[&base[..], more].concat());
        assert!(line.contains(words), "{more:?}: {line}");
        bench.assert_clean();
        assert!(!mount.exists(), "{more:?}");
    }
    let line = bench.fault(2, &["up", "--name", "d", "--mount", mnt, "--size", "64M"]);
    assert!(line.contains("ambiguous"), "{line}");
    let line = bench.fault(2, &["up", "--name", "d", "--mount", mnt, "--size", "2TiB"]);
    assert!(line.contains("larger than the drive"), "{line}");
    assert!(
        bench
            .fault(2, &["up", "--name", "a/b", "--mount", mnt, "--size", "64MiB"])
            .contains("cannot name a disk")
    );
    assert!(bench.fault(5, &["down", "--name", "nobody"]).contains("there is no disk"));
    assert!(bench.fault(5, &["stats", "--name", "nobody"]).contains("there is no disk"));

    bench.up(&["--mount", mnt]);
    for (fault, words) in [
        (["--eio", "1TiB+4KiB"], "1TiB+4KiB lies beyond its end: it has "),
        (["--slow", "4,4KiB+1TiB"], "4KiB+1TiB lies beyond its end"),
        (["--fail-member", "1"], "there is no member 1"),
    ] {
        let line = bench.fault(2, &[&["fault", "--name", "d"], &fault[..]].concat());
        assert!(line.contains(words), "{line}");
    }
    let other = bench.path("other");
    let line = bench.fault(4, &[&base[..], &["--mount", other.to_str().unwrap()]].concat());
    assert!(line.contains("is up") && line.lines().count() == 1, "{line}");
    assert!(!other.exists());
    let list = bench.path("list");
    for (text, exit, words) in [("5GiB big\n", 2, "free"), ("1KiB ../x\n", 2, "leaves"), ("", 2, "no file")] {
        fs::write(&list, text).unwrap();
        let line = bench.fault(exit, &["populate", "--name", "d", "--manifest", list.to_str().unwrap()]);
        assert!(line.contains(words), "{line}");
    }
    bench.json(&["down", "--name", "d"]);
    bench.assert_clean();
}

/// What a user of a tree sees, whichever user mounted it.
fn check_tree(bench: &Bench, mount: &Path) {
    let content = Content::of_path("a/b/1.mp4");
    let read = || {
        let mut data = Vec::new();
        File::open(mount.join("a/b/1.mp4")).unwrap().read_to_end(&mut data).unwrap();
        data
    };
    let data = read();
    assert_eq!((data.len(), content.check(0, &data)), (5_000_001, Ok(())));
    let names: Vec<_> = fs::read_dir(mount.join("a")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["b", "c.mp4"]);
    assert!(fs::write(mount.join("new"), "x").is_err(), "read-only");
    let cold = bench.json(&["stats", "--name", "d"])["stats"]["read_bytes"].as_u64().unwrap();
    assert!(cold >= 5_000_001);
    assert_eq!(read(), data);
    let warm = bench.json(&["stats", "--name", "d"])["stats"]["read_bytes"].as_u64().unwrap();
    assert_eq!(cold, warm, "the second time it comes from the page cache");
}

fn tree_manifest(bench: &Bench) -> PathBuf {
    let list = bench.path("list");
    fs::write(&list, "5000001 a/b/1.mp4\n1MiB a/c.mp4\n0 empty\n").unwrap();
    list
}

#[test]
fn a_tree_of_files_straight_from_the_model() {
    let Some(bench) = Bench::new() else { return };
    let mount = bench.path("mnt");
    let list = tree_manifest(&bench);
    let args = [
        "--tree",
        "--manifest",
        list.to_str().unwrap(),
        "--mount",
        mount.to_str().unwrap(),
        "--speedup",
        "50",
    ];
    let up = bench.up(&args);
    assert_eq!(up["device"], Value::Null);
    check_tree(&bench, &mount);
    kill(&up["worker_pid"]);
    bench.wait_clean();
}

/// The same as an ordinary user: with fusermount3, as far as there is one.
#[test]
fn a_tree_without_root() {
    let Some(bench) = Bench::new() else { return };
    tree_manifest(&bench);
    let home = bench.path("home");
    let everyone = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    everyone(bench.dir.path(), 0o755);
    fs::create_dir(&home).unwrap();
    everyone(&home, 0o777);
    let copy = bench.path("vdisk");
    fs::copy(program(), &copy).unwrap();
    // In a mount name space of its own, where a node for FUSE that is open to all stands in for the system's.
    let script = r#"
        mknod fuse-for-all c 10 229 && chmod 666 fuse-for-all && mount --bind fuse-for-all /dev/fuse || exit 77
        nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
        nobody ./vdisk vdisk up --name d --tree --manifest list --mount home/mnt --speedup 50 || exit $?
        nobody cat home/mnt/a/b/1.mp4 > copied
        nobody ./vdisk vdisk down --name d || exit 1
        ! grep -q "$PWD" /proc/mounts && test ! -e home/state && test ! -e home/mnt
    "#;
    let out = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .current_dir(bench.dir.path())
        .env("SEEKLESS_STATE", home.join("state"))
        .output();
    let Ok(out) = out else { return println!("skipped: needs unshare and setpriv (package util-linux)") };
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let helper = seekless_vdisk::mkfs::find_program("fusermount3");
    let set_user_id =
        helper.and_then(|p| fs::metadata(p).ok()).is_some_and(|m| m.permissions().mode() & 0o4000 != 0);
    match out.status.code() {
        Some(77 | 127) => println!("skipped: cannot make a name space with a FUSE node of its own: {said}"),
        // What can be checked still: such a user is told, in one line, and nothing stays.
        Some(code) if !set_user_id => {
            assert!([1, 5].contains(&code), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            println!("skipped: mounting as an ordinary user needs a set-user-id fusermount3 (package fuse3)");
        }
        code => {
            assert_eq!(code, Some(0), "{said}");
            let data = fs::read(bench.path("copied")).unwrap();
            assert_eq!((data.len(), Content::of_path("a/b/1.mp4").check(0, &data)), (5_000_001, Ok(())));
        }
    }
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0, "{:?}", files_below(&home));
    bench.assert_clean();
}
