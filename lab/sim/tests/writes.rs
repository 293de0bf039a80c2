//! A program that writes beside the load, through page cache, scheduler and the drive's write cache.

use seekless_base::{Bytes, Nanos};
use seekless_model::drive::catalogue as drives;
use seekless_model::drive::set::SetSpec;
use seekless_model::workload::catalogue::{Catalogue, CatalogueSpec};
use seekless_model::workload::closed::ClosedSpec;
use seekless_policy::{AheadConfig, Config as PolicyConfig, Mode};
use seekless_sim::serving::config::{Costs, DiskConfig, EngineConfig, ServerModel};
use seekless_sim::serving::profile::profile_of;
use seekless_sim::serving::{self, Config, KernelConfig, Load, Report, WriterLoad, WriterReport, scheduler};

const DRIVE: &str = "wd-red-1tb";

fn catalogue() -> Catalogue {
    Catalogue::new(&CatalogueSpec { size: Some(Bytes::gib(4)), ..CatalogueSpec::default() }).unwrap()
}

/// So many clients of nginx with threads, and a writer.
fn config(clients: u32, rate_mb: f64, sync_every: Option<Bytes>) -> Config {
    Config {
        disks: vec![DiskConfig {
            set: SetSpec::SINGLE,
            drive: drives::get(DRIVE).unwrap(),
            size: Bytes::gib(8),
            speedup: 1.0,
        }],
        memory: Bytes::mib(512),
        kernel: KernelConfig {
            read_ahead: Bytes::kib(2560),
            scheduler: scheduler::Kind::Deadline,
            ..KernelConfig::default()
        },
        server: ServerModel::nginx_threads(2),
        socket: Bytes::mib(1),
        engine: None,
        costs: Costs::default(),
        load: Load::closed(clients, ClosedSpec::default()),
        file_set: None,
        writer: Some(WriterLoad { rate: rate_mb * 1e6, sync_every, file: Bytes::gib(2) }),
        warmup: Nanos::from_secs(10),
        length: Nanos::from_secs(50),
    }
}

fn seekless() -> Option<EngineConfig> {
    let profile = Some(profile_of(&drives::get(DRIVE).unwrap(), &SetSpec::SINGLE));
    let ahead = Some(AheadConfig::default());
    Some(EngineConfig::of_shim(PolicyConfig { mode: Mode::Both, ahead, profile, ..PolicyConfig::default() }))
}

fn run(config: &Config) -> (Report, WriterReport) {
    let report = serving::run(config, &catalogue()).unwrap();
    let writer = report.writer.unwrap();
    (report, writer)
}

#[test]
fn a_writer_alone_gets_what_it_asks_for() {
    for sync in [None, Some(Bytes::mib(32))] {
        let (report, writer) = run(&config(1, 20.0, sync));
        assert!((0.98..1.02).contains(&writer.of_asked), "{writer:?}");
        let synced = writer.mb_per_s * 40e6 / (32 << 20) as f64;
        let expected = if sync.is_some() { synced } else { 0.0 };
        assert!((writer.fsyncs as f64 - expected).abs() <= 2.0, "{writer:?}, {expected} expected");
        // A commit is two flushes.
        assert!(report.disks[0].flushes.abs_diff(2 * writer.fsyncs) <= 2, "{:?}", report.disks[0]);
    }
}

#[test]
fn a_writer_faster_than_the_disk_is_held_to_its_rate() {
    let mut config = config(1, 1_000.0, None);
    config.load = Load::closed(1, ClosedSpec { range: Bytes(4096), ..ClosedSpec::default() });
    let (report, writer) = run(&config);
    let media = drives::get(DRIVE).unwrap().media_rate(seekless_base::Lba(0)) / 1e6;
    let disk = report.disks[0].write_bytes as f64 / 40e6;
    assert!(writer.mb_per_s <= media, "{writer:?}");
    // What is dirty at the end is no more than a fifth of the memory.
    assert!((writer.mb_per_s - disk).abs() * 40.0 <= 0.2 * 537.0 + 1.0, "{writer:?}, {disk} MB/s written");
}

#[test]
fn without_a_write_cache_nothing_is_flushed() {
    let mut config = config(1, 10.0, Some(Bytes::mib(8)));
    config.disks[0].drive.buffer.write_cache_sectors = 0;
    let (report, writer) = run(&config);
    assert_eq!(report.disks[0].flushes, 0);
    assert!(writer.fsyncs > 40, "{writer:?}");
}

#[test]
fn writers_beside_readers_have_more_with_seekless_than_with_the_tuned_kernel() {
    let tuned = config(100, 25.0, Some(Bytes::mib(32)));
    let with = Config { engine: seekless(), kernel: KernelConfig::default(), ..tuned.clone() };
    let (tuned, with) = (run(&tuned), run(&with));
    println!("tuned {:.1} MB/s, {:?}", tuned.0.mb_per_s, tuned.1);
    println!("Seekless {:.1} MB/s, {:?}", with.0.mb_per_s, with.1);
    assert!(with.1.of_asked >= tuned.1.of_asked, "{:?} after {:?}", with.1, tuned.1);
    assert!(with.1.fsync_p99_ms <= tuned.1.fsync_p99_ms, "{:?} after {:?}", with.1, tuned.1);
    assert!(with.1.disk_share > 0.0 && with.1.disk_share < 1.0, "{:?}", with.1);
}

#[test]
fn one_seed_is_one_run() {
    for kind in ["none", "mq-deadline", "bfq"] {
        let mut config = config(20, 20.0, Some(Bytes::mib(16)));
        config.kernel.scheduler = kind.parse().unwrap();
        config.length = Nanos::from_secs(20);
        let told = |report: &Report| format!("{}\n{}", report.load_json(), report.disks_json());
        assert_eq!(told(&run(&config).0), told(&run(&config).0), "{kind}");
    }
}
