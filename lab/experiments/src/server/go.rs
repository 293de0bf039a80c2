//! Servers in Go, into which nothing can be preloaded: Caddy, rclone, and Go's own file server.

use std::path::Path;
use std::process::Command;

use seekless_base::Fault;

use super::{Site, write};
use crate::tools;

/// Caddy as its manual has it for a folder of files: no administration door, no certificates, no access log.
pub(super) fn caddy(site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let program = tools::find_go("caddy")?;
    let text = format!(
        "{{\n\tadmin off\n\tauto_https off\n}}\nhttp://:{port} {{\n\tbind 127.0.0.1\n\troot * {root}\n\tfile_server\n}}\n",
        root = site.root.display(),
    );
    let config = write(site, "Caddyfile", &text)?;
    let mut command = program.command();
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(config);
    command.env("HOME", site.dir).env("XDG_DATA_HOME", site.dir).env("XDG_CONFIG_HOME", site.dir);
    Ok(command)
}

/// rclone by the protocol of restic's REST server, with the repository in `root`.
pub(super) fn rclone(site: &Site<'_>, port: u16, root: &Path) -> Result<Command, Fault> {
    let mut command = tools::find("rclone")?.command();
    command.args(["serve", "restic", "--addr", &format!("127.0.0.1:{port}")]).arg(root);
    command.env("HOME", site.dir).env("XDG_CONFIG_HOME", site.dir).env("XDG_CACHE_HOME", site.dir);
    Ok(command)
}

/// `http.FileServer` (`scripts/gofile.go`).
pub(super) fn file_server(site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let mut command = tools::find_go("gofile")?.command();
    command.arg(format!("127.0.0.1:{port}")).arg(site.root);
    Ok(command)
}
