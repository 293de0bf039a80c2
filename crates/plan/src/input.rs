//! Lines of a file, gzip or not, bounded in length.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use seekless_units::{Exit, Fault};

/// Read buffer: large enough that a line rarely straddles two.
const BUFFER_BYTES: usize = 1 << 18;
/// Longest line taken, bytes; servers limit a request's head to 8 KiB or so, and a log line holds two of its fields.
const LINE_BYTES_MAX: usize = 1 << 16;

/// A file read line by line.
pub(crate) struct Lines {
    bytes: Box<dyn BufRead>,
    line: Vec<u8>,
}

struct Counted<R> {
    inner: R,
    bar: ProgressBar,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.bar.inc(n as u64);
        Ok(n)
    }
}

/// Size of the file on disk; 0 for standard input.
pub(crate) fn packed_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| if m.is_file() { m.len() } else { 0 })
}

/// Opens a file; `-` is standard input. The bar is moved on by the bytes read, as packed.
pub(crate) fn open(path: &Path, bar: &ProgressBar) -> Result<Lines, Fault> {
    let fault = |e: io::Error| {
        let exit = match e.kind() {
            io::ErrorKind::NotFound => Exit::Missing,
            io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Failed,
        };
        Fault::new(exit, format!("{}: cannot be read: {e}", path.display()))
    };
    let raw: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        let file = File::open(path).map_err(fault)?;
        if file.metadata().map_err(fault)?.is_dir() {
            return Err(Fault::new(Exit::Usage, format!("{}: is a directory, not a log", path.display())));
        }
        Box::new(file)
    };
    let mut raw = BufReader::with_capacity(BUFFER_BYTES, Counted { inner: raw, bar: bar.clone() });
    let head = raw.fill_buf().map_err(fault)?;
    if head.starts_with(&[0xfd, b'7', b'z', b'X', b'Z']) || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let how = format!("{}: is packed with xz or zstd; unpack it into `--log -`", path.display());
        return Err(Fault::new(Exit::Usage, how));
    }
    let bytes: Box<dyn BufRead> = if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(raw)))
    } else {
        Box::new(raw)
    };
    Ok(Lines { bytes, line: Vec::with_capacity(512) })
}

impl Lines {
    /// The next line without its end; nothing after the last.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, String> {
        self.line.clear();
        loop {
            let buffer = self.bytes.fill_buf().map_err(|e| format!("cannot be read: {e}"))?;
            if buffer.is_empty() {
                return Ok((!self.line.is_empty()).then_some(&self.line));
            }
            let (take, done) = match buffer.iter().position(|b| *b == b'\n') {
                Some(at) => (at, true),
                None => (buffer.len(), false),
            };
            if self.line.len() + take > LINE_BYTES_MAX {
                return Err(format!("longer than {LINE_BYTES_MAX} bytes; this is no access log"));
            }
            self.line.extend_from_slice(&buffer[..take]);
            self.bytes.consume(take + usize::from(done));
            if done {
                return Ok(Some(&self.line));
            }
        }
    }
}
