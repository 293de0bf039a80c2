//! Shell completions and manual pages, from the same definitions as the commands.

use std::path::PathBuf;

use clap::{Command, Subcommand};
use seekless_base::{Exit, Fault};

/// The commands that write them; a program flattens these into its own.
#[derive(Debug, Subcommand)]
pub enum PageCommand {
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
        dir: Option<PathBuf>,
    },
}

/// The program with a last line in the help of each command that omits options: where to find them. `lists`:
/// whether `config --show` of this program lists them.
#[must_use]
pub fn pointed(program: Command, lists: bool) -> Command {
    let name = program.get_name().to_string();
    below(program, &name, &[], lists)
}

fn below(command: Command, program: &str, path: &[String], lists: bool) -> Command {
    let command = if leaves_out(&command) {
        let manual = format!("`man {program}-{}` describes every option", path.join("-"));
        let list = format!(", `{program} config --show {}` lists them with their values", path.join(" "));
        command.after_help(manual + if lists { &list } else { "" } + ".")
    } else {
        command
    };
    command.mut_subcommands(|c| {
        let path = [path, &[c.get_name().to_string()]].concat();
        below(c, program, &path, lists)
    })
}

/// Whether `--help` omits options that a user may give.
fn leaves_out(command: &Command) -> bool {
    command.get_arguments().any(|arg| !arg.is_hide_set() && arg.is_hide_long_help_set())
}

/// Manual pages describe these options too, and need no pointer to themselves.
fn described(program: Command) -> Command {
    let program =
        if leaves_out(&program) { program.after_help(clap::builder::Resettable::Reset) } else { program };
    program.mut_args(|arg| arg.hide_short_help(false).hide_long_help(false)).mut_subcommands(described)
}

impl PageCommand {
    /// Writes the requested output.
    ///
    /// # Errors
    /// The pages cannot be written.
    pub fn run(self, program: Command) -> Result<Exit, Fault> {
        let mut program = described(program);
        let name = program.get_name().to_string();
        match self {
            PageCommand::Completions { shell } => {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut program, name, &mut text);
                seekless_output::print(text).map(|()| Exit::Ok)
            }
            PageCommand::Man { dir: Some(dir) } => std::fs::create_dir_all(&dir)
                .and_then(|()| clap_mangen::generate_to(program, &dir))
                .map(|()| Exit::Ok)
                .map_err(|e| Fault::failed(format!("manual pages in {}: {e}", dir.display()))),
            PageCommand::Man { dir: None } => {
                let mut text = Vec::new();
                clap_mangen::Man::new(program)
                    .render(&mut text)
                    .map_err(|e| Fault::failed(format!("manual page: {e}")))?;
                seekless_output::print(text).map(|()| Exit::Ok)
            }
        }
    }
}
