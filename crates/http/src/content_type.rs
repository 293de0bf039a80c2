//! Content types by file name. The bytes are never examined: that would cost a read that no client requested.

use std::path::Path;

/// The `Content-Type` of a file, by the last extension of its name.
pub fn of(path: &Path) -> &'static str {
    let Some(extension) = path.extension().and_then(|e| e.to_str()) else { return UNKNOWN };
    match extension.to_ascii_lowercase().as_str() {
        // Text for people: browsers otherwise guess the character set.
        "html" | "htm" => "text/html; charset=utf-8",
        "txt" | "md" | "log" => "text/plain; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        // Video types for which the table below has registered names that no player uses.
        "m4s" => "video/iso.segment",
        "ts" => "video/mp2t",
        "mpd" => "application/dash+xml",
        "m3u8" => "application/vnd.apple.mpegurl",
        // Packages and images of mirrors: the compression is the file's, not the transfer's.
        "gz" | "tgz" => "application/gzip",
        "xz" => "application/x-xz",
        "zst" => "application/zstd",
        "deb" => "application/vnd.debian.binary-package",
        other => mime_guess::from_ext(other).first_raw().unwrap_or(UNKNOWN),
    }
}

/// Content of unknown type.
const UNKNOWN: &str = "application/octet-stream";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_files() {
        for (name, kind) in [
            ("a/film.mp4", "video/mp4"),
            ("INDEX.HTML", "text/html; charset=utf-8"),
            ("seg-1.m4s", "video/iso.segment"),
            ("debian.iso", UNKNOWN),
            ("linux.tar.xz", "application/x-xz"),
            ("p.json", "application/json"),
            ("README", UNKNOWN),
            ("odd.qqqq", UNKNOWN),
            ("", UNKNOWN),
        ] {
            let found = of(Path::new(name));
            assert_eq!(found, kind, "{name}");
        }
    }
}
