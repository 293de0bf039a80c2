//! Pauses: while only files in memory are read, events are switched off for a moment.
//!
//! An announced read costs its caller two context switches. A file in memory is announced once
//! ([`super::files`]), so a program that reads a large tree of small files pays for each of them. Therefore
//! after [`HITS`] such events within a round of the keeper, the kernel ignores the folders of that file
//! system until the next round.
//!
//! What a pause may miss is bounded:
//!
//! - It ends with the keeper's round, or with a miss that was announced before it began. A file opened
//!   meanwhile is announced after it like any other.
//! - If the disk was read meanwhile, a miss was not announced. Then there is no pause for [`LISTEN`], in
//!   which the reader is announced when it reads on.
//! - There is no pause while the engine may keep bytes in memory for a reader: while a file stays open after
//!   a miss or a followed read, and while a file that was read ahead before it was opened is unread.
//!
//! A file system whose device has no counts of reads (btrfs) has no pauses.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use seekless_engine::lock;
use seekless_kernel::queue::{Queue, Usage};
use seekless_kernel::topology::Dev;

/// Number of events of files in memory before a pause. With [`super::beats::ROUND`] between them that is 160
/// a second, a hundredth of a processor. At half, a lone miss among hits is announced half as often; at
/// double, twice as much time goes into events.
const HITS: u32 = 16;

/// After a read from the disk there is no pause for this long, so that a program that reads again within that
/// time is announced. At half, one that reads every five seconds may not be; at double, a disk that is read
/// every ten seconds has no pauses.
const LISTEN: Duration = Duration::from_secs(10);

/// The file systems that may pause.
pub(crate) struct Pauses {
    /// How long the engine keeps a file open after its last use.
    keep: Duration,
    devices: Vec<Device>,
}

struct Device {
    /// `st_dev` of its files.
    dev: u64,
    reads: Usage,
    state: Mutex<State>,
}

struct State {
    /// Number of events of files in memory since the last round.
    hits: u32,
    paused: bool,
    /// Sectors that its device had read at the last round.
    sectors_read: Option<u64>,
    /// No pause before this time.
    listen_until: Instant,
}

impl Pauses {
    /// Of the file systems with these `st_dev`, as far as the kernel counts their reads.
    pub(crate) fn of(devs: impl Iterator<Item = u64>, keep: Duration) -> Pauses {
        Pauses::counted(devs, keep, Path::new("/sys/dev/block"), Instant::now())
    }

    fn counted(devs: impl Iterator<Item = u64>, keep: Duration, counts: &Path, now: Instant) -> Pauses {
        let mut pauses = Pauses { keep, devices: Vec::new() };
        for dev in devs {
            if pauses.device(dev).is_none()
                && let Ok(reads) = Queue::new(counts, &Dev::from_raw(dev).to_string()).usage()
                && let Ok(used) = reads.now()
            {
                let sectors_read = Some(used.sectors_read);
                let state = State { hits: 0, paused: false, sectors_read, listen_until: now };
                pauses.devices.push(Device { dev, reads, state: Mutex::new(state) });
            }
        }
        pauses
    }

    /// A file in memory was announced unnecessarily. Calls `pause` if a pause begins, which returns whether
    /// that was possible.
    pub(crate) fn hit(&self, dev: u64, now: Instant, pause: impl FnOnce() -> bool) {
        let Some(device) = self.device(dev) else { return };
        let mut state = lock(&device.state);
        state.hits += 1;
        if state.hits >= HITS && !state.paused && now >= state.listen_until {
            state.paused = pause();
        }
    }

    /// A read was announced that the engine needs. Calls `resume` if there is a pause.
    pub(crate) fn heard(&self, dev: u64, now: Instant, resume: impl FnOnce()) {
        let Some(device) = self.device(dev) else { return };
        lock(&device.state).listen(now + self.keep.max(LISTEN), resume);
    }

    /// A round of the keeper: calls `resume` for each file system with a pause.
    pub(crate) fn round(&self, now: Instant, resume: impl Fn(u64)) {
        for device in &self.devices {
            let mut state = lock(&device.state);
            let sectors_read = device.reads.now().ok().map(|used| used.sectors_read);
            let is_calm = sectors_read.is_some() && sectors_read == state.sectors_read;
            state.sectors_read = sectors_read;
            state.listen(if is_calm { now } else { now + LISTEN }, || resume(device.dev));
            state.hits = 0;
        }
    }

    fn device(&self, dev: u64) -> Option<&Device> {
        self.devices.iter().find(|device| device.dev == dev)
    }
}

impl State {
    fn listen(&mut self, until: Instant, resume: impl FnOnce()) {
        self.listen_until = self.listen_until.max(until);
        if std::mem::take(&mut self.paused) {
            resume();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;

    const DEV: u64 = 0x801;
    const KEEP: Duration = Duration::from_secs(41);
    const ROUND: Duration = Duration::from_millis(100);

    /// One file system, with its counts in a folder.
    struct Bench {
        dir: tempfile::TempDir,
        pauses: Pauses,
        now: Instant,
        paused: Cell<bool>,
    }

    impl Bench {
        fn new() -> Bench {
            let dir = tempfile::tempdir().unwrap();
            let name = Dev::from_raw(DEV).to_string();
            fs::create_dir(dir.path().join(&name)).unwrap();
            write_reads(dir.path(), 80);
            let now = Instant::now();
            // Another one without counts, and the first one again.
            let pauses = Pauses::counted([DEV, 0x23, DEV].into_iter(), KEEP, dir.path(), now);
            assert_eq!(pauses.devices.len(), 1);
            Bench { dir, pauses, now, paused: Cell::new(false) }
        }

        /// Reads this many files in memory. Returns how many of the reads are announced.
        fn read(&self, files: u32) -> u32 {
            (0..files)
                .filter(|_| {
                    let announced = !self.paused.get();
                    if announced {
                        self.pauses.hit(DEV, self.now, || !self.paused.replace(true));
                    }
                    announced
                })
                .count() as u32
        }

        fn heard(&self) {
            self.pauses.heard(DEV, self.now, || assert!(self.paused.replace(false)));
        }

        fn round(&mut self) {
            self.now += ROUND;
            self.pauses.round(self.now, |dev| {
                assert_eq!(dev, DEV);
                assert!(self.paused.replace(false));
            });
        }

        /// Runs rounds with more files than are announced until there is a pause again. Returns the number of
        /// rounds.
        fn rounds_to_pause(&mut self) -> u32 {
            let mut rounds = 0;
            loop {
                self.read(10 * HITS);
                if self.paused.get() {
                    return rounds;
                }
                self.round();
                rounds += 1;
            }
        }
    }

    fn write_reads(counts: &Path, sectors: u64) {
        let stat = counts.join(Dev::from_raw(DEV).to_string()).join("stat");
        fs::write(stat, format!("  10 0  {sectors} 5  3 0  24 1  2 9 9 0 0 0 0\n")).unwrap();
    }

    #[test]
    fn so_many_files_in_memory_are_announced_in_a_round_and_no_more() {
        let mut bench = Bench::new();
        for _ in 0..100 {
            assert_eq!(bench.read(1000), HITS);
            bench.round();
        }
        assert_eq!(bench.read(HITS - 1), HITS - 1);
        bench.round();
        assert_eq!(bench.read(HITS - 1), HITS - 1, "those of the last round do not count");
        assert!(!bench.paused.get());
    }

    #[test]
    fn a_cold_reader_that_begins_in_a_pause_is_heard_from_the_next_round_on() {
        let mut bench = Bench::new();
        bench.read(1000);
        assert!(bench.paused.get());
        // Its first reads bring bytes from the disk, unannounced.
        write_reads(bench.dir.path(), 88);
        bench.round();
        assert_eq!(bench.read(1000), 1000, "everything is announced now, the cold reader's next read too");
        assert_eq!(bench.rounds_to_pause(), (LISTEN.as_millis() / ROUND.as_millis()) as u32);
    }

    #[test]
    fn a_miss_ends_a_pause_and_none_begins_while_the_engine_may_keep_something() {
        let mut bench = Bench::new();
        bench.read(1000);
        assert!(bench.paused.get());
        bench.heard();
        assert!(!bench.paused.get());
        assert_eq!(bench.rounds_to_pause(), (KEEP.as_millis() / ROUND.as_millis()) as u32);
        // As long as its reads are announced.
        bench.round();
        for _ in 0..100 {
            bench.heard();
            assert_eq!(bench.read(1000), 1000);
            bench.round();
        }
    }

    #[test]
    fn a_pause_that_could_not_begin_is_none() {
        let bench = Bench::new();
        for _ in 0..10 * HITS {
            bench.pauses.hit(DEV, bench.now, || false);
        }
        bench.pauses.round(bench.now, |_| panic!("there is nothing to end"));
        bench.pauses.hit(0x23, bench.now, || panic!("its reads are not counted"));
    }
}
