//! Bytes of a name as text in one line, and back.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::escape::is_unsafe_to_print;

/// A name as text without control characters: they, a backslash, a space at either end and what is no UTF-8
/// are `\xHH`, byte by byte. No name can end a line or reach a terminal as a command.
///
/// ```
/// assert_eq!(seekless_base::name_to_text(b"a\nb \xff"), "a\\x0ab \\xff");
/// ```
pub fn name_to_text(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    let last = name.len().saturating_sub(1);
    let mut at = 0;
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let edge = c == ' ' && (at == 0 || at == last);
            let plain = !(is_unsafe_to_print(c) || c == '\\' || edge);
            if plain {
                text.push(c)
            } else {
                hex(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes())
            }
            at += c.len_utf8();
        }
        hex(&mut text, chunk.invalid());
        at += chunk.invalid().len();
    }
    text
}

fn hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// The name that [`name_to_text`] wrote; `None`: a backslash is followed by no `xHH`, or a control character
/// stands there as it is.
pub fn name_from_text(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        name.push(match byte {
            b'\\' => {
                if rest.next() != Some(&b'x') {
                    return None;
                }
                let mut digit = || char::from(*rest.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            byte if byte.is_ascii_control() => return None,
            byte => byte,
        });
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn names_survive_in_one_plain_line() {
        let every: Vec<u8> = (0..=255).collect();
        for name in [&b"a film.mp4"[..], b"  two  ", b"a\nroot: b\x1b[2J", b"back\\slash\\x41", b"", &every] {
            let text = name_to_text(name);
            assert!(!text.chars().any(char::is_control) && text.trim() == text, "{text}");
            assert_eq!(name_from_text(text.as_bytes()).as_deref(), Some(name), "{text}");
        }
        assert_eq!(name_to_text("Träume.mp4".as_bytes()), "Träume.mp4");
        assert_eq!(name_to_text("a\u{202e}b".as_bytes()), "a\\xe2\\x80\\xaeb");
    }

    #[test]
    fn what_was_not_escaped_is_refused() {
        for text in [&b"a\\"[..], b"a\\n", b"\\x1", b"\\xg0", b"a\tb", b"a\x7f"] {
            assert_eq!(name_from_text(text), None, "{text:?}");
        }
        assert_eq!(name_from_text(b"\\x41"), Some(vec![b'A']));
    }
}
