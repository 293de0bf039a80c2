//! The settings of a spindle and their bounds.

use alloc::vec::Vec;

use seekless_profile::DiskProfile;
use seekless_units::{Bytes, Lba, Nanos, words};
use seekless_wants::DoorLimits;
use serde::{Deserialize, Serialize};

use crate::constants::Constants;
use crate::drops;
use crate::memory::MemoryLimit;
use crate::{BitrateRule, Sizing, StreamConfig};

/// Everything is read in whole pages of this many bytes. Larger hardware pages are a multiple of it, and the
/// driver reads whole hardware pages anyway.
pub use seekless_wants::PAGE;

/// The prefetch size of the paper (\[L\] 6, "unless otherwise specified"), good for the drives of its time.
pub const DEFAULT_PREFETCH: Bytes = Bytes::mib(2);

/// Part of the disk's time that file sets have at least. At half of it a file set beside a saturated disk
/// takes twice as long; at double the others lose a fifth of the disk instead of a tenth.
pub const DEFAULT_SHARE: f64 = 0.1;

/// Most pieces a part of the device has at once, most that join reads of the kernel's, and most parts: no
/// more spindles are behind one device.
pub const IN_FLIGHT_MAX: usize = 64;

/// What the engine does, in the terms of \[L\] 3.2.2 and 6.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing: every request passes.
    Off,
    /// Nothing, but callers report their latencies: "simple request tracking".
    Track,
    /// One read at a time, as long as asked: "prefetch-free serialization".
    Serialise,
    /// Reads are extended but not held back: "serialization-free prefetching". Live, the shim does it in the
    /// caller's own thread; here every piece is submitted at once.
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

/// In which order the queue of a disk is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderKind {
    /// As they came, as in \[L\].
    Fifo,
    /// By rising disk address, then from the lowest again: [`crate::Sweep`].
    #[default]
    Sweep,
}

words! { OrderKind: Fifo = "fifo", Sweep = "sweep" }

/// How long a client may wait because pieces are long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LongestWait {
    /// As long as if every reader waited for pieces of the kernel's own read-ahead, or of sixteen times what
    /// the disk transfers in one switch if that is more. So the fewer are blocked, the longer pieces may be.
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

/// The read-ahead that Linux 6.17 and later give a hard disk: twice its largest request.
pub(crate) const KERNEL_READ_AHEAD: Bytes = Bytes::kib(2560);

/// Settings of reading ahead of need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AheadConfig {
    /// How streams are recognised.
    pub streams: StreamConfig,
    /// Most bytes fetched and not yet read, of all streams of the disk; `None`: from the memory and what is
    /// observed ([`crate::memory`]).
    pub budget: Option<Bytes>,
    /// Slack added to twice the backlog of the disk: covers a neighbour's burst and the client's own jitter.
    pub slack: Nanos,
    /// How long a client may wait because pieces are long.
    pub longest_wait: LongestWait,
    /// Whether what has arrived is pinned until it is read.
    pub hold: bool,
    /// Most files kept open for their streams. A driver that has many descriptors sets more.
    pub files_max: usize,
}

impl Default for AheadConfig {
    fn default() -> AheadConfig {
        AheadConfig {
            streams: StreamConfig::default(),
            budget: None,
            slack: Nanos::from_secs(1),
            longest_wait: LongestWait::Auto,
            hold: true,
            files_max: 2048,
        }
    }
}

/// Settings of one engine. [`Config::normalised`] brings absurd values into range instead of refusing them: a
/// policy must stay bounded whatever it is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What to do at all.
    pub mode: Mode,
    /// The order of the queue.
    pub order: OrderKind,
    /// How far a read is extended, counted from its first byte, if `sizing` is fixed. At least one page, at
    /// most `read_max`.
    pub prefetch: Bytes,
    /// What decides how far a read is extended, in the modes that extend it.
    pub sizing: Sizing,
    /// Size that an automatic one starts with; `None`: from the disk's profile and the memory
    /// ([`seekless_sizing::start_size`]).
    pub start_size: Option<Bytes>,
    /// The part of that for streams of less than the highest bitrate.
    pub scale: BitrateRule,
    /// Whether what a client shows of its bitrate counts for that, where it was not told. It is uncertain by
    /// a factor of two.
    pub scale_by_observed: bool,
    /// Bitrate of every stream, bytes a second, where it is known beforehand. Otherwise it is what was told
    /// of a file ([`crate::Event::Bitrate`]), else what its reader shows.
    pub bitrate: Option<u64>,
    /// What was measured of the disk; `None`: nothing, and [`DiskProfile::assumed`] stands for it.
    pub profile: Option<DiskProfile>,
    /// The machine's memory at the start.
    pub memory: MemoryLimit,
    /// The constants of the read path.
    pub constants: Constants,
    /// Longest single read, and the most of one request that is waited for. Longer requests are served to
    /// this bound and the rest left to the caller. 1 page to 1 GiB.
    pub read_max: Bytes,
    /// Pieces that each part of the device is to have at once in the serialising modes: 1 for one spindle,
    /// more for a set of spindles behind one address space. 1 to 64. One spindle given two seeks between
    /// them; a set given one leaves spindles idle.
    pub in_flight: usize,
    /// Whether the number is found by trial while the device is busy ([`seekless_profile::LoadTrial`]), until
    /// it is told ([`crate::Event::InFlight`]). Only in the serialising modes.
    pub find_in_flight: bool,
    /// Where parts of the device begin that have heads of their own, the first part (at address 0) left out:
    /// members of a linear set, actuators. Each part has a queue and a sweep of its own. Rising, at most 63.
    pub parts: Vec<Lba>,
    /// Reads that may follow one another closely in the serialising modes, at least 1 (strictly serial). With
    /// 2 or more the next read beyond `in_flight` is submitted once no more than `overlap` bytes for each of
    /// those are missing.
    pub reads_in_flight: usize,
    /// See `reads_in_flight`. Large enough that the next command is queued when the last one of the piece
    /// ends, small enough that the scheduler and the drive have nothing to interleave.
    pub overlap: Bytes,
    /// Small reads that each part of the device has at once in the serialising modes, each at most
    /// [`seekless_wants::PIECE`] long: none takes long, and the drive orders them better than a sweep does,
    /// by its rotation. 1 to 64.
    pub small_in_flight: usize,
    /// Most requests waiting at once, and most pieces queued. At least 1.
    pub queue_max: usize,
    /// Answer as soon as the requested bytes are in memory; otherwise at the end of the whole read, as \[L\]
    /// does.
    pub answer_early: bool,
    /// Part of the disk's time that file sets have at least while they wait for it, 0 to 1
    /// ([`crate::Demand::file_set`]).
    pub share: f64,
    /// Read before it is needed: follow streams through reads that hit, queue their next pieces under
    /// deadlines. Only in mode `both`; `None` reads on a miss only, as the papers do.
    pub ahead: Option<AheadConfig>,
    /// A request that waited this long is answered `Pass(TooLate)`, whatever its disk does.
    pub wait_max: Nanos,
    /// Give up after this long without disk progress; callers then read for themselves. While reads do come,
    /// a caller is better off waiting: one that reads for itself takes 128 KiB at a time, and makes the disk
    /// seek for all the others.
    pub stall_max: Nanos,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mode: Mode::Both,
            order: OrderKind::Sweep,
            prefetch: DEFAULT_PREFETCH,
            sizing: Sizing::Fixed,
            start_size: None,
            scale: BitrateRule::Same,
            scale_by_observed: false,
            bitrate: None,
            profile: None,
            memory: MemoryLimit::default(),
            constants: Constants::default(),
            // Four times the paper's prefetch size: a single read() of several MiB is still served in one
            // piece.
            read_max: Bytes::mib(8),
            // Strictly serial. With two, the drive's own queue mixes the pieces where they meet, which costs
            // more than the gap between two pieces.
            reads_in_flight: 1,
            in_flight: 1,
            find_in_flight: false,
            parts: Vec::new(),
            // With two: about 2 ms of media time.
            overlap: Bytes::kib(256),
            // As the papers have it.
            small_in_flight: 1,
            // As many shims as a daemon has by default. With fewer, clients that come back all at once are
            // passed on, and make the disk seek.
            queue_max: 4096,
            answer_early: true,
            share: DEFAULT_SHARE,
            ahead: None,
            // Longer than a sweep over all the pieces of a server that has just been restarted, and shorter
            // than a shim waits (60 s).
            wait_max: Nanos::from_secs(55),
            // Long enough for a disk's own error recovery.
            stall_max: Nanos::from_secs(30),
        }
    }
}

impl Config {
    /// Whether reads that hit should be reported ([`crate::Event::Access`]): streams are followed through
    /// them, and an automatic size is scored by the part of all reads that missed (\[A\] section 4).
    pub fn hears_hits(&self) -> bool {
        self.mode == Mode::Both && (self.ahead.is_some() || matches!(self.sizing, Sizing::Auto(_)))
    }

    /// Whether streams are followed, and read ahead for before they miss.
    pub fn follows(&self) -> bool {
        self.mode == Mode::Both && self.ahead.is_some()
    }

    /// How long the driver keeps a file open after its last use, and how long a door passes on reads of it:
    /// until a stream there would be over and what was given back behind it has left memory, 41 s by default.
    /// Zero where reads that hit are not heard of. It follows from [`crate::StreamConfig::idle`]. Half: a
    /// viewer that is late for a segment begins anew. Double: an `umount` waits twice as long.
    pub fn open_after_use(&self) -> Nanos {
        if !self.hears_hits() {
            return Nanos::ZERO;
        }
        let ahead = self.ahead.as_ref();
        ahead.map_or_else(|| StreamConfig::default().idle, |ahead| ahead.streams.idle)
            + drops::given_back_after()
    }

    /// Whether what has arrived is pinned until it is read.
    pub fn pins(&self) -> bool {
        self.follows() && self.ahead.as_ref().is_some_and(|ahead| ahead.hold)
    }

    /// The bounds of what a door has brought in for one call.
    pub fn limits(&self) -> DoorLimits {
        let prefetch = self.mode.prefetches().then_some(self.prefetch.0);
        DoorLimits { read_max: self.read_max.0, prefetch }
    }

    /// Most reads in flight at once in the serialising modes, beside those that join reads of the kernel's
    /// ([`IN_FLIGHT_MAX`]).
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
        // README, docs/DAEMON.md, docs/OBSERVE.md and docs/SECURITY.md say so.
        assert_eq!(auto.open_after_use(), Nanos::from_secs(41));
        let mut shorter = AheadConfig::default();
        shorter.streams.idle = Nanos::from_secs(5);
        assert_eq!(Config { ahead: Some(shorter), ..auto.clone() }.open_after_use(), Nanos::from_secs(16));
        assert_eq!(Config { mode: Mode::Serialise, ..auto }.open_after_use(), Nanos::ZERO);
    }
}
