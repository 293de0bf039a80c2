//! `seekless release`: makes a running daemon close the files of a file system, so that it can be unmounted.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use clap::Args;
use seekless_base::{Exit, Fault};

use seekless_frontend::control::{self, AskError};
use seekless_frontend::socket::SocketOption;

/// Have a running daemon close every file of a folder's file system, so that it can be unmounted
#[derive(Args, Clone, Debug)]
pub struct ReleaseArgs {
    /// A folder or file on each file system to release
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    at: SocketOption,
}

/// `seekless release`.
///
/// # Errors
/// There is no such folder; no daemon answers, or it does not obey this user; a read there does not end.
pub fn run_release(args: ReleaseArgs) -> Result<Exit, Fault> {
    let socket = args.at.path()?;
    for dir in &args.dirs {
        let about = std::fs::metadata(dir).map_err(|error| {
            let exit = match error.kind() {
                std::io::ErrorKind::PermissionDenied => Exit::Permission,
                _ => Exit::Missing,
            };
            Fault::new(exit, format!("{}: {error}; name a folder of the file system", dir.display()))
        })?;
        control::release(&socket, about.dev()).map_err(|error| match error {
            AskError::Silent(_) => Fault::failed(format!(
                "{}: a read there has not ended yet, or its daemon hangs; try again, or see what \
                     seekless top shows of its disk",
                dir.display()
            )),
            AskError::NobodyThere(..) => Fault::missing(format!(
                "no daemon answers at {}, so none keeps a file open there; name another daemon with --socket",
                socket.display()
            )),
            error => error.into(),
        })?;
    }
    Ok(Exit::Ok)
}
