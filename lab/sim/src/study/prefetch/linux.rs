//! Read-ahead of Linux 2.6, one state a file, by either of two rules.
//!
//! A *group* is what one prefetch brought; the *window* is the newest group and the one before. A sequential
//! request is followed by another group of twice the size, up to 32 blocks. A request that is not restarts: 3
//! blocks after the requested ones.
//!
//! - [`LinuxRule::Window`] is PFC section 2.2 as it stands: "the file is accessed sequentially if the next
//!   access is within the read-ahead window and will prefetch another group with twice the size". Every read
//!   anywhere in the window starts a group. A reader of single blocks so outruns its window within a few
//!   reads and restarts among blocks that are cached already.
//! - [`LinuxRule::NewestGroup`] is the kernel's (Bovet and Cesati, "Understanding the Linux Kernel", chapter
//!   on read-ahead; Butt et al., SIGMETRICS 2005, which PFC cites): the next group is started when a request
//!   reaches the *newest* group, one within the group before it starts nothing, and one just behind the
//!   window continues it. The prefetcher is at most one whole group ahead of the reader.

use super::{BlockRun, LevelAccess, Notes, PrefetchPlan};

/// Parameters of the Linux read-ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxParams {
    /// Blocks fetched after a request that is not sequential; default 3 (the kernel's minimum of 16 KiB with
    /// the requested page).
    pub group_min: u32,
    /// Largest group, blocks; default 32 (128 KiB).
    pub group_max: u32,
    /// Which requests start the next group.
    pub rule: LinuxRule,
}

/// Which requests start the next group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinuxRule {
    /// One anywhere in the window, as PFC describes it.
    #[default]
    Window,
    /// One that reaches the newest group, as the kernel has it.
    NewestGroup,
}

impl Default for LinuxParams {
    fn default() -> LinuxParams {
        LinuxParams { group_min: 3, group_max: 32, rule: LinuxRule::Window }
    }
}

/// Most files remembered at once; above it files share states (number modulo this). A million is more than
/// any trace we know and takes 32 MB.
const FILES_MAX: u32 = 1 << 20;

/// The window of one file. `size` 0: nothing known yet.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// First block of the window: of the group before the newest, or after a restart of what its rule has
    /// there.
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
        let rule = self.params.rule;
        // The kernel counts what was asked for and the place just behind to the window, PFC's text only the
        // groups.
        let behind = u64::from(rule == LinuxRule::NewestGroup);
        let in_window =
            window.size != 0 && access.first >= window.start && access.first <= window.end + behind;
        if !in_window {
            let size = self.params.group_min.max(1);
            *window = Window {
                start: if rule == LinuxRule::Window { access.last + 1 } else { access.first },
                newest: access.last + 1,
                end: access.last + u64::from(size),
                size,
            };
        } else if rule == LinuxRule::Window || access.last >= window.newest {
            let size = window.size.saturating_mul(2).min(self.params.group_max).max(1);
            // A request longer than what was prefetched has brought the blocks up to its end itself.
            let from = window.end.max(access.last) + 1;
            *window = Window { start: window.newest, newest: from, end: from + u64::from(size) - 1, size };
        } else {
            return PrefetchPlan { sequential: true, ..PrefetchPlan::default() };
        }
        let run = BlockRun { first: window.newest, last: window.end, trigger: None };
        PrefetchPlan { sequential: in_window, run: Some(run), notes: Notes::None }
    }
}
