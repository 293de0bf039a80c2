//! Where libseekless.so is.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use clap::Args;
use seekless_base::Fault;

/// File name of the shim.
const SHIM: &str = "libseekless.so";
/// First bytes of a shared library.
const ELF: [u8; 4] = *b"\x7fELF";

/// Which shim library a command preloads.
#[derive(Args, Clone, Debug)]
pub struct ShimOption {
    /// The shim library [default: $SEEKLESS_SHIM, else libseekless.so beside the program or in
    /// ../lib/seekless]
    #[arg(long, value_name = "PATH")]
    pub shim: Option<PathBuf>,
}

impl ShimOption {
    /// # Errors
    /// Those of [`find_shim`].
    pub fn find(&self) -> Result<PathBuf, Fault> {
        find_shim(self.shim.as_deref())
    }
}

/// The shim: `given`, else `$SEEKLESS_SHIM`, else beside this program or in ../lib/seekless.
///
/// # Errors
/// `Missing`: it is not there. `Usage`: `LD_PRELOAD` cannot carry its path.
pub fn find_shim(given: Option<&Path>) -> Result<PathBuf, Fault> {
    let chosen = given
        .map(Path::to_path_buf)
        .or_else(|| env::var_os("SEEKLESS_SHIM").filter(|s| !s.is_empty()).map(PathBuf::from));
    if let Some(path) = chosen {
        let absolute = fs::canonicalize(&path).map_err(|e| {
            Fault::missing(format!("there is no shim at {}: {e}; give its path with --shim", path.display()))
        })?;
        if !may_be_library(&absolute) {
            let path = absolute.display();
            return Err(Fault::usage(format!(
                "{path}: not a shared library; give the path of libseekless.so with --shim"
            )));
        }
        return preloadable(absolute);
    }
    let exe = env::current_exe()
        .map_err(|e| Fault::missing(format!("cannot find the path of this program: {e}")))?;
    let dir = exe.parent().unwrap_or(Path::new("/"));
    let places = [dir.join(SHIM), dir.join("../lib/seekless").join(SHIM), dir.join("deps").join(SHIM)];
    match places.iter().find_map(|p| fs::canonicalize(p).ok()) {
        Some(path) => preloadable(path),
        None => Err(Fault::missing(format!(
            "{SHIM} is neither next to {} nor in ../lib/seekless; build it (cargo build -p seekless-shim) or give its \
             path with --shim",
            exe.display()
        ))),
    }
}

/// Whether a file begins as a shared library does. The loader would only warn about another one, and the
/// command would run without Seekless. A file that may not be read is left to the loader.
fn may_be_library(path: &Path) -> bool {
    // A FIFO would not open.
    if !path.is_file() {
        return false;
    }
    let mut head = [0; ELF.len()];
    match File::open(path).and_then(|mut file| file.read_exact(&mut head)) {
        Ok(()) => head == ELF,
        Err(e) => e.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// The loader splits `LD_PRELOAD` at colons and spaces and cannot quote them.
fn preloadable(path: PathBuf) -> Result<PathBuf, Fault> {
    if path.as_os_str().as_encoded_bytes().iter().any(|b| matches!(b, b':' | b' ')) {
        let why = "contains a colon or a space, which LD_PRELOAD cannot hold; move the shim";
        return Err(Fault::usage(format!("the shim's path {} {why}", path.display())));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;

    #[test]
    fn a_shim_that_is_not_there_is_named() {
        let fault = find_shim(Some(Path::new("/nowhere/libseekless.so"))).unwrap_err();
        assert_eq!(fault.exit, Exit::Missing);
        assert!(fault.message.contains("/nowhere/libseekless.so"), "{fault}");
        for other in ["/etc/passwd", "/etc", "/dev/null"] {
            let fault = find_shim(Some(Path::new(other))).unwrap_err();
            assert!(fault.exit == Exit::Usage && fault.message.contains("not a shared library"), "{fault}");
        }
        assert_eq!(preloadable("/a b/libseekless.so".into()).unwrap_err().exit, Exit::Usage);
    }
}
