//! A file that cannot be read to its end, is cut short or replaced while `seekless serve` sends it: over
//! HTTP/1.1, HTTP/2 and in any order the answer is broken off. Never wrong bytes, never a hang, and one line
//! in the log says why.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use common::disk::Disk;
use common::http2::{Certificate, Download, End};
use common::{SEEKLESS, Serving, forget, public_folder};
use seekless_base::parts::multipart::{Found, Reader};
use seekless_model::workload::content::Content;

/// More than the sockets between server and client hold.
const FILM_BYTES: usize = 48 << 20;

/// Longest wait for anything: no measure of speed, only the difference between slow and never.
const NEVER: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Http1,
    Http2,
    AnyOrder,
}

const ALL: [How; 3] = [How::Http1, How::Http2, How::AnyOrder];

/// What a client got: pieces of the file, and whether the answer was whole.
struct Got {
    pieces: Vec<(usize, Vec<u8>)>,
    whole: bool,
}

impl Got {
    fn len(&self) -> usize {
        self.pieces.iter().map(|(_, piece)| piece.len()).sum()
    }

    fn is_of(&self, film: &[u8]) -> bool {
        self.pieces.iter().all(|(at, piece)| film[*at..][..piece.len()] == piece[..])
    }

    fn is_of_or_zero(&self, film: &[u8]) -> bool {
        let right = |(at, piece): &(usize, Vec<u8>)| {
            piece.iter().zip(&film[*at..]).all(|(got, right)| got == right || *got == 0)
        };
        self.pieces.iter().all(right)
    }
}

struct Site {
    dir: tempfile::TempDir,
    root: PathBuf,
    serving: Serving,
    certificate: Certificate,
    how: How,
}

impl Site {
    fn start(root: PathBuf, how: How) -> Site {
        let dir = public_folder();
        let certificate = Certificate::make(dir.path());
        let mut command = Command::new(&*SEEKLESS);
        command.stderr(File::create(dir.path().join("stderr")).unwrap());
        let secure = certificate.options();
        let options = if how == How::Http2 { &secure[..] } else { &["--bound", "any-order-memory=8MiB"] };
        let serving = Serving::try_start(command, &root, options).expect("seekless serve starts");
        Site { dir, root, serving, certificate, how }
    }

    fn film(&self) -> PathBuf {
        self.root.join("f")
    }

    /// Downloads the film; `meanwhile` happens when its first bytes have come.
    fn download(&self, meanwhile: impl FnOnce()) -> Got {
        let (_, address) = self.serving.url.trim_end_matches('/').split_once("//").unwrap();
        let stream = TcpStream::connect(address.parse::<SocketAddr>().unwrap()).unwrap();
        stream.set_read_timeout(Some(NEVER)).unwrap();
        match self.how {
            How::Http1 => over_http1(stream, "", meanwhile),
            How::AnyOrder => over_http1(stream, "Range: bytes=0-0,1-\r\nPrefer: any-order\r\n", meanwhile),
            How::Http2 => over_http2(Download::begin(self.certificate.connect(stream)), meanwhile),
        }
    }

    /// Ends it: what its log says of answers, and how many it counted as broken.
    fn stop(self) -> (Vec<String>, u64) {
        let report = self.serving.stop();
        let log = fs::read_to_string(self.dir.path().join("stderr")).unwrap();
        let said = log.lines().filter(|line| line.contains("broken off")).map(str::to_string).collect();
        (said, report["counters"]["answers_broken"].as_u64().unwrap())
    }
}

fn over_http2(mut download: Download, meanwhile: impl FnOnce()) -> Got {
    assert_eq!(download.read(100_000), None);
    meanwhile();
    let end = download.read(usize::MAX);
    assert!(matches!(end, Some(End::Whole | End::Reset(_))), "the connection goes on: {end:?}");
    Got { pieces: vec![(0, download.body)], whole: end == Some(End::Whole) }
}

fn over_http1(mut stream: TcpStream, fields: &str, meanwhile: impl FnOnce()) -> Got {
    write!(stream, "GET /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n").unwrap();
    let mut all = vec![0; 100_000];
    stream.read_exact(&mut all).unwrap();
    meanwhile();
    if let Err(error) = stream.read_to_end(&mut all) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "no hang");
    }
    let end = all.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let field = |name: &str| head.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let body = &all[end + 4..];
    let whole = field("content-length:").unwrap().parse::<usize>().unwrap() == body.len();
    let Some(mut parts) = field("content-type:").and_then(Reader::of) else {
        return Got { pieces: vec![(0, body.to_vec())], whole };
    };
    let mut input = bytes::Bytes::copy_from_slice(body);
    let mut pieces = vec![];
    while let Ok(Some(found)) = parts.next(&mut input) {
        if let Found::Data(at, data) = found {
            pieces.push((at as usize, data.to_vec()));
        }
    }
    Got { pieces, whole }
}

fn film() -> Vec<u8> {
    let mut film = vec![0; FILM_BYTES];
    Content::of_path("f").fill(0, &mut film);
    film
}

#[test]
fn a_page_that_cannot_be_read() {
    let Some(disk) = Disk::up(&[("f", FILM_BYTES as u64)]) else { return };
    // Old enough for strong validators, without which nothing is sent in any order.
    let file = File::options().write(true).open(disk.mount().join("f")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    drop(file);
    let film = film();
    for how in ALL {
        let site = Site::start(disk.mount(), how);
        disk.break_page("f", FILM_BYTES as u64 / 2);
        let got = site.download(|| {});
        assert!(!got.whole && got.len() < FILM_BYTES && got.is_of(&film), "{how:?}: {} bytes", got.len());
        disk.mend();
        let got = site.download(|| {});
        assert!(got.whole && got.is_of(&film), "{how:?}: mended, {} bytes", got.len());
        let (said, broken) = site.stop();
        assert_eq!(broken, 1, "{how:?}: {said:?}");
        assert!(said.len() == 1 && said[0].contains("mnt/f: an answer"), "{how:?}: {said:?}");
    }
}

/// A folder with the film, on whatever the tests are built on.
fn folder() -> (tempfile::TempDir, Vec<u8>) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let film = film();
    fs::write(dir.path().join("f"), &film).unwrap();
    let file = File::options().write(true).open(dir.path().join("f")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    (dir, film)
}

#[test]
fn a_file_cut_short_while_it_is_sent() {
    for how in ALL {
        let (dir, film) = folder();
        let site = Site::start(dir.path().into(), how);
        let cut = || File::options().write(true).open(site.film()).unwrap().set_len(1 << 20).unwrap();
        let got = site.download(cut);
        // sendfile hands over pages, not bytes: those still in the socket the kernel fills with zeros where
        // it cuts the file.
        let right = if how == How::Http1 { got.is_of_or_zero(&film) } else { got.is_of(&film) };
        assert!(!got.whole && right, "{how:?}: {} bytes", got.len());
        let got = site.download(|| {});
        assert!(got.whole && got.len() >= 1 << 20, "{how:?}: the server goes on, {} bytes", got.len());
        let (said, broken) = site.stop();
        assert_eq!((said.len(), broken), (1, 1), "{how:?}: {said:?}");
    }
}

#[test]
fn a_file_replaced_while_it_is_sent() {
    for how in ALL {
        let (dir, film) = folder();
        let site = Site::start(dir.path().into(), how);
        let other = dir.path().join("other");
        fs::write(&other, vec![1; FILM_BYTES]).unwrap();
        // By rename the old file lives as long as it is being sent.
        let got = site.download(|| fs::rename(&other, site.film()).unwrap());
        assert!(got.whole && got.is_of(&film), "{how:?}: {} bytes", got.len());
        // Written over, it is neither the one nor the other.
        forget(&site.film());
        let got = site.download(|| fs::write(site.film(), vec![2; FILM_BYTES]).unwrap());
        assert!(!got.whole, "{how:?}: {} bytes", got.len());
        let (said, broken) = site.stop();
        assert_eq!((said.len(), broken), (1, 1), "{how:?}: {said:?}");
    }
}
