//! Sets of drives in the serving simulator: what pieces at once bring, and what they do not.

use seekless_base::{Bytes, Lba, Nanos};
use seekless_model::drive::catalogue as drives;
use seekless_model::drive::set::{DriveSet, SetKind, SetSpec};
use seekless_model::workload::catalogue::{Catalogue, CatalogueSpec};
use seekless_model::workload::closed::ClosedSpec;
use seekless_policy::sizing::controller::Params;
use seekless_policy::{AheadConfig, Config as PolicyConfig, Mode, Sizing};
use seekless_sim::serving::config::{Costs, DiskConfig, EngineConfig, FileSetLoad, ServerModel};
use seekless_sim::serving::profile::profile_of;
use seekless_sim::serving::{self, Config, KernelConfig, Load, Report};

const DRIVE: &str = "wd-red-1tb";

fn of(kind: SetKind, members: u32) -> SetSpec {
    SetSpec { kind, members, ..SetSpec::SINGLE }
}

/// A hundred clients in a closed loop on a set of the drive [`DRIVE`]; `change` is made to settings of one
/// piece at a time.
fn served(set: SetSpec, change: impl FnOnce(&mut PolicyConfig)) -> Report {
    served_by(DRIVE, set, change)
}

/// The same on any drive.
fn served_by(drive: &str, set: SetSpec, change: impl FnOnce(&mut PolicyConfig)) -> Report {
    served_beside(drive, set, change, 100, None)
}

/// The same with so many clients, beside a program with a file set.
fn served_beside(
    drive: &str,
    set: SetSpec,
    change: impl FnOnce(&mut PolicyConfig),
    clients: u32,
    file_set: Option<FileSetLoad>,
) -> Report {
    let library = CatalogueSpec { size: Some(Bytes::gib(40)), ..CatalogueSpec::default() };
    let drive = drives::find(drive).unwrap();
    let mut policy = PolicyConfig {
        mode: Mode::Both,
        ahead: Some(AheadConfig::default()),
        sizing: Sizing::Auto(Params::default()),
        read_max: Bytes::mib(32),
        profile: Some(profile_of(&drive, &set)),
        ..PolicyConfig::default()
    };
    change(&mut policy);
    let config = Config {
        disks: vec![DiskConfig { drive, set, size: Bytes::gib(48), speedup: 1.0 }],
        memory: Bytes::gib(1),
        kernel: KernelConfig::default(),
        server: ServerModel::threads(),
        socket: Bytes::mib(1),
        engine: Some(EngineConfig::of_shim(policy)),
        costs: Costs::default(),
        load: Load::closed(clients, ClosedSpec { range: Bytes::kib(512), ..ClosedSpec::default() }),
        file_set,
        writer: None,
        warmup: Nanos::from_secs(10),
        length: Nanos::from_secs(30),
    };
    serving::run(&config, &Catalogue::new(&library).unwrap()).unwrap()
}

fn rate(set: SetSpec, change: impl FnOnce(&mut PolicyConfig)) -> f64 {
    let report = served(set, change);
    println!("{set}: {:.1} MB/s, {:?}", report.mb_per_s, report.latency_ms.get("p99"));
    report.mb_per_s
}

#[test]
fn mirrors_bring_a_piece_each() {
    let one = rate(of(SetKind::Raid1, 4), |_| {});
    let four = rate(of(SetKind::Raid1, 4), |c| c.in_flight = 4);
    assert!(four > 2.0 * one, "{one} {four}");
    let (one, two) =
        (rate(of(SetKind::Raid10, 4), |_| {}), rate(of(SetKind::Raid10, 4), |c| c.in_flight = 2));
    assert!(two > 1.3 * one, "{one} {two}");
}

#[test]
fn parts_with_heads_of_their_own_have_a_queue_each() {
    let set = of(SetKind::Linear, 4);
    let each = DriveSet::new(&drives::get(DRIVE).unwrap(), set).unwrap().sectors() / 4;
    let one = rate(set, |_| {});
    let sweep = rate(set, |c| c.in_flight = 4);
    let parts = rate(set, |c| c.parts = (1..4).map(|i| Lba(i * each)).collect());
    assert!(parts > 1.8 * one && parts > 1.8 * sweep, "{one} {sweep} {parts}");
}

#[test]
fn a_file_set_keeps_every_part_busy() {
    let load = FileSetLoad { window: Bytes::mib(64), range: Bytes::mib(2), rate: 4e9 };
    let rate = |set: SetSpec, parts: u64| {
        let all = DriveSet::new(&drives::get(DRIVE).unwrap(), set).unwrap().sectors();
        let change = |c: &mut PolicyConfig| c.parts = (1..parts).map(|i| Lba(i * (all / parts))).collect();
        let of_set = served_beside(DRIVE, set, change, 0, Some(load)).file_set.unwrap().mb_per_s;
        println!("{set} as {parts}: {of_set:.1} MB/s");
        of_set
    };
    let (one, four) = (rate(SetSpec::SINGLE, 1), rate(of(SetKind::Linear, 4), 4));
    assert!(four > 3.0 * one, "four disks {four}, one {one}");
}

#[test]
fn members_of_a_stripe_bring_one_long_piece_together() {
    let set = of(SetKind::Raid0, 4);
    let single = rate(SetSpec::SINGLE, |_| {});
    let one = rate(set, |_| {});
    assert!(one > 2.2 * single, "{single} {one}");
    let few = rate(set, |c| c.in_flight = 4);
    assert!(few > 0.95 * one, "{one} {few}");
    let fixed = |size, pieces| {
        rate(set, |c| {
            (c.sizing, c.prefetch, c.in_flight) = (Sizing::Fixed, Bytes::mib(size), pieces);
        })
    };
    // The same bytes under way.
    let (long, short) = (fixed(8, 1), fixed(2, 4));
    assert!(long > 1.2 * short, "{long} {short}");
}

#[test]
fn a_set_that_is_busy_from_the_start_is_found_by_its_load() {
    for (kind, at_once) in [(SetKind::Raid1, 4), (SetKind::Raid10, 2)] {
        let known = rate(of(kind, 4), |c| c.in_flight = at_once);
        let found = rate(of(kind, 4), |c| c.find_in_flight = true);
        assert!(found > 0.9 * known, "{kind:?}: {known} {found}");
    }
}

#[test]
fn trials_cost_a_single_spindle_next_to_nothing() {
    let drawn = (1..=12).map(|i| format!("drawn:31:{i}"));
    let large = |drive: &String| drives::find(drive).unwrap().capacity() >= Bytes::gib(60);
    for drive in drawn.filter(large).chain([DRIVE.into()]) {
        let served = |find| {
            let report = served_by(&drive, SetSpec::SINGLE, |c| c.find_in_flight = find);
            (report.mb_per_s, report.engines[0].at_once)
        };
        let ((without, _), (with, at_once)) = (served(false), served(true));
        println!("{drive}: {without:.1} {with:.1} MB/s");
        assert_eq!(at_once, 1, "{drive}");
        assert!(with > 0.97 * without, "{drive}: {without} {with}");
    }
}

#[test]
fn a_set_counts_what_each_member_did() {
    let report = served(of(SetKind::Raid5, 4), |_| {});
    let disk = &report.disks[0];
    let read: u64 = disk.members.iter().map(|m| m.read_bytes).sum();
    assert_eq!(disk.members.len(), 4);
    // Commands under way at either end of the measurement are in one of the two counts.
    assert!(read.abs_diff(disk.read_bytes) < disk.read_bytes / 20, "{read} {}", disk.read_bytes);
    assert!(served(SetSpec::SINGLE, |_| {}).disks[0].members.is_empty());
}
