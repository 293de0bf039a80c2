//! What is known of a disk before it is first read: its persistent name, its measured profile, and its last
//! prefetch size.
//!
//! A file that cannot be used (it is of another disk, truncated, edited or of a later version) is named in
//! the log, and the engine goes on without it.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use seekless_base::Bytes;
use seekless_kernel::identity::Identity;
use seekless_kernel::sysfs::{self, SYS_BLOCK, UDEV_DATA};
use seekless_policy::SizeReport;
use seekless_policy::profile::{DiskKind, DiskProfile, StoredProfile};
use serde::{Deserialize, Serialize};

use crate::kind::is_block;

/// Maximum size of a file that is read. A profile has some 10 KiB.
const TEXT_MAX: u64 = 4 << 20;

/// Version of [`Remembered`]. Raised when a field changes meaning.
const SCHEMA: u32 = 1;

/// The stored prefetch size of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    schema: u32,
    disk: String,
    prefetch_bytes: u64,
}

/// A disk, with what is stored about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// Its kernel name, or a mount point.
    pub(crate) name: String,
    /// Its persistent name; `None` for the common queue and for anything that is not a block device.
    id: Option<String>,
    folder: PathBuf,
    /// Its measured profile.
    pub(crate) profile: Option<DiskProfile>,
    /// Its last prefetch size.
    pub(crate) size: Option<Bytes>,
    /// Its concurrency limit as last measured.
    pub(crate) measured_at_once: Option<usize>,
    /// The concurrency limit last logged, measured or found under load; 0 if none.
    at_once: usize,
}

impl Disk {
    /// Looks up a disk by its kernel name in the folder of profiles.
    pub(crate) fn look_up(name: &str, folder: &Path) -> Disk {
        if !is_block(name) {
            return Disk { name: name.to_string(), ..Disk::default() };
        }
        let id = Identity::of(Path::new(SYS_BLOCK), Path::new(UDEV_DATA), name).id;
        Disk { name: name.to_string(), ..Disk::named(id, sectors(name), folder) }
    }

    fn named(id: String, sectors: Option<u64>, folder: &Path) -> Disk {
        let mut disk = Disk { folder: folder.to_path_buf(), ..Disk::default() };
        let stored = stored_profile(folder, &id, sectors);
        disk.profile =
            used(&folder.join(format!("{id}.json")), "profile", stored).map(|stored| stored.profile);
        let path = disk.size_path(&id);
        let size = read(&path).and_then(|text| text.map(|text| parse_size(&text, &id)).transpose());
        disk.size = used(&path, "remembered prefetch size", size);
        disk.id = Some(id);
        disk
    }

    /// Sets the concurrency limit known now. A change is logged.
    pub(crate) fn bears(&mut self, at_once: usize) {
        let before = std::mem::replace(&mut self.at_once, at_once);
        if before != at_once && before.max(at_once) > 1 {
            tracing::info!(disk = self.name, pieces = at_once, "pieces that it bears at once");
        }
    }

    fn size_path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.size.json"))
    }

    /// Stores the size for the next start, if it differs by a quarter or more from the stored one. The first
    /// seconds of the next start then need less correction.
    pub(crate) fn remember(&mut self, report: &SizeReport) {
        let (now, kept) = (report.target, self.size.unwrap_or_default().0);
        if now.abs_diff(kept) >= kept / 4 {
            self.keep(report);
        }
    }

    /// Stores the size for the next start, if it is automatic and something was learnt about it. The file is
    /// written under another name and renamed, so that no program reads half of it.
    pub(crate) fn keep(&mut self, report: &SizeReport) {
        if report.kind != "auto" || report.intervals == 0 {
            return;
        }
        let size = Bytes(report.target);
        let Some(id) = self.id.as_deref().filter(|_| self.size != Some(size)) else { return };
        let path = self.size_path(id);
        let text = Remembered { schema: SCHEMA, disk: id.to_string(), prefetch_bytes: size.0 };
        if let Err(error) = write_beside(&self.folder, &path, &text) {
            tracing::warn!(path = %path.display(), %error, "cannot remember the prefetch size");
        }
        // Done once, whether it succeeded or not.
        self.size = Some(size);
    }
}

/// Text of a file, if the file exists and is not too long.
fn read(path: &Path) -> Result<Option<String>, String> {
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.to_string()),
        Ok(meta) if meta.len() > TEXT_MAX => Err("it is too long to be one".into()),
        Ok(_) => fs::read_to_string(path).map(Some).map_err(|e| e.to_string()),
    }
}

/// The stored profile of the disk with this identity; `None` if it has none.
///
/// # Errors
/// Why it cannot be used.
pub fn stored_profile(
    folder: &Path,
    id: &str,
    sectors: Option<u64>,
) -> Result<Option<StoredProfile>, String> {
    let parse = |text: String| StoredProfile::parse(&text, Some(id), sectors).map_err(|e| e.to_string());
    read(&folder.join(format!("{id}.json")))?.map(parse).transpose()
}

/// Size of a disk in sectors, as the kernel counts them.
fn sectors(name: &str) -> Option<u64> {
    sysfs::number(Path::new(SYS_BLOCK).join(name).join("size"))
}

/// What was found in a file; a file that cannot be used counts as none, with a warning.
fn used<T>(path: &Path, what: &str, found: Result<Option<T>, String>) -> Option<T> {
    found.unwrap_or_else(|why| {
        tracing::warn!("{}: this {what} is not used: {why}; going on without", path.display());
        None
    })
}

fn parse_size(text: &str, id: &str) -> Result<Bytes, String> {
    let kept: Remembered =
        serde_json::from_str(text).map_err(|e| format!("it is truncated or edited ({e})"))?;
    if kept.schema != SCHEMA {
        return Err(format!("its layout is version {}, this program reads {SCHEMA}", kept.schema));
    }
    if kept.disk != id {
        return Err(format!("it belongs to another disk, {}", kept.disk));
    }
    if !(4096..=1 << 30).contains(&kept.prefetch_bytes) {
        return Err(format!("a size of {} is out of range", Bytes(kept.prefetch_bytes)));
    }
    Ok(Bytes(kept.prefetch_bytes))
}

/// The stored kind of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RememberedKind {
    schema: u32,
    disk: String,
    /// The boot in which it was measured, and the device's number in that boot, because the name may mean
    /// another disk in the next.
    boot: String,
    sequence: u64,
    kind: DiskKind,
}

/// What is known of a device's kind without reading from it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    id: String,
    boot: String,
    sequence: u64,
    sectors: Option<u64>,
    folder: PathBuf,
}

impl Known {
    /// Looks up the block device with this kernel name, the `sequence`th of this boot.
    pub(crate) fn look_up(name: &str, sequence: u64, folder: &Path) -> Known {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Known {
            id: Identity::of(Path::new(SYS_BLOCK), Path::new(UDEV_DATA), name).id,
            boot: boot.trim().to_string(),
            sequence,
            sectors: sectors(name),
            folder: folder.to_path_buf(),
        }
    }

    /// Its measured profile. If it cannot be used, that is logged when the disk is first read.
    pub(crate) fn profile(&self) -> Option<DiskProfile> {
        Some(stored_profile(&self.folder, &self.id, self.sectors).ok()??.profile)
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.kind.json", self.id))
    }

    fn entry(&self, kind: DiskKind) -> RememberedKind {
        let Known { id, boot, sequence, .. } = self.clone();
        RememberedKind { schema: SCHEMA, disk: id, boot, sequence, kind }
    }

    /// The stored kind of this very device. If it is damaged or from another boot, the kind is measured
    /// again.
    pub(crate) fn kind(&self) -> Option<DiskKind> {
        let kept: RememberedKind = serde_json::from_str(&read(&self.path()).ok()??).ok()?;
        let certain = !self.boot.is_empty() && self.sequence > 0;
        (certain && kept == self.entry(kept.kind)).then_some(kept.kind)
    }

    /// Stores the kind for the rest of this boot.
    pub(crate) fn remember_kind(&self, kind: DiskKind) {
        if let Err(error) = write_beside(&self.folder, &self.path(), &self.entry(kind)) {
            tracing::debug!(path = %self.path().display(), %error, "cannot remember the kind of a disk");
        }
    }
}

/// Writes JSON under another name and renames it, so that no reader sees half of it.
fn write_beside(folder: &Path, path: &Path, value: &impl Serialize) -> io::Result<()> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let attempt = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut file = fs::File::create(&beside)?;
        file.write_all(serde_json::to_string(value)?.as_bytes())?;
        file.write_all(b"\n")?;
        fs::rename(&beside, path)
    };
    attempt().inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_remembered_for_its_disk_only() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("sub");
        let look = |id: &str| Disk::named(id.into(), None, &folder);
        let mut disk = look("serial-1");
        assert_eq!((disk.size, disk.profile.is_none()), (None, true));
        disk.keep(&SizeReport { kind: "auto".into(), target: 6 << 20, intervals: 1, ..Default::default() });
        assert_eq!(look("serial-1").size, Some(Bytes::mib(6)));
        assert_eq!(look("serial-2").size, None);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing left beside");
        // A damaged file does not prevent a start.
        let path = disk.size_path("serial-1");
        let good = fs::read_to_string(&path).unwrap();
        for bad in [
            "",
            &good[..good.len() / 2],
            &good.replace("serial-1", "serial-9"),
            &good.replace("\"schema\":1", "\"schema\":2"),
            &good.replace("6291456", "1"),
            "[]",
        ] {
            fs::write(&path, bad).unwrap();
            assert_eq!(look("serial-1").size, None, "{bad}");
        }
        fs::copy(&path, folder.join("serial-2.size.json")).unwrap();
        assert_eq!(look("serial-2").size, None, "a copy of another disk's");
    }

    #[test]
    fn a_profile_of_another_size_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let stored = StoredProfile::new("serial-1", "x", 5, DiskProfile::assumed(1 << 30));
        fs::write(dir.path().join("serial-1.json"), stored.to_text()).unwrap();
        let look = |sectors| Disk::named("serial-1".into(), Some(sectors), dir.path()).profile;
        assert_eq!(look(1 << 30), Some(stored.profile));
        assert_eq!(look(7), None);
    }

    #[test]
    fn what_is_no_block_device_has_nothing() {
        let disk = Disk::look_up("/mnt/somewhere", Path::new("/"));
        assert!(disk.id.is_none() && disk.profile.is_none() && disk.size.is_none());
    }

    #[test]
    fn a_kind_is_believed_of_the_same_device_in_the_same_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let known = Known {
            id: "serial-1".into(),
            boot: "b-1".into(),
            sequence: 7,
            sectors: None,
            folder: dir.path().join("sub"),
        };
        let kind = DiskKind { seeks: true, lost: seekless_base::Nanos(5), depth: Bytes(6), at_once: 3 };
        assert_eq!(known.kind(), None);
        known.remember_kind(kind);
        assert_eq!(known.kind(), Some(kind));
        for other in [
            Known { boot: "b-2".into(), ..known.clone() },
            Known { sequence: 8, ..known.clone() },
            Known { id: "serial-2".into(), ..known.clone() },
        ] {
            assert_eq!(other.kind(), None, "{other:?}");
        }
        // A kernel that does not number devices cannot distinguish them.
        let unsure = Known { sequence: 0, ..known.clone() };
        unsure.remember_kind(kind);
        assert_eq!(unsure.kind(), None);
        for bad in ["", "[]", "{\"schema\":1}"] {
            fs::write(known.path(), bad).unwrap();
            assert_eq!(known.kind(), None, "{bad}");
        }
    }
}
