//! The software disks of a run, spoken to through `seekless-lab vdisk`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use seekless_base::Fault;
use serde_json::Value;

use super::{Bench, Ground, joined};
use crate::guard::{self, Scratch};
use crate::process::{Process, exit_of, run_json};
use crate::scenario::{Arm, DiskSetup, Load, Scenario};
use crate::tools;

/// Bringing a disk up includes mkfs.
const UP_PATIENCE: Duration = Duration::from_secs(120);
/// Filling it runs at hundreds of MB/s, but not on every machine.
const POPULATE_PATIENCE: Duration = Duration::from_secs(1800);
/// Unmounting waits for what is still dirty.
const DOWN_PATIENCE: Duration = Duration::from_secs(60);
/// The block layer's settings, in an order in which none undoes another: a new scheduler resets the queue's
/// length, and a new request size makes recent kernels (6.17 and later) raise the read-ahead of a rotating
/// disk to twice it.
const KNOBS: [&str; 4] = ["scheduler", "nr_requests", "max_sectors_kb", "read_ahead_kb"];
/// Anything else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A disk that is up; taken down on drop. Its process is our child and ends with us even when we are killed.
#[derive(Debug)]
pub(crate) struct LiveDisk {
    process: Process,
    pub(crate) name: String,
    pub(crate) mount: PathBuf,
    /// `/dev/loopN`; none for a tree.
    pub(crate) device: Option<String>,
    pub(crate) size: u64,
    /// The block layer's settings as they were.
    defaults: Vec<(&'static str, String)>,
    scratch: PathBuf,
}

impl LiveDisk {
    /// Counters since they were last set to zero.
    pub(crate) fn stats(&self, reset: bool) -> Result<Value, Fault> {
        let mut command = tools::command(&["vdisk", "stats", "--name", &self.name, "--json"])?;
        if reset {
            command.arg("--reset");
        }
        run_json("vdisk stats", command, PATIENCE, &self.scratch)
    }

    /// `seekless-lab vdisk fault --name N ARGS...`
    pub(crate) fn fault(&self, args: &[&str]) -> Result<(), Fault> {
        let mut command = tools::command(&["vdisk", "fault", "--name", &self.name, "--json"])?;
        command.args(args);
        run_json("vdisk fault", command, PATIENCE, &self.scratch).map(drop)
    }

    /// From now on every command of the disk goes to this CSV file; to none with `None`.
    pub(crate) fn trace(&self, file: Option<&Path>) -> Result<(), Fault> {
        let mut command = tools::command(&["vdisk", "trace", "--name", &self.name, "--json"])?;
        match file {
            Some(file) => command.arg("--to").arg(file),
            None => command.arg("--off"),
        };
        run_json("vdisk trace", command, PATIENCE, &self.scratch).map(drop)
    }

    /// Sets scheduler, read-ahead and request size for an arm; what it does not name is set back to the
    /// default. Returns what the device did not accept as asked.
    pub(crate) fn turn_knobs(&self, arm: &Arm) -> Result<Vec<String>, Fault> {
        let Some(queue) = self.queue() else {
            let asked =
                arm.scheduler.is_some() || arm.read_ahead_kb.is_some() || arm.max_sectors_kb.is_some();
            return Ok(if asked {
                vec!["kernel settings were left alone: the disk is a FUSE tree".into()]
            } else {
                vec![]
            });
        };
        let mut remarks = Vec::new();
        for (knob, default) in &self.defaults {
            let wanted = match *knob {
                "scheduler" => arm.scheduler.clone(),
                "read_ahead_kb" => arm.read_ahead_kb.map(|kb| kb.to_string()),
                // A scheduler keeps a queue of its own, of its own length.
                "nr_requests" if arm.scheduler.as_deref().is_some_and(|s| s != "none") => continue,
                "nr_requests" => None,
                _ => arm.max_sectors_kb.map(|kb| kb.to_string()),
            };
            let mut value = wanted.unwrap_or_else(|| default.clone());
            if *knob == "max_sectors_kb" {
                let most: u64 = read(&queue.join("max_hw_sectors_kb")).parse().unwrap_or(u64::MAX);
                if value.parse::<u64>().is_ok_and(|kb| kb > most) {
                    remarks.push(format!(
                        "max_sectors_kb {value} was cut to {most}, the most a loop device takes here"
                    ));
                    value = most.to_string();
                }
            }
            if read(&queue.join(knob)) == value {
                continue;
            }
            std::fs::write(queue.join(knob), &value).map_err(|e| {
                Fault::failed(format!("{knob} = {value} on {}: {e}", self.device.as_deref().unwrap_or("")))
            })?;
        }
        Ok(remarks)
    }

    fn queue(&self) -> Option<PathBuf> {
        let name = Path::new(self.device.as_deref()?).file_name()?.to_str()?.to_string();
        Some(Path::new("/sys/block").join(name).join("queue"))
    }

    /// Forgets everything cached of the file system: unmount and mount again.
    pub(crate) fn drop_caches(&self) -> Result<(), Fault> {
        let Some(device) = &self.device else {
            return forget_pages(&self.mount);
        };
        run("umount", Command::new("umount").arg(&self.mount))?;
        run("mount", Command::new("mount").args(["-o", "noatime"]).arg(device).arg(&self.mount))
    }
}

impl Drop for LiveDisk {
    fn drop(&mut self) {
        for (knob, value) in &self.defaults {
            if let Some(queue) = self.queue() {
                let _ = std::fs::write(queue.join(knob), value);
            }
        }
        // Asked to end, it unmounts, detaches and removes everything itself.
        self.process.stop_within(DOWN_PATIENCE);
    }
}

pub(super) fn run(what: &str, command: &mut Command) -> Result<(), Fault> {
    let fault = |why: String| Fault::failed(format!("{what}: {why}"));
    let output = command.output().map_err(|e| fault(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(fault(String::from_utf8_lossy(&output.stderr).trim().to_string()))
}

fn read(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // A scheduler file reads `none [mq-deadline] bfq`.
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    chosen.unwrap_or(text.trim()).to_string()
}

/// Drops the cached pages of every file below `dir`, for trees that cannot be unmounted without ending them.
pub(crate) fn forget_pages(dir: &Path) -> Result<(), Fault> {
    let fault = |e: std::io::Error| Fault::failed(format!("{}: {e}", dir.display()));
    for entry in std::fs::read_dir(dir).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        if entry.file_type().map_err(fault)?.is_dir() {
            if entry.file_name() == "lost+found" {
                continue;
            }
            forget_pages(&entry.path())?;
        } else {
            let file = std::fs::File::open(entry.path()).map_err(fault)?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).map_err(|e| fault(e.into()))?;
        }
    }
    Ok(())
}

/// No disk yet: the arms bring up their own.
pub(crate) fn without<'a>(
    scenario: &'a Scenario,
    scratch: &'a Scratch,
    ground: Ground,
) -> Result<Bench<'a>, Fault> {
    let root = scratch.dir("www")?;
    Ok(Bench {
        scenario,
        scratch,
        ground,
        joined: None,
        disks: Vec::new(),
        root,
        remarks: Vec::new(),
        advice: BTreeMap::new(),
    })
}

/// The beginning of the `vdisk up` of a scenario's disk, and its name.
pub(super) fn up(disk: &DiskSetup, number: usize) -> Result<(Command, String), Fault> {
    let name = format!("lab-{}-{number}", std::process::id());
    let mut up = tools::command(&["vdisk", "up", "--name", &name, "--drive", &disk.drive])?;
    if let Some(model) = &disk.model {
        up.args(["--with", &format!("model={model}")]);
    }
    up.args(["--size", &disk.size.to_string(), "--speedup", &disk.speedup.to_string()]);
    Ok((up, name))
}

/// Fills a disk with the files of a manifest; `more`: further words of `vdisk populate`.
pub(super) fn populate(name: &str, manifest: &Path, more: &[&str], scratch: &Scratch) -> Result<(), Fault> {
    let mut populate = tools::command(&["vdisk", "populate", "--name", name, "--json", "--manifest"])?;
    populate.arg(manifest).args(more);
    run_json("vdisk populate", populate, POPULATE_PATIENCE, scratch.path()).map(drop)
}

/// Starts `vdisk up` and waits until the disk is there.
pub(super) fn bring_up(
    mut up: Command,
    name: String,
    mount: PathBuf,
    size: u64,
    scratch: &Scratch,
) -> Result<LiveDisk, Fault> {
    let said = scratch.path().join(format!("{name}.json"));
    let _ = std::fs::remove_file(&said);
    up.arg("--json").arg(&said).arg("--foreground");
    let mut process = Process::spawn("vdisk up", up, &scratch.path().join(format!("{name}.log")), None)?;
    let answer = guard::wait_for(UP_PATIENCE, || match process.ended() {
        Some(status) => Err(Fault::new(exit_of(status), tools::without_name(&process.last_line()))),
        // Not there, or not written to its end yet.
        None => Ok(std::fs::read_to_string(&said).ok().and_then(|t| serde_json::from_str::<Value>(&t).ok())),
    })?;
    let answer = answer.ok_or_else(|| Fault::failed("vdisk up: the disk is not there after 120 s"))?;
    let mut up = LiveDisk {
        process,
        name,
        mount,
        device: answer.get("device").and_then(Value::as_str).map(String::from),
        size,
        defaults: Vec::new(),
        scratch: scratch.path().to_path_buf(),
    };
    if let Some(queue) = up.queue() {
        up.defaults = KNOBS.map(|k| (k, read(&queue.join(k)))).to_vec();
    }
    Ok(up)
}

/// Brings up and fills all disks of a scenario.
pub(crate) fn set_up<'a>(
    scenario: &'a Scenario,
    scratch: &'a Scratch,
    ground: Ground,
) -> Result<Bench<'a>, Fault> {
    if let Some(how) = scenario.arms.iter().find_map(|arm| arm.joined) {
        return joined::set_up(scenario, scratch, ground, how);
    }
    let root = scratch.dir("www")?;
    let several = scenario.disks.len() > 1;
    let mut bench = Bench { root: root.clone(), ..without(scenario, scratch, ground)? };
    if !ground.groups {
        bench.remark("no memory limit: control groups need root or a delegated group, so the page cache is the whole machine's".into());
    }
    if !ground.block {
        bench.remark("the disk is a FUSE tree: a file system on a loop device needs root".into());
    }
    for (i, disk) in scenario.disks.iter().enumerate() {
        let mount = if several { scratch.dir(&format!("www/disk{i}"))? } else { root.clone() };
        let manifest = manifest(scenario, scratch)?;
        // Where drive or set differ between arms, each has a run of its own.
        let own = scenario.arms.iter().find_map(|arm| arm.drive.clone());
        let disk =
            &own.map_or(disk.clone(), |own| DiskSetup { drive: own.name, model: own.model, ..disk.clone() });
        let (mut up, name) = up(disk, i)?;
        if let Some(set) = scenario.arms.iter().find_map(|arm| arm.set.as_ref()) {
            up.args(set.to_args());
        }
        up.arg("--mount").arg(&mount);
        match (ground.block, &manifest) {
            (true, _) => {
                let own = scenario.arms.iter().find_map(|arm| arm.fs.as_ref());
                up.args(["--fs", own.unwrap_or(&disk.fs)])
            }
            (false, Some(manifest)) => up.arg("--tree").arg("--manifest").arg(manifest),
            (false, None) => {
                return Err(Fault::permission("this scenario needs a file system: run it as root"));
            }
        };
        let up = bring_up(up, name.clone(), mount, disk.size.0, scratch)?;
        bench.disks.push(up);
        if let (true, Some(manifest)) = (ground.block, &manifest) {
            populate(&name, manifest, &[], scratch)?;
        }
    }
    Ok(bench)
}

/// Arguments that describe the library to `seekless-lab load`.
pub(crate) fn catalogue_args(scenario: &Scenario) -> Vec<String> {
    let library = &scenario.library;
    if let Load::Downloads { files, file_size, .. } = &scenario.load {
        let (files, size, seed) = (files.to_string(), file_size.to_string(), library.seed.to_string());
        return ["--videos", &files, "--file-size", &size, "--zipf", "0", "--catalogue-seed", &seed]
            .map(String::from)
            .to_vec();
    }
    let hd = match library.bitrate.as_str() {
        "hd" => "1",
        "mixed" => "0.5",
        _ => "0",
    };
    let mut args = Vec::new();
    let mut put = |flag: &str, value: String| args.extend([flag.to_string(), value]);
    if let Some(size) = scenario.library_bytes() {
        put("--library", size.to_string());
    }
    if let Some(videos) = library.videos {
        put("--videos", videos.to_string());
    }
    if let Some(size) = library.file_size {
        put("--file-size", size.to_string());
    }
    if library.content != "videos" {
        put("--content", library.content.clone());
    }
    put("--hd-share", hd.to_string());
    put("--zipf", library.zipf.to_string());
    put("--catalogue-seed", library.seed.to_string());
    args
}

/// The library as a manifest; none where the load brings its own files.
pub(super) fn manifest(scenario: &Scenario, scratch: &Scratch) -> Result<Option<PathBuf>, Fault> {
    if scenario.load.has_own_files() {
        return Ok(None);
    }
    let path = scratch.path().join("manifest.txt");
    if !path.exists() {
        let mut command = tools::command(&["load", "catalogue", "--json", "--out"])?;
        command.arg(&path).args(catalogue_args(scenario));
        run_json("load catalogue", command, PATIENCE, scratch.path())?;
    }
    Ok(Some(path))
}
