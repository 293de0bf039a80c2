//! Replacements of functions that the standard library refers to and that not every C library has. A loader
//! that misses a symbol does not start a program with the shim.
//!
//! Hooks do not run the code that calls them: it prints the place of a panic, and drops values at the end of
//! a thread. The replacements are hidden, so only this library uses them. With them a panic prints one line,
//! without a backtrace, and ends the host.

use libc::{c_int, c_long, c_uint};

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {}"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {}"
    };
}

/// Defines a function under such a name, in this library alone.
macro_rules! stand_in {
    ($name:expr => $function:path) => {
        std::arch::global_asm!(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            jump!(),
            sym $function,
        );
    };
}

/// A call that always fails. musl has no names with 64, and glibc before 2.33 lacks the latter two.
extern "C" fn no_file() -> c_long {
    // SAFETY: this thread's own errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}
stand_in!("open64" => no_file);
stand_in!("lseek64" => no_file);
stand_in!("fstat64" => no_file);
stand_in!("stat64" => no_file);

/// A key whose values are never dropped. glibc before 2.34 has the real ones in a library that programs
/// without threads do not load.
extern "C" fn a_key(key: *mut c_uint) -> c_int {
    // SAFETY: the caller's own place for a key. The key is not 0, which the standard library uses for none.
    unsafe { key.write(1) };
    0
}
stand_in!("pthread_key_create" => a_key);

extern "C" fn done() -> c_int {
    0
}
stand_in!("pthread_key_delete" => done);
stand_in!("pthread_setspecific" => done);
