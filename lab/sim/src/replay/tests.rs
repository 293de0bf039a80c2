use std::fmt::Write as _;
use std::io::Write as _;

use seekless_base::{Bytes, Lba, Nanos};
use seekless_model::drive::catalogue;
use seekless_policy::decisions::{Entry, FIRST_LINE, Line};
use seekless_policy::{
    Access, Action, AheadConfig, Config, Demand, DiskEngine, Event, FileId, Mode, Outcome, Request,
    RequestId, Taken, Writes,
};

use super::load::{Load, Outcomes, loads};
use super::whatif::{Circumstances, run};
use super::*;

const SEGMENT: u64 = 512 << 10;
const FILE: u64 = 64 << 20;

/// A log as a daemon writes it: readers of one file each ask for a segment a second; a read takes 20 ms.
fn recorded(readers: u64, rounds: u64) -> String {
    let config = Config { ahead: Some(AheadConfig::default()), ..Config::default() };
    let mut text = format!("{FIRST_LINE}\n");
    let mut put = |at: Nanos, entry: Entry| {
        let _ = writeln!(text, "{}", Line { disk: 0, at, entry });
    };
    put(Nanos::ZERO, Entry::Disk { name: "sda".into(), config: Box::new(config.clone()) });
    let mut engine = DiskEngine::new(config);
    let mut reads: Vec<(Nanos, seekless_policy::ReadId)> = vec![];
    for step in 0..readers * rounds {
        let at = Nanos::from_millis(1000 * (step / readers) + 1000 / readers * (step % readers));
        reads.sort_by_key(|r| r.0);
        let mut act = |engine: &mut DiskEngine, now: Nanos, event: Event, reads: &mut Vec<_>| {
            put(now, Entry::Event(event));
            engine.handle(now, event);
            while let Some(action) = engine.poll_action() {
                put(now, Entry::Action(action));
                if let Action::Read { id, .. } = action {
                    reads.push((now + Nanos::from_millis(20), id));
                }
            }
        };
        while let Some((due, read)) = reads.first().copied().filter(|r| r.0 <= at) {
            reads.remove(0);
            act(&mut engine, due, Event::Done { read, outcome: Outcome::Ok }, &mut reads);
        }
        let (reader, round) = (step % readers, step / readers);
        let file = FileId { dev: 1, ino: reader };
        let (offset, lba) = (round * SEGMENT, Some(Lba(reader * 50_000_000 + round * SEGMENT / 512)));
        let event = if round % 4 == 0 {
            let id = RequestId(step);
            Event::Request(Request {
                id,
                file,
                from: offset,
                offset,
                len: SEGMENT,
                file_size: FILE,
                lba,
                demand: Demand::default(),
            })
        } else {
            Event::Access(Access { file, offset, len: SEGMENT, file_size: FILE, lba, taken: Taken::All })
        };
        act(&mut engine, at, event, &mut reads);
    }
    text.push_str("# end, 0 lines left out\n");
    text
}

fn open(text: &str) -> (tempfile::NamedTempFile, Log) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let log = Log::open(file.path()).unwrap();
    (file, log)
}

#[test]
fn a_log_agrees_with_itself_and_a_changed_one_does_not() {
    let text = recorded(10, 12);
    let (_file, mut log) = open(&text);
    let disks = exact::run(&mut log).unwrap();
    assert_eq!((disks.len(), disks[0].name.as_str(), &disks[0].differs), (1, "sda", &None));
    assert!(disks[0].events >= 120 && disks[0].actions >= 30, "{disks:?}");
    assert!(log.ended && log.left_out == 0);

    let read = r#"{"action":{"read":{"id":"#;
    let at = text.lines().position(|l| l.contains(read)).unwrap();
    let lines: Vec<String> = text
        .lines()
        .enumerate()
        .map(|(i, l)| if i == at { l.replace(read, &format!("{read}9")) } else { l.to_owned() })
        .collect();
    let (_file, mut log) = open(&lines.join("\n"));
    let disks = exact::run(&mut log).unwrap();
    let differs = disks[0].differs.clone().unwrap();
    assert!(differs.contains(&format!("line {}", at + 1)), "{differs}");
}

#[test]
fn what_is_no_log_or_half_a_line_is_refused() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"something else\n").unwrap();
    assert!(Log::open(file.path()).is_err_and(|e| e.message.contains("no decision log")));
    for (text, why) in [
        (format!("{FIRST_LINE}\n[0,5,{{\"event\":\"tock\"}}]\n"), "line 2"),
        (format!("{FIRST_LINE}\n[0,5,{{\"event\":\"tick\"}}]\n"), "before its settings"),
    ] {
        let (_file, mut log) = open(&text);
        let fault = exact::run(&mut log).unwrap_err();
        assert!(fault.message.contains(why), "{fault}");
    }
}

fn circumstances(load: &Load, mode: Mode, memory: Bytes) -> Circumstances {
    Circumstances {
        config: Config { mode, ..load.config.clone() },
        memory,
        recorded_memory: false,
        drive: catalogue::get("wd-red-1tb").unwrap(),
    }
}

/// Sixty readers that together want 31 MB/s: with Seekless the drive carries it, reading as asked it has to
/// work harder; every read is served in each case, and none is lost.
#[test]
fn other_settings_give_other_outcomes_of_the_same_load() {
    let (_file, mut log) = open(&recorded(60, 20));
    let load = loads(&mut log).unwrap().remove(0);
    assert_eq!(load.then.reads, 1200);
    let on = run(&load, &circumstances(&load, Mode::Both, Bytes::gib(2)));
    let off = run(&load, &circumstances(&load, Mode::Off, Bytes::gib(2)));
    assert_eq!((on.reads, off.reads), (1200, 1200));
    assert_eq!(off.waited, 1200, "nothing is read ahead: every read waits");
    assert!(on.waited < 700, "{on:?}");
    let busy_a_byte = |o: &Outcomes| o.busy.unwrap() / o.disk_bytes as f64;
    assert!(busy_a_byte(&on) < busy_a_byte(&off), "{on:?} {off:?}");
    assert!(on.disk_bytes >= 1200 * SEGMENT && off.disk_bytes == 1200 * SEGMENT);
    assert_eq!(run(&load, &circumstances(&load, Mode::Both, Bytes::gib(2))), on, "the same again");
    // A memory too small for what is read ahead has to read again.
    let small = run(&load, &circumstances(&load, Mode::Both, Bytes::mib(24)));
    assert!(small.waited > on.waited, "{small:?}");
}

#[test]
fn what_was_written_then_is_written_again() {
    let report = Event::Writes(Writes { waiting: 4, bytes: 1 << 20 });
    let writes: String = (0..400)
        .map(|i| Nanos::from_millis(20_000 + 50 * i))
        .map(|at| format!("{}\n", Line { disk: 0, at, entry: Entry::Event(report) }))
        .collect();
    let (_file, mut log) = open(&recorded(60, 20).replace("# end", &format!("{writes}# end")));
    let mut load = loads(&mut log).unwrap().remove(0);
    assert_eq!((load.told.len(), load.then.written_bytes), (400, 400 << 20));
    // Behind the reads, and beside them.
    let after = run(&load, &circumstances(&load, Mode::Both, Bytes::gib(2)));
    for told in &mut load.told {
        told.0 = Nanos(told.0.0 - 20_000_000_000);
    }
    let beside = run(&load, &circumstances(&load, Mode::Both, Bytes::gib(2)));
    for outcomes in [&after, &beside] {
        assert_eq!((outcomes.reads, outcomes.written_bytes), (1200, 400 << 20));
    }
    assert!(beside.wait_ms.0 > after.wait_ms.0, "{beside:?} {after:?}");
}
