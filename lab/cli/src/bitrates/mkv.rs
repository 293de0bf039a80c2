//! Matroska and WebM: `Info` of the segment, duration times timestamp scale. RFC 9559, section 5.1.2.

use mkv_element::io::blocking_impl::{ReadElement, ReadFrom};
use mkv_element::prelude::{Cluster, Ebml, Element, Header as Head, Info, Segment};

use crate::bitrates::header::{Bytes, Header, Implausible};

/// Elements of the segment before its clusters: a handful.
const ELEMENTS_MAX: usize = 64;
/// Longest information element that is decoded.
const INFO_MAX: u64 = 64 << 10;
/// Longest head of an element: an id of 4 bytes and a size of 8, and a margin.
const HEAD_MAX: u64 = 16;

/// Whether a file begins as these do.
pub(crate) fn begins(head: &[u8]) -> bool {
    head.starts_with(&[0x1a, 0x45, 0xdf, 0xa3])
}

/// The head of the element at `offset`, and where its body begins.
fn at(offset: u64, bytes: &mut Bytes<'_>) -> Option<(Head, u64)> {
    let bytes = bytes(offset, HEAD_MAX)?;
    let mut rest = bytes.as_slice();
    let head = Head::read_from(&mut rest).ok()?;
    Some((head, offset + (bytes.len() - rest.len()) as u64))
}

/// How long the file plays.
pub(crate) fn read(bytes: &mut Bytes<'_>) -> Result<Header, Implausible> {
    let Some((ebml, body)) = at(0, bytes) else { return Ok(Header::Silent) };
    if ebml.id != Ebml::ID {
        return Ok(Header::Silent);
    }
    let Some((segment, mut offset)) = body.checked_add(*ebml.size).and_then(|o| at(o, bytes)) else {
        return Ok(Header::Silent);
    };
    if segment.id != Segment::ID {
        return Err(Implausible("its first element is no segment".into()));
    }
    for _ in 0..ELEMENTS_MAX {
        let Some((head, body)) = at(offset, bytes) else { return Ok(Header::Silent) };
        if head.id == Cluster::ID || head.size.is_unknown {
            return Ok(Header::Silent);
        }
        if head.id == Info::ID {
            if *head.size > INFO_MAX {
                return Err(Implausible(format!("{} bytes of information", *head.size)));
            }
            let Some(bytes) = bytes(body, *head.size).filter(|b| b.len() as u64 == *head.size) else {
                return Ok(Header::Silent);
            };
            let info = Info::read_element(&head, &mut bytes.as_slice())
                .map_err(|e| Implausible(format!("its information is damaged ({e})")))?;
            let Some(ticks) = info.duration else { return Ok(Header::Silent) };
            let seconds = *ticks * *info.timestamp_scale as f64 / 1e9;
            return if seconds.is_finite() && seconds > 0.0 {
                Ok(Header::Plays(seconds))
            } else {
                Err(Implausible(format!("it plays for {seconds} s")))
            };
        }
        let Some(next) = body.checked_add(*head.size) else {
            return Err(Implausible("an element has no end".into()));
        };
        offset = next;
    }
    Ok(Header::Silent)
}
