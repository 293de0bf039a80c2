//! The scenarios that come with the program, carried inside it so that an installed binary has them too.

use std::path::Path;

use seekless_base::Fault;

use super::Scenario;
use crate::nearest::nearest;

macro_rules! scenarios {
    ($($name:literal),+ $(,)?) => {
        /// (name, text) of every scenario in `scenarios/`.
        const ALL: &[(&str, &str)] = &[
            $(($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/", $name, ".toml")))),+
        ];
    };
}

scenarios![
    "ahead-of-need",
    "any-disk",
    "asap-drives",
    "asap-fig1",
    "asap-fig10",
    "asap-fig5",
    "asap-fig6",
    "asap-fig7",
    "asap-fig8",
    "asap-fig9",
    "asap-table1",
    "asap-too-large",
    "auto-vs-fixed",
    "beside-writes",
    "beside-writes-drives",
    "broker",
    "circus-fig11",
    "circus-fig12",
    "circus-fig13",
    "circus-fig14",
    "circus-fig15",
    "circus-fig16",
    "circus-fig17",
    "circus-fig8",
    "circus-load",
    "circus-plan",
    "closed-loop",
    "closed-loop-drives",
    "competitive-fig3a",
    "competitive-fig3b",
    "competitive-fig3c",
    "competitive-fig5",
    "competitive-fig6",
    "competitive-fig8",
    "competitive-micro",
    "daemon-faults",
    "file-sets",
    "file-sets-live",
    "file-systems",
    "files-200k",
    "files-in-disk-order",
    "files-in-memory",
    "files-on-flash",
    "flash",
    "hostile-user",
    "hot-cache",
    "joined-disks",
    "libception-closed-modes",
    "libception-closed-schedulers",
    "libception-closed-sizes",
    "libception-closed-tuning",
    "libception-fig11",
    "libception-fig17",
    "libception-fig18",
    "libception-fig7",
    "libception-fig8",
    "libception-freebsd",
    "libception-linux",
    "libception-schedulers",
    "libception-sizes",
    "libception-table3",
    "libception-table4",
    "libception-tuning",
    "libception-two-disks",
    "libception-two-disks-full",
    "linux-read-ahead",
    "observe",
    "observe-faults",
    "observe-fio",
    "observe-servers",
    "observe-sessions",
    "observe-streams",
    "observe-uring",
    "package-mirror",
    "pfc-fig4",
    "pfc-fig5",
    "pfc-fig6",
    "pfc-fig7",
    "pfc-live",
    "pfc-real-traces",
    "pfc-seeds",
    "pfc-statements",
    "pfc-table1",
    "pfc-table1-cells",
    "pool",
    "prove",
    "quiet",
    "recorder",
    "recorder-drives",
    "restart-under-load",
    "restic",
    "reuse",
    "scrub-and-serve",
    "seeding",
    "sensitivity",
    "sessions",
    "sets",
    "sets-degraded",
    "short-streams",
    "sim-vs-live",
    "small-files",
    "small-files-200k",
    "soak",
    "three-disks",
    "three-nodes",
    "viewers",
    "watch-sessions",
    "works-with",
    "works-with-nodes",
];

/// Every scenario's name and text, in the order of their names.
pub fn all() -> &'static [(&'static str, &'static str)] {
    ALL
}

/// A scenario by name, or from a file when `name` has a slash or ends in `.toml`. The returned name is what
/// reports and folders are called after.
///
/// # Errors
/// `Exit::Usage`, which names the nearest scenario, if none has this name; else those of
/// [`Scenario::parse`].
pub fn find(name: &str) -> Result<(String, Scenario), Fault> {
    if name.contains('/') || name.ends_with(".toml") {
        let path = Path::new(name);
        let stem = path.file_stem().map_or("scenario".into(), |s| s.to_string_lossy().into_owned());
        return Ok((stem, Scenario::read(path)?));
    }
    match ALL.iter().find(|(n, _)| *n == name) {
        Some((name, text)) => {
            Ok((name.to_string(), Scenario::parse(text, &format!("scenarios/{name}.toml"))?))
        }
        None => Err(Fault::usage(format!(
            "no scenario is called `{name}`{} (`seekless-lab list` shows all)",
            nearest(name, ALL.iter().map(|(n, _)| *n))
                .map_or(String::new(), |n| format!("; did you mean `{n}`?"))
        ))),
    }
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;
    use crate::scenario::{Knob, Load, Mode, ServerKind};

    #[test]
    fn every_file_is_carried_and_parses() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut files: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .filter_map(|e| e.unwrap().file_name().to_str()?.strip_suffix(".toml").map(String::from))
            .collect();
        files.sort();
        assert_eq!(files, ALL.iter().map(|(n, _)| n.to_string()).collect::<Vec<_>>());
        for (name, _) in ALL {
            let (_, scenario) = find(name).unwrap_or_else(|fault| panic!("{fault}"));
            assert!(!scenario.checks.is_empty(), "{name} checks nothing");
            let quick = scenario.clone().quickened();
            assert!(!quick.checks.is_empty(), "{name} --quick checks nothing");
            assert!(quick.points().len() <= scenario.points().len());
        }
    }

    /// What a published figure means must not change with the program's defaults.
    #[test]
    fn every_arm_says_how_far_it_reads() {
        for (name, _) in ALL {
            let (_, scenario) = find(name).unwrap();
            // They judge the defaults themselves.
            let judges = [
                "any-disk",
                "beside-writes",
                "beside-writes-drives",
                "broker",
                "closed-loop",
                "closed-loop-drives",
                "file-sets",
                "file-sets-live",
                "file-systems",
                "files-200k",
                "files-in-disk-order",
                "files-in-memory",
                "files-on-flash",
                "flash",
                "hostile-user",
                "joined-disks",
                "recorder",
                "recorder-drives",
                "reuse",
                "linux-read-ahead",
                "three-disks",
                "viewers",
                "scrub-and-serve",
                "seeding",
                "package-mirror",
                "pool",
                "observe",
                "observe-faults",
                "observe-fio",
                "observe-servers",
                "observe-sessions",
                "observe-streams",
                "observe-uring",
                "prove",
                "restic",
                "sensitivity",
                "sets",
                "sets-degraded",
                "short-streams",
                "small-files",
                "small-files-200k",
                "works-with",
                "works-with-nodes",
            ];
            if judges.contains(name) {
                continue;
            }
            let swept = scenario.axis.iter().any(|axis| axis.knobs.contains(&Knob::Prefetch));
            for arm in &scenario.arms {
                let extends = matches!(arm.mode, Some(Mode::Both | Mode::Prefetch));
                let serves = arm.server == Some(ServerKind::Seekless);
                let mut words = arm.sim.iter().chain(&arm.daemon).chain(&arm.serve);
                let says = arm.prefetch.is_some() || swept || words.any(|w| w == "--prefetch");
                assert!(says || !(extends || serves), "{name}, {}: how far?", arm.name);
            }
        }
    }

    #[test]
    fn a_slip_is_answered_with_the_nearest_name() {
        for (slip, meant) in
            [("closedloop", "closed-loop"), ("fig18", "libception-fig18"), ("hotcache", "hot-cache")]
        {
            let fault = find(slip).unwrap_err();
            assert_eq!(fault.exit, Exit::Usage);
            assert!(fault.message.contains(&format!("`{meant}`")), "{fault}");
        }
        assert!(!find("zebra crossing").unwrap_err().message.contains("did you mean"));
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line() {
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/hot-cache.toml"));
        let broken = format!("titel = \"x\"\n{text}");
        let fault = Scenario::parse(&broken, "x.toml").unwrap_err();
        assert!(fault.message.starts_with("x.toml, line 1:") && fault.message.contains("titel"), "{fault}");
        let wrong = text.replacen("[library]", "[library]\nbit_rate = 3", 1);
        let line = wrong.lines().position(|l| l == "bit_rate = 3").unwrap() + 1;
        let fault = Scenario::parse(&wrong, "x.toml").unwrap_err();
        assert!(
            fault.message.contains(&format!("line {line}:")) && fault.message.contains("bit_rate"),
            "{fault}"
        );
    }

    #[test]
    fn a_reader_is_for_files_and_files_need_one() {
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/small-files.toml"));
        for (from, to, why) in [
            ("reader = \"tar\"", "", "each of those needs it"),
            ("reader = \"tar\"", "reader = \"zip\"", "zip"),
            ("files_per_pack = 1250", "files_per_pack = 0", "files_per_pack at least 1"),
            ("pack = \"16MiB\"", "pack = \"0B\"", "sizes 1B to 1GiB"),
            ("files = 20000", "files = 0", "files 1 to 1,000,000"),
        ] {
            assert!(text.contains(from), "the scenario no longer has {from}");
            let fault = Scenario::parse(&text.replacen(from, to, 1), "x").unwrap_err();
            assert!(fault.message.contains(why) && !fault.message.contains('\n'), "{fault}");
        }
        let hot = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/hot-cache.toml"));
        let fault =
            Scenario::parse(&hot.replacen("[[arm]]", "[[arm]]\nreader = \"tar\"", 1), "x").unwrap_err();
        assert!(fault.message.contains("`reader` is for arms"), "{fault}");
        let quick = Scenario::parse(text, "x").unwrap().quickened();
        assert!(matches!(quick.load, Load::Files { files, .. } if files < 20_000));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let text = include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../scenarios/libception-closed-sizes.toml"
        ));
        for (from, to, why) in [
            ("arm = \"Libception\"", "arm = \"Nobody\"", "no arm `Nobody`"),
            ("values = [\"64KiB\"", "values = [\"64 bananas\"", "unit is unknown"),
            ("metrics = [\"", "metrics = [\"happiness\", \"", "happiness"),
            ("repetitions = 1", "repetitions = 0", "repetitions"),
        ] {
            assert!(text.contains(from), "the scenario no longer has {from}");
            let fault = Scenario::parse(&text.replace(from, to), "x").unwrap_err();
            assert!(fault.message.contains(why), "{fault}");
        }
    }
}
