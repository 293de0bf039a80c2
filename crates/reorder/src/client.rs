//! The block selection of Figure 5: one client, its file, the next block.

use alloc::collections::VecDeque;

use super::bitmap::BlockMap;
use super::{ClientId, Config, ContentId, Selection, Stats};

/// The role of a client in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// At the file cursor: it moves the region.
    Frontrunner,
    /// Inside the region.
    Follower,
    /// Outside of it, by threshold or by leapfront distance.
    Independent,
}

/// Sizes in blocks, from a [`Config`].
#[derive(Clone, Debug)]
pub(super) struct Limits {
    selection: Selection,
    active_length: u64,
    leapfront: u64,
    threshold: f64,
    pub(super) queue: usize,
}

impl Limits {
    pub(super) fn new(config: &Config) -> Limits {
        let active_length = (config.region.0 / config.block.0.max(1)).max(1);
        Limits {
            selection: config.selection,
            active_length,
            leapfront: ((active_length as f64 * config.leapfront) as u64).max(1),
            threshold: config.threshold,
            queue: config.queue.max(1),
        }
    }
}

/// A file being downloaded.
#[derive(Clone, Debug)]
pub(super) struct ActiveFile {
    /// Front edge of the active region, counted on from lap to lap: block `cursor % blocks`.
    pub(super) cursor: u64,
    pub(super) blocks: u64,
    pub(super) clients: usize,
}

/// A client and its download.
#[derive(Clone, Debug)]
pub(super) struct ClientDownload {
    pub(super) content: ContentId,
    /// Number of clients that joined before it, itself included: its place in its file's list of clients.
    joined: u64,
    /// The block chosen last, counted like [`ActiveFile::cursor`].
    pub(super) cursor: u64,
    /// The blocks that were chosen.
    pub(super) map: BlockMap,
    /// Blocks of the file that it has or never wanted.
    pub(super) received: u64,
    /// Blocks chosen and not being sent yet.
    pub(super) queue: VecDeque<u64>,
    pub(super) sending: Option<u64>,
    /// Whether it waits for the block at the head of the queue.
    pub(super) waiting: bool,
}

impl ClientDownload {
    /// A client that joins: in the middle of the region, or at the start of the file while the region is
    /// there.
    pub(super) fn join(
        content: ContentId,
        map: BlockMap,
        file: &ActiveFile,
        limits: &Limits,
        joined: u64,
    ) -> ClientDownload {
        let cursor = match limits.selection {
            Selection::Sequential => 0,
            Selection::Circus if file.cursor <= limits.active_length => 0,
            Selection::Circus => file.cursor - limits.active_length / 2,
        };
        let received = file.blocks - map.missing;
        ClientDownload {
            content,
            joined,
            cursor,
            map,
            received,
            queue: VecDeque::new(),
            sending: None,
            waiting: false,
        }
    }

    /// Its place in a round over all files and clients.
    pub(super) fn turn(&self, id: ClientId) -> (ContentId, u64, ClientId) {
        (self.content, self.joined, id)
    }

    /// Lines 8 to 16 of Figure 5: the next block for this client, marked as given; `None` if all were given.
    pub(super) fn choose(
        &mut self,
        file: &mut ActiveFile,
        limits: &Limits,
        stats: &mut Stats,
    ) -> Option<u64> {
        if limits.selection == Selection::Sequential {
            let block = self.map.next_missing(self.cursor % file.blocks)?;
            self.cursor = block;
            self.map.give(block);
            stats.chosen += 1;
            return Some(block);
        }
        let below = (self.received as f64) < limits.threshold * file.blocks as f64;
        if file.cursor.saturating_sub(self.cursor) > limits.active_length && below {
            self.cursor = file.cursor - limits.active_length / 2;
            stats.moved += 1;
        }
        let from = self.cursor % file.blocks;
        let block = self.map.next_missing(from)?;
        self.cursor += (block + file.blocks - from) % file.blocks;
        self.map.give(block);
        if self.cursor > file.cursor && self.cursor - file.cursor < limits.leapfront {
            file.cursor = self.cursor;
        }
        stats.chosen += 1;
        stats.chosen_outside += u64::from(self.role(file, limits) == Role::Independent);
        Some(block)
    }

    /// Its present role.
    pub(super) fn role(&self, file: &ActiveFile, limits: &Limits) -> Role {
        if self.cursor == file.cursor {
            Role::Frontrunner
        } else if self.cursor > file.cursor || file.cursor - self.cursor > limits.active_length {
            Role::Independent
        } else {
            Role::Follower
        }
    }
}
