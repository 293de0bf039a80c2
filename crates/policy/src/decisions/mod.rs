//! A decision log: what went into a [`DiskEngine`](crate::DiskEngine) and what came out, as lines
//! of text.
//!
//! ```text
//! seekless-decisions 8                        first line: the format's version
//! 0 0 disk sda {"mode":"both",...}            disk 0 is `sda`; its settings, as JSON
//! 0 0 + memory 1073741824                      bytes of page cache that this disk has
//! 0 1400000 + writes 12 1048576                 requests that wait, bytes written since
//! 0 1500000 + request 7 2049:131 0 524288 104857600 81920
//! 0 1500000 - read 0 2049:131 0 2097152 81920
//! 0 19700000 + progress 0 524288
//! 0 19700000 - answer 7 resident
//! 0 19700000 - pin 2049:131 524288 1572864     also probe, renew, drop, unpin (`cold` if no client comes)
//! 0 59700000000 - close 2049:131
//! ```
//!
//! A line: number of the disk, nanoseconds since its engine began, `+` for an event or `-` for an action, its
//! word, its fields. Files are `device:inode`, addresses sectors or `?`. Optional ends of a line:
//!
//! - a request: `from OFFSET` if its read begins before what is missing, `deadline NANOS`,
//!   `bitrate BYTES_PER_S`, `foretold` if no client asks for it yet, `file-set` if a file set asks for it,
//!   `random` if its reader said that it reads at random, `idle` if it is of the idle class, `weight N` if
//!   it weighs more or less than others;
//! - `took REQUEST`: `unread` if a file set's reader will never read what it asked for;
//! - an access: `begun` if it is not known how much of it was taken ([`Taken`]);
//! - what was found of a read, or is gone: `from OFFSET` unless that is 0.
//!
//! Lines that begin with `#` are remarks. A fresh engine of the same settings, fed the events of one disk at
//! their times and polled wherever the log polled, gives the same actions. A log that was cut replays up to
//! there.
//!
//! Must not know: files, paths, clocks.
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use seekless_base::{Bytes, Lba, Nanos};

use crate::{
    Access, Action, Config, Demand, Event, FileId, IoPriority, MemoryLimit, Outcome, ReadId, Request,
    RequestId, Taken, Verdict, Writes,
};

/// The first line of a log.
pub const FIRST_LINE: &str = "seekless-decisions 8";

/// What first lines of every version begin with.
pub const FORMAT: &str = "seekless-decisions ";

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A disk begins: its name and settings.
    Disk {
        /// Kernel name; one word.
        name: String,
        /// As the engine was made with.
        config: Box<Config>,
    },
    /// Went in.
    Event(Event),
    /// Came out.
    Action(Action),
}

/// One line of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Which of the log's disks.
    pub disk: u32,
    /// Since its engine began.
    pub at: Nanos,
    /// What happened.
    pub entry: Entry,
}

/// A line that is none, with what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(pub &'static str);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a line of a decision log: {}", self.0)
    }
}

impl core::error::Error for Unreadable {}

/// An address, or `?`.
struct Place(Option<Lba>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(lba) => write!(f, "{}", lba.0),
            None => f.write_str("?"),
        }
    }
}

/// `device:inode`.
struct Name(FileId);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.dev, self.0.ino)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.disk, self.at.0)?;
        match &self.entry {
            Entry::Disk { name, config } => {
                let text = serde_json::to_string(config).map_err(|_| fmt::Error)?;
                // One word: a mount point may have blanks.
                let word = name.split_whitespace().collect::<alloc::vec::Vec<_>>().join("_");
                write!(f, "disk {} {text}", if word.is_empty() { "?" } else { &word })
            }
            Entry::Event(event) => write_event(f, event),
            Entry::Action(action) => write_action(f, action),
        }
    }
}

fn write_event(f: &mut fmt::Formatter<'_>, event: &Event) -> fmt::Result {
    match *event {
        Event::Request(r) => {
            let (file, lba) = (Name(r.file), Place(r.lba));
            write!(f, "+ request {} {file} {} {} {} {lba}", r.id.0, r.offset, r.len, r.file_size)?;
            if r.from != r.offset {
                write!(f, " from {}", r.from)?;
            }
            write_demand(f, r.demand)
        }
        Event::Access(a) => {
            let (file, lba) = (Name(a.file), Place(a.lba));
            write!(f, "+ access {file} {} {} {} {lba}", a.offset, a.len, a.file_size)?;
            match a.taken {
                Taken::All => Ok(()),
                Taken::Unknown => write!(f, " begun"),
            }
        }
        Event::Missing { file, offset, len } => write!(f, "+ missing {} {offset} {len}", Name(file)),
        Event::ReadByKernel { file, offset, len } => write!(f, "+ by-kernel {} {offset} {len}", Name(file)),
        Event::CachedAbove { file, offset, len } => write!(f, "+ release {} {offset} {len}", Name(file)),
        Event::Took { request, read } => {
            write!(f, "+ took {}{}", request.0, if read { "" } else { " unread" })
        }
        Event::Bitrate { file, bytes_per_s } => write!(f, "+ bitrate {} {bytes_per_s}", Name(file)),
        Event::Opened { file } => write!(f, "+ opened {}", Name(file)),
        Event::Leave { file } => write!(f, "+ leave {}", Name(file)),
        Event::Hole { file, from, upto } => write!(f, "+ hole {} {from} {upto}", Name(file)),
        Event::Written { file, from, upto } => write!(f, "+ written {} {from} {upto}", Name(file)),
        Event::MemoryLimit(MemoryLimit { bytes, tasks_wait }) => {
            write!(f, "+ memory {}{}", bytes.0, if tasks_wait { " waits" } else { "" })
        }
        Event::Rest(rests) => f.write_str(if rests { "+ rest on" } else { "+ rest off" }),
        Event::InFlight(pieces) => write!(f, "+ in-flight {pieces}"),
        Event::Writes(Writes { waiting, bytes }) => {
            write!(f, "+ writes {waiting} {bytes}")
        }
        Event::Cancel(id) => write!(f, "+ cancel {}", id.0),
        Event::Progress { read, upto } => write!(f, "+ progress {} {upto}", read.0),
        Event::Found { read, from, upto } => write_stretch(f, "found", read, from, upto),
        Event::Gone { read, from, upto } => write_stretch(f, "gone", read, from, upto),
        Event::Done { read, outcome } => {
            write!(f, "+ done {} {}", read.0, if outcome == Outcome::Ok { "ok" } else { "failed" })
        }
        Event::Tick => f.write_str("+ tick"),
    }
}

/// Nothing where nothing is known.
fn write_demand(f: &mut fmt::Formatter<'_>, demand: Demand) -> fmt::Result {
    if let Some(deadline) = demand.deadline {
        write!(f, " deadline {}", deadline.0)?;
    }
    if let Some(bitrate) = demand.bitrate {
        write!(f, " bitrate {bitrate}")?;
    }
    if demand.predicted {
        f.write_str(" foretold")?;
    }
    if demand.joins_kernel {
        f.write_str(" along")?;
    }
    if demand.file_set {
        f.write_str(" file-set")?;
    }
    if demand.random {
        f.write_str(" random")?;
    }
    if demand.io.idle {
        f.write_str(" idle")?;
    }
    let usual = if demand.io.idle { IoPriority::IDLE } else { IoPriority::NORMAL };
    if demand.io.weight != usual.weight {
        write!(f, " weight {}", demand.io.weight)?;
    }
    Ok(())
}

fn write_stretch(f: &mut fmt::Formatter<'_>, word: &str, read: ReadId, from: u64, upto: u64) -> fmt::Result {
    write!(f, "+ {word} {} {upto}", read.0)?;
    if from > 0 {
        write!(f, " from {from}")?;
    }
    Ok(())
}

fn write_action(f: &mut fmt::Formatter<'_>, action: &Action) -> fmt::Result {
    match *action {
        Action::Read { id, file, offset, len, lba } => {
            write!(f, "- read {} {} {offset} {len} {}", id.0, Name(file), Place(lba))
        }
        Action::Drop { file, offset, len } => write!(f, "- drop {} {offset} {len}", Name(file)),
        Action::Probe { file, offset, len } => write!(f, "- probe {} {offset} {len}", Name(file)),
        Action::Pin { file, offset, len } => write!(f, "- pin {} {offset} {len}", Name(file)),
        Action::Renew { file, offset, len } => write!(f, "- renew {} {offset} {len}", Name(file)),
        Action::Unpin { file, offset, len, cold } => {
            write!(f, "- unpin {} {offset} {len}{}", Name(file), if cold { " cold" } else { "" })
        }
        Action::Close { file } => write!(f, "- close {}", Name(file)),
        Action::Answer { request, verdict } => {
            let word = match verdict {
                Verdict::Resident => "resident",
                Verdict::Pass(reason) => reason.name(),
            };
            write!(f, "- answer {} {word}", request.0)
        }
    }
}

/// The words of a line, one after the other.
struct Words<'a>(core::str::SplitAsciiWhitespace<'a>);

impl Words<'_> {
    fn word(&mut self) -> Result<&str, Unreadable> {
        self.0.next().ok_or(Unreadable("it ends early"))
    }

    fn number(&mut self) -> Result<u64, Unreadable> {
        self.word()?.parse().map_err(|_| Unreadable("a field is no whole number"))
    }

    fn file(&mut self) -> Result<FileId, Unreadable> {
        let wrong = Unreadable("a file is not device:inode");
        let (dev, ino) = self.word()?.split_once(':').ok_or(wrong.clone())?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong.clone());
        Ok(FileId { dev: number(dev)?, ino: number(ino)? })
    }

    fn place(&mut self) -> Result<Option<Lba>, Unreadable> {
        match self.word()? {
            "?" => Ok(None),
            text => text.parse().map(|lba| Some(Lba(lba))).map_err(|_| Unreadable("an address is no number")),
        }
    }

    /// To the end of the line.
    fn request(&mut self) -> Result<Request, Unreadable> {
        let (id, file, offset) = (RequestId(self.number()?), self.file()?, self.number()?);
        let (len, file_size, lba) = (self.number()?, self.number()?, self.place()?);
        let demand = Demand::default();
        let mut request = Request { id, file, from: offset, offset, len, file_size, lba, demand };
        while let Some(word) = self.0.next() {
            match word {
                "from" => request.from = self.number()?,
                "deadline" => request.demand.deadline = Some(Nanos(self.number()?)),
                "bitrate" => request.demand.bitrate = Some(self.number()?),
                "foretold" => request.demand.predicted = true,
                "along" => request.demand.joins_kernel = true,
                "file-set" => request.demand.file_set = true,
                "random" => request.demand.random = true,
                "idle" => request.demand.io = IoPriority::IDLE,
                "weight" => {
                    let weight = u32::try_from(self.number()?);
                    let weight = weight.map_err(|_| Unreadable("a weight is out of range"))?;
                    request.demand.io.weight = weight;
                }
                _ => {
                    return Err(Unreadable(
                        "a request names from, deadline, bitrate, foretold, along, file-set, random, idle and weight only",
                    ));
                }
            }
        }
        Ok(request)
    }

    /// Read, beginning and end, to the end of the line.
    fn stretch(&mut self) -> Result<(ReadId, u64, u64), Unreadable> {
        let (read, upto) = (ReadId(self.number()?), self.number()?);
        let from = match self.0.next() {
            None => 0,
            Some("from") => self.number()?,
            Some(_) => return Err(Unreadable("what was found or is gone ends there or says `from`")),
        };
        Ok((read, from, upto))
    }

    /// To the end of the line.
    fn memory(&mut self) -> Result<MemoryLimit, Unreadable> {
        let bytes = Bytes(self.number()?);
        let tasks_wait = self.last("waits", "a report of memory ends there or says `waits`")?;
        Ok(MemoryLimit { bytes, tasks_wait })
    }

    /// Whether the line ends with this word instead of here.
    fn last(&mut self, word: &str, wrong: &'static str) -> Result<bool, Unreadable> {
        match self.0.next() {
            None => Ok(false),
            Some(last) if last == word => Ok(true),
            Some(_) => Err(Unreadable(wrong)),
        }
    }

    fn taken(&mut self) -> Result<Taken, Unreadable> {
        let begun = self.last("begun", "an access ends there or is `begun`")?;
        Ok(if begun { Taken::Unknown } else { Taken::All })
    }

    fn end(mut self) -> Result<(), Unreadable> {
        self.0.next().map_or(Ok(()), |_| Err(Unreadable("there is more than there should be")))
    }
}

impl FromStr for Line {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Line, Unreadable> {
        // Settings are the rest of the line.
        let mut parts = text.splitn(5, ' ');
        let mut next = || parts.next().ok_or(Unreadable("it ends early"));
        let (disk, at, kind) = (next()?, next()?, next()?);
        let disk = disk.parse().map_err(|_| Unreadable("the disk is no number"))?;
        let at = Nanos(at.parse().map_err(|_| Unreadable("the time is no number"))?);
        let word = parts.next().unwrap_or("");
        let rest = parts.next().unwrap_or("");
        let entry = match kind {
            "disk" => {
                let config = serde_json::from_str(rest);
                let config = config.map_err(|_| Unreadable("the settings are of another version"))?;
                Entry::Disk { name: word.to_string(), config: Box::new(config) }
            }
            "+" => Entry::Event(read_event(word, Words(rest.split_ascii_whitespace()))?),
            "-" => Entry::Action(read_action(word, Words(rest.split_ascii_whitespace()))?),
            _ => return Err(Unreadable("it is neither event nor action")),
        };
        Ok(Line { disk, at, entry })
    }
}

fn read_event(word: &str, mut w: Words<'_>) -> Result<Event, Unreadable> {
    let event = match word {
        "request" => Event::Request(w.request()?),
        "access" => Event::Access(Access {
            file: w.file()?,
            offset: w.number()?,
            len: w.number()?,
            file_size: w.number()?,
            lba: w.place()?,
            taken: w.taken()?,
        }),
        "missing" => Event::Missing { file: w.file()?, offset: w.number()?, len: w.number()? },
        "by-kernel" => Event::ReadByKernel { file: w.file()?, offset: w.number()?, len: w.number()? },
        "release" => Event::CachedAbove { file: w.file()?, offset: w.number()?, len: w.number()? },
        "took" => {
            let request = RequestId(w.number()?);
            Event::Took { request, read: !w.last("unread", "what was taken ends there or is `unread`")? }
        }
        "bitrate" => Event::Bitrate { file: w.file()?, bytes_per_s: w.number()? },
        "opened" => Event::Opened { file: w.file()? },
        "leave" => Event::Leave { file: w.file()? },
        "hole" => Event::Hole { file: w.file()?, from: w.number()?, upto: w.number()? },
        "written" => Event::Written { file: w.file()?, from: w.number()?, upto: w.number()? },
        "memory" => Event::MemoryLimit(w.memory()?),
        "rest" => match w.word()? {
            "on" => Event::Rest(true),
            "off" => Event::Rest(false),
            _ => return Err(Unreadable("a rest is on or off")),
        },
        "in-flight" => Event::InFlight(w.number()? as usize),
        "writes" => {
            let (waiting, bytes) = (w.number()?, w.number()?);
            // Of an older log; nothing goes by it any more.
            let _ = w.last("synced", "a report of writes ends there")?;
            Event::Writes(Writes { waiting, bytes })
        }
        "cancel" => Event::Cancel(RequestId(w.number()?)),
        "found" => {
            let (read, from, upto) = w.stretch()?;
            Event::Found { read, from, upto }
        }
        "gone" => {
            let (read, from, upto) = w.stretch()?;
            Event::Gone { read, from, upto }
        }
        "progress" => Event::Progress { read: ReadId(w.number()?), upto: w.number()? },
        "done" => {
            let read = ReadId(w.number()?);
            let outcome = match w.word()? {
                "ok" => Outcome::Ok,
                "failed" => Outcome::Failed,
                _ => return Err(Unreadable("a read ends ok or failed")),
            };
            Event::Done { read, outcome }
        }
        "tick" => Event::Tick,
        _ => return Err(Unreadable("no such event")),
    };
    w.end().map(|()| event)
}

fn read_action(word: &str, mut w: Words<'_>) -> Result<Action, Unreadable> {
    let action = match word {
        "read" => Action::Read {
            id: ReadId(w.number()?),
            file: w.file()?,
            offset: w.number()?,
            len: w.number()?,
            lba: w.place()?,
        },
        "drop" => Action::Drop { file: w.file()?, offset: w.number()?, len: w.number()? },
        "probe" => Action::Probe { file: w.file()?, offset: w.number()?, len: w.number()? },
        "pin" => Action::Pin { file: w.file()?, offset: w.number()?, len: w.number()? },
        "renew" => Action::Renew { file: w.file()?, offset: w.number()?, len: w.number()? },
        "unpin" => Action::Unpin {
            file: w.file()?,
            offset: w.number()?,
            len: w.number()?,
            cold: w.last("cold", "an unpin ends there or is `cold`")?,
        },
        "close" => Action::Close { file: w.file()? },
        "answer" => {
            let request = RequestId(w.number()?);
            let verdict = match w.word()? {
                "resident" => Verdict::Resident,
                word => Verdict::Pass(word.parse().map_err(|_| Unreadable("no such verdict"))?),
            };
            Action::Answer { request, verdict }
        }
        _ => return Err(Unreadable("no such action")),
    };
    w.end().map(|()| action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use proptest::prelude::*;

    #[test]
    fn the_lines_of_the_documentation() {
        let line = |text: &str| Line::from_str(text).unwrap();
        let file = FileId { dev: 2049, ino: 131 };
        let request = Request {
            id: RequestId(7),
            file,
            from: 0,
            offset: 0,
            len: 524_288,
            file_size: 104_857_600,
            lba: Some(Lba(81_920)),
            demand: Demand::default(),
        };
        let text = "0 1500000 + request 7 2049:131 0 524288 104857600 81920";
        assert_eq!(line(text).entry, Entry::Event(Event::Request(request)));
        assert_eq!(line(text).to_string(), text);
        let demand = Demand {
            deadline: Some(Nanos(2_500_000)),
            bitrate: Some(262_144),
            predicted: true,
            joins_kernel: true,
            file_set: true,
            random: true,
            io: IoPriority { idle: true, weight: 7 },
        };
        let text = "0 1500000 + request 7 2049:131 0 524288 104857600 81920 deadline 2500000 bitrate 262144 \
                    foretold along file-set random idle weight 7";
        assert_eq!(line(text).entry, Entry::Event(Event::Request(Request { demand, ..request })));
        assert_eq!(line(text).to_string(), text);
        let text = "0 1500000 + request 7 2049:131 8192 524288 104857600 81920 from 4096";
        let later = Request { from: 4096, offset: 8192, ..request };
        assert_eq!(line(text).entry, Entry::Event(Event::Request(later)));
        assert_eq!(line(text).to_string(), text);
        for text in [
            "0 1500000 + request 7 2049:131 0 524288 104857600 81920 bitrate 5 along",
            "0 1500000 + by-kernel 2049:131 0 131072",
            "0 1500000 - read 0 2049:131 0 2097152 81920",
            "0 19700000 + progress 0 524288",
            "0 19700000 - answer 7 resident",
            "3 1 - answer 7 queue_full",
            "0 1 + access 1:2 3 4 5 ?",
            "0 1 + access 1:2 3 4 5 81920 begun",
            "0 1 + tick",
            "0 1 + writes 0 0",
            "0 1 + writes 12 1048576",
            "0 1 + found 4 4096",
            "0 1 + found 4 12288 from 8192",
            "0 1 + gone 4 4096",
            "0 1 + gone 4 12288 from 8192",
            "0 1 + done 4 failed",
            "0 1 - drop 1:2 4096 8192",
            "0 1 + missing 1:2 0 4096",
            "0 1 + release 1:2 0 4096",
            "0 1 + bitrate 1:2 52375",
            "0 1 + opened 1:2",
            "0 1 + leave 1:2",
            "0 1 + hole 1:2 4096 1048576",
            "0 1 + written 1:2 0 18446744073709551615",
            "0 0 + memory 1073741824",
            "0 1 + memory 1073741824 waits",
            "0 19700000 - pin 2049:131 524288 1572864",
            "0 1 - renew 1:2 0 4096",
            "0 1 - probe 1:2 0 4096",
            "0 1 - unpin 1:2 0 4096",
            "0 1 - unpin 1:2 0 4096 cold",
            "0 59700000000 - close 2049:131",
            "0 1 + in-flight 4",
            "0 1 + rest on",
            "0 1 + rest off",
            "0 1 + cancel 9",
            "0 1 + took 9",
            "0 1 + took 9 unread",
        ] {
            assert_eq!(line(text).to_string(), text);
        }
    }

    #[test]
    fn whether_programs_waited_for_their_writes_is_read_over_in_older_logs() {
        let line = |text| Line::from_str(text).unwrap();
        assert_eq!(line("0 1 + writes 12 4096 synced"), line("0 1 + writes 12 4096"));
    }

    #[test]
    fn settings_survive() {
        let config = Config {
            sizing: crate::Sizing::Auto(crate::sizing::controller::Params::default()),
            scale: crate::BitrateRule::SquareRoot,
            profile: Some(crate::profile::DiskProfile::assumed(1 << 31)),
            ahead: Some(crate::AheadConfig::default()),
            ..Config::default()
        };
        let line = Line {
            disk: 1,
            at: Nanos::ZERO,
            entry: Entry::Disk { name: "sda".into(), config: Box::new(config) },
        };
        assert_eq!(Line::from_str(&line.to_string()).unwrap(), line);
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for text in [
            "",
            "0",
            "0 1",
            "0 1 * tick",
            "0 1 + tock",
            "0 1 + tick tick",
            "0 1 + budget 1073741824",
            "0 1 + memory",
            "0 1 + memory 1073741824 so",
            "0 1 - unpin 1:2 0 4096 warm",
            "0 1 + took 9 read",
            "x 1 + tick",
            "0 1 + done 1 so",
            "0 1 + request 7 1:2 0 1 1 ? deadline",
            "0 1 + request 7 1:2 0 1 1 ? soon 5",
            "0 1 disk a {",
        ] {
            assert!(Line::from_str(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn noise_is_no_panic(text in "[0-9 +a-z:?-]{0,40}") {
            let _ = Line::from_str(&text);
            let _ = Line::from_str(&format!("0 1 + {text}"));
            let _ = Line::from_str(&format!("0 1 - {text}"));
        }
    }
}
