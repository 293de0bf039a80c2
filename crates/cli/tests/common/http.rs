//! A deliberately plain HTTP/1.1 client for comparing two servers byte for byte: it sends what it is told and
//! keeps everything that came back, with nothing interpreted that a library would hide.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A whole answer as it came off the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `HTTP/1.1 206 Partial Content`
    pub status_line: String,
    /// Lower-case names; values of repeated headers in order.
    pub headers: BTreeMap<String, Vec<String>>,
    /// Bytes after the empty line, however many came before the connection closed.
    pub body: Vec<u8>,
}

/// Sends one request on a fresh connection with `Connection: close` and reads to the end.
pub fn request(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: seekless.test\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    let mut raw = Vec::new();
    match stream.read_to_end(&mut raw) {
        Ok(_) => {}
        // A server that gives up on a truncated file may reset; what had come by then still counts.
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => return Err(e),
    }
    parse(&raw).ok_or_else(|| std::io::Error::other(format!("no HTTP answer in {} bytes", raw.len())))
}

fn parse(raw: &[u8]) -> Option<Answer> {
    let end = raw.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&raw[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status_line = lines.next()?.to_string();
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        headers.entry(name.to_ascii_lowercase()).or_default().push(value.trim().to_string());
    }
    Some(Answer { status_line, headers, body: raw[end + 4..].to_vec() })
}

impl Answer {
    /// The value of a header that stands once.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.first()).map(String::as_str)
    }

    /// The same answer with what differs between any two answers of one server made equal: the date, and the
    /// boundary that separates the parts of a multi-range answer (Apache's even varies in length, and with it
    /// the body).
    pub fn comparable(mut self) -> Answer {
        self.headers.remove("date");
        let boundary = self
            .header("content-type")
            .and_then(|v| v.split_once("boundary=").map(|(_, b)| b.trim_matches('"').to_string()));
        if let Some(boundary) = boundary {
            let length_was_right = self.header("content-length") == Some(&self.body.len().to_string());
            self.body = replaced(&self.body, boundary.as_bytes(), b"BOUNDARY");
            self.headers.insert("content-type".into(), vec!["multipart/byteranges".into()]);
            if length_was_right {
                self.headers.insert("content-length".into(), vec![self.body.len().to_string()]);
            }
        }
        self
    }
}

fn replaced(body: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.windows(from.len()).position(|w| w == from) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    result.extend_from_slice(rest);
    result
}
