//! The command line.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use seekless_base::{Exit, Fault, name_to_text};
use seekless_output::JsonOption;

use crate::bitrates::header::{OFF, believed};
use crate::bitrates::look::{self, Parsed};
use crate::bitrates::manifest::Part;
use crate::bitrates::table::{self, From, Table};
use crate::bitrates::walk::{Found, Step, Walk};

/// Most lines on standard error; beyond it they are counted only.
const LINES_MAX: u64 = 1000;

/// Writes the table that `--bitrates` reads, from the headers of the media files below DIR: MP4, MOV,
/// Matroska and WebM, HLS and DASH manifests. No link is followed. Each file is parsed by a process without
/// rights.
#[derive(Args, Clone, Debug)]
pub(crate) struct BitratesArgs {
    /// Folder with media files
    dir: PathBuf,
    /// Write the table to FILE, which appears whole [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOption,
    /// Parse the one file at standard input
    #[arg(long, hide = true)]
    one: bool,
}

/// Carries out a `bitrates` command.
///
/// # Errors
/// The folder cannot be read, no process without rights can be had, or the result cannot be written.
pub(crate) fn run(args: &BitratesArgs) -> Result<Exit, Fault> {
    if args.one {
        return look::one();
    }
    if let Some(file) = &args.output {
        table::replaceable(file)?;
        seekless_output::writable([file.as_path()])?;
    }
    let name = name_to_text(args.dir.as_os_str().as_bytes());
    let unreadable = |error: std::io::Error| {
        let (exit, how) = match error.kind() {
            std::io::ErrorKind::NotFound => (Exit::Missing, "name a folder"),
            std::io::ErrorKind::PermissionDenied => (Exit::Permission, "run it as a user that may read it"),
            std::io::ErrorKind::NotADirectory => (Exit::Usage, "name a folder"),
            _ => (Exit::Failed, "name another folder"),
        };
        Fault::new(exit, format!("{name}: {error}; {how}"))
    };
    // Absolute paths, so that the table may lie anywhere. The folder itself may be reached by a link.
    let folder = std::fs::canonicalize(&args.dir).map_err(unreadable)?;
    let walk = Walk::of(&folder).map_err(|e| unreadable(e.into()))?;
    let table = search(walk, &mut look::look)?;
    let said = format!("{} bitrates, {} files left out", table.len(), table.left_out());
    if let Some(to) = args.json.path() {
        seekless_output::json(to, &table.json(&folder))?;
    }
    match &args.output {
        Some(file) => {
            seekless_output::write(file, table.text(&folder))?;
            seekless_output::eprintln!("seekless-lab bitrates: {said}");
        }
        None if args.json.is_stdout() => {}
        None => seekless_output::print(table.text(&folder))?,
    }
    Ok(Exit::Ok)
}

/// Looks at every file of a walk.
pub(crate) fn search(
    mut walk: Walk,
    look: &mut dyn FnMut(File) -> Result<Parsed, Fault>,
) -> Result<Table, Fault> {
    let mut table = Table::default();
    while let Some(step) = walk.next() {
        let found = match step {
            Step::File(found) => found,
            Step::LeftOut(path, why) => {
                leave_out(&mut table, &path, &why);
                continue;
            }
        };
        let copy =
            match look::is_media(&found.file).and_then(|is| is.then(|| found.file.try_clone()).transpose()) {
                Ok(Some(copy)) => copy,
                Ok(None) => continue,
                Err(error) => {
                    leave_out(&mut table, &found.path, &error.to_string());
                    continue;
                }
            };
        let full = match look(copy)? {
            Parsed::Rate(rate) => !table.tell(found.path, From::Header, rate),
            Parsed::Manifest(parts) => of_manifest(&walk, &found, parts, &mut table),
            Parsed::Nothing => false,
            Parsed::Refused(why) => {
                leave_out(&mut table, &found.path, &why);
                false
            }
        };
        if full {
            let why = "the table is full; write one for each folder, and put together what you need";
            seekless_output::eprintln!("seekless-lab bitrates: {why}");
            break;
        }
    }
    Ok(table)
}

fn leave_out(table: &mut Table, path: &Path, why: &str) {
    let line = table.leave_out(path, why);
    match table.left_out() {
        LINES_MAX => seekless_output::eprintln!("seekless-lab bitrates: {line}; any more are in --json only"),
        n if n < LINES_MAX => seekless_output::eprintln!("seekless-lab bitrates: {line}"),
        _ => {}
    }
}

/// What a manifest says of files beside and below it; whether the table is full.
fn of_manifest(walk: &Walk, manifest: &Found, parts: Vec<Part>, table: &mut Table) -> bool {
    for part in parts {
        let Some((file, size)) = walk.beside(manifest, &part.uri) else { continue };
        match rate_of(&part, size) {
            Ok(Some(rate)) if !table.tell(file.clone(), From::Manifest, rate) => return true,
            Ok(_) => {}
            Err(why) => leave_out(table, &file, &format!("a manifest says {why}")),
        }
    }
    false
}

/// Bytes a second of a part, of a file of this size.
fn rate_of(part: &Part, size: u64) -> Result<Option<u64>, String> {
    let bytes = part.bytes.unwrap_or(size) as f64;
    // A file cannot play for longer than there is of it, so what is left over tells a lie.
    let by_time = part.seconds.map(|s| bytes / s);
    let rate = match (part.bytes_per_s, by_time) {
        (Some(said), Some(reckoned)) if said > reckoned * OFF || said * OFF < reckoned => {
            let seconds = bytes / reckoned;
            return Err(format!("{said:.0} bytes a second, but {bytes:.0} bytes in {seconds:.1} s"));
        }
        (_, Some(rate)) | (Some(rate), None) => rate,
        (None, None) => return Ok(None),
    };
    believed(rate).map(Some)
}
