//! The destination of requests: the address of the server and how a connection to it is made.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use hyper::Uri;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use seekless_base::Fault;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

/// A byte stream to a server.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}

/// How connections are made.
#[derive(Clone)]
enum Dial {
    Tcp(SocketAddr),
    Tls(SocketAddr, TlsConnector, ServerName<'static>),
    /// Directly into a test's server, so that a test's clock can stand still.
    #[cfg(test)]
    Memory(Arc<dyn Fn() -> tokio::io::DuplexStream + Send + Sync>),
}

/// A server.
#[derive(Clone)]
pub struct TargetServer {
    dial: Dial,
    /// Value of the Host header.
    host: String,
    /// Path before every file's path; begins and ends with a slash.
    base: String,
}

impl TargetServer {
    /// Parses `http://host[:port]/[path/]` and resolves the host; for `https://`, the server's certificate
    /// must be signed by one in `cacert`.
    ///
    /// # Errors
    /// Not such a URL (usage), no certificates for it (usage), or a host without an address (missing).
    pub fn parse(url: &str, cacert: Option<&Path>) -> Result<TargetServer, Fault> {
        let usage =
            |why: &str| Fault::usage(format!("--url {url}: {why}; write for example http://127.0.0.1:8080/"));
        let uri: Uri = url.parse().map_err(|_| usage("this is not a URL"))?;
        let secure = match (uri.scheme_str(), cacert) {
            (Some("http"), _) => None,
            (Some("https"), Some(file)) => Some(file),
            (Some("https"), None) => return Err(usage("https:// needs --cacert FILE")),
            _ => return Err(usage("only http:// and https:// URLs can be loaded")),
        };
        let host = uri.authority().map(|a| a.as_str()).unwrap_or_default();
        if host.is_empty() || host.contains('@') {
            return Err(usage("there is no plain host name in it"));
        }
        let name = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if secure.is_some() { 443 } else { 80 });
        let addr = (name, port)
            .to_socket_addrs()
            .ok()
            .and_then(|mut all| all.next())
            .ok_or_else(|| Fault::missing(format!("--url {url}: the host `{name}` has no address")))?;
        let mut base = uri.path().to_string();
        if !base.ends_with('/') {
            base.push('/');
        }
        let dial = match secure {
            None => Dial::Tcp(addr),
            Some(file) => {
                let name = ServerName::try_from(name.to_string())
                    .map_err(|_| usage("no certificate can name it"))?;
                Dial::Tls(addr, connector(file)?, name)
            }
        };
        Ok(TargetServer { dial, host: host.to_string(), base })
    }

    /// A target whose connections come from `connect`.
    #[cfg(test)]
    pub(crate) fn memory(
        connect: impl Fn() -> tokio::io::DuplexStream + Send + Sync + 'static,
    ) -> TargetServer {
        TargetServer { dial: Dial::Memory(Arc::new(connect)), host: "test".into(), base: "/".into() }
    }

    /// Value of the Host header.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The request target of a file: base and path, with bytes that a URI cannot contain percent-encoded.
    pub fn uri(&self, path: &str) -> String {
        let mut uri = String::with_capacity(self.base.len() + path.len());
        uri.push_str(&self.base);
        for byte in path.trim_start_matches('/').bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=:@".contains(&byte) {
                uri.push(char::from(byte));
            } else {
                uri.push_str(&format!("%{byte:02X}"));
            }
        }
        uri
    }

    /// Makes a connection, with a receive buffer of `receive_buffer` bytes if given (the kernel doubles it
    /// and uses half for its own accounting).
    ///
    /// # Errors
    /// The system's error.
    pub async fn dial(&self, receive_buffer: Option<u32>) -> io::Result<Box<dyn ByteStream>> {
        match &self.dial {
            Dial::Tcp(addr) | Dial::Tls(addr, ..) => {
                let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                if let Some(bytes) = receive_buffer {
                    socket.set_recv_buffer_size(bytes)?;
                }
                let stream = socket.connect(*addr).await?;
                stream.set_nodelay(true)?;
                match &self.dial {
                    Dial::Tls(_, tls, name) => Ok(Box::new(tls.connect(name.clone(), stream).await?)),
                    _ => Ok(Box::new(stream)),
                }
            }
            #[cfg(test)]
            Dial::Memory(connect) => Ok(Box::new(connect())),
        }
    }

    /// Checks that a server listens, so that a wrong address is one line and not a report full of failures.
    ///
    /// # Errors
    /// No server listens there (missing).
    pub fn probe(&self) -> Result<(), Fault> {
        match &self.dial {
            Dial::Tcp(addr) | Dial::Tls(addr, ..) => {
                std::net::TcpStream::connect_timeout(addr, std::time::Duration::from_secs(5))
                    .map(drop)
                    .map_err(|e| {
                        Fault::missing(format!(
                            "no server answers at {addr}: {e}; start it, or give its address with --url"
                        ))
                    })
            }
            #[cfg(test)]
            Dial::Memory(_) => Ok(()),
        }
    }
}

/// Makes TLS connections to servers whose certificate is signed by one in this file.
fn connector(file: &Path) -> Result<TlsConnector, Fault> {
    let wrong = |why: String| Fault::usage(format!("--cacert {}: {why}", file.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&seekless_output::input::bytes(file)?) {
        let certificate = certificate.map_err(|e| wrong(format!("{e}; give a PEM file")))?;
        roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("no certificate in it; give a PEM file".into()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;

    #[test]
    fn urls_are_read_and_wrong_ones_named() {
        let t = TargetServer::parse("http://127.0.0.1:8080/videos", None).unwrap();
        assert_eq!((t.host(), t.uri("sd/000001.mp4").as_str()), ("127.0.0.1:8080", "/videos/sd/000001.mp4"));
        assert_eq!(t.uri("/a b%.mp4"), "/videos/a%20b%25.mp4");
        assert_eq!(TargetServer::parse("http://[::1]:99/", None).unwrap().host(), "[::1]:99");
        for (url, exit) in [
            ("https://localhost/", Exit::Usage),
            ("ftp://localhost/", Exit::Usage),
            ("localhost:80", Exit::Usage),
            ("http://", Exit::Usage),
            ("http://user@localhost/", Exit::Usage),
            ("http://no.such.host.invalid/", Exit::Missing),
        ] {
            assert_eq!(TargetServer::parse(url, None).err().map(|f| f.exit), Some(exit), "{url}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_one_line() {
        // A port that was just returned to the system: no process listens on it.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let fault =
            TargetServer::parse(&format!("http://127.0.0.1:{port}/"), None).unwrap().probe().unwrap_err();
        assert_eq!(fault.exit, Exit::Missing);
        assert!(fault.message.contains("start it") && !fault.message.contains('\n'));
    }
}
