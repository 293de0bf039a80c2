//! `seekless lab` on its own, with the other commands taken from the program `$SEEKLESS_BIN` names:
//! `cargo run -p seekless-lab --example lab -- run closed-loop --sim`.

use std::process::ExitCode;

use clap::Parser;
use seekless_lab::cli::{LabArgs, run};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: LabArgs,
}

fn main() -> ExitCode {
    match run(Command::parse().args) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(fault) => {
            eprintln!("seekless lab: {fault}");
            ExitCode::from(fault.exit as u8)
        }
    }
}
