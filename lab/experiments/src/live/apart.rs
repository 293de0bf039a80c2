//! Scenarios whose axis changes the disk: each value is a run of its own, on a disk of its own.

use std::path::Path;

use seekless_base::Fault;

use crate::results::{Results, Row};
use crate::scenario::{Knob, Scenario};

/// A value of the axis, the scenario at it, and what the caller knows of it.
type Part<T> = (String, Scenario, T);

/// Whether the axis changes the disk.
pub(super) fn is_needed(scenario: &Scenario) -> bool {
    let changes = |knob: &Knob| matches!(knob, Knob::Set | Knob::Drive | Knob::Fs | Knob::Joined);
    scenario.axis.as_ref().is_some_and(|axis| axis.knobs.iter().any(changes))
}

/// The scenario at each value of its axis, without an axis.
pub(super) fn parts(scenario: &Scenario) -> Vec<Part<()>> {
    let points = scenario.points();
    let values = scenario.axis.iter().flat_map(|axis| &axis.values);
    let at = |value: &String| {
        let mut one = scenario.clone();
        let here = points.iter().filter(|p| p.x.as_ref() == Some(value));
        one.arms = here.map(|point| point.arm.clone()).collect();
        (one.axis, one.checks) = (None, Vec::new());
        (value.clone(), one, ())
    };
    values.map(at).collect()
}

/// Runs the parts one after the other. `account` completes the rows of one before they join the others.
///
/// # Errors
/// What stops one of them.
pub(super) fn run<T>(
    name: &str,
    quick: bool,
    parts: &[Part<T>],
    results: &mut Results,
    out: &Path,
    account: impl Fn(&str, &T, Vec<Row>) -> Vec<Row>,
) -> Result<(), Fault> {
    for (value, one, known) in parts {
        let run = super::run(name, one, quick, &out.join(value.replace(':', "-")))?;
        results.environment.servers.extend(run.environment.servers);
        results.environment.elapsed_s += run.environment.elapsed_s;
        for remark in run.remarks {
            if !results.remarks.contains(&remark) {
                results.remarks.push(remark);
            }
        }
        for mut row in account(value, known, run.rows) {
            row.x = Some(value.clone());
            row.position = results.rows.len() as u32;
            results.rows.push(row);
        }
        results.judge();
        results.write(&out.join("results.json"))?;
    }
    Ok(())
}

/// Judges the whole and writes the report.
///
/// # Errors
/// The folder cannot be written to.
pub(super) fn finish(results: &mut Results, out: &Path) -> Result<(), Fault> {
    results.environment.servers.sort();
    results.environment.servers.dedup();
    results.complete = true;
    results.judge();
    results.write(&out.join("results.json"))?;
    crate::report::write(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn each_set_of_drives_is_a_scenario_of_its_own() {
        let (_, scenario) = scenario::find("sets").unwrap();
        assert!(is_needed(&scenario));
        let parts = parts(&scenario);
        assert_eq!(parts.len(), scenario.axis.as_ref().unwrap().values.len());
        for (value, one, ()) in parts {
            assert_eq!(one.arms.len(), scenario.arms.len());
            assert!(one.axis.is_none() && !is_needed(&one));
            for arm in &one.arms {
                assert_eq!(arm.set.clone().map_or("one".into(), String::from), value);
            }
        }
    }

    #[test]
    fn each_drive_is_a_scenario_of_its_own() {
        let (_, text) = scenario::all().iter().find(|(name, _)| *name == "closed-loop-drives").unwrap();
        let scenario = Scenario::parse(text, "x.toml").unwrap();
        assert!(is_needed(&scenario));
        for (value, one, ()) in parts(&scenario) {
            for arm in &one.arms {
                let drive = arm.drive.clone().unwrap();
                assert_eq!(drive.model.is_some(), value.starts_with("platter:"));
                assert_eq!(String::from(drive), value);
            }
            let loads = one.points();
            let popular = |point: &scenario::Point| match point.load {
                scenario::Load::Closed { popular, .. } => popular,
                _ => panic!("{:?}", point.load),
            };
            assert!(loads.iter().all(|point| popular(point) == point.arm.popular.unwrap_or(false)));
        }
        let broken = text.replace("platter:wd-red-1tb", "platter:wd-blue");
        let fault = Scenario::parse(&broken, "x.toml").unwrap_err();
        assert!(fault.message.contains("no drive is called `wd-blue`"), "{fault}");
    }

    #[test]
    fn what_is_no_set_is_refused_in_the_file() {
        let (_, text) = scenario::all().iter().find(|(name, _)| *name == "sets").unwrap();
        for (wrong, said) in [("raid7:4", "no set"), ("raid0", "KIND:MEMBERS"), ("raid5:2", "make no raid5")]
        {
            let broken = text.replace("\"raid10:4\"", &format!("\"{wrong}\""));
            let fault = Scenario::parse(&broken, "x.toml").unwrap_err();
            assert!(fault.message.contains(said), "{wrong}: {fault}");
        }
    }
}
