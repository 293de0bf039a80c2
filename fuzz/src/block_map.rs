//! Which bytes have arrived, against a plain array; and at addresses near the largest.

use arbitrary::{Arbitrary, Unstructured};
use seekless_base::parts::blockmap::BlockMap;
use seekless_base::parts::range::Span;

/// A size, then pairs of offset and length.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok(size) = u16::arbitrary(&mut input) else { return };
    let size = u64::from(size % 2048);
    let mut map = BlockMap::new(size);
    let mut plain = vec![false; size as usize];
    // At the end of the bytes everything is zero, for ever.
    while input.len() >= 4 {
        let (Ok(offset), Ok(len)) = (u16::arbitrary(&mut input), u16::arbitrary(&mut input)) else { break };
        let huge = len == u16::MAX;
        let span =
            Span { offset: u64::from(offset % 4096), len: if huge { u64::MAX } else { u64::from(len) } };
        let (from, to) = (span.offset.min(size), span.offset.saturating_add(span.len).min(size));
        let range = from as usize..to as usize;
        let new = plain[range.clone()].iter().filter(|b| !**b).count() as u64;
        plain[range].fill(true);
        assert_eq!(map.insert(span), new);
        assert_eq!(map.insert(Span { offset: u64::MAX - u64::from(len), len: span.len }), 0);
    }
    assert_eq!(map.received(), plain.iter().filter(|b| **b).count() as u64);
    assert_eq!(map.complete(), plain.iter().all(|b| *b));
    let mut covered = vec![0u8; size as usize];
    for span in map.spans() {
        covered[span.offset as usize..span.end() as usize].iter_mut().for_each(|b| *b += 1);
    }
    for span in map.missing(usize::MAX) {
        assert!(span.len > 0);
        covered[span.offset as usize..span.end() as usize].iter_mut().for_each(|b| *b += 2);
    }
    for (here, count) in plain.iter().zip(&covered) {
        assert_eq!(*count, if *here { 1 } else { 2 });
    }
    let spans: Vec<Span> = map.spans().collect();
    assert!(spans.windows(2).all(|pair| pair[0].end() < pair[1].offset), "neighbours are joined");
}
