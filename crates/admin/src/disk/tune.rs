//! `seekless disk tune`.

mod change;
mod plan;

use std::path::{Path, PathBuf};

use clap::Args;
use seekless_base::{Exit, Fault};
use seekless_kernel::identity::Identity;
use seekless_kernel::queue::{Queue, Setting};
use seekless_kernel::sysfs::{self, SYS_BLOCK, UDEV_DATA};
use seekless_output::JsonOption;
use seekless_policy::profile::DiskProfile;
use serde::Serialize;

use crate::disk::info::disks;
use crate::disk::resolve::{DiskTarget, resolve};
use crate::disk::store::{self, KnownProfile};
use plan::{Advice, TunePlan};

#[derive(Args, Debug)]
pub(crate) struct TuneArgs {
    /// Block device, or a folder or file on the disk [default: all rotating disks]
    #[arg(value_name = "DEV|DIR")]
    pub(crate) target: Option<PathBuf>,
    /// Set it now, and remember the settings before for --revert
    #[arg(long, conflicts_with = "revert")]
    pub(crate) apply: bool,
    /// Restore the settings before --apply, and remove the rule of --persist
    #[arg(long, conflicts_with = "persist")]
    pub(crate) revert: bool,
    /// Write a udev rule that sets it after a restart
    #[arg(long)]
    pub(crate) persist: bool,
    /// Expected number of concurrent sequential readers, 1 to 100000
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) streams: u32,
    /// Where udev rules go
    #[arg(long, default_value = "/etc/udev/rules.d", hide = true)]
    pub(crate) udev_dir: PathBuf,
    /// Where the devices are
    #[arg(long, default_value = "/sys/block", hide = true)]
    pub(crate) sys_block: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

/// What is said of one disk.
#[derive(Serialize)]
struct TuneReport {
    name: String,
    disk: String,
    label: String,
    /// `measured`, or why the figures are those of an assumed disk.
    profile: String,
    #[serde(flatten)]
    plan: TunePlan,
    /// Set now.
    applied: bool,
    /// Put back: which settings.
    reverted: Option<Vec<String>>,
    /// udev rule written or removed.
    rule: Option<PathBuf>,
}

pub(crate) fn run(args: &TuneArgs) -> Result<Exit, Fault> {
    let targets = targets(args)?;
    let mut reports = Vec::new();
    for target in &targets {
        reports.push(one(args, target)?);
    }
    let all = || reports.iter().map(|report| text(report, args)).collect();
    seekless_output::json_or(args.json.path(), &reports, all).map(|()| Exit::Ok)
}

fn targets(args: &TuneArgs) -> Result<Vec<DiskTarget>, Fault> {
    if let Some(path) = &args.target {
        // A test's tree of devices has no device files: there the name alone counts.
        if args.sys_block != Path::new(SYS_BLOCK) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let identity = Identity::of(&args.sys_block, Path::new(UDEV_DATA), &name);
            return Ok(vec![DiskTarget { identity, name }]);
        }
        return Ok(vec![resolve(path)?]);
    }
    let turning: Vec<DiskTarget> = disks(&args.sys_block)
        .into_iter()
        .filter(|d| d.rotational && !d.name.starts_with("md") && !d.name.starts_with("dm-"))
        .map(|d| DiskTarget::by_name(&d.name))
        .collect();
    if turning.is_empty() {
        let message = "no disk here rotates: nothing to tune (name a device to see the advice anyway)";
        return Err(Fault::missing(message));
    }
    Ok(turning)
}

fn one(args: &TuneArgs, target: &DiskTarget) -> Result<TuneReport, Fault> {
    let queue = Queue::new(&args.sys_block, &target.name);
    let settings = queue.settings();
    if settings.read_ahead_kb.is_none() {
        return Err(Fault::missing(format!("{} has no request queue to tune", target.name)));
    }
    let sectors = sysfs::number(args.sys_block.join(&target.name).join("size")).unwrap_or(0);
    let (profile, source) = match store::load(&target.identity.id, sectors) {
        KnownProfile::Measured(stored) => (stored.profile, "measured".to_string()),
        KnownProfile::Unmeasured => (
            DiskProfile::assumed(sectors),
            "not measured: figures of an assumed 7200 rpm disk; see `seekless disk profile`".to_string(),
        ),
        KnownProfile::Unusable(why) => {
            (DiskProfile::assumed(sectors), format!("figures of an assumed 7200 rpm disk, since {why}"))
        }
    };
    let mut report = TuneReport {
        name: target.name.clone(),
        disk: target.identity.id.clone(),
        label: target.label(),
        profile: source,
        plan: plan::plan(&profile, &settings, args.streams),
        applied: false,
        reverted: None,
        rule: None,
    };
    if args.revert {
        let back = change::revert(&queue, &target.identity.id, &target.name)?;
        report.rule = change::unpersist(&args.udev_dir, &target.identity)?;
        if back.is_none() && report.rule.is_none() {
            return Err(Fault::missing(format!(
                "{}: nothing to revert: no --apply is on record",
                target.name
            )));
        }
        report.reverted = Some(back.unwrap_or_default().iter().map(|s| s.name().to_string()).collect());
    }
    if args.apply {
        let changes: Vec<(Setting, String)> =
            report.plan.settings.iter().filter_map(Advice::change).collect();
        change::apply(&queue, &target.identity.id, &target.name, &changes)?;
        report.applied = true;
    }
    if args.persist {
        let values: Vec<(Setting, String)> = report.plan.settings.iter().filter_map(Advice::value).collect();
        report.rule = Some(change::persist(&args.udev_dir, &target.identity, &target.name, &values)?);
    }
    Ok(report)
}

fn text(report: &TuneReport, args: &TuneArgs) -> String {
    let mut text = format!("{}: {}\n", report.label, report.profile);
    if let Some(back) = &report.reverted {
        text += &match back.as_slice() {
            [] => "  already as before\n".to_string(),
            all => format!("  put back: {}\n", all.join(", ")),
        };
        if let Some(rule) = &report.rule {
            text += &format!("  removed {}\n", rule.display());
        }
        return text;
    }
    for advice in &report.plan.settings {
        let now = advice.now.as_deref().unwrap_or("-");
        let change = match &advice.wanted {
            Some(wanted) if report.applied => format!("{now} -> {wanted}, set"),
            Some(wanted) => format!("{now} -> {wanted}"),
            None => format!("{now}, stays"),
        };
        text += &format!("  {:16} {change}\n      {}\n", advice.setting, advice.why);
        if advice.wanted.is_some() {
            text += &format!("      expected then: {:.1} MB/s\n", advice.expected_mb_per_s);
        }
    }
    text += &format!(
        "  {} sequential readers, by the model: {:.1} MB/s as it is, {:.1} MB/s tuned ({:.1} times); memory for the \
         read-ahead {:.0} MB\n",
        report.plan.streams,
        report.plan.now_mb_per_s,
        report.plan.tuned_mb_per_s,
        report.plan.tuned_mb_per_s / report.plan.now_mb_per_s.max(1e-9),
        report.plan.memory_bytes as f64 / 1e6,
    );
    if let Some(rule) = &report.rule {
        text += &format!("  kept over a restart by {}\n", rule.display());
    }
    if !args.apply && !args.persist {
        text += "  nothing was changed: --apply sets it, --revert puts it back, --persist keeps it over a restart\n";
    }
    text
}
