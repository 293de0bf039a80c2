//! A connection to a server, with TLS where the URL says so.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::Uri;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use seekless_units::{Exit, Fault};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Tls;
use super::attempt::Trouble;

/// Whose certificates are believed.
#[derive(Clone)]
pub struct Trust(pub(crate) Tls);

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trust")
    }
}

/// The authorities browsers trust, or only those in a PEM file.
///
/// # Errors
/// The file cannot be read or holds none.
pub fn trust(file: Option<&PathBuf>) -> Result<Trust, Fault> {
    let mut roots = RootCertStore::empty();
    match file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let wrong = |why: String| Fault::new(Exit::Usage, format!("--cacert {}: {why}", path.display()));
            for certificate in CertificateDer::pem_slice_iter(&seekless_input::bytes(path)?) {
                let certificate = certificate.map_err(|e| wrong(format!("{e}; give a PEM file")))?;
                roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
            }
            if roots.is_empty() {
                return Err(wrong("no certificate in it; give a PEM file".into()));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Fault::new(Exit::Failed, format!("TLS: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Trust(Arc::new(config)))
}

/// Connects; the connection is driven by a task that ends with it.
pub(crate) async fn connect(
    uri: &Uri,
    trust: &Trust,
    within: Duration,
) -> Result<SendRequest<Empty<Bytes>>, Trouble> {
    let late = |_| Trouble::Again("the server does not answer".into(), None);
    tokio::time::timeout(within, connected(uri, trust)).await.map_err(late)?
}

async fn connected(uri: &Uri, trust: &Trust) -> Result<SendRequest<Empty<Bytes>>, Trouble> {
    let again = |what: &str, e: &dyn std::fmt::Display| Trouble::Again(format!("{what}: {e}"), None);
    let secure = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let tcp = TcpStream::connect((host, port)).await.map_err(|e| again("cannot connect", &e))?;
    let _ = tcp.set_nodelay(true);
    if !secure {
        let (sender, connection) = handshake(TokioIo::new(tcp)).await.map_err(|e| again("HTTP", &e))?;
        tokio::spawn(connection);
        return Ok(sender);
    }
    let fatal = |e: &dyn std::fmt::Display| Trouble::Fatal(Fault::new(Exit::Failed, format!("TLS: {e}")));
    let name = ServerName::try_from(host.to_string()).map_err(|e| fatal(&e))?;
    // A certificate that is wrong now will be wrong at the next attempt.
    let tls = TlsConnector::from(trust.0.clone()).connect(name, tcp).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => fatal(&e),
        _ => again("TLS", &e),
    })?;
    let (sender, connection) = handshake(TokioIo::new(tls)).await.map_err(|e| again("HTTP", &e))?;
    tokio::spawn(connection);
    Ok(sender)
}
