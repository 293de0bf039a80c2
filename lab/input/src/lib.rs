//! Opens input files (logs, traces): a file or standard input, plain or packed with gzip, xz or zstd, told
//! apart by its first bytes and read as one stream.
//!
//! Memory does not grow with the file: it is the read buffers and the unpacker's window (64 MiB for `xz -9`;
//! a zstd window above 100 MiB, which takes `--long=27`, is refused). A stream that is damaged or ends too
//! early is an error, never a short result: whatever checksum the format carries is compared.
//!
//! Must not know: what is in the file; which code reads it.

mod zstd;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use seekless_base::Fault;
use seekless_output::input::unreadable;

/// Read buffer: large enough that a line rarely straddles two.
const BUFFER_BYTES: usize = 1 << 18;

/// The longest mark a packer puts at the beginning of a file: that of xz.
const HEAD_BYTES: u64 = 6;

/// A stream of unpacked bytes, and what is known of it.
pub struct Input {
    /// The bytes.
    pub bytes: Box<dyn BufRead + Send>,
    /// How much of the file was read.
    pub progress: Progress,
    /// File name without directory and ending of the packer, to guess a format from.
    pub name: String,
}

/// How far a file has been read, in bytes as they lie on the disk; its copies stay up to date.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    read: Arc<AtomicU64>,
    total: u64,
}

impl Progress {
    /// Bytes read so far.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes in all; 0 if that is not known beforehand, as for standard input.
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Gzip,
    Xz,
    Zstd,
}

impl Packing {
    /// By the first bytes of a file.
    fn of(head: &[u8]) -> Option<Packing> {
        match head {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Packing::Xz),
            // A frame, or one to be skipped: `pzstd` begins with such.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Packing::Zstd),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Xz => "xz",
            Packing::Zstd => "zstd",
        }
    }

    fn unpack(self, raw: impl BufRead + Send + 'static) -> Box<dyn BufRead + Send> {
        let inner: Box<dyn Read + Send> = match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(raw)),
            Packing::Xz => Box::new(XzReader::new(raw, true)),
            Packing::Zstd => Box::new(zstd::Frames::new(raw)),
        };
        Box::new(BufReader::with_capacity(BUFFER_BYTES, Unpacked { inner, packing: self }))
    }
}

/// Says of an unpacker's errors what they mean.
struct Unpacked<R> {
    inner: R,
    packing: Packing,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|e| {
            // What the system says of the file itself stands as it is.
            if e.raw_os_error().is_some() {
                return e;
            }
            let what = format!("damaged or cut short ({}: {e})", self.packing.name());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }
}

struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Opens a file; `-` is standard input.
///
/// # Errors
/// Those of [`unreadable`]. What is packed and damaged fails where it is read.
pub fn open(path: &Path) -> Result<Input, Fault> {
    let fault = |e: io::Error| unreadable(path, &e);
    let (raw, total): (Box<dyn Read + Send>, u64) = if path == Path::new("-") {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(path).map_err(fault)?;
        let meta = file.metadata().map_err(fault)?;
        if meta.is_dir() {
            return Err(fault(io::ErrorKind::IsADirectory.into()));
        }
        (Box::new(file), meta.len())
    };
    let progress = Progress { read: Arc::default(), total };
    let counted = Counted { inner: raw, read: Arc::clone(&progress.read) };
    let bytes = unpacked(BufReader::with_capacity(BUFFER_BYTES, counted)).map_err(fault)?;
    Ok(Input { bytes, progress, name: plain_name(path) })
}

/// A stream as it is or unpacked, as its first bytes say. A pipe may hand them over one by one.
fn unpacked(mut raw: impl BufRead + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut head = Vec::new();
    (&mut raw).take(HEAD_BYTES).read_to_end(&mut head)?;
    let packing = Packing::of(&head);
    let whole = io::Cursor::new(head).chain(raw);
    Ok(match packing {
        Some(packing) => packing.unpack(whole),
        None => Box::new(whole),
    })
}

fn plain_name(path: &Path) -> String {
    let name = path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
    [".gz", ".xz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests;
