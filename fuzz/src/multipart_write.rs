//! Parts of any lengths: as long as was said before, and read back as they were written.

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use seekless_base::parts::multipart::{Found, Reader, Writer};
use seekless_base::parts::range::Span;

/// A size, a number for the boundary, then pairs of offset and length.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let _ = written(&mut input);
}

fn written(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let size = u64::from(u16::arbitrary(input)?) + 1;
    // Addresses as large as files can be; the data behind them is made up here.
    let base = if bool::arbitrary(input)? { 0 } else { u64::arbitrary(input)? >> 2 };
    let unique = u64::arbitrary(input)?;
    let mut spans = Vec::new();
    while spans.len() < 64 && input.len() >= 4 {
        let offset = u64::from(u16::arbitrary(input)?) % size;
        let len = 1 + u64::from(u16::arbitrary(input)?) % (size - offset);
        spans.push(Span { offset: base + offset, len: len.min(4000) });
    }
    let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9) >> 7) as u8;
    let writer = Writer::new("video/mp4", base + size, u128::from(unique));
    let mut body = Vec::new();
    for span in &spans {
        let before = body.len();
        body.extend_from_slice(&writer.head(*span));
        body.extend((span.offset..span.end()).map(byte));
        assert_eq!((body.len() - before) as u64, writer.part_len(*span));
    }
    body.extend_from_slice(&writer.tail());
    assert_eq!(body.len() as u64, writer.length(spans.iter().copied()));
    let mut reader = Reader::of(&writer.content_type()).expect("our own content type");
    let mut rest = Bytes::from(body);
    let mut read = Vec::new();
    while let Some(found) = reader.next(&mut rest).expect("our own answer") {
        match found {
            Found::Part(span, total) => {
                assert_eq!(total, Some(base + size));
                read.push(span);
            }
            Found::Data(at, data) => {
                assert!(data.iter().zip(at..).all(|(b, at)| *b == byte(at)), "another byte");
            }
            Found::End => {}
        }
    }
    assert!(reader.ended());
    assert_eq!(read, spans);
    // In blocks: as long as the parts one by one.
    let block = 1 + unique % 700;
    for span in spans {
        let mut at = span.offset;
        let mut sum = 0;
        while at < span.end() {
            let len = (block - at % block).min(span.end() - at);
            sum += writer.part_len(Span { offset: at, len });
            at += len;
        }
        assert_eq!(writer.cut_length(span, block), sum, "{span:?} in blocks of {block}");
    }
    Ok(())
}
