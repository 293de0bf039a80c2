//! One arm of a comparison: a server, Seekless's part, and faults.

use std::str::FromStr;

use seekless_base::Bytes;
use seekless_model::drive::DriveSpec;
use seekless_model::workload::closed::OtherDisks;
use serde::{Deserialize, Serialize};

use super::{Knob, Load, Service};

/// A program that writes a file from end to end, over and over; or a recorder with cameras.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriterSpec {
    /// Its rate: MB/s, or a share of what the drive transfers when it is read from end to end (`20%`).
    pub rate: String,
    /// Bytes after which it calls `fsync`; never if absent.
    pub sync: Option<Bytes>,
    /// Size of the file, or of the files of all cameras.
    #[serde(default = "written_file")]
    pub file: Bytes,
    /// Cameras of a recorder, which share the rate: each ends a segment every [`WriterSpec::segment_s`]
    /// seconds and then calls `fsync`. Besides, the recorder writes and syncs a journal.
    pub cameras: Option<u32>,
    /// Seconds of a segment.
    #[serde(default = "segment_s")]
    pub segment_s: f64,
    /// The clients' link is the lowest, up to that of the load, at which at least this share of the segments
    /// is late or lost. Simulator only.
    pub missed: Option<f64>,
}

/// The longer end of the 2 to 4 seconds of common recorders: fewer syncs.
fn segment_s() -> f64 {
    4.0
}

/// Four times the bytes that a fifth of a slow drive's rate writes in a run, so that no page is written
/// twice.
fn written_file() -> Bytes {
    Bytes::mib(4096)
}

impl WriterSpec {
    /// MB/s on this drive.
    ///
    /// # Errors
    /// `rate` is not a number of MB/s and not a share.
    pub fn mb_s(&self, drive: &DriveSpec) -> Result<f64, String> {
        written_mb_s(&self.rate, drive)
    }
}

/// MB/s of a rate in MB/s, or in parts of what this drive transfers when it is read from end to end (`20%`).
///
/// # Errors
/// `rate` is not a number of MB/s and not a share.
pub(crate) fn written_mb_s(rate: &str, drive: &DriveSpec) -> Result<f64, String> {
    let number = match rate.strip_suffix('%') {
        Some(_) => seekless_base::share(rate)? * drive.mean_media_rate() / 1e6,
        None => rate.parse().map_err(|_| format!("writer: `{rate}` is no rate"))?,
    };
    Some(number).filter(|n: &f64| n.is_finite() && *n > 0.0).ok_or("writer: a rate is above 0".into())
}

/// What runs, and how the machine is set for it. Absent kernel settings mean the device's defaults.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name in checks, published values and plots.
    pub name: String,
    /// The server; may be absent if the axis varies servers or the load needs none (`diff`).
    pub server: Option<ServerKind>,
    /// The service, for a load of kind `readers`; an axis with the knob `service` sets it.
    pub service: Option<Service>,
    /// Its configuration.
    #[serde(default)]
    pub variant: ServerVariant,
    /// Seekless mode; absent: neither shim nor daemon.
    pub mode: Option<Mode>,
    /// The door by which Seekless learns of the server's reads; the shim if there is a mode and no door is
    /// given.
    #[serde(default)]
    pub door: Door,
    /// The program that reads the files of a load of kind `files`.
    pub reader: Option<FileReader>,
    /// Beside the load a program reads every file of the first disk in any order (`seekless cat-set`).
    pub file_set: Option<FileSetBy>,
    /// Beside the load a program writes a file of the first disk.
    pub writer: Option<WriterSpec>,
    /// Beside the load `seekless prove` measures what the arm's daemon gains, after the warm-up; live only.
    #[serde(default)]
    pub proved: bool,
    /// Beside the load `seekless top` shows the arm's daemon, in a terminal (`fio` only).
    #[serde(default)]
    pub shown: bool,
    /// Beside the load, a program of another user.
    pub neighbour: Option<Neighbour>,
    /// File system of the disk, live, in place of the disk's own.
    pub fs: Option<String>,
    /// How the scenario's disks form one folder, live; each is a folder of its own if absent.
    pub joined: Option<Joined>,
    /// Several drives as one disk, `KIND:MEMBERS`; one drive if absent.
    pub set: Option<DriveSet>,
    /// The drive instead of the scenario's.
    pub drive: Option<DriveChoice>,
    /// Closed loop: choose files by popularity or all equally often, in place of the load's setting.
    pub popular: Option<bool>,
    /// Prefetch size of the daemon (its default, automatic, if absent).
    pub prefetch: Option<Bytes>,
    /// Order of the daemon's queue (its default if absent).
    pub order: Option<QueueOrder>,
    /// Read ahead of need, which none of the papers does; off unless an arm sets it.
    #[serde(default)]
    pub ahead: bool,
    /// Bound of the daemon's queue (its default if absent).
    pub queue: Option<u32>,
    /// Reads of a disk that the daemon keeps in flight (its default if absent; the paper's is 1).
    pub in_flight: Option<u32>,
    /// Answer when the whole prefetch has arrived, as the paper does, and not when the requested bytes have.
    #[serde(default)]
    pub answer_late: bool,
    /// Closed loop: the clients of all disks but the first.
    #[serde(default)]
    pub other_disks: OtherDisks,
    /// One queue for all disks, as is the paper's default, instead of one for each.
    #[serde(default)]
    pub single_queue: bool,
    /// Further options of the daemon or of `watch`. Those that the simulator has under the same name also go
    /// into `sim`.
    #[serde(default)]
    pub daemon: Vec<String>,
    /// The daemon keeps the metadata of the disks' trees in memory; live only.
    #[serde(default)]
    pub keep_metadata: bool,
    /// Further options of `seekless serve`, if that is the server.
    #[serde(default)]
    pub serve: Vec<String>,
    /// The server speaks TLS, with a certificate made for the run; HTTP/1.1. nginx and `seekless serve` only.
    #[serde(default)]
    pub tls: bool,
    /// A cache in front of the server, which the clients ask instead: nginx with `proxy_cache` and 1 MiB
    /// slices; the size of its cache on disk.
    pub edge: Option<Bytes>,
    /// Clients take the blocks of a download in any order (`downloads` only).
    #[serde(default)]
    pub any_order: bool,
    /// Load the shim but start no daemon: what a machine looks like after the daemon is gone.
    #[serde(default)]
    pub no_daemon: bool,
    /// Block scheduler.
    pub scheduler: Option<String>,
    /// Kernel read-ahead of the device, KiB.
    pub read_ahead_kb: Option<u32>,
    /// Largest request the block layer makes, KiB; cut to what the device allows.
    pub max_sectors_kb: Option<u32>,
    /// Run once, not at every axis value (the paper's columns labelled V).
    #[serde(default)]
    pub fixed: bool,
    /// Further arguments of the simulator for this arm.
    #[serde(default)]
    pub sim: Vec<String>,
    /// Where a `command` load's answer has each metric: name to JSON pointer.
    #[serde(default)]
    pub read: std::collections::BTreeMap<String, String>,
    /// Which element of the answer's `rows` this arm is: the fields it must have. Empty: the arm reads the
    /// whole answer.
    #[serde(default)]
    pub row: std::collections::BTreeMap<String, String>,
    /// Faults while the load runs.
    #[serde(default, rename = "fault")]
    pub faults: Vec<FaultAt>,
    /// Without clients: the writer has the disk alone. For a load of kind `closed`.
    #[serde(default)]
    pub alone: bool,
    /// All settings are those of the arm with this name; in addition, this arm may have `best`, `load_of` and
    /// more `sim` words.
    pub like: Option<String>,
    /// Instead of one setting, the best of several, searched at every axis value. Simulator only.
    pub best: Option<GridSearch>,
    /// Run at the load at which the search of this arm ended: its highest rate of sessions, or the lowest
    /// link of the clients for its recorder. Simulator only.
    pub load_of: Option<String>,
}

impl Arm {
    /// Whether its daemon has a metrics address.
    pub(crate) fn is_scraped(&self) -> bool {
        self.daemon.iter().any(|word| word == "--metrics")
    }
}

/// A set of drives in words, as `raid0:4`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DriveSet {
    /// As `--set` takes it.
    pub kind: String,
    /// Drives.
    pub members: u32,
}

impl DriveSet {
    /// Options of `vdisk up` and `sim serve`.
    pub fn to_args(&self) -> [String; 4] {
        ["--set".into(), self.kind.clone(), "--members".into(), self.members.to_string()]
    }
}

impl TryFrom<String> for DriveSet {
    type Error = String;

    fn try_from(text: String) -> Result<DriveSet, String> {
        let wrong = || format!("`{text}` is no set of drives: write KIND:MEMBERS, as raid0:4");
        let (kind, members) = text.split_once(':').ok_or_else(wrong)?;
        let kind: seekless_model::drive::set::SetKind = kind.parse()?;
        let members = members.parse().map_err(|_| wrong())?;
        let spec = seekless_model::drive::set::SetSpec {
            kind,
            members,
            ..seekless_model::drive::set::SetSpec::SINGLE
        };
        spec.check()?;
        Ok(DriveSet { kind: kind.name().into(), members })
    }
}

impl From<DriveSet> for String {
    fn from(set: DriveSet) -> String {
        format!("{}:{}", set.kind, set.members)
    }
}

/// A drive in words, as `wd-red-1tb` or `platter:wd-red-1tb`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DriveChoice {
    /// The disk model, as `vdisk up --model` takes it; the default one when absent.
    pub model: Option<String>,
    /// As `--drive` takes it.
    pub name: String,
}

impl TryFrom<String> for DriveChoice {
    type Error = String;

    fn try_from(text: String) -> Result<DriveChoice, String> {
        let (model, name) = match text.strip_prefix("platter:") {
            Some(name) => (Some("platter".to_string()), name.to_string()),
            None => (None, text),
        };
        seekless_model::drive::catalogue::find(&name).map_err(|e| e.to_string())?;
        Ok(DriveChoice { model, name })
    }
}

impl From<DriveChoice> for String {
    fn from(choice: DriveChoice) -> String {
        choice.model.map(|model| model + ":").unwrap_or_default() + &choice.name
    }
}

/// Several disks that form one folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Joined {
    /// A file system on each, the files in turn; the folder has links to them.
    Plain,
    /// One btrfs on all of them, in its profile `single`.
    BtrfsSingle,
    /// One btrfs on all of them, in its profile `raid0`.
    BtrfsRaid0,
    /// One btrfs on all of them, in its profile `raid1`.
    BtrfsRaid1,
    /// A file system on each, the files in turn; the folder is an overlay of them.
    Overlay,
}

impl Joined {
    /// The profile of its btrfs, if it is one.
    pub fn btrfs(self) -> Option<&'static str> {
        match self {
            Joined::BtrfsSingle => Some("single"),
            Joined::BtrfsRaid0 => Some("raid0"),
            Joined::BtrfsRaid1 => Some("raid1"),
            Joined::Plain | Joined::Overlay => None,
        }
    }
}

impl FromStr for Joined {
    type Err = String;

    fn from_str(text: &str) -> Result<Joined, String> {
        let value = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text);
        Joined::deserialize(value).map_err(|e| e.to_string())
    }
}

/// The best of a grid: every combination of values runs, and the one that serves most gives the arm's row.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridSearch {
    /// The knobs that vary. The knob `variant` tries only what the server has.
    pub grid: Vec<KnobValues>,
}

/// A knob and the values it takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnobValues {
    /// The knob.
    pub knob: Knob,
    /// Values in its notation.
    pub values: Vec<String>,
}

impl GridSearch {
    /// `arm` at every combination, with the value of each knob.
    ///
    /// # Errors
    /// A value that its knob does not take.
    pub fn candidates(&self, arm: &Arm, load: &Load) -> Result<Vec<(Vec<String>, Arm)>, String> {
        let mut all = vec![(Vec::new(), arm.clone())];
        for turn in &self.grid {
            let mut more = Vec::new();
            for (words, arm) in &all {
                for value in &turn.values {
                    let turned = turn.knob.turn(arm.clone(), &mut load.clone(), value)?;
                    let has = |kind: ServerKind| kind.variants().contains(&turned.variant);
                    if turn.knob == Knob::Variant && !turned.server.is_some_and(has) {
                        continue;
                    }
                    let words = words.iter().cloned().chain([value.clone()]).collect();
                    more.push((words, turned));
                }
            }
            all = more;
        }
        Ok(all)
    }
}

/// How a program beside the load reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSetBy {
    /// The arm's daemon reads, in one order with its reads for the server.
    Daemon,
    /// The program reads by itself, ahead of its consumer.
    Itself,
}

/// A program of another user beside the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbour {
    /// It uses processor time in as many threads as the hostile one, and communicates with no process.
    Busy,
    /// It sends invalid frames to the arm's daemon as fast as it can.
    Hostile,
}

/// A program that reads every file of a tree once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileReader {
    /// `find`, `xargs` and four `sha256sum` at a time.
    Xargs,
    /// The same with `seekless order` between them.
    Order,
    /// The same with one `sha256sum` at a time.
    OrderOne,
    /// `find`, `seekless order --ahead`, `xargs` and four `sha256sum` at a time.
    OrderAhead,
    /// `tar c`, of whose stream the checksums are made.
    Tar,
    /// `seekless cat-set`, the same.
    CatSet,
    /// A Python program by `os.walk`.
    PythonWalk,
    /// The same by the package `seekless_order`.
    PythonOrder,
    /// `restic check --read-data` of a repository that holds the tree.
    Restic,
}

impl FileReader {
    /// Whether it needs Python.
    pub(crate) fn is_python(self) -> bool {
        matches!(self, FileReader::PythonWalk | FileReader::PythonOrder)
    }
}

/// A server that can be configured and started here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// nginx.
    Nginx,
    /// Apache httpd with its event module.
    Apache,
    /// lighttpd.
    Lighttpd,
    /// `seekless-lab file-server`, for machines without another server.
    Builtin,
    /// Caddy, a server in Go, which cannot be preloaded.
    Caddy,
    /// The file server of Go's own library, `scripts/gofile.go`.
    GoFile,
    /// `seekless serve`: it contains the engine, without shim and daemon.
    Seekless,
}

impl ServerKind {
    /// Name in scenarios and reports.
    pub fn name(self) -> &'static str {
        match self {
            ServerKind::Nginx => "nginx",
            ServerKind::Apache => "apache",
            ServerKind::Lighttpd => "lighttpd",
            ServerKind::Builtin => "builtin",
            ServerKind::Caddy => "caddy",
            ServerKind::GoFile => "gofile",
            ServerKind::Seekless => "seekless",
        }
    }

    /// Its different configurations.
    pub fn variants(self) -> &'static [ServerVariant] {
        use ServerVariant::{Reads, Shipped, Threads};
        match self {
            ServerKind::Nginx => &[Shipped, Threads, Reads],
            ServerKind::Apache => &[Shipped, Threads],
            ServerKind::Builtin => &[Shipped, Reads],
            _ => &[Shipped],
        }
    }
}

impl FromStr for ServerKind {
    type Err = String;
    fn from_str(s: &str) -> Result<ServerKind, String> {
        use ServerKind::{Apache, Builtin, Caddy, GoFile, Lighttpd, Nginx, Seekless};
        [Nginx, Apache, Lighttpd, Builtin, Caddy, GoFile, Seekless]
            .into_iter()
            .find(|kind| kind.name() == s)
            .ok_or_else(|| {
                format!("`{s}` is not a server (nginx, apache, lighttpd, builtin, caddy, gofile, seekless)")
            })
    }
}

/// The door for a server's reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// The preload shim and `seekless daemon`.
    #[default]
    Shim,
    /// `seekless watch` on the disks' mounts; nothing is preloaded.
    Watch,
    /// `seekless observe` on the disks' mounts; nothing is preloaded, and no read waits for it.
    Observe,
}

impl Door {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Door::Shim => "shim",
            Door::Watch => "watch",
            Door::Observe => "observe",
        }
    }

    /// Name in scenarios and on command lines; that of the shim is its daemon's.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Door::Shim => "daemon",
            Door::Watch => "watch",
            Door::Observe => "observe",
        }
    }
}

/// Which configuration of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerVariant {
    /// As in the distribution's package.
    #[default]
    Shipped,
    /// As the server's manual advises for large files on slow disks: nginx `aio threads`, Apache `EnableMMAP
    /// Off` with `EnableSendfile On`, Kafka `num.network.threads`; lighttpd and the built-in server have no
    /// such setting.
    Threads,
    /// nginx with `aio threads` and `sendfile off`: it reads 32 KiB at a time (`output_buffers`), because the
    /// paper's servers requested little at a time (\[L\] 6.4). The others have no such setting.
    Reads,
}

impl ServerVariant {
    /// Name in scenarios and on the simulator's command line.
    pub fn name(self) -> &'static str {
        match self {
            ServerVariant::Shipped => "shipped",
            ServerVariant::Threads => "threads",
            ServerVariant::Reads => "reads",
        }
    }
}

impl FromStr for ServerVariant {
    type Err = String;
    fn from_str(s: &str) -> Result<ServerVariant, String> {
        [ServerVariant::Shipped, ServerVariant::Threads, ServerVariant::Reads]
            .into_iter()
            .find(|v| v.name() == s)
            .ok_or_else(|| format!("`{s}` is not a configuration (shipped, threads, reads)"))
    }
}

/// The paper's modes (\[L\] 6.4) and the daemon's `--mode` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The shim is loaded and does nothing.
    Off,
    /// Calls are timed and reported, nothing else changes.
    Track,
    /// Reads of a disk are served one at a time.
    Serialise,
    /// Reads are extended, any number at a time.
    Prefetch,
    /// Both.
    Both,
}

impl Mode {
    /// The word the daemon's `--mode` takes.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Track => "track",
            Mode::Serialise => "serialise",
            Mode::Prefetch => "prefetch",
            Mode::Both => "both",
        }
    }
}

/// Order in which the daemon serves a disk's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueOrder {
    /// By arrival.
    Fifo,
    /// In disk order.
    Sweep,
}

impl QueueOrder {
    /// The word the daemon's `--order` takes.
    pub fn word(self) -> &'static str {
        match self {
            QueueOrder::Fifo => "fifo",
            QueueOrder::Sweep => "sweep",
        }
    }
}

/// A fault at a time after the load started. Times are real, whatever the disk's speed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultAt {
    /// Seconds after the start of the load.
    pub at_s: f64,
    /// What happens.
    pub what: FaultKind,
    /// For `hang-disk`: how long, in seconds.
    pub for_s: Option<f64>,
    /// For `limit-memory`: the new limit; absent: the scenario's own.
    pub limit: Option<Bytes>,
    /// Again after so many seconds, until the load ends; absent: once.
    pub every_s: Option<f64>,
}

/// A fault, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// SIGKILL the daemon.
    KillDaemon,
    /// Start it again.
    StartDaemon,
    /// Unlink its socket.
    RemoveSocket,
    /// SIGSTOP the daemon.
    StopDaemon,
    /// SIGCONT it.
    ContinueDaemon,
    /// The disk does not answer for `for_s` seconds.
    HangDisk,
    /// A tenth of the disk returns EIO from now on.
    BreakDisk,
    /// A member of each set takes four times as long for everything from now on.
    SlowMember,
    /// A member of each set fails.
    FailMember,
    /// All faults of the disk end.
    MendDisk,
    /// The memory limit of server and daemon changes.
    LimitMemory,
}
