//! `seekless disk list`.

use clap::Args;
use comfy_table::{Table, presets};
use seekless_base::{Exit, Fault};
use seekless_kernel::topology::{Backing, MountTable, Topology};
use seekless_output::{JsonOption, escaped};
use serde::Serialize;

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
    name: String,
    disk: String,
    model: Option<String>,
    bytes: u64,
    rotational: bool,
    scheduler: Option<String>,
    read_ahead_kb: Option<u64>,
    max_sectors_kb: Option<u64>,
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
    let rows: Vec<ListedDisk> = topology
        .disks()
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
                name: info.name,
                model: info.model,
                bytes: info.bytes,
                rotational: info.rotational,
                scheduler: info.scheduler,
                read_ahead_kb: info.read_ahead_kb,
                max_sectors_kb: info.max_sectors_kb,
                mounts,
            }
        })
        .collect();
    match args.json.path() {
        Some(to) => seekless_output::json(to, &rows)?,
        None => seekless_output::print(table(&rows))?,
    }
    Ok(Exit::Ok)
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
            row.name.clone(),
            format!("{:.1}", row.bytes as f64 / 1e9),
            if row.rotational { "yes" } else { "no" }.to_string(),
            row.scheduler.clone().unwrap_or_else(|| "-".into()),
            kib(row.read_ahead_kb),
            kib(row.max_sectors_kb),
            row.profile.to_string(),
            mounts,
        ]);
    }
    let mut text = format!("{table}\n");
    for row in rows {
        if let Some(why) = &row.profile_fault {
            text += &escaped(&format!("{}: {why}", row.name));
            text.push('\n');
        }
    }
    text
}
