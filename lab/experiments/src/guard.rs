//! Ending early without leaving anything behind.
//!
//! Everything the lab starts or makes is owned by a value whose drop undoes it, so a panic or an error on the
//! way cleans up by unwinding. Signals become a flag that every wait looks at; the wait then returns an error
//! and the same unwinding does the rest. What SIGKILL leaves is dealt with elsewhere: processes die with
//! their parent, control groups are swept by the next run.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use seekless_base::{Exit, Fault};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What the names of scratch folders begin with; the maker's process id follows.
pub(crate) const SCRATCH_PREFIX: &str = "seekless-lab-";
/// How often waits look whether they are over.
const POLL: Duration = Duration::from_millis(20);

fn flag() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // A second signal while cleaning up must not cut that short, so the default action stays off.
            // Registering fails only for signals that cannot be caught.
            let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
        }
        flag
    })
}

/// From now on SIGINT, SIGTERM and SIGHUP end the run in order.
pub(crate) fn catch_signals() {
    flag();
}

/// # Errors
/// [`Exit::Interrupted`] once a signal has come.
pub(crate) fn check_interrupted() -> Result<(), Fault> {
    if flag().load(Ordering::Relaxed) {
        return Err(Fault::new(Exit::Interrupted, "interrupted; everything started was stopped and removed"));
    }
    Ok(())
}

/// Asks `ready` again and again until it has something, time is up (`None`), or a signal comes.
///
/// # Errors
/// [`Exit::Interrupted`], or those of `ready`.
pub(crate) fn wait_for<T>(
    patience: Duration,
    mut ready: impl FnMut() -> Result<Option<T>, Fault>,
) -> Result<Option<T>, Fault> {
    let give_up = Instant::now() + patience;
    loop {
        check_interrupted()?;
        if let Some(value) = ready()? {
            return Ok(Some(value));
        }
        if Instant::now() >= give_up {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Sleeps, unless a signal comes.
///
/// # Errors
/// [`Exit::Interrupted`].
pub(crate) fn sleep(time: Duration) -> Result<(), Fault> {
    wait_for(time, || Ok(None::<()>)).map(|_| ())
}

/// A folder of scratch files, removed with everything in it on drop. Others may enter it: servers give up
/// root.
#[derive(Debug)]
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Makes one under the system's temporary folder.
    pub(crate) fn new() -> Result<Scratch, Fault> {
        use std::os::unix::fs::PermissionsExt;
        let fault = |error: std::io::Error| Fault::failed(format!("temporary folder: {error}"));
        let permissions = std::fs::Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new()
            .prefix("seekless-lab-")
            .permissions(permissions)
            .tempdir()
            .map_err(fault)?;
        Ok(Scratch(dir))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A folder in it, made if need be.
    pub(crate) fn dir(&self, name: &str) -> Result<PathBuf, Fault> {
        let dir = self.path().join(name);
        std::fs::create_dir_all(&dir).map_err(|e| Fault::failed(format!("{}: {e}", dir.display())))?;
        Ok(dir)
    }
}
