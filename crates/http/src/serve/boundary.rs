//! What stands between the parts of an answer.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::Instant;

use rustls::crypto::SecureRandom;

/// What makes the boundary of an answer in parts: a user who can write into a file and could foresee it would
/// choose where readers that search for it see the end of a part.
pub(super) fn boundary() -> u128 {
    /// The source that TLS draws its keys from.
    static RANDOM: LazyLock<&dyn SecureRandom> =
        LazyLock::new(|| rustls::crypto::ring::default_provider().secure_random);
    let mut bytes = [0; 16];
    match RANDOM.fill(&mut bytes) {
        Ok(()) => u128::from_ne_bytes(bytes),
        // The system gives no random numbers: the standard library's hashes are seeded with what it gave
        // before.
        Err(_) => {
            let half = || u128::from(RandomState::new().hash_one(Instant::now()));
            half() << 64 | half()
        }
    }
}
