//! Digests of whole files (RFC 9530): `Repr-Digest`, `Content-Digest` and the request for one.

use std::io::{self, BufReader, Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{HeaderMap, HeaderName};
use seekless_base::words;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};

/// Digest of the whole representation, whichever part of it an answer carries.
pub const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// Digest of the bytes of this answer.
pub const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
/// The digests that a client requests.
pub const WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");

/// Algorithms of the RFC's registry that are still secure. Others are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// `sha-256`
    Sha256,
    /// `sha-512`
    Sha512,
}

words! { Algorithm: Sha256 = "sha-256", Sha512 = "sha-512" }

/// A digest from a header field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// Its bytes.
    pub value: Vec<u8>,
}

/// The strongest digest in a field that we can check; `None` if there is none.
pub fn stated(headers: &HeaderMap, field: &HeaderName) -> Option<Stated> {
    let lists = headers.get_all(field).iter().filter_map(|v| v.to_str().ok());
    let items = lists.flat_map(|list| list.split(',')).filter_map(|item| {
        let (name, value) = item.trim().split_once('=')?;
        let algorithm = name.parse().ok()?;
        // A byte sequence of structured fields (RFC 8941, 3.3.5), possibly with parameters behind it.
        let value = value.strip_prefix(':')?.split_once(':')?.0;
        Some(Stated { algorithm, value: STANDARD.decode(value).ok()? })
    });
    items.max_by_key(|s| s.algorithm)
}

/// Whether the client requests a digest that we can compute: `sha-256` with a weight above zero.
pub fn wants_sha256(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(WANT_REPR_DIGEST).iter().filter_map(|v| v.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|item| {
        let (name, weight) = item.trim().split_once('=').unwrap_or((item.trim(), "1"));
        name == "sha-256" && weight.trim() != "0"
    })
}

/// A field's value.
pub fn field(algorithm: Algorithm, value: &[u8]) -> String {
    format!("{}=:{}:", algorithm.name(), STANDARD.encode(value))
}

/// A digest being computed.
pub struct Hasher(Box<dyn DynDigest + Send>);

impl Hasher {
    /// Without any bytes yet.
    pub fn new(algorithm: Algorithm) -> Hasher {
        Hasher(match algorithm {
            Algorithm::Sha256 => Box::<Sha256>::default(),
            Algorithm::Sha512 => Box::<Sha512>::default(),
        })
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest.
    pub fn finish(self) -> Vec<u8> {
        self.0.finalize().into_vec()
    }
}

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Digest of all bytes of a reader, and their number.
///
/// # Errors
/// The reader's.
pub fn of(algorithm: Algorithm, reader: &mut impl Read) -> io::Result<(Vec<u8>, u64)> {
    let mut hasher = Hasher::new(algorithm);
    let total = io::copy(&mut BufReader::with_capacity(256 << 10, reader), &mut hasher)?;
    Ok((hasher.finish(), total))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|v| (REPR_DIGEST, v.parse().unwrap())).collect()
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 9530, appendix B.1: `{"hello": "world"}` and a line feed.
        let json = b"{\"hello\": \"world\"}\n";
        let (value, n) = of(Algorithm::Sha256, &mut json.as_slice()).unwrap();
        assert_eq!(n, 19);
        let text = field(Algorithm::Sha256, &value);
        assert_eq!(text, "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:");
        let found = stated(&headers(&[&text]), &REPR_DIGEST).unwrap();
        assert_eq!(found, Stated { algorithm: Algorithm::Sha256, value });
    }

    #[test]
    fn the_strongest_known_counts_and_nonsense_is_passed_over() {
        let both = headers(&["md5=:AAAA:, sha-256=:AAAA:;x=1", "sha-512=:AAEC:"]);
        assert_eq!(
            stated(&both, &REPR_DIGEST).unwrap(),
            Stated { algorithm: Algorithm::Sha512, value: vec![0, 1, 2] }
        );
        for nonsense in ["", "sha-256", "sha-256=AAAA", "sha-256=:AA", "sha-256=:***:", "unixsum=5"] {
            assert_eq!(stated(&headers(&[nonsense]), &REPR_DIGEST), None, "{nonsense}");
        }
    }

    #[test]
    fn wishes() {
        let wish = |v: &str| wants_sha256(&[(WANT_REPR_DIGEST, v.parse().unwrap())].into_iter().collect());
        assert!(wish("sha-256=10") && wish("sha-512=3, sha-256=1") && wish("sha-256"));
        assert!(!wish("sha-256=0") && !wish("sha-512=1"));
    }
}
