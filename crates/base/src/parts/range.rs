//! Which bytes of a file a `Range` header asks for (RFC 9110, section 14).
//!
//! A header that is not understood is ignored, as the RFC says: the answer is the whole file. Overlapping
//! ranges are merged, so that no header, however long, is answered with more bytes than the file has (a
//! *range bomb*).
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Longest header looked at. Every client that has a reason to ask for many ranges can ask again.
const HEADER_BYTES_MAX: usize = 8192;

/// Most ranges answered one by one; more are merged in file order, and if that does not help the whole file
/// is sent.
pub const RANGES_MAX: usize = 256;

/// Part of a file: `len` bytes from `offset`, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Bytes, at least one.
    pub len: u64,
}

impl Span {
    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.offset + self.len
    }

    /// The value of `Content-Range` for it.
    pub fn content_range(self, size: u64) -> String {
        format!("bytes {}-{}/{size}", self.offset, self.end() - 1)
    }
}

/// What is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it, status 200.
    Whole,
    /// These, status 206. Not empty; disjoint.
    Spans(Vec<Span>),
    /// Nothing of what was asked exists, status 416.
    Unsatisfiable,
}

/// Reads a `Range` header for a file of `size` bytes.
///
/// Of an empty file, a range that would reach its beginning is all of it: a cache that asks for slices asks
/// so first, and shows to everybody what it is answered. nginx and Apache answer it so.
pub fn wanted(header: &str, size: u64) -> Wanted {
    let Some(specs) = header_specs(header) else { return Wanted::Whole };
    let mut spans = Vec::new();
    let mut count = 0;
    let mut whole_of_nothing = false;
    for spec in specs.split(',') {
        let spec = spec.trim_matches([' ', '\t']);
        if spec.is_empty() {
            // RFC 9110 5.6.1: a list may have empty elements.
            continue;
        }
        count += 1;
        match parse(spec, size) {
            None => return Wanted::Whole,
            Some(None) => whole_of_nothing |= size == 0 && reaches_the_beginning(spec),
            Some(Some(span)) => spans.push(span),
        }
    }
    if count == 0 {
        return Wanted::Whole;
    }
    if spans.is_empty() {
        return if whole_of_nothing { Wanted::Whole } else { Wanted::Unsatisfiable };
    }
    if spans.len() > RANGES_MAX || overlap(&spans) {
        spans = merged(spans);
    }
    if spans.len() > RANGES_MAX { Wanted::Whole } else { Wanted::Spans(spans) }
}

fn header_specs(header: &str) -> Option<&str> {
    if header.len() > HEADER_BYTES_MAX {
        return None;
    }
    let (unit, specs) = header.split_once('=')?;
    unit.eq_ignore_ascii_case("bytes").then_some(specs)
}

/// Whether a range, which is one, asks for the first byte whatever the size: from it on, or for so many last
/// ones.
fn reaches_the_beginning(spec: &str) -> bool {
    spec.split_once('-').is_some_and(|(first, last)| match first {
        "" => number(last) != Some(0),
        first => number(first) == Some(0),
    })
}

/// `None`: not a range. `Some(None)`: one that lies outside the file.
fn parse(spec: &str, size: u64) -> Option<Option<Span>> {
    let (first, last) = spec.split_once('-')?;
    if first.is_empty() {
        let suffix = number(last)?.min(size);
        return Some((suffix > 0).then(|| Span { offset: size - suffix, len: suffix }));
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    Some((first < size).then(|| Span { offset: first, len: last.min(size - 1) - first + 1 }))
}

/// Digits only; larger than any file counts as the largest number.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX - 1))
}

fn overlap(spans: &[Span]) -> bool {
    let mut sorted: Vec<Span> = spans.to_vec();
    sorted.sort_by_key(|s| s.offset);
    sorted.windows(2).any(|pair| pair[1].offset < pair[0].end())
}

/// The same bytes in file order, without overlaps, neighbours joined.
pub fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|s| s.offset);
    let mut result: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match result.last_mut() {
            Some(last) if span.offset <= last.end() => last.len = last.end().max(span.end()) - last.offset,
            _ => result.push(span),
        }
    }
    result
}

/// Reads `bytes FIRST-LAST/SIZE`; the size is `None` where the server wrote `*`.
pub fn parse_content_range(value: &str) -> Option<(Span, Option<u64>)> {
    let (range, size) = value.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    let size = if size == "*" { None } else { Some(number(size)?) };
    if last < first || last == u64::MAX || size.is_some_and(|size| last >= size) {
        return None;
    }
    Some((Span { offset: first, len: last - first + 1 }, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spans(header: &str, size: u64) -> Vec<(u64, u64)> {
        match wanted(header, size) {
            Wanted::Spans(spans) => spans.iter().map(|s| (s.offset, s.len)).collect(),
            other => panic!("{header}: {other:?}"),
        }
    }

    #[test]
    fn the_examples_of_the_rfc() {
        assert_eq!(spans("bytes=0-499", 10_000), [(0, 500)]);
        assert_eq!(spans("bytes=500-999", 10_000), [(500, 500)]);
        assert_eq!(spans("bytes=-500", 10_000), [(9500, 500)]);
        assert_eq!(spans("bytes=9500-", 10_000), [(9500, 500)]);
        assert_eq!(spans("bytes=0-0,-1", 10_000), [(0, 1), (9999, 1)]);
        assert_eq!(spans("bytes= 0-999, 4500-5499, -1000", 10_000), [(0, 1000), (4500, 1000), (9000, 1000)]);
        assert_eq!(spans("bytes=500-700,601-999", 10_000), [(500, 500)]);
        assert_eq!(spans("bytes=900-999,0-99", 10_000), [(900, 100), (0, 100)], "the client's order is kept");
        assert_eq!(spans("BYTES=,,0-0,", 5), [(0, 1)]);
        assert_eq!(spans("bytes=0-99999999999999999999999", 5), [(0, 5)]);
    }

    #[test]
    fn unknown_ranges_are_ignored_and_absent_ones_refused() {
        for header in [
            "bytes",
            "bytes=",
            "bytes=a-b",
            "bytes=5-2",
            "bytes=1",
            "bytes=-",
            "items=0-5",
            "bytes=0-1;2-3",
            "bytes=+1-2",
            "bytes=0-0,x",
            "bytes 0-5",
        ] {
            assert_eq!(wanted(header, 100), Wanted::Whole, "{header}");
        }
        for header in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=200-300,400-"] {
            assert_eq!(wanted(header, 100), Wanted::Unsatisfiable, "{header}");
        }
    }

    #[test]
    fn of_an_empty_file_its_beginning_is_all() {
        for whole in
            ["bytes=0-", "bytes=0-0", "bytes=0-1048575", "bytes=-5", "bytes=00-", "bytes=5-,0-", "bytes=0-,x"]
        {
            assert_eq!(wanted(whole, 0), Wanted::Whole, "{whole}");
        }
        for none in ["bytes=1-", "bytes=-0", "bytes=5-9,7-", "bytes=1-2"] {
            assert_eq!(wanted(none, 0), Wanted::Unsatisfiable, "{none}");
        }
    }

    #[test]
    fn a_range_bomb_is_defused() {
        let many = |n: usize, step: usize| {
            let specs: Vec<String> = (0..n).map(|i| format!("{}-{}", i * step, i * step)).collect();
            format!("bytes={}", specs.join(","))
        };
        assert!(matches!(wanted(&many(256, 2), 100_000), Wanted::Spans(s) if s.len() == 256));
        assert_eq!(wanted(&many(257, 2), 100_000), Wanted::Whole);
        assert_eq!(spans(&many(300, 1), 100_000), [(0, 300)], "neighbours join");
        assert_eq!(spans(&format!("bytes={}0-", "0-,".repeat(1000)), 100), [(0, 100)]);
        assert_eq!(wanted(&many(5000, 2), 100_000), Wanted::Whole);
    }

    #[test]
    fn content_range_comes_back() {
        let span = Span { offset: 5, len: 10 };
        assert_eq!(span.content_range(100), "bytes 5-14/100");
        assert_eq!(parse_content_range("bytes 5-14/100"), Some((span, Some(100))));
        assert_eq!(parse_content_range("bytes 5-14/*"), Some((span, None)));
        for lie in [
            "bytes 5-4/100",
            "bytes 5-100/100",
            "bytes */100",
            "bytes 5-14",
            "chars 5-14/100",
            "bytes -1-5/9",
            "bytes 0-18446744073709551615/*",
        ] {
            assert_eq!(parse_content_range(lie), None, "{lie}");
        }
    }

    proptest! {
        /// Whatever is asked, what is sent lies in the file, is disjoint, and is at most the file.
        #[test]
        fn never_more_than_the_file(
            specs in proptest::collection::vec((0u64..2000, proptest::option::of(0u64..2000)), 1..400),
            size in 0u64..1500,
        ) {
            let text: Vec<String> = specs.iter().map(|(a, b)| match b {
                Some(b) => format!("{}-{}", a.min(b), a.max(b)),
                None => format!("-{a}"),
            }).collect();
            if let Wanted::Spans(spans) = wanted(&format!("bytes={}", text.join(",")), size) {
                prop_assert!(!spans.is_empty() && spans.len() <= RANGES_MAX);
                prop_assert!(!overlap(&spans));
                prop_assert!(spans.iter().all(|s| s.len > 0 && s.end() <= size));
                let asked = |byte: u64| specs.iter().any(|(a, b)| match b {
                    Some(b) => (*a.min(b)..=*a.max(b)).contains(&byte),
                    None => byte >= size.saturating_sub(*a),
                });
                for byte in 0..size {
                    prop_assert_eq!(asked(byte), spans.iter().any(|s| (s.offset..s.end()).contains(&byte)), "{}", byte);
                }
            }
        }

        #[test]
        fn any_text_is_survived(text in "\\PC{0,60}", size in any::<u64>()) {
            if let Wanted::Spans(spans) = wanted(&text, size) {
                prop_assert!(spans.iter().all(|s| s.end() <= size));
            }
            parse_content_range(&text);
        }
    }
}
