//! `seekless-lab vdisk` alone, for the tests of this crate: the command line without the other applications.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use seekless_vdisk::cli::{VdiskArgs, run};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Vdisk(VdiskArgs),
}

fn main() -> ExitCode {
    let Command::Vdisk(args) = Cli::parse().command;
    match run(args) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(fault) => {
            eprintln!("seekless: {fault}");
            ExitCode::from(fault.exit as u8)
        }
    }
}
