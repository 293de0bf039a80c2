//! The unwinder, loaded when it is needed.
//!
//! The standard library is compiled with unwinding, and so refers to functions of `libgcc_s.so.1`. Every
//! process with the shim would load that library too, for each program that a shell starts, and it takes more
//! than the whole shim. The shim never panics, so only `pthread_cancel` unwinds through it, and for that libc
//! has loaded the library itself.
//!
//! So this module defines the names that the standard library refers to. They are hidden, so that nothing
//! else uses them. Each jumps to a function that loads the library, or finds it loaded, and calls on. The
//! same library does the unwinding, so both agree on the layout of a context.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{RTLD_NOW, c_void};

/// All of them take at most three words, and ignore other registers.
type Unwinder = unsafe extern "C-unwind" fn(usize, usize, usize) -> usize;

/// The library's function of this name, cached in `at`.
fn function(at: &AtomicPtr<c_void>, name: &CStr) -> Unwinder {
    let mut found = at.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: C strings; the library has no constructor that could re-enter the shim.
        found = unsafe {
            let library = libc::dlopen(c"libgcc_s.so.1".as_ptr(), RTLD_NOW);
            if library.is_null() { library } else { libc::dlsym(library, name.as_ptr()) }
        };
        if found.is_null() {
            // A thread that unwinds cannot go on without it. SAFETY: ends the process.
            unsafe { libc::abort() };
        }
        at.store(found, Ordering::Relaxed);
    }
    // SAFETY: the function of this name, whose interface is that of the Itanium C++ ABI.
    unsafe { std::mem::transmute::<*mut c_void, Unwinder>(found) }
}

macro_rules! found_when_needed {
    ($($name:ident)+) => {$(
        #[allow(non_snake_case)]
        unsafe extern "C-unwind" fn $name(a: usize, b: usize, c: usize) -> usize {
            static AT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            const NAME: &CStr = crate::next::c_name(concat!(stringify!($name), "\0").as_bytes());
            // SAFETY: the caller's own arguments.
            unsafe { function(&AT, NAME)(a, b, c) }
        }

        stand_in!(stringify!($name) => $name);
    )+};
}

found_when_needed! {
    _Unwind_Backtrace _Unwind_DeleteException _Unwind_GetCFA _Unwind_GetDataRelBase _Unwind_GetGR _Unwind_GetIP
    _Unwind_GetIPInfo _Unwind_GetLanguageSpecificData _Unwind_GetRegionStart _Unwind_GetTextRelBase
    _Unwind_RaiseException _Unwind_Resume _Unwind_SetGR _Unwind_SetIP
}
