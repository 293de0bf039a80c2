//! Per-user limit on invalid frames.
//!
//! A shim sends little that is refused: a frame of another version once, a file that has just been cut short,
//! a file on a device that it is then told to ignore. A process that sends invalid frames as fast as it can
//! takes processor time from all users. So each invalid frame is a strike, and a user with too many in a
//! second is muted for a while: its connections are closed unread, and its shims read for themselves. Root
//! and the daemon's own user are never muted.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum number of strikes a second. At half, a server of a hundred processes that all learn of another
/// version at once would be muted; at double, a hostile user takes twice as much processor time before it is
/// muted.
const STRIKES_MAX: u32 = 64;

/// How long a user with more is muted. At half, invalid frames take twice as much time in total; at double,
/// the servers of a user with one broken process go without read-ahead for twice as long.
const MUTE_FOR: Duration = Duration::from_secs(2);

/// The time over which strikes are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Maximum number of users whose strikes are counted; further users are not counted. With subordinate ids a
/// local user can have that many user ids, but each of them costs a process.
const USERS_MAX: usize = 4096;

/// Points of a strike, compared with one point for an answer that a shim gets now and then in good faith:
/// that a device must be ignored. Each of 256 processes of a server gets that once in ten seconds.
const STRIKE: u32 = 8;
const IN_GOOD_FAITH: u32 = 1;

/// Severity of a refused frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// A shim sends it only by mistake.
    Strike,
    /// A shim sends it rarely.
    InGoodFaith,
}

#[derive(Debug)]
struct User {
    window: Instant,
    points: u32,
    muted_until: Option<Instant>,
}

/// The recent strikes of every user.
#[derive(Debug, Default)]
pub(crate) struct Strikes {
    users: HashMap<u32, User>,
    /// Times that a user was muted.
    muted: u64,
}

impl Strikes {
    /// Counts a strike. Returns whether the user becomes muted by it.
    pub(crate) fn count(&mut self, uid: u32, weight: Weight, now: Instant) -> bool {
        if !self.users.contains_key(&uid) && self.users.len() >= USERS_MAX {
            return false;
        }
        let user = self.users.entry(uid).or_insert(User { window: now, points: 0, muted_until: None });
        if now.saturating_duration_since(user.window) >= WINDOW {
            (user.window, user.points) = (now, 0);
        }
        user.points = user.points.saturating_add(match weight {
            Weight::Strike => STRIKE,
            Weight::InGoodFaith => IN_GOOD_FAITH,
        });
        if user.points <= STRIKES_MAX * STRIKE || user.muted_until.is_some_and(|until| now < until) {
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

    /// Times that a user was muted.
    pub(crate) fn muted(&self) -> u64 {
        self.muted
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
    fn a_user_with_too_many_strikes_in_a_second_is_muted_for_a_while() {
        let (mut strikes, start) = (Strikes::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        for i in 0..u64::from(STRIKES_MAX) {
            assert!(!strikes.count(33, Weight::Strike, at(i)));
        }
        assert!(!strikes.is_muted(33, at(100)));
        assert!(strikes.count(33, Weight::Strike, at(100)), "told once");
        assert!(!strikes.count(33, Weight::Strike, at(101)));
        assert!(strikes.is_muted(33, at(101)) && !strikes.is_muted(34, at(101)));
        strikes.tick(at(1_500));
        assert!(strikes.is_muted(33, at(2_099)) && !strikes.is_muted(33, at(2_100)));
        strikes.tick(at(2_100));
        assert!(strikes.users.is_empty());
        assert_eq!(strikes.muted(), 1);
    }

    #[test]
    fn strikes_over_many_seconds_mute_nobody() {
        let (mut strikes, start) = (Strikes::default(), Instant::now());
        for i in 0..1000u64 {
            assert!(!strikes.count(33, Weight::Strike, start + Duration::from_millis(20 * i)));
        }
    }

    #[test]
    fn what_is_said_in_good_faith_counts_less() {
        let (mut strikes, now) = (Strikes::default(), Instant::now());
        for _ in 0..STRIKES_MAX * STRIKE {
            assert!(!strikes.count(33, Weight::InGoodFaith, now));
        }
        assert!(strikes.count(33, Weight::InGoodFaith, now));
    }

    #[test]
    fn users_counted_are_bounded() {
        let (mut strikes, now) = (Strikes::default(), Instant::now());
        for uid in 0..2 * USERS_MAX as u32 {
            strikes.count(uid, Weight::Strike, now);
        }
        assert_eq!(strikes.users.len(), USERS_MAX);
    }
}
