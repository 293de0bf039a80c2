use core::fmt;

/// Which file, as `fstat` tells it. Two descriptors of one file have one `FileId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Device number of the file system.
    pub dev: u64,
    /// Inode number on it.
    pub ino: u64,
}

/// A word that names none of the values it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// The words that do, with commas between.
    pub known: &'static str,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown name; known are {}", self.known)
    }
}

impl core::error::Error for UnknownName {}
