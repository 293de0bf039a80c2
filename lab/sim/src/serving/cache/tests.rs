use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn cache(replacement: Replacement, mib: u64) -> PageCache {
    PageCache::new(replacement, mib * MIB, [64 * MIB, 64 * MIB, 3 * MIB].into_iter())
}

/// Reads `[from, to)` to the end: present, ready, used.
fn read(cache: &mut PageCache, file: u32, from: u64, to: u64) {
    cache.insert(file, from, to, false);
    cache.ready(file, from, to);
    cache.touch(file, from, to);
}

#[test]
fn pages_come_are_ready_and_go() {
    let mut c = cache(Replacement::Lru, 8);
    assert_eq!(c.state(0, 5), PageState::Absent);
    c.insert(0, 5, 100, false);
    assert_eq!(c.state(0, 5), PageState::Coming);
    assert_eq!(
        (c.first_absent(0, 5, 200), c.first_present(0, 0, 50), c.first_not_ready(0, 5, 9)),
        (100, 5, 5)
    );
    c.ready(0, 5, 60);
    assert_eq!((c.state(0, 59), c.first_not_ready(0, 5, 100)), (PageState::Ready, 60));
    assert_eq!(c.absent_before(0, 99, 200), Some(4));
    assert_eq!(c.absent_before(0, 99, 50), None, "none within reach");
    assert_eq!((c.pages(), c.unused(), c.present_pages(0, 0, 50)), (95, 95, 45));
    c.set_mark(0, 70, true);
    c.set_mark(0, 200, true);
    assert_eq!((c.first_marked(0, 0, 300), c.first_marked(0, 71, 300)), (Some(70), None));
    c.drop_range(0, 0, 300);
    assert_eq!((c.pages(), c.counts().dropped, c.state(0, 60)), (40, 55, PageState::Coming));
}

#[test]
fn lru_evicts_what_was_used_longest_ago() {
    let mut c = cache(Replacement::Lru, 1);
    for block in 0..8 {
        read(&mut c, 0, block * 32, block * 32 + 32);
    }
    read(&mut c, 0, 0, 32);
    read(&mut c, 1, 0, 32);
    assert_eq!(c.state(0, 0), PageState::Ready, "used again");
    assert_eq!(c.state(0, 32), PageState::Absent, "the oldest use");
    assert_eq!(c.counts().evicted_used, 32);
}

#[test]
fn two_lists_keep_what_was_used_twice_from_a_scan() {
    let mut c = cache(Replacement::TwoList, 1);
    read(&mut c, 1, 0, 64);
    c.touch(1, 0, 64);
    for block in 0..64 {
        read(&mut c, 0, block * 32, block * 32 + 32);
    }
    assert_eq!(c.state(1, 0), PageState::Ready, "active");
    let mut c = cache(Replacement::Lru, 1);
    read(&mut c, 1, 0, 64);
    c.touch(1, 0, 64);
    for block in 0..64 {
        read(&mut c, 0, block * 32, block * 32 + 32);
    }
    assert_eq!(c.state(1, 0), PageState::Absent, "one list forgets it");
}

#[test]
fn what_is_read_again_after_it_left_before_use_is_counted() {
    let mut c = cache(Replacement::TwoList, 1);
    let piece = |c: &mut PageCache| {
        c.insert(1, 0, 64, false);
        c.ready(1, 0, 64);
    };
    piece(&mut c);
    (0..16).for_each(|block| read(&mut c, 0, block * 32, block * 32 + 32));
    assert_eq!(c.present_pages(1, 0, 64), 0, "nobody has used it twice");
    piece(&mut c);
    assert_eq!(c.counts().refetched, 64);
}

#[test]
fn a_page_that_comes_back_soon_is_active_at_once() {
    let mut c = cache(Replacement::TwoList, 1);
    // Some active pages, so that there is a distance to be within.
    read(&mut c, 1, 0, 96);
    c.touch(1, 0, 96);
    for block in 0..8 {
        read(&mut c, 0, block * 32, block * 32 + 32);
    }
    assert_eq!(c.state(0, 0), PageState::Absent);
    read(&mut c, 0, 0, 32);
    for block in 20..60 {
        read(&mut c, 0, block * 32, block * 32 + 32);
    }
    assert_eq!(c.state(0, 0), PageState::Ready, "its refault told that it is wanted");
}

#[test]
fn one_page_used_again_moves_a_folio_and_no_single_pages() {
    for (large, active) in [(false, 0), (true, 32)] {
        let mut c = cache(Replacement::TwoList, 8);
        c.insert(0, 0, 32, large);
        c.ready(0, 0, 32);
        c.touch(0, 0, 20);
        c.touch(0, 19, 32);
        assert_eq!(c.active.pages, active, "the boundary of two segments lies in page 19");
        c.touch(0, 0, 32);
        assert_eq!(c.active.pages, 32, "read from end to end a second time");
    }
}

#[test]
fn the_active_list_gives_way_while_evicted_pages_come_back() {
    let mut c = cache(Replacement::TwoList, 1);
    for block in 0..4 {
        read(&mut c, 1, block * 32, block * 32 + 32);
        c.touch(1, block * 32, block * 32 + 32);
    }
    for block in 0..8 {
        read(&mut c, 0, block * 32, block * 32 + 32);
    }
    assert_eq!(c.active.pages, 128, "a scan does not touch it");
    read(&mut c, 0, 0, 32);
    read(&mut c, 0, 320, 352);
    assert!(c.active.pages < 128 + 32, "one block came back at once, others went: {}", c.active.pages);
    assert!(c.active.pages > 0);
}

#[test]
fn what_is_under_way_is_not_evicted() {
    let mut c = cache(Replacement::TwoList, 1);
    c.insert(0, 0, 512, false);
    assert_eq!(c.pages(), 512, "memory is overdrawn while all of it is under way");
    c.ready(0, 0, 512);
    c.insert(1, 0, 1, false);
    assert!(c.pages() <= c.limit() + 32, "{}", c.pages());
    assert!(c.counts().evicted_unused > 200);
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u32, u64, u64),
    Ready(u32, u64, u64),
    Touch(u32, u64, u64),
    Drop(u32, u64, u64),
    Mark(u32, u64, bool),
}

fn op() -> impl Strategy<Value = Op> {
    let range = (0u32..3, 0u64..768, 1u64..200).prop_map(|(f, from, len)| (f, from, (from + len).min(768)));
    prop_oneof![
        4 => range.clone().prop_map(|(f, a, b)| Op::Insert(f, a, b)),
        4 => range.clone().prop_map(|(f, a, b)| Op::Ready(f, a, b)),
        3 => range.clone().prop_map(|(f, a, b)| Op::Touch(f, a, b)),
        1 => range.clone().prop_map(|(f, a, b)| Op::Drop(f, a, b)),
        1 => (range, any::<bool>()).prop_map(|((f, a, _), on)| Op::Mark(f, a, on)),
    ]
}

proptest! {
    /// Against a map with one entry a page: states, bounds and counters agree whatever happens, as far as
    /// replacement leaves the pages there.
    #[test]
    fn it_is_a_bounded_set_of_pages(
        ops in proptest::collection::vec(op(), 1..120),
        lru in any::<bool>(),
    ) {
        let replacement = if lru { Replacement::Lru } else { Replacement::TwoList };
        let mut c = cache(replacement, 2);
        let mut model: HashMap<(u32, u64), bool> = HashMap::new();
        for op in ops {
            match op {
                Op::Insert(f, a, b) => {
                    c.insert(f, a, b, false);
                    (a..b).for_each(|p| { model.entry((f, p)).or_insert(false); });
                }
                Op::Ready(f, a, b) => {
                    c.ready(f, a, b);
                    (a..b).for_each(|p| if let Some(r) = model.get_mut(&(f, p)) { *r = true; });
                }
                Op::Touch(f, a, b) => c.touch(f, a, b),
                Op::Drop(f, a, b) => {
                    c.drop_range(f, a, b);
                    (a..b).for_each(|p| if model.get(&(f, p)) == Some(&true) { model.remove(&(f, p)); });
                }
                Op::Mark(f, p, on) => {
                    c.set_mark(f, p, on);
                    let there = c.state(f, p) != PageState::Absent;
                    prop_assert_eq!(c.first_marked(f, p, p + 1).is_some(), on && there);
                }
            }
            // What replacement took is gone from the model too; nothing else may differ.
            model.retain(|&(f, p), _| c.state(f, p) != PageState::Absent);
            for f in 0..3u32 {
                for p in 0..768 {
                    let expected = match model.get(&(f, p)) {
                        None => PageState::Absent,
                        Some(false) => PageState::Coming,
                        Some(true) => PageState::Ready,
                    };
                    prop_assert_eq!(c.state(f, p), expected);
                }
                let first = (0..768).find(|&p| !model.contains_key(&(f, p))).unwrap_or(768);
                prop_assert_eq!(c.first_absent(f, 0, 768), first);
                let present = (0..768).find(|&p| model.contains_key(&(f, p))).unwrap_or(768);
                prop_assert_eq!(c.first_present(f, 0, 768), present);
                let back = (0..500).rev().find(|&p| !model.contains_key(&(f, p)));
                prop_assert_eq!(c.absent_before(f, 499, 500), back);
            }
            prop_assert_eq!(c.pages(), model.len() as u64);
            let coming = model.values().filter(|r| !**r).count() as u64;
            prop_assert!(c.pages() <= c.limit() || coming > 0, "{} pages, none under way", c.pages());
            prop_assert!(c.unused() <= c.pages());
            let n = c.counts();
            prop_assert_eq!(n.inserted - n.evicted_used - n.evicted_unused - n.dropped, c.pages());
        }
    }
}

#[test]
fn without_marks_of_use_pages_leave_as_they_came() {
    let mut c = cache(Replacement::Fifo, 1);
    read(&mut c, 0, 0, 128);
    for _ in 0..3 {
        c.touch(0, 0, 128);
    }
    read(&mut c, 1, 0, 128);
    read(&mut c, 1, 128, 160);
    assert_eq!(
        (c.first_present(0, 0, 128), c.first_absent(1, 0, 160)),
        (32, 160),
        "the first to come is the first to go"
    );
}
