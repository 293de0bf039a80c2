//! policy x drive: the same decisions in virtual time.
//!
//! - [`serving`]: a machine that serves files from hard disks; `policy::DiskEngine` unchanged inside.
//! - [`replay`]: decision logs of a live daemon, run again as they were and as they might have been.
//! - [`cli`]: the commands, those of the two studies ([`study`], [`circus`]) as well.
//!
//! Must not know: kernel, wire, or the other applications.

pub mod circus;
pub mod cli;
pub mod replay;
pub mod serving;
pub mod study;
