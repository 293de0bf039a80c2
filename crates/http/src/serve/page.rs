//! The download page (`--download-page`): three small files under a name that no served file can have without
//! `--hidden`, and that takes precedence with it.

use bytes::Bytes;

/// Its path.
pub(super) const PREFIX: &str = "/.seekless/";

/// What the page may do in a browser: run our own scripts and send requests to this server.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; \
                                 base-uri 'none'; form-action 'none'";

/// The content type and text of one of its files, by the requested path.
pub(super) fn file(path: &str) -> Option<(&'static str, Bytes)> {
    let (kind, text): (_, &'static str) = match path.strip_prefix(PREFIX)? {
        "" => ("text/html; charset=utf-8", include_str!("page/index.html")),
        "page.js" => ("text/javascript; charset=utf-8", include_str!("page/page.js")),
        "download.js" => ("text/javascript; charset=utf-8", include_str!("page/download.js")),
        _ => return None,
    };
    Some((kind, Bytes::from_static(text.as_bytes())))
}
