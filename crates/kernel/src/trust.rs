//! Whether a file can have been changed by other users: root must not load such a file into a server.

use std::os::unix::fs::MetadataExt;
use std::path::{self, Path};
use std::{fs, io};

/// Checks that every part of a path, and of the path to which its symlinks lead, belongs to root or to this
/// process's user and cannot be replaced by others: no other user or group may write to it, except for a
/// sticky folder, where each user can replace only its own files.
///
/// # Errors
/// The first part that fails, from `/` on.
pub fn is_only_ours(path: &Path) -> Result<(), String> {
    let error = |e: io::Error| format!("{}: {e}", path.display());
    let (given, resolved) = (path::absolute(path).map_err(error)?, fs::canonicalize(path).map_err(error)?);
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut parts: Vec<&Path> = given.ancestors().chain(resolved.ancestors()).collect();
    parts.sort_by_key(|part| part.components().count());
    parts.dedup();
    for part in parts {
        let others = |what: String| Err(format!("{} {what}", part.display()));
        let about = fs::symlink_metadata(part).map_err(|e| format!("{}: {e}", part.display()))?;
        if ![0, uid].contains(&about.uid()) {
            return others(format!("belongs to user {}", about.uid()));
        }
        let mode = about.mode();
        let sticky = about.is_dir() && mode & 0o1000 != 0;
        // The user's own group may write, because folders are made that way if every user has a group.
        let by_others = mode & 0o002 != 0 || (mode & 0o020 != 0 && ![0, gid].contains(&about.gid()));
        if by_others && !sticky && !about.is_symlink() {
            return others(format!("may be written to by other users (mode {:o})", mode & 0o7777));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

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
            let error = is_only_ours(&file).unwrap_err();
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
        is_only_ours(&link.join("shim.so")).expect("a link of ours");
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: another owner needs root");
        }
        for part in [&file, &folder] {
            chown(part, Some(12345), None).unwrap();
            named(part);
            chown(part, Some(0), None).unwrap();
        }
        lchown(&link, Some(12345), None).unwrap();
        let error = is_only_ours(&link.join("shim.so")).unwrap_err();
        assert!(error.starts_with(&format!("{} belongs to", link.display())), "{error}");
        mode(&folder, 0o775);
        is_only_ours(&file).expect("root's group");
        chown(&folder, None, Some(50)).unwrap();
        named(&folder);
    }
}
