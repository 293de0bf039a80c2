//! Content types by file name. The bytes are never examined: that would cost a read that no client requested.
//!
//! The names are those that web servers know by default, and those of media and of packages. A table of all
//! registered types would be a fortieth of the program.

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
        "xml" => "text/xml",
        "csv" => "text/csv",
        "vtt" => "text/vtt",
        // Images.
        "avif" => "image/avif",
        "bmp" => "image/bmp",
        "gif" => "image/gif",
        "heic" => "image/heic",
        "ico" => "image/x-icon",
        "jpg" | "jpeg" => "image/jpeg",
        "jxl" => "image/jxl",
        "png" => "image/png",
        "svg" | "svgz" => "image/svg+xml",
        "tif" | "tiff" => "image/tiff",
        "webp" => "image/webp",
        // Sound.
        "aac" => "audio/aac",
        "flac" => "audio/flac",
        "m4a" | "m4b" => "audio/m4a",
        "mid" | "midi" => "audio/midi",
        "mka" => "audio/x-matroska",
        "mp3" => "audio/mpeg",
        "oga" | "ogg" | "opus" => "audio/ogg",
        "wav" => "audio/wav",
        "weba" => "audio/webm",
        // Video, and what describes its parts.
        "3gp" => "video/3gpp",
        "3g2" => "video/3gpp2",
        "asf" => "video/x-ms-asf",
        "avi" => "video/x-msvideo",
        "flv" => "video/x-flv",
        "m2ts" | "mts" | "ts" => "video/mp2t",
        "m4s" => "video/iso.segment",
        "m4v" => "video/x-m4v",
        "mkv" => "video/x-matroska",
        "mov" | "qt" => "video/quicktime",
        "mp4" => "video/mp4",
        "mpeg" | "mpg" => "video/mpeg",
        "ogv" => "video/ogg",
        "webm" => "video/webm",
        "wmv" => "video/x-ms-wmv",
        "m3u8" => "application/vnd.apple.mpegurl",
        "mpd" => "application/dash+xml",
        // Packages and images of mirrors: the compression is the file's, not the transfer's.
        "7z" => "application/x-7z-compressed",
        "bz2" => "application/x-bzip2",
        "deb" => "application/vnd.debian.binary-package",
        "gz" | "tgz" => "application/gzip",
        "jar" | "war" => "application/java-archive",
        "rar" => "application/vnd.rar",
        "rpm" => "application/x-rpm",
        "tar" => "application/x-tar",
        "xz" => "application/x-xz",
        "zip" => "application/zip",
        "zst" => "application/zstd",
        // Documents, fonts and the rest of a site.
        "atom" => "application/atom+xml",
        "doc" => "application/msword",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "eot" => "application/vnd.ms-fontobject",
        "epub" => "application/epub+zip",
        "json" | "map" => "application/json",
        "odt" => "application/vnd.oasis.opendocument.text",
        "otf" => "font/otf",
        "pdf" => "application/pdf",
        "ppt" => "application/vnd.ms-powerpoint",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "ps" | "eps" | "ai" => "application/postscript",
        "rss" => "application/rss+xml",
        "rtf" => "application/rtf",
        "torrent" => "application/x-bittorrent",
        "ttf" => "font/ttf",
        "wasm" => "application/wasm",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "xhtml" => "application/xhtml+xml",
        "xls" => "application/vnd.ms-excel",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        _ => UNKNOWN,
    }
}

/// Bytes of which nothing is known.
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
            ("e01.TS", "video/mp2t"),
            ("a.woff2", "font/woff2"),
            ("README", UNKNOWN),
            ("odd.qqqq", UNKNOWN),
            ("", UNKNOWN),
        ] {
            let found = of(Path::new(name));
            assert_eq!(found, kind, "{name}");
        }
    }
}
