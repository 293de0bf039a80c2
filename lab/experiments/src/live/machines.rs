//! Drawn machines, live: each is a scenario of its own on a software disk of the drawn drive.
//!
//! The kernel settings of the tuned arms come from the simulation, which tries every combination. To try them
//! live would take hours a machine.

use std::path::Path;

use seekless_base::{Bytes, Fault};

use crate::results::{Results, Row};
use crate::scenario::{DiskSetup, Load, Machine, Point, Scenario};
use crate::sim;

use super::apart;

/// Part of the host's memory that a machine may have: load, software disk and this program live beside it.
const MEMORY_SHARE: f64 = 0.25;
/// Part of the free space that a library may take.
const SPACE_SHARE: f64 = 0.8;

/// What this host can stand for.
struct Room {
    memory: u64,
    space: u64,
}

impl Room {
    fn here() -> Room {
        let temporary = rustix::fs::statvfs(std::env::temp_dir());
        Room {
            memory: (rustix::system::sysinfo().totalram as f64 * MEMORY_SHARE) as u64,
            space: (temporary.map_or(0, |s| s.f_bavail * s.f_frsize) as f64 * SPACE_SHARE) as u64 >> 20 << 20,
        }
    }

    /// Why a machine cannot run here.
    fn lacks(&self, machine: &Machine) -> Option<String> {
        if !matches!(machine.load, Load::Closed { .. }) {
            return Some("a search for the highest rate of sessions takes too long live".into());
        }
        if machine.memory.0 > self.memory {
            return Some(format!(
                "it has {} of memory, this host lends {}",
                machine.memory,
                Bytes(self.memory)
            ));
        }
        (machine.size.0 > self.space).then(|| {
            format!("its file system is {}, this host has room for {}", machine.size, Bytes(self.space))
        })
    }
}

/// Runs the machines of `scenario` that fit this host, one after the other, each drive by the software disk's
/// `model`. `simulated` is the same scenario's run in virtual time.
///
/// # Errors
/// No machine fits; else what stops the run.
pub(crate) fn run(
    name: &str,
    scenario: &Scenario,
    quick: bool,
    model: Option<&str>,
    simulated: &Results,
    out: &Path,
) -> Result<Results, Fault> {
    let room = Room::here();
    let mut results = Results {
        driver: "live".into(),
        quick,
        complete: false,
        rows: Vec::new(),
        checks: Vec::new(),
        remarks: vec!["kernel settings of the tuned arms: the best of the simulation".into()],
        ..simulated.clone()
    };
    results.environment.elapsed_s = 0.0;
    let points = scenario.points();
    let mut parts = Vec::new();
    for value in scenario.axis.iter().flat_map(|a| &a.values) {
        let of_machine = points.iter().filter(|p| p.x.as_deref() == Some(value));
        let Some(machine) = of_machine.clone().find_map(|p| p.machine.clone()) else { continue };
        match room.lacks(&machine) {
            Some(why) => results.remarks.push(format!("machine {value} is left out: {why}")),
            None => {
                let one = alone(scenario, &machine, model, of_machine, value, simulated)?;
                parts.push((value.clone(), one, machine));
            }
        }
    }
    if parts.is_empty() {
        let why = results.remarks.last().cloned().unwrap_or_default();
        return Err(Fault::missing(format!("none of these machines fits this host; {why}")));
    }
    apart::run(name, quick, &parts, &mut results, out, |value, machine, mut rows| {
        for arm in scenario.arms.iter().filter(|a| a.load_of.is_some()) {
            let same = rows.iter().filter(|r| Some(&r.arm) == arm.like.as_ref());
            rows.extend(same.map(|r| Row { arm: arm.name.clone(), ..r.clone() }).collect::<Vec<_>>());
        }
        for row in &mut rows {
            let served = row.metrics.get("mb_s").copied().unwrap_or(0.0);
            sim::account_machine(row, machine, served, None);
            if let Some(settings) = settings(simulated, &row.arm, value) {
                row.raw.insert("settings".into(), settings.into());
            }
        }
        rows
    })?;
    results.remarks.extend(crate::report::machines::summary(&results));
    apart::finish(&mut results, out)?;
    Ok(results)
}

/// What the simulation found best for an arm at a machine.
fn settings(simulated: &Results, arm: &str, x: &str) -> Option<Vec<String>> {
    let row = simulated.rows.iter().find(|r: &&Row| r.arm == arm && r.x.as_deref() == Some(x))?;
    let words = row.raw.get("settings")?.as_array()?;
    words.iter().map(|w| w.as_str().map(String::from)).collect()
}

/// A scenario of one machine, without an axis. An arm at another's load is its own arm here: the load of a
/// closed loop does not depend on what serves it.
fn alone<'a>(
    scenario: &Scenario,
    machine: &Machine,
    model: Option<&str>,
    points: impl Iterator<Item = &'a Point>,
    x: &str,
    simulated: &Results,
) -> Result<Scenario, Fault> {
    let mut arms = Vec::new();
    for point in points.filter(|p| p.arm.load_of.is_none()) {
        let mut arm = point.arm.clone();
        if let Some(best) = arm.best.take() {
            let usage = |why: String| Fault::usage(why);
            let wanted = settings(simulated, &arm.name, x).ok_or_else(|| {
                usage(format!("arm `{}` at {x}: the simulation has no settings for it", arm.name))
            })?;
            let all = best.candidates(&point.arm, &point.load).map_err(usage)?;
            let found = all.into_iter().find(|(words, _)| *words == wanted);
            arm = found.ok_or_else(|| usage(format!("arm `{}`: {wanted:?} is not in its grid", arm.name)))?.1;
            arm.best = None;
        }
        arm.like = None;
        arms.push(arm);
    }
    let mut one = scenario.clone();
    one.memory = machine.memory;
    one.disks = vec![DiskSetup {
        drive: machine.drive.clone(),
        model: model.map(String::from),
        size: machine.size,
        fs: "ext4".into(),
        speedup: 1.0,
    }];
    one.library.size = Some(machine.library);
    one.library.content = machine.content.into();
    one.library.file_size = machine.file_size;
    one.library.zipf = machine.zipf;
    one.library.bitrate = match machine.hd_share {
        0.0 => "sd",
        1.0 => "hd",
        _ => "mixed",
    }
    .into();
    one.load = machine.load.clone();
    one.arms = arms;
    one.axis = None;
    one.checks.clear();
    if !one.metrics.iter().any(|m| m == "mb_s") {
        one.metrics.insert(0, "mb_s".into());
    }
    Ok(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    /// A run in virtual time that found these settings.
    fn simulated(scenario: &Scenario, words: &[&str]) -> Results {
        let tuned = scenario.arms.iter().filter(|a| a.best.is_some());
        let rows = tuned.map(|arm| {
            let words: Vec<&str> = match arm.mode {
                Some(_) => words[2..].to_vec(),
                None => words.to_vec(),
            };
            let mut row = Row { arm: arm.name.clone(), x: Some("7:0".into()), ..Row::default() };
            row.raw.insert("settings".into(), words.into());
            row
        });
        let blank = crate::report::tests::made_up("any-disk");
        Results { rows: rows.collect(), scenario: scenario.clone(), ..blank }
    }

    #[test]
    fn a_machine_alone_has_the_settings_that_the_simulation_found_best() {
        let (_, mut scenario) = scenario::find("any-disk").unwrap();
        scenario.draw(7, 1).unwrap();
        let points = scenario.points();
        let machine = points[0].machine.clone().unwrap();
        let found = simulated(&scenario, &["4MiB", "bfq", machine.variant.name()]);
        let one = alone(&scenario, &machine, None, points.iter(), "7:0", &found).unwrap();
        let tuned = one.arms.iter().find(|a| a.name == "tuned kernel").unwrap();
        assert_eq!((tuned.read_ahead_kb, tuned.scheduler.as_deref()), (Some(4096), Some("bfq")));
        assert!(one.arms.iter().all(|a| a.best.is_none() && a.load_of.is_none() && a.like.is_none()));
        assert_eq!((one.memory, one.library.size), (machine.memory, Some(machine.library)));
        assert_eq!(one.disks[0].drive, "drawn:7:0");
        assert!(one.points().iter().all(|p| p.x.is_none()), "no axis");
    }

    #[test]
    fn settings_outside_the_grid_are_refused() {
        let (_, mut scenario) = scenario::find("any-disk").unwrap();
        scenario.draw(7, 1).unwrap();
        let points = scenario.points();
        let machine = points[0].machine.clone().unwrap();
        let found = simulated(&scenario, &["3MiB", "bfq", machine.variant.name()]);
        let why = alone(&scenario, &machine, None, points.iter(), "7:0", &found).unwrap_err();
        assert!(why.message.contains("not in its grid"), "{}", why.message);
    }

    #[test]
    fn a_machine_larger_than_this_host_is_left_out() {
        let room = Room { memory: 1 << 30, space: 10 << 30 };
        let mut closed =
            (0..100).map(|i| Machine::draw(1, i)).filter(|m| matches!(m.load, Load::Closed { .. }));
        let mut machine = closed.next().unwrap();
        (machine.memory, machine.size) = (Bytes(room.memory), Bytes(room.space));
        assert_eq!(room.lacks(&machine), None);
        machine.memory.0 += 1;
        assert!(room.lacks(&machine).unwrap().contains("of memory"));
        machine.memory.0 -= 1;
        machine.size.0 += 1;
        assert!(room.lacks(&machine).unwrap().contains("file system"));
    }
}
