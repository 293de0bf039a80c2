//! Security modules that deny what permissions allow: SELinux and AppArmor. They return the same `EACCES`, so
//! an error line that names the module and its log saves a search.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// A module that may deny something to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lsm {
    /// SELinux, enforcing.
    SELinux,
    /// AppArmor, with the profile that confines the process.
    AppArmor(String),
}

impl Lsm {
    /// The module that confines this process, if any.
    pub fn of_self() -> Option<Lsm> {
        Lsm::of(Path::new("/sys"), Path::new("/proc/self"))
    }

    /// The module that confines the process with this folder in `/proc`. `sys` is `/sys`.
    pub fn of(sys: &Path, process: &Path) -> Option<Lsm> {
        let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let label = |file: &str| text(&process.join(file)).trim_matches(['\0', '\n', ' ']).to_string();
        if text(&sys.join("fs/selinux/enforce")).trim() == "1" {
            // If SELinux is on, this is its label. An unconfined process is denied next to nothing.
            let label = label("attr/current");
            return (!label.contains(":unconfined_t:")).then_some(Lsm::SELinux);
        }
        if !text(&sys.join("module/apparmor/parameters/enabled")).starts_with('Y') {
            return None;
        }
        // Before Linux 5.8 the label has no folder of its own.
        let own = label("attr/apparmor/current");
        let label = if own.is_empty() { label("attr/current") } else { own };
        label.strip_suffix(" (enforce)").map(|profile| Lsm::AppArmor(profile.to_string()))
    }
}

impl fmt::Display for Lsm {
    /// The module that may deny it, and how to fix that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lsm::SELinux => f.write_str(
                "SELinux enforces and may be what denies it: `ausearch -m avc -ts recent` shows that, and \
                 deploy/selinux has a module that allows it",
            ),
            Lsm::AppArmor(profile) => write!(
                f,
                "AppArmor confines this to the profile {profile} and may be what denies it: `journalctl -k -g \
                 apparmor` shows that, and deploy/apparmor has a profile that allows it"
            ),
        }
    }
}

/// Text to append to an error that a security module may have caused, beginning with a semicolon; otherwise
/// empty.
pub fn hint(error: &io::Error) -> String {
    // `EPERM` and `EACCES`.
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    match Lsm::of_self().filter(|_| denied) {
        Some(lsm) => format!("; {lsm}"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_module_that_confines_the_process_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (sys, process) = (dir.path().join("sys"), dir.path().join("1"));
        let put = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let of = || Lsm::of(&sys, &process);
        assert_eq!(of(), None);
        put(&sys.join("module/apparmor/parameters/enabled"), "Y\n");
        put(&process.join("attr/current"), "unconfined\n");
        assert_eq!(of(), None);
        put(&process.join("attr/current"), "docker-default (enforce)\n");
        assert_eq!(of(), Some(Lsm::AppArmor("docker-default".into())));
        put(&process.join("attr/apparmor/current"), "nginx (complain)\n");
        assert_eq!(of(), None, "it only complains");
        put(&sys.join("fs/selinux/enforce"), "0");
        assert_eq!(of(), None, "permissive");
        put(&sys.join("fs/selinux/enforce"), "1");
        put(&process.join("attr/current"), "system_u:system_r:httpd_t:s0\0");
        assert_eq!(of(), Some(Lsm::SELinux));
        put(&process.join("attr/current"), "u:r:unconfined_t:s0-s0:c0.c1023\0");
        assert_eq!(of(), None);
        for lsm in [Lsm::SELinux, Lsm::AppArmor("x".into())] {
            let line = lsm.to_string();
            assert!(line.contains("deploy/") && !line.contains('\n'), "{line}");
        }
        assert_eq!(hint(&io::ErrorKind::NotFound.into()), "", "it was not denied");
    }
}
