//! What the end-to-end tests share: the programs under test, a daemon, a plain HTTP client.
#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(unreachable_pub, reason = "shared by the test programs beside it")]

pub mod activated;
pub mod http;
pub mod http2;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The program under test. The laboratory's tests share this module: they build it first, as the shim below.
pub static SEEKLESS: LazyLock<PathBuf> = LazyLock::new(|| match option_env!("CARGO_BIN_EXE_seekless") {
    Some(program) => program.into(),
    None => built("seekless-cli", "seekless"),
});

/// What a package builds, beside the test programs and brought up to date. `cargo test` builds the binary of
/// this package, but neither another package's nor a library that nothing links: an old one would be tested.
fn built(package: &str, file: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--package", package]);
    build.args(folder.ends_with("release").then_some("--release"));
    assert!(build.status().expect("cargo runs").success(), "{package} does not build");
    folder.join(file)
}

/// libseekless.so of the same build.
pub fn shim() -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| built("seekless-shim", "libseekless.so"));
    BUILT.clone()
}

/// A folder that server workers of another user may enter.
pub fn public_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    dir
}

/// A daemon of our own, ended on drop.
pub struct Daemon {
    child: Child,
    pub socket: PathBuf,
}

impl Daemon {
    /// Starts one and waits until it answers. Files on any device are served, so that no disk is needed.
    pub fn start(dir: &Path, options: &[&str]) -> Daemon {
        let daemon = Daemon::launch(dir, options);
        let until = Instant::now() + Duration::from_secs(20);
        while daemon.status().is_none() {
            assert!(Instant::now() < until, "the daemon does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon
    }

    /// Another one takes over from this one.
    pub fn replace(&mut self, dir: &Path) {
        let mut next = Daemon::launch(dir, &["--take-over"]);
        std::mem::swap(self, &mut next);
        assert!(next.ended(), "a daemon whose place is taken ends");
        assert_eq!(self.status().map(|s| s["pid"].clone()), Some(self.child.id().into()));
    }

    fn launch(dir: &Path, options: &[&str]) -> Daemon {
        let socket = dir.join("daemon.sock");
        let mut command = Command::new(&*SEEKLESS);
        command.args(["daemon", "--include-ssd", "--socket"]).arg(&socket).args(options);
        Daemon::of(command, socket)
    }

    /// One that a prepared command starts, to listen there. It need not answer yet.
    pub fn of(mut command: Command, socket: PathBuf) -> Daemon {
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        Daemon { child, socket }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its status, if it answers.
    pub fn status(&self) -> Option<serde_json::Value> {
        let out = Command::new(&*SEEKLESS)
            .args(["daemon", "status", "--json", "-", "--socket"])
            .arg(&self.socket)
            .output()
            .unwrap();
        serde_json::from_slice(&out.stdout).ok().filter(|_| out.status.success())
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Waits for its end; false if it does not come.
    pub fn ended(&mut self) -> bool {
        let until = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// SIGKILL, as the out-of-memory killer would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `seekless serve`, ended on drop.
pub struct Serving {
    child: Child,
    pub url: String,
}

impl Serving {
    /// Starts one on a free port and waits until it says which.
    pub fn start(root: &Path, options: &[&str]) -> Serving {
        Serving::try_start(Command::new(&*SEEKLESS), root, options).expect("seekless serve starts")
    }

    /// The same with a command that was prepared; `None` if it cannot be started or says nothing.
    pub fn try_start(mut command: Command, root: &Path, options: &[&str]) -> Option<Serving> {
        command.arg("serve").arg(root).args(["--listen", "127.0.0.1:0"]).args(options);
        // By its path, so that standard output has the address as well.
        command.args(["--json", "/dev/stdout"]);
        let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take()?);
        out.read_line(&mut line).ok()?;
        child.stdout = Some(out.into_inner());
        let mut serving = Serving { child, url: String::new() };
        serving.url = line.trim().strip_prefix("listening on ")?.to_string();
        Some(serving)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// SIGTERM; what it reports.
    pub fn stop(mut self) -> Value {
        self.signal(Signal::TERM);
        let report = std::io::read_to_string(self.child.stdout.take().unwrap()).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&report).unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes the next read of a file go to the disk.
pub fn forget(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}
