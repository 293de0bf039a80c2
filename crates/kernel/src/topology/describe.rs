//! Description of the machine's disks.

use std::fs;

use super::{Dev, Topology, read_number};

/// One disk as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// Kernel name.
    pub name: String,
    /// Device number.
    pub dev: Dev,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether it has heads.
    pub rotational: bool,
    /// The kernel's own read-ahead, KiB.
    pub read_ahead_kb: Option<u64>,
    /// Maximum length of a single command, KiB.
    pub max_sectors_kb: Option<u64>,
    /// The current scheduler.
    pub scheduler: Option<String>,
    /// Model name, if the driver reports it.
    pub model: Option<String>,
}

impl Topology {
    /// All block devices with content, by name. Empty ones (unused loops, removable drives without a medium)
    /// and memory disks are left out.
    pub fn disks(&self) -> Vec<DiskInfo> {
        let Ok(entries) = fs::read_dir(self.sys.join("block")) else { return Vec::new() };
        let mut disks: Vec<DiskInfo> = entries.flatten().filter_map(|e| self.describe(&e.path())).collect();
        disks.sort_by(|a, b| a.name.cmp(&b.name));
        disks
    }

    fn describe(&self, dir: &std::path::Path) -> Option<DiskInfo> {
        let name = dir.file_name()?.to_str()?.to_string();
        // Here the kernel counts in 512-byte sectors, whatever the disk's sector size.
        let bytes = read_number(&dir.join("size"))?.saturating_mul(512);
        if bytes == 0 || name.starts_with("ram") || name.starts_with("zram") {
            return None;
        }
        let text = |file: &str| {
            let text = fs::read_to_string(dir.join(file)).ok()?.trim().to_string();
            Some(text).filter(|t| !t.is_empty())
        };
        let scheduler = text("queue/scheduler").map(|all| {
            let chosen = all.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            chosen.map_or(all.clone(), |(name, _)| name.to_string())
        });
        Some(DiskInfo {
            dev: Dev::parse(&text("dev")?)?,
            name,
            bytes,
            rotational: read_number(&dir.join("queue/rotational")) != Some(0),
            read_ahead_kb: read_number(&dir.join("queue/read_ahead_kb")),
            max_sectors_kb: read_number(&dir.join("queue/max_sectors_kb")),
            scheduler,
            model: text("device/model"),
        })
    }
}
