//! The processes that have called at the socket. Another door ignores the reads of those that have the shim.

use std::collections::HashSet;
use std::sync::Mutex;

use seekless_engine::lock;

/// Maximum number of processes. Beyond it all are forgotten, and added again with their next miss.
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

    /// Whether this process, or another with the same id before, has called.
    pub(crate) fn has_called(&self, pid: u32) -> bool {
        lock(&self.0).contains(&pid)
    }
}
