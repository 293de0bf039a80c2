//! When the bytes of an answer are needed, so that the disk serves the player first that would stall first.
//!
//! A viewer plays an answer from its first byte on, at the file's bitrate. If the player states how long its
//! buffer lasts ([`crate::cmcd`]), a window is due when its first byte is played. If not, playing is assumed
//! to begin with the request, and a window is due when it and all before it have been played. A client that
//! is ahead of that (it buffers, or downloads) can wait. To one that fell behind (it paused), only the window
//! that it requests is due.

use std::time::{Duration, Instant};

use seekless_engine::ClientDemand;

use crate::cmcd::Playback;

/// How one answer is played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Playing {
    began: Instant,
    playback: Playback,
}

impl Playing {
    pub(crate) fn new(began: Instant, playback: Playback) -> Playing {
        Playing { began, playback }
    }

    /// For `len` bytes requested at `now`, after `sent` bytes of the answer; `told` is the file's bitrate, if
    /// known.
    pub(crate) fn demand(&self, now: Instant, told: Option<u64>, sent: u64, len: u64) -> ClientDemand {
        let bitrate = self.playback.bitrate.or(told).filter(|rate| *rate > 0);
        let played = |bytes: u64| bitrate.map(|rate| Duration::from_secs_f64(bytes as f64 / rate as f64));
        let deadline = match self.playback.starts_in {
            Some(starts_in) => {
                let before = if sent == 0 { Some(Duration::ZERO) } else { played(sent) };
                before.and_then(|before| self.began.checked_add(starts_in + before)).map(|at| at.max(now))
            }
            None => {
                let in_step = played(sent + len).and_then(|all| self.began.checked_add(all));
                let at_least = played(len).and_then(|window| now.checked_add(window));
                in_step.max(at_least)
            }
        };
        ClientDemand { deadline, bitrate, ..ClientDemand::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds from the request to the deadline.
    fn due_s(playback: Playback, at_s: f64, told: Option<u64>, sent: u64) -> Option<f64> {
        let began = Instant::now();
        let now = began + Duration::from_secs_f64(at_s);
        let demand = Playing::new(began, playback).demand(now, told, sent, 500_000);
        demand.deadline.map(|at| (at - began).as_secs_f64())
    }

    #[test]
    fn without_a_word_from_the_player_the_bitrate_sets_the_pace() {
        let silent = Playback::default();
        assert_eq!(due_s(silent, 0.0, None, 0), None, "nothing is known");
        assert_eq!(due_s(silent, 0.0, Some(250_000), 0), Some(2.0));
        assert_eq!(due_s(silent, 1.0, Some(250_000), 2_500_000), Some(12.0), "its buffer holds ten seconds");
        assert_eq!(due_s(silent, 60.0, Some(250_000), 2_500_000), Some(62.0), "it paused");
        assert_eq!(due_s(silent, 0.0, Some(0), 0), None);
    }

    #[test]
    fn a_player_that_says_when_it_needs_them_is_believed() {
        let says = |ms, bitrate| Playback { bitrate, starts_in: Some(Duration::from_millis(ms)) };
        assert_eq!(due_s(says(500, None), 0.0, Some(250_000), 0), Some(0.5));
        assert_eq!(due_s(says(500, None), 0.0, Some(250_000), 1_000_000), Some(4.5));
        assert_eq!(
            due_s(says(500, Some(1_000_000)), 0.0, Some(250_000), 1_000_000),
            Some(1.5),
            "over the table"
        );
        assert_eq!(due_s(says(500, None), 0.0, None, 0), Some(0.5));
        assert_eq!(due_s(says(500, None), 0.0, None, 1), None, "no bitrate: of the first bytes alone");
        assert_eq!(due_s(says(500, None), 3.0, None, 0), Some(3.0), "not before its request");
    }

    #[test]
    fn absurd_bitrates_are_no_deadline() {
        let began = Instant::now();
        let demand = Playing::new(began, Playback::default()).demand(began, Some(1), u64::MAX / 2, 1);
        assert_eq!(demand.deadline.map(|at| at - began), Some(Duration::from_secs(1)));
    }
}
