//! Which of the choices that the PFC paper does not print its result hangs on: the 96 cases under one other
//! choice at a time, over several seeds, as one JSON object on standard output.
//!
//!     cargo run --release -p seekless-sim --example pfc_ablation -- [SCALE [SEEDS [VARIANT...]]]
//!
//! SCALE is that of the traces (default 1, the paper's), SEEDS how many of them (default 10). Medians over
//! the seeds stand with the least and the largest value.

use std::process::ExitCode;

use seekless_levels::coordinate::pfc::{LargeRequest, PfcParams};
use seekless_model::drive::catalogue;
use seekless_model::workload::generate::Kind;
use seekless_sim::study::cache::SecondChance;
use seekless_sim::study::coordinate::Coordination;
use seekless_sim::study::prefetch::linux::LinuxRule;
use seekless_sim::study::twolevel::study::{
    CaseRow, Choices, PREFETCHERS, Study, rank_correlation, run_with,
};
use seekless_sim::study::twolevel::{ServiceRules, Waiting};
use serde_json::{Map, Value, json};

/// Tolerance of a printed value, share.
const TOLERANCE: f64 = 0.2;

fn variants() -> Vec<(&'static str, Choices, PfcParams)> {
    let (choices, pfc) = (Choices::default(), PfcParams::default());
    let waiting = |waiting| Choices { rules: ServiceRules { waiting }, ..choices };
    let one_and_half = PfcParams { large_request: LargeRequest::OneAndHalf, ..pfc };
    vec![
        ("as printed", choices, pfc),
        ("a miss waits for its own blocks", waiting(Waiting::Own), pfc),
        ("demand first", waiting(Waiting::DemandFirst), pfc),
        ("one request of Multi at a time", Choices { clients: 1, ..choices }, pfc),
        ("request rate x 0.5", Choices { stretch: 2.0, ..choices }, pfc),
        ("request rate x 1.25", Choices { stretch: 0.8, ..choices }, pfc),
        ("Linux by the kernel's rule", Choices { linux: LinuxRule::NewestGroup, ..choices }, pfc),
        ("AMP spares every block", Choices { second_chance: SecondChance::Any, ..choices }, pfc),
        ("large is 1.5 times the average", choices, one_and_half),
        ("the same, own blocks", waiting(Waiting::Own), one_and_half),
        (
            "the same, bypass within the request",
            choices,
            PfcParams { keep_within_request: true, ..one_and_half },
        ),
        ("lengths for each file", choices, PfcParams { per_context: true, ..pfc }),
        ("large is 1.5 times, for each file", choices, PfcParams { per_context: true, ..one_and_half }),
        ("readmore only", choices, PfcParams { bypass: false, ..pfc }),
        ("readmore only, 1.5 times", choices, PfcParams { bypass: false, ..one_and_half }),
    ]
}

/// What one seed gave, by name.
fn measures(rows: &[CaseRow]) -> Vec<(String, f64)> {
    let gains: Vec<f64> = rows.iter().map(|row| row.gain(1)).collect();
    let printed: Vec<(f64, f64)> =
        rows.iter().filter_map(|row| Some((row.case.published()?, row.gain(1)))).collect();
    let count = |of: &dyn Fn(&CaseRow) -> bool| rows.iter().filter(|row| of(row)).count() as f64;
    let within = printed.iter().filter(|(paper, ours)| (ours - paper).abs() <= TOLERANCE * paper.abs());
    let sign = printed.iter().filter(|(paper, ours)| (*paper > 0.0) == (*ours > 0.0));
    let ways: Vec<_> = rows.iter().filter_map(|row| row.cells[1].pfc).collect();
    let sum = |of: &dyn Fn(&seekless_levels::coordinate::pfc::PfcCounts) -> u64| {
        ways.iter().map(of).sum::<u64>() as f64
    };
    let requests = sum(&|w| w.large + w.stocked + w.adjusted).max(1.0);
    let mut all = vec![
        ("improved".to_owned(), count(&|row| row.gain(1) > 0.0)),
        ("mean_gain_percent".into(), gains.iter().sum::<f64>() / gains.len().max(1) as f64),
        ("largest_gain_percent".into(), gains.iter().copied().fold(f64::MIN, f64::max)),
        ("l2_faster".into(), count(&|row| row.cells[1].l2_prefetched > row.cells[0].l2_prefetched)),
        ("l2_slower".into(), count(&|row| row.cells[1].l2_prefetched < row.cells[0].l2_prefetched)),
        ("rank_correlation".into(), rank_correlation(&printed)),
        ("printed_within_20_percent".into(), within.count() as f64),
        ("printed_sign".into(), sign.count() as f64),
        ("share_large".into(), sum(&|w| w.large) / requests),
        ("share_stocked".into(), sum(&|w| w.stocked) / requests),
        ("share_adjusted".into(), sum(&|w| w.adjusted) / requests),
        ("share_readmore_set".into(), sum(&|w| w.readmore_set) / requests),
    ];
    for (i, name) in PREFETCHERS.iter().enumerate() {
        let of: Vec<f64> = rows.iter().filter(|r| r.case.prefetcher == i).map(|r| r.gain(1)).collect();
        all.push((format!("gain_{name}_percent"), of.iter().sum::<f64>() / of.len().max(1) as f64));
    }
    for kind in Kind::ALL {
        let of: Vec<f64> = rows.iter().filter(|r| r.case.trace == kind).map(|r| r.gain(1)).collect();
        all.push((format!("gain_{}_percent", kind.name()), of.iter().sum::<f64>() / of.len().max(1) as f64));
    }
    all
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let scale = words.next().map_or(Ok(1.0), |word| word.parse::<f64>());
    let seeds = words.next().map_or(Ok(10), |word| word.parse::<u64>());
    let only: Vec<String> = words.collect();
    let (Ok(scale), Ok(seeds)) = (scale, seeds) else {
        eprintln!("pfc_ablation: write [SCALE [SEEDS [VARIANT...]]], two numbers first");
        return ExitCode::from(2);
    };
    let known: Vec<&str> = variants().iter().map(|v| v.0).collect();
    if !(scale > 0.0 && scale <= 10.0 && (1..=1000).contains(&seeds)) {
        eprintln!("pfc_ablation: SCALE is within 0 and 10, SEEDS within 1 and 1000");
        return ExitCode::from(2);
    }
    if let Some(other) = only.iter().find(|name| !known.contains(&name.as_str())) {
        eprintln!("pfc_ablation: no variant is called `{other}`; there are {}", known.join(", "));
        return ExitCode::from(2);
    }
    let Some(drive) = catalogue::get("cheetah-9lp") else {
        unreachable!("the catalogue has the paper's drive")
    };
    let mut result = Map::new();
    for (name, choices, pfc) in variants() {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        let mut each: Vec<(String, Vec<f64>)> = Vec::new();
        for seed in 1..=seeds {
            let coordinators = vec![Coordination::None, Coordination::Pfc(pfc)];
            let study = Study { scale, seed, coordinators, drive: drive.clone(), only: None };
            let rows = match run_with(&study, &choices, || {}) {
                Ok(rows) => rows,
                Err(fault) => {
                    eprintln!("pfc_ablation: {}", fault.message);
                    return ExitCode::from(fault.exit as u8);
                }
            };
            for (i, (measure, value)) in measures(&rows).into_iter().enumerate() {
                match each.get_mut(i) {
                    Some((_, values)) => values.push(value),
                    None => each.push((measure, vec![value])),
                }
            }
        }
        let medians: Map<String, Value> = each
            .into_iter()
            .map(|(measure, mut values)| {
                values.sort_by(f64::total_cmp);
                let median = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
                let spread = json!({ "median": median, "min": values[0], "max": values[values.len() - 1] });
                (measure, spread)
            })
            .collect();
        eprintln!("{name}: done");
        result.insert(name.into(), medians.into());
    }
    println!("{}", json!({ "scale": scale, "seeds": seeds, "variants": result }));
    ExitCode::SUCCESS
}
