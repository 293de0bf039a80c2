//! `Prefer: any-order` (RFC 7240): the client takes the parts of the answer in any order.
//!
//! Parts of a `multipart/byteranges` answer may come in any order (RFC 9110, 15.3.7.2). The preference makes
//! sure that only clients that expect it get them so, and proxies pass the two headers on.

use hyper::header::{HeaderMap, HeaderName};

/// The preference's name; also the value of `Preference-Applied`.
pub const ANY_ORDER: &str = "any-order";

/// The request's header.
pub const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The answer's header.
pub const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Whether a header names a preference (RFC 7240, section 2: names are case-insensitive, the first of several
/// counts, and an empty value means that none was given).
pub fn has(headers: &HeaderMap, header: &HeaderName, preference: &str) -> bool {
    let lists = headers.get_all(header).iter().filter_map(|v| v.to_str().ok());
    for item in lists.flat_map(|list| list.split(',')) {
        let item = item.split(';').next().unwrap_or("").trim();
        let (name, value) =
            item.split_once('=').map_or((item, ""), |(n, v)| (n.trim(), v.trim().trim_matches('"')));
        if name.eq_ignore_ascii_case(preference) {
            return value.is_empty();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preference_is_found_among_others() {
        let with = |values: &[&str]| {
            let headers: HeaderMap = values.iter().map(|v| (PREFER, v.parse().unwrap())).collect();
            has(&headers, &PREFER, ANY_ORDER)
        };
        assert!(with(&["any-order"]));
        assert!(with(&["wait=10, Any-Order; why=\"disk\""]));
        assert!(with(&["respond-async", "any-order=\"\""]));
        assert!(!with(&["any-order=no"]));
        assert!(!with(&["any-orders"]));
        assert!(!with(&[]));
        assert!(!with(&["any-order=no, any-order"]), "the first counts");
    }
}
