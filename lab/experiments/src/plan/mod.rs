//! What a site needs: how many disks, how much memory, which block size.
//!
//! Two ways to ask. From an access log ([`site`]): how much of it a cache of each size would have answered
//! ([`distances`]), how many streams there were and how popular what is; together with what a drive delivers
//! to a server as shipped, tuned, and with Seekless ([`configurations`], by simulation), that gives what this
//! site could serve and what it would need ([`answer`]). Without a log, from the formulas of Circus section 2
//! ([`capacity`]), the simulator's answer beside them.
//!
//! Must not know: the other applications. Simulations are run as `seekless-lab sim ... --json`, as a person
//! would.

pub mod answer;
pub mod capacity;
pub mod cli;
pub mod configurations;
pub mod distances;
mod format;
mod page;
pub mod simulate;
pub mod site;
