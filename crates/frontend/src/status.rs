//! The daemon's state as JSON, printed by `seekless daemon status --json` and read by experiments.
//!
//! Times are in milliseconds, sizes in bytes. Counts start with the daemon unless the name says "now" or
//! "max". What an older daemon does not report is 0 here.

use std::fmt;
use std::path::Path;

use seekless_base::{Bytes, Fault};
use seekless_engine::{BitratesReport, DiskReport, MetadataReport, Program};
use seekless_output::write_line;
use seekless_policy::memory::MemoryReport;
use serde::{Deserialize, Serialize};

/// Full status of the daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusReport {
    /// Version of the program.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Time since it started.
    pub uptime_ms: f64,
    /// Path of its socket.
    pub socket: String,
    /// `off`, `track`, `serialise`, `prefetch` or `both`.
    pub mode: String,
    /// The prefetch size: a size, `auto` or `competitive`.
    pub prefetch: String,
    /// The prefetch size in bytes: the fixed one, or the largest in use on any disk now; 0 before one is
    /// read.
    pub prefetch_bytes: u64,
    /// `fifo` or `sweep`.
    pub order: String,
    /// Whether all disks have one queue.
    pub single_queue: bool,
    /// Counters of the socket.
    pub counters: Counters,
    /// One for each queue, in the order they were first used.
    pub disks: Vec<DiskReport>,
    /// Calls reported by shims in mode `track`.
    pub calls: Vec<CallReport>,
    /// The door of `seekless watch`, if it is open.
    pub watch: Option<WatchReport>,
    /// The door of `seekless observe`, if it is open.
    pub observe: Option<ObserveReport>,
    /// Whether every call is passed, as requested by `seekless prove`.
    pub passes_all: bool,
    /// What servers read, as reported by their shims.
    pub delivered: DeliveryReport,
    /// What programs got of file sets; the disks' reports have their shares.
    pub file_sets: FileSetsReport,
    /// The trees whose metadata is kept in memory, if configured.
    pub metadata: Option<MetadataReport>,
    /// The table of bitrates, if there is one.
    pub bitrates: Option<BitratesReport>,
}

/// The account, for reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeliveryReport {
    /// Reads that shims reported.
    pub reads: u64,
    /// Bytes they took.
    pub bytes: u64,
    /// The reads that missed: upper edge of each bucket's wait in milliseconds, and count. Two significant
    /// digits.
    pub waits: Vec<(f64, u64)>,
}

/// What programs got of file sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSetsReport {
    /// File sets now.
    pub now: u64,
    /// File sets opened.
    pub begun: u64,
    /// File sets refused because a bound was reached.
    pub refused: u64,
    /// Ranges that were brought in from a disk.
    pub ranges_read: u64,
    /// Ranges that were in memory.
    pub ranges_in_memory: u64,
    /// Ranges left to their readers: not on a disk, not readable, or not in time.
    pub ranges_left: u64,
    /// Ranges added and not taken now.
    pub ranges_now: u64,
    /// Bytes of those that are queued, or in memory and not taken.
    pub bytes_now: u64,
}

/// Counters of the door of `seekless observe`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObserveReport {
    /// The folders observed.
    pub folders: Vec<String>,
    /// How the kernel reports them: `programs` or `samples` at tracepoints, or programs at the functions
    /// themselves, as `entries` or `probes` (before 6.11).
    pub attachment: String,
    /// Events of the page cache read, of any process, on the folders' file systems.
    pub events: u64,
    /// Events lost because the ring was full. Their reads were not seen, which has no other consequence.
    pub lost: u64,
    /// Events of the daemon's own reads.
    pub own: u64,
    /// Events of other Seekless processes, and of servers whose shim reports its reads to this daemon.
    pub told_otherwise: u64,
    /// Events of processes whose cgroup has a limit on the disk: nothing is read ahead for them.
    pub limited: u64,
    /// Calls and page faults that the events resulted in, with neighbours joined.
    pub reads: u64,
    /// Bytes of these reads, in whole pages.
    pub bytes: u64,
    /// Reads handed to the engine.
    pub accesses: u64,
    /// Misses of followed files that the kernel was still reading when the events were read; what follows
    /// them is ordered at once.
    pub missed: u64,
    /// Reads not handed to the engine because a bound was reached.
    pub dropped: u64,
    /// Files whose reads go to the engine, now.
    pub files_known: u64,
    /// Files with a few unconnected reads, now; they are not opened.
    pub files_waiting: u64,
    /// Searches for a file.
    pub looked_for: u64,
    /// Searches that found a file under the folders, on a disk that is served.
    pub found: u64,
    /// Searches that found a file outside the folders.
    pub outside: u64,
    /// Searches that found a file not on a disk with heads.
    pub not_a_disk: u64,
    /// Searches that found nothing.
    pub unknown: u64,
    /// Walks through the folders, to find files by their inode number.
    pub scans: u64,
    /// Times that the kernel's queue of opened files overflowed.
    pub opens_lost: u64,
    /// Times that the files of a file system were closed, so that it could be unmounted.
    pub released: u64,
}

/// Counters of the door of `seekless watch`. Each event is counted in exactly one of `own` to `held`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchReport {
    /// The folders watched.
    pub folders: Vec<String>,
    /// Times that the worker process was restarted before this one; its counts were lost.
    pub restarts: u64,
    /// Accesses announced by the kernel.
    pub events: u64,
    /// Own accesses to bytes that are not in memory.
    pub own: u64,
    /// Writes to bytes that are not in memory.
    pub writes: u64,
    /// Accesses to files outside the folders; such a file is not announced again for a while.
    pub outside: u64,
    /// Accesses beyond the end of the file, without length, or in a mode that reads nothing.
    pub nothing_to_do: u64,
    /// Accesses released at once because everything was in memory or in flight.
    pub hits: u64,
    /// Accesses to files not on a disk with heads; such a file is not announced again for a while.
    pub not_a_disk: u64,
    /// Accesses released at once because a bound was reached.
    pub passed_full: u64,
    /// Accesses of threads whose cgroup has a limit on the disk: neither blocked nor followed.
    pub limited: u64,
    /// Accesses blocked until the disk's thread answered or their time was up.
    pub held: u64,
    /// Accesses blocked now.
    pub held_now: u64,
    /// Accesses released because their time was up.
    pub overdue: u64,
    /// Mappings, and calls that send as much as their socket takes, for which only a prefetch size was
    /// brought in.
    pub cut: u64,
    /// Files not announced now because they are wholly in memory.
    pub ignored_now: u64,
    /// Times that a file was found wholly in memory.
    pub ignored: u64,
    /// Times that such a file was announced again because a page of it was gone.
    pub noticed: u64,
    /// Times that a file system's events were switched off for a moment, because only files in memory were
    /// read.
    pub pauses: u64,
}

/// Counters of the socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub connections_now: u64,
    /// Connections closed at once because a bound was reached.
    pub connections_over_bound: u64,
    /// Connections of users that may not connect.
    pub connections_not_admitted: u64,
    /// Requests for bytes.
    pub needs: u64,
    /// Requests answered at once because everything was in memory or in flight when they arrived.
    pub hits_on_arrival: u64,
    /// Requests passed because the mode reads nothing here.
    pub passed_mode: u64,
    /// Requests passed because the file is not on a disk with heads.
    pub passed_not_a_disk: u64,
    /// Requests passed because the descriptor or the range was invalid.
    pub passed_bad_request: u64,
    /// Requests passed because a disk thread could not take more.
    pub passed_full: u64,
    /// Requests passed because every call was, for a time.
    pub passed_all: u64,
    /// Requests passed because their user has its share of the queue.
    pub passed_share: u64,
    /// Requests passed because the cgroup of the caller has a limit on the disk.
    pub passed_limited: u64,
    /// Requests handed to a disk thread.
    pub queued: u64,
    /// Shims that disconnected while they waited.
    pub hang_ups: u64,
    /// Frames not understood.
    pub frames_refused: u64,
    /// Times that a user was muted because of its invalid frames.
    pub users_muted: u64,
    /// Connections of muted users, closed unread.
    pub connections_muted: u64,
    /// Keepalive frames sent.
    pub working_sent: u64,
    /// Reports of tracked calls that were dropped.
    pub tracked_dropped: u64,
    /// Rings now, one for each user.
    pub rings_now: u64,
    /// Rings replaced because of impossible indices.
    pub rings_replaced: u64,
    /// Times that a user got no ring because there were too many users.
    pub rings_refused: u64,
    /// Reads reported through rings.
    pub reports: u64,
    /// Reported reads not forwarded, because a disk thread could not take more.
    pub reports_dropped: u64,
    /// Reported reads of files that their user had not requested lately; not counted in `reports`.
    pub reports_unknown: u64,
    /// Reads not reported because a ring was full.
    pub ring_dropped: u64,
}

/// Tracked calls of one kind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CallReport {
    /// `read`, `sendfile`, ...
    pub call: String,
    /// Whether the bytes were in memory before the call.
    pub resident: bool,
    /// Number of calls.
    pub count: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// Arithmetic mean of their duration.
    pub mean_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// The distribution: duration in milliseconds, and the fraction of calls that took no longer, rising. Two
    /// significant digits.
    pub cdf: Vec<(f64, f64)>,
}

impl StatusReport {
    /// Writes it out: as one line of JSON to standard output or to this file, or to standard error for
    /// people.
    pub fn give(&self, json: Option<&Path>) -> Result<(), Fault> {
        match json {
            Some(to) => {
                let text = serde_json::to_string(self).map_err(|e| Fault::failed(e.to_string()))?;
                // A FIFO without a reader must block neither the statistics nor the end.
                let written = seekless_output::offer(to, seekless_output::json_escaped(text) + "\n");
                // Standard output may be a log on a full disk: no reason to stop serving.
                match written {
                    Ok(true) => Ok(()),
                    Ok(false) => {
                        tracing::warn!("nobody reads {}; the output is lost", to.display());
                        Ok(())
                    }
                    Err(_) if seekless_output::is_stdout(to) => Ok(()),
                    Err(fault) => Err(fault),
                }
            }
            None => {
                seekless_output::say_lines(&self.to_string());
                Ok(())
            }
        }
    }

    /// [`give`](StatusReport::give) while the daemon serves: a full disk is no reason to stop serving.
    pub fn give_while_serving(&self, json: Option<&Path>) {
        if let Err(fault) = self.give(json) {
            tracing::warn!("the statistics are not written: {fault}");
        }
    }

    /// The prefetch size in use, for people: `2MiB`, `auto, now 6.2 MiB`, `auto, now 2.0 to 6.2 MiB`, or
    /// `auto, nothing read yet`.
    fn in_force(&self) -> String {
        if !matches!(self.prefetch.as_str(), "auto" | "competitive") {
            return Bytes(self.prefetch_bytes).to_string();
        }
        let sizes = || self.disks.iter().map(|d| d.size.size);
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        let now = match (sizes().min().map(mib), sizes().max().map(mib)) {
            (Some(least), Some(most)) if least == most => format!("now {most} MiB"),
            (Some(least), Some(most)) => format!("now {least} to {most} MiB"),
            _ => "nothing read yet".into(),
        };
        format!("{}, {now}", self.prefetch)
    }
}

/// What is kept in memory now, for people.
pub fn horizon(memory: &MemoryReport) -> String {
    match memory.horizon_s {
        None => "memory is not short".into(),
        // As far as is known, no client will use what left.
        Some(horizon) if horizon > 1e6 => "memory is short: bytes without a client are given back".into(),
        Some(horizon) => format!("memory is short: bytes used again within {horizon:.0} s are kept"),
    }
}

/// Programs named in a line of the status.
const PROGRAMS_SAID: usize = 3;

/// A program, for people: its name, and its control group if that has another name.
pub fn program_name(program: &Program) -> String {
    let Program { name, group, .. } = program;
    match (name.is_empty(), group.is_empty() || group.strip_suffix(".service") == Some(name)) {
        (true, _) => "(not known)".into(),
        (false, true) => name.clone(),
        (false, false) => format!("{name} ({group})"),
    }
}

/// For people.
impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counters;
        if self.passes_all {
            write_line!(f, "every call is passed: `seekless prove` measures, or has left it so")?;
        }
        write_line!(
            f,
            "daemon {} at {}: mode {}, prefetch {}, order {}, up {:.0} s",
            self.pid,
            self.socket,
            self.mode,
            self.in_force(),
            self.order,
            self.uptime_ms / 1e3
        )?;
        write_line!(
            f,
            "requests of shims {}: {} already in memory, {} queued for a disk, {} for files on no disk, {} passed by mode, \
             {} refused; {} connections open",
            c.needs,
            c.hits_on_arrival,
            c.queued,
            c.passed_not_a_disk,
            c.passed_mode,
            c.passed_full + c.passed_share + c.passed_limited + c.passed_bad_request,
            c.connections_now
        )?;
        for d in &self.disks {
            write_line!(
                f,
                "{}: {} pieces of {:.1} MB, {:.1} MB of it from the disk, {:.1} ms each and {:.2} ms between them, {} failed; {} requests \
                 wait now (most {}), a wait took {:.1} ms on average, p99 {:.1} ms",
                d.name,
                d.reads,
                Bytes(d.bytes_read).as_mb(),
                Bytes(d.ledger.disk).as_mb(),
                d.service.mean_ms,
                d.gap.mean_ms,
                d.reads_failed,
                d.waiting_now,
                d.waiting_max,
                d.wait.mean_ms,
                d.wait.p99_ms
            )?;
            let m = &d.memory;
            write_line!(
                f,
                "{}: {:.0} MiB of {:.0} in memory, {:.1} MB of hits in what was read before; {}",
                d.name,
                m.occupied_bytes as f64 / f64::from(1 << 20),
                m.capacity_bytes as f64 / f64::from(1 << 20),
                Bytes(d.ledger.cached).as_mb(),
                horizon(m)
            )?;
            let cost = |c: &seekless_engine::ProgramCost| {
                format!("{} {:.0} %", program_name(&c.program), 100.0 * c.cost.disk_ms / d.disk_ms.max(1e-9))
            };
            let most: Vec<String> = d.programs.iter().take(PROGRAMS_SAID).map(cost).collect();
            if !most.is_empty() {
                write_line!(f, "{}: of its busy time {}", d.name, most.join(", "))?;
            }
            if let Some(sleep) = &d.sleep {
                let state = match sleep.asleep {
                    Some(true) => "sleeps",
                    Some(false) => "is awake",
                    None => "does not tell whether it sleeps",
                };
                write_line!(
                    f,
                    "{}: it {state}; awake {:.0} s, {} spin-ups, {} reads after a pause, last used {:.0} s ago",
                    d.name,
                    sleep.awake_s,
                    d.spin_ups_known(),
                    d.pauses,
                    sleep.unused_s
                )?;
            }
        }
        if let Some(kept) = &self.metadata {
            write_line!(
                f,
                "metadata kept of {}: {} folders and {} files, {} left out; a round read {:.1} MB at most, the \
                 last {:.1}; the next follows after {:.0} s",
                kept.trees.join(", "),
                kept.folders,
                kept.files,
                kept.left,
                Bytes(kept.bytes_most).as_mb(),
                Bytes(kept.bytes_last).as_mb(),
                kept.pause_s
            )?;
        }
        if let Some(table) = &self.bitrates {
            let BitratesReport { table, files, lines_left_out, .. } = table;
            writeln!(f, "bitrates of {files} files by {table}, {lines_left_out} lines left out")?;
        }
        for disk in self.disks.iter().filter(|disk| disk.writers.bytes + disk.writers.waiting_now > 0) {
            let writers = &disk.writers;
            writeln!(
                f,
                "writes on {} {:.1} MB in {:.0} % of the disk's time while it was read, {} waiting now; {} pieces held \
                 back for them",
                disk.name,
                Bytes(writers.bytes).as_mb(),
                100.0 * writers.share(),
                writers.waiting_now,
                writers.held_back
            )?;
        }
        let sets = &self.file_sets;
        if sets.begun + sets.refused > 0 {
            let share = |d: &DiskReport| (d.file_sets.disk_ms / d.disk_ms.max(1e-9) * 100.0).min(100.0);
            let on: Vec<String> = self
                .disks
                .iter()
                .filter(|d| d.file_sets.requests > 0)
                .map(|d| {
                    let mb = Bytes(d.file_sets.bytes_taken).as_mb();
                    format!("{} {mb:.1} MB taken, {:.0} % of the disk's time", d.name, share(d))
                })
                .collect();
            write_line!(
                f,
                "file sets {} (of {}, {} refused): {} ranges read, {} already in memory, {} left to their readers, \
                 {} added now{}{}",
                sets.now,
                sets.begun,
                sets.refused,
                sets.ranges_read,
                sets.ranges_in_memory,
                sets.ranges_left,
                sets.ranges_now,
                if on.is_empty() { "" } else { "; " },
                on.join(", ")
            )?;
        }
        if let Some(w) = &self.watch {
            write_line!(
                f,
                "watching {}: {} events, {} already in memory, {} held (now {}), {} overdue, {} outside the folders, \
                 {} on no disk, {} refused; {} files wholly in memory, {} pauses; {} restarts of the worker",
                w.folders.join(" "),
                w.events,
                w.hits,
                w.held,
                w.held_now,
                w.overdue,
                w.outside,
                w.not_a_disk,
                w.passed_full,
                w.ignored_now,
                w.pauses,
                w.restarts
            )?;
        }
        if let Some(o) = &self.observe {
            write_line!(
                f,
                "observing {}: {} events, {} lost, {} reads, {} of files that are followed; {} files known, {} with one read so far; files \
                 looked for {}: {} found, {} outside the folders, {} on no disk, {} not found",
                o.folders.join(" "),
                o.events,
                o.lost,
                o.reads,
                o.accesses,
                o.files_known,
                o.files_waiting,
                o.looked_for,
                o.found,
                o.outside,
                o.not_a_disk,
                o.unknown
            )?;
        }
        for call in &self.calls {
            let memory = if call.resident { "in memory" } else { "not in memory" };
            write_line!(f, "{} {memory}: {} calls, mean {:.3} ms", call.call, call.count, call.mean_ms)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_policy::SizeReport;

    #[test]
    fn the_size_in_force_is_said_not_the_one_that_is_not_used() {
        let disk =
            |size: u64| DiskReport { size: SizeReport { size, ..Default::default() }, ..Default::default() };
        let line = |prefetch: &str, bytes: u64, disks: Vec<DiskReport>| {
            let report = StatusReport {
                prefetch: prefetch.into(),
                prefetch_bytes: bytes,
                disks,
                ..Default::default()
            };
            report.to_string().lines().next().unwrap_or_default().to_string()
        };
        assert!(line("2MiB", 2 << 20, vec![disk(2 << 20)]).contains("prefetch 2MiB,"));
        assert!(line("auto", 0, vec![]).contains("prefetch auto, nothing read yet,"));
        assert!(line("auto", 6_501_171, vec![disk(6_501_171)]).contains("prefetch auto, now 6.2 MiB,"));
        let two = vec![disk(2 << 20), disk(6_501_171)];
        assert!(line("competitive", 6_501_171, two).contains("prefetch competitive, now 2.0 to 6.2 MiB,"));
        // The report of an older daemon does not have this field.
        assert!(line("", 4 << 20, vec![]).contains("prefetch 4MiB,"));
    }
}
