//! Read-ahead of Linux 2.6.0 to 2.6.9 (`page_cache_readahead`), told of each page before the page is looked
//! up.
//!
//! A reader is in the *current* window; behind it lies the *ahead* window, asked for once the reader has
//! shown a run as long as the largest window, else at the last page of the current one. When the reader steps
//! into the ahead window this becomes the current one - and the next is asked for only at the reader's second
//! page in it, that is, when its first page has arrived. So a reader that waits has exactly one window with
//! the disk, never the next one behind it: with other readers in the queue each window costs a switch. That
//! is what separates this kernel from its successors (2.6.23 and later ask for the next window before they
//! wait, see [`super::OnDemand`]).
//!
//! The text is that of 2.6.6. Left out is that windows shrink when all of their pages were in memory already.

use super::Window;

/// First window of \[C\]'s kernels, pages, and of the original one at 128 KiB (half of the largest).
const FIRST: u64 = 16;
/// Pages by which the next window grows or shrinks at each page read.
const STEP: u64 = 2;
/// Window after a page was found missing though read-ahead had given up (`VM_MIN_READAHEAD`, 16 KiB).
const AGAIN: u64 = 4;

/// How windows grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// From half of the largest, two pages more for each page read: the kernel as it was.
    Steps,
    /// From 16 pages, twice as large each time: the slow start of \[C\] section 2.
    Doubling,
}

/// Pages from `start` on; no window at all if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: u64,
    pages: u64,
}

impl Span {
    fn end(self) -> u64 {
        self.start + self.pages
    }

    fn contains(self, page: u64) -> bool {
        (self.start..self.end()).contains(&page)
    }
}

/// `struct file_ra_state` of that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TwoWindows {
    current: Span,
    ahead: Span,
    /// Size of the next window, pages.
    next: u64,
    /// Nothing is read ahead until a page is found missing.
    off: bool,
    /// The page read last (`prev_page`).
    last: Option<u64>,
    /// Pages read one after the other (`serial_cnt`), and the mean of earlier runs.
    run: u64,
    average: u64,
}

impl TwoWindows {
    /// The reader comes to `page`; windows are at most `most` pages. What is to be read now.
    pub fn reads(&mut self, page: u64, most: u64, growth: Growth) -> Option<Window> {
        // Looking at a page again, or at another part of it, tells nothing.
        if most == 0 || self.last == Some(page) {
            return None;
        }
        let Some(before) = self.last.replace(page) else {
            self.next = match growth {
                Growth::Steps => (most / 2).max(1),
                Growth::Doubling => FIRST.min(most),
            };
            self.run = 1;
            return Some(self.start_at(page, most, growth));
        };
        if self.off {
            return None;
        }
        self.follow(before, page);
        let hit = (self.current.start..=self.current.end()).contains(&page);
        match (growth, hit) {
            (Growth::Steps, true) => self.next = (self.next + STEP).min(most),
            (Growth::Doubling, true) => {}
            (_, false) => self.next = self.next.min(most).saturating_sub(STEP),
        }
        if self.next == 0 {
            (self.off, self.current) = (true, Span::default());
            return None;
        }
        if self.current.contains(page) {
            return self.look_ahead(page, most, growth);
        }
        if self.ahead.pages > 0 && page == self.ahead.start {
            self.current = std::mem::take(&mut self.ahead);
            return None;
        }
        if self.current.contains(before) {
            // As many as were used of the window before, and one that makes a longer run show.
            self.next = (before - self.current.start + 2).min(most);
        }
        Some(self.start_at(page, most, growth))
    }

    /// A page the reader wants is not in memory, although all of this was asked.
    pub fn missed(&mut self) {
        if self.off {
            (self.off, self.next) = (false, AGAIN);
        }
    }

    fn follow(&mut self, before: u64, page: u64) {
        if page == before + 1 {
            self.run += 1;
        } else {
            self.average = (self.average + self.run) / 2;
            self.run = 1;
        }
    }

    fn start_at(&mut self, page: u64, most: u64, growth: Growth) -> Window {
        self.ahead = Span::default();
        self.current = Span { start: page, pages: self.grant(most, growth) };
        window(self.current)
    }

    fn look_ahead(&mut self, page: u64, most: u64, growth: Growth) -> Option<Window> {
        let average = if self.run > self.average { (self.run + self.average) / 2 } else { self.average };
        let due = average >= most || page + 1 == self.current.end();
        if self.ahead.pages > 0 || !due {
            return None;
        }
        self.ahead = Span { start: self.current.end(), pages: self.grant(most, growth) };
        Some(window(self.ahead))
    }

    /// The size of the window asked for now.
    fn grant(&mut self, most: u64, growth: Growth) -> u64 {
        let pages = self.next.min(most);
        if growth == Growth::Doubling {
            self.next = 2 * pages;
        }
        pages
    }
}

fn window(span: Span) -> Window {
    Window { start: span.start, pages: span.pages, mark: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows asked for by a reader of these pages, as (page read, first page, pages).
    fn asked(pages: impl Iterator<Item = u64>, most: u64, growth: Growth) -> Vec<(u64, u64, u64)> {
        let mut ra = TwoWindows::default();
        pages.filter_map(|p| ra.reads(p, most, growth).map(|w| (p, w.start, w.pages))).collect()
    }

    #[test]
    fn a_sequential_reader_of_the_kernel_as_it_was() {
        // 16 pages at once, the next at the last of them, by then at the limit; from a run of twice 32 pages
        // on at the second page of each window.
        let got = asked(0..200, 32, Growth::Steps);
        let expected = [
            (0, 0, 16),
            (15, 16, 32),
            (47, 48, 32),
            (63, 80, 32),
            (81, 112, 32),
            (113, 144, 32),
            (145, 176, 32),
            (177, 208, 32),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn the_papers_slow_start_doubles_up_to_the_depth() {
        // 540 KB are 132 pages.
        let got: Vec<(u64, u64)> = asked(0..1024, 132, Growth::Doubling)
            .into_iter()
            .map(|(_, start, pages)| (start, pages))
            .collect();
        let expected = [
            (0, 16),
            (16, 32),
            (48, 64),
            (112, 128),
            (240, 132),
            (372, 132),
            (504, 132),
            (636, 132),
            (768, 132),
            (900, 132),
            (1032, 132),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn no_second_window_while_the_reader_waits_for_the_first_page_of_one() {
        let mut ra = TwoWindows::default();
        for page in 0..16 {
            ra.reads(page, 32, Growth::Steps);
        }
        // It steps into the ahead window and waits there; looking again after the wait asks for nothing
        // either.
        assert_eq!(ra.reads(16, 32, Growth::Steps), None);
        assert_eq!(ra.reads(16, 32, Growth::Steps), None);
        assert_eq!(ra.ahead, Span::default());
    }

    #[test]
    fn one_random_block_gets_its_own_pages_and_the_next_window() {
        let block = |growth| asked(320..336, 256, growth);
        assert_eq!(block(Growth::Doubling), [(320, 320, 16), (335, 336, 32)]);
        // The original kernel with the same bound would begin with half of it.
        assert_eq!(block(Growth::Steps), [(320, 320, 128)]);
    }

    #[test]
    fn random_pages_of_one_open_file_turn_it_off() {
        let mut ra = TwoWindows::default();
        let places = [1000, 5000, 200, 9000, 300];
        let got: Vec<u64> =
            places.iter().map(|&p| ra.reads(p, 32, Growth::Steps).map_or(0, |w| w.pages)).collect();
        // Half of the bound, then what was used of it and one more; then nothing.
        assert_eq!(got, [16, 2, 0, 0, 0]);
        ra.missed();
        assert_eq!(ra.reads(8000, 32, Growth::Steps).map(|w| w.pages), Some(2));
    }
}
