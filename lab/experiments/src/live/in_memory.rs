//! Runs where everything is in memory before they begin.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use seekless_base::Fault;
use seekless_kernel::residency::{Residency, residency};

use crate::guard;

/// Times that files are read until all are there: a pager of idle memory
/// ([`seekless_kernel::memory::idle_pager`]) takes some of the first while the last are read, if that takes
/// long.
const PASSES: usize = 5;

/// Reads every file below `dir` until all of them are in memory, as far as the machine lets them stay.
pub(super) fn bring(dir: &Path) -> Result<(), Fault> {
    for _ in 0..PASSES {
        let mut absent = 0;
        each_file(dir, &mut |file| {
            absent += u64::from(is_absent(file)?);
            io::copy(file, &mut io::sink()).map(drop)
        })?;
        if absent == 0 {
            break;
        }
    }
    Ok(())
}

/// Files below `dir` of which something is not in memory.
pub(super) fn absent(dir: &Path) -> Result<u64, Fault> {
    let mut absent = 0;
    each_file(dir, &mut |file| {
        absent += u64::from(is_absent(file)?);
        Ok(())
    })?;
    Ok(absent)
}

fn is_absent(file: &File) -> io::Result<bool> {
    let about = file.metadata()?;
    Ok(residency(file.as_fd(), 0, about.len(), about.uid()) == Residency::Missing)
}

fn each_file(dir: &Path, with: &mut dyn FnMut(&mut File) -> io::Result<()>) -> Result<(), Fault> {
    let fault = |path: &Path, e: io::Error| Fault::failed(format!("{}: {e}", path.display()));
    for entry in std::fs::read_dir(dir).map_err(|e| fault(dir, e))? {
        guard::check_interrupted()?;
        let entry = entry.map_err(|e| fault(dir, e))?;
        let (path, about) = (entry.path(), entry.file_type().map_err(|e| fault(dir, e))?);
        if about.is_dir() && entry.file_name() != "lost+found" {
            each_file(&path, with)?;
        } else if about.is_file() {
            File::open(&path).and_then(|mut file| with(&mut file)).map_err(|e| fault(&path, e))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_is_absent_until_it_is_brought() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::create_dir(dir.path().join("deeper")).unwrap();
        let path = dir.path().join("deeper/file");
        std::fs::write(&path, vec![1; 100_000]).unwrap();
        std::fs::write(dir.path().join("empty"), "").unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        assert_eq!(absent(dir.path()).unwrap(), 0);
        // Now and then some pages stay for a moment.
        let goes = (0..10_000).any(|_| {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            is_absent(&file).unwrap()
        });
        if !goes {
            return println!("skipped: the sources lie in a file system in memory");
        }
        assert_eq!(absent(dir.path()).unwrap(), 1);
        bring(dir.path()).unwrap();
        assert_eq!(absent(dir.path()).unwrap(), 0);
        assert!(bring(&dir.path().join("nowhere")).is_err());
    }
}
