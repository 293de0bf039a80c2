//! The download client and a server that answers anything: a whole file of the stated length, or one line and nothing.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::Duration;

use seekless_http::get::{Options, Progress, Proxies, Trust, download, trust};

/// Between the answers of one input; the last is given to all further requests.
const NEXT: &[u8] = b"\n--next--\n";

/// Requests answered for one input; a client that asks on and on is a finding.
const REQUESTS_MAX: usize = 40;

struct Quiet;

impl Progress for Quiet {
    fn at(&self, _: u64, _: Option<u64>) {}
}

/// A server that gives the answers it is sent.
struct Fake {
    address: SocketAddr,
    answers: mpsc::Sender<Vec<Vec<u8>>>,
    /// How many requests came since the answers were set.
    asked: Mutex<mpsc::Receiver<()>>,
    trust: Trust,
}

fn fake() -> &'static Fake {
    static FAKE: OnceLock<Fake> = OnceLock::new();
    FAKE.get_or_init(|| {
        super::survive_closed_sockets();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("a port");
        let (answers, given) = mpsc::channel::<Vec<Vec<u8>>>();
        let (tell, asked) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut now, mut at) = (vec![], 0);
            for stream in listener.incoming() {
                if let Some(new) = given.try_iter().last() {
                    (now, at) = (new, 0);
                }
                let answer = now.get(at).or(now.last()).cloned().unwrap_or_default();
                at += 1;
                let _ = tell.send(());
                let _ = stream.and_then(|stream| answer_one(stream, &answer));
            }
        });
        let trust = trust(None).expect("authorities");
        Fake { address, answers, asked: Mutex::new(asked), trust }
    })
}

fn answer_one(mut stream: std::net::TcpStream, answer: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut head = Vec::new();
    let mut piece = [0; 4096];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut piece)? {
            0 => break,
            n => head.extend_from_slice(&piece[..n]),
        }
    }
    stream.write_all(answer)
}

/// A byte of options, then answers.
pub fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    // Never to another host.
    if rest.windows(2).any(|w| w == b"//") {
        return;
    }
    let mut answers = vec![];
    let mut left = rest;
    while let Some(at) = left.windows(NEXT.len()).position(|w| w == NEXT) {
        answers.push(left[..at].to_vec());
        left = &left[at + NEXT.len()..];
    }
    answers.push(left.to_vec());
    let fake = fake();
    let asked = fake.asked.lock().expect("one at a time");
    let _ = asked.try_iter().count();
    fake.answers.send(answers).expect("a server");
    // In memory, and gone after each input: the fake itself is never dropped.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    let target = dir.path().join("f");
    let before = choice & 2 != 0;
    if before {
        std::fs::write(&target, b"of yesterday").expect("a file");
    }
    let options = Options {
        retries: 0,
        timeout: Duration::from_secs(2),
        any_order: choice & 1 != 0,
        trust: fake.trust.clone(),
        proxies: Proxies::default(),
        size_max: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (_stop, mut stopped) = tokio::sync::watch::channel(false);
    let url = format!("http://{}/f", fake.address);
    let result = runtime.block_on(download(&url, &target, &options, &Quiet, &mut stopped));
    assert!(asked.try_iter().count() <= REQUESTS_MAX, "asks on and on");
    let there = std::fs::read(&target).ok();
    match result {
        Ok(outcome) => {
            let there = there.expect("the file");
            assert_eq!(there.len() as u64, outcome.bytes);
            assert!(there.len() <= rest.len(), "bytes nobody sent");
            for left in ["f.part", "f.part.map"] {
                assert!(!dir.path().join(left).exists(), "{left} is left");
            }
        }
        Err(fault) => {
            assert!(!fault.message.contains('\n'), "{fault}");
            assert_eq!(there.as_deref(), before.then_some(&b"of yesterday"[..]), "half a file");
        }
    }
}
