//! A multipart answer from anybody: the reader finds the same however it is cut, and believes no part more than its head.

use bytes::Bytes;
use seekless_base::parts::multipart::{BadMultipart, Found, Reader};

fn read(text: &str, body: &[u8], step: usize) -> Option<(Vec<Found>, Result<bool, BadMultipart>)> {
    let mut reader = Reader::of(text)?;
    let mut found: Vec<Found> = Vec::new();
    for piece in body.chunks(step.max(1)) {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            match reader.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Found::Data(at, data))) => {
                    // Joined, so that the way it was cut does not show.
                    if let Some(Found::Data(first, all)) = found.last_mut()
                        && *first + all.len() as u64 == at
                    {
                        *all = [&all[..], &data[..]].concat().into();
                    } else {
                        found.push(Found::Data(at, data));
                    }
                }
                Ok(Some(other)) => found.push(other),
                Err(error) => return Some((found, Err(error))),
            }
        }
    }
    let ended = reader.ended();
    Some((found, Ok(ended)))
}

/// The first byte is the length of the pieces, the first line a `Content-Type`, the rest the body.
pub fn run(data: &[u8]) {
    let Some((step, rest)) = data.split_first() else { return };
    let line = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
    let text = String::from_utf8_lossy(&rest[..line]);
    let body = rest.get(line + 1..).unwrap_or_default();
    let Some(whole) = read(&text, body, usize::MAX) else { return };
    let cut = read(&text, body, usize::from(*step));
    assert_eq!(cut.as_ref(), Some(&whole), "the cut shows");
    let (found, result) = whole;
    let mut part = None;
    for one in &found {
        match one {
            Found::Part(span, size) => {
                assert!(span.len > 0 && size.is_none_or(|size| span.end() <= size));
                part = Some(*span);
            }
            Found::Data(at, data) => {
                let span = part.expect("data before a part");
                assert_eq!(*at, span.offset);
                assert!(at + data.len() as u64 <= span.end(), "more than the part");
            }
            Found::End => {}
        }
    }
    let ends = found.iter().filter(|f| **f == Found::End).count();
    assert_eq!(ends, usize::from(found.last() == Some(&Found::End)));
    assert_eq!(result == Ok(true), ends == 1);
}
