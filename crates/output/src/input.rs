//! Whole input files, and what any command says of a file that it cannot read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use seekless_base::Fault;

/// Longest file that is read whole. A manifest of a million files has a third of it; a device such as
/// `/dev/zero` would take all memory.
const LENGTH_MAX: u64 = 256 << 20;

/// Reads a whole file as text: a manifest, a scenario, results.
///
/// # Errors
/// Those of [`bytes`]; `Usage` where it is no text.
pub fn text(path: &Path) -> Result<String, Fault> {
    let no_text = |_| unreadable(path, &io::ErrorKind::InvalidData.into());
    String::from_utf8(bytes(path)?).map_err(no_text)
}

/// [`text`], for what need not be text.
///
/// # Errors
/// Those of [`unreadable`]; `Usage` where it is longer than 256 MiB.
pub fn bytes(path: &Path) -> Result<Vec<u8>, Fault> {
    let mut all = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LENGTH_MAX + 1).read_to_end(&mut all));
    read.map_err(|e| unreadable(path, &e))?;
    if all.len() as u64 > LENGTH_MAX {
        return Err(Fault::usage(format!(
            "{}: longer than {} MiB; give another file",
            path.display(),
            LENGTH_MAX >> 20
        )));
    }
    Ok(all)
}

/// What is wrong with a file that a command was given, and how to mend it: none is there (`Missing`), no
/// right to it (`Permission`), a directory or no text (`Usage`), a disk that fails (`Failed`).
pub fn unreadable(path: &Path, error: &io::Error) -> Fault {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Fault::missing(format!("{path}: no such file; give the path of an existing file"))
        }
        io::ErrorKind::PermissionDenied => Fault::permission(format!(
            "{path}: permission denied; run this as a user that may read it, or change its mode"
        )),
        io::ErrorKind::IsADirectory => Fault::usage(format!("{path}: is a directory; give a file")),
        io::ErrorKind::InvalidData => Fault::usage(format!("{path}: is not text (UTF-8); give another file")),
        _ => Fault::failed(format!(
            "{path}: cannot be read: {error}; copy it anew, and see dmesg if its disk fails"
        )),
    }
}
