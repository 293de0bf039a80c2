//! The drives by name: the files of `drives/`, compiled in, and those that [`crate::drive::draw`] draws.

use alloc::format;
use alloc::vec::Vec;

use crate::drive::draw;
use crate::drive::spec::{DriveSpec, SpecError};

macro_rules! drives {
    ($($name:literal),+ $(,)?) => {
        /// Name and text of each description.
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../drives/", $name, ".toml")))),+];
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

/// A device without heads, for experiments without anything to order. [`names`] omits it.
const FLASH: &str = include_str!("../../../../drives/flash.toml");

/// Names of the disks of `drives/`, in alphabetical order.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The drive with this name, if there is one: one of [`names`], `drawn:SEED:INDEX` for a drive that
/// [`crate::drive::draw::draw`] draws, or `flash` for a device without heads.
pub fn get(name: &str) -> Option<DriveSpec> {
    if name.starts_with(draw::PREFIX) {
        return draw::named(name);
    }
    if name == "flash" {
        return parse(FLASH).ok();
    }
    let (_, text) = FILES.iter().find(|(n, _)| *n == name)?;
    // A test parses every file; one that cannot be parsed never ships.
    parse(text).ok()
}

/// As [`get`], with an error message if there is no such drive.
///
/// # Errors
/// One line with all names.
pub fn find(name: &str) -> Result<DriveSpec, SpecError> {
    get(name).ok_or_else(|| {
        let names: Vec<&str> = names().collect();
        SpecError(format!(
            "no drive is called `{name}`; there are {}, flash, and drawn:SEED:INDEX with two whole numbers",
            names.join(", ")
        ))
    })
}

/// A custom drive, from the text of a file like those in `drives/`.
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
        for (name, text) in FILES.iter().chain(&[("flash", FLASH)]) {
            let spec = parse(text).unwrap_or_else(|e| panic!("drives/{name}.toml: {e}"));
            assert_eq!(spec.name, *name);
        }
        assert!(FILES.is_sorted(), "names() promises alphabetical order");
        assert!(get("no-such-drive").is_none());
    }

    #[test]
    fn a_drawn_drive_has_one_name() {
        assert_eq!(get("drawn:7:3").map(|d| d.name).as_deref(), Some("drawn-7-3"));
        for wrong in [
            "drawn:",
            "drawn:7",
            "drawn:7:",
            "drawn::3",
            "drawn:7:-3",
            "drawn:+7:3",
            "drawn:7:3:1",
            "drawn:7:x",
        ] {
            assert!(get(wrong).is_none(), "{wrong}");
            let why = find(wrong).unwrap_err();
            assert!(format!("{why}").contains("drawn:SEED:INDEX"), "{why}");
        }
    }
}
