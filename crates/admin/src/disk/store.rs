//! Profiles on disk, one file a disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use seekless_base::{Exit, Fault};
use seekless_engine::stored_profile;
use seekless_kernel::identity::profiles_dir;
use seekless_policy::profile::{DiskProfile, StoredProfile};

/// Where the profile of a disk is kept.
pub(crate) fn path(id: &str) -> PathBuf {
    profiles_dir().join(format!("{id}.json"))
}

/// What is known of a disk.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KnownProfile {
    /// Measured.
    Measured(StoredProfile),
    /// Never measured.
    Unmeasured,
    /// There is a file, but it cannot be used; the text is one line that names it and says why.
    Unusable(String),
}

impl KnownProfile {
    /// A word for a table.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            KnownProfile::Measured(_) => "measured",
            KnownProfile::Unmeasured => "no",
            KnownProfile::Unusable(_) => "unusable",
        }
    }
}

/// The profile of the disk with this identity and this number of sectors (0: not known).
pub(crate) fn load(id: &str, sectors: u64) -> KnownProfile {
    load_from(&profiles_dir(), id, sectors)
}

fn load_from(folder: &Path, id: &str, sectors: u64) -> KnownProfile {
    match stored_profile(folder, id, (sectors > 0).then_some(sectors)) {
        Ok(Some(stored)) => KnownProfile::Measured(stored),
        Ok(None) => KnownProfile::Unmeasured,
        Err(why) => {
            let path = folder.join(format!("{id}.json"));
            let advice = "measure again with `seekless disk profile`";
            KnownProfile::Unusable(format!("{}: {why}; {advice}", path.display()))
        }
    }
}

/// Keeps a fresh profile: written beside and renamed, so that no reader sees half of it.
///
/// # Errors
/// `Permission` or `Failed`: the directory cannot be written.
pub(crate) fn save(id: &str, label: &str, profile: DiskProfile) -> Result<(PathBuf, StoredProfile), Fault> {
    let stored = StoredProfile::new(id, label, now(), profile);
    let path = path(id);
    write(&path, stored.to_text().as_bytes())?;
    Ok((path, stored))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Writes a file in one step, making its directory.
pub(crate) fn write(path: &Path, text: &[u8]) -> Result<(), Fault> {
    let attempt = || {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        seekless_output::replace_synced(path, text)
    };
    attempt().map_err(|e| {
        let denied = e.kind() == std::io::ErrorKind::PermissionDenied;
        let exit = if denied { Exit::Permission } else { Exit::Failed };
        Fault::new(exit, format!("cannot write {}: {e}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_named_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/serial-1.json");
        let folder = path.parent().unwrap();
        assert_eq!(load_from(folder, "serial-1", 0), KnownProfile::Unmeasured);
        let stored = StoredProfile::new("serial-1", "x", 5, DiskProfile::assumed(1 << 30));
        write(&path, stored.to_text().as_bytes()).unwrap();
        assert_eq!(load_from(folder, "serial-1", 1 << 30), KnownProfile::Measured(stored.clone()));
        let reason = |id: &str, sectors| match load_from(folder, id, sectors) {
            KnownProfile::Unusable(why) => why,
            other => panic!("{other:?}"),
        };
        fs::copy(&path, folder.join("serial-2.json")).unwrap();
        assert!(reason("serial-2", 0).contains("another disk"));
        fs::remove_file(folder.join("serial-2.json")).unwrap();
        assert!(reason("serial-1", 77).contains("sectors"));
        write(&path, &stored.to_text().as_bytes()[..500]).unwrap();
        assert!(
            reason("serial-1", 0).contains("truncated") && reason("serial-1", 0).contains("serial-1.json")
        );
        write(&path, &[0xff, 0xfe]).unwrap();
        assert!(reason("serial-1", 0).contains("profile"));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing left beside");
    }
}
