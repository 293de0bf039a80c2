//! Reads answered from a buffer that stays with its thread, so that no megabyte is allocated for each.

use std::cell::RefCell;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `with` with `len` bytes of this thread's buffer; what they hold before is unspecified.
pub fn scratch<T>(len: usize, with: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        with(&mut buffer[..len])
    })
}
