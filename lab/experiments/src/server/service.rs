//! The services of `works-with`: servers of several protocols, each as its package configures it.
//!
//! What a configuration names is what a server must be told to run from another folder, on another port, for
//! anonymous readers. Nothing that decides throughput is set; a limit on connections is raised where the
//! package's is below the number of clients.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use seekless_base::Fault;

use super::{Server, Site, apache, free_port, go, lighttpd, nginx, worker_group, worker_user, write};
use crate::guard;
use crate::scenario::{Protocol, ServerVariant, Service};
use crate::tools;

const NODE: &str = include_str!("file-server.js");
const JAVA: &str = include_str!("FileServer.java");

/// How long a service may take to list its files.
const LIST_PATIENCE: Duration = Duration::from_secs(60);

/// A file as clients ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its name in a request, without a slash in front.
    pub(crate) asked: String,
    /// Its path in the library, which decides its content.
    pub(crate) path: String,
    pub(crate) size: u64,
}

/// A service that answers; stopped on drop.
#[derive(Debug)]
pub(crate) struct Running {
    /// What clients ask, where that is another program; stopped first.
    front: Option<Server>,
    /// What reads the disk.
    pub(crate) server: Server,
    /// The library's files by the names that it serves them under.
    pub(crate) wanted: Vec<Wanted>,
}

impl Running {
    /// Writes the configuration, starts the programs and waits until they take connections and know the files
    /// (path and size). The variables of the site are for the program that reads the disk.
    ///
    /// # Errors
    /// [`Exit::Missing`] when a program is not here, [`Exit::Failed`] when it does not start.
    pub(crate) fn start(
        service: Service,
        site: &Site<'_>,
        files: &[(String, u64)],
    ) -> Result<Running, Fault> {
        let fault = |e: std::io::Error| Fault::failed(format!("{}: {e}", site.dir.display()));
        std::fs::create_dir_all(site.dir).map_err(fault)?;
        let port = free_port()?;
        match service {
            Service::Minidlna => link(site.root, files, audio_name)?,
            Service::Rclone => link(site.root, files, pack_name)?,
            _ => {}
        }
        let mut command = command(service, site, port)?;
        command.envs(site.env.iter().map(|(k, v)| (k, v)));
        // Only HTTP can be asked before a client comes.
        let http = service.protocol() == Protocol::Http;
        let server = Server::run_as(service.name(), command, (port, http), site)?;
        let front = match service {
            Service::Haproxy | Service::Varnish => Some(in_front(service, port, site)?),
            _ => None,
        };
        let wanted = match service {
            Service::Minidlna => listed(port, files)?,
            Service::Rclone => wanted(files, |i, _| format!("data/{}", pack_id(i))),
            _ => wanted(files, |_, path| path.into()),
        };
        Ok(Running { front, server, wanted })
    }

    /// Where clients ask on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.front.as_ref().unwrap_or(&self.server).port()
    }

    /// Whether all of it still runs.
    pub(crate) fn alive(&mut self) -> bool {
        self.server.alive() && self.front.as_mut().is_none_or(Server::alive)
    }
}

/// Every file by its path and the name that it is asked for by, which follows from its number and its path.
fn wanted(files: &[(String, u64)], name: impl Fn(usize, &str) -> String) -> Vec<Wanted> {
    let wanted = |(i, (path, size)): (usize, &(String, u64))| Wanted {
        asked: name(i, path),
        path: path.clone(),
        size: *size,
    };
    files.iter().enumerate().map(wanted).collect()
}

/// A program by where its package installs it, so that no wrapper of the same name in PATH comes first.
fn installed(name: &str) -> Result<Command, Fault> {
    let path = Path::new("/usr/bin").join(name);
    if path.is_file() { Ok(Command::new(path)) } else { Ok(tools::find(name)?.command()) }
}

/// The program that reads the disk.
fn command(service: Service, site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let root = site.root;
    let port_text = port.to_string();
    match service {
        Service::Nginx | Service::Haproxy | Service::Varnish => {
            nginx::command(ServerVariant::Shipped, site, port)
        }
        Service::Apache => apache::command(ServerVariant::Shipped, site, port),
        Service::Lighttpd => lighttpd::command(site, port),
        Service::Caddy => go::caddy(site, port),
        Service::Samba => samba(site, port),
        Service::Rsync => rsync(site, port),
        Service::Vsftpd => vsftpd(site, port),
        Service::Proftpd => proftpd(site, port),
        Service::Node => {
            let mut command = installed("node")?;
            command.arg(write(site, "file-server.js", NODE)?).arg(root).arg(port_text);
            Ok(command)
        }
        Service::Java => {
            let mut command = installed("java")?;
            command.arg(write(site, "FileServer.java", JAVA)?).arg(root).arg(port_text);
            Ok(command)
        }
        Service::Python => {
            let mut command = installed("python3")?;
            command
                .args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"])
                .arg(root)
                .arg(port_text);
            Ok(command)
        }
        Service::Minidlna => minidlna(site, port),
        Service::Rclone => go::rclone(site, port, &root.join(REPOSITORY)),
        Service::Busybox => {
            let mut command = tools::find("busybox")?.command();
            command.args(["httpd", "-f", "-p", &format!("127.0.0.1:{port_text}"), "-h"]).arg(root);
            Ok(command)
        }
        Service::Transmission => {
            Err(Fault::missing("its peers ask for pieces in random order; there is no sequential client"))
        }
    }
}

/// The proxy before the server on this port.
fn in_front(service: Service, origin: u16, site: &Site<'_>) -> Result<Server, Fault> {
    let dir = site.dir.join("front");
    let site = Site { dir: &dir, root: site.root, env: &[], options: &[], group: None, tls: false };
    std::fs::create_dir_all(&dir).map_err(|e| Fault::failed(format!("{}: {e}", dir.display())))?;
    let port = free_port()?;
    let (name, command) = match service {
        Service::Varnish => {
            // What is larger than the cache is passed on as it comes.
            let text = format!(
                "vcl 4.0;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{origin}\"; }}\n\
                 sub vcl_recv {{ return (pass); }}\n"
            );
            let config = write(&site, "default.vcl", &text)?;
            let mut command = tools::find("varnishd")?.command();
            command.args(["-F", "-s", "malloc,64m", "-a", &format!("127.0.0.1:{port}"), "-f"]);
            command.arg(config).arg("-n").arg(dir.join("work"));
            ("varnish", command)
        }
        _ => {
            // The time-outs of Debian's `haproxy.cfg`.
            let text = format!(
                "defaults\n    mode http\n    timeout connect 5000\n    timeout client 50000\n    timeout server 50000\n\
                 frontend clients\n    bind 127.0.0.1:{port}\n    default_backend files\n\
                 backend files\n    server files 127.0.0.1:{origin}\n"
            );
            let config = write(&site, "haproxy.cfg", &text)?;
            let mut command = tools::find("haproxy")?.command();
            command.arg("-db").arg("-f").arg(config);
            ("haproxy", command)
        }
    };
    Server::run_as(name, command, (port, true), &site)
}

/// A share for guests, from Debian's `smb.conf`, with everything it writes in its own folder.
fn samba(site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let text = format!(
        "[global]\nserver role = standalone server\ninterfaces = 127.0.0.1\nbind interfaces only = yes\n\
         smb ports = {port}\nmap to guest = bad user\nguest account = nobody\nload printers = no\n\
         disable spoolss = yes\nrpc start on demand helpers = no\nlog file = {dir}/log\npid directory = {dir}\n\
         lock directory = {dir}\nstate directory = {dir}\ncache directory = {dir}\nprivate dir = {dir}\n\
         ncalrpc dir = {dir}/ncalrpc\n[files]\npath = {root}\nguest ok = yes\nread only = yes\n",
        dir = site.dir.display(),
        root = site.root.display(),
    );
    let config = write(site, "smb.conf", &text)?;
    let mut command = tools::find("smbd")?.command();
    command.args(["--foreground", "--no-process-group", "--configfile"]).arg(config);
    Ok(command)
}

/// A module for everyone.
fn rsync(site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let text = format!(
        "port = {port}\naddress = 127.0.0.1\n{user}[files]\npath = {root}\nread only = yes\n",
        user = match (worker_user(), worker_group()) {
            (Some(user), Some(group)) => format!("uid = {user}\ngid = {group}\n"),
            // Only root can leave its root directory.
            _ => "use chroot = no\n".into(),
        },
        root = site.root.display(),
    );
    let config = write(site, "rsyncd.conf", &text)?;
    let mut command = tools::find("rsync")?.command();
    command.arg("--daemon").arg("--no-detach").arg(format!("--config={}", config.display()));
    Ok(command)
}

/// Anonymous FTP, from Debian's `vsftpd.conf`.
fn vsftpd(site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let program = tools::find("vsftpd")?;
    let empty = site.dir.join("empty");
    std::fs::create_dir_all(&empty).map_err(|e| Fault::failed(format!("{}: {e}", empty.display())))?;
    let text = format!(
        "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\nanonymous_enable=YES\n\
         no_anon_password=YES\nanon_root={root}\nftp_username={user}\nsecure_chroot_dir={empty}\n\
         max_per_ip=0\nxferlog_enable=NO\n",
        root = site.root.display(),
        user = ftp_user(),
        empty = empty.display(),
    );
    let config = write(site, "vsftpd.conf", &text)?;
    let mut command = program.command();
    command.arg(config);
    Ok(command)
}

/// A user whose home is there: vsftpd enters it before it enters the files.
fn ftp_user() -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let home = |line: &&str| line.split(':').nth(5).is_some_and(|home| Path::new(home).is_dir());
    let named = |name: &&&str| users.lines().filter(home).any(|line| line.split(':').next() == Some(**name));
    ["ftp", "bin", "daemon"].iter().find(named).unwrap_or(&"root").to_string()
}

/// Anonymous FTP, from Debian's `proftpd.conf`; its 30 instances are fewer than the clients.
fn proftpd(site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let (user, group) = (worker_user().unwrap_or("nobody"), worker_group().unwrap_or("nogroup".into()));
    let text = format!(
        "ServerName \"files\"\nServerType standalone\nPort {port}\nDefaultAddress 127.0.0.1\nSocketBindTight on\n\
         UseIPv6 off\nMaxInstances 500\nUser {user}\nGroup {group}\nPidFile {dir}/proftpd.pid\n\
         ScoreboardFile {dir}/scoreboard\nSystemLog none\nWtmpLog off\nDelayTable none\n\
         <Anonymous {root}>\nUser {user}\nGroup {group}\nUserAlias anonymous {user}\nRequireValidShell off\n\
         <Limit WRITE>\nDenyAll\n</Limit>\n</Anonymous>\n",
        dir = site.dir.display(),
        root = site.root.display(),
    );
    let config: PathBuf = write(site, "proftpd.conf", &text)?;
    let mut command = tools::find("proftpd")?.command();
    command.arg("-n").arg("-c").arg(config);
    Ok(command)
}

/// Where the library's files are once more, as audio.
const AUDIO: &str = "audio";
/// Where they are once more, as the packs of a backup.
const REPOSITORY: &str = "restic";

/// minidlna serves only what it takes for media. Raw audio may hold any bytes.
fn audio_name(file: usize) -> String {
    format!("{AUDIO}/{file:06}.pcm")
}

/// A repository of restic keeps a pack in one of 256 folders, by the first two digits of its name.
fn pack_name(file: usize) -> String {
    let id = pack_id(file);
    format!("{REPOSITORY}/data/{}/{id}", &id[..2])
}

/// A pack's name is the checksum of its content; any 64 digits will do for the server.
fn pack_id(file: usize) -> String {
    format!("{:02x}{file:062x}", file % 256)
}

/// Links the library's files under names that follow from their numbers.
fn link(root: &Path, files: &[(String, u64)], name: impl Fn(usize) -> String) -> Result<(), Fault> {
    for (i, (path, _)) in files.iter().enumerate() {
        let link = root.join(name(i));
        let fault = |e: std::io::Error| Fault::failed(format!("{}: {e}", link.display()));
        if let Some(folder) = link.parent() {
            std::fs::create_dir_all(folder).map_err(fault)?;
        }
        if !link.exists() {
            std::fs::hard_link(root.join(path), &link).map_err(fault)?;
        }
    }
    Ok(())
}

/// From Debian's `minidlna.conf`.
fn minidlna(site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let program = tools::find("minidlnad")?;
    let text = format!(
        "port={port}\nnetwork_interface=lo\nmedia_dir=A,{root}/{AUDIO}\ndb_dir={dir}/db\nlog_dir={dir}\n\
         friendly_name=files\ninotify=no\nmax_connections=500\n",
        dir = site.dir.display(),
        root = site.root.display(),
    );
    let config = write(site, "minidlna.conf", &text)?;
    let mut command = program.command();
    // In the foreground, its list of files made anew.
    command.arg("-S").arg("-R").arg("-f").arg(config).arg("-P").arg(site.dir.join("minidlna.pid"));
    Ok(command)
}

/// The files by the numbers that minidlna gave them, once it knows all.
fn listed(port: u16, files: &[(String, u64)]) -> Result<Vec<Wanted>, Fault> {
    let wanted = guard::wait_for(LIST_PATIENCE, || {
        // Its list is locked while it is made.
        let list = browse(port).map(|answer| numbered(&answer, files)).unwrap_or_default();
        Ok((list.len() == files.len()).then_some(list))
    })?;
    wanted.ok_or_else(|| Fault::failed("it does not list the library's files"))
}

/// All audio, as its directory service tells it.
fn browse(port: u16) -> std::io::Result<String> {
    let body = "<?xml version=\"1.0\"?><s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         s:encodingStyle=\"http://schemas.xmlsoap.org/soap/encoding/\"><s:Body><u:Browse \
         xmlns:u=\"urn:schemas-upnp-org:service:ContentDirectory:1\"><ObjectID>1$4</ObjectID>\
         <BrowseFlag>BrowseDirectChildren</BrowseFlag><Filter>res</Filter><StartingIndex>0</StartingIndex>\
         <RequestedCount>0</RequestedCount><SortCriteria></SortCriteria></u:Browse></s:Body></s:Envelope>";
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "POST /ctl/ContentDir HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: text/xml\r\n\
         SOAPACTION: \"urn:schemas-upnp-org:service:ContentDirectory:1#Browse\"\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Title and number of each item of an answer, as files of the library.
fn numbered(answer: &str, files: &[(String, u64)]) -> Vec<Wanted> {
    let item = |text: &str| {
        let title = text.split_once("dc:title&gt;")?.1.split_once("&lt;")?.0;
        let number = text.split_once("/MediaItems/")?.1.split_once(".pcm")?.0;
        let (path, size) = files.get(title.parse::<usize>().ok()?)?;
        let asked = format!("MediaItems/{}.pcm", number.parse::<u64>().ok()?);
        Some(Wanted { asked, path: path.clone(), size: *size })
    };
    answer.split("&lt;item ").skip(1).filter_map(item).collect()
}

/// Name and version in a few words; none where it does not say.
pub(crate) fn version(service: Service) -> Option<String> {
    let (name, flag) = match service {
        Service::Nginx => ("nginx", "-v"),
        Service::Haproxy => ("haproxy", "-v"),
        Service::Varnish => ("varnishd", "-V"),
        Service::Apache => ("apache2", "-v"),
        Service::Samba => ("smbd", "-V"),
        Service::Node => ("node", "--version"),
        Service::Python => ("python3", "--version"),
        Service::Java => ("java", "-version"),
        Service::Rsync => ("rsync", "--version"),
        Service::Lighttpd => ("lighttpd", "-v"),
        Service::Proftpd => ("proftpd", "-v"),
        Service::Minidlna => ("minidlnad", "-V"),
        Service::Rclone => ("rclone", "version"),
        Service::Busybox => ("busybox", "--help"),
        Service::Caddy => {
            return super::version(crate::scenario::ServerKind::Caddy).and_then(|text| first_version(&text));
        }
        _ => return None,
    };
    let command = match service {
        Service::Node | Service::Python | Service::Java => installed(name),
        _ => tools::find(name).map(|program| program.command()),
    };
    let output = command.ok()?.arg(flag).output().ok()?;
    first_version(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()))
}

/// The first word of digits and dots, as `1.22.1`.
pub(crate) fn first_version(text: &str) -> Option<String> {
    let words = text.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    let dotted = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    words.map(|word| word.trim_end_matches('.')).find(dotted).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_the_numbers_of_a_list() {
        let files = [("sd/000000.mp4".to_string(), 5), ("sd/000001.mp4".to_string(), 6)];
        let answer = "&lt;item id=\"1\"&gt;&lt;dc:title&gt;000001&lt;/dc:title&gt;&lt;res size=\"6\"&gt;\
             http://127.0.0.1:4200/MediaItems/23.pcm&lt;/res&gt;&lt;/item&gt;&lt;item id=\"2\"&gt;\
             &lt;dc:title&gt;other&lt;/dc:title&gt;&lt;res&gt;http://127.0.0.1:4200/MediaItems/24.pcm&lt;/res&gt;";
        let wanted = Wanted { asked: "MediaItems/23.pcm".into(), path: "sd/000001.mp4".into(), size: 6 };
        assert_eq!(numbered(answer, &files), [wanted]);
        assert_eq!(numbered("HTTP/1.1 500 no", &files), []);
    }

    #[test]
    fn packs_are_asked_for_by_name_and_lie_in_the_folder_of_its_first_digits() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("sd")).unwrap();
        let files: Vec<(String, u64)> = (0..300).map(|i| (format!("sd/{i}.mp4"), i)).collect();
        for (path, size) in &files {
            std::fs::write(root.path().join(path), vec![7; *size as usize]).unwrap();
        }
        for _ in 0..2 {
            link(root.path(), &files, pack_name).unwrap();
        }
        let mut names = std::collections::HashSet::new();
        for (i, (path, size)) in files.iter().enumerate() {
            let (name, id) = (pack_name(i), pack_id(i));
            assert!(id.len() == 64 && names.insert(id.clone()), "{id}");
            assert_eq!(name, format!("restic/data/{}/{id}", &id[..2]));
            assert_eq!(std::fs::metadata(root.path().join(name)).unwrap().len(), *size, "{path}");
        }
    }

    #[test]
    fn a_version_is_found_in_what_servers_say() {
        for (said, version) in [
            ("nginx version: nginx/1.22.1", Some("1.22.1")),
            ("Server version: Apache/2.4.65 (Debian)", Some("2.4.65")),
            ("Version 4.17.12-Debian", Some("4.17.12")),
            ("openjdk version \"17.0.15\" 2025-04-15", Some("17.0.15")),
            ("rsync  version 3.2.7  protocol version 31", Some("3.2.7")),
            ("ProFTPD Version 1.3.8", Some("1.3.8")),
            ("rclone v1.60.1-DEV\n- os/version: debian 12.15", Some("1.60.1")),
            ("BusyBox v1.35.0 (Debian 1:1.35.0-4) multi-call binary.", Some("1.35.0")),
            ("no word", None),
        ] {
            assert_eq!(first_version(said).as_deref(), version, "{said}");
        }
    }
}
