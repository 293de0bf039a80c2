//! The servers: configurations as the distribution ships them, started on loopback from their unpacked
//! packages.
//!
//! Each server gets a folder of its own for configuration, logs and temporary files, a free port, and workers
//! that run as www-data (or nobody) if this process is root. Its configuration has the parts of Debian's
//! package that matter for serving files. "As shipped" changes no setting that affects throughput.

mod apache;
mod go;
mod lighttpd;
mod nginx;
mod seekless;
mod service;

pub(crate) use seekless::REPORT;
pub(crate) use service::{Running, Wanted, first_version, version as service_version};

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use seekless_base::{Bytes, Fault};

use crate::guard;
use crate::memory_group::MemoryGroup;
use crate::process::Process;
use crate::scenario::{ServerKind, ServerVariant};
use crate::tools;

/// How long a server may take to answer its first request.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// Another process may take the free port we found before the server binds it: so often another is tried.
const PORT_ATTEMPTS: u32 = 3;

/// Where and how a server is to run.
#[derive(Debug)]
pub struct Site<'a> {
    /// Its folder for configuration, logs, temporary files.
    pub dir: &'a Path,
    /// What it serves.
    pub root: &'a Path,
    /// Variables for the server alone (preload, socket).
    pub env: &'a [(String, String)],
    /// Further options of `seekless serve`; the others are told everything in their configuration.
    pub options: &'a [String],
    /// The group it runs in.
    pub group: Option<&'a MemoryGroup>,
    /// Whether it speaks TLS, with a certificate made for it in its folder.
    pub tls: bool,
}

/// The server's certificate for 127.0.0.1 and its key, in its folder.
pub(crate) const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

/// A running server; stopped on drop.
#[derive(Debug)]
pub struct Server {
    process: Process,
    port: u16,
    tls: bool,
}

impl Server {
    /// Writes the configuration, starts the server and waits until it answers.
    ///
    /// # Errors
    /// `Exit::Missing` when it is not here, `Exit::Failed` with the last line of its log when it does not
    /// start.
    pub fn start(kind: ServerKind, variant: ServerVariant, site: &Site<'_>) -> Result<Server, Fault> {
        let mut last = Fault::failed("no attempt was made");
        for _ in 0..PORT_ATTEMPTS {
            match Server::attempt(kind, variant, site) {
                Err(fault) if fault.message.to_lowercase().contains("in use") => last = fault,
                other => return other,
            }
        }
        Err(last)
    }

    /// Starts nginx as a cache of `size` in front of another server.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub fn edge(origin: &Server, size: Bytes, site: &Site<'_>) -> Result<Server, Fault> {
        let fault = |e: std::io::Error| Fault::failed(format!("{}: {e}", site.dir.display()));
        std::fs::create_dir_all(site.dir).map_err(fault)?;
        let port = free_port()?;
        let command = nginx::edge(site, port, &origin.url(), size)?;
        Server::run("nginx", command, port, site)
    }

    fn attempt(kind: ServerKind, variant: ServerVariant, site: &Site<'_>) -> Result<Server, Fault> {
        let port = free_port()?;
        let fault = |e: std::io::Error| Fault::failed(format!("{}: {e}", site.dir.display()));
        std::fs::create_dir_all(site.dir).map_err(fault)?;
        if site.tls {
            certify(site)?;
        }
        let mut command = match kind {
            ServerKind::Nginx => nginx::command(variant, site, port)?,
            ServerKind::Apache => apache::command(variant, site, port)?,
            ServerKind::Lighttpd => lighttpd::command(site, port)?,
            ServerKind::Builtin => builtin(site, port)?,
            ServerKind::Caddy => go::caddy(site, port)?,
            ServerKind::GoFile => go::file_server(site, port)?,
            ServerKind::Seekless => seekless::command(site, port)?,
        };
        command.envs(site.env.iter().map(|(k, v)| (k, v)));
        Server::run(kind.name(), command, port, site)
    }

    /// Starts the command and waits until it answers.
    fn run(name: &str, command: Command, port: u16, site: &Site<'_>) -> Result<Server, Fault> {
        Server::run_as(name, command, (port, !site.tls), site)
    }

    /// The same for a server that answers HTTP or only takes connections.
    fn run_as(
        name: &str,
        command: Command,
        (port, http): (u16, bool),
        site: &Site<'_>,
    ) -> Result<Server, Fault> {
        let log = site.dir.join("output.log");
        let process = Process::spawn(name, command, &log, site.group)?;
        let mut server = Server { process, port, tls: site.tls };
        let answered = guard::wait_for(START_PATIENCE, || match server.process.ended() {
            Some(_) => Err(server.does_not_start(name, site, "ended")),
            None => Ok((if http { answers(port) } else { listens(port) }).then_some(())),
        })?;
        match answered {
            Some(()) => Ok(server),
            None => Err(server.does_not_start(name, site, "does not answer")),
        }
    }

    fn does_not_start(&self, name: &str, site: &Site<'_>, how: &str) -> Fault {
        let own = self.process.last_line();
        // Servers that log to a file of their own say nothing on standard error.
        let line = match own.as_str() {
            "it said nothing" => crate::process::last_line(&site.dir.join("error.log")),
            _ => own,
        };
        Fault::failed(format!("{name} {how} on port {}: {line}", self.port))
    }

    /// Where it listens on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// `http://127.0.0.1:PORT/`, or https.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}/", self.port)
    }

    /// The server's first process and all it started.
    pub fn pids(&self) -> Vec<u32> {
        let mut all = vec![self.process.pid()];
        let mut at = 0;
        while at < all.len() {
            let parent = all[at];
            let children =
                std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
            at += 1;
        }
        all
    }

    /// Processor time used so far, seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.pids().into_iter().map(Process::cpu_s).sum()
    }

    /// Whether it still runs.
    pub(crate) fn alive(&mut self) -> bool {
        self.process.ended().is_none()
    }
}

/// A server's version in one line.
pub(crate) fn version(kind: ServerKind) -> Option<String> {
    let flag = match kind {
        ServerKind::Builtin => return Some(format!("built-in {}", env!("CARGO_PKG_VERSION"))),
        ServerKind::Seekless => return Some(format!("seekless serve {}", env!("CARGO_PKG_VERSION"))),
        ServerKind::GoFile => return Some("http.FileServer of Go".into()),
        ServerKind::Caddy => {
            let output = tools::find_go("caddy").ok()?.command().arg("version").output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            return Some(format!("Caddy {}", text.split(' ').next().unwrap_or_default().trim()));
        }
        _ => "-v",
    };
    let name = if kind == ServerKind::Apache { "apache2" } else { kind.name() };
    let output = tools::find(name).ok()?.command().arg(flag).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).lines().next()?.trim().to_string();
    Some(text.trim_start_matches("nginx version: ").trim_start_matches("Server version: ").to_string())
}

fn builtin(site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let mut command = tools::command(&["file-server", &port.to_string()])?;
    command.arg(site.root);
    Ok(command)
}

pub(crate) fn free_port() -> Result<u16, Fault> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|e| Fault::failed(format!("no free port on 127.0.0.1: {e}")))
}

/// Writes a certificate that vouches for itself.
fn certify(site: &Site<'_>) -> Result<(), Fault> {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_string()])
        .map_err(|e| Fault::failed(format!("no certificate can be made: {e}")))?;
    write(site, CERTIFICATE, &made.cert.pem())?;
    write(site, KEY, &made.signing_key.serialize_pem())?;
    Ok(())
}

/// Whether a server accepts connections. A TLS server gives no other sign to a client without TLS.
fn listens(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// Whether an HTTP status line comes back.
fn answers(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.starts_with("HTTP/1."))
    };
    ask().unwrap_or(false)
}

/// The user workers run as: www-data or nobody for root, ourselves otherwise (`None`).
fn worker_user() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    Some(if users.lines().any(|l| l.starts_with("www-data:")) { "www-data" } else { "nobody" })
}

/// That user's first group.
fn worker_group() -> Option<String> {
    let user = worker_user()?;
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let gid = users.lines().find(|l| l.starts_with(&format!("{user}:")))?.split(':').nth(3)?.to_string();
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let group = groups.lines().find(|l| l.split(':').nth(2) == Some(gid.as_str()))?;
    group.split(':').next().map(String::from)
}

/// Writes a configuration file into the site's folder.
fn write(site: &Site<'_>, name: &str, text: &str) -> Result<PathBuf, Fault> {
    let path = site.dir.join(name);
    seekless_output::whole(&path, text)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;

    /// Each server that is here starts, serves a range of a file, and is gone after the drop.
    #[test]
    fn servers_start_answer_and_stop() {
        let scratch = guard::Scratch::new().unwrap();
        let root = scratch.dir("www").unwrap();
        std::fs::write(root.join("film.mp4"), vec![7; 100_000]).unwrap();
        use ServerKind::{Apache, Caddy, GoFile, Lighttpd, Nginx};
        for kind in [Nginx, Apache, Lighttpd, Caddy, GoFile] {
            for variant in [ServerVariant::Shipped, ServerVariant::Threads] {
                let dir = scratch.path().join(format!("{}-{variant:?}", kind.name()));
                let site = Site { dir: &dir, root: &root, env: &[], options: &[], group: None, tls: false };
                let server = match Server::start(kind, variant, &site) {
                    Err(fault) if fault.exit == Exit::Missing => {
                        println!("skipped: {fault}");
                        continue;
                    }
                    other => other.unwrap(),
                };
                let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
                let request =
                    "GET /film.mp4 HTTP/1.1\r\nHost: x\r\nRange: bytes=10-29\r\nConnection: close\r\n\r\n";
                stream.write_all(request.as_bytes()).unwrap();
                let mut answer = Vec::new();
                std::io::Read::read_to_end(&mut stream, &mut answer).unwrap();
                let answer = String::from_utf8_lossy(&answer).into_owned();
                assert!(answer.starts_with("HTTP/1.1 206"), "{}: {answer}", kind.name());
                assert!(answer.ends_with(&"\u{7}".repeat(20)), "{}: {answer}", kind.name());
                let pids = server.pids();
                assert!(server.cpu_s() >= 0.0);
                drop(server);
                for pid in pids {
                    let left = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                    assert!(left.is_empty() || left.contains(") Z "), "{} left {pid}: {left}", kind.name());
                }
            }
        }
    }

    #[test]
    fn a_server_that_does_not_start_says_why() {
        let scratch = guard::Scratch::new().unwrap();
        let dir = scratch.path().join("nginx");
        // nginx refuses a root whose name it cannot parse.
        let root = PathBuf::from("/nowhere\" oops");
        match Server::start(
            ServerKind::Nginx,
            ServerVariant::Shipped,
            &Site { dir: &dir, root: &root, env: &[], options: &[], group: None, tls: false },
        ) {
            Err(fault) if fault.exit == Exit::Missing => println!("skipped: {fault}"),
            Err(fault) => {
                assert!(fault.exit == Exit::Failed && fault.message.contains("nginx ended"), "{fault}")
            }
            Ok(_) => panic!("it started"),
        }
    }
}
