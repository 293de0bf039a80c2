//! The `Host` field of a request (RFC 9112, 3.2; RFC 9110, 7.2).

use hyper::Version;
use hyper::header::{HOST, HeaderMap};

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

/// `uri-host [ ":" port ]` (RFC 3986, 3.2.2). It may be empty: then the target has no host.
fn is_host(text: &[u8]) -> bool {
    let (host, port) = match text {
        [b'[', ..] => {
            let Some(end) = text.iter().position(|b| *b == b']') else { return false };
            let (literal, port) = text.split_at(end + 1);
            if !is_ip_literal(&literal[1..end]) {
                return false;
            }
            (&[][..], port)
        }
        _ => text.split_at(text.iter().position(|b| *b == b':').unwrap_or(text.len())),
    };
    let good_port = match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    good_port && is_registered_name(host)
}

/// The text between brackets: an IPv6 address, or one of a later version (`v1.x`).
fn is_ip_literal(text: &[u8]) -> bool {
    if let [b'v' | b'V', later @ ..] = text {
        let Some(dot) = later.iter().position(|b| *b == b'.') else { return false };
        let (version, address) = (&later[..dot], &later[dot + 1..]);
        return !version.is_empty()
            && version.iter().all(u8::is_ascii_hexdigit)
            && !address.is_empty()
            && address.iter().all(|&b| is_name_byte(b) || b == b':');
    }
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

/// A registered name, or an IPv4 address, which has the same letters.
fn is_registered_name(name: &[u8]) -> bool {
    let mut rest = name;
    loop {
        rest = match rest {
            [] => return true,
            [b'%', a, b, rest @ ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => rest,
            [byte, rest @ ..] if is_name_byte(*byte) => rest,
            _ => return false,
        }
    }
}

/// `unreserved` or `sub-delims`.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
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
