//! For tests only: a skip that says so, and a page in a real browser.
//!
//! Must not know: what is tested.

pub mod browser;
pub mod skip;
