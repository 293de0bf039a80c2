//! Which processes have called at the socket: another door leaves the reads of those with the shim to it.

use std::collections::HashSet;
use std::sync::Mutex;

use seekless_engine::lock;

/// Most processes remembered; beyond it all are forgotten, and come again with their next miss.
const CALLERS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Callers(Mutex<HashSet<u32>>);

impl Callers {
    pub(crate) fn called(&self, pid: u32) {
        let mut callers = lock(&self.0);
        if callers.len() >= CALLERS_MAX {
            callers.clear();
        }
        callers.insert(pid);
    }

    /// Whether this process, or another that had its number, has called.
    pub(crate) fn has_called(&self, pid: u32) -> bool {
        lock(&self.0).contains(&pid)
    }
}
