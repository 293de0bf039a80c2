//! Per-user limit on invalid frames.
//!
//! A shim sends little that is refused: a frame of another version once, a file that has just been cut short,
//! a file on a device that it is then told to ignore. A process that sends invalid frames as fast as it can
//! takes processor time from all users. So invalid frames are counted, and a user with too many in a second
//! is muted for a while: its connections are closed unread, and its shims read for themselves. Root and the
//! daemon's own user are never muted.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum number of invalid frames a second. At half, a server of a hundred processes that all learn of
/// another version at once would be muted; at double, a hostile user takes twice as much processor time
/// before it is muted.
const INVALID_FRAMES_MAX: u32 = 64;

/// How long a user with more is muted. At half, invalid frames take twice as much time in total; at double,
/// the servers of a user with one broken process go without read-ahead for twice as long.
const MUTE_FOR: Duration = Duration::from_secs(2);

/// The time over which invalid frames are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Maximum number of users whose invalid frames are counted; further users are not counted. With subordinate
/// ids a local user can have that many user ids, but each of them costs a process.
const USERS_MAX: usize = 4096;

/// Points of an invalid frame, compared with one point for an answer that a shim gets now and then in good
/// faith: that a device must be ignored. Each of 256 processes of a server gets that once in ten seconds.
const INVALID: u32 = 8;
const IN_GOOD_FAITH: u32 = 1;

/// Severity of a refused frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// A shim sends it only by mistake.
    Invalid,
    /// A shim sends it rarely.
    InGoodFaith,
}

#[derive(Debug)]
struct User {
    window: Instant,
    points: u32,
    muted_until: Option<Instant>,
}

/// The recent invalid frames of every user.
#[derive(Debug, Default)]
pub(crate) struct FrameLimiter {
    users: HashMap<u32, User>,
    /// Times that a user was muted.
    pub(crate) muted: u64,
}

impl FrameLimiter {
    /// Counts a frame. Returns whether the user becomes muted by it.
    pub(crate) fn count(&mut self, uid: u32, weight: Weight, now: Instant) -> bool {
        if !self.users.contains_key(&uid) && self.users.len() >= USERS_MAX {
            return false;
        }
        let user = self.users.entry(uid).or_insert(User { window: now, points: 0, muted_until: None });
        if now.saturating_duration_since(user.window) >= WINDOW {
            (user.window, user.points) = (now, 0);
        }
        user.points = user.points.saturating_add(match weight {
            Weight::Invalid => INVALID,
            Weight::InGoodFaith => IN_GOOD_FAITH,
        });
        if user.points <= INVALID_FRAMES_MAX * INVALID || user.muted_until.is_some_and(|until| now < until) {
            return false;
        }
        user.muted_until = Some(now + MUTE_FOR);
        self.muted += 1;
        true
    }

    /// Whether this user is muted now.
    pub(crate) fn is_muted(&self, uid: u32, now: Instant) -> bool {
        self.users.get(&uid).and_then(|user| user.muted_until).is_some_and(|until| now < until)
    }

    /// Forgets what has expired. Must be called once in a while.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.users.retain(|_, user| {
            now.saturating_duration_since(user.window) < WINDOW
                || user.muted_until.is_some_and(|until| now < until)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_too_many_invalid_frames_in_a_second_is_muted_for_a_while() {
        let (mut limiter, start) = (FrameLimiter::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        for i in 0..u64::from(INVALID_FRAMES_MAX) {
            assert!(!limiter.count(33, Weight::Invalid, at(i)));
        }
        assert!(!limiter.is_muted(33, at(100)));
        assert!(limiter.count(33, Weight::Invalid, at(100)), "told once");
        assert!(!limiter.count(33, Weight::Invalid, at(101)));
        assert!(limiter.is_muted(33, at(101)) && !limiter.is_muted(34, at(101)));
        limiter.tick(at(1_500));
        assert!(limiter.is_muted(33, at(2_099)) && !limiter.is_muted(33, at(2_100)));
        limiter.tick(at(2_100));
        assert!(limiter.users.is_empty());
        assert_eq!(limiter.muted, 1);
    }

    #[test]
    fn invalid_frames_over_many_seconds_mute_nobody() {
        let (mut limiter, start) = (FrameLimiter::default(), Instant::now());
        for i in 0..1000u64 {
            assert!(!limiter.count(33, Weight::Invalid, start + Duration::from_millis(20 * i)));
        }
    }

    #[test]
    fn what_is_said_in_good_faith_counts_less() {
        let (mut limiter, now) = (FrameLimiter::default(), Instant::now());
        for _ in 0..INVALID_FRAMES_MAX * INVALID {
            assert!(!limiter.count(33, Weight::InGoodFaith, now));
        }
        assert!(limiter.count(33, Weight::InGoodFaith, now));
    }

    #[test]
    fn users_counted_are_bounded() {
        let (mut limiter, now) = (FrameLimiter::default(), Instant::now());
        for uid in 0..2 * USERS_MAX as u32 {
            limiter.count(uid, Weight::Invalid, now);
        }
        assert_eq!(limiter.users.len(), USERS_MAX);
    }
}
