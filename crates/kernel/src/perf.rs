//! Events of the kernel's tracepoints and probes (`perf_event_open`) that record nothing themselves: a
//! program is attached to each ([`crate::bpf`]). The kernel closes it with its last descriptor, however the
//! process ends.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::OwnedFd;
use std::ptr;

use crate::syscall::owned;

const TYPE_TRACEPOINT: u32 = 2;
const FLAG_DISABLED: u64 = 1;
const OPEN_CLOEXEC: u64 = 1 << 3;

/// The first published layout of the kernel's `struct perf_event_attr`, which every kernel accepts.
#[derive(Default)]
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
}

impl Attributes {
    /// For a tracepoint, not enabled.
    fn of(tracepoint: u64) -> Attributes {
        Attributes {
            kind: TYPE_TRACEPOINT,
            size: size_of::<Attributes>() as u32,
            config: tracepoint,
            flags: FLAG_DISABLED,
            ..Attributes::default()
        }
    }

    /// Opens the event on the processor that runs this. A program that is attached to it runs on all.
    fn open(&self) -> io::Result<OwnedFd> {
        let processor = rustix::thread::sched_getcpu() as i32;
        // SAFETY: `self` has the kernel's layout and states its own length; the kernel only reads it and
        // keeps no reference to it, and returns a new descriptor.
        unsafe {
            owned(libc::syscall(
                libc::SYS_perf_event_open,
                ptr::from_ref(self),
                -1,
                processor,
                -1,
                OPEN_CLOEXEC,
            ))
        }
    }
}

/// An event of this tracepoint that records nothing itself.
///
/// # Errors
/// `EPERM` or `EACCES` without `CAP_PERFMON` or under lockdown; `ENOENT`: no such tracepoint.
pub(crate) fn silent(tracepoint: u64) -> io::Result<OwnedFd> {
    Attributes::of(tracepoint).open()
}

/// As [`silent`], of a probe at the entry of this function of the kernel.
///
/// # Errors
/// As [`silent`]; `ENOENT` if the kernel has no such function, or no probes.
pub(crate) fn silent_probe(function: &CStr) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: probe_kind()?,
        config: 0,
        // The probe's place: a name, of which the kernel keeps a copy.
        config1: function.as_ptr() as u64,
        ..Attributes::of(0)
    };
    attributes.open()
}

/// The kernel's number for events that are probes.
///
/// # Errors
/// `ENOENT` if the kernel has none.
pub(crate) fn probe_kind() -> io::Result<u32> {
    let text = std::fs::read_to_string("/sys/bus/event_source/devices/kprobe/type")?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Number of online processors, at least one.
pub(crate) fn processors() -> usize {
    // SAFETY: it takes a number and returns one.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).map_or(1, |online| online.max(1))
}
