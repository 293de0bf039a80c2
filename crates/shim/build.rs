//! Links the library to no more of the C library than every Linux has.
//!
//! A linker writes into a library which versions of symbols it needs, and takes them from the C library of
//! the machine that it runs on. Older ones do not have them, and then a program does not start. So the
//! linker is shown stand-ins: files with the names of `libc.so.6` and `libdl.so.2` and of the symbols that
//! the library may use, each in a version that glibc 2.17 has. They hold no code. Nothing else of the
//! system is linked: not `libgcc_s.so.1` (`src/unwind.rs`), and not the loader by its own name, which is
//! another one on musl.
//!
//! musl has no versions of symbols, ignores them, and takes both names for its own.
//!
//! A symbol that is not in the list is left without a version, and a test (`tests/libcs.rs`) names it.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;

/// What the library may use of `libc.so.6`, and the version of each on x86-64. On aarch64 all are as old as
/// glibc there is (2.17).
const LIBC: &[(&str, &str)] = &[
    ("__cxa_finalize", "GLIBC_2.2.5"),
    ("__errno_location", "GLIBC_2.2.5"),
    // The loader has it, and every version that the loader has `libc.so.6` has too.
    ("__tls_get_addr", "GLIBC_2.3"),
    ("__xpg_strerror_r", "GLIBC_2.3.4"),
    ("abort", "GLIBC_2.2.5"),
    ("bcmp", "GLIBC_2.2.5"),
    ("calloc", "GLIBC_2.2.5"),
    ("clock_gettime", "GLIBC_2.17"),
    ("dl_iterate_phdr", "GLIBC_2.2.5"),
    ("fcntl", "GLIBC_2.2.5"),
    ("fgetc", "GLIBC_2.2.5"),
    ("fileno", "GLIBC_2.2.5"),
    ("free", "GLIBC_2.2.5"),
    ("getauxval", "GLIBC_2.16"),
    ("getcwd", "GLIBC_2.2.5"),
    ("getenv", "GLIBC_2.2.5"),
    ("getsockopt", "GLIBC_2.2.5"),
    ("malloc", "GLIBC_2.2.5"),
    ("memcmp", "GLIBC_2.2.5"),
    ("memcpy", "GLIBC_2.14"),
    ("memmove", "GLIBC_2.2.5"),
    ("memset", "GLIBC_2.2.5"),
    ("munmap", "GLIBC_2.2.5"),
    ("posix_memalign", "GLIBC_2.2.5"),
    ("readlink", "GLIBC_2.2.5"),
    ("realloc", "GLIBC_2.2.5"),
    ("realpath", "GLIBC_2.3"),
    ("strlen", "GLIBC_2.2.5"),
    ("write", "GLIBC_2.2.5"),
    ("writev", "GLIBC_2.2.5"),
];

/// The same of `libdl.so.2`. From glibc 2.34 on `libc.so.6` has them, under these versions too, and that
/// library is empty. No weak reference stands in for it: the standard library makes one that is not.
const LIBDL: &[(&str, &str)] = &[("dlopen", "GLIBC_2.2.5"), ("dlsym", "GLIBC_2.2.5")];

/// Libraries that the standard library names and of which nothing may be taken.
const EMPTY: [&str; 5] = ["gcc_s", "m", "pthread", "rt", "util"];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    let machine = match (target("ENV").as_str(), target("ARCH").as_str()) {
        ("gnu", "x86_64") => Machine::X86_64,
        ("gnu", "aarch64") => Machine::Aarch64,
        _ => return Ok(()),
    };
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("libcs");
    // What an earlier build left there would be linked too.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("libc.so"), library(machine, "libc.so.6", LIBC))?;
    fs::write(folder.join("libdl.so"), library(machine, "libdl.so.2", LIBDL))?;
    for name in EMPTY {
        fs::write(folder.join(format!("lib{name}.a")), b"!<arch>\n")?;
    }
    // For the library alone: test programs are linked as usual. Folders given are searched before the
    // system's.
    println!("cargo::rustc-cdylib-link-arg=-L{}", folder.display());
    Ok(())
}

#[derive(Clone, Copy)]
enum Machine {
    X86_64,
    Aarch64,
}

impl Machine {
    /// `e_machine`.
    fn number(self) -> u16 {
        match self {
            Machine::X86_64 => 62,
            Machine::Aarch64 => 183,
        }
    }

    /// The version under which a symbol is asked for.
    fn version(self, x86_64: &'static str) -> &'static str {
        match self {
            Machine::X86_64 => x86_64,
            Machine::Aarch64 => "GLIBC_2.17",
        }
    }
}

/// Names, each once, and where they stand.
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend(text.as_bytes());
        self.0.push(0);
        at
    }
}

/// A section of the file.
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    bytes: Vec<u8>,
    /// Number of the section that it refers to.
    link: u32,
    info: u32,
    entry_bytes: u64,
}

/// A shared library as linkers read it (ELF, little-endian, 64 bits): sections only, for nobody loads it.
fn library(machine: Machine, soname: &str, symbols: &[(&str, &'static str)]) -> Vec<u8> {
    const TEXT: u16 = 1;
    const STRINGS: u32 = 2;
    const ALLOCATED: u64 = 2;
    let mut strings = Strings(vec![0]);
    let soname_at = strings.add(soname);
    let mut versions: Vec<&str> = symbols.iter().map(|(_, version)| machine.version(version)).collect();
    versions.sort_unstable();
    versions.dedup();

    // Number 0 stands for nothing.
    let (mut table, mut numbers) = (vec![0; 24], vec![0, 0]);
    for (name, version) in symbols {
        table.extend(strings.add(name).to_le_bytes());
        // A global function, visible.
        table.extend([1 << 4 | 2, 0]);
        table.extend(TEXT.to_le_bytes());
        table.extend([0; 16]);
        let at = versions.iter().position(|known| *known == machine.version(version)).unwrap_or(0);
        numbers.extend((at as u16 + 2).to_le_bytes());
    }

    // Version 1 is the library itself.
    let mut definitions = Vec::new();
    for (at, version) in [soname].iter().chain(&versions).enumerate() {
        let is_last = at == versions.len();
        for half in [1, u16::from(at == 0), at as u16 + 1, 1] {
            definitions.extend(half.to_le_bytes());
        }
        for word in [hash(version), 20, if is_last { 0 } else { 28 }, strings.add(version), 0] {
            definitions.extend(word.to_le_bytes());
        }
    }

    let dynamic: Vec<u8> =
        [14, u64::from(soname_at), 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let section = |name, kind, bytes, info, entry_bytes| Section {
        name,
        kind,
        flags: ALLOCATED,
        bytes,
        link: STRINGS,
        info,
        entry_bytes,
    };
    let mut sections = [
        Section { flags: ALLOCATED | 4, link: 0, ..section(".text", 1, vec![0; 16], 0, 0) },
        Section { link: 0, ..section(".dynstr", 3, Vec::new(), 0, 0) },
        section(".dynsym", 11, table, 1, 24),
        Section { link: 3, ..section(".gnu.version", 0x6fff_ffff, numbers, 0, 2) },
        section(".gnu.version_d", 0x6fff_fffd, definitions, versions.len() as u32 + 1, 0),
        section(".dynamic", 6, dynamic, 0, 16),
    ];
    let names: Vec<u32> = sections.iter().map(|section| strings.add(section.name)).collect();
    sections[STRINGS as usize - 1].bytes = strings.0;

    let mut contents = Vec::new();
    let mut headers = vec![0; 64];
    for (section, name) in sections.iter().zip(names) {
        contents.resize(contents.len().next_multiple_of(8), 0);
        let at = 64 + contents.len() as u64;
        headers.extend(name.to_le_bytes());
        headers.extend(section.kind.to_le_bytes());
        for word in [section.flags, at, at, section.bytes.len() as u64] {
            headers.extend(word.to_le_bytes());
        }
        headers.extend(section.link.to_le_bytes());
        headers.extend(section.info.to_le_bytes());
        for word in [8, section.entry_bytes] {
            headers.extend(word.to_le_bytes());
        }
        contents.extend(&section.bytes);
    }
    contents.resize(contents.len().next_multiple_of(8), 0);

    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // A shared library.
    file.extend(3u16.to_le_bytes());
    file.extend(machine.number().to_le_bytes());
    file.extend(1u32.to_le_bytes());
    for word in [0, 0, 64 + contents.len() as u64] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for half in [64, 0, 0, 64, sections.len() as u16 + 1, STRINGS as u16] {
        file.extend(half.to_le_bytes());
    }
    file.extend(contents);
    file.extend(headers);
    file
}

/// The hash of a version's name (System V ABI, chapter 5).
fn hash(name: &str) -> u32 {
    name.bytes().fold(0u32, |hash, byte| {
        let next = (hash << 4).wrapping_add(byte.into());
        let high = next & 0xf000_0000;
        (next ^ high >> 24) & !high
    })
}
