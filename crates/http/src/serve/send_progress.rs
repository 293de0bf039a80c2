//! Whether an HTTP/2 client takes the data that it is sent.
//!
//! By flow control a client can keep answers open for ever while it proves by PINGs that it is there, and the
//! socket does not show it: it always has room. So the bytes of DATA frames are counted where they are sent
//! to the client, and compared with what the answers handed over.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use smart_default::SmartDefault;

/// Length of a frame's head (RFC 9113, 4.1).
const HEAD: usize = 9;

/// The type of DATA frames.
const DATA: u8 = 0;

/// The answers of one connection.
#[derive(Debug, SmartDefault)]
pub(crate) struct SendProgress {
    /// Answers that have not been handed over completely.
    under_way: Cell<usize>,
    /// Of them, those that wait for the disk.
    at_disk: Cell<usize>,
    /// Bytes that have been handed over and not sent. Those of a stream that was reset stay counted; if the
    /// connection is idle then, it is ended somewhat early.
    waiting: Cell<u64>,
    /// When data was last sent, or when there last was none to send.
    #[default(Cell::new(Instant::now()))]
    last: Cell<Instant>,
    frames: RefCell<Frames>,
}

impl SendProgress {
    /// Whether there was data for the client for this long, and it took nothing.
    pub(crate) fn stalled(&self, patience: Duration) -> bool {
        let something = self.under_way.get() > 0 || self.waiting.get() > 0;
        something && self.at_disk.get() == 0 && self.last.get().elapsed() >= patience
    }

    /// An answer begins.
    pub(crate) fn begins(&self) {
        if self.under_way.replace(self.under_way.get() + 1) == 0 {
            self.last.set(Instant::now());
        }
    }

    /// An answer has been handed over completely, or given up.
    pub(crate) fn ends(&self) {
        self.under_way.set(self.under_way.get().saturating_sub(1));
    }

    /// An answer begins or stops waiting for the disk.
    pub(crate) fn at_disk(&self, waits: bool) {
        let now = self.at_disk.get();
        self.at_disk.set(if waits { now + 1 } else { now.saturating_sub(1) });
        self.last.set(Instant::now());
    }

    /// Bytes of an answer have been handed over.
    pub(crate) fn handed(&self, bytes: u64) {
        self.waiting.set(self.waiting.get().saturating_add(bytes));
    }

    /// Bytes of the connection have been sent to the client.
    pub(crate) fn sent(&self, bytes: &[u8]) {
        let data = self.frames.borrow_mut().data_in(bytes);
        if data > 0 {
            self.waiting.set(self.waiting.get().saturating_sub(data));
            self.last.set(Instant::now());
        }
    }
}

/// The position of a connection in the sequence of frames.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEAD],
    /// Bytes of the frame's header so far.
    have: usize,
    /// Remaining bytes of the payload.
    left: usize,
}

impl Frames {
    /// How many of the next bytes are payload of DATA frames.
    fn data_in(&mut self, mut bytes: &[u8]) -> u64 {
        let mut data = 0;
        while !bytes.is_empty() {
            if self.left > 0 {
                let payload = self.left.min(bytes.len());
                if self.head[3] == DATA {
                    data += payload as u64;
                }
                self.left -= payload;
                bytes = &bytes[payload..];
                continue;
            }
            let more = (HEAD - self.have).min(bytes.len());
            self.head[self.have..self.have + more].copy_from_slice(&bytes[..more]);
            self.have += more;
            bytes = &bytes[more..];
            if self.have == HEAD {
                self.have = 0;
                self.left = u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]]) as usize;
            }
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = (payload as u32).to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], &vec![DATA; payload]].concat()
    }

    #[test]
    fn data_is_counted_however_it_is_cut() {
        let stream =
            [frame(4, 18), frame(DATA, 5), frame(6, 8), frame(DATA, 0), frame(DATA, 300), frame(1, 40)]
                .concat();
        for step in 1..stream.len() {
            let mut frames = Frames::default();
            let data: u64 = stream.chunks(step).map(|piece| frames.data_in(piece)).sum();
            assert_eq!(data, 305, "in pieces of {step}");
        }
    }

    #[test]
    fn only_what_the_client_could_take_counts_against_it() {
        let send_progress = SendProgress::default();
        let now = Duration::ZERO;
        assert!(!send_progress.stalled(now), "there is nothing for it");
        send_progress.begins();
        assert!(send_progress.stalled(now) && !send_progress.stalled(Duration::from_secs(60)));
        send_progress.at_disk(true);
        assert!(!send_progress.stalled(now), "it is the disk that keeps it waiting");
        send_progress.at_disk(false);
        send_progress.handed(10);
        send_progress.ends();
        assert!(send_progress.stalled(now), "handed over, but not sent");
        send_progress.sent(&frame(6, 8));
        assert!(send_progress.stalled(now), "a PING is no answer");
        send_progress.sent(&frame(DATA, 10));
        assert!(!send_progress.stalled(now));
    }
}
