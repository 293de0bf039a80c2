//! A program that writes beside the load, through page cache, scheduler and the drive's write cache.

use seekless_base::{Bytes, Nanos};
use seekless_model::drive::catalogue as drives;
use seekless_model::drive::set::SetSpec;
use seekless_model::workload::catalogue::{Catalogue, CatalogueSpec};
use seekless_model::workload::closed::{ClosedSpec, OtherDisks};
use seekless_policy::{AheadConfig, Config as PolicyConfig, Mode};
use seekless_sim::serving::config::{Costs, DiskConfig, EngineConfig, ServerModel};
use seekless_sim::serving::profile::profile_of;
use seekless_sim::serving::{
    self, Config, KernelConfig, Load, RecorderLoad, Report, WriterLoad, WriterReport, scheduler,
};

const DRIVE: &str = "wd-red-1tb";

fn catalogue() -> Catalogue {
    Catalogue::new(&CatalogueSpec { size: Some(Bytes::gib(4)), ..CatalogueSpec::default() }).unwrap()
}

/// So many clients of nginx with threads, and a writer.
/// So many clients in a closed loop, each behind a link of so many bits a second.
fn behind_links(clients: u32, spec: ClosedSpec, link: u64) -> Load {
    Load::Closed { clients, spec, other_disks: OtherDisks::Busy, link: Some(link) }
}

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
        writer: Some(WriterLoad { rate: rate_mb * 1e6, sync_every, file: Bytes::gib(2), recorder: None }),
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
    for (kind, mut config) in [
        ("none", config(20, 20.0, Some(Bytes::mib(16)))),
        ("mq-deadline", recorder(20, 20.0)),
        ("bfq", config(20, 20.0, Some(Bytes::mib(16)))),
    ] {
        config.kernel.scheduler = kind.parse().unwrap();
        config.length = Nanos::from_secs(20);
        let told = |report: &Report| format!("{}\n{}", report.load_json(), report.disks_json());
        assert_eq!(told(&run(&config).0), told(&run(&config).0), "{kind}");
    }
}

/// A recorder beside so many clients.
fn recorder(clients: u32, rate_mb: f64) -> Config {
    let mut config = config(clients, rate_mb, None);
    let recorder =
        RecorderLoad { cameras: 16, segment: Nanos::from_secs(4), journal: Nanos::from_millis(250) };
    let writer = config.writer.unwrap();
    config.writer = Some(WriterLoad { recorder: Some(recorder), ..writer });
    config
}

#[test]
fn a_recorder_alone_keeps_every_segment() {
    let (report, writer) = run(&recorder(0, 20.0));
    let r = writer.recorder.unwrap();
    assert!((0.98..1.02).contains(&writer.of_asked), "{writer:?}");
    // Sixteen cameras, a segment every four seconds, for forty.
    assert!(r.segments.abs_diff(160) <= 16, "{r:?}");
    assert_eq!((r.late, r.lost), (0, 0), "{r:?}");
    // A record every quarter of a second.
    assert!(r.fdatasyncs.abs_diff(160) <= 3, "{r:?}");
    // Cameras sync one after the other; a sync is at most two flushes, one of the journal's is one.
    let flushes = report.disks[0].flushes;
    assert!(flushes <= 2 * writer.fsyncs + r.fdatasyncs + 4, "{flushes}, {writer:?}");
}

#[test]
fn what_a_recorder_asks_for_beyond_its_disk_is_lost_and_every_segment_is_counted_once() {
    let mut config = recorder(0, 400.0);
    // Room for the segments of such cameras.
    config.disks[0].size = Bytes::gib(32);
    let (report, writer) = run(&config);
    let r = writer.recorder.unwrap();
    assert!(r.segments.abs_diff(160) <= 16, "{r:?}");
    assert!(r.late + r.lost <= r.segments && r.lost > r.segments / 2, "{r:?}");
    assert!((r.missed - (r.late + r.lost) as f64 / r.segments as f64).abs() < 1e-9, "{r:?}");
    let disk = report.disks[0].write_bytes as f64 / 40e6;
    assert!(writer.mb_per_s < 1.2 * disk, "{writer:?}, {disk} MB/s written");
}

#[test]
fn a_search_finds_the_slowest_viewers_beside_which_segments_are_missed() {
    let mut config = recorder(48, 15.0);
    let spec = ClosedSpec { random_start: true, ..ClosedSpec::default() };
    config.load = behind_links(48, spec, 40_000_000);
    let plan = serving::search::MissedSearch { missed: 0.1, precision: 0.1, runs: 8 };
    let mut told = Vec::new();
    let missed = |report: &Report| report.recorder().unwrap().missed;
    let found = serving::search_missed(&config, &catalogue(), &plan, |link, report| {
        told.push((link, missed(report)));
    });
    let (link, found) = found.unwrap();
    let lowest = told.iter().filter(|(_, missed)| *missed >= 0.1).map(|(link, _)| *link).min();
    assert!(told.len() > 2 && told.iter().any(|(_, missed)| *missed < 0.1), "{told:?}");
    assert_eq!(lowest, Some(link), "{told:?}");
    assert!(missed(&found) >= 0.1, "{told:?}");
    // Without links there is nothing to search for.
    let greedy = Config { load: Load::closed(1, ClosedSpec::default()), ..config };
    assert!(serving::search_missed(&greedy, &catalogue(), &plan, |_, _| ()).is_err());
}

#[test]
fn clients_of_a_closed_loop_take_no_more_than_their_links_carry() {
    let mut config = config(10, 5.0, None);
    config.load = behind_links(10, ClosedSpec::default(), 8_000_000);
    let (report, _) = run(&config);
    assert!((9.0..10.5).contains(&report.mb_per_s), "{} MB/s of 10", report.mb_per_s);
}
