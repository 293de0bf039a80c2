//! The `Host` field of a request (RFC 9112, 3.2; RFC 9110, 7.2).

use hyper::Version;
use hyper::header::{HOST, HeaderMap};
use iri_string::spec::UriSpec;

/// Whether a request names its host as required: once and in a valid form. The field may be missing in
/// HTTP/1.0, and in HTTP/2 if `:authority` is there.
pub fn is_good(version: Version, headers: &HeaderMap) -> bool {
    let mut fields = headers.get_all(HOST).iter();
    match (fields.next(), fields.next()) {
        (None, _) => version != Version::HTTP_11,
        (Some(host), None) => is_host(host.as_bytes()),
        (Some(_), Some(_)) => false,
    }
}

/// `uri-host [ ":" port ]` (RFC 3986, 3.2.2): an authority without a user. It may be empty: then the target
/// has no host.
fn is_host(text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.contains('@'));
    text.is_some_and(|text| iri_string::validate::authority::<UriSpec>(text).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn hosts_are_as_the_grammar_says() {
        for good in [
            "",
            ":80",
            "h",
            "h:",
            "h:80",
            "a.example:8080",
            "127.0.0.1",
            "[::1]",
            "[::1]:443",
            "[v1.x:y]",
            "h_1",
            "%41b",
            "xn--bcher-kva.example",
        ] {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            " h",
            "h h",
            "h/",
            "u@h",
            "h:80:80",
            "h:x",
            "h:-1",
            "::1",
            "[::1",
            "[::1]x",
            "[]",
            "[h]",
            "[v.x]",
            "%4",
            "%zz",
            "h#",
            "h?",
            "a,b c",
            "b\u{fc}cher",
            "h\\",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn one_host_and_no_more() {
        let of = |hosts: &[&'static str]| -> HeaderMap {
            hosts.iter().map(|h| (HOST, HeaderValue::from_static(h))).collect()
        };
        for (hosts, http10, http11, http2) in [
            (&[][..], true, false, true),
            (&["h"], true, true, true),
            (&["h", "h"], false, false, false),
            (&["h h"], false, false, false),
        ] {
            let headers = of(hosts);
            let good = [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2].map(|v| is_good(v, &headers));
            assert_eq!(good, [http10, http11, http2], "{hosts:?}");
        }
    }
}
