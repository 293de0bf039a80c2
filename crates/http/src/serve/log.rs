//! The access log in combined format, written by a thread of its own.
//!
//! A line is written when the last byte of an answer has been handed to the kernel, or its connection is
//! gone, with the number of bytes that were sent. Event loops never wait for the log: a line that does not
//! fit the queue is counted and lost.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender, bounded};
use seekless_base::Fault;

use super::counters::Counters;

/// Most lines waiting to be written: 13 MB at 200 bytes a line.
const QUEUE: usize = 65_536;

enum LogItem {
    Line(String),
    Reopen,
}

/// The way to the log.
pub(crate) struct Log {
    sender: Option<Sender<LogItem>>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
}

impl Log {
    /// Opens the log for appending (`-`: standard output).
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(path: PathBuf, counters: Arc<Counters>) -> Result<Log, Fault> {
        let file = open(&path).map_err(|e| {
            Fault::failed(format!("cannot open the log {}: {e}; choose another --access-log", path.display()))
        })?;
        let (sender, entries) = bounded(QUEUE);
        let counted = Arc::clone(&counters);
        let thread = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || write_all(file, &path, &entries, &counted))
            .map_err(|e| Fault::failed(format!("cannot start a thread for the log: {e}")))?;
        Ok(Log { sender: Some(sender), thread: Some(thread), counters })
    }

    /// Adds a line.
    pub(crate) fn line(&self, line: String) {
        if self.sender.as_ref().is_some_and(|s| s.try_send(LogItem::Line(line)).is_err()) {
            Counters::one(&self.counters.log_lines_lost);
        }
    }

    /// Closes the file and opens its name again, after it was rotated away.
    pub(crate) fn reopen(&self) {
        if let Some(sender) = &self.sender {
            let _ = sender.try_send(LogItem::Reopen);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn open(path: &PathBuf) -> io::Result<Box<dyn Write + Send>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdout()));
    }
    let file: File = OpenOptions::new().create(true).append(true).open(path)?;
    Ok(Box::new(file))
}

fn write_all(file: Box<dyn Write + Send>, path: &PathBuf, entries: &Receiver<LogItem>, counters: &Counters) {
    let mut out = BufWriter::with_capacity(64 << 10, file);
    // A full disk must neither stop the server nor fill the error log: it is reported once, until writing
    // works again.
    let mut complained = false;
    while let Ok(first) = entries.recv() {
        match write_waiting(&mut out, path, first, entries, counters) {
            Ok(()) => complained = false,
            Err(e) if !complained => {
                tracing::warn!(%e, "{}: the log cannot be written", path.display());
                complained = true;
            }
            Err(_) => {}
        }
    }
}

/// Writes what waits, beginning with `first`, up to the file: that a line fits the buffer says nothing of it.
fn write_waiting(
    out: &mut BufWriter<Box<dyn Write + Send>>,
    path: &PathBuf,
    first: LogItem,
    entries: &Receiver<LogItem>,
    counters: &Counters,
) -> io::Result<()> {
    let mut result = Ok(());
    let mut next = Some(first);
    while let Some(entry) = next {
        let written = match entry {
            LogItem::Line(line) => {
                let written = out.write_all(line.as_bytes());
                if written.is_err() {
                    Counters::one(&counters.log_lines_lost);
                }
                written
            }
            LogItem::Reopen => {
                let flushed = out.flush();
                match open(path) {
                    Ok(file) => *out = BufWriter::with_capacity(64 << 10, file),
                    Err(e) => tracing::warn!(%e, "cannot reopen the log; the old one stays in use"),
                }
                flushed
            }
        };
        result = result.and(written);
        next = entries.try_recv().ok();
    }
    result.and(out.flush())
}

/// The content of a line.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) client: String,
    pub(crate) at: SystemTime,
    /// `GET /x HTTP/1.1`
    pub(crate) request: String,
    pub(crate) status: u16,
    pub(crate) referer: Option<Vec<u8>>,
    pub(crate) agent: Option<Vec<u8>>,
}

impl Record {
    /// The line, with `bytes` of body sent.
    pub(crate) fn line(&self, bytes: u64) -> String {
        let quoted = |value: &Option<Vec<u8>>| value.as_deref().map_or_else(|| "-".into(), escaped);
        format!(
            "{} - - [{}] \"{}\" {} {} \"{}\" \"{}\"\n",
            self.client,
            stamp(self.at),
            escaped(self.request.as_bytes()),
            self.status,
            bytes,
            quoted(&self.referer),
            quoted(&self.agent),
        )
    }
}

/// What a client sent must not end the line or its quotes, nor reach a terminal unescaped (as nginx does it).
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'"' | b'\\' | 0..=31 | 127.. => text.push_str(&format!("\\x{byte:02X}")),
            _ => text.push(byte.into()),
        }
    }
    text
}

/// `10/Oct/2000:13:55:36 +0000`
fn stamp(at: SystemTime) -> String {
    // `Sun, 06 Nov 1994 08:49:37 GMT`
    let date = httpdate::fmt_http_date(at.max(UNIX_EPOCH));
    format!("{}/{}/{}:{} +0000", &date[5..7], &date[8..11], &date[12..16], &date[17..25])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn a_line_is_byte_exact_and_cannot_be_forged() {
        let record = Record {
            client: "192.0.2.7".into(),
            at: UNIX_EPOCH + Duration::from_secs(971_186_136),
            request: "GET /a%20b\" HTTP/1.1".into(),
            status: 206,
            referer: None,
            agent: Some(b"x\"\n1 \xff\\".to_vec()),
        };
        assert_eq!(
            record.line(2326),
            "192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] \"GET /a%20b\\x22 HTTP/1.1\" 206 2326 \"-\" \
             \"x\\x22\\x0A1 \\xFF\\x5C\"\n"
        );
        assert_eq!(stamp(UNIX_EPOCH), "01/Jan/1970:00:00:00 +0000");
        assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(1_709_164_799)), "28/Feb/2024:23:59:59 +0000");
        assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(1_709_164_800)), "29/Feb/2024:00:00:00 +0000");
    }

    #[test]
    fn lines_arrive_and_a_rotated_log_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        let log = Log::open(path.clone(), Arc::default()).unwrap();
        log.line("one\n".into());
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while std::fs::read_to_string(&path).unwrap() != "one\n" {
            assert!(std::time::Instant::now() < until, "the line never came");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        log.reopen();
        log.line("two\n".into());
        drop(log);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(std::fs::read_to_string(dir.path().join("old")).unwrap(), "one\n");
        assert!(Log::open(dir.path().join("no/such"), Arc::default()).is_err());
    }

    struct Disk(Arc<AtomicBool>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.0.load(Ordering::Relaxed) {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(bytes.len()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_fails_every_write_until_there_is_room_and_lost_lines_are_counted() {
        let full = Arc::new(AtomicBool::new(true));
        let (counters, (_sender, entries)) = (Counters::default(), bounded(1));
        let mut out: BufWriter<Box<dyn Write + Send>> =
            BufWriter::with_capacity(8, Box::new(Disk(Arc::clone(&full))));
        let mut write = |text: &str| {
            write_waiting(&mut out, &PathBuf::new(), LogItem::Line(text.into()), &entries, &counters)
        };
        assert!(write("kept\n").is_err());
        assert!(write("too long\n").is_err());
        assert!(write("\n").is_err());
        assert_eq!(counters.log_lines_lost.load(Ordering::Relaxed), 1);
        full.store(false, Ordering::Relaxed);
        assert!(write("written\n").is_ok());
        assert_eq!(counters.log_lines_lost.load(Ordering::Relaxed), 1);
    }
}
