//! The mount table of `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Major and minor number of the file system's device (`st_dev` of its files).
    pub device: (u32, u32),
    /// The folder of the file system that is mounted; `/` is all of it.
    pub root: PathBuf,
    /// Where it is mounted.
    pub target: PathBuf,
    /// File system type, with a subtype after a dot (`fuse.seekless`).
    pub fs_type: String,
    /// The source: a device's path, or a name.
    pub source: PathBuf,
}

/// The mounts visible to this process, in the order they were made; of several at one target, the last one is
/// on top.
///
/// # Errors
/// `/proc` is missing or not readable.
pub fn mounts() -> io::Result<Vec<Mounted>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// Parses a `mountinfo` file (proc(5)); skips lines that do not follow the format.
pub fn parse(text: &[u8]) -> Vec<Mounted> {
    text.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|b| *b == b' ');
    let mut device = std::str::from_utf8(fields.nth(2)?).ok()?.split(':');
    let device = (device.next()?.parse().ok()?, device.next()?.parse().ok()?);
    let root = unescape(fields.next()?);
    let target = unescape(fields.next()?);
    // A variable number of optional fields ends with a single dash.
    let mut after = fields.skip_while(|f| *f != b"-").skip(1);
    let fs_type = String::from_utf8_lossy(after.next()?).into_owned();
    Some(Mounted { device, root, target, fs_type, source: unescape(after.next()?) })
}

/// Space, tab, newline and backslash are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut i = 0;
    while i < field.len() {
        let octal = field
            .get(i + 1..i + 4)
            .filter(|d| field[i] == b'\\' && d.iter().all(|c| (b'0'..b'8').contains(c)));
        if let Some(digits) = octal {
            bytes.push(digits.iter().fold(0u8, |n, c| n.wrapping_mul(8).wrapping_add(c - b'0')));
            i += 4;
        } else {
            bytes.push(field[i]);
            i += 1;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// `linux/fs.h`: stops writes to a file system once everything in memory is on the disk and its journal is
/// empty.
const FIFREEZE: libc::c_ulong = 0xC004_5877;
/// `linux/fs.h`: allows writes again.
const FITHAW: libc::c_ulong = 0xC004_5878;

/// Writes everything that the file system of `file` has in memory to its disk, including the journal, so that
/// no earlier work is written back later. Writers wait meanwhile.
///
/// # Errors
/// The caller is not root, or the file system cannot be frozen.
pub fn settle(file: BorrowedFd<'_>) -> io::Result<()> {
    let request = |code| {
        // SAFETY: both requests ignore their argument; the descriptor is open for the length of the call.
        match unsafe { libc::ioctl(file.as_raw_fd(), code as _, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    request(FIFREEZE)?;
    request(FITHAW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_optional_fields() {
        let text =
            b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n\
                     22 1 0:21 / /proc rw - proc proc rw\nnonsense\n";
        let found = parse(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].device, (98, 0));
        assert_eq!(found[0].root, PathBuf::from("/mnt1"));
        assert_eq!(found[0].target, PathBuf::from("/mnt 2"));
        assert_eq!((found[0].fs_type.as_str(), found[0].source.to_str()), ("ext3", Some("/dev/root")));
        assert_eq!(found[1].target, PathBuf::from("/proc"));
    }

    #[test]
    fn this_machine_has_a_root() {
        assert!(mounts().unwrap().iter().any(|m| m.target == std::path::Path::new("/")));
    }
}
