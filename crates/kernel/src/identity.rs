//! Identity of a disk that survives renames: serial number, world-wide name, UUID.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sysfs;
use crate::topology::is_device_name;

/// A disk's persistent name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name: letters, digits and `-._` only, at most 120 of them.
    pub id: String,
    /// Its source: `serial`, `wwid`, `dm`, `md`, `loop`, or `name` if there is nothing persistent.
    pub source: &'static str,
    /// Udev's `ID_SERIAL`, to match the disk in a rule.
    pub udev_serial: Option<String>,
}

impl Identity {
    /// The identity of whole device `name` in `sys_block` (`/sys/block`); `udev_data` is `/run/udev/data`.
    pub fn of(sys_block: &Path, udev_data: &Path, name: &str) -> Identity {
        let dir = is_device_name(name).then(|| sys_block.join(name));
        let text = |path: &str| sysfs::text(dir.as_ref()?.join(path));
        let udev_serial = text("dev").and_then(|dev| {
            let data = fs::read_to_string(udev_data.join(format!("b{dev}"))).ok()?;
            data.lines().find_map(|l| l.strip_prefix("E:ID_SERIAL=")).map(str::to_string)
        });
        let candidates = [
            ("dm", text("dm/uuid")),
            ("md", text("md/uuid")),
            // A loop device's number says nothing; the file under it does.
            ("loop", text("loop/backing_file")),
            ("serial", text("serial")),
            ("serial", text("device/serial")),
            ("wwid", text("wwid")),
            ("wwid", text("device/wwid")),
            ("serial", udev_serial.clone()),
        ];
        let found = candidates.into_iter().find_map(|(source, id)| id.map(|id| (source, id)));
        let (source, id) = found.unwrap_or(("name", name.to_string()));
        Identity { id: format!("{source}-{}", clean(&id)), source, udev_serial }
    }
}

/// Makes it usable as a file name.
fn clean(id: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    let id: String = id.split_whitespace().collect::<Vec<_>>().join("_");
    // The end distinguishes disks: manufacturers put the serial number last, and paths their name.
    let skip = id.chars().count().saturating_sub(100);
    id.chars().skip(skip).map(fit).collect()
}

/// The folder of measured profiles: `$SEEKLESS_PROFILES`; else, for root, `/var/lib/seekless/profiles`; else
/// `$XDG_STATE_HOME/seekless/profiles`; else `~/.local/state/seekless/profiles`. A profile outlasts a reboot,
/// so it is not kept beside the daemon's socket.
pub fn profiles_dir() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = set("SEEKLESS_PROFILES") {
        return dir;
    }
    if rustix::process::geteuid().is_root() {
        return "/var/lib/seekless/profiles".into();
    }
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    state.unwrap_or_else(|| "/var/tmp".into()).join("seekless/profiles")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_lasting_name_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (sys, udev) = (dir.path().join("sys"), dir.path().join("udev"));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(sys.join("sda/dev"), "8:0\n");
        write(udev.join("b8:0"), "N:sda\nE:ID_SERIAL=WDC_WD10EFRX-68J_WD-WCC1\n");
        write(sys.join("sdb/device/wwid"), "naa.5000c500a1b2  c3d4\n");
        write(sys.join("loop3/loop/backing_file"), "/run/x/disk image\n");
        fs::create_dir_all(sys.join("sdc")).unwrap();
        let of = |name: &str| Identity::of(&sys, &udev, name);
        assert_eq!(of("sda").id, "serial-WDC_WD10EFRX-68J_WD-WCC1");
        assert_eq!(of("sda").udev_serial.as_deref(), Some("WDC_WD10EFRX-68J_WD-WCC1"));
        assert_eq!(of("sdb").id, "wwid-naa.5000c500a1b2_c3d4");
        assert_eq!(of("loop3").id, "loop-_run_x_disk_image");
        assert_eq!((of("sdc").id.as_str(), of("sdc").source), ("name-sdc", "name"));
    }
}
