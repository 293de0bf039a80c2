//! The server over loopback: every status, every byte, and what the log says about them.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Answer, Site, ask, get, read_answer, settings};
use seekless_http::digest::{self, Algorithm};
use seekless_http::multipart::{Found, Reader};
use seekless_http::serve::Server;

#[test]
fn every_status_and_every_byte() {
    let site = Site::new();
    let film = site.film("a/film.mp4", 3_000_000);
    site.film(".secret", 10);
    fs::write(site.root.join("page.html"), "<p>").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", site.root.join("out")).unwrap();
    let server = Server::start(settings(&site.root)).unwrap();
    let to = server.address();

    let whole = get(to, "/a/film.mp4", &[]);
    assert_eq!(whole.status, 200);
    assert!(whole.body == film);
    assert_eq!(whole.header("content-type"), Some("video/mp4"));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    let etag = whole.header("etag").unwrap().to_string();
    let modified = whole.header("last-modified").unwrap().to_string();

    let range = |r: &str| get(to, "/a/film.mp4", &[("Range", r)]);
    for (header, first, last) in [
        ("bytes=0-0", 0, 0),
        ("bytes=524288-1048575", 524_288, 1_048_575),
        ("bytes=2999990-", 2_999_990, 2_999_999),
        ("bytes=-1000", 2_999_000, 2_999_999),
        ("bytes=1000-99999999", 1000, 2_999_999),
    ] {
        let part = range(header);
        assert_eq!(part.status, 206, "{header}");
        assert!(part.body == film[first..=last], "{header}");
        assert_eq!(part.header("content-range"), Some(format!("bytes {first}-{last}/3000000").as_str()));
    }
    let beyond = range("bytes=3000000-");
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */3000000")));
    assert!(range("bytes=5-2").body == film);

    let several = range("bytes=0-99,1048576-1048675,-5");
    assert_eq!(several.status, 206);
    let mut reader = Reader::of(several.header("content-type").unwrap()).unwrap();
    let mut input = several.body.clone().into();
    let mut parts = Vec::new();
    while let Some(found) = reader.next(&mut input).unwrap() {
        if let Found::Data(at, data) = found {
            assert!(film[at as usize..][..data.len()] == data, "at {at}");
            parts.push((at, data.len()));
        }
    }
    assert!(reader.ended());
    assert_eq!(parts, [(0, 100), (1_048_576, 100), (2_999_995, 5)]);

    for (headers, status) in [
        (vec![("If-None-Match", etag.as_str())], 304),
        (vec![("If-Modified-Since", modified.as_str())], 304),
        (vec![("If-Match", "\"another\"")], 412),
        (vec![("Range", "bytes=0-9"), ("If-Range", etag.as_str())], 206),
        (vec![("Range", "bytes=0-9"), ("If-Range", "\"another\"")], 200),
    ] {
        assert_eq!(get(to, "/a/film.mp4", &headers).status, status, "{headers:?}");
    }
    for (path, status) in [
        ("/none", 404),
        ("/.secret", 404),
        ("/a/film.mp4/", 404),
        ("/out", 403),
        ("/a/../../x", 400),
        ("/%zz", 400),
        ("/a", 301),
        ("/a/", 403),
        ("/page.html", 200),
    ] {
        assert_eq!(get(to, path, &[]).status, status, "{path}");
    }
    assert_eq!(get(to, "/a", &[]).header("location"), Some("/a/"));
    let head = ask(to, "HEAD", "/a/film.mp4", &[("Range", "bytes=0-9")]);
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("3000000"), 0));
    let post = ask(to, "POST", "/a/film.mp4", &[("Content-Length", "0")]);
    assert_eq!((post.status, post.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    assert_eq!(ask(to, "OPTIONS", "/", &[]).status, 204);
    let report = server.stop();
    assert!(report["counters"]["sendfile_bytes"].as_u64().unwrap() > 3_000_000, "{report}");
}

#[test]
fn an_index_and_a_listing() {
    let site = Site::new();
    site.film("plain/one two.bin", 10);
    site.film("indexed/index.html", 20);
    let mut own = settings(&site.root);
    own.listing = true;
    let server = Server::start(own).unwrap();
    let list = get(server.address(), "/plain/", &[]);
    assert_eq!(list.status, 200);
    assert!(String::from_utf8(list.body).unwrap().contains("href=\"./one%20two.bin\""));
    assert_eq!(get(server.address(), "/indexed/", &[]).header("content-length"), Some("20"));
    server.stop();
}

/// RFC 9112, 3.2: two parties on the way may take such a request for one to different hosts.
#[test]
fn a_request_without_one_good_host_is_refused() {
    let site = Site::new();
    let film = site.film("f", 1000);
    let server = Server::start(settings(&site.root)).unwrap();
    for (version, fields, status) in [
        ("1.1", "", 400),
        ("1.1", "Host: a\r\nHost: a\r\n", 400),
        ("1.1", "Host: a b\r\n", 400),
        ("1.1", "Host: user@a\r\n", 400),
        ("1.1", "Host: a/b\r\n", 400),
        ("1.1", "Host: a:port\r\n", 400),
        ("1.1", "Host: a\r\n", 200),
        ("1.1", "Host: a.example:8080\r\n", 200),
        ("1.1", "Host: [::1]:80\r\n", 200),
        ("1.1", "Host:\r\n", 200),
        ("1.0", "", 200),
        ("1.0", "Host: a\r\nHost: b\r\n", 400),
        ("1.0", "Host: a b\r\n", 400),
    ] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(format!("GET /f HTTP/{version}\r\n{fields}\r\n").as_bytes()).unwrap();
        let answer = read_answer(&mut stream, &mut Vec::new(), "GET");
        assert_eq!(answer.status, status, "HTTP/{version} {fields:?}");
        assert_eq!(answer.body == film, status == 200, "HTTP/{version} {fields:?}");
    }
    server.stop();
}

/// A user who can write into a file and knows the boundary before could write ends of parts into it.
#[test]
fn boundaries_cannot_be_foreseen() {
    let site = Site::new();
    site.film("f", 1000);
    let boundaries = || -> Vec<u128> {
        let server = Server::start(settings(&site.root)).unwrap();
        let one = || {
            let answer = get(server.address(), "/f", &[("Range", "bytes=0-1,500-501")]);
            let kind = answer.header("content-type").unwrap().to_string();
            u128::from_str_radix(kind.split_once("boundary=").unwrap().1, 16).unwrap()
        };
        let all = (0..50).map(|_| one()).collect();
        server.stop();
        all
    };
    let mut all = [boundaries(), boundaries()].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 100, "a server started anew begins anew");
    // Every bit is set in about half of them. (That one of 128 is not in 15 to 85 of 100 happens once in
    // 10^10 runs.)
    for bit in 0..128 {
        let set = all.iter().filter(|b| *b >> bit & 1 == 1).count();
        assert!((15..=85).contains(&set), "bit {bit} is set in {set} of 100");
    }
}

#[test]
fn many_requests_on_one_connection_and_pipelined() {
    let site = Site::new();
    let film = site.film("f", 400_000);
    let server = Server::start(settings(&site.root)).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut all = String::new();
    for i in 0..20 {
        all +=
            &format!("GET /f HTTP/1.1\r\nHost: x\r\nRange: bytes={}-{}\r\n\r\n", i * 1000, i * 1000 + 99_999);
    }
    let mut writer = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(all.as_bytes()).unwrap());
    let mut rest = Vec::new();
    for i in 0..20 {
        let answer = read_answer(&mut stream, &mut rest, "GET");
        assert_eq!(answer.status, 206);
        assert!(answer.body == film[i * 1000..i * 1000 + 100_000], "answer {i}");
    }
    sending.join().unwrap();
    server.stop();
}

#[test]
fn the_log_is_byte_exact_also_of_what_was_broken_off() {
    let site = Site::new();
    site.film("f", 20_000_000);
    let mut own = settings(&site.root);
    let log = site.dir.path().join("access.log");
    own.log = Some(log.clone());
    let server = Server::start(own).unwrap();
    get(
        server.address(),
        "/f?x=%22",
        &[("Range", "bytes=0-999"), ("User-Agent", "t\"est"), ("Referer", "r")],
    );
    get(server.address(), "/none", &[]);
    // One that goes away in the middle, having read a little.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut some = vec![0; 100_000];
    stream.read_exact(&mut some).unwrap();
    drop(stream);
    server.stop();
    let text = fs::read_to_string(&log).unwrap();
    // Lines are in order of the answers' ends, and those of different connections may end in any order.
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_by_key(|line| [" 206 ", " 404 ", " 200 "].iter().position(|status| line.contains(status)));
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("127.0.0.1 - - ["), "{text}");
    assert!(lines[0].ends_with("\"GET /f?x=%22 HTTP/1.1\" 206 1000 \"r\" \"t\\x22est\""), "{text}");
    assert!(lines[1].contains(" 404 14 "), "{text}");
    let sent: u64 = lines[2].split(' ').nth(9).unwrap().parse().unwrap();
    assert!((99_000..20_000_000).contains(&sent), "{text}");
}

#[test]
fn cold_files_come_whole_too() {
    let site = Site::on_disk();
    let film = site.film("f", 6_000_000);
    for (ahead, ssd) in [(true, true), (false, true), (false, false)] {
        let mut own = settings(&site.root);
        own.engine.include_ssd = ssd;
        own.engine.policy.ahead = ahead.then(Default::default);
        let server = Server::start(own).unwrap();
        for (first, last) in [(0, 5_999_999), (1_000_001, 4_500_000)] {
            if !site.forget("f") {
                println!("skipped: nothing leaves memory here");
            }
            let range = format!("bytes={first}-{last}");
            assert!(get(server.address(), "/f", &[("Range", &range)]).body == film[first..=last]);
        }
        let report = server.stop();
        let count = |name: &str| report["counters"][name].as_u64().unwrap();
        assert!(count("engine_requests") + count("helper_reads") + count("hits") > 0, "{report}");
        assert_eq!(count("answers_broken"), 0, "{report}");
    }
}

/// A client that reads slowly makes the server wait; meanwhile what it waits to send leaves memory.
#[test]
fn what_leaves_memory_while_a_client_is_slow_is_brought_in_again() {
    let site = Site::on_disk();
    let film = site.film("f", 24_000_000);
    let mut own = settings(&site.root);
    own.engine.include_ssd = true;
    let server = Server::start(own).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut got = Vec::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        std::thread::sleep(Duration::from_millis(20));
        site.forget("f");
        match stream.read(&mut piece).unwrap() {
            0 => break,
            n => got.extend_from_slice(&piece[..n]),
        }
    }
    let body = got.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    assert!(got[body..] == film);
    server.stop();
}

#[test]
fn a_file_that_changes_while_it_is_sent_breaks_its_answer_off() {
    let site = Site::new();
    for change in ["cut", "rewritten"] {
        site.film("f", 30_000_000);
        let server = Server::start(settings(&site.root)).unwrap();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut first = vec![0; 200_000];
        stream.read_exact(&mut first).unwrap();
        let path = site.root.join("f");
        match change {
            "cut" => fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1_000_000).unwrap(),
            _ => fs::write(&path, vec![1; 30_000_000]).unwrap(),
        }
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 29_700_000, "{change}: {}", rest.len());
        assert_eq!(get(server.address(), "/f", &[]).status, 200, "{change}: the server goes on");
        server.stop();
    }
}

#[test]
fn slow_heads_idle_connections_and_floods_end() {
    let site = Site::new();
    site.film("f", 50_000_000);
    let mut own = settings(&site.root);
    own.patience.head = Duration::from_millis(300);
    own.patience.idle = Duration::from_millis(600);
    own.patience.send = Duration::from_millis(500);
    own.connections_of_one = 3;
    let server = Server::start(own).unwrap();
    let connect = || {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    };
    let ends = |stream: &mut TcpStream| {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        rest
    };
    // Slow-loris: a byte now and then does not help.
    let mut slow = connect();
    let began = Instant::now();
    let mut writer = slow.try_clone().unwrap();
    let dripping = std::thread::spawn(move || {
        for byte in b"GET /f HTTP/1.1\r\nHost: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" {
            std::thread::sleep(Duration::from_millis(50));
            if writer.write_all(&[*byte]).is_err() {
                return;
            }
        }
        panic!("nobody stopped it");
    });
    ends(&mut slow);
    assert!(began.elapsed() < Duration::from_secs(3));
    dripping.join().unwrap();
    // Says nothing.
    ends(&mut connect());
    // Takes nothing.
    let mut lazy = connect();
    lazy.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(ends(&mut lazy).len() < 50_000_000);
    // Too much of a head.
    for flood in [format!("X: {}\r\n", "x".repeat(40_000)), "X: y\r\n".repeat(200)] {
        let mut stream = connect();
        let _ = stream.write_all(format!("GET /f HTTP/1.1\r\nHost: x\r\n{flood}\r\n").as_bytes());
        let answer = String::from_utf8_lossy(&ends(&mut stream)).into_owned();
        assert!(answer.starts_with("HTTP/1.1 431 ") || answer.is_empty(), "{answer}");
    }
    // More connections than one client may have: the fourth is closed at once.
    let _three = [connect(), connect(), connect()];
    std::thread::sleep(Duration::from_millis(100));
    assert!(ends(&mut connect()).is_empty());
    let report = server.stop();
    assert!(report["counters"]["connections_refused"].as_u64().unwrap() >= 1);
}

#[test]
fn stopping_lets_an_answer_end_and_takes_no_new_ones() {
    let site = Site::new();
    let film = site.film("f", 30_000_000);
    let mut own = settings(&site.root);
    own.patience.send = Duration::from_secs(60);
    let server = Server::start(own).unwrap();
    let to = server.address();
    let began = Instant::now();
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut first = vec![0; 1000];
    stream.read_exact(&mut first).unwrap();
    let stopping = std::thread::spawn(move || server.stop());
    // As soon as both loops have had their turn, which takes a while on a busy machine.
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(to).is_ok() {
        assert!(Instant::now() < deadline, "still listening");
        std::thread::sleep(Duration::from_millis(20));
    }
    stream.read_to_end(&mut first).unwrap();
    let report = stopping.join().unwrap();
    // A machine may be so busy that the client does not take the answer within the grace period. Then it is
    // cut off, and the report counts it.
    assert_eq!(report["counters"]["connections_cut"], 0, "after {:?}: {report}", began.elapsed());
    assert!(
        first.ends_with(&film[29_000_000..]),
        "{} bytes after {:?}: {report}",
        first.len(),
        began.elapsed()
    );
}

#[test]
fn what_does_not_end_within_the_grace_period_is_cut_off_and_counted() {
    let site = Site::new();
    site.film("f", 30_000_000);
    let mut own = settings(&site.root);
    own.grace = Duration::from_millis(50);
    let server = Server::start(own).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    // Nobody takes the rest.
    let report = server.stop();
    assert_eq!(report["counters"]["connections_cut"], 1, "{report}");
    assert_eq!(report["connections_now"], 0, "{report}");
}

#[test]
fn a_port_in_use_is_said() {
    let site = Site::new();
    let server = Server::start(settings(&site.root)).unwrap();
    let mut second = settings(&site.root);
    second.listen = server.address();
    let fault = Server::start(second).err().unwrap();
    assert_eq!(fault.exit, seekless_base::Exit::Busy);
    server.stop();
}

#[test]
fn a_rate_is_kept() {
    let site = Site::new();
    site.film("f", 300_000);
    let mut own = settings(&site.root);
    own.rate = Some(seekless_base::Bytes(100_000));
    let server = Server::start(own).unwrap();
    let began = Instant::now();
    let answer: Answer = get(server.address(), "/f", &[]);
    assert_eq!(answer.body.len(), 300_000);
    // Three seconds' worth less the burst; only too fast would be wrong.
    assert!(began.elapsed() > Duration::from_millis(2000), "{:?}", began.elapsed());
    server.stop();
}

/// A connection that sleeps between requests is served as before, and a head that comes slowly is not cut off
/// by it.
#[test]
fn sleeping_connections_wake_up() {
    let site = Site::new();
    let film = site.film("f", 100_000);
    let mut own = settings(&site.root);
    // Longer than a connection stays awake; an idle one may stay longer than a head may take.
    own.patience.head = Duration::from_secs(6);
    own.patience.idle = Duration::from_secs(60);
    let server = Server::start(own).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut rest = Vec::new();
    for pause in [7, 0, 5] {
        std::thread::sleep(Duration::from_secs(pause));
        stream.write_all(b"GET /f HTTP/1.1\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(if pause == 5 { 4500 } else { 0 }));
        stream.write_all(b"Host: x\r\n\r\n").unwrap();
        assert!(read_answer(&mut stream, &mut rest, "GET").body == film, "after {pause} s");
    }
    server.stop();
}

/// What goes past this level is read and sent right, and leaves nothing in memory; what is in memory is sent
/// from it.
#[test]
fn coordination_changes_what_is_kept_and_no_byte() {
    use seekless_levels::coordinate::pfc::PfcParams;
    let site = Site::on_disk();
    let film = site.film("f", 8 << 20);
    let mut own = settings(&site.root);
    let letter = PfcParams { per_context: true, ..PfcParams::default() };
    own.coordinate = Some(letter);
    own.engine.include_ssd = true;
    let server = Server::start(own).unwrap();
    let forgotten = site.forget("f");
    for offset in (0..film.len()).step_by(1 << 20) {
        let range = format!("bytes={offset}-{}", offset + (1 << 20) - 1);
        assert!(get(server.address(), "/f", &[("Range", &range)]).body == film[offset..offset + (1 << 20)]);
    }
    let report = server.stop();
    // Equal requests are longer than half their average: to the letter of the paper all of them go past.
    let bypassed = report["counters"]["bypassed_bytes"].as_u64().unwrap();
    match forgotten {
        true => assert_eq!(bypassed, 8 << 20, "{report}"),
        false => println!("skipped: nothing leaves memory here"),
    }
}

#[test]
fn a_digest_is_made_of_blocks_only_where_blocks_are_sent() {
    let site = Site::new();
    let server = Server::start(settings(&site.root)).unwrap();
    let read = || server.report()["counters"]["any_order_blocks_read"].as_u64().unwrap();
    for (method, range, in_order) in [
        ("HEAD", "bytes=0-", true),
        ("GET", "items=0-", true),
        ("GET", "bytes=5-70000", true),
        ("GET", "bytes=2000000-", true),
        ("GET", "bytes=0-", false),
    ] {
        // A digest is remembered, so each asks for a file of its own.
        let film = site.film("film", 1_000_000);
        fs::rename(site.root.join("film"), site.root.join("next")).unwrap();
        let wishes = [("Want-Repr-Digest", "sha-256=1"), ("Prefer", "any-order"), ("Range", range)];
        let answer = ask(server.address(), method, "/next", &wishes);
        let (value, _) = digest::of(Algorithm::Sha256, &mut film.as_slice()).unwrap();
        let right = digest::field(Algorithm::Sha256, &value);
        let satisfiable = answer.status != 416;
        assert_eq!(answer.header("repr-digest"), satisfiable.then_some(right.as_str()), "{method} {range}");
        assert_eq!(answer.header("preference-applied").is_none(), in_order, "{method} {range}");
        assert_eq!(read() == 0, in_order, "{method} {range}");
    }
}

/// A cache of slices asks for the first one, whatever the size, and shows what it is answered to everybody.
#[test]
fn a_range_from_the_beginning_of_an_empty_file_is_all_of_it() {
    let site = Site::new();
    site.film("empty", 0);
    let server = Server::start(settings(&site.root)).unwrap();
    let etag = get(server.address(), "/empty", &[]).header("etag").unwrap().to_string();
    for range in ["bytes=0-", "bytes=0-0", "bytes=0-1048575", "bytes=-5", "bytes=0-0,-1", "bytes=5-,0-"] {
        for more in [vec![], vec![("If-Range", etag.as_str())], vec![("If-Range", "\"other\"")]] {
            let headers = [vec![("Range", range)], more].concat();
            let answer = get(server.address(), "/empty", &headers);
            let seen = (answer.status, answer.header("content-length"), answer.header("content-range"));
            assert_eq!(seen, (200, Some("0"), None), "{headers:?}");
        }
        assert_eq!(ask(server.address(), "HEAD", "/empty", &[("Range", range)]).status, 200, "{range}");
    }
    for range in ["bytes=1-", "bytes=5-9", "bytes=-0"] {
        let answer = get(server.address(), "/empty", &[("Range", range)]);
        assert_eq!((answer.status, answer.header("content-range")), (416, Some("bytes */0")), "{range}");
    }
    server.stop();
}

/// Nothing that is written now gets the time of a file that lies in the future: its tag names these bytes
/// alone.
#[test]
fn a_file_of_tomorrow_can_be_resumed() {
    let site = Site::new();
    let film = site.film("f", 300_000);
    let path = site.root.join("f");
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::SystemTime::now() + Duration::from_secs(86_400)).unwrap();
    let server = Server::start(settings(&site.root)).unwrap();
    let whole = get(server.address(), "/f", &[]);
    let etag = whole.header("etag").unwrap();
    assert!(etag.starts_with('"'), "{etag}");
    // RFC 9110, 8.8.2.1: no date later than the answer's own.
    assert_eq!(whole.header("last-modified"), None);
    let resume = || get(server.address(), "/f", &[("Range", "bytes=100-199"), ("If-Range", etag)]);
    let part = resume();
    assert!(part.status == 206 && part.body == film[100..200], "{part:?}");
    let any = [("Range", "bytes=0-0,1-"), ("Prefer", "any-order")];
    assert_eq!(get(server.address(), "/f", &any).header("preference-applied"), Some("any-order"));
    fs::write(&path, &film).unwrap();
    assert_eq!(resume().status, 200, "written since");
    server.stop();
}

/// A log, a recording, a segment of a live stream.
#[test]
fn a_file_that_grows_while_it_is_sent_is_sent_as_it_was() {
    let site = Site::new();
    for (request, any_order, fresh) in [
        ("", false, true),
        ("", false, false),
        ("Range: bytes=1000-\r\n", false, false),
        ("Range: bytes=0-0,1-\r\nPrefer: any-order\r\n", true, false),
    ] {
        let film = site.film("f", 30_000_000);
        let path = site.root.join("f");
        let writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
        if fresh {
            writer.set_modified(std::time::SystemTime::now()).unwrap();
        }
        let server = Server::start(settings(&site.root)).unwrap();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(format!("GET /f HTTP/1.1\r\nHost: x\r\n{request}\r\n").as_bytes()).unwrap();
        let mut rest = vec![0; 200_000];
        stream.read_exact(&mut rest).unwrap();
        // Longer than a look at a span is good for.
        for _ in 0..3 {
            (&writer).write_all(&[9; 100_000]).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        let answer = read_answer(&mut stream, &mut rest, "GET");
        match any_order {
            false => {
                let from = film.len() - answer.body.len();
                assert!(answer.body == film[from..] && from == usize::from(!request.is_empty()) * 1000);
            }
            true => {
                let mut reader = Reader::of(answer.header("content-type").unwrap()).unwrap();
                let (mut input, mut bytes) = (answer.body.clone().into(), 0);
                while let Some(found) = reader.next(&mut input).unwrap() {
                    if let Found::Data(at, data) = found {
                        assert!(film[at as usize..][..data.len()] == data, "at {at}");
                        bytes += data.len();
                    }
                }
                assert!(reader.ended() && bytes == film.len(), "{bytes}");
            }
        }
        assert_eq!(server.stop()["counters"]["answers_broken"], 0);
    }
    // Written anew, and longer, is no growth.
    site.film("f", 30_000_000);
    let server = Server::start(settings(&site.root)).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut vec![0; 200_000]).unwrap();
    fs::write(site.root.join("f"), vec![1; 31_000_000]).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 29_700_000, "{}", rest.len());
    server.stop();
}

/// A HEAD is a few bytes, and its digest a whole file read from the disk.
fn wish(to: std::net::SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!("HEAD {path} HTTP/1.1\r\nHost: x\r\nWant-Repr-Digest: sha-256=1\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

#[test]
fn digests_that_nobody_waits_for_are_not_made() {
    let site = Site::on_disk();
    let names: Vec<String> = (0..100).map(|n| format!("f{n}")).collect();
    for name in &names {
        site.film(name, 2 << 20);
    }
    if !names.iter().all(|name| site.forget(name)) {
        return println!("skipped: nothing leaves memory here");
    }
    let server = Server::start(settings(&site.root)).unwrap();
    for name in &names {
        drop(wish(server.address(), &format!("/{name}")));
    }
    // One who stays is not behind all of them.
    let last = site.film("last", 1000);
    let mut stream = wish(server.address(), "/last");
    let answer = read_answer(&mut stream, &mut Vec::new(), "HEAD");
    let (value, _) = digest::of(Algorithm::Sha256, &mut last.as_slice()).unwrap();
    assert_eq!(answer.header("repr-digest"), Some(digest::field(Algorithm::Sha256, &value).as_str()));
    std::thread::sleep(Duration::from_millis(500));
    let read = names.iter().filter(|name| site.in_memory(name) == 2 << 8).count();
    assert!(read <= 30, "{read} of 100 were read for nobody: {}", server.stop());
}

#[test]
fn one_digest_serves_all_who_wait_for_it_and_too_many_go_without() {
    let site = Site::new();
    // Sparse: no disk is needed to take long.
    for n in 0..40 {
        let file = fs::File::create(site.root.join(format!("f{n}"))).unwrap();
        file.set_len(4 << 30).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
    }
    let shared = site.film("shared", 12 << 20);
    let mut own = settings(&site.root);
    own.digest_max = seekless_base::Bytes(1 << 40);
    let server = Server::start(own).unwrap();
    let mut all: Vec<TcpStream> = (0..20).map(|_| wish(server.address(), "/shared")).collect();
    let (value, _) = digest::of(Algorithm::Sha256, &mut shared.as_slice()).unwrap();
    let right = digest::field(Algorithm::Sha256, &value);
    for stream in &mut all {
        assert_eq!(read_answer(stream, &mut Vec::new(), "HEAD").header("repr-digest"), Some(right.as_str()));
    }
    assert_eq!(server.report()["counters"]["digests_made"], 1);
    // One in the making, and a short queue.
    let long: Vec<TcpStream> = (0..40).map(|n| wish(server.address(), &format!("/f{n}"))).collect();
    let began = Instant::now();
    let refused = || server.report()["counters"]["digests_refused"].as_u64().unwrap();
    while refused() < 20 {
        assert!(began.elapsed() < Duration::from_secs(5), "{}", server.report());
        std::thread::sleep(Duration::from_millis(10));
    }
    // Those that are refused are answered at once, without one.
    let answered = long.iter().filter(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut byte = [0];
        stream.peek(&mut byte).is_ok_and(|n| n == 1)
    });
    assert!(answered.count() >= 20);
    drop(long);
    // Nothing is left of it for the next.
    let film = site.film("next", 1000);
    let answer = read_answer(&mut wish(server.address(), "/next"), &mut Vec::new(), "HEAD");
    let (value, _) = digest::of(Algorithm::Sha256, &mut film.as_slice()).unwrap();
    assert_eq!(answer.header("repr-digest"), Some(digest::field(Algorithm::Sha256, &value).as_str()));
    assert!(began.elapsed() < Duration::from_secs(20), "{}", server.report());
    let report = server.stop();
    assert_eq!(report["counters"]["digests_made"], 2, "{report}");
}
