//! Whether files are already read in the order of the disk, which needs no help.

use seekless_base::SECTOR_BYTES;
use smart_default::SmartDefault;

/// The score of readers that are always in disk order.
const CERTAIN: u32 = 256;

/// Minimum score of readers in disk order: five of the last eight files.
const BELIEVED: u32 = CERTAIN * 5 / 8;

/// Maximum number of remembered ends of reads: this many programs, together with the files that lie apart,
/// may read in disk order side by side. At half, eight programs in disk order are not detected; at double,
/// the distance that counts as near halves.
const PLACES: usize = 12;

/// Maximum distance in sectors from the end of one file to the next that a drive covers without a real seek:
/// half a MiB. At half, an aged file system, where one file in ten lies apart, breaks the order; at double,
/// more files that lie close together count as read in disk order.
const NEAR_MAX: u64 = (512 << 10) / SECTOR_BYTES;

/// Minimum distance in sectors that counts as near: 16 KiB, for which no drive seeks.
const NEAR_MIN: u64 = (16 << 10) / SECTOR_BYTES;

/// The places where files were read last, and how often the next file lay just behind one of them.
#[derive(Clone, Debug, SmartDefault)]
pub(crate) struct DiskOrder {
    /// Start and end of the files read last, the latest first. A file right behind another replaces its
    /// entry.
    #[default([(u64::MAX, u64::MAX); PLACES])]
    last: [(u64, u64); PLACES],
    /// The lowest and the highest sector read.
    #[default((u64::MAX, 0))]
    span: (u64, u64),
    /// How often a file lay just behind one of those, out of [`CERTAIN`]. At first nothing is known, so the
    /// next file decides.
    #[default(CERTAIN / 2 - 1)]
    score: u32,
    /// Number of files that lie apart and come after unreported reads; they show nothing.
    unreported: usize,
}

impl DiskOrder {
    /// A file between these sectors is read.
    pub(crate) fn at(&mut self, from: u64, end: u64) {
        if self.last.iter().any(|last| last.0 == from) {
            return;
        }
        self.span = (self.span.0.min(from), self.span.1.max(end));
        // At most a quarter of all places count as near; otherwise random reads would look like disk order.
        let near = (self.span.1.saturating_sub(self.span.0) / (4 * PLACES as u64)).clamp(NEAR_MIN, NEAR_MAX);
        let behind = self.last.iter().position(|last| (last.1..last.1.saturating_add(near)).contains(&from));
        match behind.is_none() && self.unreported > 0 {
            true => self.unreported -= 1,
            // An average over the last eight files.
            false => match behind {
                Some(_) => self.score += (CERTAIN - self.score).div_ceil(8),
                None => self.score -= self.score.div_ceil(8),
            },
        }
        self.last[..=behind.unwrap_or(PLACES - 1)].rotate_right(1);
        self.last[0] = (from, end);
    }

    /// A request passed because its reader is in disk order. The next reads of this reader are not reported.
    pub(crate) fn passed_in_disk_order(&mut self) {
        self.unreported = (self.unreported + 1).min(PLACES);
    }

    /// Five of the last eight files were the next ones on the disk.
    pub(crate) fn is_certain(&self) -> bool {
        self.score >= BELIEVED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of eight sectors at these places of 16, on a tree of 100,000.
    fn read(order: &mut DiskOrder, places: impl IntoIterator<Item = u64>) {
        places.into_iter().for_each(|place| order.at(place * 16, place * 16 + 8));
    }

    fn after(places: impl IntoIterator<Item = u64>) -> DiskOrder {
        let mut order = DiskOrder::default();
        read(&mut order, [0, 100_000]);
        read(&mut order, places);
        order
    }

    #[test]
    fn programs_in_disk_order_are_known_side_by_side_and_reads_anywhere_are_not() {
        let one = after(1_000..1_020);
        assert!(one.is_certain());
        let four = after((0..80).map(|i| i % 4 * 20_000 + 1_000 + i / 4));
        assert!(four.is_certain());
        let anywhere = after((0..200).map(|i| i * 7_919 % 100_000));
        assert!(!anywhere.is_certain());
    }

    #[test]
    fn what_lies_apart_after_reads_that_nobody_told_of_says_nothing() {
        let mut order = after(1_000..1_020);
        for i in 0..20 {
            order.passed_in_disk_order();
            read(&mut order, [30_000 + i * 1_000]);
            assert!(order.is_certain());
        }
        read(&mut order, (0..20).map(|i| 60_000 + i * 1_000));
        assert!(!order.is_certain(), "each of these was heard of");
    }
}
