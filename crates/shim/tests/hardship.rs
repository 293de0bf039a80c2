//! Difficult hosts: the same output with the shim and a daemon, with the shim and no daemon, and without
//! either.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use seekless_wire::{Call, Settings};
use support::fake::{Fake, Manner, SETTINGS, Seen};
use support::{ColdFile, Outcome, compile, folder, have, hooked, plain, run, source};

struct Bench {
    folder: tempfile::TempDir,
    file: ColdFile,
    daemon: Fake,
}

impl Bench {
    fn new() -> Option<Bench> {
        let folder = folder();
        let file = ColdFile::new(folder.path(), "data")?;
        let daemon = Fake::serving(folder.path());
        Some(Bench { folder, file, daemon })
    }

    /// The bench and the compiled program.
    fn with(name: &str) -> Option<(Bench, PathBuf)> {
        let bench = Bench::new()?;
        let program = bench.folder.path().join(name);
        compile(&source("hardship", name), &program, &[])?;
        Some((bench, program))
    }

    fn run(&self, mut command: Command, arguments: &[&Path]) -> Outcome {
        assert!(self.file.chill(), "the file does not go cold");
        command.arg(&self.file.path).args(arguments);
        run(command)
    }

    /// Runs it in the three ways, with a cold file each time. The daemon must have received at least `needs`
    /// needs.
    fn same(
        &self,
        program: impl AsRef<std::ffi::OsStr> + Copy,
        leading: &[&str],
        arguments: &[&Path],
        needs: usize,
    ) {
        let start = |mut command: Command| {
            command.args(leading);
            self.run(command, arguments)
        };
        let without = start(plain(program));
        assert!(without.status.contains("status: 0"), "the program itself fails: {without:?}");
        let nobody = start(hooked(program, &self.folder.path().join("nobody"), None));
        assert_eq!(nobody, without, "with the shim, without a daemon");
        let with = start(hooked(program, &self.daemon.path, None));
        assert_eq!(with, without, "with the shim and a daemon");
        let asked = self.daemon.needs();
        assert!(asked.len() >= needs, "the daemon was asked {} times: {asked:?}", asked.len());
    }
}

macro_rules! programs {
    ($($name:ident: $needs:expr;)+) => {$(
        #[test]
        fn $name() {
            let Some((bench, program)) = Bench::with(stringify!($name)) else { return };
            bench.same(&program, &[], &[], $needs);
        }
    )+};
}

programs! {
    // 64 chunks, each in one process or thread, none of them resident before.
    fork: 32;
    threads: 32;
    vfork_exec: 8;
    signals: 32;
    longjmp: 1;
    cancel: 5;
    races: 1;
    million: 64;
    full: 0;
}

/// The host closes the socket of a wait in progress, and takes its number.
#[test]
fn close_all() {
    let Some((mut bench, program)) = Bench::with("close_all") else { return };
    let folder = bench.folder.path().join("daemon");
    std::fs::create_dir(&folder).unwrap();
    bench.daemon = Fake::start(&folder, Manner::ServeSlowly(400), SETTINGS);
    bench.same(&program, &[], &[], 2);
}

/// A host without 0, 1 and 2 makes no requests: the shim's descriptors do not take these numbers, and the
/// host's output is not sent as frames.
#[test]
fn standard_descriptors_are_the_hosts() {
    let Some((bench, program)) = Bench::with("standard") else { return };
    for how in ["none", "reopen"] {
        bench.same(&program, &[], &[Path::new(how)], 1);
        // Invalid frames would show here.
        bench.daemon.needs();
    }
}

/// The shim's descriptor is far above those of the host, or as far as its limit allows.
#[test]
fn numbers() {
    let Some((mut bench, program)) = Bench::with("numbers") else { return };
    let folder = bench.folder.path().join("daemon");
    std::fs::create_dir(&folder).unwrap();
    bench.daemon = Fake::start(&folder, Manner::ServeSlowly(400), SETTINGS);
    for limit in ["0", "16", "1000"] {
        bench.daemon.clear();
        bench.same(&program, &[], &[Path::new(limit)], 2);
    }
}

/// A filter that forbids everything the shim does never meets a call of it, however it is installed.
#[test]
fn sandbox() {
    let Some((mut bench, program)) = Bench::with("sandbox") else { return };
    let folder = bench.folder.path().join("daemon");
    std::fs::create_dir(&folder).unwrap();
    bench.daemon = Fake::start(&folder, Manner::ServeSlowly(600), SETTINGS);
    for how in ["prctl", "syscall_prctl", "seccomp", "tsync", "fork"] {
        bench.daemon.clear();
        bench.same(&program, &[], &[Path::new(how)], 1);
    }
}

/// A filter that existed before is not tested.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_program_under_a_filter_is_left_alone_unless_it_is_allowed() {
    let Some((bench, program)) = Bench::with("inherit") else { return };
    let follow = bench.folder.path().join("follow");
    compile(&source("hardship", "follow"), &follow, &[]).unwrap();
    let file = bench.file.path.clone();
    // Standard input is empty: the program reads nothing of the file, and checks that descriptor all the
    // same.
    let start = |mut command: Command| {
        assert!(bench.file.chill());
        command.arg(&follow).arg(&file);
        run(command)
    };
    let without = start(plain(&program));
    assert!(without.status.contains("status: 0"), "the program itself fails: {without:?}");
    assert_eq!(start(hooked(&program, &bench.folder.path().join("nobody"), None)), without);
    assert_eq!(start(hooked(&program, &bench.daemon.path, None)), without);
    assert_eq!(bench.daemon.record.lock().unwrap().hellos, 0);
    // A filter that allows everything is accepted if the environment says so.
    let open = bench.folder.path().join("open");
    compile(&source("hardship", "open_filter"), &open, &[]).unwrap();
    let threads = bench.folder.path().join("threads");
    compile(&source("hardship", "threads"), &threads, &[]).unwrap();
    for (value, asked) in [("", false), ("allow", true)] {
        bench.daemon.clear();
        assert!(bench.file.chill());
        let mut command = hooked(&open, &bench.daemon.path, None);
        command.env("SEEKLESS_SECCOMP", value).arg(&threads).arg(&file);
        assert!(run(command).status.contains("status: 0"));
        assert_eq!(!bench.daemon.needs().is_empty(), asked, "SEEKLESS_SECCOMP={value}");
    }
}

/// The host's access pattern is sent along with its needs.
#[test]
fn at_random() {
    let Some((bench, program)) = Bench::with("at_random") else { return };
    let daemon = bench.run(hooked(&program, &bench.daemon.path, None), &[]);
    assert_eq!(daemon, bench.run(plain(&program), &[]));
    let said: Vec<_> = bench.daemon.needs().iter().map(|s| (s.offset / 65_536, s.random)).collect();
    let expected = [(0, false), (8, true), (16, true), (24, false), (32, true), (40, false), (48, true)];
    assert_eq!(said, expected);
}

/// The path is not visible, the abstract twin is.
#[test]
fn chroot() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: chroot needs root");
        return;
    }
    let Some((bench, program)) = Bench::with("chroot") else { return };
    let empty = bench.folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    bench.same(&program, &[], &[&empty], 4);
}

/// The same where neither the kernel nor `/proc` says how large a page is.
#[test]
#[cfg(target_arch = "x86_64")]
fn chroot_on_a_kernel_before_6_4() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: chroot needs root");
        return;
    }
    let Some((bench, program)) = Bench::with("no_auxv") else { return };
    let (empty, chroot) = (bench.folder.path().join("empty"), bench.folder.path().join("chroot"));
    std::fs::create_dir(&empty).unwrap();
    compile(&source("hardship", "chroot"), &chroot, &[]).unwrap();
    let start = |mut command: Command| {
        // The filter forbids nothing of the shim's.
        command.env("SEEKLESS_SECCOMP", "allow").arg(&chroot);
        bench.run(command, &[&empty])
    };
    let without = start(plain(&program));
    assert!(without.status.contains("status: 0"), "the program itself fails: {without:?}");
    assert_eq!(start(hooked(&program, &bench.daemon.path, None)), without);
    assert!(bench.daemon.needs().len() >= 4);
}

/// Overlayfs, common in containers, keeps its pages under another inode, and `cachestat` sees none: resident
/// bytes must be found all the same. In a mount namespace of its own, which removes the mount when it ends.
#[test]
fn overlay() {
    let Some((bench, program)) = Bench::with("threads") else { return };
    let folder = |name: &str| {
        let path = bench.folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (lower, upper, work, merged) = (folder("lower"), folder("upper"), folder("work"), folder("merged"));
    std::fs::copy(&bench.file.path, Path::new(&lower).join("data")).unwrap();
    let mount =
        format!("mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir={work} {merged}");
    let script = |body: &str| {
        let mut command = plain("unshare");
        command.args(["-m", "sh", "-c", &format!("{mount} && {body}")]);
        run(command)
    };
    if !script("true").status.contains("status: 0") {
        println!("skipped: no overlay can be mounted here");
        return;
    }
    let preload = format!(
        "SEEKLESS_SOCKET={} LD_PRELOAD={}",
        bench.daemon.path.display(),
        support::library().display()
    );
    let program = program.to_str().unwrap();
    let without = script(&format!("cat {merged}/data >/dev/null; exec {program} {merged}/data"));
    let with = script(&format!("cat {merged}/data >/dev/null; {preload} exec {program} {merged}/data"));
    assert_eq!(with, without);
    assert_eq!(bench.daemon.needs(), [], "all was resident");
    assert!(bench.daemon.record.lock().unwrap().hellos > 0, "it was hooked");
}

/// The kernel hides residency from this process: the daemon is asked once about each piece, the answer is
/// used while it is valid, and then the daemon is asked again.
#[test]
fn setuid() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: giving up root needs root");
        return;
    }
    let Some((mut bench, program)) = Bench::with("setuid") else { return };
    let folder = bench.folder.path().join("daemon");
    std::fs::create_dir(&folder).unwrap();
    bench.daemon = Fake::start(&folder, Manner::Serve, Settings { prefetch_bytes: 256 << 10, ..SETTINGS });
    bench.same(&program, &[], &[], 2);
    let chunk = |s: &Seen| (s.call, s.offset / 65_536, s.length);
    let asked: Vec<_> = bench.daemon.needs().iter().map(chunk).collect();
    assert_eq!(asked, [(Call::Pread, 8, 65_536), (Call::Pread, 8, 65_536)]);
}

#[test]
fn python() {
    let Some(bench) = Bench::new() else { return };
    if have("python3", "-V") {
        let script = source("hardship", "host").with_extension("py");
        // Without writing bytecode, so that the runs read the same files.
        bench.same("python3", &["-B", script.to_str().unwrap()], &[], 10);
    }
}

#[test]
fn node() {
    let Some(bench) = Bench::new() else { return };
    if have("node", "-v") {
        let script = source("hardship", "host").with_extension("js");
        bench.same("node", &[script.to_str().unwrap()], &[], 1);
    }
}

#[test]
fn java() {
    let Some(bench) = Bench::new() else { return };
    if have("java", "-version") && have("javac", "-version") {
        let made = Command::new("javac")
            .arg("-d")
            .arg(bench.folder.path())
            .arg(source("hardship", "Host").with_extension("java"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let classes = bench.folder.path().to_str().unwrap();
        bench.same("java", &["-Xshare:auto", "-cp", classes, "Host"], &[], 1);
    }
}

/// An allocator and the shim, in both orders: the allocator reads and maps before anything is ready, and
/// `dlsym` allocates.
#[test]
fn jemalloc() {
    let Some(allocator) = find_jemalloc() else {
        println!("skipped: no libjemalloc2 here, nor to be had with apt-get download");
        return;
    };
    let Some((bench, program)) = Bench::with("threads") else { return };
    let without = bench.run(plain(&program), &[]);
    for shim_first in [true, false] {
        bench.daemon.clear();
        let mut command = hooked(&program, &bench.daemon.path, Some(&allocator));
        if !shim_first {
            let mut preload = allocator.clone().into_os_string();
            preload.push(":");
            preload.push(support::library());
            command.env("LD_PRELOAD", preload);
        }
        assert_eq!(bench.run(command, &[]), without, "shim first: {shim_first}");
        assert!(bench.daemon.needs().len() >= 32);
    }
    if have("python3", "-V") {
        let script = source("hardship", "host").with_extension("py");
        let start = |mut command: Command| {
            command.arg("-B").arg(&script);
            bench.run(command, &[])
        };
        let without = start(plain("python3"));
        assert_eq!(
            start(hooked("python3", &bench.daemon.path, Some(&allocator))),
            without,
            "python on jemalloc"
        );
    }
}

/// The system's, or the distribution's package unpacked into a private folder (kept for the next time).
fn find_jemalloc() -> Option<PathBuf> {
    let private = Path::new(env!("CARGO_TARGET_TMPDIR")).join("jemalloc");
    let found = |root: &Path| {
        let folders = ["usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib"];
        folders.iter().map(|f| root.join(f).join("libjemalloc.so.2")).find(|p| p.exists())
    };
    if let Some(path) = found(Path::new("/")).or_else(|| found(&private)) {
        return Some(path);
    }
    let work = tempfile::tempdir().ok()?;
    let mut fetch = Command::new("apt-get");
    fetch.args(["download", "-qq", "libjemalloc2"]).current_dir(work.path());
    if !fetch.output().ok()?.status.success() {
        return None;
    }
    let package = std::fs::read_dir(work.path()).ok()?.filter_map(|e| Some(e.ok()?.path())).next()?;
    let unpacked = Command::new("dpkg").arg("-x").arg(package).arg(&private).output().ok()?;
    unpacked.status.success().then(|| found(&private)).flatten()
}

/// Loading another library takes as long as everything a short program does with the shim. `libdl.so.2` has
/// `dlsym` where glibc is older than 2.34, and is almost empty elsewhere.
#[test]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn no_library_but_libdl_is_loaded_beside_it() {
    let maps = |command: Command| {
        let mut command = command;
        command.arg("/proc/self/maps");
        let out = command.output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let libraries = text.lines().filter_map(|line| line.rsplit('/').next());
        libraries.filter(|name| name.contains(".so")).map(str::to_string).collect::<BTreeSet<_>>()
    };
    let (without, with) = (maps(plain("cat")), maps(hooked("cat", Path::new("/nobody"), None)));
    let more: Vec<_> = with.difference(&without).filter(|name| *name != "libdl.so.2").collect();
    assert!(matches!(&more[..], [one] if one.starts_with("libseekless")), "{more:?}");
}
