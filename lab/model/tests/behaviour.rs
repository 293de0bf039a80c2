//! What the mechanism does, on a drive so simple that every figure can be checked by hand: one surface, a
//! turn of 10 ms, 1,000 sectors a track (10 us each), 1 ms to the next cylinder and a skew that hides it
//! exactly, a bus and electronics that take next to no time.

mod common;

use common::{one, read, serial};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use seekless_base::{Lba, Nanos};
use seekless_model::drive::{Command, Completion, Drive, DriveSpec, Op, Order, Shingled, catalogue};

const SECTOR: u64 = 10_000;
const TURN: u64 = 10_000_000;
const MS: u64 = 1_000_000;

fn simple(look_ahead: u32) -> DriveSpec {
    catalogue::parse(&format!(
        r#"
        name = "simple"
        label = "simple"
        source = "made up"
        notes = "made up"
        rpm = 6000.0
        heads = 1
        cylinders = 1001
        zones = [{{ first_cylinder = 0, sectors_per_track = 1000, track_skew = 0, cylinder_skew = 100 }}]
        [seek]
        table = [[1, 1.0], [1000, 10.99]]
        head_switch_ms = 0.0
        [electronics]
        read_miss_ms = 0.0
        read_hit_ms = 0.0
        write_ms = 0.0
        bus_mb_per_s = 1000000.0
        [buffer]
        segments = 4
        segment_sectors = 4000
        look_ahead_sectors = {look_ahead}
        [queue]
        depth = 64
        age_ms_max = 100.0
        [published]
        source = "made up"
        "#
    ))
    .expect("the description is right")
}

/// Equal but for the bus: half a nanosecond a sector.
fn about(got: Nanos, want: u64) {
    assert!(got.0.abs_diff(want) < 1_000, "{got} is not {}", Nanos(want));
}

#[test]
fn a_whole_track_takes_one_turn() {
    let done = one(&mut Drive::new(&simple(0)), Nanos::ZERO, read(1, 0, 1000));
    about(done.finished, TURN);
}

#[test]
fn seek_and_rotation_follow_from_the_angle() {
    let mut drive = Drive::new(&simple(0));
    // 500 cylinders take 1 + 499 * 0.01 = 5.99 ms; skewed by 500 * 100 sectors, whole turns, sector 0 of that
    // track starts at angle 0 and comes round at 10 ms.
    let done = one(&mut drive, Nanos::ZERO, read(1, 500_000, 1));
    about(done.service.seek, 5_990_000);
    about(done.service.rotation, TURN - 5_990_000);
    about(done.finished, TURN + SECTOR);
    assert_eq!(done.service.seek_distance, 500);
    // The sector just passed comes round again a turn later.
    let done = one(&mut drive, done.finished, read(2, 500_000 - 1000 + 900 + 99, 1));
    assert_eq!(done.service.seek_distance, 1);
}

#[test]
fn a_sequential_stream_reaches_the_rate_of_its_zone() {
    let spec = simple(2000);
    let mut drive = Drive::new(&spec);
    let start = serial(&mut drive, Nanos::ZERO, [(0, 250)]);
    let end = serial(&mut drive, start, (1..400).map(|i| (i * 250, 250)));
    let rate = 399.0 * 250.0 * 512.0 / end.since(start).as_secs_f64();
    // 1,000 sectors of 512 bytes every 11 ms.
    common::within("rate", rate, 512_000.0 / 0.011, 0.3);
    common::within("media_rate", spec.media_rate(Lba(0)), 512_000.0 / 0.011, 0.01);
}

#[test]
fn look_ahead_keeps_the_stream_over_a_pause() {
    let mut drive = Drive::new(&simple(2000));
    let first = one(&mut drive, Nanos::ZERO, read(1, 0, 200));
    about(first.finished, 200 * SECTOR);
    // The host thinks for 1 ms: 100 of the next 200 sectors are in the buffer, the rest come as they pass.
    let next = one(&mut drive, first.finished + Nanos(MS), read(2, 200, 200));
    about(next.finished, 400 * SECTOR);
    assert!(next.service.joined_stream && !next.service.from_buffer);
    // After another 5 ms all of it is there.
    let last = one(&mut drive, next.finished + Nanos(5 * MS), read(3, 400, 200));
    assert!(last.service.from_buffer);
    about(last.finished, 400 * SECTOR + 5 * MS);
}

#[test]
fn without_look_ahead_a_pause_costs_a_turn() {
    let mut drive = Drive::new(&simple(0));
    let first = one(&mut drive, Nanos::ZERO, read(1, 0, 200));
    let next = one(&mut drive, first.finished + Nanos(MS), read(2, 200, 200));
    about(next.finished, 400 * SECTOR + TURN);
    about(next.service.rotation, TURN - MS);
}

#[test]
fn a_jump_breaks_look_ahead_off_but_keeps_what_was_read() {
    let mut drive = Drive::new(&simple(2000));
    let first = one(&mut drive, Nanos::ZERO, read(1, 0, 100));
    // 1 ms later the drive has read 100 sectors further.
    let far = one(&mut drive, first.finished + Nanos(MS), read(2, 700_000, 1));
    assert!(!far.service.from_buffer);
    let back = one(&mut drive, far.finished, read(3, 100, 100));
    assert!(back.service.from_buffer, "sectors 100 to 199 were read before the jump");
    let beyond = one(&mut drive, back.finished, read(4, 300, 10));
    assert!(!beyond.service.from_buffer, "sector 300 was not");
}

#[test]
fn look_ahead_stops_at_its_limit() {
    let mut drive = Drive::new(&simple(300));
    let first = one(&mut drive, Nanos::ZERO, read(1, 0, 100));
    let inside = one(&mut drive, first.finished + Nanos(100 * MS), read(2, 100, 300));
    assert!(inside.service.from_buffer);
    let outside = one(&mut drive, inside.finished, read(3, 400, 1));
    assert!(!outside.service.from_buffer);
}

#[test]
fn a_minimum_fetch_is_not_broken_off() {
    let mut spec = simple(2000);
    spec.buffer.minimum_fetch_sectors = 500;
    spec.queue.order = Order::Fifo;
    let mut drive = Drive::new(&spec);
    let first = one(&mut drive, Nanos::ZERO, read(1, 0, 100));
    let away = one(&mut drive, first.finished, read(2, 700_000, 1));
    // Back to the run: it is known, so 500 sectors are fetched from 100 on although a jump is waiting.
    drive.submit(away.finished, read(3, 100, 100)).unwrap();
    drive.submit(away.finished, read(4, 700_001, 1)).unwrap();
    let mut ends = Vec::new();
    while let Some(when) = drive.next_completion() {
        ends.push(drive.poll(when).unwrap());
    }
    let run = ends.iter().find(|c| c.id == 3).unwrap();
    let rest = one(&mut drive, ends.iter().map(|c| c.finished).max().unwrap(), read(5, 200, 400));
    assert!(rest.service.from_buffer, "{:?} after {:?}", rest.service, run.service);
}

#[test]
fn a_hit_goes_before_a_fetch_ends() {
    let mut spec = simple(2000);
    spec.buffer.minimum_fetch_sectors = 800;
    let mut drive = Drive::new(&spec);
    let first = one(&mut drive, Nanos::ZERO, read(1, 0, 100));
    let away = one(&mut drive, first.finished, read(2, 700_000, 1));
    let run = one(&mut drive, away.finished, read(3, 100, 100));
    // A jump waits for the fetch (7 ms to go); a read of the same run that arrives 1 ms later does not.
    drive.submit(run.finished, read(4, 900_000, 1)).unwrap();
    let jump = drive.next_completion().unwrap();
    drive.submit(run.finished + Nanos(MS), read(5, 200, 50)).unwrap();
    let when = drive.next_completion().unwrap();
    assert!(when < jump);
    assert_eq!(drive.poll(when).unwrap().id, 5);
}

#[test]
fn a_write_takes_its_sectors_out_of_the_buffer() {
    let mut drive = Drive::new(&simple(2000));
    let first = one(&mut drive, Nanos::ZERO, read(1, 0, 100));
    let write = Command { id: 2, op: Op::Write, lba: Lba(50), sectors: 10 };
    let written = one(&mut drive, first.finished, write);
    // Sector 50 starts at 0.5 ms of each turn; the heads are past it.
    about(written.finished, TURN + 60 * SECTOR);
    assert!(!one(&mut drive, written.finished, read(3, 0, 10)).service.from_buffer);
}

#[test]
fn a_cached_write_hides_latency_not_work() {
    let mut spec = simple(0);
    spec.buffer.write_cache_sectors = 1000;
    let mut drive = Drive::new(&spec);
    let write = Command { id: 1, op: Op::Write, lba: Lba(500_000), sectors: 100 };
    let written = one(&mut drive, Nanos::ZERO, write);
    about(written.finished, 0);
    // Sector 500,000 comes round at 10 ms; the read behind it follows the write in mid-track.
    let behind = one(&mut drive, written.finished, read(2, 500_100, 100));
    about(behind.finished, TURN + 200 * SECTOR);
}

#[test]
fn a_stream_of_cached_writes_reaches_the_media_rate() {
    for name in ["wd-red-1tb", "barracuda-2tb-7200", "modern-20tb-7200", "drawn:5:1", "drawn:5:2"] {
        let spec = common::spec(name);
        let mut drive = Drive::new(&spec);
        let (mut now, mut sent) = (Nanos::ZERO, 0u64);
        let total = 512u64 << 11;
        while sent < total {
            let write = Command { id: sent, op: Op::Write, lba: Lba(sent), sectors: 256 };
            if drive.submit(now, write).is_ok() {
                sent += 256;
                continue;
            }
            now = drive.next_completion().unwrap();
            while drive.poll(now).is_some() {}
        }
        while let Some(at) = drive.next_completion() {
            now = at;
            drive.poll(now).unwrap();
        }
        let flush = one(&mut drive, now, Command { id: 0, op: Op::Flush, lba: Lba(0), sectors: 0 });
        let rate = (total * 512) as f64 / flush.finished.as_secs_f64();
        let share = rate / drive.media_rate(Lba(0));
        assert!((0.97..1.03).contains(&share), "{name}: {share:.3} of the media rate");
    }
}

#[test]
fn cached_writes_wait_for_reads_and_a_flush_waits_for_them() {
    let mut spec = simple(0);
    spec.buffer.write_cache_sectors = 4000;
    let mut drive = Drive::new(&spec);
    // The read is under way when the write comes.
    drive.submit(Nanos::ZERO, read(1, 900_000, 100)).unwrap();
    drive.submit(Nanos(MS), Command { id: 2, op: Op::Write, lba: Lba(100_000), sectors: 100 }).unwrap();
    drive.submit(Nanos(MS), read(3, 900_100, 100)).unwrap();
    drive.submit(Nanos(MS), Command { id: 4, op: Op::Flush, lba: Lba(0), sectors: 0 }).unwrap();
    // It came after the flush, and waits for it.
    drive.submit(Nanos(MS), read(5, 900_200, 100)).unwrap();
    let mut order = Vec::new();
    while let Some(at) = drive.next_completion() {
        order.push(drive.poll(at).unwrap().id);
    }
    assert_eq!(order, [2, 1, 3, 4, 5]);
}

#[test]
fn a_shingled_band_is_written_as_a_stream_or_as_a_whole() {
    let mut spec = simple(0);
    spec.shingled = Some(Shingled { band_sectors: 10_000 });
    let mut drive = Drive::new(&spec);
    let write = |drive: &mut Drive, now, lba| {
        one(drive, now, Command { id: 1, op: Op::Write, lba: Lba(lba), sectors: 100 })
    };
    let (mut now, mut longest) = (Nanos::ZERO, Nanos::ZERO);
    for lba in (20_000..30_000).step_by(100) {
        let done = write(&mut drive, now, lba);
        longest = longest.max(done.finished - now);
        now = done.finished;
    }
    assert!(longest < Nanos(30 * MS), "{longest} for a part of a stream");
    let inside = write(&mut drive, now, 25_000).finished - now;
    // All of the band is read and written: ten tracks each.
    assert!(inside > Nanos(20 * TURN), "{inside}");
}

/// Keeps `depth` random single-sector reads outstanding; mean milliseconds a command and the worst wait.
fn random_reads(spec: &DriveSpec, depth: usize, count: usize) -> (f64, f64) {
    let mut rng = Pcg64::seed_from_u64(3);
    let mut drive = Drive::new(spec);
    let (mut now, mut sent, mut worst) = (Nanos::ZERO, 0, 0.0f64);
    let mut done = 0;
    while done < count {
        while drive.queue_len() < depth && sent < count {
            sent += 1;
            drive.submit(now, read(sent as u64, rng.random_range(0..drive.sectors()), 1)).unwrap();
        }
        now = drive.next_completion().unwrap();
        while let Some(c) = drive.poll(now) {
            done += 1;
            worst = worst.max(c.finished.since(c.arrived).as_millis_f64());
        }
    }
    (now.as_millis_f64() / count as f64, worst)
}

#[test]
fn queueing_shortens_positioning() {
    for name in ["wd-red-1tb", "hp-146gb-10k"] {
        let mut spec = common::spec(name);
        let (sptf, _) = random_reads(&spec, 16, 3000);
        spec.queue.order = Order::Fifo;
        let (fifo, _) = random_reads(&spec, 16, 3000);
        println!("{name}, 16 outstanding: FIFO {fifo:.2} ms, shortest positioning time first {sptf:.2} ms");
        assert!(sptf < 0.7 * fifo, "{name}: {sptf} ms against {fifo} ms");
    }
}

#[test]
fn age_bounds_every_wait() {
    let mut spec = common::spec("wd-red-1tb");
    spec.queue.age_ms_max = 300.0;
    let (_, worst) = random_reads(&spec, 32, 5000);
    // Once overdue a command is behind at most the others that became overdue before it.
    let service_ms_max = 45.0;
    assert!(worst <= 300.0 + 32.0 * service_ms_max, "{worst} ms");
    spec.queue.age_ms_max = 60_000.0;
    let (_, unbounded) = random_reads(&spec, 32, 5000);
    println!("worst wait: {worst:.0} ms with the bound, {unbounded:.0} ms without");
    assert!(unbounded > worst);
}

#[test]
fn a_command_that_never_is_the_nearest_is_served_at_the_bound() {
    let mut drive = Drive::new(&simple(0));
    let far = 0;
    drive.submit(Nanos::ZERO, read(far, 999_000, 1)).unwrap();
    let mut now = Nanos::ZERO;
    let mut near = 0;
    let done = loop {
        // Two reads on the first three cylinders are always waiting: one of them is nearer than 999
        // cylinders.
        while drive.queue_len() < 3 {
            near += 1;
            drive.submit(now, read(near, near * 370 % 3000, 1)).unwrap();
        }
        now = drive.next_completion().unwrap();
        let done = drive.poll(now).unwrap();
        if done.id == far {
            break done;
        }
    };
    assert!(near > 10, "it was passed over by {near} reads only");
    // From 100 ms on it is next; a near read that was under way takes at most two seeks of 1 ms and a turn.
    assert!(
        done.started >= Nanos(100 * MS) && done.started < Nanos(100 * MS + 2 * MS + TURN),
        "{}",
        done.started
    );
}

#[test]
fn a_late_poll_loses_no_throughput() {
    let lbas = [5_000u64, 700_000, 5_100, 123_456, 5_200, 900_000, 44, 123_500];
    let run = |polls: &dyn Fn(u64) -> bool| -> Vec<Completion> {
        let mut drive = Drive::new(&simple(1000));
        for (i, &lba) in lbas.iter().enumerate() {
            drive.submit(Nanos(i as u64 * MS), read(i as u64, lba, 64)).unwrap();
        }
        let mut all = Vec::new();
        for step in 0..1000 {
            if polls(step) {
                while let Some(c) = drive.poll(Nanos(8 * MS + step * MS / 3)) {
                    all.push(c);
                }
            }
        }
        all
    };
    let eager = run(&|_| true);
    let late = run(&|step| step == 999);
    assert_eq!(eager.len(), lbas.len());
    assert_eq!(eager, late);
}
