//! The account of a disk: what became of its bytes ([`Totals`]), and how long things took ([`Histogram`]).
//!
//! Must not know: what is counted, by which program, and where it is shown. No I/O, no clock.

mod histogram;
mod totals;

pub use histogram::Histogram;
pub use totals::{Ratios, Totals, add};
