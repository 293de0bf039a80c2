//! A process that ends with its parent.

use clap::Args;
use rustix::process::Signal;
use seekless_base::Fault;

/// The process that started this one.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ParentOption {
    /// End when this process, our parent, ends; then remove the socket's folder
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) parent: Option<i32>,
}

/// Requests a signal for when our parent ends.
pub(crate) fn die_with(parent: i32, signal: Signal) -> Result<(), Fault> {
    let armed = rustix::process::set_parent_process_death_signal(Some(signal));
    armed.map_err(|e| Fault::failed(format!("cannot tie the daemon to its parent: {e}")))?;
    // The parent may have ended before the line above.
    match rustix::process::getppid() {
        Some(now) if now.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(Fault::failed(format!("process {parent}, for which this daemon was started, has ended"))),
    }
}
