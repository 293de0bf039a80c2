//! Which pages of the disk hold content of which file: an extent map.
//!
//! A page written with [`seekless_model::workload::content`] is kept as two numbers, the seed of the file and
//! the page's index in it. Files are written in long runs, so neighbouring pages whose indices follow one
//! another become one run and a library of terabytes fits into a few thousand entries. Pages in no run belong
//! to the backing file.

use std::collections::BTreeMap;
use std::ops::Range;

/// Neighbouring pages of the disk that hold neighbouring pages of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageRun {
    pages: u64,
    seed: u64,
    /// Index, within the file, of the run's first page.
    index: u64,
}

/// A stretch of pages of the disk and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First page on the disk.
    pub first: u64,
    /// Number of pages, at least 1.
    pub pages: u64,
    /// Seed and the index within the file of the first page, or `None`: see the backing file.
    pub content: Option<(u64, u64)>,
}

/// Runs of content by the page of the disk at which they begin; they never overlap and are never mergeable.
#[derive(Debug, Default)]
pub struct ExtentMap {
    runs: BTreeMap<u64, PageRun>,
}

impl ExtentMap {
    /// Number of runs, the map's memory in units of about 60 bytes.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether no page holds content.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Pages `first..first + pages` now hold pages `index..` of the file with `seed`.
    pub fn insert(&mut self, first: u64, pages: u64, seed: u64, index: u64) {
        if pages == 0 {
            return;
        }
        self.remove(first..first + pages);
        let (mut at, mut run) = (first, PageRun { pages, seed, index });
        if let Some((&before, left)) = self.runs.range(..first).next_back()
            && before + left.pages == first
            && left.seed == seed
            && left.index.wrapping_add(left.pages) == index
        {
            run = PageRun { pages: left.pages + pages, ..*left };
            at = before;
        }
        if let Some(right) = self.runs.get(&(first + pages))
            && right.seed == seed
            && index.wrapping_add(pages) == right.index
        {
            run.pages += right.pages;
            self.runs.remove(&(first + pages));
        }
        self.runs.insert(at, run);
    }

    /// These pages hold no content any more.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // A run that begins before the range may reach into it, and beyond.
        if let Some((&at, &run)) = self.runs.range(..range.start).next_back()
            && at + run.pages > range.start
        {
            self.runs.insert(at, PageRun { pages: range.start - at, ..run });
            self.keep_tail(at, run, range.end);
        }
        while let Some((&at, &run)) = self.runs.range(range.clone()).next() {
            self.runs.remove(&at);
            self.keep_tail(at, run, range.end);
        }
    }

    /// Puts back what of `run` (which began at page `at`) lies from page `end` on.
    fn keep_tail(&mut self, at: u64, run: PageRun, end: u64) {
        if at + run.pages > end {
            let cut = end - at;
            let tail = PageRun { pages: run.pages - cut, seed: run.seed, index: run.index.wrapping_add(cut) };
            self.runs.insert(end, tail);
        }
    }

    /// What one page holds.
    pub fn get(&self, page: u64) -> Option<(u64, u64)> {
        let (at, run) = self.runs.range(..=page).next_back()?;
        (page < at + run.pages).then(|| (run.seed, run.index.wrapping_add(page - at)))
    }

    /// The pages of `range` in order, each in exactly one segment.
    pub fn segments(&self, range: Range<u64>) -> Vec<Segment> {
        let mut out = Vec::new();
        let mut at = range.start;
        let first = self.runs.range(..=at).next_back().map_or(at, |(k, _)| *k);
        for (&start, run) in self.runs.range(first..range.end.max(first)) {
            let (from, to) = (start.max(at), (start + run.pages).min(range.end));
            if from >= to {
                continue;
            }
            if at < from {
                out.push(Segment { first: at, pages: from - at, content: None });
            }
            let content = Some((run.seed, run.index.wrapping_add(from - start)));
            out.push(Segment { first: from, pages: to - from, content });
            at = to;
        }
        if at < range.end {
            out.push(Segment { first: at, pages: range.end - at, content: None });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_written_in_pieces_is_one_run() {
        let mut map = ExtentMap::default();
        for piece in [2, 0, 1, 3] {
            map.insert(100 + piece * 16, 16, 7, piece * 16);
        }
        assert_eq!(map.len(), 1);
        assert_eq!(map.segments(90..200).len(), 3);
        assert_eq!(map.get(163), Some((7, 63)));
        assert_eq!(map.get(164), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert { first: u64, pages: u64, seed: u64, index: u64 },
        Remove { first: u64, pages: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            // Indices that often continue the neighbour, so that merging is exercised.
            (0u64..60, 0u64..20, 0u64..2, 0u64..3).prop_map(|(first, pages, seed, shift)| Step::Insert {
                first,
                pages,
                seed,
                index: first + shift
            }),
            (0u64..60, 0u64..20).prop_map(|(first, pages)| Step::Remove { first, pages }),
        ];
        prop::collection::vec(step, 0..40)
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_array(steps in steps()) {
            let mut map = ExtentMap::default();
            let mut naive = vec![None; 80];
            for step in steps {
                match step {
                    Step::Insert { first, pages, seed, index } => {
                        map.insert(first, pages, seed, index);
                        for k in 0..pages {
                            naive[(first + k) as usize] = Some((seed, index + k));
                        }
                    }
                    Step::Remove { first, pages } => {
                        map.remove(first..first + pages);
                        for k in 0..pages {
                            naive[(first + k) as usize] = None;
                        }
                    }
                }
                for (page, want) in naive.iter().enumerate() {
                    prop_assert_eq!(map.get(page as u64), *want);
                }
                // Segments tile the range and say the same.
                for range in [0..80u64, 13..41, 40..41, 7..7] {
                    let mut at = range.start;
                    for s in map.segments(range.clone()) {
                        prop_assert_eq!(s.first, at);
                        prop_assert!(s.pages > 0);
                        for k in 0..s.pages {
                            let want = naive[(s.first + k) as usize];
                            prop_assert_eq!(s.content.map(|(seed, i)| (seed, i + k)), want);
                        }
                        at += s.pages;
                    }
                    prop_assert_eq!(at, range.end);
                }
                // As few runs as there can be.
                let breaks = (1..80).filter(|&p| {
                    let follows = matches!((naive[p - 1], naive[p]),
                        (Some((a, i)), Some((b, j))) if a == b && i + 1 == j);
                    naive[p].is_some() && !follows
                }).count() + usize::from(naive[0].is_some());
                prop_assert_eq!(map.len(), breaks);
            }
        }
    }
}
