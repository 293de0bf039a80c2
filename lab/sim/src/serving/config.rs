//! The configuration of a simulation.

use std::sync::Arc;

use seekless_base::wants::CallKind;
use seekless_base::{Bytes, Nanos};
use seekless_model::drive::DriveSpec;
use seekless_model::drive::set::SetSpec;
use seekless_model::workload::catalogue::Catalogue;
use seekless_model::workload::closed::{ClosedSpec, OtherDisks};
use seekless_model::workload::handler::Handler;
use seekless_model::workload::recorder::Camera;
use seekless_model::workload::session::ClientClass;
use seekless_model::workload::sources::Forest;
use seekless_model::workload::tree::{FileOrder, Folders};
use seekless_policy::{Config as PolicyConfig, Mode};

use super::balancer::Ring;
use super::{readahead, scheduler};

/// The replacement policy of the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// One list in order of use.
    Lru,
    /// Linux's active and inactive lists.
    #[default]
    TwoList,
    /// The same as before Linux 3.15: the active list never larger than the inactive one, no refault
    /// distance.
    EvenLists,
    /// In the order in which pages came, used or not: Linux from 2.6.23 to 4.8 for files that are sent with
    /// `sendfile`, whose `__generic_file_splice_read` marks no page as used, so that none reaches the active
    /// list.
    Fifo,
}

/// One disk. Each holds the whole library and has its own clients.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The drive.
    pub drive: DriveSpec,
    /// The drives that form the disk, and their layout.
    pub set: SetSpec,
    /// Size of the file system, which covers the whole drive.
    pub size: Bytes,
    /// How many times faster than the real one it runs, as the live disk does (`speedup`).
    pub speedup: f64,
}

/// A drive that stops when it is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standby {
    /// Time without a command after which it stops.
    pub after: Nanos,
    /// Time until it is ready again.
    pub spin_up: Nanos,
}

/// Settings of the kernel for every disk.
#[derive(Clone, Debug)]
pub struct KernelConfig {
    /// `read_ahead_kb`.
    pub read_ahead: Bytes,
    /// In place of `read_ahead`: what the disk transfers at that place in the time of a switch (\[C\] section
    /// 2).
    pub competitive: bool,
    /// `max_sectors_kb`.
    pub max_request: Bytes,
    /// Maximum number of single pages in a request (`max_segments`: memory is rarely contiguous). Pages of a
    /// read-ahead window after the first come in large folios and are not bound by it.
    pub segments: u64,
    /// Maximum length of a command that a request is cut into: the live disk's file below takes 1 MiB at
    /// most.
    pub max_command: Bytes,
    /// Block scheduler.
    pub scheduler: scheduler::Kind,
    /// Time to hand a request to the drive. However short, it decides what the drive can choose from: of
    /// several requests made at once, the drive starts the first before it knows the others.
    pub send: Nanos,
    /// Requests the scheduler holds; more wait outside in order of arrival.
    pub requests: usize,
    /// Read-ahead algorithm.
    pub algorithm: readahead::Kind,
    /// Page replacement.
    pub replacement: Replacement,
    /// The standby timer of the drives; `None`: they never stop.
    pub standby: Option<Standby>,
}

impl Default for KernelConfig {
    fn default() -> KernelConfig {
        KernelConfig {
            read_ahead: Bytes::kib(128),
            competitive: false,
            // BLK_DEF_MAX_SECTORS since Linux 4.x.
            max_request: Bytes::kib(1280),
            // BLK_MAX_SEGMENTS.
            segments: 128,
            max_command: Bytes::mib(1),
            scheduler: scheduler::Kind::None,
            send: Nanos::from_micros(20),
            requests: 64,
            algorithm: readahead::Kind::OnDemand,
            replacement: Replacement::TwoList,
            standby: None,
        }
    }
}

/// How a server reads, and how many of its threads can wait for a disk at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerModel {
    /// Pools of threads; a client belongs to one of them for ever.
    pub pools: u32,
    /// Threads in each pool; `None`: one a client.
    pub threads: Option<u32>,
    /// Maximum bytes of one call.
    pub call: u64,
    /// Bytes that the kernel looks up and hands over at a time within a call.
    pub unit: u64,
    /// Maximum bytes that a thread sends for one client before it turns to the next.
    pub turn: u64,
    /// How a call reads.
    pub how: How,
    /// Whether a call names no more than the socket takes: `sendfile` of a server that uses `SF_NODISKIO` and
    /// then reads the missing bytes (\[L\] sections 3.1 and 5).
    pub within_socket: bool,
    /// Whether its files are open for random reads (`POSIX_FADV_RANDOM`, `MADV_RANDOM`): the kernel reads
    /// what a call names, or the page of a fault, and nothing ahead. Only the shim sees the advice.
    pub random: bool,
}

/// The call that a server reads with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// `sendfile`: names all remaining bytes and sends what the socket takes.
    Send,
    /// `read`: returns when all requested bytes have been read.
    Read,
    /// A map of the file, read by page faults: no call that a preloaded library could see.
    Map,
}

impl How {
    /// How such a call takes the bytes that it names.
    pub fn kind(self) -> CallKind {
        match self {
            How::Send => CallKind::Send,
            How::Read => CallKind::Read,
            How::Map => CallKind::Part,
        }
    }
}

/// The door by which the engine learns of the server's reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Door {
    /// A library in the server: misses wait for the engine, hits are reported after the fact. It sees no
    /// maps.
    #[default]
    Shim,
    /// The kernel announces each call and waits for an answer, which costs every call two wake-ups. What a
    /// map touches is not announced.
    Watch,
    /// The page cache reports reads when they have their bytes. No call waits, and none is put in order.
    Observe,
}

/// The settings of Seekless.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Its door.
    pub door: Door,
    /// The settings of the policy. Its memory is that of the simulated machine.
    pub policy: PolicyConfig,
    /// One queue for all disks.
    pub single_queue: bool,
    /// Whether requests state the bitrates of their files, as those of a server that knows its catalogue
    /// (\[A\] section 5). Otherwise they are not known: the headers of files are not modelled.
    pub tells_bitrates: bool,
    /// Maximum bytes of a read that are submitted to the disk at once; `None`: all of it, as in the daemon.
    pub window: Option<Bytes>,
    /// Whether a shim that prefetches without serialising reads the longer range by a call of its own, as
    /// Libception does (\[L\] section 3.2.2). Otherwise it tells the kernel to read ahead.
    pub preads: bool,
}

impl EngineConfig {
    /// A server behind the shim, as the daemon is without further options.
    pub fn of_shim(policy: PolicyConfig) -> EngineConfig {
        EngineConfig {
            door: Door::Shim,
            policy,
            single_queue: false,
            tells_bitrates: false,
            window: None,
            preads: false,
        }
    }

    /// Whether a call of a server that reads like this waits for the engine if it misses.
    pub fn blocks(&self, how: How) -> bool {
        self.acts() && how != How::Map && self.door != Door::Observe
    }

    /// Whether the shim divides calls of a server that reads like this into parts of
    /// [`seekless_base::wants::SERVE_LOOK_MAX`] bytes: sends, if streams are followed.
    pub fn divides(&self, how: How) -> bool {
        self.door == Door::Shim && how == How::Send && self.policy.hears_hits()
    }

    /// Whether calls ask the engine at all.
    pub fn acts(&self) -> bool {
        !matches!(self.policy.mode, Mode::Off | Mode::Track)
    }
}

/// Costs besides the disk.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Time from the end of a command in the drive to the wake-up of its waiter, and from one message between
    /// shim, daemon and its threads to the next.
    pub wake: Nanos,
    /// Cost of a call, without its bytes.
    pub call: Nanos,
    /// Nanoseconds for each KiB handed over.
    pub copy_ns_per_kib: u64,
    /// A request on the network, besides its bytes (alpha).
    pub network: Nanos,
    /// Nanoseconds for each KiB on the server's network (1 / beta): one after the other for all clients.
    pub network_ns_per_kib: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            wake: Nanos::from_micros(60),
            call: Nanos::from_micros(10),
            // 3 GB/s.
            copy_ns_per_kib: 340,
            network: Nanos::from_micros(100),
            // 10 Gb/s.
            network_ns_per_kib: 820,
        }
    }
}

impl Load {
    /// This many clients on each disk; each requests the next range when it has the last.
    pub fn closed(clients: u32, spec: ClosedSpec) -> Load {
        Load::Closed { clients, spec, other_disks: OtherDisks::Busy, link: None }
    }
}

/// The clients, and what they request.
#[derive(Clone, Debug)]
pub enum Load {
    /// This many clients a disk; each requests the next range when it has the last.
    Closed {
        /// Clients on each disk.
        clients: u32,
        /// What they read; disk number `n` uses seed + n.
        spec: ClosedSpec,
        /// Clients on all disks but the first.
        other_disks: OtherDisks,
        /// The link of each, bits a second; as fast as the server if absent.
        link: Option<u64>,
    },
    /// This many clients a disk; each sends the next request to a handler when it has the answer to the last.
    Handlers {
        /// Clients on each disk.
        clients: u32,
        /// What a handler does.
        handler: Handler,
        /// Seed; disk number `n` uses seed + n.
        seed: u64,
    },
    /// Viewing sessions at a rate that is constant, or rises to it first.
    Sessions {
        /// Requests a second on each disk.
        per_s: f64,
        /// How the rate is reached; at once if absent.
        rise: Option<Rise>,
        /// Sessions in all, on each disk.
        sessions: u32,
        /// Kinds of clients.
        classes: Vec<ClientClass>,
        /// Begin with the viewers of a long-running server.
        warm_start: bool,
        /// Maximum time of a segment.
        timeout: Nanos,
        /// Seed of the sessions.
        seed: u64,
    },
    /// One of several nodes behind a balancer; for one disk.
    Node(Node),
    /// Programs that read every file of a tree once, as `xargs -P` starts them; the run ends when all are
    /// read. For one disk, whose files lie as on an aged file system.
    Tree(TreeLoad),
    /// This many `diff -r`, each of a pair of trees of its own; the run ends with the last. For one disk.
    Diff(DiffLoad),
}

/// Comparisons of pairs of trees, each by a program of its own. The catalogue is [`Forest::all`].
#[derive(Clone, Debug)]
pub struct DiffLoad {
    /// Pairs.
    pub pairs: u32,
    /// Their trees.
    pub forest: Forest,
}

/// Programs that read a tree.
#[derive(Clone, Debug)]
pub struct TreeLoad {
    /// Programs at a time.
    pub programs: u32,
    /// Files that each takes at a time, in the order of the list.
    pub batch: u32,
    /// The order of the list.
    pub taking: FileOrder,
    /// The folders.
    pub folders: Arc<Folders>,
    /// Whether files lie one behind the other, in the order of writing; otherwise as on an aged file system.
    pub fresh: bool,
    /// What they do besides reading.
    pub work: ProgramWork,
    /// One more program, which reads the whole tree too.
    pub second: Option<SecondProgram>,
    /// Clients beside them, until the programs are done, and what they read.
    pub clients: (u32, ClosedSpec),
}

/// A program that reads the tree that others read, in the same order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SecondProgram {
    /// When it starts.
    pub after: Nanos,
    /// What it does beside reading.
    pub work: ProgramWork,
}

/// The time of a program that reads files, without its reads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProgramWork {
    /// Time to start one, for each batch of files.
    pub start: Nanos,
    /// For each file.
    pub file: Nanos,
    /// Bytes a second that it processes as it reads them; `None`: no time.
    pub rate: Option<f64>,
}

/// A rate that is reached in steps of [`Rise::STEP`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rise {
    /// Share of the rate at the start.
    pub from: f64,
    /// Time until the whole rate is offered.
    pub over: Nanos,
}

impl Rise {
    /// Share of the rate at the start (\[A\] section 4.3).
    pub const FROM: f64 = 0.8;
    /// Share of the rate in one step (\[A\] section 4.3).
    pub const STEP: f64 = 0.05;
}

/// One of several nodes behind a balancer that places files by their names. [`Config::memory`] is all of its
/// memory.
#[derive(Clone, Debug)]
pub struct Node {
    /// Viewers of all nodes.
    pub clients: u32,
    /// What they read.
    pub spec: ClosedSpec,
    /// The link of each, bits a second.
    pub link: u64,
    /// Number of nodes; each file is on the node where the balancer places it.
    pub nodes: u32,
    /// Number of the observed node, from 1 on.
    pub number: u32,
    /// When that one is killed, and when it is started again with nothing in memory.
    pub lost: Option<(Nanos, Nanos)>,
    /// Maximum load of a node as a multiple of the mean number of requests; further requests go to the next
    /// node (`hash-balance-factor`).
    pub bound: f64,
    /// Time from then until the balancer sends it requests, because the balancer has to notice that the node
    /// is back.
    pub up: Nanos,
    /// Number of whole-file downloads at any time, all nodes together; each goes through all files, one after
    /// the other.
    pub downloads: u32,
    /// Bytes a second its client takes.
    pub download_rate: f64,
    /// Memory of the server itself.
    pub own: Bytes,
    /// Whether the read-ahead budget comes from the rest of the memory, or from all of it.
    pub budget_of_rest: bool,
    /// Its downloads in any order. Their blocks, too, take from the memory.
    pub any_order: seekless_reorder::Config,
    /// Maximum size of a file whose digest is computed at its first download, from the same blocks.
    pub digest_max: Bytes,
    /// Time between two samples of what was served and read.
    pub look: Nanos,
}

impl Node {
    /// Of each file, whether it is on this node.
    pub fn here(&self, catalogue: &Catalogue) -> Vec<bool> {
        let ring = Ring::new(self.nodes);
        catalogue.videos().iter().map(|v| ring.node(&format!("/{}", v.path)) == self.number).collect()
    }
}

/// A program beside the load that reads every file of a disk, over and over, in any order: a scrub. The
/// engine has its file set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileSetLoad {
    /// Maximum bytes in memory for it that were not taken.
    pub window: Bytes,
    /// Maximum length of a range that it takes at a time.
    pub range: Bytes,
    /// Bytes a second that it takes.
    pub rate: f64,
}

/// Programs beside the load that write files of each disk from end to end, over and over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriterLoad {
    /// Bytes a second, on average, of all of them.
    pub rate: f64,
    /// Bytes after which the program calls `fsync`; never if absent.
    pub sync_every: Option<Bytes>,
    /// Size of the file, or of the files of all cameras.
    pub file: Bytes,
    /// A recorder, whose cameras sync by its rule; otherwise there is one program.
    pub recorder: Option<RecorderLoad>,
}

/// A recorder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecorderLoad {
    /// Cameras. Each writes segments and calls `fsync` at the end of each.
    pub cameras: u32,
    /// Length of a segment.
    pub segment: Nanos,
    /// Time between two records of its journal, of a page each, with an `fdatasync` after each.
    pub journal: Nanos,
}

/// Segments of each camera of which no page is written twice in the time in which pages stay dirty.
const FILE_SEGMENTS: u64 = 8;

/// Bytes of a recorder's journal.
const RECORDER_JOURNAL: u64 = 16 << 20;

impl WriterLoad {
    /// The cameras of a recorder. Segments count if the time by which they must be durable ends in `counts`.
    pub fn cameras(&self, counts: std::ops::Range<Nanos>) -> Vec<Camera> {
        let of = |r: RecorderLoad| Camera::several(r.cameras, self.rate, r.segment, &counts);
        self.recorder.map_or_else(Vec::new, of)
    }

    /// Sizes of the files on a disk, one for each program. A camera's file has whole segments.
    pub fn files(&self) -> Vec<u64> {
        let Some(recorder) = self.recorder else { return vec![self.file.0] };
        let share = self.file.0 / u64::from(recorder.cameras.max(1));
        let of = |c: &Camera| (share / c.segment()).max(FILE_SEGMENTS) * c.segment();
        let cameras = self.cameras(Nanos::ZERO..Nanos::ZERO);
        cameras.iter().map(of).chain([RECORDER_JOURNAL]).collect()
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The disks.
    pub disks: Vec<DiskConfig>,
    /// Memory for the page cache.
    pub memory: Bytes,
    /// The kernel.
    pub kernel: KernelConfig,
    /// The server.
    pub server: ServerModel,
    /// Socket buffer of a connection behind a link.
    pub socket: Bytes,
    /// Seekless, if it is there.
    pub engine: Option<EngineConfig>,
    /// Costs.
    pub costs: Costs,
    /// The load.
    pub load: Load,
    /// The program that reads beside it; only with Seekless.
    pub file_set: Option<FileSetLoad>,
    /// The programs that write beside it.
    pub writer: Option<WriterLoad>,
    /// Requests due before this time are not counted.
    pub warmup: Nanos,
    /// Length of the run, warm-up included.
    pub length: Nanos,
}
