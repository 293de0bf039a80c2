//! Bitrates from what files say of themselves: the headers of MP4, MOV, Matroska and WebM, HLS and DASH
//! manifests.
//!
//! A stream's bitrate sets its deadlines and, with `--scale`, its prefetch size; seen from its reads it takes
//! ten seconds to learn. A thread beside each disk thread looks, and only at bytes that are in memory
//! already: no read of the disk is made for it, and no client waits for it. A header that has not been read
//! yet is looked for again when the file has been read further.
//!
//! A file says little that can be believed at once. What is out of a medium's range ([`SLOWEST`] to
//! [`FASTEST`]), or off by more than [`OFF`] where two sources can be compared, is named in the log, and the
//! stream's own rate counts, as without a header. A plausible lie does little harm: a client faster
//! than its bitrate is followed at its own rate, and a slower one is read ahead of early.

mod manifest;
mod mkv;
mod mp4;

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
use seekless_kernel::prefetch::Source;
use seekless_kernel::residency::resident_prefix;
use seekless_policy::FileId;

use crate::lock;
use crate::worker::short_name;

/// Most bytes looked at of one file at a time.
const LOOK_MAX: u64 = 512 << 10;
/// A manifest longer than this is none of a video.
const MANIFEST_MAX: u64 = 256 << 10;
/// Files looked up for one manifest.
const FILES_MAX: usize = 256;
/// Slowest bitrate believed, bytes a second: 8 kb/s, speech.
const SLOWEST: f64 = 1e3;
/// Fastest believed: 1 Gb/s, uncompressed studio video.
const FASTEST: f64 = 125e6;
/// Two sources that differ by more than this factor contradict each other.
const OFF: f64 = 4.0;
/// Files waiting to be looked at; one more is looked at when it is read next.
const WAITING_MAX: usize = 64;

/// A file to look at.
pub(crate) struct Look {
    pub(crate) file: FileId,
    pub(crate) size: u64,
    pub(crate) source: Arc<Source>,
}

/// What a file was found to say: of itself, or, a manifest, of others.
pub(crate) type Told = (FileId, u64);

/// Most files whose bitrate is kept.
const BITRATES_MAX: usize = 16_384;

/// The bitrates that files of all disks told, for doors that use them.
#[derive(Debug, Default)]
pub(crate) struct Bitrates(Mutex<HashMap<FileId, u64>>);

impl Bitrates {
    /// Bytes a second, if told.
    pub(crate) fn of(&self, file: FileId) -> Option<u64> {
        lock(&self.0).get(&file).copied()
    }

    fn keep(&self, (file, bytes_per_s): Told) {
        let mut known = lock(&self.0);
        if known.len() >= BITRATES_MAX && !known.contains_key(&file) {
            // Files still read are told of again.
            known.clear();
        }
        known.insert(file, bytes_per_s);
    }
}

/// The header says something that cannot be.
#[derive(Debug, PartialEq)]
struct Lie(String);

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What there is to be known in memory.
#[derive(Debug, PartialEq)]
enum Header {
    /// Seconds the file plays.
    Plays(f64),
    /// No header of a kind we know, or not all of it is in memory, or it does not say.
    Silent,
}

/// Bytes of a file, cut at its end, if they are in memory: `(offset, length)`.
type InMemory<'a> = dyn FnMut(u64, u64) -> Option<Vec<u8>> + 'a;

/// The thread of one disk. It ends when the sender of looks is dropped.
pub(crate) fn spawn(
    disk: &str,
    looks: Receiver<Look>,
    told: Sender<Told>,
    bitrates: Arc<Bitrates>,
) -> std::io::Result<()> {
    thread::Builder::new().name(short_name("media", disk)).spawn(move || {
        for look in looks {
            for found in examine(&look) {
                bitrates.keep(found);
                // The disk thread takes them between two reads; a disk without one needs none.
                if told.send_timeout(found, Duration::from_secs(1)).is_err() {
                    break;
                }
            }
        }
    })?;
    Ok(())
}

/// The two ends of a channel.
type Both<T> = (Sender<T>, Receiver<T>);

/// From the disk thread, files to look at, and to it, what they say; bounded.
pub(crate) fn channels() -> (Both<Look>, Both<Told>) {
    (crossbeam_channel::bounded(WAITING_MAX), crossbeam_channel::bounded(FILES_MAX))
}

fn examine(look: &Look) -> Vec<Told> {
    // A read through a descriptor shared with a server would change the server's read-ahead.
    if !look.source.is_own() {
        return Vec::new();
    }
    let mut left = LOOK_MAX;
    let mut in_memory = |offset: u64, len: u64| {
        let len = len.min(look.size.checked_sub(offset)?).min(left);
        if len == 0 || resident_prefix(look.source.as_fd(), offset, len).ok()? < len {
            return None;
        }
        left -= len;
        let mut bytes = vec![0; len as usize];
        let got = rustix::io::pread(look.source.as_fd(), &mut bytes, offset).ok()?;
        bytes.truncate(got);
        Some(bytes)
    };
    let path =
        fs::read_link(format!("/proc/self/fd/{}", look.source.as_fd().as_raw_fd())).unwrap_or_default();
    if look.size <= MANIFEST_MAX
        && let Some(text) = in_memory(0, look.size)
        && let Some(kind) = manifest::kind(&text)
    {
        return of_manifest(&text, kind, &path, look.file);
    }
    match bitrate(look.size, &mut in_memory) {
        Ok(Some(rate)) => vec![(look.file, rate)],
        Ok(None) => Vec::new(),
        Err(lie) => {
            tracing::warn!(
                "{}: its header is not believed: {lie}; its bitrate is what its clients show",
                path.display()
            );
            Vec::new()
        }
    }
}

/// Bytes a second of a file of `size` bytes, by its header.
fn bitrate(size: u64, in_memory: &mut InMemory<'_>) -> Result<Option<u64>, Lie> {
    let header = match in_memory(0, 16) {
        Some(head) if mkv::begins(&head) => mkv::read(in_memory)?,
        Some(head) if mp4::begins(&head) => mp4::read(size, in_memory)?,
        _ => Header::Silent,
    };
    match header {
        Header::Plays(seconds) => believed(size as f64 / seconds)
            .map(Some)
            .map_err(|why| Lie(format!("{size} bytes in {seconds:.3} s: {why}"))),
        Header::Silent => Ok(None),
    }
}

/// A rate in a medium's range.
fn believed(rate: f64) -> Result<u64, String> {
    if (SLOWEST..=FASTEST).contains(&rate) {
        return Ok(rate as u64);
    }
    Err(format!("{:.3} Mb/s is no medium's rate", rate * 8e-6))
}

/// What a manifest says of files beside and below it, on the same file system.
fn of_manifest(text: &[u8], kind: manifest::Kind, path: &Path, own: FileId) -> Vec<Told> {
    let say = |file: &Path, why: &str| {
        tracing::warn!("{}: what it says of {} is not believed: {why}", path.display(), file.display());
    };
    let parts = match manifest::read(text, kind) {
        Ok(parts) => parts,
        Err(why) => {
            tracing::warn!("{}: this manifest is not used: {why}", path.display());
            return Vec::new();
        }
    };
    let Some(folder) = path.parent() else { return Vec::new() };
    let mut told = Vec::new();
    for part in parts.into_iter().take(FILES_MAX) {
        let Some(relative) = below(&part.uri) else { continue };
        let Some((file, size)) = regular(&folder.join(&relative)).filter(|(f, _)| f.dev == own.dev) else {
            continue;
        };
        let bytes = part.bytes.unwrap_or(size) as f64;
        // A file cannot play for longer than there is of it, so what is left over tells a lie.
        let by_time = part.seconds.map(|s| bytes / s);
        let rate = match (part.bytes_per_s, by_time) {
            (Some(said), Some(reckoned)) if said > reckoned * OFF || said * OFF < reckoned => {
                say(
                    &relative,
                    &format!("{said:.0} bytes a second, but {bytes:.0} bytes in {:.1} s", bytes / reckoned),
                );
                continue;
            }
            (_, Some(rate)) | (Some(rate), None) => rate,
            (None, None) => continue,
        };
        match believed(rate) {
            Ok(rate) => told.push((file, rate)),
            Err(why) => say(&relative, &why),
        }
    }
    told
}

/// A relative path that stays below the manifest's folder, without its query; none for anything else.
fn below(uri: &str) -> Option<PathBuf> {
    let path = uri.split(['?', '#']).next()?;
    let plain = |c: std::path::Component<'_>| {
        matches!(c, std::path::Component::Normal(_) | std::path::Component::CurDir)
    };
    let path = Path::new(path);
    (!path.as_os_str().is_empty() && !uri.contains("://") && path.components().all(plain))
        .then(|| path.to_path_buf())
}

/// A regular file's identity and size.
fn regular(path: &Path) -> Option<(FileId, u64)> {
    let what = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE;
    let stat = statx(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW, what).ok()?;
    if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile {
        return None;
    }
    let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Some((FileId { dev, ino: stat.stx_ino }, stat.stx_size))
}

#[cfg(test)]
mod tests;
