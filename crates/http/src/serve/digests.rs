//! SHA-256 digests of files for clients that want to check what they got (RFC 9530, `Want-Repr-Digest`).
//!
//! Making one reads the whole file, so only files up to a bound are digested, by a helper thread, and the digest is
//! remembered as long as the file does not change.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use seekless_engine::lock;

use super::Shared;
use super::any_order;
use super::tree::{FileVersion, Opened};
use crate::digest::{self, Algorithm};

/// Most digests remembered: about 1 MB.
const REMEMBERED_MAX: usize = 8192;

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct Digests(Mutex<HashMap<FileVersion, Vec<u8>>>);

struct FromStart<'a> {
    file: &'a Opened,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = rustix::io::pread(self.file.as_fd(), buffer, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// The digest, if it is known or the file small enough to make it; `any_order`: of what is then downloaded in any order.
pub(crate) async fn sha256(shared: &Arc<Shared>, file: &Arc<Opened>, any_order: bool) -> Option<Vec<u8>> {
    let version = file.version();
    if let Some(known) = lock(&shared.digests.0).get(&version) {
        return Some(known.clone());
    }
    if file.size > shared.settings.digest_max.0 {
        return None;
    }
    let from_blocks = if any_order { any_order::sha256(shared, file).await } else { None };
    let value = match from_blocks {
        Some(value) => value,
        None => read_whole(file).await?,
    };
    let mut known = lock(&shared.digests.0);
    if known.len() >= REMEMBERED_MAX {
        known.clear();
    }
    known.insert(version, value.clone());
    Some(value)
}

/// Reads it through the page cache: what is sent in order is sent from there.
async fn read_whole(file: &Arc<Opened>) -> Option<Vec<u8>> {
    let file = file.clone();
    let made = tokio::task::spawn_blocking(move || {
        let (value, bytes) = digest::of(Algorithm::Sha256, &mut FromStart { file: &file, at: 0 }).ok()?;
        (bytes == file.size && file.unchanged()).then_some(value)
    });
    made.await.ok()?
}
