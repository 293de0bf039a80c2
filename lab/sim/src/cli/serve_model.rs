//! What `--with` sets of `seekless-lab sim serve`.

use std::str::FromStr;

use seekless_base::{Bytes, Fault, Nanos};
use seekless_model::drive::DriveSpec;
use seekless_model::workload::closed::OtherDisks;
use seekless_model::workload::tree::FileOrder;
use seekless_options::parsed;
use serde::Deserialize;

use seekless_model::with::{parsed_some, within};

/// Replacement policy of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cache {
    /// One list in order of use
    Lru,
    /// Linux's active and inactive lists
    TwoList,
    /// The same as before Linux 3.15: lists kept even, no refault distance
    EvenLists,
    /// In order of arrival: sendfile before Linux 4.9, which marks nothing as used
    Fifo,
}

/// The kernel's read-ahead algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KernelReadAhead {
    /// Linux since 2.6.23
    OnDemand,
    /// The same as of Linux 3.2
    #[serde(rename = "on-demand-3")]
    OnDemand3,
    /// Linux 2.6.0 to 2.6.9: two windows
    Linux26,
    /// The same with windows that double from 16 pages on, as the competitive prefetching paper's
    Linux26Doubling,
    /// FreeBSD 8 and 9: a transaction at a time, 64 KiB more behind a request
    Cluster,
}

/// What a writer asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WriterRate {
    MbPerS(f64),
    /// Of the drive's mean media rate.
    Share(f64),
}

impl FromStr for WriterRate {
    type Err = String;

    fn from_str(text: &str) -> Result<WriterRate, String> {
        match text.strip_suffix('%') {
            Some(_) => seekless_base::share(text).and_then(|s| match s > 0.0 {
                true => Ok(WriterRate::Share(s)),
                false => Err(format!("`{text}` is nothing to write")),
            }),
            None => super::serve::positive(text).map(WriterRate::MbPerS),
        }
    }
}

impl WriterRate {
    /// Bytes a second on such a drive.
    pub(super) fn of(self, drive: &DriveSpec) -> f64 {
        match self {
            WriterRate::MbPerS(mb) => mb * 1e6,
            WriterRate::Share(share) => share * drive.mean_media_rate(),
        }
    }
}

/// The settings, in the order of machine, kernel, server, library, load, search, Seekless.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct Model {
    /// Most commands in the drive, 1 meaning a drive without a queue. None: the drive's own.
    pub(super) queue_depth: Option<u32>,
    /// Part of --memory that is no page cache.
    pub(super) reserve: Bytes,
    /// Handlers: part of --memory that each client's thread has for itself.
    pub(super) thread_memory: Bytes,
    pub(super) cache: Cache,
    /// Read-ahead is what the disk transfers at that place in the time of one switch.
    pub(super) competitive_read_ahead: bool,
    /// Largest request of the block layer, in KiB.
    pub(super) max_sectors_kb: u64,
    /// Largest command to the drive, in KiB (the live software disk's file takes 1 MiB).
    pub(super) max_command_kb: u64,
    /// Most single pages in one request.
    pub(super) max_segments: u64,
    /// Requests the scheduler holds.
    pub(super) nr_requests: u32,
    /// Time without a command after which a drive stops. None: never.
    #[serde(deserialize_with = "parsed_some")]
    pub(super) standby: Option<Nanos>,
    /// With standby: time until a drive that has stopped is ready.
    #[serde(deserialize_with = "parsed")]
    pub(super) spin_up: Nanos,
    pub(super) kernel_read_ahead: KernelReadAhead,
    /// Event workers of nginx, one for each processor; processes of the userver.
    pub(super) workers: u32,
    /// The server opens its files for random reads (POSIX_FADV_RANDOM, MADV_RANDOM).
    pub(super) random_advice: bool,
    /// Socket buffer of a connection behind a link.
    pub(super) socket: Bytes,
    /// Cost of a request on the network, without its bytes (alpha).
    #[serde(deserialize_with = "parsed")]
    pub(super) network_alpha: Nanos,
    /// Rate of the server's network in MB/s (1 / beta).
    pub(super) network_mb_per_s: f64,
    /// Tree: number of small files; diff: files of one tree.
    pub(super) files: u32,
    /// Tree: median of their sizes, which are lognormal.
    pub(super) median: Bytes,
    /// Tree: small files for each pack.
    pub(super) files_per_pack: u32,
    /// Tree: size of a pack.
    pub(super) pack: Bytes,
    /// Tree: a new file system, with all files in the order of writing; otherwise one in ten fills a hole
    /// elsewhere.
    pub(super) fresh: bool,
    /// Tree: the order of the list.
    #[serde(deserialize_with = "parsed")]
    pub(super) taking: FileOrder,
    /// Tree: files that a program takes in one batch.
    pub(super) batch: u32,
    /// Tree: time to start a program for each batch.
    #[serde(deserialize_with = "parsed")]
    pub(super) start_time: Nanos,
    /// Tree: processor time of a program for each file, besides reading.
    #[serde(deserialize_with = "parsed")]
    pub(super) file_time: Nanos,
    /// Tree: MB/s at which a program processes its data, 32 KiB at a time. None: no time.
    pub(super) work_rate: Option<f64>,
    /// Tree: one more program reads all of the tree too, in the same order, and processes its data at this
    /// rate in MB/s. None: no such program.
    pub(super) second_rate: Option<f64>,
    /// Tree: when that program starts.
    #[serde(deserialize_with = "parsed")]
    pub(super) second_after: Nanos,
    /// Tree: clients of a closed loop beside the programs; each takes one --range after the other.
    pub(super) beside: u32,
    /// Closed: link rate of each client, such as 20Mb/s. None: as fast as the server.
    pub(super) closed_link: Option<String>,
    /// Closed: no clients. What is beside the load has the disks alone.
    pub(super) nobody_reads: bool,
    /// Number of sessions on each disk; the run ends with the last. None: no bound.
    pub(super) sessions: Option<u32>,
    /// Sessions and search: reach the rate over this time, from 80 % of it in steps of 5 %.
    #[serde(deserialize_with = "parsed_some")]
    pub(super) rise_over: Option<Nanos>,
    /// Delay each way of the sessions' clients.
    #[serde(deserialize_with = "parsed")]
    pub(super) delay: Nanos,
    /// Longest time of a segment from when it was due.
    #[serde(deserialize_with = "parsed")]
    pub(super) timeout: Nanos,
    /// Start without viewers, instead of with those of a long-running server.
    pub(super) cold_start: bool,
    /// Closed loop: who reads on all disks but the first: busy (as many clients), idle (nobody) or read-once
    /// (one client, for the first seconds).
    pub(super) other_disks: OtherDisks,
    /// Beside the load, a program reads every file of each disk in any order, over and over; only with
    /// Seekless.
    pub(super) file_set: bool,
    /// Of a file set: most bytes in memory that it has not taken.
    pub(super) file_set_window: Bytes,
    /// Of a file set: longest range.
    pub(super) file_set_range: Bytes,
    /// Of a file set: MB/s at which it takes data.
    pub(super) file_set_rate: f64,
    /// Beside the load, a program writes a file of each disk from end to end, over and over: MB/s, or a share
    /// of the drive's mean media rate such as `20%`.
    #[serde(deserialize_with = "parsed_some")]
    pub(super) writer: Option<WriterRate>,
    /// With writer: fsync after so many bytes. None: never.
    pub(super) writer_sync: Option<Bytes>,
    /// With writer: size of the file, or of those of all cameras.
    pub(super) writer_file: Bytes,
    /// With writer: instead of one program a recorder with so many cameras and a journal. 0: no recorder.
    pub(super) cameras: u32,
    /// With cameras: length of a segment, each of which ends with fsync.
    #[serde(deserialize_with = "parsed")]
    pub(super) segment: Nanos,
    /// With cameras: time between two records of the journal, each of which ends with fdatasync.
    #[serde(deserialize_with = "parsed")]
    pub(super) journal: Nanos,
    /// With cameras and closed-link: report the lowest link, up to that one, at which at least this share of
    /// the segments is late or lost. None: no search.
    pub(super) missed: Option<f64>,
    /// Search: highest rate to try.
    pub(super) rate_max: f64,
    /// Search: end when the highest good and the lowest bad rate are this close.
    pub(super) precision: f64,
    /// Search: most runs.
    pub(super) runs: u32,
    /// With --prefetch auto: the size at the start, as a multiple of what the profile and the memory say.
    pub(super) start_factor: f64,
    /// Run without the drive's profile, as a daemon does on a disk that was not measured.
    pub(super) unprofiled: bool,
    /// Pieces that a disk has at once, in one sweep. None: as in a daemon that can read the layout of a set.
    pub(super) at_once: Option<u32>,
    /// Start with one piece at once and find the number by trial, as the daemon does on a disk that is busy
    /// from its start.
    pub(super) find_at_once: bool,
    /// Requests tell the bitrates of their files, so that --scale applies to a miss too.
    pub(super) tell_bitrates: bool,
    /// Most bytes of a read in flight. None: all, as the daemon submits it.
    pub(super) window: Option<Bytes>,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            queue_depth: None,
            reserve: Bytes::ZERO,
            thread_memory: Bytes::ZERO,
            cache: Cache::TwoList,
            competitive_read_ahead: false,
            max_sectors_kb: 1280,
            max_command_kb: 1024,
            max_segments: 128,
            nr_requests: 64,
            standby: None,
            spin_up: Nanos::from_secs(10),
            kernel_read_ahead: KernelReadAhead::OnDemand,
            workers: 2,
            random_advice: false,
            socket: Bytes::mib(1),
            network_alpha: Nanos::from_micros(100),
            network_mb_per_s: 1250.0,
            files: 20_000,
            median: Bytes::kib(8),
            files_per_pack: 1_250,
            pack: Bytes::mib(16),
            fresh: false,
            taking: FileOrder::Listed,
            batch: 64,
            start_time: Nanos::ZERO,
            file_time: Nanos::ZERO,
            work_rate: None,
            second_rate: None,
            second_after: Nanos::ZERO,
            beside: 0,
            closed_link: None,
            nobody_reads: false,
            sessions: None,
            rise_over: None,
            delay: Nanos::from_millis(50),
            timeout: Nanos::from_secs(10),
            cold_start: false,
            other_disks: OtherDisks::Busy,
            file_set: false,
            file_set_window: Bytes::mib(64),
            file_set_range: Bytes::mib(2),
            file_set_rate: 500.0,
            writer: None,
            writer_sync: None,
            writer_file: Bytes::gib(4),
            cameras: 0,
            segment: Nanos::from_secs(4),
            journal: Nanos::from_millis(250),
            missed: None,
            rate_max: 1000.0,
            precision: 0.03,
            runs: 12,
            start_factor: 1.0,
            unprofiled: false,
            at_once: None,
            find_at_once: false,
            tell_bitrates: false,
            window: None,
        }
    }
}

/// A rate in MB/s or requests a second: above 0.
const RATE: (f64, f64) = (f64::MIN_POSITIVE, 1e12);

impl Model {
    /// # Errors
    /// A number is out of range.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let rate = |name, value: f64| (name, value, RATE.0, RATE.1);
        within(&[
            ("queue-depth", f64::from(self.queue_depth.unwrap_or(1)), 1.0, 256.0),
            ("max-sectors-kb", self.max_sectors_kb as f64, 4.0, 1_048_576.0),
            ("max-command-kb", self.max_command_kb as f64, 4.0, 1_048_576.0),
            ("max-segments", self.max_segments as f64, 1.0, 1_048_576.0),
            ("nr-requests", f64::from(self.nr_requests), 1.0, 100_000.0),
            ("workers", f64::from(self.workers), 1.0, 256.0),
            ("files", f64::from(self.files), 1.0, 1e7),
            ("files-per-pack", f64::from(self.files_per_pack), 1.0, 1e7),
            ("batch", f64::from(self.batch), 1.0, f64::from(u32::MAX)),
            rate("work-rate", self.work_rate.unwrap_or(1.0)),
            rate("second-rate", self.second_rate.unwrap_or(1.0)),
            ("beside", f64::from(self.beside), 0.0, 100_000.0),
            rate("file-set-rate", self.file_set_rate),
            ("cameras", f64::from(self.cameras), 0.0, 1024.0),
            ("segment", self.segment.as_secs_f64(), 0.1, 3600.0),
            ("journal", self.journal.as_secs_f64(), 0.001, 3600.0),
            ("missed", self.missed.unwrap_or(0.1), 0.001, 1.0),
            rate("rate-max", self.rate_max),
            rate("network-mb-per-s", self.network_mb_per_s),
            ("precision", self.precision, 0.0, 1.0),
            ("runs", f64::from(self.runs), 1.0, 50.0),
            ("start-factor", self.start_factor, 0.01, 100.0),
            ("at-once", f64::from(self.at_once.unwrap_or(1)), 1.0, 64.0),
        ])
    }
}
