//! The download page (`--download-page`): three small files of our own under a name no served file can have without
//! `--hidden`, and which even then goes first.

use bytes::Bytes;

/// Where it is.
pub(super) const PREFIX: &str = "/.seekless/";

/// What a browser may do on the page: our own scripts, requests to this server, nothing else.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; \
                                 base-uri 'none'; form-action 'none'";

/// The content type and text of one of its files, by the path that was asked for.
pub(super) fn file(path: &str) -> Option<(&'static str, Bytes)> {
    let (kind, text): (_, &'static str) = match path.strip_prefix(PREFIX)? {
        "" => ("text/html; charset=utf-8", include_str!("page/index.html")),
        "page.js" => ("text/javascript; charset=utf-8", include_str!("page/page.js")),
        "download.js" => ("text/javascript; charset=utf-8", include_str!("page/download.js")),
        _ => return None,
    };
    Some((kind, Bytes::from_static(text.as_bytes())))
}
