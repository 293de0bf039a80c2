//! Lines of bounded length.

use std::fmt::Display;
use std::io::{BufRead, Read};

/// Longest line of a log or a text trace, bytes; servers limit a request's head to 8 KiB or so, and a log
/// line holds two of its fields.
pub const LINE_BYTES_MAX: usize = 1 << 16;

/// Reads the next line, without its end, into `line`; false after the last. `what` names what is being read.
///
/// # Errors
/// The input cannot be read, or the line is longer than `bytes_max`: `what` has no such lines.
pub fn read_line(
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
    bytes_max: usize,
    what: impl Display,
) -> Result<bool, String> {
    line.clear();
    let mut bounded = input.take(bytes_max as u64 + 1);
    let read = bounded.read_until(b'\n', line).map_err(|e| format!("cannot be read: {e}"))?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.len() > bytes_max {
        return Err(format!("longer than {bytes_max} bytes; this is no {what}"));
    }
    Ok(read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_any_end_are_read_and_long_ones_refused() {
        let mut input = &b"one\n\nfour\nfive"[..];
        let mut line = Vec::new();
        let mut next = || read_line(&mut input, &mut line, 4, "list").map(|more| more.then(|| line.clone()));
        for expected in ["one", "", "four", "five"] {
            assert_eq!(next(), Ok(Some(expected.into())));
        }
        assert_eq!(next(), Ok(None));
        for long in ["12345", "12345\n", "1234567"] {
            let error = read_line(&mut long.as_bytes(), &mut line, 4, "list").unwrap_err();
            assert_eq!(error, "longer than 4 bytes; this is no list");
        }
    }
}
