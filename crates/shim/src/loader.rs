//! The loader's functions, wherever this C library has them.
//!
//! glibc from 2.34 on and musl have `dlsym` in the C library itself. Older glibc has it in `libdl.so.2`, which a
//! program may not have loaded. To name that library as needed would have it loaded into every program on every
//! system, and a container may lack it. So the reference is weak: it stays empty where nothing has the function.
//! Then the C library is asked for `libdl.so.2` by functions of its own, which it has had for as long.
//!
//! Where nothing helps, no original is found, and each is replaced by its system call ([`next`](crate::next)).

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_void};

type Symbol = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Library = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Weak references, which the loader fills in. Each is 0 where nothing has the name.
#[repr(C)]
struct Weak {
    dlsym: Option<Symbol>,
    /// `dlopen` and `dlsym` of glibc before 2.34, for itself.
    own_dlopen: Option<Library>,
    own_dlsym: Option<Symbol>,
}

core::arch::global_asm!(
    ".weak dlsym",
    ".weak __libc_dlopen_mode",
    ".weak __libc_dlsym",
    ".pushsection .data.rel.ro.seekless_weak,\"aw\",@progbits",
    ".globl seekless_weak",
    ".hidden seekless_weak",
    ".type seekless_weak,@object",
    ".size seekless_weak,24",
    ".balign 8",
    "seekless_weak:",
    ".quad dlsym",
    ".quad __libc_dlopen_mode",
    ".quad __libc_dlsym",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "seekless_weak"]
    safe static WEAK: Weak;
}

/// What glibc's own `dlopen` wants among its flags (`__RTLD_DLOPEN`).
const BY_PROGRAM: c_int = c_int::MIN;

/// Stands for a function that is not to be had: an address nothing is at.
const ABSENT: *mut c_void = core::ptr::without_provenance_mut(1);

/// Where `handle` has a name. Null: nowhere, or the loader cannot be asked.
///
/// # Safety
/// As of `dlsym`.
pub(crate) unsafe fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    match WEAK.dlsym.or_else(of_libdl) {
        // SAFETY: our caller's own arguments. It is found by the address that it returns to which library asks for the
        // next definition (`RTLD_NEXT`): one in this library, called straight or not.
        Some(dlsym) => unsafe { dlsym(handle, name.as_ptr()) },
        None => core::ptr::null_mut(),
    }
}

/// `dlsym` of a `libdl.so.2` that is loaded for it.
#[cold]
fn of_libdl() -> Option<Symbol> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let mut found = FOUND.load(Ordering::Relaxed);
    if found.is_null() {
        let library = own_library(c"libdl.so.2");
        found = match WEAK.own_dlsym {
            // SAFETY: a library that is loaded, and stays.
            Some(dlsym) if !library.is_null() => unsafe { dlsym(library, c"dlsym".as_ptr()) },
            _ => core::ptr::null_mut(),
        };
        found = if found.is_null() { ABSENT } else { found };
        FOUND.store(found, Ordering::Relaxed);
    }
    // SAFETY: the function of this name.
    (found != ABSENT).then(|| unsafe { core::mem::transmute::<*mut c_void, Symbol>(found) })
}

fn own_library(name: &CStr) -> *mut c_void {
    match WEAK.own_dlopen {
        // SAFETY: a C string.
        Some(dlopen) => unsafe { dlopen(name.as_ptr(), libc::RTLD_NOW | BY_PROGRAM) },
        None => core::ptr::null_mut(),
    }
}

/// Loads a library, or finds it loaded. Null: it is not to be had.
pub(crate) fn library(name: &CStr) -> *mut c_void {
    // SAFETY: a C string and the special handle.
    let dlopen = unsafe { symbol(libc::RTLD_DEFAULT, c"dlopen") };
    if dlopen.is_null() {
        return own_library(name);
    }
    // SAFETY: the function of this name, and a C string.
    unsafe { core::mem::transmute::<*mut c_void, Library>(dlopen)(name.as_ptr(), libc::RTLD_NOW) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_or_not() {
        // SAFETY: C strings and the special handle.
        let find = |name| unsafe { symbol(libc::RTLD_DEFAULT, name) };
        assert!(!find(c"read").is_null() && find(c"no_such_name").is_null());
        let libc = library(c"libc.so.6");
        // SAFETY: as above, and a library that is loaded.
        assert_eq!(unsafe { symbol(libc, c"read") }, find(c"read"));
        assert!(library(c"no_such_library.so").is_null());
    }
}
