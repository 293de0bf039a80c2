//! Where a file is asked for: a URL, and the name and password that were in it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use percent_encoding::{AsciiSet, percent_decode_str, percent_encode};
use seekless_base::{Exit, Fault};
use url::{Position, Url};

/// Longest part of what a server says that is repeated in a message.
const REPEATED_MAX: usize = 200;

/// A place to ask. Names and passwords go to the server they were given for and to no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Without name, password and fragment.
    url: Url,
    /// The value of `Authorization`.
    login: Option<HeaderValue>,
    /// There was one on the way here, which is not for this server.
    left_login: bool,
}

/// Without the login.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// A URL as it may be shown and saved: without name and password, and as one line. One without them stays as
/// it is.
pub(crate) fn shown(text: &str) -> String {
    let text: String = text
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect();
    let Some((scheme, rest)) = text.split_once("://") else { return text };
    let authority = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => text,
    }
}

impl Place {
    /// An `http` or `https` URL with a host.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &str) -> Result<Place, Fault> {
        let usage = |why: &str| {
            let message = format!("{}: {why}; give a URL like https://host/path/file", shown(text));
            Fault::new(Exit::Usage, message)
        };
        if text.chars().any(char::is_control) {
            return Err(usage("has control characters in it"));
        }
        let url = Url::parse(text).map_err(|e| match e {
            url::ParseError::EmptyHost => usage("names no host"),
            _ => usage("is no URL"),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(usage("is neither http nor https"));
        }
        // Browsers take `http:///host/x` for `http://host/x`. Whoever writes it means a file, or forgot
        // something.
        let behind = text.trim_start().get(url.scheme().len() + 1..).unwrap_or_default();
        if behind.strip_prefix("//").is_none_or(|host| host.starts_with(['/', '\\'])) {
            return Err(usage("names no host"));
        }
        Place::of(url).map_err(|why| usage(&why))
    }

    /// Takes name and password out of a URL.
    pub(super) fn of(mut url: Url) -> Result<Place, String> {
        url.set_fragment(None);
        let login = login(&url)?;
        if login.is_some() {
            // Cannot fail: it has a host.
            let _ = url.set_username("");
            let _ = url.set_password(None);
        }
        Ok(Place { url, login, left_login: false })
    }

    /// Where a `Location` leads from here (RFC 9110, 10.2.2), as browsers resolve it.
    ///
    /// # Errors
    /// Why it is not gone there, in a few words.
    pub(crate) fn moved(&self, location: &[u8]) -> Result<Place, String> {
        let said = || {
            let text: String = String::from_utf8_lossy(location).chars().take(REPEATED_MAX).collect();
            shown(&text)
        };
        // In letters of an older time, each byte stands for itself.
        let bytes = |_| percent_encode(location, &AsciiSet::EMPTY).to_string();
        let text = std::str::from_utf8(location).map_or_else(bytes, str::to_string);
        let to =
            self.url.join(&text).map_err(|e| format!("it is moved to {}, which is no URL ({e})", said()))?;
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

    /// The value of `Authorization`, if there is one.
    pub(crate) fn login(&self) -> Option<&HeaderValue> {
        self.login.as_ref()
    }

    /// Whether the URL that led here had a login, which is not for this server.
    pub(crate) fn left_login(&self) -> bool {
        self.left_login
    }

    /// Over TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Name or address of the server, addresses without brackets.
    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(80)
    }

    /// The value of `Host`: the port only if it is not the usual one.
    pub(crate) fn authority(&self) -> &str {
        &self.url[Position::BeforeHost..Position::AfterPort]
    }

    /// Host and port.
    pub(crate) fn host_and_port(&self) -> String {
        format!("{}:{}", self.url.host_str().unwrap_or_default(), self.port())
    }

    /// What a server is asked for.
    pub(crate) fn target(&self) -> &str {
        &self.url[Position::BeforePath..Position::AfterQuery]
    }

    /// What a proxy is asked for.
    pub(crate) fn absolute(&self) -> &str {
        &self.url[..Position::AfterQuery]
    }

    /// The path, percent-encoded.
    pub(crate) fn path(&self) -> &str {
        self.url.path()
    }
}

/// `Basic` credentials (RFC 7617) of the name and password in a URL.
fn login(url: &Url) -> Result<Option<HeaderValue>, String> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let decoded = |text| percent_decode_str(text).collect::<Vec<u8>>();
    let (name, password) = (decoded(url.username()), decoded(url.password().unwrap_or_default()));
    if name.contains(&b':') || [&name, &password].iter().any(|part| part.iter().any(u8::is_ascii_control)) {
        return Err(
            "has a name or password that cannot be sent (a colon in the name, a control character)".into()
        );
    }
    let text = format!("Basic {}", STANDARD.encode([&name[..], b":", &password].concat()));
    let mut value = HeaderValue::from_str(&text).map_err(|_| "has a name or password that cannot be sent")?;
    value.set_sensitive(true);
    Ok(Some(value))
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
            ("http://", "it is moved to http://, which is no URL (empty host)"),
            (
                "http://u:p@h h/",
                "it is moved to http://h h/, which is no URL (invalid international domain name)",
            ),
        ] {
            assert_eq!(to("http://h:1/a/b?q", location.as_bytes()), leads, "{location}");
        }
        assert_eq!(to("http://h/a", b"/\xfcn\xef"), "http://h/%FCn%EF", "Latin-1");
        assert!(to("https://h/a", b"http://i/c").contains("not followed"));
        assert!(to("https://h/a", b"HTTP://h/a").contains("not followed"));
        assert_eq!(to("https://h/a", b"//i/c"), "https://i/c");
    }

    #[test]
    fn a_login_goes_to_its_own_server_alone() {
        let from = Place::parse("http://me:se%40cret@h:8080/a").unwrap();
        assert_eq!(from.to_string(), "http://h:8080/a");
        assert!(!format!("{from:?}").contains("cret"));
        assert_eq!(from.login().unwrap(), "Basic bWU6c2VAY3JldA==");
        let login = |location: &str| from.moved(location.as_bytes()).unwrap().login().cloned();
        assert_eq!(login("/b"), from.login().cloned());
        assert_eq!(login("http://H:8080/b"), from.login().cloned());
        for other in ["http://i:8080/b", "http://h/b", "https://h:8080/b", "//h:8081/b", "http://h.:8080/b"] {
            assert_eq!(login(other), None, "{other}");
        }
        // What a server names itself is its own.
        assert_eq!(login("http://you:x@i/b").unwrap(), "Basic eW91Ong=");
        assert_eq!(Place::parse("http://me@h/").unwrap().login().unwrap(), "Basic bWU6");
        assert_eq!(Place::parse("http://a%3Ab:c@h/").unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn what_is_shown_has_no_password_and_is_one_line() {
        for (text, out) in [
            ("http://h/a", "http://h/a"),
            ("http://me:p@h/a", "http://h/a"),
            ("http://me:p@q@h/a@b", "http://h/a@b"),
            ("http://h/?x=a@b", "http://h/?x=a@b"),
            ("http://h h@i", "http://i"),
            ("a\nb", "a\\nb"),
        ] {
            assert_eq!(shown(text), out, "{text}");
        }
        for wrong in
            ["ftp://h/x", "film.mp4", "", "http:///x", "http:/h/x", "http:h", "http://h h/x", "http://h/\nx"]
        {
            let fault = Place::parse(wrong).unwrap_err();
            assert!(fault.exit == Exit::Usage && !fault.message.contains('\n'), "{wrong}: {fault}");
        }
        assert!(!Place::parse("http://me:secret@h h/").unwrap_err().message.contains("secret"));
    }
}
