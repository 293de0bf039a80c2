//! What a door and the doctor both say of a machine: what keeps Seekless from helping, and what would help.

pub mod few_blocked;
pub mod scheduler;

use std::io;

use seekless_base::Fault;
use seekless_kernel::lsm;
use seekless_kernel::tracepoint::TraceError;
use serde::Serialize;

/// A finding, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A word scripts can compare: `static`, `go`, `io_uring`, ...
    pub kind: &'static str,
    /// Whether it prevents any benefit, rather than that of a part of the reads.
    pub blocks: bool,
    /// The observation.
    pub what: String,
    /// What to do.
    pub advice: String,
}

/// One line for each reason of the kernel, with the next best door.
pub fn unavailable(why: TraceError) -> Fault {
    let instead = "next best: seekless watch DIR, then seekless run -- CMD";
    match why {
        TraceError::NotPermitted(what) => {
            // `watch` needs root as well.
            let instead = match rustix::process::geteuid().is_root() {
                true => instead,
                false => "become root, or preload the shim instead: seekless run -- CMD",
            };
            Fault::permission(
                format!(
                    "observing needs root with CAP_BPF and CAP_PERFMON, and no kernel lockdown ({what}); {instead}"
                ) + &lsm::hint(&io::ErrorKind::PermissionDenied.into()),
            )
        }
        TraceError::Missing(what) => Fault::missing(format!(
            "this kernel has no {what} (it takes Linux 6.11 with tracing, or 5.10 with BTF); {instead}"
        )),
        TraceError::Other(what, error) => {
            Fault::failed(format!("cannot observe: {what}: {error}; {instead}"))
        }
    }
}
