//! The streams of one disk: bounded, found by file and position.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

use seekless_base::{Bytes, Lba, Nanos};

use super::{Arrivals, End, Grids, Lengths, Persistence, Rate, Run, RunKind, Runs, StreamConfig, WentOn};
use crate::by_time::ByTime;
use crate::holes::Holes;
use crate::piece::address;
use crate::{FileId, IoPriority, PAGE};

/// Id of a stream; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamId(pub u64);

/// One sequential reader of one file. Offsets are in bytes from the start of the file.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) file: FileId,
    /// Where its next access is expected: the end of the last one.
    pub(crate) position: u64,
    /// Everything before this has certainly been read. Equal to `position` if its doors report reads that are
    /// done.
    pub(crate) passed: u64,
    /// End of what was fetched or queued for it; never before `position`.
    pub(crate) fetched: u64,
    /// Length of the last piece that was fetched or queued for it, in bytes.
    pub(crate) piece: u64,
    /// Size of the file when last seen.
    pub(crate) file_size: u64,
    /// Bytes read since it was recognised.
    pub(crate) consumed: u64,
    /// Accesses since it was recognised. Until it counts as sequential, only accesses that continue the last
    /// one.
    accesses: u32,
    /// End of its last access.
    reached: u64,
    /// First offset it read.
    pub(crate) first: u64,
    /// Time of its last read.
    pub(crate) last: Nanos,
    /// Whether its reader announced random reads.
    pub(crate) random: bool,
    /// The I/O priority of its last request.
    pub(crate) io: IoPriority,
    /// Longest time between two of its reads.
    longest_silence: Nanos,
    /// It has missed, and no read was reported since: its client waits for the disk, also where the kernel
    /// reads for it.
    misses: bool,
    /// Bytes read without a jump. A stream that counts as sequential may skip.
    pub(crate) run: u64,
    /// Bytes of the first read of its run.
    first_read: u64,
    /// Set once it has stopped: its run until then.
    stopped: Option<Run>,
    /// How its run ended that began at a place of its file's grid, as far as it was counted.
    end: Option<End>,
    /// Its last access has ended at the end of a cell, where another stream of its file began.
    has_met: bool,
    /// Offset from which a read of expected bytes failed.
    failed: Option<u64>,
    /// A file offset and its disk address, as last reported.
    pub(crate) anchor: Option<(u64, Lba)>,
    rate: Rate,
}

impl Stream {
    /// Disk address of an offset of its file ([`address`]).
    pub(crate) fn address_of(&self, offset: u64) -> Option<Lba> {
        self.anchor.map(|anchor| address(anchor, offset))
    }

    /// Bytes fetched and not yet read.
    pub(crate) fn unread(&self) -> u64 {
        self.fetched.saturating_sub(self.position)
    }

    /// Bytes left of the piece it reads, without pieces fetched early.
    pub(crate) fn unread_of_piece(&self) -> u64 {
        self.unread().checked_rem(self.piece).unwrap_or(0)
    }

    /// Where its run began.
    fn begin(&self) -> u64 {
        self.reached.saturating_sub(self.run)
    }

    /// The first place behind the byte `at` that lies a power of two behind the begin of its run.
    pub(crate) fn doubled(&self, at: u64) -> u64 {
        let read = at.saturating_sub(self.begin()).saturating_add(1);
        let length = read.checked_next_power_of_two().unwrap_or(u64::MAX);
        self.begin().saturating_add(length)
    }

    fn kind(&self) -> RunKind {
        match (self.random, self.first) {
            (true, _) => RunKind::Random,
            (false, 0) => RunKind::Head,
            (false, _) => RunKind::Elsewhere,
        }
    }

    fn run(&self) -> Run {
        Run { kind: self.kind(), length: self.run, first: self.first_read }
    }

    /// When it counts as stopped if it does not read before: silent for longer than ever before, plus this
    /// much.
    fn stops_at(&self, slack: Nanos) -> Nanos {
        self.last + self.longest_silence + slack
    }

    /// Whether it has not stopped, judging by its earlier silences.
    pub(crate) fn is_active(&self, now: Nanos, slack: Nanos) -> bool {
        self.stops_at(slack) > now
    }

    /// Its rate, bytes a second.
    pub(crate) fn bytes_per_s(&self, now: Nanos) -> f64 {
        self.rate.bytes_per_s(now)
    }

    /// Bytes it read lately, and the time they took.
    pub(crate) fn read_lately(&self, now: Nanos) -> (f64, f64) {
        self.rate.sums(now)
    }

    /// Bytes a second; silence counts. 0 until the rate is known.
    pub(crate) fn paced(&self, now: Nanos) -> f64 {
        if self.rate.is_settled() { self.bytes_per_s(now) } else { 0.0 }
    }

    /// Its bitrate, bytes a second, once it was observed for long enough.
    pub(crate) fn bitrate(&self, now: Nanos) -> Option<f64> {
        Some(self.bytes_per_s(now)).filter(|&rate| self.rate.is_settled() && rate > 0.0)
    }

    /// Whether it has read its file to the end, or its cell to where another stream of the file began: the
    /// bytes there were read already, by a client that reads the file over several connections. Then it has
    /// ended, and must not count among the streams that share the memory. A door may report whole pages.
    pub(crate) fn is_done(&self) -> bool {
        self.passed >= self.file_size || self.has_met && self.passed.saturating_add(PAGE) >= self.position
    }

    /// Whether bytes that could not be read lie ahead of it. Reading them ahead would fail again, and cost
    /// the disk's error recovery each time.
    pub(crate) fn meets_failure(&self) -> bool {
        self.failed.is_some_and(|from| self.position <= from)
    }

    /// Whether its whole file was fetched before its client read any of it, so that it needs no more memory.
    fn waits(&self) -> bool {
        self.consumed == 0 && self.first == 0 && self.fetched > 0 && self.fetched >= self.file_size
    }

    /// When it will have read what is fetched: at its known bitrate, unless it reads faster for long, else at
    /// its present rate. A viewer's first burst fills its buffer and says nothing about its rate.
    pub(crate) fn runs_dry(&self, now: Nanos, known: Option<f64>) -> Nanos {
        let seen = self.bytes_per_s(now);
        let rate = match known.filter(|known| *known > 0.0) {
            // Still faster than four times its bitrate once settled: a download.
            Some(known) if self.rate.is_settled() && seen > 4.0 * known => seen,
            Some(known) => known,
            None => seen,
        };
        if rate <= 0.0 {
            return Nanos::MAX;
        }
        now + Nanos::from_secs_f64(self.unread() as f64 / rate)
    }

    /// Time it takes for this many bytes, at its present rate.
    pub(crate) fn takes(&self, now: Nanos, bytes: u64) -> Nanos {
        match self.bytes_per_s(now) {
            rate if rate > 0.0 => Nanos::from_secs_f64(bytes as f64 / rate),
            _ => Nanos::MAX,
        }
    }

    /// Whether it counts as sequential: from its second access in a row, as in Linux. Any later, the kernel's
    /// own read-ahead would have begun, and would go on beside the engine's. Random readers are left alone
    /// (\[C\] 2).
    pub(crate) fn is_sequential(&self) -> bool {
        self.accesses >= 2
    }

    /// Whether it has made three reads in a row: two may be neighbours by chance.
    fn has_read_on(&self) -> bool {
        self.accesses > 2
    }

    /// Counts an access. Random reads of one file fall within the gap of one another by chance, so a jump is
    /// no sign of a sequential client, and cancels what was seen before it. A client that has read on
    /// may skip. Returns the run that a jump ended.
    fn count(&mut self, offset: u64, end: u64) -> Option<Run> {
        let continues = offset <= self.reached && self.reached <= end;
        let before = self.run();
        let on = continues || self.has_read_on();
        (self.accesses, self.run) = match on {
            true => {
                (self.accesses.saturating_add(1), self.run.saturating_add(end.saturating_sub(self.reached)))
            }
            false => (1, end.saturating_sub(offset)),
        };
        if self.accesses == 1 {
            self.first_read = self.run;
        }
        self.reached = end;
        (!on && before.length > 0).then_some(before)
    }
}

/// The position of a stream in its file. Every access scans all readers of its file, and a popular file has
/// hundreds, so these fields are stored side by side, apart from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// [`Stream::position`].
    pub(crate) position: u64,
    /// [`Stream::passed`].
    pub(crate) passed: u64,
    /// [`Stream::fetched`].
    pub(crate) fetched: u64,
    /// [`Stream::first`].
    first: u64,
    pub(crate) id: StreamId,
}

impl Standing {
    fn of(id: StreamId, stream: &Stream) -> Standing {
        let Stream { position, passed, fetched, first, .. } = *stream;
        Standing { position, passed, fetched, first, id }
    }

    /// The key by which the streams of a file are ordered.
    fn place(&self) -> (u64, StreamId) {
        (self.position, self.id)
    }
}

/// The streams of one file.
#[derive(Debug, Default)]
struct OfFile {
    /// By rising position.
    standings: Vec<Standing>,
    /// Fetched bytes that at least one of the streams has still to read.
    unread: u64,
}

impl OfFile {
    /// Number of streams before a place.
    fn before(&self, place: (u64, StreamId)) -> usize {
        self.standings.partition_point(|s| s.place() < place)
    }

    /// Moves a stream from one place to another.
    fn moved(&mut self, from: Standing, to: Standing) {
        let (old, new) = (self.before(from.place()), self.before(to.place()));
        // When it moves forward it counts itself among those before its new place.
        let new = if new > old { new - 1 } else { new };
        match new > old {
            true => self.standings[old..=new].rotate_left(1),
            false => self.standings[new..=old].rotate_right(1),
        }
        self.standings[new] = to;
    }

    /// Recounts the unread bytes, without holes. Returns the old count.
    fn recount(&mut self, file: FileId, holes: &Holes) -> u64 {
        let (mut upto, mut unread) = (0, 0);
        for stream in &self.standings {
            let from = stream.position.max(upto);
            if from < stream.fetched {
                unread += stream.fetched - from - holes.bytes(file, from, stream.fetched);
                upto = stream.fetched;
            }
        }
        core::mem::replace(&mut self.unread, unread)
    }
}

/// All streams of one disk. Each operation takes time in the logarithm of their number and in the number of
/// streams of one file.
#[derive(Debug)]
pub(crate) struct Streams {
    config: StreamConfig,
    streams: BTreeMap<StreamId, Stream>,
    /// Files that have streams.
    files: BTreeMap<FileId, OfFile>,
    /// Streams by their last read ([`Stream::last`]).
    by_last: BTreeSet<(Nanos, StreamId)>,
    next: u64,
    /// Sum of [`OfFile::unread`].
    unread: u128,
    /// Number of streams for which [`Stream::waits`] holds.
    waiting: usize,
    persistence: Persistence,
    lengths: Lengths,
    arrivals: Arrivals,
    holes: Holes,
    runs: Runs,
    grids: Grids,
    /// Allowance for a client's jitter.
    slack: Nanos,
    /// Longest time that a stream lately waited for bytes that the kernel read, and when it had waited.
    longest_wait: (Nanos, Nanos),
    /// When to check next whether a stream has stopped. A read does not change it: a stream is checked a few
    /// times in its life, and reads thousands of times.
    by_look: ByTime<StreamId>,
}

impl Streams {
    /// No streams yet, on a disk that transfers `depth` bytes in the time of one switch.
    pub(crate) fn new(config: StreamConfig, depth: Bytes) -> Streams {
        let config = StreamConfig { streams_max: config.streams_max.max(1), ..config };
        Streams {
            config,
            streams: BTreeMap::new(),
            files: BTreeMap::new(),
            by_last: BTreeSet::new(),
            next: 0,
            unread: 0,
            waiting: 0,
            persistence: Persistence::new(depth),
            lengths: Lengths::default(),
            arrivals: Arrivals::default(),
            holes: Holes::default(),
            runs: Runs::default(),
            grids: Grids::default(),
            slack: Nanos::ZERO,
            longest_wait: (Nanos::ZERO, Nanos::ZERO),
            by_look: ByTime::default(),
        }
    }

    /// The holes of files.
    pub(crate) fn holes(&self) -> &Holes {
        &self.holes
    }

    pub(crate) fn change_holes(&mut self, file: FileId, change: impl FnOnce(&mut Holes)) {
        change(&mut self.holes);
        self.recount(file);
    }

    /// Bytes fetched for a stream and not yet read, without holes.
    pub(crate) fn unread_of(&self, stream: &Stream) -> u64 {
        stream.unread() - self.holes.bytes(stream.file, stream.position, stream.fetched)
    }

    /// Recounts the unread bytes of a file.
    fn recount(&mut self, file: FileId) {
        if let Some(of) = self.files.get_mut(&file) {
            self.unread -= u128::from(of.recount(file, &self.holes));
            self.unread += u128::from(of.unread);
        }
    }

    /// Sets the allowance for a client's jitter.
    pub(crate) fn with_slack(self, slack: Nanos) -> Streams {
        Streams { slack, ..self }
    }

    /// A stream has waited for bytes that the kernel read for it.
    pub(crate) fn waited(&mut self, now: Nanos, waited: Nanos) {
        let (longest, at) = self.longest_wait;
        if waited >= longest || now >= at + self.config.idle {
            self.longest_wait = (waited, now);
        }
    }

    /// How much longer than ever before a stream is silent when it counts as stopped. Nobody reports that a
    /// client waits for bytes that the kernel reads ahead, so a silence no longer than the reported waits for
    /// the kernel may be such a wait.
    fn patience(&self) -> Nanos {
        self.slack + self.longest_wait.0
    }

    /// Number of streams.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Number of streams that may still be read ahead for, or are being read.
    pub(crate) fn sharing(&self) -> usize {
        self.streams.len() - self.waiting
    }

    /// Fetched bytes that at least one stream has still to read. Bytes that several streams expect count
    /// once, because they are in memory once.
    pub(crate) fn unread(&self) -> u64 {
        u64::try_from(self.unread).unwrap_or(u64::MAX)
    }

    /// Sets a better value of the disk's depth.
    pub(crate) fn set_depth(&mut self, depth: Bytes) {
        self.persistence.set_depth(depth);
    }

    /// Whether readers stay to the end of what is fetched for them, from the streams that have ended.
    pub(crate) fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// How far readers read, from the streams that have ended.
    pub(crate) fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// Expected time until a reader begins at the head of a file, if known.
    pub(crate) fn next_arrival(&self, now: Nanos, file: FileId) -> Option<Nanos> {
        self.arrivals.next(now, file)
    }

    /// Whether nothing is known of how far a stream goes that does not begin at the head of its file.
    pub(crate) fn is_unknown(&self, stream: &Stream) -> bool {
        self.runs.is_unknown(stream.kind(), stream.run) && !self.ends_with_cell(stream)
    }

    /// End of the cell of the grid with the byte `at` of a stream's file, and whether streams end there, if
    /// that is known. Nothing if the file has no grid, and of a stream from the head of its file.
    pub(crate) fn cell(&self, stream: &Stream, at: u64) -> Option<(u64, Option<bool>)> {
        match stream.kind() {
            RunKind::Head => None,
            RunKind::Elsewhere | RunKind::Random => self.grids.cell(stream.file, at),
        }
    }

    /// Whether streams of this one's file are known to end with their cells.
    pub(crate) fn ends_with_cell(&self, stream: &Stream) -> bool {
        self.cell(stream, stream.position).is_some_and(|(_, ends)| ends == Some(true))
    }

    /// How much further a stream goes, by the streams of its kind that stopped lately; `None` if not known.
    pub(crate) fn run_rest(&self, stream: &Stream) -> Option<u64> {
        self.runs.rest(stream.kind(), stream.run)
    }

    /// How many streams of this one's kind went on after a first read of this length; `None` if not known, or
    /// if it has read already.
    pub(crate) fn went_on(&self, stream: &Stream, first: u64) -> Option<WentOn> {
        if stream.run > 0 { None } else { self.runs.went_on(stream.kind(), first) }
    }

    /// Whether the second read of a stream may have followed the first by chance, as blocks of a torrent do:
    /// most streams of its kind end with a first read like its own.
    pub(crate) fn may_be_chance(&self, stream: &Stream) -> bool {
        let went_on = || self.runs.went_on(stream.kind(), stream.first_read);
        stream.run > 0 && !stream.has_read_on() && went_on().is_some_and(|on| on.no > on.yes)
    }

    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.streams.get(&id)
    }

    /// The streams of one file, by rising position.
    pub(crate) fn of_file(&self, file: FileId) -> impl Iterator<Item = (StreamId, &Standing)> {
        self.of_file_from(file, 0)
    }

    /// The furthest stream of a file at or before `position`.
    pub(crate) fn of_file_before(&self, file: FileId, position: u64) -> Option<&Standing> {
        let of = self.files.get(&file)?;
        of.standings[..of.before((position, StreamId(u64::MAX)))].last()
    }

    /// The streams of a file at or behind `position`, towards the end of the file.
    fn of_file_from(&self, file: FileId, position: u64) -> impl Iterator<Item = (StreamId, &Standing)> {
        let streams = self.files.get(&file).map_or(&[][..], |of| {
            let behind = if position == 0 { 0 } else { of.before((position, StreamId(0))) };
            &of.standings[behind..]
        });
        streams.iter().map(|standing| (standing.id, standing))
    }

    /// Takes in an access to `[offset, offset + len)`. Returns the stream it belongs to, and the stream that
    /// made room for it. A length of 0 means that a client is about to read there.
    pub(crate) fn observe(
        &mut self,
        now: Nanos,
        file: FileId,
        offset: u64,
        len: u64,
        file_size: u64,
    ) -> (StreamId, Option<(StreamId, Stream)>) {
        let end = offset.saturating_add(len).min(file_size.max(offset));
        let found = self.continued_by(now, file, offset);
        let mut forgotten = None;
        let id = found.unwrap_or_else(|| {
            forgotten = self.make_room();
            self.begin(now, file, offset, file_size)
        });
        self.note_read(now, id);
        let (mut progress, mut jumped, mut goes_on) = (0, None, None);
        self.change(id, |stream| {
            // An access may repeat bytes; only new ones count as progress.
            progress = end.saturating_sub(stream.position.max(offset));
            stream.position = stream.position.max(end);
            stream.passed = stream.passed.max(offset);
            stream.fetched = stream.fetched.max(stream.position);
            stream.consumed = stream.consumed.saturating_add(progress);
            if len > 0 {
                let before = stream.accesses;
                jumped = stream.count(offset, end);
                goes_on = (before == 1 && stream.accesses == 2).then(|| (stream.kind(), stream.first_read));
            }
            stream.file_size = file_size;
            stream.last = stream.last.max(now);
            stream.misses = len == 0;
            stream.rate.record(now, progress);
        });
        self.persistence.read(progress);
        if let Some(run) = jumped {
            self.runs.ended(run, None);
        }
        if let Some((kind, first)) = goes_on {
            self.runs.goes_on(kind, first);
        }
        if len > 0 && progress > 0 {
            self.note_cell(now, id, (offset, end), jumped.is_some());
        }
        if len > 0 {
            self.note_met(id, (offset, end));
        }
        (id, forgotten)
    }

    /// Records whether an access ends where another stream of the file began. That counts only of a stream
    /// that began at a place of the file's grid and has come to another: viewers pass where others began.
    fn note_met(&mut self, id: StreamId, (offset, end): (u64, u64)) {
        let Some(stream) = self.streams.get(&id) else { return };
        let file = stream.file;
        let at_end = self.grids.is_on(file, stream.begin())
            && self.grids.reaches(file, offset, end) == Some(End::Full);
        let met = at_end && self.of_file(file).any(|(other, s)| other != id && s.first == end);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.has_met = met;
        }
    }

    /// Records where an access leaves a stream in its cell.
    fn note_cell(&mut self, now: Nanos, id: StreamId, (offset, end): (u64, u64), jumped: bool) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let (file, begin) = (stream.file, stream.begin());
        if jumped {
            stream.end = None;
            self.grids.begins(now, file, begin, self.config.streams_max);
        }
        if !self.grids.is_on(file, begin) {
            return;
        }
        let reaches = self.grids.reaches(file, offset, end);
        let now_at = match (stream.end, reaches) {
            // It had read its cell to the end and goes on.
            (Some(End::Full | End::Beyond), _) => Some(End::Beyond),
            (before, None) => before,
            (_, reaches) => reaches,
        };
        if now_at == stream.end {
            return;
        }
        if let Some(before) = core::mem::replace(&mut stream.end, now_at) {
            self.grids.take_back(file, before);
        }
        if let Some(end) = now_at {
            self.grids.count(file, end);
        }
    }

    /// Records that a stream reads, before the read is counted.
    fn note_read(&mut self, now: Nanos, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.longest_silence = stream.longest_silence.max(now.since(stream.last));
        if let Some(run) = stream.stopped.take() {
            self.runs.resumed(run);
            if stream.end == Some(End::Before) {
                stream.end = None;
                self.grids.take_back(stream.file, End::Before);
            }
            self.look(id, Nanos::ZERO);
        }
    }

    /// Records the I/O priority of its reader.
    pub(crate) fn told_priority(&mut self, id: StreamId, io: IoPriority) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.io = io;
        }
    }

    /// Records whether its reader announced random reads.
    pub(crate) fn advised(&mut self, id: StreamId, random: bool) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.random != random) else { return };
        stream.random = random;
        self.look(id, Nanos::ZERO);
    }

    /// Schedules the check whether a stream has stopped, not before `at`. Streams that begin at the head of
    /// their file are not checked.
    fn look(&mut self, id: StreamId, at: Nanos) {
        let patience = self.patience();
        let Some(stream) = self.streams.get(&id) else { return };
        if self.by_look.time(id).is_none() && stream.stopped.is_none() && stream.kind() != RunKind::Head {
            self.by_look.set(id, stream.stops_at(patience).max(at));
        }
    }

    /// Records which streams have stopped by now. A stream for which `waits` holds waits for its bytes; it
    /// has not stopped, and is checked again later.
    pub(crate) fn note_stopped(&mut self, now: Nanos, waits: impl Fn(&Stream) -> bool) {
        let patience = self.patience();
        while let Some(id) = self.by_look.pop_due(now) {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            let kind = stream.kind();
            if stream.stops_at(patience) > now || kind == RunKind::Head {
                self.look(id, Nanos::ZERO);
            } else if stream.misses || waits(stream) {
                self.look(id, now + self.slack);
            } else if stream.run > 0 {
                let run = stream.run();
                stream.stopped = Some(run);
                self.runs.stopped(run);
                if stream.end.is_none() && self.grids.is_on(stream.file, stream.begin()) {
                    stream.end = Some(End::Before);
                    self.grids.count(stream.file, End::Before);
                }
            }
        }
    }

    /// Records that everything before `upto` is fetched, or queued, for a stream.
    pub(crate) fn fetched(&mut self, id: StreamId, upto: u64) {
        let Some(Stream { file, fetched, .. }) = self.streams.get(&id) else { return };
        let from = self.holes.data_from(*file, *fetched);
        self.change(id, |stream| {
            if upto > stream.fetched {
                stream.piece = upto.saturating_sub(from);
                stream.fetched = upto;
            }
        });
    }

    /// Counts bytes that other streams of its file have fetched and not read as fetched for this one, as far
    /// as they adjoin.
    pub(crate) fn share(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (file, own) = (stream.file, stream.fetched);
        let mut upto = own;
        for (_, other) in self.of_file(file) {
            if other.position > upto {
                break;
            }
            upto = upto.max(other.fetched);
        }
        if upto > own {
            self.fetched(id, upto);
        }
    }

    /// Start of the first bytes past `from` that another stream of the file has fetched and not read.
    pub(crate) fn next_fetched(&self, id: StreamId, from: u64) -> Option<u64> {
        let file = self.streams.get(&id)?.file;
        let mut ahead = self.of_file_from(file, from.checked_add(1)?);
        ahead.find(|&(other, s)| other != id && s.fetched > s.position).map(|(_, s)| s.position)
    }

    /// Records that the bytes fetched for a stream from `from` on are not there: a read failed or was
    /// withdrawn, or the bytes were evicted before use.
    pub(crate) fn lost(&mut self, id: StreamId, from: u64) {
        self.change(id, |stream| stream.fetched = stream.fetched.min(from.max(stream.position)));
    }

    /// Records that a read for a stream failed at `from`.
    pub(crate) fn failed(&mut self, id: StreamId, from: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.failed = Some(from);
        }
    }

    /// Records where a stream's file lies on the disk: `offset` of the file at `lba`.
    pub(crate) fn locate(&mut self, id: StreamId, offset: u64, lba: Option<Lba>) {
        if let (Some(stream), Some(lba)) = (self.streams.get_mut(&id), lba) {
            stream.anchor = Some((offset, lba));
        }
    }

    /// Records that a stream has read everything before `upto`.
    pub(crate) fn passed(&mut self, id: StreamId, upto: u64) {
        self.change(id, |stream| stream.passed = stream.passed.max(upto.min(stream.position)));
    }

    /// When the next stream ends if it does not read before.
    pub(crate) fn next_expiry(&self) -> Option<Nanos> {
        self.by_last.first().map(|&(last, _)| last + self.config.idle)
    }

    /// Removes and returns one stream that has ended, with what it left unread.
    pub(crate) fn expire(&mut self, now: Nanos) -> Option<(StreamId, Stream)> {
        let &(_, id) = self.by_last.first().filter(|(last, _)| now >= *last + self.config.idle)?;
        Some((id, self.end(id)?))
    }

    /// Removes a stream that has ended.
    pub(crate) fn end(&mut self, id: StreamId) -> Option<Stream> {
        let over = self.remove(id)?;
        self.persistence.ended(over.unread_of_piece());
        self.lengths.ended(over.consumed);
        self.runs.ended(over.run(), over.stopped);
        Some(over)
    }

    /// All streams, in the order they began.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        self.streams.iter().map(|(&id, stream)| (id, stream))
    }

    /// The first stream after this one (of all, if `None`) that has fetched and unread bytes.
    pub(crate) fn next_unread(&self, after: Option<StreamId>) -> Option<(StreamId, &Stream)> {
        let later = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.streams.range(later).find(|(_, s)| s.unread() > 0).map(|(&id, s)| (id, s))
    }

    /// The stream that expects its next access nearest to `offset`, within the gap. Of a stream that has
    /// stopped, an access at the end of its fetched bytes is expected too, because the reports of the reads
    /// between may have been lost. If consumption is unconfirmed, match anywhere in the last read; prefer the
    /// closest confirmed position. Among confirmed streams at the same distance, prefer the oldest.
    fn continued_by(&self, now: Nanos, file: FileId, offset: u64) -> Option<StreamId> {
        let gap = self.config.gap.0;
        self.of_file(file)
            // A client that begins at the head is a new one, however close behind another.
            .filter(|(_, s)| offset > 0 || s.position == 0)
            .filter_map(|(id, s)| {
                let expected = offset.clamp(s.passed, s.position);
                let mut away = expected.abs_diff(offset);
                let at_end = s.fetched.abs_diff(offset);
                if at_end < away && at_end <= gap && self.may_have_read_on(now, id) {
                    away = at_end;
                }
                let uncertain = if s.passed < s.position { s.passed.abs_diff(offset) } else { 0 };
                (away <= gap).then_some((away, uncertain, id))
            })
            .min()
            .map(|(.., id)| id)
    }

    /// Whether a stream has been silent for so long that reports of its reads may have been lost.
    fn may_have_read_on(&self, now: Nanos, id: StreamId) -> bool {
        let silent = |s: &Stream| match s.kind() {
            RunKind::Head => !s.is_active(now, self.slack),
            RunKind::Elsewhere | RunKind::Random => s.stopped.is_some(),
        };
        self.streams.get(&id).is_some_and(silent)
    }

    /// Removes the stream idle longest if the table is full.
    fn make_room(&mut self) -> Option<(StreamId, Stream)> {
        if self.streams.len() < self.config.streams_max {
            return None;
        }
        let &(_, oldest) = self.by_last.first()?;
        let over = self.remove(oldest)?;
        self.lengths.ended(over.consumed);
        self.runs.ended(over.run(), over.stopped);
        Some((oldest, over))
    }

    fn begin(&mut self, now: Nanos, file: FileId, offset: u64, file_size: u64) -> StreamId {
        let id = StreamId(self.next);
        self.next += 1;
        match offset {
            0 => self.arrivals.arrived(now, file, self.config.streams_max),
            inside => self.grids.begins(now, file, inside, self.config.streams_max),
        }
        let stream = Stream {
            file,
            position: offset,
            passed: offset,
            fetched: offset,
            piece: 0,
            file_size,
            consumed: 0,
            accesses: 0,
            reached: offset,
            first: offset,
            last: now,
            random: false,
            io: IoPriority::NORMAL,
            longest_silence: Nanos::ZERO,
            misses: false,
            run: 0,
            first_read: 0,
            stopped: None,
            end: None,
            has_met: false,
            failed: None,
            anchor: None,
            rate: Rate::new(now),
        };
        self.by_last.insert((now, id));
        let of = self.files.entry(file).or_default();
        of.standings.insert(of.before((offset, id)), Standing::of(id, &stream));
        self.streams.insert(id, stream);
        self.look(id, Nanos::ZERO);
        id
    }

    fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let stream = self.streams.remove(&id)?;
        self.waiting -= usize::from(stream.waits());
        self.by_last.remove(&(stream.last, id));
        self.by_look.remove(id);
        if let Some(of) = self.files.get_mut(&stream.file) {
            of.standings.remove(of.before((stream.position, id)));
            let is_last = of.standings.is_empty();
            self.recount(stream.file);
            if is_last {
                self.files.remove(&stream.file);
            }
        }
        Some(stream)
    }

    /// Changes a stream, and the indexes that depend on it.
    fn change(&mut self, id: StreamId, change: impl FnOnce(&mut Stream)) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let (last, from) = (stream.last, Standing::of(id, stream));
        self.waiting -= usize::from(stream.waits());
        change(stream);
        self.waiting += usize::from(stream.waits());
        if stream.last != last {
            self.by_last.remove(&(last, id));
            self.by_last.insert((stream.last, id));
        }
        let (file, to) = (stream.file, Standing::of(id, stream));
        if to != from
            && let Some(of) = self.files.get_mut(&file)
        {
            of.moved(from, to);
            self.recount(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { dev: 1, ino: 7 };
    const K: u64 = 1024;

    fn secs(s: u64) -> Nanos {
        Nanos::from_secs(s)
    }

    /// The newer stream ends its read where the older one's fetched bytes end, so the next read could be
    /// either's.
    #[test]
    fn of_two_streams_as_near_the_older_goes_on_unless_it_is_uncertain() {
        const M: u64 = 1 << 20;
        let table = |all: bool| {
            let mut t = Streams::new(StreamConfig::default(), Bytes::mib(1));
            let (older, _) = t.observe(secs(0), FILE, 0, M, 64 * M);
            t.fetched(older, 8 * M);
            let (newer, _) = t.observe(secs(0), FILE, 4 * M, 4 * M, 64 * M);
            if all {
                t.passed(older, M);
                t.passed(newer, 8 * M);
            }
            let (next, _) = t.observe(secs(1), FILE, 8 * M, M, 64 * M);
            (next, older, newer)
        };
        let (next, older, _) = table(true);
        assert_eq!(next, older);
        let (next, _, newer) = table(false);
        assert_eq!(next, newer);
    }

    /// A client reads a file over several connections, a part of 8 MiB over each. One part is fetched whole
    /// when another connection begins the next.
    #[test]
    fn a_part_ends_where_another_connection_began_and_goes_on_where_none_did() {
        const M: u64 = 1 << 20;
        let mut t = Streams::new(StreamConfig::default(), Bytes::mib(1)).with_slack(secs(1));
        let (size, now) = (1 << 30, Nanos::from_millis(100));
        for part in 4..12 {
            t.observe(Nanos::ZERO, FILE, part * 8 * M, 2 * M, size);
        }
        let first = t.observe(Nanos::ZERO, FILE, 8 * M, 2 * M, size).0;
        t.fetched(first, 16 * M);
        let second = t.observe(now, FILE, 16 * M, 2 * M, size).0;
        assert_ne!(first, second, "the first connection is still there");
        assert_eq!(t.observe(now, FILE, 10 * M, 6 * M, size).0, first);
        assert!(!t.get(first).unwrap().is_done(), "it may still be taking its last read");
        t.passed(first, 16 * M);
        assert!(t.get(first).unwrap().is_done());
        t.observe(now, FILE, 18 * M, 6 * M, size);
        t.passed(second, 24 * M);
        assert!(!t.get(second).unwrap().is_done());
        assert_eq!(t.observe(now, FILE, 24 * M, 2 * M, size).0, second);
    }

    /// A slow disk keeps clients waiting for seconds, also those that the kernel reads for.
    #[test]
    fn a_stream_that_waits_for_the_disk_has_not_stopped() {
        const M: u64 = 1 << 20;
        let mut t = Streams::new(StreamConfig::default(), Bytes::mib(1)).with_slack(secs(1));
        let (id, _) = t.observe(secs(0), FILE, 8 * M, 16 * K, 64 * M);
        t.observe(secs(0), FILE, 8 * M + 16 * K, 0, 64 * M);
        t.note_stopped(secs(5), |_| false);
        assert_eq!(t.get(id).unwrap().stopped, None, "it waits");
        t.observe(secs(6), FILE, 8 * M + 16 * K, 16 * K, 64 * M);
        t.note_stopped(secs(14), |_| false);
        assert!(t.get(id).unwrap().stopped.is_some(), "it has read and is silent");
    }

    /// Waits for what the kernel reads ahead are not reported.
    #[test]
    fn where_streams_wait_long_for_the_kernel_a_silence_as_long_is_no_stop() {
        const M: u64 = 1 << 20;
        let mut t = Streams::new(StreamConfig::default(), Bytes::mib(1)).with_slack(secs(1));
        t.waited(secs(1), secs(4));
        let (id, _) = t.observe(secs(1), FILE, 8 * M, 16 * K, 64 * M);
        t.note_stopped(secs(5), |_| false);
        assert_eq!(t.get(id).unwrap().stopped, None);
        t.note_stopped(secs(7), |_| false);
        assert!(t.get(id).unwrap().stopped.is_some());
        // Such waits are over.
        t.waited(secs(40), Nanos::ZERO);
        let (id, _) = t.observe(secs(40), FILE, 16 * M, 16 * K, 64 * M);
        t.note_stopped(secs(42), |_| false);
        assert!(t.get(id).unwrap().stopped.is_some());
    }

    #[test]
    fn a_stream_whose_reports_were_lost_goes_on_where_its_fetched_bytes_end() {
        const M: u64 = 1 << 20;
        let mut t = Streams::new(StreamConfig::default(), Bytes::mib(1)).with_slack(secs(1));
        for begin in [0, 512 * M] {
            let id = t.observe(secs(0), FILE, begin, M, 1 << 30).0;
            t.fetched(id, begin + 8 * M);
            t.note_stopped(secs(5), |_| false);
            assert_eq!(t.observe(secs(5), FILE, begin + 8 * M, M, 1 << 30).0, id);
        }
    }

    #[test]
    fn two_viewers_of_one_file_are_two_streams() {
        let mut streams = Streams::new(StreamConfig::default(), Bytes::mib(1));
        let size = 100_000 * K;
        let a = streams.observe(secs(0), FILE, 0, 512 * K, size).0;
        let b = streams.observe(secs(1), FILE, 20_000 * K, 512 * K, size).0;
        assert_ne!(a, b);
        assert_eq!(streams.observe(secs(2), FILE, 512 * K, 512 * K, size).0, a);
        assert_eq!(streams.observe(secs(3), FILE, 20_512 * K, 512 * K, size).0, b);
        assert!([a, b].iter().all(|&id| streams.get(id).unwrap().is_sequential()));
        let c = streams.observe(secs(4), FILE, 60_000 * K, 512 * K, size).0;
        assert!(!streams.get(c).unwrap().is_sequential(), "the second access tells");
    }

    #[test]
    fn random_reads_never_become_sequential() {
        let mut streams = Streams::new(StreamConfig::default(), Bytes::mib(1));
        for i in 0..100u64 {
            let at = (i * 7919 % 100) * 4096 * K;
            let id = streams.observe(secs(i / 10), FILE, at, 64 * K, 1 << 40).0;
            assert!(!streams.get(id).unwrap().is_sequential(), "access {i}");
        }
    }

    #[test]
    fn random_reads_near_one_another_never_become_sequential() {
        let mut streams = Streams::new(StreamConfig::default(), Bytes::mib(1));
        for (i, at) in [1024, 1216, 832, 1408, 960, 1280, 1088].into_iter().enumerate() {
            let id = streams.observe(secs(i as u64), FILE, at * K, 64 * K, 4096 * K).0;
            assert!(!streams.get(id).unwrap().is_sequential(), "access {i}");
        }
        // A client known to be sequential stays sequential when it skips.
        let mut id = StreamId(0);
        for (i, at) in [2048, 2112, 2176, 2560].into_iter().enumerate() {
            id = streams.observe(secs(10 + i as u64), FILE, at * K, 64 * K, 4096 * K).0;
        }
        assert!(streams.get(id).unwrap().is_sequential());
    }

    #[test]
    fn unread_is_what_was_fetched_and_not_read() {
        let mut streams = Streams::new(StreamConfig::default(), Bytes::mib(1));
        let id = streams.observe(secs(0), FILE, 0, 512 * K, 1 << 30).0;
        streams.fetched(id, 4096 * K);
        assert_eq!(streams.unread(), 3584 * K);
        streams.observe(secs(1), FILE, 512 * K, 512 * K, 1 << 30);
        assert_eq!(streams.unread(), 3072 * K);
        streams.lost(id, 2048 * K);
        assert_eq!(streams.unread(), 1024 * K);
        assert!(streams.expire(secs(30)).is_none());
        let (_, over) = streams.expire(secs(31)).unwrap();
        assert_eq!(over.unread(), 1024 * K);
        assert_eq!((streams.unread(), streams.len()), (0, 0));
    }

    #[test]
    fn it_runs_dry_when_its_rate_says() {
        let mut streams = Streams::new(StreamConfig::default(), Bytes::mib(1));
        let mut id = StreamId(0);
        for i in 0..100u64 {
            id = streams.observe(Nanos::from_millis(i * 100), FILE, i * 100_000, 100_000, 1 << 40).0;
        }
        streams.fetched(id, 12_000_000);
        let now = Nanos::from_millis(9_900);
        let dry_s = streams.get(id).unwrap().runs_dry(now, None).since(now).as_secs_f64();
        assert!((dry_s - 2.0).abs() < 0.05, "{dry_s}");
    }

    #[test]
    fn the_table_is_bounded() {
        let mut streams =
            Streams::new(StreamConfig { streams_max: 3, ..StreamConfig::default() }, Bytes::mib(1));
        for ino in 0..10 {
            streams.observe(secs(ino), FileId { dev: 1, ino }, 0, 4096, 1 << 20);
            assert!(streams.len() <= 3);
        }
        assert_eq!(streams.files.len(), 3);
    }
}
