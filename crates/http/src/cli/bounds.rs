//! `serve --bound NAME=VALUE,...`: bounds that few servers change.

use std::time::Duration;

use clap::Args;
use seekless_base::{Bytes, Fault};
use seekless_options::{BOUNDS, named, parsed, week_at_most};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use smart_default::SmartDefault;

/// Options of the release before that are bounds now.
pub const MOVED: [&str; 9] = [
    "loops",
    "head-max",
    "head-timeout",
    "idle-timeout",
    "send-timeout",
    "grace",
    "digest-max",
    "any-order-memory",
    "any-order-read",
];

#[derive(Args, Clone, Debug)]
pub(super) struct BoundsOption {
    /// Bounds that few servers change, as NAME=VALUE,...; an unknown name lists them all
    ///
    /// Names: loops, head-max, head-timeout, idle-timeout, send-timeout, grace, digest-max, any-order-memory,
    /// any-order-read.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = known, help_heading = BOUNDS, hide_short_help = true, hide_long_help = true)]
    bound: Vec<String>,
}

/// What they say. Times are a week at most.
#[derive(Clone, Debug, Deserialize, SmartDefault)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct Bounds {
    /// Event loops, 1 to 1024; `None`: one for each core.
    pub(super) loops: Option<u32>,
    /// Longest head of a request, 8KiB to 1MiB.
    #[default(Bytes::kib(16))]
    pub(super) head_max: Bytes,
    /// Longest time a client may take for the head of a request.
    #[serde(deserialize_with = "time")]
    #[default(Duration::from_secs(10))]
    pub(super) head_timeout: Duration,
    /// Longest silence of a connection between requests.
    #[serde(deserialize_with = "time")]
    #[default(Duration::from_secs(75))]
    pub(super) idle_timeout: Duration,
    /// Longest time in which a client may take no byte of an answer.
    #[serde(deserialize_with = "time")]
    #[default(Duration::from_secs(60))]
    pub(super) send_timeout: Duration,
    /// How long answers under way may go on after a signal to stop.
    #[serde(deserialize_with = "time")]
    #[default(Duration::from_secs(30))]
    pub(super) grace: Duration,
    /// Largest file for which a digest is computed on request; the whole file is read for it.
    #[default(Bytes::mib(16))]
    pub(super) digest_max: Bytes,
    /// Memory for the blocks of downloads in any order, for each disk, 1MiB to 1TiB.
    #[default(Bytes::mib(128))]
    pub(super) any_order_memory: Bytes,
    /// Bytes of one read for downloads in any order, 64KiB to 64MiB.
    #[default(Bytes::mib(1))]
    pub(super) any_order_read: Bytes,
}

fn time<'de, D: Deserializer<'de>>(given: D) -> Result<Duration, D::Error> {
    week_at_most(&parsed::<D, String>(given)?).map_err(D::Error::custom)
}

fn known(word: &str) -> Result<String, String> {
    bounds(&[word.into()]).map(|_| word.into())
}

fn bounds(words: &[String]) -> Result<Bounds, String> {
    let bounds: Bounds = named(words)?;
    // hyper refuses buffers below 8 KiB.
    for (name, value, least, most) in [
        ("head-max", bounds.head_max, Bytes::kib(8), Bytes::mib(1)),
        ("any-order-read", bounds.any_order_read, Bytes::kib(64), Bytes::mib(64)),
        ("any-order-memory", bounds.any_order_memory, Bytes::mib(1), Bytes::gib(1024)),
    ] {
        if !(least..=most).contains(&value) {
            return Err(format!("{name}={value}: write {least} to {most}"));
        }
    }
    match bounds.loops {
        Some(loops @ (0 | 1025..)) => Err(format!("loops={loops}: write 1 to 1024")),
        _ => Ok(bounds),
    }
}

impl BoundsOption {
    /// # Errors
    /// `Usage`: a name or a value is wrong.
    pub(super) fn bounds(&self) -> Result<Bounds, Fault> {
        bounds(&self.bound).map_err(|why| Fault::usage(format!("--bound {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_that_moved_is_a_name_and_others_are_none() {
        let names = known("colour=1").unwrap_err();
        assert_eq!(names.matches('`').count() / 2 - 1, MOVED.len(), "{names}");
        assert!(MOVED.iter().all(|name| names.contains(&format!("`{name}`"))), "{names}");
    }

    #[test]
    fn values_are_within_their_ranges() {
        for (word, said) in [
            ("head-max=1KiB", "head-max=1KiB: write 8KiB to 1MiB"),
            ("any-order-read=1GiB", "64KiB to 64MiB"),
            ("any-order-memory=1KiB", "1MiB to 1TiB"),
            ("loops=0", "1 to 1024"),
            ("loops=1025", "1 to 1024"),
            ("grace=169h", "a week"),
            ("head-timeout=-1s", "head-timeout=-1s: "),
            ("grace", "NAME=VALUE"),
        ] {
            let why = known(word).unwrap_err();
            assert!(why.contains(said), "{word}: {why}");
        }
        let words = ["head-timeout=2s", "grace=5", "loops=3"].map(String::from);
        let bounds = BoundsOption { bound: words.to_vec() }.bounds().unwrap();
        assert_eq!((bounds.head_timeout, bounds.grace), (Duration::from_secs(2), Duration::from_secs(5)));
        assert_eq!((bounds.loops, bounds.idle_timeout), (Some(3), Duration::from_secs(75)));
    }
}
