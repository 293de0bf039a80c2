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

/// Page cache is charged to the cgroup that reads it first, so a bound on all memory would bound what is read
/// ahead.
#[test]
fn every_unit_bounds_its_threads_and_its_own_memory_and_no_page_cache() {
    for unit in UNITS {
        let text = text(unit);
        let tasks: u64 = values(&text, "TasksMax")[0].parse().unwrap();
        assert_eq!(values(&text, "LimitDATA"), ["4G"], "{unit}");
        // There is room for the stacks of all threads.
        assert!((256..=2048).contains(&tasks), "{unit}: {tasks}");
        for key in ["MemoryMax", "MemoryHigh", "LimitAS", "LimitRSS"] {
            assert!(values(&text, key).is_empty(), "{unit}: {key}");
        }
    }
}

/// The capabilities that each door's system calls need, by name, and nothing else.
#[test]
fn every_unit_has_the_rights_that_its_door_needs_and_no_others() {
    let needed = [
        ("seekless.service", "CAP_DAC_READ_SEARCH CAP_FOWNER CAP_SYS_NICE"),
        (
            "seekless-watch@.service",
            "CAP_SYS_ADMIN CAP_DAC_READ_SEARCH CAP_FOWNER CAP_SYS_NICE CAP_SYS_PTRACE CAP_SYS_RESOURCE",
        ),
        ("seekless-serve.service", ""),
    ];
    for (unit, capabilities) in needed {
        let text = text(unit);
        assert_eq!(values(&text, "CapabilityBoundingSet"), [capabilities], "{unit}");
        for key in ["RestrictNamespaces", "RestrictRealtime", "LockPersonality", "MemoryDenyWriteExecute"] {
            assert_eq!(values(&text, key), ["yes"], "{unit}: {key}");
        }
        assert_eq!(values(&text, "SystemCallArchitectures"), ["native"], "{unit}");
        let calls = values(&text, "SystemCallFilter");
        assert!(calls[0] == "@system-service" && !calls.iter().any(|c| c.contains("ptrace")), "{unit}");
        // A forbidden call fails, and the door goes on; it is not killed by a signal.
        assert_eq!(values(&text, "SystemCallErrorNumber"), ["EPERM"], "{unit}");
        assert!(values(&text, "AppArmorProfile")[0].starts_with("-seekless-"), "{unit}: where it is loaded");
        let devices =
            values(&text, "DevicePolicy") == ["closed"] || values(&text, "PrivateDevices") == ["yes"];
        assert!(devices, "{unit}");
    }
}

/// By the programs that load them, where they are installed.
#[test]
fn the_profiles_of_security_modules_are_what_their_programs_read() {
    let profile = deploy().join("apparmor/seekless");
    let text = std::fs::read_to_string(&profile).unwrap();
    for unit in UNITS {
        let unit = self::text(unit);
        let name = values(&unit, "AppArmorProfile")[0].trim_start_matches('-');
        assert!(text.contains(&format!("\nprofile {name} ")), "{name}");
    }
    let capabilities = |unit: &str| values(&self::text(unit), "CapabilityBoundingSet")[0].to_lowercase();
    for capability in capabilities("seekless-watch@.service").split_whitespace() {
        let name = capability.trim_start_matches("cap_");
        assert!(text.contains(&format!("  capability {name},\n")), "{name}");
    }
    match Command::new("apparmor_parser").args(["--skip-kernel-load", "--skip-cache"]).arg(&profile).output()
    {
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
        Err(_) => println!("skipped: there is no apparmor_parser"),
    }
    let module = std::fs::read_to_string(deploy().join("selinux/seekless.cil")).unwrap();
    // Every parenthesis is closed, and every word of the policy exists (checked by `secilc`, README).
    let code: String = module.lines().filter(|l| !l.trim_start().starts_with(';')).collect();
    let depth = code.chars().try_fold(0i32, |depth, c| match c {
        '(' => Some(depth + 1),
        ')' => (depth > 0).then_some(depth - 1),
        _ => Some(depth),
    });
    assert_eq!(depth, Some(0));
}

#[test]
fn the_daemon_is_reloaded_by_the_signal_at_which_another_takes_over() {
    let text = text("seekless.service");
    assert_eq!(values(&text, "ExecReload"), ["/bin/kill -USR2 $MAINPID"]);
    // The new process is a child of the old one, so it belongs to the unit until the old one has ended.
    assert!(values(&text, "KillMode").is_empty() && values(&text, "ExecStop").is_empty());
}

/// The daemon makes its socket if no unit does, and stopping the daemon by name must stop it. The origin
/// server has no right to bind ports below 1024, and its service names no address.
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

/// Every unit of the package, so that none is left behind.
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

/// A mount mark applies in the namespace in which it was made. In a namespace of its own, `watch` would see
/// no server's reads.
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
        // Errors of other units of this machine are listed too.
        let said = String::from_utf8_lossy(&out.stderr);
        let ours: Vec<&str> = said.lines().filter(|l| l.contains("seekless")).collect();
        assert!(ours.is_empty(), "{unit}: {ours:?}");
    }
}
