//! Session files of httperf's `wsesslog` module, read and written.
//!
//! Two video papers drove their servers from such files, in a variant with three more parameters (University
//! of Waterloo; also in CloudSuite's media-streaming benchmark):
//!
//! ```text
//! # a comment
//! /sd/000001.mp4 timeout=10 headers='Range: bytes=0-523749'
//! /sd/000001.mp4 pace_time=10 timeout=10 headers='Range: bytes=523750-1047499'
//!     /poster.png
//!
//! /sd/000002.mp4 think=2.5
//! ```
//!
//! A blank line ends a session. A line that begins with white space belongs to the burst of the line before:
//! its requests go out together with it. After a burst the session waits: `think=S` seconds from the burst's
//! end, or `pace_time=S` seconds from the burst's *start* (at once if that is past: httperf waits the full
//! time then, which would make a late session later still; a player does not). `timeout=S` is the time a
//! request may take. `headers=` and `cookie=` are quoted with `'` or `"`, with `\n`, `\r`, `\t` and `\`
//! before any other character as escapes. `method=GET` and `http=1.1` are accepted, `size=N` is kept and not
//! checked. What this reader cannot replay it refuses: other methods, `contents=`, HTTP/1.0, `session` lines
//! that name another server.

use core::fmt::{self, Write};

use seekless_base::Nanos;

use crate::workload::catalogue::Catalogue;
use crate::workload::session::{Due, SEGMENT, Session, TIMEOUT};

/// Sessions in one file, as in httperf's own limit.
pub const MAX_SESSIONS: usize = 250_000;

/// What stands between a burst and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// From the end of the burst.
    Think(Nanos),
    /// From the start of the burst.
    Pace(Nanos),
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// The URI as written.
    pub uri: String,
    /// How long it may take; none given: the reader's own default.
    pub timeout: Option<Nanos>,
    /// The bytes asked for, first and last (last included); none: the whole file.
    pub range: Option<(u64, Option<u64>)>,
    /// Every header but `Range`, in order.
    pub headers: Vec<(String, String)>,
    /// `size=`: bytes expected.
    pub size: Option<u64>,
}

/// Requests sent together and the pause after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burst {
    /// At least one.
    pub requests: Vec<LogRequest>,
    /// None given: go on at once.
    pub pause: Pause,
}

/// One session: bursts in order, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSession {
    /// In order.
    pub bursts: Vec<Burst>,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogError {
    /// Line number from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl core::error::Error for LogError {}

/// Reads a session file.
///
/// # Errors
/// The first line that is not understood, with its number; no session at all.
pub fn parse(bytes: &[u8]) -> Result<Vec<LogSession>, LogError> {
    let text = core::str::from_utf8(bytes).map_err(|e| {
        let line = 1 + bytes[..e.valid_up_to()].iter().filter(|&&b| b == b'\n').count();
        LogError { line, why: "not UTF-8".into() }
    })?;
    let mut sessions: Vec<LogSession> = Vec::new();
    let mut open = false;
    let mut lines = 0;
    for (i, line) in text.lines().enumerate() {
        let at = |why: String| LogError { line: i + 1, why };
        lines = i + 1;
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            open = false;
            continue;
        }
        let indented = line.starts_with([' ', '\t']);
        let (request, pause) = parse_line(line.trim()).map_err(at)?;
        if !open {
            if indented {
                return Err(at("an indented line continues a burst, but no request comes before it".into()));
            }
            if sessions.len() == MAX_SESSIONS {
                return Err(at(format!("more than {MAX_SESSIONS} sessions")));
            }
            sessions.push(LogSession { bursts: Vec::new() });
            open = true;
        }
        let bursts = &mut sessions.last_mut().expect("a session was just opened").bursts;
        match bursts.last_mut() {
            Some(burst) if indented => {
                burst.requests.push(request);
                burst.pause = pause.unwrap_or(burst.pause);
            }
            _ => {
                let pause = pause.unwrap_or(Pause::Think(Nanos::ZERO));
                bursts.push(Burst { requests: vec![request], pause });
            }
        }
    }
    if sessions.is_empty() {
        return Err(LogError {
            line: lines,
            why: "there is no session; write requests, one a line, as `seekless-lab load export` does".into(),
        });
    }
    Ok(sessions)
}

fn parse_line(line: &str) -> Result<(LogRequest, Option<Pause>), String> {
    let (uri, mut rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if uri == "session" {
        return Err(
            "`session` lines name a server of their own; remove the line, every request goes to --url".into(),
        );
    }
    if !uri.starts_with('/') {
        return Err(format!("`{uri}` is not a URI; it must begin with /"));
    }
    let mut request =
        LogRequest { uri: uri.to_string(), timeout: None, range: None, headers: Vec::new(), size: None };
    let mut pause = None;
    while !rest.trim_start().is_empty() {
        let (name, after) = rest
            .trim_start()
            .split_once('=')
            .ok_or_else(|| format!("`{}` is not `name=value`", rest.trim()))?;
        let (value, after) = quoted(after)?;
        rest = after;
        match name {
            "method" if value == "GET" => {}
            "method" => return Err(format!("method `{value}`: only GET can be replayed")),
            "think" => pause = Some(Pause::Think(seconds(name, &value)?)),
            "pace_time" => pause = Some(Pause::Pace(seconds(name, &value)?)),
            "timeout" => request.timeout = Some(seconds(name, &value)?),
            "size" => {
                request.size =
                    Some(value.parse().map_err(|_| format!("size={value} is not a number of bytes"))?);
            }
            "http" if value == "1.1" => {}
            "http" => return Err(format!("http={value}: only 1.1 can be replayed")),
            "headers" => {
                for header in value.split('\n').map(str::trim).filter(|h| !h.is_empty()) {
                    add_header(&mut request, header)?;
                }
            }
            "cookie" => request.headers.push(("Cookie".into(), value)),
            "contents" => return Err("contents=: requests with a body cannot be replayed".into()),
            _ => {
                return Err(format!(
                    "unknown parameter `{name}`; known are method, think, pace_time, timeout, size, headers, cookie, http"
                ));
            }
        }
    }
    Ok((request, pause))
}

/// Takes one value up to unquoted white space, as a shell would.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut quote: Option<char> = None;
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match (c, quote) {
            ('\\', _) => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 'r')) => value.push('\r'),
                Some((_, 't')) => value.push('\t'),
                Some((_, other)) => value.push(other),
                None => return Err("a backslash ends the line".into()),
            },
            (c, Some(q)) if c == q => quote = None,
            ('\'' | '"', None) => quote = Some(c),
            (c, None) if c.is_whitespace() => return Ok((value, &text[i..])),
            (c, _) => value.push(c),
        }
    }
    match quote {
        Some(q) => Err(format!("the quote {q} is not closed")),
        None => Ok((value, "")),
    }
}

fn seconds(name: &str, value: &str) -> Result<Nanos, String> {
    match value.parse::<f64>() {
        Ok(s) if s.is_finite() && s >= 0.0 => Ok(Nanos::from_secs_f64(s)),
        _ => Err(format!("{name}={value} is not a number of seconds")),
    }
}

fn add_header(request: &mut LogRequest, header: &str) -> Result<(), String> {
    let (name, value) = header.split_once(':').ok_or_else(|| format!("header `{header}` has no colon"))?;
    let (name, value) = (name.trim(), value.trim());
    if !name.eq_ignore_ascii_case("range") {
        request.headers.push((name.to_string(), value.to_string()));
        return Ok(());
    }
    let bad = || format!("`{header}`: only one range `bytes=FIRST-LAST` or `bytes=FIRST-` can be replayed");
    let (first, last) = value.strip_prefix("bytes=").and_then(|v| v.split_once('-')).ok_or_else(bad)?;
    let first: u64 = first.trim().parse().map_err(|_| bad())?;
    let last = match last.trim() {
        "" => None,
        last => Some(last.parse::<u64>().ok().filter(|&l| l >= first).ok_or_else(bad)?),
    };
    request.range = Some((first, last));
    Ok(())
}

/// Writes sessions in the form [`parse`] reads.
pub fn write(sessions: &[LogSession]) -> String {
    let mut out = String::new();
    for (i, session) in sessions.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        for burst in &session.bursts {
            for (j, request) in burst.requests.iter().enumerate() {
                write_request(&mut out, request, (j == 0).then_some(burst.pause), j > 0);
            }
        }
    }
    out
}

fn write_request(out: &mut String, request: &LogRequest, pause: Option<Pause>, indented: bool) {
    // Writing to a String cannot fail.
    let _ = write!(out, "{}{}", if indented { "\t" } else { "" }, request.uri);
    let _ = match pause {
        Some(Pause::Pace(t)) => write!(out, " pace_time={}", t.as_secs_f64()),
        Some(Pause::Think(t)) if t > Nanos::ZERO => write!(out, " think={}", t.as_secs_f64()),
        _ => Ok(()),
    };
    if let Some(timeout) = request.timeout {
        let _ = write!(out, " timeout={}", timeout.as_secs_f64());
    }
    if let Some(size) = request.size {
        let _ = write!(out, " size={size}");
    }
    let mut headers: Vec<String> = Vec::new();
    if let Some((first, last)) = request.range {
        headers.push(match last {
            Some(last) => format!("Range: bytes={first}-{last}"),
            None => format!("Range: bytes={first}-"),
        });
    }
    headers.extend(request.headers.iter().map(|(name, value)| format!("{name}: {value}")));
    if !headers.is_empty() {
        let text = headers.join("\n").replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\r\\n");
        let _ = write!(out, " headers='{text}'");
    }
    out.push('\n');
}

/// The session file's form of a viewing session: unpaced segments without pause, then one every 10 s.
///
/// What the form cannot express is lost: the time of arrival (httperf takes it from `--rate`), the client's
/// link, and the absolute schedule, which becomes 10 s from the start of the request before.
pub fn from_session(session: &Session, catalogue: &Catalogue) -> LogSession {
    let bursts = (session.first..session.end)
        .map(|i| {
            let range = session.range(i, catalogue);
            let request = LogRequest {
                uri: format!("/{}", catalogue.video(session.video).path),
                timeout: Some(TIMEOUT),
                range: Some((range.offset, Some(range.offset + range.len - 1))),
                headers: Vec::new(),
                size: Some(range.len),
            };
            let paced = i + 1 < session.end && matches!(session.due(i + 1), Due::At(_));
            let pause = if paced { Pause::Pace(SEGMENT) } else { Pause::Think(Nanos::ZERO) };
            Burst { requests: vec![request], pause }
        })
        .collect();
    LogSession { bursts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::catalogue::CatalogueSpec;
    use crate::workload::session::{Rate, SessionSpec, Sessions, paper_classes};
    use proptest::prelude::*;

    const EXAMPLE: &str = "# a comment\n\n/a.mp4 timeout=10 headers='Range: bytes=0-99'\n\
        /a.mp4 pace_time=10 timeout=9.5 headers=\"Range: bytes=100-\\r\\nX-It: it\\'s\" method=GET\n\
        \t/poster.png size=12\n   \n\n/b.mp4 think=2.5 cookie='a=1; b=2'\n";

    #[test]
    fn the_variant_of_the_papers_is_read() {
        let sessions = parse(EXAMPLE.as_bytes()).unwrap();
        assert_eq!(sessions.len(), 2);
        let [first, second] = &sessions[0].bursts[..] else { panic!("two bursts") };
        assert_eq!(first.requests[0].range, Some((0, Some(99))));
        assert_eq!(first.requests[0].timeout, Some(Nanos::from_secs(10)));
        assert_eq!(first.pause, Pause::Think(Nanos::ZERO));
        assert_eq!(second.pause, Pause::Pace(Nanos::from_secs(10)));
        assert_eq!(second.requests.len(), 2);
        assert_eq!(second.requests[0].range, Some((100, None)));
        assert_eq!(second.requests[0].headers, [("X-It".to_string(), "it's".to_string())]);
        assert_eq!(second.requests[1].size, Some(12));
        assert_eq!(sessions[1].bursts[0].pause, Pause::Think(Nanos::from_millis(2500)));
        assert_eq!(sessions[1].bursts[0].requests[0].headers[0].1, "a=1; b=2");
        assert_eq!(parse(write(&sessions).as_bytes()).unwrap(), sessions);
    }

    #[test]
    fn bad_lines_are_named() {
        for (text, line, why) in [
            ("", 0, "no session"),
            ("# x\n", 1, "no session"),
            ("  /a\n", 1, "no request comes before"),
            ("/a\n\n\t/b\n", 3, "no request comes before"),
            ("/a\nb\n", 2, "begin with /"),
            ("/a think=x", 1, "number of seconds"),
            ("/a pace_time=-1", 1, "number of seconds"),
            ("/a timeout=inf", 1, "number of seconds"),
            ("/a speed=3", 1, "unknown parameter `speed`"),
            ("/a nonsense", 1, "name=value"),
            ("/a method=POST", 1, "only GET"),
            ("/a contents='x'", 1, "body"),
            ("/a http=1.0", 1, "only 1.1"),
            ("/a headers='Range: bytes=5-2'", 1, "one range"),
            ("/a headers='Range: bytes=0-1,5-6'", 1, "one range"),
            ("/a headers='Range bytes", 1, "not closed"),
            ("/a headers='nocolon'", 1, "no colon"),
            ("session port=80\n/a", 1, "session"),
        ] {
            let e = parse(text.as_bytes()).unwrap_err();
            assert!(e.line == line && e.why.contains(why), "{text:?}: {e}");
        }
        assert_eq!(parse(b"/a\n/\xff").unwrap_err().line, 2);
    }

    #[test]
    fn sessions_can_be_exported() {
        let c = Catalogue::new(&CatalogueSpec { videos: Some(50), ..CatalogueSpec::default() }).unwrap();
        let rate = Rate::Constant { per_s: 10.0 };
        let spec = SessionSpec { rate, sessions: 20, warm_start: false, classes: paper_classes(), seed: 4 };
        let sessions: Vec<Session> = Sessions::new(&c, &spec).collect();
        let logs: Vec<LogSession> = sessions.iter().map(|s| from_session(s, &c)).collect();
        assert_eq!(parse(write(&logs).as_bytes()).unwrap(), logs);
        let long = logs.iter().find(|l| l.bursts.len() > 5).unwrap();
        let pauses: Vec<Pause> = long.bursts[..4].iter().map(|b| b.pause).collect();
        let (none, ten) = (Pause::Think(Nanos::ZERO), Pause::Pace(SEGMENT));
        assert_eq!(pauses, [none, none, ten, ten]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            sessions in prop::collection::vec(prop::collection::vec((0..3_u64, 0..100_000_u64, 1..9_u64, "[a-z' \\\\\"]{0,6}"), 1..5), 1..5)
        ) {
            let logs: Vec<LogSession> = sessions
                .into_iter()
                .map(|bursts| LogSession {
                    bursts: bursts
                        .into_iter()
                        .map(|(kind, ms, n, text)| Burst {
                            requests: (0..n).map(|k| LogRequest {
                                uri: format!("/f{k}"),
                                timeout: (k % 2 == 0).then(|| Nanos::from_millis(ms + 1)),
                                range: (k % 3 != 0).then_some((ms, (kind == 1).then_some(ms + k))),
                                headers: vec![("X-Text".into(), text.trim().to_string())],
                                size: (kind == 2).then_some(ms),
                            }).collect(),
                            pause: if kind == 0 { Pause::Think(Nanos::from_millis(ms)) } else { Pause::Pace(Nanos::from_millis(ms)) },
                        })
                        .collect(),
                })
                .collect();
            prop_assert_eq!(parse(write(&logs).as_bytes()).unwrap(), logs);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
