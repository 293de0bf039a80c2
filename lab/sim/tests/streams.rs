//! Streams inside files, and programs that share them: peers of a torrent, connections of one download, two
//! programs over one tree.

use std::sync::Arc;

use seekless_base::{Bytes, Nanos};
use seekless_model::drive::catalogue as drives;
use seekless_model::drive::set::SetSpec;
use seekless_model::workload::catalogue::{Catalogue, CatalogueSpec};
use seekless_model::workload::closed::ClosedSpec;
use seekless_model::workload::tree::{FileOrder, Folders, TreeFile};
use seekless_policy::sizing::controller::Params;
use seekless_policy::{AheadConfig, Config as PolicyConfig, Mode, Sizing};
use seekless_sim::serving::config::{Costs, DiskConfig, Door, EngineConfig, ServerModel};
use seekless_sim::serving::{self, Config, KernelConfig, Load, ProgramWork, Report, SecondProgram, TreeLoad};

fn config(load: Load, door: Option<Door>) -> Config {
    let policy = PolicyConfig {
        mode: Mode::Both,
        sizing: Sizing::Auto(Params::default()),
        read_max: Bytes::mib(64),
        ahead: Some(AheadConfig::default()),
        ..PolicyConfig::default()
    };
    Config {
        disks: vec![DiskConfig {
            set: SetSpec::SINGLE,
            drive: drives::get("wd-red-1tb").unwrap(),
            size: Bytes::gib(9),
            speedup: 1.0,
        }],
        memory: Bytes::mib(512),
        kernel: KernelConfig::default(),
        server: ServerModel::handlers(),
        socket: Bytes::mib(1),
        engine: door.map(|door| EngineConfig { door, ..EngineConfig::of_shim(policy) }),
        costs: Costs::default(),
        load,
        file_set: None,
        writer: None,
        warmup: Nanos::ZERO,
        length: Nanos::from_secs(40),
    }
}

fn library() -> Catalogue {
    let spec = CatalogueSpec {
        size: Some(Bytes::gib(8)),
        file_size: Some(Bytes(500_000_001)),
        ..CatalogueSpec::default()
    };
    Catalogue::new(&spec).unwrap()
}

/// MB/s sent, and bytes read for each byte sent.
fn served(report: &Report) -> (f64, f64) {
    let read = report.disks[0].read_bytes as f64 / 1e6 / report.length_s;
    (report.mb_per_s, read / report.mb_per_s)
}

/// The torrent's pieces begin anywhere in its files, and nothing is known of them at first. `observe` learns
/// from what the kernel has read already, and reads beside it.
#[test]
fn peers_have_pieces_read_for_them_whole_and_about_once() {
    let catalogue = library();
    let run = |door: Option<Door>| {
        let load = Load::Handlers { clients: 100, handler: "piece-2mib-100".parse().unwrap(), seed: 1 };
        let server = ServerModel { random: true, ..ServerModel::handlers() };
        served(&serving::run(&Config { server, ..config(load, door) }, &catalogue).unwrap())
    };
    let (without, _) = run(None);
    for (door, gain, most) in [(Door::Shim, 2.0, 1.1), (Door::Watch, 2.0, 1.1), (Door::Observe, 1.0, 1.5)] {
        let (sent, read) = run(Some(door));
        println!("{door:?}: {sent:.1} of {without:.1} MB/s, {read:.3} bytes read for a byte sent");
        assert!(sent >= gain * without, "{door:?}: {sent:.1} of {without:.1} MB/s");
        assert!(read <= most, "{door:?}: {read:.3}");
    }
}

/// With an advice of random reads the kernel reads what is asked for, and no page more.
#[test]
fn the_kernel_reads_nothing_ahead_of_random_reads() {
    let catalogue = library();
    let load = Load::Handlers { clients: 20, handler: "blocks-2mib-100".parse().unwrap(), seed: 1 };
    let run = |random| {
        let server = ServerModel { random, ..ServerModel::handlers() };
        let config = Config { server, length: Nanos::from_secs(10), ..config(load.clone(), None) };
        served(&serving::run(&config, &catalogue).unwrap()).1
    };
    // Blocks of an unaligned torrent begin and end within pages.
    assert!((1.0..1.3).contains(&run(true)), "{}", run(true));
}

#[test]
fn parts_over_eight_connections_are_read_nearly_as_fast_as_in_order() {
    let catalogue = library();
    for door in [Door::Shim, Door::Watch] {
        let run = |connections| {
            let spec = ClosedSpec { range: Bytes::mib(8), connections, ..ClosedSpec::default() };
            let server = ServerModel::nginx_threads(2);
            let config = Config { server, ..config(Load::closed(4, spec), Some(door)) };
            serving::run(&config, &catalogue).unwrap().mb_per_s
        };
        let (in_order, any_order) = (run(1), run(8));
        println!("{door:?}: {any_order:.1} of {in_order:.1} MB/s");
        assert!(any_order >= 0.8 * in_order, "{door:?}: {any_order:.1} of {in_order:.1} MB/s");
    }
}

/// Both programs end, and what one of them reads the other finds in memory, if it is no slower than the disk.
#[test]
fn two_programs_over_one_tree_read_it_once_together() {
    let file = |i: u32| TreeFile { path: format!("d{}/f{i:03}", i / 20), size: 40_000_000 };
    let catalogue = Catalogue::of_tree((0..80).map(file).collect(), 1).unwrap();
    let run = |second: Option<f64>| {
        let work = |rate| ProgramWork { rate: Some(rate), ..ProgramWork::default() };
        let load = Load::Tree(TreeLoad {
            programs: 1,
            batch: u32::MAX,
            taking: FileOrder::Name,
            folders: Arc::new(Folders::of(catalogue.videos().iter().map(|v| &*v.path))),
            fresh: true,
            work: work(400e6),
            second: second.map(|rate| SecondProgram { after: Nanos::from_secs(1), work: work(rate) }),
            clients: (0, ClosedSpec::default()),
        });
        let length = Nanos::from_secs(1_000);
        let config = Config { server: ServerModel::checksums(), length, ..config(load, Some(Door::Shim)) };
        let report = serving::run(&config, &catalogue).unwrap();
        (report.length_s, report.disks[0].read_bytes as f64 / catalogue.total().0 as f64)
    };
    let (alone_s, alone) = run(None);
    let (both_s, both) = run(Some(200e6));
    assert!(alone <= 1.02 && both <= 1.2, "{alone:.2} and {both:.2} times the tree");
    assert!(both_s <= 1.3 * alone_s, "{both_s:.0} and {alone_s:.0} s");
}
