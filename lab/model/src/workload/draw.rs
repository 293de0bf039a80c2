//! Random draws whose values never change.
//!
//! The generator is PCG64 (`rand_pcg::Pcg64`, PCG XSL RR 128/64), whose output sequence is part of its
//! definition. What turns its 64-bit words into numbers is written out here instead of taken from `rand`,
//! because a library may improve its sampling in any release and with it change every catalogue, every
//! session and every recorded result that rests on them. Golden tests hold the first draws.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::workload::splitmix;

/// The increment PCG specifies as its default stream.
const PCG_STREAM: u128 = 0x0a02_bdbf_7bb3_c0a7_ac28_fa16_a64a_bf96;

/// A seeded source of draws.
#[derive(Clone, Debug)]
pub struct Draw {
    generator: Pcg64,
}

impl Draw {
    /// The draws of `seed` for one `purpose` ("catalogue durations", "session arrivals", ...).
    ///
    /// Each purpose has draws of its own, so that asking for more of one thing never shifts another. The
    /// purpose goes into the state by FNV-1a and SplitMix64, not into PCG's stream number: streams that
    /// differ only in their number may be correlated.
    pub fn new(seed: u64, purpose: &str) -> Draw {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in purpose.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let high = splitmix::next(&mut (seed ^ hash));
        let low = splitmix::next(&mut high.wrapping_add(hash));
        Draw { generator: Pcg64::new((u128::from(high) << 64) | u128::from(low), PCG_STREAM) }
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Uniform in 0..`n`; 0 if `n` is 0. Multiply and shift (Lemire 2019) without its rejection step: the
    /// bias is below `n` / 2^64, and one draw always takes exactly one word.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(n)) >> 64) as u64
    }

    /// Exponential with mean 1: the time between two arrivals of a Poisson process of rate 1.
    pub fn exponential(&mut self) -> f64 {
        exponential_of(self.unit())
    }

    /// Puts `items` in a uniformly random order (Fisher-Yates, from the back).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }
}

/// The exponential draw that a uniform one stands for: for draws of which few are needed.
pub(crate) fn exponential_of(unit: f64) -> f64 {
    // `libm`, not the platform's logarithm, which may differ in the last bit between systems.
    -libm::log(1.0 - unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_draws_never_change() {
        let mut d = Draw::new(1, "golden");
        let words: Vec<u64> = (0..4).map(|_| d.word()).collect();
        assert_eq!(words, GOLDEN_WORDS);
        let mut d = Draw::new(1, "golden");
        assert_eq!(d.below(1000), ((u128::from(GOLDEN_WORDS[0]) * 1000) >> 64) as u64);
        assert_eq!(d.unit(), (GOLDEN_WORDS[1] >> 11) as f64 / (1_u64 << 53) as f64);
    }

    const GOLDEN_WORDS: [u64; 4] =
        [3291810317804811526, 3462334382158553318, 649809324028491249, 18436043680594479361];

    #[test]
    fn purposes_and_seeds_are_apart() {
        let first = |seed, purpose| Draw::new(seed, purpose).word();
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }

    #[test]
    fn draws_have_their_theoretical_means() {
        let mut d = Draw::new(7, "means");
        let n = 200_000;
        let unit: f64 = (0..n).map(|_| d.unit()).sum::<f64>() / f64::from(n);
        let exponential: f64 = (0..n).map(|_| d.exponential()).sum::<f64>() / f64::from(n);
        let below: f64 = (0..n).map(|_| d.below(11) as f64).sum::<f64>() / f64::from(n);
        assert!((unit - 0.5).abs() < 0.005, "{unit}");
        assert!((exponential - 1.0).abs() < 0.01, "{exponential}");
        assert!((below - 5.0).abs() < 0.05, "{below}");
        assert_eq!(d.below(0), 0);
    }

    #[test]
    fn shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..1000).collect();
        Draw::new(3, "shuffle").shuffle(&mut items);
        assert_ne!(items[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        items.sort_unstable();
        assert!(items.iter().enumerate().all(|(i, v)| i as u32 == *v));
    }
}
