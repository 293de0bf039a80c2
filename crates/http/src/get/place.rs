//! The URL of a file, and the name and password that were in it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use percent_encoding::percent_decode_str;
use seekless_base::Fault;
use url::{Position, Url};

/// A URL to request. A name and password go only to the server that they were given for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Without name, password and fragment.
    pub(super) url: Url,
    /// The value of `Authorization`.
    pub(super) login: Option<HeaderValue>,
    /// A URL that redirected here had a login, which is not for this server.
    pub(super) left_login: bool,
}

/// Without the login.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// A URL that may be shown and saved: one line, without name and password.
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
            Fault::usage(format!("{}: {why}; give a URL like https://host/path/file", shown(text)))
        };
        if text.chars().any(char::is_control) {
            return Err(usage("has control characters in it"));
        }
        let url = Url::parse(text).map_err(|e| match e {
            url::ParseError::EmptyHost => usage("names no host"),
            _ => usage("is not a URL"),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(usage("is neither http nor https"));
        }
        // Browsers read `http:///host/x` as `http://host/x`. A user who writes it means a file, or forgot
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

    /// The request target for a server.
    pub(crate) fn target(&self) -> &str {
        &self.url[Position::BeforePath..Position::AfterQuery]
    }

    /// The request target for a proxy.
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
    use seekless_base::Exit;

    use super::*;

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
        // The login in a `Location` is for that server.
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
