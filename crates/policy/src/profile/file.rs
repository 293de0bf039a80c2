//! A profile as stored text: the disk it belongs to, the format, and a checksum over its numbers.
//!
//! A profile decides how much is read, so a wrong one must not be used silently. It may be truncated by a
//! full disk, edited by hand, copied from another machine, or written by a later version. Each case has its
//! own error, so that the reader can log the reason and go on with [`DiskProfile::assumed`].

use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};

use super::DiskProfile;

/// Version of the text's layout. Raised when a field changes meaning.
pub const SCHEMA: u32 = 1;

/// A profile with the data that is needed to trust it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredProfile {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Name of the disk by serial number or UUID, chosen by the driver.
    pub disk: String,
    /// A name for people: model or path. Not compared.
    pub label: String,
    /// When it was measured, seconds since 1970.
    pub measured_at: u64,
    /// Checksum of sixteen hexadecimal digits over `disk` and the profile.
    pub checksum: String,
    /// The numbers.
    pub profile: DiskProfile,
}

/// Why a stored profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Not the text of a profile: truncated, or another file.
    #[error("it is truncated or not a profile ({0})")]
    Malformed(String),
    /// Written by a version with another layout.
    #[error("its layout is version {0}, this program reads {SCHEMA}")]
    Schema(u32),
    /// The checksum does not match: edited or damaged.
    #[error("its checksum does not match: edited by hand or damaged")]
    Checksum,
    /// It belongs to this other disk.
    #[error("it belongs to another disk, {0}")]
    OtherDisk(String),
    /// It belongs to a disk of another size.
    #[error("it was measured on a disk of {0} sectors")]
    OtherSize(u64),
    /// Values that no disk can have.
    #[error("its numbers are out of range: {0}")]
    Range(String),
}

impl StoredProfile {
    /// Wraps a fresh profile.
    pub fn new(disk: &str, label: &str, measured_at: u64, profile: DiskProfile) -> StoredProfile {
        let checksum = checksum(disk, &profile);
        StoredProfile {
            schema: SCHEMA,
            disk: disk.to_string(),
            label: label.to_string(),
            measured_at,
            checksum,
            profile,
        }
    }

    /// The text to store, ending in a line feed.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Parses a stored text and checks it. `disk` and `sectors`, if given, must match.
    ///
    /// # Errors
    /// The first reason not to use it.
    pub fn parse(
        text: &str,
        disk: Option<&str>,
        sectors: Option<u64>,
    ) -> Result<StoredProfile, ProfileError> {
        // The layout first, because a later one may have unknown fields.
        #[derive(Deserialize)]
        struct Header {
            schema: u32,
        }
        let malformed = |e: serde_json::Error| ProfileError::Malformed(e.to_string());
        let header: Header = serde_json::from_str(text).map_err(malformed)?;
        if header.schema != SCHEMA {
            return Err(ProfileError::Schema(header.schema));
        }
        let stored: StoredProfile = serde_json::from_str(text).map_err(malformed)?;
        if checksum(&stored.disk, &stored.profile) != stored.checksum {
            return Err(ProfileError::Checksum);
        }
        if disk.is_some_and(|disk| disk != stored.disk) {
            return Err(ProfileError::OtherDisk(stored.disk));
        }
        if sectors.is_some_and(|sectors| sectors != stored.profile.sectors) {
            return Err(ProfileError::OtherSize(stored.profile.sectors));
        }
        stored.profile.check().map_err(ProfileError::Range)?;
        Ok(stored)
    }
}

/// 64-bit FNV-1a over the compact text. It guards against accidents, not against malice.
fn checksum(disk: &str, profile: &DiskProfile) -> String {
    let text = serde_json::to_string(profile).unwrap_or_default();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in disk.bytes().chain([0]).chain(text.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    alloc::format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored() -> StoredProfile {
        StoredProfile::new("serial-X1", "a disk", 1_700_000_000, DiskProfile::assumed(1 << 31))
    }

    #[test]
    fn reads_back_exactly() {
        let text = stored().to_text();
        assert_eq!(StoredProfile::parse(&text, Some("serial-X1"), Some(1 << 31)).unwrap(), stored());
    }

    #[test]
    fn each_reason_is_told_apart() {
        let text = stored().to_text();
        let parse = |text: &str| StoredProfile::parse(text, Some("serial-X1"), Some(1 << 31)).unwrap_err();
        assert!(matches!(parse(""), ProfileError::Malformed(_)));
        assert!(matches!(parse("[1,2]"), ProfileError::Malformed(_)));
        assert_eq!(parse(&text.replacen("160000000", "170000000", 1)), ProfileError::Checksum);
        assert_eq!(parse(&text.replacen("serial-X1", "serial-X2", 1)), ProfileError::Checksum);
        assert_eq!(parse(&text.replacen("\"schema\": 1", "\"schema\": 9", 1)), ProfileError::Schema(9));
        assert!(matches!(parse(&text.replacen("\"label\"", "\"lable\"", 1)), ProfileError::Malformed(_)));
        let other = StoredProfile::new("serial-Y", "b", 0, DiskProfile::assumed(1 << 31)).to_text();
        assert_eq!(parse(&other), ProfileError::OtherDisk("serial-Y".into()));
        let smaller = StoredProfile::new("serial-X1", "b", 0, DiskProfile::assumed(1 << 30)).to_text();
        assert_eq!(parse(&smaller), ProfileError::OtherSize(1 << 30));
        let mut absurd = DiskProfile::assumed(1 << 31);
        absurd.seeks.clear();
        let absurd = StoredProfile::new("serial-X1", "b", 0, absurd).to_text();
        assert!(matches!(parse(&absurd), ProfileError::Range(_)));
    }

    proptest! {
        #[test]
        fn every_truncation_is_refused(cut in 0usize..2000) {
            let text = stored().to_text();
            let end = text.trim_end().len();
            let cut = cut % end;
            prop_assert!(StoredProfile::parse(&text[..cut], None, None).is_err());
        }
    }
}
