//! The Cheetah 9LP model against response times that DiskSim gave for the same drive: one request at a time,
//! look-ahead on, 0.0064 ms a sector on the bus. The recordings lie beside the repository; without them the
//! tests say so and pass.

mod common;

use std::io::Read;
use std::path::PathBuf;

use seekless_base::Nanos;
use seekless_model::drive::Drive;

struct Row {
    arrival: Nanos,
    lba: u64,
    sectors: u32,
    response_ms: f64,
}

fn recording(kind: &str) -> Option<Vec<Row>> {
    let root = std::env::var_os("SEEKLESS_SHARED")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let path = root.join(format!("drives/disksim-cheetah9lp-{kind}.csv.gz"));
    let Ok(file) = std::fs::File::open(&path) else {
        println!(
            "skipped: no recorded response times (set SEEKLESS_SHARED to the folder that holds drives/)"
        );
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("the recording is gzipped text");
    let row = |line: &str| {
        let mut fields = line.split(',');
        let mut next = || fields.next().expect("four fields a line");
        Row {
            arrival: Nanos::from_millis_f64(next().parse().unwrap()),
            lba: next().parse().unwrap(),
            sectors: next().parse().unwrap(),
            response_ms: next().trim().parse().unwrap(),
        }
    };
    Some(text.lines().skip(1).map(row).collect())
}

fn compare(kind: &str, percent: f64) {
    let Some(rows) = recording(kind) else { return };
    let mut drive = Drive::new(&common::spec("cheetah-9lp"));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let verbose = std::env::var_os("SEEKLESS_VERBOSE").is_some();
    for row in &rows {
        let done = common::one(&mut drive, row.arrival, common::read(0, row.lba, row.sectors));
        let response = done.finished.since(done.arrived).as_millis_f64();
        if verbose {
            println!("{} {} {response:.4} {:.4} {:?}", row.lba, row.sectors, row.response_ms, done.service);
        }
        ours.push(response);
        theirs.push(row.response_ms);
    }
    assert!(rows.len() >= 2000, "the recording is cut short");
    let (ours, theirs) = (common::summary(ours), common::summary(theirs));
    for (i, what) in ["mean", "median", "95th percentile"].into_iter().enumerate() {
        common::within(&format!("{kind}, {what}, ms"), ours[i], theirs[i], percent);
    }
}

#[test]
fn random_reads_take_as_long_as_recorded() {
    compare("random", 5.0);
}

#[test]
fn interleaved_streams_take_as_long_as_recorded() {
    compare("interleaved", 5.0);
}

#[test]
fn a_slow_sequential_stream_takes_as_long_as_recorded() {
    compare("sequential", 15.0);
}
