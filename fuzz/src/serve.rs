//! The whole server behind a socket, given the bytes of a request: whatever it answers is well-formed, and every byte of a
//! file in it is the file's.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use seekless_http::multipart::{Found, Reader};
use seekless_http::range::parse_content_range;
use seekless_http::serve::{Patience, Server, ServerSettings};

/// Length of the one film; more than four blocks, so that any order is offered.
const FILM_BYTES: usize = 300_000;

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 11) as u8
}

struct Site {
    address: SocketAddr,
    film: Vec<u8>,
    _server: Server,
    _dir: tempfile::TempDir,
}

fn site() -> &'static Site {
    static SITE: OnceLock<Site> = OnceLock::new();
    SITE.get_or_init(|| {
        super::survive_closed_sockets();
        let dir = tempfile::tempdir().expect("a folder");
        let film: Vec<u8> = (0..FILM_BYTES).map(byte).collect();
        let root = dir.path().join("www");
        std::fs::create_dir_all(root.join("d")).expect("a folder");
        for name in ["f", ".h", "d/index.html"] {
            let path = root.join(name);
            std::fs::write(&path, &film).expect("a file");
            let file = std::fs::File::options().write(true).open(&path).expect("a file");
            // The same for ever, so that seeds can name the tag.
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_640_995_200)).expect("a time");
        }
        let _ = std::os::unix::fs::symlink("/etc/passwd", root.join("out"));
        let patience = Duration::from_secs(5);
        let server = Server::start(ServerSettings {
            roots: vec![root],
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            loops: 1,
            helpers: 2,
            hidden: false,
            listing: true,
            download_page: false,
            log: Some("/dev/null".into()),
            connections: 1000,
            connections_of_one: 1000,
            head_bytes: 16 << 10,
            head_fields: 100,
            rate: None,
            patience: Patience { head: patience, idle: patience, send: patience },
            grace: patience,
            digest_max: seekless_base::Bytes::mib(16),
            any_order: Some(Default::default()),
            coordinate: None,
            engine: Default::default(),
        })
        .expect("a server");
        Site { address: server.address(), film, _server: server, _dir: dir }
    })
}

/// The request as it is sent; the empty line behind its head is added.
pub fn run(data: &[u8]) {
    let site = site();
    let Ok(mut stream) = TcpStream::connect(site.address) else { return };
    stream.set_nodelay(true).expect("a socket");
    if stream.write_all(&[data, b"\r\n\r\n"].concat()).is_err() {
        return;
    }
    let mut answer = Vec::new();
    let mut piece = vec![0; 64 << 10];
    let mut patience = Duration::from_millis(30);
    // Until one answer is here; the server may be waiting for a body, so not for ever.
    loop {
        stream.set_read_timeout(Some(patience)).expect("a socket");
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(n) => answer.extend_from_slice(&piece[..n]),
        }
        if length(&answer).is_some_and(|whole| answer.len() >= whole) {
            break;
        }
        patience = Duration::from_secs(5);
    }
    let _ = stream.shutdown(Shutdown::Both);
    // Bodies are left away for HEAD, and a second request's answer may follow; the first is looked at.
    let head_only = data.windows(4).any(|w| w == b"HEAD");
    check(&answer, head_only, &site.film);
}

fn head_end(answer: &[u8]) -> Option<usize> {
    answer.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4)
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.split("\r\n");
    lines.find_map(|line| {
        line.split_once(':').filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
    })
}

/// Length of the first answer, head and body.
fn length(answer: &[u8]) -> Option<usize> {
    let end = head_end(answer)?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    Some(end + field(head, "content-length").and_then(|l| l.parse().ok()).unwrap_or(0))
}

fn check(answer: &[u8], head_only: bool, film: &[u8]) {
    let Some(end) = head_end(answer) else {
        assert!(answer.is_empty(), "half a head: {:?}", String::from_utf8_lossy(answer));
        return;
    };
    let head = std::str::from_utf8(&answer[..end]).expect("a head of text");
    assert!(head.starts_with("HTTP/1.1 ") || head.starts_with("HTTP/1.0 "), "{head}");
    let status: u16 = head[9..12].parse().expect("a status");
    let known = [200, 204, 206, 301, 304, 400, 403, 404, 405, 412, 414, 416, 431, 503];
    assert!(known.contains(&status), "{head}");
    let stated: usize = field(head, "content-length").map_or(0, |l| l.parse().expect("a length"));
    let body = &answer[end..];
    if head_only || status == 204 || status == 304 {
        return;
    }
    assert!(body.len() >= stated, "{} of {stated} bytes: {head}", body.len());
    let body = &body[..stated];
    match (status, field(head, "content-range"), field(head, "content-type").and_then(Reader::of)) {
        (200, None, None) if field(head, "etag").is_some() => assert!(body == film, "another file: {head}"),
        (206, Some(range), None) => {
            let (span, size) = parse_content_range(range).expect("a range");
            assert_eq!((span.len, size), (stated as u64, Some(film.len() as u64)), "{head}");
            assert!(body == &film[span.offset as usize..span.end() as usize], "other bytes: {head}");
        }
        (206, None, Some(mut reader)) => {
            let mut input = Bytes::copy_from_slice(body);
            while let Some(found) = reader.next(&mut input).expect("our own parts") {
                if let Found::Data(at, data) = found {
                    assert!(data == film[at as usize..at as usize + data.len()], "other bytes: {head}");
                }
            }
            assert!(reader.ended(), "no end: {head}");
            // Each part once: never more than the file and the parts' heads.
            assert!(stated <= film.len() + 300 * 256, "a bomb: {head}");
        }
        (206, ..) => panic!("a part of what? {head}"),
        _ => {}
    }
}
