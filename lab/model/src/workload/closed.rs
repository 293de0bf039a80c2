//! Closed-loop readers: each requests the next range when it has the last.
//!
//! A reader picks a file, reads consecutive ranges of it to its end, then picks the next. Hundreds of readers
//! are as many interleaved sequential streams for a disk, which slow a stock server down to seeking speed.
//! The offered load adapts to the server, so the only measure is throughput.
//!
//! A reader may have several connections that take its ranges, as clients of SMB, NFS or S3 do: ranges that
//! follow one another then reach the server in any order.

use seekless_base::{Bytes, Nanos, words};
use serde::{Deserialize, Serialize};

use crate::workload::catalogue::Catalogue;
use crate::workload::draw::Draw;

/// How a reader chooses its next file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pick {
    /// All files are equally likely.
    #[default]
    Uniform,
    /// By the catalogue's popularity.
    Zipf,
}

words! { Pick: Uniform = "uniform", Zipf = "zipf" }

/// The behaviour of a closed-loop reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClosedSpec {
    /// Bytes in one request; the last of a file may be shorter. At least 1.
    pub range: Bytes,
    /// How files are chosen.
    pub pick: Pick,
    /// A reader's first file is begun at a random multiple of the range, so that readers do not move in step.
    pub random_start: bool,
    /// Number of connections of each reader. This many consecutive ranges at a time are requested in random
    /// order. At least 1.
    pub connections: u32,
    /// Seed; readers differ by their number.
    pub seed: u64,
}

impl Default for ClosedSpec {
    fn default() -> ClosedSpec {
        ClosedSpec {
            range: Bytes::kib(512),
            pick: Pick::Uniform,
            random_start: true,
            connections: 1,
            seed: 1,
        }
    }
}

/// One range of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    /// Index in the catalogue.
    pub video: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u64,
}

/// The requests of one reader, without end.
#[derive(Clone, Debug)]
pub struct ClosedReader<'a> {
    catalogue: &'a Catalogue,
    range: u64,
    pick: Pick,
    draw: Draw,
    video: u32,
    offset: u64,
    connections: usize,
    /// Ranges that are due, the next one last.
    due: Vec<RangeRequest>,
}

impl<'a> ClosedReader<'a> {
    /// Reader number `number` of the workload `spec`.
    pub fn new(catalogue: &'a Catalogue, spec: &ClosedSpec, number: u32) -> ClosedReader<'a> {
        let mut draw = Draw::new(spec.seed, &format!("closed reader {number}"));
        let range = spec.range.0.max(1);
        let video = choose(catalogue, spec.pick, &mut draw);
        let ranges = catalogue.video(video).size.0.div_ceil(range);
        let offset = if spec.random_start { draw.below(ranges) * range } else { 0 };
        let (pick, connections, due) = (spec.pick, spec.connections.max(1) as usize, Vec::new());
        ClosedReader { catalogue, range, pick, draw, video, offset, connections, due }
    }

    /// The next range in the order of the file.
    fn in_order(&mut self) -> RangeRequest {
        // No file of a catalogue is empty, so one step forward always finds bytes.
        if self.offset >= self.catalogue.video(self.video).size.0 {
            self.video = choose(self.catalogue, self.pick, &mut self.draw);
            self.offset = 0;
        }
        let len = self.range.min(self.catalogue.video(self.video).size.0 - self.offset);
        let request = RangeRequest { video: self.video, offset: self.offset, len };
        self.offset += len;
        request
    }
}

fn choose(catalogue: &Catalogue, pick: Pick, draw: &mut Draw) -> u32 {
    match pick {
        Pick::Uniform => catalogue.pick_uniform(draw),
        Pick::Zipf => catalogue.pick_popular(draw),
    }
}

impl Iterator for ClosedReader<'_> {
    type Item = RangeRequest;

    fn next(&mut self) -> Option<RangeRequest> {
        if self.connections == 1 {
            return Some(self.in_order());
        }
        if self.due.is_empty() {
            self.due = (0..self.connections).map(|_| self.in_order()).collect();
            self.draw.shuffle(&mut self.due);
        }
        self.due.pop()
    }
}

/// The readers of all disks of a machine but the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OtherDisks {
    /// As many clients as on the first.
    #[default]
    Busy,
    /// None.
    Idle,
    /// One client that leaves after [`OtherDisks::READ_FOR`], as a system disk is read when programs start.
    ReadOnce,
}

impl OtherDisks {
    /// How long the one client of a disk that is read once reads.
    pub const READ_FOR: Nanos = Nanos::from_secs(5);

    /// Its word in scenarios and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            OtherDisks::Busy => "busy",
            OtherDisks::Idle => "idle",
            OtherDisks::ReadOnce => "read-once",
        }
    }

    /// Number of clients on this disk, if the first has that many.
    pub fn clients(self, disk: u32, first: u32) -> u32 {
        match self {
            _ if disk == 0 => first,
            OtherDisks::Busy => first,
            OtherDisks::Idle => 0,
            OtherDisks::ReadOnce => first.min(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::catalogue::CatalogueSpec;

    fn catalogue() -> Catalogue {
        Catalogue::new(&CatalogueSpec { videos: Some(100), ..CatalogueSpec::default() }).unwrap()
    }

    #[test]
    fn first_requests_never_change() {
        let c = catalogue();
        let got: Vec<(u32, u64)> = (0..4)
            .map(|n| ClosedReader::new(&c, &ClosedSpec::default(), n).next().unwrap())
            .map(|r| (r.video, r.offset))
            .collect();
        assert_eq!(got, GOLDEN);
    }

    const GOLDEN: [(u32, u64); 4] = [(77, 0), (31, 3_670_016), (90, 2_621_440), (58, 524_288)];

    #[test]
    fn connections_ask_for_every_range_once_and_only_near_ranges_change_places() {
        let c = catalogue();
        let ranges = |connections, number| {
            let spec = ClosedSpec { connections, ..ClosedSpec::default() };
            ClosedReader::new(&c, &spec, number).take(800).map(|r| (r.video, r.offset)).collect::<Vec<_>>()
        };
        for number in 0..20 {
            let (one, eight) = (ranges(1, number), ranges(8, number));
            assert_ne!(one, eight);
            let first: Vec<_> = one.iter().take_while(|(video, _)| *video == one[0].0).collect();
            let begun = &eight[..first.len().next_multiple_of(8)];
            assert_eq!(begun.iter().filter(|(video, _)| *video == one[0].0).count(), first.len());
            for (place, range) in first.into_iter().enumerate() {
                let asked = begun.iter().position(|asked| asked == range);
                assert_eq!(asked.map(|asked| asked / 8), Some(place / 8), "{range:?} of reader {number}");
            }
        }
    }

    #[test]
    fn files_are_read_from_end_to_end_without_gap() {
        let c = catalogue();
        for pick in [Pick::Uniform, Pick::Zipf] {
            let spec = ClosedSpec { pick, random_start: false, ..ClosedSpec::default() };
            let mut expected = (u32::MAX, 0);
            for r in ClosedReader::new(&c, &spec, 3).take(2000) {
                let size = c.video(r.video).size.0;
                if expected.0 == u32::MAX {
                    assert_eq!(r.offset, 0, "a new file begins at its start");
                } else {
                    assert_eq!((r.video, r.offset), expected);
                }
                assert!(r.len == spec.range.0 || r.offset + r.len == size);
                expected = if r.offset + r.len == size { (u32::MAX, 0) } else { (r.video, r.offset + r.len) };
            }
        }
    }
}
