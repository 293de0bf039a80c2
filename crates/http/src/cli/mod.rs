//! The command lines of `seekless serve` and `seekless get`.

mod get;
mod serve;

pub use get::{GetArgs, run_get};
pub use serve::{ServeArgs, run_serve};
