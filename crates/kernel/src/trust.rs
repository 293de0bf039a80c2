//! Whether a file can be anybody else's work: what root loads into a server must not be.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The first part of a path that another user has a say in.
#[derive(Debug)]
pub enum TrustError {
    /// It belongs to another user, or may be written by others.
    Others {
        /// The part.
        part: PathBuf,
        /// Why it is not believed.
        what: String,
    },
    /// It cannot be looked at.
    Unseen {
        /// The part.
        part: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrustError::Others { part, what } => write!(f, "{} {what}", part.display()),
            TrustError::Unseen { part, error } => write!(f, "{}: {error}", part.display()),
        }
    }
}

impl std::error::Error for TrustError {}

/// Whether every part of a path, which holds no link any more, belongs to root or to this process's user and
/// can be replaced by nobody else: no other user or group may write to it, but to a sticky folder, where each
/// user can replace its own alone.
///
/// # Errors
/// The first part of which that is not so, from `/` on.
pub fn is_only_ours(path: &Path) -> Result<(), TrustError> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    parts.reverse();
    for part in parts {
        let others = |what: String| Err(TrustError::Others { part: part.to_path_buf(), what });
        let about = fs::symlink_metadata(part)
            .map_err(|error| TrustError::Unseen { part: part.to_path_buf(), error })?;
        if about.is_symlink() {
            return others("is a symlink".into());
        }
        if ![0, uid].contains(&about.uid()) {
            return others(format!("belongs to user {}", about.uid()));
        }
        let mode = about.mode();
        let sticky = about.is_dir() && mode & 0o1000 != 0;
        // A group of one's own may write: where every user has one, folders are made so.
        let by_others = mode & 0o002 != 0 || (mode & 0o020 != 0 && ![0, gid].contains(&about.gid()));
        if by_others && !sticky {
            return others(format!("may be written by others (mode {:o})", mode & 0o7777));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn one_part_that_others_have_a_say_in_is_enough() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (folder, file) = (root.join("lib"), root.join("lib/shim.so"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "").unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&folder, 0o755);
        mode(&file, 0o644);
        is_only_ours(&file).unwrap();
        mode(&folder, 0o1777);
        is_only_ours(&file).expect("a sticky folder");
        let named = |part: &Path| {
            let error = is_only_ours(&file).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{} ", part.display())), "{error}");
        };
        mode(&folder, 0o777);
        named(&folder);
        mode(&folder, 0o755);
        mode(&file, 0o666);
        named(&file);
        mode(&file, 0o644);
        let link = root.join("link");
        symlink(&folder, &link).unwrap();
        assert!(is_only_ours(&link.join("shim.so")).is_err(), "resolve it first");
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: another owner needs root");
        }
        for part in [&file, &folder] {
            chown(part, Some(12345), None).unwrap();
            named(part);
            chown(part, Some(0), None).unwrap();
        }
        mode(&folder, 0o775);
        is_only_ours(&file).expect("root's group");
        chown(&folder, None, Some(50)).unwrap();
        named(&folder);
    }
}
