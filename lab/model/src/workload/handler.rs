//! Request handlers of a data-intensive server: what each reads from its disk, and when it thinks (\[C\]
//! section 3.1).
//!
//! A handler serves one request: it opens files, reads them block by block in one thread, and sends a short
//! answer. The paper's microbenchmarks are named by what a handler does: how many files it reads, which part
//! of each, and how many milliseconds it thinks, so `two-rand-0` is "a random portion of two files, no think
//! time". Files are chosen at random, portions begin at the head of a file, and several files are read in
//! turn, a block of each.
//!
//! `index-search` is a query of several keywords: for each a binary search of the mapping file, then all
//! keywords' lists side by side. The paper's index and trace are not public. Of the index it gives the sizes
//! ([`Content::Index`]); how many keywords a query has is that of AltaVista in 1998 (Silverstein, Henzinger,
//! Marais, Moricz, SIGIR Forum 1999, table 3: 1, 2, 3 and more in 25.8, 26.0, 15.0 and 12.6 of 100 queries,
//! the rest empty). Guessed: lists of 16 KiB to 4 MiB, their logarithms evenly distributed, anywhere in the
//! index.
//!
//! `piece-2mib-100` is a peer of a torrent: the library is one torrent of pieces of 2 MiB, one file behind
//! the other, so a piece may begin in one file and end in the next. A peer takes a whole piece, any, in
//! blocks of 16 KiB (BEP 3), and pauses for 100 ms after every sixteen of them, as a link makes it.
//! `blocks-2mib-100` takes three blocks of a piece and pauses. With `mixed` each file is a torrent of its
//! own, and the pieces of one have 1 to 16 MiB.
//!
//! `needle-any-0` reads one needle of a store: each file is a volume of needles of 64 KiB to 8 MiB, one
//! behind the other. A read takes the last 1 MiB of a needle, then the rest from its begin in reads of
//! 256 KiB. `member-any-0` reads one member of an archive, 0.5 to 30 MiB, in reads of 128 KiB. All sizes have
//! evenly distributed logarithms, and no gaps are between. `any` chooses all equally often, `popular` by
//! Zipf.
//!
//! [`Content::Index`]: crate::workload::catalogue::Content::Index

use core::str::FromStr;
use std::sync::Arc;

use seekless_base::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::workload::catalogue::{Catalogue, INDEX_MAPPING};
use crate::workload::closed::RangeRequest;
use crate::workload::draw::Draw;
use crate::workload::zipf::Zipf;

/// Bytes of one read call.
pub const BLOCK: Bytes = Bytes::kib(64);
/// Bytes that a peer of a torrent asks for at once (BEP 3).
const PEER_BLOCK: u64 = 16 << 10;
/// Reads of an item before a pause: sixteen blocks of a piece are 256 KiB.
const READS_BEFORE_PAUSE: usize = 16;
/// Blocks of a piece that a peer takes which lacks only some.
const SCATTERED: u64 = 3;
/// Sizes of pieces of `mixed` torrents: 1 MiB, doubled up to so many times.
const DOUBLINGS: u32 = 5;
/// Bytes that a needle's reader reads of its end, before the rest.
const NEEDLE_TAIL: u64 = 1 << 20;
/// A read of the rest of a needle.
const NEEDLE_READ: u64 = 256 << 10;
/// Sizes of needles, KiB.
const NEEDLES_KIB: (u32, u32) = (64, 8 << 10);
/// A read of an archive's member.
const MEMBER_READ: u64 = 128 << 10;
/// Sizes of members, KiB.
const MEMBERS_KIB: (u32, u32) = (512, 30 << 10);
/// Exponent of the popularity of needles and members, that of the video papers.
const POPULARITY: f64 = 0.8;
/// Think times in one request, where there are any.
const THINKS: u64 = 4;
/// One read of a binary search.
const PROBE: u64 = 4096;
/// Queries of 1, 2, 3 and 4 keywords, of 794 that are not empty.
const KEYWORDS: [u64; 4] = [258, 260, 150, 126];
/// Shortest list of a keyword, KiB.
const LIST_MIN_KIB: u32 = 16;
/// Longest list of a keyword, KiB.
const LIST_MAX_KIB: u32 = 4096;

/// Which part of a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// From its head, evenly distributed between one block and the whole.
    Rand,
    /// One block of 64 KiB, any.
    Block,
}

impl Part {
    const NAMES: [(&'static str, Part); 3] =
        [("whole", Part::Whole), ("rand", Part::Rand), ("64kb", Part::Block)];
}

/// What every handler of a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Handler {
    /// A microbenchmark.
    Files {
        /// Files a request, 1 to 4.
        files: u32,
        /// What is read of each.
        part: Part,
        /// Length of each of the four pauses in a request.
        think: Nanos,
    },
    /// A query to a search index.
    IndexSearch,
    /// One of the parts that lie one behind the other in each file.
    Item {
        /// What the parts are, and how one is read.
        item: Item,
        /// Which there are, or which is chosen.
        of: Of,
        /// Length of each pause.
        pause: Nanos,
    },
}

/// A kind of part that files consist of. A request reads one such part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A piece of a torrent, all of it.
    Piece,
    /// A piece of a torrent, three blocks of it.
    Blocks,
    /// A needle of a store: its end, then the rest.
    Needle,
    /// A member of an archive.
    Member,
}

impl Item {
    const NAMES: [(&'static str, Item); 4] = [
        ("piece", Item::Piece),
        ("blocks", Item::Blocks),
        ("needle", Item::Needle),
        ("member", Item::Member),
    ];

    /// Shortest and longest, KiB, of those of sizes of their own.
    fn sizes_kib(self) -> Option<(u32, u32)> {
        match self {
            Item::Piece | Item::Blocks => None,
            Item::Needle => Some(NEEDLES_KIB),
            Item::Member => Some(MEMBERS_KIB),
        }
    }
}

/// Which items there are, or which of them is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Pieces of this size, of one torrent of all files.
    Size(Bytes),
    /// Each file is a torrent, with pieces of a size of its own.
    Mixed,
    /// Needles or members, all equally often.
    Any,
    /// Needles or members, by Zipf.
    Popular,
}

impl Of {
    fn parse(word: &str, item: Item) -> Option<Of> {
        match (word, item.sizes_kib()) {
            ("mixed", None) => Some(Of::Mixed),
            (size, None) => {
                let mib = size.strip_suffix("mib")?.parse().ok().filter(|mib| *mib >= 1 && *mib <= 64)?;
                Some(Of::Size(Bytes::mib(mib)))
            }
            ("any", Some(_)) => Some(Of::Any),
            ("popular", Some(_)) => Some(Of::Popular),
            _ => None,
        }
    }
}

impl core::fmt::Display for Of {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Of::Size(size) => write!(f, "{}mib", size.0 >> 20),
            Of::Mixed => f.write_str("mixed"),
            Of::Any => f.write_str("any"),
            Of::Popular => f.write_str("popular"),
        }
    }
}

impl Handler {
    /// Whether a library has the files this handler reads.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(self, catalogue: &Catalogue) -> Result<(), String> {
        if self == Handler::IndexSearch && catalogue.videos().len() < 2 {
            return Err(
                "index-search reads a mapping file and at least one part of an index: give --content index"
                    .into(),
            );
        }
        Ok(())
    }
}

const COUNTS: [&str; 4] = ["one", "two", "three", "four"];

impl FromStr for Handler {
    type Err = String;

    fn from_str(word: &str) -> Result<Handler, String> {
        if word == "index-search" {
            return Ok(Handler::IndexSearch);
        }
        let item = || {
            let (item, rest) = word.split_once('-')?;
            let (of, pause_ms) = rest.split_once('-')?;
            let item = Item::NAMES.iter().find(|(name, _)| *name == item)?.1;
            let pause = Nanos::from_millis(pause_ms.parse().ok().filter(|ms| *ms <= 60_000)?);
            Some(Handler::Item { item, of: Of::parse(of, item)?, pause })
        };
        if let Some(item) = item() {
            return Ok(item);
        }
        let parsed = || {
            let (count, rest) = word.split_once('-')?;
            let (part, think_ms) = rest.split_once('-')?;
            Some(Handler::Files {
                files: COUNTS.iter().position(|c| *c == count)? as u32 + 1,
                part: Part::NAMES.iter().find(|(name, _)| *name == part)?.1,
                think: Nanos::from_millis(think_ms.parse().ok().filter(|ms| *ms <= 60_000)?),
            })
        };
        parsed().ok_or_else(|| {
            format!("`{word}` is no handler; write index-search, files-part-think such as one-whole-0, two-rand-10, four-64kb-0, piece-2mib-100, blocks-mixed-0, needle-any-0, member-popular-0")
        })
    }
}

impl core::fmt::Display for Handler {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (files, part, think) = match self {
            Handler::Files { files, part, think } => (files, part, think),
            Handler::IndexSearch => return f.write_str("index-search"),
            Handler::Item { item, of, pause } => {
                let name = Item::NAMES.iter().find(|(_, i)| i == item).map_or("", |(name, _)| name);
                return write!(f, "{name}-{of}-{}", pause.0 / 1_000_000);
            }
        };
        let name = Part::NAMES.iter().find(|(_, p)| p == part).map_or("", |(name, _)| name);
        write!(f, "{}-{name}-{}", COUNTS[*files as usize - 1], think.0 / 1_000_000)
    }
}

impl TryFrom<String> for Handler {
    type Error = String;
    fn try_from(word: String) -> Result<Handler, String> {
        word.parse()
    }
}

impl From<Handler> for String {
    fn from(handler: Handler) -> String {
        handler.to_string()
    }
}

/// One thing a handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads a range of a file, by the descriptor with this number among those the request opened.
    Read {
        /// Number of the descriptor, counted from 0.
        open: u32,
        /// What is read.
        range: RangeRequest,
    },
    /// Does nothing that needs the disk, for this long.
    Think(Nanos),
}

/// The items of all files. All clients share them.
#[derive(Debug, Default)]
pub struct Items {
    /// Where each file of a torrent begins in it; for peers of one torrent.
    starts: Vec<u64>,
    /// Items of sizes of their own, in random order.
    ranges: Vec<RangeRequest>,
    /// Their popularity in this order, unless they are chosen equally often.
    popularity: Option<Zipf>,
}

impl Items {
    /// Those of this library that a handler reads; none where it reads no items.
    pub fn new(catalogue: &Catalogue, handler: Handler) -> Arc<Items> {
        Arc::new(match handler {
            Handler::Item { item, of, .. } => Items::of(catalogue, item, of),
            Handler::Files { .. } | Handler::IndexSearch => Items::default(),
        })
    }

    fn of(catalogue: &Catalogue, item: Item, of: Of) -> Items {
        let starts = match of {
            Of::Size(_) => {
                let begin = |at: &mut u64, size: u64| Some(core::mem::replace(at, *at + size));
                catalogue.videos().iter().scan(0, |at, video| begin(at, video.size.0)).collect()
            }
            _ => Vec::new(),
        };
        let Some(sizes_kib) = item.sizes_kib() else { return Items { starts, ..Items::default() } };
        let mut draw = Draw::new(0, "items of files");
        let mut ranges = Vec::new();
        for (video, size) in (0..).zip(catalogue.videos().iter().map(|video| video.size.0)) {
            let mut offset = 0;
            while offset < size {
                let len = evenly_by_logarithm(&mut draw, sizes_kib).min(size - offset);
                ranges.push(RangeRequest { video, offset, len });
                offset += len;
            }
        }
        draw.shuffle(&mut ranges);
        let popularity = (of == Of::Popular).then(|| Zipf::new(ranges.len(), POPULARITY));
        Items { starts, ranges, popularity }
    }
}

/// Bytes between two numbers of KiB, their logarithm evenly distributed; at least 1.
fn evenly_by_logarithm(draw: &mut Draw, (shortest, longest): (u32, u32)) -> u64 {
    let (shortest, longest) = (f64::from(shortest), f64::from(longest));
    ((1024.0 * shortest * libm::pow(longest / shortest, draw.unit())) as u64).max(1)
}

/// The requests of one client, without end.
#[derive(Clone, Debug)]
pub struct Requests<'a> {
    catalogue: &'a Catalogue,
    handler: Handler,
    draw: Draw,
    items: Arc<Items>,
}

impl<'a> Requests<'a> {
    /// Client number `number` of the workload of this seed, with the items of library and handler.
    pub fn new(
        catalogue: &'a Catalogue,
        handler: Handler,
        items: Arc<Items>,
        seed: u64,
        number: u32,
    ) -> Requests<'a> {
        Requests { catalogue, handler, draw: Draw::new(seed, &format!("handler client {number}")), items }
    }

    fn portion(&mut self, part: Part) -> RangeRequest {
        let video = self.catalogue.pick_uniform(&mut self.draw);
        let size = self.catalogue.video(video).size.0;
        let block = BLOCK.0.min(size);
        let (offset, len) = match part {
            Part::Whole => (0, size),
            Part::Rand => (0, block + self.draw.below(size - block + 1)),
            Part::Block => (self.draw.below(size / block) * block, block),
        };
        RangeRequest { video, offset, len }
    }

    /// The pages a binary search of the mapping file looks at for a random keyword, and its list.
    fn keyword(&mut self, probes: &mut Vec<Step>) -> RangeRequest {
        let (mut low, mut high) = (0, self.catalogue.video(INDEX_MAPPING).size.0 / PROBE);
        let target = self.draw.below(high);
        while low < high {
            let middle = low + (high - low) / 2;
            let range = RangeRequest { video: INDEX_MAPPING, offset: middle * PROBE, len: PROBE };
            probes.push(Step::Read { open: 0, range });
            match target.cmp(&middle) {
                core::cmp::Ordering::Less => high = middle,
                core::cmp::Ordering::Equal => break,
                core::cmp::Ordering::Greater => low = middle + 1,
            }
        }
        let partitions = self.catalogue.videos().len() as u64 - 1;
        let video = INDEX_MAPPING + 1 + self.draw.below(partitions) as u32;
        let size = self.catalogue.video(video).size.0;
        let len = evenly_by_logarithm(&mut self.draw, (LIST_MIN_KIB, LIST_MAX_KIB)).min(size);
        RangeRequest { video, offset: self.draw.below((size - len) / PROBE + 1) * PROBE, len }
    }

    fn query(&mut self) -> Vec<Step> {
        let mut drawn = self.draw.below(KEYWORDS.iter().sum());
        let more = KEYWORDS.iter().take_while(|&&share| {
            let beyond = drawn >= share;
            drawn = drawn.saturating_sub(share);
            beyond
        });
        let keywords = 1 + more.count();
        let mut steps = Vec::new();
        let lists: Vec<RangeRequest> = (0..keywords).map(|_| self.keyword(&mut steps)).collect();
        in_turn(&lists, 1, &mut steps);
        steps
    }

    /// The ranges of an item: a piece of a torrent of several files may have more than one.
    fn item(&mut self, of: Of) -> Vec<RangeRequest> {
        let piece = match of {
            Of::Size(piece) => piece,
            Of::Mixed => {
                let video = self.catalogue.pick_uniform(&mut self.draw);
                let (size, piece) = (self.catalogue.video(video).size.0, 1 << (20 + video % DOUBLINGS));
                let offset = self.draw.below(size.div_ceil(piece)) * piece;
                return vec![RangeRequest { video, offset, len: piece.min(size - offset) }];
            }
            Of::Any | Of::Popular => {
                let Items { ranges, popularity, .. } = &*self.items;
                let at = match popularity {
                    Some(zipf) => zipf.sample(&mut self.draw),
                    None => self.draw.below(ranges.len() as u64) as usize,
                };
                return vec![ranges[at]];
            }
        };
        let (total, starts) = (self.catalogue.total().0, &self.items.starts);
        let from = self.draw.below(total.div_ceil(piece.0)) * piece.0;
        let upto = (from + piece.0).min(total);
        let first = starts.partition_point(|&start| start <= from).saturating_sub(1);
        let files = (first as u32..).zip(&starts[first..]).take_while(|&(_, &start)| start < upto);
        files
            .map(|(video, &start)| {
                let end = (start + self.catalogue.video(video).size.0).min(upto);
                let offset = from.saturating_sub(start);
                RangeRequest { video, offset, len: end - start - offset }
            })
            .collect()
    }

    /// How an item of `len` bytes is read: start and end of each read within the item, in the order of the
    /// reads.
    fn reads(&mut self, item: Item, len: u64) -> Vec<(u64, u64)> {
        let read = |n: u64, step: u64, upto: u64| (n * step, ((n + 1) * step).min(upto));
        let every = |step: u64, upto: u64| (0..upto.div_ceil(step)).map(move |n| read(n, step, upto));
        match item {
            Item::Piece => every(PEER_BLOCK, len).collect(),
            Item::Blocks => {
                let blocks = len.div_ceil(PEER_BLOCK);
                let mut some: Vec<u64> = (0..SCATTERED).map(|_| self.draw.below(blocks)).collect();
                some.sort_unstable();
                some.dedup();
                some.into_iter().map(|block| read(block, PEER_BLOCK, len)).collect()
            }
            Item::Needle => {
                let tail = len.saturating_sub(NEEDLE_TAIL);
                core::iter::once((tail, len)).chain(every(NEEDLE_READ, tail)).collect()
            }
            Item::Member => every(MEMBER_READ, len).collect(),
        }
    }

    fn reads_item(&mut self, item: Item, of: Of, pause: Nanos) -> Vec<Step> {
        let ranges = self.item(of);
        let reads = self.reads(item, ranges.iter().map(|r| r.len).sum());
        let pause_after = if item == Item::Blocks { reads.len() } else { READS_BEFORE_PAUSE };
        let mut steps = Vec::new();
        for (i, &(from, upto)) in reads.iter().enumerate() {
            let mut begin = 0;
            for (open, range) in (0..).zip(&ranges) {
                let (start, end) = (from.max(begin), upto.min(begin + range.len));
                if start < end {
                    let range =
                        RangeRequest { offset: range.offset + start - begin, len: end - start, ..*range };
                    steps.push(Step::Read { open, range });
                }
                begin += range.len;
            }
            if pause > Nanos::ZERO && (i + 1) % pause_after == 0 {
                steps.push(Step::Think(pause));
            }
        }
        steps
    }

    fn files(&mut self, files: u32, part: Part, think: Nanos) -> Vec<Step> {
        let portions: Vec<RangeRequest> = (0..files).map(|_| self.portion(part)).collect();
        let mut steps = Vec::new();
        in_turn(&portions, 0, &mut steps);
        if think > Nanos::ZERO {
            for _ in 0..THINKS {
                let at = self.draw.below(steps.len() as u64 + 1) as usize;
                steps.insert(at, Step::Think(think));
            }
        }
        steps
    }
}

/// Reads all ranges side by side, a block of each in turn; the first has descriptor `first`.
fn in_turn(ranges: &[RangeRequest], first: u32, steps: &mut Vec<Step>) {
    let longest = ranges.iter().map(|r| r.len).max().unwrap_or(0);
    for done in (0..longest).step_by(BLOCK.0 as usize) {
        for (open, range) in (first..).zip(ranges).filter(|(_, r)| done < r.len) {
            let len = BLOCK.0.min(range.len - done);
            let range = RangeRequest { offset: range.offset + done, len, ..*range };
            steps.push(Step::Read { open, range });
        }
    }
}

impl Iterator for Requests<'_> {
    type Item = Vec<Step>;

    fn next(&mut self) -> Option<Vec<Step>> {
        Some(match self.handler {
            Handler::Files { files, part, think } => self.files(files, part, think),
            Handler::IndexSearch => self.query(),
            Handler::Item { item, of, pause } => self.reads_item(item, of, pause),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::catalogue::{CatalogueSpec, Content};

    /// Client 0 of seed 1.
    fn client<'a>(catalogue: &'a Catalogue, handler: &str) -> Requests<'a> {
        let handler = handler.parse().unwrap();
        Requests::new(catalogue, handler, Items::new(catalogue, handler), 1, 0)
    }

    fn requests(handler: &str, count: usize) -> Vec<Vec<Step>> {
        let content = if handler == "index-search" { Content::Index } else { Content::Videos };
        let spec = CatalogueSpec {
            videos: (content == Content::Videos).then_some(6000),
            file_size: (content == Content::Videos).then_some(Bytes::mib(4)),
            content,
            ..CatalogueSpec::default()
        };
        let catalogue = Catalogue::new(&spec).unwrap();
        client(&catalogue, handler).take(count).collect()
    }

    fn reads(steps: &[Step]) -> Vec<(u32, RangeRequest)> {
        let read = |step: &Step| match step {
            Step::Read { open, range } => Some((*open, *range)),
            Step::Think(_) => None,
        };
        steps.iter().filter_map(read).collect()
    }

    #[test]
    fn one_whole_reads_64_blocks_from_end_to_end() {
        for request in requests("one-whole-0", 20) {
            let reads = reads(&request);
            assert_eq!((reads.len(), request.len()), (64, 64));
            let offsets: Vec<u64> = reads.iter().map(|(_, r)| r.offset >> 16).collect();
            assert_eq!(offsets, (0..64).collect::<Vec<u64>>());
            assert!(
                reads.iter().all(|(open, r)| *open == 0 && r.len == 65536 && r.video == reads[0].1.video)
            );
        }
    }

    #[test]
    fn one_rand_thinks_four_times_and_reads_half_a_file_on_average() {
        let requests = requests("one-rand-10", 4000);
        let mut bytes = 0;
        for request in &requests {
            let thinks = request.iter().filter(|s| **s == Step::Think(Nanos::from_millis(10)));
            assert_eq!(thinks.count(), 4);
            let len: u64 = reads(request).iter().map(|(_, r)| r.len).sum();
            assert!((65_536..=4 << 20).contains(&len));
            assert_eq!(reads(request)[0].1.offset, 0, "from the head");
            bytes += len;
        }
        // [C]: "evenly distributed between 64 KB and 4 MB".
        let mean = bytes as f64 / 4000.0 / f64::from(64 << 10);
        assert!((mean - 32.5).abs() < 0.8, "{mean} blocks");
    }

    #[test]
    fn two_rand_alternates_until_the_shorter_ends() {
        for request in requests("two-rand-0", 50) {
            let reads = reads(&request);
            let blocks = |n: u32| reads.iter().filter(|(open, _)| *open == n).count();
            let both = blocks(0).min(blocks(1));
            for (i, (open, range)) in reads.iter().enumerate() {
                let (turn, block) = if i < 2 * both { (i % 2, i / 2) } else { (*open as usize, i - both) };
                assert_eq!((*open as usize, range.offset >> 16), (turn, block as u64));
            }
        }
    }

    #[test]
    fn four_64kb_reads_one_block_of_each_file() {
        let mut places = [0; 64];
        for request in requests("four-64kb-0", 2000) {
            let reads = reads(&request);
            assert_eq!(reads.iter().map(|(open, _)| *open).collect::<Vec<_>>(), [0, 1, 2, 3]);
            for (_, r) in reads {
                assert_eq!((r.len, r.offset % 65_536), (65_536, 0));
                places[(r.offset >> 16) as usize] += 1;
            }
        }
        assert!(places.iter().all(|n| (70..190).contains(n)), "{places:?}");
    }

    #[test]
    fn a_query_looks_its_keywords_up_and_reads_their_lists_in_turn() {
        let requests = requests("index-search", 4000);
        let (mut keywords, mut bytes) = (0, 0.0);
        for request in &requests {
            let reads = reads(request);
            let probes = reads.iter().take_while(|(open, _)| *open == 0).count();
            assert!(reads[probes..].iter().all(|(open, _)| *open > 0), "first all look-ups, then the lists");
            let lists = reads.iter().map(|(open, _)| *open).max().unwrap();
            // 522 MB are 127,441 pages: 17 halvings at most.
            assert!(probes <= 17 * lists as usize && (1..=4).contains(&lists), "{probes} {lists}");
            assert_eq!(reads[0].1.offset, 127_441 / 2 * 4096, "in the middle first");
            keywords += lists;
            bytes += reads[probes..].iter().map(|(_, r)| r.len as f64).sum::<f64>();
        }
        let mean = f64::from(keywords) / 4000.0;
        assert!((mean - 2.18).abs() < 0.05, "{mean}");
        // (b - a) / ln(b / a)
        let list = bytes / f64::from(keywords) / 753_430.0;
        assert!((list - 1.0).abs() < 0.05, "{list}");
    }

    #[test]
    fn a_peer_takes_a_whole_piece_across_files_in_blocks_of_16_kib() {
        let spec = CatalogueSpec {
            videos: Some(300),
            file_size: Some(Bytes(5_000_001)),
            ..CatalogueSpec::default()
        };
        let catalogue = Catalogue::new(&spec).unwrap();
        let (mut across, mut partial) = (0, 0);
        for request in client(&catalogue, "piece-2mib-100").take(500) {
            let reads = reads(&request);
            let place = |r: &RangeRequest| u64::from(r.video) * 5_000_001 + r.offset;
            let first = place(&reads[0].1);
            assert_eq!(first % (2 << 20), 0);
            let mut at = first;
            for (_, r) in &reads {
                assert_eq!(place(r), at, "block behind block");
                assert!(r.len <= 16 << 10 && r.offset + r.len <= 5_000_001);
                at += r.len;
            }
            assert!(at == first + (2 << 20) || at == 300 * 5_000_001);
            across += u32::from(reads.last().unwrap().1.video != reads[0].1.video);
            partial += u32::from(reads.iter().any(|(_, r)| r.len % (16 << 10) != 0));
            assert_eq!(
                request.iter().filter(|s| matches!(s, Step::Think(_))).count() as u64,
                (at - first).div_ceil(1 << 14) / 16
            );
        }
        assert!((100..300).contains(&across) && partial >= across, "{across} {partial}");
    }

    #[test]
    fn mixed_torrents_have_pieces_of_their_own_and_scattered_blocks_are_few() {
        let spec =
            CatalogueSpec { videos: Some(10), file_size: Some(Bytes::mib(40)), ..CatalogueSpec::default() };
        let catalogue = Catalogue::new(&spec).unwrap();
        for request in client(&catalogue, "piece-mixed-0").take(200) {
            let reads = reads(&request);
            let piece = 1u64 << (20 + reads[0].1.video % 5);
            let len: u64 = reads.iter().map(|(_, r)| r.len).sum();
            assert_eq!((reads[0].1.offset % piece, len), (0, piece.min((40 << 20) - reads[0].1.offset)));
        }
        for request in client(&catalogue, "blocks-mixed-50").take(200) {
            assert!(reads(&request).len() <= 3 && request.len() <= 4);
            assert_eq!(request.last(), Some(&Step::Think(Nanos::from_millis(50))));
        }
    }

    #[test]
    fn needles_are_read_from_their_ends_and_members_from_their_begins() {
        let spec =
            CatalogueSpec { videos: Some(4), file_size: Some(Bytes::gib(1)), ..CatalogueSpec::default() };
        let catalogue = Catalogue::new(&spec).unwrap();
        let needle: Handler = "needle-any-0".parse().unwrap();
        let another = Requests::new(&catalogue, needle, Items::new(&catalogue, needle), 1, 1);
        let mut ends = std::collections::BTreeMap::new();
        for request in another.take(2000) {
            let reads: Vec<RangeRequest> = reads(&request).into_iter().map(|(_, r)| r).collect();
            let end = reads[0].offset + reads[0].len;
            let begin = reads.iter().map(|r| r.offset).min().unwrap();
            let len: u64 = reads.iter().map(|r| r.len).sum();
            assert_eq!((len, reads[0].len), (end - begin, len.min(1 << 20)));
            assert!(reads[1..].windows(2).all(|w| w[0].offset + w[0].len == w[1].offset));
            assert!(len <= 8 << 20 && (len >= 64 << 10 || end == 1 << 30));
            assert_eq!(*ends.entry((reads[0].video, end)).or_insert(begin), begin, "needles do not change");
        }
        let (mut seen, mut bytes) = (std::collections::BTreeMap::new(), 0);
        for request in client(&catalogue, "member-popular-0").take(2000) {
            let reads = reads(&request);
            assert!(reads.iter().all(|(_, r)| r.len <= 128 << 10));
            bytes += reads.iter().map(|(_, r)| r.len).sum::<u64>();
            *seen.entry((reads[0].1.video, reads[0].1.offset)).or_insert(0) += 1;
        }
        let mean = bytes as f64 / 2000.0 / f64::from(1 << 20);
        assert!((4.0..12.0).contains(&mean), "{mean} MiB");
        assert!(*seen.values().max().unwrap() > 40, "some are popular");
    }

    #[test]
    fn a_search_needs_an_index() {
        let one = Catalogue::new(&CatalogueSpec { videos: Some(1), ..CatalogueSpec::default() }).unwrap();
        assert!(
            "index-search".parse::<Handler>().unwrap().check(&one).unwrap_err().contains("--content index")
        );
        assert_eq!("one-whole-0".parse::<Handler>().unwrap().check(&one), Ok(()));
    }

    #[test]
    fn names_are_the_papers_and_others_are_refused() {
        for name in [
            "one-whole-0",
            "one-rand-10",
            "two-rand-0",
            "four-64kb-0",
            "index-search",
            "piece-2mib-100",
            "blocks-mixed-0",
            "needle-any-0",
            "member-popular-10",
        ] {
            assert_eq!(name.parse::<Handler>().unwrap().to_string(), name);
        }
        for bad in [
            "five-whole-0",
            "one-half-0",
            "one-whole",
            "one-whole-x",
            "one-whole-99999999",
            "index-search-512kb",
            "piece-0mib-1",
            "piece-2mib",
            "piece-2gib-1",
            "piece-any-0",
            "needle-2mib-0",
            "",
        ] {
            assert!(bad.parse::<Handler>().unwrap_err().contains("two-rand-10"), "{bad}");
        }
    }
}
