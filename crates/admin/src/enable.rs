//! `seekless enable SERVICE`: a drop-in for systemd that preloads the shim into a server; `disable` removes
//! it.
//!
//! The server's own configuration is not changed. The drop-in takes effect at the server's next start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use seekless_base::{Exit, Fault};
use seekless_frontend::shim_file::ShimOption;
use seekless_kernel::{lsm, trust};

use crate::unit_filter::UnitFilter;

/// Name of the drop-in. It sorts behind most, so that an operator's own preload is found and reported.
const NAME: &str = "50-seekless.conf";

/// First line of the file. A file that begins otherwise was made by another program or user, and is not
/// changed.
const MARK: &str = "# Written by `seekless enable`; `seekless disable` removes it.";

/// Where systemd looks for an administrator's units.
const UNITS: &str = "/etc/systemd/system";

/// Exists while systemd runs.
const SYSTEMD: &str = "/run/systemd/system";

/// The known servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    Nginx,
    Apache2,
    Lighttpd,
    Smbd,
    Rsync,
}

impl Service {
    fn unit(self) -> &'static str {
        match self {
            Service::Nginx => "nginx.service",
            Service::Apache2 => "apache2.service",
            Service::Lighttpd => "lighttpd.service",
            Service::Smbd => "smbd.service",
            Service::Rsync => "rsync.service",
        }
    }

    /// Recommended settings of the server itself.
    fn advice(self) -> Option<&'static str> {
        match self {
            Service::Nginx => Some(
                "in nginx.conf, `aio threads;` lets more clients wait for the disk at once, and \
                 `env LD_PRELOAD; env SEEKLESS_SOCKET;` keep the shim when nginx is upgraded without a restart",
            ),
            Service::Apache2 => Some("in apache2.conf, `EnableMMAP Off` lets its reads be seen"),
            Service::Lighttpd | Service::Smbd | Service::Rsync => None,
        }
    }
}

/// Preload the shim into a server that systemd starts, from its next start on.
#[derive(Args, Clone, Debug)]
pub struct EnableArgs {
    #[command(flatten)]
    server: DisableArgs,
    #[command(flatten)]
    shim: ShimOption,
    /// Socket of the daemon
    #[arg(long, default_value = "/run/seekless/daemon.sock", value_name = "PATH")]
    socket: PathBuf,
    /// Print the drop-in; write nothing
    #[arg(long)]
    show: bool,
}

/// Remove what `seekless enable` wrote.
#[derive(Args, Clone, Debug)]
pub struct DisableArgs {
    /// The server
    service: Service,
    /// Folder of systemd's units, for packages and tests
    #[arg(long, hide = true, value_name = "DIR")]
    units: Option<PathBuf>,
}

/// `seekless enable`.
///
/// # Errors
/// systemd does not run here, the shim is not found or another user can change it, the unit forbids its
/// calls, or the drop-in cannot be written.
pub fn run_enable(args: EnableArgs) -> Result<Exit, Fault> {
    let shim = args.shim.find()?;
    let shim = fs::canonicalize(&shim).map_err(|e| fault("cannot use the shim", &shim, &e))?;
    believed(&shim)?;
    let unit = args.server.service.unit();
    let filter = UnitFilter::of(unit, args.server.units.as_deref(), NAME);
    if let Some(refusal) = filter.refusal(unit) {
        return Err(refusal);
    }
    let text = drop_in(&shim, &args.socket, filter.is_there)?;
    let path = place(args.server.service, args.server.units.as_deref());
    if args.show {
        seekless_output::print(text)?;
        return Ok(Exit::Ok);
    }
    if !counts(args.server.units.as_deref()) {
        let message = "systemd does not run here; start the server as `seekless run -- CMD`, or set LD_PRELOAD and \
                       SEEKLESS_SOCKET where it is started";
        return Err(Fault::missing(message));
    }
    ours_or_nothing(&path)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| fault("cannot make", folder, &e))?;
    }
    seekless_output::write(&path, text.clone())?;
    let mut said = format!("{}:\n\n{text}\n", path.display());
    said +=
        &format!("It takes effect at the next start: systemctl daemon-reload && systemctl restart {unit}\n");
    if let Some(advice) = args.server.service.advice() {
        said += &format!("Also: {advice}\n");
    }
    seekless_output::print(said)?;
    Ok(Exit::Ok)
}

/// `seekless disable`.
///
/// # Errors
/// systemd does not run here, or the drop-in was made by somebody else or cannot be removed.
pub fn run_disable(args: DisableArgs) -> Result<Exit, Fault> {
    if !counts(args.units.as_deref()) {
        let message = "systemd does not run here; take LD_PRELOAD away where the server is started";
        return Err(Fault::missing(message));
    }
    let path = place(args.service, args.units.as_deref());
    if !ours_or_nothing(&path)? {
        seekless_output::print(format!("{} is not enabled; nothing was done\n", args.service.unit()))?;
        return Ok(Exit::Ok);
    }
    fs::remove_file(&path).map_err(|e| fault("cannot remove", &path, &e))?;
    // A folder with other drop-ins stays.
    if let Some(folder) = path.parent() {
        let _ = fs::remove_dir(folder);
    }
    let unit = args.service.unit();
    seekless_output::print(format!(
        "{} is removed. It takes effect at the next start: systemctl daemon-reload && systemctl restart {unit}\n",
        path.display()
    ))?;
    Ok(Exit::Ok)
}

/// Checks that only root and this user can have written the library, or can replace it, because the server
/// runs its code, at first as root.
fn believed(shim: &Path) -> Result<(), Fault> {
    trust::is_only_ours(shim).map_err(|e| {
        let mend = "install it where only root may write, such as /usr/local/lib/seekless";
        Fault::permission(format!("the shim {} is not used: {e}; {mend}", shim.display()))
    })
}

fn place(service: Service, units: Option<&Path>) -> PathBuf {
    units.unwrap_or(Path::new(UNITS)).join(format!("{}.d", service.unit())).join(NAME)
}

/// Whether a drop-in takes effect: systemd runs here, or a folder for another system's units is given.
fn counts(units: Option<&Path>) -> bool {
    units.is_some() || Path::new(SYSTEMD).is_dir()
}

/// Whether the drop-in exists. An error if it was made by somebody else.
fn ours_or_nothing(path: &Path) -> Result<bool, Fault> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(fault("cannot look at", path, &e)),
        Ok(meta) if meta.is_file() => {}
        Ok(_) => {
            return Err(Fault::failed(format!("{} is not a file; it is left alone", path.display())));
        }
    }
    let text = fs::read_to_string(path).map_err(|e| fault("cannot read", path, &e))?;
    if text.starts_with(MARK) {
        return Ok(true);
    }
    Err(Fault::failed(format!("{} was not written by `seekless enable`; it is left alone", path.display())))
}

/// The text. systemd reads `%` as a specifier, and a quote would end the value. `filtered`: the unit has a
/// filter of system calls that allows the shim's calls. Under a filter that was not checked, the shim stays
/// off.
fn drop_in(shim: &Path, socket: &Path, filtered: bool) -> Result<String, Fault> {
    let plain = |path: &Path| {
        let text =
            path.to_str().filter(|t| t.starts_with('/') && !t.contains(['"', '\\', '\n', ' ', ':', '$']));
        let text = text.map(|t| t.replace('%', "%%"));
        text.ok_or_else(|| {
            Fault::usage(format!("{} cannot stand in a unit: write a plain absolute path", path.display()))
        })
    };
    let (shim, socket) = (plain(shim)?, plain(socket)?);
    let allow = if filtered { "Environment=\"SEEKLESS_SECCOMP=allow\"\n" } else { "" };
    Ok(format!(
        "{MARK}\n[Unit]\nWants=seekless.service\nAfter=seekless.service\n\n[Service]\n\
         Environment=\"LD_PRELOAD={shim}\"\nEnvironment=\"SEEKLESS_SOCKET={socket}\"\n{allow}"
    ))
}

fn fault(what: &str, path: &Path, error: &io::Error) -> Fault {
    let exit = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Exit::Permission,
        io::ErrorKind::NotFound => Exit::Missing,
        _ => Exit::Failed,
    };
    Fault::new(exit, format!("{what} {}: {error}{}", path.display(), lsm::hint(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enable(units: &Path, shim: &Path) -> Result<Exit, Fault> {
        run_enable(EnableArgs {
            server: DisableArgs { service: Service::Nginx, units: Some(units.to_path_buf()) },
            shim: ShimOption { shim: Some(shim.to_path_buf()) },
            socket: "/run/seekless/daemon.sock".into(),
            show: false,
        })
    }

    fn disable(units: &Path) -> Result<Exit, Fault> {
        run_disable(DisableArgs { service: Service::Nginx, units: Some(units.to_path_buf()) })
    }

    #[test]
    fn what_is_written_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (units, shim) = (folder.path().join("units"), folder.path().join("libseekless.so"));
        fs::write(&shim, b"\x7fELF").unwrap();
        let path = units.join("nginx.service.d/50-seekless.conf");
        disable(&units).unwrap();
        enable(&units, &shim).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(MARK) && text.contains("[Service]\nEnvironment=\"LD_PRELOAD=/"), "{text}");
        enable(&units, &shim).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "a second time changes nothing");
        disable(&units).unwrap();
        assert!(!path.parent().unwrap().exists(), "nothing is left behind");

        // The operator's own drop-in.
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "[Service]\n").unwrap();
        assert!(enable(&units, &shim).unwrap_err().message.contains("left alone"));
        assert!(disable(&units).unwrap_err().message.contains("left alone"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "[Service]\n");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).unwrap();
        assert!(enable(&units, &shim).is_err() && !folder.path().join("elsewhere").exists());
    }

    /// The given path is a symlink; its target counts.
    #[test]
    fn a_library_that_another_user_can_write_is_refused_with_the_part_of_its_path() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (units, open) = (folder.path().join("units"), folder.path().join("open"));
        fs::create_dir(&open).unwrap();
        fs::write(open.join("libseekless.so"), b"\x7fELF").unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let link = folder.path().join("libseekless.so");
        std::os::unix::fs::symlink(open.join("libseekless.so"), &link).unwrap();
        for shim in [&link, &open.join("libseekless.so")] {
            let fault = enable(&units, shim).unwrap_err();
            assert_eq!(fault.exit, Exit::Permission);
            let part = format!("{} may be written to by other users", open.display());
            assert!(fault.message.contains(&part) && !fault.message.contains('\n'), "{fault}");
            assert!(!units.exists(), "nothing is written");
        }
    }

    #[test]
    fn a_unit_whose_filter_would_end_it_is_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let (units, shim) = (folder.path().to_path_buf(), folder.path().join("libseekless.so"));
        fs::write(&shim, b"\x7fELF").unwrap();
        let (unit, drop_in) = (units.join("nginx.service"), units.join("nginx.service.d/50-seekless.conf"));
        fs::write(&unit, "[Service]\nSystemCallFilter=@system-service\n").unwrap();
        let fault = enable(&units, &shim).unwrap_err();
        assert!(fault.message.contains("cachestat mincore") && !fault.message.contains('\n'), "{fault}");
        assert!(!drop_in.exists());
        fs::write(&unit, "[Service]\nSystemCallFilter=@system-service cachestat mincore\n").unwrap();
        enable(&units, &shim).unwrap();
        assert!(fs::read_to_string(&drop_in).unwrap().contains("SEEKLESS_SECCOMP=allow"));
        fs::write(&unit, "[Service]\n").unwrap();
        enable(&units, &shim).unwrap();
        assert!(!fs::read_to_string(&drop_in).unwrap().contains("SECCOMP"));
    }

    #[test]
    fn a_path_cannot_write_more_than_a_path() {
        let shim = Path::new("/usr/lib/seekless/libseekless.so");
        for bad in ["/run/a\"b", "/run/a\nExecStart=x", "run/relative", "/run/a b", "/run/$HOME", "/run/a:b"]
        {
            assert_eq!(drop_in(shim, Path::new(bad), false).unwrap_err().exit, Exit::Usage, "{bad}");
        }
        assert!(drop_in(shim, Path::new("/run/100%/s"), false).unwrap().contains("/run/100%%/s"));
    }
}
