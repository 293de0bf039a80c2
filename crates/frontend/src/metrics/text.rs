//! OpenMetrics text, by `prometheus-client`; and the older Prometheus text that files and old scrapers want.

use std::fmt::Write as _;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit as ClientUnit};

use crate::metrics::defs::{Kind, Metric, Unit};
use crate::metrics::observation::{Observation, Sample, Value};

/// Content type of [`openmetrics`].
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Content type of [`prometheus`].
pub const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct Scrape(Vec<Sample>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut left = self.0.as_slice();
        while let Some(first) = left.first() {
            let metric = first.metric;
            let together = left.iter().take_while(|s| std::ptr::eq(s.metric, metric)).count();
            let (family, rest) = left.split_at(together);
            left = rest;
            let unit = match metric.unit {
                Unit::None => None,
                Unit::Bytes => Some(ClientUnit::Bytes),
                Unit::Seconds => Some(ClientUnit::Seconds),
                unit => Some(ClientUnit::Other(unit.name().into())),
            };
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
                Kind::Info => MetricType::Info,
            };
            let mut all = encoder.encode_descriptor(metric.base, metric.meaning, unit.as_ref(), kind)?;
            for sample in family {
                let labels: Labels =
                    metric.labels.iter().copied().zip(sample.labels.iter().cloned()).collect();
                match (metric.kind, &sample.value) {
                    (Kind::Info, _) => all.encode_info(&labels)?,
                    (Kind::Counter, Value::Count(n)) => {
                        ConstCounter::new(*n).encode(all.encode_family(&labels)?)?;
                    }
                    (Kind::Counter, Value::Real(x)) => {
                        ConstCounter::new(*x).encode(all.encode_family(&labels)?)?;
                    }
                    (_, Value::Count(n)) => {
                        let n = i64::try_from(*n).unwrap_or(i64::MAX);
                        ConstGauge::new(n).encode(all.encode_family(&labels)?)?;
                    }
                    (_, Value::Real(x)) => ConstGauge::new(*x).encode(all.encode_family(&labels)?)?,
                    (_, Value::Distribution(sum, count, buckets)) => {
                        all.encode_family(&labels)?
                            .encode_histogram::<Labels>(*sum, *count, buckets, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// As OpenMetrics text.
pub fn openmetrics(seen: &Observation) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(seen.samples())));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

/// As Prometheus text 0.0.4: families include their suffix, there is no kind `info` and no unit.
pub fn prometheus(seen: &Observation) -> String {
    let known = |family: &str| crate::metrics::defs::ALL.iter().find(|m| m.family() == family).copied();
    let mut text = String::new();
    for line in openmetrics(seen).lines() {
        let mut words = line.splitn(4, ' ');
        let (mark, word, family) = (words.next(), words.next(), words.next());
        let rest = words.next().unwrap_or_default();
        match (mark, word, family.and_then(known)) {
            (Some("#"), Some("HELP"), Some(metric)) => {
                let _ = writeln!(text, "# HELP {} {rest}", metric.name());
            }
            (Some("#"), Some("TYPE"), Some(metric)) => {
                let _ = writeln!(text, "# TYPE {} {}", metric.name(), older_kind(metric));
            }
            (Some("#"), ..) => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

fn older_kind(metric: &Metric) -> &'static str {
    match metric.kind {
        Kind::Info => Kind::Gauge.name(),
        kind => kind.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::defs;
    use seekless_engine::{CostReport, DiskReport, Durations, FileCost, Program, ProgramCost, SleepReport};
    use std::collections::BTreeSet;
    use std::time::Duration;

    /// Every second one is of another user.
    fn program(number: u32) -> ProgramCost {
        let cost = CostReport { reads: 4, bytes: 1000, seeks: 3, disk_ms: 250.0, ..Default::default() };
        let program =
            Program { name: format!("p{}", number / 2), group: "a.service".into(), user: Some(number) };
        ProgramCost { program, cost }
    }

    /// Something of everything: every metric has a sample.
    fn everything() -> Observation {
        let durations =
            Durations { count: 3, mean_ms: 4.0, buckets: vec![(2.048, 1), (8.192, 2)], ..Default::default() };
        let mut disk = DiskReport {
            name: "sd\"a\\".into(),
            requests: 7,
            passed: [("full".to_string(), 2), ("random".to_string(), 0)].into(),
            bytes_read: 300_000_000,
            disk_ms: 2500.0,
            media_rate: 100e6,
            wait: durations.clone(),
            service: durations.clone(),
            gap: durations,
            sleep: Some(SleepReport { awake_s: 12.5, spin_ups: 2, ..Default::default() }),
            programs: (0..12).map(program).collect(),
            files: vec![FileCost { path: "/srv/secret.mkv".into(), ..Default::default() }],
            ..Default::default()
        };
        disk.ledger.disk = 200_000_000;
        let mut seen = Observation {
            door: "daemon",
            version: "1.2.3".into(),
            uptime: Duration::from_millis(1500),
            disks: vec![disk],
            ..Default::default()
        };
        let own = defs::ALL.iter().filter(|m| !m.labels.contains(&"disk"));
        for metric in
            own.filter(|m| !["seekless_build", "seekless_uptime", "seekless_enabled"].contains(&m.base))
        {
            let labels: Vec<&str> = metric.labels.iter().map(|_| "x").collect();
            seen.count(metric, &labels, 5);
        }
        seen
    }

    #[test]
    fn every_metric_that_is_defined_is_written_and_no_other() {
        let text = openmetrics(&everything());
        let families: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")).collect();
        let written: BTreeSet<String> =
            families.iter().map(|l| l.split(' ').next().unwrap().to_string()).collect();
        assert_eq!(written.len(), families.len(), "each family once");
        assert_eq!(written, defs::ALL.iter().map(|m| m.family()).collect());
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn values_and_labels_are_as_the_format_wants() {
        let text = openmetrics(&everything());
        for line in [
            r#"seekless_build_info{version="1.2.3",door="daemon"} 1"#,
            "seekless_uptime_seconds 1.5",
            "# UNIT seekless_uptime_seconds seconds",
            "seekless_enabled 1",
            r#"seekless_disk_requests_total{disk="sd\"a\\"} 7"#,
            r#"seekless_disk_requests_passed_total{disk="sd\"a\\",reason="full"} 2"#,
            r#"seekless_disk_busy_seconds_total{disk="sd\"a\\"} 2.5"#,
            r#"seekless_disk_transfer_seconds_total{disk="sd\"a\\"} 2.0"#,
            r#"seekless_disk_wait_seconds_count{disk="sd\"a\\"} 3"#,
            r#"seekless_disk_spin_ups_total{disk="sd\"a\\"} 2"#,
            r#"seekless_disk_awake_seconds_total{disk="sd\"a\\"} 12.5"#,
            r#"seekless_disk_program_busy_seconds_total{disk="sd\"a\\",program="p0",group="a.service"} 0.5"#,
            r#"seekless_disk_program_seeks_total{disk="sd\"a\\",program="p5",group="a.service"} 6"#,
        ] {
            assert!(text.lines().any(|l| l == line), "no line `{line}` in\n{text}");
        }
        let buckets: Vec<&str> =
            text.lines().filter(|l| l.starts_with("seekless_disk_wait_seconds_bucket")).collect();
        assert!(buckets.last().unwrap().contains(r#"le="+Inf""#) && buckets.last().unwrap().ends_with(" 3"));
        let counts: Vec<u64> =
            buckets.iter().map(|l| l.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert!(counts.is_sorted(), "{counts:?}");
    }

    #[test]
    fn no_file_is_named() {
        let seen = everything();
        for text in [openmetrics(&seen), prometheus(&seen), seen.json()] {
            assert!(text.contains("p0") && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn the_older_text_has_no_word_the_textfile_collector_does_not_know() {
        let text = prometheus(&everything());
        assert!(!text.contains("# EOF") && !text.contains("# UNIT") && !text.contains(" info\n"), "{text}");
        assert!(text.contains("# TYPE seekless_disk_requests_total counter\n"));
        assert!(text.contains("# TYPE seekless_build_info gauge\n"));
        assert!(text.contains("# TYPE seekless_disk_wait_seconds histogram\n"));
        // Every sample belongs to the family announced last.
        let mut family = String::new();
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(announced) => family = announced.split(' ').next().unwrap().to_string(),
                None if line.starts_with('#') => {}
                None => assert!(line.starts_with(&family), "{line} in the family {family}"),
            }
        }
    }
}
