//! Which prefetch size for which bitrate (\[A\] section 5).
//!
//! A viewer of bitrate `b` whose stream is read in pieces of `p` bytes costs `b/p` seeks a second; all pieces
//! together must fit into the memory for them. For the fewest seeks under that bound, minimise `sum of
//! b_i/p_i` while `sum of p_i` is fixed, which Lagrange's method solves with `p_i` proportional to the square
//! root of `b_i`. Gill and Bathen's rule (AMP, FAST 2007), proportional to the bitrate itself, gives the best
//! hit rate instead; it and fixed factors are here for comparison, as in the paper's section 7.4.
//!
//! As in the paper, one size is kept, for the highest bitrate, and scaled down for the others.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use seekless_base::{Bytes, PAGE_BYTES};
use serde::{Deserialize, Serialize};

/// How the size depends on the bitrate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BitrateRule {
    /// In proportion to the square root of the bitrate: fewest seeks.
    #[default]
    SquareRoot,
    /// In proportion to the bitrate: each piece lasts equally long.
    Linear,
    /// The same size for all.
    Same,
    /// This factor for all bitrates below nine tenths of the highest.
    Lower(f64),
    /// Bitrates (bytes a second) and their factors, by rising bitrate. The first entry that is not exceeded
    /// counts; above the last one the factor is 1. Factors lie within 0 to 1.
    Factors(Vec<(f64, f64)>),
}

impl BitrateRule {
    /// The factor of a stream's size to that of the highest bitrate, more than 0 and at most 1. Both bitrates
    /// are in bytes a second; if either is unusable, the factor is 1.
    pub fn factor(&self, bitrate: f64, highest: f64) -> f64 {
        let known = bitrate.is_finite() && highest.is_finite() && bitrate > 0.0 && highest > 0.0;
        let share = if known { (bitrate / highest).min(1.0) } else { 1.0 };
        let factor = match self {
            BitrateRule::SquareRoot => libm::sqrt(share),
            BitrateRule::Linear => share,
            BitrateRule::Same => 1.0,
            BitrateRule::Lower(factor) if share < 0.9 => *factor,
            BitrateRule::Lower(_) => 1.0,
            BitrateRule::Factors(table) => {
                let found = table.iter().find(|(up_to, _)| known && bitrate <= *up_to);
                found.map_or(1.0, |&(_, factor)| factor)
            }
        };
        if factor.is_finite() { factor.clamp(f64::MIN_POSITIVE, 1.0) } else { 1.0 }
    }

    /// The same with non-finite factors set to 1 and non-finite bitrates left out.
    pub fn normalised(self) -> BitrateRule {
        let factor = |f: f64| if f.is_finite() { f.clamp(0.0, 1.0) } else { 1.0 };
        match self {
            BitrateRule::Lower(f) => BitrateRule::Lower(factor(f)),
            BitrateRule::Factors(table) => {
                let table = table.into_iter().filter(|(up_to, _)| up_to.is_finite());
                BitrateRule::Factors(table.map(|(up_to, f)| (up_to, factor(f))).collect())
            }
            rule => rule,
        }
    }

    /// The size for a stream of `bitrate`, if the highest bitrate has `size`. Whole pages, at least one.
    pub fn size(&self, size: Bytes, bitrate: f64, highest: f64) -> Bytes {
        let pages = (size.0 as f64 * self.factor(bitrate, highest) / PAGE_BYTES as f64 + 0.5) as u64;
        Bytes(pages.max(1).saturating_mul(PAGE_BYTES))
    }
}

impl fmt::Display for BitrateRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BitrateRule::SquareRoot => f.write_str("sqrt"),
            BitrateRule::Linear => f.write_str("linear"),
            BitrateRule::Same => f.write_str("same"),
            BitrateRule::Lower(factor) => write!(f, "{factor}"),
            BitrateRule::Factors(table) => {
                for (i, (up_to, factor)) in table.iter().enumerate() {
                    write!(f, "{}{up_to}={factor}", if i > 0 { "," } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

/// Not a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write sqrt, linear, same, a factor from 0 to 1 for lower bitrates, or BYTES_PER_S=FACTOR,... rising"
)]
pub struct UnknownRule;

impl FromStr for BitrateRule {
    type Err = UnknownRule;

    /// Parses the displayed form; also accepts `square-root`.
    fn from_str(text: &str) -> Result<BitrateRule, UnknownRule> {
        let factor =
            |text: &str| text.trim().parse::<f64>().ok().filter(|f| *f > 0.0 && *f <= 1.0).ok_or(UnknownRule);
        match text.trim() {
            "sqrt" | "square-root" => Ok(BitrateRule::SquareRoot),
            "linear" => Ok(BitrateRule::Linear),
            "same" => Ok(BitrateRule::Same),
            text if text.contains('=') => {
                let mut table: Vec<(f64, f64)> = Vec::new();
                for part in text.split(',') {
                    let (up_to, part) = part.split_once('=').ok_or(UnknownRule)?;
                    let up_to = up_to.trim().parse::<f64>().ok().filter(|b| b.is_finite() && *b > 0.0);
                    let up_to = up_to.ok_or(UnknownRule)?;
                    if table.last().is_some_and(|&(last, _)| last >= up_to) {
                        return Err(UnknownRule);
                    }
                    table.push((up_to, factor(part)?));
                }
                Ok(BitrateRule::Factors(table))
            }
            text => factor(text).map(BitrateRule::Lower),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_papers_mixed_workload() {
        // [A] 7.4: 419 and 2095 kb/s. With 6 MB for HD, SD gets sqrt(1/5) = 0.45 of it, 2.7 MB.
        let (sd, hd) = (419_000.0 / 8.0, 2_095_000.0 / 8.0);
        let rule = BitrateRule::SquareRoot;
        assert!((rule.factor(sd, hd) - 0.4472).abs() < 1e-3);
        assert!((rule.size(Bytes(6_000_000), sd, hd).0 as f64 - 2.7e6).abs() < 3e4);
        assert!((BitrateRule::Linear.factor(sd, hd) - 0.2).abs() < 1e-9);
        assert_eq!(BitrateRule::Same.size(Bytes::mib(6), sd, hd), Bytes::mib(6));
        let table = BitrateRule::Factors([(60_000.0, 0.75)].into());
        assert_eq!((table.factor(sd, hd), table.factor(hd, hd)), (0.75, 1.0));
    }

    #[test]
    fn rules_are_read_as_they_are_shown() {
        for text in ["sqrt", "linear", "same", "0.45", "60000=0.5,200000=0.75"] {
            assert_eq!(alloc::format!("{}", text.parse::<BitrateRule>().unwrap()), text);
        }
        for text in ["", "cube", "0", "1.5", "NaN", "5=2", "9=0.5,5=0.5", "=", "inf=0.5"] {
            assert_eq!(text.parse::<BitrateRule>(), Err(UnknownRule), "{text}");
        }
        let lower = BitrateRule::Lower(0.45);
        assert_eq!((lower.factor(100.0, 500.0), lower.factor(490.0, 500.0)), (0.45, 1.0));
    }

    #[test]
    fn nonsense_rates_give_the_whole_size() {
        for (bitrate, highest) in [(0.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (-1.0, 1.0), (1.0, f64::INFINITY)]
        {
            assert_eq!(BitrateRule::SquareRoot.size(Bytes::mib(2), bitrate, highest), Bytes::mib(2));
        }
    }

    proptest! {
        /// No other sizes of the same sum cause fewer seeks than those of the square-root rule.
        #[test]
        fn the_square_root_is_best(
            rates in proptest::collection::vec(1e4f64..1e7, 2..12),
            moves in proptest::collection::vec((0usize..12, 0usize..12, 0.0f64..0.9), 1..20),
        ) {
            let highest = rates.iter().copied().fold(0.0, f64::max);
            let best: Vec<f64> = rates.iter().map(|&b| BitrateRule::SquareRoot.factor(b, highest)).collect();
            let seeks = |sizes: &[f64]| rates.iter().zip(sizes).map(|(b, p)| b / p).sum::<f64>();
            let mut other = best.clone();
            for (from, to, part) in moves {
                let (from, to) = (from % rates.len(), to % rates.len());
                let moved = other[from] * part;
                other[from] -= moved;
                other[to] += moved;
            }
            prop_assert!(seeks(&best) <= seeks(&other) * (1.0 + 1e-9));
        }
    }
}
