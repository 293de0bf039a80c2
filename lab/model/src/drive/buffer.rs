//! The drive's buffer: a few segments, each a run of consecutive sectors, with least-recently-used
//! replacement.

use alloc::vec::Vec;

/// One run of sectors, `start..end`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) end: u64,
    used: u64,
}

/// All segments.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    all: Vec<Segment>,
    /// Where each starts, and its index, in order: choosing a command asks for every one in the queue.
    starts: Vec<(u64, usize)>,
    sectors: u64,
    clock: u64,
}

impl Segments {
    pub(crate) fn new(count: u32, sectors: u32) -> Segments {
        let count = count.clamp(1, 4096) as usize;
        let all = core::iter::repeat_n(Segment::default(), count).collect();
        let starts = (0..count).map(|i| (0, i)).collect();
        Segments { all, starts, sectors: u64::from(sectors.max(1)), clock: 0 }
    }

    pub(crate) fn get(&self, index: usize) -> Segment {
        self.all[index]
    }

    /// The segment that contains `lba`, or else the one that ends just before it. Of several that contain it,
    /// the first; of several that end there, the last.
    pub(crate) fn find(&self, lba: u64) -> Option<usize> {
        // None is longer than `sectors`, so none that starts before this reaches `lba`.
        let earliest = lba.saturating_sub(self.sectors);
        let from = self.starts.partition_point(|&(start, _)| start < earliest);
        let (mut holds, mut next_to) = (None, None);
        for &(_, i) in self.starts[from..].iter().take_while(|&&(start, _)| start <= lba) {
            let s = &self.all[i];
            if lba < s.end {
                holds = Some(holds.map_or(i, |first: usize| first.min(i)));
            } else if s.end == lba && s.start < s.end {
                next_to = next_to.max(Some(i));
            }
        }
        holds.or(next_to)
    }

    /// Puts a segment in the place of another; `starts` follows.
    fn set(&mut self, index: usize, segment: Segment) {
        let (old, new) = ((self.all[index].start, index), (segment.start, index));
        self.all[index] = segment;
        if old == new {
            return;
        }
        let starts = &mut self.starts;
        let mut at = starts.partition_point(|&s| s < old);
        starts[at] = new;
        while at + 1 < starts.len() && starts[at + 1] < new {
            starts.swap(at, at + 1);
            at += 1;
        }
        while at > 0 && starts[at - 1] > new {
            starts.swap(at, at - 1);
            at -= 1;
        }
    }

    /// Marks a segment as just used.
    pub(crate) fn touch(&mut self, index: usize) {
        self.clock += 1;
        self.all[index].used = self.clock;
    }

    /// Empties the least recently used segment and starts a run at `lba` in it.
    pub(crate) fn start(&mut self, lba: u64) -> usize {
        let oldest = (0..self.all.len()).min_by_key(|&i| self.all[i].used).unwrap_or(0);
        self.set(oldest, Segment { start: lba, end: lba, used: 0 });
        self.touch(oldest);
        oldest
    }

    /// The run now reaches `end`; sectors that no longer fit are dropped from its front.
    pub(crate) fn extend(&mut self, index: usize, end: u64) {
        let mut s = self.all[index];
        s.end = s.end.max(end);
        s.start = s.start.max(s.end.saturating_sub(self.sectors));
        self.set(index, s);
    }

    /// Drops every run that overlaps `start..end`, because the host has written there.
    pub(crate) fn invalidate(&mut self, start: u64, end: u64) {
        for index in 0..self.all.len() {
            let s = self.all[index];
            if s.start < end && start < s.end {
                self.set(index, Segment::default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All segments one after the other.
    fn plain(segments: &Segments, lba: u64) -> Option<usize> {
        let holds = segments.all.iter().position(|s| s.start <= lba && lba < s.end);
        holds.or_else(|| segments.all.iter().rposition(|s| s.end == lba && s.start < s.end))
    }

    proptest! {
        #[test]
        fn finds_what_a_plain_loop_finds(
            ops in proptest::collection::vec((0u8..8, 0usize..6, 0u64..300, 0u64..60), 1..100),
        ) {
            let mut segments = Segments::new(6, 40);
            for (op, index, lba, len) in ops {
                match op {
                    0..4 => {
                        let started = segments.start(lba);
                        segments.extend(started, lba + len);
                    }
                    4..7 => segments.extend(index, segments.get(index).end + len),
                    _ => segments.invalidate(lba, lba + len),
                }
                prop_assert!(segments.starts.is_sorted());
                for lba in 0..420 {
                    prop_assert_eq!(segments.find(lba), plain(&segments, lba), "at {}", lba);
                }
            }
        }
    }
}
