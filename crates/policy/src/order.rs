//! Orders of the queue: which piece is read next. One algorithm a file.

mod sweep;

pub(crate) use sweep::Sweep;

use seekless_base::{Lba, Nanos};

use crate::{FileId, ReadId};

/// The place of a queued piece. Places compare by disk address; if addresses are unknown, by file and offset,
/// which is how file systems tend to lay out files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Disk address of the first byte. Unknown addresses sort before all known ones.
    pub(crate) lba: Option<Lba>,
    pub(crate) file: FileId,
    /// File offset of the first byte.
    pub(crate) offset: u64,
}

/// A queued piece as an order sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    /// Its id; older pieces have smaller ids.
    pub(crate) id: ReadId,
    /// Where it lies.
    pub(crate) place: Place,
    /// When it is due. A piece that a request waits for is due at once, or later if the reader's I/O priority
    /// is low. A piece that nobody awaits is never due.
    pub(crate) due: Nanos,
    /// Whether only readers of the idle class want it.
    pub(crate) idle: bool,
}
