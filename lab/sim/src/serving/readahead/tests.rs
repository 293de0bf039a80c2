use proptest::prelude::*;

use super::super::cache::{PageCache, Replacement};
use super::*;

const BOUNDS: Bounds = Bounds { read_ahead: 32, request: 320 };

fn cache() -> PageCache {
    PageCache::new(Replacement::Lru, 64 << 20, [32 << 20].into_iter())
}

fn bring(cache: &mut PageCache, w: Window) {
    cache.insert(0, w.start, w.start + w.pages, false);
    cache.ready(0, w.start, w.start + w.pages);
    if let Some(mark) = w.mark {
        cache.mark(0, mark);
    }
}

/// Reads of `unit` pages one after the other; every window in order.
fn sequential(cache: &mut PageCache, ra: &mut OnDemand, from: u64, to: u64, unit: u64) -> Vec<Window> {
    let mut windows = Vec::new();
    let mut at = from;
    while at < to {
        let last = (at + unit).min(to);
        let mut page = at;
        while page < last {
            if cache.first_absent(0, page, page + 1) == page {
                let w = ra.missing(cache, 0, page, last - page, BOUNDS);
                bring(cache, w);
                windows.push(w);
            }
            if cache.first_marked(0, page, page + 1).is_some() {
                let mark = cache.take_mark(0, page);
                if let Some(w) = ra.reached(cache, 0, mark, last - mark.start, BOUNDS) {
                    bring(cache, w);
                    windows.push(w);
                }
            }
            page += 1;
        }
        ra.read_upto(last * 4096);
        at = last;
    }
    windows
}

/// A window whose marked folio has `folio` pages.
fn window(start: u64, pages: u64, mark: u64, folio: u64) -> Window {
    Window { start, pages, mark: Some(Mark { start: mark, pages: folio }) }
}

/// By hand from mm/readahead.c, and as a 6.18 kernel was seen to do it: reads of one page double the window
/// from 4 pages, folios grow by four, and the window that would have ended off their boundary (12 to 28) is
/// cut at it.
#[test]
fn one_page_at_a_time_from_the_start() {
    let (mut c, mut ra) = (cache(), OnDemand::default());
    let windows = sequential(&mut c, &mut ra, 0, 70, 1);
    assert_eq!(
        windows,
        [
            window(0, 4, 1, 1),
            window(4, 8, 4, 4),
            window(12, 4, 12, 4),
            window(16, 8, 16, 8),
            window(24, 8, 24, 8),
            window(32, 16, 32, 16),
            window(48, 16, 48, 16),
            window(64, 32, 64, 32),
            window(96, 32, 96, 32)
        ]
    );
}

/// What sendfile does: 16 pages at a time, the first window is the largest already.
#[test]
fn a_splice_at_a_time_from_the_start() {
    let (mut c, mut ra) = (cache(), OnDemand::default());
    let windows = sequential(&mut c, &mut ra, 0, 96, 16);
    assert_eq!(
        windows,
        [window(0, 32, 16, 1), window(32, 32, 32, 4), window(64, 32, 64, 16), window(96, 32, 96, 32)]
    );
}

/// A server that opens the file anew for a range in its middle: the first 64 KiB come alone, only then does
/// it know.
#[test]
fn a_range_in_the_middle_of_a_cold_file() {
    let (mut c, mut ra) = (cache(), OnDemand::default());
    let windows = sequential(&mut c, &mut ra, 1000, 1064, 16);
    assert_eq!(windows[0], Window { start: 1000, pages: 16, mark: None });
    assert_eq!(windows[1], window(1016, 32, 1032, 1));
}

/// The next range of a client that was served before: what lies behind in the cache tells.
#[test]
fn a_range_behind_what_was_read_goes_on() {
    let mut c = cache();
    bring(&mut c, Window { start: 900, pages: 100, mark: None });
    let mut ra = OnDemand::default();
    assert_eq!(ra.missing(&c, 0, 1000, 16, BOUNDS), window(1000, 32, 1031, 1));
    // And one that finds a mark nobody has reached takes it over.
    let mut c = cache();
    let mark = Mark { start: 1008, pages: 1 };
    bring(&mut c, Window { start: 1000, pages: 32, mark: Some(mark) });
    let mut ra = OnDemand::default();
    assert_eq!(c.take_mark(0, 1008), mark);
    assert_eq!(ra.reached(&c, 0, mark, 16, BOUNDS), Some(window(1032, 32, 1032, 4)));
    // From within a larger folio the same, since the walk enters another node of the page tree at 1024.
    let reached =
        |c: &PageCache, start| OnDemand::default().reached(c, 0, Mark { start, pages: 4 }, 16, BOUNDS);
    assert_eq!(reached(&c, 1008).map(|w| w.start), Some(1032));
    // Where it ends in the same node, or with it, the kernel counts a page too many: one page is left out,
    // or, at the largest window, nothing is read.
    for end in [992, 1024] {
        let mut c = cache();
        bring(&mut c, Window { start: end - 32, pages: 32, mark: None });
        assert_eq!(reached(&c, end - 24).map(|w| w.start), Some(end + 1));
        assert_eq!(reached(&c, end - 32), None);
    }
}

#[test]
fn a_read_larger_than_the_window_is_cut_by_the_request_alone() {
    let (c, mut ra) = (cache(), OnDemand::default());
    assert_eq!(ra.missing(&c, 0, 0, 512, BOUNDS).pages, 320);
    let none = Bounds { read_ahead: 0, request: 320 };
    assert_eq!(ra.missing(&c, 0, 40, 5, none), Window { start: 40, pages: 5, mark: None });
    assert_eq!(ra.reached(&c, 0, Mark { start: 40, pages: 1 }, 5, none), None);
}

#[test]
fn a_fault_reads_around() {
    let mut ra = OnDemand::default();
    assert_eq!(ra.faulted(100, BOUNDS), window(84, 32, 108, 1));
    assert_eq!(ra.faulted(3, BOUNDS), window(0, 32, 24, 1));
}

proptest! {
    /// Whatever is read in whatever order: the missing page is always part of what is asked for, no window is
    /// longer than the bounds allow, and a mark lies in its window.
    #[test]
    fn windows_bring_what_is_missing_and_stay_bounded(
        reads in proptest::collection::vec((0u64..4000, 1u64..64), 1..60), read_ahead in 0u64..600,
    ) {
        let bounds = Bounds { read_ahead, request: 320 };
        let (mut c, mut ra) = (cache(), OnDemand::default());
        for (from, len) in reads {
            let mut page = from;
            while page < from + len {
                let asked = from + len - page;
                if c.first_absent(0, page, page + 1) == page {
                    let w = ra.missing(&c, 0, page, asked, bounds);
                    prop_assert!(w.start <= page && page < w.start + w.pages);
                    prop_assert!(w.pages <= read_ahead.max(asked.min(320)).max(1), "{w:?}");
                    prop_assert!(w.mark.is_none_or(|m| m.start >= w.start && m.start + m.pages <= w.start + w.pages));
                    bring(&mut c, w);
                }
                if c.first_marked(0, page, page + 1).is_some() {
                    let mark = c.take_mark(0, page);
                    if let Some(w) = ra.reached(&c, 0, mark, from + len - mark.start, bounds) {
                        prop_assert!(w.start > mark.start && w.pages <= read_ahead.max(320));
                        bring(&mut c, w);
                    }
                }
                page += 1;
            }
            ra.read_upto((from + len) * 4096);
        }
    }
}

/// By hand from mm/readahead.c of Linux 3.2, read_ahead_kb 128: `sendfile` of 512 KiB from a file opened
/// anew.
#[test]
fn linux_3_meets_its_own_mark() {
    let (mut c, mut ra) = (cache(), OnDemand::default());
    // Larger than the window: 32 pages, which would be met at once by this very read, so 32 more.
    let first = ra.missing_then(&c, 0, 1000, 128, BOUNDS);
    assert_eq!(first, window(1000, 64, 1032, 1));
    bring(&mut c, first);
    assert_eq!(ra.reached_then(&c, 0, 1032, 96, BOUNDS), Some(window(1064, 32, 1064, 1)));
    // With 2 MiB it is a small read in the middle of a file: nothing but what is asked for, until there is
    // history.
    let wide = Bounds { read_ahead: 512, request: 4096 };
    let mut ra = OnDemand::default();
    assert_eq!(ra.missing_then(&c, 0, 3000, 128, wide), Window { start: 3000, pages: 128, mark: None });
    // 64 pages behind it and 128 asked for: 256 as a power of two, half of the largest, so the largest; and
    // that doubled.
    let mut ra = OnDemand::default();
    assert_eq!(ra.missing_then(&c, 0, 1064, 128, wide), window(1064, 1024, 1576, 1));
    // The start of the file: 256 pages, the mark where the request ends.
    let mut ra = OnDemand::default();
    let start = ra.missing_then(&c, 0, 0, 128, wide);
    assert_eq!(start, window(0, 256, 128, 1));
    bring(&mut c, start);
    // The next request opens the file again and meets the mark: twice what lies ahead and is asked for, from
    // its end on.
    let mut ra = OnDemand::default();
    assert_eq!(ra.reached_then(&c, 0, 128, 128, wide), Some(window(256, 512, 256, 1)));
}

#[test]
fn freebsd_reads_a_transaction_at_a_time_and_64_kib_behind_a_request_that_goes_on() {
    let mut cache = cache();
    // A request of 512 KiB at the head of a file: four transactions, nothing behind it.
    for at in [0, 32, 64, 96] {
        let window = clustered(&cache, 0, at, 128, 32);
        assert_eq!((window.start, window.pages), (at, 32 + if at == 96 { 16 } else { 0 }));
        bring(&mut cache, window);
    }
    // The next one finds what was read ahead, and its last transaction is shorter.
    assert_eq!(cache.first_absent(0, 128, 256), 144);
    assert_eq!(clustered(&cache, 0, 144, 160, 32).pages, 16 + 16);
    // One that follows nothing brings nothing more.
    assert_eq!(clustered(&cache, 0, 1000, 1016, 32).pages, 16);
    // What is there already is not read again.
    assert_eq!(clustered(&cache, 0, 144, 2000, 4000).pages, 2000 - 144 + 16);
}
