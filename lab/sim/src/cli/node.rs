//! `seekless-lab sim node`: one of several nodes behind a balancer, from empty memory on.

use std::fmt::Write as _;

use clap::Args;
use seekless_base::{Bytes, Exit, Fault, Nanos};
use seekless_model::drive::catalogue as drives;
use seekless_model::drive::set::SetSpec;
use seekless_model::load_options::SeedOption;
use seekless_model::workload::catalogue::{Catalogue, CatalogueSpec};
use seekless_model::workload::closed::{ClosedSpec, Pick};
use seekless_options::parsed;
use seekless_output::JsonOption;
use seekless_policy::{AheadConfig, Config as PolicyConfig, Mode};
use serde::Deserialize;
use serde_json::json;

use super::serve::link_rate;
use crate::serving::config::{Costs, DiskConfig, EngineConfig, Node, ServerModel};
use crate::serving::{Config, KernelConfig, Load, Look, back, hit_ratio, run as simulate};
use seekless_model::with::{WithOption, within};

/// The hit ratio counts as back at this part of what it was: the live scenario's.
const BACK: f64 = 0.9;

/// One of several `seekless serve` behind a balancer, killed and returned with nothing in memory: when its
/// hit ratio is back.
///
/// Viewers read by popularity through links, downloads go through all files one after the other. All times
/// are the disk's.
#[derive(Args, Clone, Debug)]
pub(super) struct NodeArgs {
    #[command(flatten)]
    with: WithOption,
    #[command(flatten)]
    from: SeedOption,
    #[command(flatten)]
    json: JsonOption,
}

/// What `--with` sets: machine, load and times.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Nodes {
    /// Runs, each with other readers.
    trials: u64,
    /// A drive of `drives/`.
    drive: String,
    /// Size of the disk's file system, which covers the whole drive.
    size: Bytes,
    /// Size of the library of all nodes together.
    library: Bytes,
    /// Zipf exponent of the popularity.
    zipf: f64,
    /// Number of nodes; HAProxy's hash places each file on one of them.
    nodes: u32,
    /// Number of this node, in the order of the balancer's configuration (`deploy/haproxy.cfg`).
    node: u32,
    /// Number of viewers of all nodes.
    clients: u32,
    /// Bytes in one of their requests.
    range: Bytes,
    /// Link of a viewer.
    link: String,
    /// Bound of a node's load, as a multiple of the mean; beyond it requests go to the next node (HAProxy's
    /// hash-balance-factor).
    bound: f64,
    /// Time from the node's return to its first request (two health checks a second apart, in the disk's
    /// time).
    #[serde(deserialize_with = "parsed")]
    up: Nanos,
    /// Concurrent downloads by `seekless get`, all nodes together.
    downloads: u32,
    /// Rate of one download that the disk does not limit, MB/s.
    download_mb_per_s: f64,
    /// Memory of the node.
    memory: Bytes,
    /// Memory of the server itself, without the blocks of downloads.
    own: Bytes,
    /// Take the read-ahead budget from all memory, not from what the server leaves.
    budget_of_all: bool,
    /// Memory for the blocks of downloads in any order.
    any_order_memory: Bytes,
    /// Bytes of one read for downloads in any order.
    any_order_read: Bytes,
    /// How far a viewer's read is extended.
    prefetch: Bytes,
    /// Begin of the time, after an empty start, with the hit ratio that the node must reach again.
    #[serde(deserialize_with = "parsed")]
    before: Nanos,
    /// End of that time: the node is killed.
    #[serde(deserialize_with = "parsed")]
    killed: Nanos,
    /// Speed of the disk as a multiple of the real one; it also applies to viewers' links, downloads and all
    /// times given here, but not to times of Seekless' own clock.
    speedup: f64,
    /// Largest file for which a digest is computed at its first download.
    digest_max: Bytes,
    /// How long the node is away.
    #[serde(deserialize_with = "parsed")]
    away: Nanos,
    /// How long the return is simulated.
    #[serde(deserialize_with = "parsed")]
    time: Nanos,
    /// Time between two samples of what was served and read.
    #[serde(deserialize_with = "parsed")]
    look: Nanos,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes {
            trials: 21,
            drive: "wd-red-1tb".into(),
            size: Bytes::gib(3),
            library: Bytes::mib(1536),
            zipf: 1.0,
            nodes: 3,
            node: 2,
            clients: 60,
            range: Bytes::kib(512),
            link: "10Mb/s".into(),
            bound: 2.0,
            up: Nanos::from_secs(4),
            downloads: 2,
            download_mb_per_s: 15.3,
            memory: Bytes::mib(256),
            own: Bytes::mib(30),
            budget_of_all: false,
            any_order_memory: Bytes::mib(128),
            any_order_read: Bytes::mib(1),
            prefetch: Bytes::mib(4),
            before: Nanos::from_secs(80),
            killed: Nanos::from_secs(160),
            speedup: 2.0,
            digest_max: Bytes::mib(16),
            away: Nanos::from_secs(120),
            time: Nanos::from_secs(300),
            look: Nanos::from_secs(8),
        }
    }
}

/// What came out of one pair of runs.
struct Trial {
    before: f64,
    back: Option<(Nanos, u64)>,
    after: Vec<Look>,
}

fn usage(message: impl Into<String>) -> Fault {
    Fault::usage(message)
}

impl Nodes {
    fn check(&self) -> Result<(), Fault> {
        within(&[
            ("nodes", f64::from(self.nodes), 1.0, 100.0),
            ("node", f64::from(self.node), 1.0, f64::from(self.nodes)),
            ("clients", f64::from(self.clients), 1.0, 10_000.0),
            ("downloads", f64::from(self.downloads), 0.0, 1000.0),
            ("download-mb-per-s", self.download_mb_per_s, 0.001, 1e6),
            ("bound", self.bound, 1.0, 1000.0),
            ("speedup", self.speedup, 0.01, 100.0),
        ])?;
        let watched = Nanos(self.killed.0.saturating_sub(self.before.0));
        if self.look == Nanos::ZERO || self.look > self.time.min(watched) {
            return Err(usage("--with: look is shorter than time, and than the time from before to killed"));
        }
        if self.range.0 == 0 || self.any_order_read < Bytes::kib(64) || self.any_order_memory < Bytes::mib(1)
        {
            return Err(usage("--with: range is at least 1B, any-order-read 64KiB, any-order-memory 1MiB"));
        }
        let taken = self.own.0.saturating_add(self.any_order_memory.0);
        if self.memory.0 < taken.saturating_add(Bytes::mib(1).0) {
            return Err(usage(format!(
                "--with memory={} leaves no page cache beside {}",
                self.memory,
                Bytes(taken)
            )));
        }
        Ok(())
    }

    /// A time of the disk's on the clock of everything else.
    fn scaled(&self, time: Nanos) -> Nanos {
        Nanos((time.0 as f64 / self.speedup) as u64)
    }

    /// The nodes with the readers of `seed`.
    fn config(&self, seed: u64) -> Result<Config, Fault> {
        let returned = self.killed + self.away;
        let drive = drives::find(&self.drive).map_err(|why| usage(why.to_string()))?;
        let link = link_rate(&self.link)?.ok_or_else(|| usage("--with link=: a viewer here has one"))?;
        let default = PolicyConfig::default();
        let policy = PolicyConfig {
            mode: Mode::Both,
            prefetch: self.prefetch,
            read_max: default.read_max.max(self.prefetch),
            ahead: Some(AheadConfig::default()),
            ..default
        };
        Ok(Config {
            file_set: None,
            writer: None,
            disks: vec![DiskConfig { drive, set: SetSpec::SINGLE, size: self.size, speedup: self.speedup }],
            memory: self.memory,
            kernel: KernelConfig::default(),
            // No loop of `serve` waits for the disk; every request does by itself.
            server: ServerModel::threads(),
            socket: Bytes::mib(1),
            engine: Some(EngineConfig::of_shim(policy)),
            costs: Costs::default(),
            load: Load::Node(Node {
                clients: self.clients,
                spec: ClosedSpec {
                    range: self.range,
                    pick: Pick::Zipf,
                    random_start: true,
                    seed,
                    ..ClosedSpec::default()
                },
                link: (link as f64 * self.speedup) as u64,
                nodes: self.nodes,
                number: self.node,
                lost: Some((self.scaled(self.killed), self.scaled(returned))),
                bound: self.bound,
                up: self.scaled(self.up),
                downloads: self.downloads,
                download_rate: self.download_mb_per_s * 1e6 * self.speedup,
                own: self.own,
                budget_of_rest: !self.budget_of_all,
                any_order: seekless_reorder::Config {
                    memory: self.any_order_memory,
                    read: self.any_order_read,
                    ..seekless_reorder::Config::default()
                },
                digest_max: self.digest_max,
                look: self.scaled(self.look),
            }),
            warmup: Nanos::ZERO,
            length: self.scaled(returned + self.time),
        })
    }

    fn trial(&self, catalogue: &Catalogue, seed: u64) -> Result<Trial, Fault> {
        let (from, to, returned) = (self.before, self.killed, self.killed + self.away);
        let disks_time = |look: &Look| Look { at: Nanos((look.at.0 as f64 * self.speedup) as u64), ..*look };
        let looks: Vec<Look> =
            simulate(&self.config(seed)?, catalogue).map_err(usage)?.looks.iter().map(disks_time).collect();
        let within = |from: Nanos, to: Nanos| {
            let some = looks.iter().filter(move |look| from < look.at && look.at <= to);
            some.map(move |look| Look { at: look.at - from, ..*look }).collect::<Vec<_>>()
        };
        let was = hit_ratio(&within(from, to));
        let after = within(returned, returned + self.time);
        Ok(Trial { before: was, back: back(&after, was, BACK), after })
    }
}

/// The value a part of all are below, of sorted ones; those that never came back come last.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let at = ((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len()) - 1;
    sorted.get(at).copied().filter(|v| v.is_finite())
}

pub(super) fn run(args: &NodeArgs) -> Result<Exit, Fault> {
    let nodes: Nodes = args.with.settings()?;
    nodes.check()?;
    let spec = CatalogueSpec { size: Some(nodes.library), zipf: nodes.zipf, ..CatalogueSpec::default() };
    let catalogue = Catalogue::new(&spec).map_err(|e| usage(e.to_string()))?;
    let Load::Node(node) = nodes.config(args.from.seed)?.load else {
        return Err(usage("no node"));
    };
    let here = node.here(&catalogue);
    let files = here.iter().filter(|here| **here).count();
    let asked: f64 =
        catalogue.shares().filter(|(video, _)| here[*video as usize]).map(|(_, share)| share).sum();
    let bar = seekless_output::bar(nodes.trials, super::RUNS);
    let mut trials = Vec::new();
    for seed in (args.from.seed..).take(nodes.trials as usize) {
        trials.push(nodes.trial(&catalogue, seed)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let sorted = |of: &dyn Fn(&Trial) -> f64| {
        let mut values: Vec<f64> = trials.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let seconds = sorted(&|t| t.back.map_or(f64::INFINITY, |(at, _)| at.as_secs_f64()));
    let mib = sorted(&|t| t.back.map_or(f64::INFINITY, |(_, served)| served as f64 / 1_048_576.0));
    let before = sorted(&|t| t.before);
    let end = |t: &Trial| hit_ratio(&t.after[t.after.len() - (t.after.len() / 3).max(1)..]);
    let after = sorted(&end);
    let summary = |sorted: &[f64]| {
        json!({ "median": quantile(sorted, 0.5), "p90": quantile(sorted, 0.9),
                "least": quantile(sorted, 0.0), "most": quantile(sorted, 1.0) })
    };
    let rows: Vec<_> = trials
        .iter()
        .map(|t| {
            let looks: Vec<_> = t
                .after
                .iter()
                .map(|l| json!({"at_s": l.at.as_secs_f64(), "served": l.served, "disk": l.read}))
                .collect();
            json!({
                "hit_before": t.before, "hit_after": end(t),
                "hit_back_s": t.back.map(|(at, _)| at.as_secs_f64()),
                "served_until_back": t.back.map(|(_, served)| served), "looks": looks,
            })
        })
        .collect();
    let value = json!({
        "library": { "files": catalogue.videos().len(), "bytes": catalogue.total().0 },
        "here": { "files": files, "share_of_viewers": asked },
        "hit_before": summary(&before), "hit_after": summary(&after),
        "hit_back_s": summary(&seconds), "mib_until_back": summary(&mib), "trials": rows,
    });
    seekless_output::give(args.json.path(), &value, || {
        let mut text = format!(
            "{files} of {} files are on this node; a viewer asks for one of them with probability {asked:.3}\n",
            catalogue.videos().len()
        );
        text.push_str("                         median     least       p90      most\n");
        let lines = [
            ("hit ratio before", &before, 3),
            ("hit ratio at the end", &after, 3),
            ("back after, s", &seconds, 0),
            ("MiB served until then", &mib, 0),
        ];
        for (name, sorted, digits) in lines {
            let _ = write!(text, "{name:<22}");
            for part in [0.5, 0.0, 0.9, 1.0] {
                let _ = match quantile(sorted, part) {
                    Some(value) => write!(text, " {value:>9.digits$}"),
                    None => write!(text, " {:>9}", "never"),
                };
            }
            text.push('\n');
        }
        text
    })?;
    Ok(Exit::Ok)
}
