//! nginx, Apache and lighttpd answer the same bytes and headers with Seekless in front of their reads and
//! without: plain, range, multi-range, conditional and broken requests, cold and warm, daemon alive and dead.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::http::{Answer, request};
use common::{Daemon, SEEKLESS, forget, public_folder, shim};
use seekless_base::Exit;
use seekless_experiments::scenario::{ServerKind, ServerVariant};
use seekless_experiments::server::{Server, Site};
use seekless_model::workload::content::Content;

const KINDS: [ServerKind; 3] = [ServerKind::Nginx, ServerKind::Apache, ServerKind::Lighttpd];
const FILM_BYTES: usize = 3 << 20;

/// One kind of server twice over the same files: as it is, and with the shim.
struct Pair {
    plain: Server,
    hooked: Server,
}

impl Pair {
    /// `None`, with a word, when the server is not on this machine.
    fn start(
        kind: ServerKind,
        variant: ServerVariant,
        dir: &Path,
        root: &Path,
        socket: &Path,
    ) -> Option<Pair> {
        let env = [
            ("LD_PRELOAD".to_string(), shim().display().to_string()),
            ("SEEKLESS_SOCKET".to_string(), socket.display().to_string()),
        ];
        let start = |name: &str, env: &[(String, String)]| {
            let dir = dir.join(format!("{}-{variant:?}-{name}", kind.name()));
            match Server::start(
                kind,
                variant,
                &Site { dir: &dir, root, env, options: &[], group: None, tls: false },
            ) {
                Err(fault) if fault.exit == Exit::Missing => {
                    println!("skipped: {fault}");
                    None
                }
                other => Some(other.unwrap()),
            }
        };
        Some(Pair { plain: start("plain", &[])?, hooked: start("hooked", &env)? })
    }

    fn both(&self, ask: impl Fn(SocketAddr) -> Answer) -> (Answer, Answer) {
        (ask(address(&self.plain)).comparable(), ask(address(&self.hooked)).comparable())
    }
}

fn address(server: &Server) -> SocketAddr {
    server.url().trim_start_matches("http://").trim_end_matches('/').parse().unwrap()
}

fn film(root: &Path, name: &str, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Content::of_path(name).fill(0, &mut content);
    std::fs::write(root.join(name), &content).unwrap();
    // Of a file changed this very second Apache would give a weak validator, and a moment later a strong one.
    let file = std::fs::File::options().write(true).open(root.join(name)).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(3600)).unwrap();
    content
}

/// Every request of the list; what they have in common is that a server must get them right by itself.
fn requests(etag: &str, modified: &str) -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    let range = |r: &str| vec![("Range", format!("bytes={r}"))];
    let with = |r: &str, name: &'static str, value: &str| {
        vec![("Range", format!("bytes={r}")), (name, value.into())]
    };
    vec![
        ("GET", vec![]),
        ("HEAD", vec![]),
        ("GET", range("0-0")),
        ("GET", range("524288-1048575")),
        ("GET", range("3000000-")),
        ("GET", range("-1000")),
        ("GET", range("1000-99999999")),
        ("GET", range("99999999-")),
        ("GET", range("5-2")),
        ("GET", range("0-99,1048576-1048675,3145000-")),
        ("HEAD", range("0-99")),
        ("GET", with("0-99", "If-Range", etag)),
        ("GET", with("0-99", "If-Range", "\"another\"")),
        ("GET", with("0-99", "If-Range", modified)),
        ("GET", vec![("If-None-Match", etag.into())]),
        ("GET", vec![("If-Modified-Since", modified.into())]),
        ("GET", vec![("If-Match", "\"another\"".into())]),
    ]
}

#[test]
fn the_same_bytes_and_headers_with_and_without() {
    let dir = public_folder();
    let root = dir.path().join("www");
    std::fs::create_dir(&root).unwrap();
    let content = film(&root, "film.mp4", FILM_BYTES);
    for ahead in ["off", "on"] {
        let mut daemon = Daemon::start(dir.path(), &["--prefetch", "1MiB", "--ahead", ahead]);
        for (kind, variant) in
            KINDS.into_iter().flat_map(|k| [(k, ServerVariant::Shipped), (k, ServerVariant::Threads)])
        {
            let Some(pair) = Pair::start(kind, variant, dir.path(), &root, &daemon.socket) else { continue };
            let name = format!("{} {variant:?}, ahead {ahead}", kind.name());
            let first = request(address(&pair.plain), "GET", "/film.mp4", &[]).unwrap();
            assert!(first.body == content, "{name}: the server alone is wrong");
            let tag = |header: &str| first.header(header).unwrap_or_default().to_string();
            let needs_before = needs(&daemon);
            for (method, headers) in requests(&tag("etag"), &tag("last-modified")) {
                let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
                for temperature in ["cold", "warm"] {
                    let (plain, hooked) = pair.both(|to| {
                        if temperature == "cold" {
                            forget(&root.join("film.mp4"));
                        }
                        request(to, method, "/film.mp4", &headers).unwrap()
                    });
                    assert_eq!(
                        plain.status_line, hooked.status_line,
                        "{name} {temperature} {method} {headers:?}"
                    );
                    assert_eq!(plain.headers, hooked.headers, "{name} {temperature} {method} {headers:?}");
                    assert!(
                        plain.body == hooked.body,
                        "{name} {temperature} {method} {headers:?}: bodies differ"
                    );
                }
            }
            // Apache as shipped maps files, which no preload sees; everybody else must have asked.
            if (kind, variant) != (ServerKind::Apache, ServerVariant::Shipped) {
                assert!(needs(&daemon) > needs_before, "{name}: the daemon was never asked");
            }
        }
        daemon.kill();
    }
}

fn needs(daemon: &Daemon) -> u64 {
    daemon.status().unwrap()["counters"]["needs"].as_u64().unwrap()
}

/// Starts an answer, lets something happen to the file, and takes whatever else comes: the body so far and
/// whether the server came to an end within the time limit.
fn interrupted(to: SocketAddr, path: &str, then: impl FnOnce()) -> (Vec<u8>, bool) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: seekless.test\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut got = vec![0; 64 << 10];
    stream.read_exact(&mut got).unwrap();
    then();
    let ended = match stream.read_to_end(&mut got) {
        Ok(_) => true,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    };
    let body = got.windows(4).position(|w| w == b"\r\n\r\n").map_or(0, |at| at + 4);
    (got.split_off(body), ended)
}

#[test]
fn a_file_truncated_under_the_server_ends_the_answer_and_nothing_else() {
    const LONG: usize = 64 << 20;
    let dir = public_folder();
    let root = dir.path().join("www");
    std::fs::create_dir(&root).unwrap();
    let daemon = Daemon::start(dir.path(), &["--prefetch", "1MiB"]);
    // Apache as shipped maps the file and dies of SIGBUS without us as well: it is not asked here.
    for (kind, variant) in [
        (ServerKind::Nginx, ServerVariant::Shipped),
        (ServerKind::Nginx, ServerVariant::Threads),
        (ServerKind::Apache, ServerVariant::Threads),
        (ServerKind::Lighttpd, ServerVariant::Shipped),
    ] {
        let Some(pair) = Pair::start(kind, variant, dir.path(), &root, &daemon.socket) else { continue };
        for (server, name) in [(&pair.plain, "plain"), (&pair.hooked, "hooked")] {
            let content = film(&root, "long.mp4", LONG);
            forget(&root.join("long.mp4"));
            let (body, ended) = interrupted(address(server), "/long.mp4", || {
                let file = std::fs::OpenOptions::new().write(true).open(root.join("long.mp4")).unwrap();
                file.set_len(1 << 20).unwrap();
            });
            let name = format!("{} {variant:?} {name}", kind.name());
            assert!(ended, "{name}: the answer neither went on nor ended");
            assert!(body.len() < LONG, "{name}: {} bytes of a file that is gone", body.len());
            assert!(content.starts_with(&body), "{name}: a wrong byte in {}", body.len());
            // And the server goes on.
            let after = request(address(server), "GET", "/long.mp4", &[]).unwrap();
            assert!(after.body == content[..1 << 20], "{name}: after the truncation");
        }
    }
}

#[test]
fn a_daemon_killed_in_the_middle_costs_no_byte_and_a_new_one_is_found() {
    const LONG: usize = 32 << 20;
    let dir = public_folder();
    let root = dir.path().join("www");
    std::fs::create_dir(&root).unwrap();
    let content = film(&root, "long.mp4", LONG);
    let mut daemon = Daemon::start(dir.path(), &["--prefetch", "1MiB"]);
    let socket = daemon.socket.clone();
    for kind in [ServerKind::Nginx, ServerKind::Lighttpd] {
        let Some(pair) = Pair::start(kind, ServerVariant::Shipped, dir.path(), &root, &socket) else {
            continue;
        };
        forget(&root.join("long.mp4"));
        let (body, ended) = interrupted(address(&pair.hooked), "/long.mp4", || daemon.kill());
        assert!(ended && body == content, "{}: killed in the middle", kind.name());
        forget(&root.join("long.mp4"));
        let alone = request(address(&pair.hooked), "GET", "/long.mp4", &[]).unwrap();
        assert!(alone.body == content, "{}: without a daemon", kind.name());
        let _ = std::fs::remove_file(&socket);
        daemon = Daemon::start(dir.path(), &["--prefetch", "1MiB"]);
        // Settings and the pause after a failure lapse within a second or two.
        let mut found = false;
        for _ in 0..100 {
            forget(&root.join("long.mp4"));
            let again = request(address(&pair.hooked), "GET", "/long.mp4", &[]).unwrap();
            assert!(again.body == content, "{}: with a new daemon", kind.name());
            found = needs(&daemon) > 0;
            if found {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(found, "{}: the new daemon was never asked", kind.name());
    }
}

#[test]
fn the_doctor_finds_the_daemon_of_a_server_that_overwrites_its_environment() {
    let dir = public_folder();
    let root = dir.path().join("www");
    std::fs::create_dir(&root).unwrap();
    film(&root, "film.mp4", FILM_BYTES);
    let mut daemon = Daemon::start(dir.path(), &[]);
    let Some(pair) =
        Pair::start(ServerKind::Nginx, ServerVariant::Shipped, dir.path(), &root, &daemon.socket)
    else {
        return;
    };
    let doctor = |pid: u32| {
        let mut command = Command::new(&*SEEKLESS);
        command.args(["doctor", "--json", "-", "--pid", &pid.to_string()]);
        // Where nobody listens: the default is of no use.
        let out = command
            .env_remove("SEEKLESS_SOCKET")
            .env("SEEKLESS_STATE", dir.path().join("none"))
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let kinds = report["findings"].as_array().unwrap().iter().map(|f| f["kind"].to_string());
        (out.status.code(), report["daemon"]["socket"].clone(), kinds.collect::<String>())
    };
    let pids = pair.hooked.pids();
    // From the first question on it shows, at the worker that asked and at its master.
    let seen = (0..100).any(|_| {
        forget(&root.join("film.mp4"));
        request(address(&pair.hooked), "GET", "/film.mp4", &[]).unwrap();
        doctor(pids[0]).0 == Some(0)
    });
    assert!(seen, "{:?}", doctor(pids[0]));
    assert!(pids.iter().any(|&pid| doctor(pid).1 == daemon.socket.display().to_string().as_str()));
    daemon.kill();
    let (status, socket, kinds) = doctor(pids[0]);
    assert_eq!((status, socket), (Some(1), daemon.socket.display().to_string().into()));
    assert!(kinds.contains("no_daemon"), "{kinds}");
}
