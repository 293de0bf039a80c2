//! Checksums of all files below folders, as `find -type f | xargs sha256sum` makes them, in disk order:
//!
//!     cargo run --release -p seekless-order --example checksums -- DIR...

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::process::ExitCode;

use seekless_order::{Item, Options, order};
use sha2::{Digest, Sha256};

/// Files longer than this are read in ranges, so that they are read ahead to their ends.
const RANGE: u64 = 8 << 20;

fn main() -> io::Result<ExitCode> {
    let options = Options { folders: true, range_max: RANGE, ..Options::default() };
    let mut status = ExitCode::SUCCESS;
    let mut sum = Sha256::new();
    for item in order(std::env::args_os().skip(1), &options)? {
        match item.map_err(|failure| failure.to_string()).and_then(|item| add(&mut sum, item)) {
            Ok(()) => {}
            Err(line) => {
                eprintln!("{line}");
                status = ExitCode::FAILURE;
            }
        }
    }
    Ok(status)
}

/// Adds a range; with the last one of a file its checksum is printed.
fn add(sum: &mut Sha256, item: Item) -> Result<(), String> {
    let fail = |e: io::Error| format!("{:?}: {e}", item.path);
    if item.offset == 0 {
        *sum = Sha256::new();
    }
    let mut file = File::open(&item.path).map_err(fail)?;
    file.seek(SeekFrom::Start(item.offset)).map_err(fail)?;
    io::copy(&mut file.take(item.length), sum).map_err(fail)?;
    if item.last {
        let digest: String = sum.finalize_reset().iter().map(|byte| format!("{byte:02x}")).collect();
        println!("{digest}  {}", item.path.display());
    }
    Ok(())
}
