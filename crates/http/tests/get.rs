//! The client against our server, and against servers that break off, lie, or change their mind.

mod common;

use std::cell::RefCell;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Site, get, settings};
use seekless_base::{Exit, Fault};
use seekless_http::digest::{self, Algorithm};
use seekless_http::get::{Options, Outcome, Progress, Proxies, download, trust};
use seekless_http::multipart::{Found, Reader};
use seekless_http::serve::{Server, tls};

/// What was said of attempts that failed.
#[derive(Default)]
struct RetryReasons(RefCell<Vec<String>>);

impl Progress for RetryReasons {
    fn at(&self, _: u64, _: Option<u64>) {}

    fn again(&self, why: &str, _: Duration) {
        self.0.borrow_mut().push(why.into());
    }
}

fn options() -> Options {
    Options {
        retries: 2,
        timeout: Duration::from_secs(10),
        any_order: true,
        trust: trust(None).unwrap(),
        proxies: Proxies::default(),
        size_max: None,
    }
}

fn fetch_with(url: &str, target: &Path, options: &Options) -> Result<Outcome, Fault> {
    fetch_told(url, target, options, &RetryReasons::default())
}

fn fetch_told(url: &str, target: &Path, options: &Options, said: &RetryReasons) -> Result<Outcome, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_stop, mut stopped) = tokio::sync::watch::channel(false);
    runtime.block_on(download(url, target, options, said, &mut stopped))
}

fn fetch(url: &str, target: &Path) -> Result<Outcome, Fault> {
    fetch_with(url, target, &options())
}

#[test]
fn files_of_every_size_come_in_any_order_and_in_order() {
    let site = Site::new();
    let server = Server::start(settings(&site.root)).unwrap();
    for bytes in [0, 1, 2, 65_535, 65_536, 300_000, 20_000_003] {
        let film = site.film("f", bytes);
        for any_order in [true, false] {
            let target = site.dir.path().join("got");
            let own = Options { any_order, ..options() };
            let outcome = fetch_with(&format!("{}f", server.url()), &target, &own).unwrap();
            assert!(fs::read(&target).unwrap() == film, "{bytes} {any_order}");
            assert_eq!(outcome.bytes, bytes as u64);
            assert_eq!(outcome.any_order, any_order && bytes >= 4 * 65_536, "{bytes}: {outcome:?}");
            let digested = bytes <= 16 << 20;
            assert_eq!(outcome.digest, digested.then_some("sha-256"), "{bytes}");
            fs::remove_file(&target).unwrap();
        }
    }
    assert_eq!(fs::read_dir(site.dir.path()).unwrap().count(), 1, "nothing else is left");
    server.stop();
}

/// Ten at once, starting at different times: every one gets every byte, and the disk is read about once.
#[test]
fn one_read_serves_many() {
    let site = Site::on_disk();
    let film = site.film("f", 24_000_000);
    let mut own = settings(&site.root);
    own.rate = Some(seekless_base::Bytes::mib(12));
    let server = Server::start(own).unwrap();
    let url = format!("{}f", server.url());
    let clients: Vec<_> = (0..10)
        .map(|i| {
            let (url, target) = (url.clone(), site.dir.path().join(format!("got{i}")));
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100 * i));
                let outcome = fetch(&url, &target).unwrap();
                assert!(outcome.any_order && outcome.received_bytes == 24_000_000, "{outcome:?}");
                fs::read(&target).unwrap()
            })
        })
        .collect();
    for client in clients {
        assert!(client.join().unwrap() == film);
    }
    let report = server.stop();
    let count = |name: &str| report["counters"][name].as_u64().unwrap();
    let blocks = 24_000_000u64.div_ceil(65_536);
    assert_eq!(count("any_order_blocks_sent"), 10 * blocks);
    // Everything fits its memory, so nothing needs to be read twice.
    assert_eq!(count("any_order_blocks_read"), blocks, "{report}");
}

#[test]
fn the_parts_of_an_answer_in_any_order_are_those_asked_for() {
    let site = Site::new();
    let film = site.film("f", 2_000_000);
    let server = Server::start(settings(&site.root)).unwrap();
    let answer =
        get(server.address(), "/f", &[("Range", "bytes=5-400000,1000000-1000010"), ("Prefer", "any-order")]);
    assert_eq!((answer.status, answer.header("preference-applied")), (206, Some("any-order")));
    let mut reader = Reader::of(answer.header("content-type").unwrap()).unwrap();
    let mut input = answer.body.clone().into();
    let mut got = 0;
    while let Some(found) = reader.next(&mut input).unwrap() {
        if let Found::Data(at, data) = found {
            let range = at..at + data.len() as u64;
            assert!((range.start >= 5 && range.end <= 400_001) || (range.start >= 1_000_000), "{range:?}");
            assert!(film[range.start as usize..range.end as usize] == data);
            got += data.len();
        }
    }
    assert_eq!(got, 399_996 + 11);
    assert!(reader.ended());
    // Without the preference, nobody is surprised with another order.
    let plain = get(server.address(), "/f", &[("Range", "bytes=5-400000,1000000-1000010")]);
    assert_eq!(plain.header("preference-applied"), None);
    server.stop();
}

type Script = Box<dyn Fn(&str) -> Vec<u8> + Send>;

/// A server that does, answer by answer, what a test says; the last for all that follow.
struct Fake {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

fn fake(answers: Vec<Script>) -> Fake {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let n = count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
            let _ = stream.write_all(&answers[n](&String::from_utf8_lossy(&head)));
        }
    });
    Fake { address, requests }
}

fn url(fake: &Fake) -> String {
    format!("http://{}/f", fake.address)
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [head.replace('\n', "\r\n").as_bytes(), b"\r\n\r\n", body].concat()
}

fn says(head: &'static str, body: &'static [u8]) -> Script {
    Box::new(move |_| answer(head, body))
}

#[test]
fn an_interrupted_download_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    // The first answer ends in the middle of the second part.
    let broken = "HTTP/1.1 206 Partial Content\nETag: \"a\"\nContent-Type: multipart/byteranges; boundary=b\nContent-Length: 999";
    let server = fake(vec![
        says(
            broken,
            b"--b\r\nContent-Range: bytes 6-9/10\r\n\r\n6789\r\n--b\r\nContent-Range: bytes 0-5/10\r\n\r\n01",
        ),
        Box::new(|head| {
            assert!(
                head.contains("if-range: \"a\"\r\n") && head.contains("range: bytes=2-2,3-5\r\n"),
                "{head}"
            );
            answer(
                "HTTP/1.1 206 Partial Content\nETag: \"a\"\nContent-Range: bytes 2-5/10\nContent-Length: 4",
                b"2345",
            )
        }),
    ]);
    let outcome = fetch(&url(&server), &target).unwrap();
    assert_eq!((outcome.requests, outcome.received_bytes), (2, 10));
    assert_eq!(fs::read(&target).unwrap(), b"0123456789");
}

/// A server that names neither tag nor date may send parts of a file that changed in between: nothing is put
/// together from two answers.
#[test]
fn without_a_validator_nothing_is_joined() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    let head =
        "HTTP/1.1 206 Partial Content\nContent-Type: multipart/byteranges; boundary=b\nContent-Length: 999";
    let server = fake(vec![
        says(head, b"--b\r\nContent-Range: bytes 6-9/10\r\n\r\naaaa\r\n--b\r\n"),
        says(head, b"--b\r\nContent-Range: bytes 0-5/10\r\n\r\nbbbbbb\r\n--b\r\n"),
        says("HTTP/1.1 206 P\nContent-Range: bytes 0-9/10\nContent-Length: 10", b"cccccccccc"),
    ]);
    let outcome = fetch(&url(&server), &target).unwrap();
    assert_eq!((outcome.requests, outcome.resumed_bytes), (3, 0));
    assert_eq!(fs::read(&target).unwrap(), b"cccccccccc");
}

#[test]
fn a_run_that_was_killed_is_resumed_by_the_next_and_a_changed_file_begins_anew() {
    let site = Site::new();
    let film = site.film("f", 5_000_000);
    let server = Server::start(settings(&site.root)).unwrap();
    let address = format!("{}f", server.url());
    let etag = get(server.address(), "/f", &[]).header("etag").unwrap().to_string();
    let target = site.dir.path().join("f");
    let half = |etag: &str| {
        let mut part = film.clone();
        part[2_000_000..].fill(0);
        fs::write(site.dir.path().join("f.part"), part).unwrap();
        let map = serde_json::json!({
            "version": 1, "url": address, "size": 5_000_000, "validator": etag,
            "have": [[0, 1_000_000], [1_500_000, 500_000]],
        });
        fs::write(site.dir.path().join("f.part.map"), map.to_string()).unwrap();
    };
    half(&etag);
    let outcome = fetch(&address, &target).unwrap();
    assert_eq!((outcome.resumed_bytes, outcome.received_bytes, outcome.restarts), (1_500_000, 3_500_000, 0));
    assert!(fs::read(&target).unwrap() == film);

    half("\"of yesterday\"");
    let outcome = fetch(&address, &target).unwrap();
    assert_eq!((outcome.resumed_bytes, outcome.received_bytes, outcome.restarts), (0, 5_000_000, 1));
    assert!(fs::read(&target).unwrap() == film);
    assert!(!site.dir.path().join("f.part").exists() && !site.dir.path().join("f.part.map").exists());
    server.stop();
}

#[test]
fn lies_and_failures_end_in_one_line_and_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = digest::field(Algorithm::Sha256, &[7; 32]);
    let digest_head: &'static str =
        Box::leak(format!("HTTP/1.1 200 OK\nContent-Length: 3\nRepr-Digest: {wrong}").into_boxed_str());
    let content_head: &'static str =
        Box::leak(format!("HTTP/1.1 200 OK\nContent-Length: 3\nContent-Digest: {wrong}").into_boxed_str());
    let part = "HTTP/1.1 206 Partial Content\nETag: \"a\"\nContent-Type: multipart/byteranges; boundary=b";
    let cases: Vec<(&str, &'static str, &'static [u8], &str)> = vec![
        ("not found", "HTTP/1.1 404 Not Found\nContent-Length: 0", b"", "404"),
        ("too short", "HTTP/1.1 200 OK\nContent-Length: 10", b"abc", "connection"),
        ("no length", "HTTP/1.1 200 OK", b"abc", "cannot be verified"),
        ("wrong digest", digest_head, b"abc", "digest"),
        ("wrong content digest", content_head, b"abc", "digest"),
        ("encoded", "HTTP/1.1 200 OK\nContent-Length: 3\nContent-Encoding: gzip", b"abc", "encoded"),
        ("endless move", "HTTP/1.1 302 Found\nLocation: /f\nContent-Length: 0", b"", "too many redirects"),
        ("size changes", part, b"--b\r\nContent-Range: bytes 0-0/5\r\n\r\na\r\n--b\r\nContent-Range: bytes 1-1/6\r\n\r\nb\r\n--b--\r\n", "chang"),
        ("part without a place", part, b"--b\r\n\r\nabc\r\n--b--\r\n", "no known place"),
        ("part longer than it says", part, b"--b\r\nContent-Range: bytes 0-0/5\r\n\r\nabc\r\n--b--\r\n", "long as they say"),
        ("the same part for ever", part, b"--b\r\nContent-Range: bytes 0-0/5\r\n\r\na\r\n--b--\r\n", "before the file was complete"),
        ("unavailable", "HTTP/1.1 503 Busy\nRetry-After: 0\nContent-Length: 0", b"", "503"),
        ("garbage", "SMTP ready\n", b"", "no answer"),
    ];
    for (name, head, body, said) in cases {
        let server = fake(vec![says(head, body)]);
        let target = dir.path().join("f");
        let own = Options { retries: 1, ..options() };
        let fault = fetch_with(&url(&server), &target, &own).unwrap_err();
        assert!(fault.message.contains(said), "{name}: {fault}");
        assert!(!fault.message.contains('\n') && fault.exit == Exit::Failed, "{name}: {fault}");
        assert!(!target.exists(), "{name}");
        assert!(server.requests.load(Ordering::SeqCst) <= 11, "{name}: bounded attempts");
        for left in fs::read_dir(dir.path()).unwrap() {
            fs::remove_file(left.unwrap().path()).unwrap();
        }
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let own = Options { retries: 1, ..options() };
    let said = RetryReasons::default();
    let fault = fetch_told(&format!("http://{closed}/f"), &dir.path().join("f"), &own, &said).unwrap_err();
    assert!(fault.message.contains("cannot connect"), "{fault}");
    let said = said.0.into_inner();
    assert!(said.len() == 1 && said[0].contains("cannot connect"), "before the second attempt: {said:?}");
    let nowhere = fetch(&format!("http://{closed}/f"), &dir.path().join("no/such/f")).unwrap_err();
    assert_eq!(nowhere.exit, Exit::Missing);
}

#[test]
fn servers_that_know_less_are_good_enough() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    let chunked = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked";
    // (answers, requests needed)
    let cases: Vec<(Vec<Script>, u32)> = vec![
        (vec![says("HTTP/1.1 200 OK\nContent-Length: 3", b"abc")], 1),
        (vec![says(chunked, b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n")], 1),
        (
            vec![says("HTTP/1.1 206 Partial Content\nContent-Range: bytes 0-2/3\nContent-Length: 3", b"abc")],
            1,
        ),
        (
            vec![
                says("HTTP/1.1 400 Bad Request\nContent-Length: 0", b""),
                says("HTTP/1.1 200 OK\nContent-Length: 3", b"abc"),
            ],
            2,
        ),
        (
            vec![
                says("HTTP/1.1 301 Moved\nLocation: g\nContent-Length: 0", b""),
                says("HTTP/1.1 200 OK\nContent-Length: 3", b"abc"),
            ],
            2,
        ),
        (
            vec![
                says("HTTP/1.1 503 Busy\nRetry-After: 0\nContent-Length: 0", b""),
                says("HTTP/1.1 200 OK\nContent-Length: 3", b"abc"),
            ],
            2,
        ),
    ];
    for (answers, requests) in cases {
        let server = fake(answers);
        let outcome = fetch(&url(&server), &target).unwrap();
        assert_eq!((outcome.requests, outcome.bytes), (requests, 3));
        assert_eq!(fs::read(&target).unwrap(), b"abc");
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn over_tls_with_http_1_and_2_a_new_certificate_and_a_wrong_one() {
    let site = Site::new();
    let film = site.film("f", 3_000_000);
    let make = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_string()]).unwrap();
        fs::write(site.dir.path().join("cert.pem"), made.cert.pem()).unwrap();
        fs::write(site.dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    };
    make("localhost");
    let mut own = settings(&site.root);
    let files = tls::TlsFiles {
        certificates: site.dir.path().join("cert.pem"),
        key: site.dir.path().join("key.pem"),
    };
    own.tls = Some(files);
    let server = Server::start(own).unwrap();
    let url = format!("https://localhost:{}/f", server.address().port());
    let target = site.dir.path().join("got");
    let ca = site.dir.path().join("ca.pem");
    fs::copy(site.dir.path().join("cert.pem"), &ca).unwrap();
    for any_order in [true, false] {
        let own = Options { any_order, trust: trust(Some(&ca)).unwrap(), ..options() };
        let outcome = fetch_with(&url, &target, &own).unwrap();
        assert!(fs::read(&target).unwrap() == film);
        assert_eq!(outcome.any_order, any_order);
    }
    // HTTP/2, with a client that is not ours.
    let curl = std::process::Command::new("curl")
        .args(["--http2", "-s", "-o", "-", "-w", "%{stderr}%{http_version}"])
        .arg("--cacert")
        .arg(&ca)
        .arg(&url)
        .output();
    match curl {
        Ok(got) => {
            assert_eq!(String::from_utf8_lossy(&got.stderr), "2", "{got:?}");
            assert!(got.stdout == film);
        }
        Err(e) => println!("skipped: no curl ({e})"),
    }
    // Nobody vouches for it.
    let fault = fetch(&url, &target).unwrap_err();
    assert!(fault.message.contains("TLS") && fault.message.contains("certificate"), "{fault}");
    // A new certificate is taken over without a pause; the old authority no longer does.
    make("localhost");
    server.reload().unwrap();
    let old = Options { trust: trust(Some(&ca)).unwrap(), ..options() };
    assert!(fetch_with(&url, &target, &old).is_err());
    let new = Options { trust: trust(Some(&site.dir.path().join("cert.pem"))).unwrap(), ..options() };
    fetch_with(&url, &target, &new).unwrap();
    fs::write(site.dir.path().join("cert.pem"), "no certificate").unwrap();
    assert!(server.reload().is_err());
    let kept = Options { retries: 0, ..new };
    fetch_with(&url, &target, &kept).unwrap();
    server.stop();
}

/// A server that answers every request with `head`, and then with what `more` gives until the client has had
/// enough.
fn endless(head: &'static str, more: impl Fn(u64) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                request.push(byte[0]);
            }
            let mut sent = stream.write_all(&answer(head, b""));
            for n in 0.. {
                let next = more(n);
                if next.is_empty() || sent.is_err() {
                    break;
                }
                sent = stream.write_all(&next);
            }
        }
    });
    address
}

/// Chunked, so no length is told; the digest makes it acceptable.
#[test]
fn an_endless_body_is_given_up_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    let chunk = [format!("{:x}\r\n", 1 << 20).into_bytes(), vec![7; 1 << 20], b"\r\n".to_vec()].concat();
    let head = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nRepr-Digest: sha-256=:AAAA:";
    let address = endless(head, move |_| chunk.clone());
    let own = Options { size_max: Some(20 << 20), ..options() };
    let fault = fetch_with(&format!("http://{address}/f"), &target, &own).unwrap_err();
    assert!(fault.exit == Exit::Failed && fault.message.contains("--size-max"), "{fault}");
    assert!(!fault.message.contains('\n'), "{fault}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the room it took is free again");
    // A length that is told is believed, and too long at once.
    let server = fake(vec![says("HTTP/1.1 200 OK\nContent-Length: 999999999", b"abc")]);
    let fault = fetch_with(&url(&server), &target, &own).unwrap_err();
    assert!(fault.message.contains("999999999 bytes, more than 20971520"), "{fault}");
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// The same part over and over, and what comes behind the last one, would keep a client busy for ever.
#[test]
fn an_answer_that_repeats_itself_is_broken_off() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    let head = "HTTP/1.1 206 Partial Content\nETag: \"a\"\nContent-Type: multipart/byteranges; boundary=b";
    let part = b"\r\n--b\r\nContent-Range: bytes 0-0/5\r\n\r\na".repeat(1000);
    let repeated = endless(head, move |_| part.clone());
    let closed = b"\r\n--b\r\nContent-Range: bytes 0-0/5\r\n\r\na\r\n--b--\r\n";
    let epilogue = endless(head, move |n| if n == 0 { closed.to_vec() } else { vec![b'x'; 1 << 16] });
    for address in [repeated, epilogue] {
        let own = Options { retries: 0, ..options() };
        let fault = fetch_with(&format!("http://{address}/f"), &target, &own).unwrap_err();
        assert!(fault.message.contains("more than twice as long as the file"), "{fault}");
    }
}

/// Single bytes far apart: what is remembered of them is bounded, in memory and in the map beside the file.
#[test]
fn a_million_parts_of_a_byte_do_not_fill_the_memory() {
    use seekless_http::blockmap::RANGES_MAX;
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    let head = "HTTP/1.1 206 Partial Content\nETag: \"a\"\nContent-Type: multipart/byteranges; boundary=b";
    let parts = RANGES_MAX as u64 + 50_000;
    let address = endless(head, move |n| {
        let some = (n * 1000..(n + 1) * 1000).take_while(|i| *i < parts);
        let one = |i: u64| format!("\r\n--b\r\nContent-Range: bytes {0}-{0}/4000000000\r\n\r\na", 2 * i);
        some.map(one).collect::<String>().into_bytes()
    });
    let own = Options { retries: 0, ..options() };
    let fault = fetch_with(&format!("http://{address}/f"), &target, &own).unwrap_err();
    assert!(fault.message.contains("before its last part"), "{fault}");
    let map: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("f.part.map")).unwrap()).unwrap();
    assert_eq!(map["have"].as_array().unwrap().len(), RANGES_MAX);
}

/// A server that answers by path, each connection once. What it was asked is kept.
struct Paths {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

fn paths(answer: impl Fn(&str, SocketAddr) -> Vec<u8> + Send + 'static) -> Paths {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heads = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = head_of(&mut stream);
            let path = head.split(' ').nth(1).unwrap_or_default().to_string();
            heads.lock().unwrap().push(head);
            let _ = stream.write_all(&answer(&path, address));
        }
    });
    Paths { address, asked }
}

fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

const RIGHT: &str = "HTTP/1.1 200 OK\nContent-Length: 3\nETag: \"a\"";

fn moved_to(location: &[u8]) -> Vec<u8> {
    [b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: ", location, b"\r\n\r\n"].concat()
}

#[test]
fn a_file_is_found_wherever_its_server_says_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    let server = paths(|path, own| match path {
        "/dir/query" => moved_to(b"?token=1"),
        "/dir/dots" => moved_to(b"../x/./y/../file"),
        "/dir/capitals" => moved_to(format!("HTTP://{own}/x/file").as_bytes()),
        "/dir/fragment" => moved_to(b"/x/file#t=10"),
        "/dir/utf8" => moved_to("/x/\u{fc}n\u{ef}".as_bytes()),
        "/dir/latin1" => moved_to(b"/x/\xfc"),
        "/dir/space" => moved_to(b"/x/a file"),
        "/dir/kept" => moved_to(b"/x/%2e%2F%7e?a=%20b"),
        "/dir/authority" => moved_to(format!("//{own}/x/file").as_bytes()),
        "/dir/query?token=1"
        | "/x/file"
        | "/x/%C3%BCn%C3%AF"
        | "/x/%FC"
        | "/x/a%20file"
        | "/x/%2e%2F%7e?a=%20b" => answer(RIGHT, b"abc"),
        "/dir/mail" => moved_to(b"mailto:me"),
        "/dir/loop" => moved_to(b"loop"),
        _ => answer("HTTP/1.1 404 Not Found\nContent-Length: 0", b""),
    });
    for name in ["query", "dots", "capitals", "fragment", "utf8", "latin1", "space", "kept", "authority"] {
        let outcome = fetch(&format!("http://{}/dir/{name}", server.address), &target);
        assert_eq!(outcome.unwrap_or_else(|e| panic!("{name}: {e}")).requests, 2, "{name}");
        assert_eq!(fs::read(&target).unwrap(), b"abc", "{name}");
        fs::remove_file(&target).unwrap();
    }
    // As people write them.
    for name in ["x/a file", "x/\u{fc}n\u{ef}", "dir/../x/file"] {
        fetch(&format!("HTTP://{}/{name}", server.address), &target)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        fs::remove_file(&target).unwrap();
    }
    for (name, said) in [("mail", "neither http nor https"), ("loop", "too many redirects")] {
        let fault = fetch(&format!("http://{}/dir/{name}", server.address), &target).unwrap_err();
        assert!(fault.message.contains(said) && !fault.message.contains('\n'), "{fault}");
    }
    // On IPv6, with brackets in the Host.
    let Ok(listener) = TcpListener::bind("[::1]:0") else { return println!("skipped: no IPv6") };
    let address = listener.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let head = head_of(&mut stream);
        stream.write_all(&answer(RIGHT, b"abc")).unwrap();
        head
    });
    fetch(&format!("http://{address}/f"), &target).unwrap();
    let head = answering.join().unwrap();
    assert!(head.contains(&format!("host: {address}\r\n")), "{head}");
}

#[test]
fn a_name_and_password_log_in_and_go_to_no_other_server() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    let other = paths(|path, _| match path {
        "/open" => answer(RIGHT, b"abc"),
        _ => answer("HTTP/1.1 401 Unauthorized\nContent-Length: 0", b""),
    });
    let there = other.address;
    let server = paths(move |path, _| match path {
        "/away" => moved_to(format!("http://{there}/open").as_bytes()),
        "/locked" => moved_to(format!("http://{there}/locked").as_bytes()),
        "/on" => moved_to(b"/f"),
        "/no" => answer("HTTP/1.1 401 Unauthorized\nContent-Length: 0", b""),
        _ => answer(RIGHT, b"abc"),
    });
    let login = |path: &str| format!("http://me:se%40cret@{}/{path}", server.address);
    // me:se@cret
    let header = "authorization: Basic bWU6c2VAY3JldA==\r\n";
    for (path, seen) in [("f", 1), ("on", 2), ("away", 1)] {
        server.asked.lock().unwrap().clear();
        fetch(&login(path), &target).unwrap_or_else(|e| panic!("{path}: {e}"));
        let asked = server.asked.lock().unwrap();
        assert_eq!(asked.iter().filter(|head| head.contains(header)).count(), seen, "{path}: {asked:?}");
    }
    for (url, said) in [
        (login("no"), "does not take the name and password"),
        (login("locked"), "does not get the name and password"),
        (format!("http://{}/no", server.address), "give a name and password in the URL"),
    ] {
        let fault = fetch(&url, &target).unwrap_err();
        assert!(fault.message.contains(said) && fault.message.contains("401"), "{fault}");
        assert!(!fault.message.contains("cret") && !fault.message.contains("bWU6"), "{fault}");
    }
    let asked = other.asked.lock().unwrap();
    assert!(asked.iter().all(|head| !head.to_lowercase().contains("authorization")), "{asked:?}");
    // Nor does it stay beside the file.
    let cut = paths(|_, _| answer("HTTP/1.1 200 OK\nContent-Length: 9\nETag: \"a\"", b"abc"));
    let own = Options { retries: 0, ..options() };
    let fault = fetch_with(&format!("http://me:secret@{}/f", cut.address), &target, &own).unwrap_err();
    assert!(!fault.message.contains("secret"), "{fault}");
    let map = fs::read_to_string(dir.path().join("f.part.map")).unwrap();
    assert!(map.contains(&format!("http://{}/f", cut.address)) && !map.contains("secret"), "{map}");
}

/// A proxy that answers what is asked in plain HTTP itself, and makes tunnels to wherever it is asked for.
fn proxy() -> Paths {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heads = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = head_of(&mut stream);
            heads.lock().unwrap().push(head.clone());
            if !head.contains("proxy-authorization: Basic cDpx\r\n") {
                let no = "HTTP/1.1 407 Proxy Authentication Required\nContent-Length: 0";
                let _ = stream.write_all(&answer(no, b""));
            } else if let Some(to) = head.strip_prefix("CONNECT ") {
                let to = to.split(' ').next().unwrap();
                let Ok(server) = TcpStream::connect(to.replace("localhost", "127.0.0.1")) else {
                    let _ = stream.write_all(&answer("HTTP/1.1 502 Bad Gateway\nContent-Length: 0", b""));
                    continue;
                };
                stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
                let (mut up, mut down) = (stream.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut up, &mut down));
                std::thread::spawn(move || std::io::copy(&mut &server, &mut stream));
            } else {
                let _ = stream.write_all(&answer(RIGHT, b"abc"));
            }
        }
    });
    Paths { address, asked }
}

#[test]
fn proxies_are_those_of_the_environment() {
    let site = Site::new();
    let film = site.film("f", 300_000);
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
    let (certificates, key) = (site.dir.path().join("cert.pem"), site.dir.path().join("key.pem"));
    fs::write(&certificates, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut own = settings(&site.root);
    own.tls = Some(tls::TlsFiles { certificates: certificates.clone(), key });
    let secure = Server::start(own).unwrap();
    let https = format!("https://localhost:{}/f", secure.address().port());
    let target = site.dir.path().join("got");
    let proxy = proxy();
    let with = |variables: &[(&str, String)]| Options {
        retries: 0,
        trust: trust(Some(&certificates)).unwrap(),
        proxies: Proxies::of_variables(|name| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.clone())
        }),
        ..options()
    };
    let ours = format!("http://p:q@{}", proxy.address);
    let both = with(&[("http_proxy", ours.clone()), ("https_proxy", ours.clone())]);
    // Plain: the proxy is asked, for a host that nobody knows. Its name and password are not the server's.
    fetch_with("http://u:v@nowhere.invalid:81/a?b#c", &target, &both).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"abc");
    let asked = proxy.asked.lock().unwrap().drain(..).collect::<Vec<_>>();
    assert!(asked[0].starts_with("GET http://nowhere.invalid:81/a?b HTTP/1.1\r\n"), "{asked:?}");
    assert!(asked[0].contains("host: nowhere.invalid:81\r\n"), "{asked:?}");
    assert!(asked[0].contains("\r\nauthorization: Basic dTp2\r\n"), "{asked:?}");
    // TLS: through a tunnel, in which the proxy's password is not.
    let outcome = fetch_with(&https, &target, &both).unwrap();
    assert!(outcome.any_order && fs::read(&target).unwrap() == film);
    let asked = proxy.asked.lock().unwrap().drain(..).collect::<Vec<_>>();
    let to = format!("localhost:{}", secure.address().port());
    assert!(asked[0].starts_with(&format!("CONNECT {to} HTTP/1.1\r\n")), "{asked:?}");
    assert!(asked[0].contains(&format!("host: {to}\r\n")), "{asked:?}");
    // Not asked: elsewhere, or by a variable that a server's client could set.
    for variables in [
        vec![("https_proxy", ours.clone()), ("no_proxy", "x,localhost".to_string())],
        vec![("http_proxy", ours.clone())],
    ] {
        fetch_with(&https, &target, &with(&variables)).unwrap();
    }
    let plain = paths(|_, _| answer(RIGHT, b"abc"));
    let url = format!("http://{}/f", plain.address);
    fetch_with(&url, &target, &with(&[("HTTP_PROXY", ours.clone())])).unwrap();
    assert!(proxy.asked.lock().unwrap().is_empty());
    fetch_with(&url, &target, &with(&[("all_proxy", ours)])).unwrap();
    assert_eq!(proxy.asked.lock().unwrap().drain(..).count(), 1);
    // What is wrong with one is said.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (value, url, said) in [
        (format!("http://{}", proxy.address), url.as_str(), "wants a name and password"),
        (format!("http://{}", proxy.address), https.as_str(), "wants a name and password"),
        (format!("http://p:secret@{}", proxy.address), https.as_str(), "wants a name and password"),
        (format!("http://p:q@{}", proxy.address), "https://localhost:1/f", "answers 502"),
        (format!("http://p:secret@{closed}"), url.as_str(), "cannot connect to the proxy 127.0.0.1"),
        ("socks5://p:secret@h:1".into(), url.as_str(), "only proxies that speak HTTP"),
    ] {
        let fault = fetch_with(url, &target, &with(&[("all_proxy", value.clone())])).unwrap_err();
        let said =
            if value.contains("p:secret@127") && said.contains("wants") { "does not take" } else { said };
        assert!(fault.message.contains(said) && !fault.message.contains("secret"), "{value}: {fault}");
        assert!(!fault.message.contains('\n'), "{fault}");
    }
    secure.stop();
}

#[test]
fn servers_that_contradict_themselves_are_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    let both = "HTTP/1.1 200 OK\nContent-Length: 2\nTransfer-Encoding: Chunked\nETag: \"a\"";
    let whole = "HTTP/1.1 200 OK\nContent-Length: 10\nETag: \"a\"";
    let part = "HTTP/1.1 206 P\nETag: \"a\"\nContent-Range: bytes 4-9/10";
    let head = |more: &str| -> &'static str { Box::leak(format!("{part}{more}").into_boxed_str()) };
    for (name, answers, requests) in [
        // Chunks count (RFC 9112, 6.3).
        ("both lengths", vec![says(both, b"5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n")], 1),
        // All of the file under the name of its rest.
        (
            "more than its part",
            vec![
                says(whole, b"0123"),
                says(head("\nContent-Length: 10"), b"0123456789"),
                says(whole, b"0123456789"),
            ],
            3,
        ),
        (
            "more than its part, of no length",
            vec![
                says(whole, b"0123"),
                says(head("\nTransfer-Encoding: chunked"), b"a\r\n0123456789\r\n0\r\n\r\n"),
                says(whole, b"0123456789"),
            ],
            3,
        ),
        ("all of it again", vec![says(whole, b"0123"), says(whole, b"0123456789")], 2),
    ] {
        let server = fake(answers);
        let outcome = fetch(&url(&server), &target).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(outcome.requests, requests, "{name}");
        assert_eq!(fs::read(&target).unwrap(), b"0123456789", "{name}");
        fs::remove_file(&target).unwrap();
    }
    let coded = "HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked\nETag: \"a\"";
    let twice = "HTTP/1.1 200 OK\nContent-Length: 3\nContent-Encoding: identity\nContent-Encoding: br";
    for (head, said) in [(coded, "coding that was not requested (gzip)"), (twice, "encoded (br)")] {
        let server = fake(vec![says(head, b"3\r\nabc\r\n0\r\n\r\n")]);
        let fault = fetch(&url(&server), &target).unwrap_err();
        assert!(fault.message.contains(said) && !target.exists(), "{fault}");
    }
}

/// RFC 9110, 8.8.2.2: of two editions within the second of the first answer the second has the same date.
#[test]
fn a_date_as_young_as_its_answer_joins_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    let dates = |modified: &str, date: &str| format!("Last-Modified: {modified}{date}\nContent-Length: ");
    let at = "Sat, 01 Jan 2022 00:00:00 GMT";
    for (name, date, joins) in [
        ("as young", "\nDate: Sat, 01 Jan 2022 00:00:00 GMT", false),
        ("younger", "\nDate: Fri, 31 Dec 2021 23:59:59 GMT", false),
        ("half a minute", "\nDate: Sat, 01 Jan 2022 00:00:30 GMT", false),
        ("an hour", "\nDate: Sat, 01 Jan 2022 01:00:00 GMT", true),
        ("no date of the answer", "", true),
        ("a date that is none", "\nDate: yesterday", true),
    ] {
        let first = format!("HTTP/1.1 200 OK\n{}10", dates(at, date));
        let (rest, whole) = (
            format!("HTTP/1.1 206 P\nContent-Range: bytes 4-9/10\n{}6", dates(at, date)),
            format!("HTTP/1.1 200 OK\n{}10", dates(at, date)),
        );
        let server = fake(vec![
            Box::new(move |_| answer(&first, b"AAAA")),
            Box::new(move |head| match head.contains("if-range: Sat, 01 Jan 2022 00:00:00 GMT\r\n") {
                true => answer(&rest, b"AAAAAA"),
                false => answer(&whole, b"BBBBBBBBBB"),
            }),
        ]);
        fetch(&url(&server), &target).unwrap_or_else(|e| panic!("{name}: {e}"));
        let got = fs::read(&target).unwrap();
        assert_eq!(got, if joins { *b"AAAAAAAAAA" } else { *b"BBBBBBBBBB" }, "{name}");
        fs::remove_file(&target).unwrap();
    }
}

/// Nobody can tell which of the answers is wrong, so all is asked for once more.
#[test]
fn two_editions_under_one_tag_are_told_apart_by_their_digest() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    let (value, _) = digest::of(Algorithm::Sha256, &mut &b"BBBBBBBBBB"[..]).unwrap();
    let told = format!("ETag: \"x\"\nRepr-Digest: {}", digest::field(Algorithm::Sha256, &value));
    let whole = format!("HTTP/1.1 200 OK\nContent-Length: 10\n{told}");
    let part = format!("HTTP/1.1 206 P\nContent-Range: bytes 4-9/10\nContent-Length: 6\n{told}");
    let first = whole.clone();
    let server = fake(vec![
        Box::new(move |_| answer(&first, b"AAAA")),
        Box::new(move |_| answer(&part, b"BBBBBB")),
        Box::new(move |_| answer(&whole, b"BBBBBBBBBB")),
    ]);
    let outcome = fetch(&url(&server), &target).unwrap();
    assert_eq!((outcome.requests, outcome.restarts, outcome.digest), (3, 1, Some("sha-256")));
    assert_eq!(fs::read(&target).unwrap(), b"BBBBBBBBBB");
}

#[test]
fn the_wrong_scheme_is_said_in_words() {
    let site = Site::new();
    site.film("f", 1000);
    let plain = Server::start(settings(&site.root)).unwrap();
    let target = site.dir.path().join("got");
    let own = Options { retries: 0, ..options() };
    let fault = fetch_with(&format!("{}f", plain.url().replace("http:", "https:")), &target, &own);
    let fault = fault.map(|_| ()).unwrap_err();
    assert!(fault.message.contains("is it http://"), "{fault}");
    assert!(!fault.message.contains("corrupt"), "{fault}");
    // A server of TLS answers an alert, or hangs up.
    let alert = fake(vec![Box::new(|_| b"\x15\x03\x01\x00\x02\x02\x46".to_vec())]);
    let fault = fetch_with(&url(&alert), &target, &own).unwrap_err();
    assert!(fault.message.contains("expect https://"), "{fault}");
    plain.stop();
}

/// A signed URL that a server redirects to is good for a while only.
#[test]
fn a_place_that_does_not_give_it_any_more_is_asked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("f");
    let token = AtomicUsize::new(0);
    let given = AtomicUsize::new(0);
    let server = paths(move |path, _| match path {
        "/f" => moved_to(format!("/signed?{}", token.fetch_add(1, Ordering::SeqCst)).as_bytes()),
        "/signed?0" if given.fetch_add(1, Ordering::SeqCst) == 0 => {
            answer("HTTP/1.1 200 OK\nContent-Length: 6\nETag: \"a\"", b"abc")
        }
        "/signed?0" => answer("HTTP/1.1 403 Forbidden\nContent-Length: 0", b""),
        _ => answer("HTTP/1.1 206 P\nETag: \"a\"\nContent-Range: bytes 3-5/6\nContent-Length: 3", b"def"),
    });
    fetch(&format!("http://{}/f", server.address), &target).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"abcdef");
    // One that never gave anything is believed.
    let never = paths(|path, _| match path {
        "/f" => moved_to(b"/signed"),
        _ => answer("HTTP/1.1 403 Forbidden\nContent-Length: 0", b""),
    });
    let fault = fetch(&format!("http://{}/f", never.address), &target).unwrap_err();
    assert!(fault.message.contains("403"), "{fault}");
    assert_eq!(never.asked.lock().unwrap().len(), 2);
}
