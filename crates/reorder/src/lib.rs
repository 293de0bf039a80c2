//! Downloads in any order: one disk read serves every client that downloads a file, because each client takes
//! its blocks in the order that suits the disk. Circus \[X\] 3, opportunistic block reordering, as in the
//! paper.
//!
//! A download needs every block of its file, so a server knows what each client will want. For each file
//! being downloaded there is an *active region*: the range of it that is in memory, which moves over the
//! file's blocks. These form a circle. The front edge of the region is the *file cursor*. Each client has a
//! *client cursor*, the block chosen for it last.
//!
//! - The client furthest ahead is the *frontrunner*: choosing a block for it moves the file cursor, and so
//!   brings in blocks that the others need as well.
//! - All others are *followers*. A follower whose cursor falls more than the region's length behind is moved
//!   to the region's middle (not to its front, where it would become the frontrunner); it gets the blocks in
//!   between on a later lap.
//! - A client that already has a certain share of the file, the *threshold*, is *independent*: it collects
//!   its missing blocks, inside the region or not. So is a client whose next missing block lies the
//!   *leapfront distance* or more ahead of the file cursor: it does not move the region there.
//!
//! Chosen blocks wait in a bounded first-in-first-out queue for each client. Each round gives every client
//! whose queue has room its next block (Figure 5).
//!
//! [`Circus`] is the server's side of this as a state machine: call [`Circus::handle`] with each event, then
//! [`Circus::poll_action`] until it is empty. It reads no clock, because no decision depends on time. It also
//! bounds the memory: what is read and not dropped never exceeds [`Config::memory`].
//!
//! What the paper leaves open, and the choice made here: positions are counted on from lap to lap, so that
//! "behind" and "ahead" are defined on a circle. A client that joins starts in the middle of the region
//! (which is what the rule for followers gives for one that starts at the beginning). A queued block counts
//! as given, a sent block as received. A read is ordered when the block is chosen (section 3), and again at
//! the head of the queue if the block was evicted meanwhile, which makes long queues costly in Figure 15.
//!
//! Must not know: the policy of one disk beyond a read's id, descriptors, paths, sockets, threads, clocks,
//! logging.
#![no_std]
extern crate alloc;

mod bitmap;
mod circus;
mod client;
mod memory;
mod reads;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::ops::Range;

use seekless_base::Bytes;
use smart_default::SmartDefault;

pub use circus::Circus;
pub use client::Role;
pub use seekless_policy::ReadId;

/// One version of one file, named by the driver; a file that changed has another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentId(pub u64);

/// One download, named by the driver. A name must not be reused before its download has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Most blocks a file may have: 1 TiB of 64 KiB blocks, for which a client's block map takes 2 MiB.
pub const BLOCKS_MAX: u64 = 1 << 24;

/// The order in which a client gets its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The paper's algorithm.
    Circus,
    /// From the first block to the last, as FTP and HTTP servers do: the paper's comparison. Region,
    /// threshold and leapfront have no effect.
    Sequential,
}

/// Parameters, named as in the paper.
#[derive(Clone, Debug, PartialEq, SmartDefault)]
pub struct Config {
    /// Order of blocks.
    #[default(Selection::Circus)]
    pub selection: Selection,
    /// Block size: the unit of choice, of memory and of sending. Used only to turn the sizes below into
    /// blocks.
    // \[X\] 5.5: block, queue, threshold and region as in the paper's study; leapfront distance equal
    // to the active length.
    #[default(Bytes::kib(64))]
    pub block: Bytes,
    /// Active length: how much of each file is kept between the frontrunner and the last follower.
    #[default(Bytes::mib(16))]
    pub region: Bytes,
    /// Client threshold: a client with at least this share of the file's blocks, 0 to 1, is independent.
    #[default(0.75)]
    pub threshold: f64,
    /// Leapfront distance over active length.
    #[default(1.0)]
    pub leapfront: f64,
    /// Queue length limit, blocks a client, at least 1.
    #[default(5)]
    pub queue: usize,
    /// Memory for blocks, including those being read or sent. At least one block.
    // The paper's server had 256 MB in all, its processes included.
    #[default(Bytes::mib(128))]
    pub memory: Bytes,
    /// Bytes of one read: a read includes the following blocks up to this size, as long as its client needs
    /// them. Equal to `block` in the paper; larger values help if a seek costs as much as megabytes.
    #[default(Bytes::kib(64))]
    pub read: Bytes,
    /// Maximum number of reads in progress, at least 1.
    // Enough for a drive to choose from. With one block each, they take it a fraction of a second.
    #[default(8)]
    pub reads_in_flight: usize,
    /// Maximum number of downloads; more are refused.
    #[default(16_384)]
    pub clients_max: usize,
}

/// The blocks that a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of the file.
    All,
    /// Only these ranges of block numbers (a resumed download); numbers beyond the file are ignored, overlaps
    /// count once.
    Ranges(Vec<Range<u64>>),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A download begins. A name that is in use is ignored.
    Join {
        /// Its name.
        client: ClientId,
        /// What it downloads.
        content: ContentId,
        /// Number of blocks of the whole file; the last one may be short.
        blocks: u64,
        /// Which of them it wants.
        wanted: Wanted,
    },
    /// The memory for blocks from now on, in place of [`Config::memory`]. Blocks being sent or read stay, so
    /// less memory takes effect when they are done.
    Memory(Bytes),
    /// A client is gone. No action names it any more. Unknown names are ignored.
    Left {
        /// Which client.
        client: ClientId,
    },
    /// The client's connection has taken the block of the last [`Action::Send`]; it can take the next.
    Sent {
        /// Which client.
        client: ClientId,
        /// Which block; ignored if it is not the block being sent.
        block: u64,
    },
    /// A read has ended.
    ReadDone {
        /// Which read.
        read: ReadId,
        /// Blocks read, from its first on. Fewer than requested: an error, or the end of the file.
        blocks: u64,
    },
}

/// Why a download was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are [`Config::clients_max`] downloads.
    Full,
    /// The file has more than [`BLOCKS_MAX`] blocks, or another number than an earlier client of the same
    /// content gave.
    Blocks,
}

/// An action for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read blocks into memory and keep them; report [`Event::ReadDone`] once.
    Read {
        /// The name for the report.
        id: ReadId,
        /// The file.
        content: ContentId,
        /// First block.
        first: u64,
        /// Number of blocks, at least 1.
        blocks: u64,
    },
    /// Drop a block, because its memory is needed. It is not being sent.
    Drop {
        /// The file.
        content: ContentId,
        /// The block.
        block: u64,
    },
    /// Send a block, which is in memory; report [`Event::Sent`]. One at a time a client.
    Send {
        /// Its receiver.
        client: ClientId,
        /// The file.
        content: ContentId,
        /// The block.
        block: u64,
    },
    /// Every block the client wanted was sent; it is forgotten.
    Complete {
        /// Which client.
        client: ClientId,
    },
    /// A block that the client needs cannot be read; the client is removed. The blocks that it got so far are
    /// right.
    Broken {
        /// Which client.
        client: ClientId,
        /// The block.
        block: u64,
    },
    /// The download is refused.
    Refused {
        /// Which client.
        client: ClientId,
        /// Why.
        why: Refusal,
    },
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks the driver was told to send.
    pub blocks_sent: u64,
    /// Blocks read in.
    pub blocks_read: u64,
    /// Reads done or in progress.
    pub reads: u64,
    /// Blocks chosen for clients.
    pub chosen: u64,
    /// Of these, outside of the active region.
    pub chosen_outside: u64,
    /// Of these, already in memory.
    pub chosen_resident: u64,
    /// Blocks that were in memory when chosen or read, and were gone at the head of the queue.
    pub stale: u64,
    /// Followers moved to the middle of their region.
    pub moved: u64,
    /// Most memory in use, blocks.
    pub blocks_held_max: u64,
}
