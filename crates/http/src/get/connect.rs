//! A connection to a server, with TLS if the URL requires it, through a proxy if the environment names one.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use seekless_base::Fault;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Tls;
use super::attempt::{OURS, Trouble, deepest};
use super::place::Place;

/// Which certificate authorities are trusted.
#[derive(Clone)]
pub struct Trust(pub(crate) Tls);

/// The authorities browsers trust, or only those in a PEM file.
///
/// # Errors
/// The file cannot be read or contains no certificate.
pub fn trust(file: Option<&PathBuf>) -> Result<Trust, Fault> {
    let mut roots = RootCertStore::empty();
    match file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let wrong = |why: String| Fault::usage(format!("--cacert {}: {why}", path.display()));
            for certificate in CertificateDer::pem_slice_iter(&seekless_output::input::bytes(path)?) {
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
        .map_err(|e| Fault::failed(format!("TLS: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Trust(Arc::new(config)))
}

/// A stream of bytes, over TCP or TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}
type Wire = Box<dyn Stream>;

type Sender = SendRequest<Empty<Bytes>>;

fn again(why: String) -> Trouble {
    Trouble::Again(why, None)
}

fn fatal(why: String) -> Trouble {
    Trouble::Fatal(Fault::failed(why))
}

/// Connects, to the proxy if there is one; the connection is driven by a task that ends with it.
pub(crate) async fn connect(
    place: &Place,
    proxy: Option<&Place>,
    trust: &Trust,
    within: Duration,
) -> Result<Sender, Trouble> {
    let slow = Cell::new("the server does not answer");
    let connected = tokio::time::timeout(within, connected(place, proxy, trust, &slow)).await;
    connected.map_err(|_| again(slow.get().into()))?
}

/// `slow`: the message if it takes too long.
async fn connected(
    place: &Place,
    proxy: Option<&Place>,
    trust: &Trust,
    slow: &Cell<&str>,
) -> Result<Sender, Trouble> {
    let mut wire = match proxy {
        None => {
            let to = (place.host(), place.port());
            tcp(to).await.map_err(|e| again(format!("cannot connect: {e}")))?
        }
        Some(proxy) => {
            let (to, at) = ((proxy.host(), proxy.port()), proxy.host_and_port());
            slow.set("the proxy does not answer");
            let mut wire =
                tcp(to).await.map_err(|e| again(format!("cannot connect to the proxy {at}: {e}")))?;
            if proxy.is_secure() {
                wire = secured(wire, proxy.host(), &at, trust).await?;
            }
            if place.is_secure() {
                wire = tunnel(wire, place, proxy).await?;
            }
            wire
        }
    };
    if place.is_secure() {
        slow.set("the server does not answer in TLS; is it http:// that is spoken there?");
        wire = secured(wire, place.host(), &place.host_and_port(), trust).await?;
    }
    let (sender, connection) =
        handshake(TokioIo::new(wire)).await.map_err(|e| again(format!("HTTP: {e}")))?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn tcp(to: (&str, u16)) -> std::io::Result<Wire> {
    let tcp = TcpStream::connect(to).await?;
    let _ = tcp.set_nodelay(true);
    Ok(Box::new(tcp))
}

/// TLS over a stream. `at`: the peer, for messages.
async fn secured(wire: Wire, host: &str, at: &str, trust: &Trust) -> Result<Wire, Trouble> {
    let name = ServerName::try_from(host.to_string()).map_err(|e| fatal(format!("TLS: {e}")))?;
    match TlsConnector::from(trust.0.clone()).connect(name, wire).await {
        Ok(tls) => Ok(Box::new(tls)),
        Err(e) => Err(match e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidMessage(_)) => {
                fatal(format!("{at} does not speak TLS; is it http:// that is spoken there?"))
            }
            // A certificate that is invalid now will be invalid at the next attempt.
            Some(_) => fatal(format!("TLS: {e}")),
            None if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                again(format!("{at} hung up instead of a TLS handshake; is it http:// that is spoken there?"))
            }
            None => again(format!("TLS: {e}")),
        }),
    }
}

/// A tunnel through a proxy (RFC 9110, 9.3.6).
async fn tunnel(wire: Wire, place: &Place, proxy: &Place) -> Result<Wire, Trouble> {
    let (mut sender, connection) =
        handshake(TokioIo::new(wire)).await.map_err(|e| again(format!("HTTP: {e}")))?;
    tokio::spawn(connection.with_upgrades());
    let (to, at) = (place.host_and_port(), proxy.host_and_port());
    let mut request = Request::connect(&to).header(HOST, &to).header(USER_AGENT, OURS);
    if let Some(login) = proxy.login() {
        request = request.header(PROXY_AUTHORIZATION, login);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| fatal(format!("{to}: {e}")))?;
    let answer = sender.send_request(request).await;
    let answer = answer.map_err(|e| again(format!("no answer of the proxy {at}: {}", deepest(&e))))?;
    let status = answer.status();
    if status.is_success() {
        let wire = hyper::upgrade::on(answer).await;
        let wire = wire.map_err(|e| again(format!("the proxy {at} hung up: {}", deepest(&e))))?;
        return Ok(Box::new(TokioIo::new(wire)));
    }
    let why = format!("the proxy {at} answers {status}");
    Err(match status {
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => fatal(wants_login(proxy)),
        _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => again(why),
        _ => fatal(why),
    })
}

/// The message if a proxy requires a login.
pub(crate) fn wants_login(proxy: &Place) -> String {
    let at = proxy.host_and_port();
    match proxy.login() {
        None => format!(
            "the proxy {at} wants a name and password; give them in its variable, http://NAME:PASSWORD@host:port"
        ),
        Some(_) => format!("the proxy {at} does not take the name and password in its variable"),
    }
}
