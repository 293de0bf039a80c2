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

use crate::syscall::done;
use crate::topology::Dev;

pub use chunks::{Chunk, ChunkMap, Profile, Stripe};

/// `_IOWR(0x94, 17, struct btrfs_ioctl_search_args_v2)`, 112 bytes without its buffer.
const TREE_SEARCH_V2: libc::c_ulong = 0xC070_9411;
/// `_IOWR(0x94, 30, struct btrfs_ioctl_dev_info_args)`.
const DEV_INFO: libc::c_ulong = 0xD000_941E;
/// `_IOR(0x94, 31, struct btrfs_ioctl_fs_info_args)`.
const FS_INFO: libc::c_ulong = 0x8400_941F;

/// Objects and items of the chunk tree (linux/btrfs_tree.h).
const CHUNK_TREE: u64 = 3;
const DEVICES: u64 = 1;
const CHUNKS: u64 = 256;
const DEV_ITEM: u32 = 216;
const CHUNK_ITEM: u32 = 228;

/// Buffer for the results of one search: some eight hundred chunks.
const ANSWER_BYTES: usize = 64 << 10;

/// Maximum number of items read. A chunk has one to ten gigabytes, so that is a petabyte; larger file systems
/// are not mapped.
const ITEMS_MAX: usize = 1 << 20;

/// Inode of the first process namespace (`PROC_PID_INIT_INO`), whose process ids are the kernel's own.
const FIRST_PIDS: &str = "pid:[4026531836]";

/// `struct btrfs_ioctl_search_key`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Key {
    tree: u64,
    object_min: u64,
    object_max: u64,
    offset_min: u64,
    offset_max: u64,
    transaction_min: u64,
    transaction_max: u64,
    type_min: u32,
    type_max: u32,
    items: u32,
    unused: u32,
    reserved: [u64; 4],
}

/// `struct btrfs_ioctl_search_args_v2` with a buffer for results.
#[repr(C)]
struct Search {
    key: Key,
    bytes: u64,
    answer: [u8; ANSWER_BYTES],
}

/// `struct btrfs_ioctl_search_header`.
const HEADER: usize = 32;

/// `struct btrfs_ioctl_dev_info_args`.
#[repr(C)]
struct DevInfo {
    device: u64,
    uuid: [u8; 16],
    used: u64,
    total: u64,
    reserved: [u64; 379],
    path: [u8; 1024],
}

/// `struct btrfs_ioctl_fs_info_args`.
#[repr(C)]
struct FsInfo {
    max_id: u64,
    devices: u64,
    uuid: [u8; 16],
    reserved: [u8; 992],
}

const _: () = assert!(size_of::<Key>() == 104 && size_of::<Search>() == 112 + ANSWER_BYTES);
const _: () = assert!(size_of::<DevInfo>() == 4096 && size_of::<FsInfo>() == 1024);

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
                (DEVICES, DEV_ITEM) => devices.push(device(file.as_fd(), item.offset)?),
                (CHUNKS, CHUNK_ITEM) => {
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
    let mut from = (DEVICES, DEV_ITEM, 0u64);
    let mut seen = 0;
    let mut search = Box::new(Search { key: Key::from(from), bytes: 0, answer: [0; ANSWER_BYTES] });
    loop {
        search.key = Key::from(from);
        search.bytes = ANSWER_BYTES as u64;
        let args: *mut Search = &raw mut *search;
        // SAFETY: the descriptor is open for the whole call; `args` is a search followed by a buffer of the
        // `bytes` it states, all of them plain integers, which is what the request may write to.
        done(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), TREE_SEARCH_V2 as _, args) })?;
        let mut rest = &search.answer[..];
        for _ in 0..search.key.items {
            let Some((item, behind)) = next_item(rest) else { break };
            rest = behind;
            from = (item.object, item.kind, item.offset);
            each(item)?;
        }
        seen += search.key.items as usize;
        if search.key.items == 0 {
            return Ok(());
        }
        if seen > ITEMS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too many chunks"));
        }
        let Some(next) = from.2.checked_add(1) else { return Ok(()) };
        from.2 = next;
    }
}

impl From<(u64, u32, u64)> for Key {
    /// All devices and chunks from this object, type and offset on. The kernel keeps each of the three in its
    /// range and compares them as one key, so items before the first are skipped.
    fn from((object, kind, offset): (u64, u32, u64)) -> Key {
        Key {
            tree: CHUNK_TREE,
            object_min: object,
            object_max: CHUNKS,
            offset_min: offset,
            offset_max: u64::MAX,
            transaction_min: 0,
            transaction_max: u64::MAX,
            type_min: kind,
            type_max: CHUNK_ITEM,
            items: u32::MAX,
            unused: 0,
            reserved: [0; 4],
        }
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
    let mut info = Box::new(DevInfo {
        device: id,
        uuid: [0; 16],
        used: 0,
        total: 0,
        reserved: [0; 379],
        path: [0; 1024],
    });
    let args: *mut DevInfo = &raw mut *info;
    // SAFETY: the descriptor is open for the whole call; `args` has the size and layout that the request
    // reads and writes (asserted above), all of it plain integers.
    done(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), DEV_INFO as _, args) })?;
    let len = info.path.iter().position(|&byte| byte == 0).unwrap_or(info.path.len());
    let path = PathBuf::from(OsStr::from_bytes(&info.path[..len]));
    let dev = if len == 0 { None } else { number_of(&path) };
    Ok(Device { id, bytes: info.total, dev })
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
    let mut info = FsInfo { max_id: 0, devices: 0, uuid: [0; 16], reserved: [0; 992] };
    // SAFETY: the descriptor is open for the whole call; `info` has the size and layout that the request
    // writes (asserted above), all of it plain integers.
    done(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FS_INFO as _, &raw mut info) })?;
    let hex: String = info.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
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
