//! The control socket of a disk: a line of JSON each way.
//!
//! The right to unthrottled mode belongs to a connection: when it closes, however its owner ends, the disk is
//! in time again.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use seekless_base::Fault;
use serde::{Deserialize, Serialize};

use crate::engine::DriveEngine;
use crate::faults::{ByteRange, Faults, MemberOrders, MemberState, RANGES_MAX, Slow};
use crate::state::DiskDir;
use crate::stats::{Derived, MemberReport, Stats};
use crate::store::Store;
use crate::trace::Trace;

/// Longest line either side takes.
const LINE_MAX: u64 = 1 << 20;
/// Connections served at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 32;
/// How long a command waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What can be asked of a running disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum ControlRequest {
    /// The counters, set to zero afterwards with `reset`.
    Stats {
        /// Start again from zero.
        reset: bool,
    },
    /// Unthrottled as long as this connection lasts.
    Unthrottle,
    /// Faults to add.
    Fault {
        /// Ranges that fail with EIO.
        eio: Vec<ByteRange>,
        /// Slowness.
        slow: Vec<Slow>,
        /// Do nothing for this many milliseconds on the wall.
        hang_ms: u64,
        /// What becomes of members of a set.
        #[serde(default)]
        members: MemberOrders,
        /// First forget all faults, end a hang under way, and mend every member.
        clear: bool,
    },
    /// From now on trace to this file, or to none.
    Trace {
        /// A path as the disk's process sees it: absolute.
        path: Option<PathBuf>,
    },
}

/// What comes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlReply {
    /// Done, nothing to tell.
    Done,
    /// The counters.
    Stats(Box<StatsReport>),
    /// The faults now in force.
    Faults(Faults),
    /// It could not be done, and why.
    Refused(String),
}

/// Counters and what goes with them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatsReport {
    /// Counters.
    pub stats: Stats,
    /// Rates and means.
    pub derived: Derived,
    /// Faults in force.
    pub faults: Faults,
    /// The members of a set; absent for a single drive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberReport>,
    /// Runs of content in the extent map; 0 for a tree.
    pub content_runs: usize,
    /// Storage taken by what is not content, bytes; 0 for a tree.
    pub backing_bytes: u64,
}

/// Serves the socket at `path` on a thread of its own until the process ends.
///
/// # Errors
/// The socket cannot be made.
pub fn listen(path: &Path, engine: Arc<DriveEngine>, store: Option<Arc<Store>>) -> std::io::Result<()> {
    let listener = UnixListener::bind(path)?;
    let open = Arc::new(AtomicUsize::new(0));
    std::thread::Builder::new().name("control".into()).spawn(move || {
        loop {
            while open.load(Ordering::Acquire) >= CONNECTIONS_MAX {
                std::thread::sleep(Duration::from_millis(10));
            }
            let Ok((stream, _)) = listener.accept() else {
                // Out of descriptors, say: not a reason to spin.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            open.fetch_add(1, Ordering::AcqRel);
            let (engine, store, count) = (Arc::clone(&engine), store.clone(), Arc::clone(&open));
            let spawned = std::thread::Builder::new().name("control-peer".into()).spawn(move || {
                serve(&stream, &engine, store.as_deref());
                count.fetch_sub(1, Ordering::AcqRel);
            });
            if spawned.is_err() {
                open.fetch_sub(1, Ordering::AcqRel);
            }
        }
    })?;
    Ok(())
}

fn serve(stream: &UnixStream, engine: &DriveEngine, store: Option<&Store>) {
    let mut holds = 0;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        match (&mut lines).take(LINE_MAX).read_line(&mut line) {
            Ok(n) if n > 0 && line.ends_with('\n') => {}
            _ => break,
        }
        let answer = match serde_json::from_str(&line) {
            Ok(ask) => answer(ask, engine, store, &mut holds),
            Err(e) => ControlReply::Refused(format!("not understood: {e}")),
        };
        let Ok(mut text) = serde_json::to_vec(&answer) else { break };
        text.push(b'\n');
        if (&*stream).write_all(&text).is_err() {
            break;
        }
    }
    for _ in 0..holds {
        engine.unthrottle(false);
    }
}

fn answer(ask: ControlRequest, engine: &DriveEngine, store: Option<&Store>, holds: &mut u32) -> ControlReply {
    match ask {
        ControlRequest::Stats { reset } => {
            let stats = engine.stats(reset);
            let (content_runs, backing_bytes) = store.map_or((0, 0), Store::usage);
            let derived = stats.derive();
            let mut faults = engine.change_faults(false, |_| ());
            let members = engine.members(reset);
            let states = engine.change_members(false, &MemberOrders::default()).unwrap_or_default();
            faults.members = states.into_iter().filter(MemberState::is_fault).collect();
            ControlReply::Stats(Box::new(StatsReport {
                stats,
                derived,
                faults,
                members,
                content_runs,
                backing_bytes,
            }))
        }
        ControlRequest::Unthrottle => {
            if *holds == 0 {
                engine.unthrottle(true);
                *holds = 1;
            }
            ControlReply::Done
        }
        ControlRequest::Fault { eio, slow, hang_ms, members, clear } => {
            let mut refused = false;
            let mut now = engine.change_faults(clear, |faults| {
                if clear {
                    *faults = Faults::default();
                }
                refused =
                    faults.eio.len() + eio.len() > RANGES_MAX || faults.slow.len() + slow.len() > RANGES_MAX;
                if !refused {
                    faults.eio.extend(eio);
                    faults.slow.extend(slow);
                }
            });
            if refused {
                return ControlReply::Refused(format!(
                    "a disk keeps {RANGES_MAX} ranges of a kind: --clear some first"
                ));
            }
            match engine.change_members(clear, &members) {
                Ok(states) => now.members = states.into_iter().filter(MemberState::is_fault).collect(),
                Err(why) => return ControlReply::Refused(why),
            }
            if hang_ms > 0 {
                engine.hang(Duration::from_millis(hang_ms));
            }
            ControlReply::Faults(now)
        }
        ControlRequest::Trace { path: None } => {
            engine.set_trace(Trace::off());
            ControlReply::Done
        }
        ControlRequest::Trace { path: Some(path) } => match Trace::create(&path) {
            Ok(trace) => {
                engine.set_trace(trace);
                ControlReply::Done
            }
            Err(e) => ControlReply::Refused(format!("cannot write {}: {e}", path.display())),
        },
    }
}

/// A connection to a running disk.
#[derive(Debug)]
pub struct ControlClient {
    name: String,
    stream: BufReader<UnixStream>,
}

impl ControlClient {
    /// Connects to the disk.
    ///
    /// # Errors
    /// `Missing`: there is no such disk, or it died.
    pub fn connect(dir: &DiskDir) -> Result<ControlClient, Fault> {
        let name = dir.name().to_string();
        if dir.record().is_none() {
            return Err(Fault::missing(format!(
                "there is no disk `{name}`; `seekless-lab vdisk list` shows those there are"
            )));
        }
        let connected = UnixStream::connect(dir.socket()).and_then(|stream| {
            stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => Ok(ControlClient { name, stream: BufReader::new(stream) }),
            Err(e) => Err(Fault::missing(format!(
                "disk `{name}` does not answer ({e}); `seekless-lab vdisk down --name {name}` clears it away"
            ))),
        }
    }

    /// Asks and waits for the answer, at most 10 s.
    ///
    /// # Errors
    /// `Failed`: it refused, or the connection broke.
    pub fn ask(&mut self, ask: &ControlRequest) -> Result<ControlReply, Fault> {
        let failed = |why: String| Fault::failed(format!("disk `{}`: {why}", self.name));
        let mut text = serde_json::to_vec(ask).map_err(|e| failed(e.to_string()))?;
        text.push(b'\n');
        self.stream.get_mut().write_all(&text).map_err(|e| failed(format!("does not take commands: {e}")))?;
        let mut line = String::new();
        let read = (&mut self.stream).take(LINE_MAX).read_line(&mut line);
        read.map_err(|e| failed(format!("does not answer: {e}")))?;
        match serde_json::from_str(&line) {
            Ok(ControlReply::Refused(why)) => Err(failed(why)),
            Ok(answer) => Ok(answer),
            Err(e) => Err(failed(format!("answers nonsense: {e}"))),
        }
    }
}
