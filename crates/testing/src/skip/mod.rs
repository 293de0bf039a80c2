//! Tests that cannot run here: each says so in one `skipped:` line and passes.
//!
//! A skip in CI must not hide a test. With `CI=true`, as root and with `/dev/fuse`, everything that such a
//! test asks for is there, so a skip is a failure.
//!
//! Must not know: what is tested.

use std::fmt::Display;
use std::fs::OpenOptions;

/// Says that a test does not run, and why.
///
/// # Panics
/// With `CI=true`, where everything is there.
pub fn skipped(why: impl Display) {
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!(ci && all_is_there()), "skipped in CI, where root and FUSE are there: {why}");
    println!("skipped: {why}");
}

/// Whether this process is root and can make FUSE file systems.
fn all_is_there() -> bool {
    let fuse = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    rustix::process::geteuid().is_root() && fuse.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Runs under another environment as a process of its own.
    #[test]
    #[ignore = "run by the test below"]
    fn skips() {
        skipped("to see what happens");
    }

    #[test]
    fn a_skip_fails_in_ci_where_all_is_there() {
        let passes = |ci: &str| {
            let me = std::env::current_exe().unwrap();
            let run =
                Command::new(me).args(["skip::tests::skips", "--exact", "--ignored"]).env("CI", ci).output();
            run.unwrap().status.success()
        };
        assert!(passes("false"));
        assert_eq!(passes("true"), !all_is_there());
    }
}
