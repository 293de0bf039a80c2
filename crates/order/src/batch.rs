//! One batch of a list: taken, looked up, sorted.

use seekless_filesets::side_by_side;

use crate::hints;
use crate::look::{By, Found, Look};
use crate::sequence::{self, Limits};
use crate::walk::{Got, List};

/// Bytes of the paths of a batch. As many paths as a batch has by default, at usual lengths, take a third of
/// it. At half of it batches of long paths are shorter; at double they take more memory.
pub(crate) const BATCH_BYTES: usize = 32 << 20;

/// Paths of a batch by default. At half of it a list of this length is two sweeps over the disk; at double
/// its paths take double the memory.
pub const BATCH_PATHS: u32 = 100_000;

/// Bounds of a batch of so many paths.
pub(crate) fn limits(paths: u32) -> Limits {
    Limits { items: paths as usize, bytes: BATCH_BYTES }
}

/// Files of a disk with several heads side by side, so that all of them are busy.
fn beside(batch: Vec<Found>, look: &Look) -> Vec<Found> {
    if !batch.iter().any(|found| look.has_parts(found.place.disk)) {
        return batch;
    }
    let (mut all, mut rest) = (Vec::with_capacity(batch.len()), batch);
    while let Some(first) = rest.first() {
        let disk = first.place.disk;
        let others = rest.split_off(rest.partition_point(|found| found.place.disk == disk));
        let of_disk = std::mem::replace(&mut rest, others);
        all.extend(side_by_side(of_disk, |found| look.part(found.place), |found| found.bytes));
    }
    all
}

/// The next batch in order; `None` after the last path. `refuse` gets what cannot be put in order, and why.
pub(crate) fn next(
    list: &mut List,
    look: &mut Look,
    limits: Limits,
    refuse: &mut dyn FnMut(Vec<u8>, String),
) -> Option<Vec<Found>> {
    let got = sequence::batch(list, limits, |got| match got {
        Got::Path(entry) => entry.path.len(),
        Got::Refused(path, _) => path.len(),
    });
    if got.is_empty() {
        return None;
    }
    let mut entries = Vec::with_capacity(got.len());
    for got in got {
        match got {
            Got::Path(entry) => entries.push(entry),
            Got::Refused(path, why) => refuse(path, why),
        }
    }
    let sorts = look.by() != By::Listed;
    if sorts {
        hints::fill(&mut entries);
        entries.sort_by_key(|entry| entry.inode);
    }
    let mut batch = Vec::with_capacity(entries.len());
    for entry in entries {
        match look.up(entry.path) {
            Ok(found) => batch.push(found),
            Err((path, why)) => refuse(path, why),
        }
    }
    if sorts {
        sequence::sort(&mut batch, |found| found.place);
        batch = beside(batch, look);
    }
    Some(batch)
}
