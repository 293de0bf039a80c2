//! `seekless disk` alone, for the tests of this crate: the command line without the other applications.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use seekless_admin::disk::cli::{DiskArgs, run};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Disk(DiskArgs),
}

fn main() -> ExitCode {
    let Command::Disk(args) = Cli::parse().command;
    match run(args) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(fault) => {
            eprintln!("seekless: {fault}");
            ExitCode::from(fault.exit as u8)
        }
    }
}
