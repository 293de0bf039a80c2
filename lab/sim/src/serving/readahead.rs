//! The kernel's read-ahead: what one read of a file makes the kernel read.
//!
//! [`OnDemand`] is the algorithm of Linux since 2.6.23 (`mm/readahead.c`, as of 6.18), one state an open
//! file. A read that meets a missing page asks synchronously; a page that was marked when its window was read
//! (PG_readahead) asks for the next window as soon as a reader reaches it, so that a sequential reader finds
//! its pages on their way. Windows double from about the size of the read to `read_ahead_kb`. Since 6.16
//! asynchronous windows are made of ever larger folios and end at a natural boundary of them, and the mark is
//! on a whole folio. docs/SIM.md tells how this was compared with a kernel's own decisions, read by read.
//!
//! What decides a server's fate is the state's birth: a server that opens the file anew for each request has
//! a state that knows nothing. The kernel then looks for the pages a sequential reader would have left behind
//! in the cache, and failing that reads just what was asked for, without any read-ahead.
//!
//! [`Kind::OnDemand3`] is the same as of Linux 3.2 (`ondemand_readahead`, `try_context_readahead`). It
//! differs where it hurts a server that sends: `sendfile` names all that is left of the call, not 16 pages at
//! a time, so the first miss of a 512 KiB request counts as an oversize read and gets a window twice as large
//! as `read_ahead_kb`; and one page of history is enough.
//!
//! [`Kind::Linux26`] is the algorithm before ([`TwoWindows`]), and [`Kind::Linux26Doubling`] what the
//! competitive prefetching paper made of it. [`Kind::Cluster`] is FreeBSD.

mod two_windows;

use super::cache::{PAGE, PageCache, PageState};
pub use two_windows::{Growth, TwoWindows};

/// Which algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// On demand, since 2.6.23.
    #[default]
    OnDemand,
    /// The same algorithm in its first years, as of 3.2; see [`OnDemand::missing_then`].
    OnDemand3,
    /// Two windows, 2.6.0 to 2.6.9.
    Linux26,
    /// The same with windows that double from 16 pages on (\[C\] section 2).
    Linux26Doubling,
    /// FreeBSD 8 and 9, as \[L\] section 5 describes it: see [`clustered`].
    Cluster,
}

impl Kind {
    /// How the two windows of the oldest kernels grow; none for later ones.
    pub fn growth(self) -> Option<Growth> {
        match self {
            Kind::Linux26 => Some(Growth::Steps),
            Kind::Linux26Doubling => Some(Growth::Doubling),
            Kind::OnDemand | Kind::OnDemand3 | Kind::Cluster => None,
        }
    }
}

/// A folio that starts the next read-ahead when a reader reaches any of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// First page of the folio.
    pub start: u64,
    /// Its pages, a power of two.
    pub pages: u64,
}

/// Pages to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First page.
    pub start: u64,
    /// Number of pages, at least 1.
    pub pages: u64,
    /// Folio to mark.
    pub mark: Option<Mark>,
}

/// Largest folio of a page cache, as a power of two: that of a huge page on x86-64 (`MAX_PAGECACHE_ORDER`).
const ORDER_MAX: u32 = 9;
/// Pages of one node of the kernel's page tree (`XA_CHUNK_SIZE`).
const TREE_NODE_PAGES: u64 = 64;

/// Pages FreeBSD reads ahead behind a request: 64 KiB (\[L\] section 5.5).
const CLUSTER_AHEAD: u64 = 16;

/// What FreeBSD reads when page `index` is missing and the call wants the pages before `reach`: one
/// transaction of at most `cluster` pages. The next one follows when its bytes are there: "a read larger
/// than 128KB (...) is split into multiple transactions that are issued iteratively" (\[L\] section 5). The
/// last of a call that goes on where an earlier one ended brings 64 KiB more: FreeBSD "also performs
/// prefetching, adding a 64KB readahead to some requests" (5.5).
pub fn clustered(cache: &PageCache, file: u32, index: u64, reach: u64, cluster: u64) -> Window {
    let end = cache.first_present(file, index, reach.max(index + 1).min(index + cluster.max(1)));
    let goes_on = index > 0 && cache.state(file, index - 1) != PageState::Absent;
    let ahead = if end >= reach && goes_on { CLUSTER_AHEAD } else { 0 };
    Window { start: index, pages: end - index + ahead, mark: None }
}

/// The bounds of a device, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// `read_ahead_kb`.
    pub read_ahead: u64,
    /// `max_sectors_kb`: a single read larger than the read-ahead is not cut below this.
    pub request: u64,
}

impl Bounds {
    /// `ractl_max_pages`.
    fn most(self, asked: u64) -> u64 {
        if asked > self.read_ahead && self.request > self.read_ahead {
            asked.min(self.request)
        } else {
            self.read_ahead
        }
    }
}

/// `struct file_ra_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnDemand {
    start: u64,
    size: u64,
    async_size: u64,
    /// Folios of the newest window, as a power of two.
    order: u32,
    /// Page of the byte behind the last one read through this open file (`prev_pos`).
    behind: Option<u64>,
}

/// `get_init_ra_size`.
fn first_size(asked: u64, most: u64) -> u64 {
    let size = asked.max(1).next_power_of_two();
    if size <= most / 32 {
        size * 4
    } else if size <= most / 4 {
        size * 2
    } else {
        most
    }
}

/// `get_next_ra_size`.
fn next_size(size: u64, most: u64) -> u64 {
    if size < most / 16 {
        4 * size
    } else if size <= most / 2 {
        2 * size
    } else {
        most
    }
}

impl OnDemand {
    /// The reader took bytes up to `end`, in bytes of the file, exclusive.
    pub fn read_upto(&mut self, end: u64) {
        self.behind = Some(end / PAGE);
    }

    /// `page_cache_sync_ra`: page `index` is missing and `asked` pages are wanted from there.
    pub fn missing(
        &mut self,
        cache: &PageCache,
        file: u32,
        index: u64,
        asked: u64,
        bounds: Bounds,
    ) -> Window {
        let asked = asked.max(1);
        if bounds.read_ahead == 0 {
            return Window { start: index, pages: asked.min(bounds.request.max(1)), mark: None };
        }
        let most = bounds.most(asked);
        // Start of the file, a read larger than any window, or right behind the last read.
        let sequential = self.behind.is_some_and(|behind| index.wrapping_sub(behind) <= 1);
        if index == 0 || asked > most || sequential {
            self.start = index;
            self.size = first_size(asked, most);
            self.async_size = if self.size > asked { self.size - asked } else { self.size / 2 };
            self.order = 0;
            return self.window();
        }
        // What a sequential reader would have left behind.
        let missed = cache.absent_before(file, index - 1, most);
        let mut behind = match missed {
            Some(page) => index - page - 1,
            None => index.min(most),
        };
        if behind <= asked {
            // Small and alone: read as it is, and leave the state as it is.
            return Window { start: index, pages: asked, mark: None };
        }
        if missed.is_none() && index <= most {
            // All the way from the start of the file.
            behind *= 2;
        }
        self.start = index;
        self.size = (behind + asked).min(most);
        self.async_size = 1;
        self.order = 0;
        self.window()
    }

    /// `ondemand_readahead` of Linux 3.2 for a missing page; `asked` pages are wanted from there to the end
    /// of the call.
    pub fn missing_then(
        &mut self,
        cache: &PageCache,
        file: u32,
        index: u64,
        asked: u64,
        bounds: Bounds,
    ) -> Window {
        let (asked, most) = (asked.max(1), bounds.read_ahead);
        if most == 0 {
            return Window { start: index, pages: asked, mark: None };
        }
        let own = self.size > 0
            && (index == self.start + self.size - self.async_size || index == self.start + self.size);
        let sequential = self.behind.is_some_and(|behind| index.wrapping_sub(behind) <= 1);
        if own && index > 0 {
            self.start += self.size;
            self.size = next_size(self.size, most);
            self.async_size = self.size;
        } else if index == 0 || asked > most || sequential {
            self.start = index;
            self.size = first_size(asked, most);
            self.async_size = if self.size > asked { self.size - asked } else { self.size };
        } else {
            let missed = cache.absent_before(file, index - 1, most);
            let mut behind = missed.map_or(index.min(most), |page| index - page - 1);
            if behind == 0 {
                return Window { start: index, pages: asked.min(most), mark: None };
            }
            if behind >= index {
                behind *= 2;
            }
            self.start = index;
            self.size = first_size(behind + asked, most);
            self.async_size = self.size;
        }
        if index == self.start && self.size == self.async_size {
            // The read would meet the mark it has just made.
            self.async_size = next_size(self.size, most);
            self.size += self.async_size;
        }
        self.order = 0;
        self.window()
    }

    /// `page_cache_async_ra`: the marked folio was reached by a read of `asked` pages from its beginning.
    pub fn reached(
        &mut self,
        cache: &PageCache,
        file: u32,
        mark: Mark,
        asked: u64,
        bounds: Bounds,
    ) -> Option<Window> {
        if bounds.read_ahead == 0 {
            return None;
        }
        let most = bounds.most(asked);
        let index = mark.start;
        let expected = (self.start + self.size).saturating_sub(self.async_size);
        if self.size > 0 && index == expected - expected % mark.pages {
            self.start += self.size;
            self.size = self.size.max(next_size(self.size, most));
        } else {
            // A mark that another reader left. How far its window reached says how large it was.
            let mut start = cache.first_absent(file, index + 1, index + 1 + most);
            // Walking its page tree from within a folio (`__xas_next`, 6.18), the kernel is one slot behind
            // until it enters another node of the tree. Until then it counts one page too many: it leaves a
            // hole of one page, or finds no end within `most` and reads nothing.
            let next_node = (index / TREE_NODE_PAGES + 1) * TREE_NODE_PAGES;
            if (2..TREE_NODE_PAGES).contains(&mark.pages) && start <= next_node {
                start += 1;
            }
            if start - index > most {
                return None;
            }
            self.start = start;
            self.size = next_size(start - index + asked, most);
        }
        // The end is cut to a natural boundary of the folios the window will be made of.
        self.order += 2;
        let end = self.start + self.size;
        let cut = end % (1 << self.order.min(most.trailing_zeros()));
        if end - cut > self.start {
            self.size -= cut;
        }
        self.async_size = self.size;
        Some(self.window())
    }

    /// [`OnDemand::reached`] as of Linux 3.2: a window is never larger than `read_ahead_kb` again, and a long
    /// call does not stretch that bound.
    pub fn reached_then(
        &mut self,
        cache: &PageCache,
        file: u32,
        index: u64,
        asked: u64,
        bounds: Bounds,
    ) -> Option<Window> {
        let most = bounds.read_ahead;
        if most == 0 {
            return None;
        }
        if self.size > 0 && index == self.start + self.size - self.async_size {
            self.start += self.size;
            self.size = next_size(self.size, most);
        } else {
            let start = cache.first_absent(file, index + 1, index + 1 + most);
            if start - index > most {
                return None;
            }
            self.start = start;
            self.size = next_size(start - index + asked, most);
        }
        self.async_size = self.size;
        self.order = 0;
        Some(self.window())
    }

    /// A page fault on a map of the file met the missing page `index` (`do_sync_mmap_readahead`): the window
    /// lies around it.
    pub fn faulted(&mut self, index: u64, bounds: Bounds) -> Window {
        let most = bounds.read_ahead.max(1);
        self.start = index.saturating_sub(most / 2);
        self.size = most;
        self.async_size = most / 4;
        self.order = 0;
        self.window()
    }

    /// `page_cache_ra_order`: folios of the window's order where they are aligned and fit, smaller ones
    /// elsewhere.
    fn window(&mut self) -> Window {
        let (start, pages) = (self.start, self.size.max(1));
        self.order = self.order.min(ORDER_MAX).min(pages.ilog2());
        let wanted = start + self.size.saturating_sub(self.async_size);
        let mut at = start;
        let mut mark = None;
        while at < start + pages && mark.is_none() {
            let room = (start + pages - at).ilog2();
            let folio = 1 << self.order.min(at.trailing_zeros()).min(room);
            if at == wanted - wanted % folio {
                mark = Some(Mark { start: at, pages: folio });
            }
            at += folio;
        }
        Window { start, pages, mark }
    }
}

/// What the kernel remembers of an open file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenFile {
    /// On demand.
    pub on_demand: OnDemand,
    /// In two windows.
    pub two_windows: TwoWindows,
}

#[cfg(test)]
mod tests;
