//! The drive's buffer: a few segments, each a run of consecutive sectors, least recently used first out.

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
    sectors: u64,
    clock: u64,
}

impl Segments {
    pub(crate) fn new(count: u32, sectors: u32) -> Segments {
        let all = core::iter::repeat_n(Segment::default(), count.clamp(1, 4096) as usize).collect();
        Segments { all, sectors: u64::from(sectors.max(1)), clock: 0 }
    }

    pub(crate) fn get(&self, index: usize) -> Segment {
        self.all[index]
    }

    /// The segment that holds `lba`, or, if there is none, the one that ends just before it.
    pub(crate) fn find(&self, lba: u64) -> Option<usize> {
        let mut next_to = None;
        for (i, s) in self.all.iter().enumerate() {
            if s.start <= lba && lba < s.end {
                return Some(i);
            }
            if s.end == lba && s.start < s.end {
                next_to = Some(i);
            }
        }
        next_to
    }

    /// Marks a segment as just used.
    pub(crate) fn touch(&mut self, index: usize) {
        self.clock += 1;
        self.all[index].used = self.clock;
    }

    /// Empties the least recently used segment and starts a run at `lba` in it.
    pub(crate) fn start(&mut self, lba: u64) -> usize {
        let oldest = (0..self.all.len()).min_by_key(|&i| self.all[i].used).unwrap_or(0);
        self.all[oldest] = Segment { start: lba, end: lba, used: 0 };
        self.touch(oldest);
        oldest
    }

    /// The run now reaches `end`; what no longer fits falls off its front.
    pub(crate) fn extend(&mut self, index: usize, end: u64) {
        let s = &mut self.all[index];
        s.end = s.end.max(end);
        s.start = s.start.max(s.end.saturating_sub(self.sectors));
    }

    /// Forgets every run that overlaps `start..end`: the host has written there.
    pub(crate) fn invalidate(&mut self, start: u64, end: u64) {
        for s in &mut self.all {
            if s.start < end && start < s.end {
                *s = Segment::default();
            }
        }
    }
}
