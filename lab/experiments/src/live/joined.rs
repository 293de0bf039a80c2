//! Several disks whose files make one folder: one btrfs on all of them, or a file system on each and an
//! overlay, or links.

use std::path::{Path, PathBuf};
use std::process::Command;

use seekless_base::Fault;

use super::disk::{LiveDisk, bring_up, manifest, populate, run, up};
use super::{Bench, Ground, disk};
use crate::guard::Scratch;
use crate::scenario::{Joined, Scenario};
use crate::tools;

/// The joined folder; taken apart on drop.
#[derive(Debug)]
pub(crate) struct JoinedFolder {
    how: Joined,
    root: PathBuf,
    /// Devices, in the order of the disks.
    devices: Vec<String>,
    /// Mount points of the parts, where each has a file system.
    parts: Vec<PathBuf>,
    mounted: bool,
}

impl JoinedFolder {
    fn mount(&mut self) -> Result<(), Fault> {
        let mut command = Command::new("mount");
        match self.how {
            Joined::Plain => return Ok(()),
            Joined::Overlay => {
                let layers: Vec<String> = self.parts.iter().map(|part| part.display().to_string()).collect();
                command.args(["-t", "overlay", "overlay", "-o", &format!("lowerdir={}", layers.join(":"))]);
            }
            Joined::BtrfsSingle | Joined::BtrfsRaid0 | Joined::BtrfsRaid1 => {
                let members: Vec<String> = self.devices.iter().map(|d| format!("device={d}")).collect();
                command.args(["-t", "btrfs", "-o", &format!("noatime,{}", members.join(","))]);
                command.arg(&self.devices[0]);
            }
        }
        run("mount", command.arg(&self.root))?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Fault> {
        if self.mounted {
            run("umount", Command::new("umount").arg(&self.root))?;
            self.mounted = false;
        }
        Ok(())
    }

    /// Forgets everything cached of it and of its parts.
    pub(crate) fn drop_caches(&mut self, disks: &[LiveDisk]) -> Result<(), Fault> {
        self.unmount()?;
        if self.how.btrfs().is_none() {
            disks.iter().try_for_each(LiveDisk::drop_caches)?;
        }
        self.mount()
    }

    /// The folders that a door is to be told of.
    pub(crate) fn mounts(&self) -> Vec<&Path> {
        match self.how.btrfs() {
            Some(_) => vec![&self.root],
            None => self.parts.iter().map(PathBuf::as_path).collect(),
        }
    }
}

impl Drop for JoinedFolder {
    fn drop(&mut self) {
        let _ = self.unmount();
        if self.how.btrfs().is_some() {
            // The kernel remembers the members of a btrfs by name, also when their devices are gone.
            let forget = ["device", "scan", "--forget"];
            if let Ok(btrfs) = tools::find("btrfs") {
                let _ = btrfs.command().args(forget).args(&self.devices).output();
            }
        }
    }
}

/// Brings up the disks of a scenario, joins them, and fills the whole with one library.
///
/// # Errors
/// No file systems can be made here; else what stops it.
pub(crate) fn set_up<'a>(
    scenario: &'a Scenario,
    scratch: &'a Scratch,
    ground: Ground,
    how: Joined,
) -> Result<Bench<'a>, Fault> {
    if how.btrfs().is_some() {
        // Before anything is filled.
        tools::find("mkfs.btrfs")?;
    }
    let mut bench = disk::without(scenario, scratch, ground)?;
    let library = manifest(scenario, scratch)?
        .filter(|_| ground.block)
        .ok_or_else(|| Fault::permission("this scenario needs file systems and a library: run it as root"))?;
    let text = std::fs::read_to_string(&library).map_err(|e| cannot(&library, &e))?;
    let files: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let count = scenario.disks.len();
    let mut parts = Vec::new();
    for (i, spec) in scenario.disks.iter().enumerate() {
        let (mut up, name) = up(spec, i)?;
        let mount = match how.btrfs() {
            Some(_) => PathBuf::new(),
            None => scratch.dir(&format!("part{i}"))?,
        };
        match how.btrfs() {
            Some(_) => up.args(["--fs", "none"]),
            None => up.args(["--fs", &spec.fs, "--mount"]).arg(&mount),
        };
        bench.disks.push(bring_up(up, name.clone(), mount.clone(), spec.size.0, scratch)?);
        if how.btrfs().is_none() {
            let share = scratch.path().join(format!("manifest{i}.txt"));
            let lines: Vec<&str> = files.iter().copied().skip(i).step_by(count).collect();
            std::fs::write(&share, lines.join("\n")).map_err(|e| cannot(&share, &e))?;
            populate(&name, &share, &[], scratch)?;
            parts.push(mount);
        }
    }
    let devices: Vec<String> = bench.disks.iter().filter_map(|disk| disk.device.clone()).collect();
    let mut joined = JoinedFolder { how, root: bench.root.clone(), devices, parts, mounted: false };
    if let Some(profile) = how.btrfs() {
        let words = ["-q", "-f", "-K", "-d", profile];
        run("mkfs.btrfs", tools::find("mkfs.btrfs")?.command().args(words).args(&joined.devices))?;
        joined.mount()?;
        let names: Vec<&str> = bench.disks.iter().map(|disk| disk.name.as_str()).collect();
        let also: Vec<&str> = names[1..].iter().flat_map(|name| ["--also", name]).collect();
        let mounted = joined.root.display().to_string();
        populate(names[0], &library, &[&["--mounted", &mounted], &also[..]].concat(), scratch)?;
    } else if how == Joined::Plain {
        link(&files, &joined)?;
    } else {
        joined.mount()?;
    }
    bench.joined = Some(joined);
    Ok(bench)
}

/// A link in the folder to each file, in the part that has it.
fn link(files: &[&str], joined: &JoinedFolder) -> Result<(), Fault> {
    for (line, part) in files.iter().zip(joined.parts.iter().cycle()) {
        let Some((_, path)) = line.split_once([' ', '\t']) else { continue };
        let link = joined.root.join(path.trim_start());
        let made = link.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::os::unix::fs::symlink(part.join(path.trim_start()), &link))
            .map_err(|e| cannot(&link, &e))?;
    }
    Ok(())
}

fn cannot(path: &Path, error: &std::io::Error) -> Fault {
    Fault::failed(format!("{}: {error}", path.display()))
}
