//! A metrics address from outside: what it answers, which peers it answers, and what it bounds.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use seekless_engine::DiskReport;
use seekless_frontend::metrics::{Address, MetricsServer, Observation, defs};

fn server() -> MetricsServer {
    let disk = DiskReport { name: "sda".into(), requests: 3, ..Default::default() };
    let source = move || {
        Some(Observation {
            door: "daemon",
            version: "1".into(),
            disks: vec![disk.clone()],
            ..Default::default()
        })
    };
    MetricsServer::start(Address(([127, 0, 0, 1], 0).into()), Arc::new(source)).unwrap()
}

fn ask(to: SocketAddr, request: &str) -> (String, String) {
    let mut socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_string(), body.to_string())
}

fn get(to: SocketAddr, path: &str, more: &str) -> (String, String) {
    ask(to, &format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{more}\r\n"))
}

#[test]
fn a_scraper_gets_the_format_it_accepts() {
    let server = server();
    let (head, body) =
        get(server.address(), "/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(
        body.ends_with("# EOF\n") && body.contains("seekless_disk_requests_total{disk=\"sda\"} 3\n"),
        "{body}"
    );
    let (head, body) = get(server.address(), "/metrics", "");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(
        !body.contains("# EOF") && body.contains("seekless_disk_requests_total{disk=\"sda\"} 3\n"),
        "{body}"
    );
}

#[test]
fn the_page_asks_nobody_else_and_may_not_be_framed() {
    let server = server();
    let (head, page) = get(server.address(), "/", "");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("default-src 'none'"), "{head}");
    assert!(
        head.contains("frame-ancestors 'none'") && !head.to_lowercase().contains("access-control"),
        "{head}"
    );
    for outside in ["http://", "https://", "//cdn", "src=", "@import"] {
        let page = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains(outside), "the page names {outside}");
    }
    let (_, json) = get(server.address(), "/status.json", "");
    assert!(json.contains("\"name\":\"sda\"") && json.contains("\"passes_all\":false"), "{json}");
}

#[test]
fn it_only_reads_and_only_for_the_hosts_own_name() {
    let server = server();
    let to = server.address();
    let (head, _) = ask(
        to,
        &format!("POST /metrics HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
    );
    assert!(head.starts_with("HTTP/1.1 405 ") && head.to_lowercase().contains("allow: get, head"), "{head}");
    let (head, _) = get(to, "/other", "");
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let (head, body) =
        ask(to, "GET /metrics HTTP/1.1\r\nHost: rebound.example:9633\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 421 ") && !body.contains("sda"), "{head}");
}

/// Any local user may open connections and ask nothing.
#[test]
fn idle_connections_are_bounded_and_keep_no_scraper_out() {
    let server = server();
    let to = server.address();
    let mut idle: Vec<TcpStream> = Vec::new();
    for _ in 0..4 {
        idle.extend((0..16).map(|_| TcpStream::connect(to).unwrap()));
        let (head, body) = get(to, "/metrics", "");
        assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("sda"), "{head}");
    }
    std::thread::sleep(Duration::from_millis(300));
    for socket in &idle {
        socket.set_nonblocking(true).unwrap();
    }
    // Closed: the end of the stream. Kept: nothing to read yet.
    let kept = |socket: &mut TcpStream| matches!(socket.read(&mut [0]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock);
    let open: Vec<bool> = idle.iter_mut().map(kept).collect();
    assert!((12..=16).contains(&open.iter().filter(|kept| **kept).count()), "{open:?}");
    assert!(!open[0] && open[63], "the oldest lose their place");
}

/// One that asks slowly, and so is idle for ever, ends soon; one that has asked keeps its connection.
#[test]
fn a_head_is_not_waited_for_long() {
    let server = server();
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").unwrap();
    let mut answer = Vec::new();
    let _ = slow.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("200 OK"), "it ended before the time was up");
}

#[test]
fn a_port_in_use_is_one_line_with_status_4() {
    let server = server();
    let fault = MetricsServer::start(Address(server.address()), Arc::new(|| None)).unwrap_err();
    assert_eq!(fault.exit, seekless_base::Exit::Busy);
    assert!(!fault.message.contains('\n') && fault.message.contains("--metrics"), "{}", fault.message);
}

#[test]
fn the_page_of_metrics_is_what_the_definitions_give() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/METRICS.md");
    if std::env::var_os("SEEKLESS_WRITE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/METRICS.md differs: SEEKLESS_WRITE_DOCS=1 cargo test -p seekless-frontend writes it"
    );
}

/// `docs/METRICS.md`.
fn page() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         This page is generated from `crates/frontend/src/metrics/defs.rs`, which defines every metric; a test\n\
         compares. [OPERATIONS](OPERATIONS.md#metrics) says how to scrape them, and has the rules and the dashboard.\n\n\
         Counters count since the start of the process. A *stable* metric keeps its name, unit and labels until the\n\
         next major version. The label `disk` is the kernel's name of the disk, or `common`.\n\n\
         `seekless daemon status --json` has more detail. Its fields keep their names too: `memory.stage` of a disk is\n\
         `ample`, or `drop-behind` while memory is short, which is the name of an earlier rule\n\
         ([TUNING](TUNING.md#memory) has the present one).\n\n\
         | metric | kind | unit | labels | meaning | |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for metric in defs::ALL {
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} |",
            metric.name(),
            metric.kind.name(),
            metric.unit.name(),
            labels.join(", "),
            metric.meaning,
            metric.stability.name()
        );
    }
    text
}
