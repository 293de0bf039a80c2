//! SHA-256 digests of files for clients that want to check what they got (RFC 9530, `Want-Repr-Digest`).
//!
//! Making one reads the whole file, so only files up to a bound are digested, by a helper thread, and the digest is
//! remembered as long as the file does not change.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use seekless_engine::lock;
use seekless_policy::FileId;

use super::Shared;
use super::tree::Opened;
use crate::digest::{self, Algorithm};

/// Most digests remembered: about 1 MB.
const REMEMBERED_MAX: usize = 8192;

/// One state of a file.
pub(crate) type Edition = (FileId, u64, (i64, u32));

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct Digests(Mutex<HashMap<Edition, Vec<u8>>>);

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

/// The digest, if it is known or the file small enough to make it.
pub(crate) async fn sha256(shared: &Arc<Shared>, file: &Arc<Opened>) -> Option<Vec<u8>> {
    let edition = (file.id, file.size, file.modified);
    if let Some(known) = lock(&shared.digests.0).get(&edition) {
        return Some(known.clone());
    }
    if file.size > shared.settings.digest_max.0 {
        return None;
    }
    let own = file.clone();
    let made = tokio::task::spawn_blocking(move || {
        let (value, bytes) = digest::of(Algorithm::Sha256, &mut FromStart { file: &own, at: 0 }).ok()?;
        (bytes == own.size && own.unchanged()).then_some(value)
    });
    let value = made.await.ok()??;
    let mut known = lock(&shared.digests.0);
    if known.len() >= REMEMBERED_MAX {
        known.clear();
    }
    known.insert(edition, value.clone());
    Some(value)
}
