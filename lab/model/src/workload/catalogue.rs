//! The library of a server: its files, their sizes and popularity.
//!
//! A video is a duration (drawn from the measured distribution) at one of two bitrates, SD 419 kb/s or HD
//! 2095 kb/s (\[A\] section 6.2: ten seconds are 0.5 MiB and 2.5 MiB), in one file (\[L\] section 4 stores
//! each video in one file, because that was faster than one file a segment). Popularity is Zipf; a seeded
//! permutation says which file has which rank, so that popular files lie anywhere on the disk and are of any
//! length.
//!
//! Names are `sd/000123.mp4` and `hd/000124.mp4`, relative to the library's root. A manifest is the text
//! form: one `size path` line a file, in bytes.
//!
//! [`Content`] has other libraries: those of the competitive prefetching paper's applications (\[C\] section
//! 3.1), and a mirror of a distribution's packages.

use core::fmt;

use seekless_base::Bytes;
use serde::{Deserialize, Serialize};

use crate::workload::distribution::{DURATION_S, PACKAGE_BYTES};
use crate::workload::draw::Draw;
use crate::workload::splitmix;
use crate::workload::tree::TreeFile;
use crate::workload::zipf::Zipf;

/// Bitrate of a standard definition video, bits a second (\[A\] section 6.2).
pub const SD_BITS_PER_S: u64 = 419_000;
/// Bitrate of a high definition video, bits a second (\[A\] section 6.2).
pub const HD_BITS_PER_S: u64 = 2_095_000;

/// Shortest video, seconds (`min_duration_s` of the published tables).
const MIN_DURATION_S: f64 = 5.0;
/// Maximum number of files: more than on any test disk. It bounds the memory of a catalogue to about 400 MB.
pub const MAX_VIDEOS: usize = 10_000_000;
/// A library ends without a file smaller than this (one page): it stays that much below its size.
const SMALLEST_FILL: u64 = 4096;

/// Files of a search index: eight parts of 18.5 GB together (\[C\] section 3.1).
const INDEX_PARTS: u64 = 8;
const INDEX_BYTES: u64 = 18_500_000_000;
/// The file that maps keywords to places in the index, and its size (\[C\] section 3.1).
pub const INDEX_MAPPING: u32 = 0;
const INDEX_MAPPING_BYTES: u64 = 522_000_000;

/// Share of video clips among media clips (\[C\] section 3.1: "about 9 %").
const CLIPS_VIDEO_SHARE: f64 = 0.09;
/// Audio and video clips, bytes. \[C\] gives the ends, 24 and 1418 KB, and the mean of all, 152 KB. Where
/// audio ends and video begins is guessed so that this mean comes out: audio sizes with evenly distributed
/// logarithms (mean 77.4), video sizes evenly distributed (mean 906).
const CLIPS_AUDIO: (f64, f64) = (24e3, 180e3);
const CLIPS_VIDEO: (f64, f64) = (394e3, 1418e3);

/// Files a folder of a mirror, rounded: 169,078 in 34,290 folders of the archive that [`PACKAGE_BYTES`] is
/// of.
const MIRROR_FILES_PER_FOLDER: usize = 5;

/// The kind of files of a library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Videos of drawn durations.
    #[default]
    Videos,
    /// Media clips of the 1998 World Cup's site: many small audio clips, some larger video clips.
    Clips,
    /// A search index: the mapping file ([`INDEX_MAPPING`]) and eight parts.
    Index,
    /// A mirror of a distribution's packages: half of them below 14 KB, a few of hundreds of megabytes, five
    /// a folder. A folder's files were written together; the order of the folders' names is another one.
    Mirror,
}

impl core::str::FromStr for Content {
    type Err = String;

    fn from_str(word: &str) -> Result<Content, String> {
        match word {
            "videos" => Ok(Content::Videos),
            "clips" => Ok(Content::Clips),
            "index" => Ok(Content::Index),
            "mirror" => Ok(Content::Mirror),
            _ => Err(format!("`{word}` is no kind of files; there are videos, clips, index and mirror")),
        }
    }
}

/// The specification of a library. Every field has a default; unknown fields are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CatalogueSpec {
    /// Number of videos. None: as many as fill `size`, or 20,000 (\[L\] section 4) if that is not given
    /// either.
    pub videos: Option<u32>,
    /// Size of the whole library. With `videos`, all durations are scaled so that the sum comes out; without,
    /// videos are drawn until it is reached and the last one is cut.
    pub size: Option<Bytes>,
    /// Every file has this size instead of a drawn duration.
    pub file_size: Option<Bytes>,
    /// What kind of files; the next fields but `zipf` and `seed` are for videos.
    pub content: Content,
    /// Share of HD videos, 0 to 1. The papers use 0, 1 and 0.5.
    pub hd_share: f64,
    /// Zipf exponent of the popularity, 0 to 5 (0.8 in both papers; 0 = all alike).
    pub zipf: f64,
    /// Seed of durations, qualities and ranks.
    pub seed: u64,
}

impl Default for CatalogueSpec {
    fn default() -> CatalogueSpec {
        CatalogueSpec {
            videos: None,
            size: None,
            file_size: None,
            content: Content::Videos,
            hd_share: 0.0,
            zipf: 0.8,
            seed: 1,
        }
    }
}

/// Why a catalogue could not be made; the text says what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueError(String);

impl fmt::Display for CatalogueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for CatalogueError {}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Video {
    /// Path relative to the library's root, no leading slash.
    pub path: String,
    /// Length of the file.
    pub size: Bytes,
    /// Bits a second at which it plays.
    pub bits_per_s: u64,
}

impl Video {
    /// How long it plays, seconds.
    pub fn duration_s(&self) -> f64 {
        self.size.0 as f64 * 8.0 / self.bits_per_s as f64
    }
}

/// A library and the popularity of its files.
#[derive(Clone, Debug)]
pub struct Catalogue {
    videos: Vec<Video>,
    /// `by_rank[0]` is the index of the most popular file.
    by_rank: Vec<u32>,
    zipf: Zipf,
}

impl Catalogue {
    /// Draws the library that `spec` describes.
    ///
    /// # Errors
    /// A value out of its range, no file at all, or more than [`MAX_VIDEOS`].
    pub fn new(spec: &CatalogueSpec) -> Result<Catalogue, CatalogueError> {
        let bad = |text: String| Err(CatalogueError(text));
        if !(0.0..=1.0).contains(&spec.hd_share) {
            return bad(format!("the share of HD videos is {}; it must be between 0 and 1", spec.hd_share));
        }
        if !(0.0..=5.0).contains(&spec.zipf) {
            return bad(format!("the Zipf exponent is {}; it must be between 0 and 5", spec.zipf));
        }
        if spec.file_size == Some(Bytes::ZERO) || spec.size == Some(Bytes::ZERO) {
            return bad("a library or file of 0 bytes was asked for; give a size".into());
        }
        if spec.content == Content::Index {
            return Ok(Catalogue::index(spec));
        }
        let count = match (spec.videos, spec.size) {
            (Some(0), _) => return bad("a library of 0 videos was asked for; give at least 1".into()),
            (Some(n), _) => Some(n as usize),
            (None, Some(_)) => None,
            (None, None) => Some(20_000),
        };
        if count.is_some_and(|n| n > MAX_VIDEOS) {
            return bad(format!("more than {MAX_VIDEOS} videos were asked for; give fewer"));
        }
        let mut durations = Draw::new(spec.seed, "catalogue durations");
        let mut qualities = Draw::new(spec.seed, "catalogue qualities");
        let mut sizes: Vec<(bool, u64)> = Vec::with_capacity(count.unwrap_or(1024));
        let target = spec.size.map(|b| b.0);
        let mut total = 0_u64;
        loop {
            match (count, target) {
                (Some(n), _) if sizes.len() == n => break,
                (None, Some(t)) if total >= t => break,
                _ if sizes.len() == MAX_VIDEOS => {
                    return bad(format!(
                        "the library would have more than {MAX_VIDEOS} files; ask for a smaller one or larger files"
                    ));
                }
                _ => {}
            }
            let hd_share = match spec.content {
                Content::Clips => CLIPS_VIDEO_SHARE,
                Content::Mirror => 0.0,
                Content::Videos | Content::Index => spec.hd_share,
            };
            let (hd, drawn) = (qualities.unit() < hd_share, durations.unit());
            let size = match (spec.file_size, spec.content) {
                (Some(size), _) => size.0,
                (None, Content::Clips) => clip_size(hd, drawn) as u64,
                (None, Content::Mirror) => PACKAGE_BYTES.quantile(drawn).max(1.0) as u64,
                (None, Content::Videos | Content::Index) => {
                    let seconds = DURATION_S.quantile(drawn).max(MIN_DURATION_S);
                    (seconds * bits_per_s(hd) as f64 / 8.0) as u64
                }
            };
            total = total.saturating_add(size);
            sizes.push((hd, size));
        }
        match (count, target) {
            (None, Some(t)) => cut_last(&mut sizes, total - t),
            (Some(_), Some(t)) => scale(&mut sizes, total, t),
            _ => {}
        }
        let path = |i: usize, hd: bool| match spec.content {
            Content::Mirror => mirror_path(i),
            _ => format!("{}/{i:06}.mp4", if hd { "hd" } else { "sd" }),
        };
        let videos = sizes
            .into_iter()
            .enumerate()
            .map(|(i, (hd, size))| Video { path: path(i, hd), size: Bytes(size), bits_per_s: bits_per_s(hd) })
            .collect();
        Ok(Catalogue::with_popularity(videos, spec.zipf, spec.seed))
    }

    /// The search index, scaled to `size` if that is given.
    fn index(spec: &CatalogueSpec) -> Catalogue {
        let part = INDEX_BYTES / INDEX_PARTS;
        let mut sizes: Vec<(bool, u64)> = vec![(false, part); 1 + INDEX_PARTS as usize];
        sizes[INDEX_MAPPING as usize].1 = INDEX_MAPPING_BYTES;
        if let Some(size) = spec.size {
            scale(&mut sizes, INDEX_MAPPING_BYTES + INDEX_BYTES, size.0);
        }
        let file = |(i, (hd, size)): (usize, (bool, u64))| Video {
            path: format!("index/{i:06}"),
            size: Bytes(size),
            bits_per_s: bits_per_s(hd),
        };
        let files = sizes.into_iter().enumerate().map(file).collect();
        Catalogue::with_popularity(files, spec.zipf, spec.seed)
    }

    /// A library read from a manifest: one `size path` line a file; blank lines and lines that start with `#`
    /// are skipped. Files under `hd/` play at the HD bitrate, all others at the SD bitrate.
    ///
    /// # Errors
    /// The first line that is not a size and a path, or no file at all.
    pub fn from_manifest(bytes: &[u8], zipf: f64, seed: u64) -> Result<Catalogue, CatalogueError> {
        let text = core::str::from_utf8(bytes)
            .map_err(|e| CatalogueError(format!("the manifest is not UTF-8 at byte {}", e.valid_up_to())))?;
        let mut videos = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (size, path) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let path = path.trim_start().trim_start_matches('/');
            let size = size.parse::<u64>().ok().filter(|_| !path.is_empty()).ok_or_else(|| {
                CatalogueError(format!("line {} of the manifest is not `size path`: `{line}`", i + 1))
            })?;
            if size == 0 {
                continue; // Nothing can be read from it.
            }
            let hd = path.starts_with("hd/");
            videos.push(Video { path: path.to_string(), size: Bytes(size), bits_per_s: bits_per_s(hd) });
            if videos.len() > MAX_VIDEOS {
                return Err(CatalogueError(format!("the manifest has more than {MAX_VIDEOS} files")));
            }
        }
        if videos.is_empty() {
            return Err(CatalogueError(
                "the manifest names no file with at least one byte; write a line `size path` for each".into(),
            ));
        }
        Ok(Catalogue::with_popularity(videos, zipf, seed))
    }

    /// The files of a tree, in the order of writing, all equally popular.
    ///
    /// # Errors
    /// A tree of no files.
    pub fn of_tree(files: Vec<TreeFile>, seed: u64) -> Result<Catalogue, CatalogueError> {
        let video =
            |f: TreeFile| Video { path: f.path, size: Bytes(f.size.max(1)), bits_per_s: bits_per_s(false) };
        let videos: Vec<Video> = files.into_iter().map(video).collect();
        if videos.is_empty() {
            return Err(CatalogueError("a tree of 0 files was asked for; give at least 1".into()));
        }
        Ok(Catalogue::with_popularity(videos, 0.0, seed))
    }

    fn with_popularity(videos: Vec<Video>, zipf: f64, seed: u64) -> Catalogue {
        let mut by_rank: Vec<u32> = (0..videos.len() as u32).collect();
        Draw::new(seed, "catalogue ranks").shuffle(&mut by_rank);
        let zipf = Zipf::new(videos.len(), zipf);
        Catalogue { videos, by_rank, zipf }
    }

    /// All files, in the order of their names.
    pub fn videos(&self) -> &[Video] {
        &self.videos
    }

    /// One file.
    pub fn video(&self, index: u32) -> &Video {
        &self.videos[index as usize]
    }

    /// Index of a file chosen by popularity.
    pub fn pick_popular(&self, draw: &mut Draw) -> u32 {
        self.by_rank[self.zipf.sample(draw)]
    }

    /// Index of a file, all equally likely.
    pub fn pick_uniform(&self, draw: &mut Draw) -> u32 {
        draw.below(self.videos.len() as u64) as u32
    }

    /// Each file's index with its share of popular requests.
    pub fn shares(&self) -> impl Iterator<Item = (u32, f64)> {
        self.by_rank.iter().enumerate().map(|(rank, &index)| (index, self.zipf.share(rank)))
    }

    /// Bytes in all files together.
    pub fn total(&self) -> Bytes {
        self.videos.iter().fold(Bytes::ZERO, |sum, v| sum + v.size)
    }

    /// The manifest: one `size path` line a file.
    pub fn manifest(&self) -> impl Iterator<Item = String> {
        self.videos.iter().map(|v| format!("{} {}", v.size.0, v.path))
    }
}

/// Bytes of an audio or a video clip, by a number in [0, 1).
fn clip_size(video: bool, drawn: f64) -> f64 {
    if video {
        return CLIPS_VIDEO.0 + drawn * (CLIPS_VIDEO.1 - CLIPS_VIDEO.0);
    }
    CLIPS_AUDIO.0 * libm::pow(CLIPS_AUDIO.1 / CLIPS_AUDIO.0, drawn)
}

/// Where a mirror has its file of this number: two levels of folders, the upper one of 256.
fn mirror_path(index: usize) -> String {
    let folder = splitmix::mix((index / MIRROR_FILES_PER_FOLDER) as u64);
    format!("pool/{:02x}/{:08x}/{index:06}", folder >> 56, folder as u32)
}

fn bits_per_s(hd: bool) -> u64 {
    if hd { HD_BITS_PER_S } else { SD_BITS_PER_S }
}

/// Takes `excess` bytes off the last file, and the whole file if (almost) nothing would be left of it.
fn cut_last(sizes: &mut Vec<(bool, u64)>, excess: u64) {
    if let Some(last) = sizes.last_mut() {
        last.1 -= excess;
        if last.1 < SMALLEST_FILL && sizes.len() > 1 {
            sizes.pop();
        }
    }
}

/// Makes `total` bytes `target` bytes, every file in proportion (at least one byte each).
fn scale(sizes: &mut [(bool, u64)], total: u64, target: u64) {
    let factor = target as f64 / total as f64;
    for (_, size) in sizes.iter_mut() {
        *size = ((*size as f64 * factor) as u64).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> CatalogueSpec {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn first_files_never_change() {
        let c = Catalogue::new(&spec("videos = 1000\nhd_share = 0.5\nseed = 1")).unwrap();
        let first: Vec<String> = c.manifest().take(4).collect();
        assert_eq!(first, GOLDEN_FILES);
        let mut draw = Draw::new(1, "golden picks");
        let picks: Vec<u32> = (0..4).map(|_| c.pick_popular(&mut draw)).collect();
        assert_eq!(picks, GOLDEN_PICKS);
    }

    const GOLDEN_FILES: [&str; 4] = [
        "75395180 hd/000000.mp4",
        "16412047 sd/000001.mp4",
        "11715044 sd/000002.mp4",
        "111182856 hd/000003.mp4",
    ];
    const GOLDEN_PICKS: [u32; 4] = [241, 596, 167, 813];

    /// \[L\] section 4: 20,000 files at 420 kb/s average 13 MB; \[A\] section 6.2: SD 13 MB, HD 66 MB (MiB),
    /// 267 s.
    #[test]
    fn sizes_are_the_papers() {
        let c = Catalogue::new(&CatalogueSpec::default()).unwrap();
        assert_eq!(c.videos().len(), 20_000);
        let mean = c.total().0 as f64 / 20_000.0;
        assert!((mean / 13.5e6 - 1.0).abs() < 0.02, "{mean}");
        let hd = Catalogue::new(&spec("videos = 8000\nhd_share = 1.0")).unwrap();
        let mean = hd.total().0 as f64 / 8_000.0;
        assert!((mean / 67.7e6 - 1.0).abs() < 0.02, "{mean}");
        let seconds = hd.videos().iter().map(Video::duration_s).sum::<f64>() / 8000.0;
        assert!((seconds / 258.4 - 1.0).abs() < 0.02, "{seconds}");
    }

    /// \[C\] section 3.1: clips of 24 to 1418 KB, 152 KB on average, about 9 % video; 18.5 GB of index and
    /// 522 MB of mapping.
    #[test]
    fn clips_and_index_are_the_papers() {
        let c = Catalogue::new(&spec("content = \"clips\"\nsize = \"20.4GB\"")).unwrap();
        let sizes: Vec<u64> = c.videos().iter().map(|v| v.size.0).collect();
        let mean = c.total().0 as f64 / sizes.len() as f64;
        assert!((mean / 152e3 - 1.0).abs() < 0.01, "{mean}");
        // The last one was cut to the library's size.
        let all = &sizes[..sizes.len() - 1];
        assert!(all.iter().all(|s| (24_000..=1_418_000).contains(s)));
        let large = all.iter().filter(|s| **s > 300_000).count() as f64 / all.len() as f64;
        assert!((large - 0.09).abs() < 0.003, "{large}");
        let c = Catalogue::new(&spec("content = \"index\"")).unwrap();
        assert_eq!(c.videos().len(), 9);
        assert_eq!(c.video(INDEX_MAPPING).size, Bytes(522_000_000));
        assert_eq!(c.total(), Bytes(19_022_000_000));
        let c = Catalogue::new(&spec("content = \"index\"\nsize = \"1GB\"")).unwrap();
        assert!(1_000_000_000 - c.total().0 < 16);
    }

    /// Debian's archive: see [`PACKAGE_BYTES`].
    #[test]
    fn a_mirror_has_the_sizes_and_folders_of_an_archive() {
        let c = Catalogue::new(&spec("content = \"mirror\"\nvideos = 20000")).unwrap();
        let mut sizes: Vec<u64> = c.videos().iter().map(|v| v.size.0).collect();
        sizes.sort_unstable();
        for (share, bytes) in [(0.25, 2_700), (0.5, 13_210), (0.75, 98_368), (0.95, 2_153_576)] {
            let drawn = sizes.partition_point(|&size| size <= bytes) as f64 / 20_000.0;
            assert!((drawn - share).abs() < 0.015, "{bytes}: {drawn}");
        }
        let folder = |v: &Video| v.path.rsplit_once('/').unwrap().0.to_string();
        let mut folders: Vec<String> = c.videos().iter().map(folder).collect();
        let falls = folders.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!((1_900..2_100).contains(&falls), "{falls}: the order of names is not that of writing");
        folders.sort();
        folders.dedup();
        assert_eq!(folders.len(), 4_000);
    }

    #[test]
    fn a_library_has_the_size_asked_for() {
        for text in [
            "size = \"7.4GB\"",
            "size = \"7.4GB\"\nhd_share = 0.5",
            "size = \"7.4GB\"\nvideos = 100",
            "size = \"7.4GB\"\nfile_size = \"64MiB\"",
        ] {
            let c = Catalogue::new(&spec(text)).unwrap();
            let short = 7_400_000_000_i64 - c.total().0 as i64;
            assert!((0..=4096).contains(&short), "{text}: {short} short");
        }
        let c = Catalogue::new(&spec("videos = 7\nfile_size = \"1MiB\"")).unwrap();
        assert_eq!(c.total(), Bytes::mib(7));
    }

    #[test]
    fn a_manifest_reads_back() {
        let c = Catalogue::new(&spec("videos = 50\nhd_share = 0.5")).unwrap();
        let text = c.manifest().collect::<Vec<_>>().join("\n");
        let back = Catalogue::from_manifest(text.as_bytes(), 0.8, 1).unwrap();
        assert_eq!(back.videos(), c.videos());
        let mut draws = (Draw::new(9, "x"), Draw::new(9, "x"));
        assert!((0..100).all(|_| c.pick_popular(&mut draws.0) == back.pick_popular(&mut draws.1)));
    }

    #[test]
    fn bad_specifications_say_why() {
        for (text, why) in [
            ("videos = 0", "at least 1"),
            ("hd_share = 1.5", "between 0 and 1"),
            ("zipf = -1.0", "between 0 and 5"),
            ("size = 0", "give a size"),
            ("videos = 20000000", "give fewer"),
            ("size = \"1GB\"\nfile_size = 10", "larger files"),
        ] {
            let e = Catalogue::new(&spec(text)).unwrap_err().to_string();
            assert!(e.contains(why), "{text}: {e}");
        }
        assert!(toml::from_str::<CatalogueSpec>("vidoes = 3").unwrap_err().to_string().contains("vidoes"));
        for (text, why) in
            [("12 a\nx b\n", "line 2"), ("12\n", "line 1"), ("# nothing\n\n0 empty\n", "no file")]
        {
            let e = Catalogue::from_manifest(text.as_bytes(), 0.8, 1).unwrap_err().to_string();
            assert!(e.contains(why), "{text}: {e}");
        }
    }
}
