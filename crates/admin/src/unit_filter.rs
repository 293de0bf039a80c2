//! The system calls that a service's unit allows, read from its files: a forbidden call of the shim may end
//! the service.
//!
//! The unit and its drop-ins are read as in systemd: a later line adds to the list of an earlier one, `~`
//! removes, an empty value resets. Only those of systemd's groups are known that contain calls of the shim.

use std::fs;
use std::path::{Path, PathBuf};

use seekless_base::Fault;

/// Where systemd looks for units. The first one wins; drop-ins of all of them count.
const FOLDERS: [&str; 6] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/local/share/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Maximum length of a unit in bytes. Half would be enough for every existing unit; double can be read too.
const UNIT_BYTES_MAX: u64 = 1 << 20;

/// System calls of the shim, besides those that every program makes when it is loaded and reads a file; with
/// the groups of systemd that contain each.
const NEEDED: [(&str, &[&str]); 14] = [
    ("cachestat", &[]),
    ("mincore", &[]),
    ("socket", &["@network-io", "@system-service"]),
    ("connect", &["@network-io", "@system-service"]),
    ("sendmsg", &["@network-io", "@system-service"]),
    ("recvmsg", &["@network-io", "@system-service"]),
    ("recvfrom", &["@network-io", "@system-service"]),
    ("getsockopt", &["@network-io", "@system-service"]),
    ("ppoll", &["@io-event", "@system-service"]),
    ("fcntl", &["@file-system", "@system-service"]),
    ("ioctl", &["@system-service"]),
    ("fadvise64", &["@system-service"]),
    ("readahead", &["@system-service"]),
    ("preadv2", &["@basic-io", "@system-service"]),
];

/// Settings that install a filter which allows all calls of the shim.
const HARMLESS: [&str; 13] = [
    "SystemCallArchitectures",
    "MemoryDenyWriteExecute",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "RestrictNamespaces",
    "LockPersonality",
    "PrivateDevices",
    "ProtectKernelTunables",
    "ProtectKernelModules",
    "ProtectKernelLogs",
    "ProtectClock",
    "ProtectHostname",
    "RestrictAddressFamilies",
];

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitFilter {
    /// Whether the unit's programs start under a filter.
    pub(crate) is_there: bool,
    /// System calls of the shim that would end the program.
    pub(crate) forbidden: Vec<&'static str>,
    /// Whether a socket to the daemon is forbidden.
    pub(crate) no_socket: bool,
}

impl UnitFilter {
    /// Reads a unit in these folders; `None` means where systemd looks.
    pub(crate) fn of(unit: &str, folder: Option<&Path>, own: &str) -> UnitFilter {
        let folders: Vec<PathBuf> = match folder {
            Some(folder) => vec![folder.to_path_buf()],
            None => FOLDERS.iter().map(PathBuf::from).collect(),
        };
        let mut texts: Vec<String> = folders.iter().find_map(|f| read(&f.join(unit))).into_iter().collect();
        let mut drop_ins: Vec<PathBuf> = Vec::new();
        for name in ["service.d".to_string(), format!("{unit}.d")] {
            for folder in folders.iter().rev() {
                let listed = fs::read_dir(folder.join(&name)).into_iter().flatten().flatten();
                drop_ins.extend(
                    listed
                        .map(|entry| entry.path())
                        .filter(|path| path.extension().is_some_and(|e| e == "conf") && !path.ends_with(own)),
                );
            }
        }
        drop_ins.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
        texts.extend(drop_ins.iter().filter_map(|path| read(path)));
        UnitFilter::parse(&texts.join("\n"))
    }

    fn parse(text: &str) -> UnitFilter {
        let text = text.replace("\\\n", " ");
        // For each call, whether it is named; and whether the list is one of allowed calls.
        let (mut named, mut allows) = ([false; NEEDED.len()], None);
        let (mut families, mut families_allow): (Vec<String>, Option<bool>) = (Vec::new(), None);
        let (mut errno, mut harmless) = (false, false);
        for (key, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
            let (key, value) = (key.trim(), value.trim());
            let (takes, list) = value.strip_prefix('~').map_or((false, value), |rest| (true, rest));
            match key {
                "SystemCallFilter" if value.is_empty() => (named, allows) = ([false; NEEDED.len()], None),
                "SystemCallFilter" => {
                    let allow_list = *allows.get_or_insert(!takes);
                    for word in list.split_whitespace() {
                        let word = word.split(':').next().unwrap_or(word);
                        for (known, (call, groups)) in named.iter_mut().zip(NEEDED) {
                            if word == call || word == "@known" || groups.contains(&word) {
                                // In a list of forbidden calls, a line without `~` removes.
                                *known = takes != allow_list;
                            }
                        }
                    }
                }
                "SystemCallErrorNumber" => errno = !value.is_empty() && value != "kill",
                "RestrictAddressFamilies" if value.is_empty() => {
                    (families, families_allow) = (Vec::new(), None);
                }
                "RestrictAddressFamilies" => {
                    harmless = true;
                    let allow_list = *families_allow.get_or_insert(!takes);
                    for word in list.split_whitespace() {
                        families.retain(|family| family != word);
                        if takes != allow_list {
                            families.push(word.to_string());
                        }
                    }
                }
                _ if HARMLESS.contains(&key) => {
                    harmless |= !matches!(value, "" | "no" | "false" | "off" | "0");
                }
                _ => {}
            }
        }
        let unix = families.iter().any(|family| family == "AF_UNIX");
        let calls = || NEEDED.iter().zip(named).map(|((call, _), named)| (*call, named));
        let forbidden: Vec<_> =
            allows.map_or_else(Vec::new, |allow| calls().filter(|c| c.1 != allow).map(|c| c.0).collect());
        let no_socket = families_allow.is_some_and(|allow| unix != allow)
            || forbidden.iter().any(|call| matches!(*call, "socket" | "connect" | "sendmsg"));
        UnitFilter {
            is_there: harmless || allows.is_some(),
            no_socket,
            // If a call only fails, the shim behaves as without a daemon.
            forbidden: if errno { Vec::new() } else { forbidden },
        }
    }

    /// Why the shim cannot be used with this unit, and what would help.
    pub(crate) fn refusal(&self, unit: &str) -> Option<Fault> {
        let instead = "or use `seekless watch` or `seekless observe`";
        if !self.forbidden.is_empty() {
            let calls = self.forbidden.join(" ");
            let what = format!(
                "{unit} has a filter of system calls that would end it when the shim calls {calls}; nothing was done: let it \
                 allow them first (systemctl edit {unit}: [Service] SystemCallFilter={calls}), {instead}"
            );
            return Some(Fault::failed(what));
        }
        self.no_socket.then(|| {
            Fault::failed(format!(
                "{unit} may not connect to the daemon's socket; nothing was done: add AF_UNIX to its \
                 RestrictAddressFamilies=, and @network-io to its SystemCallFilter= if that is set, {instead}"
            ))
        })
    }
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    let file = fs::File::open(path).ok().filter(|file| file.metadata().is_ok_and(|m| m.is_file()))?;
    file.take(UNIT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> UnitFilter {
        UnitFilter::parse(text)
    }

    #[test]
    fn a_unit_without_a_filter_has_none() {
        assert_eq!(
            parsed("[Service]\nExecStart=/usr/sbin/nginx\nNoNewPrivileges=yes\n"),
            UnitFilter::default()
        );
        assert_eq!(parsed("SystemCallFilter=@system-service\nSystemCallFilter=\n"), UnitFilter::default());
    }

    #[test]
    fn what_is_forbidden_is_named() {
        let service = parsed("SystemCallFilter=@system-service\n");
        assert_eq!(service.forbidden, ["cachestat", "mincore"]);
        let said = service.refusal("nginx.service").unwrap();
        assert!(
            said.message.contains("SystemCallFilter=cachestat mincore)") && !said.message.contains('\n'),
            "{said}"
        );
        let with =
            parsed("SystemCallFilter=@system-service\n  SystemCallFilter = cachestat \\\n mincore:EPERM\n");
        assert_eq!((with.is_there, with.refusal("x")), (true, None));
        let denied = parsed("SystemCallFilter=~@privileged @resources\n");
        assert_eq!((denied.is_there, denied.refusal("x")), (true, None));
        assert!(parsed("SystemCallFilter=~@network-io").forbidden.contains(&"connect"));
        assert!(parsed("SystemCallFilter=read write").forbidden.contains(&"socket"));
        let taken = parsed("SystemCallFilter=@system-service cachestat mincore\nSystemCallFilter=~mincore\n");
        assert_eq!(taken.forbidden, ["mincore"]);
    }

    #[test]
    fn calls_that_fail_end_nothing() {
        let gentle = parsed("SystemCallFilter=@system-service\nSystemCallErrorNumber=EPERM\n");
        assert_eq!((gentle.is_there, gentle.refusal("x")), (true, None));
    }

    #[test]
    fn a_unit_without_unix_sockets_is_told() {
        let inet = parsed("RestrictAddressFamilies=AF_INET AF_INET6\n");
        assert!(inet.refusal("x").unwrap().message.contains("AF_UNIX"));
        assert_eq!(
            parsed("RestrictAddressFamilies=AF_INET\nRestrictAddressFamilies=AF_UNIX\n").refusal("x"),
            None
        );
        assert_eq!(parsed("RestrictAddressFamilies=~AF_PACKET\n").refusal("x"), None);
        assert!(parsed("RestrictAddressFamilies=none\n").refusal("x").is_some());
    }

    #[test]
    fn settings_that_bring_a_filter_along_are_seen() {
        assert!(parsed("PrivateDevices=on\n").is_there && !parsed("PrivateDevices=no\n").is_there);
    }

    #[test]
    fn drop_ins_count_and_ours_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let unit = folder.path().join("nginx.service");
        let drop_ins = folder.path().join("nginx.service.d");
        fs::create_dir(&drop_ins).unwrap();
        fs::write(&unit, "[Service]\nSystemCallFilter=@system-service\n").unwrap();
        let of = || UnitFilter::of("nginx.service", Some(folder.path()), "50-seekless.conf").forbidden;
        assert_eq!(of(), ["cachestat", "mincore"]);
        fs::write(drop_ins.join("50-seekless.conf"), "SystemCallFilter=\n").unwrap();
        assert_eq!(of(), ["cachestat", "mincore"]);
        fs::write(drop_ins.join("more.conf"), "[Service]\nSystemCallFilter=cachestat mincore\n").unwrap();
        assert_eq!(of(), [""; 0]);
    }
}
