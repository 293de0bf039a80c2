//! The one command: `seekless`.
//!
//! It only joins the applications' own argument parsers and turns their errors into one line on standard
//! error and a documented exit status ([`Exit`]). Standard output belongs to results; a reader that closes it
//! early (`| head`) ends the command quietly.

mod usage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use seekless_output::LogLines;
use seekless_units::{Exit, Fault};

/// Serve several times more from the same hard disks, without changing the server.
#[derive(Debug, Parser)]
#[command(
    name = "seekless",
    version,
    arg_required_else_help = true,
    after_help = "Exit status: 0 done and every check held, 1 failed, 2 wrong usage, 3 not permitted, 4 in use, 5 something needed is missing, 130 interrupted."
)]
struct Seekless {
    /// Format of diagnostics on standard error (`SEEKLESS_LOG` chooses which are written)
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT", hide_short_help = true)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

/// The form of diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line, with the time
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command with the shim in front of its reads; start a daemon if none runs
    Run(seekless_daemon::cli::RunArgs),
    /// Serve shims until told to stop; `daemon status` shows what it does
    Daemon(seekless_daemon::cli::DaemonArgs),
    /// Serve every program that reads under folders, without a preload, until interrupted
    Watch(seekless_daemon::cli::WatchArgs),
    /// Read ahead for every program that reads under folders; nothing is restarted, no program waits
    Observe(seekless_daemon::cli::ObserveArgs),
    /// Show on the terminal what a running daemon does with its disks
    Top(seekless_daemon::cli::TopArgs),
    /// Measure for some minutes what reading ahead gains for the programs that read under folders
    Try(seekless_daemon::cli::TryArgs),
    /// Measure what Seekless gains on a running server, with its own clients
    Prove(seekless_daemon::cli::ProveArgs),
    /// Preload the shim into a server that systemd starts
    Enable(seekless_daemon::cli::EnableArgs),
    /// Remove what `enable` wrote
    Disable(seekless_daemon::cli::DisableArgs),
    /// Have a running daemon close the files of a file system, so that it can be unmounted
    Release(seekless_daemon::cli::ReleaseArgs),
    /// Say whether a process is hooked, and what would help here
    Doctor(seekless_daemon::cli::DoctorArgs),
    /// Serve files over HTTP, never waiting for a disk
    Serve(seekless_http::cli::ServeArgs),
    /// Download files in any order the server likes; verified, resumed after interruptions
    Get(seekless_http::cli::GetArgs),
    /// Load a server with real clients and verify every byte
    Load(seekless_load::cli::LoadArgs),
    /// Make hard disks of software
    Vdisk(seekless_vdisk::cli::VdiskArgs),
    /// Write a table of bitrates from the headers of media files, for `--bitrates`
    Bitrates(seekless_bitrates::cli::BitratesArgs),
    /// List disks, measure them, and set the kernel by what was measured
    Disk(seekless_disk::cli::DiskArgs),
    /// Sort paths into the order in which their disk reads them best, and read ahead of their consumer
    Order(seekless_order::cli::OrderArgs),
    /// Write the contents of files as one tar stream, in the order in which their disk reads them best
    CatSet(seekless_order::cat::CatSetArgs),
    /// Simulate in virtual time: a file server on hard disks, cache levels, downloads in any order
    Sim(seekless_sim::cli::SimArgs),
    /// Plan disks and memory for a site, from its access log or by formula
    Plan(Box<seekless_plan::cli::PlanArgs>),
    /// Run experiments: scenarios in, results and reports out
    Lab(seekless_lab::cli::LabArgs),
    /// Show on this machine what Seekless gains, in a few minutes
    Demo(seekless_lab::cli::DemoArgs),
    /// Write shell completions to standard output
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page to standard output
    #[command(hide = true)]
    Man {
        /// Write a page for each command into this folder
        #[arg(long, value_name = "DIR")]
        dir: Option<std::path::PathBuf>,
    },
}

fn main() -> ExitCode {
    // Rust ignores SIGPIPE and println! panics on a closed pipe instead: end quietly, as other commands do.
    std::panic::set_hook(Box::new(|info| {
        let text = info.payload().downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| info.payload().downcast_ref::<&str>().copied()).unwrap_or("");
        if !text.contains("Broken pipe") {
            let place = info.location().map_or(String::new(), |l| format!(" at {}:{}", l.file(), l.line()));
            seekless_output::eprintln!("seekless: internal error{place}: {text}");
        }
    }));
    let matches = match usage::matches(Seekless::command(), std::env::args_os().collect()) {
        Ok(matches) => matches,
        Err((_, Some(line))) => return ended(&Fault::new(Exit::Usage, line)),
        Err((error, None)) => error.exit(),
    };
    let arguments = Seekless::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    logging(arguments.log_format);
    let json = results(&matches, &["json"]).into_iter().try_for_each(seekless_output::replaceable_by_json);
    if let Err(fault) = json.and_then(|()| seekless_output::writable(results(&matches, &["json", "html"]))) {
        return ended(&fault);
    }
    let status = match std::panic::catch_unwind(|| dispatch(arguments.command)) {
        Ok(Ok(status)) => return status,
        Ok(Err(fault)) => return ended(&fault),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map_or("", String::as_str);
            if text.contains("Broken pipe") { Exit::Ok as u8 } else { Exit::Failed as u8 }
        }
    };
    ExitCode::from(status)
}

/// Prints why a command ends.
fn ended(fault: &Fault) -> ExitCode {
    seekless_output::eprintln!("seekless: {fault}");
    ExitCode::from(fault.exit as u8)
}

/// The files that the result is written to. They are opened before the work, so that a bad path fails early.
fn results<'a>(matches: &'a ArgMatches, options: &[&str]) -> Vec<&'a Path> {
    let mut of = matches;
    while let Some((_, below)) = of.subcommand() {
        of = below;
    }
    let file = |option| of.try_get_one::<PathBuf>(option).ok().flatten().map(PathBuf::as_path);
    options.iter().copied().filter_map(file).collect()
}

/// Diagnostics go to standard error when `SEEKLESS_LOG` asks for them (`info`, `seekless_lab=debug`, ...). An
/// invalid filter must not keep a server from starting: one line names it, and warnings are shown.
fn logging(format: LogFormat) {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    use tracing_subscriber::{Layer, fmt};

    let warnings = Targets::new().with_default(LevelFilter::WARN);
    let filter = match std::env::var("SEEKLESS_LOG") {
        Ok(text) => text.parse().unwrap_or_else(|_| {
            seekless_output::eprintln!(
                "seekless: SEEKLESS_LOG: `{text}` is not a filter; write for example info or seekless_lab=debug"
            );
            warnings
        }),
        Err(_) => warnings,
    };
    let lines = fmt::layer().with_ansi(false);
    let lines = match format {
        LogFormat::Text => lines.with_writer(LogLines::text).without_time().boxed(),
        LogFormat::Json => lines.with_writer(LogLines::json).json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}

/// `run` passes on the status of the command it ran; everything else ends with one of ours.
fn dispatch(command: Command) -> Result<ExitCode, Fault> {
    let exit = match command {
        Command::Run(args) => return seekless_daemon::cli::run_run(args),
        other => ours(other)?,
    };
    Ok(ExitCode::from(exit as u8))
}

fn ours(command: Command) -> Result<Exit, Fault> {
    match command {
        Command::Run(_) => Ok(Exit::Ok),
        Command::Daemon(args) => seekless_daemon::cli::run_daemon(args),
        Command::Watch(args) => seekless_daemon::cli::run_watch(args),
        Command::Observe(args) => seekless_daemon::cli::run_observe(args),
        Command::Top(args) => seekless_daemon::cli::run_top(args),
        Command::Try(args) => seekless_daemon::cli::run_try(args),
        Command::Prove(args) => seekless_daemon::cli::run_prove(args),
        Command::Enable(args) => seekless_daemon::cli::run_enable(args),
        Command::Disable(args) => seekless_daemon::cli::run_disable(args),
        Command::Release(args) => seekless_daemon::cli::run_release(args),
        Command::Doctor(args) => seekless_daemon::cli::run_doctor(args),
        Command::Serve(args) => seekless_http::cli::run_serve(args),
        Command::Get(args) => seekless_http::cli::run_get(args),
        Command::Load(args) => seekless_load::cli::run(args),
        Command::Vdisk(args) => seekless_vdisk::cli::run(args),
        Command::Bitrates(args) => seekless_bitrates::cli::run(&args),
        Command::Disk(args) => seekless_disk::cli::run(args),
        Command::Order(args) => seekless_order::cli::run(args),
        Command::CatSet(args) => seekless_order::cat::run(args),
        Command::Sim(args) => seekless_sim::cli::run(args),
        Command::Plan(args) => seekless_plan::cli::run(*args),
        Command::Lab(args) => seekless_lab::cli::run(args),
        Command::Demo(args) => seekless_lab::cli::run_demo(args),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Seekless::command(), "seekless", &mut text);
            seekless_output::print(text).map(|()| Exit::Ok)
        }
        Command::Man { dir: Some(dir) } => std::fs::create_dir_all(&dir)
            .and_then(|()| clap_mangen::generate_to(Seekless::command(), &dir))
            .map(|()| Exit::Ok)
            .map_err(|e| Fault::new(Exit::Failed, format!("manual pages in {}: {e}", dir.display()))),
        Command::Man { dir: None } => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Seekless::command())
                .render(&mut text)
                .map_err(|e| Fault::new(Exit::Failed, format!("manual page: {e}")))?;
            seekless_output::print(text).map(|()| Exit::Ok)
        }
    }
}
