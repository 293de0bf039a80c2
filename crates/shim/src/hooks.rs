//! The intercepted functions. Each hook checks first ([`before`]), makes the original call, and reports it if
//! requested ([`After::returned`](crate::judge::After::returned)).
//!
//! These functions, with the C library's names and types, are the only symbols that the library exports.
//! docs/SHIM.md lists what is not intercepted, and why.
#![allow(unreachable_pub)] // The dynamic linker finds them by name.
#![allow(clippy::missing_safety_doc)] // The contract of each is that of the C function it intercepts.

use libc::{FILE, c_int, c_long, c_uint, c_ulong, c_void, iovec, off_t, size_t, ssize_t};
use seekless_base::wants::{PAGE, advised, is_page_aligned};
use seekless_wire::Call;

use crate::judge::{After, Length, Moved, Place, before, before_mapped, says, says_of_mapping};
use crate::sending::Sending;
use crate::{aside, config, filter, host, next};

/// Exports hooks that call `before` with a place and a length computed from their own arguments.
macro_rules! hooks {
    ($($(#[$doc:meta])* $call:ident: fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty,
       $fd:expr, $place:expr, $length:expr $(, if $when:expr)?;)+) => {$(
        $(#[$doc])*
        // SAFETY: the name is libc's, the type is libc's; to intercept it is the purpose of this library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            if true $(&& $when)? {
                let after = before(Call::$call, $fd, $place, $length);
                // SAFETY: the caller's own arguments.
                let result = unsafe { next::$name($($arg),*) };
                after.returned(result.bytes());
                result
            } else {
                // SAFETY: the caller's own arguments.
                unsafe { next::$name($($arg),*) }
            }
        }
    )+};
}

fn bytes(count: size_t) -> Length {
    Length::Bytes(count as u64)
}

/// The bytes that a `posix_fadvise` covers.
fn advice_bytes(length: off_t) -> Length {
    Length::Bytes(advised(length))
}

/// In `preadv2`, -1 means the descriptor's own position.
fn preadv2_place(offset: off_t) -> Place {
    if offset == -1 { Place::Cursor } else { Place::At(offset) }
}

/// Whether this `mmap` reads a file before it returns.
fn populates(flags: c_int, offset: off_t) -> bool {
    flags & (libc::MAP_POPULATE | libc::MAP_ANONYMOUS) == libc::MAP_POPULATE
        && is_page_aligned(offset.cast_unsigned())
}

hooks! {
    /// `read(2)`.
    Read: fn read(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t, fd, Place::Cursor, bytes(count);
    /// Name of `read` in older threading libraries.
    Read: fn __read(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t, fd, Place::Cursor, bytes(count);
    /// `read`, fortified.
    Read: fn __read_chk(fd: c_int, buf: *mut c_void, count: size_t, room: size_t) -> ssize_t,
        fd, Place::Cursor, bytes(count), if count <= room;
    /// `pread(2)`.
    Pread: fn pread(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t,
        fd, Place::At(offset), bytes(count);
    /// `pread`, its 64-bit name.
    Pread: fn pread64(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t,
        fd, Place::At(offset), bytes(count);
    /// Name of `pread` in older threading libraries.
    Pread: fn __pread64(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t,
        fd, Place::At(offset), bytes(count);
    /// `pread`, fortified.
    Pread: fn __pread_chk(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t, room: size_t) -> ssize_t,
        fd, Place::At(offset), bytes(count), if count <= room;
    /// `pread64`, fortified.
    Pread: fn __pread64_chk(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t, room: size_t) -> ssize_t,
        fd, Place::At(offset), bytes(count), if count <= room;
    /// `readv(2)`.
    Readv: fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t,
        fd, Place::Cursor, Length::Vectors(iov, count);
    /// `preadv(2)`.
    Preadv: fn preadv(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t,
        fd, Place::At(offset), Length::Vectors(iov, count);
    /// `preadv`, its 64-bit name.
    Preadv: fn preadv64(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t,
        fd, Place::At(offset), Length::Vectors(iov, count);
    /// `preadv2(2)`. With `RWF_NOWAIT` the caller does not want to wait.
    Preadv2: fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
        fd, preadv2_place(offset), Length::Vectors(iov, count), if flags & libc::RWF_NOWAIT == 0;
    /// `preadv2`, its 64-bit name.
    Preadv2: fn preadv64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
        fd, preadv2_place(offset), Length::Vectors(iov, count), if flags & libc::RWF_NOWAIT == 0;
    /// `splice(2)`. `fstat` excludes a pipe as the source.
    Splice: fn splice(fd: c_int, at: *mut off_t, out: c_int, out_at: *mut off_t, count: size_t, flags: c_uint)
        -> ssize_t, fd, Place::Pointer(at), bytes(count);
    /// `copy_file_range(2)`.
    CopyFileRange: fn copy_file_range(fd: c_int, at: *mut off_t, out: c_int, out_at: *mut off_t, count: size_t,
        flags: c_uint) -> ssize_t, fd, Place::Pointer(at), bytes(count);
    /// `mmap(2)`. It reads, and waits, only with `MAP_POPULATE`.
    Mmap: fn mmap(addr: *mut c_void, length: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t)
        -> *mut c_void, fd, Place::At(offset), bytes(length),
        if populates(flags, offset);
    /// `mmap`, its 64-bit name.
    Mmap: fn mmap64(addr: *mut c_void, length: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t)
        -> *mut c_void, fd, Place::At(offset), bytes(length),
        if populates(flags, offset);
    /// `readahead(2)`.
    Readahead: fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t,
        fd, Place::At(offset), bytes(count);
}

/// Exports the names of `sendfile`. If a daemon follows streams, a call for a whole file is made in parts:
/// into a blocking socket the kernel would send all of it in one call, without any report of progress. The
/// result is one that a single call could return: the bytes sent until the socket took no more, the file
/// ended, or an error occurred, which the host's next call meets again.
macro_rules! sendfile_hooks {
    ($($(#[$doc:meta])* fn $name:ident;)+) => {$(
        $(#[$doc])*
        // SAFETY: as for the hooks above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(out: c_int, fd: c_int, at: *mut off_t, count: size_t) -> ssize_t {
            let mut plan = Sending::of(count);
            loop {
                let after = before(Call::Sendfile, fd, Place::Pointer(at), bytes(plan.looked_at()));
                let part = plan.part(matches!(after, After::Report(_)));
                // SAFETY: the caller's own arguments, or a part of the bytes that they cover.
                let send = || unsafe { next::$name(out, fd, at, part) };
                let result = if plan.has_sent() { host::with_errno_kept(send) } else { send() };
                after.returned(result.bytes());
                if let Some(result) = plan.ended(part, result) {
                    return result;
                }
            }
        }
    )+};
}

sendfile_hooks! {
    /// `sendfile(2)`.
    fn sendfile;
    /// `sendfile`, its 64-bit name.
    fn sendfile64;
}

/// Whether an advice announces random reads (`true`) or withdraws that (`false`). The numbers are those of
/// `posix_fadvise`, `posix_madvise` and `madvise`.
fn said_random(advice: c_int) -> Option<bool> {
    const _: () = assert!(libc::POSIX_FADV_RANDOM == libc::MADV_RANDOM);
    match advice {
        libc::MADV_RANDOM => Some(true),
        libc::MADV_NORMAL | libc::MADV_SEQUENTIAL => Some(false),
        _ => None,
    }
}

/// Exports the names of `posix_fadvise`: `WILLNEED`, and the access pattern.
macro_rules! fadvise_hooks {
    ($($(#[$doc:meta])* fn $name:ident;)+) => {$(
        $(#[$doc])*
        // SAFETY: as for the hooks above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int {
            let after = match advice {
                libc::POSIX_FADV_WILLNEED => before(Call::Fadvise, fd, Place::At(offset), advice_bytes(length)),
                _ => After::Nothing,
            };
            if let Some(random) = said_random(advice) {
                says(fd, random);
            }
            // SAFETY: the caller's own arguments.
            let result = unsafe { next::$name(fd, offset, length, advice) };
            after.returned(result.bytes());
            result
        }
    )+};
}

fadvise_hooks! {
    /// `posix_fadvise(2)`.
    fn posix_fadvise;
    /// `posix_fadvise`, its 64-bit name.
    fn posix_fadvise64;
}

/// Exports the names of `close`: the shim must not get the number that a host is about to free.
macro_rules! close_hooks {
    ($($(#[$doc:meta])* fn $name:ident;)+) => {$(
        $(#[$doc])*
        // SAFETY: as for the hooks above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int) -> c_int {
            if aside::is_standard(fd) && config::enabled() {
                aside::before_closing();
            }
            // SAFETY: the caller's own argument.
            unsafe { next::close(fd) }
        }
    )+};
}

close_hooks! {
    /// `close(2)`.
    fn close;
    /// Name of `close` in older threading libraries.
    fn __close;
}

/// `prctl(2)`, which installs filters of system calls. It is variadic; all its arguments come in registers,
/// and the kernel ignores those that an option does not take.
// SAFETY: as for the hooks above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    filter::before_prctl(option);
    // SAFETY: the caller's own arguments.
    unsafe { next::prctl(option, a, b, c, d) }
}

/// Called after a failed system call that [`syscall`] made itself.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
extern "C" fn failed(errno: c_int) -> c_long {
    // SAFETY: this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// `syscall(2)`, which installs filters of system calls. It leaves the stack and every argument unchanged and
/// jumps, because a `clone` made by it continues in the child with another stack.
// SAFETY: as for the hooks above. Only `seccomp` (317) and `prctl` (157) with PR_SET_SECCOMP (22) are
// examined, with all registers that hold arguments saved; on entry the stack is 8 bytes off its alignment.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        "cmp rdi, {seccomp}",
        "je 2f",
        "cmp rdi, {prctl}",
        "jne 3f",
        "2:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {look}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "3:",
        "mov rax, qword ptr [rip + {next}]",
        "cmp rax, 1",
        "jbe 4f",
        "jmp rax",
        // As in the C library.
        "4:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, qword ptr [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 5f",
        "ret",
        "5:",
        "mov edi, eax",
        "neg edi",
        "jmp {failed}",
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        look = sym filter::before_syscall,
        next = sym next::SYSCALL,
        failed = sym failed,
    )
}

/// As above.
// SAFETY: as above; every argument comes in a register.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        "cmp x0, #{seccomp}",
        "b.eq 2f",
        "cmp x0, #{prctl}",
        "b.ne 3f",
        "2:",
        "stp x29, x30, [sp, #-80]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "str x6, [sp, #64]",
        "bl {look}",
        "ldr x6, [sp, #64]",
        "ldp x4, x5, [sp, #48]",
        "ldp x2, x3, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #80",
        "3:",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "cmp x16, #1",
        "b.ls 4f",
        "br x16",
        "4:",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc #0",
        "cmn x0, #4095",
        "b.cs 5f",
        "ret",
        "5:",
        "neg w0, w0",
        "b {failed}",
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        look = sym filter::before_syscall,
        next = sym next::SYSCALL,
        failed = sym failed,
    )
}

/// `madvise(2)`: `WILLNEED`, `POPULATE_READ` (which waits), and the access pattern.
// SAFETY: as for the hooks above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn madvise(addr: *mut c_void, length: size_t, advice: c_int) -> c_int {
    match advice {
        _ if !is_page_aligned(addr.addr() as u64) => {}
        libc::MADV_WILLNEED => before_mapped(Call::Madvise, addr.addr(), length),
        libc::MADV_POPULATE_READ => before_mapped(Call::Mmap, addr.addr(), length),
        _ => {
            if let Some(random) = said_random(advice) {
                says_of_mapping(addr.addr(), length, random);
            }
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next::madvise(addr, length, advice) }
}

/// `posix_madvise(3)`: `WILLNEED`, and the access pattern.
// SAFETY: as for the hooks above.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_madvise(addr: *mut c_void, length: size_t, advice: c_int) -> c_int {
    if is_page_aligned(addr.addr() as u64) {
        if advice == libc::POSIX_MADV_WILLNEED {
            before_mapped(Call::Madvise, addr.addr(), length);
        } else if let Some(random) = said_random(advice) {
            says_of_mapping(addr.addr(), length, random);
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next::posix_madvise(addr, length, advice) }
}

/// Called before a read of a stdio stream (`fread`). Its file is read from the descriptor's position on; the
/// buffer may hold some of the bytes. Less than a page, which is glibc's buffer, is ignored, because most
/// such calls read nothing.
fn before_stream(size: size_t, count: size_t, stream: *mut FILE) -> After {
    let wanted = size.saturating_mul(count);
    if (wanted as u64) < PAGE || stream.is_null() {
        return After::Nothing;
    }
    // SAFETY: the caller's own stream. A stream without a descriptor has -1.
    let fd = host::with_errno_kept(|| unsafe { libc::fileno(stream) });
    before(Call::Read, fd, Place::Cursor, bytes(wanted))
}

/// Exports hooks of functions that read items of a stdio stream.
macro_rules! stream_hooks {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*), $size:ident, $count:ident, $stream:ident;)+) => {$(
        $(#[$doc])*
        // SAFETY: as for the hooks above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> size_t {
            let after = before_stream($size, $count, $stream);
            // SAFETY: the caller's own arguments.
            let items = unsafe { next::$name($($arg),*) };
            after.returned(items.saturating_mul($size) as u64);
            items
        }
    )+};
}

stream_hooks! {
    /// `fread(3)`.
    fn fread(buf: *mut c_void, size: size_t, count: size_t, stream: *mut FILE), size, count, stream;
    /// `fread_unlocked(3)`, which coreutils' checksums call.
    fn fread_unlocked(buf: *mut c_void, size: size_t, count: size_t, stream: *mut FILE), size, count, stream;
    /// `fread`, fortified.
    fn __fread_chk(buf: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE),
        size, count, stream;
    /// `fread_unlocked`, fortified.
    fn __fread_unlocked_chk(buf: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE),
        size, count, stream;
}
