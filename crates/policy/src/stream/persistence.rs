//! Whether the readers of a disk stay to the end of what is fetched for them.
//!
//! Of viewers of video most leave early (\[L\] 4), of a mirror's clients hardly any does. What a piece too
//! long costs is what its reader leaves unread; what a piece too short costs is one more movement of the
//! head, worth what the disk transfers meanwhile (\[C\] 2). So the mean of what ended streams left unread is
//! held against that.

use seekless_sizing::controller::RECENT;
use seekless_units::Bytes;

/// Moving average of what streams leave unread.
///
/// Clients count as staying when they leave less than what the disk transfers in the time of one switch, and
/// as leaving again when it is twice that: longer pieces leave more unread by themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Persistence {
    /// What the disk transfers in the time of one switch.
    depth: u64,
    ended: u32,
    left: u64,
    stays: bool,
    /// Read by all streams since the last one ended.
    read: u64,
    /// Slower means, of what is read between two endings and of what is left.
    read_slow: f64,
    left_slow: f64,
}

impl Persistence {
    /// Nothing seen yet, on a disk of this depth.
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

    /// The depth of the disk is known better now.
    pub(crate) fn set_depth(&mut self, depth: Bytes) {
        self.depth = depth.0;
    }

    /// Some stream read so many bytes.
    pub(crate) fn read(&mut self, bytes: u64) {
        self.read = self.read.saturating_add(bytes);
    }

    /// A stream is over; so many bytes of the piece it read were never read.
    pub(crate) fn ended(&mut self, unread: u64) {
        self.ended = self.ended.saturating_add(1);
        // Over as many streams as the model waits for: sizes must not follow chance.
        let weight = f64::from(self.ended.min(RECENT));
        let read = core::mem::take(&mut self.read);
        self.read_slow += (read as f64 - self.read_slow) / weight;
        self.left_slow += (unread as f64 - self.left_slow) / weight;
        // A plain mean at first, or the start value would weigh for long. Then of the newest: it settles
        // within some dozens of streams.
        let newest = u64::from(self.ended.min(super::BELIEVED_AFTER));
        self.left = self.left - self.left / newest + unread / newest;
        self.stays = self.ended >= super::BELIEVED_AFTER
            && self.left <= if self.stays { 2 * self.depth } else { self.depth };
    }

    /// Streams that have ended; bytes read for each of the last hundreds of them, by whichever stream; and
    /// the mean they left unread. What those that ended read themselves would not do: soon after a start
    /// these are the short ones.
    pub(crate) fn means(&self) -> (u32, f64, f64) {
        (self.ended, self.read_slow, self.left_slow)
    }

    /// Whether readers stay; `false` until enough of them were seen.
    pub(crate) fn stays(&self) -> bool {
        self.stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;
    /// A drive of the papers.
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

    /// A hundred viewers begin together; of the short half a tenth has ended when the others are in the
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
