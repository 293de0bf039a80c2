//! An arm that reads every file of a tree once, by a program that takes them in any order.
//!
//! What it read is known by its checksums, which are compared with those of what was written.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use seekless_base::Fault;
use seekless_model::workload::tree::TreeSpec;

use super::daemon::{self, Daemon};
use super::{Bench, in_memory, load, restic, serve};
use crate::process::Process;
use crate::results::Row;
use crate::scenario::{FileReader, Load, Point};
use crate::small_files::{self, Sums};
use crate::tools;

/// Two hundred seeks a second read the default tree in a few minutes.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Folder of the tree on the disk.
const TREE: &str = "tree";
/// Programs that `xargs` starts at a time, and files that each takes.
pub(crate) const XARGS_PROGRAMS: u32 = 4;
pub(crate) const XARGS_FILES: u32 = 64;
/// The program of the Python arms.
const PROGRAM: &str = include_str!("files.py");

/// Runs one arm and fills its row.
pub(crate) fn run(bench: &mut Bench<'_>, point: &Point, row: &mut Row) -> Result<(), Fault> {
    let Load::Files { files, median, files_per_pack, pack, ahead, preload, .. } = point.load else {
        return Ok(());
    };
    let seed = bench.scenario.library.seed;
    let tree = TreeSpec { files, median: median.0, files_per_pack, pack: pack.0, seed };
    let Some(reader) = point.arm.reader else { return Err(Fault::usage("no reader")) };
    let mut root = bench.disks[0].mount.join(TREE);
    let mut expected = kept(bench, "tree", || small_files::write(&tree, &root))?;
    if reader == FileReader::Restic {
        let repository = bench.disks[0].mount.join(restic::REPOSITORY);
        expected = kept(bench, "packs", || restic::save(&root, &repository))?;
        root = repository;
    }
    // Files, inodes and directories alike start cold.
    bench.prepare(&point.arm)?;
    if preload {
        in_memory::bring(&root)?;
    }
    let dir = bench.scratch.dir(&format!("run{}", row.position))?;
    let group = bench.group("lab")?;
    let sums = dir.join("sums");
    let helper = point.arm.mode.map(|_| Daemon::of(bench, &point.arm, &dir, group.as_ref())).transpose()?;
    let env = daemon::preload(&point.arm, &dir)?;
    let mut command = shell(&line(reader), &sums, &root);
    command.envs(environment(reader, &dir, ahead.0)?).envs(env);
    bench.disks[0].stats(true)?;
    let started = Instant::now();
    let mut process = Process::spawn("reader of files", command, &dir.join("log"), group.as_ref())?;
    let status = process.wait(PATIENCE)?;
    if !status.success() {
        return Err(Fault::failed(format!(
            "arm `{}` ended with {status}: {}",
            point.arm.name,
            process.last_line()
        )));
    }
    let elapsed_s = started.elapsed().as_secs_f64() * load::speedup(bench.scenario, &point.load);
    let stats = bench.disks[0].stats(false)?;
    if preload {
        row.metrics.insert("absent_files".into(), in_memory::absent(&root)? as f64);
    }
    let read = small_files::parse(&text(&sums)?);
    let wrong = small_files::wrong(&expected, &read);
    row.metrics.insert("runtime_s".into(), elapsed_s);
    row.metrics.insert("files_s".into(), read.len() as f64 / elapsed_s);
    row.metrics.insert("wrong_files".into(), wrong as f64);
    if let Some(helper) = &helper {
        let status = helper.status()?;
        let of_disks = |pointer: &str| -> f64 {
            let disks = status["disks"].as_array().into_iter().flatten();
            disks.filter_map(|disk| disk.pointer(pointer)?.as_f64()).sum()
        };
        let unused = of_disks("/ledger/wasted") + of_disks("/ledger/evicted_unused");
        row.metrics.insert("unused_share".into(), unused / of_disks("/bytes_read").max(1.0));
        row.raw.insert("daemon".into(), status);
    }
    serve::account_disks(row, &[stats]);
    Ok(())
}

/// The checksums of what is on the disk under this name, which is written if it is not there yet.
fn kept(bench: &Bench<'_>, name: &str, write: impl FnOnce() -> Result<Sums, Fault>) -> Result<Sums, Fault> {
    let kept = bench.scratch.path().join(name);
    if kept.exists() {
        return Ok(small_files::parse(&text(&kept)?));
    }
    let sums = write()?;
    let lines: String = sums.iter().map(|(path, sum)| format!("{sum}  {path}\n")).collect();
    std::fs::write(&kept, lines).map_err(|e| Fault::failed(format!("{}: {e}", kept.display())))?;
    Ok(sums)
}

fn text(path: &Path) -> Result<String, Fault> {
    std::fs::read_to_string(path).map_err(|e| Fault::failed(format!("{}: {e}", path.display())))
}

/// Takes checksums of the paths on its standard input, by so many programs at a time.
fn sha256(programs: u32) -> String {
    format!("xargs -0 -n {XARGS_FILES} -P {programs} sha256sum")
}

/// The same of all files in the order of the disk.
fn ordered(option: &str, programs: u32) -> String {
    format!("find . -type f -print0 | \"$SEEKLESS\" order -0{option} | {}", sha256(programs))
}

/// The line a shell runs for `reader`, to write lines of `sha256sum`.
fn line(reader: FileReader) -> String {
    match reader {
        FileReader::Xargs => format!("find . -type f -print0 | {}", sha256(XARGS_PROGRAMS)),
        FileReader::Order => ordered("", XARGS_PROGRAMS),
        FileReader::OrderOne => ordered("", 1),
        FileReader::OrderAhead => ordered(" --ahead \"$AHEAD\"", XARGS_PROGRAMS),
        FileReader::Tar => "tar c . | \"$SEEKLESS_LAB\" sums".into(),
        FileReader::CatSet => "\"$SEEKLESS\" cat-set --ahead \"$AHEAD\" . | \"$SEEKLESS_LAB\" sums".into(),
        FileReader::PythonWalk => "python3 -B \"$PROGRAM\" walk".into(),
        FileReader::PythonOrder => "python3 -B \"$PROGRAM\" order \"$AHEAD\"".into(),
        FileReader::Restic => restic::check(),
    }
}

/// A shell that runs `line` in `root` and adds what it writes to `sums`.
fn shell(line: &str, sums: &Path, root: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", &format!("{line} >>\"$SUMS\"")]).current_dir(root).env("SUMS", sums);
    command
}

/// What the programs of `reader` are found by.
fn environment(reader: FileReader, dir: &Path, ahead: u64) -> Result<Vec<(&'static str, OsString)>, Fault> {
    let mut env = vec![
        ("SEEKLESS", tools::seekless()?.into()),
        ("SEEKLESS_LAB", tools::laboratory()?.into()),
        ("AHEAD", ahead.to_string().into()),
    ];
    if reader.is_python() {
        let program = dir.join("files.py");
        std::fs::write(&program, PROGRAM)
            .map_err(|e| Fault::failed(format!("{}: {e}", program.display())))?;
        env.push(("PROGRAM", program.into()));
    }
    if reader == FileReader::Restic {
        env.extend(restic::environment()?);
    }
    if reader == FileReader::PythonOrder {
        env.push(("PYTHONPATH", tools::python_package()?.into()));
        env.push(("SEEKLESS_ORDER_LIBRARY", tools::order_library()?.into()));
    }
    Ok(env)
}
