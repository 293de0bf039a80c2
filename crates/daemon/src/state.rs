//! Where running parts of Seekless find each other.

use std::env;
use std::path::PathBuf;

/// The folder for sockets and other state of running processes: `$SEEKLESS_STATE`, else `/run/seekless` for root, else
/// `$XDG_RUNTIME_DIR/seekless`, else `/tmp/seekless-$UID`.
pub fn dir() -> PathBuf {
    if let Some(dir) = env::var_os("SEEKLESS_STATE").filter(|d| !d.is_empty()) {
        return dir.into();
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return "/run/seekless".into();
    }
    match env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty()) {
        Some(dir) => PathBuf::from(dir).join("seekless"),
        None => format!("/tmp/seekless-{}", uid.as_raw()).into(),
    }
}

/// The daemon's socket: `$SEEKLESS_SOCKET`, else `daemon.sock` in [`dir`].
pub fn socket() -> PathBuf {
    match env::var_os("SEEKLESS_SOCKET").filter(|s| !s.is_empty()) {
        Some(path) => path.into(),
        None => dir().join("daemon.sock"),
    }
}
