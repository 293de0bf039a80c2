//! Validators, and the conditions that use them (RFC 9110, sections 8.8 and 13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headers::{ETag, HeaderMapExt, IfMatch, IfModifiedSince, IfNoneMatch, IfUnmodifiedSince};
use hyper::header::{HeaderMap, IF_RANGE};

/// While a file's time of change is this close to now, the file may change again and keep that time (file
/// systems stamp with the clock tick, HTTP dates in whole seconds), so its validators are weak. At half of
/// this, one second of FAT's clock, which counts in steps of two, is not over; at double, downloads of new
/// files can be resumed later.
const SETTLED: Duration = Duration::from_secs(2);

/// Identifies one state of a file to clients. The tag is made of time of change and size, not of the inode
/// number, so copies that keep their times (rsync -t) have the same tag on all machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// `"..."`, or `W/"..."` while the file is fresh.
    pub etag: String,
    /// Whole seconds.
    pub modified: SystemTime,
    /// Whether the date may be sent: none before 1970, which HTTP dates cannot express, and none in the
    /// future (RFC 9110, 8.8.2.1).
    pub dated: bool,
    /// Whether equal validators promise equal bytes.
    pub strong: bool,
}

impl Validators {
    /// For a file of `size` bytes last changed at `modified_s`, `modified_ns`.
    pub fn new(size: u64, modified_s: i64, modified_ns: u32, now: SystemTime) -> Validators {
        let whole = u64::try_from(modified_s).map(Duration::from_secs).unwrap_or_default();
        let modified = UNIX_EPOCH + whole;
        let strong = is_settled(modified_s, now);
        let tag = format!("\"{modified_s:x}.{modified_ns:x}-{size:x}\"");
        let etag = if strong { tag } else { format!("W/{tag}") };
        Validators { etag, modified, dated: modified_s >= 0 && modified <= now, strong }
    }
}

/// Whether a later change of a file last changed in this second would get another time.
pub fn is_settled(modified_s: i64, now: SystemTime) -> bool {
    let modified = UNIX_EPOCH + u64::try_from(modified_s).map(Duration::from_secs).unwrap_or_default();
    let apart = now.duration_since(modified).unwrap_or_else(|ahead| ahead.duration());
    apart > SETTLED
}

/// The result of the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Serve the file; with `ranges` false, ignore the `Range` header.
    Proceed {
        /// Whether `If-Range` allows ranges.
        ranges: bool,
    },
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates the conditions of a GET or HEAD in the order of RFC 9110, 13.2.2.
pub fn evaluate(headers: &HeaderMap, file: &Validators) -> Verdict {
    let tag: Option<ETag> = file.etag.parse().ok();
    let matches = |passes: &dyn Fn(&ETag) -> bool| tag.as_ref().is_some_and(passes);
    if let Some(wanted) = headers.typed_get::<IfMatch>() {
        if !matches(&|tag| wanted.precondition_passes(tag)) {
            return Verdict::Failed;
        }
    } else if let Some(since) = headers.typed_get::<IfUnmodifiedSince>()
        && !since.precondition_passes(file.modified)
    {
        return Verdict::Failed;
    }
    if let Some(known) = headers.typed_get::<IfNoneMatch>() {
        if matches(&|tag| !known.precondition_passes(tag)) {
            return Verdict::NotModified;
        }
    } else if let Some(since) = headers.typed_get::<IfModifiedSince>()
        && !since.is_modified(file.modified)
    {
        return Verdict::NotModified;
    }
    let ranges = match headers.get(IF_RANGE).map(|v| v.to_str()) {
        None => true,
        Some(Ok(value)) if value.starts_with('"') || value.starts_with("W/") => {
            file.strong && value.trim() == file.etag
        }
        // A date is a strong validator only if the file has settled, and only if it matches exactly.
        Some(Ok(value)) => {
            file.strong
                && file.dated
                && httpdate::parse_http_date(value).is_ok_and(|date| date == file.modified)
        }
        Some(Err(_)) => false,
    };
    Verdict::Proceed { ranges }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};

    use super::*;

    const DAY: &str = "Sat, 01 Jan 2022 00:00:00 GMT";
    const BEFORE: &str = "Fri, 31 Dec 2021 23:59:59 GMT";
    const AFTER: &str = "Sat, 01 Jan 2022 00:00:01 GMT";

    fn file() -> Validators {
        let v = Validators::new(100, 1_640_995_200, 5, SystemTime::now());
        assert_eq!(v.etag, "\"61cf9980.5-64\"");
        v
    }

    fn ask(headers: &[(HeaderName, &str)]) -> Verdict {
        let map = headers.iter().map(|(n, v)| (n.clone(), v.parse().unwrap())).collect();
        evaluate(&map, &file())
    }

    const GO: Verdict = Verdict::Proceed { ranges: true };
    const WHOLE: Verdict = Verdict::Proceed { ranges: false };

    #[test]
    fn each_condition_alone() {
        let tag = file().etag;
        let weak = format!("W/{tag}");
        let list = format!("\"a,b\" , {tag},\"z\"");
        for (name, value, verdict) in [
            (IF_MATCH, tag.as_str(), GO),
            (IF_MATCH, "*", GO),
            (IF_MATCH, list.as_str(), GO),
            (IF_MATCH, weak.as_str(), Verdict::Failed),
            (IF_MATCH, "\"other\"", Verdict::Failed),
            (IF_MATCH, "garbage", Verdict::Failed),
            (IF_NONE_MATCH, tag.as_str(), Verdict::NotModified),
            (IF_NONE_MATCH, weak.as_str(), Verdict::NotModified),
            (IF_NONE_MATCH, "*", Verdict::NotModified),
            (IF_NONE_MATCH, list.as_str(), Verdict::NotModified),
            (IF_NONE_MATCH, "\"other\"", GO),
            (IF_MODIFIED_SINCE, DAY, Verdict::NotModified),
            (IF_MODIFIED_SINCE, AFTER, Verdict::NotModified),
            (IF_MODIFIED_SINCE, BEFORE, GO),
            (IF_MODIFIED_SINCE, "yesterday", GO),
            (IF_UNMODIFIED_SINCE, DAY, GO),
            (IF_UNMODIFIED_SINCE, BEFORE, Verdict::Failed),
            (IF_RANGE, tag.as_str(), GO),
            (IF_RANGE, weak.as_str(), WHOLE),
            (IF_RANGE, "\"other\"", WHOLE),
            (IF_RANGE, DAY, GO),
            (IF_RANGE, AFTER, WHOLE),
            (IF_RANGE, "soon", WHOLE),
        ] {
            assert_eq!(ask(&[(name.clone(), value)]), verdict, "{name}: {value}");
        }
    }

    #[test]
    fn tags_go_before_dates() {
        assert_eq!(ask(&[(IF_NONE_MATCH, "\"other\""), (IF_MODIFIED_SINCE, DAY)]), GO);
        assert_eq!(ask(&[(IF_MATCH, "*"), (IF_UNMODIFIED_SINCE, BEFORE)]), GO);
        assert_eq!(ask(&[(IF_MATCH, "\"other\""), (IF_NONE_MATCH, "*")]), Verdict::Failed);
    }

    /// A clock was ahead, or an archive set the time. No new change gets such a time.
    #[test]
    fn a_file_of_tomorrow_has_a_strong_tag_and_no_date() {
        let now = UNIX_EPOCH + Duration::from_secs(1_640_995_200);
        for (modified_s, strong, dated) in [
            (1_640_995_200 + 86_400, true, false),
            (1_640_995_203, true, false),
            (1_640_995_202, false, false),
            (1_640_995_200, false, true),
            (1_640_995_198, false, true),
            (1_640_995_197, true, true),
            (0, true, true),
            (-315_619_200, true, false),
        ] {
            let file = Validators::new(100, modified_s, 5, now);
            assert_eq!((file.strong, file.dated), (strong, dated), "{modified_s}");
            assert_eq!(file.etag.starts_with('"'), strong, "{modified_s}");
            let ask =
                |value: &str| evaluate(&[(IF_RANGE, value.parse().unwrap())].into_iter().collect(), &file);
            assert_eq!(ask(&file.etag), Verdict::Proceed { ranges: strong }, "{modified_s}");
            let date = ask(&httpdate::fmt_http_date(file.modified));
            assert_eq!(date, Verdict::Proceed { ranges: strong && dated }, "{modified_s}");
        }
        // They differ all the same.
        let tags = [-1, -2, 0].map(|s| Validators::new(100, s, 5, now).etag);
        assert!(tags[0] != tags[1] && tags[1] != tags[2]);
    }

    #[test]
    fn a_fresh_file_has_weak_validators() {
        let now = SystemTime::now();
        let s = now.duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let fresh = Validators::new(100, s, 0, now);
        assert!(fresh.etag.starts_with("W/\""));
        let map = [(IF_RANGE, fresh.etag.parse().unwrap())].into_iter().collect();
        assert_eq!(evaluate(&map, &fresh), WHOLE);
        let map = [(IF_NONE_MATCH, fresh.etag.parse().unwrap())].into_iter().collect();
        assert_eq!(evaluate(&map, &fresh), Verdict::NotModified);
    }
}
