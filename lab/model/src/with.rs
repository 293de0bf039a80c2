//! `--with NAME=VALUE,...`: settings of a model that few runs change. A scenario's file has the same words.

use std::fmt::Display;
use std::str::FromStr;

use clap::Args;
use seekless_base::Fault;
use seekless_options::{named, parsed};
use serde::de::{DeserializeOwned, Deserializer};

/// The option.
#[derive(Args, Clone, Debug, Default)]
pub struct WithOption {
    /// Settings of the model, as NAME=VALUE,...; an unknown name lists them all
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    with: Vec<String>,
}

impl WithOption {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.with.is_empty()
    }

    /// The settings: what was given, over the defaults.
    ///
    /// # Errors
    /// `Usage`: a word is not NAME=VALUE, or has an unknown name or a wrong value.
    pub fn settings<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        named(&self.with).map_err(|why| Fault::usage(format!("--with {why}")))
    }
}

/// As [`parsed`], for what has no default.
///
/// # Errors
/// Those of its parser.
pub fn parsed_some<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    given: D,
) -> Result<Option<T>, D::Error> {
    parsed(given).map(Some)
}

/// Checks that numbers are within their ranges.
///
/// # Errors
/// `Usage`: the first that is not.
pub fn within(numbers: &[(&str, f64, f64, f64)]) -> Result<(), Fault> {
    let outside = numbers.iter().find(|(_, value, least, most)| !(*least..=*most).contains(value));
    outside.map_or(Ok(()), |(name, value, least, most)| {
        Err(Fault::usage(format!("--with {name}={value}: write {least} to {most}")))
    })
}
