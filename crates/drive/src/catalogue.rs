//! The drives that come with the program: the files of `drives/`, compiled in.

use crate::spec::{DriveSpec, SpecError};

macro_rules! drives {
    ($($name:literal),+ $(,)?) => {
        /// Name and text of each description.
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../drives/", $name, ".toml")))),+];
    };
}

drives!["atlas-10k", "barracuda-4lp", "cheetah-9lp", "ibm-18es", "wd-red-1tb"];

/// Names of the drives, in alphabetical order.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The drive of that name, or nothing when there is none ([`names`] lists them).
pub fn get(name: &str) -> Option<DriveSpec> {
    let (_, text) = FILES.iter().find(|(n, _)| *n == name)?;
    // A test parses every file; one that cannot be parsed never ships.
    parse(text).ok()
}

/// A drive of one's own, from the text of a file like those in `drives/`.
///
/// # Errors
/// What is wrong, with the field's name and, for malformed TOML, the line.
pub fn parse(toml: &str) -> Result<DriveSpec, SpecError> {
    DriveSpec::parse(toml)
}
