//! The units as systemd reads them. No service is started.

use std::path::{Path, PathBuf};
use std::process::Command;

const UNITS: [&str; 3] = ["seekless.service", "seekless-watch@.service", "seekless-serve.service"];

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").canonicalize().unwrap()
}

fn text(unit: &str) -> String {
    std::fs::read_to_string(deploy().join(unit)).unwrap()
}

/// The values of a key, in order.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|l| l.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn every_unit_says_when_it_is_ready_and_is_watched() {
    for unit in UNITS {
        let text = text(unit);
        assert_eq!(values(&text, "Type"), ["notify"], "{unit}");
        assert_eq!(values(&text, "NotifyAccess"), ["main"], "{unit}");
        assert_eq!(values(&text, "WatchdogSec"), ["30s"], "{unit}");
        assert_eq!(values(&text, "NoNewPrivileges"), ["yes"], "{unit}");
        let families = values(&text, "RestrictAddressFamilies");
        assert!(families[0].contains("AF_UNIX"), "{unit}: without it no word reaches systemd");
        assert!(!values(&text, "CapabilityBoundingSet").is_empty(), "{unit}");
    }
}

#[test]
fn the_daemon_is_reloaded_by_the_signal_at_which_another_takes_over() {
    let text = text("seekless.service");
    assert_eq!(values(&text, "ExecReload"), ["/bin/kill -USR2 $MAINPID"]);
    // The new process is a child of the old one: it is of the unit until the old one has ended.
    assert!(values(&text, "KillMode").is_empty() && values(&text, "ExecStop").is_empty());
}

/// A mount mark counts in the namespace it was made in: in one of its own, `watch` would hear of no server's
/// read.
#[test]
fn the_watch_unit_has_no_mount_namespace_of_its_own() {
    let text = text("seekless-watch@.service");
    for key in [
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "ProtectKernelTunables",
        "ProtectControlGroups",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectProc",
        "ReadOnlyPaths",
        "PrivateMounts",
        "ProtectHostname",
    ] {
        assert!(values(&text, key).is_empty(), "{key}");
    }
}

#[test]
fn systemd_finds_no_fault_in_them() {
    let folder = tempfile::tempdir().unwrap();
    for unit in UNITS {
        let program = text(unit).replace("/usr/local/bin/seekless", "/bin/true");
        assert!(program.contains("/bin/true"), "{unit} starts the program of `make install`");
        let path = folder.path().join(unit.replace("@.", "@srv-media."));
        std::fs::write(&path, program).unwrap();
        let out = match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output() {
            Ok(out) => out,
            Err(_) => return println!("skipped: there is no systemd-analyze"),
        };
        // Faults of other units of this machine are named too.
        let said = String::from_utf8_lossy(&out.stderr);
        let ours: Vec<&str> = said.lines().filter(|l| l.contains("seekless")).collect();
        assert!(ours.is_empty(), "{unit}: {ours:?}");
    }
}
