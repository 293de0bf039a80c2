//! A run's result as JSON. Field names are an interface: scripts and scenarios read them.

use crate::study::cache::Replacement;
use crate::study::coordinate::Coordination;
use crate::study::prefetch::Algorithm;
use crate::study::prefetch::linux::LinuxRule;
use serde_json::{Value, json};

use super::engine::{LevelCounts, RunOutcome};
use super::system::{LevelSpec, Pacing, SystemSpec};

/// Name of a replacement policy, as in `--levels`.
pub fn cache_name(replacement: Replacement) -> &'static str {
    match replacement {
        Replacement::Lru => "lru",
        Replacement::Sarc => "sarc",
        Replacement::Arc => "arc",
    }
}

/// Name of a prefetcher with its parameters, as in `--levels`.
pub fn prefetcher_name(prefetch: Algorithm) -> String {
    match prefetch {
        Algorithm::None => "none".into(),
        Algorithm::Ra(p) if p.adaptive => format!("ra-adaptive({})", p.degree),
        Algorithm::Ra(p) => format!("ra({})", p.degree),
        Algorithm::Linux(p) if p.rule == LinuxRule::NewestGroup => format!("linux-kernel({})", p.group_max),
        Algorithm::Linux(p) => format!("linux({})", p.group_max),
        Algorithm::Sarc(p) => format!("sarc({}/{})", p.degree, p.trigger_distance),
        Algorithm::Amp(p) => p.degree_start.map_or("amp".into(), |start| format!("amp({start})")),
    }
}

/// Name of a coordinator, as in `--coordinate`.
pub fn coordinator_name(coordination: Coordination) -> &'static str {
    match coordination {
        Coordination::None => "none",
        Coordination::Du => "du",
        Coordination::Pfc(_) => "pfc",
        Coordination::Steer(_) => "steer",
    }
}

fn level(spec: &LevelSpec, counts: &LevelCounts) -> Value {
    json!({
        "cache": cache_name(spec.replacement),
        "prefetch": prefetcher_name(spec.prefetch),
        "coordinate": coordinator_name(spec.coordination),
        "capacity_blocks": spec.capacity_blocks,
        "requests": counts.requests,
        "blocks": counts.blocks,
        "hits": counts.hits,
        "late_hits": counts.late_hits,
        "silent_hits": counts.silent_hits,
        "misses": counts.misses,
        "bypassed": counts.bypassed,
        "hit_ratio": counts.hit_ratio(),
        "prefetched": counts.prefetched,
        "readmore": counts.readmore,
        "unused": counts.unused,
        "fetches": counts.fetches,
    })
}

/// What was written, of a run that replays writes. Times to the medium are those by the last command.
pub fn writes(outcome: &RunOutcome) -> Value {
    let all = &outcome.writes;
    let ms = |q: f64| all.response_us.value_at_quantile(q) as f64 / 1e3;
    json!({
        "requests": all.requests,
        "blocks": all.blocks,
        "disk_requests": outcome.disk.writes,
        "disk_blocks": outcome.disk.written,
        "medium_s": outcome.disk.write_time.as_secs_f64(),
        "response": {
            "mean_ms": all.response_us.mean() / 1e3,
            "p50_ms": ms(0.5),
            "p95_ms": ms(0.95),
            "p99_ms": ms(0.99),
            "max_ms": all.response_us.max() as f64 / 1e3,
        },
    })
}

/// The whole result. Equal runs give equal text.
pub fn outcome(spec: &SystemSpec, outcome: &RunOutcome) -> Value {
    let ms = |q: f64| outcome.response_us.value_at_quantile(q) as f64 / 1e3;
    let levels: Vec<Value> = spec.levels.iter().zip(&outcome.levels).map(|(s, c)| level(s, c)).collect();
    let block_requests = outcome.levels.first().map_or(0, |l| l.blocks);
    json!({
        "system": {
            "block_bytes": spec.block_bytes,
            "drive": spec.drive.as_ref().map(|d| d.name.clone()),
            "network_alpha_ms": spec.network.alpha.as_millis_f64(),
            "network_beta_ms": spec.network.beta.as_millis_f64(),
            "timing": match spec.timing {
                Pacing::Trace { stretch } => json!({ "trace": { "stretch": stretch } }),
                Pacing::Closed { clients } => json!({ "closed": { "clients": clients } }),
            },
        },
        "requests": outcome.requests,
        "block_requests": block_requests,
        "levels": levels,
        "disk": {
            "requests": outcome.disk.requests,
            "blocks": outcome.disk.blocks,
            "busy_s": outcome.disk.busy.as_secs_f64(),
            "queue_max": outcome.disk.queue_max,
        },
        "response": {
            "mean_ms": outcome.response_mean_ns / 1e6,
            "p50_ms": ms(0.5),
            "p95_ms": ms(0.95),
            "p99_ms": ms(0.99),
            "max_ms": outcome.response_us.max() as f64 / 1e3,
        },
        "simulated_s": outcome.end.as_secs_f64(),
        "memory_bytes": outcome.memory_bytes,
    })
}
