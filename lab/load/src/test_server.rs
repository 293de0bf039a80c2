//! A small HTTP server for tests: correct by default, and wrong in one chosen way on demand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use seekless_model::workload::catalogue::{Catalogue, CatalogueSpec};
use seekless_model::workload::content::Content;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::target::TargetServer;

/// What the server does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    /// One byte of every file, at this offset, is another.
    Corrupt(u64),
    /// Bodies end this many bytes early, and so does the connection.
    Short(u64),
    /// Requests for bytes at or after this offset wait so long before they are answered.
    Stall(u64, Duration),
    /// Every answer has this status and no body.
    Status(u16),
    /// `Content-Range` is off by one.
    WrongRange,
    /// `Range` is ignored.
    NoRanges,
    /// The connection is closed after every answer, without a word about it.
    CloseAfterEach,
    /// The connection is closed after the second request has come, without an answer; every one that has had
    /// an answer before.
    CloseOnSecond,
}

/// One request as it came.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) first: u64,
    pub(crate) len: u64,
}

/// A server over a library, with a record of what it was asked and how much it sent.
pub(crate) struct TestServer {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) fault: Fault,
    pub(crate) seen: Mutex<Vec<Seen>>,
    pub(crate) sent: std::sync::atomic::AtomicU64,
}

impl TestServer {
    pub(crate) fn new(fault: Fault) -> Arc<TestServer> {
        let spec = CatalogueSpec { videos: Some(20), ..CatalogueSpec::default() };
        Arc::new(TestServer {
            catalogue: Arc::new(Catalogue::new(&spec).unwrap()),
            fault,
            seen: Mutex::default(),
            sent: Default::default(),
        })
    }

    /// A target whose connections go straight into this server, 64 KiB buffered each way.
    pub(crate) fn in_memory(self: &Arc<Self>) -> TargetServer {
        let server = self.clone();
        TargetServer::memory(move || {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            tokio::spawn(server.clone().serve(theirs));
            ours
        })
    }

    pub(crate) async fn serve(self: Arc<Self>, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut answered = 0;
        while let Some(request) = read_head(&mut stream).await {
            if self.fault == Fault::CloseOnSecond && answered == 1 {
                return;
            }
            if self.answer(&mut stream, &request).await.is_none() || self.fault == Fault::CloseAfterEach {
                return;
            }
            answered += 1;
        }
    }

    async fn answer(&self, stream: &mut (impl AsyncWrite + Unpin), request: &str) -> Option<()> {
        let path = request.split(' ').nth(1)?.trim_start_matches('/').to_string();
        let size = self.catalogue.videos().iter().find(|v| v.path == path).map(|v| v.size.0);
        let range = request
            .lines()
            .find_map(|l| l.strip_prefix("range: bytes="))
            .filter(|_| self.fault != Fault::NoRanges)
            .and_then(|r| r.split_once('-'));
        let Some(size) = size else {
            return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await.ok();
        };
        let (first, last) = match range {
            Some((a, "")) => (a.parse().ok()?, size - 1),
            Some((a, b)) => (a.parse().ok()?, b.parse::<u64>().ok()?.min(size - 1)),
            None => (0, size - 1),
        };
        let len = last + 1 - first;
        self.seen.lock().unwrap().push(Seen { at: Instant::now(), path: path.clone(), first, len });
        match self.fault {
            Fault::Stall(from, time) if first >= from => tokio::time::sleep(time).await,
            Fault::Status(status) => {
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
                return stream.write_all(head.as_bytes()).await.ok();
            }
            _ => {}
        }
        let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
        let named = if self.fault == Fault::WrongRange { first + 1 } else { first };
        let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n");
        if range.is_some() {
            head.push_str(&format!("Content-Range: bytes {named}-{last}/{size}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.ok()?;
        let end = match self.fault {
            Fault::Short(by) => last + 1 - by.min(len),
            _ => last + 1,
        };
        let content = Content::of_path(&path);
        let mut at = first;
        while at < end {
            let mut piece = vec![0; (end - at).min(16 << 10) as usize];
            content.fill(at, &mut piece);
            if let Fault::Corrupt(offset) = self.fault
                && (at..at + piece.len() as u64).contains(&offset)
            {
                piece[(offset - at) as usize] ^= 0x40;
            }
            stream.write_all(&piece).await.ok()?;
            self.sent.fetch_add(piece.len() as u64, std::sync::atomic::Ordering::Relaxed);
            at += piece.len() as u64;
        }
        (end == last + 1).then_some(())
    }
}

/// Reads up to the blank line; none at the end of the stream. Names of headers come in lower case from hyper.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}
