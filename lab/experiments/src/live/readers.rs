//! Slow sequential readers of any protocol: each reads a file to its end, then another, no faster than its
//! rate, and compares every byte with what the library has there.
//!
//! A reader is a thread. HTTP and FTP it speaks itself. Other protocols are spoken by their own client
//! programs: smbclient writes a file to its standard output, which the thread reads slowly, so the pipe and
//! the connection hold the client back. rsync writes to no pipe. It limits its own rate, and writes into a
//! file in memory, which is compared when it is whole.
//!
//! Receive buffers are small ([`RECEIVE_BUFFER`]). A loopback connection otherwise takes megabytes ahead of a
//! slow reader, which no line to a slow client does.
//!
//! A file is read by one client at a time, so nothing is served twice from memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use seekless_base::Fault;
use seekless_kernel::spawn;
use seekless_model::workload::content::Content;

use crate::process;
use crate::scenario::Protocol;
use crate::server::Wanted;
use crate::tools;

/// Bytes taken at a time. Smaller ones only cost calls; larger ones make a slow reader take in bursts.
const TAKE: usize = 64 << 10;
/// How often a reader looks whether it is to end, and a file in memory has grown.
const LOOK: Duration = Duration::from_millis(50);
/// What TCP may hold for a reader: some tens of milliseconds of its rate, as the load generator's links have.
/// With half of it the window stalls on single segments, with many times as much servers write far ahead.
const RECEIVE_BUFFER: usize = 160 << 10;
/// A server that sends nothing for so long has failed the client.
const PATIENCE: Duration = Duration::from_secs(60);
/// A client that failed waits so long: a server that refuses everything is not asked in a busy loop.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// What the readers have seen together.
#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    files: AtomicU64,
    wrong: AtomicU64,
    failed: AtomicU64,
    /// The first failure, in words.
    why: Mutex<Option<String>>,
}

/// What they had seen at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Files read to their end.
    pub(super) files: u64,
    /// Answers with a byte that is not the file's.
    pub(super) wrong: u64,
    /// Answers that did not come, or not to their end.
    pub(super) failed: u64,
    /// The first of both, in words.
    pub(super) why: Option<String>,
}

/// The server of the readers, and its protocol.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) protocol: Protocol,
    /// On 127.0.0.1.
    pub(super) port: u16,
    /// Bytes a second, each.
    pub(super) rate: u64,
    /// At least one for each reader.
    pub(super) files: Vec<Wanted>,
}

/// Readers at work; stopped on drop.
#[derive(Debug)]
pub(super) struct Readers {
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Files in memory, removed with it.
    _memory: tempfile::TempDir,
}

impl Readers {
    /// Starts so many, with their logs in `dir`.
    ///
    /// # Errors
    /// [`Exit::Missing`] when the protocol's client is not here.
    pub(super) fn start(clients: u32, asked: &Asked, dir: &Path) -> Result<Readers, Fault> {
        let fault = |e: std::io::Error| Fault::failed(format!("readers: {e}"));
        if asked.files.len() < clients as usize {
            return Err(Fault::usage(format!(
                "{} files are too few for {clients} readers",
                asked.files.len()
            )));
        }
        match asked.protocol {
            Protocol::Http | Protocol::Ftp => {}
            Protocol::Smb => tools::find("smbclient").map(drop)?,
            Protocol::Rsync => tools::find("rsync").map(drop)?,
        }
        let builder = || tempfile::Builder::new();
        let memory = match Path::new("/dev/shm") {
            shm if shm.is_dir() => builder().prefix("seekless-lab-").tempdir_in(shm),
            _ => builder().prefix("seekless-lab-").tempdir(),
        }
        .map_err(fault)?;
        let mut readers =
            Readers { counts: Arc::default(), stop: Arc::default(), threads: Vec::new(), _memory: memory };
        for i in 0..clients as usize {
            let reader = Reader {
                asked: asked.clone(),
                counts: Arc::clone(&readers.counts),
                stop: Arc::clone(&readers.stop),
                log: dir.join(format!("client{i}.log")),
                into: readers._memory.path().join(format!("{i}")),
            };
            let body = move || reader.run(i, clients as usize);
            let thread = std::thread::Builder::new().name(format!("reader{i}")).spawn(body).map_err(fault)?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Bytes they have taken so far.
    pub(super) fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// Ends them.
    pub(super) fn finish(mut self) -> Outcome {
        self.stop_all();
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Outcome {
            files: of(&self.counts.files),
            wrong: of(&self.counts.wrong),
            failed: of(&self.counts.failed),
            why: self.counts.why.lock().ok().and_then(|why| why.clone()),
        }
    }

    fn stop_all(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A reader that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop_all();
    }
}

/// How reading a file ended.
enum End {
    Whole,
    /// It was told to stop.
    Stopped,
    /// A byte was not the file's.
    Wrong(String),
    Failed(String),
}

struct Reader {
    asked: Asked,
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    log: PathBuf,
    into: PathBuf,
}

impl Reader {
    fn run(&self, number: usize, clients: usize) {
        let mut next = number;
        while !self.stopped() {
            let file = &self.asked.files[next % self.asked.files.len()];
            next += clients;
            let end = match self.asked.protocol {
                Protocol::Http => self.http(file),
                Protocol::Rsync => self.rsync(file),
                Protocol::Ftp => self.ftp(file),
                Protocol::Smb => self.piped(file),
            };
            let (count, why) = match end {
                End::Stopped => return,
                End::Whole => {
                    self.counts.files.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                End::Wrong(why) => (&self.counts.wrong, why),
                End::Failed(why) => (&self.counts.failed, why),
            };
            count.fetch_add(1, Ordering::Relaxed);
            if let Ok(mut first) = self.counts.why.lock() {
                first.get_or_insert(format!("{}: {why}", file.asked));
            }
            std::thread::sleep(AFTER_FAILURE);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn http(&self, file: &Wanted) -> End {
        let ask = || -> std::io::Result<(TcpStream, Vec<u8>, String)> {
            let mut stream = connect(self.asked.port)?;
            let request =
                format!("GET /{} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", file.asked);
            stream.write_all(request.as_bytes())?;
            Ok((stream, Vec::new(), String::new()))
        };
        let (mut stream, mut early, mut head) = match ask() {
            Ok(asked) => asked,
            Err(error) => return End::Failed(error.to_string()),
        };
        // The head, and what came of the body with it.
        let mut buffer = vec![0; TAKE];
        while head.is_empty() {
            match self.wait(&stream) {
                Waited::Ready => {}
                Waited::Stopped => return End::Stopped,
                Waited::Late => return End::Failed("no answer".into()),
            }
            match stream.read(&mut buffer) {
                Ok(0) => return End::Failed("the connection was closed before an answer".into()),
                Ok(n) => early.extend_from_slice(&buffer[..n]),
                Err(error) => return End::Failed(error.to_string()),
            }
            if let Some(end) = early.windows(4).position(|w| w == b"\r\n\r\n") {
                head = String::from_utf8_lossy(&early[..end]).into_owned();
                early.drain(..end + 4);
            } else if early.len() > TAKE {
                return End::Failed("the answer has no end of its head".into());
            }
        }
        let status = head.lines().next().unwrap_or_default();
        if status.split(' ').nth(1) != Some("200") {
            return End::Failed(status.to_string());
        }
        let lower = head.to_ascii_lowercase();
        if lower.contains("transfer-encoding") || lower.contains("content-encoding") {
            return End::Failed("the answer is encoded".into());
        }
        self.take(&mut stream, &early, file)
    }

    /// Anonymous FTP in passive mode.
    fn ftp(&self, file: &Wanted) -> End {
        let end = || -> std::io::Result<End> {
            let mut control = BufReader::new(connect(self.asked.port)?);
            let mut ask = |line: &str| -> std::io::Result<String> {
                if !line.is_empty() {
                    control.get_mut().write_all(format!("{line}\r\n").as_bytes())?;
                }
                reply(&mut control)
            };
            ask("")?;
            if ask("USER anonymous")?.starts_with('3') {
                ask("PASS reader@")?;
            }
            ask("TYPE I")?;
            let passive = ask("EPSV")?;
            let Some(port) = passive_port(&passive) else { return Ok(End::Failed(passive)) };
            let mut data = connect(port)?;
            let started = ask(&format!("RETR {}", file.asked))?;
            if !started.starts_with('1') {
                return Ok(End::Failed(started));
            }
            let end = self.take(&mut data, &[], file);
            if let End::Whole = end {
                drop(data);
                let over = ask("")?;
                return Ok(if over.starts_with('2') { End::Whole } else { End::Failed(over) });
            }
            Ok(end)
        };
        end().unwrap_or_else(|error| End::Failed(error.to_string()))
    }

    /// A client program that writes the file to its standard output.
    fn piped(&self, file: &Wanted) -> End {
        let command = match self.client(&file.asked) {
            Ok(command) => command,
            Err(fault) => return End::Failed(fault.message),
        };
        let mut child = match self.spawn(command, Stdio::piped()) {
            Ok(child) => child,
            Err(error) => return End::Failed(error),
        };
        let Some(mut out) = child.stdout.take() else { return End::Failed("no pipe".into()) };
        let end = self.take(&mut out, &[], file);
        drop(out);
        self.ended(child, end)
    }

    /// rsync into a file in memory.
    fn rsync(&self, file: &Wanted) -> End {
        let command = match self.client(&file.asked) {
            Ok(command) => command,
            Err(fault) => return End::Failed(fault.message),
        };
        let _ = std::fs::remove_file(&self.into);
        let mut child = match self.spawn(command, Stdio::null()) {
            Ok(child) => child,
            Err(error) => return End::Failed(error),
        };
        let (mut seen, mut since) = (0, Instant::now());
        let end = loop {
            let ended = child.try_wait().ok().flatten();
            let now = std::fs::metadata(&self.into).map_or(0, |about| about.len());
            if now > seen {
                self.counts.bytes.fetch_add(now - seen, Ordering::Relaxed);
                (seen, since) = (now, Instant::now());
            }
            match ended {
                Some(_) => break self.compare(file),
                None if self.stopped() => break End::Stopped,
                None if since.elapsed() > PATIENCE => break End::Failed("no bytes".into()),
                None => std::thread::sleep(LOOK),
            }
        };
        let end = self.ended(child, end);
        let _ = std::fs::remove_file(&self.into);
        end
    }

    /// Compares the whole file in memory.
    fn compare(&self, file: &Wanted) -> End {
        let (content, size) = (Content::of_path(&file.path), file.size);
        let mut at = 0;
        let mut buffer = vec![0; TAKE];
        let Ok(mut copy) = File::open(&self.into) else { return End::Failed("no file came".into()) };
        loop {
            match copy.read(&mut buffer) {
                Ok(0) if at == size => return End::Whole,
                Ok(0) => return End::Failed(format!("{at} bytes of {size} came")),
                Ok(n) => {
                    if let Err(wrong) = content.check(at, &buffer[..n]) {
                        return End::Wrong(format!("byte {wrong} is not the file's"));
                    }
                    at += n as u64;
                }
                Err(error) => return End::Failed(error.to_string()),
            }
        }
    }

    /// The client program for a file.
    fn client(&self, path: &str) -> Result<Command, Fault> {
        let port = self.asked.port;
        match self.asked.protocol {
            Protocol::Smb => {
                let mut command = tools::find("smbclient")?.command();
                let get = format!("get \"{}\" -", path.replace('/', "\\"));
                // Its words to standard error, and only errors: the file goes to standard output.
                command.args(["//127.0.0.1/files", "-N", "-E", "-d", "0", "-s", "/dev/null"]);
                command.arg(format!("--option=socket options=SO_RCVBUF={RECEIVE_BUFFER}")).arg("-p");
                command.arg(port.to_string()).arg("-c").arg(get);
                Ok(command)
            }
            Protocol::Rsync => {
                let mut command = tools::find("rsync")?.command();
                command.arg("--inplace").arg(format!("--sockopts=SO_RCVBUF={RECEIVE_BUFFER}"));
                command.arg(format!("--bwlimit={}", (self.asked.rate >> 10).max(1)));
                command.arg(format!("rsync://127.0.0.1:{port}/files/{path}")).arg(&self.into);
                Ok(command)
            }
            Protocol::Ftp | Protocol::Http => Err(Fault::failed("this client is no program")),
        }
    }

    fn spawn(&self, mut command: Command, stdout: Stdio) -> Result<Child, String> {
        let log = File::create(&self.log).map_err(|e| format!("{}: {e}", self.log.display()))?;
        command.stdin(Stdio::null()).stdout(stdout).stderr(log).process_group(0);
        spawn::die_with_parent(&mut command, Signal::TERM);
        command.spawn().map_err(|e| e.to_string())
    }

    /// The end of a client program: one that was not stopped must end well.
    fn ended(&self, mut child: Child, end: End) -> End {
        let end = match end {
            End::Whole => {
                let since = Instant::now();
                loop {
                    match child.try_wait() {
                        Ok(Some(status)) if status.success() => break End::Whole,
                        Ok(Some(status)) => {
                            break End::Failed(format!("{status}: {}", process::last_line(&self.log)));
                        }
                        Ok(None) if self.stopped() => break End::Stopped,
                        Ok(None) if since.elapsed() < PATIENCE => std::thread::sleep(LOOK),
                        _ => break End::Failed("the client does not end".into()),
                    }
                }
            }
            // What it said tells more than how much came.
            End::Failed(why) => match process::last_line(&self.log).as_str() {
                "it said nothing" => End::Failed(why),
                said => End::Failed(format!("{why}; {said}")),
            },
            other => other,
        };
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        end
    }

    /// Reads the body slowly and compares it. `early` has come already.
    fn take(&self, from: &mut (impl Read + AsFd), early: &[u8], file: &Wanted) -> End {
        let (content, size) = (Content::of_path(&file.path), file.size);
        let mut buffer = vec![0; TAKE];
        let mut pace = Pace::new(self.asked.rate);
        let (mut at, mut early) = (0, early);
        loop {
            let count = if early.is_empty() {
                match self.wait(from) {
                    Waited::Ready => {}
                    Waited::Stopped => return End::Stopped,
                    Waited::Late => return End::Failed("no bytes".into()),
                }
                match from.read(&mut buffer) {
                    Ok(count) => count,
                    Err(error) => return End::Failed(error.to_string()),
                }
            } else {
                let count = early.len().min(TAKE);
                buffer[..count].copy_from_slice(&early[..count]);
                early = &early[count..];
                count
            };
            match count {
                0 if at == size => return End::Whole,
                0 => return End::Failed(format!("{at} bytes of {size} came")),
                _ => {}
            }
            if let Err(wrong) = content.check(at, &buffer[..count]) {
                return End::Wrong(format!("byte {wrong} is not the file's"));
            }
            at += count as u64;
            if at > size {
                return End::Wrong(format!("more than its {size} bytes came"));
            }
            self.counts.bytes.fetch_add(count as u64, Ordering::Relaxed);
            let pause = pace.after(count, Instant::now());
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
    }

    /// Waits until there is something to read, or the end.
    fn wait(&self, from: &impl AsFd) -> Waited {
        let since = Instant::now();
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        loop {
            if self.stopped() {
                return Waited::Stopped;
            }
            if since.elapsed() > PATIENCE {
                return Waited::Late;
            }
            let mut fds = [PollFd::new(from, PollFlags::IN)];
            if poll(&mut fds, Some(&look)).is_ok_and(|ready| ready > 0) {
                return Waited::Ready;
            }
        }
    }
}

/// Connects to a port of 127.0.0.1 as over a slow line. The buffer must be set before: the window is agreed
/// on when the connection is made.
fn connect(port: u16) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
    connect(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The last line of an FTP reply; lines before it have a dash after the number.
fn reply(from: &mut impl BufRead) -> std::io::Result<String> {
    /// A server that sends more before its reply is not an FTP server.
    const LINES_MAX: usize = 100;
    for _ in 0..LINES_MAX {
        let mut line = String::new();
        if from.take(4096).read_line(&mut line)? == 0 {
            break;
        }
        let bytes = line.as_bytes();
        if bytes.len() > 3 && bytes[..3].iter().all(u8::is_ascii_digit) && bytes[3] == b' ' {
            return Ok(line.trim().to_string());
        }
    }
    Err(std::io::Error::other("the connection was closed without a reply"))
}

/// The port in `229 Entering Extended Passive Mode (|||port|)`.
fn passive_port(reply: &str) -> Option<u16> {
    reply.strip_prefix("229")?.split_once("(|||")?.1.split_once('|')?.0.parse().ok()
}

enum Waited {
    Ready,
    Stopped,
    Late,
}

/// A link of a rate. What was not sent in time is lost, as on a link: a reader that waited does not catch up.
struct Pace {
    per_byte_s: f64,
    free: Option<Instant>,
}

impl Pace {
    fn new(rate: u64) -> Pace {
        Pace { per_byte_s: 1.0 / rate.max(1) as f64, free: None }
    }

    /// How long to pause after taking `bytes`.
    fn after(&mut self, bytes: usize, now: Instant) -> Duration {
        let cost = Duration::from_secs_f64(bytes as f64 * self.per_byte_s);
        let free = self.free.filter(|free| *free > now).unwrap_or(now) + cost;
        self.free = Some(free);
        free.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use seekless_base::Exit;

    use super::*;

    /// Answers `answers` connections, each with what `body` makes of the path.
    fn server(answers: usize, body: impl Fn(&str) -> Vec<u8> + Send + 'static) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(answers) {
                let mut stream = stream.unwrap();
                let mut request = [0; 1024];
                let count = stream.read(&mut request).unwrap();
                let text = String::from_utf8_lossy(&request[..count]).into_owned();
                let path = text.split(' ').nth(1).unwrap().to_string();
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                let _ = stream.write_all(&body(&path));
            }
        });
        port
    }

    const SIZE: usize = 300_000;

    fn right(path: &str) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        Content::of_path(path).fill(0, &mut bytes);
        bytes
    }

    fn asked(port: u16, rate: u64) -> Asked {
        let file = Wanted { asked: "sd/1.mp4".into(), path: "sd/1.mp4".into(), size: SIZE as u64 };
        Asked { protocol: Protocol::Http, port, rate, files: vec![file] }
    }

    /// What one reader has seen once `done` holds of its bytes and outcome.
    fn outcome(port: u16, rate: u64, done: impl Fn(&Counts) -> bool) -> (Outcome, u64, Duration) {
        let dir = tempfile::tempdir().unwrap();
        let readers = Readers::start(1, &asked(port, rate), dir.path()).unwrap();
        let since = Instant::now();
        while !done(&readers.counts) && since.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let (bytes, took) = (readers.bytes(), since.elapsed());
        (readers.finish(), bytes, took)
    }

    fn some(count: &AtomicU64) -> bool {
        count.load(Ordering::Relaxed) > 0
    }

    #[test]
    fn right_bytes_are_counted_and_no_faster_than_the_rate() {
        let (outcome, bytes, took) = outcome(server(9, right), 1 << 20, |counts| some(&counts.files));
        assert_eq!((outcome.wrong, outcome.failed, outcome.why), (0, 0, None));
        assert!(outcome.files >= 1 && bytes >= SIZE as u64);
        assert!(took.as_secs_f64() > 0.8 * SIZE as f64 / f64::from(1 << 20), "{took:?}");
    }

    #[test]
    fn a_changed_byte_is_found() {
        let wrong = |path: &str| {
            let mut bytes = right(path);
            bytes[SIZE - 1] ^= 1;
            bytes
        };
        let (outcome, ..) = outcome(server(9, wrong), 1 << 30, |counts| some(&counts.wrong));
        assert!(outcome.wrong >= 1 && outcome.files == 0);
        assert!(outcome.why.unwrap().contains(&format!("byte {} is not", SIZE - 1)));
    }

    #[test]
    fn a_short_answer_and_a_long_one_do_not_pass() {
        let short = |path: &str| right(path)[..SIZE - 1].to_vec();
        let (seen, ..) = outcome(server(9, short), 1 << 30, |counts| some(&counts.failed));
        assert!(seen.failed >= 1 && seen.why.unwrap().contains("bytes of"));
        let long = |path: &str| {
            let mut bytes = vec![0; SIZE + 1];
            Content::of_path(path).fill(0, &mut bytes);
            bytes
        };
        let (seen, ..) = outcome(server(9, long), 1 << 30, |counts| some(&counts.wrong));
        assert!(seen.wrong >= 1 && seen.files == 0);
    }

    #[test]
    fn a_reader_that_waited_does_not_catch_up() {
        let mut pace = Pace::new(1000);
        let start = Instant::now();
        assert_eq!(pace.after(1000, start), Duration::from_secs(1));
        assert_eq!(pace.after(500, start), Duration::from_millis(1500));
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.after(1000, later), Duration::from_secs(1));
    }

    #[test]
    fn replies_of_ftp_servers_are_read() {
        let mut said =
            "220-Welcome\r\n220 ready\r\n229 Entering Extended Passive Mode (|||40123|)\r\n".as_bytes();
        assert_eq!(reply(&mut said).unwrap(), "220 ready");
        assert_eq!(passive_port(&reply(&mut said).unwrap()), Some(40123));
        assert!(reply(&mut said).is_err());
        assert_eq!(passive_port("500 no"), None);
    }

    #[test]
    fn readers_share_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let fault = Readers::start(2, &asked(1, 1 << 20), dir.path()).unwrap_err();
        assert_eq!(fault.exit, Exit::Usage);
    }
}
