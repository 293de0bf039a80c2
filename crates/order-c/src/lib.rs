//! The C interface of `seekless-order`. `include/seekless_order.h` documents it for its users.
//!
//! A handle is a set, the strings of the item given last, and the process that made it: a child made by
//! `fork` has no thread that reads ahead, so it is refused instead of waiting for one. A panic ends the call
//! with an error and never crosses into C.
//!
//! Must not know: anything but the library `seekless-order`.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::{process, ptr};

use order::{By, How, Options, ReadBy, Set};

/// Raised when a function or a field changes its meaning.
const ABI: c_int = 1;

const END: c_int = 0;
const ITEM: c_int = 1;
const FAILURE: c_int = 2;
const FULL: c_int = 1;
const DONE: c_int = 0;
const E_USAGE: c_int = -1;
const E_FORKED: c_int = -2;
const E_SYSTEM: c_int = -3;

/// A set, and the last item given to its caller.
pub struct SeeklessOrder {
    options: Options,
    /// Made with the first path.
    set: Option<Set>,
    path: CString,
    reason: CString,
    read_by: ReadBy,
    process: u32,
}

/// `struct seekless_order_item`.
#[repr(C)]
pub struct SeeklessOrderItem {
    path: *const c_char,
    reason: *const c_char,
    offset: u64,
    length: u64,
    how: c_int,
    last: c_int,
}

/// The version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn seekless_order_abi() -> c_int {
    ABI
}

/// A handle with the default options.
#[unsafe(no_mangle)]
pub extern "C" fn seekless_order_new() -> *mut SeeklessOrder {
    let (path, reason) = (CString::default(), CString::default());
    let options = Options::default();
    let (read_by, process) = (ReadBy::Nobody, process::id());
    Box::into_raw(Box::new(SeeklessOrder { options, set: None, path, reason, read_by, process }))
}

/// Sets an option before the first path is added.
///
/// # Safety
/// `handle` is null or came from [`seekless_order_new`], was not freed, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekless_order_set(handle: *mut SeeklessOrder, option: c_int, value: u64) -> c_int {
    // SAFETY: the caller's promise is this function's.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return E_USAGE };
    if handle.set.is_some() {
        return E_USAGE;
    }
    let options = &mut handle.options;
    match (option, value) {
        (1, window) => options.window = window,
        (2, range_max) => options.range_max = range_max,
        (3, 0) => options.by = By::Address,
        (3, 1) => options.by = By::Inode,
        (3, 2) => options.by = By::Listed,
        (4, 0 | 1) => options.folders = value == 1,
        (6, 0 | 1) => options.daemon = value == 1,
        (5, 1..=10_000_000) => options.batch = u32::try_from(value).unwrap_or(u32::MAX),
        _ => return E_USAGE,
    }
    DONE
}

/// Adds a path.
///
/// # Safety
/// As [`seekless_order_set`]; `path` is null or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekless_order_add(handle: *mut SeeklessOrder, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise is this function's.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return E_USAGE };
    if path.is_null() {
        return E_USAGE;
    }
    // SAFETY: not null, and the caller promises a string.
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    guarded(handle, |handle| {
        let Ok(set) = handle.set() else { return E_SYSTEM };
        set.add(path);
        if set.is_full() { FULL } else { DONE }
    })
}

/// The next item.
///
/// # Safety
/// As [`seekless_order_set`]; `item` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekless_order_next(
    handle: *mut SeeklessOrder,
    item: *mut SeeklessOrderItem,
) -> c_int {
    // SAFETY: the caller's promise is this function's.
    let (Some(handle), false) = (unsafe { handle.as_mut() }, item.is_null()) else { return E_USAGE };
    let (mut offset, mut length, mut how, mut last) = (0, 0, 0, 0);
    let status = guarded(handle, |handle| {
        let Ok(set) = handle.set() else { return E_SYSTEM };
        let next = set.next();
        handle.read_by = next.as_ref().and_then(|n| Some(n.as_ref().ok()?.read_by)).unwrap_or_default();
        match next {
            None => END,
            Some(Ok(next)) => {
                (offset, length, last) = (next.offset, next.length, c_int::from(next.last));
                how = match next.how {
                    How::Address => 0,
                    How::Inode => 1,
                    How::Listed => 2,
                };
                handle.path = string(next.path.into_os_string().into_vec());
                ITEM
            }
            Some(Err(failure)) => {
                last = 1;
                handle.path = string(failure.path.into_os_string().into_vec());
                handle.reason = string(failure.reason.into_bytes());
                FAILURE
            }
        }
    });
    let path = if status > END { handle.path.as_ptr() } else { ptr::null() };
    let reason = if status == FAILURE { handle.reason.as_ptr() } else { ptr::null() };
    // SAFETY: not null, and the caller promises that it may be written; `write` does not read the old value.
    unsafe { item.write(SeeklessOrderItem { path, reason, offset, length, how, last }) };
    status
}

/// `address`, `inode` or `as listed`; null for other numbers.
#[unsafe(no_mangle)]
pub extern "C" fn seekless_order_how(how: c_int) -> *const c_char {
    let name = match how {
        0 => c"address",
        1 => c"inode",
        2 => c"as listed",
        _ => return ptr::null(),
    };
    name.as_ptr()
}

/// Which process read the bytes of the last item: `nobody`, `itself` or `daemon`; null for a null handle.
///
/// # Safety
/// As [`seekless_order_set`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekless_order_read_by(handle: *const SeeklessOrder) -> *const c_char {
    // SAFETY: the caller's promise is this function's.
    let Some(handle) = (unsafe { handle.as_ref() }) else { return ptr::null() };
    let name = match handle.read_by {
        ReadBy::Nobody => c"nobody",
        ReadBy::Itself => c"itself",
        ReadBy::Daemon => c"daemon",
    };
    name.as_ptr()
}

/// Frees a handle and ends its reading ahead.
///
/// # Safety
/// As [`seekless_order_set`]; the handle and its strings are not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekless_order_free(handle: *mut SeeklessOrder) {
    if handle.is_null() {
        return;
    }
    // SAFETY: it came from `Box::into_raw` in `seekless_order_new`, and this is its only end.
    let mut handle = unsafe { Box::from_raw(handle) };
    if handle.process != process::id() {
        // The thread that would have to be joined is in another process.
        std::mem::forget(handle.set.take());
    }
    let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
}

impl SeeklessOrder {
    fn set(&mut self) -> std::io::Result<&mut Set> {
        if self.set.is_none() {
            self.set = Some(Set::new(&self.options)?);
        }
        self.set.as_mut().ok_or_else(|| std::io::ErrorKind::OutOfMemory.into())
    }
}

/// Runs a call in the process that made the handle; a panic becomes an error of the system.
fn guarded(handle: &mut SeeklessOrder, call: impl FnOnce(&mut SeeklessOrder) -> c_int) -> c_int {
    if handle.process != process::id() {
        return E_FORKED;
    }
    catch_unwind(AssertUnwindSafe(|| call(handle))).unwrap_or(E_SYSTEM)
}

/// A string for C. Paths that were added as C strings, and those below folders, hold no zero byte.
fn string(mut bytes: Vec<u8>) -> CString {
    bytes.retain(|byte| *byte != 0);
    CString::new(bytes).unwrap_or_default()
}
