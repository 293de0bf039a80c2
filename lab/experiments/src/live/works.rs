//! An arm of `works-with`: a service, slow readers by its protocol's own client, and beside it Seekless by
//! the door that `seekless doctor` recommends for it.
//!
//! The doctor is asked about the service's processes at the end of the arm without Seekless, under load: what
//! a program maps is seen only while it serves. The arm with Seekless does what the doctor said. What cannot
//! be had, does not start or ends under load is a row with its reason, and the run goes on.

use std::path::Path;
use std::time::{Duration, Instant};

use seekless_base::{Exit, Fault};
use serde_json::Value;

use super::daemon::{self, Daemon};
use super::readers::{Asked, Readers};
use super::{Bench, serve};
use crate::guard;
use crate::process::run_json;
use crate::results::Row;
use crate::scenario::{Door, Load, Point, Service};
use crate::server::{Running, Site, service_version};
use crate::tools;

/// Processes of a service that the doctor is asked about.
const ASKED_MAX: usize = 12;
const DOCTOR_PATIENCE: Duration = Duration::from_secs(20);

/// What the doctor recommends for a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(super) door: Door,
    pub(super) why: String,
}

/// Runs one arm and fills its row.
///
/// # Errors
/// What has nothing to do with the service: the disk, the daemon, a signal.
pub(super) fn run(bench: &mut Bench<'_>, point: &Point, row: &mut Row) -> Result<(), Fault> {
    let service =
        point.arm.service.ok_or_else(|| Fault::usage(format!("arm `{}` has no service", point.arm.name)))?;
    row.words.insert("client".into(), service.protocol().client().into());
    if let Some(version) = service_version(service) {
        row.words.insert("version".into(), version);
    }
    match measure(bench, (service, point), row) {
        Err(fault) if fault.exit == Exit::Interrupted => Err(fault),
        Err(fault) => {
            tracing::warn!("{}: {fault}", service.title());
            row.metrics.clear();
            row.words.insert("reason".into(), fault.message);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn measure(bench: &mut Bench<'_>, (service, point): (Service, &Point), row: &mut Row) -> Result<(), Fault> {
    let Load::Readers { clients, rate, warmup_s, warmup_behind_s, duration_s } = point.load else {
        return Ok(());
    };
    let warmup_s = warmup_behind_s.filter(|_| service.is_behind_another()).unwrap_or(warmup_s);
    let mut arm = point.arm.clone();
    let advice = match (arm.mode, bench.advice.get(service.name())) {
        (None, _) => None,
        (Some(_), _) if arm.door != Door::Shim => {
            Some(Advice { door: arm.door, why: "the scenario asks for it".into() })
        }
        (Some(_), Some(known)) => Some(known.clone()),
        // The other arm comes first, unless it was left out or failed.
        (Some(_), None) => Some(ask_unloaded(bench, service, row)?),
    };
    bench.prepare(&arm)?;
    let dir = bench.scratch.dir(&format!("run{}", row.position))?;
    let group = bench.group("lab")?;
    let mut env = Vec::new();
    let mut helper = None;
    if let Some(advice) = &advice {
        arm.door = advice.door;
        row.words.insert("door".into(), arm.door.name().into());
        row.words.insert("why".into(), advice.why.clone());
        helper = Some(Daemon::of(bench, &arm, &dir, group.as_ref())?);
        if arm.door == Door::Shim {
            env = daemon::environment(&dir)?;
        }
    }
    let site = Site {
        dir: &dir.join("server"),
        root: &bench.root,
        env: &env,
        options: &[],
        group: group.as_ref(),
        tls: false,
    };
    let mut running = Running::start(service, &site, &library(bench)?)?;
    let asked = Asked {
        protocol: service.protocol(),
        port: running.port(),
        rate: rate.0,
        files: running.wanted.clone(),
    };
    let readers = Readers::start(clients, &asked, &dir)?;
    let counted = |seconds: f64, running: &mut Running| -> Result<(), Fault> {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < until {
            guard::sleep(Duration::from_millis(100))?;
            if !running.alive() {
                return Err(Fault::failed("it ended under load"));
            }
        }
        Ok(())
    };
    counted(warmup_s, &mut running)?;
    bench.disks[0].stats(true)?;
    let (started, before, cpu) = (Instant::now(), readers.bytes(), running.server.cpu_s());
    counted(duration_s, &mut running)?;
    let (elapsed_s, bytes) = (started.elapsed().as_secs_f64(), readers.bytes() - before);
    let stats = bench.disks[0].stats(false)?;
    row.metrics.insert("mb_s".into(), bytes as f64 / 1e6 / elapsed_s);
    row.metrics.insert("cpu_server_s".into(), running.server.cpu_s() - cpu);
    serve::account_disks(row, &[stats]);
    serve::account_daemon(row, helper.as_mut());
    if advice.is_none() {
        let advice = ask(&running.server.pids(), bench.scratch.path())?;
        bench.advice.insert(service.name().into(), advice);
    }
    let outcome = readers.finish();
    row.metrics.insert("failed".into(), outcome.failed as f64);
    row.metrics.insert("wrong_bytes".into(), outcome.wrong as f64);
    if let Some(why) = outcome.why {
        row.words.insert("failure".into(), why);
    }
    if bytes == 0 {
        let why = row.words.get("failure").cloned().unwrap_or_else(|| "no byte came".into());
        return Err(Fault::failed(format!("no byte came: {why}")));
    }
    Ok(())
}

/// Starts the service only to ask about it.
fn ask_unloaded(bench: &mut Bench<'_>, service: Service, row: &Row) -> Result<Advice, Fault> {
    let dir = bench.scratch.dir(&format!("asked{}", row.position))?;
    let site = Site { dir: &dir, root: &bench.root, env: &[], options: &[], group: None, tls: false };
    let running = Running::start(service, &site, &library(bench)?)?;
    ask(&running.server.pids(), bench.scratch.path())
}

/// The doctor's findings on these processes. A preload suits only if it suits all of them.
pub(super) fn ask(pids: &[u32], scratch: &Path) -> Result<Advice, Fault> {
    let mut said = Vec::new();
    for pid in pids.iter().take(ASKED_MAX) {
        let command = tools::command(&["doctor", "--json", "--pid", &pid.to_string()])?;
        match run_json("doctor", command, DOCTOR_PATIENCE, scratch) {
            Ok(report) => said.push(report),
            // A process for one connection may have ended.
            Err(fault) if fault.exit == Exit::Missing => {}
            Err(fault) => return Err(fault),
        }
    }
    join(&said)
}

fn join(said: &[Value]) -> Result<Advice, Fault> {
    let mut advice: Option<Advice> = None;
    for report in said {
        let text = |name: &str| report.pointer(&format!("/recommendation/{name}")).and_then(Value::as_str);
        let why = text("why").unwrap_or_default().to_string();
        let door = match text("way") {
            Some("shim") => Door::Shim,
            Some("watch") => Door::Watch,
            Some("observe") => Door::Observe,
            other => {
                let way = other.unwrap_or("nothing");
                return Err(Fault::missing(format!("the doctor recommends {way}: {why}")));
            }
        };
        if advice.is_none() || door != Door::Shim {
            advice = Some(Advice { door, why });
        }
    }
    advice.ok_or_else(|| Fault::missing("the doctor could look at none of its processes"))
}

/// Every file of the library, with its size.
pub(super) fn library(bench: &Bench<'_>) -> Result<Vec<(String, u64)>, Fault> {
    let manifest: &Path = &bench.scratch.path().join("manifest.txt");
    let text = std::fs::read_to_string(manifest)
        .map_err(|e| Fault::failed(format!("{}: {e}", manifest.display())))?;
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    let parse = |line: &str| {
        let (size, path) = line.split_once(' ')?;
        Some((path.to_string(), size.parse().ok()?))
    };
    Ok(lines.filter_map(parse).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preload_is_chosen_only_where_it_suits_every_process() {
        let of = |way: &str| serde_json::json!({"recommendation": {"way": way, "why": format!("as {way}")}});
        let door = |ways: &[&str]| join(&ways.iter().map(|way| of(way)).collect::<Vec<_>>());
        assert_eq!(door(&["shim", "shim"]).unwrap().door, Door::Shim);
        let mixed = door(&["shim", "watch", "shim"]).unwrap();
        assert_eq!(mixed, Advice { door: Door::Watch, why: "as watch".into() });
        assert!(door(&["shim", "tune"]).unwrap_err().message.contains("recommends tune"));
        assert_eq!(door(&[]).unwrap_err().exit, Exit::Missing);
    }
}
