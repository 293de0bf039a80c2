//! One batch of a list: taken, looked up, sorted.

use seekless_policy::filesets::side_by_side;

use crate::hints;
use crate::look::{self, By, Found, Look};
use crate::sequence::{self, Limits};
use crate::walk::{Got, List, as_path};

/// Maximum bytes of the paths of a batch. The default number of paths takes a third of it at usual lengths.
/// At half, batches of long paths are shorter; at double, they take more memory.
pub(crate) const BATCH_BYTES: usize = 32 << 20;

/// Default number of paths of a batch. At half, a list of this length takes two sweeps over the disk; at
/// double, its paths take twice the memory.
pub const BATCH_PATHS: u32 = 100_000;

/// Number of paths at the start of a batch that are sampled for residency. If the samples are in memory,
/// these paths form a batch of their own. At half, a tree in memory is sampled in smaller parts; at double,
/// its first path comes later.
const AT_ONCE: usize = 1024;

/// Distance of the samples in paths. At half, sampling takes twice the time; at double, a tree of which a
/// twentieth is missing counts as in memory in a fifth of all cases.
const LOOK_AT_EACH: usize = 16;

/// A batch in order.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) found: Vec<Found>,
    /// Whether the sampled files are in memory: then no address was looked up, and nothing is read.
    pub(crate) in_memory: bool,
}

/// Bounds of a batch of `paths` paths.
pub(crate) fn limits(paths: u32) -> Limits {
    Limits { items: paths as usize, bytes: BATCH_BYTES }
}

/// Interleaves files on a disk with several heads, so that all of them are busy.
fn beside(batch: Vec<Found>, look: &Look) -> Vec<Found> {
    if !batch.iter().any(|found| look.has_parts(found.place.disk)) {
        return batch;
    }
    let (mut all, mut rest) = (Vec::with_capacity(batch.len()), batch);
    while let Some(first) = rest.first() {
        let disk = first.place.disk;
        let others = rest.split_off(rest.partition_point(|found| found.place.disk == disk));
        let of_disk = std::mem::replace(&mut rest, others);
        all.extend(side_by_side(of_disk, |found| look.part(found.place), |found| found.on_disk));
    }
    all
}

/// The next batch in order; `None` after the last path. With `looks`, files that are in memory stay in the
/// order of the list, because no order makes them faster. `refuse` gets each path that cannot be ordered, and
/// the reason.
pub(crate) fn next(
    list: &mut List,
    look: &mut Look,
    limits: Limits,
    looks: bool,
    refuse: &mut dyn FnMut(Vec<u8>, String),
) -> Option<Batch> {
    let bytes = |got: &Got| match got {
        Got::Path(entry) => entry.path.len(),
        Got::Refused(path, _) => path.len(),
    };
    let looks = looks && look.by == By::Address;
    let first = if looks { limits.items.min(AT_ONCE) } else { limits.items };
    let mut got = sequence::batch(list, Limits { items: first, ..limits }, bytes);
    if got.is_empty() {
        return None;
    }
    let in_memory = looks && are_in_memory(&got);
    if !in_memory && got.len() == first && first < limits.items {
        let taken = got.iter().map(bytes).sum();
        let rest = Limits { items: limits.items - first, bytes: limits.bytes.saturating_sub(taken) };
        got.extend(sequence::batch(list, rest, bytes));
    }
    let mut entries = Vec::with_capacity(got.len());
    for got in got {
        match got {
            Got::Path(entry) => entries.push(entry),
            Got::Refused(path, why) => refuse(path, why),
        }
    }
    let sorts = look.by != By::Listed && !in_memory;
    if sorts {
        hints::fill(&mut entries);
        entries.sort_by_key(|entry| entry.inode);
    }
    let mut found = Vec::with_capacity(entries.len());
    for entry in entries {
        match look.up(entry.path, sorts) {
            Ok(one) => found.push(one),
            Err((path, why)) => refuse(path, why),
        }
    }
    if sorts {
        sequence::sort(&mut found, |one| one.place);
        found = beside(found, look);
    }
    Some(Batch { found, in_memory })
}

/// Whether the sampled files are wholly in memory. Stops at the first that is not; on a cold disk that is
/// after one inode.
fn are_in_memory(got: &[Got]) -> bool {
    let mut any = false;
    for got in got.iter().step_by(LOOK_AT_EACH) {
        let Got::Path(entry) = got else { continue };
        match look::is_in_memory(as_path(&entry.path)) {
            Some(true) => any = true,
            Some(false) => return false,
            None => {}
        }
    }
    any
}
