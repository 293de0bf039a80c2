//! How a daemon is set up.

use std::path::PathBuf;
use std::time::Duration;

use seekless_policy::Mode;
use seekless_wire as wire;

/// Settings of a daemon. Fixed while it runs.
#[derive(Clone, Debug)]
pub struct DaemonSettings {
    /// Path of the listening socket; the abstract twin's name follows from it.
    pub socket: PathBuf,
    /// Permission bits of the socket. Those for "others" decide about other users on the twin as well.
    pub socket_mode: u32,
    /// What the readers of the disks do.
    pub engine: seekless_engine::Settings,
    /// Most connections open at once; cut further to what the descriptor limit allows.
    pub connections_max: usize,
    /// How long shims may believe the mode and prefetch size without asking again.
    pub settings_ttl: Duration,
    /// How long shims leave a device alone that is no disk.
    pub device_ttl: Duration,
    /// Whether another daemon of the same user may take over.
    pub hands_over: bool,
}

impl DaemonSettings {
    /// The defaults, listening at `socket`.
    ///
    /// Servers drop privileges after they start (`www-data`, `nobody`), so the daemon of root lets any local
    /// user connect. Nothing secret passes: a client can only ask for reads of a descriptor it already holds
    /// open for reading, is told no more than that they are done, and shares the memory it reports reads
    /// through with no other user. What one user could do is fill what all share: docs/SECURITY.md has the
    /// bounds.
    pub fn new(socket: PathBuf) -> DaemonSettings {
        let root = rustix::process::geteuid().is_root();
        DaemonSettings {
            socket,
            socket_mode: if root { 0o666 } else { 0o600 },
            engine: seekless_engine::Settings::default(),
            connections_max: 4096,
            settings_ttl: Duration::from_secs(1),
            // Long enough to cost nothing, short enough that a device number used anew is noticed.
            device_ttl: Duration::from_secs(10),
            hands_over: false,
        }
    }

    /// Most connections one user other than root may hold: three quarters, so that a second user always gets
    /// in.
    pub fn user_share(&self) -> usize {
        crate::shares::of(self.connections_max)
    }

    /// The mode in the wire's words.
    pub(crate) fn wire_mode(&self) -> wire::Mode {
        match self.engine.spindle.mode {
            Mode::Off => wire::Mode::Off,
            Mode::Track => wire::Mode::Track,
            Mode::Serialise => wire::Mode::Serialise,
            Mode::Prefetch => wire::Mode::Prefetch,
            Mode::Both => wire::Mode::Both,
        }
    }

    /// What shims are told; `ring` is the number of the ring they are to report through, 0: none.
    pub(crate) fn wire(&self, ring: u8) -> wire::Settings {
        let ms = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
        wire::Settings {
            mode: self.wire_mode(),
            ring,
            settings_ttl_ms: ms(self.settings_ttl),
            prefetch_bytes: self.engine.spindle.prefetch.0,
        }
    }
}
