//! Which files a library has: lines of size and path.
//!
//! `1048576 videos/000001.mp4` or `1MiB videos/000001.mp4`; empty lines and lines that begin with `#` do not
//! count. Paths are relative to the library's root.

use std::collections::HashSet;
use std::path::{Component, Path};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use seekless_base::{Bytes, Fault};

/// Most files of a library: what one directory tree is sensibly asked to hold.
const FILES_MAX: usize = 10_000_000;

/// The files of a library.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifest {
    /// Path and size in bytes, as listed.
    pub files: Vec<(String, u64)>,
}

impl Manifest {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// As [`Manifest::parse`], or the file cannot be read.
    pub fn read(path: &Path) -> Result<Manifest, Fault> {
        let text = seekless_output::input::text(path)?;
        Manifest::parse(&text).map_err(|why| Fault::usage(format!("{}: {why}", path.display())))
    }

    /// Reads lines of size and path.
    ///
    /// # Errors
    /// The first wrong line and what is wrong with it: no size, no path, a path that leaves the library or is
    /// listed twice; or no file at all.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let (mut files, mut seen) = (Vec::new(), HashSet::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong =
                |why: &str| format!("line {}: {why}; write SIZE PATH, as 1MiB videos/1.mp4", number + 1);
            let (size, path) = line.split_once([' ', '\t']).ok_or_else(|| wrong("no path"))?;
            let size: Bytes = size.parse().map_err(|e| wrong(&format!("{e}")))?;
            let path = path.trim_start();
            let inside = Path::new(path).components().all(|c| matches!(c, Component::Normal(_)));
            if path.is_empty() || !inside {
                return Err(wrong("the path leaves the library"));
            }
            if !seen.insert(path) {
                return Err(wrong("the path is listed twice"));
            }
            files.push((path.to_string(), size.0));
            if files.len() > FILES_MAX {
                return Err(wrong("more than ten million files"));
            }
        }
        if files.is_empty() {
            return Err("no file is listed; write lines of SIZE PATH, as 1MiB videos/1.mp4".into());
        }
        Ok(Manifest { files })
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, size)| size).sum()
    }

    /// The files in the order in which they came to the disk: any, but always the same for a seed. A library
    /// filled over time holds neighbours in the catalogue far apart.
    pub fn shuffled(&self, seed: u64) -> Vec<&(String, u64)> {
        let mut order: Vec<_> = self.files.iter().collect();
        order.shuffle(&mut rand_pcg::Pcg64::seed_from_u64(seed));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_wrong_ones_named() {
        let manifest = Manifest::parse("# library\n100 a/b.mp4\n\n 2KiB  with space.mp4\n").unwrap();
        assert_eq!(manifest.files, [("a/b.mp4".to_string(), 100), ("with space.mp4".to_string(), 2048)]);
        assert_eq!(manifest.bytes(), 2148);
        for (text, why) in [
            ("", "no file"),
            ("100", "no path"),
            ("x a", "not a size"),
            ("1 a\n1 /etc/passwd", "line 2: the path leaves"),
            ("1 a/../../b", "leaves"),
            ("1 a\n2 a", "twice"),
        ] {
            let message = Manifest::parse(text).unwrap_err();
            assert!(message.contains(why), "{text:?}: {message}");
        }
    }

    #[test]
    fn a_seed_gives_one_order() {
        let manifest = Manifest { files: (0..100).map(|i| (i.to_string(), i)).collect() };
        assert_eq!(manifest.shuffled(1), manifest.shuffled(1));
        assert_ne!(manifest.shuffled(1), manifest.shuffled(2));
        let mut sorted = manifest.shuffled(3);
        sorted.sort_by_key(|f| f.1);
        assert!(sorted.iter().zip(&manifest.files).all(|(a, b)| *a == b));
    }
}
