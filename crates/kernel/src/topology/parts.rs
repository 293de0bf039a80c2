//! Parts of a device with their own heads, one behind the other: the members of an md linear set, the
//! actuators of a drive.

use std::fs;
use std::path::Path;

use super::{Disk, Topology};

/// Maximum number of members; a larger set is not understood.
pub const MEMBERS_MAX: u64 = 64;

/// Sectors by which a member of a linear set may be larger than the part that the set uses: md rounds to its
/// chunk, 64 MiB at most.
const ROUNDING: u64 = (64 << 20) / 512;

impl Topology {
    /// First sectors of the parts of a disk with their own heads, rising, except the first part at 0. Empty
    /// if there is one part, or the reported layout is not plausible.
    pub fn parts(&self, disk: &Disk) -> Vec<u64> {
        let dir = self.sys.join(format!("dev/block/{}", disk.dev));
        let told = match text(&dir.join("md/level")) {
            Ok(level) if level == "linear" => {
                number(&dir.join("md/raid_disks")).and_then(|members| linear(&dir, members))
            }
            Ok(_) => Ok(Vec::new()),
            Err(_) => actuators(&dir),
        };
        told.unwrap_or_default()
    }
}

/// First sectors of the members of an md linear set, from their sizes in the order of their slots, except the
/// first. `dir` is the device's folder in sysfs.
///
/// # Errors
/// Why the reported layout is inconsistent, in one clause.
pub fn linear(dir: &Path, members: u64) -> Result<Vec<u64>, String> {
    if !(1..=MEMBERS_MAX).contains(&members) {
        return Err(format!("md/raid_disks says {members}"));
    }
    let mut at = 0u64;
    let mut parts = Vec::new();
    for slot in 0..members {
        let size = dir.join(format!("md/rd{slot}/size"));
        parts.push(at);
        // In KiB.
        at = at.saturating_add(number(&size)?.saturating_mul(2));
    }
    let sectors = number(&dir.join("size"))?;
    // Members are rounded down, by at most a chunk each.
    if at < sectors || at - sectors > members * ROUNDING {
        return Err(format!("linear of {sectors} sectors over members of {at}"));
    }
    Ok(parts.split_off(1))
}

/// First sectors of the access ranges of a drive with several actuators, except the first.
///
/// # Errors
/// Why the reported layout is inconsistent, in one clause.
pub fn actuators(dir: &Path) -> Result<Vec<u64>, String> {
    let ranges = dir.join("queue/independent_access_ranges");
    let Ok(all) = fs::read_dir(&ranges) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for range in all.flatten().filter(|e| e.path().is_dir()) {
        found.push((number(&range.path().join("sector"))?, number(&range.path().join("nr_sectors"))?));
    }
    found.sort_unstable();
    let sectors = number(&dir.join("size"))?;
    let mut at = 0u64;
    for &(start, len) in &found {
        if start != at || len == 0 {
            return Err(format!("its access range at sector {start} does not follow on {at}"));
        }
        at = at.saturating_add(len);
    }
    match found.len() {
        0 | 1 => Ok(Vec::new()),
        _ if at != sectors => Err(format!("its access ranges hold {at} of {sectors} sectors")),
        n if n as u64 > MEMBERS_MAX => Err(format!("{n} access ranges")),
        _ => Ok(found.into_iter().skip(1).map(|range| range.0).collect()),
    }
}

/// The text of a sysfs file.
///
/// # Errors
/// It cannot be read, in one clause.
pub fn text(path: &Path) -> Result<String, String> {
    let said = |e: std::io::Error| format!("{}: {e}", path.display());
    fs::read_to_string(path).map(|t| t.trim().to_string()).map_err(said)
}

/// The first number in a sysfs file.
///
/// # Errors
/// There is none, in one clause.
pub fn number(path: &Path) -> Result<u64, String> {
    let text = text(path)?;
    // `md/chunk_size` and `md/layout` may be followed by their future values.
    let first = text.split_whitespace().next().unwrap_or("");
    first.parse().map_err(|_| format!("{} says `{text}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Dev, MountTable};

    #[test]
    fn a_linear_set_has_a_part_for_each_member_and_other_sets_have_one() {
        let dir = tempfile::tempdir().unwrap();
        let block = dir.path().join("dev/block/9:0");
        let put = |name: &str, text: &str| {
            let path = block.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let topology = Topology::new(dir.path(), MountTable::parse(b""));
        let disk = Disk { dev: Dev { major: 9, minor: 0 }, name: "md0".into(), rotational: true };
        assert!(topology.parts(&disk).is_empty(), "nothing is told");
        for (name, text) in
            [("size", "6000"), ("md/raid_disks", "2"), ("md/rd0/size", "1000"), ("md/rd1/size", "2000")]
        {
            put(name, text);
        }
        put("md/level", "linear\n");
        assert_eq!(topology.parts(&disk), [2000]);
        put("md/level", "raid1\n");
        assert!(topology.parts(&disk).is_empty());
        put("md/level", "linear\n");
        put("md/rd1/size", "9");
        assert!(topology.parts(&disk).is_empty(), "it contradicts itself");
    }
}
