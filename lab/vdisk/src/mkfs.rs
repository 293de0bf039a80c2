//! File systems for the disk: made at once and complete, so that nothing is left to initialise under the
//! first load.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::mount::{MountFlags, mount};
use seekless_base::Fault;

use crate::config::FsKind;
use crate::state::cannot;

/// The program that makes a file system, its arguments, and the package that brings it.
fn maker(fs: FsKind) -> Option<(&'static str, &'static [&'static str], &'static str)> {
    match fs {
        // An inode for each 64 KiB: enough for a source tree, a quarter of the default's tables. No discard
        // (a hard disk has none), no blocks reserved for root, tables and journal written now and not by a
        // kernel thread later.
        FsKind::Ext4 => Some((
            "mkfs.ext4",
            &["-q", "-F", "-m", "0", "-i", "65536", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
            "e2fsprogs",
        )),
        FsKind::Xfs => Some(("mkfs.xfs", &["-q", "-f", "-K"], "xfsprogs")),
        FsKind::Btrfs => Some(("mkfs.btrfs", &["-q", "-f", "-K"], "btrfs-progs")),
        FsKind::None | FsKind::Tree => None,
    }
}

/// Where program `name` is: in `$SEEKLESS_TOOLS/bin`, the search path, or where system programs usually are.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let tools = std::env::var_os("SEEKLESS_TOOLS").map(PathBuf::from);
    let tools = tools.into_iter().flat_map(|t| ["bin", "sbin", "usr/bin", "usr/sbin"].map(|d| t.join(d)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    tools.chain(path).chain(usual).map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// Whether the file system can be made and mounted here.
///
/// # Errors
/// `Missing`, naming the package, or the kernel's lack.
pub fn check(fs: FsKind) -> Result<(), Fault> {
    let Some((program, _, package)) = maker(fs) else { return Ok(()) };
    if find_program(program).is_none() {
        return Err(Fault::missing(format!(
            "{program} is not here: install package {package}, or choose another --fs"
        )));
    }
    Ok(())
}

/// Makes the file system on `device`.
///
/// # Errors
/// `Missing` as [`check`]; `Failed` with the program's own words.
pub fn make(fs: FsKind, device: &Path) -> Result<(), Fault> {
    let Some((program, arguments, _)) = maker(fs) else { return Ok(()) };
    check(fs)?;
    let path = find_program(program).unwrap_or_else(|| program.into());
    let made = Command::new(path).args(arguments).arg(device).stdin(Stdio::null()).output();
    let made = made.map_err(|e| Fault::failed(format!("cannot start {program}: {e}")))?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        let said = said.trim().lines().next_back().unwrap_or("no reason given");
        return Err(Fault::failed(format!("{program} {}: {said}", device.display())));
    }
    Ok(())
}

/// Mounts `device` at `target`. Access times are not kept: readers would turn into writers.
///
/// # Errors
/// `Permission`, `Usage` for options the file system does not know, `Missing` for a file system the kernel
/// does not know.
pub fn mount_at(fs: FsKind, device: &Path, target: &Path, options: Option<&str>) -> Result<(), Fault> {
    let kind = match fs {
        FsKind::Ext4 => "ext4",
        FsKind::Xfs => "xfs",
        FsKind::Btrfs => "btrfs",
        FsKind::None | FsKind::Tree => return Ok(()),
    };
    let data = CString::new(options.unwrap_or("")).unwrap_or_default();
    mount(device, target, kind, MountFlags::NOATIME, data.as_c_str()).map_err(|e| match e {
        rustix::io::Errno::INVAL if options.is_some() => {
            Fault::usage(format!("{kind} refuses --mount-options {}", options.unwrap_or("")))
        }
        rustix::io::Errno::NODEV => {
            Fault::missing(format!("this kernel does not know {kind}: choose another --fs"))
        }
        _ => cannot(&format!("mount {} at", device.display()), target, &e.into()),
    })
}
