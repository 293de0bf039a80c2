//! The machine: its disks, their settings, and what would help.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use seekless_engine::{KindReport, Settings};
use seekless_frontend::advice::Finding;
use seekless_frontend::advice::scheduler;
use seekless_kernel::container::Container;
use seekless_kernel::fstype::{self, Reads};
use seekless_kernel::memory::idle_pager;
use seekless_kernel::sysfs::SYS_BLOCK;
use seekless_kernel::topology::MountTable;
use seekless_output::write_line;
use serde::Serialize;

use crate::disk::info::{self, DiskInfo};

use super::container;
use super::recommend::{Doors, Recommendation, WORKS, for_machine};
use super::{DaemonState, describe_findings};

#[derive(Clone, Debug, Serialize)]
struct DiskFacts {
    #[serde(flatten)]
    info: DiskInfo,
    /// Whether it is served: by measurement if something of it is mounted, else by the flag.
    seeks: bool,
    /// The measured kind, or why it is missing; only if something of it is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<KindReport>,
}

impl DiskFacts {
    fn new(info: DiskInfo, kinds: &[KindReport]) -> DiskFacts {
        let kind = kinds.iter().find(|k| k.disk == info.name).cloned();
        let seeks = kind.as_ref().map_or(info.rotational, |k| k.seeks);
        DiskFacts { info, seeks, kind }
    }
}

/// The doctor's report on the machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MachineReport {
    kernel: String,
    /// Each door, and `works` or what it lacks here.
    doors: BTreeMap<&'static str, &'static str>,
    pub(super) daemon: DaemonState,
    disks: Vec<DiskFacts>,
    findings: Vec<Finding>,
    recommendation: Recommendation,
}

pub(crate) fn examine(daemon: DaemonState, doors: Doors) -> MachineReport {
    let kinds = Settings::default().survey(None);
    let disks: Vec<DiskFacts> =
        info::disks(Path::new(SYS_BLOCK)).into_iter().map(|info| DiskFacts::new(info, &kinds)).collect();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string();
    let mut findings = findings(&disks, &daemon, idle_pager());
    findings.extend(beyond(&MountTable::of_system()));
    findings.extend(Container::here().map(|here| container::finding(&here, daemon.answers, doors)));
    let recommendation = for_machine(disks.iter().any(|d| d.seeks), daemon.answers, doors);
    let doors = BTreeMap::from(doors.report());
    MachineReport { kernel, doors, daemon, disks, findings, recommendation }
}

fn findings(disks: &[DiskFacts], daemon: &DaemonState, pager: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !disks.iter().any(|d| d.seeks) {
        findings.push(Finding {
            kind: "no_heads",
            blocks: true,
            what: "no disk here seeks".into(),
            advice: "Seekless leaves such disks alone; `--include-ssd` serves them too".into(),
        });
    }
    if !daemon.answers {
        findings.push(Finding {
            kind: "no_daemon",
            blocks: true,
            what: "no daemon answers".into(),
            advice: "start `seekless daemon`, or let `seekless run -- CMD` start one for the command".into(),
        });
    }
    if pager {
        findings.push(Finding {
            kind: "idle_pager",
            blocks: false,
            what: "the kernel pages out memory that was not used for some seconds, even with memory to spare (DAMON)".into(),
            advice: "data read ahead may leave memory before it is read, and is then read twice: switch the pager off, or let it take only what was unused for minutes (`min_age`)".into(),
        });
    }
    for disk in disks.iter().filter(|d| d.seeks) {
        if disk.info.scheduler.as_deref() == Some("none") {
            findings.push(Finding {
                kind: "no_scheduler",
                blocks: false,
                what: format!(
                    "{} has no scheduler: `observe` gains almost nothing beside a server with many threads that \
                     wait for it",
                    disk.info.name
                ),
                advice: scheduler::advice(&disk.info.name),
            });
        }
        if let Some(kb) = disk.info.read_ahead_kb.filter(|&kb| kb < 1024) {
            findings.push(Finding {
                kind: "read_ahead",
                blocks: false,
                what: format!("{} reads ahead {kb} KiB only", disk.info.name),
                advice: format!(
                    "for servers that can be neither hooked nor watched, `seekless disk tune --apply /dev/{}` sets what the \
                     kernel alone can do",
                    disk.info.name
                ),
            });
        }
    }
    findings
}

/// Maximum number of mount points named in one finding.
const NAMED_MAX: usize = 3;

/// Mounts that are passed, one finding for each kind of file system.
fn beyond(mounts: &MountTable) -> Vec<Finding> {
    let mut kinds: Vec<(&str, Reads, Vec<String>)> = Vec::new();
    for mount in mounts.iter() {
        let Some(reads) = fstype::by_name(&mount.fs_type).map(|t| t.reads) else { continue };
        if !matches!(reads, Reads::OwnCache | Reads::Network | Reads::Fuse) {
            continue;
        }
        let at = mount.target.display().to_string();
        match kinds.iter_mut().find(|k| k.0 == mount.fs_type) {
            Some(kind) => kind.2.push(at),
            None => kinds.push((&mount.fs_type, reads, vec![at])),
        }
    }
    let finding = |(kind, reads, at): (&str, Reads, Vec<String>)| {
        let more = at.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let at = format!("{}{more}", at[..at.len().min(NAMED_MAX)].join(", "));
        let (what, advice) = match reads {
            Reads::OwnCache => (
                format!("{at}: {kind} has a cache of its own, outside the page cache"),
                "its files pass, and are read as without Seekless; use the file system's own prefetching",
            ),
            Reads::Network => (
                format!("{at}: {kind} reads from another machine"),
                "its files pass; run Seekless on the machine that has the disks",
            ),
            _ => (
                format!("{at}: {kind} is served by a program (FUSE), with one queue for each mount"),
                "files read past the page cache (direct I/O) pass; a pool that names the disk of each file (mergerfs) is read from those disks",
            ),
        };
        Finding { kind: "file_system", blocks: false, what, advice: advice.into() }
    };
    kinds.into_iter().map(finding).collect()
}

impl MachineReport {
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        let _ = write_line!(text, "Linux {}; {}", self.kernel, self.daemon.describe());
        for (door, works) in &self.doors {
            let works =
                if *works == WORKS { String::from("works here") } else { format!("not here: {works}") };
            let _ = write_line!(text, "   door {door}: {works}");
        }
        if self.daemon.answers {
            // A refused umount raises no event.
            let _ = write_line!(text, "   before a file system is unmounted: seekless release DIR");
        }
        for disk in &self.disks {
            let kind = if disk.seeks { "seeks," } else { "does not seek," };
            let kb = |value: Option<u64>| value.map_or("?".to_string(), |v| v.to_string());
            let _ = write_line!(
                text,
                "   {} {kind} {:.*} GB{}: read_ahead_kb {}, max_sectors_kb {}, scheduler {}",
                disk.info.name,
                usize::from(disk.info.bytes < 10_000_000_000),
                disk.info.bytes as f64 / 1e9,
                disk.info.model.as_deref().map_or(String::new(), |m| format!(" ({m})")),
                kb(disk.info.read_ahead_kb),
                kb(disk.info.max_sectors_kb),
                disk.info.scheduler.as_deref().unwrap_or("?"),
            );
            if let Some(kind) = &disk.kind {
                let _ = write_line!(text, "      {kind}");
            }
        }
        describe_findings(&self.findings, &mut text);
        text.push_str(&self.recommendation.describe());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(rotational: bool, read_ahead_kb: u64) -> DiskFacts {
        let info = DiskInfo {
            name: "sda".into(),
            model: None,
            bytes: 1 << 40,
            rotational,
            read_ahead_kb: Some(read_ahead_kb),
            max_sectors_kb: Some(1280),
            scheduler: Some("mq-deadline".into()),
        };
        DiskFacts { info, seeks: rotational, kind: None }
    }

    #[test]
    fn file_systems_that_are_passed_are_said_once_a_kind() {
        let mounts = MountTable::parse(
            b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
              2 1 0:50 / /tank rw - zfs tank rw\n\
              3 1 0:51 / /tank/a rw - zfs tank/a rw\n\
              4 1 0:52 / /tank/b rw - zfs tank/b rw\n\
              5 1 0:53 / /tank/c rw - zfs tank/c rw\n\
              6 1 0:54 / /net rw - nfs4 host:/x rw\n\
              7 1 0:55 / /pool rw - fuse.mergerfs pool rw\n\
              8 1 0:56 / /sys/fs/fuse/connections rw - fusectl fusectl rw\n",
        );
        let found = beyond(&mounts);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].what.starts_with("/tank, /tank/a, /tank/b and 1 more: zfs"), "{}", found[0].what);
        assert!(found[1].what.contains("/net: nfs4") && found[2].advice.contains("mergerfs"));
        assert!(found.iter().all(|f| f.kind == "file_system" && !f.blocks));
    }

    #[test]
    fn findings_follow_the_disks() {
        let daemon = DaemonState {
            socket: "/s".into(),
            answers: true,
            mode: Some("both".into()),
            error: None,
            without_hook: None,
        };
        let kinds =
            |disks: &[DiskFacts]| findings(disks, &daemon, false).iter().map(|f| f.kind).collect::<Vec<_>>();
        assert_eq!(kinds(&[disk(false, 128)]), ["no_heads"]);
        assert_eq!(kinds(&[disk(true, 128)]), ["read_ahead"]);
        assert_eq!(kinds(&[disk(true, 4096)]), [""; 0]);
        let unsorted = |seeks| {
            let mut disk = disk(seeks, 4096);
            disk.info.scheduler = Some("none".into());
            disk
        };
        assert_eq!(kinds(&[unsorted(true), disk(true, 4096)]), ["no_scheduler"]);
        assert_eq!(kinds(&[unsorted(false)]), ["no_heads"], "what does not seek needs no scheduler");
        assert_eq!(findings(&[disk(true, 4096)], &daemon, true)[0].kind, "idle_pager");
    }
}
