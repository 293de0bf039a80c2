//! lighttpd, from Debian's `lighttpd.conf`.

use std::process::Command;

use seekless_base::Fault;

use super::{Site, worker_group, worker_user, write};
use crate::tools;

/// The configuration and the command that runs it. One process, one thread, sendfile: lighttpd's defaults.
pub(super) fn command(site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let program = tools::find("lighttpd")?;
    let user = match (worker_user(), worker_group()) {
        (Some(user), Some(group)) => {
            format!("server.username = \"{user}\"\nserver.groupname = \"{group}\"\n")
        }
        _ => String::new(),
    };
    let text = format!(
        "server.document-root = \"{root}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n{user}\
         server.pid-file = \"{dir}/lighttpd.pid\"\nserver.upload-dirs = ( \"{dir}\" )\n\
         mimetype.assign = ( \".mp4\" => \"video/mp4\", \"\" => \"application/octet-stream\" )\n",
        root = site.root.display(),
        dir = site.dir.display(),
    );
    let config = write(site, "lighttpd.conf", &text)?;
    let mut command = program.command();
    command.arg("-D").arg("-f").arg(config).arg("-m").arg(program.file("usr/lib/lighttpd"));
    Ok(command)
}
