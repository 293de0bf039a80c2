//! The environment, read once, into static memory.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `SEEKLESS_DISABLE` | set to anything but nothing or `0`: the shim does nothing |
//! | `SEEKLESS_SOCKET` | path of the daemon's socket |
//! | `SEEKLESS_STATE` | folder of `daemon.sock`, if `SEEKLESS_SOCKET` is not set; else `/run/seekless` |
//! | `SEEKLESS_PATIENCE_MS` | maximum wait without a frame of the daemon, default 3000 |
//! | `SEEKLESS_SECCOMP` | `allow`: the program's initial seccomp filter allows the shim's calls |
//!
//! Not read in a set-user-id program: only the system's administrator can preload the shim into one, and the
//! caller's environment must not choose which process gets that program's descriptors.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use seekless_kernel::fdpass::SOCKET_PATH_BYTES_MAX;
use seekless_kernel::twinkey::{self, Key, KeyPath};
use seekless_wire::{PATIENCE_MS, WAIT_MS_MAX};

use crate::{aside, filter, host};

const UNREAD: u8 = 0;
const READING: u8 = 1;
const ON: u8 = 2;
const OFF: u8 = 3;

/// The daemon's socket if the environment does not name one.
const DEFAULT_SOCKET: &CStr = c"/run/seekless/daemon.sock";

struct SocketPath(UnsafeCell<[u8; SOCKET_PATH_BYTES_MAX + 1]>);

// SAFETY: written once, by the one thread that moved STATE from UNREAD to READING, and read only once STATE
// is ON, which that thread stores with release order afterwards.
unsafe impl Sync for SocketPath {}

static STATE: AtomicU8 = AtomicU8::new(UNREAD);
static SOCKET: SocketPath = SocketPath(UnsafeCell::new([0; SOCKET_PATH_BYTES_MAX + 1]));
static PATIENCE: AtomicU64 = AtomicU64::new(PATIENCE_MS);
static OWN_UID: AtomicU32 = AtomicU32::new(0);

/// The key beside the socket, as last read; [`HAS_KEY`] says whether it was read.
static KEY: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static HAS_KEY: AtomicBool = AtomicBool::new(false);
/// When the key was last looked for, in milliseconds.
static KEY_LOOKED_MS: AtomicU64 = AtomicU64::new(0);

/// Interval in milliseconds at which a missing key is looked for: the daemon may be older, or not have
/// started. At half, that costs twice as much, some microseconds; at double, a server that changes its root
/// directory later goes without it for longer.
const KEY_AGAIN_MS: u64 = 10_000;

/// Reads the environment, unless that has been done.
pub(crate) fn init() {
    if STATE.compare_exchange(UNREAD, READING, Ordering::Acquire, Ordering::Acquire).is_err() {
        return;
    }
    // From the loader, because a system call may be forbidden, which is not known yet. SAFETY: reads what the
    // kernel put beside the environment.
    OWN_UID.store(unsafe { libc::getauxval(libc::AT_EUID) } as u32, Ordering::Relaxed);
    if let Some(ms) = variable(c"SEEKLESS_PATIENCE_MS").and_then(number) {
        PATIENCE.store(ms.clamp(1, WAIT_MS_MAX), Ordering::Relaxed);
    }
    let disabled = variable(c"SEEKLESS_DISABLE").is_some_and(|v| !matches!(v.to_bytes(), b"" | b"0"));
    let allowed = variable(c"SEEKLESS_SECCOMP").is_some_and(|v| v.to_bytes() == b"allow");
    // SAFETY: see `SocketPath`.
    let path = unsafe { &mut *SOCKET.0.get() };
    let on = !disabled && write_socket_path(path) && (allowed || !filter::is_inherited());
    if on {
        look_for_key(path);
    }
    let state = if on { ON } else { OFF };
    // Another thread may have switched the shim off meanwhile.
    let _ = STATE.compare_exchange(READING, state, Ordering::Release, Ordering::Relaxed);
}

/// Reads the key beside the socket while the folder is visible, because a server may change its root
/// directory later.
pub(crate) fn see_key() {
    let now_ms = host::coarse_ms().max(1);
    let looked_ms = KEY_LOOKED_MS.load(Ordering::Relaxed);
    if HAS_KEY.load(Ordering::Relaxed) || (looked_ms != 0 && now_ms.saturating_sub(looked_ms) < KEY_AGAIN_MS)
    {
        return;
    }
    if let Some(path) = socket_path() {
        look_for_key(path.to_bytes_with_nul());
    }
}

fn look_for_key(socket: &[u8]) {
    KEY_LOOKED_MS.store(host::coarse_ms().max(1), Ordering::Relaxed);
    let Some(path) = CStr::from_bytes_until_nul(socket).ok().and_then(KeyPath::of) else { return };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let open = || aside::moved(rustix::fs::open(path.as_c_str(), flags, Mode::empty()).ok()?);
    let Some(file) = aside::make(open).flatten() else { return };
    let Some(key) = twinkey::read(file.as_fd(), own_uid()) else { return };
    for (to, from) in KEY.iter().zip(key.as_chunks::<8>().0) {
        to.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
    }
    HAS_KEY.store(true, Ordering::Release);
}

/// The key that a daemon at the twin must know.
pub(crate) fn key() -> Option<Key> {
    if !HAS_KEY.load(Ordering::Acquire) {
        return None;
    }
    let mut key = Key::default();
    for (to, from) in key.as_chunks_mut::<8>().0.iter_mut().zip(&KEY) {
        *to = from.load(Ordering::Relaxed).to_ne_bytes();
    }
    Some(key)
}

/// Switches the shim off, in all threads, for the rest of the process.
pub(crate) fn switch_off() {
    STATE.store(OFF, Ordering::SeqCst);
}

fn write_socket_path(path: &mut [u8; SOCKET_PATH_BYTES_MAX + 1]) -> bool {
    let given = variable(c"SEEKLESS_SOCKET").filter(|v| !v.is_empty());
    if let Some(given) = given {
        return join(path, &[given.to_bytes()]);
    }
    match variable(c"SEEKLESS_STATE").filter(|v| !v.is_empty()) {
        Some(folder) => join(path, &[folder.to_bytes(), b"/daemon.sock"]),
        None => join(path, &[DEFAULT_SOCKET.to_bytes()]),
    }
}

/// Concatenates the parts; the final zero is already there. Returns `false` if they are too long.
fn join(path: &mut [u8; SOCKET_PATH_BYTES_MAX + 1], parts: &[&[u8]]) -> bool {
    let mut at = 0usize;
    for part in parts {
        let end = at.saturating_add(part.len());
        if end > SOCKET_PATH_BYTES_MAX {
            return false;
        }
        let Some(slot) = path.get_mut(at..end) else { return false };
        slot.copy_from_slice(part);
        at = end;
    }
    at > 0
}

/// A variable of the environment; none where the program gains rights when it starts.
///
/// That is what `secure_getenv` does, which older C libraries lack.
fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name is a C string; the value, if any, is one that belongs to the environment and is read
    // at once.
    unsafe {
        let gains_rights = libc::getauxval(libc::AT_SECURE) != 0;
        let value = if gains_rights { core::ptr::null_mut() } else { libc::getenv(name.as_ptr()) };
        if value.is_null() { None } else { Some(CStr::from_ptr(value)) }
    }
}

fn number(text: &CStr) -> Option<u64> {
    text.to_str().ok()?.parse().ok()
}

/// Whether the shim is active. Reads the environment if a hook runs before the constructor. `false` while
/// another thread is reading it.
pub(crate) fn enabled() -> bool {
    match STATE.load(Ordering::Acquire) {
        ON => true,
        UNREAD => {
            init();
            STATE.load(Ordering::Acquire) == ON
        }
        _ => false,
    }
}

/// The daemon's socket; `None` if the shim is off.
pub(crate) fn socket_path() -> Option<&'static CStr> {
    if STATE.load(Ordering::Acquire) != ON {
        return None;
    }
    // SAFETY: see `SocketPath`: once STATE is ON it is not written again.
    let path = unsafe { &*SOCKET.0.get() };
    CStr::from_bytes_until_nul(path).ok()
}

/// Maximum wait without a frame of the daemon, in milliseconds.
pub(crate) fn patience_ms() -> u64 {
    PATIENCE.load(Ordering::Relaxed)
}

/// The effective user of this process when the shim was loaded. Besides root, only this user's daemon may get
/// its descriptors.
pub(crate) fn own_uid() -> u32 {
    OWN_UID.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_do_not_fit_are_refused() {
        let mut path = [0u8; SOCKET_PATH_BYTES_MAX + 1];
        assert!(join(&mut path, &[b"/run/x", b"/daemon.sock"]));
        assert_eq!(CStr::from_bytes_until_nul(&path).unwrap(), c"/run/x/daemon.sock");
        assert!(!join(&mut [0; SOCKET_PATH_BYTES_MAX + 1], &[&[b'x'; SOCKET_PATH_BYTES_MAX], b"y"]));
        assert!(join(&mut [0; SOCKET_PATH_BYTES_MAX + 1], &[&[b'x'; SOCKET_PATH_BYTES_MAX]]));
        assert!(!join(&mut [0; SOCKET_PATH_BYTES_MAX + 1], &[]));
    }
}
