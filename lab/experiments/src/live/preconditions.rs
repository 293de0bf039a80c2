//! What this system lets us do, found out before anything is started; and what killed runs left behind.

use std::path::Path;
use std::time::Duration;

use seekless_base::Fault;

use crate::guard;
use crate::memory_group::MemoryGroup;
use crate::process::run_json;
use crate::scenario::{Arm, Door, FileReader, Load, Scenario};
use crate::tools;

/// What may be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground {
    /// A block device with a file system of its own; otherwise the software disk is a FUSE tree.
    pub(crate) block: bool,
    /// Memory control groups.
    pub(crate) groups: bool,
}

/// Looks whether the scenario can run here.
///
/// # Errors
/// [`Exit::Permission`] or [`Exit::Missing`] in one line: what is needed and how to get it.
pub(crate) fn survey(scenario: &Scenario) -> Result<Ground, Fault> {
    let permission = |what: &str| Fault::permission(what.to_string());
    if std::fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        return Err(permission(
            "no software disk without FUSE: /dev/fuse cannot be opened (load the fuse module, or run as root)",
        ));
    }
    let root = rustix::process::geteuid().is_root();
    if root && !Path::new("/dev/loop-control").exists() {
        return Err(permission(
            "no software disk without loop devices: /dev/loop-control is missing (modprobe loop)",
        ));
    }
    if !root && scenario.load.has_own_files() {
        return Err(permission("this scenario needs a file system on a loop device: run it as root"));
    }
    let groups = match MemoryGroup::create("survey", 64 << 20) {
        Ok(_) => true,
        Err(error) if root => {
            return Err(permission(&format!("cannot make a memory control group: {error}")));
        }
        Err(_) => false,
    };
    for kind in scenario.points().iter().filter_map(|p| p.arm.server) {
        use crate::scenario::ServerKind::{Apache, Builtin, Caddy, GoFile, Lighttpd, Nginx, Seekless};
        match kind {
            Nginx => tools::find("nginx").map(drop)?,
            Apache => tools::find("apache2").map(drop)?,
            Lighttpd => tools::find("lighttpd").map(drop)?,
            Caddy => tools::find_go("caddy").map(drop)?,
            GoFile => tools::find_go("gofile").map(drop)?,
            Builtin | Seekless => {}
        }
    }
    if scenario.arms.iter().any(|a| a.edge.is_some()) {
        tools::find("nginx")?;
    }
    if matches!(scenario.load, Load::Files { .. }) {
        ["find", "xargs", "sha256sum", "tar"].into_iter().try_for_each(|name| tools::find(name).map(drop))?;
    }
    if matches!(scenario.load, Load::Fio { .. }) {
        tools::find("fio")?;
    }
    if matches!(scenario.load, Load::Broker { .. }) {
        tools::kafka()?;
    }
    if scenario.arms.iter().any(|a| a.shown) {
        tools::find("script")?;
    }
    if !root && scenario.arms.iter().any(|a| a.neighbour.is_some()) {
        return Err(permission("this scenario starts a program of another user: run it as root"));
    }
    let readers = || scenario.arms.iter().filter_map(|a| a.reader);
    if readers().any(FileReader::is_python) {
        tools::find("python3")?;
    }
    if readers().any(|reader| reader == FileReader::Restic) {
        tools::find("restic")?;
    }
    if readers().any(|reader| reader == FileReader::PythonOrder) {
        tools::order_library()?;
        tools::python_package()?;
    }
    let watch = |a: &Arm| a.door != Door::Shim;
    if !root && scenario.arms.iter().any(watch) {
        return Err(permission(
            "this scenario needs the right to a block device and to watch it: run it as root",
        ));
    }
    if !root && matches!(scenario.load, Load::Readers { .. } | Load::Programs { .. }) {
        return Err(permission(
            "this scenario starts servers that give up root, and watches them: run it as root",
        ));
    }
    if scenario.arms.iter().any(|a| a.mode.is_some() && !watch(a)) {
        tools::shim()?;
    }
    Ok(Ground { block: root, groups })
}

/// Removes what runs that were killed (not merely stopped) could not.
pub(crate) fn sweep() {
    MemoryGroup::sweep_stale();
    let temporary = std::env::temp_dir();
    sweep_disks(&temporary);
    sweep_scratch(&temporary);
}

/// Whether the process that named something after itself is gone. `None`: the name is not of this kind.
fn orphaned(name: &str, prefix: &str) -> Option<bool> {
    let pid = name.strip_prefix(prefix)?.split('-').next()?;
    pid.parse::<u32>().ok()?;
    Some(!Path::new("/proc").join(pid).exists())
}

fn sweep_scratch(temporary: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for entry in std::fs::read_dir(temporary).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        // Never into something mounted: what lies there is not ours to remove.
        let mounted =
            mounts.lines().any(|l| l.split(' ').nth(1).is_some_and(|p| Path::new(p).starts_with(&path)));
        if orphaned(&name, guard::SCRATCH_PREFIX) == Some(true) && !mounted {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

fn sweep_disks(temporary: &Path) {
    let list = || -> Result<serde_json::Value, Fault> {
        run_json(
            "vdisk list",
            tools::command(&["vdisk", "list", "--json"])?,
            Duration::from_secs(20),
            temporary,
        )
    };
    let Ok(listed) = list() else { return };
    let disks =
        listed.as_array().cloned().or_else(|| listed.get("disks")?.as_array().cloned()).unwrap_or_default();
    for name in disks.iter().filter_map(|d| d.get("name")?.as_str()) {
        if orphaned(name, "lab-") == Some(true)
            && let Ok(command) = tools::command(&["vdisk", "down", "--name", name, "--json"])
        {
            // Best effort: what cannot be removed is shown by `vdisk list`.
            let _ = run_json("vdisk down", command, Duration::from_secs(60), temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_dead_makers_are_orphans() {
        let own = std::process::id();
        assert_eq!(orphaned(&format!("lab-{own}-0"), "lab-"), Some(false));
        // Above the largest process id Linux gives.
        assert_eq!(orphaned("lab-4194999-0", "lab-"), Some(true));
        for other in ["lab-", "lab-x-0", "mine", "lab"] {
            assert_eq!(orphaned(other, "lab-"), None, "{other}");
        }
    }

    #[test]
    fn scratch_of_dead_makers_is_removed_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let keep = format!("seekless-lab-{}-a", std::process::id());
        for name in ["seekless-lab-4194999-a", keep.as_str(), "seekless-lab-b", "other"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        sweep_scratch(dir.path());
        let mut left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["other", keep.as_str(), "seekless-lab-b"]);
    }
}
