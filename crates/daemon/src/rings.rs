//! The rings through which shims report reads: one for each user.
//!
//! A ring is memory that all processes that have it may read and write at will. Processes of one user could
//! do as much to each other anyway (`ptrace`). Those of two users could not, so no two users share a ring.
//! What one user writes into its ring does not affect other users' reports: each ring is emptied in turn, a
//! bounded number of records at a time; a record counts only if it is about a file that its user has lately
//! shown to be able to read, by a descriptor; and a ring with impossible indices is replaced.
//!
//! A shim identifies a ring by its number. A user gets a number with its first settings, and no two users
//! have the same.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use seekless_engine::FilesUsed;
use seekless_kernel::ring::{Consumer, Record};
use seekless_policy::FileId;

/// Maximum number of users with a ring, 260 KiB each: 32 MiB. A server runs as one user, or as one for each
/// client (Samba). A further user takes the place of one that has been silent for [`SILENT_FOR`]; without
/// such a place it gets no ring, and its reads go unreported. At half, that happens to Samba servers with 64
/// active clients. Numbers of rings are a byte, so double is the maximum.
const USERS_MAX: usize = 128;

/// A user that has neither asked nor reported for this long may lose its ring. Its shims get another with
/// their next miss.
const SILENT_FOR: Duration = Duration::from_secs(10);

/// How long a user gets no ring after it has made one impossible. Making a ring takes a tenth of a
/// millisecond, so no user can cost more than a ten-thousandth of a core in this way.
const WITHOUT_FOR: Duration = Duration::from_secs(1);

/// Maximum number of records taken from one ring in its turn: with a turn every 5 ms, 50,000 reads a second
/// of one user. At half, a server of 25 Gb/s in reads of 128 KiB is near the bound; at double, two users that
/// flood leave half as many to a third.
const USER_RECORDS: usize = 256;

/// Maximum number of records taken at once, before connections get their turn.
const TURN_RECORDS: usize = 1024;

/// The ring and files of one user.
struct User {
    number: u8,
    ring: Option<(Consumer, OwnedFd)>,
    /// When it last asked for anything or reported a read.
    heard: Instant,
    /// No new ring before this time, after one that was impossible.
    without_until: Option<Instant>,
    /// Files that it has shown to be able to read.
    shown: FilesUsed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Rings replaced because their indices were impossible.
    pub(crate) replaced: u64,
    /// Times that a user got no ring because there were too many users.
    pub(crate) refused: u64,
    /// Records of files that their user has not shown.
    pub(crate) unknown: u64,
    /// Records that did not fit, of rings that are gone.
    dropped: u64,
}

pub(crate) struct Rings {
    /// The daemon's socket, which is the name of every ring.
    socket: PathBuf,
    /// How long a file counts as shown after it was last requested or reported: as long as the engine keeps
    /// it open.
    shown_for: Duration,
    users: HashMap<u32, User>,
    /// The last number given to a ring.
    pub(crate) last_number: u8,
    /// The user whose turn was last.
    last_turn: u32,
    warned: bool,
    pub(crate) counts: Counts,
}

impl Rings {
    /// No rings yet. `number` may be any; if it differs from the last daemon's, shims see that the daemon
    /// changed.
    pub(crate) fn new(socket: &Path, number: u8, shown_for: Duration) -> Rings {
        let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_path_buf());
        Rings {
            socket,
            shown_for,
            users: HashMap::new(),
            last_number: number,
            last_turn: 0,
            warned: false,
            counts: Counts::default(),
        }
    }

    /// Whether there is a ring to empty.
    pub(crate) fn any(&self) -> bool {
        self.users.values().any(|user| user.ring.is_some())
    }

    /// Number of rings.
    pub(crate) fn now(&self) -> usize {
        self.users.values().filter(|user| user.ring.is_some()).count()
    }

    /// Number of records that did not fit into rings. Producers write these counts, so the sum saturates.
    pub(crate) fn dropped(&self) -> u64 {
        let rings = self.users.values().filter_map(|user| user.ring.as_ref());
        rings.fold(self.counts.dropped, |sum, (consumer, _)| sum.saturating_add(consumer.dropped()))
    }

    /// The number of the ring for processes of this user; 0: none.
    pub(crate) fn number(&mut self, uid: u32, now: Instant) -> u8 {
        if !self.users.contains_key(&uid) && !self.make_room(now) {
            self.counts.refused += 1;
            return 0;
        }
        let number = self.users.get(&uid).map(|user| user.number).unwrap_or_else(|| self.free_number());
        let user = self.users.entry(uid).or_insert_with(|| User {
            number,
            ring: None,
            heard: now,
            without_until: None,
            shown: FilesUsed::new(self.shown_for),
        });
        user.heard = now;
        if user.without_until.is_some_and(|until| now < until) { 0 } else { user.number }
    }

    /// The ring of this user, made if there is none. `None`: the user gets none.
    ///
    /// # Errors
    /// No memory or no descriptor for another ring.
    pub(crate) fn ring(&mut self, uid: u32, now: Instant) -> io::Result<Option<BorrowedFd<'_>>> {
        if self.number(uid, now) == 0 {
            return Ok(None);
        }
        let Some(user) = self.users.get_mut(&uid) else { return Ok(None) };
        if user.ring.is_none() {
            user.ring = Some(Consumer::create(&self.socket)?);
        }
        Ok(user.ring.as_ref().map(|(_, fd)| fd.as_fd()))
    }

    /// A process of this user has shown that it can read this file.
    pub(crate) fn shown(&mut self, uid: u32, file: FileId, now: Instant) {
        let Some(user) = self.users.get_mut(&uid) else { return };
        user.shown.asked(file, now);
    }

    /// Takes the reports of one user.
    pub(crate) fn take_of(&mut self, uid: u32, now: Instant, report: impl FnMut(&Record)) {
        self.take(uid, USER_RECORDS, now, report);
    }

    /// Takes the reports of all users, each in its turn.
    pub(crate) fn take_all(&mut self, now: Instant, mut report: impl FnMut(&Record)) {
        let mut turns: Vec<u32> =
            self.users.iter().filter(|(_, user)| user.ring.is_some()).map(|(&uid, _)| uid).collect();
        turns.sort_unstable();
        let first = turns.partition_point(|&uid| uid <= self.last_turn);
        turns.rotate_left(first);
        let mut left = TURN_RECORDS;
        for uid in turns {
            if left == 0 {
                return;
            }
            left -= self.take(uid, left.min(USER_RECORDS), now, &mut report);
            self.last_turn = uid;
        }
    }

    /// Takes at most `most` records of one user. Returns how many there were.
    fn take(&mut self, uid: u32, most: usize, now: Instant, mut report: impl FnMut(&Record)) -> usize {
        let Some(user) = self.users.get_mut(&uid) else { return 0 };
        let Some((consumer, _)) = &mut user.ring else { return 0 };
        let mut taken = 0;
        while taken < most
            && let Some(record) = consumer.pop(now)
        {
            taken += 1;
            let file = FileId { dev: record.dev, ino: record.ino };
            if !user.shown.read(file, now) {
                self.counts.unknown += 1;
                continue;
            }
            report(&record);
        }
        if taken > 0 {
            user.heard = now;
        }
        if consumer.is_impossible() {
            self.replace(uid, now);
        }
        taken
    }

    /// Drops a ring that is impossible; the answer to the user's next question names another.
    fn replace(&mut self, uid: u32, now: Instant) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(
                "user {uid} wrote impossible indices into its ring of reports; the ring is replaced. Further cases are only counted (rings_replaced)"
            );
        }
        let number = self.free_number();
        let Some(user) = self.users.get_mut(&uid) else { return };
        self.counts.replaced += 1;
        self.counts.dropped = self.counts.dropped.saturating_add(user.dropped());
        user.number = number;
        user.ring = None;
        user.without_until = Some(now + WITHOUT_FOR);
    }

    /// Makes room for another user. Returns whether there is room.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.users.len() < USERS_MAX {
            return true;
        }
        let silent = self.users.iter().min_by_key(|(_, user)| user.heard);
        let Some((&uid, user)) = silent else { return true };
        if now.saturating_duration_since(user.heard) < SILENT_FOR {
            return false;
        }
        self.counts.dropped = self.counts.dropped.saturating_add(user.dropped());
        self.users.remove(&uid);
        true
    }

    /// A number that no user has, and that was not used lately.
    fn free_number(&mut self) -> u8 {
        // There are fewer users than numbers.
        loop {
            self.last_number = self.last_number.checked_add(1).unwrap_or(1);
            if self.users.values().all(|user| user.number != self.last_number) {
                return self.last_number;
            }
        }
    }
}

impl User {
    fn dropped(&self) -> u64 {
        self.ring.as_ref().map_or(0, |(consumer, _)| consumer.dropped())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_kernel::ring::{Producer, STALL_MAX};

    const FILE: FileId = FileId { dev: 7, ino: 9 };
    const SHOWN_FOR: Duration = Duration::from_secs(41);

    fn rings() -> Rings {
        Rings::new(Path::new("/run/x.sock"), 250, SHOWN_FOR)
    }

    fn producer(rings: &mut Rings, uid: u32, now: Instant) -> Producer {
        Producer::open(rings.ring(uid, now).unwrap().unwrap()).unwrap()
    }

    fn report(producer: &Producer, file: FileId, offset: u64) -> bool {
        producer.push(&Record { dev: file.dev, ino: file.ino, offset, len: 1, file_size: 1 << 40 })
    }

    #[test]
    fn each_user_has_its_own_ring_and_number() {
        let (mut rings, now) = (rings(), Instant::now());
        let numbers: Vec<u8> = (0..USERS_MAX as u32).map(|uid| rings.number(uid, now)).collect();
        let distinct: std::collections::BTreeSet<u8> = numbers.iter().copied().collect();
        assert_eq!((distinct.len(), distinct.contains(&0)), (USERS_MAX, false));
        assert_eq!(rings.number(5, now), numbers[5], "it stays");
        let (a, b) = (producer(&mut rings, 1, now), producer(&mut rings, 2, now));
        rings.shown(1, FILE, now);
        rings.shown(2, FILE, now);
        assert!(report(&a, FILE, 1) && report(&b, FILE, 2));
        let mut of_a = Vec::new();
        rings.take_of(1, now, |r| of_a.push(r.offset));
        assert_eq!(of_a, [1]);
        let mut rest = Vec::new();
        rings.take_all(now, |r| rest.push(r.offset));
        assert_eq!(rest, [2]);
    }

    #[test]
    fn a_record_of_a_file_that_was_not_shown_counts_for_nothing() {
        let (mut rings, now) = (rings(), Instant::now());
        let (a, b) = (producer(&mut rings, 1, now), producer(&mut rings, 2, now));
        rings.shown(1, FILE, now);
        assert!(report(&a, FILE, 1) && report(&b, FILE, 2));
        let mut heard = Vec::new();
        rings.take_all(now, |r| heard.push(r.offset));
        assert_eq!((heard, rings.counts.unknown), (vec![1], 1));
        // Reported files stay shown; others are forgotten.
        let (soon, late) = (now + SHOWN_FOR / 2, now + SHOWN_FOR);
        assert!(report(&a, FILE, 3));
        rings.take_all(soon, |_| ());
        assert!(report(&a, FILE, 4));
        rings.take_all(late, |_| ());
        assert_eq!(rings.counts.unknown, 1);
        assert!(report(&a, FILE, 5));
        rings.take_all(late + SHOWN_FOR, |_| ());
        assert_eq!(rings.counts.unknown, 2);
        // At most this many shown files are remembered.
        for ino in 0..3 * FilesUsed::MAX as u64 {
            rings.shown(1, FileId { dev: 1, ino }, late);
            assert!(rings.users[&1].shown.count() <= FilesUsed::MAX);
        }
    }

    #[test]
    fn an_impossible_ring_is_replaced_and_others_go_on() {
        let (mut rings, now) = (rings(), Instant::now());
        let (_, good) = (rings.number(1, now), producer(&mut rings, 1, now));
        rings.shown(1, FILE, now);
        for round in 1..=20 {
            let now = now + WITHOUT_FOR * 2 * round;
            rings.shown(1, FILE, now);
            let number = rings.number(2, now);
            assert_ne!(number, 0);
            // Through another mapping of the same memory, as a hostile process would. The tail is 64 bytes
            // from its start.
            let fd = rings.ring(2, now).unwrap().unwrap().try_clone_to_owned().unwrap();
            let file = std::fs::File::from(fd);
            std::os::unix::fs::FileExt::write_all_at(&file, &u64::MAX.to_ne_bytes(), 64).unwrap();
            assert!(report(&good, FILE, u64::from(round)));
            let mut heard = Vec::new();
            rings.take_all(now, |r| heard.push(r.offset));
            assert_eq!((heard, rings.counts.replaced), (vec![u64::from(round)], u64::from(round)));
            assert_eq!(rings.number(2, now), 0, "not at once");
            let next = rings.number(2, now + WITHOUT_FOR);
            assert!(next != 0 && next != number);
        }
    }

    /// Each call of a user checks its ring, and a busy user makes hundreds while one of its threads has lost
    /// its processor between its claim and its record.
    #[test]
    fn a_record_that_is_being_written_is_waited_for_however_often_its_user_calls() {
        let (mut rings, now) = (rings(), Instant::now());
        let producer = producer(&mut rings, 1, now);
        rings.shown(1, FILE, now);
        let fd = rings.ring(1, now).unwrap().unwrap().try_clone_to_owned().unwrap();
        // The tail is 64 bytes from the start of the memory.
        std::os::unix::fs::FileExt::write_all_at(&std::fs::File::from(fd), &1u64.to_ne_bytes(), 64).unwrap();
        assert!(report(&producer, FILE, 1));
        for _ in 0..1000 {
            rings.take_of(1, now, |r| panic!("{r:?} before its turn"));
        }
        assert_eq!(rings.dropped(), 0);
        let mut heard = Vec::new();
        rings.take_of(1, now + STALL_MAX, |r| heard.push(r.offset));
        assert_eq!((heard, rings.dropped()), (vec![1], 1), "that thread has been killed");
    }

    #[test]
    fn a_ring_that_is_never_empty_holds_up_no_other() {
        let (mut rings, now) = (rings(), Instant::now());
        let (flood, quiet) = (producer(&mut rings, 1, now), producer(&mut rings, 2, now));
        for uid in [1, 2] {
            rings.shown(uid, FILE, now);
        }
        for round in 0..10 {
            while report(&flood, FILE, 0) {}
            assert!(report(&quiet, FILE, 1));
            let (mut floods, mut quiets) = (0, 0);
            rings.take_all(now, |r| if r.offset == 0 { floods += 1 } else { quiets += 1 });
            assert_eq!((floods, quiets), (USER_RECORDS, 1), "round {round}");
        }
    }

    #[test]
    fn users_are_bounded_and_the_silent_make_room() {
        let (mut rings, now) = (rings(), Instant::now());
        for uid in 0..USERS_MAX as u32 {
            assert_ne!(rings.number(uid, now), 0);
        }
        let (soon, late) = (now + SILENT_FOR / 2, now + SILENT_FOR);
        assert_eq!(rings.number(1000, soon), 0);
        assert!(rings.ring(1000, soon).unwrap().is_none());
        assert_eq!(rings.counts.refused, 2);
        // A user that reports keeps its place.
        let kept = rings.number(0, soon);
        for uid in 1000..1000 + USERS_MAX as u32 - 1 {
            assert_ne!(rings.number(uid, late), 0);
        }
        assert_eq!((rings.number(0, late), rings.users.len()), (kept, USERS_MAX));
    }
}
