//! A list of paths as a stream of bytes, each path ended by a newline or a zero byte.

use std::io::{self, BufRead, Read};

use crate::walk::PATH_BYTES_MAX;

/// The paths of a stream, each ended by `end`, which the last one may lack. Of a path that is too long, one
/// byte more than [`PATH_BYTES_MAX`] is kept and the rest is lost.
pub(crate) fn entries(mut from: impl BufRead, end: u8) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    let mut next = move || {
        let mut path = Vec::new();
        if from.by_ref().take(PATH_BYTES_MAX as u64 + 1).read_until(end, &mut path)? == 0 {
            return Ok(None);
        }
        if path.pop_if(|last| *last == end).is_none() && path.len() > PATH_BYTES_MAX {
            from.skip_until(end)?;
        }
        Ok(Some(path))
    };
    std::iter::from_fn(move || next().transpose())
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn all(text: &[u8], end: u8) -> Vec<Vec<u8>> {
        // A small buffer, so that paths come in several parts.
        entries(BufReader::with_capacity(3, text), end).map(Result::unwrap).collect()
    }

    #[test]
    fn paths_come_byte_for_byte() {
        assert!(all(b"", b'\n').is_empty());
        assert_eq!(all(b"a\n\nlonger\xff\xfe\r\n", b'\n'), [&b"a"[..], b"", b"longer\xff\xfe\r"]);
        assert_eq!(all(b"two\nlines\0last", b'\0'), [&b"two\nlines"[..], b"last"]);
    }

    #[test]
    fn an_endless_path_takes_bounded_memory() {
        let mut text = vec![b'x'; 1 << 20];
        text.extend_from_slice(b"\nnext\n");
        let listed = all(&text, b'\n');
        assert_eq!(listed.len(), 2);
        assert_eq!(listed[0].len(), PATH_BYTES_MAX + 1);
        assert_eq!(listed[1], b"next");
        text[PATH_BYTES_MAX] = b'\n';
        assert_eq!(all(&text, b'\n')[0].len(), PATH_BYTES_MAX);
    }
}
