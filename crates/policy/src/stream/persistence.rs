//! Whether the readers of a disk stay to the end of what is fetched for them.
//!
//! Of viewers of video most leave early (\[L\] 4), of a mirror's clients hardly any does. What a piece too long costs is
//! what its reader leaves unread; what a piece too short costs is one more movement of the head, worth what the disk
//! transfers meanwhile (\[C\] 2). So the mean of what ended streams left unread is held against that.

/// What ended streams left unread counts with this weight of the newest: settles within some dozens of streams.
const NEWEST: u64 = 16;

/// Streams that must have ended before anything is believed.
const ENDED_MIN: u32 = 16;

/// Left unread a stream, below which readers count as staying: about what a drive of the papers transfers in one seek
/// and half a turn (12 to 15 ms at 110 MB/s).
const STAYS: u64 = 3 << 19;

/// Above which they count as leaving again. Apart from [`STAYS`], because longer pieces leave more unread by themselves.
const LEAVES: u64 = 2 * STAYS;

/// The means sizes are reckoned from count with this weight of the newest: they must not follow chance.
const NEWEST_SLOW: f64 = 256.0;

/// Moving average of what streams leave unread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Persistence {
    ended: u32,
    left: u64,
    stays: bool,
    /// Slower means, of what was used and what was left.
    used_slow: f64,
    left_slow: f64,
}

impl Persistence {
    /// A stream is over; so many bytes it used, so many fetched for it were never read.
    pub fn ended(&mut self, used: u64, unread: u64) {
        self.ended = self.ended.saturating_add(1);
        let weight = f64::from(self.ended).min(NEWEST_SLOW);
        self.used_slow += (used as f64 - self.used_slow) / weight;
        self.left_slow += (unread as f64 - self.left_slow) / weight;
        self.left = match self.ended {
            // A plain mean at first, or the start value would weigh for long.
            n if u64::from(n) <= NEWEST => self.left - self.left / u64::from(n) + unread / u64::from(n),
            _ => self.left - self.left / NEWEST + unread / NEWEST,
        };
        self.stays = self.ended >= ENDED_MIN && self.left <= if self.stays { LEAVES } else { STAYS };
    }

    /// Streams that have ended, and the mean bytes one of the last hundreds of them used and left unread.
    pub fn means(&self) -> (u32, f64, f64) {
        (self.ended, self.used_slow, self.left_slow)
    }

    /// Whether readers stay; `false` until enough of them were seen.
    pub fn stays(&self) -> bool {
        self.stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;

    fn after(unread: impl IntoIterator<Item = u64>) -> Persistence {
        let mut persistence = Persistence::default();
        unread.into_iter().for_each(|left| persistence.ended(8 * M, left));
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

    #[test]
    fn longer_pieces_alone_do_not_take_it_back() {
        let mut persistence = after([M; 100]);
        assert!(persistence.stays());
        (0..100).for_each(|_| persistence.ended(8 * M, 2 * M));
        assert!(persistence.stays());
        (0..100).for_each(|_| persistence.ended(8 * M, 5 * M));
        assert!(!persistence.stays());
        (0..100).for_each(|_| persistence.ended(8 * M, 2 * M));
        assert!(!persistence.stays(), "and it takes more than that to believe again");
    }
}
