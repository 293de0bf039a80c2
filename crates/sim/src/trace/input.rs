//! Opening a trace: plain, gz, xz or zst, told apart by their first bytes, and read as a stream.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use seekless_units::{Exit, Fault};

/// Read buffer: large enough that a line rarely straddles two.
const BUFFER_BYTES: usize = 1 << 17;

/// A stream of unpacked bytes, and what is known of it.
pub struct Input {
    /// The bytes.
    pub bytes: Box<dyn BufRead + Send>,
    /// Size of the file on disk, packed; 0 for standard input.
    pub packed_bytes: u64,
    /// Packed bytes read so far.
    pub read: Arc<AtomicU64>,
    /// File name without directory and compression suffix, to guess a format from.
    pub name: String,
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

/// Zstandard frames one after another; the library's decoder ends with the first.
struct ZstdFrames<R: BufRead> {
    source: Option<R>,
    current: Option<StreamingDecoder<R, FrameDecoder>>,
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.current.is_none() {
                let Some(mut source) = self.source.take() else { return Ok(0) };
                if source.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                let decoder = StreamingDecoder::new(source)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {e}")))?;
                self.current = Some(decoder);
            }
            let Some(decoder) = self.current.as_mut() else { return Ok(0) };
            let n = decoder.read(buffer)?;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            self.source = self.current.take().map(StreamingDecoder::into_inner);
        }
    }
}

/// Opens a trace; `-` is standard input.
///
/// # Errors
/// No such file, no permission, a directory.
pub fn open(path: &Path) -> Result<Input, Fault> {
    let fault = |e: io::Error| {
        let exit = match e.kind() {
            io::ErrorKind::NotFound => Exit::Missing,
            io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Failed,
        };
        Fault::new(exit, format!("{}: cannot be read: {e}", path.display()))
    };
    let read = Arc::new(AtomicU64::new(0));
    let (raw, packed_bytes): (Box<dyn Read + Send>, u64) = if path == Path::new("-") {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(path).map_err(fault)?;
        let meta = file.metadata().map_err(fault)?;
        if meta.is_dir() {
            return Err(Fault::new(Exit::Usage, format!("{}: is a directory, not a trace", path.display())));
        }
        (Box::new(file), meta.len())
    };
    let mut raw = BufReader::with_capacity(BUFFER_BYTES, Counted { inner: raw, read: read.clone() });
    let head = raw.fill_buf().map_err(fault)?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let name = [".gz", ".xz", ".zst"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(&name).to_owned();
    let bytes: Box<dyn BufRead + Send> = if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(raw)))
    } else if head.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, XzReader::new(raw, true)))
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let frames = ZstdFrames { source: Some(raw), current: None };
        Box::new(BufReader::with_capacity(BUFFER_BYTES, frames))
    } else {
        Box::new(raw)
    };
    Ok(Input { bytes, packed_bytes, read, name })
}
