//! `seekless-lab sim`: the commands.

mod circus;
mod coordinator;
mod node;
mod replay;
mod serve;
mod serve_model;
mod table;
mod trace;

use clap::{Args, Subcommand};
use seekless_base::{Exit, Fault};

/// Template of a bar that counts simulations.
const RUNS: &str = "{bar:40} {pos}/{len} runs {eta}";

/// Simulate in virtual time: traces through cache levels, the same policies as the live engine.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Describe a block trace, replay one through cache levels, or generate one
    Trace(trace::TraceArgs),
    /// Compute the 96 cases of the PFC paper, with each coordinator, beside the published figures
    PfcTable(table::TableArgs),
    /// Compare downloads in any order with sequential ones: one disk, many clients, the figures of the Circus
    /// paper
    Circus(circus::CircusArgs),
    /// Simulate one of several nodes behind a balancer, from empty memory until its hit ratio is back
    Node(Box<node::NodeArgs>),
    /// Replay a daemon's decision log, as it was or under other settings, memory or drives
    Replay(replay::ReplayArgs),
    /// Simulate a machine that serves files from hard disks, with and without Seekless
    Serve(Box<serve::ServeArgs>),
}

/// Runs a `seekless-lab sim` command.
///
/// # Errors
/// One line that says what is wrong and how to mend it.
pub fn run(args: SimArgs) -> Result<Exit, Fault> {
    match args.command {
        Command::Trace(args) => trace::run(args),
        Command::PfcTable(args) => table::run(args),
        Command::Circus(args) => circus::run(args),
        Command::Node(args) => node::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Serve(args) => serve::run(&args),
    }
}
