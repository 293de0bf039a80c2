//! What Prometheus itself makes of it: rules, alerts, the dashboard's queries, and a real scrape.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use seekless_engine::DiskReport;
use seekless_frontend::metrics::{Address, MetricsServer, Observation, defs};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A program of Prometheus: provisioned, or in PATH. `None`, with a word, where there is none.
fn tool(name: &str) -> Option<PathBuf> {
    let tools =
        std::env::var_os("SEEKLESS_TOOLS").map_or_else(|| root().join(".cache/debian/root"), PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::iter::once(tools.join("bin")).chain(std::env::split_paths(&path));
    let found = places.find_map(|place| Some(place.join(name)).filter(|p| p.is_file()));
    if found.is_none() {
        println!("skipped: there is no {name}; scripts/provision --monitoring fetches it");
    }
    found
}

fn promtool(words: &[&str], file: &Path) -> Option<Output> {
    Some(Command::new(tool("promtool")?).args(words).arg(file).output().unwrap())
}

#[test]
fn the_rules_are_valid_and_alerts_fire_when_they_should() {
    let folder = root().join("deploy/prometheus");
    let Some(out) = promtool(&["check", "rules"], &folder.join("seekless.rules.yml")) else { return };
    assert!(out.status.success(), "{out:?}");
    let Some(out) = promtool(&["test", "rules"], &folder.join("seekless.rules.test.yml")) else { return };
    assert!(
        out.status.success(),
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn what_is_exposed_is_to_promtools_taste() {
    let Some(tool) = tool("promtool") else { return };
    let mut seen = Observation { door: "daemon", version: "1".into(), ..Default::default() };
    seen.disks = vec![DiskReport { name: "sda".into(), ..Default::default() }];
    let mut child = Command::new(tool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(seekless_frontend::metrics::prometheus(&seen).as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Words that look like our metrics, without what the format adds to their names.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words.filter(|w| w.starts_with("seekless_")).map(|w| w.trim_end_matches("_bucket").to_string()).collect()
}

#[test]
fn rules_and_dashboard_name_metrics_that_exist() {
    let known: BTreeSet<String> = defs::ALL.iter().map(|m| m.name()).collect();
    for file in ["deploy/prometheus/seekless.rules.yml", "deploy/grafana/seekless.json"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let named = named(&text);
        assert!(named.len() > 5, "{file}: {named:?}");
        let unknown: Vec<&String> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
    }
    let dashboard = std::fs::read_to_string(root().join("deploy/grafana/seekless.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().iter().all(|p| p["targets"][0]["expr"].is_string()));
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn query(at: SocketAddr, what: &str) -> Option<serde_json::Value> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET /api/v1/query?query={what} HTTP/1.0\r\nHost: {at}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

#[test]
fn prometheus_scrapes_a_metrics_address() {
    let Some(prometheus) = tool("prometheus") else { return };
    let disk = DiskReport { name: "sda".into(), requests: 41, ..Default::default() };
    let source = move || {
        Some(Observation {
            door: "daemon",
            version: "1".into(),
            disks: vec![disk.clone()],
            ..Default::default()
        })
    };
    let server = MetricsServer::start(Address(([127, 0, 0, 1], 0).into()), Arc::new(source)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prometheus.yml");
    let scrape = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs: [{{ job_name: seekless, static_configs: [{{ targets: [\"{}\"] }}] }}]\n",
        server.address()
    );
    std::fs::write(&config, scrape).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _running = Ends(
        Command::new(prometheus)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let found = query(port, "seekless_disk_requests_total").unwrap_or_default();
        if found["data"]["result"][0]["value"][1] == "41" {
            assert_eq!(found["data"]["result"][0]["metric"]["disk"], "sda");
            break;
        }
        assert!(Instant::now() < until, "never scraped: {found}");
        std::thread::sleep(Duration::from_millis(250));
    }
}
