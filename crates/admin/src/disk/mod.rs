//! Disks: list them, measure them, tune the kernel for them.
//!
//! `seekless disk list` shows the disks; `profile` measures one (the procedure is `seekless_policy::profile`,
//! pure; here it meets real reads); `tune` computes from the profile how the kernel's own read-ahead and
//! queue should be set, sets them on request, and puts back exactly what was there.
//!
//! Must not know: the other applications.

mod awake;
pub mod cli;
pub(crate) mod info;
mod list;
mod measure;
mod profile;
mod resolve;
mod store;
mod tune;
