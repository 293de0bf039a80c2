//! MP4, MOV and fragmented MP4: the movie header's duration, else the fragments' (`mehd`), else the segment
//! index (`sidx`). ISO/IEC 14496-12, sections 8.2.2, 8.8.2 and 8.16.3.

use mp4_atom::{Decode, DecodeAtom, FourCC, Header as Box, Mehd, Mvhd, Sidx};

use crate::bitrates::header::{Bytes, Header, Implausible};

/// Boxes looked at on one level: a movie has a handful.
const BOXES_MAX: usize = 64;
/// Longest box that is decoded. A segment index holds 12 bytes for each few seconds.
const BODY_MAX: u64 = 256 << 10;

/// Whether a file begins as these do.
pub(crate) fn begins(head: &[u8]) -> bool {
    // MOV files of old begin with the movie itself.
    [b"ftyp", b"styp", b"moov", b"mdat", b"wide", b"free", b"sidx"]
        .iter()
        .any(|kind| head.get(4..8) == Some(*kind))
}

/// A box's kind, and where its body begins and ends.
struct Found {
    header: Box,
    body: u64,
    end: u64,
}

/// The box at `offset`, of those that end by `end`.
fn at(offset: u64, end: u64, bytes: &mut Bytes<'_>) -> Result<Option<Found>, Implausible> {
    if end.saturating_sub(offset) < 8 {
        return Ok(None);
    }
    let Some(bytes) = bytes(offset, 16.min(end - offset)) else { return Ok(None) };
    let mut rest = bytes.as_slice();
    let Ok(header) = Box::decode(&mut rest) else {
        return Err(Implausible(format!("the box at byte {offset} has an impossible size")));
    };
    let body = offset + (bytes.len() - rest.len()) as u64;
    let size = header.size.map_or(end.saturating_sub(body), |size| size as u64);
    let last = body.checked_add(size).filter(|last| *last <= end);
    let last = last.ok_or_else(|| {
        Implausible(format!("the box `{}` at byte {offset} ends outside what holds it", header.kind))
    })?;
    Ok(Some(Found { header, body, end: last }))
}

/// The first box of one of these kinds from `offset` on.
fn find(
    kinds: &[&[u8; 4]],
    mut offset: u64,
    end: u64,
    bytes: &mut Bytes<'_>,
) -> Result<Option<Found>, Implausible> {
    for _ in 0..BOXES_MAX {
        let Some(found) = at(offset, end, bytes)? else { return Ok(None) };
        if kinds.iter().any(|kind| found.header.kind == FourCC::new(kind)) {
            return Ok(Some(found));
        }
        offset = found.end;
    }
    Ok(None)
}

/// Decodes a box's body; none where it cannot be had.
fn body<T: DecodeAtom>(found: &Found, bytes: &mut Bytes<'_>) -> Result<Option<T>, Implausible> {
    let len = found.end - found.body;
    if len > BODY_MAX {
        return Ok(None);
    }
    let Some(bytes) = bytes(found.body, len).filter(|b| b.len() as u64 == len) else { return Ok(None) };
    let decoded = T::decode_atom(&found.header, &mut bytes.as_slice());
    decoded.map(Some).map_err(|e| Implausible(format!("the box `{}` is damaged ({e})", found.header.kind)))
}

fn plays(duration: u64, timescale: u32) -> Result<Header, Implausible> {
    // All ones: not known.
    if duration == 0 || duration == u64::MAX || duration == u64::from(u32::MAX) {
        return Ok(Header::Silent);
    }
    if timescale == 0 {
        return Err(Implausible("its unit of time is a second divided by zero".into()));
    }
    Ok(Header::Plays(duration as f64 / f64::from(timescale)))
}

/// How long the file plays.
pub(crate) fn read(size: u64, bytes: &mut Bytes<'_>) -> Result<Header, Implausible> {
    let Some(first) = find(&[b"moov", b"sidx"], 0, size, bytes)? else { return Ok(Header::Silent) };
    let mut from = 0;
    if first.header.kind == FourCC::new(b"moov") {
        let Some(mvhd) = find(&[b"mvhd"], first.body, first.end, bytes)? else {
            return Ok(Header::Silent);
        };
        let Some(movie) = body::<Mvhd>(&mvhd, bytes)? else { return Ok(Header::Silent) };
        if let known @ Header::Plays(_) = plays(movie.duration, movie.timescale)? {
            return Ok(known);
        }
        // Nothing in the movie itself: it comes in fragments.
        if let Some(mvex) = find(&[b"mvex"], first.body, first.end, bytes)?
            && let Some(mehd) = find(&[b"mehd"], mvex.body, mvex.end, bytes)?
            && let Some(extends) = body::<Mehd>(&mehd, bytes)?
            && let known @ Header::Plays(_) = plays(extends.fragment_duration, movie.timescale)?
        {
            return Ok(known);
        }
        from = first.end;
    }
    let Some(found) = find(&[b"sidx"], from, size, bytes)? else { return Ok(Header::Silent) };
    let Some(index) = body::<Sidx>(&found, bytes)? else { return Ok(Header::Silent) };
    // An index of indices covers a part only.
    if index.references.iter().any(|r| r.reference_type) {
        return Ok(Header::Silent);
    }
    let ticks = index.references.iter().map(|r| u64::from(r.subsegment_duration)).sum();
    plays(ticks, index.timescale)
}
