//! A tree of small files on a disk, and the checksums of what a program read of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use seekless_base::{Exit, Fault};
use seekless_model::workload::content::Content;
use seekless_model::workload::tree::{TreeFile, TreeSpec};
use sha2::{Digest, Sha256};

use crate::guard;

/// Bytes written or read at a time.
const BUFFER: usize = 256 << 10;

/// Checksums by path, as `sha256sum` writes them.
pub(crate) type Sums = BTreeMap<String, String>;

/// Writes the tree and says what its checksums are.
///
/// # Errors
/// Those of writing; a signal came.
pub(crate) fn write(tree: &TreeSpec, root: &Path) -> Result<Sums, Fault> {
    let mut buffer = vec![0; BUFFER];
    let mut sums = Sums::new();
    for TreeFile { path, size } in tree.files() {
        guard::check_interrupted()?;
        let whole = root.join(&path);
        let sum = write_file(&whole, &path, size, &mut buffer)
            .map_err(|e| Fault::failed(format!("{}: {e}", whole.display())))?;
        sums.insert(path, sum);
    }
    Ok(sums)
}

fn write_file(path: &Path, name: &str, bytes: u64, buffer: &mut [u8]) -> io::Result<String> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let (mut file, mut sum, content) = (File::create(path)?, Sha256::new(), Content::of_path(name));
    let mut at = 0;
    while at < bytes {
        let part = &mut buffer[..BUFFER.min((bytes - at) as usize)];
        content.fill(at, part);
        file.write_all(part)?;
        sum.update(&*part);
        at += part.len() as u64;
    }
    Ok(hex(sum))
}

/// A checksum as `sha256sum` writes it.
pub(crate) fn hex(sum: Sha256) -> String {
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lines of `sha256sum`, in any order, by path. A path that comes twice counts as wrong.
pub(crate) fn parse(text: &str) -> Sums {
    let mut sums = Sums::new();
    for (sum, path) in text.lines().filter_map(|line| line.split_once("  ")) {
        let path = path.strip_prefix("./").unwrap_or(path).to_string();
        let twice = sums.contains_key(&path);
        sums.insert(path, if twice { "twice".into() } else { sum.to_string() });
    }
    sums
}

/// How many files of `expected` are missing or wrong in `read`, and how many of `read` are no files.
pub(crate) fn wrong(expected: &Sums, read: &Sums) -> usize {
    let differ = expected.iter().filter(|(path, sum)| read.get(*path) != Some(*sum)).count();
    differ + read.keys().filter(|path| !expected.contains_key(*path)).count()
}

/// Writes a line of `sha256sum` for each file of the tar stream on standard input.
///
/// # Errors
/// `Failed`: the stream is broken, or standard output is.
pub(crate) fn sums() -> Result<Exit, Fault> {
    let broken = |e: io::Error| Fault::failed(format!("the tar stream: {e}"));
    let mut archive = tar::Archive::new(io::stdin().lock());
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut buffer = vec![0; BUFFER];
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = entry.path().map_err(broken)?.display().to_string();
        let mut sum = Sha256::new();
        loop {
            match entry.read(&mut buffer).map_err(broken)? {
                0 => break,
                got => sum.update(&buffer[..got]),
            }
        }
        writeln!(out, "{}  {path}", hex(sum)).map_err(broken)?;
    }
    out.flush().map_err(broken)?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_files_and_every_slip_counts() {
        let dir = tempfile::tempdir().unwrap();
        let tree = TreeSpec { files: 12, median: 8_192, files_per_pack: 6, pack: 600_000, seed: 1 };
        let expected = write(&tree, dir.path()).unwrap();
        assert_eq!(expected.len(), 14);
        let line = |(path, sum): (&String, &String)| format!("{sum}  ./{path}\n");
        for path in expected.keys() {
            let content = fs::read(dir.path().join(path)).unwrap();
            assert_eq!(expected[path], hex(Sha256::new_with_prefix(content)), "{path}");
        }
        let lines: Vec<String> = expected.iter().map(line).collect();
        assert_eq!(wrong(&expected, &parse(&lines.concat())), 0);
        assert_eq!(wrong(&expected, &parse(&lines[1..].concat())), 1, "one is missing");
        assert_eq!(
            wrong(&expected, &parse(&[lines.concat(), lines[0].clone()].concat())),
            1,
            "one came twice"
        );
        assert_eq!(wrong(&expected, &parse(&[&lines.concat(), "00  ./other\n"].concat())), 1, "one too many");
        assert_eq!(wrong(&expected, &parse(&lines.concat().replace(&expected["d0000/f000003"], "00"))), 1);
    }
}
