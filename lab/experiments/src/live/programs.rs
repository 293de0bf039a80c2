//! An arm of `works-with-nodes`: a program, or the nodes of a system and their clients, reads its data to the
//! end, as shipped or beside Seekless by the door that `seekless doctor` recommends.
//!
//! The doctor is asked in the first arm without Seekless, about the processes that read most from the disk at
//! the time. What was read is known by its checksums. What cannot be had, does not start or fails is a row
//! with its reason, and the run goes on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use seekless_base::{Exit, Fault};
use seekless_model::workload::content::Content;
use sha2::{Digest, Sha256};

use super::daemon::{self, Daemon};
use super::works::{self, Advice};
use super::{Bench, serve};
use crate::memory_group::MemoryGroup;
use crate::process::{Process, last_line};
use crate::results::Row;
use crate::scenario::{Arm, Door, Load, Point, Program};
use crate::server::{first_version, free_port};
use crate::small_files::{self, Sums};
use crate::{guard, tools};

/// A program that has not read its data by then hangs.
const PATIENCE: Duration = Duration::from_secs(300);
/// Writing the data of a program, at the disk's own rate.
const PREPARE_PATIENCE: Duration = Duration::from_secs(900);
/// How long a node may take to take connections.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Programs map and open their files in the first seconds; then the doctor is asked.
const ASK_AFTER: Duration = Duration::from_secs(3);
/// A process counts as a reader if it has read at least what the busiest has, divided by this.
const READER_SHARE: u64 = 10;
/// Processes the doctor is asked about: asking takes processor time from the arm.
const ASKED_MAX: usize = 4;
/// Free ports besides `PORT`, by the variables that name them.
const MORE_PORTS: [&str; 3] = ["PORT2", "PORT3", "PORT4"];

/// Runs one arm and fills its row.
pub(super) fn run(bench: &mut Bench<'_>, point: &Point, row: &mut Row) -> Result<(), Fault> {
    let Load::Programs { program } = &point.load else { return Ok(()) };
    let Some(program) = program.first() else { return Err(Fault::usage("no program")) };
    if let Some(remark) = &program.remark {
        row.words.insert("remark".into(), remark.clone());
    }
    match measure(bench, (program, point), row) {
        Err(fault) if fault.exit == Exit::Interrupted => Err(fault),
        Err(fault) => {
            tracing::warn!("{}: {fault}", program.title);
            row.metrics.clear();
            row.words.insert("reason".into(), fault.message);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn measure(bench: &mut Bench<'_>, (program, point): (&Program, &Point), row: &mut Row) -> Result<(), Fault> {
    let dir = bench.scratch.dir(&format!("run{}", row.position))?;
    let shell = Shell::new(bench, program, &dir)?;
    if let Some(version) = shell.version(program) {
        row.words.insert("version".into(), version);
    }
    let expected = prepare(bench, program, &shell)?;
    let bytes = match program.prepare.is_none() || program.of_library {
        true => works::library(bench)?.iter().map(|(_, size)| size).sum(),
        false => size_of(&shell.data)?,
    };
    let mut arm = point.arm.clone();
    let advice = arm.mode.map(|_| advice(bench, &arm, program)).transpose()?;
    bench.prepare(&arm)?;
    let group = bench.group_of("lab", program.memory.unwrap_or(bench.scenario.memory))?;
    let mut helper = None;
    let mut env = Vec::new();
    if let Some(advice) = &advice {
        arm.door = advice.door;
        row.words.insert("door".into(), arm.door.name().into());
        row.words.insert("why".into(), advice.why.clone());
        helper = Some(Daemon::of(bench, &arm, &dir, group.as_ref())?);
        env = daemon::preload(&arm, &dir)?;
    }
    let node =
        program.serve.as_ref().map(|line| Node::start(&shell, line, &env, group.as_ref())).transpose()?;
    bench.disks[0].stats(true)?;
    let started = Instant::now();
    let (inside, env) = match node.is_some() {
        true => (None, Vec::new()),
        false => (group.as_ref(), env),
    };
    let mut command = shell.command("read", &program.read, &shell.data);
    command.envs(env);
    let mut process = shell.spawn("read", command, inside)?;
    let ended = guard::wait_for(ASK_AFTER, || Ok(process.ended()))?;
    if let (None, None, Some(group)) = (ended, &advice, &group)
        && !bench.advice.contains_key(&program.name)
    {
        let readers = readers(&group.pids().unwrap_or_default());
        let advice = works::ask(&readers, bench.scratch.path())?;
        bench.advice.insert(program.name.clone(), advice);
    }
    let status = process.wait(PATIENCE)?;
    let elapsed_s = started.elapsed().as_secs_f64();
    let stats = bench.disks[0].stats(false)?;
    if !status.success() {
        return Err(shell.failed("read", &format!("ended with {status}")));
    }
    serve::account_daemon(row, helper.as_mut());
    if let Some(helper) = &helper {
        row.raw.insert("daemon".into(), helper.status()?);
    }
    drop(node);
    drop(helper);
    let read = small_files::parse(&shell.said("read")?);
    // Where nothing says what is there, what the first arm read is it.
    let expected = expected.unwrap_or_else(|| read.clone());
    keep(bench, program, &expected)?;
    row.metrics.insert("wrong_files".into(), small_files::wrong(&expected, &read) as f64);
    row.metrics.insert("files_s".into(), read.len() as f64 / elapsed_s);
    row.metrics.insert("runtime_s".into(), elapsed_s);
    row.metrics.insert("mb_s".into(), bytes as f64 / 1e6 / elapsed_s);
    serve::account_disks(row, &[stats]);
    if read.is_empty() {
        return Err(Fault::failed("it read nothing"));
    }
    Ok(())
}

/// What the doctor said of the program, or what the scenario says.
fn advice(bench: &Bench<'_>, arm: &Arm, program: &Program) -> Result<Advice, Fault> {
    if arm.door != Door::Shim {
        return Ok(Advice { door: arm.door, why: "the scenario asks for it".into() });
    }
    bench.advice.get(&program.name).cloned().ok_or_else(|| {
        Fault::failed("the doctor was not asked: no arm without Seekless ran long enough before this one")
    })
}

/// The processes of the group that read from the disk, the one that read most first.
fn readers(pids: &[u32]) -> Vec<u32> {
    let of = |pid: &u32| {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let read = io.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()?;
        Some((read, *pid))
    };
    let mut read: Vec<(u64, u32)> = pids.iter().filter_map(of).collect();
    read.sort_unstable_by(|a, b| b.cmp(a));
    let least = read.first().map_or(0, |(most, _)| most / READER_SHARE).max(1);
    read.into_iter().filter(|(bytes, _)| *bytes >= least).take(ASKED_MAX).map(|(_, pid)| pid).collect()
}

/// Fills the program's folder, once, and says what will be read, if that is known.
fn prepare(bench: &Bench<'_>, program: &Program, shell: &Shell) -> Result<Option<Sums>, Fault> {
    library_sums(bench, &shell.sums)?;
    let kept = kept(bench, program);
    if kept.exists() {
        return Ok(Some(small_files::parse(&read(&kept)?)));
    }
    let Some(line) = &program.prepare else { return Ok(Some(small_files::parse(&read(&shell.sums)?))) };
    // An attempt that failed has left something.
    let _ = fs::remove_dir_all(&shell.data);
    fs::create_dir_all(&shell.data).map_err(|e| fault(&shell.data, &e))?;
    let mut process = shell.spawn("prepare", shell.command("prepare", line, &shell.data), None)?;
    let status = process.wait(PREPARE_PATIENCE)?;
    if !status.success() {
        return Err(shell.failed("prepare", &format!("ended with {status}")));
    }
    rustix::fs::sync();
    let sums = small_files::parse(&shell.said("prepare")?);
    Ok(Some(sums).filter(|sums| !sums.is_empty()))
}

fn kept(bench: &Bench<'_>, program: &Program) -> PathBuf {
    bench.scratch.path().join(format!("{}.sums", program.name))
}

/// Writes down what the program is to read.
fn keep(bench: &Bench<'_>, program: &Program, sums: &Sums) -> Result<(), Fault> {
    let kept = kept(bench, program);
    let lines: String = sums.iter().map(|(path, sum)| format!("{sum}  {path}\n")).collect();
    fs::write(&kept, lines).map_err(|e| fault(&kept, &e))
}

/// Writes the checksums of the library's files, which follow from their paths and sizes.
fn library_sums(bench: &Bench<'_>, path: &Path) -> Result<(), Fault> {
    if path.exists() {
        return Ok(());
    }
    let mut buffer = vec![0; 1 << 20];
    let mut lines = String::new();
    for (name, size) in works::library(bench)? {
        guard::check_interrupted()?;
        let (content, mut sum, mut at) = (Content::of_path(&name), Sha256::new(), 0);
        while at < size {
            let part = &mut buffer[..(size - at).min(1 << 20) as usize];
            content.fill(at, part);
            sum.update(&*part);
            at += part.len() as u64;
        }
        let file = name.rsplit('/').next().unwrap_or_default();
        lines += &format!("{}  {file}\n", small_files::hex(sum));
    }
    fs::write(path, lines).map_err(|e| fault(path, &e))
}

fn fault(path: &Path, error: &std::io::Error) -> Fault {
    Fault::failed(format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<String, Fault> {
    fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned()).map_err(|e| fault(path, &e))
}

/// Bytes of the regular files of a tree.
fn size_of(dir: &Path) -> Result<u64, Fault> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).map_err(|e| fault(dir, &e))? {
        let entry = entry.map_err(|e| fault(dir, &e))?;
        let about = entry.metadata().map_err(|e| fault(dir, &e))?;
        bytes += if about.is_dir() { size_of(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}

/// What the lines of a program are run by.
struct Shell {
    dir: PathBuf,
    data: PathBuf,
    sums: PathBuf,
    /// The first free port.
    port: u16,
    env: BTreeMap<&'static str, std::ffi::OsString>,
}

impl Shell {
    /// # Errors
    /// [`Exit::Missing`]: a program is not here.
    fn new(bench: &Bench<'_>, program: &Program, dir: &Path) -> Result<Shell, Fault> {
        let bin = dir.join("bin");
        fs::create_dir_all(&bin).map_err(|e| fault(&bin, &e))?;
        for name in &program.needs {
            launcher(&bin, name)?;
        }
        let mount = &bench.disks[0].mount;
        let files = works::library(bench)?;
        let folder = files.first().and_then(|(file, _)| Path::new(file).parent());
        let library = mount.join(folder.unwrap_or(Path::new("")));
        let data = if program.prepare.is_some() { mount.join(&program.name) } else { library.clone() };
        let sums = bench.scratch.path().join("library.sums");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut env: BTreeMap<&'static str, OsString> = BTreeMap::from([
            ("PATH", format!("{}:{path}:/usr/sbin:/sbin", bin.display()).into()),
            ("LIBRARY", library.into()),
            ("DATA", data.clone().into()),
            ("SUMS", sums.clone().into()),
            ("DIR", dir.into()),
            ("TOOLS", tools::unpacked().unwrap_or_default().into()),
            ("SEEKLESS_LAB", tools::laboratory()?.into()),
        ]);
        let port = free_port()?;
        env.insert("PORT", port.to_string().into());
        for name in MORE_PORTS {
            env.insert(name, free_port()?.to_string().into());
        }
        Ok(Shell { dir: dir.to_path_buf(), data, sums, port, env })
    }

    /// A shell that runs `line` in `folder`; what it writes goes to a file named after `what`.
    fn command(&self, what: &str, line: &str, folder: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-ec", &format!("exec >\"$OUT\"\n{line}")]).current_dir(folder).envs(&self.env);
        command.env("OUT", self.out(what));
        command
    }

    fn spawn(&self, what: &str, command: Command, group: Option<&MemoryGroup>) -> Result<Process, Fault> {
        Process::spawn(what, command, &self.dir.join(format!("{what}.log")), group)
    }

    fn out(&self, what: &str) -> PathBuf {
        self.dir.join(format!("{what}.out"))
    }

    fn said(&self, what: &str) -> Result<String, Fault> {
        read(&self.out(what))
    }

    fn failed(&self, what: &str, how: &str) -> Fault {
        let last = last_line(&self.dir.join(format!("{what}.log")));
        Fault::failed(format!("{what} {how}: {last}"))
    }

    fn version(&self, program: &Program) -> Option<String> {
        let output = self.command("version", program.version.as_ref()?, &self.dir).output().ok()?;
        first_version(&format!("{}{}", self.said("version").ok()?, String::from_utf8_lossy(&output.stderr)))
    }
}

/// The nodes of a system; ended on drop, and what they started with their control group.
struct Node {
    _process: Process,
}

impl Node {
    /// Starts them and waits until the first port takes connections.
    fn start(
        shell: &Shell,
        line: &str,
        env: &[(String, String)],
        group: Option<&MemoryGroup>,
    ) -> Result<Node, Fault> {
        let mut command = shell.command("serve", line, &shell.data);
        command.envs(env.iter().map(|(name, value)| (name, value)));
        let mut process = shell.spawn("serve", command, group)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, shell.port));
        let up = guard::wait_for(START_PATIENCE, || match process.ended() {
            Some(status) => Err(shell.failed("serve", &format!("ended with {status}"))),
            None => Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()),
        })?;
        match up {
            Some(_) => Ok(Node { _process: process }),
            None => Err(shell.failed("serve", "takes no connections")),
        }
    }
}

/// Puts a program under its name into a folder: a script that finds its libraries and Python packages.
fn launcher(bin: &Path, name: &str) -> Result<(), Fault> {
    use std::os::unix::fs::PermissionsExt;
    let found = tools::find(name).or_else(|missing| tools::find_go(name).map_err(|_| missing))?;
    // No wrapper of the same name in PATH comes before what a package installed.
    let installed = Path::new("/usr/bin").join(name);
    let path = if found.root == Path::new("/") && installed.is_file() { &installed } else { &found.path };
    let mut script = String::from("#!/bin/sh\n");
    for (variable, value) in found.command().get_envs() {
        if let Some(value) = value {
            script += &format!("export {}='{}'\n", variable.display(), value.display());
        }
    }
    if let Some(tools) = tools::unpacked() {
        let tools = tools.display();
        script += &format!("export PYTHONPATH='{tools}/python:{tools}/usr/lib/python3/dist-packages'\n");
    }
    script += &format!("exec '{}' \"$@\"\n", path.display());
    let to = bin.join(name);
    fs::write(&to, script).map_err(|e| fault(&to, &e))?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(|e| fault(&to, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_passes_words_on_as_they_are() {
        let bin = tempfile::tempdir().unwrap();
        launcher(bin.path(), "printf").unwrap();
        let said = Command::new(bin.path().join("printf")).args(["<%s>", "a b", "c'd"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "<a b><c'd>");
        assert_eq!(launcher(bin.path(), "no-such-program-here").unwrap_err().exit, Exit::Missing);
    }

    #[test]
    fn only_processes_that_read_from_the_disk_are_asked_about() {
        assert!(readers(&[u32::MAX]).is_empty());
        let all: Vec<u32> = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
            .collect();
        assert!(readers(&all).len() <= ASKED_MAX);
    }
}
