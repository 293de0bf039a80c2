//! What hostile or merely many clients can make `seekless serve` hold: memory and counts are bounded, and it
//! goes on serving.
//!
//! `cargo test --release -p seekless-cli --test limits -- --nocapture --test-threads 1` prints the figures.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::http2::{self, HEAD_OF_FILE, frame};
use common::{Serving, http, public_folder};

const FILM_BYTES: usize = 1_000_000;

struct Site {
    _dir: tempfile::TempDir,
    certificate: http2::Certificate,
    serving: Serving,
    address: SocketAddr,
}

impl Site {
    fn start(secure: bool, options: &[&str]) -> Site {
        let dir = public_folder();
        let root = dir.path().join("www");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("f"), vec![7; FILM_BYTES]).unwrap();
        let certificate = http2::Certificate::make(dir.path());
        let mut all = options.to_vec();
        if secure {
            all.extend(certificate.options());
        }
        let serving = Serving::start(&root, &all);
        let (_, address) = serving.url.trim_end_matches('/').split_once("//").unwrap();
        let address = address.parse().unwrap();
        let site = Site { _dir: dir, certificate, serving, address };
        site.answers();
        site
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
        stream
    }

    /// An HTTP/2 connection, its preface sent.
    fn http2(&self) -> http2::Connection {
        self.certificate.connect(self.connect())
    }

    /// A line of /proc/PID/status, MB.
    fn memory(&self, name: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.serving.pid())).unwrap();
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0 / 1e6
    }

    /// Whether it still serves everybody else.
    fn answers(&self) {
        if self.serving.url.starts_with("https") {
            let mut stream = self.http2();
            stream.write_all(&[frame(4, 0, 0, b""), frame(1, 5, 1, HEAD_OF_FILE)].concat()).unwrap();
            let mut some = [0; 9];
            stream.read_exact(&mut some).unwrap();
        } else {
            let answer = http::request(self.address, "GET", "/f", &[("Range", "bytes=0-9")]).unwrap();
            assert_eq!(answer.body, [7; 10]);
        }
    }

    /// After an attack: still serving, and its memory never grew by more than this. Prints the figures.
    fn held(&self, attack: &str, before_mb: f64, bound_mb: f64, what: &str) {
        self.answers();
        let peak = self.memory("VmHWM");
        let grown = peak - before_mb;
        println!("{attack}: {before_mb:.0} MB before, {peak:.0} MB at most; {what}");
        assert!(grown < bound_mb, "{attack}: grew by {grown:.0} MB");
    }
}

/// Sends pieces until the server takes no more, or there are no more; how many it took.
fn flood(stream: &mut impl Write, most: u64, mut piece: impl FnMut(u64) -> Vec<u8>) -> u64 {
    for n in 0..most {
        if stream.write_all(&piece(n)).is_err() {
            return n;
        }
    }
    most
}

/// Reads to the end; whether it came before anybody's patience ended.
fn ends(stream: &mut impl Read) -> bool {
    let mut piece = [0; 65_536];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

#[test]
fn ten_thousand_idle_connections() {
    let site = Site::start(false, &["--bound", "idle-timeout=10min", "--connections", "12000"]);
    let before = site.memory("VmRSS");
    let (limit, _) = limits();
    let count = 10_000.min(limit.saturating_sub(200));
    if count < 10_000 {
        println!("{count} connections only: more descriptors are not allowed");
    }
    let mut piece = vec![0; 4096];
    let connections: Vec<TcpStream> = (0..count)
        .map(|_| {
            let mut stream = site.connect();
            stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\nRange: bytes=0-9\r\n\r\n").unwrap();
            let mut got = 0;
            while !piece[..got].ends_with(&[7; 10]) {
                let n = stream.read(&mut piece[got..]).unwrap();
                assert!(n > 0, "turned away");
                got += n;
            }
            stream
        })
        .collect();
    // They go to sleep, and what they gave back is returned to the system every five seconds.
    let until = Instant::now() + Duration::from_secs(60);
    let bound = 100.0 * count as f64 / 10_000.0 + before;
    while site.memory("VmRSS") - before > bound - before && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(500));
    }
    std::thread::sleep(Duration::from_secs(6));
    let after = site.memory("VmRSS");
    println!("{count} idle connections: {before:.0} MB before, {after:.0} MB with them");
    assert!(after < bound.max(30.0), "{after:.0} MB");
    site.answers();
    drop(connections);
}

/// Descriptors allowed to this process.
fn limits() -> (usize, usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let now = getrlimit(Resource::Nofile);
    let number = |n: Option<u64>| n.unwrap_or(1 << 20) as usize;
    (number(now.current), number(now.maximum))
}

#[test]
fn slow_heads() {
    limits();
    let site = Site::start(false, &["--bound", "head-timeout=2s"]);
    let before = site.memory("VmRSS");
    // Nearly the longest head there may be, and never its end.
    let head = format!("GET /f HTTP/1.1\r\nHost: x\r\nX: {}", "x".repeat(15_000));
    let mut connections: Vec<TcpStream> = (0..2000)
        .map(|_| {
            let mut stream = site.connect();
            let _ = stream.write_all(head.as_bytes());
            stream
        })
        .collect();
    let ended = connections.iter_mut().filter_map(|c| ends(c).then_some(())).count();
    assert_eq!(ended, 2000, "everyone's patience with them ended");
    site.held(
        "slow heads",
        before,
        150.0,
        "2000 connections with 15 KB of a head each, all ended by head-timeout",
    );
}

#[test]
fn floods_of_fields() {
    let site = Site::start(false, &[]);
    let before = site.memory("VmRSS");
    let mut taken = 0;
    for piece in [vec![b'x'; 1 << 16], b"X: y\r\n".repeat(10_000)] {
        for _ in 0..20 {
            let mut stream = site.connect();
            let _ = stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\nX: ");
            taken += flood(&mut stream, 1000, |_| piece.clone()) * piece.len() as u64;
            assert!(ends(&mut stream));
        }
    }
    // What the sockets' buffers take is not the server's.
    assert!(taken < 40 * (8 << 20), "{taken} bytes were taken");
    site.held(
        "fields without end",
        before,
        40.0,
        &format!("40 heads of 60 MB, of which {taken} bytes left the clients"),
    );
}

#[test]
fn bombs_of_ranges() {
    let site = Site::start(false, &[]);
    let before = site.memory("VmRSS");
    let apart: Vec<String> = (0..256).map(|n| format!("{}-{}", n * 3000, n * 3000 + 2000)).collect();
    let more: Vec<String> = (0..700).map(|n| format!("{}-{}", n * 10, n * 10)).collect();
    let mut longest = 0;
    for (ranges, status) in [
        ("0-,".repeat(2600), "206"),
        (format!("{}0-", "-1000000,".repeat(800)), "206"),
        (apart.join(","), "206"),
        (more.join(","), "200"),
    ] {
        for _ in 0..20 {
            let range = format!("bytes={ranges}");
            let answer = http::request(site.address, "GET", "/f", &[("Range", &range)]).unwrap();
            assert!(answer.status_line.contains(status), "{}", answer.status_line);
            longest = longest.max(answer.body.len());
        }
    }
    assert!(longest <= FILM_BYTES + 256 * 200, "{longest} bytes for a file of {FILM_BYTES}");
    // And from clients that take nothing of it.
    let request = format!("GET /f HTTP/1.1\r\nHost: x\r\nRange: bytes={}\r\n\r\n", apart.join(","));
    let connections: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = site.connect();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    let what = format!(
        "longest answer {longest} bytes of a file of {FILM_BYTES}; 300 answers of 256 parts not taken"
    );
    site.held("ranges", before, 60.0, &what);
    drop(connections);
}

#[test]
fn floods_of_http2_frames() {
    let site = Site::start(true, &[]);
    let before = site.memory("VmRSS");
    let settings = frame(4, 0, 0, b"");
    let mut figures = vec![];
    type Piece = fn(u64) -> Vec<u8>;
    let attacks: [(&str, u64, Piece); 5] = [
        ("rapid reset", 200_000, |n| {
            let stream = 2 * n as u32 + 1;
            [frame(1, 5, stream, HEAD_OF_FILE), frame(3, 0, stream, &[0, 0, 0, 8])].concat()
        }),
        ("settings", 300_000, |_| frame(4, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("pings", 300_000, |_| frame(6, 0, 0, b"eightbyt")),
        ("continuations", 10_000, |n| match n {
            0 => frame(1, 1, 1, HEAD_OF_FILE),
            _ => frame(9, 0, 1, &[b"\x00\x01x\x7f\xc1\x3d".as_slice(), &[b'y'; 8000]].concat()),
        }),
        ("empty data", 300_000, |n| match n {
            0 => frame(1, 4, 1, b"\x83\x87\x04\x02/f\x01\x09localhost"),
            _ => frame(0, 0, 1, b""),
        }),
    ];
    for (name, most, piece) in attacks {
        let mut stream = site.http2();
        stream.write_all(&settings).unwrap();
        // Nothing is read back: what the server has to say about it waits with the server.
        let taken = flood(&mut stream, most, piece);
        figures.push(format!("{name} {taken} of {most}"));
        site.answers();
    }
    site.held("HTTP/2 frames", before, 60.0, &format!("frames taken: {}", figures.join(", ")));
}

/// Clients that open all the streams they may, with a window of one byte each: for every stream a piece of
/// its file waits.
#[test]
fn windows_of_one_byte() {
    let site = Site::start(true, &[]);
    let before = site.memory("VmRSS");
    let connections: Vec<_> = (0..10)
        .map(|_| {
            let mut stream = site.http2();
            // SETTINGS_INITIAL_WINDOW_SIZE 1.
            let mut frames = frame(4, 0, 0, &[0, 4, 0, 0, 0, 1]);
            for n in 0..100 {
                frames.extend(frame(1, 5, 2 * n + 1, HEAD_OF_FILE));
            }
            stream.write_all(&frames).unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_secs(3));
    // Two pieces of 64 KiB a stream: one in the frame that waits, one behind it.
    site.held("windows of one byte", before, 200.0, "10 connections of 100 streams each");
    drop(connections);
}

/// A client that opens streams, takes nothing of them, and says every now and then that it is there: what
/// waits for it is given back after `send-timeout`. One that takes a little stays.
#[test]
fn clients_that_take_nothing_of_their_streams_are_ended() {
    let site = Site::start(true, &["--bound", "send-timeout=2s,idle-timeout=10min"]);
    let open = |window: u32| {
        let mut stream = site.http2();
        let settings = [&[0, 4], &window.to_be_bytes()[..]].concat();
        let mut frames = frame(4, 0, 0, &settings);
        for n in 0..100 {
            frames.extend(frame(1, 5, 2 * n + 1, HEAD_OF_FILE));
        }
        stream.write_all(&frames).unwrap();
        stream
    };
    let (mut taking, mut stuck) = (open(1), open(0));
    let start = Instant::now();
    let mut ended = false;
    while start.elapsed() < Duration::from_secs(20) && !ended {
        std::thread::sleep(Duration::from_millis(200));
        let ping = frame(6, 0, 0, b"eightbyt");
        ended = stuck.write_all(&ping).and_then(|()| stuck.flush()).is_err();
        // One byte more of each answer.
        let more: Vec<u8> = (0..100).flat_map(|n| frame(8, 0, 2 * n + 1, &[0, 0, 0, 1])).collect();
        taking.write_all(&more).and_then(|()| taking.flush()).expect("who takes a little is let be");
    }
    assert!(ended, "it holds its streams for ever");
    println!(
        "100 streams that nothing is taken of: ended after {:.1} s of PINGs",
        start.elapsed().as_secs_f64()
    );
    site.answers();
}

/// Both doors of the number of connections.
#[test]
fn connections_are_counted() {
    let site = Site::start(false, &["--connections", "60", "--connections-per-client", "50"]);
    let connections: Vec<TcpStream> = (0..100).map(|_| site.connect()).collect();
    // Those turned away are at their end; the others, whichever they are, wait for us.
    let ended = |c: &TcpStream| c.set_nonblocking(true).is_ok() && matches!(c.peek(&mut [0]), Ok(0));
    let until = Instant::now() + Duration::from_secs(20);
    while connections.iter().filter(|c| ended(c)).count() < 50 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(500));
    let turned_away = connections.iter().filter(|c| ended(c)).count();
    assert_eq!(turned_away, 50);
    drop(connections);
    // Those that are gone make room.
    std::thread::sleep(Duration::from_millis(300));
    site.answers();
}
