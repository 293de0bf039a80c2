//! The C interface as a C program has it, by the shared and by the static library.

mod support;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use seekless_testing::skip::skipped;

const FILES: usize = 100;

/// Compiles the program against a library; `None` without a compiler.
fn compile(libraries: &Path, program: &Path, link: &[&str]) -> Option<Output> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    cc.arg("-I").arg(here.join("include")).arg(here.join("tests/programs/order.c"));
    cc.arg("-o").arg(program).arg("-L").arg(libraries).args(link).output().ok()
}

#[test]
fn a_c_program_gets_every_file_once_and_bad_calls_are_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = dir.path().join("files");
    fs::create_dir(&files).unwrap();
    let file = |i: usize| files.join(format!("f{i}"));
    (0..FILES).for_each(|i| fs::write(file(i), vec![7; i * 331 % 20_000]).unwrap());
    let libraries = support::libraries();
    for (name, link) in [
        ("shared", &["-lseekless_order"][..]),
        ("static", &["-l:libseekless_order.a", "-lpthread", "-ldl", "-lm", "-lgcc_s"]),
    ] {
        let program = dir.path().join(name);
        let Some(compiled) = compile(&libraries, &program, link) else {
            return skipped("no C compiler (cc)");
        };
        assert!(compiled.status.success(), "{name}: {}", String::from_utf8_lossy(&compiled.stderr));
        // What is in memory would come as listed.
        for file in (0..FILES).map(|i| File::open(file(i)).unwrap()) {
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
        let mut run = Command::new(&program);
        run.arg(&files).arg(FILES.to_string()).env("LD_LIBRARY_PATH", &libraries).current_dir(dir.path());
        let out = run.output().unwrap();
        let said = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{name}: {said:?}");
        assert_eq!(said.0, format!("{FILES} items, as listed\n"), "{name}");
    }
}

/// What C++ makes of the header.
#[test]
fn the_header_is_cpp_too() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = dir.path().join("a.cpp");
    fs::write(&source, "#include \"seekless_order.h\"\nint main() { return seekless_order_abi(); }\n")
        .unwrap();
    let mut cpp = Command::new("c++");
    cpp.args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
    cpp.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include")).arg(&source);
    let Ok(out) = cpp.output() else { return skipped("no C++ compiler (c++)") };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
