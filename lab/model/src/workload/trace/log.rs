//! Access logs, common or combined: `host ident user [17/May/2015:10:05:03 +0000] "GET /path HTTP/1.1" 200
//! 5120 ...`.
//!
//! Every GET answered with bytes (200 or 206) is a read of that many bytes of its object. A log does not say
//! where a range begins, so every read starts at the beginning. Everything else moves no bytes from a disk
//! and is passed over.

use super::{Line, Names, Op, RawRequest};

/// One line of an access log, as it stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Client's name or address.
    pub host: &'a [u8],
    /// Seconds since 1970.
    pub time_s: u64,
    /// GET, HEAD, ...
    pub method: &'a [u8],
    /// What was asked for, without its query.
    pub path: &'a [u8],
    /// Status of the answer.
    pub status: u64,
    /// Bytes of the answer's body.
    pub bytes: u64,
}

/// Reads one line of an access log; nothing for an empty one.
///
/// # Errors
/// What does not fit the format.
pub fn entry(line: &[u8]) -> Result<Option<Entry<'_>>, String> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let after =
        |bytes: &[u8], from: usize, what: u8| bytes[from..].iter().position(|b| *b == what).map(|p| from + p);
    let host = &line[..after(line, 0, b' ').unwrap_or(0)];
    let open = after(line, 0, b'[').ok_or("has no `[time]`")?;
    let close = after(line, open, b']').ok_or("has no `]` after the time")?;
    let time_s = time_s(&line[open + 1..close])?;
    let quote = after(line, close, b'"').ok_or("has no quoted request")?;
    let mut end = quote + 1;
    while end < line.len() && (line[end] != b'"' || line[end - 1] == b'\\') {
        end += 1;
    }
    if end >= line.len() {
        return Err("ends within the quoted request".into());
    }
    let request = &line[quote + 1..end];
    let mut rest = line[end + 1..].split(|b| *b == b' ').filter(|f| !f.is_empty());
    let status = rest.next().and_then(number).ok_or("has no status after the request")?;
    let bytes = match rest.next() {
        Some(b"-") => 0,
        Some(field) => number(field).ok_or("has no number of bytes after the status")?,
        None => return Err("ends before the number of bytes".into()),
    };
    let mut words = request.split(|b| *b == b' ');
    let (method, url) = (words.next().unwrap_or(b""), words.next().unwrap_or(b""));
    let path = url.split(|b| *b == b'?').next().unwrap_or(url);
    Ok(Some(Entry { host, time_s, method, path, status, bytes }))
}

impl Entry<'_> {
    /// Whether bytes of a file were sent: a GET answered with all of it or a part.
    pub fn sends_file(&self) -> bool {
        self.method == b"GET" && self.bytes > 0 && (self.status == 200 || self.status == 206)
    }
}

pub(super) fn parse(line: &[u8], names: &mut Names) -> Result<Line, String> {
    let Some(entry) = entry(line)?.filter(Entry::sends_file) else { return Ok(Line::Nothing) };
    let (bytes, device) = (entry.bytes, names.number(entry.path)?);
    let time_ns = Some(u128::from(entry.time_s) * 1_000_000_000);
    // A whole answer tells where the object ends; a part does not.
    let end = (entry.status == 200).then_some(bytes);
    Ok(Line::Request(RawRequest { time_ns, device, op: Op::Read, offset: 0, bytes, end }))
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Seconds since 1970 of `17/May/2015:10:05:03 +0000`.
fn time_s(field: &[u8]) -> Result<u64, String> {
    let bad =
        || format!("the time `{}` is not like 17/May/2015:10:05:03 +0000", String::from_utf8_lossy(field));
    let part = |from: usize, to: usize| field.get(from..to).and_then(number).ok_or_else(bad);
    const MONTHS: [&[u8]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let (day, year) = (part(0, 2)?, part(7, 11)?);
    let month = field.get(3..6).and_then(|m| MONTHS.iter().position(|n| *n == m)).ok_or_else(bad)? as u64 + 1;
    let (hour, minute, second) = (part(12, 14)?, part(15, 17)?, part(18, 20)?);
    if !(1..=31).contains(&day) || !(1970..=9999).contains(&year) || hour > 23 || minute > 59 || second > 60 {
        return Err(bad());
    }
    // Days since 1970-01-01 (Howard Hinnant's days_from_civil, for years after 1970).
    let y = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (y / 400, y % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    let local = days * 86_400 + hour * 3600 + minute * 60 + second;
    let zone = match field.get(21) {
        None => 0,
        Some(sign) => {
            let offset = part(22, 24)? * 3600 + part(24, 26)? * 60;
            if *sign == b'-' { offset as i64 } else { -(offset as i64) }
        }
    };
    Ok(local.saturating_add_signed(zone))
}
