//! `seekless order` and `seekless cat-set` alone, for the tests of this crate: the command line without the
//! other applications.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use seekless_order::cat::{self, CatSetArgs};
use seekless_order::cli::{self, OrderArgs};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Order(OrderArgs),
    CatSet(CatSetArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Order(args) => cli::run(args),
        Command::CatSet(args) => cat::run(args),
    };
    match done {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(fault) => {
            eprintln!("seekless: {fault}");
            ExitCode::from(fault.exit as u8)
        }
    }
}
