//! Any order: one disk read serves every client that downloads a file, because each takes its blocks in whatever order
//! suits the disk. Circus \[X\] 3, opportunistic block reordering, as the paper gives it.
//!
//! A download needs every block of its file, so a server knows what each client will want for as long as the client is
//! there. For each file being downloaded there is an *active region*: the stretch of it that lies in memory, moving over
//! the file's blocks, which are a circle. Its front edge is the *file cursor*. Each client has a *client cursor*, the block
//! chosen for it last.
//!
//! - The client furthest ahead is the *frontrunner*: choosing a block for it moves the file cursor, and with it brings in
//!   blocks the others need as well.
//! - All others are *followers*. One whose cursor falls more than the region's length behind is moved to the region's
//!   middle (not to its front, where it would become the frontrunner); what it skipped it gets on a later lap.
//! - A client that already has a share of the file, the *threshold*, is *independent*: it is left to collect what it still
//!   misses, inside the region or not. So is one whose next missing block lies the *leapfront distance* or more ahead of
//!   the file cursor: it does not drag the region there.
//!
//! Blocks chosen wait in a bounded first-in-first-out queue a client. The queues fill one block a round: each
//! round gives every client whose queue has room its next block (Figure 5).
//!
//! [`Circus`] is the server's side of this as a state machine: [`Circus::handle`] what happened, then [`Circus::poll_action`] until it is empty. It reads no clock, as no
//! decision rests on time. It also keeps count of the memory: what is read and not dropped never exceeds
//! [`Config::memory`].
//!
//! What the paper leaves open, and the reading taken here: positions are counted on from lap to lap, so that "behind" and
//! "ahead" have a meaning on a circle; a client that joins starts in the middle of the region (what the rule for followers
//! makes of one that starts at the beginning); a block queued counts as given, a block sent as received; the read is
//! ordered when the block is chosen (section 3) and again at the head of the queue if it was evicted meanwhile, which is
//! what makes long queues costly in Figure 15.
//!
//! Must not know: the policy of one disk beyond a read's id, descriptors, paths, sockets, threads, clocks, logging.
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

pub use circus::Circus;
pub use client::Role;
pub use seekless_policy::ReadId;

/// One version of one file. The driver chooses it; a file that changed is another content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentId(pub u64);

/// One download, named by the driver; not to be used again before it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Most blocks a file may have: 1 TiB of 64 KiB blocks, for which a client's block map takes 2 MiB.
pub const BLOCKS_MAX: u64 = 1 << 24;

/// Which block comes next for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The paper's algorithm.
    Circus,
    /// From the first block to the last, as FTP and HTTP servers do: what the paper compares with. Region, threshold and
    /// leapfront have no effect.
    Sequential,
}

/// Parameters, named as in the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Order of blocks.
    pub selection: Selection,
    /// Block size: unit of choice, of memory and of sending. Only used to turn the sizes below into blocks.
    pub block: Bytes,
    /// Active length: how much of each file is kept between the frontrunner and the last follower.
    pub region: Bytes,
    /// Client threshold: share of a file's blocks, 0 to 1, from which on a client is independent.
    pub threshold: f64,
    /// Leapfront distance over active length.
    pub leapfront: f64,
    /// Queue length limit, blocks a client, at least 1.
    pub queue: usize,
    /// Memory for blocks, those being read or sent included. At least one block.
    pub memory: Bytes,
    /// Blocks read at once: a read goes on over the following blocks up to this size, as long as the client it is for
    /// needs them. Equal to `block` in the paper; larger where a seek costs as much as megabytes.
    pub read: Bytes,
    /// Reads under way at once, at least 1.
    pub reads_in_flight: usize,
    /// Downloads at once; more are refused.
    pub clients_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            selection: Selection::Circus,
            // \[X\] 5.5: block, queue, threshold and region as used throughout the paper's study; leapfront distance equal to
            // the active length.
            block: Bytes::kib(64),
            region: Bytes::mib(16),
            threshold: 0.75,
            leapfront: 1.0,
            queue: 5,
            // The paper's server had 256 MB in all, its processes included.
            memory: Bytes::mib(128),
            read: Bytes::kib(64),
            // Enough for a drive to choose from; one block each, so a fraction of a second of work for it.
            reads_in_flight: 8,
            clients_max: 16_384,
        }
    }
}

/// Which blocks a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of the file.
    All,
    /// Only these ranges of block numbers (a download resumed); what lies beyond the file is ignored, overlaps count once.
    Ranges(Vec<Range<u64>>),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A download begins. A client name in use is ignored.
    Join {
        /// Its name.
        client: ClientId,
        /// What it downloads.
        content: ContentId,
        /// Blocks of the whole file, the last one perhaps short.
        blocks: u64,
        /// Which of them it wants.
        wanted: Wanted,
    },
    /// From now on so much memory may hold blocks; what was in [`Config::memory`] before. Blocks being sent or read stay,
    /// so it may take until they are done before less memory is really less.
    Memory(Bytes),
    /// A client is gone. Nothing more is said about it. Unknown names are ignored.
    Left {
        /// Which client.
        client: ClientId,
    },
    /// The client's connection has taken the block of the last [`Action::Send`]; it can take the next.
    Sent {
        /// Which client.
        client: ClientId,
        /// Which block; anything but the block being sent is ignored.
        block: u64,
    },
    /// A read is over.
    ReadDone {
        /// Which read.
        read: ReadId,
        /// Blocks read, from its first on. Fewer than asked: an error or the file's end came in the way.
        blocks: u64,
    },
}

/// Why a download was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// [`Config::clients_max`] downloads are under way.
    Full,
    /// More than [`BLOCKS_MAX`] blocks, or not as many as another client of the same content said.
    Blocks,
}

/// What the driver is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read blocks into memory and keep them; report [`Event::ReadDone`] once.
    Read {
        /// Name for the report.
        id: ReadId,
        /// The file.
        content: ContentId,
        /// First block.
        first: u64,
        /// Number of blocks, at least 1.
        blocks: u64,
    },
    /// Forget a block: its memory is needed. It is not being sent.
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
    /// A block the client needs cannot be read; it is forgotten. What it has got so far is right.
    Broken {
        /// Which client.
        client: ClientId,
        /// The block.
        block: u64,
    },
    /// The download cannot be taken on.
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
    /// Reads under way or done.
    pub reads: u64,
    /// Blocks chosen for clients.
    pub chosen: u64,
    /// Of these, outside of the active region.
    pub chosen_outside: u64,
    /// Of these, in memory already.
    pub chosen_resident: u64,
    /// Blocks that had been in memory when chosen or read, and were gone again at the head of the queue.
    pub stale: u64,
    /// Followers moved to the middle of their region.
    pub moved: u64,
    /// Most memory in use, blocks.
    pub blocks_held_max: u64,
}
