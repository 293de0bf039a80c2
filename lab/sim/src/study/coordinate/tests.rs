//! What must hold for any sequence of requests, whatever the coordinator.

use crate::study::cache::{Origin, Replacement};
use proptest::prelude::*;

use super::pfc::{LargeRequest, PfcParams};
use super::steer::{SteerParams, Treatment};
use super::*;

/// A world in which each way has its answer time; what Steer settles on.
fn settled(native: u64, pfc: u64, past: u64) -> Treatment {
    let mut coordinator = Coordinator::new(Coordination::Steer(SteerParams::default()), 1000);
    let cache = Cache::new(Replacement::Lru, 1000).unwrap();
    let mut now = 0;
    for i in 0..40_000 {
        let request = LevelRequest { context: 0, first: i * 10, last: i * 10 + 3 };
        coordinator.arrived(now, &request);
        coordinator.decide(&request, &cache);
        let Coordinator::Steer(steer) = &coordinator else { unreachable!() };
        let elapsed = match steer.way() {
            Treatment::Native => native,
            Treatment::Pfc => pfc,
            Treatment::Past => past,
        };
        now += elapsed + 10;
        coordinator.answered(now, elapsed, request.last);
    }
    let Coordinator::Steer(steer) = coordinator else { unreachable!() };
    steer.best()
}

#[test]
fn steer_settles_on_the_best_way() {
    assert_eq!(settled(100, 50, 80), Treatment::Pfc);
    assert_eq!(settled(100, 80, 50), Treatment::Past);
    assert_eq!(settled(100, 200, 300), Treatment::Native);
    assert_eq!(settled(100, 99, 98), Treatment::Native, "a difference within the margin is noise");
}

proptest! {
    /// Whatever comes: no bypass longer than the request, readmore bounded by the longest request, lengths
    /// that do not overflow, and every coordinator decides.
    #[test]
    fn splits_are_within_bounds(
        which in 0_usize..5,
        capacity in 1_usize..200,
        requests in proptest::collection::vec((0_u64..500, 1_u64..20, 0_u32..4, 0_u64..1000), 1..300),
    ) {
        let coordination = [
            Coordination::Du,
            Coordination::Pfc(PfcParams::default()),
            Coordination::Pfc(PfcParams { large_request: LargeRequest::OneAndHalf, per_context: true, ..PfcParams::default() }),
            Coordination::Pfc(PfcParams { refresh_on_hit: false, keep_within_request: true, ..PfcParams::default() }),
            Coordination::Steer(SteerParams { trial_min: 4, keep_min: 1, ..SteerParams::default() }),
        ][which];
        let mut coordinator = Coordinator::new(coordination, capacity);
        let mut cache = Cache::new(Replacement::Lru, capacity as u64).unwrap();
        let mut now = 0;
        for (first, len, context, elapsed) in requests {
            let r = LevelRequest { context, first, last: first + len - 1 };
            coordinator.arrived(now, &r);
            let split = coordinator.decide(&r, &cache);
            prop_assert!(split.bypass <= r.len());
            prop_assert!(split.readmore <= 20);
            now += elapsed / 2;
            coordinator.answered(now, elapsed, r.last);
            for block in first + split.bypass..=r.last + split.readmore {
                if !cache.contains(block) {
                    cache.insert(block, Origin::Random, 0);
                }
            }
        }
    }
}
