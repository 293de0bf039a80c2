//! An arm of a broker: Kafka with its log on the disk, producers, consumers that follow what is written, and
//! consumers that catch up.
//!
//! The broker fills its log once a run, so that every arm finds the same one. It and the arm's daemon are in
//! the arm's control group; the clients, one Java program, stand for other machines and are not. A broker
//! does not sync what it writes: the kernel writes it back. It sends with `sendfile` from its network
//! threads, which answer producers as well, so one that waits for the disk holds up both.

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use seekless_base::Fault;
use seekless_kernel::residency::{cachestat, page_bytes, pages_of};
use seekless_model::drive::catalogue as drives;
use serde_json::Value;

use super::daemon::{self, Daemon};
use super::{Bench, serve};
use crate::guard;
use crate::memory_group::MemoryGroup;
use crate::process::Process;
use crate::results::Row;
use crate::scenario::{Load, Point, ServerVariant, written_mb_s};
use crate::server::free_port;
use crate::tools;

/// Folder of the log on the disk.
const LOG: &str = "kafka";
/// Threads that send, of the variant `threads`; three as shipped. As many as nginx has for each worker: with
/// half, two consumers that catch up wait for one thread; with double, none has more.
const NETWORK_THREADS: u32 = 32;
/// The clients' program.
const PROGRAM: &str = include_str!("Broker.java");
/// Heap of the broker, which moves no record itself. With half it spends its time collecting it.
const HEAP: &str = "256m";
/// Of a start with a log that was closed, and of an end, at which the broker writes all that is dirty.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time to fill the log, at the disk's own rate.
const FILL_PATIENCE: Duration = Duration::from_secs(1800);
/// Start of the clients, beyond the time they are asked to run.
const SLACK: Duration = Duration::from_secs(60);
/// How far behind consumers that follow may be: a quarter of a second and more at the rates here. What they
/// have taken may leave memory, so with double, more bytes would count that no consumer will read.
const TAIL: u64 = 2 << 20;
/// Time between two looks at it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs one arm and fills its row.
pub(super) fn run(bench: &mut Bench<'_>, point: &Point, row: &mut Row) -> Result<(), Fault> {
    let Load::Broker { clients, backlog, tailing, rate, warmup_s, duration_s } = &point.load else {
        return Ok(());
    };
    let (arm, log) = (&point.arm, bench.disks[0].mount.join(LOG));
    let usage = |message: String| Fault::usage(message);
    let drive = drives::find(&bench.scenario.disks[0].drive).map_err(|e| usage(e.to_string()))?;
    let rate = written_mb_s(rate, &drive).map_err(usage)? * 1e6;
    let partitions = format!("partitions={clients}");
    if !log.exists() {
        let dir = bench.scratch.dir("fill")?;
        let broker = Broker::start(&log, &dir, ServerVariant::Shipped, &[], None)?;
        let fill = broker.clients("fill", &[&partitions, &format!("backlog={}", backlog.0)], &dir)?;
        finish(fill, FILL_PATIENCE)?;
    }
    bench.prepare(arm)?;
    let dir = bench.scratch.dir(&format!("run{}", row.position))?;
    let group = bench.group("lab")?;
    let mut helper = arm.mode.map(|_| Daemon::of(bench, arm, &dir, group.as_ref())).transpose()?;
    let env = daemon::preload(arm, &dir)?;
    let mut broker = Broker::start(&log, &dir, arm.variant, &env, group.as_ref())?;
    let values = [
        partitions,
        format!("catching_up={clients}"),
        format!("tailing={tailing}"),
        format!("rate={rate}"),
        format!("warmup_ms={}", warmup_s * 1e3),
        format!("duration_ms={}", duration_s * 1e3),
    ];
    let mut load = broker.clients("run", &values.each_ref().map(String::as_str), &dir)?;
    let mut counting = None;
    let mut tail = Tail::default();
    let patience = Duration::from_secs_f64(warmup_s + duration_s) + SLACK;
    let status = guard::wait_for(patience, || {
        broker.process.runs()?;
        if counting.is_none() && load.last_line() == "counting" {
            bench.disks[0].stats(true)?;
            counting = Some(Instant::now());
        }
        if counting.is_some() {
            tail.look(&log);
        }
        Ok(load.ended())
    })?;
    let disk = bench.disks[0].stats(false)?;
    let said: Option<Value> = serde_json::from_str(&load.last_line()).ok();
    let Some(said) = said.filter(|_| status.is_some_and(|status| status.success())) else {
        let status = status.map_or("no end".into(), |status| status.to_string());
        return Err(Fault::failed(format!("the broker's clients ended with {status}: {}", load.last_line())));
    };
    for (name, value) in said.as_object().into_iter().flatten() {
        row.metrics.extend(value.as_f64().map(|value| (name.clone(), value)));
    }
    row.metrics.extend(tail.absent().map(|share| ("tail_absent".to_string(), share)));
    serve::account_disks(row, &[disk]);
    serve::account_daemon(row, helper.as_mut());
    if let Some(Ok(used)) = group.as_ref().map(|g| g.usage()) {
        row.metrics.insert("cgroup_limit_hits".into(), used.limit_hits as f64);
    }
    // It ends before its daemon and its control group.
    drop(broker);
    drop(helper);
    Ok(())
}

fn finish(mut process: Process, patience: Duration) -> Result<(), Fault> {
    let status = process.wait(patience)?;
    if status.success() {
        return Ok(());
    }
    Err(Fault::failed(format!("the broker's clients ended with {status}: {}", process.last_line())))
}

fn write(path: &Path, text: &str) -> Result<(), Fault> {
    std::fs::write(path, text).map_err(|e| Fault::failed(format!("{}: {e}", path.display())))
}

/// A Java program with the libraries of Kafka.
fn java(heap: &str) -> Result<Command, Fault> {
    let libraries = tools::kafka()?.join("*");
    let mut command = tools::find("java")?.command();
    command.arg(format!("-Xms{heap}")).arg(format!("-Xmx{heap}")).arg("-cp").arg(libraries);
    Ok(command)
}

/// Kafka at work: one node that is broker and controller; stopped on drop.
struct Broker {
    process: Process,
    port: u16,
}

impl Broker {
    /// Starts it on the log in `log`, which is made if it is not there.
    fn start(
        log: &Path,
        dir: &Path,
        variant: ServerVariant,
        env: &[(String, String)],
        group: Option<&MemoryGroup>,
    ) -> Result<Broker, Fault> {
        let (port, controller) = (free_port()?, free_port()?);
        let settings = dir.join("server.properties");
        let threads = match variant {
            ServerVariant::Threads => format!("num.network.threads={NETWORK_THREADS}\n"),
            ServerVariant::Shipped | ServerVariant::Reads => String::new(),
        };
        write(
            &settings,
            &format!(
                "process.roles=broker,controller\nnode.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
             log.dirs={}\nauto.create.topics.enable=false\nlog.retention.hours=-1\n\
             offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n{threads}",
                log.display()
            ),
        )?;
        if !log.exists() {
            let mut format = java(HEAP)?;
            format
                .args(["kafka.tools.StorageTool", "format", "-t", "seekless0000000000000A", "-c"])
                .arg(&settings);
            finish(
                Process::spawn("kafka.tools.StorageTool", format, &dir.join("format.log"), None)?,
                PATIENCE,
            )?;
        }
        let mut command = java(HEAP)?;
        command.arg("kafka.Kafka").arg(&settings).envs(env.iter().map(|(name, value)| (name, value)));
        let mut process = Process::spawn("Kafka", command, &dir.join("kafka.log"), group)?;
        let up = guard::wait_for(PATIENCE, || {
            process.runs()?;
            Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok())
        })?;
        up.map(|_| Broker { process, port })
            .ok_or_else(|| Fault::failed(format!("Kafka does not listen within {} s", PATIENCE.as_secs())))
    }

    /// Starts the clients' program.
    fn clients(&self, what: &str, values: &[&str], dir: &Path) -> Result<Process, Fault> {
        let program: PathBuf = dir.join("Broker.java");
        write(&program, PROGRAM)?;
        let mut command = java("512m")?;
        command.arg(program).arg(what).arg(format!("127.0.0.1:{}", self.port)).args(values);
        Process::spawn("the broker's clients", command, &dir.join(format!("{what}.log")), None)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.process.stop_within(PATIENCE);
    }
}

/// The ends of the partitions that are written, and how much of them was not in memory.
#[derive(Default)]
struct Tail {
    last: Option<Instant>,
    looked: u64,
    absent: u64,
}

impl Tail {
    /// Looks, if it is time. What cannot be looked at does not count.
    fn look(&mut self, log: &Path) {
        if self.last.is_some_and(|last| last.elapsed() < LOOK_EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        for folder in std::fs::read_dir(log).into_iter().flatten().flatten() {
            if !folder.file_name().to_string_lossy().starts_with("live-") {
                continue;
            }
            let files = std::fs::read_dir(folder.path()).into_iter().flatten().flatten().map(|f| f.path());
            // Names are offsets of one length.
            let newest = files.filter(|path| path.extension().is_some_and(|e| e == "log")).max();
            let Some(file) = newest.and_then(|path| File::open(path).ok()) else { continue };
            let size = file.metadata().map_or(0, |m| m.len());
            let from = size.saturating_sub(TAIL) / page_bytes() * page_bytes();
            // The page at the end may be cut off.
            let length = (size - from) / page_bytes() * page_bytes();
            if let Some(there) = cachestat(file.as_fd(), from, length).ok().filter(|_| length > 0) {
                let pages = pages_of(from, length);
                self.looked += pages;
                self.absent += pages.saturating_sub(there.cached);
            }
        }
    }

    fn absent(&self) -> Option<f64> {
        (self.looked > 0).then(|| self.absent as f64 / self.looked as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_written_is_in_memory_and_other_partitions_are_not_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let mut tail = Tail::default();
        tail.look(dir.path());
        assert_eq!(tail.absent(), None, "there is nothing to look at");
        for partition in ["live-0", "backlog-0"] {
            let folder = dir.path().join(partition);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("00000000000000000000.log"), vec![1; 1 << 20]).unwrap();
            std::fs::write(folder.join("00000000000000000000.index"), vec![1; 1 << 20]).unwrap();
        }
        let mut tail = Tail::default();
        tail.look(dir.path());
        match tail.absent() {
            Some(absent) => assert_eq!((absent, tail.looked * page_bytes()), (0.0, 1 << 20)),
            None => println!("skipped: this kernel has no cachestat"),
        }
    }
}
