//! What the shim's tests share: a fake daemon, cold files, compiled snippets, and runs with and without the
//! library.
#![allow(dead_code, unreachable_pub, missing_docs)] // Each test program uses its part.
#![allow(unsafe_code)]

pub mod fake;

use std::ffi::c_void;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags};
use seekless_kernel::residency;

/// Maximum duration of a program before it counts as hanging; generous, because the machine may be busy.
pub const HANG: Duration = Duration::from_secs(60);

/// The library under test. Cargo does not build a `cdylib` for integration tests, so it is built here, in the
/// profile of the tests. Without cargo (test programs copied elsewhere) the library beside them is used.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        let profile = exe.parent().and_then(Path::parent).expect("tests run in target/<profile>/deps");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "-q", "-p", "seekless-shim"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        if let Ok(status) = cargo.status() {
            assert!(status.success(), "the library does not build");
        }
        let path = profile.join("libseekless.so");
        assert!(path.exists(), "{} is missing: cargo build -p seekless-shim", path.display());
        path
    })
}

/// A folder for one test, on the disk of the build (`/tmp` is often memory, where nothing is ever cold).
pub fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Programs that give up root must still be able to enter.
    set_mode(folder.path(), 0o755);
    folder
}

pub fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A file that is not in the page cache at first.
pub struct ColdFile {
    pub path: PathBuf,
    pub file: File,
    pub bytes: u64,
}

pub const FILE_BYTES: u64 = 4 << 20;

impl ColdFile {
    /// `None`, with a message, if the file system keeps everything in memory.
    pub fn new(folder: &Path, name: &str) -> Option<ColdFile> {
        let path = folder.join(name);
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut x = 1u64;
        let content: Vec<u8> = (0..FILE_BYTES / 8)
            .flat_map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                x.to_le_bytes()
            })
            .collect();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        set_mode(&path, 0o644);
        let cold = ColdFile { path, file, bytes: FILE_BYTES };
        if cold.chill() {
            return Some(cold);
        }
        println!("skipped: no file can be cold on this file system");
        None
    }

    /// Drops it from the cache. Returns whether that worked.
    pub fn chill(&self) -> bool {
        let give_up = Instant::now() + Duration::from_secs(10);
        loop {
            rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            // cachestat sees a page whose read is still in flight, mincore does not.
            let cold = match residency::cachestat(self.file.as_fd(), 0, self.bytes) {
                Ok(stat) => stat.cached == 0,
                Err(_) => {
                    let mut cold = true;
                    residency::mincore(self.file.as_fd(), 0, self.bytes, |_, resident| {
                        cold &= !resident;
                        cold
                    })
                    .unwrap();
                    cold
                }
            };
            if cold || Instant::now() > give_up {
                return cold;
            }
            // A page still being read or written cannot be dropped.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reads all of it and keeps it in the cache. The kernel reclaims pages even with free memory (another
    /// limit, the machine's host), so they are locked, as far as a user may lock memory.
    pub fn keep(&self) -> Kept {
        self.file.read_exact_at(&mut vec![0; self.bytes as usize], 0).unwrap();
        let bytes = self.bytes as usize;
        // SAFETY: the kernel chooses a free address, and nothing reads or writes the mapping.
        let at = unsafe {
            rustix::mm::mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, &self.file, 0).unwrap()
        };
        // SAFETY: the whole of the mapping just made. If this is refused, the pages are merely resident.
        let _ = unsafe { rustix::mm::mlock(at, bytes) };
        Kept { at, bytes }
    }
}

/// A file's pages, resident for as long as this lives.
pub struct Kept {
    at: *mut c_void,
    bytes: usize,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: the mapping that `keep` made, which nothing else uses.
        unsafe { rustix::mm::munmap(self.at, self.bytes).unwrap() };
    }
}

/// Path of a C source.
pub fn source(kind: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(kind).join(name).with_extension("c")
}

/// Compiles a C program; `None`, with a message, without a compiler.
pub fn compile(source: &Path, to: &Path, flags: &[&str]) -> Option<()> {
    let run = Command::new("cc")
        .args(["-O1", "-w", "-pthread", "-o"])
        .arg(to)
        .args(flags)
        .arg(source)
        .stdin(Stdio::null())
        .output();
    match run {
        Ok(out) => {
            assert!(out.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&out.stderr));
            Some(())
        }
        Err(_) => {
            println!("skipped: no C compiler (cc)");
            None
        }
    }
}

/// Whether a program can be started at all.
pub fn have(program: &str, argument: &str) -> bool {
    let there = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !there {
        println!("skipped: no {program}");
    }
    there
}

/// The output of a program and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    pub status: String,
}

/// Runs a program to its end. A program that hangs is killed (only itself) and fails the test.
pub fn run(mut command: Command) -> Outcome {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let (done, waiting) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let output = child.wait_with_output();
        let _ = done.send(());
        output
    });
    if waiting.recv_timeout(HANG).is_err() {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        panic!("hangs: {command:?}: {:?}", waiter.join().unwrap());
    }
    let Output { status, stdout, stderr } = waiter.join().unwrap().unwrap();
    Outcome {
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        status: status.to_string(),
    }
}

/// A command without the shim, whatever the environment of the tests.
pub fn plain(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_PRELOAD");
    for name in
        ["SEEKLESS_SOCKET", "SEEKLESS_STATE", "SEEKLESS_DISABLE", "SEEKLESS_PATIENCE_MS", "SEEKLESS_SECCOMP"]
    {
        command.env_remove(name);
    }
    command
}

/// A command with the shim, and optionally another preloaded library after it.
pub fn hooked(program: impl AsRef<std::ffi::OsStr>, socket: &Path, also: Option<&Path>) -> Command {
    let mut preload = library().as_os_str().to_owned();
    if let Some(also) = also {
        preload.push(":");
        preload.push(also);
    }
    let mut command = plain(program);
    command.env("LD_PRELOAD", preload).env("SEEKLESS_SOCKET", socket);
    command
}
