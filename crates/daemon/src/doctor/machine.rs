//! The machine: its disks, their settings, and what would help.

use std::fmt::Write;
use std::fs;

use seekless_kernel::memory::{IdlePager, idle_pager};
use seekless_kernel::topology::{DiskInfo, Topology};
use serde::Serialize;

use super::recommend::{Recommendation, for_machine};
use super::{DaemonState, Finding, describe_findings};

/// One disk.
#[derive(Clone, Debug, Serialize)]
struct DiskFacts {
    name: String,
    model: Option<String>,
    bytes: u64,
    rotational: bool,
    read_ahead_kb: Option<u64>,
    max_sectors_kb: Option<u64>,
    scheduler: Option<String>,
}

impl From<DiskInfo> for DiskFacts {
    fn from(info: DiskInfo) -> DiskFacts {
        let DiskInfo { name, model, bytes, rotational, read_ahead_kb, max_sectors_kb, scheduler, .. } = info;
        DiskFacts { name, model, bytes, rotational, read_ahead_kb, max_sectors_kb, scheduler }
    }
}

/// The doctor's word on the machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MachineReport {
    kernel: String,
    pub(super) daemon: DaemonState,
    disks: Vec<DiskFacts>,
    findings: Vec<Finding>,
    recommendation: Recommendation,
}

pub(crate) fn examine(daemon: DaemonState, watchable: Result<(), &str>) -> MachineReport {
    let disks: Vec<DiskFacts> = Topology::of_system().disks().into_iter().map(DiskFacts::from).collect();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string();
    let findings = findings(&disks, &daemon, idle_pager());
    let recommendation = for_machine(disks.iter().any(|d| d.rotational), daemon.answers, watchable);
    MachineReport { kernel, daemon, disks, findings, recommendation }
}

fn findings(disks: &[DiskFacts], daemon: &DaemonState, pager: Option<IdlePager>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !disks.iter().any(|d| d.rotational) {
        findings.push(Finding {
            kind: "no_heads",
            blocks: true,
            what: "no disk here has heads to move".into(),
            advice: "Seekless leaves solid-state disks alone; `--include-ssd` serves them all the same"
                .into(),
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
    if let Some(pager) = pager {
        let advice = if pager.spares_mapped {
            "what is read ahead stays mapped until it is read, which this pager leaves alone; with `--hold off` it would not"
        } else {
            "what is read ahead may be gone before its reader comes: give the scheme a filter that allows `unmapped` pages \
             only, and it leaves alone what Seekless holds"
        };
        findings.push(Finding {
            kind: "idle_pager",
            blocks: false,
            what: "the kernel pages out what has not been used for some seconds, maybe with memory to spare (DAMON)".into(),
            advice: advice.into(),
        });
    }
    for disk in disks.iter().filter(|d| d.rotational) {
        if let Some(kb) = disk.read_ahead_kb.filter(|&kb| kb < 1024) {
            findings.push(Finding {
                kind: "read_ahead",
                blocks: false,
                what: format!("{} reads ahead {kb} KiB only", disk.name),
                advice: format!(
                    "for servers that can be neither hooked nor watched, `seekless disk tune --apply /dev/{}` sets what the \
                     kernel alone can do",
                    disk.name
                ),
            });
        }
    }
    findings
}

impl MachineReport {
    pub(super) fn describe(&self) -> String {
        let mut text = format!("Linux {}; {}\n", self.kernel, self.daemon.describe());
        for disk in &self.disks {
            let kind = if disk.rotational { "hard disk" } else { "solid state" };
            let kb = |value: Option<u64>| value.map_or("?".to_string(), |v| v.to_string());
            let _ = writeln!(
                text,
                "   {} {kind} {:.0} GB{}: read_ahead_kb {}, max_sectors_kb {}, scheduler {}",
                disk.name,
                disk.bytes as f64 / 1e9,
                disk.model.as_deref().map_or(String::new(), |m| format!(" ({m})")),
                kb(disk.read_ahead_kb),
                kb(disk.max_sectors_kb),
                disk.scheduler.as_deref().unwrap_or("?"),
            );
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
        DiskFacts {
            name: "sda".into(),
            model: None,
            bytes: 1 << 40,
            rotational,
            read_ahead_kb: Some(read_ahead_kb),
            max_sectors_kb: Some(1280),
            scheduler: Some("none".into()),
        }
    }

    #[test]
    fn findings_follow_the_disks() {
        let daemon =
            DaemonState { socket: "/s".into(), answers: true, mode: Some("both".into()), error: None };
        let kinds =
            |disks: &[DiskFacts]| findings(disks, &daemon, None).iter().map(|f| f.kind).collect::<Vec<_>>();
        assert_eq!(kinds(&[disk(false, 128)]), ["no_heads"]);
        assert_eq!(kinds(&[disk(true, 128)]), ["read_ahead"]);
        assert_eq!(kinds(&[disk(true, 4096)]), [""; 0]);
        let found = |spares_mapped| {
            findings(&[disk(true, 4096)], &daemon, Some(IdlePager { spares_mapped })).remove(0)
        };
        assert_eq!((found(true).kind, found(false).kind), ("idle_pager", "idle_pager"));
        assert!(found(true).advice.contains("stays mapped") && found(false).advice.contains("`unmapped`"));
    }
}
