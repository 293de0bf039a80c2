//! The settings of one disk's engine, and their bounds.

use alloc::vec::Vec;

use seekless_base::wants::DoorLimits;
use seekless_base::{Bytes, Lba, Nanos, words};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::constants::Constants;
use crate::drops;
use crate::memory::MemoryLimit;
use crate::profile::DiskProfile;
use crate::{BitrateRule, Sizing, StreamConfig};

/// Everything is read in whole pages of this many bytes. Larger hardware pages are a multiple of it, and the
/// driver reads whole hardware pages anyway.
pub use seekless_base::wants::PAGE;

/// The prefetch size of the paper (\[L\] 6, "unless otherwise specified"), good for the drives of its time.
pub const DEFAULT_PREFETCH: Bytes = Bytes::mib(2);

/// Minimum share of the disk's time that file sets have. At half, a file set beside a saturated disk takes
/// twice as long; at double, other readers lose a fifth of the disk instead of a tenth.
pub const DEFAULT_SHARE: f64 = 0.1;

/// Minimum share of the disk's time that writers have while they wait: readers and writers alike. With a
/// writer's part among the clients that wait instead, one writer beside a hundred readers has no hundredth.
/// At half, a writer that needs a third of the disk's time falls behind; at nearly double
/// ([`WRITERS_MAX`]), a copy leaves a tenth to the readers.
pub const DEFAULT_WRITERS: f64 = 0.5;

/// Largest share of writers. Beyond it a writer that never stops would keep clients waiting until they are
/// passed ([`Config::wait_max`]).
pub const WRITERS_MAX: f64 = 0.9;

/// Bound on the pieces in flight on one part of the device, on the reads that join the kernel's, and on the
/// number of parts. No device has more spindles.
pub const IN_FLIGHT_MAX: usize = 64;

/// Maximum bytes of small reads in flight on each part of the device ([`Config::small_in_flight`]): about
/// as much as a piece, for which others wait as long. Each is at most a quarter of it, which the kernel
/// sends as one command (1,280 KiB on a hard disk), so the drive cannot interleave it with others. At half,
/// small files are read a twentieth to a tenth slower. At double, clients and writers wait up to a half
/// longer.
pub const SMALL_READS: u64 = 4 << 20;

/// What the engine does, in the terms of \[L\] 3.2.2 and 6.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Pass every request.
    Off,
    /// Pass every request; callers report their latencies ("simple request tracking").
    Track,
    /// One read at a time, as long as requested ("prefetch-free serialization").
    Serialise,
    /// Reads are extended but not queued ("serialization-free prefetching"). On a real machine the shim does
    /// this in the caller's thread; here every piece is submitted at once.
    Prefetch,
    /// One read at a time, extended to the prefetch size.
    #[default]
    Both,
}

words! {
    Mode: Off = "off", Track = "track", Serialise = "serialise" | "serialize",
    Prefetch = "prefetch", Both = "both"
}

impl Mode {
    /// Whether the number of reads in flight is bounded to [`Config::flights_max`].
    pub const fn serialises(self) -> bool {
        matches!(self, Mode::Serialise | Mode::Both)
    }

    /// Whether reads are extended to the prefetch size.
    pub const fn prefetches(self) -> bool {
        matches!(self, Mode::Prefetch | Mode::Both)
    }
}

/// The order in which the queue of a disk is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderKind {
    /// By arrival, as in \[L\].
    Fifo,
    /// By rising disk address, then from the lowest again ([`crate::Sweep`]).
    #[default]
    Sweep,
}

words! { OrderKind: Fifo = "fifo", Sweep = "sweep" }

/// Maximum time that a client waits for the pieces of other clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LongestWait {
    /// As long as if every active reader waited for pieces of six times what the disk transfers in one
    /// switch. Pieces may be twice that while each reader still has a turn within a second
    /// ([`crate::constants::Constants`]). The fewer clients are blocked, the longer pieces may be.
    #[default]
    Auto,
    /// At most this time, if the disk can keep it; else pieces are what it transfers in one switch.
    Bound(Nanos),
    /// No bound: only throughput counts.
    Off,
}

impl core::str::FromStr for LongestWait {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<LongestWait, &'static str> {
        match text {
            "auto" => Ok(LongestWait::Auto),
            "off" => Ok(LongestWait::Off),
            time => {
                let range = Nanos::from_millis(1)..=Nanos::from_secs(3600);
                let time = time.parse().ok().filter(|time| range.contains(time));
                time.map(LongestWait::Bound).ok_or("write a time of 1ms to 1h, such as 2s, or auto, or off")
            }
        }
    }
}

impl core::fmt::Display for LongestWait {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            LongestWait::Auto => f.write_str("auto"),
            LongestWait::Bound(time) => write!(f, "{time}"),
            LongestWait::Off => f.write_str("off"),
        }
    }
}

/// Settings of reading ahead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct AheadConfig {
    /// How streams are recognised.
    pub streams: StreamConfig,
    /// Maximum of bytes fetched and not yet read, over all streams of the disk; `None`: derived from memory
    /// and observation ([`crate::memory`]).
    pub budget: Option<Bytes>,
    /// Added to twice the backlog of the disk to start a read early enough. It covers a burst of another
    /// stream and the jitter of the client.
    #[default(Nanos::from_secs(1))]
    pub slack: Nanos,
    /// Maximum time that a client waits because pieces are long.
    #[default(LongestWait::Auto)]
    pub longest_wait: LongestWait,
    /// Read for all streams at once, as much as the budget holds, and then not until one of them is about to
    /// run dry, so that the disk may stop meanwhile.
    pub quiet: bool,
    /// Maximum number of files kept open for their streams. A driver that has many descriptors sets more.
    #[default(2048)]
    pub files_max: usize,
}

/// Settings of one engine. [`Config::normalised`] brings values into range instead of refusing them, because
/// a policy must stay bounded with any input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What the engine does.
    #[default(Mode::Both)]
    pub mode: Mode,
    /// The order of the queue.
    #[default(OrderKind::Sweep)]
    pub order: OrderKind,
    /// How far a read is extended, counted from its first byte, with fixed sizing. One page to `read_max`.
    #[default(DEFAULT_PREFETCH)]
    pub prefetch: Bytes,
    /// The algorithm for the prefetch size, in modes that prefetch.
    #[default(Sizing::Fixed)]
    pub sizing: Sizing,
    /// Start value of an automatic size; `None`: derived from the disk's profile and the memory
    /// ([`crate::sizing::start_size`]).
    pub start_size: Option<Bytes>,
    /// How the size is scaled for streams below the highest bitrate.
    #[default(BitrateRule::Same)]
    pub scale: BitrateRule,
    /// Whether an observed bitrate counts for that when none was given. An observed bitrate may be wrong by a
    /// factor of two.
    pub scale_by_observed: bool,
    /// Bitrate of every stream in bytes a second, if known beforehand. Otherwise the file's bitrate
    /// ([`crate::Event::Bitrate`]), else the observed one.
    pub bitrate: Option<u64>,
    /// The measured profile of the disk; `None` means [`DiskProfile::assumed`].
    pub profile: Option<DiskProfile>,
    /// The machine's memory at start.
    pub memory: MemoryLimit,
    /// The constants of the read path ([`Constants`]).
    pub constants: Constants,
    /// Maximum length of one read, and of the part of a request that is served; the caller reads the rest
    /// itself. 1 page to 1 GiB.
    // Four times the paper's prefetch size, so that one read() of several MiB is still one piece.
    #[default(Bytes::mib(8))]
    pub read_max: Bytes,
    /// Pieces in flight on each part of the device in the serialising modes: 1 for one spindle, more for a
    /// set of spindles behind one address space. 1 to 64. With two, a single spindle seeks between them; with
    /// one, a set leaves spindles idle.
    #[default(1)]
    pub in_flight: usize,
    /// Whether this number is found by trial while the device is busy ([`crate::profile::LoadTrial`]),
    /// until [`crate::Event::InFlight`] gives it. Only in the serialising modes.
    pub find_in_flight: bool,
    /// Start addresses of the parts of the device with their own heads (members of a linear set, actuators),
    /// except the first part at address 0. Each part has its own queue and sweep. Rising, at most 63.
    pub parts: Vec<Lba>,
    /// Number of reads that may overlap in the serialising modes; 1 is strictly serial. With 2 or more, the
    /// next read beyond `in_flight` is submitted once at most `overlap` bytes of each read in flight are
    /// missing.
    // Strictly serial. With two, the drive interleaves the pieces where they meet, which costs more
    // than the gap between two pieces.
    #[default(1)]
    pub reads_in_flight: usize,
    /// See `reads_in_flight`. Large enough that the next command is queued before the last one of the piece
    /// ends, small enough that scheduler and drive have nothing to interleave.
    // If `reads_in_flight` is 2, this is about 2 ms of media time.
    #[default(Bytes::kib(256))]
    pub overlap: Bytes,
    /// Number of small reads in flight on each part of the device in the serialising modes, of at most
    /// [`SMALL_READS`] bytes in all and a quarter of that each. None takes long, and the drive orders them
    /// better than a sweep because it knows its rotation. 1 to 64.
    // As in the papers.
    #[default(1)]
    pub small_in_flight: usize,
    /// Maximum number of waiting requests, and of queued pieces. At least 1.
    // The default number of shims of a daemon. With fewer, clients that return all at once pass, and
    // make the disk seek.
    #[default(4096)]
    pub queue_max: usize,
    /// Whether to answer as soon as the requested bytes are in memory. Otherwise at the end of the whole
    /// read, as \[L\] does.
    #[default(true)]
    pub answer_early: bool,
    /// Minimum share of the disk's time for file sets while they wait for it, 0 to 1
    /// ([`crate::Demand::file_set`]).
    #[default(DEFAULT_SHARE)]
    pub share: f64,
    /// Minimum share of the disk's time for writes while they wait for it, 0 to [`WRITERS_MAX`]
    /// ([`crate::Event::Writes`]). `None`: reads take no account of writes. Only in the serialising modes.
    #[default(Some(DEFAULT_WRITERS))]
    pub writers: Option<f64>,
    /// Settings of reading ahead: follow streams through reads that hit, and queue their next pieces with
    /// deadlines. Only in mode `both`. `None` reads on a miss only, as the papers do.
    pub ahead: Option<AheadConfig>,
    /// A request that has waited this long is answered `Pass(TooLate)`, whatever the disk does.
    // Longer than a sweep over all pieces of a server just restarted, and shorter than the shim's own
    // timeout (60 s).
    #[default(Nanos::from_secs(55))]
    pub wait_max: Nanos,
    /// Give up after this long without disk progress; callers then read for themselves. While reads arrive, a
    /// caller should wait: on its own it reads 128 KiB at a time and makes the disk seek for all others.
    // Long enough for a disk's error recovery.
    #[default(Nanos::from_secs(30))]
    pub stall_max: Nanos,
}

impl Config {
    /// Whether reads that hit should be reported ([`crate::Event::Access`]). Streams are followed through
    /// them, and an automatic size is scored by the share of reads that missed (\[A\] section 4).
    pub fn hears_hits(&self) -> bool {
        self.mode == Mode::Both && (self.ahead.is_some() || matches!(self.sizing, Sizing::Auto(_)))
    }

    /// Whether streams are followed and read ahead before they miss.
    pub fn follows(&self) -> bool {
        self.mode == Mode::Both && self.ahead.is_some()
    }

    /// How long the driver keeps a file open after its last use, and how long a door forwards reads of it. By
    /// then a stream there has ended and the bytes behind it have left memory; 41 s by default. Zero if hits
    /// are not reported. It follows from [`crate::StreamConfig::idle`]. At half, a viewer that is late for a
    /// segment starts a new stream; at double, an `umount` waits twice as long.
    pub fn open_after_use(&self) -> Nanos {
        if !self.hears_hits() {
            return Nanos::ZERO;
        }
        let ahead = self.ahead.as_ref();
        ahead.map_or_else(|| StreamConfig::default().idle, |ahead| ahead.streams.idle)
            + drops::dropped_after()
    }

    /// The bounds of one call's request.
    pub fn limits(&self) -> DoorLimits {
        let prefetch = self.mode.prefetches().then_some(self.prefetch.0);
        DoorLimits { read_max: self.read_max.0, prefetch }
    }

    /// Maximum number of reads in flight in the serialising modes, without those that join reads of the
    /// kernel's ([`IN_FLIGHT_MAX`]).
    pub fn flights_max(&self) -> usize {
        let pieces = (self.in_flight + self.reads_in_flight).saturating_sub(1).max(self.small_in_flight);
        pieces.saturating_mul(self.parts.len() + 1)
    }

    /// The same settings with every value inside its range.
    pub fn normalised(mut self) -> Config {
        let page = Bytes(PAGE);
        self.read_max = Bytes(self.read_max.clamp(page, Bytes::gib(1)).0 / PAGE * PAGE);
        self.prefetch = self.prefetch.clamp(page, self.read_max);
        self.reads_in_flight = self.reads_in_flight.max(1);
        self.in_flight = self.in_flight.clamp(1, IN_FLIGHT_MAX);
        self.small_in_flight = self.small_in_flight.clamp(1, IN_FLIGHT_MAX);
        self.parts.retain(|start| start.0 > 0);
        self.parts.sort_unstable();
        self.parts.dedup();
        self.parts.truncate(IN_FLIGHT_MAX - 1);
        self.queue_max = self.queue_max.max(1);
        self.share = if self.share.is_nan() { DEFAULT_SHARE } else { self.share.clamp(0.0, 1.0) };
        let writers =
            |share: f64| if share.is_nan() { DEFAULT_WRITERS } else { share.clamp(0.0, WRITERS_MAX) };
        self.writers = self.writers.map(writers);
        self.scale = self.scale.normalised();
        self.constants = self.constants.normalised();
        if let Sizing::Auto(params) = &mut self.sizing {
            *params = params.normalised();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_open_until_what_was_given_back_behind_their_last_stream_is_gone() {
        let auto = Config { ahead: Some(AheadConfig::default()), ..Config::default() };
        // Stated in README, docs/DAEMON.md, docs/OBSERVE.md and docs/SECURITY.md.
        assert_eq!(auto.open_after_use(), Nanos::from_secs(41));
        let mut shorter = AheadConfig::default();
        shorter.streams.idle = Nanos::from_secs(5);
        assert_eq!(Config { ahead: Some(shorter), ..auto.clone() }.open_after_use(), Nanos::from_secs(16));
        assert_eq!(Config { mode: Mode::Serialise, ..auto }.open_after_use(), Nanos::ZERO);
    }
}
