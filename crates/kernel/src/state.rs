//! The folder where running parts of Seekless find each other: sockets, and records of software disks and of
//! tuned settings.
//!
//! Its content has consequences: processes named in it are ended, settings are written back, descriptors are
//! passed to the socket in it. So it is used only if no other user can have put anything into it: it must
//! belong to this user or to root, and no other user may write to it. The last possible place, in `/tmp`, can
//! be taken first by any user.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Its path: `$SEEKLESS_STATE`, else `/run/seekless` for root, else `$XDG_RUNTIME_DIR/seekless`, else
/// `/tmp/seekless-$UID`. Does not access it.
pub fn path() -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = set("SEEKLESS_STATE") {
        return dir;
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return "/run/seekless".into();
    }
    match set("XDG_RUNTIME_DIR") {
        Some(dir) => dir.join("seekless"),
        None => format!("/tmp/seekless-{}", uid.as_raw()).into(),
    }
}

/// The folder, for reading. It need not exist.
///
/// # Errors
/// `PermissionDenied`: others may write there, or could have made it. The line says how to fix it.
pub fn folder() -> io::Result<PathBuf> {
    let path = path();
    check(&path)?;
    Ok(path)
}

/// The folder, for writing. It is made if missing, so that others can enter but not write.
///
/// # Errors
/// Those of [`folder`]; it cannot be made.
pub fn made_folder() -> io::Result<PathBuf> {
    let path = path();
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&path);
    // A dangling symlink exists but is not a directory: report its kind first.
    check(&path)?;
    made.map_err(|e| unusable(&path, &e))?;
    Ok(path)
}

/// Checks that a folder, if it exists, is under the control of this user and root only.
///
/// # Errors
/// `PermissionDenied`: it is not. Another: it cannot be examined.
pub fn check(path: &Path) -> io::Result<()> {
    let untrusted = |what: String| {
        let text = format!(
            "the state folder {} {what}, so its content is not trusted; remove it, or set SEEKLESS_STATE to a \
             folder of your own",
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let trusted = |owner: u32| owner == 0 || owner == uid;
    let itself = match fs::symlink_metadata(path) {
        Ok(itself) => itself,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(unusable(path, &e)),
    };
    if !trusted(itself.uid()) {
        return untrusted(format!("belongs to user {}", itself.uid()));
    }
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return untrusted("is a symlink that leads nowhere".into());
        }
        Err(e) => return Err(unusable(path, &e)),
    };
    if !about.is_dir() {
        return untrusted("is no folder".into());
    }
    if !trusted(about.uid()) {
        return untrusted(format!("belongs to user {}", about.uid()));
    }
    // The user's own group may write, because folders are made that way if every user has a group.
    let mode = about.mode();
    if mode & 0o002 != 0 || (mode & 0o020 != 0 && about.gid() != gid) {
        return untrusted(format!("may be written by others (mode {:o})", mode & 0o7777));
    }
    Ok(())
}

fn unusable(path: &Path, error: &io::Error) -> io::Error {
    let text = format!(
        "cannot use the state folder {}: {error}; set SEEKLESS_STATE to a place you may write",
        path.display()
    );
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    fn why(path: &Path) -> String {
        let error = check(path).expect_err("it is not to be trusted").to_string();
        assert!(error.contains(&path.display().to_string()) && !error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn only_a_folder_that_nobody_else_has_a_say_in_is_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let folder = |name: &str, mode: u32| {
            fs::create_dir(at(name)).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
            at(name)
        };
        assert!(check(&at("missing")).is_ok());
        for mode in [0o700, 0o755, 0o770] {
            assert!(check(&folder(&format!("ok{mode:o}"), mode)).is_ok(), "{mode:o}");
        }
        for mode in [0o777, 0o1777, 0o702] {
            assert!(why(&folder(&format!("bad{mode:o}"), mode)).contains("written by others"), "{mode:o}");
        }
        fs::write(at("file"), "").unwrap();
        assert!(why(&at("file")).contains("no folder"));
        symlink("ok700", at("link")).unwrap();
        assert!(check(&at("link")).is_ok(), "a symlink of our own");
        symlink("bad777", at("to-bad")).unwrap();
        assert!(why(&at("to-bad")).contains("written by others"));
        symlink("nowhere", at("dangling")).unwrap();
        assert!(why(&at("dangling")).contains("leads nowhere"));
        if !rustix::process::geteuid().is_root() {
            println!("skipped in part: only root can give folders away");
            return;
        }
        chown(folder("theirs", 0o755), Some(65534), None).unwrap();
        assert!(why(&at("theirs")).contains("user 65534"));
        symlink("ok700", at("their-link")).unwrap();
        lchown(at("their-link"), Some(65534), None).unwrap();
        assert!(why(&at("their-link")).contains("user 65534"));
        chown(folder("group", 0o775), None, Some(65534)).unwrap();
        assert!(why(&at("group")).contains("written by others"));
    }
}
