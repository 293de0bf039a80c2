//! HLS media playlists (RFC 8216) and DASH presentation descriptions (ISO/IEC 23009-1).
//!
//! A playlist gives seconds for each segment; those of one file are added up. A description gives a bandwidth
//! for each representation whose file it names (`BaseURL`, `SegmentURL`); segments named by a template are
//! files of a few seconds each, too short to be worth more than their own reads tell. A multivariant playlist
//! names other playlists, which are read when a client reads them.

use std::collections::BTreeMap;

use m3u8_rs::{Playlist, parse_playlist_res};
use roxmltree::{Document, Node};

/// Most segments or representations looked at.
const PARTS_MAX: usize = 16_384;

/// What kind of manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Hls,
    Dash,
}

/// What is said of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Part {
    /// Where it is, relative to the manifest.
    pub(super) uri: String,
    /// Bytes of it that are meant; all of it where it is not said.
    pub(super) bytes: Option<u64>,
    /// How long they play.
    pub(super) seconds: Option<f64>,
    /// Bytes a second.
    pub(super) bytes_per_s: Option<f64>,
}

/// What a small file is, by its first bytes.
pub(super) fn kind(text: &[u8]) -> Option<Kind> {
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
pub(super) fn read(text: &[u8], kind: Kind) -> Result<Vec<Part>, String> {
    match kind {
        Kind::Hls => hls(text),
        Kind::Dash => dash(text),
    }
}

fn hls(text: &[u8]) -> Result<Vec<Part>, String> {
    let playlist = parse_playlist_res(text).map_err(|_| "it is no playlist that can be read".to_string())?;
    let Playlist::MediaPlaylist(media) = playlist else { return Ok(Vec::new()) };
    let mut files: BTreeMap<&str, Part> = BTreeMap::new();
    for segment in media.segments.iter().take(PARTS_MAX) {
        let seconds = f64::from(segment.duration);
        if !(seconds.is_finite() && seconds >= 0.0) {
            return Err(format!("a segment of {} plays for {seconds} s", segment.uri));
        }
        let part = files.entry(&segment.uri).or_default();
        part.seconds = Some(part.seconds.unwrap_or(0.0) + seconds);
        if let Some(range) = &segment.byte_range {
            part.bytes = Some(part.bytes.unwrap_or(0).saturating_add(range.length));
        }
    }
    Ok(files.into_iter().map(|(uri, part)| Part { uri: uri.into(), ..part }).collect())
}

fn dash(text: &[u8]) -> Result<Vec<Part>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_string())?;
    let document = Document::parse(text).map_err(|e| format!("it is no XML that can be read: {e}"))?;
    let seconds = document.root_element().attribute("mediaPresentationDuration").and_then(seconds);
    let mut parts = Vec::new();
    let named = |node: &Node<'_, '_>, name: &str| node.tag_name().name() == name;
    for representation in document.descendants().filter(|n| named(n, "Representation")).take(PARTS_MAX) {
        let Some(bandwidth) = representation.attribute("bandwidth") else { continue };
        let bits: f64 = bandwidth.parse().map_err(|_| format!("a bandwidth is `{bandwidth}`"))?;
        let base = base(&representation);
        let mut put = |uri: String, seconds: Option<f64>| {
            if parts.len() < PARTS_MAX {
                parts.push(Part { uri, bytes: None, seconds, bytes_per_s: Some(bits / 8.0) });
            }
        };
        let segments: Vec<_> = representation.descendants().filter(|n| named(n, "SegmentURL")).collect();
        for segment in &segments {
            if let Some(media) = segment.attribute("media") {
                put(format!("{base}{media}"), None);
            }
        }
        if segments.is_empty() && !base.is_empty() && !base.ends_with('/') {
            put(base, seconds);
        }
    }
    Ok(parts)
}

/// The base addresses of a node and of those it is in, outermost first, put together.
fn base(node: &Node<'_, '_>) -> String {
    let of = |n: Node<'_, '_>| {
        n.children()
            .find(|c| c.tag_name().name() == "BaseURL")
            .and_then(|c| c.text())
            .map(|t| t.trim().to_string())
    };
    let mut all: Vec<String> = node.ancestors().filter_map(of).collect();
    all.reverse();
    all.concat()
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
