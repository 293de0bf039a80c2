//! The command lines of `seekless serve` and `seekless get`.

mod bounds;
mod get;
mod serve;

pub use bounds::MOVED;
pub use get::{GetArgs, run_get};
pub use serve::{ServeArgs, run_serve};
