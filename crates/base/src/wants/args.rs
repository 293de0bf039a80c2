//! What the arguments of calls name, where that is not plain.

use crate::wants::PAGE;

/// A length that reaches to the end of the file, however long it is.
pub const TO_END: u64 = u64::MAX;

/// The bytes that `posix_fadvise` names: 0 means to the end of the file, and the kernel refuses a negative
/// number.
pub const fn advised(len: i64) -> u64 {
    match len {
        0 => TO_END,
        1.. => len.cast_unsigned(),
        _ => 0,
    }
}

/// Whether an address, or the offset of a mapping, begins a page. `mmap` and `madvise` refuse any other, and
/// then they want nothing.
pub const fn is_page_aligned(at: u64) -> bool {
    at.is_multiple_of(PAGE)
}

/// Offset in its file and length of what `len` bytes at `address` name of a mapping `[start, end)` that
/// begins at `offset` of its file. Cut at the end of the mapping; `None` where the address lies outside.
pub fn mapped(address: u64, len: u64, start: u64, end: u64, offset: u64) -> Option<(u64, u64)> {
    let into = address.checked_sub(start)?;
    let len = len.min(end.checked_sub(address)?);
    Some((offset.checked_add(into)?, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_of_length_zero_reaches_to_the_end() {
        assert_eq!([advised(0), advised(7), advised(-1), advised(i64::MIN)], [u64::MAX, 7, 0, 0]);
        assert_eq!(advised(i64::MAX), i64::MAX as u64);
    }

    #[test]
    fn what_a_mapping_names_ends_with_it() {
        assert_eq!(mapped(0x5000, 0x1_0000, 0x4000, 0x8000, 0x2000), Some((0x3000, 0x3000)));
        assert_eq!(mapped(0x4000, 1, 0x4000, 0x8000, 0), Some((0, 1)));
        for (address, offset) in [(0x3fff, 0), (0x8001, 0), (0x5000, u64::MAX)] {
            assert_eq!(mapped(address, 1, 0x4000, 0x8000, offset), None, "{address:x}");
        }
        assert!(is_page_aligned(0) && is_page_aligned(PAGE) && !is_page_aligned(PAGE - 1));
    }
}
