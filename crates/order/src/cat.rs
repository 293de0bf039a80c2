//! `seekless cat-set`: the contents of a set in the order of the disk, as one tar stream.
//!
//! A consumer of the library makes the stream ([`crate::Set`]): it takes ranges of files whose bytes are in
//! memory. A tar member states its size before its content, so a later change cannot change the size: a file
//! that became shorter is filled up with zeros, one that became longer is cut, and each gives one line on
//! standard error.
//!
//! Holes, and space that was allocated and never written, are marked and not written, as `tar -S` does, as a
//! sparse member of the GNU format. Its header has the first four stretches of data, and each block behind it
//! 21 more.

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use clap::Args;
use seekless_base::{Bytes, Exit, Fault};
use serde::Serialize;
use tar::{Builder, EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use crate::ahead::AheadSummary;
use crate::cli::{self, ListOptions, standard};
use crate::holes::{self, Stretch};
use crate::look::{self, By, How};
use crate::set::{Item, Options, Set, WINDOW};
use crate::sparse_map;
use crate::summary::Tally;
use crate::walk::List;
use crate::window::LEAST;

/// Bytes of one read or write. At half, there are more calls; at double, the reader of the pipe waits longer
/// for the first of them.
const BUFFER: usize = 64 << 10;

/// Size of a pipe on standard output: the maximum for any user (`fs.pipe-max-size`). With a pipe of one
/// [`BUFFER`], its reader and this process would work in turns. At half, they wait for each other more often;
/// at double, the kernel refuses it.
const PIPE: usize = 1 << 20;

/// Zeros after a member's content, up to the next multiple of this.
const TAR_BLOCK: u64 = 512;

/// Maximum number of stretches of data of a sparse member. At 24 bytes each they take as much of the stream,
/// and less memory, than a directory of a million files. At half, files in many pieces have fewer holes in
/// the stream; at double, their headers take 3 MiB.
const STRETCHES_MAX: usize = 65_536;

/// Write the contents of files as one tar stream, in the order in which their disk reads them best
///
/// Takes files as arguments, or a list of them from standard input; a folder stands for the regular files
/// below it. What cannot be read (a path that vanished, a device, a file without permission) is one line on
/// standard error; the rest goes on, and the exit status is 1.
#[derive(Args, Debug)]
#[command(after_help = "Example: seekless cat-set /srv/photos | ssh backup 'tar x -C /srv/copy'")]
pub struct CatSetArgs {
    #[command(flatten)]
    list: ListOptions,
    /// Sort by address (of a file's first bytes on its disk), inode (number) or listed (not at all)
    #[arg(long, value_enum, default_value_t = By::Address)]
    by: By,
    /// Read files into memory at most SIZE before they are written; 0 leaves that to the kernel
    #[arg(long, value_name = "SIZE", default_value_t = Bytes(WINDOW))]
    ahead: Bytes,
}

/// `--json`.
#[derive(Debug, Default, Serialize)]
struct Summary {
    /// Files in the stream.
    files: u64,
    /// Bytes of their contents, without holes.
    bytes: u64,
    /// Bytes of holes, which are only marked in the stream.
    holes: u64,
    /// Of the files, those ordered by the address of their first bytes.
    by_address: u64,
    /// By inode number.
    by_inode: u64,
    /// In the order of the list.
    as_listed: u64,
    /// Files whose content in the stream differs from the disk: they changed, or a read failed.
    changed: u64,
    /// Paths that are not in the stream.
    failures: u64,
    /// Batches, each sorted by itself.
    batches: u64,
    /// Counts of reading ahead; absent with `--ahead 0`.
    ahead: Option<AheadSummary>,
}

/// Runs a `cat-set` command.
///
/// # Errors
/// `Failed`: some files are not in the stream, or not whole; the list or the output broke. `Usage`: standard
/// output is a terminal.
pub fn run(args: CatSetArgs) -> Result<Exit, Fault> {
    if args.ahead != Bytes::ZERO {
        cli::enough(args.ahead)?;
    }
    let nowhere = args.list.json.is_stdout();
    if !nowhere && io::stdout().is_terminal() {
        let text = "a tar stream is not for a terminal: send standard output to a pipe or to a file";
        return Err(Fault::usage(text));
    }
    let to = if nowhere { None } else { Some(File::from(standard(io::stdout())?)) };
    if let Some(to) = &to
        && rustix::pipe::fcntl_getpipe_size(to).is_ok_and(|size| size < PIPE)
    {
        // The present size is enough if the user has too many pages in pipes.
        let _ = rustix::pipe::fcntl_setpipe_size(to, PIPE);
    }
    let out = Out { to, buffer: vec![0; BUFFER].into_boxed_slice(), filled: 0 };
    let end = args.list.end();
    // Standard output may be a file of the set.
    let own = match nowhere {
        true => None,
        false => rustix::fs::fstat(io::stdout()).ok().map(|stat| (stat.st_dev, stat.st_ino)),
    };
    let list = List::new(cli::from(args.list.paths, end)?, None, true);
    let options = Options {
        window: args.ahead.0,
        // Not longer than the window, so that a long file is read ahead to its end.
        range_max: LEAST.min(args.ahead.0),
        by: args.by,
        folders: true,
        batch: args.list.batch,
        daemon: !args.list.no_daemon,
    };
    let set = Set::of(list, &options);
    let set = set.map_err(|e| Fault::failed(format!("cannot read ahead: {e}")))?.without_holes();
    // The number of bytes is known once a batch has been looked up.
    let tally = Tally::new(seekless_output::bar(1, seekless_output::BYTES));
    let mut stream = Stream { out: Builder::new(out), own, set, tally, sums: Summary::default() };
    let written = stream.write();
    stream.tally.bar.finish_and_clear();
    stream.sums.failures = stream.tally.failures;
    stream.sums.batches = stream.set.counts().batches;
    stream.sums.ahead = stream.set.ahead();
    if let Some(to) = args.list.json.path() {
        seekless_output::json(to, &stream.sums)?;
    }
    match written {
        // Its reader has ended.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(Exit::Ok),
        Err(e) => return Err(Fault::failed(format!("standard output cannot be written: {e}"))),
        Ok(()) => {}
    }
    if let Some(e) = stream.set.broken() {
        return Err(Fault::failed(format!("the list cannot be read to its end: {e}")));
    }
    let (failures, changed) = (stream.sums.failures, stream.sums.changed);
    if failures + changed > 0 {
        let paths = stream.sums.files + failures;
        return Err(Fault::failed(format!(
            "of {paths} paths, {failures} are not in the stream and {changed} changed in it"
        )));
    }
    Ok(Exit::Ok)
}

struct Stream {
    out: Builder<Out>,
    /// Device and inode of standard output.
    own: Option<(u64, u64)>,
    set: Set,
    tally: Tally,
    sums: Summary,
}

impl Stream {
    /// Writes every file of the set, and the end of the stream.
    fn write(&mut self) -> io::Result<()> {
        while let Some(next) = self.set.next() {
            match next {
                Ok(item) => self.file(item)?,
                Err(failure) => self.tally.refuse(failure.path.as_os_str().as_bytes(), &failure.reason),
            }
        }
        self.out.finish()?;
        self.out.get_mut().flush()
    }

    /// Writes a file of which `item` is the first range.
    fn file(&mut self, item: Item) -> io::Result<()> {
        self.tally.bar.set_length(self.set.counts().bytes);
        let path = item.path.as_os_str().as_bytes();
        let (file, meta) = match open(&item.path) {
            Ok(opened) => opened,
            Err(why) => {
                self.tally.refuse(path, &why);
                skip_rest(&mut self.set, item.last);
                return Ok(());
            }
        };
        if self.own == Some((meta.dev(), meta.ino())) {
            self.tally.say(path, "is the stream itself, and is left out");
            skip_rest(&mut self.set, item.last);
            return Ok(());
        }
        let mut header = Header::new_gnu();
        header.set_metadata(&meta);
        // Before 1970 there is no time in tar.
        header.set_mtime(meta.mtime().max(0).cast_unsigned());
        let size = meta.len();
        let all = match holes::may_have_holes(size, meta.blocks()) {
            true => sparse_map::map(&file, size, STRETCHES_MAX),
            false => vec![Stretch { offset: 0, len: size }],
        };
        let data = all.iter().map(|stretch| stretch.len).sum();
        let more = if data < size { sparse(&mut header, &all, size) } else { Vec::new() };
        // The member's content follows its header without a copy in between.
        self.out.append_data(&mut header, member(&item.path), io::empty())?;
        let out = self.out.get_mut();
        for block in more {
            out.write_all(block.as_bytes())?;
        }
        let mut body = Body {
            set: &mut self.set,
            file,
            rest: all.into_iter(),
            current: Stretch { offset: 0, len: 0 },
            done: 0,
            there_upto: item.offset + item.length,
            last: item.last,
            missing: None,
        };
        while out.take_from(&mut body)? > 0 {}
        let zeros = body.done.next_multiple_of(TAR_BLOCK) - body.done;
        out.write_all(&[0; TAR_BLOCK as usize][..zeros as usize])?;
        let (last, file, missing) = (body.last, body.file, body.missing);
        skip_rest(&mut self.set, last);
        self.sums.files += 1;
        self.sums.bytes = self.sums.bytes.saturating_add(data);
        self.sums.holes = self.sums.holes.saturating_add(size - data);
        match item.how {
            How::Address => self.sums.by_address += 1,
            How::Inode => self.sums.by_inode += 1,
            How::Listed => self.sums.as_listed += 1,
        }
        self.tally.bar.inc(meta.len());
        let why = missing.or_else(|| changed(&file, &meta));
        if let Some(why) = why {
            self.sums.changed += 1;
            self.tally.say(path, &why);
        }
        Ok(())
    }
}

/// Standard output, written as needed. Bytes are read directly into its buffer.
struct Out {
    to: Option<File>,
    buffer: Box<[u8]>,
    filled: usize,
}

impl Out {
    /// Reads some bytes, as many as one read returns; 0 at the end.
    fn take_from(&mut self, from: &mut impl Read) -> io::Result<usize> {
        if self.filled == self.buffer.len() {
            self.flush()?;
        }
        loop {
            match from.read(&mut self.buffer[self.filled..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                got => {
                    self.filled += *got.as_ref().unwrap_or(&0);
                    return got;
                }
            }
        }
    }
}

impl Write for Out {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<usize> {
        self.take_from(&mut bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let filled = std::mem::take(&mut self.filled);
        self.to.as_mut().map_or(Ok(()), |to| to.write_all(&self.buffer[..filled]))
    }
}

/// Makes a header into that of a sparse member of `size` bytes. Returns the blocks that follow it.
fn sparse(header: &mut Header, data: &[Stretch], size: u64) -> Vec<GnuExtSparseHeader> {
    let mut all = data.to_vec();
    if data.last().is_none_or(|last| last.end() < size) {
        // The length of the file.
        all.push(Stretch { offset: size, len: 0 });
    }
    let put = |entries: &mut [GnuSparseHeader], stretches: &[Stretch]| {
        for (entry, stretch) in entries.iter_mut().zip(stretches) {
            entry.set_offset(stretch.offset);
            entry.set_length(stretch.len);
        }
    };
    header.set_entry_type(EntryType::GNUSparse);
    header.set_size(data.iter().map(|stretch| stretch.len).sum());
    let mut more = Vec::new();
    // The header was made as one of the GNU format.
    if let Some(gnu) = header.as_gnu_mut() {
        let (own, others) = all.split_at(all.len().min(gnu.sparse.len()));
        put(&mut gnu.sparse, own);
        gnu.set_real_size(size);
        gnu.set_is_extended(!others.is_empty());
        let mut rest = others;
        while !rest.is_empty() {
            let mut block = GnuExtSparseHeader::new();
            let (these, behind) = rest.split_at(rest.len().min(block.sparse.len()));
            put(&mut block.sparse, these);
            block.set_is_extended(!behind.is_empty());
            more.push(block);
            rest = behind;
        }
    }
    more
}

/// The content of a member: as many bytes as its header states, whatever happens to the file.
struct Body<'a> {
    set: &'a mut Set,
    file: File,
    /// Stretches of data that have not begun.
    rest: std::vec::IntoIter<Stretch>,
    /// The rest of the current one.
    current: Stretch,
    done: u64,
    /// Bytes of the file before this offset are in memory.
    there_upto: u64,
    last: bool,
    /// Why the rest is zeros.
    missing: Option<String>,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.len == 0 {
            match self.rest.next() {
                Some(next) => self.current = next,
                None => return Ok(0),
            }
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        let Stretch { offset, len } = self.current;
        while self.there_upto <= offset && !self.last {
            match self.set.next() {
                Some(Ok(item)) => (self.there_upto, self.last) = (item.offset + item.length, item.last),
                // Ranges of a file come one after the other.
                _ => self.last = true,
            }
        }
        let most = if self.last { len } else { len.min(self.there_upto - offset) };
        let most = buffer.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let got = match self.missing {
            Some(_) => 0,
            None => match self.file.read_at(&mut buffer[..most], offset) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => return Err(e),
                Err(e) => {
                    self.missing = Some(format!("{e} at byte {offset}: the rest is zeros"));
                    0
                }
                Ok(0) => {
                    let text = format!("became shorter while it was read, {offset} bytes: the rest is zeros");
                    self.missing = Some(text);
                    0
                }
                Ok(got) => got,
            },
        };
        let got = if got == 0 {
            buffer[..most].fill(0);
            most
        } else {
            got
        };
        self.done += got as u64;
        self.current = Stretch { offset: offset + got as u64, len: len - got as u64 };
        Ok(got)
    }
}

/// Takes the unused ranges of a file.
fn skip_rest(set: &mut Set, mut last: bool) {
    while !last {
        match set.next() {
            Some(Ok(item)) => last = item.last,
            _ => return,
        }
    }
}

/// Opens a file of the set.
fn open(path: &Path) -> Result<(File, Metadata), String> {
    let file = look::open(path).map_err(|e| e.to_string())?;
    let meta = file.metadata().map_err(|e| e.to_string())?;
    // Another file may have replaced it.
    if !meta.is_file() {
        return Err("not a regular file".to_string());
    }
    Ok((file, meta))
}

/// The values that show whether a file changed while it was read.
fn changed(file: &File, before: &Metadata) -> Option<String> {
    let now = file.metadata().ok()?;
    let time = |meta: &Metadata| (meta.mtime(), meta.mtime_nsec());
    if now.len() > before.len() {
        return Some(format!("became longer while it was read: cut at {} bytes", before.len()));
    }
    (time(&now) != time(before)).then(|| "changed while it was read".to_string())
}

/// The name of a member: relative, without `..`, as `tar` makes it.
fn member(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let parts = || bytes.split(|byte| *byte == b'/');
    let mut from = 0;
    let mut at = 0;
    for part in parts() {
        at += part.len() + 1;
        if part == b".." {
            from = at.min(bytes.len());
        }
    }
    let slashes = bytes[from..].iter().take_while(|byte| **byte == b'/').count();
    Path::new(std::ffi::OsStr::from_bytes(&bytes[from + slashes..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_members_lead_nowhere_else() {
        for (path, name) in [
            ("a/b", "a/b"),
            ("/a/b", "a/b"),
            ("//a", "a"),
            ("../a", "a"),
            ("a/../../b/c", "b/c"),
            ("/../a", "a"),
            ("a..b/c", "a..b/c"),
            ("./a", "./a"),
        ] {
            assert_eq!(member(Path::new(path)), Path::new(name), "{path}");
        }
    }
}
