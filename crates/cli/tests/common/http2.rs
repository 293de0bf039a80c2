//! HTTP/2 frame by frame, for what no client library would send, or would hide.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A connection that speaks HTTP/2.
pub type Connection = StreamOwned<ClientConnection, TcpStream>;

/// A certificate for `localhost` in a folder.
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Certificate {
    pub fn make(dir: &Path) -> Certificate {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
        let paths = Certificate { certificate: dir.join("cert.pem"), key: dir.join("key.pem") };
        std::fs::write(&paths.certificate, made.cert.pem()).unwrap();
        std::fs::write(&paths.key, made.signing_key.serialize_pem()).unwrap();
        paths
    }

    /// What makes `seekless serve` use it.
    pub fn options(&self) -> [&str; 4] {
        ["--tls-cert", self.certificate.to_str().unwrap(), "--tls-key", self.key.to_str().unwrap()]
    }

    /// Begins to speak; the preface is sent.
    pub fn connect(&self, stream: TcpStream) -> Connection {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.certificate).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(tls, stream);
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        stream
    }
}

/// GET https /f, in the static table's indices and one literal.
pub const HEAD_OF_FILE: &[u8] = b"\x82\x87\x04\x02/f\x01\x09localhost";

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// How the answer on a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Whole,
    /// RST_STREAM with this error.
    Reset(u32),
    /// With its connection.
    Closed,
}

/// Asks for `/f` on stream 1 with a window for all of it, and reads `until` so many bytes have come or the
/// answer ends.
pub struct Download {
    connection: Connection,
    pub body: Vec<u8>,
}

impl Download {
    pub fn begin(mut connection: Connection) -> Download {
        let window = 0x3fff_ffff_u32.to_be_bytes();
        let settings = [&[0, 4], &window[..]].concat();
        let ask = [frame(4, 0, 0, &settings), frame(8, 0, 0, &window), frame(1, 5, 1, HEAD_OF_FILE)];
        connection.write_all(&ask.concat()).unwrap();
        Download { connection, body: vec![] }
    }

    /// Reads until that many bytes of the body have come, or to its end.
    pub fn read(&mut self, upto: usize) -> Option<End> {
        while self.body.len() < upto {
            let mut head = [0; 9];
            if self.connection.read_exact(&mut head).is_err() {
                return Some(End::Closed);
            }
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            if self.connection.read_exact(&mut payload).is_err() {
                return Some(End::Closed);
            }
            match (head[3], head[4]) {
                (0, flags) => {
                    self.body.extend_from_slice(&payload);
                    if flags & 1 != 0 {
                        return Some(End::Whole);
                    }
                }
                (3, _) => return Some(End::Reset(u32::from_be_bytes(payload.try_into().unwrap()))),
                (7, _) => return Some(End::Closed),
                _ => {}
            }
        }
        None
    }
}
