//! Sockets that systemd makes, and a program that is started with them.

use std::ffi::CString;
use std::fs::Permissions;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use seekless_kernel::fdpass::{self, Address};

use super::SEEKLESS;

/// What `ListenSequentialPacket=` and `SocketMode=` make: a socket that blocks.
pub fn packets(path: &Path, mode: u32) -> OwnedFd {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let socket = fdpass::listen(Address::Path(&name), 4096).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    rustix::io::ioctl_fionbio(&socket, false).unwrap();
    socket
}

/// `seekless` with these sockets at the descriptors from 3 on. The variables name the process that becomes
/// it, so they are set after the fork. A second one takes the place of standard output on the way.
pub fn seekless(sockets: &[&dyn AsFd]) -> Command {
    let own = |socket: &&dyn AsFd| Stdio::from(socket.as_fd().try_clone_to_owned().unwrap());
    let mut command = Command::new("sh");
    let second = if sockets.len() > 1 { "4>&1 >/dev/null" } else { "" };
    let names = ["one.socket", "two.socket"][..sockets.len()].join(":");
    let script = format!(
        "export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={names}; exec \"$@\" 3<&0 </dev/null {second}",
        sockets.len()
    );
    command.args(["-c", &script, "sh"]).arg(&*SEEKLESS);
    command.stdin(own(&sockets[0]));
    if let Some(second) = sockets.get(1) {
        command.stdout(own(second));
    }
    command
}
