//! From a request's target to a name: it never climbs, and every name can be asked for.

use std::os::unix::ffi::OsStrExt;
use std::path::Component;

use seekless_http::path::{encode_segment, resolve};

/// The target, as it stands in the request line.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(found) = resolve(&text) {
        let bytes = found.path.as_os_str().as_bytes();
        assert!(bytes.len() < 4096 && !bytes.contains(&0));
        assert!(found.path.is_relative());
        let segments: Vec<&[u8]> = bytes.split(|b| *b == b'/').filter(|s| !s.is_empty()).collect();
        assert!(segments.iter().all(|s| *s != b"." && *s != b".."), "{found:?}");
        for part in found.path.components() {
            assert!(matches!(part, Component::Normal(_)), "{found:?}");
        }
        let dot = segments.iter().any(|s| s.starts_with(b".") && *s != b".well-known");
        assert_eq!(dot, found.hidden, "{found:?}");
        // Written out again, it is the same file.
        let again: String = segments.iter().map(|s| format!("/{}", encode_segment(s))).collect();
        if !again.is_empty() {
            assert_eq!(resolve(&again).map(|t| t.path), Ok(found.path));
        }
    }
    let _ = seekless_http::get::parse(&text);
    if let Ok(name) = seekless_http::get::file_name(&text) {
        assert!(!name.is_empty() && !name.contains('/') && name != "." && name != "..", "{name:?}");
    }
}
