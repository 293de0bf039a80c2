//! Profiles on disk, one file a disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use seekless_base::{Exit, Fault};
use seekless_kernel::identity::profiles_dir;
use seekless_policy::profile::{DiskProfile, StoredProfile};

/// A profile is some 10 KiB; nothing longer than this is read.
const TEXT_MAX: u64 = 4 << 20;

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

/// Looks up the profile of a disk of `sectors` (0 if not known).
pub(crate) fn load(id: &str, sectors: u64) -> KnownProfile {
    load_file(&path(id), id, sectors)
}

fn load_file(path: &Path, id: &str, sectors: u64) -> KnownProfile {
    let unusable = |why: String| {
        KnownProfile::Unusable(format!(
            "{}: {why}; measure again with `seekless disk profile`",
            path.display()
        ))
    };
    match fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return KnownProfile::Unmeasured,
        Err(e) => return unusable(e.to_string()),
        Ok(meta) if meta.len() > TEXT_MAX => return unusable("it is too long to be a profile".into()),
        Ok(_) => {}
    }
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) => return unusable(e.to_string()),
    };
    match StoredProfile::parse(&text, Some(id), (sectors > 0).then_some(sectors)) {
        Ok(stored) => KnownProfile::Measured(stored),
        Err(e) => unusable(e.to_string()),
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
        assert_eq!(load_file(&path, "serial-1", 0), KnownProfile::Unmeasured);
        let stored = StoredProfile::new("serial-1", "x", 5, DiskProfile::assumed(1 << 30));
        write(&path, stored.to_text().as_bytes()).unwrap();
        assert_eq!(load_file(&path, "serial-1", 1 << 30), KnownProfile::Measured(stored.clone()));
        let reason = |id: &str, sectors| match load_file(&path, id, sectors) {
            KnownProfile::Unusable(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(reason("serial-2", 0).contains("another disk"));
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
