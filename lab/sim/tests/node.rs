//! One of several nodes behind a balancer: what must hold of any run, and that its memory comes back.

use proptest::prelude::*;
use seekless_base::{Bytes, Nanos};
use seekless_model::drive::catalogue as drives;
use seekless_model::workload::catalogue::{Catalogue, CatalogueSpec};
use seekless_model::workload::closed::{ClosedSpec, Pick};
use seekless_policy::{AheadConfig, Config as PolicyConfig, Mode};
use seekless_sim::serving::config::{Costs, DiskConfig, EngineConfig, Node, ServerModel};
use seekless_sim::serving::{self, Config, KernelConfig, Load, Look, back, hit_ratio};

fn library(mib: u64) -> Catalogue {
    let spec = CatalogueSpec { size: Some(Bytes::mib(mib)), zipf: 1.0, ..CatalogueSpec::default() };
    Catalogue::new(&spec).unwrap()
}

fn node() -> Node {
    Node {
        clients: 30,
        spec: ClosedSpec { pick: Pick::Zipf, ..ClosedSpec::default() },
        link: 10_000_000,
        nodes: 3,
        number: 2,
        lost: None,
        // None is ever passed on.
        bound: 1000.0,
        up: Nanos::ZERO,
        downloads: 2,
        download_rate: 12.5e6,
        own: Bytes::mib(12),
        budget_of_rest: true,
        any_order: seekless_reorder::Config {
            memory: Bytes::mib(32),
            read: Bytes::mib(1),
            ..seekless_reorder::Config::default()
        },
        digest_max: Bytes::mib(16),
        look: Nanos::from_secs(4),
    }
}

fn config(node: Node, memory: u64, seconds: u64) -> Config {
    let policy =
        PolicyConfig { mode: Mode::Both, ahead: Some(AheadConfig::default()), ..PolicyConfig::default() };
    Config {
        disks: vec![DiskConfig {
            set: seekless_model::drive::set::SetSpec::SINGLE,
            drive: drives::get("wd-red-1tb").unwrap(),
            size: Bytes::gib(2),
            speedup: 1.0,
        }],
        memory: Bytes::mib(memory),
        kernel: KernelConfig::default(),
        server: ServerModel::threads(),
        socket: Bytes::mib(1),
        engine: Some(EngineConfig::of_shim(policy)),
        costs: Costs::default(),
        load: Load::Node(node),
        file_set: None,
        writer: None,
        warmup: Nanos::ZERO,
        length: Nanos::from_secs(seconds),
    }
}

fn looks(node: Node, memory: u64, seconds: u64, catalogue: &Catalogue) -> Vec<Look> {
    serving::run(&config(node, memory, seconds), catalogue).unwrap().looks
}

fn bytes(looks: &[Look]) -> (u64, u64) {
    looks.iter().fold((0, 0), |sum, look| (sum.0 + look.served, sum.1 + look.read))
}

/// Downloads alone, one file at a time: each is read from the disk once, and the client takes it at its rate.
#[test]
fn downloads_get_every_byte_once_and_leave_nothing_in_the_page_cache() {
    let catalogue = library(256);
    let alone = Node { clients: 1, link: 1000, nodes: 1, number: 1, downloads: 1, ..node() };
    let report = serving::run(&config(alone, 256, 12), &catalogue).unwrap();
    let (served, read) = bytes(&report.looks);
    // Twelve seconds at 12.5 MB/s; files end whole, and the disk holds each up a little.
    assert!((110e6..150e6).contains(&(served as f64)), "{served}");
    // Besides, the file under way, and what the one viewer on a link of 1 kb/s has had read for him.
    let largest = catalogue.videos().iter().map(|v| v.size.0).max().unwrap();
    assert!(read >= served && read <= served + largest + (16 << 20), "{read} for {served}");
    assert!(report.cache.inserted * 4096 <= 16 << 20, "{}", report.cache.inserted);
    let cut = Node { clients: 1, link: 1000, nodes: 1, number: 1, downloads: 4, ..node() };
    let (four, _) = bytes(&looks(cut, 256, 12, &catalogue));
    assert!(four > served * 2, "{four} of four, {served} of one");
}

/// With memory for all of its files a node reads nothing any more.
#[test]
fn what_fits_is_read_once() {
    let catalogue = library(128);
    let seen = looks(Node { downloads: 0, ..node() }, 400, 400, &catalogue);
    let here = node().here(&catalogue);
    let library: u64 = catalogue
        .videos()
        .iter()
        .zip(here)
        .filter(|(_, here)| *here)
        .map(|(v, _)| v.size.0.next_multiple_of(4096))
        .sum();
    let (served, read) = bytes(&seen);
    assert!(read <= library, "{read} of {library}");
    assert!(served > 3 * library);
    assert_eq!(hit_ratio(&seen[seen.len() - 5..]), 1.0);
    assert!(hit_ratio(&seen[..1]) < 0.5);
    let (at, until) = back(&seen, 1.0, 0.9).unwrap();
    assert!(at > Nanos::from_secs(4) && until < served);
}

/// What downloads hold, the page cache has not. (Fewer downloads would not show it: what several of them take
/// from the same blocks counts as hits too.)
#[test]
fn downloads_take_from_the_memory() {
    let catalogue = library(768);
    let hits = |held, memory| {
        let any_order = seekless_reorder::Config { memory: Bytes::mib(held), ..node().any_order };
        let plan = Node { nodes: 1, number: 1, download_rate: 4e6, any_order, ..node() };
        hit_ratio(&looks(plan, memory, 200, &catalogue)[25..])
    };
    let (little, much, roomy) = (hits(8, 128), hits(96, 128), hits(96, 512));
    assert!(much < little && much < roomy, "{little} {much} {roomy}");
}

/// What a node has beyond its bound goes to the next.
#[test]
fn a_busy_node_passes_on() {
    let catalogue = library(256);
    let served = |bound, number| {
        let plan = Node { downloads: 0, bound, number, ..node() };
        bytes(&looks(plan, 96, 40, &catalogue)).0
    };
    let all = [1, 2, 3].map(|number| (served(1000.0, number), number));
    let (most, busiest) = all.into_iter().max().unwrap();
    let passing = served(1.0, busiest);
    assert!(passing < most, "{passing} of {most}");
}

/// While a node is away it serves nothing; its return begins with empty memory.
#[test]
fn a_killed_node_comes_back_cold() {
    let catalogue = library(128);
    let lost = Some((Nanos::from_secs(200), Nanos::from_secs(240)));
    let plan = Node { downloads: 1, lost, up: Nanos::from_secs(2), ..node() };
    let seen = looks(plan.clone(), 400, 400, &catalogue);
    assert_eq!(seen, looks(plan, 400, 400, &catalogue));
    let within = |from, to| -> Vec<Look> {
        let some = seen.iter().filter(|l| Nanos::from_secs(from) < l.at && l.at <= Nanos::from_secs(to));
        some.copied().collect()
    };
    assert_eq!(bytes(&within(204, 240)), (0, 0));
    let (before, back) = (hit_ratio(&within(180, 200)), hit_ratio(&within(240, 248)));
    assert!(before > 0.5 && back < before, "{before} before, {back} then");
    assert!(bytes(&within(380, 400)).0 > 0);
}

/// A disk twice as fast, with clients twice as fast, does in half the time what it did.
#[test]
fn twice_as_fast_takes_half_the_time() {
    let catalogue = library(256);
    let downloaded = |speedup: u64| {
        let plan = Node { clients: 1, link: 1000, nodes: 1, number: 1, downloads: 1, ..node() };
        let plan = Node { download_rate: 12.5e6 * speedup as f64, ..plan };
        let mut config = config(plan, 256, 40 / speedup);
        config.disks[0].speedup = speedup as f64;
        bytes(&serving::run(&config, &catalogue).unwrap().looks).0 as f64
    };
    let (once, twice) = (downloaded(1), downloaded(2));
    assert!((twice / once - 1.0).abs() < 0.1, "{once} and {twice}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is asked of it: the same seed gives the same bytes, no client gets what its link does not
    /// take, and what was served was read, from the disk or once before.
    #[test]
    fn the_books_balance(
        clients in 1u32..60, nodes in 1u32..5, number in 1u32..5, downloads in 0u32..5,
        memory in 64u64..300, link in 1u64..40,
    ) {
        let catalogue = library(192);
        let number = number.min(nodes);
        let plan = Node { clients, nodes, number, downloads, link: link * 1_000_000, ..node() };
        let once = looks(plan.clone(), memory, 20, &catalogue);
        prop_assert_eq!(&once, &looks(plan.clone(), memory, 20, &catalogue));
        prop_assert_eq!(once.len(), 5);
        let (served, read) = bytes(&once);
        let largest = catalogue.videos().iter().map(|v| v.size.0).max().unwrap() as f64;
        // An answer counts when all of it is in the socket.
        let takes = f64::from(clients) * (20.0 * link as f64 * 125e3 + 524_288.0) + f64::from(downloads) * (20.0 * 12.5e6 + largest);
        prop_assert!(served as f64 <= takes, "{} of {}", served, takes);
        prop_assert!(read as f64 <= 20.0 * 134e6, "{}", read);
        let here: u64 = catalogue.videos().iter().zip(plan.here(&catalogue)).filter(|(_, h)| *h).map(|(v, _)| v.size.0).sum();
        prop_assert!(here > 0 || (served, read) == (0, 0));
    }
}
