//! workload x HTTP: thousands of real clients in one process, every byte they receive verified.
//!
//! The workload crate says which bytes are asked for and when; this crate asks for them over HTTP/1.1 and
//! measures. Each client is a task with one keep-alive connection. A worker thread runs its clients on a
//! single-threaded runtime and counts without locks; one thread is enough for about 4 GB/s here, more share
//! nothing but the clock and are added up at the end.
//!
//! - [`clock`] turns the workload's time into real time, once, for everything (`--speedup`).
//! - [`link`] slows a client's reads down to its link; TCP then pushes back to the server.
//! - [`connection`] sends one request and checks status, range, length and every byte of the answer.
//! - [`record`] counts; latencies count from the moment a request was *due*.
//! - [`closed`], [`sessions`], [`replay`] are the three kinds of load; [`search`] looks for the highest rate
//!   without failures; [`report`] is what they print and write.
//!
//! Must not know: anything of the server but HTTP.

pub mod args;
pub use seekless_model::workload::bisection;
pub mod cli;
pub mod clock;
pub mod closed;
pub mod connection;
pub mod downloads;
pub mod failure;
pub mod link;
mod progress;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod search;
pub mod sessions;
pub mod target;

#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;
