//! The one command: `seekless`.
fn main() {}
