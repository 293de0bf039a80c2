//! levels x drive: block traces through cache levels that prefetch, in virtual time (the PFC study).
//!
//! - [`twolevel`]: the levels, and the disk below; [`coordinate`]: what coordinates them;
//!   [`cache`]: which block leaves when another comes in.
//! - [`spec`]: the text that describes levels.
//! - [`trace`]: traces to replay through them, files or generated.
//! - [`prefetch`]: what each level fetches ahead of a request (RA, Linux, SARC, AMP).
//! - [`oracle`]: offline-optimal replacement, which no cache can beat.
//!
//! Must not know: kernel, wire, command lines, the serving simulator, or any application.

pub mod cache;
pub mod coordinate;
pub mod oracle;
pub mod prefetch;
pub mod spec;
pub mod trace;
pub mod twolevel;
