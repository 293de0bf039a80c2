//! policy x drive: the same decisions in virtual time.
//!
//! - [`serving`]: a machine that serves files from hard disks; `policy::Spindle` unchanged inside.
//! - [`twolevel`]: cache levels that prefetch, what coordinates them, and the disk below (the PFC study).
//! - [`circus`]: a download server whose clients take blocks in any order (the Circus study).
//! - [`edges`]: an origin below caches that fetch slices.
//! - [`oracle`]: offline-optimal replacement, which no cache can beat.
//! - [`replay`]: decision logs of a live daemon, run again as they were and as they might have been.
//! - [`trace`]: traces to replay through them, files or generated.
//!
//! Must not know: kernel, wire, or the other applications.

pub mod circus;
pub mod cli;
pub mod edges;
pub mod levels;
pub mod oracle;
pub mod replay;
pub mod serving;
pub mod trace;
pub mod twolevel;
