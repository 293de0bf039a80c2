//! What is in memory, for the tests of what is read ahead.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::Advice;
use seekless_kernel::residency::cachestat;

/// Puts files out of memory; false where they stay there.
pub(crate) fn forget<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> bool {
    paths.into_iter().all(|path| {
        let file = File::open(path).unwrap();
        // What is not written yet stays.
        file.sync_all().unwrap();
        evict(&file);
        cachestat(file.as_fd(), 0, 1 << 30).is_ok_and(|stat| stat.cached == 0)
    })
}

/// Puts what is written of a file out of memory.
pub(crate) fn evict(file: &File) {
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
}
