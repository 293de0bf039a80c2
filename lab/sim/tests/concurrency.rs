//! How many pieces a device bears at once, found on modelled drives and sets of them.

use seekless_base::{Bytes, Nanos};
use seekless_model::drive::set::{DriveSet, SetKind, SetSpec};
use seekless_model::drive::{Command, DriveSpec, Op, catalogue};
use seekless_policy::profile::{Concurrency, PIECE, piece};

/// Runs the stages as the engine does: so many reads under way, each followed by the next. Also how long all
/// of it took.
fn found(drive: &DriveSpec, set: SetSpec) -> (usize, Nanos) {
    let mut drives = DriveSet::new(drive, set).unwrap();
    let (mut found, mut now, mut id) = (Concurrency::default(), Nanos::ZERO, 0);
    while let Some((deep, reads)) = found.next() {
        let began = now;
        let (mut sent, mut ended) = (0, 0);
        while ended < reads {
            while sent < reads && sent - ended < deep {
                let lba = piece(drives.capacity(), id);
                let command = Command { id: id as u64, op: Op::Read, lba, sectors: (PIECE.0 / 512) as u32 };
                if drives.submit(now, command).is_err() {
                    // A drive without a queue: the next waits in the host.
                    break;
                }
                (sent, id) = (sent + 1, id + 1);
            }
            now = drives.next_event().expect("a read is under way");
            while drives.poll(now).is_some() {
                ended += 1;
            }
        }
        found.observe(Bytes(PIECE.0 * reads as u64), now - began);
    }
    (found.at_once(), now)
}

#[test]
fn one_spindle_bears_one_piece_whatever_its_queue() {
    let drawn = (1..=24).map(|i| format!("drawn:7:{i}"));
    for name in catalogue::names().map(str::to_owned).chain(drawn) {
        let drive = catalogue::find(&name).unwrap();
        let (at_once, took) = found(&drive, SetSpec::SINGLE);
        assert_eq!(at_once, 1, "{name}");
        // Drives of the nineties transfer a piece in a tenth of a second; the engine's own bound ends it
        // there.
        let modern = drive.media_rate(seekless_base::Lba(0)) > 80e6;
        assert!(!modern || took < Nanos::from_millis(900), "{name}: {took}");
    }
}

#[test]
fn mirrors_and_members_side_by_side_bear_a_piece_each() {
    for name in ["wd-red-1tb", "cheetah-9lp", "drawn:7:3", "drawn:7:11"] {
        let drive = catalogue::find(name).unwrap();
        let of = |kind, members| found(&drive, SetSpec { kind, members, ..SetSpec::SINGLE }).0;
        assert_eq!(of(SetKind::Raid1, 2), 2, "{name}: two mirrors");
        assert_eq!(of(SetKind::Raid1, 4), 4, "{name}: four mirrors");
        assert!(of(SetKind::Linear, 4) >= 2, "{name}: one behind the other");
        assert!(of(SetKind::Raid10, 4) >= 2, "{name}: pairs");
        // One piece is brought by two members of four; never more are found than there are.
        assert!((1..=4).contains(&of(SetKind::Raid0, 4)), "{name}: stripes");
        let two = found(&drive, SetSpec { actuators: 2, ..SetSpec::SINGLE }).0;
        assert!((1..=2).contains(&two), "{name}: two actuators: {two}");
    }
}

#[test]
fn a_device_that_stops_answering_is_taken_for_one_spindle() {
    let mut found = Concurrency::default();
    assert_eq!((found.at_once(), found.next()), (1, Some((1, 6))));
    found.observe(Bytes(0), Nanos(0));
    assert_eq!((found.at_once(), found.next()), (1, Some((2, 12))));
    found.observe(Bytes(0), Nanos::from_secs(60));
    assert_eq!((found.at_once(), found.next()), (1, None));
}
