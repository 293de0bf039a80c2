//! A decision log: what went into a [`DiskEngine`](crate::DiskEngine) and what came out, as lines
//! of JSON.
//!
//! ```text
//! seekless-decisions 12                                   first line: the format's version
//! [0,0,{"disk":{"name":"sda","config":{"mode":"both",...}}}]
//! [0,0,{"event":{"memory-limit":{"bytes":1073741824,"tasks_wait":false}}}]
//! [0,150000,{"event":{"request":{"id":7,"file":{"dev":2049,"ino":131},"offset":0,"len":524288,...}}}]
//! [0,150000,{"action":{"read":{"id":0,"file":{"dev":2049,"ino":131},"offset":0,"len":2097152,"lba":81920}}}]
//! [0,19700000,{"event":{"progress":{"read":0,"upto":524288}}}]
//! [0,19700000,{"action":{"answer":{"request":7,"verdict":"resident"}}}]
//! ```
//!
//! A line: number of the disk, nanoseconds since its engine began, and an [`Entry`], with the names of
//! [`Event`] and [`Action`]. Addresses are sectors or `null`. Lines that begin with `#` are remarks. A fresh
//! engine of the same settings, fed the events of one disk at their times and polled wherever the log polled,
//! gives the same actions. A log that was cut replays up to there.
//!
//! Must not know: files, paths, clocks.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use seekless_base::Nanos;
use serde::{Deserialize, Serialize};

use crate::{Action, Config, Event};

/// The first line of a log.
pub const FIRST_LINE: &str = "seekless-decisions 12";

/// What first lines of every version begin with.
pub const FORMAT: &str = "seekless-decisions ";

/// What a line says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Entry {
    /// A disk begins: its name and settings.
    Disk {
        /// Kernel name.
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

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(&(self.disk, self.at, &self.entry)).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

/// Why a text is not a line of a decision log.
#[derive(Debug, thiserror::Error)]
#[error("not a line of a decision log: {0}")]
pub struct Unreadable(serde_json::Error);

impl FromStr for Line {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Line, Unreadable> {
        let (disk, at, entry) = serde_json::from_str(text).map_err(Unreadable)?;
        Ok(Line { disk, at, entry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use proptest::prelude::*;
    use seekless_base::{Bytes, Lba};

    use crate::{
        Access, Demand, FileId, IoPriority, KernelRead, MemoryLimit, Outcome, ReadId, Reason, Request,
        RequestId, Taken, Verdict, Writes,
    };

    fn survives(entry: Entry) {
        let line = Line { disk: 3, at: Nanos(19_700_000), entry };
        assert_eq!(line.to_string().parse::<Line>().unwrap(), line);
        assert!(!line.to_string().contains('\n'));
    }

    #[test]
    fn the_lines_of_the_documentation() {
        let line = |text: &str| Line::from_str(text).unwrap();
        let text = r#"[0,150000,{"action":{"read":{"id":0,"file":{"dev":2049,"ino":131},"offset":0,"len":2097152,"lba":81920}}}]"#;
        let file = FileId { dev: 2049, ino: 131 };
        let read = Action::Read { id: ReadId(0), file, offset: 0, len: 2 << 20, lba: Some(Lba(81_920)) };
        assert_eq!(line(text).entry, Entry::Action(read));
        for text in [
            text,
            r#"[0,0,{"event":{"memory-limit":{"bytes":1073741824,"tasks_wait":false}}}]"#,
            r#"[0,19700000,{"event":{"progress":{"read":0,"upto":524288}}}]"#,
            r#"[0,19700000,{"action":{"answer":{"request":7,"verdict":"resident"}}}]"#,
            r#"[3,1,{"action":{"answer":{"request":7,"verdict":{"pass":"queue-full"}}}}]"#,
            r#"[0,1,{"event":"tick"}]"#,
        ] {
            assert_eq!(line(text).to_string(), text);
        }
    }

    #[test]
    fn every_event_and_action_survives() {
        let (file, id, read) = (FileId { dev: 2049, ino: 131 }, RequestId(7), ReadId(4));
        let (offset, len, lba) = (4096, 8192, Some(Lba(81_920)));
        let io = IoPriority { idle: true, weight: 7 };
        let all = Demand { bitrate: Some(262_144), file_set: true, random: true, io };
        for demand in [Demand::default(), Demand { bitrate: Some(5), ..Demand::default() }, all] {
            let request = Request { id, file, from: 0, offset, len, file_size: u64::MAX, lba, demand };
            survives(Entry::Event(Event::Request(request)));
        }
        for (taken, lba) in [(Taken::All, None), (Taken::Unknown, lba)] {
            survives(Entry::Event(Event::Access(Access { file, offset, len, file_size: 5, lba, taken })));
        }
        for event in [
            Event::Missing { file, offset, len },
            Event::ReadByKernel(KernelRead { file, offset, len, file_size: 5, lba, io }),
            Event::Took { request: id, read: false },
            Event::Bitrate { file, bytes_per_s: 52_375 },
            Event::Opened { file },
            Event::Leave { file },
            Event::Hole { file, from: 4096, upto: 1 << 20 },
            Event::Written { file, from: 0, upto: u64::MAX },
            Event::MemoryLimit(MemoryLimit { bytes: Bytes::gib(1), tasks_wait: true }),
            Event::Rest(true),
            Event::InFlight(4),
            Event::Writes(Writes { waiting: 12, bytes: 1 << 20 }),
            Event::Cancel(id),
            Event::Found { read, from: 0, upto: 4096 },
            Event::Progress { read, upto: 524_288 },
            Event::Done { read, outcome: Outcome::Failed },
            Event::Tick,
        ] {
            survives(Entry::Event(event));
        }
        for action in [
            Action::Read { id: read, file, offset, len, lba },
            Action::Drop { file, offset, len },
            Action::Probe { file, offset, len },
            Action::Close { file },
            Action::Answer { request: id, verdict: Verdict::Pass(Reason::QueueFull) },
        ] {
            survives(Entry::Action(action));
        }
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
        survives(Entry::Disk { name: "a pool\nof disks".into(), config: Box::new(config) });
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for text in [
            "",
            "0",
            "[0,1]",
            r#"[0,1,{"event":"tock"}]"#,
            r#"[0,1,{"event":"tick"}] tick"#,
            r#"[0,1,{"event":"memory-limit"}]"#,
            r#"[0,1,{"event":{"memory-limit":{"bytes":1,"tasks_wait":2}}}]"#,
            r#"["x",1,{"event":"tick"}]"#,
            r#"[0,1,{"event":{"done":{"read":1,"outcome":"so"}}}]"#,
            r#"[0,1,{"event":{"cancel":-1}}]"#,
            r#"[0,1,{"disk":{"name":"a","config":{"#,
        ] {
            assert!(Line::from_str(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn noise_is_no_panic(text in "[0-9 +a-z:?\"{}\\[\\],-]{0,40}") {
            let _ = Line::from_str(&text);
            let _ = Line::from_str(&format!(r#"[0,1,{{"event":{text}}}]"#));
            let _ = Line::from_str(&format!(r#"[0,1,{{"action":{text}}}]"#));
        }
    }
}
