//! The kind of an ELF program: whether it loads libraries at all, and whether it was built by Go.
//!
//! Reads only headers, of a file with any content; every offset is checked and every table bounded.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Maximum number of program or section headers read.
const HEADERS_MAX: u64 = 512;
/// Maximum length of the interpreter path, and of the table of section names.
const TEXT_MAX: u64 = 1 << 16;

const PT_INTERP: u64 = 3;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    /// The loader it requests (`/lib64/ld-linux-x86-64.so.2`). Without one, nothing can be preloaded.
    pub(crate) interpreter: Option<String>,
    /// Whether it has Go's build notes.
    pub(crate) go: bool,
    /// It was linked with musl: its loader says so, or it has no loader and none of the notes that glibc
    /// links into every program.
    pub(crate) musl: bool,
}

/// Offsets of the fields used, in 32-bit and 64-bit files.
struct Layout {
    wide: bool,
    big_endian: bool,
}

impl Layout {
    /// A number of 2, 4 or 8 bytes at `at`.
    fn number(&self, bytes: &[u8], at: usize, width: usize) -> Option<u64> {
        let field = bytes.get(at..at + width)?;
        let fold = |n: u64, b: &u8| n << 8 | u64::from(*b);
        Some(if self.big_endian { field.iter().fold(0, fold) } else { field.iter().rev().fold(0, fold) })
    }

    /// An address-sized number, whose offset depends on the class.
    fn word(&self, bytes: &[u8], at32: usize, at64: usize) -> Option<u64> {
        if self.wide { self.number(bytes, at64, 8) } else { self.number(bytes, at32, 4) }
    }

    fn half(&self, bytes: &[u8], at32: usize, at64: usize) -> Option<u64> {
        self.number(bytes, if self.wide { at64 } else { at32 }, 2)
    }
}

impl Program {
    /// Reads a file's headers; `Ok(None)` if it is not an ELF file.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Program>> {
        let file = File::open(path)?;
        Ok(examine(&|offset, len| {
            let mut bytes = vec![0; usize::try_from(len.min(TEXT_MAX)).ok()?];
            let mut read = 0;
            while read < bytes.len() {
                match file.read_at(&mut bytes[read..], offset.checked_add(read as u64)?) {
                    Ok(0) => break,
                    Ok(n) => read += n,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return None,
                }
            }
            bytes.truncate(read);
            Some(bytes)
        }))
    }
}

type ReadAt<'a> = &'a dyn Fn(u64, u64) -> Option<Vec<u8>>;

fn examine(read: ReadAt<'_>) -> Option<Program> {
    let head = read(0, 64)?;
    if head.get(..4)? != b"\x7fELF" {
        return None;
    }
    let layout = Layout { wide: *head.get(4)? == 2, big_endian: *head.get(5)? == 2 };
    let interpreter = interpreter(&layout, &head, read);
    let names = section_names(&layout, &head, read).unwrap_or_default();
    let has = |wanted: &[u8]| names.split(|&b| b == 0).any(|name| name == wanted);
    let go = has(b".note.go.buildid") || has(b".go.buildinfo");
    let musl = match &interpreter {
        Some(loader) => loader.contains("musl"),
        None => !go && !names.is_empty() && !has(b".note.ABI-tag"),
    };
    Some(Program { interpreter, go, musl })
}

fn interpreter(layout: &Layout, head: &[u8], read: ReadAt<'_>) -> Option<String> {
    let table = layout.word(head, 28, 32)?;
    let (size, count) = (layout.half(head, 42, 54)?, layout.half(head, 44, 56)?);
    for i in 0..count.min(HEADERS_MAX) {
        let entry = read(table.checked_add(i * size)?, size)?;
        if layout.number(&entry, 0, 4)? == PT_INTERP {
            let (offset, len) = (layout.word(&entry, 4, 8)?, layout.word(&entry, 16, 32)?);
            let mut path = read(offset, len.min(4096))?;
            path.truncate(path.iter().position(|&b| b == 0).unwrap_or(path.len()));
            return String::from_utf8(path).ok();
        }
    }
    None
}

/// The table of section names, unless the file was stripped of it.
fn section_names(layout: &Layout, head: &[u8], read: ReadAt<'_>) -> Option<Vec<u8>> {
    let table = layout.word(head, 32, 40)?;
    let (size, names) = (layout.half(head, 46, 58)?, layout.half(head, 50, 62)?);
    let entry = read(table.checked_add(names.checked_mul(size)?)?, size)?;
    read(layout.word(&entry, 16, 24)?, layout.word(&entry, 20, 32)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Option<Program> {
        examine(&|offset, len| {
            let from = usize::try_from(offset).ok()?.min(bytes.len());
            let upto = from.saturating_add(usize::try_from(len).ok()?).min(bytes.len());
            Some(bytes[from..upto].to_vec())
        })
    }

    #[test]
    fn our_own_program_has_a_loader_and_is_not_go() {
        let program = Program::read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        let interpreter = program.interpreter.expect("tests are linked dynamically");
        assert!(interpreter.contains("ld-"), "{interpreter}");
        assert!(!program.go && !program.musl);
    }

    #[test]
    fn go_is_known_by_its_notes() {
        let mut file = vec![0u8; 512];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[40..48].copy_from_slice(&128u64.to_le_bytes());
        file[58..60].copy_from_slice(&64u16.to_le_bytes());
        let names = b"\0.text\0.note.go.buildid\0";
        file[128 + 24..128 + 32].copy_from_slice(&256u64.to_le_bytes());
        file[128 + 32..128 + 40].copy_from_slice(&(names.len() as u64).to_le_bytes());
        file[256..256 + names.len()].copy_from_slice(names);
        assert_eq!(of(&file), Some(Program { interpreter: None, go: true, musl: false }));
    }

    #[test]
    fn a_static_program_is_glibcs_by_its_note() {
        let with = |names: &[u8]| {
            let mut file = vec![0u8; 512];
            file[..6].copy_from_slice(b"\x7fELF\x02\x01");
            file[40..48].copy_from_slice(&128u64.to_le_bytes());
            file[58..60].copy_from_slice(&64u16.to_le_bytes());
            file[128 + 24..128 + 32].copy_from_slice(&256u64.to_le_bytes());
            file[128 + 32..128 + 40].copy_from_slice(&(names.len() as u64).to_le_bytes());
            file[256..256 + names.len()].copy_from_slice(names);
            of(&file).unwrap().musl
        };
        assert!(with(b"\0.text\0.data\0"));
        assert!(!with(b"\0.text\0.note.ABI-tag\0"));
        assert!(!with(b""), "a program without names of sections is not judged");
    }

    #[test]
    fn noise_is_no_program_and_no_panic() {
        assert_eq!(of(b""), None);
        assert_eq!(of(b"#!/bin/sh\n"), None);
        for fill in [0u8, 1, 2, 0x7f, 0xff] {
            let mut file = vec![fill; 300];
            file[..4].copy_from_slice(b"\x7fELF");
            for class in 0..4 {
                (file[4], file[5]) = (class & 1 | 2, class >> 1);
                of(&file);
            }
            of(&file[..20]);
        }
    }
}
