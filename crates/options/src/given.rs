//! Options that are handed on to another process.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Id};

/// Options, and the words that gave them: with these words another process has the same options.
#[derive(Clone, Debug)]
pub struct Given<A> {
    /// The options.
    pub options: A,
    /// The words, without those of defaults.
    pub words: Vec<OsString>,
}

impl<A: Args> Args for Given<A> {
    fn group_id() -> Option<Id> {
        A::group_id()
    }

    fn augment_args(command: Command) -> Command {
        A::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        A::augment_args_for_update(command)
    }
}

impl<A: Args> FromArgMatches for Given<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Given<A>, Error> {
        Ok(Given { options: A::from_arg_matches(matches)?, words: words::<A>(matches) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Given::from_arg_matches(matches)?;
        Ok(())
    }
}

fn words<A: Args>(matches: &ArgMatches) -> Vec<OsString> {
    let mut words = Vec::new();
    for arg in A::augment_args(Command::new("")).get_arguments() {
        let (id, option) = (arg.get_id().as_str(), format!("--{}", arg.get_long().unwrap_or_default()));
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        if !arg.get_action().takes_values() {
            words.push(option.into());
            continue;
        }
        for value in matches.get_raw(id).into_iter().flatten() {
            let mut word = OsString::from(format!("{option}="));
            word.push(value);
            words.push(word);
        }
    }
    words
}
