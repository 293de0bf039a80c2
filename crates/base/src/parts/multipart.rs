//! `multipart/byteranges` (RFC 9110, 14.6): a writer and a reader.
//!
//! The reader relies on the lengths that the parts state (`Content-Range`), and checks that a boundary
//! follows each part. It never searches the data, which may contain anything. It receives bytes as they
//! arrive and holds no more than one line.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{Buf, Bytes};

use crate::parts::range::{Span, parse_content_range};

/// Writes parts.
#[derive(Clone, Debug)]
pub struct Writer {
    boundary: String,
    content_type: &'static str,
    size: u64,
}

impl Writer {
    /// For a file of `size` bytes. `random` makes the boundary, which must not occur in the data (RFC 2046,
    /// 5.1.1). It must be new for each answer, from a source that cannot be predicted.
    pub fn new(content_type: &'static str, size: u64, random: u128) -> Writer {
        Writer { boundary: format!("{random:032x}"), content_type, size }
    }

    /// Value of the answer's `Content-Type`.
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.boundary)
    }

    /// The header before the data of a part.
    pub fn head(&self, span: Span) -> Bytes {
        let Writer { boundary, content_type, size } = self;
        let range = span.content_range(*size);
        format!("\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {range}\r\n\r\n").into()
    }

    /// The closing boundary.
    pub fn tail(&self) -> Bytes {
        format!("\r\n--{}--\r\n", self.boundary).into()
    }

    /// Length of the whole answer with these parts, in any order.
    pub fn length(&self, spans: impl IntoIterator<Item = Span>) -> u64 {
        let parts: u64 = spans.into_iter().map(|s| self.part_len(s)).sum();
        parts + self.tail().len() as u64
    }

    /// Length of one part with its header.
    pub fn part_len(&self, span: Span) -> u64 {
        let numbers = digits(span.offset) + digits(span.end() - 1);
        self.frame() + numbers + span.len
    }

    /// Length of a span that is sent as one part for each block of `block` bytes that it touches. Takes the
    /// same time for a terabyte as for a megabyte: the lengths of parts differ only by the digits of their
    /// offsets.
    pub fn cut_length(&self, span: Span, block: u64) -> u64 {
        let last = (span.end() - 1) / block;
        let first = span.offset / block;
        // All parts but the first begin at a multiple of the block, and all but the last end before one.
        let count = last - first;
        let begins = digits(span.offset) + digit_sum((first + 1) * block, count, block);
        let ends = digits(span.end() - 1) + digit_sum((first + 1) * block - 1, count, block);
        (count + 1) * self.frame() + begins + ends + span.len
    }

    /// Length of a part's header without the digits of its offsets.
    fn frame(&self) -> u64 {
        let fixed = "\r\n--\r\nContent-Type: \r\nContent-Range: bytes -/\r\n\r\n".len();
        (fixed + self.boundary.len() + self.content_type.len()) as u64 + digits(self.size)
    }
}

/// Decimal digits of a number.
fn digits(n: u64) -> u64 {
    u64::from(n.checked_ilog10().unwrap_or(0)) + 1
}

/// Total digits of `count` numbers from `first` on, `step` apart, in as many rounds as there are lengths of
/// numbers.
fn digit_sum(first: u64, mut count: u64, step: u64) -> u64 {
    let (mut at, mut sum) = (first, 0);
    while count > 0 {
        let long = digits(at);
        let beyond = 10u64.checked_pow(long as u32).unwrap_or(u64::MAX);
        let n = (beyond - at).div_ceil(step).clamp(1, count);
        sum += n * long;
        count -= n;
        at = at.saturating_add(n.saturating_mul(step));
    }
    sum
}

/// An element that a reader found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A part begins; its `Content-Range`.
    Part(Span, Option<u64>),
    /// Data of the part, and its offset in the file.
    Data(u64, Bytes),
    /// The closing boundary.
    End,
}

/// Why an answer is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMultipart {
    /// A line is longer than any server writes.
    #[error("a multipart answer with an endless line")]
    Line,
    /// A boundary is missing.
    #[error("a multipart answer whose parts are not as long as they say")]
    Boundary,
    /// A part has no valid `Content-Range`.
    #[error("a multipart answer with a part of no known place")]
    Range,
}

/// Longest line of a part's header, and most lines before the first boundary or in one header.
const LINE_MAX: usize = 4096;
const LINES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Lines before the first boundary are preamble.
    Preamble,
    Head(Option<(Span, Option<u64>)>),
    Data {
        at: u64,
        left: u64,
    },
    /// The line end that belongs to the boundary.
    AfterData,
    Boundary,
    End,
}

/// Parses a multipart answer.
#[derive(Debug)]
pub struct Reader {
    delimiter: Vec<u8>,
    state: State,
    line: Vec<u8>,
    lines: usize,
}

impl Reader {
    /// For the boundary of a `Content-Type`; `None` if it is not `multipart/byteranges` or has no boundary.
    pub fn of(content_type: &str) -> Option<Reader> {
        let (kind, parameters) = content_type.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("multipart/byteranges") {
            return None;
        }
        let boundary = parameters.split(';').find_map(|p| {
            let (name, value) = p.split_once('=')?;
            name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
        })?;
        if boundary.is_empty() || boundary.len() > 70 {
            return None;
        }
        let delimiter = format!("--{boundary}").into_bytes();
        Some(Reader { delimiter, state: State::Preamble, line: Vec::new(), lines: 0 })
    }

    /// Whether the closing boundary was seen.
    pub fn ended(&self) -> bool {
        self.state == State::End
    }

    /// Takes the next element from `input`; `None` when all of it is used up.
    ///
    /// # Errors
    /// [`BadMultipart`]; the reader must not be used afterwards.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Found>, BadMultipart> {
        while input.has_remaining() {
            if let State::Data { at, left } = self.state {
                let n = left.min(input.len() as u64);
                let data = input.split_to(n as usize);
                self.state =
                    if n == left { State::AfterData } else { State::Data { at: at + n, left: left - n } };
                return Ok(Some(Found::Data(at, data)));
            }
            if self.state == State::End {
                // The epilogue is ignored.
                input.clear();
                return Ok(None);
            }
            if !self.take_line(input)? {
                return Ok(None);
            }
            let line = core::mem::take(&mut self.line);
            if let Some(found) = self.line(&line)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Moves bytes up to the end of the line. Returns whether it was there.
    fn take_line(&mut self, input: &mut Bytes) -> Result<bool, BadMultipart> {
        let end = input.iter().position(|b| *b == b'\n');
        let taken = input.split_to(end.map_or(input.len(), |e| e + 1));
        self.line.extend_from_slice(&taken);
        if self.line.len() > LINE_MAX {
            return Err(BadMultipart::Line);
        }
        Ok(end.is_some())
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<Found>, BadMultipart> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.lines += 1;
        if self.lines > LINES_MAX {
            return Err(BadMultipart::Line);
        }
        match self.state {
            State::Preamble | State::Boundary => {
                // White space may follow a boundary (RFC 2046, 5.1.1).
                let after = line.strip_prefix(self.delimiter.as_slice()).map(<[u8]>::trim_ascii_end);
                match after {
                    Some(b"") => self.enter(State::Head(None)),
                    Some(b"--") => {
                        self.state = State::End;
                        return Ok(Some(Found::End));
                    }
                    _ if self.state == State::Preamble => {}
                    _ => return Err(BadMultipart::Boundary),
                }
                Ok(None)
            }
            State::Head(range) if line.is_empty() => {
                let (span, size) = range.ok_or(BadMultipart::Range)?;
                self.enter(State::Data { at: span.offset, left: span.len });
                Ok(Some(Found::Part(span, size)))
            }
            State::Head(_) => {
                if let Some((name, value)) =
                    core::str::from_utf8(line).ok().and_then(|line| line.split_once(':'))
                    && name.trim().eq_ignore_ascii_case("content-range")
                {
                    self.state = State::Head(Some(parse_content_range(value).ok_or(BadMultipart::Range)?));
                }
                Ok(None)
            }
            State::AfterData if line.is_empty() => {
                self.enter(State::Boundary);
                Ok(None)
            }
            State::AfterData => Err(BadMultipart::Boundary),
            State::Data { .. } | State::End => Ok(None),
        }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.lines = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `raw` in pieces of `step` bytes.
    fn read(reader: &mut Reader, raw: &[u8], step: usize) -> Result<Vec<Found>, BadMultipart> {
        let mut found = Vec::new();
        for piece in raw.chunks(step) {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(next) = reader.next(&mut input)? {
                found.push(next);
            }
        }
        Ok(found)
    }

    #[test]
    fn an_answer_of_nginx_is_read() {
        let raw =
            b"\r\n--00000000000000000001\r\nContent-Type: video/mp4\r\nContent-Range: bytes 0-3/10\r\n\r\n\
            abcd\r\n--00000000000000000001\r\nContent-Type: video/mp4\r\nContent-Range: bytes 8-9/10\r\n\r\n\
            \r\n\r\n--00000000000000000001--\r\n";
        for step in [1, 2, 7, 1000] {
            let mut reader = Reader::of("multipart/byteranges; boundary=00000000000000000001").unwrap();
            let found = read(&mut reader, raw, step).unwrap();
            let data: Vec<u8> = found
                .iter()
                .filter_map(|f| if let Found::Data(_, d) = f { Some(&d[..]) } else { None })
                .flatten()
                .copied()
                .collect();
            assert_eq!(data, b"abcd\r\n", "step {step}");
            assert!(reader.ended() && found.last() == Some(&Found::End));
        }
    }

    #[test]
    fn lies_are_found_out() {
        let read = |raw: &str| {
            let mut reader = Reader::of("Multipart/ByteRanges;x=y; Boundary=\"b\"").unwrap();
            read(&mut reader, raw.as_bytes(), 5)
        };
        let part = "--b\r\nContent-Range: bytes 0-3/10\r\n\r\n";
        assert_eq!(read(&format!("{part}abcdef\r\n--b--\r\n")), Err(BadMultipart::Boundary));
        assert_eq!(read(&format!("{part}ab\r\n--b--\r\n\r\n")), Err(BadMultipart::Boundary));
        assert_eq!(read("--b\r\nContent-Type: x\r\n\r\nabc"), Err(BadMultipart::Range));
        assert_eq!(read("--b\r\nContent-Range: bytes 9-3/10\r\n\r\nabc"), Err(BadMultipart::Range));
        assert_eq!(read(&"x".repeat(LINE_MAX + 1)), Err(BadMultipart::Line));
        assert_eq!(read(&"x\r\n".repeat(LINES_MAX + 1)), Err(BadMultipart::Line));
        assert_eq!(read(&format!("--b\r\n{}", "x: y\r\n".repeat(LINES_MAX + 1))), Err(BadMultipart::Line));
        for other in ["text/plain; boundary=b", "multipart/byteranges", "multipart/byteranges; boundary="] {
            assert!(Reader::of(other).is_none());
        }
    }

    proptest! {
        #[test]
        fn a_span_in_blocks_is_as_long_as_its_parts(offset in 0u64..30_000, len in 1u64..30_000, block in 1u64..2000) {
            let writer = Writer::new("video/mp4", 60_000, 1);
            let span = Span { offset, len };
            let mut parts = 0;
            let mut at = offset;
            while at < span.end() {
                let end = ((at / block + 1) * block).min(span.end());
                let part = Span { offset: at, len: end - at };
                prop_assert_eq!(writer.part_len(part), writer.head(part).len() as u64 + part.len);
                parts += writer.part_len(part);
                at = end;
            }
            prop_assert_eq!(writer.cut_length(span, block), parts);
        }

        #[test]
        fn what_is_written_is_read(
            spans in proptest::collection::vec((0u64..1000, 1u64..50), 1..10), step in 1usize..60, random: u128,
        ) {
            let file: Vec<u8> = (0..1100u32).map(|i| b"\r\n-ab"[(i * i % 5) as usize]).collect();
            let writer = Writer::new("video/mp4", 1100, random);
            let spans: Vec<Span> = spans.into_iter().map(|(offset, len)| Span { offset, len }).collect();
            let mut raw = Vec::new();
            for span in &spans {
                raw.extend_from_slice(&writer.head(*span));
                raw.extend_from_slice(&file[span.offset as usize..span.end() as usize]);
            }
            raw.extend_from_slice(&writer.tail());
            prop_assert_eq!(raw.len() as u64, writer.length(spans.iter().copied()));
            let mut reader = Reader::of(&writer.content_type()).unwrap();
            let mut parts = Vec::new();
            let mut bytes = 0;
            for found in read(&mut reader, &raw, step).unwrap() {
                match found {
                    Found::Part(span, size) => { prop_assert_eq!(size, Some(1100)); parts.push(span) }
                    Found::Data(at, data) => {
                        prop_assert_eq!(&file[at as usize..at as usize + data.len()], &data[..]);
                        bytes += data.len() as u64;
                    }
                    Found::End => {}
                }
            }
            prop_assert_eq!(bytes, spans.iter().map(|s| s.len).sum::<u64>());
            prop_assert_eq!(parts, spans);
            prop_assert!(reader.ended());
        }

        #[test]
        fn anything_is_survived(raw in proptest::collection::vec(any::<u8>(), 0..300), step in 1usize..40) {
            let mut reader = Reader::of("multipart/byteranges; boundary=b").unwrap();
            let _ = read(&mut reader, &raw, step);
        }
    }
}
