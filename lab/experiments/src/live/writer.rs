//! A program that writes beside a load, as a mirror or a recorder does: `seekless-lab writer`.
//!
//! It writes a file from end to end, over and over, and calls `fsync` after every so many bytes. It keeps to
//! its rate over the whole run: what it was late with, it writes as soon as it may. With cameras it is a
//! recorder: threads that each write a file a segment and call `fsync` at its end
//! ([`seekless_model::workload::recorder`]), and a journal. The simulator has the same programs
//! (`seekless_sim`, `serving::machine::writer`).

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use seekless_base::wants::PAGE;
use seekless_base::{Bytes, Exit, Fault, Nanos};
use seekless_model::with::WithOption;
use seekless_model::workload::recorder::{CALL, Camera, Segments};
use seekless_options::parsed;
use seekless_output::JsonOption;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::memory_group::MemoryGroup;
use crate::process::Process;
use crate::results::Row;
use crate::scenario::WriterSpec;
use crate::tools;

/// Bytes of a recorder's journal, as in the simulator.
const JOURNAL: u64 = 16 << 20;
/// Fewest segments of a camera before the first is written over, as in the simulator.
const SEGMENTS_KEPT: u64 = 8;
/// Longest fsync told apart, microseconds: an hour.
const FSYNC_MAX_US: u64 = 3_600_000_000;
/// Start-up, the last fsync and writing the result, beyond the length asked for.
const SLACK: Duration = Duration::from_secs(90);

/// Options of `seekless-lab writer`.
#[derive(Debug, Args)]
pub struct WriterArgs {
    /// The file, or the folder of a recorder; it is removed at the end
    file: PathBuf,
    #[command(flatten)]
    with: WithOption,
    #[command(flatten)]
    json: JsonOption,
}

/// What `--with` sets.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Writing {
    /// The argument: not a setting.
    #[serde(skip)]
    file: PathBuf,
    /// Size of the file, or of the segments of all cameras.
    size: Bytes,
    /// MB/s, in the disk's time.
    rate: f64,
    /// Bytes between two calls of fsync. None: never.
    sync: Option<Bytes>,
    /// Number of cameras of a recorder, which share the rate, instead of one file.
    cameras: u32,
    /// With cameras: length of a segment.
    #[serde(deserialize_with = "parsed")]
    segment: Nanos,
    /// With cameras: time between two records of its journal.
    #[serde(deserialize_with = "parsed")]
    journal: Nanos,
    /// How many times faster than life the disk runs.
    speedup: f64,
    /// What happens before is not counted.
    #[serde(deserialize_with = "parsed")]
    warmup: Nanos,
    /// When it ends, warm-up included.
    #[serde(deserialize_with = "parsed")]
    duration: Nanos,
}

impl Default for Writing {
    fn default() -> Writing {
        Writing {
            file: PathBuf::new(),
            size: Bytes::ZERO,
            rate: 0.0,
            sync: None,
            cameras: 0,
            segment: Nanos::from_secs(4),
            journal: Nanos::from_millis(250),
            speedup: 1.0,
            warmup: Nanos::ZERO,
            duration: Nanos::ZERO,
        }
    }
}

/// Carries out `seekless-lab writer`.
///
/// # Errors
/// A wrong setting; the file cannot be made or written.
pub(crate) fn run(args: &WriterArgs) -> Result<Exit, Fault> {
    let settings: Writing = args.with.settings()?;
    let value = write(&Writing { file: args.file.clone(), ..settings })?;
    seekless_output::give(args.json.path(), &value, || format!("{value}\n"))?;
    Ok(Exit::Ok)
}

fn write(args: &Writing) -> Result<Value, Fault> {
    let usable = |x: f64| x.is_finite() && x > 0.0;
    if !usable(args.rate) || !usable(args.speedup) || args.size.0 < CALL || args.duration <= args.warmup {
        let message = "writer: rate and speedup are above 0, size at least 128KiB, duration above warmup";
        return Err(Fault::usage(message));
    }
    let long = Nanos::from_millis(100)..=Nanos::from_secs(3600);
    if args.cameras > 1024 || !long.contains(&args.segment) || args.journal < Nanos::from_millis(1) {
        let message = "writer: cameras is at most 1024, segment 100ms to 1h, journal at least 1ms";
        return Err(Fault::usage(message));
    }
    let clock = Clock { start: Instant::now(), speedup: args.speedup };
    match args.cameras {
        0 => plain(args, clock),
        _ => record(args, clock),
    }
}

/// Disk time since the start.
#[derive(Clone, Copy)]
struct Clock {
    start: Instant,
    speedup: f64,
}

impl Clock {
    fn now(self) -> Nanos {
        Nanos((self.start.elapsed().as_secs_f64() * self.speedup * 1e9) as u64)
    }

    fn sleep_until(self, due: Nanos) {
        let early = due.since(self.now());
        std::thread::sleep(Duration::from_secs_f64(early.as_secs_f64() / self.speedup));
    }
}

fn fault(what: &str, path: &Path, error: &std::io::Error) -> Fault {
    Fault::failed(format!("writer: cannot {what} {}: {error}", path.display()))
}

/// Times of syncs.
struct Syncs(Histogram<u64>);

impl Syncs {
    fn new() -> Syncs {
        Syncs(Histogram::new_with_max(FSYNC_MAX_US, 3).expect("constant bounds are valid"))
    }

    fn took(&mut self, time: Nanos) {
        self.0.saturating_record((time.0 / 1000).max(1));
    }

    fn ms(&self, q: f64) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.value_at_quantile(q) as f64 / 1e3 }
    }
}

fn data() -> Vec<u8> {
    (0..CALL).map(|i| (i * 31 % 251) as u8).collect()
}

/// One program that writes one file.
fn plain(args: &Writing, clock: Clock) -> Result<Value, Fault> {
    let fault = |what: &str, e: std::io::Error| fault(what, &args.file, &e);
    let mut file = File::create(&args.file).map_err(|e| fault("create", e))?;
    let (buffer, mut fsyncs) = (data(), Syncs::new());
    let (mut written, mut counted, mut unsynced) = (0, 0, 0);
    while clock.now() < args.duration {
        let at = written % args.size.0;
        let len = CALL.min(args.size.0 - at);
        if at == 0 && written > 0 {
            file.seek(SeekFrom::Start(0)).map_err(|e| fault("rewind", e))?;
        }
        let counts = clock.now() >= args.warmup;
        file.write_all(&buffer[..len as usize]).map_err(|e| fault("write", e))?;
        written += len;
        unsynced += len;
        counted += if counts { len } else { 0 };
        if args.sync.is_some_and(|every| unsynced >= every.0) {
            let began = clock.now();
            file.sync_all().map_err(|e| fault("sync", e))?;
            unsynced = 0;
            if clock.now() >= args.warmup {
                fsyncs.took(clock.now().since(began));
            }
        }
        let due = Nanos::from_secs_f64(written as f64 / (args.rate * 1e6));
        clock.sleep_until(due.min(args.duration));
    }
    let seconds = (clock.now().since(args.warmup)).as_secs_f64();
    drop(file);
    std::fs::remove_file(&args.file).map_err(|e| fault("remove", e))?;
    Ok(written_json(args, counted as f64 / 1e6 / seconds, &fsyncs))
}

fn written_json(args: &Writing, mb_per_s: f64, fsyncs: &Syncs) -> Value {
    json!({
        "mb_per_s": mb_per_s, "asked_mb_per_s": args.rate, "of_asked": mb_per_s / args.rate,
        "fsyncs": fsyncs.0.len(), "fsync_p50_ms": fsyncs.ms(0.5), "fsync_p99_ms": fsyncs.ms(0.99),
        "fsync_max_ms": fsyncs.ms(1.0),
    })
}

/// What a thread of a recorder had.
struct Recorded {
    bytes: u64,
    syncs: Syncs,
    segments: Segments,
}

/// Cameras, each a thread that writes its segments, and a journal, in a folder of their own.
fn record(args: &Writing, clock: Clock) -> Result<Value, Fault> {
    let dir = &args.file;
    std::fs::create_dir_all(dir).map_err(|e| fault("create", dir, &e))?;
    let journal = Journal::new(&dir.join("journal"))?;
    // Its blocks are there before the clock is set.
    let clock = Clock { start: Instant::now(), ..clock };
    let counts = args.warmup..args.duration;
    let cameras = Camera::several(args.cameras, args.rate * 1e6, args.segment, &counts);
    let each = args.size.0 / u64::from(args.cameras);
    let recorded: Result<Vec<Recorded>, Fault> = std::thread::scope(|scope| {
        let threads: Vec<_> = cameras
            .into_iter()
            .enumerate()
            .map(|(number, camera)| scope.spawn(move || film(args, clock, camera, number, each)))
            .collect();
        let kept = journal.keep(args, clock);
        let films = threads.into_iter().map(|t| t.join().expect("a camera's thread does not panic"));
        films.chain([kept]).collect()
    });
    std::fs::remove_dir_all(dir).map_err(|e| fault("remove", dir, &e))?;
    let mut recorded = recorded?;
    let journal = recorded.pop().map_or_else(Syncs::new, |journal| journal.syncs);
    let (mut fsyncs, mut segments, mut bytes) = (Syncs::new(), Segments::default(), 0);
    for one in recorded {
        fsyncs.0 += &one.syncs.0;
        segments += one.segments;
        bytes += one.bytes;
    }
    let seconds = args.duration.since(args.warmup).as_secs_f64();
    let mut value = written_json(args, bytes as f64 / 1e6 / seconds, &fsyncs);
    let more = json!({
        "segments": segments.all, "late": segments.late, "lost": segments.lost, "missed": segments.missed(),
        "fdatasyncs": journal.0.len(), "fdatasync_p50_ms": journal.ms(0.5),
        "fdatasync_p99_ms": journal.ms(0.99),
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut value, more) {
        all.extend(more);
    }
    Ok(value)
}

/// One camera: a file a segment, of which the oldest is written over when `keep` bytes are there.
fn film(
    args: &Writing,
    clock: Clock,
    mut camera: Camera,
    number: usize,
    keep: u64,
) -> Result<Recorded, Fault> {
    let buffer = data();
    let (mut bytes, mut syncs) = (0, Syncs::new());
    let files = (keep / camera.segment()).max(SEGMENTS_KEPT);
    let mut open: Option<(File, PathBuf)> = None;
    loop {
        let lost_the_rest = camera.lose(clock.now());
        let mut ended = lost_the_rest;
        if !lost_the_rest {
            let due = camera.due();
            if due >= args.duration || clock.now() >= args.duration {
                break;
            }
            clock.sleep_until(due);
            let (file, path) = match &mut open {
                Some(open) => open,
                None => {
                    let segment = camera.position() / camera.segment() % files;
                    let path = args.file.join(format!("camera{number}-{segment}"));
                    let file = File::create(&path).map_err(|e| fault("create", &path, &e))?;
                    open.insert((file, path))
                }
            };
            let len = camera.call();
            file.write_all(&buffer[..len as usize]).map_err(|e| fault("write", path, &e))?;
            let now = clock.now();
            bytes += if (args.warmup..args.duration).contains(&now) { len } else { 0 };
            ended = camera.wrote(len);
        }
        if ended {
            if let Some((file, path)) = open.take() {
                let began = clock.now();
                file.sync_all().map_err(|e| fault("sync", &path, &e))?;
                if clock.now() >= args.warmup {
                    syncs.took(clock.now().since(began));
                }
            }
            camera.end_segment(clock.now());
        }
    }
    let segments = camera.segments(clock.now().min(args.duration));
    Ok(Recorded { bytes, syncs, segments })
}

/// A file whose pages are written over, one every so often.
struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    fn new(path: &Path) -> Result<Journal, Fault> {
        let mut file = File::create(path).map_err(|e| fault("create", path, &e))?;
        let block = data();
        for _ in 0..JOURNAL / CALL {
            file.write_all(&block).map_err(|e| fault("write", path, &e))?;
        }
        file.sync_all().map_err(|e| fault("sync", path, &e))?;
        Ok(Journal { file, path: path.to_owned() })
    }

    fn keep(&self, args: &Writing, clock: Clock) -> Result<Recorded, Fault> {
        let (page, mut syncs, mut at) = (vec![7; PAGE as usize], Syncs::new(), 0);
        loop {
            let every = args.journal.0.max(1);
            let due = Nanos((clock.now().0 / every + 1) * every);
            if due >= args.duration {
                return Ok(Recorded { bytes: 0, syncs, segments: Segments::default() });
            }
            clock.sleep_until(due);
            self.file.write_all_at(&page, at).map_err(|e| fault("write", &self.path, &e))?;
            at = (at + PAGE) % JOURNAL;
            let began = clock.now();
            self.file.sync_data().map_err(|e| fault("sync", &self.path, &e))?;
            if clock.now() >= args.warmup {
                syncs.took(clock.now().since(began));
            }
        }
    }
}

/// The program at work; stopped on drop.
pub(super) struct Writer {
    process: Process,
    result: PathBuf,
    patience: Duration,
}

impl Writer {
    /// Starts it with a file on the disk mounted at `mount`, for as long as the load of a scenario.
    pub(super) fn start(
        spec: &WriterSpec,
        mb_s: f64,
        (mount, dir): (&Path, &Path),
        (warmup_s, duration_s, speedup): (f64, f64, f64),
        group: Option<&MemoryGroup>,
    ) -> Result<Writer, Fault> {
        let mut command = tools::command(&["writer"])?;
        command.arg(mount.join("written"));
        let mut settings = vec![
            format!("size={},rate={mb_s},speedup={speedup}", spec.file),
            format!("warmup={warmup_s}s,duration={}s", warmup_s + duration_s),
        ];
        settings.extend(spec.sync.map(|every| format!("sync={every}")));
        settings.extend(spec.cameras.map(|n| format!("cameras={n},segment={}s", spec.segment_s)));
        command.arg("--with").arg(settings.join(","));
        let result = dir.join("writer.json");
        command.arg("--json").arg(&result);
        let process = Process::spawn("the writer", command, &dir.join("writer.log"), group)?;
        let patience = Duration::from_secs_f64((warmup_s + duration_s) / speedup) + SLACK;
        Ok(Writer { process, result, patience })
    }

    /// Waits for its end and adds its view to a row.
    pub(super) fn account(mut self, row: &mut Row) -> Result<(), Fault> {
        let status = self.process.wait(self.patience)?;
        let text = std::fs::read_to_string(&self.result).unwrap_or_default();
        let value: Value = serde_json::from_str(&text).map_err(|_| {
            let line = self.process.last_line();
            Fault::failed(format!("the writer gave no result ({status}): {}", tools::without_name(&line)))
        })?;
        account(row, &value);
        Ok(())
    }
}

/// Metrics of what a writer says, and where.
const METRICS: [(&str, &str); 13] = [
    ("writer_mb_s", "mb_per_s"),
    ("writer_asked_mb_s", "asked_mb_per_s"),
    ("segments", "segments"),
    ("segments_late", "late"),
    ("segments_lost", "lost"),
    ("segments_missed", "missed"),
    ("fdatasyncs", "fdatasyncs"),
    ("fdatasync_p50_ms", "fdatasync_p50_ms"),
    ("fdatasync_p99_ms", "fdatasync_p99_ms"),
    ("writer_of_asked", "of_asked"),
    ("fsync_p50_ms", "fsync_p50_ms"),
    ("fsync_p99_ms", "fsync_p99_ms"),
    ("fsync_max_ms", "fsync_max_ms"),
];

/// Adds the writer's view of a run to its row.
pub(crate) fn account(row: &mut Row, writer: &Value) {
    let synced = writer["fsyncs"].as_u64().is_some_and(|n| n > 0);
    for (metric, name) in METRICS {
        if let Some(value) = writer[name].as_f64().filter(|_| synced || !name.starts_with("fsync")) {
            row.metrics.insert(metric.into(), value);
        }
    }
    row.raw.insert("writer".into(), writer.clone());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(file: &Path) -> Writing {
        Writing {
            file: file.into(),
            size: Bytes::mib(1),
            rate: 4.0,
            sync: None,
            cameras: 4,
            segment: Nanos::from_millis(200),
            journal: Nanos::from_millis(50),
            speedup: 1.0,
            warmup: Nanos::from_millis(400),
            duration: Nanos::from_millis(1400),
        }
    }

    #[test]
    fn a_recorder_says_what_became_of_its_segments_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let args = recorder(&dir.path().join("recorded"));
        let said = record(&args, Clock { start: Instant::now(), speedup: 1.0 }).unwrap();
        // Four cameras, five segments a second each, for a second. A slow machine may miss some.
        let segments = said["segments"].as_u64().unwrap();
        assert!(segments.abs_diff(20) <= 4, "{said}");
        assert!(said["late"].as_u64().unwrap() + said["lost"].as_u64().unwrap() <= segments, "{said}");
        assert!(said["fsyncs"].as_u64().unwrap() > 0 && said["fdatasyncs"].as_u64().unwrap() > 0, "{said}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_recorded_is_said_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"in the way").unwrap();
        let fault = write(&recorder(&file)).unwrap_err();
        assert!(fault.message.starts_with("writer: cannot create") && !fault.message.contains('\n'));
        let fault = write(&Writing { cameras: 2000, ..recorder(&file) }).unwrap_err();
        assert_eq!(fault.exit, Exit::Usage);
    }
}
