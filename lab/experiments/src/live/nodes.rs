//! Several nodes behind a balancer: one `seekless serve` a disk, each with memory of its own, and HAProxy in
//! front of them with the very configuration of `deploy/haproxy.cfg`.
//!
//! While the load runs against the balancer, `seekless get` downloads files through it, one after the other.
//! Each node's access log tells which file came from which node, its disk what it had to read. Three phases
//! are told apart: before the middle node is killed, while it is away, and after it is back. A killed node's
//! memory goes with it.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use seekless_base::{Exit, Fault};
use seekless_kernel::cgroup::MemoryGroup;
use serde_json::{Value, json};

use super::disk::forget_pages;
use super::faults::Timeline;
use super::load::{self, Clients};
use super::{Bench, serve};
use crate::guard;
use crate::process::Process;
use crate::results::Row;
use crate::scenario::{FaultKind, Load, Point};
use crate::server::{Server, Site};
use crate::tools;

/// How often logs and disks are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(4);
/// The balancer asks every second and believes the second answer: so long after a node went or came, its
/// share may not have moved yet, and nothing is counted.
const SETTLES: Duration = Duration::from_secs(4);
/// Downloads by `seekless get` at a time.
const GETTERS: usize = 2;
/// How long one may take.
const GET_PATIENCE: Duration = Duration::from_secs(120);
/// The node's hit ratio counts as back at this part of what it was.
const BACK: f64 = 0.9;

/// Which phase a byte was served in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Before,
    Away,
    Back,
}

/// One of the nodes.
struct RunningNode {
    server: Option<Server>,
    port: u16,
    site: PathBuf,
    root: PathBuf,
    group: Option<MemoryGroup>,
    /// How far its access log was read, and what is left of a line.
    read: u64,
    rest: String,
    served: u64,
    disk: u64,
}

impl RunningNode {
    fn log(&self) -> PathBuf {
        self.site.join("access.log")
    }

    fn start(&mut self, options: &[String]) -> Result<(), Fault> {
        let site = Site {
            dir: &self.site,
            root: &self.root,
            env: &[],
            options,
            group: self.group.as_ref(),
            tls: false,
        };
        let server = Server::node(&site, self.port)?;
        self.port = server.port();
        self.server = Some(server);
        Ok(())
    }

    /// Bytes of each path that the log has told of since it was last asked.
    fn news(&mut self) -> BTreeMap<String, u64> {
        let mut text = std::mem::take(&mut self.rest);
        if let Ok(mut file) = std::fs::File::open(self.log()) {
            let _ = file.seek(SeekFrom::Start(self.read));
            let mut bytes = Vec::new();
            self.read += file.read_to_end(&mut bytes).unwrap_or(0) as u64;
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
        let end = text.rfind('\n').map_or(0, |at| at + 1);
        self.rest = text.split_off(end);
        let mut by_path = BTreeMap::new();
        for (path, bytes) in text.lines().filter_map(parse) {
            *by_path.entry(path.to_string()).or_default() += bytes;
            self.served += bytes;
        }
        by_path
    }
}

/// Path and bytes of a GET in a log of combined format.
fn parse(line: &str) -> Option<(&str, u64)> {
    let (path, rest) = line.split_once("\"GET ")?.1.split_once(' ')?;
    let bytes = rest.split_once("\" ")?.1.split(' ').nth(1)?;
    Some((path, bytes.parse().ok()?))
}

/// `seekless get`, file after file.
struct Getter {
    process: Option<(Process, Instant)>,
    next: usize,
    into: PathBuf,
    done: u64,
    failed: u64,
}

impl Getter {
    /// Starts the next download when the last has ended.
    fn go_on(&mut self, url: &str, paths: &[String]) -> Result<(), Fault> {
        if let Some((process, since)) = &mut self.process {
            match process.ended() {
                None if since.elapsed() < GET_PATIENCE => return Ok(()),
                Some(status) if status.success() => self.done += 1,
                ended => {
                    tracing::warn!(?ended, said = process.last_line(), "a download failed");
                    self.failed += 1;
                }
            }
            self.process = None;
        }
        let path = &paths[self.next % paths.len()];
        // A step that meets every file and is no neighbour's.
        self.next += 7;
        let _ = std::fs::remove_dir_all(&self.into);
        std::fs::create_dir_all(&self.into).map_err(|e| Fault::new(Exit::Failed, e.to_string()))?;
        let mut command = tools::command(&["get", &format!("{url}{path}"), "--output-dir"])?;
        command.arg(&self.into);
        let log = self.into.with_extension("log");
        self.process = Some((Process::spawn("a download", command, &log, None)?, Instant::now()));
        Ok(())
    }

    /// Waits for the one under way.
    fn finish(&mut self) -> Result<(), Fault> {
        let Some((mut process, _)) = self.process.take() else { return Ok(()) };
        match process.wait(GET_PATIENCE)?.success() {
            true => self.done += 1,
            false => self.failed += 1,
        }
        let _ = std::fs::remove_dir_all(&self.into);
        Ok(())
    }
}

/// What was seen at one time.
struct Look {
    at_s: f64,
    phase: Phase,
    /// Of each node, bytes served and read from its disk since the look before.
    nodes: Vec<(u64, u64)>,
}

/// Bytes of each path by node.
type Served = BTreeMap<String, Vec<u64>>;

/// The node that served most of each path.
fn main_nodes(served: &Served) -> BTreeMap<&str, usize> {
    let most = |bytes: &Vec<u64>| bytes.iter().enumerate().max_by_key(|(_, b)| **b).map_or(0, |(n, _)| n);
    served.iter().map(|(path, bytes)| (path.as_str(), most(bytes))).collect()
}

/// Of the paths served in both, the share for which `moved(before, after)` holds.
fn share(before: &Served, after: &Served, moved: impl Fn(usize, usize) -> bool) -> f64 {
    let (before, after) = (main_nodes(before), main_nodes(after));
    let both: Vec<(usize, usize)> =
        before.iter().filter_map(|(path, n)| Some((*n, *after.get(path)?))).collect();
    both.iter().filter(|(a, b)| moved(*a, *b)).count() as f64 / both.len().max(1) as f64
}

/// Runs one arm and fills its row.
pub(super) fn run(bench: &mut Bench<'_>, point: &Point, row: &mut Row) -> Result<(), Fault> {
    let arm = &point.arm;
    let dir = bench.scratch.dir(&format!("run{}", row.position))?;
    let mut nodes = Vec::new();
    bench.prepare(arm)?;
    for i in 0..bench.disks.len() {
        let group = bench.group(&format!("node{i}"))?;
        let mut node = RunningNode {
            server: None,
            port: 0,
            site: dir.join(format!("node{i}")),
            root: bench.disks[i].mount.clone(),
            group,
            read: 0,
            rest: String::new(),
            served: 0,
            disk: 0,
        };
        node.start(&arm.serve)?;
        nodes.push(node);
    }
    let ports: Vec<u16> = nodes.iter().map(|n| n.port).collect();
    let balancer_dir = dir.join("balancer");
    let site =
        Site { dir: &balancer_dir, root: &bench.root, env: &[], options: &[], group: None, tls: false };
    let balancer = Server::balancer(&ports, &site)?;
    let url = balancer.url();
    let mut clients = Clients::start(bench.scenario, (&point.load, arm), &url, 0, &dir)?;
    let paths = paths(bench)?;
    let mut getters: Vec<Getter> = (0..GETTERS)
        .map(|i| Getter { process: None, next: 3 * i, into: dir.join(format!("got{i}")), done: 0, failed: 0 })
        .collect();

    let warmup_s = match &point.load {
        Load::Closed { warmup_s, .. } | Load::Sessions { warmup_s, .. } => *warmup_s,
        _ => 0.0,
    };
    let warmup = Duration::from_secs_f64(warmup_s / load::speedup(bench.scenario, &point.load));
    let killed = nodes.len() / 2;
    let started = Instant::now();
    let mut timeline = Timeline::new(&arm.faults);
    let mut phase = Phase::Before;
    let mut phase_since = started;
    let mut served: BTreeMap<Phase, Served> = BTreeMap::new();
    let mut looked = started;
    let mut series: Vec<Look> = Vec::new();
    bench.disks.iter().try_for_each(|d| d.stats(true).map(drop))?;
    loop {
        guard::sleep(Duration::from_millis(20))?;
        let over = clients.ended();
        if !arm.faults.is_empty() && !over {
            getters.iter_mut().try_for_each(|g| g.go_on(&url, &paths))?;
        }
        if let Some(fault) = timeline.due(started.elapsed().as_secs_f64()) {
            match fault.what {
                FaultKind::KillNode => {
                    if let Some(server) = nodes[killed].server.take() {
                        server.kill();
                    }
                    // The machine is gone with what was in its memory.
                    forget_pages(&nodes[killed].root)?;
                    (phase, phase_since) = (Phase::Away, Instant::now());
                }
                FaultKind::StartNode => {
                    nodes[killed].start(&arm.serve)?;
                    (phase, phase_since) = (Phase::Back, Instant::now());
                }
                _ => {}
            }
        }
        if looked.elapsed() < LOOK_EVERY && !over {
            continue;
        }
        looked = Instant::now();
        let mut look = Vec::new();
        let settled = phase_since.elapsed() > SETTLES + LOOK_EVERY && started.elapsed() > warmup;
        for (i, node) in nodes.iter_mut().enumerate() {
            let before = (node.served, node.disk);
            for (path, bytes) in node.news() {
                if settled {
                    let served = served.entry(phase).or_default();
                    served.entry(path).or_insert_with(|| vec![0; ports.len()])[i] += bytes;
                }
            }
            let stats = bench.disks[i].stats(false)?;
            node.disk = stats.pointer("/stats/read_bytes").and_then(Value::as_u64).unwrap_or(0);
            look.push((node.served - before.0, node.disk - before.1));
        }
        series.push(Look { at_s: started.elapsed().as_secs_f64(), phase, nodes: look });
        if over {
            break;
        }
    }
    getters.iter_mut().try_for_each(Getter::finish)?;
    let disks = bench.disks.iter().map(|d| d.stats(false)).collect::<Result<Vec<_>, _>>()?;
    load::account(row, &[clients.finish()?]);
    serve::account_disks(row, &disks);
    let mut put = |name: &str, value: f64| row.metrics.insert(name.into(), value);
    put("gets", getters.iter().map(|g| g.done).sum::<u64>() as f64);
    put("gets_failed", getters.iter().map(|g| g.failed).sum::<u64>() as f64);
    let none = Served::new();
    let of = |phase: Phase| served.get(&phase).unwrap_or(&none);
    let (before, away, back) = (of(Phase::Before), of(Phase::Away), of(Phase::Back));
    if !away.is_empty() && !back.is_empty() {
        put("moved_off_healthy", share(before, away, |a, b| a != killed && a != b));
        put("moved_on_return", share(away, back, |a, b| a != b));
        put("share_of_returned", share(away, back, |_, b| b == killed));
        put("moved_beyond_share", share(away, back, |a, b| a != b && b != killed));
        put("placed_as_before", share(before, back, |a, b| a == b));
        // The last phase began with the return.
        let returned = phase_since.duration_since(started).as_secs_f64();
        hit_ratio(row, &series, killed, (warmup.as_secs_f64(), returned));
    }
    let looks: Vec<Value> = series
        .iter()
        .map(|look| {
            let nodes: Vec<Value> =
                look.nodes.iter().map(|(served, disk)| json!({"served": served, "disk": disk})).collect();
            json!({"at_s": look.at_s, "phase": format!("{:?}", look.phase).to_lowercase(), "nodes": nodes})
        })
        .collect();
    row.raw.insert("nodes".into(), looks.into());
    Ok(())
}

/// The killed node's hit ratio before it was killed, at the end, and how long after its return it had come
/// back.
fn hit_ratio(row: &mut Row, series: &[Look], killed: usize, (warmup_s, returned): (f64, f64)) {
    let hits = |looks: &[&Look]| {
        let (served, disk) = looks.iter().fold((0, 0), |sum, look| {
            let (served, disk) = look.nodes[killed];
            (sum.0 + served, sum.1 + disk)
        });
        if served == 0 { 0.0 } else { 1.0 - disk as f64 / served as f64 }
    };
    let of = |phase: Phase| series.iter().filter(move |look| look.phase == phase);
    let before: Vec<&Look> = of(Phase::Before).filter(|look| look.at_s > warmup_s).collect();
    let back: Vec<&Look> = of(Phase::Back).collect();
    if back.is_empty() {
        return;
    }
    let was = hits(&before);
    row.metrics.insert("hit_before".into(), was);
    row.metrics.insert("hit_after".into(), hits(&back[back.len() - (back.len() / 3).max(1)..]));
    // Two looks together: a single piece read ahead is a good part of one.
    let came_back = back.windows(2).find(|pair| hits(pair) >= BACK * was);
    if let Some(pair) = came_back {
        row.metrics.insert("hit_back_s".into(), pair[1].at_s - returned);
    }
}

/// Every file of the library.
fn paths(bench: &Bench<'_>) -> Result<Vec<String>, Fault> {
    Ok(library(bench)?.into_iter().map(|(path, _)| path).collect())
}

/// The same, with its size.
pub(super) fn library(bench: &Bench<'_>) -> Result<Vec<(String, u64)>, Fault> {
    let manifest: &Path = &bench.scratch.path().join("manifest.txt");
    let text = std::fs::read_to_string(manifest)
        .map_err(|e| Fault::new(Exit::Failed, format!("{}: {e}", manifest.display())))?;
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    let parse = |line: &str| {
        let (size, path) = line.split_once(' ')?;
        Some((path.to_string(), size.parse().ok()?))
    };
    Ok(lines.filter_map(parse).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_log() {
        let line = "::1 - - [22/Nov/2026:01:02:03 +0000] \"GET /sd/1.mp4 HTTP/1.1\" 206 524288 \"-\" \"seekless-load\"";
        assert_eq!(parse(line), Some(("/sd/1.mp4", 524_288)));
        assert_eq!(parse("::1 - - [x] \"OPTIONS / HTTP/1.0\" 204 0 \"-\" \"-\""), None);
        assert_eq!(parse("cut off in the midd"), None);
    }

    #[test]
    fn what_moved() {
        let served = |list: &[(&str, [u64; 3])]| -> Served {
            list.iter().map(|(path, bytes)| (path.to_string(), bytes.to_vec())).collect()
        };
        let away = served(&[("a", [9, 0, 1]), ("b", [0, 0, 5]), ("c", [7, 0, 0]), ("d", [1, 0, 0])]);
        let back = served(&[("a", [8, 0, 2]), ("b", [0, 5, 0]), ("c", [1, 0, 6]), ("e", [1, 0, 0])]);
        let third = 1.0 / 3.0;
        assert!((share(&away, &back, |a, b| a != b) - 2.0 * third).abs() < 1e-9);
        assert!((share(&away, &back, |_, b| b == 1) - third).abs() < 1e-9);
        assert!((share(&away, &back, |a, b| a != b && b != 1) - third).abs() < 1e-9);
        assert_eq!(share(&away, &Served::new(), |_, _| true), 0.0);
    }
}
