//! `seekless-lab vdisk populate`.

use std::path::PathBuf;

use clap::Args;
use seekless_base::{Bytes, Exit, Fault};
use seekless_model::load_options::SeedOption;
use seekless_model::with::WithOption;
use serde::Deserialize;

use super::DiskArgs;
use crate::config::FsKind;
use crate::control::{ControlClient, ControlRequest};
use crate::manifest::Manifest;
use crate::populate::{PopulateOptions, populate};
use crate::state::DiskDir;

#[derive(Debug, Args)]
pub(super) struct PopulateArgs {
    #[command(flatten)]
    disk: DiskArgs,
    /// List of the files: lines of size and path
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Mount point of a file system that was made on the disk by other means
    #[arg(long, value_name = "DIR")]
    mounted: Option<PathBuf>,
    /// Further disks of this file system
    #[arg(long, value_name = "NAME", requires = "mounted")]
    also: Vec<String>,
    #[command(flatten)]
    with: WithOption,
    #[command(flatten)]
    from: SeedOption,
}

/// What `--with` sets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Settings {
    /// Number of files, named 000001.bin and so on, instead of a manifest.
    files: Option<u64>,
    /// Size of each of these files.
    file_size: Option<Bytes>,
    /// Folder inside the file system that is the root of the library.
    into: PathBuf,
    /// Write the files one behind the other at the start of the disk, instead of evenly over it.
    pack: bool,
}

pub(super) fn run(args: &PopulateArgs) -> Result<Exit, Fault> {
    let settings: Settings = args.with.settings()?;
    let manifest = match (&args.manifest, settings.files, settings.file_size) {
        (Some(path), None, None) => Manifest::read(path)?,
        (None, Some(count), Some(size)) if (1..=1_000_000).contains(&count) => {
            Manifest { files: (1..=count).map(|i| (format!("{i:06}.bin"), size.0)).collect() }
        }
        (None, Some(_), Some(_)) => {
            return Err(Fault::usage("--with files is out of range: 1 to 1000000"));
        }
        _ => {
            return Err(Fault::usage("say which files: --manifest FILE, or --with files=N,file-size=SIZE"));
        }
    };
    let dir = DiskDir::new(&args.disk.name)?;
    let mut clients = vec![ControlClient::connect(&dir)?];
    for name in &args.also {
        clients.push(ControlClient::connect(&DiskDir::new(name)?)?);
    }
    let config = dir.record().map(|r| r.config);
    let mount = match config {
        Some(_) if args.mounted.is_some() => args.mounted.clone(),
        Some(c) if matches!(c.fs, FsKind::Ext4 | FsKind::Xfs | FsKind::Btrfs) => c.mount,
        _ => None,
    };
    let Some(mount) = mount else {
        return Err(Fault::usage(format!(
            "disk `{}` has no file system to populate (a tree is born with its files)",
            args.disk.name
        )));
    };
    if !settings.into.components().all(|c| matches!(c, std::path::Component::Normal(_))) {
        return Err(Fault::usage("--with into leaves the file system: give a relative path without `..`"));
    }
    let root = mount.join(&settings.into);
    std::fs::create_dir_all(&root).map_err(|e| crate::state::cannot("make directory", &root, &e))?;
    // Lasts as long as the connection.
    for client in &mut clients {
        client.ask(&ControlRequest::Unthrottle)?;
    }
    let bar = seekless_output::bar(manifest.bytes(), "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let options = PopulateOptions { seed: args.from.seed, pack: settings.pack };
    let done = populate(&root, &manifest, options, |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let done = done?;
    drop(clients);
    args.disk.json.show(&done, || {
        format!(
            "{}: {} files, {:.1} MB in {:.1} s ({:.0} MB/s), {:.0} % of the disk\n",
            args.disk.name,
            done.files,
            Bytes(done.bytes).as_mb(),
            done.seconds,
            done.mb_per_s,
            done.fill * 100.0
        )
    })?;
    Ok(Exit::Ok)
}
