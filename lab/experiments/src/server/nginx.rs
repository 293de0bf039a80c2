//! nginx, from Debian's `/etc/nginx/nginx.conf`.

use std::process::Command;

use seekless_base::{Bytes, Fault};

use super::{CERTIFICATE, KEY, Site, worker_user, write};
use crate::scenario::ServerVariant;
use crate::tools;

/// An edge: a cache of `size` on disk in front of `origin`, fetching 1 MiB slices as the manual of the slice
/// module proposes.
pub(super) fn edge(site: &Site<'_>, port: u16, origin: &str, size: Bytes) -> Result<Command, Fault> {
    let program = tools::find("nginx")?;
    let user = worker_user().map_or(String::new(), |user| format!("user {user};\n"));
    let dir = site.dir.display();
    let origin = origin.trim_end_matches('/');
    let text = format!(
        "{user}worker_processes auto;\npid {dir}/nginx.pid;\nerror_log stderr;\ndaemon off;\n\
         events {{\n    worker_connections 768;\n}}\n\
         http {{\n    sendfile on;\n    tcp_nopush on;\n    access_log off;\n{temporary}\
         \x20   proxy_cache_path {dir}/cache levels=1:2 keys_zone=edge:10m max_size={size} inactive=1h \
         use_temp_path=off manager_sleep=50ms manager_threshold=1s manager_files=1000;\n\
         \x20   upstream origin {{\n        server {address};\n        keepalive 64;\n    }}\n\
         \x20   server {{\n        listen 127.0.0.1:{port};\n        location / {{\n            slice 1m;\n\
         \x20           proxy_cache edge;\n            proxy_cache_key $uri$slice_range;\n\
         \x20           proxy_set_header Range $slice_range;\n            proxy_http_version 1.1;\n\
         \x20           proxy_set_header Connection \"\";\n            proxy_cache_valid 200 206 1h;\n\
         \x20           proxy_read_timeout 60s;\n            proxy_pass http://origin;\n        }}\n    }}\n}}\n",
        temporary = temporary(site),
        address = origin.trim_start_matches("http://"),
        size = size.0,
    );
    let config = write(site, "nginx.conf", &text)?;
    let mut command = program.command();
    command.arg("-e").arg("stderr").arg("-c").arg(config);
    Ok(command)
}

/// Folders for what nginx would otherwise put where the package says.
fn temporary(site: &Site<'_>) -> String {
    let dir = site.dir.display();
    let path = |kind: &&str| format!("    {kind}_temp_path {dir}/{kind};\n");
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].iter().map(path).collect()
}

/// The configuration and the command that runs it.
pub(super) fn command(variant: ServerVariant, site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let program = tools::find("nginx")?;
    let user = worker_user().map_or(String::new(), |user| format!("user {user};\n"));
    let dir = site.dir.display();
    // A thread pool as the manual proposes it: a worker no longer stops at every disk read. 32 threads is the
    // default.
    let reading = match variant {
        ServerVariant::Shipped => "    sendfile on;\n",
        ServerVariant::Threads => "    sendfile on;\n    aio threads;\n",
        ServerVariant::Reads => "    sendfile off;\n    aio threads;\n    output_buffers 2 32k;\n",
    };
    // As packaged; an operator who sets up threads raises it as well: an open viewer's connection is
    // one of them, and beyond the limit nginx resets those that are idle.
    let (connections, descriptors) = match variant {
        ServerVariant::Shipped => (768, ""),
        ServerVariant::Threads | ServerVariant::Reads => (4096, "worker_rlimit_nofile 16384;\n"),
    };
    let temporary = temporary(site);
    // Protocols and preference of ciphers as packaged.
    let (ssl, certificate) = match site.tls {
        false => ("", String::new()),
        true => (
            " ssl",
            format!(
                "    ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;\n    ssl_prefer_server_ciphers on;\n\
                 \x20   ssl_certificate {dir}/{CERTIFICATE};\n    ssl_certificate_key {dir}/{KEY};\n"
            ),
        ),
    };
    // worker_processes, sendfile, tcp_nopush, types_hash_max_size, gzip, access_log: as packaged.
    let text = format!(
        "{user}worker_processes auto;\n{descriptors}pid {dir}/nginx.pid;\nerror_log stderr;\ndaemon off;\n\
         events {{\n    worker_connections {connections};\n}}\n\
         http {{\n    tcp_nopush on;\n    types_hash_max_size 2048;\n    gzip on;\n{reading}\
         \x20   default_type application/octet-stream;\n    access_log {dir}/access.log;\n{temporary}{certificate}\
         \x20   server {{\n        listen 127.0.0.1:{port}{ssl};\n        root \"{root}\";\n    }}\n}}\n",
        root = site.root.display(),
    );
    let config = write(site, "nginx.conf", &text)?;
    let mut command = program.command();
    command.arg("-e").arg("stderr").arg("-c").arg(config);
    Ok(command)
}
