//! What the tests share: a folder to serve, settings for it, and a deliberately plain client.
#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(unreachable_pub, reason = "shared by the test programs beside it")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use seekless_base::Bytes;
use seekless_http::serve::{Patience, ServerSettings};

/// Bytes that are a function of the name: no stretch of 8 bytes is found at another place.
fn content(name: &str, bytes: usize) -> Vec<u8> {
    let seed =
        name.bytes().fold(bytes as u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let word = |i: u64| {
        let mixed = (seed.wrapping_add(i)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes()
    };
    (0..).flat_map(word).take(bytes).collect()
}

pub struct Site {
    pub dir: tempfile::TempDir,
    pub root: PathBuf,
}

impl Site {
    pub fn new() -> Site {
        Site::within(tempfile::tempdir().unwrap())
    }

    /// Beside the test program: the build folder is on a disk more often than /tmp is.
    pub fn on_disk() -> Site {
        let exe = std::env::current_exe().unwrap();
        Site::within(tempfile::tempdir_in(exe.parent().unwrap()).unwrap())
    }

    fn within(dir: tempfile::TempDir) -> Site {
        let root = dir.path().join("www");
        std::fs::create_dir(&root).unwrap();
        Site { dir, root }
    }

    /// A file that is a function of its name, old enough for strong validators.
    pub fn film(&self, name: &str, bytes: usize) -> Vec<u8> {
        let content = content(name, bytes);
        let path = self.root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &content).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        content
    }

    /// Takes a file out of memory; whether it went.
    pub fn forget(&self, name: &str) -> bool {
        use std::os::fd::AsFd;
        let file = std::fs::File::open(self.root.join(name)).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        seekless_kernel::residency::cachestat(file.as_fd(), 0, u64::MAX / 2).is_ok_and(|s| s.cached == 0)
    }

    /// Pages of a file that are in memory; 0 where the kernel does not tell.
    pub fn in_memory(&self, name: &str) -> u64 {
        use std::os::fd::AsFd;
        let file = std::fs::File::open(self.root.join(name)).unwrap();
        seekless_kernel::residency::cachestat(file.as_fd(), 0, u64::MAX / 2).map_or(0, |s| s.cached)
    }
}

pub fn settings(root: &Path) -> ServerSettings {
    ServerSettings {
        roots: vec![root.into()],
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        tls: None,
        loops: 2,
        helpers: 4,
        hidden: false,
        listing: false,
        download_page: false,
        log: None,
        connections: 1000,
        connections_of_one: 1000,
        head_bytes: 16 << 10,
        head_fields: 100,
        rate: None,
        patience: Patience {
            head: Duration::from_secs(10),
            idle: Duration::from_secs(10),
            send: Duration::from_secs(10),
        },
        // A machine busy with other tests may take its time.
        grace: Duration::from_secs(60),
        digest_max: Bytes::mib(16),
        any_order: Some(Default::default()),
        coordinate: None,
        engine: Default::default(),
    }
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

pub fn get(to: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask(to, "GET", path, headers)
}

/// One request on a connection of its own.
pub fn ask(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    read_answer(&mut stream, &mut Vec::new(), method)
}

/// The next answer on a connection; `rest` is what was read beyond it.
pub fn read_answer(stream: &mut TcpStream, rest: &mut Vec<u8>, method: &str) -> Answer {
    let mut piece = vec![0; 1 << 16];
    let end = loop {
        if let Some(at) = rest.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "the connection ended in a head: {:?}", String::from_utf8_lossy(rest));
        rest.extend_from_slice(&piece[..n]);
    };
    let head = String::from_utf8(rest[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: BTreeMap<String, String> = lines
        .map(|l| l.split_once(':').unwrap())
        .map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_string()))
        .collect();
    rest.drain(..end + 4);
    let length = match status {
        204 | 304 => 0,
        _ if method == "HEAD" => 0,
        _ => headers["content-length"].parse().unwrap(),
    };
    while rest.len() < length {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "the connection ended {} bytes into a body of {length}", rest.len());
        rest.extend_from_slice(&piece[..n]);
    }
    let body = rest.drain(..length).collect();
    Answer { status, headers, body }
}
