//! Tracepoints of the kernel: whether they exist, their numbers, and the layout of their fields.
//!
//! The kernel describes each tracepoint in files of `tracefs`. If no tracefs is mounted, one is made without
//! a mount point (`fsopen`, `fsmount`): it is reached only through its descriptor and ends with it, so
//! nothing stays behind.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// The usual mount points.
const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Maximum length of a description. Those used here have about 800 bytes.
const FORMAT_MAX: usize = 16 << 10;

/// Why a tracepoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The kernel has no tracefs, or no such tracepoint; the text says which.
    #[error("this kernel has no {0}")]
    Missing(String),
    /// Root, a capability, or lockdown: the kernel does not permit it.
    #[error("the kernel does not permit the use of {0}")]
    NotPermitted(String),
    /// Any other error.
    #[error("{0}: {1}")]
    Other(String, io::Error),
}

impl TraceError {
    pub(crate) fn of(what: impl Into<String>, error: io::Error) -> TraceError {
        let what = what.into();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => TraceError::NotPermitted(what),
            Some(libc::ENOENT | libc::ENODEV | libc::ENOSYS | libc::EOPNOTSUPP) => TraceError::Missing(what),
            None if error.kind() == io::ErrorKind::Unsupported => {
                TraceError::Missing(format!("{what} {error}"))
            }
            _ => TraceError::Other(what, error),
        }
    }
}

/// The kernel's descriptions of its tracepoints.
#[derive(Debug)]
pub struct Tracefs {
    root: OwnedFd,
}

impl Tracefs {
    /// What an error calls it.
    pub(crate) const NAME: &str = "tracefs";

    /// At its mount point, else without one.
    ///
    /// # Errors
    /// The kernel has none, or does not permit it.
    pub fn open() -> Result<Tracefs, TraceError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for place in USUAL {
            let Ok(root) = rustix::fs::open(place, flags, Mode::empty()) else { continue };
            if openat(&root, "events", flags, Mode::empty()).is_ok() {
                return Ok(Tracefs { root });
            }
        }
        let made = || -> rustix::io::Result<OwnedFd> {
            let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(context.as_fd())?;
            fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)
        };
        let root = made().map_err(|e| TraceError::of(Tracefs::NAME, e.into()))?;
        Ok(Tracefs { root })
    }

    /// A tracepoint of this group and name.
    ///
    /// # Errors
    /// It does not exist, may not be read, or has a description that is not understood.
    pub fn tracepoint(&self, group: &str, name: &str) -> Result<Tracepoint, TraceError> {
        let what = format!("tracepoint {group}:{name}");
        let path = format!("events/{group}/{name}/format");
        let file = openat(&self.root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| TraceError::of(what.as_str(), e.into()))?;
        let mut text = Vec::new();
        let mut part = [0u8; 4096];
        loop {
            let read = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut part))
                .map_err(|e| TraceError::of(what.as_str(), e.into()))?;
            text.extend_from_slice(&part[..read]);
            if read == 0 || text.len() > FORMAT_MAX {
                break;
            }
        }
        let unknown = || TraceError::Missing(format!("{what} in a form that is known"));
        Tracepoint::parse(&String::from_utf8_lossy(&text)).ok_or_else(unknown)
    }
}

/// One tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its number, for `perf_event_open`.
    pub id: u64,
    fields: Vec<(String, Field)>,
}

/// The place of a field in a record, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset of its first byte.
    pub offset: usize,
    /// Its length.
    pub size: usize,
}

impl Tracepoint {
    /// Parses the kernel's description: `ID: 599`, then one `field:TYPE NAME; offset:8; size:8; signed:0;` a
    /// line.
    fn parse(text: &str) -> Option<Tracepoint> {
        let mut id = None;
        let mut fields = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            }
            let Some(rest) = line.strip_prefix("field:") else { continue };
            let mut parts = rest.split(';').map(str::trim);
            let name = parts.next()?.rsplit([' ', '*']).next()?.to_string();
            let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
            let field = Field { offset: number("offset:")?, size: number("size:")? };
            fields.push((name, field));
        }
        Some(Tracepoint { id: id?, fields })
    }

    /// The place of a field; `None` if there is none of this name, or it is not a number.
    pub fn field(&self, name: &str) -> Option<Field> {
        let field = self.fields.iter().find(|(n, _)| n == name)?.1;
        matches!(field.size, 1 | 2 | 4 | 8).then_some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: mm_filemap_get_pages\nID: 599\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long i_ino;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:dev_t s_dev;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:char name[16];\toffset:20;\tsize:16;\tsigned:0;\n\n\
        print fmt: \"dev=%d:%d\", REC->s_dev >> 20\n";

    #[test]
    fn fields_are_found_where_the_kernel_says() {
        let point = Tracepoint::parse(FORMAT).unwrap();
        assert_eq!(point.id, 599);
        assert_eq!(point.field("i_ino"), Some(Field { offset: 8, size: 8 }));
        assert_eq!(point.field("s_dev"), Some(Field { offset: 16, size: 4 }));
        assert_eq!(point.field("name[16]"), None, "a text is no number");
        assert_eq!(point.field("index"), None);
    }

    #[test]
    fn a_description_cut_short_is_refused() {
        assert_eq!(Tracepoint::parse("name: x\nformat:\n"), None);
        assert_eq!(Tracepoint::parse("ID: 1\n\tfield:int a; offset:x; size:4;"), None);
    }

    #[test]
    fn what_is_not_there_is_named() {
        match Tracefs::open() {
            Ok(tracefs) => {
                let error = tracefs.tracepoint("filemap", "no_such_event").unwrap_err();
                assert!(matches!(&error, TraceError::Missing(_)), "{error:?}");
                assert!(error.to_string().contains("filemap:no_such_event"), "{error}");
            }
            Err(error) => println!("skipped: {error}"),
        }
    }
}
