//! Which client asks for what, when: the files of a library, the sessions and closed-loop clients that ask
//! for them, and what the bytes of every file are.
//!
//! Everything here is a pure function of a specification and a seed: the same pair gives the same library and
//! the same requests on every machine and in every release ([`draw`] says how), so that a live run, a
//! simulated run and the run of a year ago can be compared. Times are [`seekless_base::Nanos`] from the
//! start of the run; the driver of the workload owns the clock and decides how fast it goes.
//!
//! Must not know: sockets, files, clocks. Readers of files take bytes.

pub mod bisection;
pub mod catalogue;
pub mod closed;
pub mod content;
pub mod distribution;
pub mod draw;
pub mod generate;
pub mod handler;
pub mod httperf;
pub mod recorder;
pub mod session;
pub mod sources;
pub mod splitmix;
pub mod trace;
pub mod tree;
pub mod zipf;
