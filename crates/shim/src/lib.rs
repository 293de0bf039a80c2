//! libseekless.so, the preload shim: the Libception paper's *Deception* (section 3.2.1).
//!
//! Loaded into a server with `LD_PRELOAD`, it intercepts the libc calls that read files. For each call it
//! asks the kernel whether the bytes are in the page cache. If so, the call goes straight through. If not,
//! the shim asks the daemon (one connection, one frame with the descriptor), waits until the daemon has read
//! the bytes in its own order, and then makes the call. **The original call is always made, and its result
//! and `errno` are returned untouched.** If anything fails, the server gets the same result as without the
//! shim, at the same time.
//!
//! It lives in another program's process. Therefore:
//!
//! - between calls it keeps nothing but a few hundred KiB of plain numbers in static memory: no descriptor,
//!   no thread, no allocation, no table of descriptors (a process may be allowed a billion of them, and may
//!   close any of them at any time);
//! - no panic, no print, no exit; the code that a hook runs has no indexing and no unwrapping, because a
//!   panic would end the host;
//! - the host's C library may be glibc from 2.17 on, or musl;
//! - every wait has an end ([`ask`]), and every failure is followed by a pause in which the shim does nothing
//!   ([`memory`]);
//! - it works before its own constructor has run, inside `dlsym`, in signal handlers, after `fork` and
//!   `vfork`, and lets a cancelled thread unwind through it.
//!
//! One idea a file: [`hooks`] the intercepted functions, [`next`] the originals, [`judge`] what to do about a
//! call, [`ask`] the conversation with the daemon, [`aside`] the numbers of the shim's descriptors,
//! [`filter`] seccomp, [`advice`] access patterns announced by the host, [`reports`] reports of reads,
//! [`memory`] the daemon's settings and devices, [`marks`] residency where the kernel hides it, [`mapping`]
//! the file behind an address, [`config`] the environment, [`host`] errno, clocks and re-entry, [`unwind`]
//! the unwinder, [`stand_ins`] names that not every C library has. `build.rs` says which symbols the library
//! requests from its loader.
//!
//! This crate must not know policy, configuration files, std::fs or an async runtime.
#![allow(unsafe_code)]
// Hardly anything is used without the hooks.
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
// Not in unit tests, whose own program would be hooked.
#[cfg(not(test))]
mod hooks;
mod host;
mod judge;
mod mapping;
mod marks;
mod memory;
mod next;
mod own_read;
mod reports;
mod sending;
// Elsewhere the loader finds these names.
#[cfg(all(not(test), any(target_arch = "x86_64", target_arch = "aarch64")))]
#[macro_use]
mod stand_ins;
#[cfg(all(not(test), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod unwind;

/// Runs when the library is loaded. Hooks that run earlier (from constructors of libraries initialised before
/// it) initialise lazily.
extern "C" fn constructor() {
    next::resolve_all();
    next::resolve_syscall();
    // If it cannot be registered, a forked child waits once for threads that it does not have.
    next::at_fork(forked);
    config::init();
}

unsafe extern "C" fn forked() {
    filter::forked();
}

#[used]
#[cfg(not(test))]
// SAFETY: the dynamic loader calls the entries of this section with (argc, argv, envp), which a function
// without parameters may ignore under the C calling convention.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[cfg(test)]
#[test]
fn the_constructor_is_idempotent() {
    constructor();
    constructor();
}
