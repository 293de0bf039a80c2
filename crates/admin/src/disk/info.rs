//! The machine's disks as the kernel describes them.

use std::fs;
use std::path::Path;

use seekless_kernel::queue::{Queue, QueueSettings};
use seekless_kernel::sysfs;
use serde::Serialize;

/// One disk, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DiskInfo {
    pub(crate) name: String,
    /// Model name, if the driver reports it.
    pub(crate) model: Option<String>,
    pub(crate) bytes: u64,
    /// The kernel's flag.
    pub(crate) rotational: bool,
    /// The kernel's own read-ahead.
    pub(crate) read_ahead_kb: Option<u64>,
    /// Maximum length of a single command.
    pub(crate) max_sectors_kb: Option<u64>,
    pub(crate) scheduler: Option<String>,
}

/// All block devices with content, by name. Empty ones (unused loops, removable drives without a medium) and
/// memory disks are left out.
pub(crate) fn disks(sys_block: &Path) -> Vec<DiskInfo> {
    let entries = fs::read_dir(sys_block).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut disks: Vec<DiskInfo> = names.filter_map(|name| disk(sys_block, name)).collect();
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    disks
}

fn disk(sys_block: &Path, name: String) -> Option<DiskInfo> {
    let dir = sys_block.join(&name);
    // Here the kernel counts in 512-byte sectors, whatever the disk's sector size.
    let bytes = sysfs::number::<u64>(dir.join("size"))?.saturating_mul(512);
    if bytes == 0 || name.starts_with("ram") || name.starts_with("zram") {
        return None;
    }
    let model = sysfs::text(dir.join("device/model"));
    let queue = Queue::new(sys_block, &name).settings();
    let QueueSettings { rotational, read_ahead_kb, max_sectors_kb, scheduler, .. } = queue;
    Some(DiskInfo { name, model, bytes, rotational, read_ahead_kb, max_sectors_kb, scheduler })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_with_content_are_described() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (name, sectors) in [("sda", "2000\n"), ("loop0", "0\n"), ("zram0", "8\n")] {
            put(&format!("{name}/size"), sectors);
            put(&format!("{name}/queue/scheduler"), "none [mq-deadline]\n");
            put(&format!("{name}/queue/rotational"), "1\n");
        }
        let [disk] = &disks(dir.path())[..] else { panic!() };
        assert_eq!((disk.name.as_str(), disk.bytes, disk.rotational), ("sda", 1_024_000, true));
        assert_eq!(disk.scheduler.as_deref(), Some("mq-deadline"));
    }
}
