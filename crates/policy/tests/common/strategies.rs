//! Settings and amounts for property tests, from sensible to extreme.

use proptest::prelude::*;
use seekless_base::{Bytes, Lba, Nanos};
use seekless_policy::sizing::bitrate::BitrateRule;
use seekless_policy::sizing::competitive::Start;
use seekless_policy::sizing::controller::{AdjustBy, Params};
use seekless_policy::{
    AheadConfig, Config, Constants, Demand, IoPriority, LongestWait, MemoryLimit, Mode, OrderKind, PAGE,
    Sizing, StreamConfig, Taken, Writes,
};

/// Sizes and offsets: mostly near each other so that they overlap, some extreme.
pub(crate) fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..(64 * PAGE),
        4 => (0..64u64).prop_map(|p| p * PAGE),
        2 => 0..(1u64 << 40),
        1 => Just(u64::MAX),
        1 => Just(i64::MAX as u64),
        1 => any::<u64>(),
    ]
}

pub(crate) fn demand() -> impl Strategy<Value = Demand> {
    let turns = (any::<bool>(), any::<bool>());
    let weight = prop_oneof![Just(100), 0..400u32, any::<u32>()];
    let io = (prop::bool::weighted(0.2), weight).prop_map(|(idle, weight)| IoPriority { idle, weight });
    (proptest::option::of(amount()), turns, io).prop_map(|(bitrate, (file_set, random), io)| Demand {
        bitrate,
        file_set,
        random,
        io,
    })
}

pub(crate) fn writes() -> impl Strategy<Value = Writes> {
    (prop_oneof![Just(0), 0..40u64, any::<u64>()], amount())
        .prop_map(|(waiting, bytes)| Writes { waiting, bytes: if waiting % 2 == 0 { bytes } else { 0 } })
}

pub(crate) fn taken() -> impl Strategy<Value = Taken> {
    proptest::sample::select(vec![Taken::All, Taken::Unknown])
}

pub(crate) fn ahead() -> impl Strategy<Value = Option<AheadConfig>> {
    let wait = vec![LongestWait::Auto, LongestWait::Off, LongestWait::Bound(Nanos::from_millis(20))];
    let wait = proptest::sample::select(wait);
    let budget = proptest::option::of((0..200u64).prop_map(|b| Bytes(b * 3_000)));
    let some = (0..6usize, 0..100u64, budget, wait, any::<bool>(), 0..5usize).prop_map(
        |(streams_max, gap, budget, longest_wait, quiet, files_max)| AheadConfig {
            streams: StreamConfig { streams_max, gap: Bytes(gap * 500), ..StreamConfig::default() },
            budget,
            slack: Nanos::from_secs(1),
            longest_wait,
            quiet,
            files_max,
        },
    );
    proptest::option::of(some)
}

/// Mostly the defaults; each may have any value.
pub(crate) fn constants() -> impl Strategy<Value = Constants> {
    let absurd = vec![0.0, -1.0, 1e-9, 0.5, 3.0, 1e30, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let value = || proptest::option::weighted(0.1, proptest::sample::select(absurd.clone()));
    let whole = || proptest::option::weighted(0.1, amount());
    (proptest::array::uniform7(value()), proptest::array::uniform1(whole())).prop_map(|(values, [queue])| {
        let mut c = Constants::default();
        c.queue_ahead = queue.unwrap_or(c.queue_ahead);
        let all = [
            &mut c.wait_depths,
            &mut c.wait_unnoticed_s,
            &mut c.quiet_s,
            &mut c.blocked_over_budget,
            &mut c.budget_share,
            &mut c.budget_step,
            &mut c.bitrate_outliers,
        ];
        all.into_iter().zip(values).for_each(|(c, value)| *c = value.unwrap_or(*c));
        c
    })
}

pub(crate) fn sizing() -> impl Strategy<Value = (Sizing, BitrateRule, Option<u64>)> {
    let params =
        (0..200u64, 0..50u64, 0..4_000u64, any::<bool>()).prop_map(|(start, step, interval_ms, model)| {
            Sizing::Auto(Params {
                start_size: Bytes(start * 3_000),
                step_size: Bytes(step * 5_000),
                adjust_interval: Nanos::from_millis(interval_ms),
                adjust_busy: 0.1,
                adjust_by: if model { AdjustBy::Model } else { AdjustBy::Gradient },
                ..Params::default()
            })
        });
    let sizing = prop_oneof![
        2 => Just(Sizing::Fixed),
        2 => params,
        1 => Just(Sizing::Competitive(Start::Depth)),
        1 => Just(Sizing::Competitive(Start::Slow)),
    ];
    let rules = vec![
        BitrateRule::Same,
        BitrateRule::SquareRoot,
        BitrateRule::Linear,
        BitrateRule::Factors(vec![(1e4, 0.3), (1e6, f64::NAN)]),
    ];
    (sizing, proptest::sample::select(rules), proptest::option::of(any::<u64>()))
}

/// Pieces in flight, start addresses of the parts of the device, and whether the number is found by trial.
fn at_once() -> impl Strategy<Value = (usize, Vec<u64>, bool)> {
    let parts = proptest::collection::vec(0..4_000_000_000u64, 0..3);
    prop_oneof![3 => Just((1, Vec::new(), false)), 1 => (0..5usize, parts, any::<bool>())]
}

/// Minimum share of the disk's time for file sets.
fn share() -> impl Strategy<Value = f64> {
    proptest::sample::select(vec![0.1, 0.0, 0.5, 1.0, -3.0, 7.0, f64::NAN])
}

pub(crate) fn config() -> impl Strategy<Value = Config> {
    let mode = proptest::sample::select(Mode::ALL.to_vec());
    let order = proptest::sample::select(OrderKind::ALL.to_vec());
    (
        mode,
        order,
        0..64u64,
        0..80u64,
        0..4usize,
        0..40u64,
        0..12usize,
        (
            any::<[bool; 2]>(),
            sizing(),
            (constants(), share(), proptest::option::weighted(0.8, share())),
            proptest::option::of(amount()),
            at_once(),
        ),
        ahead(),
    )
        .prop_map(
            |(mode, order, prefetch, read_max, reads_in_flight, overlap, queue_max, rest, ahead)| {
                let (flags, (sizing, scale, bitrate), (constants, share, writers), start, at_once) = rest;
                let [answer_early, scale_by_observed] = flags;
                Config {
                    sizing,
                    scale,
                    scale_by_observed,
                    bitrate,
                    profile: None,
                    start_size: start.map(Bytes),
                    memory: MemoryLimit::default(),
                    constants,
                    ahead,
                    mode,
                    order,
                    prefetch: Bytes(prefetch * 3_000),
                    read_max: Bytes(read_max * 5_000),
                    reads_in_flight,
                    in_flight: at_once.0,
                    small_in_flight: at_once.0,
                    find_in_flight: at_once.2,
                    parts: at_once.1.into_iter().map(Lba).collect(),
                    overlap: Bytes(overlap * PAGE),
                    queue_max,
                    answer_early,
                    share,
                    writers,
                    wait_max: Nanos::from_secs(10),
                    stall_max: Nanos::from_secs(6),
                }
            },
        )
}
