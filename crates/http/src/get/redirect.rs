//! Redirects: how many are followed, and where they lead.

use hyper::header::{HeaderMap, LOCATION};
use percent_encoding::{AsciiSet, percent_encode};

use super::place::{Place, shown};

/// Maximum number of redirects followed for one URL.
pub(super) const REDIRECTS_MAX: usize = 10;

/// Maximum number of characters of a `Location` that a message quotes.
const QUOTED_MAX: usize = 200;

/// The URL to which the answer with these headers redirects.
///
/// # Errors
/// Why the redirect is not followed, in a few words.
pub(super) fn target(from: &Place, headers: &HeaderMap) -> Result<Place, String> {
    match headers.get(LOCATION) {
        Some(location) => from.moved(location.as_bytes()),
        None => Err("it is moved, but the server does not say where to".into()),
    }
}

impl Place {
    /// The URL of a `Location` in an answer from here (RFC 9110, 10.2.2), as browsers resolve it.
    ///
    /// # Errors
    /// Why the redirect is not followed, in a few words.
    pub(super) fn moved(&self, location: &[u8]) -> Result<Place, String> {
        let said = || {
            let text: String = String::from_utf8_lossy(location).chars().take(QUOTED_MAX).collect();
            shown(&text)
        };
        // Not UTF-8, Latin-1 perhaps: every other byte is percent-encoded.
        let bytes = |_| percent_encode(location, &AsciiSet::EMPTY).to_string();
        let text = std::str::from_utf8(location).map_or_else(bytes, str::to_string);
        let to = self
            .url
            .join(&text)
            .map_err(|e| format!("it is moved to {}, which is not a URL ({e})", said()))?;
        match (self.url.scheme(), to.scheme()) {
            ("https", "http") => {
                return Err(format!("it is moved from https to {}, which is not followed", said()));
            }
            (_, "http" | "https") => {}
            _ => return Err(format!("it is moved to {}, which is neither http nor https", said())),
        }
        let mut place = Place::of(to).map_err(|why| format!("it is moved to {}: {why}", said()))?;
        if place.login.is_none() {
            match place.url.origin() == self.url.origin() {
                true => place.login.clone_from(&self.login),
                false => place.left_login = self.login.is_some() || self.left_login,
            }
        }
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &str, location: &[u8]) -> String {
        match Place::parse(from).unwrap().moved(location) {
            Ok(to) => to.to_string(),
            Err(why) => why,
        }
    }

    /// RFC 3986, 5.4, and what servers send besides.
    #[test]
    fn a_location_is_resolved_as_browsers_do_it() {
        for (location, leads) in [
            ("/c", "http://h:1/c"),
            ("c?d", "http://h:1/a/c?d"),
            ("?y", "http://h:1/a/b?y"),
            ("#s", "http://h:1/a/b?q"),
            ("/c#s?x", "http://h:1/c"),
            ("", "http://h:1/a/b?q"),
            (".", "http://h:1/a/"),
            ("../c", "http://h:1/c"),
            ("../../../c", "http://h:1/c"),
            ("./c/../d", "http://h:1/a/d"),
            ("//i/c", "http://i/c"),
            ("//i:80/c", "http://i/c"),
            ("HTTP://I/C", "http://i/C"),
            ("hTTps://i/c", "https://i/c"),
            ("http://[2001:DB8::1]:8080/c", "http://[2001:db8::1]:8080/c"),
            ("/\u{fc}n\u{ef}", "http://h:1/%C3%BCn%C3%AF"),
            ("/a file", "http://h:1/a%20file"),
            ("/a%20file%2Fx%7ey", "http://h:1/a%20file%2Fx%7ey"),
            ("/100%", "http://h:1/100%"),
            ("http://b\u{fc}cher.example/", "http://xn--bcher-kva.example/"),
            ("c:d", "it is moved to c:d, which is neither http nor https"),
            ("mailto:x", "it is moved to mailto:x, which is neither http nor https"),
            ("file:///etc/passwd", "it is moved to file:///etc/passwd, which is neither http nor https"),
            ("http://", "it is moved to http://, which is not a URL (empty host)"),
            (
                "http://u:p@h h/",
                "it is moved to http://h h/, which is not a URL (invalid international domain name)",
            ),
        ] {
            assert_eq!(to("http://h:1/a/b?q", location.as_bytes()), leads, "{location}");
        }
        assert_eq!(to("http://h/a", b"/\xfcn\xef"), "http://h/%FCn%EF", "Latin-1");
        assert!(to("https://h/a", b"http://i/c").contains("not followed"));
        assert!(to("https://h/a", b"HTTP://h/a").contains("not followed"));
        assert_eq!(to("https://h/a", b"//i/c"), "https://i/c");
    }
}
