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

impl PageCommand {
    /// Writes what was asked for.
    ///
    /// # Errors
    /// The pages cannot be written.
    pub fn run(self, mut program: Command) -> Result<Exit, Fault> {
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
                .map_err(|e| Fault::new(Exit::Failed, format!("manual pages in {}: {e}", dir.display()))),
            PageCommand::Man { dir: None } => {
                let mut text = Vec::new();
                clap_mangen::Man::new(program)
                    .render(&mut text)
                    .map_err(|e| Fault::new(Exit::Failed, format!("manual page: {e}")))?;
                seekless_output::print(text).map(|()| Exit::Ok)
            }
        }
    }
}
