//! A repository of restic on the disk, with the tree in it.
//!
//! The name of each of its packs is the checksum of the pack, which `restic check --read-data` compares with
//! what it reads. So a check that ends well has read every pack right.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use seekless_base::Fault;

use crate::small_files::{self, Sums};
use crate::tools;

/// Folder of the repository on the disk.
pub(super) const REPOSITORY: &str = "repository";
/// The packs of the repository in the working folder, as lines of `sha256sum`.
const PACKS: &str = "find data -type f -printf '%f  %p\\n'";

/// The line a shell runs to read every pack of the repository in its working folder.
pub(super) fn check() -> String {
    format!("\"$RESTIC\" check --read-data >&2; {PACKS}")
}

/// What the lines for the shell need.
///
/// # Errors
/// [`Exit::Missing`]: restic is not here.
pub(super) fn environment() -> Result<[(&'static str, OsString); 3], Fault> {
    let restic = tools::find("restic")?.path;
    Ok([("RESTIC", restic.into()), ("RESTIC_REPOSITORY", ".".into()), ("RESTIC_PASSWORD", "seekless".into())])
}

/// Saves `tree` in a new repository and says what its packs are.
///
/// # Errors
/// Those of restic, in its own words.
pub(super) fn save(tree: &Path, repository: &Path) -> Result<Sums, Fault> {
    let failed = |why: String| Fault::failed(format!("restic: {why}"));
    std::fs::create_dir_all(repository).map_err(|e| failed(e.to_string()))?;
    let mut command = Command::new("sh");
    let save = format!("\"$RESTIC\" init >&2; \"$RESTIC\" backup \"$TREE\" >&2; {PACKS}");
    command.args(["-ec", &save]).current_dir(repository).env("TREE", tree).envs(environment()?);
    let output = command.output().map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")));
    }
    Ok(small_files::parse(&String::from_utf8_lossy(&output.stdout)))
}
