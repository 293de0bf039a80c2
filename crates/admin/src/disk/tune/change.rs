//! Applies settings, restores them exactly, and keeps them over a restart.
//!
//! Before the first change, the values of all five settings are written to a file in the runtime state
//! folder, which disappears at a restart as the settings do. A second `--apply` leaves that record alone, so
//! `--revert` restores the values before the first. If the kernel refuses a value, the values set so far are
//! restored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seekless_base::{Exit, Fault};
use seekless_kernel::identity::Identity;
use seekless_kernel::queue::{Queue, Setting};
use seekless_kernel::state;
use serde::{Deserialize, Serialize};

use crate::disk::store;

/// The values before the first change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    disk: String,
    /// By the name of the sysfs file.
    settings: BTreeMap<String, String>,
}

/// Where the record of a disk is; `folder` is the state folder ([`state`]).
fn record(folder: std::io::Result<PathBuf>, id: &str) -> Result<PathBuf, Fault> {
    let folder = folder.map_err(|e| Fault::permission(e.to_string()))?;
    Ok(folder.join("tune").join(format!("{id}.json")))
}

fn values(queue: &Queue) -> BTreeMap<String, String> {
    Setting::ALL.iter().filter_map(|s| Some((s.name().to_string(), queue.get(s)?))).collect()
}

/// Writes the values that differ, in the required order. Returns which.
fn restore(
    queue: &Queue,
    wanted: &BTreeMap<String, String>,
) -> Result<Vec<Setting>, (Setting, std::io::Error)> {
    let mut changed = Vec::new();
    for setting in Setting::ALL {
        let Some(value) = wanted.get(setting.name()) else { continue };
        if queue.get(&setting).as_ref() != Some(value) {
            queue.set(&setting, value).map_err(|e| (setting.clone(), e))?;
            changed.push(setting);
        }
    }
    Ok(changed)
}

/// Records the present values and sets these.
///
/// # Errors
/// `Permission` or `Failed`; all values are as before then.
pub(super) fn apply(queue: &Queue, id: &str, name: &str, changes: &[(Setting, String)]) -> Result<(), Fault> {
    if changes.is_empty() {
        return Ok(());
    }
    let before = values(queue);
    let path = record(state::made_folder(), id)?;
    let fresh = !path.exists();
    if fresh {
        let noted = Before { disk: id.to_string(), settings: before.clone() };
        let text = serde_json::to_string_pretty(&noted).unwrap_or_default() + "\n";
        store::write(&path, text.as_bytes())?;
    }
    for (setting, value) in changes {
        if let Err(e) = queue.set(setting, value) {
            let mut fault = cannot_set(name, setting, value, &e);
            match restore(queue, &before) {
                Ok(_) if fresh => drop(std::fs::remove_file(&path)),
                Ok(_) => {}
                Err((s, e)) => fault.message += &format!("; and {} could not be put back: {e}", s.name()),
            }
            return Err(fault);
        }
    }
    Ok(())
}

/// Restores the values before the first `apply`. `None` if there is no record.
///
/// # Errors
/// `Permission` or `Failed`: the record stays, so that it can be tried again.
pub(super) fn revert(queue: &Queue, id: &str, name: &str) -> Result<Option<Vec<Setting>>, Fault> {
    let path = record(state::folder(), id)?;
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Fault::failed(format!("cannot read {}: {e}", path.display()))),
    };
    let before: Before = serde_json::from_str(&text)
        .ok()
        .filter(|b: &Before| b.disk == id)
        .ok_or_else(|| Fault::failed(format!("{} is damaged: delete it", path.display())))?;
    let put_back = || -> Result<Vec<Setting>, (Setting, std::io::Error)> {
        let mut changed = restore(queue, &before.settings)?;
        // A change of the scheduler resets other values after they were compared: repeat until all are right.
        changed.extend(restore(queue, &before.settings)?);
        changed.sort();
        changed.dedup();
        Ok(changed)
    };
    let changed = put_back().map_err(|(setting, e)| {
        let value = before.settings.get(setting.name()).cloned().unwrap_or_default();
        cannot_set(name, &setting, &value, &e)
    })?;
    std::fs::remove_file(&path)
        .map_err(|e| Fault::failed(format!("put back, but cannot remove {}: {e}", path.display())))?;
    Ok(Some(changed))
}

fn cannot_set(name: &str, setting: &Setting, value: &str, e: &std::io::Error) -> Fault {
    let path = format!("/sys/block/{name}/{}", setting.path());
    if e.kind() == std::io::ErrorKind::PermissionDenied {
        return Fault::permission(format!("cannot set {path}: run as root"));
    }
    Fault::failed(format!("the kernel does not take {value} for {path}: {e}; everything is as before"))
}

fn rule_path(udev_dir: &Path, identity: &Identity) -> PathBuf {
    // After 60-block.rules and 60-persistent-storage.rules, which find the serial number.
    udev_dir.join(format!("61-seekless-{}.rules", identity.id))
}

/// Writes a udev rule with these values. Returns its path.
///
/// # Errors
/// `Permission` or `Failed`.
pub(super) fn persist(
    udev_dir: &Path,
    identity: &Identity,
    name: &str,
    values: &[(Setting, String)],
) -> Result<PathBuf, Fault> {
    if !udev_dir.is_dir() {
        return Err(Fault::missing(format!(
            "there is no {}: udev does not look after this machine's disks",
            udev_dir.display()
        )));
    }
    let path = rule_path(udev_dir, identity);
    store::write(&path, rule(identity, name, values).as_bytes())?;
    Ok(path)
}

fn rule(identity: &Identity, name: &str, values: &[(Setting, String)]) -> String {
    let (matched, note) = match &identity.udev_serial {
        // A match cannot contain quotes or the wildcards of udev's patterns.
        Some(serial) if !serial.contains(['"', '*', '?', '[', '|', '\\', '\n']) => {
            (format!("ENV{{ID_SERIAL}}==\"{serial}\""), "")
        }
        _ => (
            format!("KERNEL==\"{name}\""),
            "# The disk tells no serial number: this goes by its name, which may change with the order of cables.\n",
        ),
    };
    let mut rule = format!(
        "# Written by `seekless disk tune --persist`; removed by `seekless disk tune --revert`.\n{note}\
         ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{{DEVTYPE}}==\"disk\", {matched}"
    );
    for (setting, value) in values {
        rule += &format!(", ATTR{{{}}}=\"{value}\"", setting.path());
    }
    rule + "\n"
}

/// Removes the rule. Returns its path if there was one.
///
/// # Errors
/// `Permission` or `Failed`.
pub(super) fn unpersist(udev_dir: &Path, identity: &Identity) -> Result<Option<PathBuf>, Fault> {
    let path = rule_path(udev_dir, identity);
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(Some(path)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => {
            let denied = e.kind() == std::io::ErrorKind::PermissionDenied;
            let exit = if denied { Exit::Permission } else { Exit::Failed };
            Err(Fault::new(exit, format!("cannot remove {}: {e}", path.display())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_match_by_serial_or_say_that_they_cannot() {
        let values =
            [(Setting::Scheduler, "mq-deadline".to_string()), (Setting::ReadAhead, "2048".to_string())];
        let mut identity =
            Identity { id: "serial-X".into(), source: "serial", udev_serial: Some("WDC_X".into()) };
        let by_serial = rule(&identity, "sda", &values);
        assert!(
            by_serial.contains("ENV{ID_SERIAL}==\"WDC_X\", ATTR{queue/scheduler}=\"mq-deadline\""),
            "{by_serial}"
        );
        assert!(by_serial.ends_with("ATTR{queue/read_ahead_kb}=\"2048\"\n"));
        identity.udev_serial = Some("odd\"one".into());
        let by_name = rule(&identity, "sda", &values);
        assert!(by_name.contains("KERNEL==\"sda\"") && by_name.contains("may change"), "{by_name}");
    }
}
