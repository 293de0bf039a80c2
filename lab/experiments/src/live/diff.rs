//! An arm of parallel `diff -r` (\[L\] section 8).

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use seekless_base::Fault;

use super::daemon::{self, Daemon};
use super::{Bench, serve};
use crate::guard;
use crate::process::Process;
use crate::results::Row;
use crate::scenario::{Load, Point};
use crate::trees;

/// The paper's slowest takes a quarter of an hour of disk time.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Runs one arm and fills its row.
pub(crate) fn run(bench: &mut Bench<'_>, point: &Point, row: &mut Row) -> Result<(), Fault> {
    let Load::Diff { instances, files } = point.load else { return Ok(()) };
    let arm = &point.arm;
    write_trees(bench, instances, files)?;
    // Files, inodes and directories alike start cold.
    bench.prepare(arm)?;
    let dir = bench.scratch.dir(&format!("run{}", row.position))?;
    let group = bench.group("lab")?;
    let mut helper = arm.mode.map(|_| Daemon::of(bench, arm, &dir, group.as_ref())).transpose()?;
    let env = daemon::preload(arm, &dir)?;
    bench.disks[0].stats(true)?;
    let started = Instant::now();
    let mut running = Vec::new();
    for i in 0..instances {
        let mut command = Command::new("diff");
        command
            .arg("-r")
            .arg(tree(bench, i, 'a'))
            .arg(tree(bench, i, 'b'))
            .envs(env.iter().map(|(k, v)| (k, v)));
        running.push(Process::spawn("diff", command, &dir.join(format!("diff{i}.out")), group.as_ref())?);
    }
    for process in &mut running {
        let status = process.wait(PATIENCE)?;
        // 1: the trees differ, as they should.
        if status.code() != Some(1) {
            return Err(Fault::failed(format!("diff ended with {status}: {}", process.last_line())));
        }
    }
    let speedup = bench.scenario.disks[0].speedup;
    row.metrics.insert("runtime_s".into(), started.elapsed().as_secs_f64() * speedup);
    let stats = bench.disks[0].stats(false)?;
    serve::account_disks(row, &[stats]);
    serve::account_daemon(row, helper.as_mut());
    Ok(())
}

fn tree(bench: &Bench<'_>, instance: u32, which: char) -> PathBuf {
    bench.disks[0].mount.join(format!("pair{instance}/{which}"))
}

/// Writes what is not there yet: an earlier arm may have needed fewer pairs.
fn write_trees(bench: &Bench<'_>, instances: u32, count: u32) -> Result<(), Fault> {
    let files = trees::files(count, bench.scenario.library.seed);
    for i in 0..instances {
        for (which, second) in [('a', false), ('b', true)] {
            guard::check_interrupted()?;
            let root = tree(bench, i, which);
            if !root.exists() {
                trees::write(&root, &files, second)
                    .map_err(|e| Fault::failed(format!("{}: {e}", root.display())))?;
            }
        }
    }
    Ok(())
}
