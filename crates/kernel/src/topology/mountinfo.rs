//! The mount table, `/proc/self/mountinfo` (proc(5)), with the fields that are needed to find a disk.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::Dev;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number, as `mnt_id` in `/proc/PID/fdinfo`.
    pub id: u64,
    /// Number of the file system.
    pub dev: Dev,
    /// The folder of the file system that is mounted there.
    pub root: PathBuf,
    /// Where it is mounted.
    pub target: PathBuf,
    /// `ext4`, `fuse.sshfs`, ...
    pub fs_type: String,
    /// The source: a device's path or any text.
    pub source: String,
    /// Options of the file system, comma-separated.
    pub options: String,
}

impl Mount {
    /// An overlay's layers with absolute paths, the uppermost first: the writable one, then the read-only
    /// ones. Colons within a path are escaped by a backslash; since Linux 6.5 a layer may be an option of its
    /// own (`lowerdir+=`).
    pub fn overlay_layers(&self) -> Vec<PathBuf> {
        let mut layers = Vec::new();
        let options = || self.options.split(',');
        layers.extend(options().find_map(|o| o.strip_prefix("upperdir=")).map(unescape_colons));
        for option in options() {
            if let Some(one) = option.strip_prefix("lowerdir+=").or(option.strip_prefix("datadir+=")) {
                layers.push(unescape_colons(one));
            } else if let Some(list) = option.strip_prefix("lowerdir=") {
                layers.extend(split_colons(list).filter(|l| !l.is_empty()).map(unescape_colons));
            }
        }
        layers.retain(|layer| layer.is_absolute());
        layers
    }

    /// The writable layer of an overlay, or its first read-only one.
    pub(super) fn overlay_layer(&self) -> Option<PathBuf> {
        self.overlay_layers().into_iter().next()
    }
}

/// Splits at colons without a preceding backslash.
fn split_colons(list: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    list.split(move |c: char| {
        let here = c == ':' && !escaped;
        escaped = c == '\\' && !escaped;
        here
    })
}

fn unescape_colons(path: &str) -> PathBuf {
    PathBuf::from(path.replace("\\:", ":"))
}

/// All mounts in the table's order: later ones cover earlier ones.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    mounts: Vec<Mount>,
}

impl MountTable {
    /// This process's table. Empty if `/proc` cannot be read.
    pub fn of_system() -> MountTable {
        MountTable::read().unwrap_or_default()
    }

    /// This process's table.
    ///
    /// # Errors
    /// `/proc` is missing or not readable.
    pub fn read() -> io::Result<MountTable> {
        Ok(MountTable::parse(&fs::read("/proc/self/mountinfo")?))
    }

    /// Parses the text of a table; skips lines that do not follow the format.
    pub fn parse(text: &[u8]) -> MountTable {
        let lines = text.split(|&b| b == b'\n');
        MountTable { mounts: lines.filter_map(parse_line).collect() }
    }

    /// Every mount.
    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// The mount with this number.
    pub fn by_id(&self, id: u64) -> Option<&Mount> {
        self.mounts.iter().find(|m| m.id == id)
    }

    /// A mount of the file system with this number.
    pub fn by_dev(&self, dev: Dev) -> Option<&Mount> {
        self.mounts.iter().find(|m| m.dev == dev)
    }

    /// The mount on which an absolute path lies. Symlinks are not followed.
    pub fn by_path(&self, path: &Path) -> Option<&Mount> {
        let covering = self.mounts.iter().filter(|m| path.starts_with(&m.target));
        // Of several equally long ones, the last one is on top.
        covering.max_by_key(|m| m.target.components().count())
    }
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let dev = Dev::parse(std::str::from_utf8(fields.nth(1)?).ok()?)?;
    let root = PathBuf::from(unescape(fields.next()?));
    let target = PathBuf::from(unescape(fields.next()?));
    // Any number of optional fields ends with a single dash.
    let mut after = fields.skip_while(|f| *f != b"-").skip(1);
    let text = |field: &[u8]| unescape(field).to_string_lossy().into_owned();
    let fs_type = text(after.next()?);
    let source = text(after.next()?);
    let options = after.next().map(text).unwrap_or_default();
    Some(Mount { id, dev, root, target, fs_type, source, options })
}

/// Spaces, tabs, newlines and backslashes are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|d| first == b'\\' && d.iter().all(|c| (b'0'..=b'7').contains(c)));
        match octal {
            Some(digits) => {
                out.push(digits.iter().fold(0u8, |n, c| n.wrapping_mul(8).wrapping_add(c - b'0')));
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_optional_fields_and_escapes() {
        let table = MountTable::parse(
            b"22 27 8:1 / / rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw\n\
              a line that is not one\n\
              30 22 0:45 /sub /mnt/a\\040b rw - btrfs /dev/sdb rw,subvol=/sub\n\
              31 22 0:46 / /var/lib/o rw - overlay overlay rw,lowerdir=/l1:/l2,upperdir=/data/up,workdir=/data/w\n",
        );
        assert_eq!(table.iter().count(), 3);
        assert_eq!(table.by_id(30).unwrap().target, Path::new("/mnt/a b"));
        assert_eq!(table.by_id(30).unwrap().source, "/dev/sdb");
        assert_eq!(table.by_dev(Dev { major: 8, minor: 1 }).unwrap().fs_type, "ext4");
        assert_eq!(table.by_path(Path::new("/mnt/a b/file")).unwrap().id, 30);
        assert_eq!(table.by_path(Path::new("/mnt/a")).unwrap().id, 22);
        assert_eq!(table.by_id(31).unwrap().overlay_layer(), Some(PathBuf::from("/data/up")));
        assert_eq!(table.by_id(30).unwrap().root, Path::new("/sub"));
        assert!(MountTable::read().unwrap().by_path(Path::new("/")).is_some(), "this machine has a root");
    }

    #[test]
    fn the_deepest_and_last_mount_counts() {
        let line =
            |root: &str, target: &str, fs: &str| format!("1 2 8:1 {root} {target} rw - {fs} /dev/x rw\n");
        let text = line("/", "/", "ext4")
            + &line("/", "/a", "xfs")
            + &line("/b", "/a", "btrfs")
            + &line("/", "/a/b c", "tmpfs");
        let table = MountTable::parse(text.as_bytes());
        let of = |p: &str| table.by_path(Path::new(p)).map(|m| m.fs_type.clone()).unwrap();
        assert_eq!(of("/a/x"), "btrfs");
        assert_eq!(of("/ab"), "ext4");
        assert_eq!(of("/"), "ext4");
    }

    #[test]
    fn layers_of_an_overlay_are_read_from_top_to_bottom() {
        let layers = |options: &str| {
            let line = format!("31 22 0:46 / /o rw - overlay overlay {options}\n");
            let table = MountTable::parse(line.as_bytes());
            let layers = table.by_id(31).unwrap().overlay_layers();
            layers.iter().map(|l| l.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(layers("rw,lowerdir=/a:/b,upperdir=/u,workdir=/w"), ["/u", "/a", "/b"]);
        // The mount table escapes the backslash of an escaped colon once more.
        assert_eq!(layers("ro,lowerdir=/a\\134:b:/c::/data"), ["/a:b", "/c", "/data"]);
        assert_eq!(layers("ro,lowerdir+=/x,lowerdir+=/y"), ["/x", "/y"]);
        assert_eq!(layers("ro,lowerdir=l/ABC:l/DEF"), [""; 0], "relative to whoever mounted it");
    }
}
