//! How far clients of a disk read, and how much further a client goes that has come as far as this one.
//!
//! A client of random blocks and the first read of a client that reads the whole file look alike. Only
//! earlier clients tell them apart. A piece that ends at the median of the remaining length is as likely too
//! long as too short. At a competitive depth, where a byte too many costs as much as a byte too few (\[C\]
//! 2), that is the best end.

use crate::sizing::controller::RECENT;

/// Lengths below a page are not distinguished.
const LEAST: u64 = 1 << 12;

/// Classes of length per octave.
const AN_OCTAVE: u32 = 4;
const CLASSES: usize = 52 * AN_OCTAVE as usize;

/// Streams that have ended, in classes by how much they read.
#[derive(Clone, Debug)]
pub(crate) struct Lengths {
    ended: u32,
    classes: [Class; CLASSES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    streams: u32,
    longest: u64,
}

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths { ended: 0, classes: [Class::default(); CLASSES] }
    }
}

impl Lengths {
    /// A stream ended after this many bytes.
    pub(crate) fn ended(&mut self, consumed: u64) {
        let class = &mut self.classes[class_of(consumed)];
        class.streams += 1;
        class.longest = class.longest.max(consumed);
        self.ended += 1;
        // Readers change: at twice as many as are remembered, halve all counts.
        if self.ended >= 2 * RECENT {
            for class in &mut self.classes {
                let streams = class.streams / 2;
                *class = Class { streams, longest: if streams > 0 { class.longest } else { 0 } };
            }
            self.ended = self.classes.iter().map(|c| c.streams).sum();
        }
    }

    /// A stream that counted as ended after this many bytes goes on.
    pub(crate) fn resumed(&mut self, consumed: u64) {
        let class = &mut self.classes[class_of(consumed)];
        if class.streams > 0 {
            class.streams -= 1;
            self.ended = self.ended.saturating_sub(1);
        }
        if class.streams == 0 {
            class.longest = 0;
        }
    }

    /// Median of how much further streams went, among those that have ended and read `consumed` bytes or
    /// more. `None` until enough have come as far. At most a fifth too long.
    pub(crate) fn median_rest(&self, consumed: u64) -> Option<u64> {
        rest_of(&[self], consumed, HALF)
    }
}

/// A fraction of the streams: numerator and denominator.
pub(crate) type Part = (u32, u32);

/// Half of the streams: the median.
pub(crate) const HALF: Part = (1, 2);

/// Among the ended streams of `seen` that read `consumed` bytes or more, this fraction went on for at most
/// the returned number of bytes. `None` until enough have come as far.
pub(crate) fn rest_of(seen: &[&Lengths], consumed: u64, (part, whole): Part) -> Option<u64> {
    let first = class_of(consumed);
    // Of the streams in the same class only the longest is known to have come as far.
    let passed = seen.iter().all(|lengths| lengths.classes[first].longest < consumed);
    let reached = first + usize::from(passed)..CLASSES;
    let streams = |class: usize| seen.iter().map(|lengths| lengths.classes[class].streams).sum::<u32>();
    let total: u32 = reached.clone().map(streams).sum();
    if total < super::BELIEVED_AFTER {
        return None;
    }
    let mut below = 0;
    let class = reached.into_iter().find(|&class| {
        below += streams(class);
        whole * below >= part * total
    })?;
    let longest = seen.iter().map(|lengths| lengths.classes[class].longest).max()?;
    Some(longest.saturating_sub(consumed))
}

/// Of the streams of a kind, how many ended with their first read and how many went on, in classes by the
/// length of that read.
#[derive(Clone, Debug)]
pub(crate) struct FirstReads {
    classes: [WentOn; CLASSES],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WentOn {
    /// Streams that ended with their first read.
    pub(crate) no: u32,
    /// Streams that read more.
    pub(crate) yes: u32,
}

impl WentOn {
    fn of(&mut self, on: bool) -> &mut u32 {
        if on { &mut self.yes } else { &mut self.no }
    }

    fn believed(self) -> Option<WentOn> {
        (self.no + self.yes >= super::BELIEVED_AFTER).then_some(self)
    }
}

impl Default for FirstReads {
    fn default() -> FirstReads {
        FirstReads { classes: [WentOn::default(); CLASSES] }
    }
}

impl FirstReads {
    /// Counts a stream whose first read had this length; `on` says whether it read more.
    pub(crate) fn count(&mut self, first: u64, on: bool) {
        let class = &mut self.classes[class_of(first)];
        *class.of(on) += 1;
        if class.no + class.yes >= 2 * RECENT {
            *class = WentOn { no: class.no / 2, yes: class.yes / 2 };
        }
    }

    /// Takes back what was counted of a stream.
    pub(crate) fn take_back(&mut self, first: u64, on: bool) {
        let streams = self.classes[class_of(first)].of(on);
        *streams = streams.saturating_sub(1);
    }

    /// Of all these: the streams whose first read was about as long as this; any, if too few are known.
    /// `None` until enough are.
    pub(crate) fn of(counted: &[&FirstReads], first: u64) -> Option<WentOn> {
        let sum = |a: WentOn, b: &WentOn| WentOn { no: a.no + b.no, yes: a.yes + b.yes };
        let like_it = counted.iter().map(|of| &of.classes[class_of(first)]).fold(WentOn::default(), sum);
        let all = || counted.iter().flat_map(|of| &of.classes).fold(WentOn::default(), sum).believed();
        like_it.believed().or_else(all)
    }
}

fn class_of(bytes: u64) -> usize {
    let bytes = bytes.max(LEAST);
    let octave = bytes.ilog2();
    // The two bits below the highest one.
    let within = bytes >> (octave - 2) & 3;
    ((octave - LEAST.ilog2()) * AN_OCTAVE) as usize + within as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    fn after(lengths: impl IntoIterator<Item = u64>) -> Lengths {
        let mut seen = Lengths::default();
        lengths.into_iter().for_each(|bytes| seen.ended(bytes));
        seen
    }

    #[test]
    fn nothing_is_believed_of_a_few() {
        assert_eq!(after([64 * K; 15]).median_rest(0), None);
        assert_eq!(after([64 * K; 16]).median_rest(0), Some(64 * K));
    }

    #[test]
    fn readers_of_blocks_are_at_their_end_after_one() {
        let seen = after([64 * K; 100]);
        assert_eq!(seen.median_rest(32 * K), Some(32 * K));
        assert_eq!(seen.median_rest(64 * K), Some(0));
        assert_eq!(seen.median_rest(128 * K), None, "nobody came so far");
    }

    #[test]
    fn who_has_come_far_goes_on_as_those_did_who_came_as_far() {
        let seen = after((0..400).map(|i| if i % 4 == 0 { 4096 * K } else { 64 * K }));
        assert_eq!(seen.median_rest(64 * K), Some(0));
        assert_eq!(seen.median_rest(128 * K), Some(3968 * K));
    }

    #[test]
    fn new_readers_outweigh_old_ones() {
        let seen = after([4096 * K; 2000].into_iter().chain([64 * K; 1500]));
        assert_eq!(seen.median_rest(0), Some(64 * K));
    }

    #[test]
    fn a_first_read_tells_by_its_length_who_goes_on() {
        let mut seen = FirstReads::default();
        (0..15).for_each(|_| seen.count(256 * K, true));
        assert_eq!(FirstReads::of(&[&seen], 256 * K), None, "fifteen are too few");
        (0..16).for_each(|_| seen.count(700 * K, false));
        assert_eq!(FirstReads::of(&[&seen], 700 * K), Some(WentOn { no: 16, yes: 0 }));
        assert_eq!(
            FirstReads::of(&[&seen], 256 * K),
            Some(WentOn { no: 16, yes: 15 }),
            "all, as long as its own are few"
        );
        seen.count(256 * K, true);
        assert_eq!(FirstReads::of(&[&seen], 256 * K), Some(WentOn { no: 0, yes: 16 }));
        seen.take_back(700 * K, false);
        assert_eq!(FirstReads::of(&[&seen], 700 * K), Some(WentOn { no: 15, yes: 16 }));
    }

    #[test]
    fn no_length_is_too_long() {
        let seen = after([u64::MAX; 40]);
        assert!(seen.median_rest(u64::MAX).is_some());
    }
}
