//! A list of paths as a stream of bytes, each path ended by a newline or a zero byte.

use std::io::{self, BufRead, Read};

use crate::walk::PATH_BYTES_MAX;

/// One path of the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its bytes as read, without the end mark.
    pub(crate) path: Vec<u8>,
    /// Whether it was longer than [`PATH_BYTES_MAX`]; the rest is lost.
    pub(crate) cut: bool,
}

/// The paths of a stream.
#[derive(Debug)]
pub(crate) struct Entries<R> {
    from: R,
    end: u8,
}

impl<R: BufRead> Entries<R> {
    /// Reads from `from`; each path ends with `end`, which the last one may lack.
    pub(crate) fn new(from: R, end: u8) -> Entries<R> {
        Entries { from, end }
    }

    /// The next path; `None` after the last one.
    ///
    /// # Errors
    /// Errors of reading.
    pub(crate) fn next(&mut self) -> io::Result<Option<Listed>> {
        let mut path = Vec::new();
        let mut bounded = self.from.by_ref().take(PATH_BYTES_MAX as u64 + 1);
        if bounded.read_until(self.end, &mut path)? == 0 {
            return Ok(None);
        }
        path.pop_if(|last| *last == self.end);
        let cut = path.len() > PATH_BYTES_MAX;
        if cut {
            path.truncate(PATH_BYTES_MAX);
            self.from.skip_until(self.end)?;
        }
        Ok(Some(Listed { path, cut }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn all(text: &[u8], end: u8) -> Vec<Listed> {
        // A small buffer, so that paths come in several parts.
        let mut entries = Entries::new(BufReader::with_capacity(3, text), end);
        std::iter::from_fn(|| entries.next().unwrap()).collect()
    }

    fn whole(path: &[u8]) -> Listed {
        Listed { path: path.to_vec(), cut: false }
    }

    #[test]
    fn paths_come_byte_for_byte() {
        assert_eq!(all(b"", b'\n'), []);
        assert_eq!(
            all(b"a\n\nlonger\xff\xfe\r\n", b'\n'),
            [whole(b"a"), whole(b""), whole(b"longer\xff\xfe\r")]
        );
        assert_eq!(all(b"two\nlines\0last", b'\0'), [whole(b"two\nlines"), whole(b"last")]);
    }

    #[test]
    fn an_endless_path_takes_bounded_memory() {
        let mut text = vec![b'x'; 1 << 20];
        text.extend_from_slice(b"\nnext\n");
        let listed = all(&text, b'\n');
        assert_eq!(listed.len(), 2);
        assert!(listed[0].cut && listed[0].path.len() == PATH_BYTES_MAX);
        assert_eq!(listed[1], whole(b"next"));
        assert!(!all(&text[..PATH_BYTES_MAX], b'\n')[0].cut);
    }
}
