//! The share of one user in each resource: three quarters, so that another user always gets in.
//!
//! Places in a disk's queue are counted from the request to its answer, even if its client is gone, because a
//! client that sends an advice disconnects at once. A request that its client gives up keeps its place for
//! another [`GIVEN_UP_FOR`]. Otherwise a client that asks and disconnects could pass through the queue at the
//! speed of its processor, and each time have a file opened and others' files closed for it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a request given up by its client keeps its place. With a queue of 4,096, one user gives up 600
/// requests a second at most; the 2,048 files kept open for a disk's streams then last more than three
/// seconds, in which every player reads. A server that is killed with its whole share waiting passes for this
/// long when it returns.
const GIVEN_UP_FOR: Duration = Duration::from_secs(5);

/// Three quarters of `most`, at least one.
pub(crate) fn of(most: usize) -> usize {
    (most / 4 * 3 + most % 4 * 3 / 4).max(1)
}

/// A place in a disk's queue, held until the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    taken: Arc<Taken>,
}

/// A weak reference to a place.
#[derive(Debug)]
pub(crate) struct PlaceTaken(Weak<Taken>);

impl Place {
    pub(crate) fn watch(&self) -> PlaceTaken {
        PlaceTaken(Arc::downgrade(&self.taken))
    }
}

impl PlaceTaken {
    /// The place, if it is still held.
    pub(crate) fn hold(&self) -> Option<Place> {
        self.0.upgrade().map(|taken| Place { taken })
    }
}

#[derive(Debug)]
struct Taken(Arc<AtomicUsize>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The shares of all users.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Users without bounds: root, and the daemon's own user, which can end the daemon anyway.
    trusted: [u32; 2],
    /// Maximum number of places of one user in the queue of one disk.
    places_max: usize,
    places: HashMap<(u32, usize), Arc<AtomicUsize>>,
    given_up: VecDeque<(Instant, Place)>,
}

impl Shares {
    /// Shares of queues of `queue_max` places.
    pub(crate) fn new(queue_max: usize, own_uid: u32) -> Shares {
        Shares {
            trusted: [0, own_uid],
            places_max: of(queue_max),
            places: HashMap::new(),
            given_up: VecDeque::new(),
        }
    }

    /// Whether this user has no bounds.
    pub(crate) fn trusts(&self, uid: u32) -> bool {
        self.trusted.contains(&uid)
    }

    /// Takes a place in the queue of disk `reader`; `None` if the user has its share.
    pub(crate) fn place(&mut self, uid: u32, reader: usize) -> Option<Place> {
        let trusted = self.trusts(uid);
        let taken = self.places.entry((uid, reader)).or_default();
        if !trusted && taken.load(Ordering::Acquire) >= self.places_max {
            return None;
        }
        taken.fetch_add(1, Ordering::AcqRel);
        Some(Place { taken: Arc::new(Taken(taken.clone())) })
    }

    /// The client of a request has disconnected before its answer.
    pub(crate) fn given_up(&mut self, uid: u32, place: Place, now: Instant) {
        if !self.trusts(uid) {
            self.given_up.push_back((now, place));
        }
    }

    /// Returns expired places. Must be called once in a while.
    pub(crate) fn tick(&mut self, now: Instant) {
        while let Some((since, _)) = self.given_up.front()
            && now.saturating_duration_since(*since) >= GIVEN_UP_FOR
        {
            self.given_up.pop_front();
        }
        self.places.retain(|_, taken| Arc::strong_count(taken) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_quarters_and_never_nothing() {
        assert_eq!([0, 1, 2, 3, 4, 5, 64, 4096].map(of), [1, 1, 1, 2, 3, 3, 48, 3072]);
        assert!(of(usize::MAX) > usize::MAX / 2, "no overflow");
    }

    #[test]
    fn one_user_leaves_places_to_others() {
        let mut shares = Shares::new(8, 500);
        let held: Vec<Place> = (0..20).map_while(|_| shares.place(33, 0)).collect();
        assert_eq!(held.len(), 6);
        assert!(shares.place(33, 1).is_some(), "another disk");
        assert!(shares.place(34, 0).is_some(), "another user");
        for trusted in [0, 500] {
            let all: Vec<Place> = (0..100).map_while(|_| shares.place(trusted, 0)).collect();
            assert_eq!(all.len(), 100);
        }
        drop(held);
        assert!(shares.place(33, 0).is_some());
        shares.tick(Instant::now());
        assert!(shares.places.is_empty(), "nothing is kept of those gone");
    }

    #[test]
    fn what_is_given_up_holds_its_place_for_a_while() {
        let (mut shares, now) = (Shares::new(4, 500), Instant::now());
        for _ in 0..3 {
            let place = shares.place(33, 0).unwrap();
            shares.given_up(33, place, now);
        }
        assert!(shares.place(33, 0).is_none());
        shares.tick(now + GIVEN_UP_FOR / 2);
        assert!(shares.place(33, 0).is_none());
        shares.tick(now + GIVEN_UP_FOR);
        assert!(shares.place(33, 0).is_some() && shares.given_up.is_empty());
        for _ in 0..100 {
            let place = shares.place(0, 0).unwrap();
            shares.given_up(0, place, now);
        }
        assert!(shares.given_up.is_empty(), "root is not held to anything");
    }
}
