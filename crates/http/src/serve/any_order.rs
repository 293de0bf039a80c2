//! Downloads in any order: [`Circus`] in real time, one for each disk.
//!
//! The state machine decides which block each client gets next and which blocks are read and kept. This
//! module has the threads that read them, their memory (a bounded number of blocks, outside of the page
//! cache), and the bodies that wait for them. A client reports that it took its block by asking for the next.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::io::Errno;
use seekless_engine::lock;
use seekless_reorder::{Action, Circus, ClientId, Config, ContentId, Event, ReadId, Wanted};
use tokio::sync::mpsc;

use super::Shared;
use super::boundary::boundary;
use super::counters::Counters;
use super::fetch::read_past;
use super::tree::{FileVersion, Opened};
use crate::digest::{Algorithm, Hasher};
use crate::multipart::Writer;
use crate::range::{Span, merged};

/// With fewer blocks than this there is no order to choose.
const BLOCKS_MIN: u64 = 4;

/// Circus for every disk that was asked for a download.
pub(crate) struct AnyOrder {
    config: Config,
    disks: Mutex<HashMap<u64, Arc<DiskCircus>>>,
}

impl AnyOrder {
    pub(crate) fn new(config: Config) -> AnyOrder {
        AnyOrder { config, disks: Mutex::default() }
    }

    /// Circus of the disk that has the file.
    fn disk(&self, shared: &Arc<Shared>, file: &Opened) -> Option<Arc<DiskCircus>> {
        match lock(&self.disks).entry(file.id.dev) {
            Entry::Occupied(known) => Some(known.get().clone()),
            Entry::Vacant(new) => Some(new.insert(DiskCircus::start(self, shared)?).clone()),
        }
    }
}

/// A read for a reading thread.
struct Job {
    id: ReadId,
    content: ContentId,
    file: Arc<Opened>,
    first: u64,
    blocks: u64,
}

/// One file being downloaded.
struct SharedFile {
    file: Arc<Opened>,
    version: FileVersion,
    clients: usize,
    blocks: HashMap<u64, Bytes>,
}

type Given = io::Result<(u64, Bytes)>;

struct CircusState {
    circus: Circus,
    contents: HashMap<ContentId, SharedFile>,
    by_version: HashMap<FileVersion, ContentId>,
    clients: HashMap<ClientId, (ContentId, mpsc::UnboundedSender<Given>)>,
    next: u64,
    refused: bool,
}

/// Circus of one disk.
pub(crate) struct DiskCircus {
    block: u64,
    state: Mutex<CircusState>,
    jobs: Sender<Job>,
    shared: std::sync::Weak<Shared>,
}

/// Whether a download of these parts, which may overlap, has an order to choose.
pub(crate) fn is_worth_it(shared: &Shared, spans: &[Span]) -> bool {
    let bytes: u64 = merged(spans.to_vec()).iter().map(|s| s.len).sum();
    shared.any_order.as_ref().is_some_and(|a| bytes >= BLOCKS_MIN * a.config.block.0.max(1))
}

/// Joins a download of these parts of a file. Returns the body, its content type and its length; `None` if it
/// has to be served in order because there are too many downloads.
pub(crate) fn join(
    shared: &Arc<Shared>,
    file: &Arc<Opened>,
    kind: &'static str,
    spans: &[Span],
) -> Option<(Download, String, u64)> {
    let any_order = shared.any_order.as_ref()?;
    let block = any_order.config.block.0.max(1);
    let spans = merged(spans.to_vec());
    let disk = any_order.disk(shared, file)?;
    let ranges: Vec<Range<u64>> = spans.iter().map(|s| s.offset / block..s.end().div_ceil(block)).collect();
    let writer = Writer::new(kind, file.size, boundary());
    let parts: u64 = spans.iter().map(|span| writer.cut_length(*span, block)).sum();
    let len = parts + writer.tail().len() as u64;
    let (tell, blocks) = mpsc::unbounded_channel();
    let whole = matches!(spans[..], [Span { offset: 0, len }] if len == file.size);
    let id = disk.join(file, if whole { Wanted::All } else { Wanted::Ranges(ranges) }, tell)?;
    Counters::one(&shared.counters.any_order);
    let kind = writer.content_type();
    let download = Download {
        client: Leaves { id, disk },
        blocks,
        sending: None,
        out: VecDeque::new(),
        writer,
        spans,
        file: file.clone(),
        ended: false,
    };
    Some((download, kind, len))
}

/// The digest of a whole file, computed from the blocks that the download is sent next: one read of the disk
/// serves both, without the page cache. `goes_on` is asked before each block, and may wait. `Err`: it
/// returned false. `None`: the file cannot be downloaded in any order, or cannot be read.
pub(crate) fn sha256(
    shared: &Arc<Shared>,
    file: &Arc<Opened>,
    runtime: &tokio::runtime::Runtime,
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<Vec<u8>>, GivenUp> {
    let Some(disk) = shared.any_order.as_ref().and_then(|all| all.disk(shared, file)) else {
        return Ok(None);
    };
    let (tell, mut blocks) = mpsc::unbounded_channel();
    let Some(id) = disk.join(file, Wanted::All, tell) else { return Ok(None) };
    let leaves = Leaves { id, disk };
    let mut hasher = Hasher::new(Algorithm::Sha256);
    // A client that joins the downloads of a file begins in the middle.
    let (mut next, mut early) = (0, HashMap::new());
    loop {
        let given = runtime.block_on(async { tokio::time::timeout(LOOK_EVERY, blocks.recv()).await });
        if !goes_on() {
            return Err(GivenUp);
        }
        let (number, bytes) = match given {
            Err(_) => continue,
            Ok(None) => break,
            Ok(Some(Err(_))) => return Ok(None),
            Ok(Some(Ok(given))) => given,
        };
        early.insert(number, bytes);
        while let Some(bytes) = early.remove(&next) {
            hasher.update(&bytes);
            next += 1;
        }
        leaves.disk.event(&mut lock(&leaves.disk.state), Event::Sent { client: leaves.id, block: number });
    }
    let whole = next == file.size.div_ceil(leaves.disk.block) && file.unchanged_on_disk();
    Ok(whole.then(|| hasher.finish()))
}

/// No client waits for it any more.
#[derive(Debug)]
pub(crate) struct GivenUp;

/// How often it is checked whether a client still waits while a disk delivers nothing.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A client that leaves when this is dropped.
struct Leaves {
    id: ClientId,
    disk: Arc<DiskCircus>,
}

impl Drop for Leaves {
    fn drop(&mut self) {
        let mut state = lock(&self.disk.state);
        self.disk.event(&mut state, Event::Left { client: self.id });
        state.gone(self.id);
    }
}

/// The parts of a block that lie in the spans (which are in order and disjoint).
fn parts_of(spans: &[Span], number: u64, block: u64, size: u64) -> impl Iterator<Item = Span> + '_ {
    let (start, end) = (number * block, ((number + 1) * block).min(size));
    let first = spans.partition_point(move |s| s.end() <= start);
    spans[first..].iter().take_while(move |s| s.offset < end).map(move |s| {
        let offset = s.offset.max(start);
        Span { offset, len: s.end().min(end) - offset }
    })
}

impl DiskCircus {
    fn start(any_order: &AnyOrder, shared: &Arc<Shared>) -> Option<Arc<DiskCircus>> {
        let config = &any_order.config;
        let (jobs, todo) = unbounded();
        let state = CircusState {
            circus: Circus::new(config),
            contents: HashMap::new(),
            by_version: HashMap::new(),
            clients: HashMap::new(),
            next: 1,
            refused: false,
        };
        let disk = Arc::new(DiskCircus {
            block: config.block.0.max(1),
            state: Mutex::new(state),
            jobs,
            shared: Arc::downgrade(shared),
        });
        // As many as Circus orders at once, so the channel never holds more.
        for _ in 0..config.reads_in_flight.max(1) {
            let (weak, todo) = (Arc::downgrade(&disk), todo.clone());
            let reader = move || read_blocks(&weak, &todo);
            std::thread::Builder::new().name("any-order".into()).spawn(reader).ok()?;
        }
        Some(disk)
    }

    fn join(
        &self,
        file: &Arc<Opened>,
        wanted: Wanted,
        tell: mpsc::UnboundedSender<Given>,
    ) -> Option<ClientId> {
        let version = file.version();
        let mut state = lock(&self.state);
        state.next += 2;
        let client = ClientId(state.next);
        let fresh = ContentId(state.next + 1);
        let content = *state.by_version.entry(version).or_insert(fresh);
        let entry = state.contents.entry(content);
        let entry = entry.or_insert_with(|| SharedFile {
            file: file.clone(),
            version,
            clients: 0,
            blocks: HashMap::new(),
        });
        entry.clients += 1;
        state.clients.insert(client, (content, tell));
        state.refused = false;
        let blocks = file.size.div_ceil(self.block);
        self.event(&mut state, Event::Join { client, content, blocks, wanted });
        if std::mem::take(&mut state.refused) {
            return None;
        }
        Some(client)
    }

    /// Gives the machine an event and carries out its actions.
    fn event(&self, state: &mut CircusState, event: Event) {
        state.circus.handle(event);
        while let Some(action) = state.circus.poll_action() {
            match action {
                Action::Read { id, content, first, blocks } => {
                    let file = state.contents.get(&content).map(|c| c.file.clone());
                    let job = file.map(|file| Job { id, content, file, first, blocks });
                    if job.is_none_or(|job| self.jobs.send(job).is_err()) {
                        state.circus.handle(Event::ReadDone { read: id, blocks: 0 });
                    }
                }
                Action::Drop { content, block } => {
                    if let Some(content) = state.contents.get_mut(&content) {
                        content.blocks.remove(&block);
                    }
                    state.forget(content);
                }
                Action::Send { client, content, block } => {
                    let bytes = state.contents.get(&content).and_then(|c| c.blocks.get(&block)).cloned();
                    if let (Some((_, tell)), Some(bytes)) = (state.clients.get(&client), bytes) {
                        // A client whose receiver is gone is about to leave.
                        let _ = tell.send(Ok((block, bytes)));
                    }
                }
                Action::Complete { client } => state.gone(client),
                Action::Broken { client, block } => {
                    if let Some((_, tell)) = state.clients.get(&client) {
                        let _ = tell.send(Err(io::Error::other(format!("block {block} cannot be read"))));
                    }
                    state.gone(client);
                }
                Action::Refused { client, .. } => {
                    state.refused = true;
                    state.gone(client);
                }
            }
        }
    }
}

impl CircusState {
    /// A client is gone; its channel ends with it.
    fn gone(&mut self, client: ClientId) {
        let Some((content, _)) = self.clients.remove(&client) else { return };
        if let Some(entry) = self.contents.get_mut(&content) {
            entry.clients -= 1;
        }
        self.forget(content);
    }

    /// Closes a file that has no download and no block in memory.
    fn forget(&mut self, content: ContentId) {
        if let Some(entry) = self.contents.get(&content)
            && entry.clients == 0
            && entry.blocks.is_empty()
        {
            self.by_version.remove(&entry.version);
            self.contents.remove(&content);
        }
    }
}

/// A reading thread, which ends with its disk.
fn read_blocks(disk: &std::sync::Weak<DiskCircus>, todo: &Receiver<Job>) {
    while let Ok(job) = todo.recv() {
        let Some(disk) = disk.upgrade() else { return };
        let blocks = read(&job, disk.block);
        if let Some(shared) = disk.shared.upgrade() {
            Counters::add(&shared.counters.any_order_blocks_read, blocks.len() as u64);
        }
        let mut state = lock(&disk.state);
        let got = blocks.len() as u64;
        if let Some(content) = state.contents.get_mut(&job.content) {
            content.blocks.extend((job.first..).zip(blocks));
        }
        disk.event(&mut state, Event::ReadDone { read: job.id, blocks: got });
        // Every client of this file left while it was read.
        state.forget(job.content);
    }
}

/// Reads whole blocks, fewer if the disk fails or the file ends. Each block has memory of its own, so that it
/// can be freed alone. If the file changed, none is returned.
fn read(job: &Job, block: u64) -> Vec<Bytes> {
    let offset = job.first * block;
    let end = (offset + job.blocks * block).min(job.file.size);
    let mut buffers: Vec<Vec<u8>> = (0..job.blocks)
        .map(|i| (end - (offset + i * block).min(end)).min(block))
        .map(|len| vec![0; len as usize])
        .collect();
    let total = end.saturating_sub(offset);
    let mut got = 0;
    while got < total {
        match read_some(job, &mut buffers, block, offset, got) {
            Ok(0) => break,
            Ok(n) => got += n as u64,
            Err(Errno::INTR) => {}
            Err(error) => {
                tracing::debug!(%error, "a block cannot be read");
                break;
            }
        }
    }
    if got == total
        && let Some(last) = buffers.iter().rev().find(|buffer| !buffer.is_empty())
    {
        job.file.mark_read(end, last);
    }
    if !job.file.unchanged_on_disk() {
        return Vec::new();
    }
    let whole = if got == total { job.blocks } else { got / block };
    buffers.into_iter().take(whole as usize).map(Bytes::from).collect()
}

fn read_some(job: &Job, buffers: &mut [Vec<u8>], block: u64, offset: u64, got: u64) -> Result<usize, Errno> {
    let mut parts: Vec<IoSliceMut<'_>> = Vec::with_capacity(buffers.len());
    for (i, buffer) in buffers.iter_mut().enumerate() {
        let start = i as u64 * block;
        let skip = got.saturating_sub(start).min(buffer.len() as u64) as usize;
        if skip < buffer.len() {
            parts.push(IoSliceMut::new(&mut buffer[skip..]));
        }
    }
    // The blocks are kept here; a second copy in the page cache would only take memory from others.
    read_past(&job.file, &mut parts, offset + got)
}

/// A download under way, as its body sees it.
pub(crate) struct Download {
    client: Leaves,
    blocks: mpsc::UnboundedReceiver<Given>,
    /// The block being handed out.
    sending: Option<u64>,
    out: VecDeque<Bytes>,
    writer: Writer,
    spans: Vec<Span>,
    file: Arc<Opened>,
    ended: bool,
}

impl Download {
    /// What is downloaded.
    pub(crate) fn file(&self) -> &Arc<Opened> {
        &self.file
    }

    /// The next bytes of the body.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if let Some(bytes) = self.out.pop_front() {
                return Poll::Ready(Some(Ok(bytes)));
            }
            if let Some(block) = self.sending.take() {
                let Leaves { id, disk } = &self.client;
                disk.event(&mut lock(&disk.state), Event::Sent { client: *id, block });
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(self.blocks.poll_recv(cx)) {
                Some(Ok((number, bytes))) => {
                    let disk = &self.client.disk;
                    let start = number * disk.block;
                    for part in parts_of(&self.spans, number, disk.block, self.file.size) {
                        let from = (part.offset - start) as usize;
                        self.out.push_back(self.writer.head(part));
                        self.out.push_back(bytes.slice(from..from + part.len as usize));
                    }
                    self.sending = Some(number);
                    if let Some(shared) = disk.shared.upgrade() {
                        Counters::one(&shared.counters.any_order_blocks_sent);
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.ended = true;
                    self.out.push_back(self.writer.tail());
                }
            }
        }
    }
}
