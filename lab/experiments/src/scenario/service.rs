//! Programs that serve files, by whatever protocol: what the scenario `works-with` measures.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A program, with the configuration its package ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// nginx.
    Nginx,
    /// Apache httpd with its event module.
    Apache,
    /// Samba's smbd.
    Samba,
    /// A file server of 20 lines on Node's `http` and `fs`.
    Node,
    /// `python3 -m http.server`.
    Python,
    /// The rsync daemon.
    Rsync,
    /// lighttpd.
    Lighttpd,
    /// HAProxy in front of nginx.
    Haproxy,
    /// Caddy.
    Caddy,
    /// A file server of 20 lines on the JDK's `jdk.httpserver`.
    Java,
    /// Varnish in front of nginx.
    Varnish,
    /// vsftpd.
    Vsftpd,
    /// ProFTPD.
    Proftpd,
    /// minidlna.
    Minidlna,
    /// transmission-daemon.
    Transmission,
    /// rclone, which serves a folder by the protocol of restic's REST server.
    Rclone,
    /// The HTTP server of BusyBox.
    Busybox,
}

/// How clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, whole files.
    Http,
    /// SMB, by smbclient.
    Smb,
    /// rsync's own, by rsync.
    Rsync,
    /// FTP, anonymous, in passive mode.
    Ftp,
}

impl Service {
    /// Every one, by how many people use it.
    pub const ALL: [Service; 17] = [
        Service::Nginx,
        Service::Apache,
        Service::Samba,
        Service::Node,
        Service::Python,
        Service::Rsync,
        Service::Lighttpd,
        Service::Haproxy,
        Service::Caddy,
        Service::Java,
        Service::Varnish,
        Service::Vsftpd,
        Service::Proftpd,
        Service::Minidlna,
        Service::Transmission,
        Service::Rclone,
        Service::Busybox,
    ];

    /// Name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Service::Nginx => "nginx",
            Service::Apache => "apache",
            Service::Samba => "samba",
            Service::Node => "node",
            Service::Python => "python",
            Service::Rsync => "rsync",
            Service::Lighttpd => "lighttpd",
            Service::Haproxy => "haproxy",
            Service::Caddy => "caddy",
            Service::Java => "java",
            Service::Varnish => "varnish",
            Service::Vsftpd => "vsftpd",
            Service::Proftpd => "proftpd",
            Service::Minidlna => "minidlna",
            Service::Transmission => "transmission",
            Service::Rclone => "rclone",
            Service::Busybox => "busybox",
        }
    }

    /// Name for people.
    pub fn title(self) -> &'static str {
        match self {
            Service::Nginx => "nginx",
            Service::Apache => "Apache httpd",
            Service::Samba => "Samba (smbd)",
            Service::Node => "Node, 20 lines",
            Service::Python => "Python, http.server",
            Service::Rsync => "rsync daemon",
            Service::Lighttpd => "lighttpd",
            Service::Haproxy => "HAProxy, then nginx",
            Service::Caddy => "Caddy",
            Service::Java => "Java, 20 lines",
            Service::Varnish => "Varnish, then nginx",
            Service::Vsftpd => "vsftpd",
            Service::Proftpd => "ProFTPD",
            Service::Minidlna => "minidlna",
            Service::Transmission => "transmission-daemon",
            Service::Rclone => "rclone, restic's REST protocol",
            Service::Busybox => "BusyBox httpd",
        }
    }

    /// Whether another server takes the answers of the one that reads, and passes them on.
    pub fn is_behind_another(self) -> bool {
        matches!(self, Service::Haproxy | Service::Varnish)
    }

    /// How its clients ask.
    pub fn protocol(self) -> Protocol {
        match self {
            Service::Samba => Protocol::Smb,
            Service::Rsync => Protocol::Rsync,
            Service::Vsftpd | Service::Proftpd => Protocol::Ftp,
            _ => Protocol::Http,
        }
    }
}

impl FromStr for Service {
    type Err = String;
    fn from_str(s: &str) -> Result<Service, String> {
        Service::ALL.into_iter().find(|service| service.name() == s).ok_or_else(|| {
            let all: Vec<&str> = Service::ALL.iter().map(|service| service.name()).collect();
            format!("`{s}` is not a service ({})", all.join(", "))
        })
    }
}

impl Protocol {
    /// The client program, for people.
    pub fn client(self) -> &'static str {
        match self {
            Protocol::Http => "HTTP",
            Protocol::Smb => "smbclient",
            Protocol::Rsync => "rsync",
            Protocol::Ftp => "FTP",
        }
    }
}
