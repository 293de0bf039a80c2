//! One library for every Linux: what it asks a loader for, and programs of other C libraries and another
//! architecture under it. Whatever is preloaded, the program starts and prints what it prints without.
//!
//! The other C libraries are unpacked packages (`scripts/provision-libcs`); a test without its own says so.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::fake::Fake;
use support::{ColdFile, compile, folder, hooked, library, plain, run, source};

/// The newest symbols that may be asked for: those of RHEL 7, and the first glibc for aarch64.
const NEWEST: [u32; 3] = [2, 17, 0];

/// Packages unpacked by `scripts/provision`.
fn unpacked() -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/debian/root");
    let root = std::env::var_os("SEEKLESS_TOOLS").map_or(ours, PathBuf::from);
    root.canonicalize().unwrap_or(root)
}

/// Where something unpacked is; `None`, and a word, if it is not there.
fn need(path: PathBuf, what: &str) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    println!("skipped: no {what} (scripts/provision-libcs)");
    None
}

/// Lines of `readelf` about a library; `None`, and a word, without that program.
fn readelf(what: &str, library: &Path) -> Option<Vec<String>> {
    let Ok(out) = Command::new("readelf").args(["-W", what]).arg(library).output() else {
        println!("skipped: no readelf");
        return None;
    };
    Some(String::from_utf8(out.stdout).unwrap().lines().map(String::from).collect())
}

/// A symbol that the library asks for.
struct Asked {
    name: String,
    /// `GLIBC_2.17`; empty: any.
    version: String,
    /// It may be missing.
    weak: bool,
}

fn asked_for(library: &Path) -> Option<Vec<Asked>> {
    let lines = readelf("--dyn-syms", library)?;
    // Number, value, size, type, binding, visibility, section, name.
    let fields = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let missing = fields.filter(|fields| fields.get(6) == Some(&"UND") && fields.len() > 7);
    let asked = missing.map(|fields| {
        let (name, version) = fields[7].split_once('@').unwrap_or((fields[7], ""));
        Asked {
            name: name.into(),
            version: version.trim_start_matches('@').into(),
            weak: fields[4] == "WEAK",
        }
    });
    Some(asked.collect())
}

/// `GLIBC_2.17` as numbers.
fn numbers(version: &str) -> [u32; 3] {
    let mut parts =
        version.strip_prefix("GLIBC_").unwrap_or("999").split('.').map(|part| part.parse().unwrap());
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

fn asks_for_what_every_linux_has(library: &Path) {
    let (Some(asked), Some(dynamic)) = (asked_for(library), readelf("-d", library)) else { return };
    let needed: BTreeSet<&str> = dynamic
        .iter()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| Some(line.split_once('[')?.1.trim_end_matches(']')))
        .collect();
    assert_eq!(needed, BTreeSet::from(["libc.so.6", "libdl.so.2"]), "{}", library.display());
    assert!(asked.iter().any(|symbol| symbol.name == "dlsym"), "what is asked for is not seen");
    for Asked { name, version, weak } in asked {
        // One without a version may be from any; `build.rs` lists those that may be had.
        assert!(weak || !version.is_empty(), "{name}: not in the list in build.rs");
        assert!(version.is_empty() || numbers(&version) <= NEWEST, "{name}: {version}");
        assert!(weak || !name.ends_with("64"), "{name}: musl has none of these");
    }
}

#[test]
fn every_linux_has_what_the_library_asks_for() {
    asks_for_what_every_linux_has(library());
}

#[test]
fn musl_has_what_the_library_asks_for() {
    let Some(musl) = need(unpacked().join("lib/x86_64-linux-musl/libc.so"), "musl") else { return };
    let (Some(asked), Some(lines)) = (asked_for(library()), readelf("--dyn-syms", &musl)) else { return };
    let there: BTreeSet<&str> = lines.iter().filter_map(|line| line.split_whitespace().nth(7)).collect();
    let missing: Vec<&str> = asked
        .iter()
        .filter(|symbol| !symbol.weak && !there.contains(&*symbol.name))
        .map(|symbol| &*symbol.name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A program without the shim, with it and no daemon, and with both: the same each time.
fn same(file: &ColdFile, daemon: &Fake, command: &dyn Fn(Preload<'_>) -> Command, needs: usize) {
    let start = |preload| {
        assert!(file.chill(), "the file does not go cold");
        run(command(preload))
    };
    let without = start(Preload::Nothing);
    assert!(!without.stdout.is_empty(), "the program itself fails: {without:?}");
    let nobody = daemon.path.with_file_name("nobody");
    assert_eq!(start(Preload::Shim(&nobody)), without, "with the shim, without a daemon");
    daemon.clear();
    assert_eq!(start(Preload::Shim(&daemon.path)), without, "with the shim and a daemon");
    let asked = daemon.needs();
    assert!(asked.len() >= needs, "the daemon was asked {} times: {asked:?}", asked.len());
}

#[derive(Clone, Copy)]
enum Preload<'a> {
    Nothing,
    /// The shim, with this socket.
    Shim(&'a Path),
}

fn with(preload: Preload<'_>, program: &Path) -> Command {
    match preload {
        Preload::Nothing => plain(program),
        Preload::Shim(socket) => hooked(program, socket, None),
    }
}

/// Compiles a program for musl.
fn compile_for_musl(source: &Path, to: &Path) -> Option<()> {
    let root = need(unpacked(), "musl")?;
    let libraries = need(root.join("usr/lib/x86_64-linux-musl"), "musl-dev")?;
    let loader = need(root.join("lib/ld-musl-x86_64.so.1"), "musl")?;
    let text = |path: PathBuf| path.into_os_string().into_string().unwrap();
    let own = |path: &str| text(root.join(path));
    let object = |name: &str| text(libraries.join(name));
    let flags = [
        "-nostdinc",
        "-isystem",
        &own("usr/include/x86_64-linux-musl"),
        // The kernel's headers.
        "-idirafter",
        "/usr/include",
        "-idirafter",
        "/usr/include/x86_64-linux-gnu",
        "-nostdlib",
        &format!("-Wl,-dynamic-linker,{}", loader.display()),
        &object("Scrt1.o"),
        &object("crti.o"),
        &format!("-L{}", own("lib/x86_64-linux-musl")),
    ];
    let after = [&*object("crtn.o"), "-lc", "-lgcc"];
    compile(source, to, &[&flags[..], &["-Wl,--no-as-needed"], &after].concat())
}

/// Programs of the other tests, on musl: what they print is the same, and the daemon is asked so often at
/// least.
macro_rules! on_musl {
    ($($name:ident: $kind:ident, $needs:expr $(, $argument:expr)?;)+) => {
        mod on_musl {
            use super::*;
            $(
                #[test]
                fn $name() {
                    let folder = folder();
                    let program = folder.path().join(stringify!($name));
                    let source = source(stringify!($kind), stringify!($name));
                    if compile_for_musl(&source, &program).is_none() {
                        return;
                    }
                    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
                    let daemon = Fake::serving(folder.path());
                    let command = |preload: Preload<'_>| {
                        let mut command = with(preload, &program);
                        command.arg(&file.path)$(.arg($argument))?;
                        command
                    };
                    same(&file, &daemon, &command, $needs);
                }
            )+
        }
    };
}

on_musl! {
    read: snippets, 2;
    pread: snippets, 1;
    readv: snippets, 1;
    preadv: snippets, 1;
    sendfile: snippets, 1;
    splice: snippets, 1;
    copy_file_range: snippets, 1;
    mmap: snippets, 1;
    madvise: snippets, 1;
    posix_fadvise: snippets, 1;
    readahead: snippets, 1;
    fread: snippets, 1;
    fork: hardship, 32;
    threads: hardship, 32;
    vfork_exec: hardship, 8;
    signals: hardship, 32;
    longjmp: hardship, 1;
    cancel: hardship, 5;
    close_all: hardship, 2;
    sandbox: hardship, 0, "prctl";
}

/// A program of Debian 11, whose glibc (2.31) has `dlsym` and threads in libraries of their own.
#[test]
fn a_program_of_debian_11_runs() {
    let root = unpacked().with_file_name("debian11");
    let Some(libraries) = need(root.join("lib/x86_64-linux-gnu"), "Debian 11") else { return };
    let folder = folder();
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let daemon = Fake::serving(folder.path());
    let command = |preload: Preload<'_>| {
        let mut command = with(preload, &libraries.join("ld-2.31.so"));
        command.arg("--library-path").arg(&libraries).arg(root.join("usr/bin/sha256sum")).arg(&file.path);
        command
    };
    same(&file, &daemon, &command, 1);
}

/// In the list twice, and a second copy by another name, as by a container that brings its own.
#[test]
fn preloaded_twice_it_does_what_it_does_once() {
    let folder = folder();
    let program = folder.path().join("read");
    if compile(&source("snippets", "read"), &program, &[]).is_none() {
        return;
    }
    let Some(file) = ColdFile::new(folder.path(), "data") else { return };
    let daemon = Fake::serving(folder.path());
    let copy = folder.path().join("libseekless-copy.so");
    std::fs::copy(library(), &copy).unwrap();
    for second in [library(), &copy] {
        let command = |preload: Preload<'_>| {
            let mut command = match preload {
                Preload::Nothing => plain(&program),
                Preload::Shim(socket) => hooked(&program, socket, Some(second)),
            };
            command.arg(&file.path);
            command
        };
        same(&file, &daemon, &command, 2);
        assert_eq!(daemon.needs().len(), 2, "each miss is asked for once");
    }
}

/// The other architecture: its library is built here, linked by Rust's own linker, and its programs are
/// emulated.
#[cfg(target_arch = "x86_64")]
mod on_aarch64 {
    use super::*;

    const TARGET: &str = "aarch64-unknown-linux-gnu";

    /// The emulator and the folder of its C library.
    struct Emulated {
        emulator: PathBuf,
        root: PathBuf,
    }

    impl Emulated {
        fn new() -> Option<Emulated> {
            let emulator = need(unpacked().join("bin/qemu-aarch64"), "qemu-user")?;
            let root = need(unpacked().join("usr/aarch64-linux-gnu"), "libc6-arm64-cross")?;
            let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?.stdout;
            let sysroot = PathBuf::from(String::from_utf8(sysroot).unwrap().trim());
            if !sysroot.join("lib/rustlib").join(TARGET).exists() {
                println!("skipped: no standard library of Rust for aarch64 (rustup target add {TARGET})");
                return None;
            }
            Some(Emulated { emulator, root })
        }

        /// A program that reads the file it is given.
        fn program(&self, folder: &Path) -> PathBuf {
            let program = folder.join("read-aarch64");
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/read.rs");
            let mut rustc = Command::new("rustc");
            rustc.args(["--edition=2024", "--target", TARGET, "-Cpanic=abort", "-Copt-level=1"]);
            rustc.args(["-Clinker=rust-lld", "-Clinker-flavor=ld.lld"]);
            rustc.arg("-Clink-arg=--dynamic-linker=/lib/ld-linux-aarch64.so.1");
            rustc.arg(format!("-Clink-arg={}", self.root.join("lib/libc.so.6").display()));
            let out = rustc.arg("-o").arg(&program).arg(source).output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            program
        }

        fn command(&self, program: &Path, file: &Path, preload: Option<(&Path, &Path)>) -> Command {
            let mut command = plain(&self.emulator);
            // What the emulator's launcher sets for it.
            command.arg("-L").arg(&self.root).args(["-U", "LD_LIBRARY_PATH"]);
            if let Some((library, socket)) = preload {
                // For the program alone: the emulator is one of this machine.
                command.arg("-E").arg(format!("LD_PRELOAD={}", library.display()));
                command.arg("-E").arg(format!("SEEKLESS_SOCKET={}", socket.display()));
            }
            command.arg(program).arg(file);
            command
        }
    }

    /// The library for aarch64, as a newcomer with no cross compiler builds it.
    fn library_for_aarch64() -> PathBuf {
        let target = library().parent().and_then(Path::parent).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "-q", "-p", "seekless-shim", "--target", TARGET]);
        cargo.args(["--config", &format!("target.{TARGET}.linker='rust-lld'")]);
        cargo.args(["--config", &format!("target.{TARGET}.rustflags=['-Clinker-flavor=ld.lld']")]);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("RUSTFLAGS").arg("--target-dir").arg(target);
        assert!(cargo.status().unwrap().success(), "the library does not build for aarch64");
        target.join(TARGET).join("debug/libseekless.so")
    }

    #[test]
    fn the_library_is_the_same_and_a_program_runs() {
        let Some(emulated) = Emulated::new() else { return };
        let library = library_for_aarch64();
        asks_for_what_every_linux_has(&library);
        let folder = folder();
        let Some(file) = ColdFile::new(folder.path(), "data") else { return };
        let daemon = Fake::serving(folder.path());
        let program = emulated.program(folder.path());
        let command = |preload: Preload<'_>| {
            let preload = match preload {
                Preload::Nothing => None,
                Preload::Shim(socket) => Some((&*library, socket)),
            };
            emulated.command(&program, &file.path, preload)
        };
        same(&file, &daemon, &command, 1);
    }

    /// The preload is inherited by a program that it is not built for: the loader says a line and goes on.
    #[test]
    fn a_program_of_another_architecture_runs_without() {
        let Some(emulated) = Emulated::new() else { return };
        let folder = folder();
        let Some(file) = ColdFile::new(folder.path(), "data") else { return };
        let program = emulated.program(folder.path());
        let nobody = folder.path().join("nobody");
        let without = run(emulated.command(&program, &file.path, None));
        let with = run(emulated.command(&program, &file.path, Some((library(), &nobody))));
        assert_eq!((&with.stdout, &with.status), (&without.stdout, &without.status));
        assert!(with.stderr.lines().count() <= 1, "{}", with.stderr);
    }
}
