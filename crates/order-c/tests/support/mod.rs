//! The libraries under test.

use std::path::PathBuf;
use std::process::Command;

/// Folder of the shared and the static library. Cargo builds neither for the sake of integration tests, so
/// they are built here, in the profile that the tests have.
pub(crate) fn libraries() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let profile = exe.ancestors().nth(2).expect("tests run in target/<profile>/deps").to_path_buf();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "-q", "-p", "seekless-order-c"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.arg("--target-dir").arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "the library does not build");
    profile
}
