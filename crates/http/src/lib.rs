//! The origin server (`seekless serve`) and the download client (`seekless get`).
//!
//! `serve` is the event-driven server of the ASAP paper for today's HTTP: one event loop a core, none of
//! which ever waits for a disk. What is in memory is sent at once; everything else is requested from the
//! disk's queue and awaited. `get` is the client of the Circus paper: it takes the blocks of a file in
//! whatever order the server finds convenient.
//!
//! Must not know: shim, vdisk, sim, daemon, lab, load.

pub mod cli;
pub mod conditional;
pub mod content_type;
pub mod digest;
pub mod get;
pub mod host;
pub mod path;
pub mod prefer;
pub mod serve;

pub use seekless_base::parts::{blockmap, multipart, range};
