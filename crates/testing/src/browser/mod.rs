//! For tests: a page in a real browser (`scripts/provision --browser` fetches Chromium's headless shell).
//!
//! A page is looked at from outside once its scripts have run for a while ([`dom`]), or reports a value of
//! its own ([`reported`]).
//!
//! Must not know: what is tested.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest wait for a browser: no measure of speed, only the difference between slow and never.
const NEVER: Duration = Duration::from_secs(180);

/// The browser, if it is here. A test without one says `skipped: chromium`.
pub fn chromium() -> Option<PathBuf> {
    let tools = std::env::var_os("SEEKLESS_TOOLS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/debian/root"),
        PathBuf::from,
    );
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(tools.join("bin")).chain(std::env::split_paths(&path).collect::<Vec<_>>());
    let names = ["chromium-headless-shell", "chromium", "google-chrome"];
    folders.flat_map(|folder| names.map(|name| folder.join(name))).find(|file| file.is_file())
}

/// A browser with a profile of its own; ended with the test.
struct Browser {
    child: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn open(browser: &Path, options: &[String], page: &str, output: Stdio) -> Browser {
        let profile = tempfile::tempdir().expect("a folder for the profile");
        let mut command = Command::new(browser);
        // Its own sandbox needs privileges test machines do not give; it sees only our page.
        command
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--no-proxy-server"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(options)
            .arg(page)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::null());
        Browser { child: command.spawn().expect("the browser starts"), _profile: profile }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The elements of a page as text once its scripts have run for so long by the page's own clock, which goes
/// on as fast as the page has nothing to wait for.
///
/// # Panics
/// The browser does not start, or says nothing.
pub fn dom(browser: &Path, page: &str, page_time: Duration) -> String {
    let options = ["--dump-dom".into(), format!("--virtual-time-budget={}", page_time.as_millis())];
    let mut browser = Browser::open(browser, &options, page, Stdio::piped());
    let mut out = browser.child.stdout.take().expect("it was piped");
    let (to, from) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = out.read_to_end(&mut text);
        let _ = to.send(text);
    });
    let text = from.recv_timeout(NEVER).expect("the browser shows nothing");
    String::from_utf8(text).expect("a page is text")
}

/// Opens a page that reports one JSON value by asking `http://REPORT/?VALUE`, the value's bytes in
/// hexadecimal, and returns it.
///
/// # Panics
/// The browser does not start or ends, or the page reports nothing.
pub fn reported(browser: &Path, page: &str, report: &TcpListener) -> Value {
    let mut browser = Browser::open(browser, &["--remote-debugging-port=0".into()], page, Stdio::null());
    report.set_nonblocking(true).expect("a socket can be told not to block");
    let until = Instant::now() + NEVER;
    let mut stream = loop {
        match report.accept() {
            Ok((stream, _)) => break stream,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => panic!("{e}"),
        }
        assert!(browser.child.try_wait().expect("it is our child").is_none(), "the browser ended");
        assert!(Instant::now() < until, "the page says nothing");
        std::thread::sleep(Duration::from_millis(50));
    };
    stream.set_nonblocking(false).expect("and to block");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("and for how long");
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n") && stream.read(&mut byte).expect("the browser asks") == 1 {
        head.push(byte[0]);
    }
    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    let head = String::from_utf8(head).expect("a request is text");
    let value = head.strip_prefix("GET /?").and_then(|rest| rest.split(' ').next()).expect("a report");
    let digit = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = value.as_bytes().chunks(2).map(digit).collect();
    serde_json::from_slice(&bytes.expect("hexadecimal")).expect("a JSON value")
}
