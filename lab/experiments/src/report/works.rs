//! The tables of `works-with` and `works-with-nodes`: one line a server or program.

use super::number;
use crate::check::Statistic;
use crate::results::{Results, Row};
use crate::scenario::{Arm, Load, Service};

/// Header and one line a server or program; nothing where the axis has none. The gain is over the last of the
/// arms without Seekless.
fn lines(results: &Results) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let axis = results.scenario.axis.as_ref().filter(|axis| axis.is_of_servers())?;
    let without: Vec<&Arm> = results.scenario.arms.iter().filter(|arm| arm.mode.is_none()).collect();
    let with = results.scenario.arms.iter().find(|arm| arm.mode.is_some())?;
    let base = without.last()?;
    let programs = match &results.scenario.load {
        Load::Programs { program } => Some(program),
        _ => None,
    };
    let mut header = vec![axis.label.clone()];
    header.extend(programs.is_none().then(|| "clients".into()));
    header.push("door".into());
    header.extend(without.iter().map(|arm| arm.name.clone()));
    let wrong = programs.map_or(("wrong bytes", "wrong_bytes"), |_| ("wrong files", "wrong_files"));
    header.extend([&with.name, "gain", wrong.0, "remark"].map(String::from));
    let main = results.scenario.main_metric();
    let line = |x: &String| {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.x.as_ref() == Some(x)).collect();
        let word = |name: &str| rows.iter().find_map(|row| row.words.get(name)).cloned();
        let sum = |metric: &str| -> f64 { rows.iter().filter_map(|row| row.metrics.get(metric)).sum() };
        let median = |arm: &str| results.median(arm, Some(x), main);
        let title = match programs {
            Some(all) => all.iter().find(|program| program.name == *x).map(|program| program.title.clone()),
            None => x.parse::<Service>().ok().map(|service| service.title().to_string()),
        };
        let mut remark: Vec<String> = [word("remark"), word("reason")].into_iter().flatten().collect();
        if sum("failed") > 0.0 {
            let why = word("failure").unwrap_or_default();
            remark.push(format!("{} answers failed: {why}", number(sum("failed"))));
        }
        let mut cells = vec![named(&title.unwrap_or(x.clone()), word("version"))];
        cells.extend(programs.is_none().then(|| word("client").unwrap_or_default()));
        cells.push(word("door").unwrap_or_default());
        let arms = without.iter().copied().chain([with]);
        cells.extend(arms.map(|arm| median(&arm.name).map_or("-".into(), number)));
        cells.push(gain(&rows, &base.name, &with.name, main).unwrap_or("-".into()));
        cells.push(if median(&with.name).is_some() { number(sum(wrong.1)) } else { "-".into() });
        cells.push(remark.join("; "));
        cells
    };
    Some((header, axis.values.iter().map(line).collect()))
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
    let figures = |name: &String| !["clients", "door", "remark"].contains(&name.as_str());
    let rule = |(i, name): (usize, &String)| if i > 0 && figures(name) { "---:" } else { "---" };
    text += &line(&header.iter().enumerate().map(|column| rule(column).into()).collect::<Vec<_>>());
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

    #[test]
    fn programs_gain_over_the_baseline() {
        let mut results = made_up("works-with-nodes");
        let axis = results.scenario.axis.clone().unwrap();
        for row in &mut results.rows {
            let mb_s = if row.arm == "with Seekless" { 60.0 } else { 40.0 };
            row.metrics.insert("mb_s".into(), mb_s);
            row.metrics.insert("wrong_files".into(), 0.0);
            row.words.insert("remark".into(), "why".into());
        }
        let text = page(&results).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines.len(), axis.values.len() + 2);
        assert!(lines[0].starts_with("| program | door | as shipped | with Seek"), "{}", lines[0]);
        assert!(lines[2].ends_with("|  | 40 | 60 | 1.5 | 0 | why |"), "{}", lines[2]);
    }
}
