//! Names that the standard library refers to and that not every C library has. Where one is missing, the
//! loader starts no program with us.
//!
//! The code that calls them is not run by us: it prints where a panic was, and drops values at the end of a
//! thread. So stand-ins are here, hidden, and for no one else. With them a panic prints its line, without a
//! list of calls, and ends the host.

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

/// Has a function stand for a name, in this library alone.
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

/// No file is to be had. musl has no names with 64, and glibc before 2.33 not the later two.
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
    // SAFETY: our caller's own place for a key. Not 0, which the standard library takes for none.
    unsafe { key.write(1) };
    0
}
stand_in!("pthread_key_create" => a_key);

extern "C" fn done() -> c_int {
    0
}
stand_in!("pthread_key_delete" => done);
stand_in!("pthread_setspecific" => done);
