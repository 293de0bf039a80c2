//! Whole input files, and what any command says of a file that it cannot read.

use std::io;
use std::path::Path;

use seekless_base::{Exit, Fault};

/// Reads a whole file as text: a manifest, a scenario, results.
///
/// # Errors
/// Those of [`unreadable`]; `Usage` where it is no text.
pub fn text(path: &Path) -> Result<String, Fault> {
    std::fs::read_to_string(path).map_err(|e| unreadable(path, &e))
}

/// [`text`], for what need not be text.
///
/// # Errors
/// Those of [`unreadable`].
pub fn bytes(path: &Path) -> Result<Vec<u8>, Fault> {
    std::fs::read(path).map_err(|e| unreadable(path, &e))
}

/// What is wrong with a file that a command was given, and how to mend it: none is there (`Missing`), no
/// right to it (`Permission`), a directory or no text (`Usage`), a disk that fails (`Failed`).
pub fn unreadable(path: &Path, error: &io::Error) -> Fault {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Fault::new(Exit::Missing, format!("{path}: no such file; give the path of an existing file"))
        }
        io::ErrorKind::PermissionDenied => Fault::new(
            Exit::Permission,
            format!("{path}: permission denied; run this as a user that may read it, or change its mode"),
        ),
        io::ErrorKind::IsADirectory => {
            Fault::new(Exit::Usage, format!("{path}: is a directory; give a file"))
        }
        io::ErrorKind::InvalidData => {
            Fault::new(Exit::Usage, format!("{path}: is not text (UTF-8); give another file"))
        }
        _ => Fault::new(
            Exit::Failed,
            format!("{path}: cannot be read: {error}; copy it anew, and see dmesg if its disk fails"),
        ),
    }
}
