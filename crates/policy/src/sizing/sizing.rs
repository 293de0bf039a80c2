//! The setting that selects the sizing algorithm.

use alloc::boxed::Box;

use core::fmt;
use core::str::FromStr;

use seekless_base::{Bytes, Nanos, ParseBytesError};
use serde::{Deserialize, Serialize};

use crate::profile::DiskProfile;
use crate::sizing::bitrate::BitrateRule;
use crate::sizing::competitive::{Competitive, Start};
use crate::sizing::controller::Params;
use crate::sizing::{Auto, Depth, Fixed, PrefetchSize, Scaled};

/// The sizing algorithm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizing {
    /// The size of `--prefetch`.
    #[default]
    Fixed,
    /// The automatic size, at most the longest read.
    Auto(Params),
    /// The competitive depth of the disk's profile, at most the longest read.
    Competitive(Start),
}

impl Sizing {
    /// The word used on the command line and in reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Sizing::Fixed => "fixed",
            Sizing::Auto(_) => "auto",
            Sizing::Competitive(_) => "competitive",
        }
    }

    /// Builds the algorithm. `prefetch` is the fixed size, `most` the longest read, `profile` the disk's if
    /// known.
    pub fn build(
        &self,
        prefetch: Bytes,
        most: Bytes,
        rule: &BitrateRule,
        profile: Option<&DiskProfile>,
    ) -> Box<dyn PrefetchSize + Send> {
        // The profile of an unmeasured disk of any size: its distances become shares of this size.
        let known = || profile.cloned().unwrap_or_else(|| DiskProfile::assumed(1 << 31));
        let plain: Box<dyn PrefetchSize + Send> = match self {
            Sizing::Fixed => Box::new(Fixed(prefetch)),
            Sizing::Auto(params) => {
                let size_max = params.size_max.min(most);
                Box::new(Auto::new(Params { size_max, ..*params }, Nanos::ZERO))
            }
            Sizing::Competitive(start) => Box::new(Depth::new(Competitive::new(known(), most), *start)),
        };
        match rule {
            BitrateRule::Same => plain,
            rule => Box::new(Scaled::new(plain, rule.clone())),
        }
    }
}

/// The prefetch size as a word of a command line: a size, or an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// This size.
    Fixed(Bytes),
    /// Tuned continuously.
    Auto,
    /// What the disk transfers in one switch.
    Competitive,
}

impl FromStr for Prefetch {
    type Err = UnknownPrefetch;

    fn from_str(text: &str) -> Result<Prefetch, UnknownPrefetch> {
        match text {
            "auto" => Ok(Prefetch::Auto),
            "competitive" => Ok(Prefetch::Competitive),
            size => size.parse().map(Prefetch::Fixed).map_err(UnknownPrefetch),
        }
    }
}

impl fmt::Display for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Prefetch::Fixed(size) => write!(f, "{size}"),
            Prefetch::Auto => f.write_str("auto"),
            Prefetch::Competitive => f.write_str("competitive"),
        }
    }
}

/// Neither a size nor an algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}, or auto, or competitive")]
pub struct UnknownPrefetch(ParseBytesError);
