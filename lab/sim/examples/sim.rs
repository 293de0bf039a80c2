//! `seekless-lab sim` on its own, for trying it out without the rest: `cargo run -p seekless-sim --example
//! sim -- trace info FILE`.

use std::process::ExitCode;

use clap::Parser;
use seekless_sim::cli::{SimArgs, run};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: SimArgs,
}

fn main() -> ExitCode {
    match run(Command::parse().args) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(fault) => {
            eprintln!("seekless-lab sim: {fault}");
            ExitCode::from(fault.exit as u8)
        }
    }
}
