//! The command line.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use clap::Args;
use rustix::fs::FileType;
use seekless_base::{Bytes, Exit, Fault};
use seekless_kernel::residency;
use seekless_output::JsonOption;

use crate::ahead::{Ahead, AheadSummary, Gone, Wanted};
use crate::batch::{self, BATCH_PATHS, Batch};
use crate::entries::entries;
use crate::look::{By, Found, Look};
use crate::pipe::{PAGE, Pipe};
use crate::sequence::{At, Limits};
use crate::summary::Tally;
use crate::walk::{Given, List};

/// Bytes read of a list, or written of one, by one system call.
const BUFFER: usize = 64 << 10;

/// Put paths in the order in which their disk reads them best, and read ahead of their consumer
///
/// Reads a list of paths from standard input, a line each, or takes them as arguments, and writes them
/// sorted by disk address. What cannot be ordered (a path that vanished, a loop of symlinks, a device) is
/// one line on standard error; the rest goes on, and the exit status is 1.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: find . -type f -print0 | seekless order -0 --ahead 256MiB | xargs -0 -n 64 -P 4 sha256sum"
)]
pub struct OrderArgs {
    #[command(flatten)]
    list: ListOptions,
    /// Sort by address (of a file's first bytes on its disk), inode (number; opens no file) or listed (not at
    /// all) [default: address; if standard output is a pipe, files in memory come as listed]
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Replace a folder by the regular files below it
    #[arg(long)]
    dirs: bool,
    /// Read files into memory before their paths are written, at most SIZE ahead of what the consumer has
    /// taken from the pipe [default: off]
    #[arg(long, value_name = "SIZE")]
    ahead: Option<Bytes>,
}

/// Options of `order` and `cat-set`.
#[derive(Args, Debug)]
pub(crate) struct ListOptions {
    /// Paths [default: a list from standard input]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// End paths with a zero byte instead of a newline
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Read ahead in this process even if a daemon answers
    #[arg(long, hide_short_help = true)]
    pub(crate) no_daemon: bool,
    /// Most paths that are sorted together, 1 to 10000000; it bounds memory
    #[arg(long, default_value_t = BATCH_PATHS, value_name = "N", hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) batch: u32,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

impl ListOptions {
    /// The byte that ends each path of a list.
    pub(crate) fn end(&self) -> u8 {
        if self.null { b'\0' } else { b'\n' }
    }
}

/// The output of paths.
enum Out {
    /// To standard output.
    Plain(BufWriter<File>),
    /// To standard output, after their files were read.
    Ahead(Box<Ahead<Pipe>>, Together),
    /// Nowhere: the summary replaces them.
    Nowhere,
}

/// Paths, with their end marks, whose files are in memory; they are written a page at a time.
type Together = Vec<u8>;

/// Why writing has stopped.
enum Ended {
    Gone,
    Unwritable(io::Error),
}

/// Runs an `order` command.
///
/// # Errors
/// `Failed`: some paths could not be ordered; the list or the output broke. `Usage`: there is no consumer.
pub fn run(args: OrderArgs) -> Result<Exit, Fault> {
    let end = args.list.end();
    let bar_total = if args.dirs { 0 } else { args.list.paths.len() as u64 };
    let mut out = out(&args)?;
    let mut list = List::new(from(args.list.paths, end)?, Some(end), args.dirs);
    let mut tally = Tally::new(seekless_output::bar(bar_total, "{bar:40} {pos}/{len} {eta}"));
    let mut look = Look::new(args.by.unwrap_or_default());
    // A user who names an order gets it, and a stored list is used at another time.
    let looks = args.by.is_none() && !matches!(out, Out::Nowhere) && is_pipe(io::stdout());
    let ended = go(&mut list, &mut look, &mut tally, &mut out, batch::limits(args.list.batch), looks, end);
    tally.bar.finish_and_clear();
    let (ahead, written) = close(out, ended);
    if let Some(to) = args.list.json.path() {
        seekless_output::json(to, &tally.summary(&look, ahead))?;
    }
    match written {
        // The consumer has ended.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(Exit::Ok),
        Err(e) => return Err(Fault::failed(format!("standard output cannot be written: {e}"))),
        Ok(()) => {}
    }
    if let Some(e) = list.broken {
        return Err(Fault::failed(format!("the list cannot be read to its end: {e}")));
    }
    if tally.failures > 0 {
        return Err(Fault::failed(format!(
            "{} of {} paths could not be ordered",
            tally.failures, tally.paths
        )));
    }
    Ok(Exit::Ok)
}

/// Sorts and writes batch after batch.
fn go(
    list: &mut List,
    look: &mut Look,
    tally: &mut Tally,
    out: &mut Out,
    limits: Limits,
    looks: bool,
    end: u8,
) -> Result<(), Ended> {
    while let Some(Batch { found, in_memory }) =
        batch::next(list, look, limits, looks, &mut |path, why| tally.refuse(&path, &why))
    {
        tally.batches += 1;
        for found in found {
            tally.count(&found);
            out.give(found, in_memory, end, look)?;
            tally.bar.inc(1);
        }
        out.end_batch()?;
    }
    Ok(())
}

impl Out {
    fn give(&mut self, found: Found, in_memory: bool, end: u8, look: &Look) -> Result<(), Ended> {
        match self {
            Out::Plain(out) => {
                out.write_all(&found.path).and_then(|()| out.write_all(&[end])).map_err(Ended::Unwritable)
            }
            Out::Ahead(ahead, together) if in_memory => {
                together.extend_from_slice(&found.path);
                together.push(end);
                match together.len() < PAGE {
                    true => Ok(()),
                    false => ahead.add(std::mem::take(together), None).map_err(|Gone| Ended::Gone),
                }
            }
            Out::Ahead(ahead, _) => {
                let mut line = Vec::with_capacity(found.path.len() + 1);
                line.extend_from_slice(&found.path);
                line.push(end);
                let steps = look.device(found.device).steps;
                let wanted = (found.bytes > 0).then_some(Wanted {
                    path: &found.path,
                    offset: 0,
                    len: u64::MAX,
                    steps,
                    address: match found.place.at {
                        At::Address(address) => Some(address),
                        At::Inode(_) => None,
                    },
                    last: true,
                });
                ahead.add(line, wanted).map_err(|Gone| Ended::Gone)
            }
            Out::Nowhere => Ok(()),
        }
    }

    fn end_batch(&mut self) -> Result<(), Ended> {
        match self {
            Out::Plain(out) => out.flush().map_err(Ended::Unwritable),
            Out::Ahead(ahead, together) => {
                let last = std::mem::take(together);
                let added = if last.is_empty() { Ok(()) } else { ahead.add(last, None) };
                added.and_then(|()| ahead.drain()).map_err(|Gone| Ended::Gone)
            }
            Out::Nowhere => Ok(()),
        }
    }
}

/// Ends the output. Returns the counts of reading ahead, and whether everything was written.
fn close(out: Out, ended: Result<(), Ended>) -> (Option<AheadSummary>, io::Result<()>) {
    let (ahead, written) = match out {
        Out::Ahead(ahead, _) => {
            let (pipe, sums) = ahead.into_parts();
            (Some(sums), pipe.finish())
        }
        Out::Plain(_) | Out::Nowhere => (None, Ok(())),
    };
    let written = match ended {
        Err(Ended::Unwritable(e)) => Err(e),
        // The writer knows the reason; if it had nothing to write, the consumer closed the pipe.
        Err(Ended::Gone) => written.and(Err(io::ErrorKind::BrokenPipe.into())),
        Ok(()) => written,
    };
    (ahead, written)
}

fn out(args: &OrderArgs) -> Result<Out, Fault> {
    let nowhere = args.list.json.is_stdout();
    let Some(size) = args.ahead else {
        let plain = || Ok(Out::Plain(BufWriter::with_capacity(BUFFER, File::from(standard(io::stdout())?))));
        return if nowhere { Ok(Out::Nowhere) } else { plain() };
    };
    enough(size)?;
    let stdout = standard(io::stdout())?;
    if nowhere || !is_pipe(&stdout) {
        let text = "--ahead needs a consumer: standard output must be a pipe, and take the paths";
        return Err(Fault::usage(text));
    }
    Pipe::new(stdout)
        .map(|pipe| Out::Ahead(Box::new(Ahead::new(pipe, size.0, !args.list.no_daemon)), Together::new()))
        .map_err(|e| Fault::failed(format!("cannot read ahead: {e}")))
}

fn is_pipe(stream: impl AsFd) -> bool {
    rustix::fs::fstat(stream).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Fifo)
}

/// Refuses to read less than a page ahead, because the kernel reads no less.
pub(crate) fn enough(ahead: Bytes) -> Result<(), Fault> {
    let page = Bytes(residency::page_bytes());
    if ahead >= page {
        return Ok(());
    }
    Err(Fault::usage(format!("--ahead {ahead} is out of range; write {page} or more, for example 256MiB")))
}

/// The list of a command line: its paths, or else standard input, whose paths end with `end`.
///
/// # Errors
/// Standard input cannot be used.
pub(crate) fn from(paths: Vec<OsString>, end: u8) -> Result<Given, Fault> {
    if !paths.is_empty() {
        return Ok(Box::new(paths.into_iter().map(|path| Ok(path.into_vec()))));
    }
    let stdin = BufReader::with_capacity(BUFFER, File::from(standard(io::stdin())?));
    Ok(Box::new(entries(stdin, end)))
}

/// A standard stream without the buffer of the standard library.
///
/// # Errors
/// It is closed, or there are no descriptors left.
pub(crate) fn standard(stream: impl AsFd) -> Result<OwnedFd, Fault> {
    let copy = stream.as_fd().try_clone_to_owned();
    copy.map_err(|e| Fault::failed(format!("a standard stream cannot be used: {e}")))
}
