//! policy x drive: the same decisions in virtual time.
//!
//! - [`serving`]: a machine that serves files from hard disks; `policy::Spindle` unchanged inside.
//! - [`circus`]: a download server whose clients take blocks in any order (the Circus study).
//! - [`replay`]: decision logs of a live daemon, run again as they were and as they might have been.
//! - [`cli`]: the commands, those of the study of cache levels (`seekless_study`) as well.
//!
//! Must not know: kernel, wire, or the other applications.

pub mod circus;
pub mod cli;
pub mod replay;
pub mod serving;
