//! The original functions: the next definition of each name after the shim's, found by `dlsym(RTLD_NEXT)`.
//!
//! The constructor resolves them, or the first call if that comes earlier. The system call is made directly
//! while `dlsym` itself runs (it may allocate, and a preloaded allocator may read or map), and if libc has no
//! such function.
//!
//! The types are `C-unwind` because a cancelled thread (`pthread_cancel`) unwinds out of `read` and through
//! the shim.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, c_int, c_long, c_uint, c_ulong, c_void, iovec, off_t, size_t, ssize_t};

use crate::host;

/// A name and, once known, the address of its next definition.
struct Next {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

/// Means "libc has no such function"; no function has this address.
const ABSENT: *mut c_void = core::ptr::without_provenance_mut(1);

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next { name, at: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Null if the system call must be made directly.
    #[inline]
    fn get(&self) -> *mut c_void {
        let at = self.at.load(Ordering::Relaxed);
        if at.is_null() { self.resolve() } else { present(at) }
    }

    #[cold]
    fn resolve(&self) -> *mut c_void {
        let at = host::unless_resolving(core::ptr::null_mut(), || {
            // SAFETY: a C string and the special handle; dlsym may be called from any thread.
            let found = host::with_errno_kept(|| unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) });
            let at = if found.is_null() { ABSENT } else { found };
            self.at.store(at, Ordering::Relaxed);
            at
        });
        present(at)
    }
}

fn present(at: *mut c_void) -> *mut c_void {
    if at == ABSENT { core::ptr::null_mut() } else { at }
}

pub(crate) const fn c_name(bytes: &'static [u8]) -> &'static CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(name) => name,
        Err(_) => panic!("a name with a zero inside"), // at compile time
    }
}

/// Has each child that is forked call this first. It must store into static memory only.
///
/// glibc has `pthread_atfork` in the part that is linked into each program, and under its own name in the
/// library.
pub(crate) fn at_fork(child: unsafe extern "C" fn()) {
    type Handler = Option<unsafe extern "C" fn()>;
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, *const c_void) -> c_int;
    let names = [c"__register_atfork", c"pthread_atfork"];
    // SAFETY: C strings and the special handle.
    let found = names.map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
    if let Some(register) = found.into_iter().find(|at| !at.is_null()) {
        // SAFETY: the first takes these, and an object with which the handlers end (null: the program); the
        // second takes the first three, and does not look at the fourth, which is in a register.
        unsafe {
            let register = core::mem::transmute::<*mut c_void, Register>(register);
            register(None, None, Some(child), core::ptr::null());
        }
    }
}

macro_rules! originals {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $direct:expr;)+) => {
        #[allow(non_upper_case_globals)]
        mod at {
            $(pub(super) static $name: super::Next = super::Next::new(
                super::c_name(concat!(stringify!($name), "\0").as_bytes()));)+
        }

        $(
            /// The original of this name.
            ///
            /// # Safety
            /// That of the original function.
            #[inline]
            #[cfg_attr(test, allow(dead_code))]
            pub(crate) unsafe fn $name($($arg: $type),*) -> $result {
                let at = at::$name.get();
                if at.is_null() {
                    return $direct;
                }
                // SAFETY: libc's function of this name has this type (the C library's interface is stable),
                // and gets the arguments of the shim's caller.
                unsafe {
                    let original: unsafe extern "C-unwind" fn($($type),*) -> $result = core::mem::transmute(at);
                    original($($arg),*)
                }
            }
        )+

        pub(crate) fn resolve_all() {
            $(at::$name.get();)+
        }
    };
}

macro_rules! direct {
    ($number:ident $(, $arg:expr)*) => {
        // SAFETY: the arguments are the host's for this very call; the kernel checks them. `syscall` sets
        // errno as the wrapper would.
        unsafe { libc::syscall(libc::$number $(, $arg)*) as _ }
    };
}

/// The advice functions return the error instead of setting errno.
#[cfg_attr(test, allow(dead_code))]
fn error_returned(work: impl FnOnce() -> c_long) -> c_int {
    host::with_errno_kept(|| {
        if work() == 0 {
            return 0;
        }
        // SAFETY: this thread's own errno.
        unsafe { *libc::__errno_location() }
    })
}

/// Does what `fread` does, with a function that is not intercepted.
///
/// # Safety
/// That of `fread`.
#[cfg_attr(test, allow(dead_code))]
unsafe fn by_bytes(buf: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
    let wanted = size.saturating_mul(count);
    for at in 0..wanted {
        // SAFETY: the caller's own stream and buffer, which has room for that many bytes.
        unsafe {
            let byte = libc::fgetc(stream);
            let Ok(byte) = u8::try_from(byte) else { return at.checked_div(size).unwrap_or(0) };
            buf.cast::<u8>().add(at).write(byte);
        }
    }
    if wanted == 0 { 0 } else { count }
}

macro_rules! by_bytes {
    ($($arg:expr),*) => {
        // SAFETY: the arguments are the host's for this very call.
        unsafe { by_bytes($($arg),*) }
    };
}

/// The next `syscall`, for a hook that is not a Rust function. 0: not resolved; 1: there is none, and the
/// hook makes the system call itself.
pub(crate) static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

pub(crate) fn resolve_syscall() {
    static NEXT: Next = Next::new(c"syscall");
    SYSCALL.store(NEXT.get(), Ordering::Relaxed);
}

originals! {
    fn close(fd: c_int) -> c_int = direct!(SYS_close, fd);
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int =
        direct!(SYS_prctl, option, a, b, c, d);
    fn read(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t = direct!(SYS_read, fd, buf, count);
    fn __read(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t = direct!(SYS_read, fd, buf, count);
    // The check of the fortified forms (more bytes than room is fatal) belongs to libc; without libc it is
    // not made.
    fn __read_chk(fd: c_int, buf: *mut c_void, count: size_t, room: size_t) -> ssize_t =
        direct!(SYS_read, fd, buf, count.min(room));
    fn pread(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t =
        direct!(SYS_pread64, fd, buf, count, offset);
    fn pread64(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t =
        direct!(SYS_pread64, fd, buf, count, offset);
    fn __pread64(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t) -> ssize_t =
        direct!(SYS_pread64, fd, buf, count, offset);
    fn __pread_chk(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t, room: size_t) -> ssize_t =
        direct!(SYS_pread64, fd, buf, count.min(room), offset);
    fn __pread64_chk(fd: c_int, buf: *mut c_void, count: size_t, offset: off_t, room: size_t) -> ssize_t =
        direct!(SYS_pread64, fd, buf, count.min(room), offset);
    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t = direct!(SYS_readv, fd, iov, count);
    // On 64-bit the kernel takes the whole offset from the first half and ignores the second.
    fn preadv(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t =
        direct!(SYS_preadv, fd, iov, count, offset, 0);
    fn preadv64(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t =
        direct!(SYS_preadv, fd, iov, count, offset, 0);
    fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =
        direct!(SYS_preadv2, fd, iov, count, offset, 0, flags);
    fn preadv64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =
        direct!(SYS_preadv2, fd, iov, count, offset, 0, flags);
    fn sendfile(out: c_int, fd: c_int, offset: *mut off_t, count: size_t) -> ssize_t =
        direct!(SYS_sendfile, out, fd, offset, count);
    fn sendfile64(out: c_int, fd: c_int, offset: *mut off_t, count: size_t) -> ssize_t =
        direct!(SYS_sendfile, out, fd, offset, count);
    fn splice(fd: c_int, at: *mut off_t, out: c_int, out_at: *mut off_t, count: size_t, flags: c_uint) -> ssize_t =
        direct!(SYS_splice, fd, at, out, out_at, count, flags);
    fn copy_file_range(fd: c_int, at: *mut off_t, out: c_int, out_at: *mut off_t, count: size_t, flags: c_uint)
        -> ssize_t = direct!(SYS_copy_file_range, fd, at, out, out_at, count, flags);
    fn mmap(addr: *mut c_void, length: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void =
        direct!(SYS_mmap, addr, length, prot, flags, fd, offset);
    fn mmap64(addr: *mut c_void, length: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void =
        direct!(SYS_mmap, addr, length, prot, flags, fd, offset);
    fn madvise(addr: *mut c_void, length: size_t, advice: c_int) -> c_int =
        direct!(SYS_madvise, addr, length, advice);
    fn posix_madvise(addr: *mut c_void, length: size_t, advice: c_int) -> c_int =
        error_returned(|| direct!(SYS_madvise, addr, length, advice));
    fn posix_fadvise(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int =
        error_returned(|| direct!(SYS_fadvise64, fd, offset, length, advice));
    fn posix_fadvise64(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int =
        error_returned(|| direct!(SYS_fadvise64, fd, offset, length, advice));
    fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t = direct!(SYS_readahead, fd, offset, count);
    fn fread(buf: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t =
        by_bytes!(buf, size, count, stream);
    fn fread_unlocked(buf: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t =
        by_bytes!(buf, size, count, stream);
    fn __fread_chk(buf: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE) -> size_t =
        by_bytes!(buf, size, count.min(room / size.max(1)), stream);
    fn __fread_unlocked_chk(buf: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE) -> size_t =
        by_bytes!(buf, size, count.min(room / size.max(1)), stream);
}
