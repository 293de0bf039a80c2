//! Lines for people: on a terminal, in a journal, in a log. Names in them are others', so every line passes
//! through here and is escaped here ([`seekless_base::escaped`]).
//!
//! | what | by |
//! | --- | --- |
//! | a line on standard error | [`eprintln!`](crate::eprintln!) |
//! | a line of a text of several | [`write_line!`](crate::write_line!), for [`print()`](crate::print()) |
//! | the log | [`LogLines`] |
//! | JSON | [`json_escaped`], in what writes JSON |
//!
//! A text of several lines is made of such lines: once they are joined, a newline in a name looks like one
//! that ends a line. What goes through [`stream`](crate::stream) is data and stays as it is.

use std::fmt::Arguments;
use std::io::{self, Write};

pub use seekless_base::escaped;
use seekless_base::{is_unsafe_to_print, lines_escaped};

/// Writes a line to standard error, escaped and at once. Where that is closed it is lost, without a panic.
/// Called by its whole name, `crate::eprintln!`: the standard library's escapes nothing.
#[macro_export]
macro_rules! eprintln {
    ($($what:tt)*) => { $crate::say(format_args!($($what)*)) };
}

/// Writes a line of a text, as `writeln!` does, escaped.
#[macro_export]
macro_rules! write_line {
    ($to:expr, $($what:tt)*) => { writeln!($to, "{}", $crate::escaped(&format!($($what)*))) };
}

/// What [`eprintln!`](crate::eprintln!) does.
pub fn say(line: Arguments<'_>) {
    say_lines(&(escaped(&line.to_string()).into_owned() + "\n"));
}

/// Writes a text of several lines to standard error.
pub fn say_lines(text: &str) {
    let _ = io::stderr().lock().write_all(lines_escaped(text).as_bytes());
}

/// A text of these lines, escaped, without a newline at its end.
pub fn joined(lines: &[impl AsRef<str>]) -> String {
    lines.iter().map(|line| escaped(line.as_ref())).collect::<Vec<_>>().join("\n")
}

/// Bytes as text for people, of which the newlines stay. What is no UTF-8 is shown as `\xff`.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out += &lines_escaped(chunk.valid());
        for byte in chunk.invalid() {
            out += &format!("\\x{byte:02x}");
        }
    }
    out
}

/// The text of a JSON value, with what a terminal would obey as `\u009b`. JSON escapes controls below a space
/// alone; the others stand only within its strings.
pub fn json_escaped(text: String) -> String {
    let obeyed = |c: char| is_unsafe_to_print(c) && !matches!(c, '\n' | '\t');
    if !text.contains(obeyed) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        match c {
            // Between values.
            '\r' => out.push(' '),
            c if obeyed(c) => out += &format!("\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}

/// Where a log's lines go, each written as a whole: to standard error.
#[derive(Clone, Copy, Debug)]
pub struct LogLines {
    json: bool,
}

impl LogLines {
    /// Lines for people.
    pub fn text() -> LogLines {
        LogLines { json: false }
    }

    /// An object a line.
    pub fn json() -> LogLines {
        LogLines { json: true }
    }

    fn line(self, bytes: &[u8]) -> String {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let text = String::from_utf8_lossy(bytes);
        let text = if self.json { json_escaped(text.into_owned()) } else { escaped(&text).into_owned() };
        text + "\n"
    }
}

impl Write for LogLines {
    /// Takes one line, with or without its end.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(self.line(line).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Text for a place in HTML, an attribute's value included.
pub fn html_escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    const HOSTILE: &str = "film\x1b[2J\nseekless: forged\u{9b}1m";

    #[test]
    fn a_name_makes_no_second_line_of_a_text_or_a_log() {
        let mut text = String::new();
        write_line!(text, "a: {HOSTILE}").unwrap();
        write_line!(text, "b").unwrap();
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert_eq!(shown(text.as_bytes()), text, "nothing is left to escape");
        let log = LogLines::text().line(format!("WARN {HOSTILE}\n").as_bytes());
        assert_eq!(log, "WARN film\\x1b[2J\\nseekless: forged\\u{9b}1m\n");
        let json = serde_json::to_string(HOSTILE).unwrap() + "\n";
        let log = LogLines::json().line(json.as_bytes());
        assert!(log.bytes().all(|b| b == b'\n' || (b' '..0x7f).contains(&b)), "{log:?}");
        assert_eq!(serde_json::from_str::<String>(&log).unwrap(), HOSTILE);
    }

    #[test]
    fn bytes_that_are_no_text_are_shown() {
        assert_eq!(shown(b"a\xff\x1b\n\xc2\x9b"), "a\\xff\\x1b\n\\u{9b}");
        assert_eq!(json_escaped("{\r\n}".into()), "{ \n}");
    }
}
