//! `seekless-lab vdisk up`.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use seekless_base::{Bytes, Exit, Fault};
use seekless_model::drive::spread::Spread;
use seekless_model::load_options::{DriveOption, SeedOption};
use seekless_model::set_options::SetOptions;
use seekless_model::with::{WithOption, within};
use seekless_options::parsed;
use serde::Deserialize;

use super::DiskArgs;
use crate::config::{DiskConfig, FsKind};
use crate::manifest::Manifest;
use crate::mechanism::Model;
use crate::mkfs;
use crate::state::{DiskDir, DiskRecord, cannot};
use crate::{message, supervisor};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FsArg {
    Ext4,
    Xfs,
    Btrfs,
    None,
}

#[derive(Debug, Args)]
pub(super) struct UpArgs {
    #[command(flatten)]
    disk: DiskArgs,
    /// Here a .toml file as well.
    #[command(flatten)]
    drive: DriveOption,
    /// Size of the disk, with a unit
    #[arg(long)]
    size: Option<Bytes>,
    /// File system to make
    #[arg(long, value_enum, default_value_t = FsArg::Ext4)]
    fs: FsArg,
    /// Mount point, an empty or new folder
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Run this many times as fast as the real drive
    #[arg(long, value_name = "K", default_value_t = 1.0)]
    speedup: f64,
    #[command(flatten)]
    set: SetOptions,
    /// Block scheduler: none, mq-deadline, bfq, kyber
    #[arg(long)]
    scheduler: Option<String>,
    /// Largest read-ahead of the kernel, in KiB
    #[arg(long, value_name = "N")]
    read_ahead_kb: Option<u64>,
    /// Largest request of the block layer, in KiB
    #[arg(long, value_name = "N")]
    max_sectors_kb: Option<u64>,
    /// Further mount options of the file system
    #[arg(long, value_name = "OPTIONS")]
    mount_options: Option<String>,
    /// Write every command of the drive to a CSV file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Make no block device but a folder of the manifest's files straight from the model (works without root)
    #[arg(long, requires = "manifest", conflicts_with_all = ["scheduler", "read_ahead_kb", "max_sectors_kb", "mount_options"])]
    tree: bool,
    /// List of the tree's files: lines of size and path
    #[arg(long, value_name = "FILE", requires = "tree")]
    manifest: Option<PathBuf>,
    #[command(flatten)]
    with: WithOption,
    #[command(flatten)]
    from: SeedOption,
    /// Stay in the foreground until interrupted, then take the disk down
    #[arg(long)]
    foreground: bool,
}

/// What `--with` sets.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Settings {
    /// `drive`, or `platter`: a second model from the drive's data sheet, with other rules.
    model: Model,
    /// Part of the drive that the disk covers: full, none (its first addresses, in one piece), or percentages
    /// such as 0-25.
    #[serde(deserialize_with = "parsed")]
    spread: Spread,
    /// Bytes that stay together when the disk is spread over the drive.
    spread_chunk: Bytes,
    /// Most commands that the block layer sends to the drive at once. None: the drive's queue depth.
    queue_depth: Option<u32>,
    /// Folder for the unnamed file that keeps content that is not generated.
    backing: PathBuf,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            model: Model::Drive,
            spread: Spread::FULL,
            // Under one per cent of a sequential reader's time goes to the jumps between.
            spread_chunk: Bytes::mib(64),
            queue_depth: None,
            backing: "/var/tmp".into(),
        }
    }
}

impl UpArgs {
    fn config(&self) -> Result<DiskConfig, Fault> {
        let fs = match (self.tree, self.fs) {
            (true, _) => FsKind::Tree,
            (_, FsArg::Ext4) => FsKind::Ext4,
            (_, FsArg::Xfs) => FsKind::Xfs,
            (_, FsArg::Btrfs) => FsKind::Btrfs,
            (_, FsArg::None) => FsKind::None,
        };
        if self.mount.is_none() && fs != FsKind::None {
            return Err(Fault::usage(
                "--mount DIR is missing: say where to mount the disk, or use --fs none",
            ));
        }
        if self.mount.is_some() && fs == FsKind::None {
            return Err(Fault::usage(
                "--fs none has nothing to mount: leave out --mount, or choose ext4 or xfs",
            ));
        }
        let manifest = self.manifest.as_deref().map(absolute);
        let size = match (self.size, &manifest) {
            (Some(size), _) => size,
            // A tree as large as its files.
            (None, Some(path)) => {
                let files = Manifest::read(path)?.files;
                Bytes(files.iter().map(|(_, s)| s.next_multiple_of(4096)).sum::<u64>().max(1 << 20))
            }
            (None, None) => {
                return Err(Fault::usage("--size is missing: say how large the disk is, as --size 64GiB"));
            }
        };
        let settings: Settings = self.with.settings()?;
        within(&[("queue-depth", f64::from(settings.queue_depth.unwrap_or(1)), 1.0, 128.0)])?;
        let mut drive = self.drive.name("wd-red-1tb").to_owned();
        if drive.contains('/') || drive.ends_with(".toml") {
            drive = absolute(Path::new(&drive)).to_string_lossy().into_owned();
        }
        Ok(DiskConfig {
            name: self.disk.name.clone(),
            drive,
            model: settings.model,
            size,
            fs,
            mount: self.mount.as_deref().map(resolved),
            speedup: self.speedup,
            spread: settings.spread.to_string(),
            set: self.set.spec()?,
            chunk: settings.spread_chunk,
            scheduler: self.scheduler.clone(),
            read_ahead_kb: self.read_ahead_kb,
            max_sectors_kb: self.max_sectors_kb,
            queue_depth: settings.queue_depth,
            mount_options: self.mount_options.clone(),
            trace: self.trace.as_deref().map(absolute),
            backing: absolute(&settings.backing),
            manifest,
            seed: self.from.seed,
        })
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// As the mount table will name it: without symbolic links, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let path = absolute(path);
    if let Ok(real) = fs::canonicalize(&path) {
        return real;
    }
    match (path.parent().and_then(|p| fs::canonicalize(p).ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path,
    }
}

/// What can be known to fail is said before anything is started.
fn check(config: &DiskConfig) -> Result<(), Fault> {
    DiskDir::new(&config.name)?;
    config.resolve()?;
    let needs = |path: &str, what: &str, mend: &str| {
        OpenOptions::new().read(true).write(true).open(path).map(drop).map_err(|e| {
            let fault = cannot(&format!("{what} ({path})"), Path::new(&config.name), &e);
            let exit = if e.kind() == std::io::ErrorKind::NotFound { Exit::Missing } else { fault.exit };
            Fault::new(exit, format!("no {what} for us ({path}: {e}); {mend}"))
        })
    };
    needs("/dev/fuse", "FUSE", "run as root, load the kernel's fuse module, or make /dev/fuse accessible")?;
    if config.fs == FsKind::Tree {
        if !rustix::process::geteuid().is_root() && mkfs::find_program("fusermount3").is_none() {
            let message = "no fusermount3 to mount with as an ordinary user: install package fuse3, or set \
                           SEEKLESS_TOOLS to a folder whose bin holds it";
            return Err(Fault::missing(message));
        }
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        let message = "a block device needs root; as an ordinary user use --tree --manifest FILE";
        return Err(Fault::permission(message));
    }
    needs(
        "/dev/loop-control",
        "loop devices",
        "load the kernel's loop module, or use --tree --manifest FILE",
    )?;
    mkfs::check(config.fs)
}

pub(super) fn run(args: &UpArgs) -> Result<Exit, Fault> {
    let config = args.config()?;
    check(&config)?;
    if args.foreground {
        let mut shown = Ok(());
        let exit = supervisor::run(&config, |record| shown = show(args, record))?;
        return shown.map(|()| exit);
    }
    let failed = |why: String| Fault::failed(format!("cannot start the disk: {why}"));
    let exe = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
    let text = serde_json::to_string(&config).map_err(|e| failed(e.to_string()))?;
    seekless_kernel::spawn::pass_on_no_descriptors();
    let mut supervisor = Command::new(exe)
        .args(["vdisk", "supervise", &text])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    let mut line = String::new();
    if let Some(out) = supervisor.stdout.take() {
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if let Ok(record) = serde_json::from_str::<DiskRecord>(&line) {
        return show(args, &record).map(|()| Exit::Ok);
    }
    let status = supervisor.wait();
    match line.trim() {
        "" => Err(failed(format!("its process ended without a word ({status:?})"))),
        text => Err(message::fault_from_json(text)),
    }
}

fn show(args: &UpArgs, record: &DiskRecord) -> Result<(), Fault> {
    args.disk.json.show(record, || {
        let c = &record.config;
        let set = if c.set.is_single() { String::new() } else { format!(", {}", c.set) };
        let place = match (&record.device, &c.mount) {
            (Some(device), Some(mount)) => format!("{} mounted at {}", device.display(), mount.display()),
            (Some(device), None) => format!("{}", device.display()),
            (None, mount) => format!("files at {}", mount.clone().unwrap_or_default().display()),
        };
        format!(
            "{}: {place}\n  {} as {}{set}, spread {}, speed {}x, process {}\n  end it with: seekless-lab vdisk down --name {}\n",
            c.name, c.size, record.drive_label, c.spread, c.speedup, record.pid, c.name
        )
    })
}
