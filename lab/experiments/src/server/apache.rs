//! Apache httpd with the event module, from Debian's `apache2.conf` and `mods-available/mpm_event.conf`.

use std::process::Command;

use seekless_base::Fault;

use super::{Site, worker_group, worker_user, write};
use crate::scenario::ServerVariant;
use crate::tools;

/// The configuration and the command that runs it.
///
/// As shipped, Apache maps files into memory and faults them in while writing to the socket. Page faults are
/// not calls, so no preload can see them: the `threads` variant turns maps off and sendfile on, as its manual
/// (EnableMMAP, EnableSendfile) describes.
pub(super) fn command(variant: ServerVariant, site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let program = tools::find("apache2")?;
    let modules = program.file("usr/lib/apache2/modules");
    let user = match (worker_user(), worker_group()) {
        (Some(user), Some(group)) => format!("User {user}\nGroup {group}\n"),
        _ => String::new(),
    };
    let files = match variant {
        ServerVariant::Shipped | ServerVariant::Reads => "",
        ServerVariant::Threads => "EnableMMAP Off\nEnableSendfile On\n",
    };
    let text = format!(
        "ServerRoot \"{dir}\"\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {dir}/apache2.pid\n\
         DefaultRuntimeDir {dir}\nMutex file:{dir} default\nErrorLog {dir}/error.log\nLogLevel warn\n\
         LoadModule mpm_event_module {modules}/mod_mpm_event.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\n{user}\
         StartServers 2\nMinSpareThreads 25\nMaxSpareThreads 75\nThreadLimit 64\nThreadsPerChild 25\n\
         MaxRequestWorkers 150\nMaxConnectionsPerChild 0\n\
         Timeout 300\nKeepAlive On\nMaxKeepAliveRequests 100\nKeepAliveTimeout 5\nHostnameLookups Off\n{files}\
         LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O\" common\nCustomLog {dir}/access.log common\n\
         DocumentRoot \"{root}\"\n<Directory \"{root}\">\n    Require all granted\n    AllowOverride None\n</Directory>\n",
        dir = site.dir.display(),
        modules = modules.display(),
        root = site.root.display(),
    );
    // %O and logging itself are modules of their own where the package splits them out.
    let text = match modules.join("mod_log_config.so").exists() {
        true => text.replacen(
            "LoadModule",
            &format!("LoadModule log_config_module {}/mod_log_config.so\nLoadModule", modules.display()),
            1,
        ),
        false => text,
    };
    let text = text.replace("%>s %O", "%>s %B");
    let config = write(site, "apache2.conf", &text)?;
    let mut command = program.command();
    command.arg("-D").arg("FOREGROUND").arg("-f").arg(config);
    Ok(command)
}
