//! The daemon's state as metrics.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use seekless_base::Fault;
use seekless_frontend::metrics::{Address, MetricsServer, Observation, defs};
use seekless_frontend::status::StatusReport;

use crate::daemon::Daemon;

/// The values of a report that a scrape returns.
pub(crate) fn observation(report: StatusReport) -> Observation {
    let mut seen = Observation {
        door: match &report {
            StatusReport { watch: Some(_), .. } => "watch",
            StatusReport { observe: Some(_), .. } => "observe",
            _ => "daemon",
        },
        version: report.version,
        uptime: Duration::from_secs_f64((report.uptime_ms / 1e3).max(0.0)),
        passes_all: report.passes_all,
        disks: report.disks,
        own: Vec::new(),
    };
    let c = &report.counters;
    for (result, count) in [
        ("in_memory", c.hits_on_arrival),
        ("queued", c.queued),
        ("mode", c.passed_mode),
        ("not_a_disk", c.passed_not_a_disk),
        ("bad_request", c.passed_bad_request),
        ("full", c.passed_full),
        ("share", c.passed_share),
        ("all_passed", c.passed_all),
        ("limited", c.passed_limited),
    ] {
        seen.count(&defs::DOOR_CALLS, &["shim", result], count);
    }
    seen.count(&defs::DOOR_DELIVERED, &[], report.delivered.bytes);
    seen.count(&defs::CONNECTIONS, &[], c.connections_now);
    seen.count(&defs::CONNECTIONS_ACCEPTED, &[], c.connections);
    seen.count(&defs::CONNECTIONS_REFUSED, &["bound"], c.connections_over_bound);
    seen.count(&defs::CONNECTIONS_REFUSED, &["not_admitted"], c.connections_not_admitted);
    seen.count(&defs::CONNECTIONS_REFUSED, &["muted"], c.connections_muted);
    seen.count(&defs::FRAMES_REFUSED, &[], c.frames_refused);
    seen.count(&defs::REPORTS, &[], c.reports);
    seen.count(&defs::REPORTS_DROPPED, &["ring_full"], c.ring_dropped);
    seen.count(&defs::REPORTS_DROPPED, &["disk_behind"], c.reports_dropped);
    seen.count(&defs::REPORTS_DROPPED, &["unknown_file"], c.reports_unknown);
    seen.count(&defs::RINGS, &[], c.rings_now);
    if let Some(w) = &report.watch {
        for (result, count) in [
            ("in_memory", w.hits),
            ("queued", w.held),
            ("own", w.own),
            ("write", w.writes),
            ("outside", w.outside),
            ("nothing_to_do", w.nothing_to_do),
            ("not_a_disk", w.not_a_disk),
            ("full", w.passed_full),
        ] {
            seen.count(&defs::DOOR_CALLS, &["watch", result], count);
        }
        seen.count(&defs::DOOR_WAITING, &[], w.held_now);
        seen.count(&defs::DOOR_OVERDUE, &[], w.overdue);
        seen.count(&defs::WATCH_RESTARTS, &[], w.restarts);
    }
    let sets = report.file_sets;
    seen.count(&defs::FILE_SETS, &[], sets.now);
    seen.count(&defs::FILE_SETS_REFUSED, &[], sets.refused);
    for (result, count) in
        [("read", sets.ranges_read), ("in_memory", sets.ranges_in_memory), ("left", sets.ranges_left)]
    {
        seen.count(&defs::FILE_SET_RANGES, &[result], count);
    }
    if let Some(o) = &report.observe {
        for (result, count) in [("followed", o.accesses), ("missed", o.missed), ("full", o.dropped)] {
            seen.count(&defs::DOOR_CALLS, &["observe", result], count);
        }
        for (result, count) in
            [("heard", o.events), ("lost", o.lost), ("own", o.own), ("told_otherwise", o.told_otherwise)]
        {
            seen.count(&defs::OBSERVE_EVENTS, &[result], count);
        }
        seen.count(&defs::OBSERVE_READ, &[], o.bytes);
        seen.count(&defs::OBSERVE_FILES, &["known"], o.files_known);
        seen.count(&defs::OBSERVE_FILES, &["waiting"], o.files_waiting);
    }
    seen
}

/// Serves the metrics address, if one is given, and reports it. `inherited`: the socket of a daemon whose
/// place this one takes; used if it listens at the same address.
pub(crate) fn serve(
    address: Option<Address>,
    inherited: Option<TcpListener>,
    daemon: &Daemon,
    command: &str,
) -> Result<Option<MetricsServer>, Fault> {
    let Some(address) = address else { return Ok(None) };
    let ask = daemon.asker();
    let server = MetricsServer::start_with(address, inherited, Arc::new(move || ask().map(observation)))?;
    if let Ok(socket) = server.listener() {
        daemon.hand_over.with_metrics(socket.into());
    }
    seekless_output::eprintln!("{command}: metrics at http://{}/metrics", server.address());
    Ok(Some(server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WatchReport;
    use seekless_frontend::status::ObserveReport;

    #[test]
    fn a_report_of_both_doors_is_written_whole() {
        let mut report = StatusReport { version: "1".into(), ..Default::default() };
        report.counters.queued = 3;
        report.watch = Some(WatchReport { held: 4, ..Default::default() });
        let text = seekless_frontend::metrics::openmetrics(&observation(report));
        for line in [
            r#"seekless_door_calls_total{door="shim",result="queued"} 3"#,
            r#"seekless_door_calls_total{door="watch",result="queued"} 4"#,
            r#"seekless_build_info{version="1",door="watch"} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
    }

    #[test]
    fn what_observe_hears_is_written() {
        let observe =
            ObserveReport { events: 5, accesses: 4, bytes: 8192, files_known: 2, ..Default::default() };
        let report = StatusReport { version: "1".into(), observe: Some(observe), ..Default::default() };
        let text = seekless_frontend::metrics::openmetrics(&observation(report));
        for line in [
            r#"seekless_door_calls_total{door="observe",result="followed"} 4"#,
            r#"seekless_observe_events_total{result="heard"} 5"#,
            "seekless_observe_read_bytes_total 8192",
            r#"seekless_observe_files{state="known"} 2"#,
            r#"seekless_build_info{version="1",door="observe"} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
    }
}
