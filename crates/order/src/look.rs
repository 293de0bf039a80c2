//! Finds out where files lie.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use seekless_base::{part_of, words};
use seekless_kernel::extents;
use seekless_kernel::fstype::{self, Reads};
use seekless_kernel::prefetch::Steps;
use seekless_kernel::residency::{self, Residency};
use seekless_kernel::topology::{Backing, Dev, Topology};

use crate::holes::{self, Stretch};
use crate::sequence::{At, Place};
use crate::walk::as_path;

/// Bytes between two checks whether requested pages have arrived. At half, there are more system calls; at
/// double, pages that the kernel did not read are noticed later.
const REPORT_STEP: u64 = 1 << 20;

/// Maximum number of stretches of a file with holes that are checked for residency. At half, more files with
/// holes count as not in memory; at double, checking takes longer.
const LOOKED_AT_MAX: usize = 16;

/// A sector, the unit of a partition's start.
const SECTOR: u64 = 512;

/// What to sort by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum By {
    /// Address on the disk; by inode if there is none
    #[default]
    Address,
    /// Inode number
    Inode,
    /// Nothing: the order of the list
    Listed,
}

/// How an item was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// By the address of its first bytes on the disk.
    Address,
    /// By its inode number, because it has no address or that was requested.
    Inode,
    /// As listed, because that was requested, or it is in memory.
    Listed,
}

words! { How: Address = "address", Inode = "inode", Listed = "as listed" }

/// A path, looked up.
#[derive(Debug)]
pub(crate) struct Found {
    /// Its bytes.
    pub(crate) path: Vec<u8>,
    /// Its place on the disk.
    pub(crate) place: Place,
    /// Its file system: index of [`Look::device`].
    pub(crate) device: usize,
    /// Length of a file; a folder has none.
    pub(crate) bytes: u64,
    /// Upper bound of the bytes that are on the disk.
    pub(crate) on_disk: u64,
    /// How it is ordered.
    pub(crate) how: How,
}

/// A known file system.
#[derive(Debug)]
pub(crate) struct Device {
    /// Device number of the disk below it, or its own if that is not known.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "the summary has it"))]
    pub(crate) name: String,
    /// Index of the disk, by order of appearance.
    disk: usize,
    /// Where it starts on the disk, bytes.
    start: u64,
    /// Whether it reports addresses, as far as is known.
    tells: bool,
    /// How to read ahead on it; `None`: not at all.
    pub(crate) steps: Option<Steps>,
}

/// The file systems known so far.
pub(crate) struct Look {
    topology: Topology,
    /// What to sort by.
    pub(crate) by: By,
    /// All known file systems.
    pub(crate) devices: Vec<Device>,
    by_number: HashMap<u64, usize>,
    disks: Vec<Dev>,
    /// For each disk, where parts with heads of their own begin, in sectors; without the first part.
    parts: Vec<Vec<u64>>,
}

impl Look {
    /// Without any. Files are opened only to sort by address.
    pub(crate) fn new(by: By) -> Look {
        Look {
            topology: Topology::of_system(),
            by,
            devices: Vec::new(),
            by_number: HashMap::new(),
            disks: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Index of the part of a disk whose heads reach this place.
    pub(crate) fn part(&self, place: Place) -> usize {
        match (place.at, self.parts.get(place.disk)) {
            (At::Address(address), Some(starts)) => part_of(starts, address / SECTOR),
            _ => 0,
        }
    }

    /// Whether a disk has several such parts.
    pub(crate) fn has_parts(&self, disk: usize) -> bool {
        self.parts.get(disk).is_some_and(|starts| !starts.is_empty())
    }

    /// Looks up a path, following symlinks. `sorts`: it is ordered; otherwise it stays where it is listed.
    ///
    /// # Errors
    /// Why it cannot be ordered, in a few words.
    pub(crate) fn up(&mut self, path: Vec<u8>, sorts: bool) -> Result<Found, (Vec<u8>, String)> {
        match self.placed(as_path(&path), sorts && self.by == By::Address) {
            Ok((place, device, bytes, on_disk)) => {
                let how = match place.at {
                    _ if !sorts => How::Listed,
                    At::Address(_) => How::Address,
                    At::Inode(_) => How::Inode,
                };
                Ok(Found { path, place, device, bytes, on_disk, how })
            }
            Err(why) => Err((path, why)),
        }
    }

    /// A file system by its index.
    pub(crate) fn device(&self, index: usize) -> &Device {
        &self.devices[index]
    }

    fn placed(&mut self, path: &Path, by_address: bool) -> Result<(Place, usize, u64, u64), String> {
        let meta = fs::metadata(path).map_err(|e| e.to_string())?;
        let is_file = meta.is_file();
        if !is_file && !meta.is_dir() {
            return Err("neither a file nor a folder".to_string());
        }
        let index = self.index_of(meta.dev());
        let inode = At::Inode(meta.ino());
        let ask = by_address && self.devices[index].tells && meta.len() > 0;
        let at = if ask { self.address(path, index)?.map_or(inode, At::Address) } else { inode };
        let bytes = if is_file { meta.len() } else { 0 };
        let on_disk = holes::on_disk(bytes, meta.blocks());
        Ok((Place { disk: self.devices[index].disk, at }, index, bytes, on_disk))
    }

    /// Disk address of the first bytes that have one.
    fn address(&mut self, path: &Path, index: usize) -> Result<Option<u64>, String> {
        let file = match open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(e.to_string()),
            // The consumer may have rights that this process lacks.
            Err(_) => return Ok(None),
        };
        let device = &mut self.devices[index];
        match extents::extents(&file, 0) {
            Ok(map) => Ok(map.first().map(|first| device.start.saturating_add(first.address))),
            Err(e) => {
                let untold = [Errno::OPNOTSUPP, Errno::NOTTY, Errno::NOSYS];
                device.tells &= !untold.iter().any(|no| e.raw_os_error() == Some(no.raw_os_error()));
                Ok(None)
            }
        }
    }

    fn index_of(&mut self, number: u64) -> usize {
        if let Some(index) = self.by_number.get(&number) {
            return *index;
        }
        let dev = Dev::from_raw(number);
        let backing = self.topology.backing(dev, None);
        let reads_from_disk = !matches!(backing, Backing::Memory | Backing::Beyond(_));
        let (disk, name, start, queue_of, parts) = match backing {
            Backing::Disk { disk, start, queue_of, .. } => {
                let parts = self.topology.parts(&disk);
                (disk.dev, disk.name, start, queue_of, parts)
            }
            _ => (dev, dev.to_string(), 0, None, Vec::new()),
        };
        let limits = self.topology.queue_limits(queue_of.unwrap_or(dev));
        let steps = Steps { submit: limits.read_ahead_cut(), report: REPORT_STEP };
        let seen = self.disks.iter().position(|other| *other == disk);
        let rank = seen.unwrap_or(self.disks.len());
        if seen.is_none() {
            self.parts.push(parts);
            self.disks.push(disk);
        }
        self.devices.push(Device {
            name,
            disk: rank,
            start: start.saturating_mul(SECTOR),
            tells: true,
            steps: reads_from_disk.then_some(steps),
        });
        self.by_number.insert(number, self.devices.len() - 1);
        self.devices.len() - 1
    }
}

/// Opens a file to examine it or to read it ahead. Does not block: neither on a FIFO that has replaced the
/// file nor on the holder of a lease. Updates no access time if the caller owns the file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let with = |flags: OFlags| {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
    };
    match with(OFlags::NOATIME) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => with(OFlags::empty()),
        opened => opened,
    }
}

/// Whether all of a file is in memory. `None`: it has no bytes that could be.
pub(crate) fn is_in_memory(path: &Path) -> Option<bool> {
    let file = open(path).ok()?;
    let meta = file.metadata().ok().filter(|meta| meta.is_file() && meta.len() > 0)?;
    let all = match holes::may_have_holes(meta.len(), meta.blocks()) {
        // For a file with more stretches, the check costs too much.
        true => holes::data(&file, 0, meta.len(), LOOKED_AT_MAX + 1),
        false => vec![Stretch { offset: 0, len: meta.len() }],
    };
    if all.is_empty() {
        return None;
    }
    let resident =
        |s: &Stretch| residency::residency(file.as_fd(), s.offset, s.len, meta.uid()) == Residency::Resident;
    Some(all.len() <= LOOKED_AT_MAX && all.iter().all(resident) && keeps_pages(&file))
}

/// Whether opening and closing this file leaves its pages in memory. FUSE may drop them.
pub(crate) fn keeps_pages(file: &File) -> bool {
    fstype::of(file).is_none_or(|kind| kind.reads != Reads::Fuse)
}
