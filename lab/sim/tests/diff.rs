//! Parallel `diff -r` of source trees, in virtual time.

use seekless_base::{Bytes, Nanos};
use seekless_model::drive::catalogue as drives;
use seekless_model::drive::set::SetSpec;
use seekless_model::workload::catalogue::Catalogue;
use seekless_model::workload::sources;
use seekless_model::workload::tree::TreeFile;
use seekless_sim::serving::config::{Costs, DiskConfig, ServerModel};
use seekless_sim::serving::{self, Config, DiffLoad, KernelConfig, Load, Report};

const PAIRS: u32 = 2;
const FILES: u32 = 300;

fn catalogue() -> Catalogue {
    let files = sources::files(FILES, 1);
    let tree =
        |n: u32| files.iter().map(move |f| TreeFile { path: format!("tree{n}/{}", f.path), size: f.bytes });
    Catalogue::of_tree((0..2 * PAIRS).flat_map(tree).collect(), 1).unwrap()
}

fn run() -> Report {
    let all = 2 * PAIRS * FILES;
    let config = Config {
        disks: vec![DiskConfig {
            set: SetSpec::SINGLE,
            drive: drives::get("wd-red-1tb").unwrap(),
            size: Bytes::gib(100),
            speedup: 1.0,
        }],
        memory: Bytes::mib(256),
        kernel: KernelConfig::default(),
        server: ServerModel::handlers(),
        socket: Bytes::mib(1),
        engine: None,
        costs: Costs::default(),
        file_set: None,
        writer: None,
        load: Load::Diff(DiffLoad { pairs: PAIRS, files: FILES, written: (0..all).collect() }),
        warmup: Nanos::ZERO,
        length: Nanos::from_secs(3600),
    };
    serving::run(&config, &catalogue()).unwrap()
}

#[test]
fn every_file_of_every_pair_is_read_once_and_then_the_run_is_over() {
    let report = run();
    assert_eq!(report.requests, u64::from(PAIRS * FILES), "two files at a time");
    let pages = |v: &seekless_model::workload::catalogue::Video| v.size.0.next_multiple_of(4096);
    let bytes: u64 = catalogue().videos().iter().map(pages).sum();
    assert_eq!(report.disks[0].read_bytes, bytes);
    assert!(report.length_s < 3600.0, "{} s", report.length_s);
}
