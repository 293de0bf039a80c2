//! The incomplete file: `NAME.part`, and beside it `NAME.part.map`, which says which bytes have arrived.
//!
//! The map is written by rename, and only after its data has been synced, so it is correct after any end of
//! the process or the machine.
//!
//! Other users may write to the folder (`/tmp`). A file at these names is used only if it is a regular file
//! of our own without another name: no symlink is followed, and no file of another user is written or
//! trusted.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use seekless_base::{Exit, Fault};
use serde::{Deserialize, Serialize};

use crate::blockmap::BlockMap;
use crate::digest::{self, Algorithm, Stated};
use crate::range::Span;

/// Version of the map file's layout.
const VERSION: u32 = 1;

/// How often the map is saved while data arrives: a killed process loses at most this much.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// Longest map file that is read: three times the most ranges of a map, at 40 digits each.
const MAP_BYTES_MAX: u64 = 32 << 20;

/// Divisor of the free space: the part that a file of unstated length may take if no bound is given.
const UNTOLD_SHARE: u64 = 2;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    version: u32,
    url: String,
    size: u64,
    validator: String,
    have: Vec<(u64, u64)>,
}

/// What identifies the file on the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Size in bytes, if stated.
    pub(crate) size: Option<u64>,
    /// For `If-Range`: a strong entity tag, else the date of change.
    pub(crate) validator: Option<String>,
    /// Digest of the whole.
    pub(crate) digest: Option<Stated>,
}

/// The result of checking a complete file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// It has the stated digest, if one was stated.
    Right(Option<&'static str>),
    /// It has a different digest.
    Wrong {
        /// The algorithm.
        digest: &'static str,
        /// It was put together from several answers.
        joined: bool,
    },
}

/// The incomplete file.
pub(crate) struct PartFile {
    url: String,
    target: PathBuf,
    path: PathBuf,
    map_path: PathBuf,
    file: File,
    pub(crate) known: Known,
    /// Number of answers whose bytes it has.
    pub(crate) answers: u32,
    map: Option<BlockMap>,
    /// Bytes received in order of a file of unstated size.
    streamed: u64,
    /// Longest file, if a bound was given.
    size_max: Option<u64>,
    /// Longest file of unstated size.
    untold_max: u64,
    /// That stream ended as it should.
    ended: bool,
    saved: Instant,
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl PartFile {
    fn fault(&self, e: &io::Error) -> Fault {
        fault(&self.path, e)
    }

    /// Opens the part file, with its map if there is one for this URL. `size_max`: longest file.
    pub(crate) fn open(target: &Path, url: &str, size_max: Option<u64>) -> Result<PartFile, Fault> {
        // A download could not be renamed to it, or would replace a device.
        if fs::metadata(target).is_ok_and(|there| !there.is_file()) {
            return Err(Fault::usage(format!(
                "{} is not a regular file; name another for the download",
                target.display()
            )));
        }
        // A symlink stays, and its target is replaced: `/dev/stdout` must not be.
        let target = &seekless_output::place(target).map_err(|e| fault(target, &e))?;
        let path = with_suffix(target, ".part");
        let map_path = with_suffix(target, ".part.map");
        let file = open_own(&path, OpenOptions::new().read(true).write(true).create(true).truncate(false))?;
        // Two downloads into one file would corrupt it.
        if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Fault::busy(format!("{} is being written by another download", path.display())));
        }
        let untold_max = size_max.unwrap_or_else(|| {
            let free = rustix::fs::fstatvfs(&file).map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
            free.map_or(u64::MAX, |free| free / UNTOLD_SHARE)
        });
        let mut part = PartFile {
            url: url.into(),
            target: target.into(),
            path,
            map_path,
            file,
            known: Known::default(),
            answers: 0,
            map: None,
            streamed: 0,
            size_max,
            untold_max,
            ended: false,
            saved: Instant::now(),
        };
        match part.load() {
            Some((known, map)) => {
                part.known = known;
                part.answers = 1;
                part.map = Some(map);
            }
            None => part.reset()?,
        }
        Ok(part)
    }

    /// The saved map, if it belongs to us and its data is there.
    fn load(&self) -> Option<(Known, BlockMap)> {
        let file = open_own(&self.map_path, OpenOptions::new().read(true)).ok()?;
        let mut text = Vec::new();
        file.take(MAP_BYTES_MAX + 1).read_to_end(&mut text).ok()?;
        if text.len() as u64 > MAP_BYTES_MAX {
            return None;
        }
        let saved: Saved = serde_json::from_slice(&text).ok()?;
        if saved.version != VERSION || saved.url != self.url {
            return None;
        }
        let mut map = BlockMap::new(saved.size);
        for (offset, len) in saved.have {
            map.insert(Span { offset, len });
        }
        let end = map.spans().last().map_or(0, Span::end);
        (self.file.metadata().ok()?.len() >= end).then_some((
            Known { size: Some(saved.size), validator: Some(saved.validator), digest: None },
            map,
        ))
    }

    /// Discards everything that has arrived.
    pub(crate) fn reset(&mut self) -> Result<(), Fault> {
        let _ = fs::remove_file(&self.map_path);
        self.file.set_len(0).map_err(|e| self.fault(&e))?;
        self.known = Known::default();
        self.answers = 0;
        self.map = None;
        (self.streamed, self.ended) = (0, false);
        Ok(())
    }

    /// Bytes that have arrived.
    pub(crate) fn have(&self) -> u64 {
        self.map.as_ref().map_or(self.streamed, BlockMap::received)
    }

    /// Whether the file is whole.
    pub(crate) fn complete(&self) -> bool {
        match &self.map {
            Some(map) => map.complete(),
            None => self.ended,
        }
    }

    /// Missing ranges, the first `most`; `None` while the size is not known or nothing has arrived.
    pub(crate) fn missing(&self, most: usize) -> Option<Vec<Span>> {
        self.map.as_ref().filter(|m| m.received() > 0).map(|m| m.missing(most))
    }

    /// Takes the stated size. `false`: it differs from the one stated before.
    pub(crate) fn size_is(&mut self, size: u64) -> bool {
        match self.known.size {
            Some(known) => known == size,
            None => {
                self.known.size = Some(size);
                self.map = Some(BlockMap::new(size));
                true
            }
        }
    }

    /// Why the file is refused, if it is longer than allowed.
    pub(crate) fn too_long(&self) -> Option<Fault> {
        let (size, most, whose) = match (self.known.size, self.size_max) {
            (Some(size), Some(most)) => (size, most, "--size-max"),
            (None, Some(most)) => (self.streamed, most, "--size-max"),
            (None, None) => {
                (self.streamed, self.untold_max, "half of what was free, and the server states no length")
            }
            (Some(_), None) => return None,
        };
        (size > most).then(|| {
            let at_least = if self.known.size.is_some() { "" } else { "at least " };
            Fault::failed(format!(
                "it has {at_least}{size} bytes, more than {most} ({whose}); give a larger --size-max if that is right"
            ))
        })
    }

    /// Data of the file. Returns how many bytes are new; what lies beyond its end is not written.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<u64, Fault> {
        let room = self.known.size.map_or(u64::MAX, |size| size.saturating_sub(offset));
        let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        self.file.write_all_at(data, offset).map_err(|e| self.fault(&e))?;
        let span = Span { offset, len: data.len() as u64 };
        let new = match &mut self.map {
            Some(map) => map.insert(span),
            None => {
                self.streamed = span.end();
                span.len
            }
        };
        if self.saved.elapsed() >= SAVE_EVERY {
            self.save()?;
        }
        Ok(new)
    }

    /// A stream of unknown size has come to its proper end.
    pub(crate) fn stream_ended(&mut self) {
        self.ended = true;
    }

    /// Syncs the data and writes the map. Without a validator nothing could be resumed, so nothing is
    /// written.
    pub(crate) fn save(&mut self) -> Result<(), Fault> {
        self.saved = Instant::now();
        let (Some(map), Some(validator)) = (&self.map, &self.known.validator) else { return Ok(()) };
        if map.received() == 0 {
            return Ok(());
        }
        self.file.sync_data().map_err(|e| self.fault(&e))?;
        let saved = Saved {
            version: VERSION,
            url: self.url.clone(),
            size: map.size(),
            validator: validator.clone(),
            have: map.spans().map(|s| (s.offset, s.len)).collect(),
        };
        let new = with_suffix(&self.map_path, ".new");
        let write = || -> io::Result<()> {
            // It was left by a killed process, or put there by another user: it is never written to.
            let _ = fs::remove_file(&new);
            let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
            file.write_all(serde_json::to_string(&saved)?.as_bytes())?;
            file.sync_data()?;
            fs::rename(&new, &self.map_path)
        };
        write().map_err(|e| {
            let _ = fs::remove_file(&new);
            fault(&self.map_path, &e)
        })
    }

    /// Checks length and digest of a complete file. A wrong file is deleted as a whole, because the digest
    /// does not tell which part is wrong.
    pub(crate) fn check(&mut self) -> Result<Checked, Fault> {
        let have = self.have();
        self.file.set_len(have).map_err(|e| self.fault(&e))?;
        let Some(stated) = self.known.digest.clone() else { return Ok(Checked::Right(None)) };
        // It is read through the descriptor that wrote it, because the name may lead elsewhere by now.
        let mut reader = &self.file;
        reader.rewind().map_err(|e| self.fault(&e))?;
        let (value, read) = digest::of(stated.algorithm, &mut reader).map_err(|e| self.fault(&e))?;
        if read != have || value != stated.value {
            let joined = self.answers > 1;
            self.reset()?;
            return Ok(Checked::Wrong { digest: Algorithm::name(stated.algorithm), joined });
        }
        Ok(Checked::Right(Some(stated.algorithm.name())))
    }

    /// Gives the file its final name, with a sync before and after.
    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        self.file.sync_all().map_err(|e| self.fault(&e))?;
        fs::rename(&self.path, &self.target).map_err(|e| fault(&self.target, &e))?;
        let _ = fs::remove_file(&self.map_path);
        let folder = self.target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|f| f.sync_all()).map_err(|e| fault(folder, &e))
    }
}

impl Drop for PartFile {
    /// A download that never began leaves no file.
    fn drop(&mut self) {
        if self.have() == 0 && self.file.metadata().is_ok_and(|m| m.len() == 0) && !self.ended {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens a regular file of this user that has no other name; refuses anything else.
fn open_own(path: &Path, options: &mut OpenOptions) -> Result<File, Fault> {
    let in_the_way =
        |what: String| Fault::usage(format!("{} {what}; remove it or name another file", path.display()));
    // Opening does not wait for a FIFO.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.custom_flags(flags).open(path).map_err(|e| {
        if fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink()) {
            return in_the_way("is a symlink, which a download does not follow".into());
        }
        fault(path, &e)
    })?;
    let about = file.metadata().map_err(|e| fault(path, &e))?;
    if !about.is_file() {
        return Err(in_the_way("is not a regular file".into()));
    }
    if about.uid() != rustix::process::geteuid().as_raw() {
        return Err(in_the_way(format!("belongs to user {}", about.uid())));
    }
    if about.nlink() > 1 {
        return Err(in_the_way("has another name as well".into()));
    }
    Ok(file)
}

fn fault(path: &Path, e: &io::Error) -> Fault {
    let (exit, advice) = match e.kind() {
        io::ErrorKind::PermissionDenied => (Exit::Permission, "; choose another -o or --output-dir"),
        io::ErrorKind::NotFound => (Exit::Missing, "; make its folder, or choose another -o or --output-dir"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (Exit::Failed, "; make room and run the same command again")
        }
        _ => (Exit::Failed, ""),
    };
    Fault::new(exit, format!("cannot write {}: {e}{advice}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_comes_back_and_one_that_lies_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let url = "http://h/f";
        {
            let mut part = PartFile::open(&target, url, None).unwrap();
            assert!(part.size_is(10) && !part.size_is(11));
            part.known.validator = Some("\"x\"".into());
            assert_eq!(part.write(4, b"abcd").unwrap(), 4);
            assert_eq!(part.write(6, b"cdefgh").unwrap(), 2, "what lies beyond the end is cut off");
            part.save().unwrap();
            assert_eq!(PartFile::open(&target, url, None).map(|_| ()).unwrap_err().exit, Exit::Busy);
        }
        {
            let part = PartFile::open(&target, url, None).unwrap();
            assert_eq!(part.missing(9), Some(vec![Span { offset: 0, len: 4 }]));
            assert_eq!(part.known.validator.as_deref(), Some("\"x\""));
        }
        // Another URL, and data that are not there.
        assert_eq!(PartFile::open(&target, "http://h/g", None).unwrap().have(), 0);
        fs::write(with_suffix(&target, ".part"), "abc").unwrap();
        let lie = r#"{"version":1,"url":"http://h/f","size":10,"validator":"x","have":[[0,10]]}"#;
        fs::write(with_suffix(&target, ".part.map"), lie).unwrap();
        assert_eq!(PartFile::open(&target, url, None).unwrap().have(), 0);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left of nothing");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (null, folder) = (dir.path().join("null"), dir.path().join("folder"));
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        fs::create_dir(&folder).unwrap();
        for target in [&null, &folder] {
            let fault = PartFile::open(target, "u", None).map(|_| ()).unwrap_err();
            assert_eq!(fault.exit, Exit::Usage);
            assert!(fault.message.starts_with(&target.display().to_string()), "{fault}");
            assert!(!fault.message.contains('\n'), "{fault}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing beside them");
        // A symlink to a regular file is accepted.
        let (link, file) = (dir.path().join("link"), dir.path().join("file"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(PartFile::open(&link, "u", None).is_ok());
    }

    /// `-o /dev/stdout` with standard output in a file, and a symlink to a file that does not exist yet.
    #[test]
    fn a_symlink_stays_and_its_target_has_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let redirected = File::create(at("redirected")).unwrap();
        let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&redirected));
        std::os::unix::fs::symlink(descriptor, at("stdout")).unwrap();
        std::os::unix::fs::symlink("new", at("dangling")).unwrap();
        for (link, target) in [("stdout", "redirected"), ("dangling", "new")] {
            let mut part = PartFile::open(&at(link), "u", None).unwrap();
            part.size_is(3);
            part.write(0, b"abc").unwrap();
            assert!(at(target).with_extension("part").exists(), "beside what it will be");
            part.finish().unwrap();
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink());
            assert_eq!(fs::read(at(target)).unwrap(), b"abc");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "no part is left");
        // Its file has no name any more, so a rename has no target.
        fs::rename(at("redirected"), at("other")).unwrap();
        let gone = File::create(at("redirected")).unwrap();
        let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&gone));
        std::os::unix::fs::symlink(descriptor, at("lost")).unwrap();
        fs::remove_file(at("redirected")).unwrap();
        let fault = PartFile::open(&at("lost"), "u", None).map(|_| ()).unwrap_err();
        assert!(fault.message.contains("lost") && !fault.message.contains('\n'), "{fault}");
    }

    /// What another user can put into a folder to which both may write.
    #[test]
    fn nothing_planted_is_followed_written_or_believed() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let victim = at("victim");
        fs::write(&victim, "precious").unwrap();
        let precious = || assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
        let refused = |name: &str| {
            let fault = PartFile::open(&at(name), "u", None).map(|_| ()).unwrap_err();
            assert_eq!(fault.exit, Exit::Usage, "{name}: {fault}");
            assert!(
                fault.message.contains(&format!("{name}.part")) && !fault.message.contains('\n'),
                "{fault}"
            );
            precious();
        };
        symlink(&victim, at("link.part")).unwrap();
        refused("link");
        symlink(at("nowhere"), at("dangling.part")).unwrap();
        refused("dangling");
        assert!(!at("nowhere").exists());
        fs::hard_link(&victim, at("hard.part")).unwrap();
        refused("hard");
        fs::remove_file(at("hard.part")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo.part"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        refused("fifo");
        if rustix::process::geteuid().is_root() {
            fs::write(at("other.part"), "x").unwrap();
            std::os::unix::fs::chown(at("other.part"), Some(65534), None).unwrap();
            refused("other");
        } else {
            println!("skipped in part: only root can give a file away");
        }
        // Beside our own part file: a map that is not our file is ignored, and a file at the name of the next
        // map is not written to.
        let lie = r#"{"version":1,"url":"u","size":3,"validator":"x","have":[[0,3]]}"#;
        fs::write(at("lie"), lie).unwrap();
        fs::write(at("f.part"), "xyz").unwrap();
        symlink(at("lie"), at("f.part.map")).unwrap();
        symlink(&victim, at("f.part.map.new")).unwrap();
        let mut part = PartFile::open(&at("f"), "u", None).unwrap();
        assert_eq!(part.have(), 0, "the planted map");
        part.size_is(3);
        part.known.validator = Some("\"x\"".into());
        part.write(0, b"ab").unwrap();
        part.save().unwrap();
        precious();
        assert_eq!(fs::read_to_string(at("lie")).unwrap(), lie);
        drop(part);
        assert_eq!(PartFile::open(&at("f"), "u", None).unwrap().have(), 2, "our own map");
        // A FIFO at its name is not waited for.
        fs::remove_file(at("f.part.map")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("f.part.map"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert_eq!(PartFile::open(&at("f"), "u", None).unwrap().have(), 0);
    }

    #[test]
    fn only_what_is_right_gets_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let mut part = PartFile::open(&target, "u", None).unwrap();
        part.size_is(3);
        part.write(0, b"abc").unwrap();
        part.known.digest = Some(Stated { algorithm: Algorithm::Sha256, value: vec![0; 32] });
        let wrong = Checked::Wrong { digest: "sha-256", joined: false };
        assert!(part.complete() && part.check().unwrap() == wrong && !target.exists());
        drop(part);
        let mut part = PartFile::open(&target, "u", None).unwrap();
        part.size_is(3);
        part.write(0, b"abc").unwrap();
        let (value, _) = digest::of(Algorithm::Sha256, &mut &b"abc"[..]).unwrap();
        part.known.digest = Some(Stated { algorithm: Algorithm::Sha256, value });
        assert_eq!(part.check().unwrap(), Checked::Right(Some("sha-256")));
        part.finish().unwrap();
        drop(part);
        assert_eq!(fs::read(&target).unwrap(), b"abc");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
