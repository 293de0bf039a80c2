//! Settings by name: what `--parameter` of the product and `--with` of the laboratory take.

use std::fmt::Display;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde_json::{Map, Value};

/// The settings that these words give, each NAME=VALUE, over the defaults of `T`. The last of several with
/// one name counts.
///
/// # Errors
/// A word is not NAME=VALUE, has a wrong value, or an unknown name; then the text lists the known ones.
pub fn named<T: DeserializeOwned>(words: &[String]) -> Result<T, String> {
    let mut all = Map::new();
    for word in words {
        let (name, text) = word.split_once('=').ok_or_else(|| format!("{word}: write NAME=VALUE"))?;
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        // Each value is read alone first: an error for all values would not say which one is wrong.
        let one = Map::from_iter([(name.to_string(), value.clone())]);
        serde_json::from_value::<T>(one.into()).map_err(|why| format!("{word}: {why}"))?;
        all.insert(name.to_string(), value);
    }
    serde_json::from_value(all.into()).map_err(|why| why.to_string())
}

/// A value that is read from text, such as the time `50ms`; a number is text without a unit.
///
/// # Errors
/// Those of its parser.
pub fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(given: D) -> Result<T, D::Error> {
    let value = Value::deserialize(given)?;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_base::{Bytes, Nanos};

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
    struct Settings {
        requests_max: u32,
        #[serde(deserialize_with = "parsed")]
        delay: Nanos,
        fresh: bool,
        size: Option<Bytes>,
    }

    fn settings(words: &str) -> Result<Settings, String> {
        named(&words.split(',').filter(|w| !w.is_empty()).map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_last_of_a_name_counts_and_the_rest_is_the_default() {
        let given = settings("requests-max=3,delay=50ms,requests-max=4,size=2MiB").unwrap();
        assert_eq!((given.requests_max, given.delay, given.fresh), (4, Nanos::from_millis(50), false));
        assert_eq!(given.size, Some(Bytes::mib(2)));
        assert_eq!(settings("delay=7.5").unwrap().delay, Nanos::from_millis(7500));
        assert_eq!(settings("").unwrap(), Settings::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, said) in [
            ("fresh", "fresh: write NAME=VALUE"),
            ("fresh=true,nothing=1", "`requests-max`, `delay`, `fresh`, `size`"),
            ("fresh=7", "fresh=7: "),
            ("delay=soon,fresh=true", "delay=soon: "),
            ("requests-max=-1", "requests-max=-1: "),
        ] {
            let why = settings(words).unwrap_err();
            assert!(why.contains(said), "{words}: {why}");
        }
    }
}
