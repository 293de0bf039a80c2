//! The kernel's read-ahead: what one read of a file makes the kernel read.
//!
//! [`OnDemand`] is the algorithm of Linux since 2.6.23 (`mm/readahead.c`, as of 6.x), one state an open file. A read that
//! meets a missing page asks synchronously; a page that was marked when its window was read (PG_readahead) asks for the next
//! window as soon as a reader reaches it, so that a sequential reader finds its pages on their way. Windows double from
//! about the size of the read to `read_ahead_kb`.
//!
//! What decides a server's fate is the state's birth: a server that opens the file anew for each request has a state that
//! knows nothing. The kernel then looks for the pages a sequential reader would have left behind in the cache, and
//! failing that reads just what was asked for, without any read-ahead.
//!
//! [`Kind::OnDemand3`] is the same as of Linux 3.2 (`ondemand_readahead`, `try_context_readahead`). It differs where it hurts a
//! server that sends: `sendfile` names all that is left of the call, not 16 pages at a time, so the first miss of a
//! 512 KiB request counts as an oversize read and gets a window twice as large as `read_ahead_kb`; and one page of history is enough.
//!
//! [`Kind::Linux26`] is the algorithm before, in `policy::prefetch::linux`, which the two-level study describes.

use super::cache::PageCache;

/// Which algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// On demand, since 2.6.23.
    #[default]
    OnDemand,
    /// The same algorithm in its first years, as of 3.2; see [`OnDemand::missing_then`].
    OnDemand3,
    /// Two windows, 2.6.0 to 2.6.22.
    Linux26,
}

/// Pages to read; `mark` starts the next read-ahead when a reader reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First page.
    pub start: u64,
    /// Number of pages, at least 1.
    pub pages: u64,
    /// Page to mark.
    pub mark: Option<u64>,
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
    /// Page of the last byte read through this open file.
    last: Option<u64>,
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
    /// The reader took bytes up to and including this page.
    pub fn read_upto(&mut self, page: u64) {
        self.last = Some(page);
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
        let sequential = self.last.is_some_and(|last| index.wrapping_sub(last) <= 1);
        if index == 0 || asked > most || sequential {
            self.start = index;
            self.size = first_size(asked, most);
            self.async_size = if self.size > asked { self.size - asked } else { self.size / 2 };
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
        self.window()
    }

    /// `ondemand_readahead` of Linux 3.2 for a missing page; `asked` pages are wanted from there to the end of the call.
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
        let sequential = self.last.is_some_and(|last| index.wrapping_sub(last) <= 1);
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
        self.window()
    }

    /// `page_cache_async_ra`: the marked page `index` was reached by a read of `asked` pages from there.
    pub fn reached(
        &mut self,
        cache: &PageCache,
        file: u32,
        index: u64,
        asked: u64,
        bounds: Bounds,
    ) -> Option<Window> {
        if bounds.read_ahead == 0 {
            return None;
        }
        let most = bounds.most(asked);
        if self.size > 0 && index == self.start + self.size - self.async_size {
            self.start += self.size;
            self.size = self.size.max(next_size(self.size, most));
            self.async_size = self.size;
            return Some(self.window());
        }
        // A mark somebody else left. How far his window reached says how large it was.
        let start = cache.first_absent(file, index + 1, index + 1 + most);
        if start - index > most {
            return None;
        }
        self.start = start;
        self.size = next_size(start - index + asked, most);
        self.async_size = self.size;
        Some(self.window())
    }

    /// [`OnDemand::reached`] as of Linux 3.2: a window is never larger than `read_ahead_kb` again, and a long call does not
    /// stretch that bound.
    pub fn reached_then(
        &mut self,
        cache: &PageCache,
        file: u32,
        index: u64,
        asked: u64,
        bounds: Bounds,
    ) -> Option<Window> {
        let own = self.size > 0 && index == self.start + self.size - self.async_size;
        let next = next_size(self.size, bounds.read_ahead);
        let window = self.reached(cache, file, index, asked, Bounds { request: 0, ..bounds })?;
        if !own {
            return Some(window);
        }
        (self.size, self.async_size) = (next, next);
        Some(self.window())
    }

    /// A page fault on a map of the file met the missing page `index` (`do_sync_mmap_readahead`): the window lies around it.
    pub fn faulted(&mut self, index: u64, bounds: Bounds) -> Window {
        let most = bounds.read_ahead.max(1);
        self.start = index.saturating_sub(most / 2);
        self.size = most;
        self.async_size = most / 4;
        self.window()
    }

    fn window(&self) -> Window {
        let mark = self.start + self.size.saturating_sub(self.async_size);
        Window { start: self.start, pages: self.size.max(1), mark: Some(mark) }
    }
}

#[cfg(test)]
mod tests;
