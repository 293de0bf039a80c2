//! The table of `works-with`: one line a server.

use std::fmt::Write;

use super::number;
use crate::check::Statistic;
use crate::results::{Results, Row};
use crate::scenario::{Knob, Service};

/// Header and one line a server; nothing where the axis has no services.
fn lines(results: &Results) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let axis = results.scenario.axis.as_ref().filter(|axis| axis.knobs.contains(&Knob::Service))?;
    let without = results.scenario.arms.iter().find(|arm| arm.mode.is_none())?;
    let with = results.scenario.arms.iter().find(|arm| arm.mode.is_some())?;
    let header = ["server", "clients", "door", &without.name, &with.name, "gain", "wrong bytes", "remark"];
    let main = results.scenario.main_metric();
    let line = |x: &String| {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.x.as_ref() == Some(x)).collect();
        let word = |name: &str| rows.iter().find_map(|row| row.words.get(name)).cloned();
        let sum = |metric: &str| -> f64 { rows.iter().filter_map(|row| row.metrics.get(metric)).sum() };
        let median = |arm: &str| results.median(arm, Some(x), main);
        let title = x.parse::<Service>().map_or(x.clone(), |service| service.title().to_string());
        let mut remark = Vec::new();
        if let Some(reason) = word("reason") {
            remark.push(reason);
        }
        if sum("failed") > 0.0 {
            let why = word("failure").unwrap_or_default();
            remark.push(format!("{} answers failed: {why}", number(sum("failed"))));
        }
        vec![
            named(&title, word("version")),
            word("client").unwrap_or_default(),
            word("door").unwrap_or_default(),
            median(&without.name).map_or("-".into(), number),
            median(&with.name).map_or("-".into(), number),
            gain(&rows, &without.name, &with.name, main).unwrap_or("-".into()),
            if median(&with.name).is_some() { number(sum("wrong_bytes")) } else { "-".into() },
            remark.join("; "),
        ]
    };
    Some((header.map(String::from).to_vec(), axis.values.iter().map(line).collect()))
}

/// A server with its version behind its own name: `HAProxy 2.6, then nginx`.
fn named(title: &str, version: Option<String>) -> String {
    let Some(version) = version else { return title.to_string() };
    title
        .split_once(", ")
        .map_or_else(|| format!("{title} {version}"), |(name, rest)| format!("{name} {version}, {rest}"))
}

/// How many times as much, the median of the repetitions, with the smallest and the largest.
fn gain(rows: &[&Row], without: &str, with: &str, metric: &str) -> Option<String> {
    let value = |row: &Row| row.metrics.get(metric).copied();
    let ratio = |row: &&Row| {
        let same = |base: &&&Row| base.arm == without && base.repetition == row.repetition;
        let base = value(rows.iter().find(same)?).filter(|base| *base > 0.0)?;
        Some(value(row)? / base)
    };
    let ratios: Vec<f64> = rows.iter().filter(|row| row.arm == with).filter_map(ratio).collect();
    let middle = number(Statistic::Median.join(ratios.clone())?);
    let (least, most) = (Statistic::Min.join(ratios.clone())?, Statistic::Max.join(ratios.clone())?);
    if ratios.len() == 1 {
        return Some(middle);
    }
    Some(format!("{middle} ({} to {})", number(least), number(most)))
}

/// As a table of a page; nothing where the axis has no services.
pub(super) fn page(results: &Results) -> Option<String> {
    let (header, lines) = lines(results)?;
    let line = |cells: &[String]| {
        format!("| {} |\n", cells.iter().map(|c| c.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
    };
    let mut text = String::from("\nThroughput in MB/s, median of the repetitions.\n\n");
    text += &line(&header);
    let _ = writeln!(text, "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |");
    text.extend(lines.iter().map(|cells| line(cells)));
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::made_up;

    #[test]
    fn a_server_without_figures_is_a_line_with_its_reason() {
        let mut results = made_up("works-with");
        for row in &mut results.rows {
            let with = row.arm == "with Seekless";
            row.metrics.insert("mb_s".into(), if with { 60.0 } else { 20.0 });
            row.metrics.insert("wrong_bytes".into(), 0.0);
            row.metrics.insert("failed".into(), 0.0);
            if row.x.as_deref() == Some("rclone") {
                row.metrics.clear();
                row.words.insert("reason".into(), "it is not here".into());
            } else if with {
                row.words.insert("door".into(), "shim".into());
            }
        }
        let text = page(&results).unwrap();
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_string();
        assert_eq!(line("| nginx"), "| nginx |  | shim | 20 | 60 | 3 | 0 |  |");
        assert_eq!(
            line("| rclone"),
            "| rclone, restic's REST protocol |  |  | - | - | - | - | it is not here |"
        );
        let servers = results.scenario.axis.as_ref().unwrap().values.len();
        assert_eq!(text.lines().filter(|line| line.starts_with('|')).count(), servers + 2);
    }

    #[test]
    fn a_version_stands_behind_the_name_it_belongs_to() {
        let version = || Some("2.6".to_string());
        assert_eq!(named("HAProxy, then nginx", version()), "HAProxy 2.6, then nginx");
        assert_eq!(named("nginx", version()), "nginx 2.6");
        assert_eq!(named("vsftpd", None), "vsftpd");
    }

    #[test]
    fn failed_answers_are_told_with_their_cause() {
        let mut results = made_up("works-with");
        for row in &mut results.rows {
            row.metrics.insert("failed".into(), 2.0);
            row.words.insert("failure".into(), "the connection broke".into());
        }
        assert!(page(&results).unwrap().contains("4 answers failed: the connection broke"));
        assert!(page(&made_up("closed-loop")).is_none());
    }
}
