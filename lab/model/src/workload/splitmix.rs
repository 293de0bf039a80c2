//! SplitMix64 (Steele, Lea and Flood 2014): a generator with one word of state, and its finaliser as a hash
//! of a word.

/// 2^64 divided by the golden ratio: what the state grows by each step.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser, one to one: every bit in flips every bit out with probability about a half.
pub const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// One step: the next word of the sequence that began with `state` as its seed.
pub const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN);
    mix(*state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_published_code() {
        let mut state = 1_234_567;
        let words: [u64; 3] = std::array::from_fn(|_| next(&mut state));
        assert_eq!(words, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
