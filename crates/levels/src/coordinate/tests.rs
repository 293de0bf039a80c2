//! PFC's algorithms worked through by hand, and what must hold for any sequence.

use proptest::prelude::*;

use super::pfc::{LargeRequest, PfcParams};
use super::*;
use crate::recent::RecentBlocks;

fn request(first: u64, len: u64) -> LevelRequest {
    LevelRequest { context: 0, first, last: first + len - 1 }
}

/// What L2 holds.
fn l2(blocks: core::ops::Range<u64>) -> impl Fn(u64) -> bool {
    move |block| blocks.contains(&block)
}

#[test]
fn a_large_request_bypasses_whole() {
    let mut pfc = pfc::Pfc::new(PfcParams::default(), 1000);
    // The first request is its own average: larger than half of it.
    let split = pfc.decide(&request(0, 4), l2(0..0));
    assert_eq!((split.bypass, split.readmore), (4, 0));
    // Average (4 + 2) / 2 = 3, half 1.5: 2 is large as well.
    assert_eq!(pfc.decide(&request(100, 2), l2(0..0)).bypass, 2);
}

#[test]
fn blocks_stocked_behind_the_request_make_it_bypass_whole() {
    let params = PfcParams { large_request: LargeRequest::OneAndHalf, ..PfcParams::default() };
    let mut pfc = pfc::Pfc::new(params, 1000);
    // Not large. [end, end + size] = [3, 7] is cached: bypass all, no readmore.
    let split = pfc.decide(&request(0, 4), l2(3..8));
    assert_eq!((split.bypass, split.readmore), (4, 0));
    // One block less is not enough: bypass_length only grows by one from where it was.
    let split = pfc.decide(&request(0, 4), l2(3..7));
    assert_eq!(split.bypass, 4);
    assert_eq!(
        pfc.state(0).bypass_length,
        4,
        "a bypassed block is met again and L2 holds block 3: unchanged"
    );
}

#[test]
fn readmore_follows_a_hit_in_its_window() {
    let params = PfcParams { large_request: LargeRequest::OneAndHalf, ..PfcParams::default() };
    let mut pfc = pfc::Pfc::new(params, 1000);
    let empty = l2(0..0);
    // Nothing known: bypass_length 1, no readmore; the window [3, 7] is noted.
    let split = pfc.decide(&request(0, 4), &empty);
    assert_eq!((split.bypass, split.readmore), (1, 0));
    // Blocks 4..=7 lie in the window and not in L2: readmore becomes max(4, average 4).
    let split = pfc.decide(&request(4, 4), &empty);
    assert_eq!((split.bypass, split.readmore), (2, 4));
    // Elsewhere: no hit, readmore back to 0.
    assert_eq!(pfc.decide(&request(500, 4), &empty).readmore, 0);
}

#[test]
fn bypass_shrinks_when_the_upper_level_lost_what_was_bypassed() {
    let params = PfcParams { large_request: LargeRequest::OneAndHalf, ..PfcParams::default() };
    let mut pfc = pfc::Pfc::new(params, 1000);
    let empty = l2(0..0);
    for (i, expected) in [1, 2, 3].into_iter().enumerate() {
        assert_eq!(pfc.decide(&request(100 * i as u64, 4), &empty).bypass, expected);
    }
    // Block 200 was bypassed and comes again, not in L2.
    assert_eq!(pfc.decide(&request(200, 4), &empty).bypass, 2);
}

/// PFC figure 3: of a request for blocks 1 to 5 the first three bypass, and 6 to 8 are read more; the native
/// side sees 4 to 8.
#[test]
fn figure_3_is_reached_by_the_reading_of_one_and_a_half() {
    let params = PfcParams { large_request: LargeRequest::OneAndHalf, ..PfcParams::default() };
    let mut pfc = pfc::Pfc::new(params, 1000);
    let empty = l2(0..0);
    // 100..=102: bypass_length 1; the window [102, 105] is noted. 103..=105 lies in it: bypass_length 2,
    // readmore 3.
    pfc.decide(&request(100, 3), &empty);
    let split = pfc.decide(&request(103, 3), &empty);
    assert_eq!((split.bypass, split.readmore), (2, 3));
    // 1..=5, not longer than 1.5 x 11/3, with block 4 at L2: bypass_length 3, and readmore_length stays.
    let split = pfc.decide(&request(1, 5), l2(4..5));
    assert_eq!((split.bypass, split.readmore), (3, 3));
    let native = (1 + split.bypass, 5 + split.readmore);
    assert_eq!(native, (4, 8));
    let counts = pfc::PfcCounts { large: 0, stocked: 0, adjusted: 3, readmore_set: 1 };
    assert_eq!(pfc.counts(), counts);
}

#[test]
fn actions_can_be_used_alone() {
    let only = |bypass, readmore| {
        let params =
            PfcParams { bypass, readmore, large_request: LargeRequest::OneAndHalf, ..PfcParams::default() };
        let mut pfc = pfc::Pfc::new(params, 1000);
        pfc.decide(&request(0, 4), l2(0..0));
        let split = pfc.decide(&request(4, 4), l2(0..0));
        (split.bypass, split.readmore)
    };
    assert_eq!(only(true, false), (2, 0));
    assert_eq!(only(false, true), (0, 4));
}

#[test]
fn contexts_may_have_their_own_lengths() {
    for per_context in [false, true] {
        let mut pfc = pfc::Pfc::new(PfcParams { per_context, ..PfcParams::default() }, 1000);
        pfc.decide(&LevelRequest { context: 1, first: 0, last: 9 }, l2(0..0));
        assert_eq!(pfc.state(2).bypass_length, if per_context { 0 } else { 10 });
    }
}

proptest! {
    /// To the letter of algorithm 2 figure 3 cannot happen, nor anything near it. Only a request of at most
    /// half the average keeps or sets readmore_length, which was at least the average when it was set.
    /// Requests since then were as short, so the average only fell: what is read more is nothing, or at least
    /// twice the request.
    #[test]
    fn to_the_letter_readmore_is_nothing_or_at_least_twice_the_request(
        requests in proptest::collection::vec((0_u64..300, 1_u64..40), 1..300),
        held in proptest::collection::vec(0_u64..300, 0..200),
    ) {
        let mut cache = RecentBlocks::new(1000);
        for block in held {
            cache.insert(block, true);
        }
        let mut pfc = pfc::Pfc::new(PfcParams::default(), 1000);
        for (first, len) in requests {
            let split = pfc.decide(&request(first, len), |block| cache.holds(block));
            prop_assert!(split.readmore == 0 || split.readmore >= 2 * len, "{} {len}", split.readmore);
        }
    }
}
