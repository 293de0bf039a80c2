//! Three `seekless serve` nodes behind HAProxy, nginx and Envoy, with the configurations of `deploy/`: a path
//! stays with its node, a node that is killed moves its own share only and no download comes out wrong, and
//! it gets its share back.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{SEEKLESS, http, public_folder};
use seekless_model::workload::content::Content;

const FILES: usize = 60;
const FILE_BYTES: usize = 200_000;
/// Longer than either balancer takes to take a node back (nginx: `fail_timeout` 5 s), with room for a busy
/// machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program among the unpacked ones, else an installed one.
fn program(name: &str) -> Option<PathBuf> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/debian/root/bin");
    let unpacked = std::env::var_os("SEEKLESS_TOOLS").map_or(unpacked, |tools| Path::new(&tools).join("bin"));
    [unpacked, "/usr/sbin".into(), "/usr/bin".into()].iter().map(|d| d.join(name)).find(|p| p.is_file())
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One of the three.
struct Node {
    _process: Ended,
    address: SocketAddr,
    log: PathBuf,
}

impl Node {
    fn start(root: &Path, log: PathBuf, port: u16) -> Node {
        let mut child = Command::new(&*SEEKLESS)
            .arg("serve")
            .arg(root)
            .args(["--include-ssd", "--listen", &format!("127.0.0.1:{port}"), "--access-log"])
            .arg(&log)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap().trim_end_matches('/');
        Node { _process: Ended(child), address: address.parse().unwrap(), log }
    }

    /// The paths of its GET requests so far.
    fn served(&self) -> BTreeSet<String> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter_map(|l| l.split_once("\"GET ")?.1.split(' ').next().map(String::from)).collect()
    }
}

/// The balancer's configuration with our addresses in the place of its examples.
///
/// Envoy's addresses are host and port apart.
fn configured(file: &str, nodes: &[Node], listen: SocketAddr) -> String {
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    let mut text = std::fs::read_to_string(text).unwrap();
    for (i, node) in nodes.iter().enumerate() {
        let (example, own) = match file.ends_with(".yaml") {
            true => (
                format!("address: 10.0.0.1{}, port_value: 8080", i + 1),
                format!("address: 127.0.0.1, port_value: {}", node.address.port()),
            ),
            false => (format!("10.0.0.1{}:8080", i + 1), node.address.to_string()),
        };
        assert!(text.contains(&example), "{file} names no {example}");
        text = text.replace(&example, &own);
    }
    let (example, own) = match file.ends_with(".yaml") {
        true => (
            "address: 0.0.0.0, port_value: 8000",
            format!("address: {}, port_value: {}", listen.ip(), listen.port()),
        ),
        false => ("0.0.0.0:8000", listen.to_string()),
    };
    assert!(text.contains(example));
    text.replace(example, &own)
}

/// A free port of this balancer's own loopback address.
///
/// Tests that run beside each other may find the same port free. With one address for all, one balancer would
/// answer for another.
fn free(address: Ipv4Addr) -> SocketAddr {
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap()
}

fn haproxy(dir: &Path, nodes: &[Node], listen: SocketAddr) -> Option<Ended> {
    let program = program("haproxy")?;
    let config = dir.join("haproxy.cfg");
    std::fs::write(&config, configured("haproxy.cfg", nodes, listen)).unwrap();
    let command = Command::new(program).arg("-db").arg("-f").arg(config).stderr(Stdio::null()).spawn();
    Some(Ended(command.unwrap()))
}

fn nginx(dir: &Path, nodes: &[Node], listen: SocketAddr) -> Option<Ended> {
    let program = program("nginx")?;
    let balancer = configured("nginx-balancer.conf", nodes, listen);
    let here = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {here}/{kind};\n"))
        .collect();
    // A single process: it ends when it is killed, and what is known of a node's health is each worker's own.
    let text = format!(
        "master_process off;\npid {here}/nginx.pid;\nerror_log stderr;\ndaemon off;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}{balancer}}}\n"
    );
    let config = dir.join("nginx.conf");
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(program);
    command.args(["-e", "stderr", "-c"]).arg(config).stderr(Stdio::null());
    Some(Ended(command.spawn().unwrap()))
}

fn envoy(dir: &Path, nodes: &[Node], listen: SocketAddr) -> Option<Ended> {
    let program = program("envoy")?;
    let config = dir.join("envoy.yaml");
    std::fs::write(&config, configured("envoy.yaml", nodes, listen)).unwrap();
    let mut command = Command::new(program);
    // Shared memory of its own: another Envoy on the machine is none of its business.
    command.args(["--use-dynamic-base-id", "--concurrency", "2", "-l", "off", "-c"]).arg(config);
    Some(Ended(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()))
}

fn path(i: usize) -> String {
    format!("/film{i:03}.mp4")
}

fn content(i: usize) -> Vec<u8> {
    let mut bytes = vec![0; FILE_BYTES];
    Content::of_path(&path(i)).fill(0, &mut bytes);
    bytes
}

/// Every file once through the balancer; which node each came from.
fn ask_for_all(balancer: SocketAddr, nodes: &[Node]) -> BTreeMap<String, usize> {
    for node in nodes {
        std::fs::write(&node.log, "").unwrap();
    }
    for i in 0..FILES {
        let answer = http::request(balancer, "GET", &path(i), &[]).unwrap();
        assert!(answer.status_line.contains("200"), "{}: {}", path(i), answer.status_line);
        assert!(answer.body == content(i), "{}: wrong bytes", path(i));
    }
    let mut by_path = BTreeMap::new();
    let until = Instant::now() + PATIENCE;
    while by_path.len() < FILES {
        assert!(Instant::now() < until, "{} of {FILES} are in the logs", by_path.len());
        std::thread::sleep(Duration::from_millis(20));
        for (n, node) in nodes.iter().enumerate() {
            by_path.extend(node.served().into_iter().map(|path| (path, n)));
        }
    }
    by_path
}

fn stays_local_and_survives_a_node(
    name: &str,
    address: Ipv4Addr,
    start: impl Fn(&Path, &[Node], SocketAddr) -> Option<Ended>,
) {
    let dir = public_folder();
    let root = dir.path().join("www");
    std::fs::create_dir(&root).unwrap();
    for i in 0..FILES {
        std::fs::write(root.join(&path(i)[1..]), content(i)).unwrap();
    }
    let log = |n: usize| dir.path().join(format!("access{n}.log"));
    let mut nodes: Vec<Node> = (0..3).map(|n| Node::start(&root, log(n), 0)).collect();
    let balancer = free(address);
    let Some(_balancer) = start(dir.path(), &nodes, balancer) else {
        println!("skipped: {name} is neither unpacked nor installed (scripts/provision)");
        return;
    };
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(balancer).is_err() {
        assert!(Instant::now() < until, "{name} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }

    let at_first = ask_for_all(balancer, &nodes);
    assert_eq!(ask_for_all(balancer, &nodes), at_first, "{name}: a path stays with its node");
    for n in 0..3 {
        let share = at_first.values().filter(|&&m| m == n).count();
        assert!((5..=40).contains(&share), "{name}: node {n} has {share} of {FILES}");
    }

    let port = nodes[1].address.port();
    let lost = nodes.remove(1);
    drop(lost);
    let got = dir.path().join("got");
    std::fs::create_dir(&got).unwrap();
    for i in 0..FILES {
        let status = Command::new(&*SEEKLESS)
            .args(["get", &format!("http://{balancer}{}", path(i)), "--output-dir"])
            .arg(&got)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{name}: {} with a node gone", path(i));
        assert!(std::fs::read(got.join(&path(i)[1..])).unwrap() == content(i), "{name}: {}", path(i));
    }
    nodes.insert(1, Node::start(&root, log(1), port));
    // Back as it was, as soon as the balancer has noticed.
    let until = Instant::now() + PATIENCE;
    loop {
        let now = ask_for_all(balancer, &nodes);
        for (path, node) in &at_first {
            assert!(
                *node == 1 || now[path] == *node,
                "{name}: {path} moved although its node never was away"
            );
        }
        if now == at_first {
            return;
        }
        assert!(Instant::now() < until, "{name}: the node does not get its share back");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn behind_haproxy() {
    stays_local_and_survives_a_node("haproxy", Ipv4Addr::new(127, 0, 0, 2), haproxy);
}

#[test]
fn behind_nginx() {
    stays_local_and_survives_a_node("nginx", Ipv4Addr::new(127, 0, 0, 3), nginx);
}

#[test]
fn behind_envoy() {
    stays_local_and_survives_a_node("envoy", Ipv4Addr::new(127, 0, 0, 4), envoy);
}
