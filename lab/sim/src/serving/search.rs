//! The maximum failure-free rate, by bisection over runs at constant rates.
//!
//! The same rule as `seekless-lab load search --method bisect`: raised (or lowered) until one rate holds and
//! one fails, then the geometric middle. Every run starts with an empty memory and has the same seed: the
//! same viewers of the same films, only closer together. So a rate that holds differs from one that does not
//! by the rate alone, and two settings that are compared meet the same chance. A run ends when enough have
//! failed: what comes after cannot make its rate hold. Where the result of an earlier search is known, the
//! rates next to it are tried first ([`Bisection::expecting`]).

use seekless_model::workload::bisection::Bisection;
use seekless_model::workload::catalogue::Catalogue;
use serde::Serialize;

use super::config::{Config, Load};
use super::machine::{run, run_while_good};
use super::record::Report;

/// One run of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Rate asked for, requests a second.
    pub rate_per_s: f64,
    /// Rate at which requests became due.
    pub offered_per_s: f64,
    /// MB/s served.
    pub mb_per_s: f64,
    /// Sessions that failed, as a share of those measured, by the end of the run.
    pub failed_share: f64,
    /// Virtual seconds until the end of the run, or until its failures had decided.
    pub until_s: f64,
    /// Whether the rate holds.
    pub good: bool,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Every run, in order.
    pub steps: Vec<Step>,
    /// The highest rate that held, with its report; none: even the lowest failed.
    pub best: Option<(f64, Report)>,
    /// The report of the lowest rate that failed, where no rate held.
    pub worst: Option<Report>,
}

/// How a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// First rate, requests a second.
    pub first: f64,
    /// Never above this.
    pub highest: f64,
    /// Share of sessions that may fail: fewer than this, or none where it is 0.
    pub max_failed: f64,
    /// Ends when the two rates are this close (a share).
    pub precision: f64,
    /// Most runs.
    pub runs: u32,
    /// What an earlier search found.
    pub expected: Option<f64>,
}

/// Searches for the maximum rate of `config`, whose load must be sessions.
///
/// # Errors
/// Those of [`run`].
pub fn search(
    config: &Config,
    catalogue: &Catalogue,
    search: &Search,
    mut told: impl FnMut(&Step),
) -> Result<Found, String> {
    let mut bisection = Bisection::new(search.first, search.highest, search.precision, search.runs);
    if let Some(rate) = search.expected {
        bisection = bisection.expecting(rate);
    }
    let mut found = Found { steps: Vec::new(), best: None, worst: None };
    let mut lowest = None;
    while let Some(rate) = bisection.rate() {
        let report = run_while_good(&at_rate(config, rate), catalogue, search.max_failed)?;
        // Those who gave up in the second half of the warm-up count as well: they asked for nothing later.
        let early = report.sessions.map_or(0.0, |s| s.failed as f64 / s.started.max(1) as f64);
        let share = report.failed_share().max(early);
        let step = Step {
            rate_per_s: rate,
            offered_per_s: report.offered_per_s,
            mb_per_s: report.mb_per_s,
            failed_share: share,
            until_s: report.length_s,
            good: share < search.max_failed || share == 0.0,
        };
        bisection.learn(step.good);
        told(&step);
        found.steps.push(step);
        if step.good && found.best.as_ref().is_none_or(|(best, _)| rate > *best) {
            found.best = Some((rate, report));
        } else if found.best.is_none() {
            lowest = Some(rate);
        }
    }
    if let Some(rate) = lowest.filter(|_| found.best.is_none()) {
        found.worst = Some(run(&at_rate(config, rate), catalogue)?);
    }
    Ok(found)
}

/// How a search for the viewers that a recorder bears goes.
#[derive(Clone, Copy, Debug)]
pub struct MissedSearch {
    /// Share of segments that is late or lost.
    pub missed: f64,
    /// Ends when the two links are this close (a share).
    pub precision: f64,
    /// Most runs.
    pub runs: u32,
}

/// The lowest link of the clients, in bits a second and up to that of `config`, at which a recorder misses at
/// least this share of its segments, and the run; theirs, where it misses fewer at all of those tried. All
/// runs have the same seed.
///
/// # Errors
/// Those of [`run`]; no recorder, or clients without links.
pub fn search_missed(
    config: &Config,
    catalogue: &Catalogue,
    search: &MissedSearch,
    mut told: impl FnMut(u64, &Report),
) -> Result<(u64, Report), String> {
    let Load::Closed { link: Some(highest), clients, spec, other_disks } = &config.load else {
        return Err("the load has no clients in a closed loop with links; give closed-link=".into());
    };
    if config.writer.is_none_or(|w| w.recorder.is_none()) {
        return Err("the load has no recorder; give cameras=".into());
    }
    let highest = *highest as f64;
    let mut bisection = Bisection::new(highest, highest, search.precision, search.runs);
    let mut found: Option<(u64, Report)> = None;
    while let Some(rate) = bisection.rate() {
        let link = rate as u64;
        let (clients, spec, other_disks) = (*clients, spec.clone(), *other_disks);
        let load = Load::Closed { link: Some(link), clients, spec, other_disks };
        let report = run(&Config { load, ..config.clone() }, catalogue)?;
        told(link, &report);
        let good = report.recorder().is_none_or(|r| r.missed < search.missed);
        bisection.learn(good);
        if found.as_ref().is_none_or(|(lowest, _)| !good && link < *lowest) {
            found = Some((link, report));
        }
    }
    found.ok_or_else(|| "a search of no runs; give runs= of at least 1".into())
}

fn at_rate(config: &Config, rate: f64) -> Config {
    let mut config = config.clone();
    if let Load::Sessions { per_s, .. } = &mut config.load {
        *per_s = rate;
    }
    config
}
