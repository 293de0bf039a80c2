//! `seekless get` and `seekless serve` as programs: against real nginx, Apache and lighttpd, and each other.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{SEEKLESS, SEEKLESS_LAB, Serving, public_folder};
use rustix::process::{Pid, Signal, kill_process};
use seekless_base::Exit;
use seekless_experiments::scenario::{ServerKind, ServerVariant};
use seekless_experiments::server::{Server, Site};
use seekless_model::workload::content::Content;
use serde_json::Value;

const FILM_BYTES: usize = 9_000_001;

fn film(root: &Path) -> Vec<u8> {
    std::fs::create_dir_all(root).unwrap();
    let mut content = vec![0; FILM_BYTES];
    Content::of_path("film.mp4").fill(0, &mut content);
    std::fs::write(root.join("film.mp4"), &content).unwrap();
    // Old enough for strong validators everywhere.
    let file = std::fs::File::options().write(true).open(root.join("film.mp4")).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(3600)).unwrap();
    content
}

/// `seekless get`: status, and what it reports of its first file.
fn get(url: &str, dir: &Path, options: &[&str]) -> (i32, Value) {
    let output = Command::new(&*SEEKLESS)
        .args(["get", url, "--json", "--retries", "1", "--output-dir"])
        .arg(dir)
        .args(options)
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code().unwrap(), report["files"][0].clone())
}

#[test]
fn every_server_will_do() {
    let dir = public_folder();
    let root = dir.path().join("www");
    let content = film(&root);
    let got = dir.path().join("got");
    std::fs::create_dir(&got).unwrap();
    for kind in [ServerKind::Nginx, ServerKind::Apache, ServerKind::Lighttpd] {
        let site = Site {
            dir: &dir.path().join(kind.name()),
            root: &root,
            env: &[],
            options: &[],
            group: None,
            tls: false,
        };
        let server = match Server::start(kind, ServerVariant::Shipped, &site) {
            Err(fault) if fault.exit == Exit::Missing => {
                println!("skipped: {fault}");
                continue;
            }
            other => other.unwrap(),
        };
        let url = format!("{}film.mp4", server.url());
        let name = kind.name();
        for options in [&[][..], &["--in-order"]] {
            let (status, report) = get(&url, &got, options);
            assert_eq!(status, 0, "{name}: {report}");
            assert!(std::fs::read(got.join("film.mp4")).unwrap() == content, "{name}");
            assert_eq!(report["any_order"], false, "{name}");
            assert_eq!(report["received_bytes"], FILM_BYTES, "{name}: nothing twice");
            std::fs::remove_file(got.join("film.mp4")).unwrap();
        }
        // The first third and a hole are missing; the rest is there from a run that was killed.
        let etag = common::http::request(address(&server), "HEAD", "/film.mp4", &[]).unwrap();
        let etag = etag.header("etag").unwrap().to_string();
        let mut part = content.clone();
        part[..3_000_000].fill(0);
        part[5_000_000..5_000_100].fill(0);
        std::fs::write(got.join("film.mp4.part"), part).unwrap();
        let map = serde_json::json!({ "version": 1, "url": url, "size": FILM_BYTES, "validator": etag,
            "have": [[3_000_000, 2_000_000], [5_000_100, FILM_BYTES - 5_000_100]] });
        std::fs::write(got.join("film.mp4.part.map"), map.to_string()).unwrap();
        let (status, report) = get(&url, &got, &[]);
        assert_eq!(status, 0, "{name}: {report}");
        assert_eq!(report["received_bytes"], 3_000_100, "{name}: {report}");
        assert!(std::fs::read(got.join("film.mp4")).unwrap() == content, "{name}: resumed");
        std::fs::remove_file(got.join("film.mp4")).unwrap();
        assert_eq!(get(&format!("{}none", server.url()), &got, &[]).0, 1, "{name}");
        assert_eq!(std::fs::read_dir(&got).unwrap().count(), 0, "{name}: something is left");
    }
}

fn address(server: &Server) -> std::net::SocketAddr {
    server.url().trim_start_matches("http://").trim_end_matches('/').parse().unwrap()
}

#[test]
fn our_own_sends_in_its_own_order_and_an_interrupted_run_goes_on() {
    let dir = public_folder();
    let root = dir.path().join("www");
    let content = film(&root);
    let got = dir.path().join("got");
    std::fs::create_dir(&got).unwrap();
    let log = dir.path().join("access.log");
    let serving = Serving::start(&root, &["--rate", "3MB", "--access-log", log.to_str().unwrap()]);
    let url = format!("{}film.mp4", serving.url);
    // Stopped by a signal after a second, about a third of the way.
    let mut first = Command::new(&*SEEKLESS)
        .args(["get", &url, "--output-dir"])
        .arg(&got)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    kill_process(Pid::from_raw(first.id() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(130));
    assert!(!got.join("film.mp4").exists());
    let (status, report) = get(&url, &got, &[]);
    assert_eq!(status, 0, "{report}");
    assert_eq!(report["any_order"], true);
    let (resumed, received) =
        (report["resumed_bytes"].as_u64().unwrap(), report["received_bytes"].as_u64().unwrap());
    assert!(resumed > 0 && resumed + received == FILM_BYTES as u64, "{report}");
    assert!(std::fs::read(got.join("film.mp4")).unwrap() == content);
    // A rotated log is opened anew.
    std::fs::rename(&log, dir.path().join("old.log")).unwrap();
    serving.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(get(&format!("{}none", serving.url), &got, &[]).0, 1);
    let report = serving.stop();
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 1);
    assert_eq!(std::fs::read_to_string(dir.path().join("old.log")).unwrap().lines().count(), 2);
    assert_eq!(report["counters"]["any_order"], 2, "{report}");
}

#[test]
fn wrong_arguments_are_said_in_one_line() {
    let dir = public_folder();
    for (args, status, said) in [
        (vec!["get", "ftp://h/x"], 2, "neither http nor https"),
        (vec!["get", "http://h/a", "http://i/a"], 2, "both be written"),
        (vec!["get", "http://h/a", "http://h/b", "-o", "x"], 2, "-o names one file"),
        (vec!["get", "http://h/"], 2, "does not end in the name"),
        (vec!["get", "http://h/a", "-o", "."], 2, "not a regular file"),
        (vec!["get", "http://h/a", "--cacert", "/no/such"], 5, "/no/such"),
        (vec!["serve", "/no/such/folder"], 5, "cannot serve"),
        (vec!["serve", "/tmp", "--bound", "head-max=1KiB"], 2, "head-max=1KiB: write 8KiB to 1MiB"),
        (vec!["serve", "/tmp", "--tls-cert", "x"], 2, "tls-key"),
        (vec!["serve", "/tmp", "--tls-cert", "/no/cert", "--tls-key", "/no/key"], 5, "/no/cert"),
    ] {
        let output = Command::new(&*SEEKLESS).args(&args).current_dir(dir.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
        assert!(text.contains(said), "{args:?}: {text}");
    }
}

/// Other clients than ours that ask for any order: the load, which compares every byte.
#[test]
fn the_load_downloads_in_any_order_and_finds_every_byte_right() {
    let dir = public_folder();
    let root = dir.path().join("www");
    std::fs::create_dir_all(root.join("sd")).unwrap();
    let mut content = vec![0; 2 << 20];
    Content::of_path("sd/000000.mp4").fill(0, &mut content);
    std::fs::write(root.join("sd/000000.mp4"), &content).unwrap();
    let file = std::fs::File::options().write(true).open(root.join("sd/000000.mp4")).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(3600)).unwrap();
    let serving = Serving::start(&root, &[]);
    for order in [&["--any-order"][..], &[]] {
        let output = Command::new(SEEKLESS_LAB)
            .args(["load", "downloads", "--videos", "1", "--file-size", "2MiB", "--link", "100Mb/s"])
            .args(["--clients", "5", "--duration", "4s", "--quiet", "--json", "--url", &serving.url])
            .args(order)
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success(), "{report}");
        assert_eq!(report["totals"]["failures"], 0, "{report}");
        assert!(report["totals"]["requests"].as_u64().unwrap() > 0, "{report}");
    }
    let counters = &serving.stop()["counters"];
    assert!(counters["any_order"].as_u64().unwrap() > 0, "{counters}");
    // Thirty-two blocks, read once while anybody wanted them.
    let (sent, read) = (&counters["any_order_blocks_sent"], &counters["any_order_blocks_read"]);
    assert!(sent.as_u64() > read.as_u64(), "{counters}");
}

#[test]
fn the_environment_names_the_proxy_and_no_password_is_shown() {
    let dir = public_folder();
    let root = dir.path().join("www");
    let content = film(&root);
    let got = dir.path().join("got");
    std::fs::create_dir(&got).unwrap();
    let serving = Serving::start(&root, &[]);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("{}film.mp4", serving.url.replace("://", "://me:secret@"));
    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(&*SEEKLESS);
        command.args(["get", &url, "--json", "--retries", "0", "--output-dir"]).arg(&got);
        for name in
            ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"]
        {
            command.env_remove(name);
        }
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let said = [output.stdout, output.stderr].map(|out| String::from_utf8(out).unwrap()).concat();
        assert!(!said.contains("secret"), "{said}");
        (output.status.code().unwrap(), said)
    };
    let proxy = format!("http://p:secret@{closed}");
    for variables in [
        vec![],
        vec![("HTTP_PROXY", proxy.as_str())],
        vec![("https_proxy", proxy.as_str())],
        vec![("http_proxy", proxy.as_str()), ("no_proxy", "example.org, 127.0.0.0/8")],
    ] {
        let (status, said) = run(&variables);
        assert_eq!(status, 0, "{variables:?}: {said}");
        assert!(std::fs::read(got.join("film.mp4")).unwrap() == content);
    }
    for name in ["http_proxy", "all_proxy", "ALL_PROXY"] {
        let (status, said) = run(&[(name, &proxy)]);
        assert_eq!(status, 1, "{name}: {said}");
        assert!(said.contains(&format!("cannot connect to the proxy {closed}")), "{name}: {said}");
    }
    let (status, said) = run(&[("http_proxy", "socks5://p:secret@h:1")]);
    assert!(status == 2 && said.contains("http_proxy=socks5://h:1: only proxies that speak HTTP"), "{said}");
    serving.stop();
}
