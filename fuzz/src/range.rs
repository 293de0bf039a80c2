//! A `Range` header and a file size: what is sent lies in the file, no byte of it twice, never more than the file.

use arbitrary::{Arbitrary, Unstructured};
use seekless_base::parts::range::{RANGES_MAX, Wanted, merged, parse_content_range, wanted};

/// First the size (8 bytes), then the header.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok(size) = u64::arbitrary(&mut input) else { return };
    // Most sizes small, so that ranges of few digits mean something.
    let size = if size & 1 == 0 { size >> 48 } else { size >> 1 };
    let text = String::from_utf8_lossy(input.take_rest());
    if let Wanted::Spans(spans) = wanted(&text, size) {
        assert!(!spans.is_empty() && spans.len() <= RANGES_MAX);
        let total: u64 = spans.iter().map(|s| s.len).sum();
        assert!(total <= size, "more than the file");
        assert!(spans.iter().all(|s| s.len > 0 && s.end() <= size));
        let mut sorted = spans.clone();
        sorted.sort_by_key(|s| s.offset);
        assert!(sorted.windows(2).all(|pair| pair[0].end() <= pair[1].offset), "a byte twice");
        let joined = merged(spans.clone());
        assert_eq!(joined.iter().map(|s| s.len).sum::<u64>(), total);
        for span in spans {
            let read = parse_content_range(&span.content_range(size));
            assert_eq!(read, Some((span, Some(size))));
        }
    }
    if let Some((span, size)) = parse_content_range(&text) {
        assert!(span.len > 0 && span.offset.checked_add(span.len).is_some());
        assert!(size.is_none_or(|size| span.end() <= size));
    }
}
