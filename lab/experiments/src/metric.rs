//! Every metric a row can carry: name, unit, meaning. Checks and plots may only speak of these.

use crate::nearest::nearest;

/// A metric's definition.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name in `results.json`, scenarios and checks.
    pub name: &'static str,
    /// Unit as printed.
    pub unit: &'static str,
    /// What it is.
    pub meaning: &'static str,
}

const fn metric(name: &'static str, unit: &'static str, meaning: &'static str) -> Metric {
    Metric { name, unit, meaning }
}

/// All of them.
pub const METRICS: &[Metric] = &[
    metric("mb_s", "MB/s", "bytes of answers received and verified by the clients, a second of real time"),
    metric(
        "score_mb_s",
        "MB/s",
        "what a drawn machine is judged by: MB/s of a closed loop, or of sessions at the highest rate that failed none",
    ),
    metric("disk_mb_s", "MB/s", "bytes the disks transferred, a second of disk time"),
    metric(
        "optimum_mb_s",
        "MB/s",
        "what an offline policy would serve that knows every request beforehand: one switch and the transfer for each stretch of a file not in memory",
    ),
    metric(
        "of_optimum",
        "",
        "share of the disks' time that this policy would have needed for what was served",
    ),
    metric(
        "estimate_mb_s",
        "MB/s",
        "what this policy would serve if nothing were in memory: the competitive prefetching paper's estimate",
    ),
    metric("of_estimate", "", "MB/s served, over this estimate"),
    metric("requests_s", "req/s", "requests answered"),
    metric("requests", "", "requests answered in the counted time"),
    metric("failed", "", "requests or sessions that failed, of any kind"),
    metric("timeouts", "", "requests that took too long"),
    metric("wrong_bytes", "", "answers with a byte that is not the file's"),
    metric("bad_status", "", "answers with an HTTP status that is an error"),
    metric("broken_connections", "", "requests whose connection broke or whose answer was short"),
    metric("failed_share", "", "share of sessions that failed"),
    metric("sessions_at_once", "", "most sessions at once"),
    metric("reused_read", "", "bytes read from the disk and used, for each byte that the readers used"),
    metric(
        "reused_lru",
        "",
        "the same of a cache that evicts what was used least recently and reads nothing ahead",
    ),
    metric("reused_min", "", "the same of a cache that knows the whole future (Belady)"),
    metric("reuse_closed", "", "part of the gap between these two caches that is closed"),
    metric("disk_per_served", "", "bytes the disks read for each byte the clients received"),
    metric("disk_s_per_gb", "s/GB", "disk time for each gigabyte that the clients received"),
    metric(
        "proved_disk_time",
        "",
        "disk time of a delivered byte without Seekless over that with it, as `seekless prove` measured beside the load",
    ),
    metric("proved_low", "", "lower end of its 95 % interval"),
    metric("proved_high", "", "upper end of its 95 % interval"),
    metric(
        "proved_throughput",
        "",
        "throughput with Seekless over that without, as `seekless prove` measured",
    ),
    metric("mean_ms", "ms", "mean time of a request from its intended start"),
    metric("p50_ms", "ms", "median time of a request from its intended start"),
    metric("p90_ms", "ms", "90th percentile of the same"),
    metric("p95_ms", "ms", "95th percentile of the same"),
    metric("p99_ms", "ms", "99th percentile of the same"),
    metric("max_ms", "ms", "longest of the same"),
    metric("startup_p50_ms", "ms", "median time of a request for the head of a file: until a film starts"),
    metric("startup_p99_ms", "ms", "99th percentile of the same"),
    metric("failure_free_mb_s", "MB/s", "throughput at the highest session rate without failures"),
    metric("failure_free_req_s", "req/s", "request rate there"),
    metric(
        "hit_share",
        "",
        "share of the clients' bytes that no disk had to read for them (cache hits and prefetched twice-used)",
    ),
    metric("seeks_per_mb", "1/MB", "disk commands that did not continue the one before, a megabyte read"),
    metric("seeks_s", "1/s", "the same, a second of disk time"),
    metric("read_kib", "KiB", "mean size of a disk command"),
    metric("reads_s", "1/s", "disk commands, a second of disk time"),
    metric("disk_reads", "", "disk commands"),
    metric("busy_share", "", "share of the time a disk was working, mean over disks"),
    metric("accesses_h", "", "commands an hour that came to a disk after a second or more without any"),
    metric("spin_ups_h", "", "times an hour that a disk which had stopped was made to turn"),
    metric("awake_s_h", "s", "seconds of an hour in which a disk turned"),
    metric("time_seek", "", "share of the disks' time spent moving the heads"),
    metric("time_rotation", "", "share spent waiting for the sector to come round"),
    metric("time_transfer", "", "share spent transferring"),
    metric("time_overhead", "", "share spent on commands besides the mechanics"),
    metric("time_idle", "", "share without a command"),
    metric(
        "time_reread",
        "",
        "share spent transferring again what was evicted before use (part of time_transfer)",
    ),
    metric("time_wasted", "", "share spent transferring what nobody used (part of time_transfer)"),
    metric(
        "ledger_evicted",
        "",
        "bytes evicted before use, over the bytes requested, by the engine's ledger; those whose reader had gone are wasted instead",
    ),
    metric("service_ms", "ms", "mean time a disk needed for a command, positioning and transfer"),
    metric("wait_ms", "ms", "mean time from a command's arrival at the disk to its end"),
    metric(
        "ms_per_128k",
        "ms",
        "disk busy time for each 128 KiB read, comparable with the paper's ms a transaction",
    ),
    metric("seq_bytes_le_128k", "", "share of bytes read in contiguous sequences of at most 128 KiB"),
    metric("seq_bytes_le_384k", "", "share of bytes read in contiguous sequences of at most 384 KiB"),
    metric("seq_bytes_le_576k", "", "share of bytes read in contiguous sequences of at most 576 KiB"),
    metric("seq_bytes_lt_1792k", "", "share of bytes read in contiguous sequences shorter than 1792 KiB"),
    metric("seq_bytes_gt_1920k", "", "share of bytes read in contiguous sequences longer than 1920 KiB"),
    metric("calls_under_1ms", "", "share of the server's read calls that took under 1 ms"),
    metric("calls_under_0_1ms", "", "share of the server's read calls that took under 0.1 ms"),
    metric("call_us", "us", "mean time of fio's calls"),
    metric("calls_p99_ms", "ms", "99th percentile of the time of the server's read calls"),
    metric("runtime_s", "s", "completion time, in disk time"),
    metric("files_s", "1/s", "files read, a second of disk time"),
    metric(
        "unused_share",
        "",
        "bytes that the engine read and no reader used, of those it read, by its ledger",
    ),
    metric("writer_mb_s", "MB/s", "bytes that a program beside the load wrote into the page cache"),
    metric("writer_of_asked", "", "the same over what it asks for; above 1 where it made up for the warm-up"),
    metric("writer_asked_mb_s", "MB/s", "bytes that it asks to write"),
    metric("produce_p50_ms", "ms", "median time from when a record was due until the broker acknowledged it"),
    metric("produce_p99_ms", "ms", "99th percentile of the same"),
    metric("produced_mb_s", "MB/s", "records that the broker acknowledged"),
    metric("tail_mb_s", "MB/s", "records that the consumers took which follow what is written"),
    metric("tail_p99_ms", "ms", "99th percentile of the time from the making of a record until they had it"),
    metric(
        "tail_absent",
        "",
        "share of the last 2 MiB of each partition that is written which was not in memory, looked at every second",
    ),
    metric("link_mbit_s", "Mb/s", "rate of each client's link"),
    metric("segments", "", "segments of a recorder's cameras, counted when the next one ends"),
    metric("segments_late", "", "of these, those that were durable later than the end of the next one"),
    metric(
        "segments_lost",
        "",
        "of these, those of which data were lost: a camera's buffer takes the data of two segments",
    ),
    metric("segments_missed", "", "share of the segments that was late or lost"),
    metric("fdatasyncs", "", "calls of fdatasync for a recorder's journal"),
    metric("fdatasync_p50_ms", "ms", "median time of the fdatasync of a recorder's journal"),
    metric("fdatasync_p99_ms", "ms", "99th percentile of the same"),
    metric("fsync_p50_ms", "ms", "median time of its fsync"),
    metric("fsync_p99_ms", "ms", "99th percentile of the same; of fewer than 100, the longest"),
    metric("fsync_max_ms", "ms", "longest of the same"),
    metric(
        "rest_mb_s",
        "MB/s",
        "MB/s of the clients, over the share of the disks' time that is not for writes",
    ),
    metric(
        "time_writes",
        "",
        "share of the disks' time in which the heads went to what was written, and wrote it",
    ),
    metric(
        "file_set_mb_s",
        "MB/s",
        "bytes that a program took beside the load which reads every file in any order",
    ),
    metric(
        "file_set_share",
        "",
        "share of the time in which the disks read that the engine spent on this program's file set",
    ),
    metric("absent_files", "", "files read beforehand that the machine did not leave in memory, at the end"),
    metric("wrong_files", "", "files that were not read, or whose checksum is not that of what was written"),
    metric(
        "gone_wait_ms",
        "ms",
        "longest time a call already waiting went on waiting after its daemon was killed",
    ),
    metric(
        "gone_added_ms",
        "ms",
        "longest time a call on cached bytes took with the shim loaded and no daemon there",
    ),
    metric("picked_up", "", "1 when a daemon started later was found by the running server, else 0"),
    metric("probe_failed", "", "of a fixed list of ranges asked for once from a cold cache, how many failed"),
    metric(
        "passes",
        "",
        "reads the daemon passed on because its queue was full, its mode said so or the disk failed",
    ),
    metric("evicted_mb_s", "MB/s", "bytes evicted before use and read again, a second"),
    metric("queue_full", "", "reads the daemon passed on because its queue was full"),
    metric(
        "evicted_share",
        "",
        "bytes evicted before use, while somebody was known to come for them or nobody knew, and read again, over the bytes clients received",
    ),
    metric(
        "wasted_share",
        "",
        "bytes read ahead and evicted that nobody came for, over the bytes clients received",
    ),
    metric(
        "cached_share",
        "",
        "bytes served from memory, reckoned as the paper does: 1 - disk + evicted + wasted",
    ),
    metric("prefetch_mib", "MiB", "prefetch size of the disk's engine at the end of the run"),
    metric("cut_to_mib", "MiB", "prefetch size that evictions set at once, the first time"),
    metric("disk_share", "", "bytes read from the disks, over the bytes clients received"),
    metric("cases_improved", "", "cases in which the coordinator gives a shorter mean response time"),
    metric("cases_better_than_du", "", "cases in which it gains more than DU"),
    metric("cases_l2_faster", "", "cases in which L2 fetches more blocks ahead than without coordination"),
    metric("cases_l2_slower", "", "cases in which it fetches fewer"),
    metric("rank_correlation", "", "Spearman's, of the improvements with those of the paper's Table 1"),
    metric("largest_gain_percent", "%", "largest improvement of the mean response time"),
    metric("smallest_gain_percent", "%", "smallest improvement of the mean response time"),
    metric("mean_gain_percent", "%", "mean improvement of the mean response time over all cases"),
    metric("network_mb_s", "MB/s", "bytes sent to clients who may take a file in any order"),
    metric("download_s", "s", "mean time of a download"),
    metric("t1_download_s", "s", "mean time of a download over a T1 link (1.5 Mb/s)"),
    metric("t10_download_s", "s", "mean time of a download over a 10T link (10 Mb/s)"),
    metric("t3_download_s", "s", "mean time of a download over a T3 link (45 Mb/s)"),
    metric("miss_ratio", "", "share of the blocks asked for that were not in the server's memory"),
    metric("conclusion", "", "the figure a conclusion of the paper is about, as its name says"),
    metric("gain_percent", "%", "improvement of the mean response time"),
    metric("response_ms", "ms", "mean response time of a block request"),
    metric(
        "l1_hit_ratio_over_none",
        "",
        "hit ratio of L1 over that without coordination, median over the cases",
    ),
    metric(
        "order_kept",
        "",
        "rank correlation of the prefetchers with and without the coordinator, median over the cases",
    ),
    metric("l2_hit_ratio", "", "share of the blocks asked of L2 that were in its cache"),
    metric("disk_requests", "", "requests the disk got"),
    metric("disk_blocks", "", "blocks the disk read"),
    metric("unused_blocks", "", "blocks prefetched and evicted before anybody asked for them"),
    metric(
        "announced_extra_us",
        "us",
        "what a 4 KiB read of cached bytes costs more while `watch` hears of it, median",
    ),
    metric("resident_extra_us", "us", "the same of a file wholly in memory, which is not announced"),
    metric(
        "rss_growth",
        "",
        "resident memory of daemon and server in the last quarter of their samples over that in the second",
    ),
    metric(
        "fds_growth",
        "",
        "most descriptors of daemon and server in the last quarter of their samples less most in the second",
    ),
    metric(
        "longest_wait_ms",
        "ms",
        "longest a reader of 64 KiB every second waited, hangs and kills of the disk left out",
    ),
    metric("unanswered", "", "such reads that failed while the disk was well"),
    metric("kills", "", "times the daemon was killed"),
    metric(
        "scrape_core_share",
        "",
        "share of a core that the daemon's threads used which answer a scrape each second and count calls",
    ),
    metric(
        "top_core_share",
        "",
        "share of a core that `seekless top` used, which looks at the daemon each second in a terminal",
    ),
    metric("daemon_core_share", "", "share of a core that all threads of the daemon used"),
    metric("daemon_mib", "MiB", "resident memory of the daemon at the end that is no file's"),
    metric("streams", "", "streams that the daemon followed at the end"),
    metric("files_known", "", "files whose reads `observe` handed to the engine at the end"),
    metric("events_lost", "", "share of the page cache's events that found the rings of `observe` full"),
    metric(
        "refused",
        "",
        "frames, descriptors and connections that the daemon refused, or closed unread because too many had been refused",
    ),
    metric("scrapes_failed", "", "scrapes of the daemon that were not answered while it ran"),
    metric("cgroup_limit_hits", "", "times the memory limit was reached"),
    metric(
        "blocked_share",
        "",
        "of looks every 20 ms at the server's threads that talk to clients, the share that met one waiting for a disk (state D)",
    ),
    metric("hit_before", "", "share of its bytes that a node served from memory before it was killed"),
    metric("hit_after", "", "the same in the last third of the time after its return"),
    metric("hit_back_s", "s", "from the node's return until its hit ratio is at nine tenths of what it was"),
    metric("loop_calls", "", "calls by which the event loops of seekless serve read or sent from memory"),
    metric("slow_calls", "", "of those, slower than 5 ms: a wait for a disk, or for the processor"),
    metric("cpu_server_s", "s", "processor time the server used"),
    metric("memory_mib", "MiB", "page cache of a drawn machine"),
    metric("clients", "", "clients of a drawn machine's closed loop"),
    metric("session_zipf", "", "Zipf exponent of the files of a drawn machine's sessions; 0: all alike"),
    metric("media_mb_s", "MB/s", "a read of the whole of a drawn drive, from end to end"),
    metric("depth_kib", "KiB", "what a drawn drive transfers in the time of a mean seek and half a turn"),
    metric(
        "media_share",
        "",
        "bytes the disk of a closed loop transferred over what it would have in one read from end to end in that time",
    ),
    metric(
        "memory_per_client_mib",
        "MiB",
        "memory for each client: of a closed loop, or of the most sessions there were at once",
    ),
    metric(
        "depths_per_client",
        "",
        "two thirds of the memory for each client, in depths: what of it may be read ahead and not used yet",
    ),
    metric("mb_cpu_s", "MB/s", "bytes of answers a second of the server's processor time"),
];

/// A metric by name.
///
/// # Errors
/// Names the nearest known one.
pub fn find(name: &str) -> Result<&'static Metric, String> {
    METRICS.iter().find(|m| m.name == name).ok_or_else(|| {
        let hint = nearest(name, METRICS.iter().map(|m| m.name));
        format!(
            "no metric is called `{name}`{}",
            hint.map_or(String::new(), |h| format!("; did you mean `{h}`?"))
        )
    })
}
