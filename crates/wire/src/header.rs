//! The frozen header, version negotiation, and the errors of a frame.
//!
//! ```text 0  4  magic "SKLS" 4  2  version this frame is written in 6  2  oldest version its sender speaks 8
//! 2  newest version its sender speaks 10  2  kind 12  4  length of the whole frame, header included ``` All
//! numbers little-endian.

use crate::bytes::{Field, Reader, Writer};

/// First four bytes of every frame.
pub const MAGIC: [u8; 4] = *b"SKLS";

/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;

/// Maximum length of a frame, header included. One page, so that it fits a stack buffer in another program's
/// thread.
pub const FRAME_BYTES_MAX: usize = 4096;

/// Newest version this build speaks.
pub const VERSION: u16 = 1;

/// Oldest version this build speaks.
pub const VERSION_OLDEST: u16 = 1;

/// The versions that one side speaks, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Oldest.
    pub oldest: u16,
    /// Newest.
    pub newest: u16,
}

impl Versions {
    /// The versions that this build speaks.
    pub const OURS: Versions = Versions { oldest: VERSION_OLDEST, newest: VERSION };
}

/// The newest version that both sides speak: the newer side goes down to the older one's newest. `None` if
/// the ranges do not overlap, or one of them is reversed.
pub const fn common_version(a: Versions, b: Versions) -> Option<u16> {
    let newest = if a.newest < b.newest { a.newest } else { b.newest };
    let oldest = if a.oldest > b.oldest { a.oldest } else { b.oldest };
    if oldest <= newest && a.oldest <= a.newest && b.oldest <= b.newest { Some(newest) } else { None }
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the header, or than the kind needs.
    #[error("the frame is cut short: {have} bytes of {want}")]
    Truncated {
        /// Actual length.
        have: usize,
        /// Required length.
        want: usize,
    },
    /// More bytes than the frame says it has, or than a frame may have.
    #[error("the frame is too long: {have} bytes, at most {max}")]
    Oversize {
        /// Actual length.
        have: usize,
        /// Maximum length.
        max: usize,
    },
    /// It does not start with [`MAGIC`], so it is not a frame of this protocol.
    #[error("not one of our frames: it starts with {0:02x?}")]
    Magic([u8; 4]),
    /// It is written in a version that this build does not speak.
    #[error(
        "the frame is written in version {written} (its sender speaks {} to {}), we speak {} to {}",
        .theirs.oldest, .theirs.newest, VERSION_OLDEST, VERSION
    )]
    Version {
        /// The frame's version.
        written: u16,
        /// The versions that its sender speaks.
        theirs: Versions,
    },
    /// The kind is unknown in this version.
    #[error("frame kind {0} is unknown in version {VERSION}")]
    Kind(u16),
    /// A field has an invalid value.
    #[error("field `{name}` cannot be {value}")]
    Field {
        /// Name of the field.
        name: &'static str,
        /// Its value.
        value: u64,
    },
}

/// The header without the magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) version: u16,
    pub(crate) senders: Versions,
    pub(crate) kind: u16,
    pub(crate) length: u32,
}

impl Header {
    /// Takes the header off a packet; checks magic, length and version.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Header, DecodeError> {
        let have = r.rest.len();
        if have > FRAME_BYTES_MAX {
            return Err(DecodeError::Oversize { have, max: FRAME_BYTES_MAX });
        }
        let magic = <[u8; 4]>::read(r, "magic")?;
        if magic != MAGIC {
            return Err(DecodeError::Magic(magic));
        }
        let version = u16::read(r, "version")?;
        let senders = Versions { oldest: u16::read(r, "oldest")?, newest: u16::read(r, "newest")? };
        let (kind, length) = (u16::read(r, "kind")?, u32::read(r, "length")?);
        if !(VERSION_OLDEST..=VERSION).contains(&version) {
            return Err(DecodeError::Version { written: version, theirs: senders });
        }
        match length as usize {
            want if want > have => Err(DecodeError::Truncated { have, want }),
            want if want < have => Err(DecodeError::Oversize { have, max: want }),
            _ => Ok(Header { version, senders, kind, length }),
        }
    }

    /// Writes the header with the frame's length.
    pub(crate) fn write(&self, w: &mut Writer<'_>) {
        MAGIC.write(w);
        for number in [self.version, self.senders.oldest, self.senders.newest, self.kind] {
            number.write(w);
        }
        self.length.write(w);
    }
}
