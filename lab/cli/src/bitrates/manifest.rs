//! HLS media playlists (RFC 8216) and DASH presentation descriptions (ISO/IEC 23009-1).
//!
//! A playlist gives seconds for each segment; those of one file are added up. A description gives a bandwidth
//! for each representation whose file it names (`BaseURL`, `SegmentURL`); segments named by a template are
//! files of a few seconds each, too short to be worth more than their own reads tell. A multivariant playlist
//! names other playlists, which are files of their own.
//!
//! A manifest can name the same long address many times over. So addresses are bounded one by one and all
//! together, and elements are looked for where they belong, not at any depth.

use std::collections::BTreeMap;

use m3u8_rs::{Playlist, parse_playlist_res};
use roxmltree::{Document, Node, ParsingOptions};
use serde::{Deserialize, Serialize};

/// Most files that a manifest tells of: a film of four hours in segments of four seconds.
pub(crate) const PARTS_MAX: usize = 4096;

/// Longest address, bytes: a path of `PATH_MAX`.
const ADDRESS_MAX: usize = 4096;

/// Bytes of all addresses together. Those of [`PARTS_MAX`] files have a hundredth of it each on the mean.
const ADDRESSES_MAX: usize = 1 << 20;

/// Most elements and texts of a description: several for each of [`PARTS_MAX`] segments.
const NODES_MAX: u32 = 1 << 15;

/// What kind of manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Hls,
    Dash,
}

/// What is said of one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Where it is, relative to the manifest.
    pub(crate) uri: String,
    /// Bytes of it that are meant; all of it where it is not said.
    pub(crate) bytes: Option<u64>,
    /// How long they play.
    pub(crate) seconds: Option<f64>,
    /// Bytes a second.
    pub(crate) bytes_per_s: Option<f64>,
}

/// What a small file is, by its first bytes.
pub(crate) fn kind(text: &[u8]) -> Option<Kind> {
    if text.starts_with(b"#EXTM3U") {
        return Some(Kind::Hls);
    }
    let head = &text[..text.len().min(1024)];
    let has = |word: &[u8]| head.windows(word.len()).any(|w| w == word);
    (has(b"<MPD") && has(b"urn:mpeg:dash:schema:mpd")).then_some(Kind::Dash)
}

/// What it says, file by file.
///
/// # Errors
/// One line about what is wrong with it.
pub(crate) fn read(text: &[u8], kind: Kind) -> Result<Vec<Part>, String> {
    match kind {
        Kind::Hls => hls(text),
        Kind::Dash => dash(text),
    }
}

fn hls(text: &[u8]) -> Result<Vec<Part>, String> {
    let playlist = parse_playlist_res(text).map_err(|_| "it is no playlist that can be read".to_string())?;
    let Playlist::MediaPlaylist(media) = playlist else { return Ok(Vec::new()) };
    let mut files: BTreeMap<&str, Part> = BTreeMap::new();
    for segment in &media.segments {
        let seconds = f64::from(segment.duration);
        if !(seconds.is_finite() && seconds >= 0.0) {
            return Err(format!("a segment plays for {seconds} s"));
        }
        let part = files.entry(&segment.uri).or_default();
        part.seconds = Some(part.seconds.unwrap_or(0.0) + seconds);
        if let Some(range) = &segment.byte_range {
            part.bytes = Some(part.bytes.unwrap_or(0).saturating_add(range.length));
        }
    }
    let mut parts = Parts::default();
    for (address, part) in files {
        parts.put(Part { uri: joined("", address)?, ..part })?;
    }
    Ok(parts.all)
}

/// What a manifest tells of files, within bounds.
#[derive(Default)]
struct Parts {
    all: Vec<Part>,
    /// Bytes of their addresses.
    addresses: usize,
}

impl Parts {
    fn put(&mut self, part: Part) -> Result<(), String> {
        self.addresses += part.uri.len();
        if self.all.len() >= PARTS_MAX {
            return Err(format!("it names more than {PARTS_MAX} files"));
        }
        if self.addresses > ADDRESSES_MAX {
            return Err(format!("the addresses it names have more than {ADDRESSES_MAX} bytes together"));
        }
        self.all.push(part);
        Ok(())
    }
}

fn dash(text: &[u8]) -> Result<Vec<Part>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_string())?;
    let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)
        .map_err(|e| format!("it is no XML that can be read: {e}"))?;
    let mpd = document.root_element();
    let seconds = mpd.attribute("mediaPresentationDuration").and_then(seconds);
    let mut parts = Parts::default();
    let base = based("", mpd)?;
    for period in named(mpd, "Period") {
        let base = based(&base, period)?;
        for set in named(period, "AdaptationSet") {
            let base = based(&base, set)?;
            for representation in named(set, "Representation") {
                represented(representation, &base, seconds, &mut parts)?;
            }
        }
    }
    Ok(parts.all)
}

/// The files of a representation.
fn represented(
    representation: Node<'_, '_>,
    base: &str,
    seconds: Option<f64>,
    parts: &mut Parts,
) -> Result<(), String> {
    let Some(bandwidth) = representation.attribute("bandwidth") else { return Ok(()) };
    let bits: f64 = bandwidth.parse().map_err(|_| "a bandwidth is no number".to_string())?;
    let base = based(base, representation)?;
    let part = |uri, seconds| Part { uri, bytes: None, seconds, bytes_per_s: Some(bits / 8.0) };
    let mut segments = named(representation, "SegmentList")
        .flat_map(|list| named(list, "SegmentURL"))
        .filter_map(|segment| segment.attribute("media"))
        .peekable();
    if segments.peek().is_none() && !base.is_empty() && !base.ends_with('/') {
        return parts.put(part(base, seconds));
    }
    segments.try_for_each(|media| parts.put(part(joined(&base, media)?, None)))
}

/// The children of a node of this name.
fn named<'a>(node: Node<'a, 'a>, name: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    node.children().filter(move |child| child.tag_name().name() == name)
}

/// The address of a node: that of what it is in, and its own base behind it.
fn based(base: &str, node: Node<'_, '_>) -> Result<String, String> {
    let own = named(node, "BaseURL").next().and_then(|own| own.text()).unwrap_or("");
    joined(base, own.trim())
}

fn joined(base: &str, address: &str) -> Result<String, String> {
    if base.len() + address.len() > ADDRESS_MAX {
        return Err(format!("an address has more than {ADDRESS_MAX} bytes"));
    }
    Ok([base, address].concat())
}

/// Seconds of an XML duration such as `PT1H2M3.5S`; none for one with months or years.
fn seconds(text: &str) -> Option<f64> {
    let (days, time) = text.strip_prefix('P')?.split_once('T').unwrap_or((text.strip_prefix('P')?, ""));
    let mut total = match days {
        "" => 0.0,
        days => days.strip_suffix('D')?.parse::<f64>().ok()? * 86_400.0,
    };
    let mut rest = time;
    for (unit, factor) in [('H', 3600.0), ('M', 60.0), ('S', 1.0)] {
        if let Some((number, after)) = rest.split_once(unit) {
            total += number.parse::<f64>().ok()? * factor;
            rest = after;
        }
    }
    (rest.is_empty() && total.is_finite() && total > 0.0).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(seconds("PT1H2M3.5S"), Some(3723.5));
        assert_eq!(seconds("P1DT1S"), Some(86_401.0));
        for wrong in ["", "P", "PT", "1H", "P1Y", "PT1X", "PTS", "PT-5S", "PTinfS"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
