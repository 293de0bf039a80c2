//! Metrics of a running engine, for every door.
//!
//! ```text
//!  daemon, watch, serve --source--> Observation --> OpenMetrics text --> GET /metrics   (Prometheus)
//!                                        |      `-> Prometheus text  --> a file         (textfile collector)
//!                                        `--------> JSON             --> GET /status.json, the page on /
//! ```
//!
//! - [`defs`] defines every metric: name, unit, labels, meaning, stability. `docs/METRICS.md` is written
//!   from it.
//! - [`Observation`] is what one scrape sees. A door fills it in and adds counts of its own ([`Sample`]).
//! - [`MetricsServer`] answers over HTTP, read-only, on a thread of its own, with a bounded number of
//!   connections.
//!
//! A scrape costs the text and nothing else: no metric is kept up to date between scrapes.
//!
//! Must not know: sockets of shims, frames, command lines of other commands, the doors.

pub mod defs;
mod observation;
mod server;
mod text;

pub use observation::{Observation, Sample, Value};
pub use server::{Address, MetricsOption, MetricsServer, Source};
pub use text::{OPENMETRICS, PROMETHEUS_TEXT, openmetrics, prometheus};
