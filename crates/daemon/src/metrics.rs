//! The daemon's state as metrics.

use std::sync::Arc;
use std::time::Duration;

use seekless_metrics::{Address, MetricsServer, Observation, defs};
use seekless_units::Fault;

use crate::daemon::Daemon;
use crate::status::StatusReport;

/// What a scrape sees of a report.
pub(crate) fn observation(report: StatusReport) -> Observation {
    let mut seen = Observation {
        door: if report.watch.is_some() { "watch" } else { "daemon" },
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
    ] {
        seen.count(&defs::DOOR_CALLS, &["shim", result], count);
    }
    seen.count(&defs::DOOR_DELIVERED, &[], report.delivered.bytes);
    seen.count(&defs::CONNECTIONS, &[], c.connections_now);
    seen.count(&defs::CONNECTIONS_ACCEPTED, &[], c.connections);
    seen.count(&defs::CONNECTIONS_REFUSED, &["bound"], c.connections_over_bound);
    seen.count(&defs::CONNECTIONS_REFUSED, &["not_admitted"], c.connections_not_admitted);
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
    seen
}

/// Answers at the metrics address, if one is given, and says where.
pub(crate) fn serve(
    address: Option<Address>,
    daemon: &Daemon,
    command: &str,
) -> Result<Option<MetricsServer>, Fault> {
    let Some(address) = address else { return Ok(None) };
    let ask = daemon.asker();
    let server = MetricsServer::start(address, Arc::new(move || ask().map(observation)))?;
    eprintln!("{command}: metrics at http://{}/metrics", server.address());
    Ok(Some(server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WatchReport;

    #[test]
    fn a_report_of_both_doors_is_written_whole() {
        let mut report = StatusReport { version: "1".into(), ..Default::default() };
        report.counters.queued = 3;
        report.watch = Some(WatchReport { held: 4, ..Default::default() });
        let text = seekless_metrics::openmetrics(&observation(report));
        for line in [
            r#"seekless_door_calls_total{door="shim",result="queued"} 3"#,
            r#"seekless_door_calls_total{door="watch",result="queued"} 4"#,
            r#"seekless_build_info{version="1",door="watch"} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
    }
}
