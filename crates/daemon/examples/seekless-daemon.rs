//! The daemon's commands alone, for trials and for the tests.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use seekless_admin::doctor::{DoctorArgs, run_doctor};
use seekless_admin::prove::{ProveArgs, TryArgs, run_prove, run_try};
use seekless_admin::release::{ReleaseArgs, run_release};
use seekless_admin::top::{TopArgs, run_top};
use seekless_daemon::cli::{
    DaemonArgs, ObserveArgs, RunArgs, WatchArgs, run_daemon, run_observe, run_run, run_watch,
};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Daemon(DaemonArgs),
    Run(RunArgs),
    Doctor(DoctorArgs),
    Watch(WatchArgs),
    Observe(ObserveArgs),
    Top(TopArgs),
    Prove(ProveArgs),
    Try(TryArgs),
    Release(ReleaseArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Daemon(args) => run_daemon(args).map(|exit| ExitCode::from(exit as u8)),
        Command::Run(args) => run_run(args),
        Command::Watch(args) => {
            run_watch(args, std::env::args_os().skip(1).collect()).map(|exit| ExitCode::from(exit as u8))
        }
        Command::Observe(args) => run_observe(args).map(|exit| ExitCode::from(exit as u8)),
        Command::Prove(args) => run_prove(args).map(|exit| ExitCode::from(exit as u8)),
        Command::Try(args) => run_try(args).map(|exit| ExitCode::from(exit as u8)),
        Command::Top(args) => run_top(args).map(|exit| ExitCode::from(exit as u8)),
        Command::Release(args) => run_release(args).map(|exit| ExitCode::from(exit as u8)),
        Command::Doctor(args) => run_doctor(args).map(|exit| ExitCode::from(exit as u8)),
    };
    done.unwrap_or_else(|fault| {
        eprintln!("seekless: {fault}");
        ExitCode::from(fault.exit as u8)
    })
}
