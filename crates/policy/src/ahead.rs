//! Reading before it is needed: when a stream's next piece is queued, how long it is, and what is given back.
//!
//! A stream is fetched in pieces. While it reads one, the next is queued as soon as what is left would last only as
//! long as the disk may take to come round to it - the trigger. The piece's deadline is the moment the stream runs dry.
//! What bounds how much lies in memory unread, and what uses the room there is:
//!
//! - the *budget* for prefetched and unread bytes of the whole disk. Over it, streams are held back and reminded in
//!   the order of their deadlines; a reader that is blocked is served all the same, with no more than its share;
//! - the *share*: with many streams a piece is no longer than twice one stream's part of the budget: it is half read on the
//!   mean. Of simulated sessions (WD Red, 2 GiB, 150 requests/s) 96 failed with one and a half times, none with twice;
//! - *early*: a disk with nothing better to do, and memory to spare, fetches for the streams that run dry next. Viewers who
//!   came together would run dry together (8 GiB, 8 MiB: 171 requests/s without a failure instead of 124);
//! - *persistence*: most viewers leave early (\[L\] 4), so a piece is no longer than what its stream has read so far,
//!   and the first is half of the full size (or what the sizing algorithm says). It is slow start (\[C\] 2) driven by
//!   what the reader did, not by how often it was prefetched for. Where readers are seen to stay
//!   ([`crate::Persistence`]) it does not bind.
//!
//! What another stream of the same file has in memory ahead of itself is not fetched again: a stream counts on it, and its
//! pieces end where that begins.
//!
//! *Drop-behind* gives back what the last reader of a file has passed, and what a viewer who left did not come to, when bytes are seen to be evicted before they are
//! read: what was read once would otherwise push out what was not read yet. It ends a while after the last such sign, when a quarter of the
//! budget is free. Without one it is left to the page
//! cache, because the next viewer may come for it: on the closed-loop scenario dropping always cost 13 % of what is served.

use core::fmt;
use core::str::FromStr;

use seekless_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::config::UnknownName;
use crate::{PAGE, Stream, StreamConfig, StreamId, Streams};

/// Evicted unread bytes within [`PRESSURE_WINDOW`], as a part of what was fetched, that mean that memory is short: less
/// than the hundredth at which the budget gives way.
const PRESSURE_DIVISOR: u64 = 128;

/// Least that counts as fetched, so that a few pages on an idle disk mean nothing.
const PRESSURE_LEAST: u64 = 256 << 20;

/// Over how long evictions are counted.
const PRESSURE_WINDOW: Nanos = Nanos::from_secs(10);

/// How long memory counts as short after that, the first time: a server that has just begun serves viewers who came together, which
/// passes, and what is given back meanwhile nobody finds in memory (10k rpm, SD, 8 GiB, simulated: 141 requests/s with ten minutes of it, 150
/// without). Longer where the budget stays full, [`Pressure::none_to_spare`].
const PRESSURE_LASTS: Nanos = Nanos::from_secs(60);

/// Twice as long each time it comes back within as long again, and at most ten minutes: what was given back in the meantime is no loss
/// beside running into the same wall every half minute (simulated sessions with 30 s each time: 10 % of what is requested was
/// evicted unread).
const PRESSURE_LASTS_MAX: Nanos = Nanos::from_secs(600);

/// After so long what drop-behind can give has been given.
const PRESSURE_SETTLED: Nanos = Nanos::from_secs(10);

/// What a stream keeps behind itself: its next read begins in the page its last one ended in, and a server may read a little twice.
pub const KEEP_BEHIND: u64 = 128 << 10;

/// Drop-behind acts on at least this much at a time: one call for many pages. With 512 KiB kept and steps of 1 MiB, 1,300
/// streams held a gigabyte that nobody would read.
const DROP_STEP: u64 = 256 << 10;

/// After so long without another, a read that was begun has taken all it named. A socket takes the rest of a `sendfile` as the client
/// makes room, every second or so at the slowest links of the papers.
pub(crate) const TAKEN_AFTER: Nanos = Nanos::from_secs(4);

/// A reader that has been silent for so long may have left: nothing is read ahead for it until it reads again. A player asks
/// for at most ten seconds at a time.
const QUIET: Nanos = Nanos::from_secs(12);

/// When bytes behind a stream are given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropBehind {
    /// Never: the page cache ages them.
    Never,
    /// For a while after more than a 128th of what was fetched was found gone before its reader came.
    #[default]
    Pressure,
    /// As soon as the last reader has passed.
    Always,
}

impl FromStr for DropBehind {
    type Err = UnknownName;

    fn from_str(s: &str) -> Result<DropBehind, UnknownName> {
        match s {
            "never" => Ok(DropBehind::Never),
            "pressure" => Ok(DropBehind::Pressure),
            "always" => Ok(DropBehind::Always),
            _ => Err(UnknownName { known: "never, pressure, always" }),
        }
    }
}

impl fmt::Display for DropBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DropBehind::Never => "never",
            DropBehind::Pressure => "pressure",
            DropBehind::Always => "always",
        })
    }
}

/// Settings of reading ahead of need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AheadConfig {
    /// How streams are recognised.
    pub streams: StreamConfig,
    /// Most bytes fetched and not yet read, of all streams of the disk. The driver keeps it to what the page cache can
    /// hold ([`crate::Event::Budget`]).
    pub budget: Bytes,
    /// Slack added to twice the backlog of the disk: covers a neighbour's burst and the reader's own jitter.
    pub slack: Nanos,
    /// When bytes behind a stream are given back.
    pub drop_behind: DropBehind,
}

impl Default for AheadConfig {
    fn default() -> AheadConfig {
        AheadConfig {
            streams: StreamConfig::default(),
            budget: Bytes::gib(1),
            slack: Nanos::from_secs(1),
            drop_behind: DropBehind::Pressure,
        }
    }
}

/// Whether memory is short, from what is found evicted before it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pressure {
    window_start: Nanos,
    evicted: u64,
    /// Bytes fetched in all when the window began.
    fetched_before: u64,
    short_since: Nanos,
    short_until: Nanos,
    /// How long it counts as short at a time.
    lasts: Nanos,
}

impl Pressure {
    /// `bytes` were gone before their reader came; `fetched` bytes have been in all.
    pub(crate) fn evicted(&mut self, now: Nanos, bytes: u64, fetched: u64) {
        if now.since(self.window_start) > PRESSURE_WINDOW {
            (self.window_start, self.evicted, self.fetched_before) = (now, 0, fetched);
        }
        self.evicted = self.evicted.saturating_add(bytes);
        let since = fetched.saturating_sub(self.fetched_before).max(PRESSURE_LEAST);
        if self.evicted > since / PRESSURE_DIVISOR {
            if !self.is_short(now) {
                let soon = self.lasts > Nanos::ZERO && now.since(self.short_until) <= self.lasts;
                self.lasts =
                    if soon { PRESSURE_LASTS_MAX.min(self.lasts + self.lasts) } else { PRESSURE_LASTS };
                self.short_since = now;
            }
            self.short_until = now + self.lasts;
        }
    }

    /// There is no memory to spare: where it counts as short it does so for as long as a window at least. What has been read would take
    /// the room of what has not, if it were let be: a simulated disk with 2 GiB for 2,600 viewers (20 TB, SD, 284 requests/s) lost 152 MiB of
    /// 1,500 unread in the four seconds until that was seen, 1.5 % of what was requested.
    pub(crate) fn none_to_spare(&mut self, now: Nanos) {
        if self.is_short(now) {
            self.short_until = self.short_until.max(now + PRESSURE_WINDOW);
        }
    }

    /// Whether memory counts as short now.
    pub(crate) fn is_short(&self, now: Nanos) -> bool {
        now < self.short_until
    }

    /// Since when what is fetched has found all the room that giving back makes; `None` while memory is not short.
    pub(crate) fn settled(&self, now: Nanos) -> Option<Nanos> {
        self.is_short(now).then(|| self.short_since + PRESSURE_SETTLED)
    }
}

/// What the sizing algorithm says about a stream's pieces, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PieceLen {
    pub(crate) full: u64,
    pub(crate) first: u64,
    /// The stream's bitrate if somebody said so, bytes a second.
    pub(crate) bitrate: Option<f64>,
}

/// A piece to queue on behalf of a stream: `[start, end)`, in whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// When the stream runs dry.
    pub(crate) deadline: Nanos,
}

fn next_page(offset: u64) -> u64 {
    offset.min(i64::MAX as u64).next_multiple_of(PAGE)
}

impl AheadConfig {
    /// Bytes that bound a stream's pieces: twice its part of the budget.
    pub(crate) fn share(&self, streams: &Streams) -> u64 {
        (self.budget.0 / streams.len().max(1) as u64).saturating_mul(2)
    }

    /// Longest piece for a reader who is blocked: he is served whether there is room in the budget or not, with a plain part where it
    /// is exceeded by a fifth. Without that a live run with a rising load had 8.6 GB fetched and not read on a budget of 2.9, and
    /// 6.8 % of what was requested was evicted unread.
    pub(crate) fn piece_max_blocked(&self, streams: &Streams, stream: &Stream, len: PieceLen) -> u64 {
        let piece = self.piece_max(streams, stream, len);
        match streams.unread().saturating_add(piece) <= self.budget.0.saturating_add(self.budget.0 / 5) {
            true => piece,
            false => piece.min(self.share(streams) / 2).max(PAGE) / PAGE * PAGE,
        }
    }

    /// Whether there is memory for a piece of `len` bytes before it is due.
    pub(crate) fn may_be_early(&self, streams: &Streams, len: u64) -> bool {
        len <= self.share(streams) && self.has_to_spare(streams)
    }

    /// Whether a quarter of the budget is free.
    pub(crate) fn has_to_spare(&self, streams: &Streams) -> bool {
        streams.unread() <= self.budget.0 / 4 * 3
    }

    /// Longest piece for a stream: persistence and share, at least a page.
    fn piece_max(&self, streams: &Streams, stream: &Stream, len: PieceLen) -> u64 {
        let PieceLen { full, first, .. } = len;
        let grown = match streams.persistence().stays() {
            true => full,
            false => stream.consumed.max(first),
        };
        full.min(grown).min(self.share(streams)).max(PAGE) / PAGE * PAGE
    }

    /// When a stream runs dry, as of its last read: what it asks for in one go it uses in the time until the next. `None` while there
    /// is nothing to read ahead for it: it is quiet, not sequential, fetched to its end, or has two pieces ahead of it (how fast it
    /// reads is not known from its first burst).
    pub(crate) fn runs_dry(&self, now: Nanos, stream: &Stream, len: PieceLen) -> Option<Nanos> {
        let quiet = now.since(stream.last) > QUIET;
        let fetched = next_page(stream.fetched) >= next_page(stream.file_size);
        let enough = stream.unread() >= len.full.saturating_mul(2);
        if quiet || fetched || enough || len.full < PAGE || !stream.is_sequential(&self.streams) {
            return None;
        }
        Some(stream.runs_dry(stream.last, len.bitrate))
    }

    /// A stream's next piece, for one that runs dry at `dry`. `None` if the budget has no room.
    pub(crate) fn next_piece(
        &self,
        streams: &Streams,
        id: StreamId,
        len: PieceLen,
        dry: Nanos,
    ) -> Option<Ahead> {
        let stream = streams.get(id)?;
        // Rounded up: a page that is partly fetched is fetched.
        let start = next_page(stream.fetched);
        let len = self.piece_max(streams, stream, len);
        let end = start.saturating_add(len).min(next_page(stream.file_size));
        let end = match streams.next_fetched(id, start) {
            Some(next) => end.min(next.max(start + PAGE) / PAGE * PAGE),
            None => end,
        };
        // Where the whole piece finds no room half of it will do: a plain share.
        let room = self.budget.0.saturating_sub(streams.unread()) / PAGE * PAGE;
        let least = end.checked_sub(start)?.min(len / 2);
        let end = end.min(start.saturating_add(room));
        (room >= least.max(1)).then_some(Ahead { start, end, deadline: dry })
    }

    /// Whether what has been read is given back now.
    pub(crate) fn gives_back(&self, short: bool) -> bool {
        match self.drop_behind {
            DropBehind::Never => false,
            DropBehind::Pressure => short,
            DropBehind::Always => true,
        }
    }

    /// What of a stream's file is given back now, if anything: start and end, in whole pages.
    pub(crate) fn passed(&self, streams: &Streams, id: StreamId, short: bool) -> Option<(u64, u64)> {
        let stream = streams.get(id).filter(|s| self.gives_back(short) && s.is_sequential(&self.streams))?;
        let (end, least) = match stream.at_end() {
            true => (stream.passed, PAGE),
            false => (stream.passed.saturating_sub(KEEP_BEHIND), DROP_STEP),
        };
        behind(streams, stream, end).filter(|(start, end)| end - start >= least)
    }

    /// What a stream that is over leaves in memory, read or not, and nobody behind it will come to.
    pub(crate) fn left_behind(&self, streams: &Streams, over: &Stream, short: bool) -> Option<(u64, u64)> {
        behind(streams, over, over.fetched.max(over.position)).filter(|_| self.gives_back(short))
    }
}

/// What of a stream has not been given back yet and lies before `end` and before every reader of the file.
fn behind(streams: &Streams, stream: &Stream, end: u64) -> Option<(u64, u64)> {
    let end = streams.of_file(stream.file).map(|(_, s)| s.passed).fold(end, u64::min);
    let (start, end) = (next_page(stream.dropped), end / PAGE * PAGE);
    (start < end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_that_comes_back_lasts_longer() {
        let (mut pressure, mut now, mut fetched) = (Pressure::default(), Nanos::from_secs(100), 0);
        // Evictions beyond the bound; how many seconds it is short for then.
        let mut evicted = |wait: u64| {
            now += Nanos::from_secs(wait);
            fetched += 1 << 30;
            pressure.evicted(now, 1 << 30, fetched);
            let until = pressure.short_until.since(now).0 / 1_000_000_000;
            assert!(pressure.is_short(now + Nanos::from_secs(until - 1)));
            assert!(!pressure.is_short(now + Nanos::from_secs(until)));
            until
        };
        assert_eq!(evicted(0), 60);
        assert_eq!(evicted(30), 60, "while it lasts it is drawn out");
        assert_eq!(evicted(61), 120, "back at once");
        assert_eq!([evicted(200), evicted(300), evicted(600), evicted(700)], [240, 480, 600, 600]);
        assert_eq!(evicted(1201), 60, "not for as long as it lasted");
    }

    #[test]
    fn pressure_does_not_end_while_there_is_nothing_to_spare() {
        let (mut pressure, at) = (Pressure::default(), Nanos::from_secs);
        pressure.none_to_spare(at(100));
        assert!(!pressure.is_short(at(100)), "a full budget is no sign by itself");
        pressure.evicted(at(100), 1 << 30, 1 << 30);
        (100..300).for_each(|s| pressure.none_to_spare(at(s)));
        assert!(pressure.is_short(at(308)) && !pressure.is_short(at(309)));
        pressure.none_to_spare(at(310));
        assert!(!pressure.is_short(at(310)));
        pressure.evicted(at(311), 1 << 30, 2 << 30);
        assert_eq!(pressure.short_until, at(431), "it was back at once");
    }
}
