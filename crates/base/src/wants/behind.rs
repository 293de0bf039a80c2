//! What follows a miss that no door holds up: the kernel reads its bytes by itself.
//!
//! Its client will want what follows as soon as it has them. So that is requested for it, and the answer goes
//! to nobody.

use crate::wants::{PROGRESS_STEP, SERVE_LOOK_MAX};

/// Bytes to look through behind a miss at `offset`, for how many of them are in memory or on their way: what
/// the kernel reads ahead by itself, and a little more. What lies further is read ahead in its turn.
pub fn looked_at_behind(offset: u64, file_bytes: u64) -> u64 {
    SERVE_LOOK_MAX.min(file_bytes.saturating_sub(offset))
}

/// Where the request begins, and its length; `there` bytes behind `offset` are in memory or on their way.
/// `None` if nothing is missing as far as it is looked.
pub fn behind_a_miss(offset: u64, there: u64, file_bytes: u64) -> Option<(u64, u64)> {
    if there >= looked_at_behind(offset, file_bytes) {
        return None;
    }
    let from = offset.saturating_add(there);
    Some((from, PROGRESS_STEP.min(file_bytes.saturating_sub(from)))).filter(|&(_, len)| len > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wants::PAGE;

    const K: u64 = 1 << 10;

    #[test]
    fn what_follows_the_kernels_window_is_requested() {
        assert_eq!(behind_a_miss(64 * K, 128 * K, 1 << 30), Some((192 * K, 256 * K)));
        assert_eq!(behind_a_miss(64 * K, 128 * K, 200 * K), Some((192 * K, 8 * K)), "to the end of the file");
    }

    #[test]
    fn nothing_is_where_all_is_there_or_the_file_ends() {
        assert_eq!(behind_a_miss(0, 512 * K, 1 << 30), None);
        assert_eq!(behind_a_miss(0, 100 * K, 100 * K), None);
        for (offset, size) in [(0, 0), (u64::MAX, 5), (5, u64::MAX), (u64::MAX, u64::MAX)] {
            for there in [0, PAGE, u64::MAX] {
                let found = behind_a_miss(offset, there, size);
                assert!(found.is_none_or(|(from, len)| from + len <= size), "{offset} {there} {size}");
            }
        }
    }
}
