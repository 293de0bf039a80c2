//! File systems: how reads of their files reach a disk, and so whether read-ahead helps. The only such table.
//!
//! Magic numbers are those of `statfs` (`f_type`, linux/magic.h); names those of the mount table. A file
//! system that is not in the table counts as an ordinary one: its pages are in the page cache and come from
//! the block device below it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::mm::ProtFlags;

use crate::mapping::Mapping;

/// How reads reach a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Through the page cache, from block devices.
    Disk,
    /// There is no disk.
    Memory,
    /// Through a cache of its own, invisible to the page cache: everything would seem missing, and bytes read
    /// ahead would be in memory twice.
    OwnCache,
    /// From another machine, whose disks are not visible.
    Network,
    /// From the files of other file systems, one of several for each file.
    Layers,
    /// From a program, which decides whether the page cache keeps its data ([`reads_directly`]).
    Fuse,
}

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsType {
    /// Its name in the mount table.
    pub name: &'static str,
    /// `f_type`; 0 if another one has the same.
    pub magic: u64,
    /// How reads reach a disk.
    pub reads: Reads,
}

/// `OVERLAYFS_SUPER_MAGIC`.
pub const OVERLAY: u64 = 0x794c_7630;
/// `FUSE_SUPER_MAGIC`.
pub const FUSE: u64 = 0x6573_5546;

/// File systems that differ from an ordinary one on a block device, and the ordinary ones by name.
pub const TABLE: &[FsType] = &[
    row("ext4", 0xef53, Reads::Disk),
    row("xfs", 0x5846_5342, Reads::Disk),
    row("btrfs", 0x9123_683e, Reads::Disk),
    row("f2fs", 0xf2f5_2010, Reads::Disk),
    row("bcachefs", 0xca45_1a4e, Reads::Disk),
    // NTFS and exFAT by programs: FUSE by magic number, a block device by name.
    row("fuseblk", 0, Reads::Disk),
    row("tmpfs", 0x0102_1994, Reads::Memory),
    row("ramfs", 0x8584_58f6, Reads::Memory),
    row("devtmpfs", 0, Reads::Memory),
    row("hugetlbfs", 0x9584_58f6, Reads::Memory),
    row("proc", 0x9fa0, Reads::Memory),
    row("sysfs", 0x6265_6572, Reads::Memory),
    row("cgroup", 0x0027_e0eb, Reads::Memory),
    row("cgroup2", 0x6367_7270, Reads::Memory),
    row("zfs", 0x2fc1_2fc1, Reads::OwnCache),
    row("nfs", 0x6969, Reads::Network),
    row("nfs4", 0, Reads::Network),
    row("cifs", 0xff53_4d42, Reads::Network),
    row("smb2", 0xfe53_4d42, Reads::Network),
    row("smb3", 0, Reads::Network),
    row("smbfs", 0x517b, Reads::Network),
    row("ceph", 0x00c3_6400, Reads::Network),
    row("afs", 0x5346_414f, Reads::Network),
    row("9p", 0x0102_1997, Reads::Network),
    row("lustre", 0x0bd0_0bd0, Reads::Network),
    row("overlay", OVERLAY, Reads::Layers),
    row("fuse", FUSE, Reads::Fuse),
    row("virtiofs", 0, Reads::Fuse),
];

const fn row(name: &'static str, magic: u64, reads: Reads) -> FsType {
    FsType { name, magic, reads }
}

/// Looks up an `f_type`.
pub fn by_magic(magic: u64) -> Option<&'static FsType> {
    TABLE.iter().find(|t| t.magic != 0 && t.magic == magic)
}

/// Looks up a type of the mount table; `fuse.sshfs` is FUSE.
pub fn by_name(name: &str) -> Option<&'static FsType> {
    TABLE.iter().find(|t| t.name == name || t.name == plain(name))
}

/// Whether a program serves its files. It may be any user's, who also chose the mount's source and subtype.
pub fn is_fuse(name: &str) -> bool {
    matches!(plain(name), "fuse" | "fuseblk" | "virtiofs")
}

/// The type without its subtype.
fn plain(name: &str) -> &str {
    name.split_once('.').map_or(name, |(kind, _)| kind)
}

/// Whether the kernel has opened the block device named by the mount's source (`FS_REQUIRES_DEV`) though its
/// files may have an anonymous device number, because the file system may be on several devices. For all
/// other file systems on a block device, the number itself is the device's, and the source adds nothing.
pub fn hides_device(name: &str) -> bool {
    matches!(name, "btrfs" | "bcachefs") || plain(name) == "fuseblk"
}

/// The type of an open file's file system.
pub fn of(file: impl AsFd) -> Option<&'static FsType> {
    let stat = rustix::fs::fstatfs(file).ok()?;
    #[allow(clippy::unnecessary_cast, reason = "the type of f_type differs between architectures")]
    by_magic(stat.f_type as u64)
}

/// Whether reads of an open FUSE file bypass the page cache (`FOPEN_DIRECT_IO`, set by its program at the
/// open). That flag is not visible; but the kernel refuses a shared mapping of such a file (`ENODEV`), so
/// this is found out without reading a byte. A program that allows such mappings
/// (`FUSE_DIRECT_IO_ALLOW_MMAP`, Linux 6.6) is not recognised.
pub fn reads_directly(file: BorrowedFd<'_>) -> bool {
    let mapping = Mapping::of(file, ProtFlags::READ, 0, PAGE);
    mapping.is_err_and(|e| e.raw_os_error() == Some(libc::ENODEV))
}

/// Any length becomes at least a page.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_name_and_number() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(by_name(row.name), Some(row));
            assert!(row.magic == 0 || by_magic(row.magic) == Some(row), "{}", row.name);
            assert!(!TABLE[..i].iter().any(|other| other.name == row.name), "{} twice", row.name);
        }
        assert_eq!(by_name("fuse.mergerfs").unwrap().reads, Reads::Fuse);
        assert!(["fuse", "fuse.btrfs", "fuseblk", "fuseblk.x", "virtiofs"].iter().all(|name| is_fuse(name)));
        assert!(["btrfs", "fusectl", "overlay"].iter().all(|name| !is_fuse(name)));
        assert!(hides_device("btrfs") && !hides_device("fuse.btrfs") && !hides_device("btrfs.x"));
        assert_eq!(by_name("zfs").unwrap().reads, Reads::OwnCache);
        assert_eq!((by_name("nosuchfs"), by_magic(0), by_magic(0x1234_5678)), (None, None, None));
    }

    #[test]
    fn ordinary_files_are_read_through_the_page_cache() {
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(!reads_directly(file.as_fd()));
        let proc = std::fs::File::open("/proc/self/status").unwrap();
        assert_eq!(of(&proc).map(|t| t.name), Some("proc"));
    }
}
