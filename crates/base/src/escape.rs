//! Text of others on a terminal or in a log.
//!
//! A file's name, a mount point, a variable of another process may hold anything but a zero byte: a newline
//! that forges a line of a log, an escape sequence that clears a terminal or has it answer with keystrokes, a
//! mark that has a line read from right to left. Shown is what stands there instead: `\n`, `\x1b`,
//! `\u{202e}`.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::Write;

/// Whether a character does something else than being shown: controls (of C0, C1, and DEL), separators of
/// lines and paragraphs, and marks that change the direction of what follows.
pub fn is_unsafe_to_print(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name, or one line without its end, as it may be shown. Escaped once more it stays as it is.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// Lines as they may be shown: the newlines that end them, and tabs, stay.
pub fn lines_escaped(text: &str) -> Cow<'_, str> {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

fn escape(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_shown = |c: char| !is_unsafe_to_print(c) || stays(c);
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        // Writing to a string does not fail.
        let _ = match c {
            c if is_shown(c) => out.write_char(c),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            c if c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c)),
            c => write!(out, "\\u{{{:x}}}", u32::from(c)),
        };
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let hostile = "a\x1b[2J\nb\r\tc\u{9b}31m\u{202e}d\u{7f}\u{2028}";
        let shown = "a\\x1b[2J\\nb\\r\\tc\\u{9b}31m\\u{202e}d\\x7f\\u{2028}";
        assert_eq!(escaped(hostile), shown);
        assert_eq!(escaped(shown), shown, "once is enough");
        assert_eq!(lines_escaped("a\tb\x1b\nc\n"), "a\tb\\x1b\nc\n");
        let plain = "/srv/größe/日本 film.mkv";
        assert!(matches!(escaped(plain), Cow::Borrowed(same) if same == plain));
    }
}
