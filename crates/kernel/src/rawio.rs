//! Direct reads of a disk (`O_DIRECT`), to time them.
//!
//! The descriptor is opened read-only; nothing here can write.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Alignment of the buffer: no device needs more than a page.
const ALIGN: usize = 4096;

/// An open disk and a read buffer.
#[derive(Debug)]
pub struct RawDisk {
    file: File,
    memory: Vec<u8>,
    start: usize,
    len: usize,
    sectors: u64,
}

impl RawDisk {
    /// Opens a block device (or, for tests, a file on a file system that supports it) for reads of up to
    /// `read_max` bytes.
    ///
    /// # Errors
    /// Those of `open`; `EINVAL` if direct I/O is not supported.
    pub fn open(path: &Path, read_max: usize) -> io::Result<RawDisk> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(
                rustix::fs::OFlags::DIRECT.bits() as i32 | rustix::fs::OFlags::CLOEXEC.bits() as i32,
            )
            .open(path)?;
        let bytes = file.seek(SeekFrom::End(0))?;
        let len = read_max.next_multiple_of(ALIGN);
        let memory = vec![0u8; len + ALIGN];
        // The allocation does not move unless the vector grows, which it never does.
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Ok(RawDisk { file, memory, start, len, sectors: bytes / 512 })
    }

    /// Capacity in 512-byte sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Reads sectors from `lba` on. Address and length must be multiples of the device's logical block size.
    ///
    /// # Errors
    /// Those of the device; a length above the buffer's or past the end of the disk is `InvalidInput`.
    pub fn read(&mut self, lba: u64, sectors: u32) -> io::Result<()> {
        let len = sectors as usize * 512;
        if len > self.len || lba.saturating_add(u64::from(sectors)) > self.sectors {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let buffer = &mut self.memory[self.start..self.start + len];
        self.file.read_exact_at(buffer, lba * 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_past_the_cache_where_the_file_system_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, vec![7u8; 1 << 20]).unwrap();
        let mut disk = match RawDisk::open(&path, 65536) {
            Ok(disk) => disk,
            Err(e) => {
                println!("skipped: no O_DIRECT on {}: {e}", dir.path().display());
                return;
            }
        };
        assert_eq!(disk.sectors(), 2048);
        match disk.read(8, 128) {
            Ok(()) => assert!(disk.memory[disk.start..disk.start + 65536].iter().all(|&b| b == 7)),
            Err(e) => println!("skipped: no O_DIRECT reads here: {e}"),
        }
        assert_eq!(disk.read(0, 256).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(disk.read(2040, 16).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
