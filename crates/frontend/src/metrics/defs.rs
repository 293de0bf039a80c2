//! Every metric: one definition each. Names follow Prometheus: base units, the unit last, `_total` for
//! counters.
//!
//! A stable metric keeps its name, unit and labels until the next major version. Others may change in any
//! release.

use seekless_base::words;

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count, or a state.
    None,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// A fraction of one.
    Ratio,
}

// The ending of a name; empty for a number.
words! { Unit: None = "", Bytes = "bytes", Seconds = "seconds", Ratio = "ratio" }

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, from the start of the process.
    Counter,
    /// A present value.
    Gauge,
    /// A distribution.
    Histogram,
    /// Facts, as labels of the value 1.
    Info,
}

words! { Kind: Counter = "counter", Gauge = "gauge", Histogram = "histogram", Info = "info" }

/// Whether its name and meaning may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Not until the next major version.
    Stable,
    /// In any release.
    Unstable,
}

// The words on the page.
words! { Stability: Stable = "stable", Unstable = "may change" }

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// Without unit and suffix.
    pub base: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its kind.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it means: a sentence.
    pub meaning: &'static str,
    /// Whether it may change.
    pub stability: Stability,
}

impl Metric {
    /// The name of its samples: unit and suffix included.
    pub fn name(&self) -> String {
        let mut name = self.family();
        match self.kind {
            Kind::Counter => name.push_str("_total"),
            Kind::Info => name.push_str("_info"),
            Kind::Gauge | Kind::Histogram => {}
        }
        name
    }

    /// The name of its family: with the unit, without the suffix.
    pub fn family(&self) -> String {
        match self.unit {
            Unit::None => self.base.to_string(),
            unit => format!("{}_{}", self.base, unit.name()),
        }
    }
}

macro_rules! metrics {
    ($($id:ident: $base:literal, $unit:ident, $kind:ident, [$($label:literal),*], $stability:ident, $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub static $id: Metric = Metric {
                base: $base,
                unit: Unit::$unit,
                kind: Kind::$kind,
                labels: &[$($label),*],
                meaning: $meaning,
                stability: Stability::$stability,
            };
        )*
        /// Every metric, in the order in which they are written.
        pub static ALL: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    BUILD: "seekless_build", None, Info, ["version", "door"], Stable,
        "Version of the program, and the running command: daemon, watch, observe or serve.";
    UPTIME: "seekless_uptime", Seconds, Gauge, [], Stable,
        "Time since the process started.";
    ENABLED: "seekless_enabled", None, Gauge, [], Stable,
        "1 while reads are served; 0 while `seekless prove` makes every call pass.";

    REQUESTS: "seekless_disk_requests", None, Counter, ["disk"], Stable,
        "Calls that missed the page cache and reached the queue of the disk.";
    RESIDENT: "seekless_disk_requests_resident", None, Counter, ["disk"], Stable,
        "Of the requests, those answered with their bytes in memory.";
    ATTACHED: "seekless_disk_requests_attached", None, Counter, ["disk"], Unstable,
        "Of the requests, those covered by a piece that was queued or being read already.";
    PASSED: "seekless_disk_requests_passed", None, Counter, ["disk", "reason"], Stable,
        "Of the requests, those that passed: their callers read for themselves.";
    WANTED: "seekless_disk_requested", Bytes, Counter, ["disk"], Stable,
        "Bytes that the requests asked for.";
    DELIVERED: "seekless_disk_delivered", Bytes, Counter, ["disk"], Stable,
        "Bytes that clients read from files on this disk, hit or miss, as far as doors report reads.";
    CACHED: "seekless_disk_cache_hit", Bytes, Counter, ["disk"], Unstable,
        "Of the delivered bytes, those in memory for another reason than an unused piece.";
    READS: "seekless_disk_reads", None, Counter, ["disk"], Stable,
        "Pieces submitted to the disk.";
    READ: "seekless_disk_read", Bytes, Counter, ["disk"], Stable,
        "Bytes of the pieces submitted to the disk, including bytes already in memory.";
    READS_FAILED: "seekless_disk_reads_failed", None, Counter, ["disk"], Stable,
        "Pieces that the disk failed to read.";
    AHEAD: "seekless_disk_reads_ahead", None, Counter, ["disk"], Stable,
        "Pieces queued ahead of need.";
    DROPPED: "seekless_disk_pieces_dropped", None, Counter, ["disk"], Unstable,
        "Pieces dropped before they were read, because no client waited for them.";
    HELD_BACK: "seekless_disk_pieces_held_back", None, Counter, ["disk"], Unstable,
        "How often the next piece found no room in the budget.";
    BUSY: "seekless_disk_busy", Seconds, Counter, ["disk"], Stable,
        "Time with at least one piece in flight.";
    TRANSFER: "seekless_disk_transfer", Seconds, Counter, ["disk"], Unstable,
        "Of the busy time, the time for the bytes read at the measured media rate; the rest is positioning. Only for a disk with a profile.";
    STALLED: "seekless_disk_gap", Seconds, Counter, ["disk"], Unstable,
        "Time in which the disk was idle with a piece queued.";
    WAIT: "seekless_disk_wait", Seconds, Histogram, ["disk"], Stable,
        "Time from a request to its answer, for requests answered with their bytes in memory.";
    SERVICE: "seekless_disk_service", Seconds, Histogram, ["disk"], Stable,
        "Time from the submission of a piece to its end.";
    EVICTED: "seekless_disk_evicted_unused", Bytes, Counter, ["disk"], Stable,
        "Bytes read ahead that the kernel evicted before a client used them.";
    WASTED: "seekless_disk_wasted", Bytes, Counter, ["disk"], Stable,
        "Bytes read ahead that no client used.";
    RELEASED: "seekless_disk_released", Bytes, Counter, ["disk"], Unstable,
        "Bytes given back to the kernel after their last client.";
    STREAMS: "seekless_disk_streams", None, Gauge, ["disk"], Stable,
        "Streams that Seekless follows.";
    UNREAD: "seekless_disk_unread", Bytes, Gauge, ["disk"], Stable,
        "Bytes read ahead and not yet used.";
    BUDGET: "seekless_disk_budget", Bytes, Gauge, ["disk"], Stable,
        "Most bytes that may be read ahead and not yet used.";
    SIZE: "seekless_disk_prefetch_size", Bytes, Gauge, ["disk"], Stable,
        "The prefetch size in force.";
    WAITING: "seekless_disk_requests_waiting", None, Gauge, ["disk"], Stable,
        "Requests that wait for the disk.";
    QUEUED: "seekless_disk_pieces_queued", None, Gauge, ["disk"], Stable,
        "Pieces in the queue.";
    IN_FLIGHT: "seekless_disk_pieces_in_flight", None, Gauge, ["disk"], Stable,
        "Pieces that the disk is reading.";

    PROGRAM_BUSY: "seekless_disk_program_busy", Seconds, Counter, ["disk", "program", "group"], Unstable,
        "Of the busy time, the part spent for a program; the ten programs that cost the disk most.";
    PROGRAM_READ: "seekless_disk_program_read", Bytes, Counter, ["disk", "program", "group"], Unstable,
        "Bytes that the disk delivered for a program; the same programs.";
    PROGRAM_SEEKS: "seekless_disk_program_seeks", None, Counter, ["disk", "program", "group"], Unstable,
        "Pieces for a program that did not begin where the one before ended; the same programs.";

    PAUSES: "seekless_disk_pauses", None, Counter, ["disk"], Unstable,
        "Pieces submitted after ten seconds or more without one.";
    SPIN_UPS: "seekless_disk_spin_ups", None, Counter, ["disk"], Unstable,
        "Times that the disk was woken up: seen to sleep before it was used or, if it does not tell, pieces after a pause that took seconds.";
    AWAKE: "seekless_disk_awake", Seconds, Counter, ["disk"], Unstable,
        "Time in which the disk was not known to sleep. Only with `--quiet`.";

    FILE_SET_BUSY: "seekless_disk_file_set_busy", Seconds, Counter, ["disk"], Unstable,
        "Of the busy time, the part spent on file sets.";
    FILE_SET_TAKEN: "seekless_disk_file_set_taken", Bytes, Counter, ["disk"], Unstable,
        "Bytes read for file sets and taken by their programs.";
    FILE_SET_LEFT: "seekless_disk_file_set_left", Bytes, Counter, ["disk"], Unstable,
        "Bytes asked for by file sets that no program took.";
    FILE_SET_UNTAKEN: "seekless_disk_file_set_untaken", Bytes, Gauge, ["disk"], Unstable,
        "Bytes asked for by file sets and not yet taken.";
    WRITERS_BUSY: "seekless_disk_writes_busy", Seconds, Counter, ["disk"], Unstable,
        "Time that the disk had for writes while some waited and it was read.";
    WRITERS_WRITTEN: "seekless_disk_writes", Bytes, Counter, ["disk"], Unstable,
        "Bytes written while the disk was read.";
    WRITERS_WAITING: "seekless_disk_writes_waiting", None, Gauge, ["disk"], Unstable,
        "Write requests that wait or are in flight.";
    WRITERS_HELD_BACK: "seekless_disk_writes_held_back", None, Counter, ["disk"], Unstable,
        "Times that a piece was held back because it was the writers' turn.";

    DOOR_CALLS: "seekless_door_calls", None, Counter, ["door", "result"], Stable,
        "Calls that came through a door, by result.";
    DOOR_DELIVERED: "seekless_door_delivered", Bytes, Counter, [], Stable,
        "Bytes that servers read, hit or miss, as their shims report.";
    DOOR_WAITING: "seekless_door_calls_waiting", None, Gauge, [], Stable,
        "Calls that `seekless watch` holds now.";
    DOOR_OVERDUE: "seekless_door_calls_overdue", None, Counter, [], Stable,
        "Calls that `seekless watch` released because their time was up.";
    FILE_SETS: "seekless_file_sets", None, Gauge, [], Unstable,
        "Open file sets.";
    FILE_SETS_REFUSED: "seekless_file_sets_refused", None, Counter, [], Unstable,
        "File sets refused because a bound was reached.";
    FILE_SET_RANGES: "seekless_file_set_ranges", None, Counter, ["result"], Unstable,
        "Ranges of file sets, by result: read, in_memory, left.";
    CONNECTIONS: "seekless_connections", None, Gauge, [], Stable,
        "Open connections: of shims to the daemon, of clients to the HTTP server.";
    CONNECTIONS_ACCEPTED: "seekless_connections_accepted", None, Counter, [], Stable,
        "Connections accepted.";
    CONNECTIONS_REFUSED: "seekless_connections_refused", None, Counter, ["reason"], Stable,
        "Connections closed at once, by reason.";
    FRAMES_REFUSED: "seekless_frames_refused", None, Counter, [], Unstable,
        "Invalid frames from shims.";
    REPORTS: "seekless_reports", None, Counter, [], Stable,
        "Reads that shims reported after the fact.";
    REPORTS_DROPPED: "seekless_reports_dropped", None, Counter, ["reason"], Stable,
        "Reads that shims could not report, or whose reports were dropped, by reason.";
    RINGS: "seekless_rings", None, Gauge, [], Unstable,
        "Rings of reports, one for each user.";
    WATCH_RESTARTS: "seekless_watch_restarts", None, Counter, [], Stable,
        "Restarts of the worker of `seekless watch`.";
    OBSERVE_EVENTS: "seekless_observe_events", None, Counter, ["result"], Stable,
        "Events of the page cache, by result: heard, lost, own (of Seekless itself), told_otherwise (a shim reports the read).";
    OBSERVE_READ: "seekless_observe_read", Bytes, Counter, [], Stable,
        "Bytes that programs read under the folders of `seekless observe`, hit or miss, in whole pages.";
    OBSERVE_FILES: "seekless_observe_files", None, Gauge, ["state"], Unstable,
        "Files that `seekless observe` follows (known), or in which it saw only unconnected reads (waiting).";
    HTTP_REQUESTS: "seekless_http_requests", None, Counter, [], Stable,
        "Requests that the HTTP server answered.";
    HTTP_BODY: "seekless_http_body", Bytes, Counter, [], Stable,
        "Bytes of bodies that the HTTP server handed to the kernel.";
    HTTP_BROKEN: "seekless_http_answers_broken", None, Counter, [], Stable,
        "Answers of the HTTP server that were broken off.";
    HTTP_SLOW: "seekless_http_slow_calls", None, Counter, [], Unstable,
        "Calls of event loops that sent from memory and took longer than five milliseconds.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_well_formed_and_there_once() {
        let mut seen = BTreeSet::new();
        for metric in ALL {
            let family = metric.family();
            assert!(seen.insert(family.clone()), "{family} is defined twice");
            assert!(family.starts_with("seekless_"), "{family}");
            assert!(family.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{family}");
            for suffix in ["_total", "_info", "_count", "_sum", "_bucket", "_created"] {
                assert!(!family.ends_with(suffix), "{family}: the format adds {suffix}");
            }
            for unit in ["_ms", "_milliseconds", "_kib", "_mib", "_percent"] {
                assert!(!family.ends_with(unit), "{family}: base units only");
            }
            assert!(metric.meaning.ends_with('.') && !metric.meaning.contains('\n'), "{family}");
        }
    }
}
