//! `seekless sim edges`: an origin below caches of slices.

use std::path::PathBuf;

use clap::Args;
use seekless_study::edges::{Edges, run as simulate};
use seekless_units::{Bytes, Exit, Fault};
use seekless_workload::catalogue::{Catalogue, CatalogueSpec};
use seekless_workload::closed::{ClosedSpec, Pick};
use serde_json::json;

#[derive(Args, Clone, Debug)]
pub(super) struct EdgesArgs {
    /// Size of the library
    #[arg(long, default_value = "1536MiB", value_name = "SIZE")]
    library: Bytes,
    /// Zipf exponent of the popularity; 0: all files alike
    #[arg(long, default_value_t = 1.0, value_name = "EXPONENT")]
    zipf: f64,
    /// Clients, all at one rate
    #[arg(long, default_value_t = 24, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// The edge's cache; several with commas
    #[arg(long, default_value = "64MiB,512MiB", value_delimiter = ',', value_name = "SIZE")]
    edge: Vec<Bytes>,
    /// What the edge asks for at a time
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    slice: Bytes,
    /// The origin's memory for file pages
    #[arg(long, default_value = "200MiB", value_name = "SIZE")]
    memory: Bytes,
    /// How far the origin reads on
    #[arg(long, default_value = "4MiB", value_name = "SIZE")]
    prefetch: Bytes,
    /// Requests of each client before counting
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    warmup: u64,
    /// Requests of each client counted
    #[arg(long, default_value_t = 600, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    requests: u64,
    /// Seed of the clients
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results as JSON, to FILE or standard output
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(args: &EdgesArgs) -> Result<Exit, Fault> {
    let spec = CatalogueSpec { size: Some(args.library), zipf: args.zipf, ..CatalogueSpec::default() };
    let catalogue = Catalogue::new(&spec).map_err(|e| Fault::new(Exit::Usage, e.to_string()))?;
    let mut rows = Vec::new();
    let mut text = String::from("edge        asked     disk, none    disk, coordinated\n");
    for edge in &args.edge {
        let plan = |coordinated| Edges {
            spec: ClosedSpec { pick: Pick::Zipf, seed: args.seed, ..ClosedSpec::default() },
            clients: args.clients,
            edge: *edge,
            slice: args.slice,
            memory: args.memory,
            prefetch: args.prefetch,
            coordinated,
            warmup: args.warmup,
            counted: args.requests,
        };
        let (none, with) = (simulate(&catalogue, &plan(false))?, simulate(&catalogue, &plan(true))?);
        text.push_str(&format!(
            "{:<10} {:>6.3} {:>14.3} {:>20.3}\n",
            edge.to_string(),
            none.asked,
            none.disk,
            with.disk
        ));
        rows.push(json!({
            "edge_bytes": edge.0, "asked": none.asked, "disk_none": none.disk, "disk_coordinated": with.disk,
        }));
    }
    match &args.json {
        Some(path) => seekless_output::json(path, &json!({ "rows": rows }))?,
        None => seekless_output::print(&text)?,
    }
    Ok(Exit::Ok)
}
