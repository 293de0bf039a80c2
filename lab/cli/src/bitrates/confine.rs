//! Gives up the rights of this process, before it reads what others have written.

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// Memory beyond what the program takes when it starts, bytes. A manifest of 256 KiB as a tree takes a tenth
/// of it. At half the longest ones may fail; at double a hostile file costs double.
const MEMORY_MAX: u64 = 64 << 20;

/// Processor time, seconds. The longest manifest takes a hundredth of it.
pub(crate) const CPU_S_MAX: u64 = 2;

/// Descriptors: the file, the pipe, standard error, and a few.
const DESCRIPTORS_MAX: u64 = 8;

/// Address space where /proc does not say what the program has.
const MAPPED_DEFAULT: u64 = 1 << 30;

/// The user and group that own nothing.
pub(crate) const NOBODY: u32 = 65_534;

/// Gives up all that is not needed to read the descriptors that are open. There is one thread at this time.
///
/// # Errors
/// Rights remain.
pub(crate) fn confine() -> io::Result<()> {
    let limits = [
        (Resource::As, mapped().unwrap_or(MAPPED_DEFAULT) + MEMORY_MAX),
        (Resource::Data, MEMORY_MAX),
        (Resource::Cpu, CPU_S_MAX),
        (Resource::Nofile, DESCRIPTORS_MAX),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
    ];
    for (resource, most) in limits {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    if rustix::process::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    // A change of user takes this back, so it comes last.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

/// Bytes of address space that are in use.
fn mapped() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').next()?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
