//! Our own: `seekless serve`, with an access log as the others write one.

use std::process::Command;

use seekless_units::Fault;

use super::{CERTIFICATE, KEY, Site};
use crate::tools;

/// The command that runs it.
pub(super) fn command(site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let mut command = tools::command(&["serve", "--listen", &format!("127.0.0.1:{port}"), "--access-log"])?;
    command.arg(site.dir.join("access.log"));
    if site.tls {
        command.arg("--tls-cert").arg(site.dir.join(CERTIFICATE)).arg("--tls-key").arg(site.dir.join(KEY));
    }
    command.args(site.options).arg(site.root);
    Ok(command)
}
