//! A btrfs over devices backed by files in memory. Needs root, loop devices and mkfs.btrfs.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use seekless_kernel::btrfs::Volume;
use seekless_kernel::loopdev::LoopDevice;
use tempfile::TempDir;

/// Size of a device that mkfs.btrfs accepts for every profile, with room for two chunks of data.
pub(crate) const DEVICE_BYTES: u64 = 256 << 20;

pub(crate) const FILE_BYTES: usize = 24 << 20;

pub(crate) const PAGE: usize = 4096;

/// A mounted btrfs; dismantled on drop.
pub(crate) struct Made {
    pub(crate) images: Vec<File>,
    devices: Vec<LoopDevice>,
    at: TempDir,
    mounted: bool,
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg(self.at.path()).status();
        }
        // The kernel remembers devices by name, even when they are gone.
        let mut forget = Command::new(tool("btrfs"));
        let _ = forget
            .args(["device", "scan", "--forget"])
            .args(self.devices.iter().map(LoopDevice::path))
            .output();
    }
}

fn tool(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/debian/root");
    let tools = std::env::var_os("SEEKLESS_TOOLS").map_or(root, PathBuf::from);
    let unpacked = tools.join("bin").join(name);
    if unpacked.exists() { unpacked } else { name.into() }
}

/// `None`, with a message, if it cannot be made here.
pub(crate) fn make(profile: &str, devices: usize) -> Option<Made> {
    let skipped = |why: &str| {
        println!("skipped: {why}");
        None
    };
    if !rustix::process::geteuid().is_root() {
        return skipped("needs root");
    }
    if Command::new(tool("mkfs.btrfs")).arg("--version").output().is_err() {
        return skipped("there is no mkfs.btrfs");
    }
    let mut made =
        Made { images: Vec::new(), devices: Vec::new(), at: tempfile::tempdir().unwrap(), mounted: false };
    for _ in 0..devices {
        let image = tempfile::tempfile_in("/dev/shm").unwrap();
        image.set_len(DEVICE_BYTES).unwrap();
        match LoopDevice::attach(image.as_fd(), 512) {
            Ok(device) => made.devices.push(device),
            Err(why) => return skipped(&format!("no loop device: {why}")),
        }
        made.images.push(image);
    }
    let paths: Vec<PathBuf> = made.devices.iter().map(LoopDevice::path).collect();
    let mut mkfs = Command::new(tool("mkfs.btrfs"));
    let done = mkfs.args(["-q", "-f", "-K", "-d", profile, "-m", "raid1"]).args(&paths).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let members: Vec<String> = paths.iter().map(|path| format!("device={}", path.display())).collect();
    let mut mount = Command::new("mount");
    let done =
        mount.args(["-t", "btrfs", "-o", &members.join(",")]).arg(&paths[0]).arg(made.at.path()).output();
    let done = done.unwrap();
    if !done.status.success() {
        return skipped("this kernel has no btrfs");
    }
    made.mounted = true;
    Some(made)
}

impl Made {
    /// A file whose pages contain their own offsets, on the devices and not in memory.
    pub(crate) fn file(&self) -> File {
        self.files(1).remove(0)
    }

    /// This many of them.
    pub(crate) fn files(&self, count: usize) -> Vec<File> {
        let mut bytes = Vec::with_capacity(FILE_BYTES);
        for page in 0..FILE_BYTES / PAGE {
            bytes.extend((page as u64 + 1).to_le_bytes().repeat(PAGE / 8));
        }
        let make = |i: usize| {
            let path = self.at.path().join(format!("film{i}"));
            File::create(&path).unwrap().write_all(&bytes).unwrap();
            File::open(path).unwrap()
        };
        let files: Vec<File> = (0..count).map(make).collect();
        rustix::fs::syncfs(File::open(self.at.path()).unwrap()).unwrap();
        for file in &files {
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
        files
    }

    /// Index of the device with this id.
    pub(crate) fn index(&self, volume: &Volume, id: u64) -> usize {
        let dev = volume.devices.iter().find(|device| device.id == id).unwrap().dev.unwrap();
        self.devices.iter().position(|device| (dev.major, dev.minor) == (7, device.number())).unwrap()
    }

    /// Bytes read from each device.
    pub(crate) fn read_bytes(&self) -> Vec<u64> {
        let read = |device: &LoopDevice| {
            let stat = fs::read_to_string(format!("/sys/block/loop{}/stat", device.number())).unwrap();
            stat.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap() * 512
        };
        self.devices.iter().map(read).collect()
    }
}
