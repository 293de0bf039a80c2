//! `seekless disk list`.

use std::path::Path;

use clap::Args;
use comfy_table::{Table, presets};
use seekless_base::{Exit, Fault};
use seekless_kernel::sysfs::SYS_BLOCK;
use seekless_kernel::topology::{Backing, MountTable, Topology};
use seekless_output::{JsonOption, escaped};
use serde::Serialize;

use crate::disk::info::{DiskInfo, disks};
use crate::disk::resolve::DiskTarget;
use crate::disk::store::{self, KnownProfile};

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

/// One disk, as `--json` prints it.
#[derive(Serialize)]
struct ListedDisk {
    #[serde(flatten)]
    info: DiskInfo,
    disk: String,
    /// `measured`, `no` or `unusable`.
    profile: &'static str,
    /// Why a stored profile is not used.
    profile_fault: Option<String>,
    /// Mount points of file systems on it.
    mounts: Vec<String>,
}

pub(crate) fn run(args: &ListArgs) -> Result<Exit, Fault> {
    let topology = Topology::of_system();
    let mounts = MountTable::of_system();
    let mut on_disk: Vec<(String, String)> = Vec::new();
    for mount in mounts.iter() {
        if let Backing::Disk { disk, .. } = topology.backing(mount.dev, Some(mount.id)) {
            on_disk.push((disk.name, mount.target.display().to_string()));
        }
    }
    let rows: Vec<ListedDisk> = disks(Path::new(SYS_BLOCK))
        .into_iter()
        .map(|info| {
            let id = DiskTarget::by_name(&info.name).identity.id;
            let known = store::load(&id, info.bytes / 512);
            let mut mounts: Vec<String> =
                on_disk.iter().filter(|(name, _)| *name == info.name).map(|(_, at)| at.clone()).collect();
            mounts.sort();
            mounts.dedup();
            ListedDisk {
                profile: known.word(),
                profile_fault: match known {
                    KnownProfile::Unusable(why) => Some(why),
                    _ => None,
                },
                disk: id,
                info,
                mounts,
            }
        })
        .collect();
    seekless_output::json_or(args.json.path(), &rows, || table(&rows)).map(|()| Exit::Ok)
}

fn table(rows: &[ListedDisk]) -> String {
    if rows.is_empty() {
        return "no disks\n".into();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["disk", "GB", "rotates", "scheduler", "read-ahead", "command", "measured", "mounts"]);
    let kib = |n: Option<u64>| n.map_or("-".into(), |n| format!("{n} KiB"));
    for row in rows {
        let mounts = match row.mounts.as_slice() {
            [] => "-".to_string(),
            [one] => escaped(one).into_owned(),
            [first, rest @ ..] => escaped(&format!("{first} and {} more", rest.len())).into_owned(),
        };
        table.add_row([
            row.info.name.clone(),
            format!("{:.1}", row.info.bytes as f64 / 1e9),
            if row.info.rotational { "yes" } else { "no" }.to_string(),
            row.info.scheduler.clone().unwrap_or_else(|| "-".into()),
            kib(row.info.read_ahead_kb),
            kib(row.info.max_sectors_kb),
            row.profile.to_string(),
            mounts,
        ]);
    }
    let mut text = format!("{table}\n");
    for row in rows {
        if let Some(why) = &row.profile_fault {
            text += &escaped(&format!("{}: {why}", row.info.name));
            text.push('\n');
        }
    }
    text
}
