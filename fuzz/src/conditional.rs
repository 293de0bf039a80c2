//! The fields of a request's head that change its answer: conditions, preferences, digests.

use std::time::{Duration, UNIX_EPOCH};

use hyper::header::{
    HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};
use seekless_http::conditional::{Validators, Verdict, evaluate};
use seekless_http::digest::{self, CONTENT_DIGEST, REPR_DIGEST};
use seekless_http::prefer;

/// The file every input is about; a seed may name its tag.
const MODIFIED_S: i64 = 1_640_995_200;

/// Lines `name: value`, as in a request. A first byte of `w` makes the file one that changed just now.
pub fn run(data: &[u8]) {
    let fresh = data.first() == Some(&b'w');
    let age = Duration::from_secs(if fresh { 1 } else { 3600 });
    let file = Validators::new(100, MODIFIED_S, 5, UNIX_EPOCH + Duration::from_secs(MODIFIED_S as u64) + age);
    assert_eq!(file.strong, !fresh);
    let mut headers = HeaderMap::new();
    for line in data.split(|b| *b == b'\n').take(100) {
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    let has = |name: HeaderName| headers.contains_key(name);
    match evaluate(&headers, &file) {
        Verdict::Failed => assert!(has(IF_MATCH) || has(IF_UNMODIFIED_SINCE)),
        Verdict::NotModified => assert!(headers.keys().any(|k| k.as_str().starts_with("if-"))),
        Verdict::Proceed { ranges } => {
            assert!(ranges || has(IF_RANGE));
            // A weak validator never lets a part be joined to another (RFC 9110, 13.1.5).
            assert!(!(ranges && fresh && has(IF_RANGE)));
        }
    }
    // What is there satisfies `*`.
    let mut star = HeaderMap::new();
    star.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
    assert_eq!(evaluate(&star, &file), Verdict::NotModified);
    for field in [&REPR_DIGEST, &CONTENT_DIGEST] {
        if let Some(stated) = digest::stated(&headers, field) {
            let text = digest::field(stated.algorithm, &stated.value);
            let again = [(field.clone(), text.parse().unwrap())].into_iter().collect();
            assert_eq!(digest::stated(&again, field), Some(stated));
        }
    }
    digest::wants_sha256(&headers);
    prefer::has(&headers, &prefer::PREFER, prefer::ANY_ORDER);
}
