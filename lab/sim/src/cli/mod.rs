//! `seekless-lab sim`: the commands.

mod circus;
mod coordinator;
mod node;
mod replay;
mod serve;
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
    /// Block traces: describe one, replay one through cache levels, write a generated one
    Trace(trace::TraceArgs),
    /// The 96 cases of the PFC paper, with each coordinator, beside the published figures
    PfcTable(table::TableArgs),
    /// Downloads in any order against sequential ones: one disk, many clients, the figures of the Circus
    /// paper
    Circus(circus::CircusArgs),
    /// One of several nodes behind a balancer, from empty memory on: when its hit ratio is back
    Node(Box<node::NodeArgs>),
    /// A daemon's decision log: again as it was, and under other settings, memory or drives
    Replay(replay::ReplayArgs),
    /// A machine that serves files from hard disks, with and without Seekless
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
