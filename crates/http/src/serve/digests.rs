//! SHA-256 digests of files for clients that want to check what they got (RFC 9530, `Want-Repr-Digest`).
//!
//! A digest takes a read of the whole file, and its client may hang up meanwhile. So one thread computes
//! digests, one after the other, of files up to a bound. Clients of the same file wait for the same digest,
//! and it is given up when no client waits for it any more. The thread reads a little at a time, and pauses
//! while a client's read waits. If too many clients wait, or the digest takes too long, an answer is sent
//! without it. A digest is kept as long as its file does not change.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use seekless_engine::lock;
use seekless_kernel::residency::resident_prefix;
use tokio::sync::watch;

use super::Shared;
use super::any_order::{self, GivenUp};
use super::counters::Counters;
use super::tree::{FileVersion, Opened};
use super::waits::Waits;
use crate::digest::{Algorithm, Hasher};

/// Most digests remembered: about 1 MB.
const REMEMBERED_MAX: usize = 8192;

/// Most files that wait for their digest, each with a descriptor. A file of 16 MiB (the bound `digest-max`)
/// takes a disk an eighth of a second, so all of them take two seconds. At half of this, clients that
/// download several files at once get fewer digests; at double, the last one waits longer than most would.
const QUEUE_MAX: usize = 16;

/// If the queue is full, an answer waits this long for room and is then sent without a digest. At half of
/// this, a busy loop has not noticed every client that hung up; at double, a client waits longer for nothing.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// Bytes read between two checks whether a client's read waits: a fiftieth of a second of a disk, its seek
/// included. At half of this, a digest takes half as long again; at double, a client waits a seek and two
/// revolutions longer.
const STEP: usize = 256 << 10;

/// Pause after a client's read, because the next one often follows at once. At half of this, a digest comes
/// between the reads of one player; at double, it takes longer beside many players.
const QUIET: Duration = Duration::from_millis(20);

/// After a client had to wait for the disk within this time, the disk is left to the clients' read-ahead for
/// as long as each step takes. At half of this, a player with a long buffer goes unnoticed; at double, a
/// digest is slow for longer than necessary.
const BUSY: Duration = Duration::from_secs(1);

/// How often it is checked whether the disk is free. At half of this, the thread wakes up more often for
/// nothing; at double, a digest begins later.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// An answer waits this long for a digest, plus the time that the file would take at [`SLOW`]: beside clients
/// that keep the disk busy, a digest may never be computed. At half of this, a few files in the queue are too
/// many; at double, a download from a busy disk begins later for nothing.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Bytes a second of a busy disk.
const SLOW: f64 = 20e6;

/// A digest, once it is computed.
type Made = Option<Vec<u8>>;

/// Known digests, and those being computed.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<FileVersion, Vec<u8>>,
    queue: VecDeque<Job>,
    /// The digest being computed.
    current: Option<(FileVersion, watch::Sender<Made>)>,
    /// Whether the thread runs, or is about to.
    working: bool,
}

#[derive(Debug)]
struct Job {
    version: FileVersion,
    file: Arc<Opened>,
    /// Computed from blocks that are then downloaded in any order.
    any_order: bool,
    tell: watch::Sender<Made>,
}

/// The result of looking up a digest.
enum Lookup {
    Known(Vec<u8>),
    Later(watch::Receiver<Made>),
    /// Too many digests are waiting.
    Full,
    /// It is not computed.
    No,
}

/// The digest, if it is known or the file is small enough. `any_order`: the file is then downloaded in any
/// order.
pub(crate) async fn sha256(shared: &Arc<Shared>, file: &Arc<Opened>, any_order: bool) -> Option<Vec<u8>> {
    let mut lookup = ask(shared, file, any_order);
    if matches!(lookup, Lookup::Full) {
        // Clients that hung up may not have been noticed yet.
        tokio::time::sleep(FULL_PAUSE).await;
        lookup = ask(shared, file, any_order);
    }
    let mut made = match lookup {
        Lookup::Known(value) => return Some(value),
        Lookup::Later(made) => made,
        Lookup::Full | Lookup::No => {
            Counters::one(&shared.counters.digests_refused);
            return None;
        }
    };
    let patience = WAIT_MAX + Duration::from_secs_f64(file.size as f64 / SLOW);
    tokio::time::timeout(patience, made.wait_for(Option::is_some)).await.ok()?.ok()?.clone()
}

fn ask(shared: &Arc<Shared>, file: &Arc<Opened>, any_order: bool) -> Lookup {
    let version = file.version();
    let mut state = lock(&shared.digests.state);
    if let Some(known) = state.known.get(&version) {
        return Lookup::Known(known.clone());
    }
    if file.size > shared.settings.digest_max.0 {
        return Lookup::No;
    }
    let waiting = state.queue.iter().map(|job| (&job.version, &job.tell));
    let under_way = state.current.as_ref().map(|(version, tell)| (version, tell));
    if let Some((_, tell)) = under_way.into_iter().chain(waiting).find(|(of, _)| **of == version) {
        return Lookup::Later(tell.subscribe());
    }
    state.queue.retain(Job::is_wanted);
    if state.queue.len() >= QUEUE_MAX {
        return Lookup::Full;
    }
    let (tell, result) = watch::channel(None);
    state.queue.push_back(Job { version, file: file.clone(), any_order, tell });
    if !state.working {
        let (digests, waits) = (shared.digests.clone(), shared.waits.clone());
        let (weak, counters) = (Arc::downgrade(shared), shared.counters.clone());
        let body = move || Maker { digests, waits, shared: weak, counters }.work();
        state.working = std::thread::Builder::new().name("digests".into()).spawn(body).is_ok();
        if !state.working {
            state.queue.clear();
            return Lookup::No;
        }
    }
    Lookup::Later(result)
}

impl Job {
    /// Whether a client waits for it.
    fn is_wanted(&self) -> bool {
        self.tell.receiver_count() > 0
    }
}

/// The thread that computes digests; it ends when none is left to compute.
struct Maker {
    digests: Arc<Digests>,
    waits: Arc<Waits>,
    shared: Weak<Shared>,
    counters: Arc<Counters>,
}

impl Drop for Maker {
    /// This also runs after a panic: the next request starts another thread.
    fn drop(&mut self) {
        let mut state = lock(&self.digests.state);
        if std::thread::panicking() {
            (state.working, state.current) = (false, None);
            state.queue.clear();
        }
    }
}

impl Maker {
    fn work(self) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else {
            let mut state = lock(&self.digests.state);
            state.queue.clear();
            state.working = false;
            return;
        };
        while let Some(job) = self.next() {
            let made = self.make(&job, &runtime);
            let mut state = lock(&self.digests.state);
            state.current = None;
            match made {
                Ok(Some(value)) => {
                    Counters::one(&self.counters.digests_made);
                    // A file that may change again within the same tick could have other content under the
                    // same version.
                    if job.file.is_settled() {
                        if state.known.len() >= REMEMBERED_MAX {
                            state.known.clear();
                        }
                        state.known.insert(job.version, value.clone());
                    }
                    job.tell.send_replace(Some(value));
                }
                // A client came while it was given up.
                Err(GivenUp) if job.is_wanted() => state.queue.push_front(job),
                Err(GivenUp) => Counters::one(&self.counters.digests_given_up),
                Ok(None) => {}
            }
        }
    }

    /// The next digest that a client waits for.
    fn next(&self) -> Option<Job> {
        let mut state = lock(&self.digests.state);
        while let Some(job) = state.queue.pop_front() {
            if job.is_wanted() {
                state.current = Some((job.version, job.tell.clone()));
                return Some(job);
            }
            Counters::one(&self.counters.digests_given_up);
        }
        state.working = false;
        None
    }

    /// Computes one digest.
    fn make(&self, job: &Job, runtime: &tokio::runtime::Runtime) -> Result<Made, GivenUp> {
        let goes_on = || self.gives_way(job);
        if job.any_order
            && let Some(shared) = self.shared.upgrade()
            && let Some(value) = any_order::sha256(&shared, &job.file, runtime, &goes_on)?
        {
            return Ok(Some(value));
        }
        self.read(job)
    }

    /// Reads the file through the page cache, because it is then sent from there.
    fn read(&self, job: &Job) -> Result<Made, GivenUp> {
        let file = &job.file;
        let mut hasher = Hasher::new(Algorithm::Sha256);
        let mut buffer = vec![0; STEP];
        let mut at = 0;
        while at < file.size {
            let most = STEP.min(usize::try_from(file.size - at).unwrap_or(STEP));
            // Reading from memory takes nothing from any client.
            let resident =
                resident_prefix(file.as_fd(), at, most as u64).is_ok_and(|there| there >= most as u64);
            let goes_on = if resident { job.is_wanted() } else { self.gives_way(job) };
            if !goes_on {
                return Err(GivenUp);
            }
            let began = Instant::now();
            let got = match rustix::io::pread(file.as_fd(), &mut buffer[..most], at) {
                Ok(0) => return Ok(None),
                Ok(got) => got,
                Err(Errno::INTR) => continue,
                Err(_) => return Ok(None),
            };
            let took = began.elapsed();
            hasher.update(&buffer[..got]);
            at += got as u64;
            file.mark_read(at, &buffer[..got]);
            if !resident && self.waits.quiet_for().is_none_or(|quiet| quiet < BUSY) {
                std::thread::sleep(took.min(BUSY));
            }
        }
        Ok(file.unchanged_on_disk().then(|| hasher.finish()))
    }

    /// Waits until no read of a client waits. Returns whether a client still waits for the digest.
    fn gives_way(&self, job: &Job) -> bool {
        while job.is_wanted() {
            if self.waits.quiet_for().is_some_and(|quiet| quiet >= QUIET) {
                return true;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use seekless_base::Bytes;

    use super::super::{Patience, Server, ServerSettings};

    use super::*;

    fn settings(root: &std::path::Path) -> ServerSettings {
        let second = Duration::from_secs(10);
        ServerSettings {
            roots: vec![root.into()],
            listen: ([127, 0, 0, 1], 0).into(),
            tls: None,
            loops: 1,
            helpers: 4,
            hidden: false,
            listing: false,
            download_page: false,
            log: None,
            connections: 100,
            connections_of_one: 100,
            head_bytes: 16 << 10,
            head_fields: 100,
            rate: None,
            patience: Patience { head: second, idle: second, send: second },
            grace: second,
            digest_max: Bytes::mib(16),
            any_order: Some(seekless_reorder::Config::default()),
            coordinate: None,
            engine: seekless_engine::Settings::default(),
        }
    }

    /// The head of an answer, and how long it took.
    fn wish(server: &Server, method: &str, more: &str) -> (String, Duration) {
        let began = Instant::now();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let head = format!("{method} /f HTTP/1.1\r\nHost: x\r\nWant-Repr-Digest: sha-256=1\r\n{more}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            answer.push(byte[0]);
        }
        (String::from_utf8(answer).unwrap(), began.elapsed())
    }

    #[test]
    fn a_digest_waits_for_the_reads_of_clients_and_an_answer_not_for_ever() {
        // In the folder of the test program, which is on a disk; /tmp may not be.
        let exe = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(exe.parent().unwrap()).unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
        file.sync_all().unwrap();
        let is_cold =
            || seekless_kernel::residency::cachestat(file.as_fd(), 0, 1 << 20).is_ok_and(|s| s.cached == 0);
        let forget = || rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        forget();
        if !is_cold() {
            return println!("skipped: nothing leaves memory here");
        }
        let server = Server::start(settings(dir.path())).unwrap();
        let waits = server.shared.waits.clone();
        let waiting = waits.begin();
        let (head, took) = wish(&server, "HEAD", "");
        assert!(!head.contains("repr-digest") && took >= WAIT_MAX, "{took:?}: {head}");
        assert!(is_cold(), "something was read");
        let (head, took) = wish(&server, "GET", "Range: bytes=0-0,1-\r\nPrefer: any-order\r\n");
        assert!(!head.contains("repr-digest") && took >= WAIT_MAX, "{took:?}: {head}");
        assert!(head.contains("preference-applied"), "{head}");
        assert_eq!(server.report()["counters"]["digests_made"], 0);
        drop(waiting);
        let (head, took) = wish(&server, "HEAD", "");
        assert!(head.contains("repr-digest") && took < WAIT_MAX, "{took:?}: {head}");
        // Bytes in memory are not read from the disk.
        std::fs::write(&path, vec![2; 1 << 20]).unwrap();
        let _waiting = waits.begin();
        let (head, took) = wish(&server, "HEAD", "");
        assert!(head.contains("repr-digest") && took < WAIT_MAX, "{took:?}: {head}");
        server.stop();
    }
}
