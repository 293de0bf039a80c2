//! nginx, from Debian's `/etc/nginx/nginx.conf`.

use std::process::Command;

use seekless_units::Fault;

use super::{Site, worker_user, write};
use crate::scenario::ServerVariant;
use crate::tools;

/// The configuration and the command that runs it.
pub(super) fn command(variant: ServerVariant, site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let program = tools::find("nginx")?;
    let user = worker_user().map_or(String::new(), |user| format!("user {user};\n"));
    let dir = site.dir.display();
    // A thread pool as the manual proposes it: a worker no longer stops at every disk read. 32 threads is the default.
    let reading = match variant {
        ServerVariant::Shipped => "    sendfile on;\n",
        ServerVariant::Threads => "    sendfile on;\n    aio threads;\n",
        ServerVariant::Reads => "    sendfile off;\n    aio threads;\n    output_buffers 2 32k;\n",
    };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("    {kind}_temp_path {dir}/{kind};\n"))
        .collect();
    // worker_processes, worker_connections, sendfile, tcp_nopush, types_hash_max_size, gzip, access_log: as packaged.
    let text = format!(
        "{user}worker_processes auto;\npid {dir}/nginx.pid;\nerror_log stderr;\ndaemon off;\n\
         events {{\n    worker_connections 768;\n}}\n\
         http {{\n    tcp_nopush on;\n    types_hash_max_size 2048;\n    gzip on;\n{reading}\
         \x20   default_type application/octet-stream;\n    access_log {dir}/access.log;\n{temporary}\
         \x20   server {{\n        listen 127.0.0.1:{port};\n        root \"{root}\";\n    }}\n}}\n",
        root = site.root.display(),
    );
    let config = write(site, "nginx.conf", &text)?;
    let mut command = program.command();
    command.arg("-e").arg("stderr").arg("-c").arg(config);
    Ok(command)
}
