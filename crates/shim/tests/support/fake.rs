//! A daemon for the tests: records what it receives and answers as configured.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use seekless_kernel::fdpass::{self, Address, TwinName};
use seekless_kernel::residency;
use seekless_kernel::ring::Consumer;
use seekless_kernel::twinkey::{self, Key};
use seekless_wire::{
    Answer, Call, FRAME_BYTES_MAX, Frame, Hello, Mode, Need, PassReason, Refuse, RefuseReason, Settings,
    Tracked,
};

/// The key that it leaves beside its socket.
const KEY: Key = *b"a key that is not known in there";

/// How the daemon reacts to a need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Reads the bytes, then answers.
    Serve,
    /// Serves after this many milliseconds, with a `Working` every 20.
    ServeSlowly(u64),
    /// Passes, and asks to leave the device alone for a minute.
    PassDevice,
    /// Accepts and sends nothing, ever.
    Silent,
    /// Sends `Working` for ever.
    WorkingForEver,
    /// Closes without a frame.
    Close,
    /// Sends bytes that are not a frame.
    Garbage,
    /// Sends a valid answer, cut short.
    CutShort,
    /// Sends a packet larger than any frame.
    Huge,
    /// Refuses, like a daemon of another version.
    Refuse,
    /// Sends a descriptor that was not requested.
    ExtraDescriptor,
    /// Serves, and names one of two rings alternately, as for a process that changes its user from call to
    /// call.
    RingsByTurns,
    /// Serves, and sends the ring with the settings.
    RingAlong,
}

/// A received need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub call: Call,
    pub offset: u64,
    pub length: u64,
    pub random: bool,
    pub device: u64,
    pub inode: u64,
}

#[derive(Default)]
pub struct Record {
    pub needs: Vec<Seen>,
    pub tracked: Vec<Tracked>,
    pub hellos: usize,
    /// The ring named last; below, every ring that was requested, and how often.
    pub named: u8,
    pub rings: BTreeMap<u8, (Consumer, OwnedFd)>,
    pub ring_asks: usize,
    /// How often it was sent with the settings.
    pub rings_along: usize,
    /// Frames or descriptors that should not have arrived.
    pub wrong: Vec<String>,
}

pub struct Fake {
    pub path: PathBuf,
    pub record: Arc<Mutex<Record>>,
    stop: Arc<AtomicBool>,
    /// Number of rounds without a frame.
    idle: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub const SETTINGS: Settings =
    Settings { mode: Mode::Both, ring: 0, settings_ttl_ms: 1_000, prefetch_bytes: 0 };

impl Fake {
    /// Listens at `d.sock` in `folder` and at its twin.
    pub fn start(folder: &Path, manner: Manner, settings: Settings) -> Fake {
        let (path, socket) = listening(folder);
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let twin = TwinName::of(&name).expect("the test's folder has too long a name");
        let twin = fdpass::listen(Address::Twin(&twin), 64).unwrap();
        Fake::at(path, vec![socket, twin], manner, settings)
    }

    /// Accepts at sockets that already listen.
    pub fn at(path: PathBuf, listeners: Vec<OwnedFd>, manner: Manner, settings: Settings) -> Fake {
        let record = Arc::new(Mutex::new(Record::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let idle = Arc::new(AtomicU64::new(0));
        let thread = {
            let (record, stop, idle) = (record.clone(), stop.clone(), idle.clone());
            std::thread::spawn(move || serve(listeners, manner, settings, &record, &stop, &idle))
        };
        Fake { path, record, stop, idle, thread: Some(thread) }
    }

    pub fn serving(folder: &Path) -> Fake {
        Fake::start(folder, Manner::Serve, SETTINGS)
    }

    /// Waits until everything sent has been received (advice is sent without waiting).
    fn settle(&self) {
        let until = self.idle.load(Ordering::Acquire) + 2;
        while self.idle.load(Ordering::Acquire) < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The needs so far. Also checks that nothing wrong arrived.
    pub fn needs(&self) -> Vec<Seen> {
        self.settle();
        let record = self.record.lock().unwrap();
        assert!(record.wrong.is_empty(), "{:?}", record.wrong);
        record.needs.clone()
    }

    pub fn clear(&self) {
        self.settle();
        *self.record.lock().unwrap() = Record::default();
    }

    /// Ends like a killed daemon: all its sockets close at once, its path stays.
    pub fn stop(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.halt();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A socket that listens at `d.sock` in `folder`.
pub fn listening(folder: &Path) -> (PathBuf, OwnedFd) {
    let path = folder.join("d.sock");
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let socket = fdpass::listen(Address::Path(&name), 64).unwrap();
    super::set_mode(&path, 0o666);
    std::fs::write(folder.join("twin.key"), KEY).unwrap();
    (path, socket)
}

struct Client {
    socket: OwnedFd,
    /// The answer to send, and when.
    due: Option<(Instant, Need, Option<OwnedFd>)>,
    working_next: Instant,
}

fn serve(
    listeners: Vec<OwnedFd>,
    manner: Manner,
    settings: Settings,
    record: &Mutex<Record>,
    stop: &AtomicBool,
    idle: &AtomicU64,
) {
    let mut clients: Vec<Client> = Vec::new();
    while !stop.load(Ordering::Acquire) {
        {
            let mut fds: Vec<PollFd<'_>> = listeners.iter().map(|l| PollFd::new(l, PollFlags::IN)).collect();
            fds.extend(clients.iter().map(|c| PollFd::new(&c.socket, PollFlags::IN)));
            if rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 })) == Ok(0) {
                idle.fetch_add(1, Ordering::AcqRel);
            }
        }
        for listener in &listeners {
            while let Ok(socket) = fdpass::accept(listener.as_fd()) {
                clients.push(Client { socket, due: None, working_next: Instant::now() });
            }
        }
        clients.retain_mut(|client| attend(client, manner, settings, record));
    }
}

/// Handles one frame of a client. Returns whether to keep the client.
fn attend(client: &mut Client, manner: Manner, settings: Settings, record: &Mutex<Record>) -> bool {
    let mut packet = [0u8; FRAME_BYTES_MAX];
    match fdpass::receive(client.socket.as_fd(), &mut packet) {
        Ok(got) if got.length > 0 => {
            let frame = Frame::decode(&packet[..got.length]);
            if !hear(client, frame, got.descriptor, manner, settings, record) {
                return false;
            }
        }
        // The client is gone; an advice that was received is served all the same.
        Ok(_) => return false,
        Err(rustix::io::Errno::AGAIN) => {}
        Err(_) => return false,
    }
    let now = Instant::now();
    if let Some((at, need, descriptor)) = &client.due {
        if now >= *at {
            answer(client.socket.as_fd(), need, descriptor.as_ref(), settings);
            return false;
        }
        if now >= client.working_next {
            client.working_next = now + Duration::from_millis(20);
            tell(client.socket.as_fd(), Frame::Working);
        }
    } else if manner == Manner::WorkingForEver && now >= client.working_next {
        client.working_next = now + Duration::from_millis(20);
        tell(client.socket.as_fd(), Frame::Working);
    }
    true
}

fn send_raw(socket: std::os::fd::BorrowedFd<'_>, bytes: &[u8]) {
    let _ = fdpass::send(socket, bytes, None);
}

fn tell(socket: std::os::fd::BorrowedFd<'_>, frame: Frame<'_>) {
    let _ = fdpass::send(socket, frame.encode().unwrap().as_bytes(), None);
}

fn hear(
    client: &mut Client,
    frame: Result<Frame<'_>, seekless_wire::DecodeError>,
    descriptor: Option<OwnedFd>,
    manner: Manner,
    settings: Settings,
    record: &Mutex<Record>,
) -> bool {
    let mut record = record.lock().unwrap();
    if frame.is_ok_and(|f| f.carries_descriptor()) != descriptor.is_some() {
        record.wrong.push(format!("{frame:?} with {descriptor:?}"));
        return false;
    }
    let socket = client.socket.as_fd();
    match frame {
        Ok(Frame::Hello(Hello { ring, .. })) => {
            record.hellos += 1;
            if ring && manner == Manner::RingAlong {
                record.named = 5;
                record.rings_along += 1;
                let ring =
                    record.rings.entry(5).or_insert_with(|| Consumer::create(Path::new("/x")).unwrap());
                let frame = Frame::Settings(Settings { ring: 5, ..settings }).encode().unwrap();
                let _ = fdpass::send(socket, frame.as_bytes(), Some(ring.1.as_fd()));
                return false;
            }
            // A misbehaving daemon misbehaves towards all, except for the settings, which let the needs come.
            tell(socket, Frame::Settings(Settings { ring: record.named, ..settings }));
            false
        }
        Ok(Frame::Challenge { nonce }) => {
            tell(socket, Frame::Proof { digest: twinkey::proof(&KEY, nonce) });
            true
        }
        Ok(Frame::Tracked(t)) => {
            record.tracked.push(t);
            false
        }
        Ok(Frame::Need(need)) => {
            let stat = rustix::fs::fstat(descriptor.as_ref().unwrap()).unwrap();
            record.needs.push(Seen {
                call: need.call,
                offset: need.offset,
                length: need.length,
                random: need.reads_at_random(),
                device: stat.st_dev,
                inode: stat.st_ino,
            });
            if manner == Manner::RingsByTurns {
                record.named = [5, 9][record.needs.len() % 2];
            }
            let settings = Settings { ring: record.named, ..settings };
            drop(record);
            misbehave(client, need, descriptor, manner, settings)
        }
        Ok(Frame::RingAsk) if manner == Manner::RingsByTurns => {
            record.ring_asks += 1;
            let named = record.named;
            let ring =
                record.rings.entry(named).or_insert_with(|| Consumer::create(Path::new("/x")).unwrap());
            let _ = fdpass::send(socket, Frame::Ring.encode().unwrap().as_bytes(), Some(ring.1.as_fd()));
            false
        }
        other => {
            record.wrong.push(format!("{other:?}"));
            false
        }
    }
}

fn misbehave(
    client: &mut Client,
    need: Need,
    descriptor: Option<OwnedFd>,
    manner: Manner,
    settings: Settings,
) -> bool {
    let socket = client.socket.as_fd();
    let good = Answer::resident(need.length, settings);
    match manner {
        Manner::Serve | Manner::RingsByTurns | Manner::RingAlong => {
            answer(socket, &need, descriptor.as_ref(), settings)
        }
        Manner::ServeSlowly(ms) => {
            client.due = Some((Instant::now() + Duration::from_millis(ms), need, descriptor));
            return true;
        }
        Manner::PassDevice => tell(
            socket,
            Frame::Answer(Answer { device_ttl_ms: 60_000, ..Answer::pass(PassReason::NotADisk, settings) }),
        ),
        Manner::Silent | Manner::WorkingForEver => return true,
        Manner::Close => {}
        Manner::Garbage => send_raw(socket, b"HTTP/1.1 200 OK\r\n\r\n"),
        Manner::CutShort => {
            let whole = Frame::Answer(good).encode().unwrap();
            send_raw(socket, &whole.as_bytes()[..30]);
        }
        Manner::Huge => send_raw(socket, &[b'S'; 20_000]),
        Manner::Refuse => {
            tell(socket, Frame::Refuse(Refuse { reason: RefuseReason::Version, kind: 2 }));
        }
        Manner::ExtraDescriptor => {
            let frame = Frame::Answer(good).encode().unwrap();
            let _ = fdpass::send(socket, frame.as_bytes(), descriptor.as_ref().map(|d| d.as_fd()));
        }
    }
    // Stays until the client goes, so that a reset does not lose what was sent.
    manner != Manner::Close
}

/// Reads the requested bytes through a descriptor of its own, and answers.
fn answer(
    socket: std::os::fd::BorrowedFd<'_>,
    need: &Need,
    descriptor: Option<&OwnedFd>,
    settings: Settings,
) {
    use std::os::fd::AsRawFd;
    let passed = descriptor.unwrap();
    let mut resident = 0;
    if let Ok(file) = std::fs::File::open(format!("/proc/self/fd/{}", passed.as_raw_fd())) {
        // No more than requested: the kernel's own read-ahead may be megabytes.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        let prefetch = if settings.mode == Mode::Both { settings.prefetch_bytes } else { 0 };
        let mut bytes = vec![0u8; need.length.max(prefetch).min(64 << 20) as usize];
        let _ = file.read_at(&mut bytes, need.offset);
        resident = residency::resident_prefix(file.as_fd(), need.offset, 8 << 20).unwrap_or(need.length);
    }
    tell(socket, Frame::Answer(Answer::resident(resident, settings)));
}
