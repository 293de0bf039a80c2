//! The baseline where no other server can be had: a file server of one thread a connection.
//!
//! `GET` and `HEAD`, one byte range, keep-alive; bodies go out through the C library's sendfile, the call a
//! preloaded shim sees, exactly as nginx's do. Each call sends at most 128 KiB and is timed inside the
//! server, as the paper's own server timed its own (\[L\] 6.6); `GET /.calls` tells the histogram. It exists
//! for measurements on loopback: no TLS, no logs, no directory listings.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use seekless_base::{Exit, Fault};

/// Connections served at once; more are closed at once. Twice the thousand clients of the largest scenario.
const CONNECTIONS_MAX: usize = 2048;
/// Longest request head accepted, bytes.
const HEAD_BYTES_MAX: u64 = 16 << 10;
/// A connection idle for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Most bytes a sendfile call sends: the smaller of the paper's socket buffers (\[L\] Table 2).
const CALL_BYTES_MAX: u64 = 128 << 10;
/// Histogram of call times: this many buckets a factor of ten, from 1 microsecond ...
const BUCKETS_PER_DECADE: usize = 10;
/// ... to 100 seconds.
const DECADES: usize = 8;
/// Where the histogram is served.
pub(crate) const CALLS_PATH: &str = "/.calls";
/// Stack of a connection's thread: it holds one buffered reader and little else.
const STACK_BYTES: usize = 256 << 10;

/// Serves the files below `root` on 127.0.0.1:`port` until killed.
///
/// # Errors
/// [`Exit::Busy`] if the port is in use, [`Exit::Missing`] if `root` is not a folder.
pub fn serve(root: &Path, port: u16) -> Result<Exit, Fault> {
    let root = root
        .canonicalize()
        .ok()
        .filter(|r| r.is_dir())
        .ok_or_else(|| Fault::missing(format!("{} is not a folder", root.display())))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Fault::busy(format!("port {port} is in use")),
        _ => Fault::failed(format!("port {port}: {error}")),
    })?;
    let shared = Arc::new(FileServer { root, calls: Calls::default() });
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let (shared, open) = (Arc::clone(&shared), Arc::clone(&open));
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let counted = Arc::clone(&open);
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // A broken connection is the client's business.
            let _ = converse(&shared, &stream);
            open.fetch_sub(1, Ordering::Relaxed);
        });
        if thread.is_err() {
            counted.fetch_sub(1, Ordering::Relaxed);
        }
    }
    Ok(Exit::Ok)
}

/// What all connections see.
#[derive(Debug)]
struct FileServer {
    root: PathBuf,
    calls: Calls,
}

/// How long sendfile calls took, in logarithmic buckets.
#[derive(Debug)]
struct Calls(Vec<AtomicU64>);

impl Default for Calls {
    fn default() -> Calls {
        Calls((0..DECADES * BUCKETS_PER_DECADE).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Calls {
    fn count(&self, time: Duration) {
        let decades = (time.as_secs_f64() / 1e-6).max(1.0).log10();
        let bucket = ((decades * BUCKETS_PER_DECADE as f64) as usize).min(self.0.len() - 1);
        self.0[bucket].fetch_add(1, Ordering::Relaxed);
    }

    /// `[[upper edge of the bucket in ms, calls in it], ...]`
    fn json(&self) -> String {
        let edge = |i: usize| 1e-3 * 10f64.powf((i + 1) as f64 / BUCKETS_PER_DECADE as f64);
        let pairs =
            self.0.iter().enumerate().map(|(i, n)| format!("[{:.6},{}]", edge(i), n.load(Ordering::Relaxed)));
        format!("[{}]", pairs.collect::<Vec<_>>().join(","))
    }
}

/// Answers requests on a connection until one side closes it.
fn converse(shared: &FileServer, stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE_MAX))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = HttpRequest::read(&mut reader)? {
        answer(shared, stream, &request)?;
        if request.close {
            break;
        }
    }
    Ok(())
}

/// What we look at of a request.
#[derive(Debug, PartialEq, Eq)]
struct HttpRequest {
    method: String,
    target: String,
    range: Option<String>,
    close: bool,
}

impl HttpRequest {
    /// The next request; none when the client is done.
    fn read(reader: &mut impl BufRead) -> io::Result<Option<HttpRequest>> {
        let mut reader = reader.take(HEAD_BYTES_MAX);
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace().map(String::from);
        let mut request = HttpRequest {
            method: words.next().unwrap_or_default(),
            target: words.next().unwrap_or_default(),
            range: None,
            close: words.next().as_deref() == Some("HTTP/1.0"),
        };
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            if line.is_empty() {
                return Ok(Some(request));
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            match name.to_ascii_lowercase().as_str() {
                "range" => request.range = Some(value.trim().to_string()),
                "connection" => request.close |= value.trim().eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
    }
}

fn answer(shared: &FileServer, mut stream: &TcpStream, request: &HttpRequest) -> io::Result<()> {
    if request.method != "GET" && request.method != "HEAD" {
        return refuse(stream, "405 Method Not Allowed");
    }
    if request.target == CALLS_PATH {
        let body = shared.calls.json();
        return write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    }
    let Some(path) = below(&shared.root, &request.target) else { return refuse(stream, "404 Not Found") };
    let Ok(mut file) = File::open(path) else { return refuse(stream, "404 Not Found") };
    let about = file.metadata()?;
    if !about.is_file() {
        return refuse(stream, "404 Not Found");
    }
    let size = about.len();
    let (status, first, length) = match request.range.as_deref().map(|r| range(r, size)) {
        None | Some(Range::Whole) => ("200 OK", 0, size),
        Some(Range::Part(first, length)) => ("206 Partial Content", first, length),
        Some(Range::Outside) => return refuse(stream, "416 Range Not Satisfiable"),
    };
    let part = match status.starts_with("206") {
        true => format!("Content-Range: bytes {first}-{}/{size}\r\n", first + length - 1),
        false => String::new(),
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nAccept-Ranges: bytes\r\n{part}\r\n")?;
    if request.method == "GET" && length > 0 {
        file.seek(SeekFrom::Start(first))?;
        let mut left = length;
        while left > 0 {
            let asked = left.min(CALL_BYTES_MAX);
            let start = Instant::now();
            // io::copy from a file to a socket is sendfile.
            let sent = io::copy(&mut (&file).take(asked), &mut stream)?;
            shared.calls.count(start.elapsed());
            if sent != asked {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= sent;
        }
    }
    Ok(())
}

fn refuse(mut stream: &TcpStream, status: &str) -> io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
}

/// The file a request target names, if it stays below `root`. No percent-decoding: our libraries need none.
fn below(root: &Path, target: &str) -> Option<PathBuf> {
    let relative = Path::new(target.split('?').next()?.trim_start_matches('/'));
    relative.components().all(|c| matches!(c, Component::Normal(_))).then(|| root.join(relative))
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    /// Not a range we understand: the whole file, as RFC 9110 (14.2) allows.
    Whole,
    /// First byte and length.
    Part(u64, u64),
    /// Nothing of the file.
    Outside,
}

fn range(header: &str, size: u64) -> Range {
    let Some((first, last)) = header.strip_prefix("bytes=").and_then(|r| r.split_once('-')) else {
        return Range::Whole;
    };
    let (first, end) = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if last >= first => (first, last.saturating_add(1).min(size)),
        (Ok(first), Err(_)) if last.is_empty() => (first, size),
        (Err(_), Ok(suffix)) if first.is_empty() => (size.saturating_sub(suffix), size),
        _ => return Range::Whole,
    };
    if first >= end { Range::Outside } else { Range::Part(first, end - first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (header, wanted) in [
            ("bytes=0-9", Range::Part(0, 10)),
            ("bytes=90-", Range::Part(90, 10)),
            ("bytes=-5", Range::Part(95, 5)),
            ("bytes=-500", Range::Part(0, 100)),
            ("bytes=50-1000", Range::Part(50, 50)),
            ("bytes=100-", Range::Outside),
            ("bytes=200-300", Range::Outside),
            ("bytes=9-3", Range::Whole),
            ("bytes=0-18446744073709551615", Range::Part(0, 100)),
            ("lines=1-2", Range::Whole),
            ("bytes=0-1,5-6", Range::Whole),
        ] {
            assert_eq!(range(header, 100), wanted, "{header}");
        }
    }

    #[test]
    fn nothing_outside_the_root_is_served() {
        let root = Path::new("/srv");
        assert_eq!(below(root, "/a/b.mp4?x=1"), Some(PathBuf::from("/srv/a/b.mp4")));
        for target in ["/../etc/passwd", "/a/../../etc/passwd", "//../x", "/./.."] {
            assert_eq!(below(root, target), None, "{target}");
        }
    }

    #[test]
    fn serves_two_requests_on_a_connection() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
        std::fs::write(dir.path().join("f"), &bytes).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(FileServer { root: dir.path().to_path_buf(), calls: Calls::default() });
        let theirs = Arc::clone(&shared);
        let server = std::thread::spawn(move || converse(&theirs, &listener.accept().unwrap().0));
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /f HTTP/1.1\r\nrange: bytes=1000-299999\r\n\r\nHEAD /g HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        server.join().unwrap().unwrap();
        let head = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        assert!(String::from_utf8_lossy(&answer[..head]).contains("Content-Range: bytes 1000-299999/300000"));
        assert_eq!(&answer[head..head + 299_000], &bytes[1000..]);
        assert!(answer[head + 299_000..].starts_with(b"HTTP/1.1 404"));
        let calls: Vec<(f64, u64)> = serde_json::from_str(&shared.calls.json()).unwrap();
        assert_eq!(calls.iter().map(|(_, n)| n).sum::<u64>(), 3, "299,000 bytes are three calls");
        assert!(calls.is_sorted_by(|a, b| a.0 < b.0));
    }
}
