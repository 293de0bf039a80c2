//! What this system lets us do, found out before anything is started; and what killed runs left behind.

use std::path::Path;
use std::time::Duration;

use seekless_kernel::cgroup::MemoryGroup;
use seekless_units::{Exit, Fault};

use crate::process::run_json;
use crate::scenario::{Load, Scenario};
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
    let permission = |what: &str| Fault::new(Exit::Permission, what.to_string());
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
    if !root && matches!(scenario.load, Load::Diff { .. }) {
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
        use crate::scenario::ServerKind::{Apache, Builtin, Lighttpd, Nginx};
        match kind {
            Nginx => tools::find("nginx").map(drop)?,
            Apache => tools::find("apache2").map(drop)?,
            Lighttpd => tools::find("lighttpd").map(drop)?,
            Builtin => {}
        }
    }
    if scenario.arms.iter().any(|a| a.mode.is_some()) {
        tools::shim()?;
    }
    Ok(Ground { block: root, groups })
}

/// Removes what runs that were killed (not merely stopped) could not.
pub(crate) fn sweep() {
    MemoryGroup::sweep_stale();
    let temporary = std::env::temp_dir();
    let list = || -> Result<serde_json::Value, Fault> {
        run_json(
            "vdisk list",
            tools::command(&["vdisk", "list", "--json"])?,
            Duration::from_secs(20),
            &temporary,
        )
    };
    let Ok(listed) = list() else { return };
    let disks =
        listed.as_array().cloned().or_else(|| listed.get("disks")?.as_array().cloned()).unwrap_or_default();
    for name in disks.iter().filter_map(|d| d.get("name")?.as_str()) {
        let owner = name.strip_prefix("lab-").and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
            && let Ok(command) = tools::command(&["vdisk", "down", "--name", name, "--json"])
        {
            // Best effort: what cannot be removed is shown by `vdisk list`.
            let _ = run_json("vdisk down", command, Duration::from_secs(60), &temporary);
        }
    }
}
