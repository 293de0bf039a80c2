//! A program that writes beside a load, as a recorder or a mirror does: `seekless-lab writer`.
//!
//! It writes a file from end to end, over and over, and calls `fsync` after every so many bytes. It keeps to
//! its rate over the whole run: what it was late with, it writes as soon as it may. The simulator has the
//! same program (`seekless_sim`, `serving::machine::writer`).

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::memory_group::MemoryGroup;
use clap::Args;
use hdrhistogram::Histogram;
use seekless_base::{Bytes, Exit, Fault, Nanos};
use serde_json::{Value, json};

use crate::process::Process;
use crate::results::Row;
use crate::scenario::WriterSpec;
use crate::tools;

/// Bytes of one call, as in the simulator.
const CALL: u64 = 128 << 10;
/// Longest fsync told apart, microseconds: an hour.
const FSYNC_MAX_US: u64 = 3_600_000_000;
/// Start-up, the last fsync and writing the result, beyond the length asked for.
const SLACK: Duration = Duration::from_secs(90);

/// Options of `seekless-lab writer`.
#[derive(Debug, Args)]
pub struct WriterArgs {
    /// The file; it is removed at the end
    #[arg(long)]
    file: PathBuf,
    /// Its size
    #[arg(long)]
    size: Bytes,
    /// MB/s, in the disk's time
    #[arg(long)]
    rate: f64,
    /// Call fsync after so many bytes
    #[arg(long)]
    sync: Option<Bytes>,
    /// How many times faster than life the disk runs
    #[arg(long, default_value_t = 1.0)]
    speedup: f64,
    /// What happens before is not counted
    #[arg(long)]
    warmup: Nanos,
    /// When it ends, warm-up included
    #[arg(long)]
    duration: Nanos,
    /// Where the result goes
    #[arg(long, num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Carries out `seekless-lab writer`.
///
/// # Errors
/// The file cannot be made or written.
pub(crate) fn run(args: &WriterArgs) -> Result<Exit, Fault> {
    let fault = |what: &str, e: std::io::Error| {
        Fault::new(Exit::Failed, format!("writer: cannot {what} {}: {e}", args.file.display()))
    };
    let usable = |x: f64| x.is_finite() && x > 0.0;
    if !usable(args.rate) || !usable(args.speedup) || args.size.0 < CALL || args.duration <= args.warmup {
        let message =
            "writer: --rate and --speedup are above 0, --size at least 128KiB, --duration above --warmup";
        return Err(Fault::new(Exit::Usage, message));
    }
    let mut file = File::create(&args.file).map_err(|e| fault("create", e))?;
    let buffer: Vec<u8> = (0..CALL).map(|i| (i * 31 % 251) as u8).collect();
    let mut fsyncs = Histogram::<u64>::new_with_max(FSYNC_MAX_US, 3).expect("constant bounds are valid");
    let start = Instant::now();
    let now = || Nanos((start.elapsed().as_secs_f64() * args.speedup * 1e9) as u64);
    let (mut written, mut counted, mut unsynced) = (0, 0, 0);
    while now() < args.duration {
        let at = written % args.size.0;
        let len = CALL.min(args.size.0 - at);
        if at == 0 && written > 0 {
            file.seek(SeekFrom::Start(0)).map_err(|e| fault("rewind", e))?;
        }
        let counts = now() >= args.warmup;
        file.write_all(&buffer[..len as usize]).map_err(|e| fault("write", e))?;
        written += len;
        unsynced += len;
        counted += if counts { len } else { 0 };
        if args.sync.is_some_and(|every| unsynced >= every.0) {
            let began = now();
            file.sync_all().map_err(|e| fault("sync", e))?;
            unsynced = 0;
            if now() >= args.warmup {
                fsyncs.saturating_record((now().since(began).0 / 1000).max(1));
            }
        }
        let due = Nanos::from_secs_f64(written as f64 / (args.rate * 1e6));
        let early = due.min(args.duration).since(now());
        std::thread::sleep(Duration::from_secs_f64(early.as_secs_f64() / args.speedup));
    }
    let seconds = (now().since(args.warmup)).as_secs_f64();
    drop(file);
    std::fs::remove_file(&args.file).map_err(|e| fault("remove", e))?;
    let ms = |q: f64| if fsyncs.is_empty() { 0.0 } else { fsyncs.value_at_quantile(q) as f64 / 1e3 };
    let mb_per_s = counted as f64 / 1e6 / seconds;
    let value = json!({
        "mb_per_s": mb_per_s, "asked_mb_per_s": args.rate, "of_asked": mb_per_s / args.rate,
        "fsyncs": fsyncs.len(), "fsync_p50_ms": ms(0.5), "fsync_p99_ms": ms(0.99), "fsync_max_ms": ms(1.0),
    });
    seekless_output::give(args.json.as_deref(), &value, || format!("{value}\n"))?;
    Ok(Exit::Ok)
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
        command.arg("--file").arg(mount.join("written"));
        command.args(["--size", &spec.file.to_string(), "--rate", &mb_s.to_string()]);
        command.args(spec.sync.iter().flat_map(|every| ["--sync".to_string(), every.to_string()]));
        command.args(["--warmup", &format!("{warmup_s}s")]);
        command.args([
            "--duration",
            &format!("{}s", warmup_s + duration_s),
            "--speedup",
            &speedup.to_string(),
        ]);
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
            let message = format!("the writer gave no result ({status}): {}", tools::without_name(&line));
            Fault::new(Exit::Failed, message)
        })?;
        account(row, &value);
        Ok(())
    }
}

/// Metrics of what a writer says, and where.
const METRICS: [(&str, &str); 5] = [
    ("writer_mb_s", "mb_per_s"),
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
