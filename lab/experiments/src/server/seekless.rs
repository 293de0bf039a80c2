//! Our own: `seekless serve`, with an access log as the others write one.

use std::process::Command;

use seekless_base::Fault;

use super::{CERTIFICATE, KEY, Site};
use crate::tools;

/// What it counted, written into the site's folder at its end.
pub(crate) const REPORT: &str = "serve.json";

/// The command that runs it.
pub(super) fn command(site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let mut command = tools::command(&["serve", "--listen", &format!("127.0.0.1:{port}"), "--access-log"])?;
    command.arg(site.dir.join("access.log"));
    if site.tls {
        command.arg("--tls-cert").arg(site.dir.join(CERTIFICATE)).arg("--tls-key").arg(site.dir.join(KEY));
    }
    command.args(site.options).arg("--json").arg(site.dir.join(REPORT));
    command.arg(site.root);
    // What it learns of a software disk ends with the run.
    command.env("SEEKLESS_PROFILES", site.dir.join("profiles"));
    Ok(command)
}
