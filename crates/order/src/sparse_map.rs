//! The map of a sparse file, as the header of its tar member lists it.

use std::os::fd::AsFd;

use crate::holes::{BLOCK, Stretch, next_data};

/// All stretches of data of a file of `size` bytes, in units of [`BLOCK`] bytes, at most `most` of them:
/// beyond that, short holes count as data.
pub(crate) fn map(file: impl AsFd, size: u64, most: usize) -> Vec<Stretch> {
    let mut map = Map { all: Vec::new(), least: 1, most: most.max(2) };
    let mut at = 0;
    while let Some(next) = next_data(&file, at, size) {
        let offset = next.offset / BLOCK * BLOCK;
        map.add(Stretch { offset, len: next.end().next_multiple_of(BLOCK).min(size) - offset });
        at = next.end();
    }
    map.all
}

struct Map {
    all: Vec<Stretch>,
    /// Shortest hole.
    least: u64,
    most: usize,
}

impl Map {
    fn add(&mut self, next: Stretch) {
        while !self.joined(next) && self.all.len() == self.most {
            self.least = self.least.saturating_mul(2);
            let (before, most, least) = (std::mem::take(&mut self.all), self.most, self.least);
            let mut shorter = Map { all: Vec::new(), least, most };
            for one in before {
                if !shorter.joined(one) {
                    shorter.all.push(one);
                }
            }
            self.all = shorter.all;
        }
        if self.all.last().is_none_or(|last| last.end() < next.end()) {
            self.all.push(next);
        }
    }

    /// Joins a stretch to the last one, if the hole between them is too short.
    fn joined(&mut self, next: Stretch) -> bool {
        match self.all.last_mut() {
            Some(last) if next.offset < last.end().saturating_add(self.least) => {
                last.len = next.end().max(last.end()) - last.offset;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn the_map_has_the_data_and_no_hole() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        assert_eq!(map(&file, 0, 100), []);
        file.write_all_at(&[1; 65_536], 1 << 20).unwrap();
        file.write_all_at(&[1; 65_536], 4 << 20).unwrap();
        if next_data(&file, 0, 1 << 30).is_some_and(|first| first.offset == 0) {
            return println!("skipped: no holes here");
        }
        let stretch = |offset| Stretch { offset, len: 65_536 };
        assert_eq!(map(&file, 1 << 30, 100), [stretch(1 << 20), stretch(4 << 20)]);
    }

    #[test]
    fn too_many_stretches_become_fewer_and_lose_nothing() {
        let mut map = Map { all: Vec::new(), least: 1, most: 10 };
        let starts: Vec<u64> = (0..1000).map(|i| i * 4096 + (i / 100) * 1_000_000).collect();
        starts.iter().for_each(|&offset| map.add(Stretch { offset, len: 512 }));
        assert!(map.all.len() <= 10, "{:?}", map.all);
        for &offset in &starts {
            assert!(map.all.iter().any(|s| s.offset <= offset && offset + 512 <= s.end()), "{offset}");
        }
        assert!(map.all.windows(2).all(|pair| pair[0].end() < pair[1].offset));
        let data: u64 = map.all.iter().map(|s| s.len).sum();
        assert!(data < 5_000_000, "the long holes are holes: {data}");
    }
}
