//! The Python package over the library of this crate: its own tests, by Python's `unittest`.

mod support;

use std::path::Path;
use std::process::Command;

use seekless_testing::skip::skipped;

#[test]
fn the_python_package_passes_its_tests() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return skipped("no python3");
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut python = Command::new("python3");
    python.args(["-B", "-W", "error", "-m", "unittest", "discover", "-s", "tests"]).current_dir(&package);
    python.env("SEEKLESS_ORDER_LIBRARY", support::libraries().join("libseekless_order.so"));
    python.env("SEEKLESS_ORDER_TEST_DIR", env!("CARGO_TARGET_TMPDIR")).env("PYTHONPATH", &package);
    let out = python.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    // None was found, and none would fail.
    assert!(said.contains("Ran ") && !said.contains("Ran 0 tests"), "{said}");
}
