//! What waits to be written to a disk, from the files of `/sys/block` that every user may read.
//!
//! `inflight` has the writes that the device has been given. Schedulers give it writes as soon as it has room
//! for a command, so a write that waits there for long has others in front of it at the device. `stat` has
//! the sectors written. Devices on top of others (md, dm, loops) and those below them count together.
//!
//! The kernel's writeback of dirty pages cannot be told apart by disk without debugfs, and becomes requests
//! in flight by itself; so it is not read.
//!
//! Must not know: who writes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::queue::{Queue, Usage};
use crate::topology::is_device_name;

/// Maximum number of devices that are read for one disk. A set of more members is seen by its first ones and
/// by its own counts.
const DEVICES_MAX: usize = 32;

/// Maximum depth of devices on top of each other.
const DEPTH_MAX: u32 = 8;

/// Writes of a disk at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Write requests in flight.
    pub in_flight: u64,
    /// Bytes written since the last look.
    pub bytes: u64,
}

/// The files of one device.
#[derive(Debug)]
struct Device {
    in_flight: File,
    usage: Usage,
    sectors: u64,
}

/// The writes of one disk, and of the devices below it.
#[derive(Debug)]
pub struct WriteWatch {
    /// The disk's own devices, then those below them.
    own: Vec<Device>,
    below: Vec<Device>,
}

impl WriteWatch {
    /// Watches the disk that consists of these whole devices of `sys_block`, on a running system
    /// `/sys/block`. `None` if none of them can be read, as for a file system without a device.
    pub fn open(sys_block: &Path, names: &[String]) -> Option<WriteWatch> {
        let open = |names: &[String]| -> Vec<Device> {
            names.iter().take(DEVICES_MAX).filter_map(|name| Device::open(sys_block, name).ok()).collect()
        };
        let mut under: Vec<String> = Vec::new();
        names.iter().for_each(|name| add_below(sys_block, name, &mut under, 0));
        let watch = WriteWatch { own: open(names), below: open(&under) };
        (!watch.own.is_empty() || !watch.below.is_empty()).then_some(watch)
    }

    /// Reads the counts.
    ///
    /// # Errors
    /// A device is gone.
    pub fn look(&mut self) -> io::Result<Seen> {
        let (own, below) = (look_at(&mut self.own)?, look_at(&mut self.below)?);
        // A device on top counts what those below it do for it, if it counts at all; but a write to one of
        // those may have another origin.
        Ok(Seen { in_flight: own.in_flight.max(below.in_flight), bytes: own.bytes.max(below.bytes) })
    }
}

fn look_at(devices: &mut [Device]) -> io::Result<Seen> {
    devices.iter_mut().try_fold(Seen::default(), |all, device| {
        let seen = device.look()?;
        Ok(Seen {
            in_flight: all.in_flight.saturating_add(seen.in_flight),
            bytes: all.bytes.saturating_add(seen.bytes),
        })
    })
}

impl Device {
    fn open(sys_block: &Path, name: &str) -> io::Result<Device> {
        if !is_device_name(name) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let in_flight = File::open(sys_block.join(name).join("inflight"))?;
        let usage = Queue::new(sys_block, name).usage()?;
        let mut device = Device { in_flight, usage, sectors: 0 };
        device.look()?;
        Ok(device)
    }

    fn look(&mut self) -> io::Result<Seen> {
        let mut text = [0; 64];
        let n = self.in_flight.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..n]);
        let in_flight = text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
        let used = self.usage.now()?;
        let before = std::mem::replace(&mut self.sectors, used.sectors_written);
        Ok(Seen { in_flight, bytes: used.sectors_written.saturating_sub(before).saturating_mul(512) })
    }
}

/// Adds the whole devices below one, each once.
fn add_below(sys_block: &Path, name: &str, found: &mut Vec<String>, depth: u32) {
    if !is_device_name(name) || depth >= DEPTH_MAX {
        return;
    }
    let Ok(slaves) = fs::read_dir(sys_block.join(name).join("slaves")) else { return };
    for slave in slaves.flatten() {
        if found.len() >= DEVICES_MAX {
            return;
        }
        let Some(whole) = whole_device(&slave.path()) else { continue };
        if !found.contains(&whole) {
            found.push(whole.clone());
            add_below(sys_block, &whole, found, depth + 1);
        }
    }
}

/// Name of the whole device at a link to it or to one of its partitions.
fn whole_device(link: &Path) -> Option<String> {
    let dir: PathBuf = fs::canonicalize(link).ok()?;
    let dir = if dir.join("partition").exists() { dir.parent()?.to_path_buf() } else { dir };
    Some(dir.file_name()?.to_str()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Sys(tempfile::TempDir);

    impl Sys {
        fn set(&self, device: &str, in_flight: &str, sectors: u64, flushes: u64) {
            let dir = self.0.path().join(device);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("inflight"), in_flight).unwrap();
            let stat = format!(" 1 0 8 5 3 0 {sectors} 1 2 9 9 0 0 0 0 {flushes} 7\n");
            fs::write(dir.join("stat"), stat).unwrap();
        }

        fn below(&self, device: &str, slave: &str) {
            let slaves = self.0.path().join(device).join("slaves");
            fs::create_dir_all(&slaves).unwrap();
            symlink(self.0.path().join(slave), slaves.join(slave.replace('/', "-"))).unwrap();
        }

        fn watch(&self, names: &[&str]) -> Option<WriteWatch> {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            WriteWatch::open(self.0.path(), &names)
        }
    }

    fn sys() -> Sys {
        Sys(tempfile::tempdir().unwrap())
    }

    #[test]
    fn writes_in_flight_and_written_are_seen() {
        let sys = sys();
        sys.set("sda", "       4        0\n", 1000, 5);
        let mut watch = sys.watch(&["sda"]).unwrap();
        assert_eq!(watch.look().unwrap(), Seen::default(), "what was before does not count");
        sys.set("sda", "       1        3\n", 1008, 5);
        assert_eq!(watch.look().unwrap(), Seen { in_flight: 3, bytes: 4096 });
        sys.set("sda", "       0        0\n", 1008, 6);
        assert_eq!(watch.look().unwrap(), Seen::default());
        // The counters of another device of that name, and nonsense.
        sys.set("sda", "", 3, 0);
        assert_eq!(watch.look().unwrap(), Seen::default());
    }

    #[test]
    fn a_set_is_seen_by_its_own_counts_or_by_its_members() {
        let sys = sys();
        for device in ["sda", "sdb", "md0", "dm-0"] {
            sys.set(device, "0 0", 0, 0);
        }
        sys.set("sda/sda1", "0 0", 0, 0);
        fs::write(sys.0.path().join("sda/sda1/partition"), "1").unwrap();
        sys.below("md0", "sda/sda1");
        sys.below("md0", "sdb");
        sys.below("dm-0", "md0");
        // A loop of devices ends.
        sys.below("sdb", "md0");
        let mut watch = sys.watch(&["dm-0"]).unwrap();
        assert_eq!(watch.below.len(), 3, "md0, sda by its partition, sdb");
        sys.set("sdb", "0 2", 16, 1);
        assert_eq!(watch.look().unwrap(), Seen { in_flight: 2, bytes: 8192 });
        sys.set("dm-0", "0 7", 80, 0);
        assert_eq!(watch.look().unwrap(), Seen { in_flight: 7, bytes: 40_960 });
    }

    #[test]
    fn what_has_no_device_is_not_watched() {
        let sys = sys();
        sys.set("sda", "0 0", 0, 0);
        for name in ["/mnt/fuse", "..", "", "sdz"] {
            assert!(sys.watch(&[name]).is_none(), "{name}");
        }
        assert!(sys.watch(&[]).is_none());
        assert!(sys.watch(&["sdz", "sda"]).is_some(), "a member that is gone does not hide the others");
    }

    #[test]
    fn a_real_device_shows_what_is_written() {
        use crate::loopdev::LoopDevice;
        use std::os::fd::AsFd;

        // Beside the program, because a temporary folder may be in memory.
        let file = tempfile::tempfile_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        file.set_len(16 << 20).unwrap();
        let device = match LoopDevice::attach(file.as_fd(), 4096) {
            Ok(device) => device,
            Err(error) => return println!("skipped: no loop device can be bound here ({error})"),
        };
        let name = format!("loop{}", device.number());
        let mut watch = WriteWatch::open(Path::new("/sys/block"), &[name]).unwrap();
        let writer = File::options().write(true).open(device.path()).unwrap();
        writer.write_all_at(&vec![7; 4 << 20], 0).unwrap();
        writer.sync_all().unwrap();
        let seen = watch.look().unwrap();
        assert_eq!(seen.bytes, 4 << 20);
        assert_eq!(watch.look().unwrap(), Seen::default());
    }

    #[test]
    fn an_old_kernel_without_flushes_is_read() {
        let sys = sys();
        sys.set("sda", "0 1", 8, 0);
        fs::write(sys.0.path().join("sda/stat"), "1 0 8 5 3 0 8 1 2 9 9\n").unwrap();
        let mut watch = sys.watch(&["sda"]).unwrap();
        assert_eq!(watch.look().unwrap(), Seen { in_flight: 1, ..Seen::default() });
    }
}
