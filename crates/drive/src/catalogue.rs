//! The drives that come with the program: the files of `drives/`, compiled in.

use crate::spec::{DriveSpec, SpecError};

macro_rules! drives {
    ($($name:literal),+ $(,)?) => {
        /// Name and text of each description.
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../drives/", $name, ".toml")))),+];
    };
}

drives![
    "atlas-10k",
    "barracuda-2tb-7200",
    "barracuda-4lp",
    "cheetah-18gb-10k",
    "cheetah-9lp",
    "hp-146gb-10k",
    "ibm-18es",
    "ibm-36gb-10k",
    "maxtor-300gb-10k",
    "modern-20tb-7200",
    "seagate-1tb-7200",
    "ultrastar-7k4000-4tb",
    "ultrastar-7k8-8tb",
    "ultrastar-hc310-6tb",
    "wd-4tb-7200",
    "wd-red-1tb",
];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_parses_and_the_names_are_sorted() {
        for (name, text) in FILES {
            let spec = parse(text).unwrap_or_else(|e| panic!("drives/{name}.toml: {e}"));
            assert_eq!(spec.name, *name);
        }
        assert!(FILES.is_sorted(), "names() promises alphabetical order");
        assert!(get("no-such-drive").is_none());
    }
}
