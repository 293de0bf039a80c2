//! Read-ahead of Linux 2.6, as PFC section 2.2 describes it, one state a file.
//!
//! A *group* is what one prefetch brought; the *window* is the newest group and the one before. A request that starts
//! within the window, or just behind its end, is sequential, and another group of twice the size follows, up to 32
//! blocks. A request elsewhere restarts: 3 blocks after the requested ones.
//!
//! What the paper leaves open and the kernel decides (Bovet and Cesati, "Understanding the Linux Kernel", chapter on
//! read-ahead; Butt et al., SIGMETRICS 2005, which PFC cites): the next group is started when a request reaches the
//! *newest* group; one that is still within the group before it starts nothing. So the prefetcher is at most one whole
//! group ahead of the reader. Started by any request in the window instead, the window would run away from the reader
//! within a few requests and every run would end in a restart.

use alloc::vec::Vec;

use super::{BlockRun, LevelAccess, PrefetchPlan};

/// Parameters of the Linux read-ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxParams {
    /// Blocks fetched after a request that is not sequential; default 3 (the kernel's minimum of 16 KiB with the
    /// requested page).
    pub group_min: u32,
    /// Largest group, blocks; default 32 (128 KiB).
    pub group_max: u32,
}

impl Default for LinuxParams {
    fn default() -> LinuxParams {
        LinuxParams { group_min: 3, group_max: 32 }
    }
}

/// Most files remembered at once; above it files share states (number modulo this). A million is more than any trace we know and
/// takes 32 MB.
const FILES_MAX: u32 = 1 << 20;

/// The window of one file. `size` 0: nothing known yet.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// First block of the group before the newest (or of the request that restarted).
    start: u64,
    /// First block of the newest group.
    newest: u64,
    /// Last block of the newest group.
    end: u64,
    /// Size the newest group was planned with, blocks.
    size: u32,
}

/// State of the Linux read-ahead.
#[derive(Clone, Debug)]
pub struct Linux {
    params: LinuxParams,
    files: Vec<Window>,
}

impl Linux {
    /// A read-ahead that has seen nothing.
    pub fn new(params: LinuxParams) -> Linux {
        Linux { params, files: Vec::new() }
    }

    pub(super) fn access(&mut self, access: &LevelAccess) -> PrefetchPlan {
        let file = (access.context % FILES_MAX) as usize;
        if file >= self.files.len() {
            self.files.resize(file + 1, Window::default());
        }
        let window = &mut self.files[file];
        let in_window = window.size != 0 && access.first >= window.start && access.first <= window.end + 1;
        if !in_window {
            let size = self.params.group_min.max(1);
            *window = Window {
                start: access.first,
                newest: access.last + 1,
                end: access.last + u64::from(size),
                size,
            };
        } else if access.last >= window.newest {
            let size = window.size.saturating_mul(2).min(self.params.group_max).max(1);
            // A request longer than what was prefetched has brought the blocks up to its end itself.
            let from = window.end.max(access.last) + 1;
            *window = Window { start: window.newest, newest: from, end: from + u64::from(size) - 1, size };
        } else {
            return PrefetchPlan { sequential: true, run: None, stream: None };
        }
        let run = BlockRun { first: window.newest, last: window.end, trigger: None, stream: None };
        PrefetchPlan { sequential: in_window, run: Some(run), stream: None }
    }
}
