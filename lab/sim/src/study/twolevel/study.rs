//! The 96 cases of PFC's evaluation (section 4.3): 3 traces, 4 prefetchers, 2 sizes of L1, 4 ratios of L2 to
//! L1.
//!
//! Every case runs the same trace without coordination and with each coordinator; the improvement is that of
//! the mean response time. Cases are independent and spread over the cores; their order in the result does
//! not depend on that.

use crate::study::cache::{Replacement, SecondChance};
use crate::study::coordinate::Coordination;
use crate::study::prefetch::Algorithm;
use crate::study::prefetch::amp::AmpParams;
use crate::study::prefetch::linux::{LinuxParams, LinuxRule};
use crate::study::prefetch::sarc::SarcParams;
use rayon::prelude::*;
use seekless_base::Fault;
use seekless_levels::coordinate::pfc::PfcCounts;
use seekless_model::drive::DriveSpec;
use seekless_model::workload::draw::Draw;
use seekless_model::workload::generate::{Kind, PAGE_BYTES, Shape};

use super::disk::DEVICE_SHIFT;
use super::engine::{RunOutcome, Simulation};
use super::system::{BlockRequest, LevelSpec, Network, Pacing, ServiceRules, SystemSpec};

/// L1 as a share of the footprint: "high" and "low".
pub const L1_SHARES: [(char, f64); 2] = [('H', 0.05), ('L', 0.01)];
/// L2 as a share of L1.
pub const L2_RATIOS: [f64; 4] = [2.0, 1.0, 0.1, 0.05];
/// The prefetchers, in the order of the paper's table 1; the same at both levels.
pub const PREFETCHERS: [&str; 4] = ["amp", "sarc", "ra", "linux"];

/// Table 1 of the paper: improvement of the mean response time, percent; ratio 200 % and 5 % only.
const PUBLISHED: [(Kind, f64, char, [f64; 4]); 12] = [
    (Kind::Oltp, 2.0, 'H', [3.55, 4.64, 19.23, 11.7]),
    (Kind::Oltp, 2.0, 'L', [0.23, 32.9, 18.49, 13.07]),
    (Kind::Oltp, 0.05, 'H', [0.78, 4.35, 22.54, 28.38]),
    (Kind::Oltp, 0.05, 'L', [1.51, 21.96, 18.17, 51.91]),
    (Kind::Websearch, 2.0, 'H', [3.03, 3.25, 11.77, 21.88]),
    (Kind::Websearch, 2.0, 'L', [-4.67, 15.74, 4.95, 39.39]),
    (Kind::Websearch, 0.05, 'H', [7.97, 18.96, 16.34, 39.46]),
    (Kind::Websearch, 0.05, 'L', [8.16, 19.47, 16.15, 37.00]),
    (Kind::Multi, 2.0, 'H', [5.34, 22.32, 23.89, 3.54]),
    (Kind::Multi, 2.0, 'L', [5.48, 20.16, 24.74, 1.71]),
    (Kind::Multi, 0.05, 'H', [5.85, 22.22, 25.23, 1.96]),
    (Kind::Multi, 0.05, 'L', [5.74, 20.01, 24.95, 3.08]),
];

/// One of the 96.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Trace.
    pub trace: Kind,
    /// Index into [`PREFETCHERS`].
    pub prefetcher: usize,
    /// H or L.
    pub l1: char,
    /// Blocks of L1.
    pub l1_blocks: u64,
    /// L2 to L1.
    pub ratio: f64,
    /// Blocks of L2.
    pub l2_blocks: u64,
}

impl Case {
    /// The paper's improvement by PFC in this case, percent, where its table 1 gives one.
    pub fn published(&self) -> Option<f64> {
        PUBLISHED
            .iter()
            .find(|p| p.0 == self.trace && p.1 == self.ratio && p.2 == self.l1)
            .map(|p| p.3[self.prefetcher])
    }

    /// The name of the case as in the paper: `OLTP 200%-H AMP`, in lower case.
    pub fn name(&self) -> String {
        let percent = self.ratio * 100.0;
        format!("{} {percent}%-{} {}", self.trace.name(), self.l1, PREFETCHERS[self.prefetcher])
    }
}

/// All 96 at a scale, in the paper's order.
pub fn cases(scale: f64) -> Vec<Case> {
    let mut all = Vec::new();
    for trace in Kind::ALL {
        let footprint = trace.footprint_pages(scale) as f64;
        for (l1, share) in L1_SHARES {
            for ratio in L2_RATIOS {
                for prefetcher in 0..PREFETCHERS.len() {
                    let l1_blocks = ((footprint * share) as u64).max(1);
                    let l2_blocks = ((l1_blocks as f64 * ratio) as u64).max(1);
                    all.push(Case { trace, prefetcher, l1, l1_blocks, ratio, l2_blocks });
                }
            }
        }
    }
    all
}

/// What one case gave under one coordinator.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Mean response time, milliseconds.
    pub mean_ms: f64,
    /// L1 hit ratio.
    pub l1_hit_ratio: f64,
    /// L2 hit ratio, silent hits included.
    pub l2_hit_ratio: f64,
    /// Unused prefetched blocks at L2.
    pub l2_unused: u64,
    /// Blocks fetched ahead at L2, by its prefetcher or its coordinator.
    pub l2_prefetched: u64,
    /// Disk requests.
    pub disk_requests: u64,
    /// Disk blocks.
    pub disk_blocks: u64,
    /// Share of the time the disk was busy.
    pub disk_busy: f64,
    /// Which way through PFC's algorithm 2 requests took, if L2 has PFC before it.
    pub pfc: Option<PfcCounts>,
}

impl Cell {
    fn from(outcome: &RunOutcome) -> Cell {
        let l2 = &outcome.levels[1];
        Cell {
            mean_ms: outcome.response_mean_ns / 1e6,
            l1_hit_ratio: outcome.levels[0].hit_ratio(),
            l2_hit_ratio: l2.hit_ratio(),
            l2_unused: l2.unused,
            l2_prefetched: l2.prefetched + l2.readmore,
            disk_requests: outcome.disk.requests,
            disk_blocks: outcome.disk.blocks,
            pfc: outcome.pfc[1],
            disk_busy: outcome.disk.busy.as_secs_f64() / outcome.end.as_secs_f64().max(1e-9),
        }
    }
}

/// A case and what each coordinator gave, in the order asked for.
#[derive(Clone, Debug)]
pub struct CaseRow {
    /// Which.
    pub case: Case,
    /// One for each coordinator.
    pub cells: Vec<Cell>,
}

impl CaseRow {
    /// Improvement of cell `i` over cell 0, percent of the mean response time.
    pub fn gain(&self, i: usize) -> f64 {
        let base = self.cells[0].mean_ms;
        if base == 0.0 { 0.0 } else { (base - self.cells[i].mean_ms) / base * 100.0 }
    }
}

/// Spearman's coefficient, ties by their mean rank.
pub fn rank_correlation(pairs: &[(f64, f64)]) -> f64 {
    let ranks = |values: Vec<f64>| -> Vec<f64> {
        let below = |v: f64| values.iter().filter(|o| **o < v).count() as f64;
        let same = |v: f64| values.iter().filter(|o| **o == v).count() as f64;
        values.iter().map(|v| below(*v) + (same(*v) - 1.0) / 2.0).collect()
    };
    let a = ranks(pairs.iter().map(|p| p.0).collect());
    let b = ranks(pairs.iter().map(|p| p.1).collect());
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let norm = (product(&a, &a) * product(&b, &b)).sqrt();
    if norm == 0.0 { 0.0 } else { product(&a, &b) / norm }
}

/// What to run.
pub struct Study {
    /// Scale of the traces; 1 is the paper's.
    pub scale: f64,
    /// Seed of the traces.
    pub seed: u64,
    /// Coordinators; the first is the base of comparison.
    pub coordinators: Vec<Coordination>,
    /// The drive below.
    pub drive: DriveSpec,
    /// Only cases of this trace.
    pub only: Option<Kind>,
}

/// What PFC does not say and the result may hang on; the default is what the study takes for likely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choices {
    /// What a miss waits for.
    pub rules: ServiceRules,
    /// Which rule of Linux's read-ahead.
    pub linux: LinuxRule,
    /// Which unused blocks AMP spares once.
    pub second_chance: SecondChance,
    /// Factor on the times of a trace that has times: 2 is half the request rate.
    pub stretch: f64,
    /// Requests under way at once of a trace that has no times, Multi: each of its three applications waits
    /// for its own.
    pub clients: u32,
    /// What of the traces PFC does not state.
    pub shape: Shape,
    /// SARC's p and g.
    pub sarc: SarcParams,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            rules: ServiceRules::default(),
            linux: LinuxRule::Window,
            second_chance: SecondChance::SetEnd,
            stretch: 1.0,
            clients: APPLICATIONS,
            shape: Shape::default(),
            sarc: SarcParams::default(),
        }
    }
}

/// Applications of Multi, which run at once: "the concurrent execution of three applications" (PFC, section
/// 4.2).
pub const APPLICATIONS: u32 = 3;

/// From where to where SARC's p is drawn, blocks: PFC does not print its own. g is a third of it.
pub const SARC_P: std::ops::RangeInclusive<u32> = 8..=32;

impl Choices {
    /// What PFC leaves open, drawn by a seed: the traces' shape and SARC's p.
    pub fn drawn(seed: u64) -> Choices {
        let mut draw = Draw::new(seed, "pfc choices");
        let p = SARC_P.start() + draw.below(u64::from(SARC_P.end() - SARC_P.start() + 1)) as u32;
        let sarc = SarcParams { degree: p, trigger_distance: p / 3, ..SarcParams::default() };
        Choices { sarc, shape: Shape::drawn(seed), ..Choices::default() }
    }
}

/// A trace in block requests.
pub fn requests(kind: Kind, scale: f64, seed: u64) -> Vec<BlockRequest> {
    requests_of_shape(kind, scale, seed, Shape::default())
}

fn requests_of_shape(kind: Kind, scale: f64, seed: u64, shape: Shape) -> Vec<BlockRequest> {
    kind.of_shape(scale, seed, shape)
        .map(|r| {
            let device = u64::from(r.device) << DEVICE_SHIFT;
            BlockRequest {
                at: r.at.unwrap_or_default(),
                context: r.context,
                first: device + r.offset / PAGE_BYTES,
                last: device + (r.offset + r.bytes - 1) / PAGE_BYTES,
                limit: device + r.end.map_or((1 << DEVICE_SHIFT) - 1, |end| (end - 1) / PAGE_BYTES),
            }
        })
        .collect()
}

/// Runs a study; `tick` is called after each of its runs, from any thread.
///
/// # Errors
/// A cache that cannot be.
pub fn run(study: &Study, tick: impl Fn() + Sync) -> Result<Vec<CaseRow>, Fault> {
    run_with(study, &Choices::default(), tick)
}

/// The same with other choices where PFC leaves one.
///
/// # Errors
/// A cache that cannot be.
pub fn run_with(study: &Study, choices: &Choices, tick: impl Fn() + Sync) -> Result<Vec<CaseRow>, Fault> {
    Ok(Plan::of([(study, choices)]).run(tick)?.remove(0))
}

/// What a trace is generated from.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Source {
    kind: Kind,
    scale: f64,
    seed: u64,
    shape: Shape,
}

/// A run on a trace: all that its result hangs on.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    case: Case,
    system: SystemSpec,
    rules: ServiceRules,
}

impl Run {
    fn of(case: Case, coordination: Coordination, study: &Study, choices: &Choices) -> Run {
        let (replacement, prefetch) = native(PREFETCHERS[case.prefetcher], choices);
        let level = |capacity_blocks, coordination| LevelSpec {
            replacement,
            prefetch,
            coordination,
            capacity_blocks,
        };
        let timing = match case.trace.timed() {
            true => Pacing::Trace { stretch: choices.stretch },
            false => Pacing::Closed { clients: choices.clients },
        };
        let system = SystemSpec {
            levels: vec![level(case.l1_blocks, Coordination::None), level(case.l2_blocks, coordination)],
            network: Network::PFC,
            drive: Some(study.drive.clone()),
            devices: case.trace.units(study.scale),
            block_bytes: PAGE_BYTES,
            timing,
        };
        Run { case, system, rules: choices.rules }
    }

    fn go(&self, trace: &[BlockRequest]) -> Result<Cell, Fault> {
        let mut engine = Simulation::with_rules(&self.system, self.rules)
            .map_err(|e| Fault::usage(format!("{}: {e}", self.case.name())))?;
        for request in trace {
            engine.request(request);
        }
        Ok(Cell::from(&engine.finish()))
    }
}

/// The runs of several studies. What two of them have in common is one run: most choices touch one
/// prefetcher, one coordinator or the traces that have times, and leave the other cases as they are.
#[derive(Debug, Default)]
pub struct Plan {
    /// By their trace.
    runs: Vec<(Source, Vec<Run>)>,
    /// Each study's cases, with the runs that give what each coordinator gives.
    studies: Vec<Vec<(Case, Vec<Place>)>>,
}

/// Where a run is: which trace, which of its runs.
type Place = (usize, usize);

/// Where it stands; it is added where it does not.
fn place<T>(all: &mut Vec<T>, same: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    all.iter().position(same).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    })
}

impl Plan {
    /// Of these studies, in their order.
    pub fn of<'a>(studies: impl IntoIterator<Item = (&'a Study, &'a Choices)>) -> Plan {
        let mut plan = Plan::default();
        for (study, choices) in studies {
            let mut rows = Vec::new();
            for case in cases(study.scale).into_iter().filter(|c| study.only.is_none_or(|o| o == c.trace)) {
                let (scale, seed, shape) = (study.scale, study.seed, choices.shape);
                let source = Source { kind: case.trace, scale, seed, shape };
                let of = place(&mut plan.runs, |(s, _)| *s == source, || (source, Vec::new()));
                let runs = &mut plan.runs[of].1;
                let cells = study.coordinators.iter().map(|coordination| {
                    let run = Run::of(case, *coordination, study, choices);
                    (of, place(runs, |r| *r == run, || run.clone()))
                });
                rows.push((case, cells.collect()));
            }
            plan.studies.push(rows);
        }
        plan
    }

    /// How many runs they take.
    pub fn runs(&self) -> usize {
        self.runs.iter().map(|(_, runs)| runs.len()).sum()
    }

    /// Runs them; `tick` is called after each, from any thread. The rows of each study, in their order.
    ///
    /// # Errors
    /// A cache that cannot be.
    pub fn run(&self, tick: impl Fn() + Sync) -> Result<Vec<Vec<CaseRow>>, Fault> {
        let mut cells = Vec::new();
        for (source, runs) in &self.runs {
            // One trace in memory at a time, shared by all its cases.
            let trace = requests_of_shape(source.kind, source.scale, source.seed, source.shape);
            let of_trace: Vec<Result<Cell, Fault>> = runs
                .par_iter()
                .map(|run| {
                    let cell = run.go(&trace);
                    tick();
                    cell
                })
                .collect();
            cells.push(of_trace.into_iter().collect::<Result<Vec<_>, _>>()?);
        }
        let row = |(case, places): &(Case, Vec<Place>)| CaseRow {
            case: *case,
            cells: places.iter().map(|(trace, run)| cells[*trace][*run].clone()).collect(),
        };
        Ok(self.studies.iter().map(|rows| rows.iter().map(row).collect()).collect())
    }
}

/// Replacement policy and prefetcher of a name in [`PREFETCHERS`]; SARC "comes with its own cache
/// management".
pub fn native(name: &str, choices: &Choices) -> (Replacement, Algorithm) {
    let amp = AmpParams { second_chance: choices.second_chance, ..AmpParams::default() };
    let linux = LinuxParams { rule: choices.linux, ..LinuxParams::default() };
    match name {
        "amp" => (Replacement::Lru, Algorithm::Amp(amp)),
        "sarc" => (Replacement::Sarc, Algorithm::Sarc(choices.sarc)),
        "ra" => (Replacement::Lru, Algorithm::Ra(Default::default())),
        _ => (Replacement::Lru, Algorithm::Linux(linux)),
    }
}

#[cfg(test)]
mod tests {
    use seekless_levels::coordinate::pfc::{LargeRequest, PfcParams};

    use super::*;

    #[test]
    fn ranks_agree_or_do_not() {
        let pairs =
            |ours: [f64; 4]| -> Vec<(f64, f64)> { [1.0, 2.0, 3.0, 4.0].into_iter().zip(ours).collect() };
        assert!((rank_correlation(&pairs([5.0, 6.0, 70.0, 800.0])) - 1.0).abs() < 1e-12);
        assert!((rank_correlation(&pairs([4.0, 3.0, 2.0, 1.0])) + 1.0).abs() < 1e-12);
        assert_eq!(rank_correlation(&pairs([1.0; 4])), 0.0);
    }

    /// A small Multi.
    fn small(coordinators: Vec<Coordination>) -> Study {
        let drive = seekless_model::drive::catalogue::get("cheetah-9lp").unwrap();
        Study { scale: 0.002, seed: 3, coordinators, drive, only: Some(Kind::Multi) }
    }

    #[test]
    fn what_studies_have_in_common_runs_once_and_gives_what_each_gives_alone() {
        let large = PfcParams { large_request: LargeRequest::OneAndHalf, ..PfcParams::default() };
        let plain = small(vec![Coordination::None, Coordination::Pfc(PfcParams::default())]);
        let other = small(vec![Coordination::None, Coordination::Pfc(large), Coordination::Du]);
        let studies = [
            (&plain, Choices::default()),
            // 32 cases without a coordinator are the same.
            (&other, Choices::default()),
            // Only AMP's eight cases are others.
            (&plain, Choices { second_chance: SecondChance::Any, ..Choices::default() }),
            // Multi has no times.
            (&plain, Choices { stretch: 3.0, ..Choices::default() }),
            // All are others, on the same trace; then on another trace.
            (&plain, Choices { clients: 4, ..Choices::default() }),
            (&plain, Choices { shape: Shape { passes: 2.0, ..Shape::default() }, ..Choices::default() }),
        ];
        let plan = Plan::of(studies.iter().map(|(study, choices)| (*study, choices)));
        assert_eq!(plan.runs(), 2 * 32 + 2 * 32 + 2 * 8 + 2 * 32 + 2 * 32);
        let ticks = std::sync::atomic::AtomicUsize::new(0);
        let tick = || _ = ticks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let together = plan.run(tick).unwrap();
        assert_eq!(ticks.into_inner(), plan.runs());
        for ((study, choices), rows) in studies.iter().zip(&together) {
            let alone = run_with(study, choices, || {}).unwrap();
            assert_eq!(format!("{rows:?}"), format!("{alone:?}"));
        }
        assert_ne!(together[0][0].cells[1].mean_ms, together[1][0].cells[1].mean_ms);
        assert_ne!(together[0][0].cells[0].mean_ms, together[4][0].cells[0].mean_ms);
    }

    #[test]
    fn multi_has_three_requests_under_way_and_the_others_go_by_their_times() {
        let study = small(vec![]);
        let timing = |kind| {
            let case = cases(1.0).into_iter().find(|c| c.trace == kind).unwrap();
            Run::of(case, Coordination::None, &study, &Choices::default()).system.timing
        };
        assert_eq!(timing(Kind::Multi), Pacing::Closed { clients: 3 });
        assert_eq!(timing(Kind::Oltp), Pacing::Trace { stretch: 1.0 });
        assert_eq!(timing(Kind::Websearch), Pacing::Trace { stretch: 1.0 });
    }

    /// "Addresses over the drive, not one contiguous area": each tenth of the drive is asked for something.
    #[test]
    fn the_addresses_of_every_trace_go_over_the_whole_drive() {
        let drive = seekless_model::drive::catalogue::get("cheetah-9lp").unwrap();
        let blocks = drive.capacity().0 / PAGE_BYTES;
        for kind in Kind::ALL {
            let scale = 1.0;
            let part = blocks / kind.units(scale);
            let mut tenths = [0_u64; 10];
            for r in requests(kind, scale, 1) {
                let (device, block) = (r.first >> DEVICE_SHIFT, r.first & ((1 << DEVICE_SHIFT) - 1));
                assert!(
                    device < kind.units(scale) && block < part,
                    "{}: no two share an address",
                    kind.name()
                );
                tenths[((device * part + block) * 10 / blocks).min(9) as usize] += 1;
            }
            assert!(tenths.iter().all(|n| *n > 0), "{}: {tenths:?}", kind.name());
        }
    }

    #[test]
    fn drawn_choices_are_the_seeds_own() {
        let drawn: Vec<Choices> = (1..=20).map(Choices::drawn).collect();
        assert_eq!(drawn[4], Choices::drawn(5));
        assert!(
            drawn.iter().all(|c| SARC_P.contains(&c.sarc.degree) && c.sarc.trigger_distance < c.sarc.degree)
        );
        assert!(drawn.iter().all(|c| c.clients == APPLICATIONS && c.rules == ServiceRules::default()));
    }
}
