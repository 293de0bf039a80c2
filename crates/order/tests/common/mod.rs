//! The commands of this crate, for the tests that run them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The command line alone, built beside this test with the crate's examples; built now if it is not there.
pub(crate) fn program() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let profile_dir = exe.parent().and_then(Path::parent).unwrap();
    let program = profile_dir.join("examples/order");
    if !program.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "seekless-order", "--example", "order"]);
        if profile_dir.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success());
    }
    program
}
