//! Common Media Client Data (CTA-5004): what a player says about its playback with each request, in headers
//! or the query.
//!
//! These keys are read: `br` (bitrate of the object), `dl` (when its first sample is needed) and `bl` (length
//! of the buffer). They are hints from an unknown client: a value out of range is ignored.

use std::time::Duration;

use hyper::header::HeaderMap;

use crate::path::decode;

/// Headers with the keys that we read: `br` is a property of the object, `dl` and `bl` of the request.
const HEADERS: [&str; 2] = ["cmcd-object", "cmcd-request"];

/// The key of the query that has all of them.
const QUERY: &str = "CMCD=";

/// Range of bitrates that are accepted, kb/s: from speech to uncompressed studio video.
const BITRATES_KB_S: std::ops::RangeInclusive<u64> = 8..=1_000_000;

/// Longest buffer that is accepted, ms: an hour.
const BUFFER_MS_MAX: u64 = 3_600_000;

/// The values that the client gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Playback {
    /// Bytes a second.
    pub bitrate: Option<u64>,
    /// Time from the request until the first byte of the answer is played.
    pub starts_in: Option<Duration>,
}

/// Values from the headers, else from the query.
pub fn playback(headers: &HeaderMap, query: Option<&str>) -> Playback {
    let lists = HEADERS.iter().flat_map(|name| headers.get_all(*name)).filter_map(|v| v.to_str().ok());
    let values = CmcdValues::of(lists.flat_map(|list| list.split(',')));
    if values != CmcdValues::default() {
        return values.playback();
    }
    let list = query.into_iter().flat_map(|q| q.split('&')).find_map(|pair| pair.strip_prefix(QUERY));
    let list = list.and_then(|list| String::from_utf8(decode(list).ok()?).ok());
    CmcdValues::of(list.as_deref().unwrap_or("").split(',')).playback()
}

/// The values as they were sent.
#[derive(Debug, Default, PartialEq, Eq)]
struct CmcdValues {
    br: Option<u64>,
    dl: Option<u64>,
    bl: Option<u64>,
}

impl CmcdValues {
    fn of<'a>(pairs: impl Iterator<Item = &'a str>) -> CmcdValues {
        let mut values = CmcdValues::default();
        for (key, value) in pairs.filter_map(|pair| pair.trim().split_once('=')) {
            let slot = match key {
                "br" => &mut values.br,
                "dl" => &mut values.dl,
                "bl" => &mut values.bl,
                _ => continue,
            };
            *slot = value.parse().ok();
        }
        values
    }

    fn playback(&self) -> Playback {
        let buffer = self.dl.or(self.bl).filter(|ms| *ms <= BUFFER_MS_MAX);
        Playback {
            bitrate: self.br.filter(|kb_s| BITRATES_KB_S.contains(kb_s)).map(|kb_s| kb_s * 1000 / 8),
            starts_in: buffer.map(Duration::from_millis),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(headers: &[(&'static str, &str)], query: Option<&str>) -> (Option<u64>, Option<u128>) {
        let headers: HeaderMap =
            headers.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
        let playback = playback(&headers, query);
        (playback.bitrate, playback.starts_in.map(|d| d.as_millis()))
    }

    #[test]
    fn headers_and_query_say_the_same() {
        let headers =
            [("CMCD-Object", "br=3200,d=4004,ot=v"), ("CMCD-Request", "bl=21300, dl=18500,mtp=48100")];
        assert_eq!(values(&headers, None), (Some(400_000), Some(18_500)));
        let query = "a=b&CMCD=bl%3D21300%2Cbr%3D3200%2Csid%3D%226e%22&c";
        assert_eq!(values(&[], Some(query)), (Some(400_000), Some(21_300)), "without a deadline, the buffer");
        assert_eq!(
            values(&headers[..1], Some(query)),
            (Some(400_000), None),
            "the headers, if there are any"
        );
    }

    #[test]
    fn what_cannot_be_was_not_said() {
        for (object, request) in [
            ("br=0", "dl=99999999999"),
            ("br=18446744073709551615", "dl=-5"),
            ("br=x", "bl"),
            ("BR=3200", "dl=1.5"),
            ("", ""),
        ] {
            let headers = [("cmcd-object", object), ("cmcd-request", request)];
            assert_eq!(values(&headers, Some("CMCD=%ff%3")), (None, None), "{object} {request}");
        }
    }
}
