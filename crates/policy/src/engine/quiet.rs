//! Quiet disks: long reads and long pauses, so that a disk may stop between them (`--quiet`).
//!
//! A disk that reads for one stream reads for all: while it is awake, each stream gets as much ahead as its
//! part of the budget holds. Then it is left alone until the first stream has only the *lead* left, the time
//! of a spin-up and the usual slack. All streams would run dry at about the same time, because each gets what
//! it reads within one *horizon*: the budget divided by the rate of all streams. So the disk wakes up once
//! for all of them.
//!
//! - No stream gets more ahead than it has read so far, unless clients are seen to stay
//!   ([`crate::stream`]). So a viewer that leaves early costs at most as many bytes as it has read, and a
//!   film takes a few reads more at its beginning, while the disk is awake anyway.
//! - A disk whose streams use up the budget within two leads is not idle enough: then the usual rules apply.
//! - A spin-up is a read that took long after a pause. The lead covers the longest one that was seen, and at
//!   least [`SPIN_UP`].

use seekless_base::Nanos;

use super::DiskEngine;
use super::lengths::PieceLen;
use crate::{ReadId, Stream};

/// Assumed time of a spin-up, until a longer one is seen. Data sheets of desktop and NAS drives of 3.5 inches
/// give 8 to 15 s to ready, and up to 30 s at most. At half, the first film after a start stops for some
/// seconds at its first spin-up; at double, a stream of 1 MB/s needs 10 MB more left when the disk is woken.
const SPIN_UP: Nanos = Nanos::from_secs(10);

/// Longest time of a read that counts as a spin-up. Beyond, the disk had another trouble.
const SPIN_UP_MAX: Nanos = Nanos::from_secs(60);

/// Shortest time of a read that counts as a spin-up. Small drives take 3 to 5 s. At half, a drive's
/// recalibration counts; at double, a small drive's spin-ups do not.
const SPIN_UP_MIN: Nanos = Nanos::from_secs(3);

/// Shortest pause before a spin-up: twice the shortest standby timer of a drive (`hdparm -S 1`). At half, a
/// read with error recovery counts sooner; at double, spin-ups of such a drive do not count.
const PAUSE_MIN: Nanos = Nanos::from_secs(10);

/// Whether a disk is awake, as far as its reads show.
#[derive(Clone, Debug)]
pub(super) struct Quiet {
    /// The disk reads now, for all streams.
    pub(super) bursting: bool,
    /// When the last read ended.
    ended: Nanos,
    /// A read in flight that began after a pause, and when.
    woke: Option<(ReadId, Nanos)>,
    /// The longest spin-up that is allowed for.
    spin_up: Nanos,
    /// Reads that began after a pause; below, those that took as long as a spin-up.
    pub(super) pauses: u64,
    pub(super) spin_ups: u64,
}

impl Default for Quiet {
    fn default() -> Quiet {
        Quiet { bursting: false, ended: Nanos::ZERO, woke: None, spin_up: SPIN_UP, pauses: 0, spin_ups: 0 }
    }
}

impl Quiet {
    /// A read begins.
    pub(super) fn began(&mut self, now: Nanos, read: ReadId, in_flight: usize) {
        self.bursting = true;
        if in_flight <= 1 && now.since(self.ended) >= PAUSE_MIN {
            self.pauses += 1;
            self.woke = Some((read, now));
        }
    }

    /// A read is over.
    pub(super) fn ended(&mut self, now: Nanos, read: ReadId) {
        self.ended = now;
        if let Some((_, began)) = self.woke.take_if(|(woke, _)| *woke == read) {
            let took = now.since(began);
            if (SPIN_UP_MIN..=SPIN_UP_MAX).contains(&took) {
                self.spin_ups += 1;
                self.spin_up = self.spin_up.max(took);
            }
        }
    }
}

impl DiskEngine {
    /// How long the budget lasts for all streams; `None` if that is not long, or `--quiet` is off.
    fn quiet_horizon(&self) -> Option<Nanos> {
        let following = &self.following;
        let rate = following.mean_rate * following.active as f64;
        if !following.config.quiet || rate <= 0.0 {
            return None;
        }
        let horizon = Nanos::from_secs_f64(self.memory.budget() as f64 / rate);
        (horizon >= self.quiet.spin_up + self.quiet.spin_up).then_some(horizon)
    }

    /// Whether the disk is left alone between long reads.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet_horizon().is_some()
    }

    /// Time to wake the disk up, if it may stop between reads.
    pub(super) fn wake_up_time(&self) -> Nanos {
        if self.is_quiet() { self.quiet.spin_up } else { Nanos::ZERO }
    }

    /// Bytes that a stream is to have ahead at the end of a long read; `None` if the usual rules apply.
    pub(super) fn quiet_ahead(&self, stream: &Stream, len: &PieceLen) -> Option<u64> {
        let horizon = self.quiet_horizon()?;
        let rate = self.bitrate_of(stream).unwrap_or_else(|| stream.bytes_per_s(stream.last));
        let all = (rate * horizon.as_secs_f64()) as u64;
        let stays = self.following.table.persistence().stays();
        Some(if stays { all } else { all.min(stream.consumed) }.max(len.full.saturating_mul(2)))
    }

    /// Ends a long read once no stream wants more.
    pub(super) fn end_burst(&mut self) {
        if self.queue.load() == (0, 0) {
            self.quiet.bursting = false;
        }
    }
}
