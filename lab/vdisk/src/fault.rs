//! What went wrong with a file, in one line.

use std::io;
use std::path::Path;

use seekless_base::{Exit, Fault};

/// "cannot DO PATH: why", with the exit status that fits the reason.
pub fn cannot(what: &str, path: &Path, error: &io::Error) -> Fault {
    let exit = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Exit::Permission,
        io::ErrorKind::NotFound => Exit::Missing,
        _ => Exit::Failed,
    };
    Fault::new(exit, format!("cannot {what} {}: {error}", path.display()))
}
