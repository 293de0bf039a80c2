//! The file behind an address.
//!
//! The shim keeps no list of mappings, because the host makes and removes them by calls that it does not see.
//! So a bounded part of `/proc/self/maps` is read each time. The name found is opened anew and accepted only
//! if device and inode are those of the mapping. A file that was deleted or replaced, or is not visible in
//! this root directory, is not found, and the advice goes through unchanged.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};

use crate::aside;

/// A mapped part of a file.
pub(crate) struct Mapped {
    /// Opened by the shim, for reading.
    pub(crate) file: OwnedFd,
    /// File offset of the address.
    pub(crate) offset: u64,
    /// Bytes from there, cut at the end of the mapping.
    pub(crate) length: u64,
}

/// Maximum length of a name. Longer ones exist (`PATH_MAX` is 4096), but do not fit on a stack that belongs
/// to the host.
const NAME_BYTES_MAX: usize = 1024;

/// Maximum of `/proc/self/maps` that is read for one advice: several thousand mappings.
const MAPS_BYTES_MAX: usize = 256 << 10;

/// A mapping as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area {
    start: u64,
    end: u64,
    offset: u64,
    device: u64,
    inode: u64,
}

/// A name, zero-terminated.
type Name = [u8; NAME_BYTES_MAX];

/// The file behind `length` bytes at `address`, if they begin in a mapping of a regular file that can be
/// opened.
pub(crate) fn file_at(address: usize, length: usize) -> Option<Mapped> {
    let maps = open(c"/proc/self/maps", OFlags::empty())?;
    let mut name: Name = [0; NAME_BYTES_MAX];
    let area = search(maps.as_fd(), address as u64, &mut name)?;
    drop(maps);
    let path = CStr::from_bytes_until_nul(&name).ok()?;
    if area.inode == 0 || !path.to_bytes().starts_with(b"/") {
        return None;
    }
    // Checked before it is opened, because opening a device may have side effects.
    is_it(&rustix::fs::stat(path).ok()?, &area)?;
    let file = open(path, OFlags::NONBLOCK | OFlags::NOCTTY)?;
    is_it(&rustix::fs::fstat(&file).ok()?, &area)?;
    let (offset, length) =
        seekless_base::wants::mapped(address as u64, length as u64, area.start, area.end, area.offset)?;
    Some(Mapped { file, offset, length })
}

/// Opens a file for reading, with a number out of the host's way.
fn open(path: &CStr, flags: OFlags) -> Option<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    aside::make(|| aside::moved(rustix::fs::open(path, flags, Mode::empty()).ok()?)).flatten()
}

fn is_it(stat: &rustix::fs::Stat, area: &Area) -> Option<()> {
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_ino == area.inode
        && stat.st_dev == area.device)
        .then_some(())
}

/// Reads the text line by line up to the mapping that holds `address`.
fn search(maps: BorrowedFd<'_>, address: u64, name: &mut Name) -> Option<Area> {
    // A line has about 75 bytes before the name; a line that does not fit is skipped.
    let mut text = [0u8; NAME_BYTES_MAX + 128];
    let (mut filled, mut total) = (0usize, 0usize);
    let mut skipping = false;
    while total < MAPS_BYTES_MAX {
        let got = rustix::io::read(maps, text.get_mut(filled..)?).ok()?;
        if got == 0 {
            return None;
        }
        total += got;
        filled += got;
        let mut from = 0;
        while let Some(length) = text.get(from..filled)?.iter().position(|b| *b == b'\n') {
            let line = text.get(from..from + length)?;
            from += length + 1;
            if !std::mem::take(&mut skipping)
                && let Some((area, path)) = parse(line)
                && (area.start..area.end).contains(&address)
            {
                name.get_mut(..path.len())?.copy_from_slice(path);
                *name.get_mut(path.len())? = 0;
                return Some(area);
            }
        }
        if from == 0 && filled == text.len() {
            skipping = true;
            filled = 0;
        } else {
            text.copy_within(from..filled, 0);
            filled -= from;
        }
    }
    None
}

/// Parses one line: `start-end perms offset major:minor inode   path`.
fn parse(line: &[u8]) -> Option<(Area, &[u8])> {
    let mut rest = line;
    let mut field = |end: u8| -> Option<&[u8]> {
        let at = rest.iter().position(|b| *b == end)?;
        let (head, tail) = rest.split_at_checked(at)?;
        rest = tail.get(1..)?;
        Some(head)
    };
    let (start, end) = (number(field(b'-')?, 16)?, number(field(b' ')?, 16)?);
    field(b' ')?;
    let offset = number(field(b' ')?, 16)?;
    let (major, minor) = (number(field(b':')?, 16)?, number(field(b' ')?, 16)?);
    let inode = number(field(b' ')?, 10)?;
    let path = rest.get(rest.iter().position(|b| *b != b' ')?..)?;
    let device = rustix::fs::makedev(u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
    Some((Area { start, end, offset, device, inode }, path))
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_are_read() {
        let line = b"7f8a5c000000-7f8a5c021000 r--p 00002000 fe:02 393449                     /srv/a b.mp4";
        let (area, path) = parse(line).unwrap();
        assert_eq!(path, b"/srv/a b.mp4");
        assert_eq!((area.start, area.end), (0x7f8a_5c00_0000, 0x7f8a_5c02_1000));
        assert_eq!((area.offset, area.inode), (0x2000, 393_449));
        assert_eq!(area.device, rustix::fs::makedev(0xfe, 2));
        for bad in [&b""[..], b"x", b"1-2", b"1-2 r--p 0 1:2 3 ", b"zz-2 r--p 0 1:2 3 /x"] {
            assert!(parse(bad).is_none());
        }
    }

    #[test]
    fn a_mapped_file_is_found() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1; 40_000]).unwrap();
        // SAFETY: a new mapping, never dereferenced.
        let at = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                40_000,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::SHARED,
                file.as_fd(),
                4096,
            )
        }
        .unwrap() as usize;
        let found = file_at(at + 8192, 1 << 30).unwrap();
        assert_eq!(found.offset, 12_288);
        assert_eq!(found.length, 32_768);
        assert_eq!(rustix::fs::fstat(&found.file).unwrap().st_ino, rustix::fs::fstat(&file).unwrap().st_ino);

        let maps = std::fs::File::open("/proc/self/maps").unwrap();
        let mut name: Name = [0; NAME_BYTES_MAX];
        let area = search(maps.as_fd(), at as u64 + 8192, &mut name).unwrap();
        assert_eq!((area.start, area.offset), (at as u64, 4096));
        let path = CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(path, file.path().to_str().unwrap());
        assert!(file_at(&raw const name as usize, 1).is_none(), "a stack has no file");
        drop(file);
        assert!(file_at(at, 1).is_none(), "the file is deleted");
    }
}
