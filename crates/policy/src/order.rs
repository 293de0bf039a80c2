//! Which queued piece is read next. One algorithm a file.

mod sweep;

pub(crate) use sweep::Sweep;

use seekless_units::{Lba, Nanos};

use crate::{FileId, ReadId};

/// What an order sees of a queued piece. Places compare by disk address; where addresses are unknown, by file
/// and offset, which is how file systems tend to lay out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Disk address of the first byte. Unknown ones sort before all known ones.
    pub(crate) lba: Option<Lba>,
    /// The file.
    pub(crate) file: FileId,
    /// Offset of the first byte in it.
    pub(crate) offset: u64,
}

/// A queued piece as an order sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    /// Its name; the older, the smaller.
    pub(crate) id: ReadId,
    /// Where it lies.
    pub(crate) place: Place,
    /// When it is due. A piece that a request waits for is due at once, or shortly before the deadline that
    /// its client named; one that none waits for is not due.
    pub(crate) due: Nanos,
}
