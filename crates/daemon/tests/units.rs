//! The units as systemd reads them. No service is started.

use std::path::{Path, PathBuf};
use std::process::Command;

const UNITS: [&str; 3] = ["seekless.service", "seekless-watch@.service", "seekless-serve.service"];
const SOCKETS: [&str; 2] = ["seekless.socket", "seekless-serve.socket"];

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

/// The daemon makes its socket where no unit does; stopping it by name must stop it. The origin server has no
/// right to make one below port 1024, and says no address of its own.
#[test]
fn the_origin_server_needs_its_socket_and_the_daemon_does_not() {
    let (daemon, origin) = (text("seekless.service"), text("seekless-serve.service"));
    assert!(values(&daemon, "Requires").is_empty() && values(&daemon, "Also").is_empty());
    assert!(text("seekless.socket").contains("\nListenSequentialPacket=/run/seekless/daemon.sock\n"));
    for key in ["Requires", "Also"] {
        assert_eq!(values(&origin, key), ["seekless-serve.socket"]);
    }
    assert!(values(&origin, "After")[0].starts_with("seekless-serve.socket "));
    assert_eq!(values(&origin, "CapabilityBoundingSet"), [""]);
    assert!(!values(&origin, "ExecStart")[0].contains("--listen"));
    for socket in SOCKETS {
        assert_eq!(values(&text(socket), "WantedBy"), ["sockets.target"], "{socket}");
    }
}

/// Of each unit of the package, so that none is left behind.
#[test]
fn the_scripts_of_the_packages_stop_every_unit() {
    for script in ["debian/prerm", "rpm/preun"] {
        let text = text(script);
        let stop = text.lines().find(|line| line.contains("systemctl stop ")).unwrap();
        for unit in UNITS.into_iter().chain(SOCKETS) {
            assert!(stop.contains(&unit.replace("@.", "@*.")), "{script}: {unit}");
        }
    }
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
    let place = |unit: &str| folder.path().join(unit.replace("@.", "@srv-media."));
    for unit in UNITS {
        let program = text(unit).replace("/usr/local/bin/seekless", "/bin/true");
        assert!(program.contains("/bin/true"), "{unit} starts the program of `make install`");
        std::fs::write(place(unit), program).unwrap();
    }
    for socket in SOCKETS {
        std::fs::write(place(socket), text(socket)).unwrap();
    }
    for unit in UNITS.into_iter().chain(SOCKETS) {
        let path = place(unit);
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
