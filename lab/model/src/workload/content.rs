//! What is in a file: a pure function of its path and the offset.
//!
//! So a client that knows the path of what it asked for can verify every byte it receives without a copy of
//! the library, and the software disk can keep a page written with such content as two numbers instead of 4
//! KiB.
//!
//! A file is a row of 4 KiB pages of 512 little-endian words. Word 0 of page `p` is the file's seed, word 1
//! is `p`; word `i` from 2 on is `base + TABLE[i]`, where `base` is a strong mix of seed and page and `TABLE`
//! holds fixed random words. The first two words let a reader of raw pages recognise whose page it holds; the
//! rest differ in every word between any two pages (but for a chance of 2^-64), so that a swapped, shifted or
//! stale page is found from any part of it. One addition a word keeps this at memory speed: it runs on every
//! byte served and verified.

use crate::workload::splitmix::{GOLDEN, mix};

/// Bytes in a page of content, the unit that carries its own identity.
pub const PAGE_BYTES: usize = 4096;
/// 64-bit words in a page.
const WORDS: usize = PAGE_BYTES / 8;

/// Fixed random words, one for each word of a page (4 KiB: stays in the first-level cache).
static TABLE: [u64; WORDS] = {
    let mut table = [0; WORDS];
    let mut i = 0;
    while i < WORDS {
        table[i] = mix((i as u64 + 1).wrapping_mul(GOLDEN));
        i += 1;
    }
    table
};

/// The content of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Content {
    seed: u64,
}

/// What every word of one page derives from.
#[derive(Clone, Copy)]
struct Page {
    seed: u64,
    index: u64,
    base: u64,
}

impl Page {
    fn new(seed: u64, index: u64) -> Page {
        Page { seed, index, base: mix(mix(seed.wrapping_add(GOLDEN)) ^ index.wrapping_mul(GOLDEN)) }
    }

    fn word(&self, i: usize) -> u64 {
        match i {
            0 => self.seed,
            1 => self.index,
            _ => self.base.wrapping_add(TABLE[i]),
        }
    }

    /// Writes whole words from word `first` on; `out` is a multiple of 8 bytes that stays inside the page.
    fn fill_words(&self, first: usize, out: &mut [u8]) {
        for (chunk, fixed) in out.chunks_exact_mut(8).zip(&TABLE[first..]) {
            chunk.copy_from_slice(&self.base.wrapping_add(*fixed).to_le_bytes());
        }
        for i in first..2.min(first + out.len() / 8) {
            out[(i - first) * 8..][..8].copy_from_slice(&self.word(i).to_le_bytes());
        }
    }

    /// Whether whole words from word `first` on are exactly these.
    fn words_match(&self, first: usize, data: &[u8]) -> bool {
        let named = 2usize.saturating_sub(first).min(data.len() / 8);
        let mut wrong = 0;
        for i in 0..named {
            wrong |= word_at(&data[i * 8..]) ^ self.word(first + i);
        }
        // No early exit inside the page: a plain fold is what the compiler turns into vector instructions.
        for (chunk, fixed) in data[named * 8..].chunks_exact(8).zip(&TABLE[first + named..]) {
            wrong |= word_at(chunk) ^ self.base.wrapping_add(*fixed);
        }
        wrong == 0
    }
}

fn word_at(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

/// A stretch of a buffer that lies in one page: the page, the byte in it where the stretch begins, its
/// length.
fn next_stretch(seed: u64, offset: u64, left: usize) -> (Page, usize, usize) {
    let within = (offset % PAGE_BYTES as u64) as usize;
    (Page::new(seed, offset / PAGE_BYTES as u64), within, left.min(PAGE_BYTES - within))
}

impl Content {
    /// The content of the file at `path`, relative to the library's root; slashes in front do not count.
    pub fn of_path(path: &str) -> Content {
        let path = path.trim_start_matches('/').as_bytes();
        let mut seed = mix(path.len() as u64 ^ GOLDEN);
        for chunk in path.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            seed = mix(seed.wrapping_add(GOLDEN) ^ u64::from_le_bytes(word));
        }
        Content { seed }
    }

    /// The content that carries `seed` in the first word of its pages.
    pub const fn from_seed(seed: u64) -> Content {
        Content { seed }
    }

    /// The seed, as found in the first word of every page.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Writes the bytes from `offset` (any alignment) on into the whole of `buf`. Offsets past 2^64 wrap.
    pub fn fill(&self, mut offset: u64, mut buf: &mut [u8]) {
        while !buf.is_empty() {
            let (page, within, len) = next_stretch(self.seed, offset, buf.len());
            let (part, rest) = buf.split_at_mut(len);
            let head = ((8 - within % 8) % 8).min(len);
            let body = (len - head) / 8 * 8;
            for (k, byte) in part[..head].iter_mut().enumerate() {
                *byte = page.word((within + k) / 8).to_le_bytes()[(within + k) % 8];
            }
            if body > 0 {
                page.fill_words((within + head) / 8, &mut part[head..head + body]);
            }
            for (k, byte) in part.iter_mut().enumerate().skip(head + body) {
                *byte = page.word((within + k) / 8).to_le_bytes()[(within + k) % 8];
            }
            offset = offset.wrapping_add(len as u64);
            buf = rest;
        }
    }

    /// Compares `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// The offset in the file (not in `buf`) of the first byte that differs.
    pub fn check(&self, offset: u64, buf: &[u8]) -> Result<(), u64> {
        let (mut at, mut left) = (offset, buf);
        while !left.is_empty() {
            let (page, within, len) = next_stretch(self.seed, at, left.len());
            let head = ((8 - within % 8) % 8).min(len);
            let body = (len - head) / 8 * 8;
            let byte_differs =
                |k: usize| left[k] != page.word((within + k) / 8).to_le_bytes()[(within + k) % 8];
            let edges_match = !(0..head).chain(head + body..len).any(byte_differs);
            if !edges_match || (body > 0 && !page.words_match((within + head) / 8, &left[head..head + body]))
            {
                let first = (0..len).find(|k| byte_differs(*k)).unwrap_or(0);
                return Err(at.wrapping_add(first as u64));
            }
            at = at.wrapping_add(len as u64);
            left = &left[len..];
        }
        Ok(())
    }
}

/// Whose page this is: `(seed, page index)` if the whole page is exactly that content, `None` for anything
/// else (a page of zeros included).
pub fn recognise_page(page: &[u8; PAGE_BYTES]) -> Option<(u64, u64)> {
    let claimed = Page::new(word_at(&page[0..]), word_at(&page[8..]));
    // One word settles nearly every page that is not content.
    if word_at(&page[16..]) != claimed.word(2) || !claimed.words_match(0, page) {
        return None;
    }
    Some((claimed.seed, claimed.index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Byte by byte from the definition, nothing shared with the fast loops but `word`.
    fn naive(seed: u64, offset: u64, len: usize) -> Vec<u8> {
        (offset..offset + len as u64)
            .map(|o| Page::new(seed, o / 4096).word((o % 4096 / 8) as usize).to_le_bytes()[(o % 8) as usize])
            .collect()
    }

    #[test]
    fn golden_bytes_do_not_move() {
        // A library populated by one version is verified by another. Numbers from a second program in Python.
        let content = Content::of_path("videos/000017.mp4");
        let mut buf = [0; 24];
        content.fill(4096 * 3, &mut buf);
        assert_eq!(word_at(&buf), content.seed());
        assert_eq!(word_at(&buf[8..]), 3);
        assert_eq!(
            (content.seed(), word_at(&buf[16..])),
            (4_082_406_144_960_416_223, 15_859_628_808_435_025_446)
        );
        assert_eq!(Content::of_path("/videos/000017.mp4"), content);
        assert_ne!(Content::of_path("videos/000017.mp"), content);
        assert_ne!(Content::of_path("videos/000017.mp4\0"), content);
    }

    #[test]
    fn swapped_shifted_and_stale_pages_are_found() {
        let content = Content::of_path("a/b");
        let mut data = vec![0; 4 * 4096];
        content.fill(0, &mut data);
        let mut swapped = data.clone();
        swapped[4096..3 * 4096].rotate_left(4096);
        assert_eq!(content.check(0, &swapped), Err(4096 + 8), "seeds agree, page indices differ");
        assert_eq!(content.check(4096, &data[..4096]).unwrap_err(), 4096 + 8);
        assert!(content.check(4096 + 512, &data[512..1024]).is_err(), "also away from the first words");
        assert!(Content::of_path("a/c").check(512, &data[512..600]).is_err());
        assert_eq!(content.check(0, &[0; 4096][..]).unwrap_err(), 0);
    }

    #[test]
    fn pages_are_recognised_only_whole() {
        let mut page = [0; 4096];
        assert_eq!(recognise_page(&page), None, "zeros are nobody's");
        Content::from_seed(0).fill(0, &mut page);
        assert_eq!(recognise_page(&page), Some((0, 0)), "seed and index zero are somebody's");
        Content::from_seed(77).fill(9 * 4096, &mut page);
        assert_eq!(recognise_page(&page), Some((77, 9)));
        for i in 0..4096 {
            page[i] ^= 1;
            assert_eq!(recognise_page(&page), None, "byte {i}");
            page[i] ^= 1;
        }
    }

    proptest! {
        #[test]
        fn fill_is_the_definition_at_any_offset(seed: u64, offset in 0u64..20_000, len in 0usize..10_000) {
            let mut buf = vec![0xaa; len];
            Content::from_seed(seed).fill(offset, &mut buf);
            prop_assert_eq!(buf, naive(seed, offset, len));
        }

        #[test]
        fn check_finds_the_first_wrong_byte(
            seed: u64, offset in 0u64..20_000, len in 1usize..10_000, at: prop::sample::Index,
            more: prop::sample::Index, flip in 1u8..,
        ) {
            let content = Content::from_seed(seed);
            let mut buf = vec![0; len];
            content.fill(offset, &mut buf);
            prop_assert_eq!(content.check(offset, &buf), Ok(()));
            let (at, more) = (at.index(len), more.index(len));
            buf[at] ^= flip;
            if more > at {
                buf[more] ^= flip;
            }
            prop_assert_eq!(content.check(offset, &buf), Err(offset + at as u64));
        }
    }
}
