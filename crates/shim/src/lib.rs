//! libseekless.so, the preload shim: the Libception paper's *Deception* (section 3.2.1).
//!
//! Loaded into a server with `LD_PRELOAD`, it stands in front of the libc calls that read files. For each it asks the
//! kernel whether the bytes are in the page cache. They are: the call goes straight through. They are not: it tells the
//! daemon (one connection, one frame, the descriptor beside it), waits until the daemon has read them in its own good
//! order, and then makes the call. **The original call is always made, and its result and `errno` are returned
//! untouched.** Whatever goes wrong, the server gets what it would have got without us, when it would have got it.
//!
//! It lives in another program's process, hence:
//!
//! - nothing is kept between calls but a few hundred KiB of plain numbers in static memory: no descriptor, no thread, no
//!   allocation, no table of descriptors (a process may be allowed a billion of them, and may close any of them at any
//!   time);
//! - no panic, no print, no exit; the code a hook runs has no indexing and no unwrapping. A panic would end the
//!   host: nothing above us catches one;
//! - the host's C library may be glibc from 2.17 on, or musl;
//! - every wait has an end ([`ask`]), every failure is followed by a pause in which we do nothing at all ([`memory`]);
//! - it works before its own constructor has run, inside `dlsym`, in signal handlers, after `fork` and `vfork`, and lets a
//!   cancelled thread unwind through it.
//!
//! One idea a file: [`hooks`] what is intercepted, [`next`] the originals, [`judge`] what to do about a call, [`ask`] the
//! conversation, [`aside`] the numbers of our descriptors, [`filter`] seccomp, [`advice`] what the host said of how it reads a
//! file, [`reports`] telling what was read, [`memory`] what the daemon said about settings and devices, [`marks`] about residency where the kernel
//! will not tell, [`mapping`] which file is behind an address, [`config`] the environment, [`host`] errno, clocks and
//! re-entry, [`unwind`] the unwinder, [`stand_ins`] names that not every C library has. `build.rs` says which
//! symbols the library asks its loader for.
//!
//! Must not know: policy, configuration files, std::fs, an async runtime.
#![allow(unsafe_code)]
// Without the hooks hardly anything is used.
#![cfg_attr(test, allow(dead_code))]

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "the shim knows 64-bit Linux only: offsets and the splitting of preadv's are those of 64-bit libc"
);

mod advice;
mod aside;
mod ask;
mod config;
mod filter;
// Not in the unit tests: their own program would be hooked.
#[cfg(not(test))]
mod hooks;
mod host;
mod judge;
mod mapping;
mod marks;
mod memory;
mod next;
mod reports;
mod sending;
// Elsewhere the loader finds these names.
#[cfg(all(not(test), any(target_arch = "x86_64", target_arch = "aarch64")))]
#[macro_use]
mod stand_ins;
#[cfg(all(not(test), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod unwind;

/// Runs when the library is loaded. Hooks called earlier (from constructors of libraries initialised before us) find
/// everything lazily.
extern "C" fn constructor() {
    next::resolve_all();
    next::resolve_syscall();
    // Where it cannot be registered, a forked child waits once for threads that it has not.
    next::at_fork(forked);
    config::init();
}

unsafe extern "C" fn forked() {
    filter::forked();
}

#[used]
#[cfg(not(test))]
// SAFETY: the dynamic loader calls what stands in this section with (argc, argv, envp), which a function without
// parameters may ignore under the C calling convention.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[cfg(test)]
#[test]
fn the_constructor_is_idempotent() {
    constructor();
    constructor();
}
