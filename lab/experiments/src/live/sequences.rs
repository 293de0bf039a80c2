//! Contiguous sequences on the disk, from the trace of its commands (\[L\] section 5.5).
//!
//! A sequence is a run of reads each of which starts at the sector where the one before it ended, in the
//! order the disk served them. What counts is bytes: of a hundred megabytes, how many were read in sequences
//! of at most 128 KiB?

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use seekless_base::{Fault, SECTOR_BYTES};

use crate::results::Row;

/// Bytes by sequence length.
type Lengths = BTreeMap<u64, u64>;

/// Adds shares of bytes and the distribution to the row.
pub(super) fn account(row: &mut Row, traces: &[PathBuf]) -> Result<(), Fault> {
    let mut lengths = Lengths::new();
    for trace in traces {
        let fault = |e: &dyn std::fmt::Display| Fault::failed(format!("trace {}: {e}", trace.display()));
        let file = std::fs::File::open(trace).map_err(|e| fault(&e))?;
        read(BufReader::new(file), &mut lengths).map_err(|e| fault(&e))?;
        remove(trace);
    }
    let all: u64 = lengths.values().sum();
    if all == 0 {
        return Ok(());
    }
    let upto = |limit: u64| lengths.range(..=limit).map(|(_, bytes)| bytes).sum::<u64>() as f64 / all as f64;
    row.metrics.insert("seq_bytes_le_128k".into(), upto(128 << 10));
    row.metrics.insert("seq_bytes_le_384k".into(), upto(384 << 10));
    row.metrics.insert("seq_bytes_le_576k".into(), upto(576 << 10));
    row.metrics.insert("seq_bytes_lt_1792k".into(), upto((1792 << 10) - 1));
    row.metrics.insert("seq_bytes_gt_1920k".into(), 1.0 - upto(1920 << 10));
    let mut seen = 0;
    let cdf = lengths.iter().map(|(length, bytes)| {
        seen += bytes;
        (*length as f64 / 1024.0, seen as f64 / all as f64)
    });
    row.cdfs.insert("sequence_kib".into(), cdf.collect());
    Ok(())
}

/// Traces of minutes are large, and the row has what was wanted of them.
fn remove(trace: &Path) {
    let _ = std::fs::remove_file(trace);
}

/// Adds up the sequences of one disk's trace, whose columns are found by their names in the first line.
fn read(text: impl BufRead, lengths: &mut Lengths) -> Result<(), String> {
    let mut lines = text.lines();
    let header = lines.next().ok_or("it is empty")?.map_err(|e| e.to_string())?;
    let column = |name: &str| {
        header.split(',').position(|c| c.trim() == name).ok_or(format!("it has no column {name}"))
    };
    let (op, lba, sectors, started) =
        (column("op")?, column("lba")?, column("sectors")?, column("started_ns")?);
    let mut commands: Vec<(u64, u64, u64)> = Vec::new();
    for line in lines {
        let line = line.map_err(|e| e.to_string())?;
        let fields: Vec<&str> = line.split(',').collect();
        let number = |i: usize| fields.get(i).and_then(|f| f.trim().parse::<u64>().ok());
        // The last line may be cut off: the disk writes while we read.
        if let (Some(kind), Some(lba), Some(sectors), Some(started)) =
            (fields.get(op), number(lba), number(sectors), number(started))
            && kind.trim().to_ascii_lowercase().starts_with('r')
        {
            commands.push((started, lba, sectors));
        }
    }
    // Commands end in another order than they are served in when the disk queues them.
    commands.sort_unstable();
    let mut open: Option<(u64, u64)> = None;
    let mut close = |bytes: u64| *lengths.entry(bytes).or_default() += bytes;
    for (_, lba, sectors) in commands {
        open = Some(match open {
            Some((end, length)) if end == lba => (lba + sectors, length + sectors * SECTOR_BYTES),
            previous => {
                previous.into_iter().for_each(|(_, length)| close(length));
                (lba + sectors, sectors * SECTOR_BYTES)
            }
        });
    }
    open.into_iter().for_each(|(_, length)| close(length));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_found_in_the_order_of_service() {
        let trace = "arrival_ns,op,lba,sectors,started_ns,finished_ns,queue\n\
                     0,R,0,256,10,20,1\n0,R,256,256,20,30,1\n5,W,9000,8,25,26,1\n\
                     0,R,5000,8,40,50,1\n0,R,512,8,30,40,1\n0,R,60";
        let mut lengths = Lengths::new();
        read(trace.as_bytes(), &mut lengths).unwrap();
        // 0-511 and, served next although listed later, 512-519; then 5000.
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [(8 * 512, 8 * 512), (520 * 512, 520 * 512)]);
        assert!(read("a,b\n".as_bytes(), &mut Lengths::new()).unwrap_err().contains("op"));
    }
}
