//! What `seekless` and `seekless-lab` do around their commands.
//!
//! A program joins the argument parsers of its commands in one type and hands it to [`run`], which turns
//! every error into one line on standard error and a documented exit status ([`Exit`]). Standard output
//! belongs to results; a reader that closes it early (`| head`) ends the program quietly.
//!
//! Must not know: any command.

mod config;
mod groups;
mod moved;
mod pages;
pub mod usage;

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgMatches, Args, Parser, ValueEnum};
use seekless_base::{Exit, Fault};
use seekless_output::LogLines;

pub use config::{ConfigArgs, ConfigOptions, DEFAULT_FILE, VARIABLE, words_in_force};
pub use groups::grouped;
pub use moved::MovedOption;
pub use pages::{PageCommand, pointed};

/// What every command's help says about exit statuses.
pub const EXIT_STATUS: &str = "Exit status: 0 done and every check held, 1 failed, 2 wrong usage, 3 not permitted, 4 in use, 5 something needed is missing, 130 interrupted.";

/// In help, options that every command takes follow the command's own.
pub(crate) const LAST: usize = 900;

/// The option that every command takes.
#[derive(Args, Clone, Debug)]
pub struct LogOptions {
    /// Format of diagnostics on standard error (`SEEKLESS_LOG` chooses which are written)
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = LogFormat::Text,
        value_name = "FORMAT",
        hide_short_help = true,
        display_order = LAST
    )]
    pub log_format: LogFormat,
}

/// The form of diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line, with the time
    Json,
}

/// Runs the program `name` with the words of this process: parses them, starts the log, and runs the command.
/// `command` is the parser of `P` as the program shows it; if it contains [`ConfigOptions`], a configuration
/// file is read first. `moved`: options of the previous release. A panic is one line and status 1.
pub fn run<P: Parser>(
    name: &'static str,
    command: clap::Command,
    moved: Vec<MovedOption>,
    log: fn(&P) -> LogFormat,
    carry_out: fn(P) -> Result<ExitCode, Fault>,
) -> ExitCode {
    // Rust ignores SIGPIPE and println! panics on a closed pipe instead: end quietly, as other commands do.
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| info.payload().downcast_ref::<&str>().copied()).unwrap_or("");
        if !text.contains("Broken pipe") {
            let place = info.location().map_or(String::new(), |l| format!(" at {}:{}", l.file(), l.line()));
            seekless_output::eprintln!("{name}: internal error{place}: {text}");
        }
    }));
    moved::keep(moved);
    let words = moved::rewritten(&command, std::env::args_os().collect());
    let configured = match config::configured(&command, words) {
        Ok(configured) => configured,
        Err(fault) => return ended(name, &fault),
    };
    configured.keep();
    let matches = match usage::matches(command, configured.words.clone()) {
        Ok(matches) => matches,
        Err((_, Some(line))) => return ended(name, &Fault::usage(configured.located(line))),
        Err((error, None)) => error.exit(),
    };
    let arguments = P::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    logging(name, log(&arguments));
    let json = results(&matches, &["json"]).into_iter().try_for_each(seekless_output::replaceable_by_json);
    if let Err(fault) = json.and_then(|()| seekless_output::writable(results(&matches, &["json", "html"]))) {
        return ended(name, &fault);
    }
    let status = match std::panic::catch_unwind(AssertUnwindSafe(|| carry_out(arguments))) {
        Ok(Ok(status)) => return status,
        Ok(Err(fault)) => return ended(name, &Fault::new(fault.exit, configured.located(fault.message))),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map_or("", String::as_str);
            if text.contains("Broken pipe") { Exit::Ok as u8 } else { Exit::Failed as u8 }
        }
    };
    ExitCode::from(status)
}

/// Prints why a command ends.
fn ended(name: &str, fault: &Fault) -> ExitCode {
    seekless_output::eprintln!("{name}: {fault}");
    ExitCode::from(fault.exit as u8)
}

/// Files for the command's result. They are opened before the work.
fn results<'a>(matches: &'a ArgMatches, options: &[&str]) -> Vec<&'a Path> {
    let mut of = matches;
    while let Some((_, below)) = of.subcommand() {
        of = below;
    }
    let file = |option| of.try_get_one::<PathBuf>(option).ok().flatten().map(PathBuf::as_path);
    options.iter().copied().filter_map(file).collect()
}

/// Diagnostics go to standard error when `SEEKLESS_LOG` asks for them (`info`, `seekless_engine=debug`, ...).
/// An invalid filter must not keep a server from starting: one line names it, and warnings are shown.
fn logging(name: &str, format: LogFormat) {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    use tracing_subscriber::{Layer, fmt};

    let warnings = Targets::new().with_default(LevelFilter::WARN);
    let filter = match std::env::var("SEEKLESS_LOG") {
        Ok(text) => text.parse().unwrap_or_else(|_| {
            seekless_output::eprintln!(
                "{name}: SEEKLESS_LOG: `{text}` is not a filter; write for example info or seekless_engine=debug"
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
