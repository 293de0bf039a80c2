//! `seekless watch` over a real folder, with programs without the shim.

mod watching;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use seekless_base::Exit;
use seekless_daemon::WatchReport;
use seekless_kernel::queue::Queue;
use seekless_kernel::residency::cachestat;
use seekless_kernel::topology::Dev;
use watching::{NEVER, Place, Watching, evict, output_of, program, wait};

const M: usize = 1 << 20;

#[test]
fn programs_without_a_preload_are_served() {
    let Some(place) = Place::new() else { return };
    let watching = Watching::start(&[place.path()], &["--threads", "3"]);
    let bytes_read = || watching.until("a status", |_| true).disks.iter().map(|d| d.bytes_read).sum::<u64>();

    let (path, content) = place.cold("dd", 5 * M + 123);
    let of = format!("if={}", path.display());
    assert!(
        output_of(Command::new("dd").arg(of).arg("bs=64k")).unwrap() == content,
        "dd reads something else"
    );
    assert!(bytes_read() >= content.len() as u64, "the engine did not read it");
    assert!(watching.watch().held >= 2, "{:?}", watching.watch());

    let (path, content) = place.cold("python", 3 * M + 1);
    let script = "import sys,shutil; shutil.copyfileobj(open(sys.argv[1],'rb'), sys.stdout.buffer)";
    let before = bytes_read();
    match output_of(Command::new("python3").args(["-c", script]).arg(&path)) {
        Some(printed) => {
            assert!(printed == content, "python reads something else");
            assert!(bytes_read() >= before + content.len() as u64);
        }
        None => println!("skipped: no python3"),
    }

    // A mapping covers all of the file; at most a prefetch size is brought in before it.
    let (path, content) = place.cold("mapped", 24 * M);
    let script = "import sys,mmap; f=open(sys.argv[1],'rb'); m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ); \
                  sys.stdout.buffer.write(m[:4096])";
    let (before, cut) = (bytes_read(), watching.watch().cut);
    if let Some(printed) = output_of(Command::new("python3").args(["-c", script]).arg(&path)) {
        assert!(printed == content[..4096]);
        assert_eq!(watching.watch().cut, cut + 1);
        assert_eq!(bytes_read(), before + 2 * M as u64, "the default prefetch size");
    }
    let (status, report) = watching.end();
    assert_eq!(status, 0);
    let costs: Vec<_> = report.disks.iter().flat_map(|d| &d.programs).collect();
    assert!(costs.iter().any(|p| p.program.name == "dd" && p.cost.disk_ms > 0.0), "{costs:?}");
    let watch = report.watch.unwrap();
    assert_eq!((watch.held_now, watch.overdue, watch.passed_full, watch.restarts), (0, 0, 0, 0), "{watch:?}");
}

/// A Go program: static, with its own system calls, so nothing can be preloaded.
const GO_SERVER: &str = r#"package main
import ("fmt"; "net"; "net/http"; "os")
func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil { panic(err) }
	fmt.Println(l.Addr())
	panic(http.Serve(l, http.FileServer(http.Dir(os.Args[1]))))
}
"#;

struct Ended(Child);
impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_static_go_server_is_served() {
    let go = ["go", "/usr/local/go/bin/go"];
    let Some(go) = go.into_iter().find(|go| output_of(Command::new(go).arg("version")).is_some()) else {
        println!("skipped: no go");
        return;
    };
    let Some(place) = Place::new() else { return };
    let build = tempfile::tempdir().unwrap();
    fs::write(build.path().join("main.go"), GO_SERVER).unwrap();
    let built = Command::new(go)
        .args(["build", "-o", "server", "main.go"])
        .current_dir(build.path())
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=mod")
        // In the build folder: the standard library is compiled once, and removed by `cargo clean`.
        .env("GOCACHE", program().with_file_name("go-cache"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let mut server = Ended(
        Command::new(build.path().join("server")).arg(place.path()).stdout(Stdio::piped()).spawn().unwrap(),
    );
    let mut address = String::new();
    let mut out = std::io::BufReader::new(server.0.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut address).unwrap();

    // It runs already when the watch begins.
    let (_, content) = place.cold("video", 9 * M + 77);
    let watching = Watching::start(&[place.path()], &[]);
    let got: Vec<u8> =
        (0..content.len()).step_by(M).flat_map(|from| fetch(address.trim(), "video", from, M)).collect();
    assert!(got == content, "{} bytes, or others", got.len());
    let report = watching.until("a status", |_| true);
    // A prefetch of 2 MiB serves two ranges.
    assert!(report.watch.as_ref().is_some_and(|w| w.held >= 5), "{report:?}");
    assert!(report.disks.iter().map(|d| d.bytes_read).sum::<u64>() >= content.len() as u64, "{report:?}");
}

/// The body of a GET of one range.
fn fetch(address: &str, name: &str, from: usize, len: usize) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(NEVER)).unwrap();
    let upto = from + len - 1;
    write!(stream, "GET /{name} HTTP/1.0\r\nRange: bytes={from}-{upto}\r\n\r\n").unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let end = all.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    all.split_off(end)
}

#[test]
fn files_wholly_in_memory_are_not_announced_until_a_page_goes() {
    let Some(place) = Place::new() else { return };
    let watching = Watching::start(&[place.path()], &[]);
    let (path, content) = place.cold("hot", 3 * M);
    assert!(fs::read(&path).unwrap() == content);
    // A file that was not completely in memory is counted again after a moment.
    let ignored = || watching.watch().ignored_now;
    for _ in 0..1000 {
        assert!(fs::read(&path).unwrap() == content);
        if ignored() == 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(ignored(), 1);
    let before = watching.watch().events;
    for _ in 0..10 {
        assert!(fs::read(&path).unwrap() == content);
    }
    assert_eq!(watching.watch().events, before, "announced although it is in memory");

    evict(&path);
    watching
        .until("announced again", |s| s.watch.as_ref().is_some_and(|w| w.ignored_now == 0 && w.noticed == 1));
    let held = watching.watch().held;
    assert!(fs::read(&path).unwrap() == content);
    assert!(watching.watch().held > held, "evicted, and read without us");

    // A removed file is forgotten, and blocks nothing.
    fs::remove_file(&path).unwrap();
}

#[test]
fn every_read_is_announced_while_memory_may_be_short() {
    let Some(place) = Place::new() else { return };
    let options = ["--ahead", "on", "--budget", "8MiB", "--prefetch", "8MiB"];
    let watching = Watching::start(&[place.path()], &options);
    // The bytes read ahead for its reader take more than a quarter of the budget.
    let (path, _) = place.cold("ahead", 16 * M);
    let ahead = File::open(&path).unwrap();
    for step in 0..8 {
        ahead.read_exact_at(&mut [0; 64 << 10], step * (64 << 10)).unwrap();
    }
    let (path, content) = place.cold("hot", 3 * M);
    let file = File::open(&path).unwrap();
    let mut piece = [0; 4096];
    // A miss: its disk has an engine from then on.
    file.read_exact_at(&mut piece, 2 * M as u64).unwrap();
    let mut read_again = || {
        // Not in sequence: nothing is given back, all of it stays.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::WillNeed).unwrap();
        file.read_exact_at(&mut piece, M as u64).unwrap();
        assert!(piece == content[M..][..piece.len()]);
    };
    read_again();
    // Until the engine reports what it needs, a file may be ignored; a check a second later ends that.
    let until = std::time::Instant::now() + NEVER;
    loop {
        let before = watching.watch();
        (0..20).for_each(|_| read_again());
        let after = watching.watch();
        if after.events >= before.events + 20 && after.ignored_now == 0 && after.hits > 40 {
            break;
        }
        assert!(std::time::Instant::now() < until, "{after:?}");
        std::thread::sleep(std::time::Duration::from_millis(600));
    }
    let ignored = watching.watch().ignored;
    // Longer than a file found not wholly in memory stays uncounted.
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(600));
        read_again();
    }
    assert_eq!(watching.watch().ignored, ignored);
}

#[test]
fn hits_move_streams_on_and_what_comes_next_is_fetched_before_it_is_read() {
    let Some(place) = Place::new() else { return };
    let watching =
        Watching::start(&[place.path()], &["--ahead", "on", "--budget", "64MiB", "--prefetch", "1MiB"]);
    let (path, content) = place.cold("stream", 12 * M);
    let file = File::open(&path).unwrap();
    // The kernel must not read ahead for this reader; bytes beyond its position were fetched by the engine.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let mut piece = [0; 64 << 10];
    let place_now = 4 * M as u64;
    for from in (0..place_now).step_by(piece.len()) {
        file.read_exact_at(&mut piece, from).unwrap();
        assert!(piece == content[from as usize..][..piece.len()]);
    }
    let until = std::time::Instant::now() + NEVER;
    let ahead = || cachestat(file.as_fd(), place_now, 256 << 10).unwrap().cached;
    while ahead() < 64 {
        assert!(std::time::Instant::now() < until, "never fetched: {:?}", watching.status());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(watching.watch().hits > 0);
    assert!(fs::read(&path).unwrap() == content);
}

/// Tells a thread to end, even if the test fails.
struct Stopping<'a>(&'a AtomicBool);
impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_tree_in_memory_is_announced_in_part_and_a_cold_reader_beside_it_is_held() {
    const FILES: usize = 2000;
    let Some(place) = Place::new() else { return };
    let dev = Dev::from_raw(fs::metadata(place.path()).unwrap().dev()).to_string();
    let Ok(reads) = Queue::new(Path::new("/sys/dev/block"), &dev).usage() else {
        println!("skipped: the kernel does not count reads of this file system");
        return;
    };
    let sectors_read = || reads.now().unwrap().sectors_read;
    let (cold, content) = place.cold("cold", 3 * M);
    let files: Vec<_> = (0..FILES).map(|i| place.path().join(format!("{i:04}"))).collect();
    files.iter().for_each(|path| fs::write(path, [7; 5000]).unwrap());
    let until = Instant::now() + NEVER;
    loop {
        let before = sectors_read();
        let watching = Watching::start(&[place.path()], &[]);
        let stop = AtomicBool::new(false);
        let paused = std::thread::scope(|scope| {
            let _stopping = Stopping(&stop);
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    files.iter().for_each(|path| assert!(fs::read(path).unwrap() == [7; 5000]));
                }
            });
            // On a slow machine, everything that could be announced may have been.
            let ended = |w: &WatchReport| w.pauses >= 3 || w.ignored_now == FILES as u64;
            let first = watching.until("a pause", |s| s.watch.as_ref().is_some_and(ended)).watch.unwrap();
            if first.pauses < 3 {
                return false;
            }
            assert!(first.events < FILES as u64, "{first:?}");
            // The kernel reads no more than requested, so each read is a miss until one is announced.
            let file = File::open(&cold).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
            let mut piece = [0; 64 << 10];
            for from in (0..content.len()).step_by(piece.len()) {
                file.read_exact_at(&mut piece, from as u64).unwrap();
                assert!(piece == content[from..][..piece.len()]);
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(watching.watch().held > 0, "a reader of a second is never heard: {:?}", watching.watch());
            true
        });
        if paused {
            return;
        }
        let disturbed = sectors_read() != before;
        assert!(
            disturbed || Instant::now() < until,
            "no pause on a disk nobody reads: {:?}",
            watching.watch()
        );
        if Instant::now() >= until {
            println!("skipped: somebody else reads the disk all the while");
            return;
        }
    }
}

#[test]
fn every_resident_read_is_announced_if_asked_for() {
    let Some(place) = Place::new() else { return };
    let watching = Watching::start(&[place.path()], &["--announce-resident"]);
    let (path, content) = place.cold("hot", M);
    for _ in 0..20 {
        assert!(fs::read(&path).unwrap() == content);
    }
    let watch = watching.watch();
    assert_eq!(watch.ignored, 0);
    assert!(watch.hits >= 19, "{watch:?}");
}

#[test]
fn only_the_folders_named_are_served() {
    let Some(place) = Place::new() else { return };
    let (inside, content) = place.cold("in/side/file", M);
    let (outside, other) = place.cold("out/file", M);
    for scope in ["mount", "filesystem"] {
        evict(&inside);
        evict(&outside);
        let watching = Watching::start(&[&place.path().join("in")], &["--scope", scope]);
        assert!(fs::read(&outside).unwrap() == other);
        let watch = watching.watch();
        assert!(watch.outside >= 1 && watch.held == 0, "{scope}: {watch:?}");
        // On a busy machine an announcement may be answered before its read is held, and reads of other files
        // in memory may have begun a pause.
        let until = Instant::now() + NEVER;
        while watching.watch().held == 0 {
            assert!(Instant::now() < until, "{scope}: {:?}", watching.watch());
            std::thread::sleep(Duration::from_millis(20));
            evict(&inside);
            assert!(fs::read(&inside).unwrap() == content);
        }
    }
}

#[test]
fn another_mount_of_the_same_file_system_is_seen_by_its_scope() {
    let Some(place) = Place::new() else { return };
    let (path, content) = place.cold("shared/file", M);
    // As in a container: another mount of the folder, elsewhere.
    let elsewhere = tempfile::tempdir().unwrap();
    rustix::mount::mount_bind(place.path().join("shared"), elsewhere.path()).unwrap();
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
        }
    }
    let _unmount = Unmount(elsewhere.path());
    // While it is open, the kernel knows its path in the watched folder.
    let _known = File::open(&path).unwrap();
    for (scope, seen) in [("mount", false), ("filesystem", true)] {
        let watching = Watching::start(&[&place.path().join("shared")], &["--scope", scope]);
        // The kernel may have forgotten the path of a file opened by its handle. Then the file counts as
        // outside, and is read without help. Opened by its path, it is known again.
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(5));
            File::open(&path).unwrap();
            evict(&path);
            assert!(fs::read(elsewhere.path().join("file")).unwrap() == content);
            if watching.watch().held > 0 {
                break;
            }
        }
        assert_eq!(watching.watch().held > 0, seen, "{scope}: {:?}", watching.watch());
    }
}

#[test]
fn writes_are_not_read_for() {
    let Some(place) = Place::new() else { return };
    let (path, mut content) = place.cold("written", 4 * M);
    let watching = Watching::start(&[place.path()], &[]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[7; 8192], 2 * M as u64).unwrap();
    file.write_all_at(&[8; 100], 4 * M as u64).unwrap();
    let report = watching.until("a status", |_| true);
    let watch = report.watch.unwrap();
    assert_eq!((watch.writes, watch.held), (1, 0), "{watch:?}");
    assert!(report.disks.is_empty());
    content[2 * M..2 * M + 8192].fill(7);
    content.extend([8; 100]);
    assert!(fs::read(&path).unwrap() == content);
}

#[test]
fn a_file_cut_under_its_reader_ends_early_and_that_is_all() {
    let Some(place) = Place::new() else { return };
    let watching = Watching::start(&[place.path()], &[]);
    let (path, content) = place.cold("cut", 16 * M);
    let mut file = File::open(&path).unwrap();
    let mut got = vec![0; M];
    file.read_exact(&mut got).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(5 * M as u64 + 10).unwrap();
    file.read_to_end(&mut got).unwrap();
    assert!(got == content[..5 * M + 10], "{} bytes, or others", got.len());
    assert_eq!(watching.end().0, 0);
}

#[test]
fn modes_that_read_nothing_pass() {
    let Some(place) = Place::new() else { return };
    for mode in ["off", "track", "serialise", "prefetch"] {
        let (path, content) = place.cold(mode, 3 * M);
        let watching = Watching::start(&[place.path()], &["--mode", mode]);
        assert!(fs::read(&path).unwrap() == content);
        let watch = watching.watch();
        assert_eq!(watch.held > 0, matches!(mode, "serialise" | "prefetch"), "{mode}: {watch:?}");
    }
}

/// Runs a `watch` that cannot start, to its end.
fn refused(command: &mut Command) -> (i32, String) {
    let mut child =
        command.args(["--no-socket"]).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let status = wait(&mut child);
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (status, text)
}

#[test]
fn what_cannot_be_watched_is_one_line_that_names_the_shim() {
    let Some(_place) = Place::new() else { return };
    let memory = Path::new("/dev/shm");
    if memory.exists() {
        let (status, text) = refused(Command::new(program()).arg("watch").arg(memory));
        assert_eq!(status, Exit::Missing as i32, "{text}");
        assert!(text.contains("seekless run -- CMD") && text.contains("tmpfs"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let (status, text) = refused(Command::new(program()).args(["watch", "/nowhere/at/all"]));
    assert_eq!((status, text.lines().count()), (Exit::Missing as i32, 1), "{text}");

    // Without root: others must be able to reach the program itself.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let copy = dir.path().join("seekless");
    fs::copy(program(), &copy).unwrap();
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (status, text) = refused(Command::new(&copy).args(["watch", "/usr"]).uid(65534).gid(65534));
    assert_eq!((status, text.lines().count()), (Exit::Permission as i32, 1), "{text}");
    assert!(text.contains("seekless run -- CMD"), "{text}");
}
