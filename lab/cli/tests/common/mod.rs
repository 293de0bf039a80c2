//! What these tests share with those of the product, and the laboratory's own: its program, a disk made of
//! software.
#![allow(dead_code, unused_imports, reason = "each test program uses its own part")]
#![allow(unreachable_pub, reason = "shared by the test programs beside it")]

use std::path::PathBuf;

pub mod disk;
#[path = "../../../../crates/cli/tests/common/mod.rs"]
mod product;

pub use product::*;

/// The laboratory's program.
pub const SEEKLESS_LAB: &str = env!("CARGO_BIN_EXE_seekless-lab");

/// The program that has this command.
pub fn program_of(command: &str) -> PathBuf {
    let laboratory = [
        "demo",
        "plan",
        "bitrates",
        "sim",
        "vdisk",
        "load",
        "list",
        "run",
        "report",
        "compare",
        "record",
        "statements",
    ];
    if laboratory.contains(&command) { SEEKLESS_LAB.into() } else { SEEKLESS.clone() }
}
