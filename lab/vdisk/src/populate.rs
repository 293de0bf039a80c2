//! Filling a mounted disk with a library, as fast as the machine goes.
//!
//! Files are written one after the other with large direct writes into space allocated beforehand, so that
//! each is one piece; the order is shuffled by seed, as in a library that was filled over time. Each file is
//! allocated with its share of the free space behind it, which is given back at the end: so a library smaller
//! than its disk still takes the whole of it, wherever the file system begins, and seeks are as long as on a
//! full one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, OFlags};
use seekless_base::{Bytes, Fault};
use seekless_model::workload::content::Content;
use serde::{Deserialize, Serialize};

use crate::manifest::Manifest;
use crate::state::cannot;

/// Bytes of one write: several requests of the block layer, so that the loop device is kept busy.
const WRITE_BYTES: usize = 8 << 20;
/// What direct I/O asks of offset, length and memory.
const ALIGN: u64 = 4096;
/// Share of the free space that is not set aside: a nearly full file system allocates in crumbs.
const SPARE: f64 = 0.04;

/// What came of a population.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Populated {
    /// Files written.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// MB/s of wall time.
    pub mb_per_s: f64,
    /// Share of the file system's space the library takes, 0 to 1.
    pub fill: f64,
}

/// Settings of a population.
#[derive(Clone, Copy, Debug)]
pub struct PopulateOptions {
    /// Seed of the order of creation.
    pub seed: u64,
    /// Lay the files one after the other, without gaps.
    pub pack: bool,
}

/// Writes the files of `manifest` below `root` with the content of their paths; `progress` hears of bytes
/// written.
///
/// # Errors
/// `Usage` if they do not fit, `Busy` if a file is there already, else what the system says of which file.
/// Files written so far stay.
pub fn populate(
    root: &Path,
    manifest: &Manifest,
    options: PopulateOptions,
    mut progress: impl FnMut(u64),
) -> Result<Populated, Fault> {
    let start = std::time::Instant::now();
    let dir = File::open(root).map_err(|e| cannot("open", root, &e))?;
    let space = rustix::fs::fstatvfs(&dir).map_err(|e| cannot("measure", root, &e.into()))?;
    let (total, free) = (space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize);
    let need: u64 = manifest.files.iter().map(|(_, size)| size.next_multiple_of(ALIGN)).sum();
    if need > free {
        return Err(Fault::usage(format!(
            "the library needs {:.1} MB and {} has {:.1} MB free: give fewer files, or the disk a larger --size",
            need as f64 / 1e6,
            root.display(),
            free as f64 / 1e6
        )));
    }
    let spare = (free as f64 * SPARE) as u64;
    let room = if options.pack { 0 } else { free.saturating_sub(need).saturating_sub(spare) };
    let gap = room / manifest.files.len().max(1) as u64 / ALIGN * ALIGN;
    let mut memory = vec![0; WRITE_BYTES + ALIGN as usize];
    let skip = memory.as_ptr().align_offset(ALIGN as usize);
    let buffer = &mut memory[skip..skip + WRITE_BYTES];
    for (path, size) in manifest.shuffled(options.seed) {
        let full = root.join(path);
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent).map_err(|e| cannot("make directory", parent, &e))?;
        }
        write_file(&full, path, *size, gap, buffer, &mut progress).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => {
                Fault::busy(format!("{} is there already: populate an empty disk", full.display()))
            }
            _ => cannot("write", &full, &e),
        })?;
    }
    for (path, size) in &manifest.files {
        let full = root.join(path);
        let cut = OpenOptions::new().write(true).open(&full).and_then(|file| file.set_len(*size));
        cut.map_err(|e| cannot("cut to size", &full, &e))?;
    }
    // All of it, the journal included, while nothing takes time: no write-back follows into the first
    // experiment.
    rustix::fs::syncfs(&dir).map_err(|e| cannot("sync", root, &e.into()))?;
    let _ = seekless_kernel::loopdev::settle(dir.as_fd());
    // Cutting a page brought it into the cache; a populated library starts cold.
    for (path, size) in &manifest.files {
        if let (Ok(file), true) = (File::open(root.join(path)), size % ALIGN != 0) {
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let bytes = manifest.bytes();
    Ok(Populated {
        files: manifest.files.len() as u64,
        bytes,
        seconds,
        mb_per_s: Bytes(bytes).as_mb() / seconds,
        fill: need as f64 / total.max(1) as f64,
    })
}

fn write_file(
    full: &Path,
    path: &str,
    size: u64,
    gap: u64,
    buffer: &mut [u8],
    progress: &mut impl FnMut(u64),
) -> io::Result<()> {
    let content = Content::of_path(path);
    let direct = OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o644).custom_flags(direct).open(full)?;
    let whole = size.next_multiple_of(ALIGN);
    // In one piece where there is one. A file system that cannot allocate ahead allocates as it writes.
    if whole + gap > 0 && rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, whole + gap).is_err() {
        let _ = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, whole.max(1));
    }
    let mut at = 0;
    while at < whole {
        let part = &mut buffer[..((whole - at) as usize).min(WRITE_BYTES)];
        content.fill(at, part);
        file.write_all_at(part, at)?;
        at += part.len() as u64;
        progress(part.len() as u64);
    }
    Ok(())
}
