//! Sets of drives: where bytes lie, which member is read, how long it takes.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{read, spec};
use proptest::prelude::*;
use seekless_base::{Bytes, Lba, Nanos};
use seekless_model::drive::set::{DriveSet, Health, SetKind, SetLayout, SetSpec};
use seekless_model::drive::{Command, Drive, Op};

const CHUNK: Bytes = Bytes::kib(64);
const DRIVE: &str = "wd-red-1tb";

fn set_of(kind: SetKind, members: u32) -> SetSpec {
    SetSpec { kind, members, chunk: CHUNK, actuators: 1 }
}

fn drives(kind: SetKind, members: u32) -> DriveSet {
    DriveSet::new(&spec(DRIVE), set_of(kind, members)).unwrap()
}

/// Lets everything under way end; ids with when and whether they failed.
fn drain(set: &mut DriveSet) -> Vec<(u64, Nanos, bool)> {
    let mut all = Vec::new();
    while set.queue_len() > 0 {
        let at = set.next_event().expect("something is under way");
        while let Some(c) = set.poll(at) {
            all.push((c.done.id, c.done.finished, c.failed));
        }
    }
    all
}

/// MB/s of `total` bytes read in commands of `each`, `deep` at a time; each begins where `place` says.
fn rate(set: &mut DriveSet, each: u64, total: u64, deep: usize, place: impl Fn(u64) -> u64) -> f64 {
    let commands = total / each;
    let (mut sent, mut now) = (0, Nanos::ZERO);
    let mut ended = 0;
    while ended < commands {
        while sent < commands && sent - ended < deep as u64 {
            set.submit(now, read(sent, place(sent), (each / 512) as u32)).unwrap();
            sent += 1;
        }
        now = set.next_event().unwrap();
        while set.poll(now).is_some() {
            ended += 1;
        }
    }
    total as f64 / now.as_secs_f64() / 1e6
}

fn sequential(set: &mut DriveSet) -> f64 {
    rate(set, 1 << 20, 512 << 20, 8, |i| i * 2048)
}

#[test]
fn data_lie_where_md_puts_them() {
    // One row of members a line, chunk numbers of the data, as md(4) and its manuals draw them; `-` is
    // parity.
    let tables: [(SetKind, u32, &[&str]); 4] = [
        (SetKind::Raid0, 3, &["0 1 2", "3 4 5"]),
        (SetKind::Raid5, 4, &["0 1 2 -", "4 5 - 3", "8 - 6 7", "- 9 10 11", "12 13 14 -"]),
        (SetKind::Raid6, 5, &["- 0 1 2 -", "3 4 5 - -", "7 8 - - 6", "11 - - 9 10", "- - 12 13 14"]),
        (SetKind::Raid10, 4, &["0 0 1 1", "2 2 3 3"]),
    ];
    for (kind, members, rows) in tables {
        let layout = SetLayout::new(set_of(kind, members), 128 * 16).unwrap();
        for (row, text) in rows.iter().enumerate() {
            for (member, chunk) in text.split(' ').enumerate() {
                let Ok(chunk) = chunk.parse::<u64>() else { continue };
                let found = layout.locate(chunk * 128 + 5);
                assert_eq!(found.sector, row as u64 * 128 + 5, "{kind} chunk {chunk}");
                let first = text.split(' ').position(|c| c == chunk.to_string()).unwrap();
                assert_eq!(
                    (found.member, found.together),
                    (first as u32, 123),
                    "{kind} chunk {chunk} {member}"
                );
            }
        }
    }
}

#[test]
fn a_set_that_cannot_be_is_refused() {
    let wrong = |kind, members, chunk, actuators| {
        let set = SetSpec { kind, members, chunk, actuators };
        DriveSet::new(&spec(DRIVE), set).map(|_| ()).unwrap_err().to_string()
    };
    for (kind, few) in [(SetKind::Raid0, 1), (SetKind::Raid5, 2), (SetKind::Raid6, 3), (SetKind::Linear, 0)] {
        assert!(wrong(kind, few, CHUNK, 1).contains("members make no"), "{kind}");
    }
    assert!(wrong(SetKind::Raid0, 65, CHUNK, 1).contains("2 to 64"));
    for chunk in [Bytes(0), Bytes(4095), Bytes(6144), Bytes::mib(128)] {
        assert!(wrong(SetKind::Raid0, 4, chunk, 1).contains("chunk"), "{chunk}");
    }
    assert!(wrong(SetKind::Raid0, 4, CHUNK, 3).contains("1 or 2"));
    assert!(SetLayout::new(set_of(SetKind::Raid0, 2), 127).unwrap_err().contains("larger than a member"));
    assert!("raid7".parse::<SetKind>().unwrap_err().contains("raid10"));
    let mut set = drives(SetKind::Raid0, 2);
    assert!(set.rebuild(Nanos::ZERO, 1).unwrap_err().to_string().contains("nothing to rebuild"));
    assert!(set.fail(Nanos::ZERO, 2).unwrap_err().to_string().contains("0 to 1"));
}

#[test]
fn capacities_are_those_of_the_members_that_hold_data() {
    let one = Drive::new(&spec(DRIVE)).sectors() / 128;
    for (kind, members, data) in [
        (SetKind::Raid0, 4, 4 * one),
        (SetKind::Raid10, 4, 2 * one),
        (SetKind::Raid10, 3, one * 3 / 2),
        (SetKind::Raid5, 4, 3 * one),
        (SetKind::Raid6, 6, 4 * one),
    ] {
        assert_eq!(drives(kind, members).sectors(), data * 128, "{kind} of {members}");
    }
    let whole = Drive::new(&spec(DRIVE)).sectors();
    assert_eq!(drives(SetKind::Raid1, 3).sectors(), whole);
    assert_eq!(drives(SetKind::Linear, 3).sectors(), 3 * whole);
}

#[test]
fn sequential_reads_run_at_the_rate_of_the_members_that_bring_data() {
    let one = sequential(&mut drives(SetKind::Linear, 1));
    // RAID 5 and 6 pass over parity; a near-2 RAID 10 reads half of what each member holds, or every second
    // chunk of all.
    for (kind, members, least, most) in [
        (SetKind::Raid0, 4, 3.8, 4.05),
        (SetKind::Raid1, 2, 0.9, 2.05),
        (SetKind::Raid10, 4, 1.9, 4.05),
        (SetKind::Raid5, 4, 2.7, 4.05),
        (SetKind::Raid6, 6, 3.4, 6.05),
        (SetKind::Linear, 4, 0.98, 1.02),
    ] {
        let got = sequential(&mut drives(kind, members)) / one;
        println!("{kind} of {members}: {got:.2} times one drive");
        assert!((least..most).contains(&got), "{kind} of {members}: {got:.2} times one drive");
    }
}

#[test]
fn random_reads_use_every_spindle_when_there_are_enough_of_them() {
    let random = |set: &mut DriveSet, deep| {
        let whole = set.sectors() - 128;
        // Steps of the golden ratio: far apart, over everything.
        let place =
            move |i: u64| ((i as f64 * 0.618_033_988_749_894_9).fract() * whole as f64) as u64 / 128 * 128;
        rate(set, 65536, 600 * 65536, deep, place)
    };
    let one = random(&mut drives(SetKind::Linear, 1), 1);
    for (kind, members) in [
        (SetKind::Raid0, 4),
        (SetKind::Raid1, 4),
        (SetKind::Raid10, 4),
        (SetKind::Raid5, 4),
        (SetKind::Linear, 4),
    ] {
        let serial = random(&mut drives(kind, members), 1) / one;
        let deep = random(&mut drives(kind, members), 16) / one;
        println!("{kind}: {serial:.2} with one, {deep:.2} with 16 in flight");
        assert!((0.9..1.6).contains(&serial), "{kind}: one at a time is one drive's rate: {serial:.2}");
        assert!(deep > 2.5, "{kind}: {deep:.2} times one drive");
    }
    let two = DriveSet::new(&spec(DRIVE), SetSpec { actuators: 2, ..SetSpec::SINGLE });
    let deep = random(&mut two.unwrap(), 16) / one;
    assert!(deep > 1.6, "two actuators: {deep:.2}");
}

#[test]
fn a_slow_member_slows_what_it_holds() {
    let one = sequential(&mut drives(SetKind::Raid0, 4));
    let mut slowed = drives(SetKind::Raid0, 4);
    slowed.slow(Nanos::ZERO, 2, 3.0).unwrap();
    assert_eq!(slowed.slowness().collect::<Vec<_>>(), [1.0, 1.0, 3.0, 1.0]);
    let slow = sequential(&mut slowed);
    assert!((2.7..3.2).contains(&(one / slow)), "{one} {slow}");
    slowed.mend(Nanos::from_secs(1000), 2).unwrap();
    assert_eq!(slowed.slowness().collect::<Vec<_>>(), [1.0; 4]);
}

#[test]
fn a_failed_member_is_made_up_for_or_its_bytes_are_lost() {
    for (kind, members, survives) in [
        (SetKind::Raid0, 4, 0),
        (SetKind::Linear, 2, 0),
        (SetKind::Raid1, 3, 2),
        (SetKind::Raid10, 4, 1),
        (SetKind::Raid5, 4, 1),
        (SetKind::Raid6, 5, 2),
    ] {
        let mut set = drives(kind, members);
        for failed in 0..=survives {
            set.fail(Nanos::ZERO, failed).unwrap();
            // Everything a member could hold: four stripes of rows, of every member.
            let whole = if kind == SetKind::Linear { set.sectors() - 2048 } else { 0 };
            set.submit(Nanos::ZERO, read(1, 0, 128 * 5 * members)).unwrap();
            set.submit(Nanos::ZERO, read(2, whole, 2048)).unwrap();
            let lost = drain(&mut set).into_iter().any(|c| c.2);
            // Two of a RAID 10 are lost if they are a pair: 0 and 1 are.
            assert_eq!(lost, failed >= survives, "{kind}: {} failed", failed + 1);
        }
    }
}

#[test]
fn a_rebuild_ends_and_what_it_wrote_is_read_again() {
    // The smallest drive of the catalogue, so that all of it is rebuilt here.
    let small = spec("cheetah-9lp");
    for (kind, members) in
        [(SetKind::Raid1, 2), (SetKind::Raid10, 4), (SetKind::Raid5, 3), (SetKind::Raid6, 4)]
    {
        let mut set = DriveSet::new(&small, set_of(kind, members)).unwrap();
        set.rebuild(Nanos::ZERO, 1).unwrap();
        set.poll(Nanos::from_secs(2));
        let Health::Rebuilding(upto) = set.health()[1] else { panic!("{kind}: {:?}", set.health()) };
        assert!(upto > 0, "{kind}: it went on while nothing asked");
        let before = set.stats(Nanos::from_secs(2));
        // A busy set rebuilds slowly, and the member is not read beyond.
        let mut now = Nanos::from_secs(2);
        for i in 0..200 {
            set.submit(now, read(i, set.sectors() - 4096 - i * 256, 256)).unwrap();
            while set.queue_len() > 0 {
                now = set.next_event().unwrap();
                while set.poll(now).is_some_and(|c| !c.failed) {}
            }
        }
        let reads = |stats: &[seekless_model::drive::set::SpindleStats]| stats[1].reads;
        assert_eq!(reads(&set.stats(now)), reads(&before), "{kind}");
        let mut at = now;
        while set.health()[1] != Health::Whole {
            at += Nanos::from_secs(30);
            set.poll(at);
            assert!(at < Nanos::from_secs(36_000), "{kind} is never done");
        }
        let stats = set.stats(at);
        let all = set.layout().member_sectors() * 512;
        assert_eq!((stats[1].write_bytes, stats[1].rebuild_bytes), (all, all), "{kind}: each sector once");
        set.submit(at, read(1, 0, 1024 * members)).unwrap();
        drain(&mut set);
        let served = set.stats(at + Nanos::from_secs(1))[1].reads;
        // A mirror may leave it to the other side.
        assert!(served > 0 || kind == SetKind::Raid1, "{kind}");
    }
}

#[test]
fn a_write_to_part_of_a_stripe_reads_before_it_writes() {
    let write = |lba, sectors| Command { id: 1, op: Op::Write, lba: Lba(lba), sectors };
    // Kind, members, sectors written, members read and written.
    for (kind, members, sectors, reads, writes) in [
        (SetKind::Raid0, 4, 64, 0, 1),
        (SetKind::Raid1, 3, 64, 0, 3),
        (SetKind::Raid10, 4, 64, 0, 2),
        (SetKind::Raid5, 4, 64, 2, 2),
        (SetKind::Raid5, 4, 128 * 3, 0, 4),
        (SetKind::Raid6, 6, 64, 3, 3),
        (SetKind::Raid6, 6, 128 * 4, 0, 6),
    ] {
        let mut set = drives(kind, members);
        set.submit(Nanos::ZERO, write(0, sectors)).unwrap();
        drain(&mut set);
        let stats = set.stats(Nanos::from_secs(1));
        let (r, w) =
            (stats.iter().filter(|s| s.reads > 0).count(), stats.iter().filter(|s| s.writes > 0).count());
        assert_eq!((r, w), (reads, writes), "{kind}, {sectors} sectors");
    }
}

fn kinds() -> impl Strategy<Value = SetSpec> {
    (0..SetKind::ALL.len(), 0u32..5, 1u64..5, 1u32..=2).prop_map(|(kind, more, chunk, actuators)| {
        let kind = SetKind::ALL[kind];
        SetSpec { kind, members: kind.members_min() + more, chunk: Bytes::kib(4 * chunk), actuators }
    })
}

proptest! {
    #[test]
    fn every_sector_has_one_place_and_no_two_share_it(set in kinds(), member in 40u64..300) {
        let layout = SetLayout::new(set, member).unwrap();
        prop_assert!(layout.member_sectors() <= member);
        let mut seen = BTreeSet::new();
        for sector in 0..layout.sectors() {
            let at = layout.locate(sector);
            prop_assert!(at.member < set.members && at.sector < layout.member_sectors(), "{at:?}");
            prop_assert!(seen.insert((at.member, at.sector)), "two sectors at {at:?}");
            let last = layout.locate((sector + at.together - 1).min(layout.sectors() - 1));
            prop_assert!(at.together >= 1 && last.member == at.member);
        }
        let room = layout.member_sectors() * u64::from(set.members);
        prop_assert!(layout.sectors() <= room && seen.len() as u64 == layout.sectors());
    }

    #[test]
    fn every_byte_is_read_once_and_a_failed_member_never(
        set in kinds(),
        reads in proptest::collection::vec((0u64..1 << 22, 1u32..3000), 1..6),
        failed in proptest::option::of(0u32..3),
    ) {
        let mut drives = DriveSet::new(&spec("cheetah-9lp"), set).unwrap();
        let failed = failed.filter(|_| set.kind.is_redundant());
        if let Some(member) = failed {
            drives.fail(Nanos::ZERO, member % set.members).unwrap();
        }
        let (mut sectors, mut answers) = (0, BTreeMap::new());
        for (i, &(lba, len)) in reads.iter().enumerate() {
            while drives.submit(Nanos::ZERO, read(i as u64, lba, len)).is_err() {
                answers.extend(drain(&mut drives).into_iter().map(|c| (c.0, c.2)));
            }
            sectors += u64::from(len);
        }
        answers.extend(drain(&mut drives).into_iter().map(|c| (c.0, c.2)));
        prop_assert!(answers.len() == reads.len() && answers.values().all(|failed| !failed));
        let stats = drives.stats(Nanos::from_secs(1));
        let bytes: u64 = stats.iter().map(|s| s.read_bytes).sum();
        match failed {
            None => prop_assert_eq!(bytes, sectors * 512),
            Some(member) => {
                let each = set.actuators as usize;
                let member = (member % set.members) as usize;
                let of = &stats[member * each..(member + 1) * each];
                prop_assert!(of.iter().all(|s| s.reads + s.writes == 0), "{of:?}");
                let mirrors = matches!(set.kind, SetKind::Raid1 | SetKind::Raid10);
                // A stripe in parts may be read whole, and no more than that.
                prop_assert!(bytes >= sectors * 512 && (!mirrors || bytes == sectors * 512));
            }
        }
    }

    #[test]
    fn every_command_ends_once_whatever_happens_to_the_members(
        set in kinds(),
        deeds in proptest::collection::vec((0u64..1 << 22, 1u32..2000, any::<bool>(), 0u8..8, 0u32..4, 0u64..40), 1..30),
    ) {
        let mut drives = DriveSet::new(&spec("cheetah-9lp"), set).unwrap();
        let (mut now, mut sent, mut ended) = (Nanos::ZERO, BTreeSet::new(), BTreeSet::new());
        for (i, (lba, len, is_read, deed, member, wait)) in deeds.into_iter().enumerate() {
            now += Nanos::from_millis(wait);
            let member = member % set.members;
            match deed {
                0 => drives.fail(now, member).unwrap(),
                1 => drives.mend(now, member).unwrap(),
                2 => drives.slow(now, member, 3.5).unwrap(),
                3 => { let _ = drives.rebuild(now, member); }
                _ => {
                    let op = if is_read { Op::Read } else { Op::Write };
                    let id = i as u64;
                    if drives.submit(now, Command { id, op, lba: Lba(lba), sectors: len }).is_ok() {
                        sent.insert(id);
                    }
                }
            }
            while let Some(c) = drives.poll(now) {
                prop_assert!(ended.insert(c.done.id), "twice");
                prop_assert!(c.done.finished <= now && c.done.arrived <= c.done.finished);
            }
        }
        for (id, ..) in drain(&mut drives) {
            prop_assert!(ended.insert(id), "twice");
        }
        prop_assert_eq!(sent, ended);
    }

    #[test]
    fn a_set_of_one_drive_is_that_drive(
        reads in proptest::collection::vec((0u64..1 << 24, 1u32..2048, 0u64..30, any::<bool>()), 1..40),
    ) {
        let spec = spec(DRIVE);
        let (mut drive, mut set) = (Drive::new(&spec), DriveSet::new(&spec, SetSpec::SINGLE).unwrap());
        prop_assert_eq!(set.sectors(), drive.sectors());
        let mut now = Nanos::ZERO;
        let (mut of_drive, mut of_set) = (Vec::new(), Vec::new());
        for (i, (lba, sectors, wait, is_read)) in reads.into_iter().enumerate() {
            now += Nanos::from_millis(wait);
            let op = if is_read { Op::Read } else { Op::Write };
            let command = Command { id: i as u64, op, lba: Lba(lba), sectors };
            prop_assert_eq!(drive.submit(now, command), set.submit(now, command));
            of_drive.extend(std::iter::from_fn(|| drive.poll(now)));
            of_set.extend(std::iter::from_fn(|| set.poll(now)).map(|c| c.done));
        }
        of_drive.extend(std::iter::from_fn(|| drive.poll(Nanos::from_secs(100))));
        of_set.extend(std::iter::from_fn(|| set.poll(Nanos::from_secs(100))).map(|c| c.done));
        prop_assert_eq!(of_drive, of_set);
    }
}

#[test]
fn members_hold_what_their_drives_have_no_room_for() {
    let mut one = drives(SetKind::Linear, 1);
    assert_eq!(one.accepts(), one.depth());
    let mut mirrors = drives(SetKind::Raid1, 4);
    assert!(mirrors.accepts() > mirrors.depth());
    for set in [&mut one, &mut mirrors] {
        let room = set.accepts() as u64;
        for id in 0..room {
            set.submit(Nanos::ZERO, read(id, id * 4096, 8)).unwrap();
        }
        assert!(set.submit(Nanos::ZERO, read(room, 0, 8)).is_err(), "one more than fits");
        assert_eq!(drain(set).len() as u64, room);
    }
}

#[test]
fn a_long_piece_leaves_the_other_mirrors_to_others() {
    // Each piece is many commands, all handed over at once. The second has a member for itself at once, and
    // does not wait until most of the first has been read.
    let mut set = drives(SetKind::Raid1, 2);
    let piece = |from: u64| (0..64).map(move |i| read(from + i, (from << 20) + i * 1024, 1024));
    piece(0).chain(piece(64)).for_each(|command| set.submit(Nanos::ZERO, command).unwrap());
    let all = drain(&mut set);
    let last = |ids: std::ops::Range<u64>| {
        all.iter().filter(|(id, ..)| ids.contains(id)).map(|&(_, at, _)| at).max().unwrap()
    };
    let (first, second) = (last(0..64), last(64..128));
    let ratio = second.as_secs_f64() / first.as_secs_f64();
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
    let read: Vec<u64> = set.stats(first.max(second)).iter().map(|s| s.read_bytes).collect();
    assert_eq!(read, [32 << 20, 32 << 20]);
}
