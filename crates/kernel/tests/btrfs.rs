//! Where btrfs says that bytes lie, held against the devices themselves. Needs root, loop devices and mkfs.btrfs.
#![cfg(feature = "full")]

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use seekless_kernel::btrfs::{Profile, Volume};
use seekless_kernel::extents::extents;
use seekless_kernel::loopdev::LoopDevice;
use tempfile::TempDir;

/// Smallest device that mkfs.btrfs takes for every profile, with room for two chunks of data.
const DEVICE_BYTES: u64 = 256 << 20;

const FILE_BYTES: usize = 24 << 20;

const PAGE: usize = 4096;

/// A btrfs over devices made of files in memory.
struct Made {
    images: Vec<File>,
    devices: Vec<LoopDevice>,
    at: TempDir,
    mounted: bool,
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg(self.at.path()).status();
        }
        // The kernel remembers devices by name, also when they are gone.
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

/// `None` where this cannot be had; it says so.
fn make(profile: &str, devices: usize) -> Option<Made> {
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
    /// A file whose pages say where they are, on the devices.
    fn file(&self) -> File {
        let path = self.at.path().join("film");
        let mut bytes = Vec::with_capacity(FILE_BYTES);
        for page in 0..FILE_BYTES / PAGE {
            bytes.extend((page as u64 + 1).to_le_bytes().repeat(PAGE / 8));
        }
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        rustix::fs::syncfs(File::open(self.at.path()).unwrap()).unwrap();
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        fs::OpenOptions::new().read(true).custom_flags(direct).open(path).unwrap()
    }

    /// The device of this number, counted from 0.
    fn index(&self, volume: &Volume, id: u64) -> usize {
        let dev = volume.devices.iter().find(|device| device.id == id).unwrap().dev.unwrap();
        self.devices.iter().position(|device| (dev.major, dev.minor) == (7, device.number())).unwrap()
    }

    /// Bytes that have been read of each device.
    fn read_bytes(&self) -> Vec<u64> {
        let read = |device: &LoopDevice| {
            let stat = fs::read_to_string(format!("/sys/block/loop{}/stat", device.number())).unwrap();
            stat.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap() * 512
        };
        self.devices.iter().map(read).collect()
    }
}

#[test]
fn every_byte_lies_where_the_map_says() {
    for (profile, devices, expected) in [
        ("single", 3, (Profile::Single, 1)),
        ("raid0", 3, (Profile::Stripe, 1)),
        ("raid1", 3, (Profile::Mirror, 2)),
        ("raid1c3", 3, (Profile::Mirror, 3)),
        ("raid10", 4, (Profile::StripedMirror, 2)),
        ("raid5", 3, (Profile::Parity(1), 1)),
        ("raid6", 4, (Profile::Parity(2), 1)),
    ] {
        let Some(made) = make(profile, devices) else { return };
        let file = made.file();
        let volume = Volume::read(&file).unwrap();
        assert_eq!(volume.devices.len(), devices);
        assert!(volume.devices.iter().all(|device| device.bytes == DEVICE_BYTES && device.dev.is_some()));
        assert_eq!(volume.chunks.profile(), Some(expected), "{profile}");
        let map = extents(&file, 0).unwrap();
        let mut used = vec![0; devices];
        for page in 0..FILE_BYTES / PAGE {
            let logical = map.address_of((page * PAGE) as u64).unwrap();
            for copy in 0..volume.chunks.at(logical).unwrap().copies() {
                let place = volume.chunks.at(logical).unwrap().place(logical, copy).unwrap();
                let device = made.index(&volume, place.device);
                let mut bytes = [0; PAGE];
                made.images[device].read_exact_at(&mut bytes, place.offset).unwrap();
                let expected = (page as u64 + 1).to_le_bytes().repeat(PAGE / 8);
                assert!(bytes[..] == expected[..], "{profile}: page {page}, copy {copy} on device {device}");
                used[device] += 1;
            }
        }
        let striped = !matches!(profile, "single" | "raid1");
        assert!(!striped || used.iter().all(|&pages| pages > 0), "{profile}: {used:?}");
    }
}

#[test]
fn the_number_of_the_reading_thread_chooses_the_copy() {
    let Some(made) = make("raid1", 2) else { return };
    let file = made.file();
    let volume = Volume::read(&file).unwrap();
    if !volume.thread_chooses {
        println!("skipped: another read policy, or process numbers of a container's own");
        return;
    }
    let logical = extents(&file, 0).unwrap().address_of(0).unwrap();
    let chunk = volume.chunks.at(logical).unwrap();
    for copy in 0..2 {
        let device = made.index(&volume, chunk.place(logical, copy).unwrap().device);
        // Numbers are handed out in turn.
        let read = || {
            let mine = rustix::thread::gettid().as_raw_nonzero().get() as usize % 2 == copy;
            mine.then(|| {
                let before = made.read_bytes();
                let mut bytes = vec![0u8; (1 << 20) + PAGE];
                let start = bytes.as_ptr().align_offset(PAGE);
                file.read_exact_at(&mut bytes[start..start + (1 << 20)], 0).unwrap();
                made.read_bytes()[device] - before[device]
            })
        };
        let read = (0..64).find_map(|_| thread::scope(|scope| scope.spawn(read).join().unwrap()));
        assert!(read.unwrap() >= 1 << 20, "copy {copy} comes from device {device}");
    }
}
