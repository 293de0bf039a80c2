//! The boundary between the parts of a multipart answer.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::Instant;

use rustls::crypto::SecureRandom;

/// The random number in the boundary of a multipart answer. If it were predictable, a user who may write into
/// a file could place it there, and clients that search for it would end the part early.
pub(super) fn boundary() -> u128 {
    /// The random source of TLS keys.
    static RANDOM: LazyLock<&dyn SecureRandom> =
        LazyLock::new(|| rustls::crypto::ring::default_provider().secure_random);
    let mut bytes = [0; 16];
    match RANDOM.fill(&mut bytes) {
        Ok(()) => u128::from_ne_bytes(bytes),
        // The system gives no random numbers. The standard library's hashes are seeded with earlier ones.
        Err(_) => {
            let half = || u128::from(RandomState::new().hash_one(Instant::now()));
            half() << 64 | half()
        }
    }
}
