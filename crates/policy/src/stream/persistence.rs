//! Whether the readers of a disk stay to the end of what is fetched for them.
//!
//! Most viewers of video leave early (\[L\] 4), hardly any client of a mirror does. A piece too long costs
//! the bytes that its reader leaves unread; a piece too short costs one more switch, worth what the disk
//! transfers in that time (\[C\] 2). So the mean number of bytes that ended streams left unread is compared
//! with that.

use seekless_base::Bytes;

use crate::sizing::controller::RECENT;

/// Moving average of the bytes that streams leave unread.
///
/// Clients count as staying when that is less than what the disk transfers in the time of one switch, and as
/// leaving again when it is twice that, because longer pieces by themselves leave more unread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Persistence {
    /// What the disk transfers in the time of one switch.
    depth: u64,
    ended: u32,
    left: u64,
    stays: bool,
    /// Bytes read by all streams since the last one ended.
    read: u64,
    /// Slower averages: bytes read between two ends of streams, and bytes left unread.
    read_slow: f64,
    left_slow: f64,
}

impl Persistence {
    /// The initial state on a disk of this depth.
    pub(crate) fn new(depth: Bytes) -> Persistence {
        Persistence {
            depth: depth.0,
            ended: 0,
            left: 0,
            stays: false,
            read: 0,
            read_slow: 0.0,
            left_slow: 0.0,
        }
    }

    /// Sets a better value of the disk's depth.
    pub(crate) fn set_depth(&mut self, depth: Bytes) {
        self.depth = depth.0;
    }

    /// A stream read this many bytes.
    pub(crate) fn read(&mut self, bytes: u64) {
        self.read = self.read.saturating_add(bytes);
    }

    /// A stream has ended and left this many bytes of its piece unread.
    pub(crate) fn ended(&mut self, unread: u64) {
        self.ended = self.ended.saturating_add(1);
        // Average over as many streams as the model waits for, so that sizes do not follow chance.
        let weight = f64::from(self.ended.min(RECENT));
        let read = core::mem::take(&mut self.read);
        self.read_slow += (read as f64 - self.read_slow) / weight;
        self.left_slow += (unread as f64 - self.left_slow) / weight;
        // First a plain mean, so that the start value has no weight. Then a moving average that settles
        // within some dozens of streams.
        let newest = u64::from(self.ended.min(super::BELIEVED_AFTER));
        self.left = self.left - self.left / newest + unread / newest;
        self.stays = self.ended >= super::BELIEVED_AFTER
            && self.left <= if self.stays { 2 * self.depth } else { self.depth };
    }

    /// Number of ended streams; bytes read by all streams per ended stream, over the last hundreds; mean
    /// bytes left unread. The bytes that the ended streams themselves read would be biased: soon after a
    /// start, only short streams have ended.
    pub(crate) fn means(&self) -> (u32, f64, f64) {
        (self.ended, self.read_slow, self.left_slow)
    }

    /// Whether readers stay; `false` until enough were seen.
    pub(crate) fn stays(&self) -> bool {
        self.stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;
    /// Depth of a drive of the papers.
    const DEPTH: Bytes = Bytes(3 << 19);

    fn after(unread: impl IntoIterator<Item = u64>) -> Persistence {
        let mut persistence = Persistence::new(DEPTH);
        unread.into_iter().for_each(|left| persistence.ended(left));
        persistence
    }

    #[test]
    fn nothing_is_believed_of_a_few() {
        assert!(!after([0; 15]).stays());
        assert!(after([0; 16]).stays());
    }

    #[test]
    fn readers_that_leave_are_known_by_what_they_leave() {
        assert!(!after([4 * M; 100]).stays());
        let one_in_eight = (0..200).map(|i| if i % 8 == 0 { 4 * M } else { 0 });
        assert!(after(one_in_eight).stays(), "half a MiB a stream is less than a seek");
    }

    /// A hundred viewers begin together. A tenth of the short half has ended when the others are in the
    /// middle.
    #[test]
    fn what_is_read_for_each_that_ends_counts_those_who_stay() {
        let mut persistence = Persistence::new(DEPTH);
        for _ in 0..10 {
            (0..100).for_each(|_| persistence.read(M));
            persistence.ended(M);
        }
        assert_eq!(persistence.means(), (10, 100.0 * M as f64, M as f64));
    }

    #[test]
    fn longer_pieces_alone_do_not_take_it_back() {
        let mut persistence = after([M; 100]);
        assert!(persistence.stays());
        (0..100).for_each(|_| persistence.ended(2 * M));
        assert!(persistence.stays());
        (0..100).for_each(|_| persistence.ended(5 * M));
        assert!(!persistence.stays());
        (0..100).for_each(|_| persistence.ended(2 * M));
        assert!(!persistence.stays(), "and it takes more than that to believe again");
    }
}
