//! The devices of a mounted btrfs, and where its addresses lie on them.
//!
//! The chunk tree is read by `BTRFS_IOC_TREE_SEARCH_V2`, which changes nothing and needs CAP_SYS_ADMIN. Only
//! the order of reads depends on the result. See linux/btrfs.h and linux/btrfs_tree.h.

mod chunks;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use linux_raw_sys::btrfs::{
    BTRFS_CHUNK_ITEM_KEY, BTRFS_CHUNK_TREE_OBJECTID, BTRFS_DEV_ITEM_KEY, BTRFS_DEV_ITEMS_OBJECTID,
    BTRFS_FIRST_CHUNK_TREE_OBJECTID, btrfs_ioctl_dev_info_args, btrfs_ioctl_fs_info_args,
    btrfs_ioctl_search_header, btrfs_ioctl_search_key,
};
use linux_raw_sys::ioctl::{BTRFS_IOC_DEV_INFO, BTRFS_IOC_FS_INFO, BTRFS_IOC_TREE_SEARCH_V2};

use crate::syscall::done;
use crate::topology::Dev;

pub use chunks::{Chunk, ChunkMap, Profile, Stripe};

/// Objects of the chunk tree.
const DEVICES: u64 = BTRFS_DEV_ITEMS_OBJECTID as u64;
const CHUNKS: u64 = BTRFS_FIRST_CHUNK_TREE_OBJECTID as u64;

/// Buffer for the results of one search: some eight hundred chunks.
const ANSWER_BYTES: usize = 64 << 10;

/// Maximum number of items read. A chunk has one to ten gigabytes, so that is a petabyte; larger file systems
/// are not mapped.
const ITEMS_MAX: usize = 1 << 20;

/// Inode of the first process namespace (`PROC_PID_INIT_INO`), whose process ids are the kernel's own.
const FIRST_PIDS: &str = "pid:[4026531836]";

/// `struct btrfs_ioctl_search_args_v2` with a buffer for results.
#[repr(C)]
struct Search {
    key: btrfs_ioctl_search_key,
    bytes: u64,
    answer: [u8; ANSWER_BYTES],
}

const HEADER: usize = size_of::<btrfs_ioctl_search_header>();

/// A device of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The file system's id for it.
    pub id: u64,
    /// Bytes of it that the file system uses.
    pub bytes: u64,
    /// `None` if it is missing.
    pub dev: Option<Dev>,
}

/// A mounted btrfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// By rising id.
    pub devices: Vec<Device>,
    /// Maps addresses to the devices.
    pub chunks: ChunkMap,
    /// Whether the number of the reading thread selects the copy: copy `thread % copies`.
    pub thread_chooses: bool,
}

impl Volume {
    /// Reads the layout of the file system that an open file or folder lies on. May wait for the disk.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN, `ENOTTY` if it is not a btrfs; `InvalidData` if the reported layout is
    /// inconsistent.
    pub fn read(file: impl AsFd) -> io::Result<Volume> {
        let (mut devices, mut chunks) = (Vec::new(), Vec::new());
        items(file.as_fd(), |item| {
            match (item.object, item.kind) {
                (DEVICES, BTRFS_DEV_ITEM_KEY) => devices.push(device(file.as_fd(), item.offset)?),
                (CHUNKS, BTRFS_CHUNK_ITEM_KEY) => {
                    chunks.push(Chunk::parse(item.offset, item.bytes).ok_or_else(|| {
                        io::Error::new(io::ErrorKind::InvalidData, "a chunk that cannot be")
                    })?)
                }
                _ => {}
            }
            Ok(())
        })?;
        let apart = || io::Error::new(io::ErrorKind::InvalidData, "chunks that share addresses");
        let chunks = ChunkMap::new(chunks).ok_or_else(apart)?;
        let policy = Path::new("/sys/fs/btrfs").join(uuid(file.as_fd())?).join("read_policy");
        let thread_chooses = by_thread(fs::read_to_string(policy).ok().as_deref())
            && fs::read_link("/proc/self/ns/pid").is_ok_and(|ns| ns.as_os_str() == FIRST_PIDS);
        Ok(Volume { devices, chunks, thread_chooses })
    }
}

/// Whether `read_policy` says that the number of the thread selects the copy. Before Linux 5.11 there is no
/// such file, and no other policy.
fn by_thread(policy: Option<&str>) -> bool {
    policy.is_none_or(|text| text.split_whitespace().any(|word| word == "[pid]"))
}

/// An item of the chunk tree.
struct Item<'a> {
    object: u64,
    offset: u64,
    kind: u32,
    bytes: &'a [u8],
}

/// Calls `each` with every device and chunk.
fn items(file: impl AsFd, mut each: impl FnMut(Item<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut from = (DEVICES, BTRFS_DEV_ITEM_KEY, 0u64);
    let mut seen = 0;
    let mut search = Box::new(Search { key: all_from(from), bytes: 0, answer: [0; ANSWER_BYTES] });
    loop {
        search.key = all_from(from);
        search.bytes = ANSWER_BYTES as u64;
        let args: *mut Search = &raw mut *search;
        // SAFETY: the descriptor is open for the whole call; `args` is a search followed by a buffer of the
        // `bytes` it states, all of them plain integers, which is what the request may write to.
        done(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), BTRFS_IOC_TREE_SEARCH_V2 as _, args) })?;
        let mut rest = &search.answer[..];
        for _ in 0..search.key.nr_items {
            let Some((item, behind)) = next_item(rest) else { break };
            rest = behind;
            from = (item.object, item.kind, item.offset);
            each(item)?;
        }
        seen += search.key.nr_items as usize;
        if search.key.nr_items == 0 {
            return Ok(());
        }
        if seen > ITEMS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too many chunks"));
        }
        let Some(next) = from.2.checked_add(1) else { return Ok(()) };
        from.2 = next;
    }
}

/// All devices and chunks from this object, type and offset on. The kernel keeps each of the three in its
/// range and compares them as one key, so items before the first are skipped.
fn all_from((object, kind, offset): (u64, u32, u64)) -> btrfs_ioctl_search_key {
    btrfs_ioctl_search_key {
        tree_id: BTRFS_CHUNK_TREE_OBJECTID.into(),
        min_objectid: object,
        max_objectid: CHUNKS,
        min_offset: offset,
        max_offset: u64::MAX,
        max_transid: u64::MAX,
        min_type: kind,
        max_type: BTRFS_CHUNK_ITEM_KEY,
        nr_items: u32::MAX,
        // SAFETY: the structure has only integers, of which each may be zero.
        ..unsafe { std::mem::zeroed() }
    }
}

/// Splits the first item off a result; `None` at its end.
fn next_item(answer: &[u8]) -> Option<(Item<'_>, &[u8])> {
    let (header, rest) = answer.split_at_checked(HEADER)?;
    let word = |at: usize| Some(u64::from_ne_bytes(*header.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u32::from_ne_bytes(*header.get(at..)?.first_chunk()?));
    let (bytes, rest) = rest.split_at_checked(half(28)? as usize)?;
    Some((Item { object: word(8)?, offset: word(16)?, kind: half(24)?, bytes }, rest))
}

fn device(file: impl AsFd, id: u64) -> io::Result<Device> {
    // SAFETY: the structure has only integers, of which each may be zero.
    let mut info: Box<btrfs_ioctl_dev_info_args> = Box::new(unsafe { std::mem::zeroed() });
    info.devid = id;
    // SAFETY: the descriptor is open for the whole call; `info` is the structure that the request reads and
    // writes, all of it plain integers.
    done(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), BTRFS_IOC_DEV_INFO as _, &raw mut *info) })?;
    let len = info.path.iter().position(|&byte| byte == 0).unwrap_or(info.path.len());
    let path = PathBuf::from(OsStr::from_bytes(&info.path[..len]));
    let dev = if len == 0 { None } else { number_of(&path) };
    Ok(Device { id, bytes: info.total_bytes, dev })
}

/// The kernel's device number for a path, which may have no node that is visible here.
fn number_of(path: &Path) -> Option<Dev> {
    let by_node = fs::metadata(path).ok().map(|meta| Dev::from_raw(meta.rdev())).filter(|dev| dev.major != 0);
    by_node.or_else(|| {
        let dev = Path::new("/sys/class/block").join(path.file_name()?).join("dev");
        Dev::parse(&fs::read_to_string(dev).ok()?)
    })
}

/// The name of the file system's folder below `/sys/fs/btrfs`.
fn uuid(file: impl AsFd) -> io::Result<String> {
    // SAFETY: the structure has only integers, of which each may be zero.
    let mut info: btrfs_ioctl_fs_info_args = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open for the whole call; `info` is the structure that the request writes, all
    // of it plain integers.
    done(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), BTRFS_IOC_FS_INFO as _, &raw mut info) })?;
    let hex: String = info.fsid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Ok(parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart_and_never_read_past_their_end() {
        let mut answer = Vec::new();
        for (object, offset, kind, item) in [(1u64, 7u64, 216u32, &b"abc"[..]), (256, 9, 228, b"")] {
            answer.extend(5u64.to_ne_bytes());
            answer.extend(object.to_ne_bytes());
            answer.extend(offset.to_ne_bytes());
            answer.extend(kind.to_ne_bytes());
            answer.extend((item.len() as u32).to_ne_bytes());
            answer.extend(item);
        }
        let (first, rest) = next_item(&answer).unwrap();
        assert_eq!((first.object, first.offset, first.kind, first.bytes), (1, 7, 216, &b"abc"[..]));
        let (second, rest) = next_item(rest).unwrap();
        assert_eq!((second.object, second.offset, second.kind), (256, 9, 228));
        assert!(next_item(rest).is_none());
        assert!(next_item(&answer[..HEADER + 2]).is_none(), "cut within an item");
    }

    #[test]
    fn the_policy_that_is_in_force_is_in_brackets() {
        assert!(by_thread(None) && by_thread(Some("[pid]\n")));
        assert!(by_thread(Some("[pid] round-robin:0 devid:1\n")));
        assert!(!by_thread(Some("pid [round-robin] devid:1\n")));
    }

    #[test]
    fn what_is_no_btrfs_says_so() {
        let refused = Volume::read(fs::File::open("/proc/self/stat").unwrap()).unwrap_err();
        assert!(refused.raw_os_error().is_some(), "{refused}");
    }
}
