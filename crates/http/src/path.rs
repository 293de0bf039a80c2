//! From a request target to a name below the served folder.
//!
//! The name is decoded and its dot segments are resolved here, in memory, so the path that is opened has
//! neither. The kernel guarantees that it does not leave the tree through a symbolic link (`openat2`,
//! `RESOLVE_BENEATH`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Longest decoded path in bytes (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;

/// A name below a served folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Relative path without `.`, `..` or empty segments; empty for the folder itself.
    pub path: PathBuf,
    /// The target ends in a slash, so it means a folder.
    pub folder: bool,
    /// Some segment begins with a dot (except `.well-known`, RFC 8615, which is public).
    pub hidden: bool,
}

/// Why a target is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTarget {
    /// Not a path, an invalid percent escape, or a path that leaves the root: 400.
    Malformed,
    /// Valid, but no file can have this name (NUL or an encoded slash in a name): 404.
    NoSuchName,
}

/// Resolves the path of a request target (without its query).
///
/// # Errors
/// [`BadTarget`].
pub fn resolve(target: &str) -> Result<Target, BadTarget> {
    let rest = target.strip_prefix('/').ok_or(BadTarget::Malformed)?;
    if target.len() > 3 * PATH_BYTES_MAX {
        return Err(BadTarget::NoSuchName);
    }
    let mut segments: Vec<Vec<u8>> = Vec::new();
    let mut folder = true;
    for raw in rest.split('/') {
        let segment = decode(raw)?;
        folder = matches!(segment.as_slice(), b"" | b"." | b"..");
        match segment.as_slice() {
            b"" | b"." => {}
            // A path that leaves its root is a mistake or an attack; staying at the root silently would hide
            // both.
            b".." => drop(segments.pop().ok_or(BadTarget::Malformed)?),
            name if name.contains(&0) || name.contains(&b'/') => return Err(BadTarget::NoSuchName),
            _ => segments.push(segment),
        }
    }
    let hidden = segments.iter().any(|s| s.first() == Some(&b'.') && s != b".well-known");
    let bytes = segments.join(&b'/');
    if bytes.len() >= PATH_BYTES_MAX {
        return Err(BadTarget::NoSuchName);
    }
    Ok(Target { path: PathBuf::from(OsString::from_vec(bytes)), folder, hidden })
}

/// Decodes percent-encoding.
pub(crate) fn decode(raw: &str) -> Result<Vec<u8>, BadTarget> {
    let mut bytes = raw.bytes();
    let mut decoded = Vec::with_capacity(raw.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16)).ok_or(BadTarget::Malformed);
        decoded.push((digit()? << 4 | digit()?) as u8);
    }
    Ok(decoded)
}

/// What stands in one segment of a URL as it is: unreserved characters (RFC 3986).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Writes a file name so that it stands as one segment of a URL.
pub fn encode_segment(name: &[u8]) -> String {
    percent_encode(name, UNRESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Component;

    fn ok(target: &str) -> (String, bool, bool) {
        let t = resolve(target).unwrap();
        (t.path.to_str().unwrap().to_string(), t.folder, t.hidden)
    }

    #[test]
    fn names_are_decoded_and_dots_resolved() {
        assert_eq!(ok("/"), (String::new(), true, false));
        assert_eq!(ok("/a/b.mp4"), ("a/b.mp4".into(), false, false));
        assert_eq!(ok("/a//b/./c/"), ("a/b/c".into(), true, false));
        assert_eq!(ok("/a/../b%20c"), ("b c".into(), false, false));
        assert_eq!(ok("/a/%2e%2e/b"), ("b".into(), false, false));
        assert!(ok("/a/.git/x").2);
        assert_eq!(ok("/.well-known/acme"), (".well-known/acme".into(), false, false));
        assert!(ok("/a/..").1);
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for climb in
            ["/..", "/../etc/passwd", "/a/../../etc", "/%2e%2e/x", "/a/%2E./.%2e/x", "no-slash", "", "*"]
        {
            assert_eq!(resolve(climb), Err(BadTarget::Malformed), "{climb}");
        }
        for broken in ["/%", "/%2", "/%zz", "/a%"] {
            assert_eq!(resolve(broken), Err(BadTarget::Malformed), "{broken}");
        }
        for none in ["/a%00b", "/a%2fb", "/..%2f..%2fetc"] {
            assert_eq!(resolve(none), Err(BadTarget::NoSuchName), "{none}");
        }
        assert_eq!(resolve(&format!("/{}", "x".repeat(5000))), Err(BadTarget::NoSuchName));
    }

    proptest! {
        #[test]
        fn nothing_climbs(target in "/[a-c./%2eE0f]{0,40}") {
            if let Ok(found) = resolve(&target) {
                prop_assert!(found.path.components().all(|c| matches!(c, Component::Normal(_))), "{:?}", found);
            }
        }

        #[test]
        fn any_name_comes_back(name in proptest::collection::vec(1u8..=255, 1..50)) {
            prop_assume!(!name.contains(&b'/') && name != b"." && name != b"..");
            let found = resolve(&format!("/{}", encode_segment(&name))).unwrap();
            prop_assert_eq!(found.path.into_os_string().into_vec(), name);
        }
    }
}
