//! Bitrates from the headers of MP4, MOV, Matroska and WebM files: size over duration.
//!
//! A file says little that can be believed at once. What is out of a medium's range ([`SLOWEST`] to
//! [`FASTEST`]), or off by more than [`OFF`] where two sources can be compared, is refused in one line.

use std::fmt;

use crate::bitrates::{mkv, mp4};

/// Slowest bitrate believed, bytes a second: 8 kb/s, speech.
const SLOWEST: f64 = 1e3;
/// Fastest believed: 1 Gb/s, uncompressed studio video.
const FASTEST: f64 = 125e6;
/// Two sources that differ by more than this factor contradict each other.
pub(crate) const OFF: f64 = 4.0;

/// The header states an impossible value; why, in one line.
#[derive(Debug, PartialEq)]
pub(crate) struct Implausible(pub(crate) String);

impl fmt::Display for Implausible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a header tells.
#[derive(Debug, PartialEq)]
pub(crate) enum Header {
    /// Seconds the file plays.
    Plays(f64),
    /// No header of a kind we know, or it does not say.
    Silent,
}

/// Bytes of a file, cut at its end, if they can be had: `(offset, length)`.
pub(crate) type Bytes<'a> = dyn FnMut(u64, u64) -> Option<Vec<u8>> + 'a;

/// Whether a file begins as one whose header can be read.
pub(crate) fn begins(head: &[u8]) -> bool {
    mkv::begins(head) || mp4::begins(head)
}

/// Bytes a second of a file of `size` bytes, by its header.
pub(crate) fn bitrate(size: u64, bytes: &mut Bytes<'_>) -> Result<Option<u64>, Implausible> {
    let header = match bytes(0, 16) {
        Some(head) if mkv::begins(&head) => mkv::read(bytes)?,
        Some(head) if mp4::begins(&head) => mp4::read(size, bytes)?,
        _ => Header::Silent,
    };
    match header {
        Header::Plays(seconds) => believed(size as f64 / seconds)
            .map(Some)
            .map_err(|why| Implausible(format!("{size} bytes in {seconds:.3} s: {why}"))),
        Header::Silent => Ok(None),
    }
}

/// A rate in a medium's range.
pub(crate) fn believed(rate: f64) -> Result<u64, String> {
    if (SLOWEST..=FASTEST).contains(&rate) {
        return Ok(rate as u64);
    }
    Err(format!("{:.3} Mb/s is no medium's rate", rate * 8e-6))
}
