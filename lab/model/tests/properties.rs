//! What holds for any drive and any sequence of commands.

mod common;

use std::collections::BTreeMap;

use proptest::prelude::*;
use seekless_base::{Lba, Nanos};
use seekless_model::drive::{Command, Completion, Drive, Op, Shingled, catalogue};

#[derive(Clone, Debug)]
struct Step {
    gap_us: u64,
    op: Op,
    place: f64,
    near: bool,
    sectors: u32,
    poll: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..30_000u64, 0..10u8, 0.0..1.0f64, any::<bool>(), 1..3000u32, any::<bool>()).prop_map(
        |(gap_us, what, place, near, sectors, poll)| Step {
            gap_us,
            op: [Op::Write, Op::Write, Op::Write, Op::Flush].get(what as usize).map_or(Op::Read, |op| *op),
            place,
            near,
            sectors,
            poll,
        },
    );
    prop::collection::vec(step, 1..60)
}

fn drive(pick: usize, write_cache: u32, minimum_fetch: u32) -> Drive {
    let names: Vec<_> = catalogue::names().collect();
    let mut spec = common::spec(names[pick % names.len()]);
    spec.queue.depth = 64;
    spec.buffer.write_cache_sectors = write_cache;
    spec.buffer.minimum_fetch_sectors = minimum_fetch;
    Drive::new(&spec)
}

/// Runs the steps; `eager` polls when a step says so, otherwise only at the end. Stops at a full queue.
fn run(mut drive: Drive, steps: &[Step], eager: bool) -> (BTreeMap<u64, Command>, Vec<Completion>) {
    let (mut sent, mut done) = (BTreeMap::new(), Vec::new());
    let (mut now, mut last) = (Nanos::ZERO, 0u64);
    for (i, s) in steps.iter().enumerate() {
        now += Nanos::from_micros(s.gap_us) + Nanos(i as u64);
        let lba = if s.near { last } else { (s.place * drive.sectors() as f64) as u64 };
        last = (lba + u64::from(s.sectors)).min(drive.sectors() - 1);
        let command = Command { id: i as u64, op: s.op, lba: Lba(lba), sectors: s.sectors };
        if drive.submit(now, command).is_ok() {
            sent.insert(command.id, command);
        }
        if eager && s.poll {
            loop {
                let next = drive.next_completion();
                let Some(c) = drive.poll(now) else {
                    assert!(next.is_none_or(|t| t > now), "promised for {next:?}, not there at {now}");
                    break;
                };
                assert_eq!(Some(c.finished), next);
                done.push(c);
            }
        }
    }
    (sent, finish(drive, done))
}

fn finish(mut drive: Drive, mut done: Vec<Completion>) -> Vec<Completion> {
    while let Some(when) = drive.next_completion() {
        let c = drive.poll(when).expect("it said so");
        assert_eq!(c.finished, when);
        done.push(c);
    }
    assert_eq!(drive.queue_len(), 0);
    done
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_command_completes_once_in_order_and_its_times_add_up(
        steps in steps(), pick in 0..64usize, write_cache in 0..6000u32, fetch in 0..2000u32,
    ) {
        let drive = drive(pick, write_cache, fetch);
        let (sent, done) = run(drive, &steps, false);
        prop_assert_eq!(sent.len(), done.len());
        let mut seen = BTreeMap::new();
        let mut before = Nanos::ZERO;
        for c in &done {
            prop_assert!(seen.insert(c.id, ()).is_none(), "{} completed twice", c.id);
            let command = sent[&c.id];
            prop_assert_eq!((c.op, c.lba, c.sectors), (command.op, command.lba, command.sectors));
            prop_assert!(c.arrived <= c.started && c.started <= c.finished);
            prop_assert!(before <= c.finished);
            before = c.finished;
            let s = c.service;
            prop_assert_eq!(s.overhead + s.seek + s.rotation + s.transfer, c.finished.since(c.started));
        }
    }

    #[test]
    fn polling_changes_nothing(steps in steps(), pick in 0..64usize, write_cache in 0..6000u32, fetch in 0..2000u32) {
        let (_, mut late) = run(drive(pick, write_cache, fetch), &steps, false);
        let (_, mut eager) = run(drive(pick, write_cache, fetch), &steps, true);
        late.sort_by_key(|c| c.id);
        eager.sort_by_key(|c| c.id);
        prop_assert_eq!(late, eager);
    }

    #[test]
    fn the_write_cache_keeps_its_bound_and_a_flush_empties_it(
        steps in steps(), pick in 0..64usize, write_cache in 1..6000u32, band in 0..3u32,
    ) {
        let names: Vec<_> = catalogue::names().collect();
        let mut spec = common::spec(names[pick % names.len()]);
        spec.queue.depth = 64;
        spec.buffer.write_cache_sectors = write_cache;
        spec.shingled = (band > 0).then_some(Shingled { band_sectors: 4096 * band });
        let mut drive = Drive::new(&spec);
        let (mut now, mut flush) = (Nanos::ZERO, None);
        for (i, s) in steps.iter().enumerate() {
            now += Nanos::from_micros(s.gap_us) + Nanos(i as u64);
            let lba = Lba((s.place * drive.sectors() as f64) as u64);
            // Nothing goes to the drive behind a flush until it is done, as a SATA host has it.
            if flush.is_none() && drive.submit(now, Command { id: i as u64, op: s.op, lba, sectors: s.sectors }).is_ok()
                && s.op == Op::Flush {
                flush = Some(i as u64);
            }
            prop_assert!(drive.cached_writes() <= u64::from(write_cache));
            while let Some(c) = drive.poll(now) {
                prop_assert!(drive.cached_writes() <= u64::from(write_cache));
                if Some(c.id) == flush {
                    flush = None;
                    prop_assert_eq!(drive.cached_writes(), 0, "the flush is done, and the medium lacks something");
                }
            }
        }
    }

    #[test]
    fn no_transfer_beats_the_medium(pick in 0..64usize, place in 0.0..0.99f64, sectors in 2000..8000u32) {
        let mut drive = drive(pick, 0, 0);
        let lba = (place * (drive.sectors() - 8000) as f64) as u64;
        let c = common::one(&mut drive, Nanos::ZERO, common::read(1, lba, sectors));
        let rate = f64::from(sectors) * 512.0 / c.finished.as_secs_f64();
        // The densest zone, without any switch.
        let fastest = drive.media_rate(Lba(0)).max(drive.media_rate(Lba(lba))) * 1.7;
        prop_assert!(rate < fastest, "{rate} > {fastest}");
        prop_assert!(c.service.rotation < drive.rotation_period());
    }

    #[test]
    fn seek_time_is_symmetric_and_zero_at_rest(pick in 0..64usize, a in 0.0..1.0f64, b in 0.0..1.0f64) {
        let drive = drive(pick, 0, 0);
        let at = |x: f64| Lba((x * drive.sectors() as f64) as u64);
        prop_assert_eq!(drive.seek_time(at(a), at(b)), drive.seek_time(at(b), at(a)));
        prop_assert_eq!(drive.seek_time(at(a), at(a)), Nanos::ZERO);
    }
}
